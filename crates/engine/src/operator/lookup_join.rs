//! Lookup join: each row of a stream with the rows that an external table has for its key at that moment.
//!
//! Rows are emitted at once, in their order, and nothing is kept but a cache: the operator is stateless,
//! and is not part of snapshots. The output depends on when the table was asked. So the join is an
//! exception to I1, and marked as one: another run, another parallelism or a restore may find other rows.
//!
//! The distinct keys of a chunk that are not in the cache are looked up together, on the worker's thread.
//! While the table answers, the worker does nothing else: this holds the source back (I3), needs no queue
//! of waiting rows and keeps their order. Lookups in a distant table cost one round trip per chunk; more
//! workers or longer chunks help.

mod cache;

use std::fmt;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_row::{RowConverter, SortField};
use arrow_schema::SchemaRef;
use hashbrown::HashTable;

use super::table_join::holding;
use super::{Output, Stateless};
use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::expression::{Expression, reject};
use crate::key::{EncodedKeys, KeyColumns, KeyEncoder};
use crate::time::now_ns;
use cache::{Cache, Entry};

pub use cache::CacheSettings;

/// A table whose rows can be looked up by key.
pub trait LookupConnector: Send + Sync {
    /// The connector's name and the table (`sqlite shop.db, table customers`).
    fn describe(&self) -> String;

    /// The cache settings.
    fn cache(&self) -> CacheSettings;

    /// Makes the lookup of one instance. This opens nothing yet.
    fn lookup(&self, request: &LookupRequest) -> Result<Box<dyn Lookup>>;
}

/// What to look up. All are indices into the columns that the table declares (without computed ones).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupRequest {
    /// The columns to look up by.
    pub keys: Vec<usize>,
    /// The columns to read.
    pub columns: Vec<usize>,
}

/// One instance's access to a table.
pub trait Lookup: Send {
    /// Opens the table, or checks that it is open. Called on the worker's thread, once for each unit of
    /// work.
    fn open(&mut self) -> Result<()>;

    /// The rows that the table has now for the given keys: an array for each of [`LookupRequest::keys`],
    /// of that column's type, without NULL and without duplicate keys. May wait for the table, and
    /// retries if that may help.
    fn look_up(&mut self, keys: &[ArrayRef]) -> Result<Found>;
}

/// The rows that a table has for some keys.
pub struct Found {
    /// The rows, with the columns [`LookupRequest::columns`].
    pub rows: RecordBatch,
    /// The number of the key that each row belongs to.
    pub keys: Vec<u32>,
    /// Keys with a row that can't be read, and why.
    pub failed: Vec<(u32, String)>,
}

/// What a lookup join does.
#[derive(Clone)]
pub struct LookupJoinSpec {
    /// The table to look up in.
    pub connector: Arc<dyn LookupConnector>,
    /// What to look up.
    pub request: LookupRequest,
    /// The key columns of the stream, in the order of the request's and of the same types.
    pub keys: Vec<usize>,
    /// The columns that are read from the table.
    pub table: SchemaRef,
    /// Whether rows of the stream without a partner are emitted too, padded with NULL.
    pub keeps_unmatched: bool,
    /// A further condition over the columns of both (the stream's, then the table's).
    pub condition: Option<Arc<dyn Expression>>,
    /// All columns of the stream, then those that are read.
    pub schema: SchemaRef,
}

impl fmt::Debug for LookupJoinSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookupJoinSpec")
            .field("table", &self.connector.describe())
            .field("request", &self.request)
            .field("keys", &self.keys)
            .field("keeps_unmatched", &self.keeps_unmatched)
            .field("condition", &self.condition)
            .field("schema", &self.schema)
            .finish()
    }
}

/// Lookup join.
pub struct LookupJoin {
    spec: LookupJoinSpec,
    lookup: Box<dyn Lookup>,
    /// Encodes the keys.
    key_encoder: KeyEncoder,
    /// Encodes the table's rows: as bytes they are small, and share no memory.
    row_converter: RowConverter,
    /// A row of NULLs, encoded.
    padding: Box<[u8]>,
    cache: Cache,
}

/// The number of a key with a NULL, which is not looked up.
const NO_KEY: u32 = u32::MAX;

/// The distinct keys of a chunk.
struct Keys {
    /// For each row, the number of its key.
    of_row: Vec<u32>,
    /// For each key, its first row.
    first: Vec<u32>,
}

impl LookupJoin {
    /// A join that has looked up nothing yet.
    pub fn new(spec: LookupJoinSpec) -> Result<LookupJoin> {
        let lookup = spec.connector.lookup(&spec.request)?;
        let stream_schema = spec.schema.clone();
        let key_encoder = KeyEncoder::of_schema(&stream_schema, &spec.keys)?;
        let fields = spec.table.fields().iter();
        let types = fields
            .clone()
            .map(|field| SortField::new(field.data_type().clone()));
        let row_converter = RowConverter::new(types.collect())?;
        let nulls = fields.map(|field| arrow_array::new_null_array(field.data_type(), 1));
        let nulls = row_converter.convert_columns(&nulls.collect::<Vec<ArrayRef>>())?;
        let padding = nulls.row(0).as_ref().into();
        let cache = Cache::new(spec.connector.cache());
        Ok(LookupJoin {
            spec,
            lookup,
            key_encoder,
            row_converter,
            padding,
            cache,
        })
    }

    /// The entry of each key: from the cache, and the others with one request.
    fn entries(
        &mut self,
        columns: &[ArrayRef],
        encoded: &EncodedKeys,
        keys: &Keys,
    ) -> Result<Vec<Arc<Entry>>> {
        let asked_ns = now_ns();
        let known = keys.first.iter().map(|&row| {
            let key = encoded.key(row as usize);
            self.cache.get(key, asked_ns)
        });
        let mut entries = known.collect::<Vec<Option<Arc<Entry>>>>();
        let missing = entries.iter().zip(&keys.first);
        let missing = missing.filter(|(entry, _)| entry.is_none());
        let missing = missing.map(|(_, &row)| row).collect::<Vec<u32>>();
        let mut found = match missing.is_empty() {
            true => Vec::new(),
            false => self.ask(columns, missing, asked_ns)?,
        }
        .into_iter();
        for (entry, &row) in entries.iter_mut().zip(&keys.first) {
            if entry.is_some() {
                continue;
            }
            let new = Arc::new(found.next().expect("one for each that is missing"));
            self.cache.insert(encoded.key(row as usize), new.clone());
            *entry = Some(new);
        }
        Ok(entries.into_iter().flatten().collect())
    }

    /// Asks the table for the keys of the given rows.
    fn ask(&mut self, columns: &[ArrayRef], rows: Vec<u32>, asked_ns: u64) -> Result<Vec<Entry>> {
        let count = rows.len();
        let rows = UInt32Array::from(rows);
        let take = |column: &ArrayRef| Ok(arrow_select::take::take(column, &rows, None)?);
        let keys = columns.iter().map(take).collect::<Result<Vec<_>>>()?;
        let found = self.lookup.look_up(&keys)?;
        let place = || self.spec.connector.describe();
        let numbers = found.failed.iter().map(|(key, _)| key).chain(&found.keys);
        let are_ours = numbers.into_iter().all(|&key| (key as usize) < count);
        if found.keys.len() != found.rows.num_rows() || !are_ours {
            let reason = "answered with rows of keys that were not requested";
            return Err(Error::new(place(), reason));
        }
        let encoded = self.row_converter.convert_columns(found.rows.columns());
        let encoded = encoded.map_err(|error| Error::from(error).at(&place()))?;
        let mut entries = (0..count)
            .map(|_| Entry::new(asked_ns))
            .collect::<Vec<Entry>>();
        for (row, &key) in encoded.iter().zip(&found.keys) {
            entries[key as usize].rows.push(row.as_ref().into());
        }
        for (key, reason) in found.failed {
            entries[key as usize].failure.get_or_insert(reason);
        }
        Ok(entries)
    }

    /// Rows of the stream next to rows of the table.
    fn joined(&self, chunk: &Chunk, rows: &[u32], partners: &[&[u8]]) -> Result<Chunk> {
        let in_place = rows.iter().copied().eq(0..chunk.rows() as u32);
        let taken = match in_place {
            true => chunk.clone(),
            false => chunk.take(&UInt32Array::from(rows.to_vec()))?,
        };
        let parser = self.row_converter.parser();
        let partners = partners.iter().map(|bytes| parser.parse(bytes));
        let mut columns = taken.batch.columns().to_vec();
        columns.extend(self.row_converter.convert_rows(partners)?);
        taken.with_columns(self.spec.schema.clone(), columns)
    }

    /// Emits the results of the rows `rows` of a chunk, which have these candidates.
    fn emit(
        &self,
        chunk: &Chunk,
        rows: std::ops::Range<usize>,
        candidates: Candidates<'_>,
        output: &mut Output,
    ) -> Result<()> {
        let Candidates {
            rows: mut stream,
            mut partners,
            refused,
        } = candidates;
        let mut refused = refused;
        if let Some(condition) = &self.spec.condition
            && !stream.is_empty()
        {
            let joined = self.joined(chunk, &stream, &partners)?;
            let (kept, failed) = holding(condition, joined, chunk, &stream, output)?;
            partners = kept.iter().map(|&pair| partners[pair]).collect();
            stream = kept.iter().map(|&pair| stream[pair]).collect();
            refused.extend(failed);
            refused.sort_unstable();
        }
        if self.spec.keeps_unmatched {
            let mut pairs = stream.iter().zip(&partners).peekable();
            let (mut padded, mut beside) = (Vec::new(), Vec::<&[u8]>::new());
            for row in rows.map(|row| row as u32) {
                let mut is_matched = refused.binary_search(&row).is_ok();
                while let Some((_, partner)) = pairs.next_if(|(of, _)| **of == row) {
                    padded.push(row);
                    beside.push(partner);
                    is_matched = true;
                }
                if !is_matched {
                    padded.push(row);
                    beside.push(&self.padding);
                }
            }
            (stream, partners) = (padded, beside);
        }
        // A row may have more partners than a chunk has room for.
        let pieces = stream.chunks(output.chunk_rows);
        for (rows, partners) in pieces.zip(partners.chunks(output.chunk_rows)) {
            output.emit(self.joined(chunk, rows, partners)?);
        }
        Ok(())
    }
}

/// Pairs of a stream's row and a table's that have the same key.
#[derive(Default)]
struct Candidates<'a> {
    /// The rows, increasing.
    rows: Vec<u32>,
    partners: Vec<&'a [u8]>,
    /// Rows that were rejected, increasing.
    refused: Vec<u32>,
}

impl Stateless for LookupJoin {
    fn begin_unit(&mut self) -> Result<()> {
        self.lookup.open()
    }

    fn bytes(&self) -> usize {
        self.cache.bytes()
    }

    fn process(&mut self, chunk: Chunk, output: &mut Output) -> Result<()> {
        let columns = self.spec.keys.iter();
        let columns = columns.map(|&key| chunk.batch.column(key).clone());
        let columns = columns.collect::<Vec<ArrayRef>>();
        let encoded = KeyColumns::new(columns.clone(), chunk.rows())?;
        let encoded = self.key_encoder.encode(encoded)?;
        let keys = distinct(&encoded);
        let entries = self.entries(&columns, &encoded, &keys)?;
        let mut candidates = Candidates::default();
        let mut begin = 0;
        for row in 0..chunk.rows() {
            if let Some(entry) = entries.get(keys.of_row[row] as usize) {
                if let Some(reason) = &entry.failure {
                    output.reject(reject(&chunk, row, reason.clone()));
                    candidates.refused.push(row as u32);
                } else {
                    let partners = entry.rows.iter().map(|bytes| &bytes[..]);
                    candidates.partners.extend(partners);
                    candidates
                        .rows
                        .resize(candidates.partners.len(), row as u32);
                }
            }
            if candidates.rows.len() >= output.chunk_rows || row + 1 == chunk.rows() {
                let candidates = std::mem::take(&mut candidates);
                self.emit(&chunk, begin..row + 1, candidates, output)?;
                begin = row + 1;
            }
        }
        Ok(())
    }
}

/// The distinct keys of a chunk's rows; keys with a NULL are left out.
fn distinct(encoded: &EncodedKeys) -> Keys {
    let mut of_row = Vec::with_capacity(encoded.count());
    let mut first: Vec<u32> = Vec::new();
    let mut known = HashTable::<u32>::new();
    for row in 0..encoded.count() {
        if encoded.is_null(row) {
            of_row.push(NO_KEY);
            continue;
        }
        let key = encoded.key(row);
        let same = |number: &u32| encoded.key(first[*number as usize] as usize) == key;
        if let Some(number) = known.find(key.hash(), same) {
            of_row.push(*number);
            continue;
        }
        let number = first.len() as u32;
        first.push(row as u32);
        let hash_of = |number: &u32| encoded.hashes()[first[*number as usize] as usize];
        known.insert_unique(key.hash(), number, hash_of);
        of_row.push(number);
    }
    Keys { of_row, first }
}

#[cfg(test)]
mod tests;
