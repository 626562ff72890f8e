//! Table join: a stream, whose rows are emitted at once, and a table that ends.
//!
//! The table is read to its end before the first row of the stream ([`Operator::first_input`]), so the
//! result depends neither on time nor on which side is faster. Every instance gets the whole table by
//! broadcast and keeps a copy of its own, in the memory of its core; rows of the stream stay where they
//! are. The table is the same in each unit of work.
//!
//! The table is not part of snapshots: reading it again gives the same rows.

pub(super) mod index;
mod only;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{RecordBatch, UInt32Array, UInt64Array};
use arrow_schema::SchemaRef;

use super::join::copy_views;
use super::{Facts, Output, Progress, Stateful, Timer};
use crate::chunk::{Chunk, Origin, Partitions, Positions};
use crate::error::{Error, Result};
use crate::expression::{Expression, evaluate};
use crate::key::{EncodedKeys, KeyColumns};
use crate::state::KeyedState;
use crate::time::EventTime;
use index::{Cursor, Index, Pairs};

/// The input with the stream.
pub const STREAM: usize = 0;

/// The input with the table.
pub const TABLE: usize = 1;

/// What a table join does.
#[derive(Debug, Clone)]
pub struct TableJoinSpec {
    /// The key columns of the stream, and those of the table in the same order and of the same types.
    pub keys: [Vec<usize>; 2],
    /// The columns of the table.
    pub table: SchemaRef,
    /// Whether rows of the stream without a partner are emitted too, padded with NULL.
    pub keeps_unmatched: bool,
    /// If only rows of the stream are emitted: which ones.
    pub only: Option<Only>,
    /// A further condition over the columns of both (the stream's, then the table's).
    pub condition: Option<Arc<dyn Expression>>,
    /// The columns of a pair: all of the stream, then all of the table.
    pub schema: SchemaRef,
}

/// Which rows of the stream are emitted alone, each once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Only {
    /// Rows that have a partner: a semi join.
    WithPartner,
    /// Rows that have no partner: an anti join.
    WithoutPartner,
    /// Rows whose key is known not to be in the table: SQL's NOT IN. A NULL in the table could be any
    /// key, so no row qualifies; a row's own NULL could be one of the table's keys, if there are any.
    NotAmong,
}

/// Table join.
pub struct TableJoin {
    spec: TableJoinSpec,
    table: Table,
    /// Rows of the stream that have partners left.
    rest: Option<Rest>,
}

enum Table {
    /// The rows of the table so far.
    Growing(Vec<RecordBatch>),
    /// The whole table.
    Whole(Box<Index>),
}

/// A chunk of the stream that is being joined.
struct Rest {
    chunk: Chunk,
    search: EncodedKeys,
    cursor: Cursor,
    /// Which rows have found a partner, if only that matters.
    found: Vec<bool>,
}

impl TableJoin {
    /// A join whose table is empty so far.
    pub fn new(spec: TableJoinSpec) -> TableJoin {
        TableJoin {
            spec,
            table: Table::Growing(Vec::new()),
            rest: None,
        }
    }

    /// The table, which is complete once a row of the stream has come.
    fn whole(&mut self) -> Result<&Index> {
        if let Table::Growing(batches) = &mut self.table {
            let rows = arrow_select::concat::concat_batches(&self.spec.table, batches.iter())?;
            let index = Index::new(rows, &self.spec.keys[TABLE])?;
            self.table = Table::Whole(Box::new(index));
        }
        match &self.table {
            Table::Whole(index) => Ok(index),
            Table::Growing(_) => unreachable!("made whole just above"),
        }
    }

    /// The pairs for which the condition holds, and the rows for which it failed.
    fn holding(
        &mut self,
        pairs: Pairs,
        chunk: &Chunk,
        output: &mut Output,
    ) -> Result<(Pairs, Vec<u32>)> {
        let Some(condition) = self.spec.condition.clone() else {
            return Ok((pairs, Vec::new()));
        };
        let candidates = self.joined(&pairs, chunk)?;
        let (kept, failed) = holding(&condition, candidates, chunk, &pairs.stream, output)?;
        Ok((pairs.only(kept.into_iter()), failed))
    }

    /// Rows of both sides next to each other, with the origin of the stream's.
    fn joined(&mut self, pairs: &Pairs, chunk: &Chunk) -> Result<Chunk> {
        let schema = self.spec.schema.clone();
        let partners = UInt32Array::from(pairs.table.clone());
        let rows = UInt32Array::from(pairs.stream.clone());
        let in_place = pairs.stream.iter().copied().eq(0..chunk.rows() as u32);
        let taken = if in_place {
            chunk.clone()
        } else {
            chunk.take(&rows)?
        };
        let mut columns = taken.batch.columns().to_vec();
        for column in self.whole()?.rows().columns() {
            columns.push(arrow_select::take::take(column, &partners, None)?);
        }
        taken.with_columns(schema, columns)
    }
}

impl Stateful for TableJoin {
    fn facts(&self) -> Facts {
        Facts {
            placed_by: vec![None, None],
            is_replicated: false,
            first_input: Some(TABLE),
            delay_us: 0,
            shares_input: true,
        }
    }

    fn process(&mut self, input: usize, chunk: Chunk, _output: &mut Output) -> Result<()> {
        if input == TABLE {
            let Table::Growing(batches) = &mut self.table else {
                return Err(Error::new(
                    "table join",
                    "rows of the table came after its end",
                ));
            };
            batches.push(copied(chunk.batch)?);
            return Ok(());
        }
        let keys = KeyColumns::of_chunk(&chunk, &self.spec.keys[STREAM])?;
        let search = self.whole()?.encode(keys)?;
        let found = match self.spec.only {
            Some(_) => vec![false; chunk.rows()],
            None => Vec::new(),
        };
        self.rest = Some(Rest {
            chunk,
            found,
            search,
            cursor: Cursor::default(),
        });
        Ok(())
    }

    /// Emits further pairs. A row may have as many partners as the table has rows: a chunk of them at a
    /// time.
    fn rest(&mut self, output: &mut Output) -> Result<Progress> {
        let Some(mut rest) = self.rest.take() else {
            return Ok(Progress::Done);
        };
        if let Some(only) = self.spec.only {
            return self.step_only(only, rest, output);
        }
        let before = rest.cursor;
        let found = self
            .whole()?
            .pairs(&rest.search, &mut rest.cursor, output.chunk_rows);
        let (mut pairs, failed) = self.holding(found, &rest.chunk, output)?;
        if self.spec.keeps_unmatched {
            pairs = pairs.padded(before, &mut rest.cursor, &failed);
        }
        if pairs.len() > 0 {
            output.emit(self.joined(&pairs, &rest.chunk)?);
        }
        if rest.cursor.row == rest.chunk.rows() {
            return Ok(Progress::Done);
        }
        self.rest = Some(rest);
        Ok(Progress::More)
    }

    fn advance(&mut self, _watermark: EventTime, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    fn timer(&mut self) -> Option<&mut dyn Timer> {
        None
    }

    fn end_unit(&mut self, _output: &mut Output) -> Result<()> {
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn KeyedState> {
        None
    }

    fn bytes(&self) -> usize {
        match &self.table {
            Table::Growing(batches) => {
                let batches = batches.iter();
                batches.map(RecordBatch::get_array_memory_size).sum()
            }
            Table::Whole(index) => index.bytes(),
        }
    }
}

/// Which of the candidates the condition holds for, and the rows for which it failed, increasing. Only
/// the candidate for which it fails is rejected; its row is not padded. Candidate `i` was made from row
/// `rows[i]` of `chunk`.
pub(super) fn holding(
    condition: &Arc<dyn Expression>,
    mut candidates: Chunk,
    chunk: &Chunk,
    rows: &[u32],
    output: &mut Output,
) -> Result<(Vec<usize>, Vec<u32>)> {
    // Their positions are temporarily their numbers, to identify those that are left.
    let numbers = UInt64Array::from_iter_values(0..rows.len() as u64);
    candidates.origin = Some(Origin {
        partitions: Partitions::One(0),
        positions: Positions::List(numbers),
        watermarks: None,
    });
    let evaluated = evaluate(std::slice::from_ref(condition), candidates)?;
    let mut failed = Vec::new();
    for mut rejected in evaluated.rejected {
        let row = rows[rejected.position.unwrap_or(0) as usize];
        let origin = chunk.origin.as_ref();
        rejected.partition = origin.map(|origin| origin.partitions.at(row as usize));
        rejected.position = origin.map(|origin| origin.positions.at(row as usize));
        output.reject(rejected);
        failed.push(row);
    }
    let kept = evaluated.chunk.filter(evaluated.columns[0].as_boolean())?;
    let origin = kept.origin.as_ref().expect("set just above");
    let numbers = (0..kept.rows()).map(|row| origin.positions.at(row) as usize);
    Ok((numbers.collect(), failed))
}

/// The rows in memory of their own, so that they hold neither the link's frame nor the source's block.
pub(super) fn copied(batch: RecordBatch) -> Result<RecordBatch> {
    let all = UInt32Array::from_iter_values(0..batch.num_rows() as u32);
    // A chunk keeps its number of rows even without columns.
    copy_views(Chunk::new(batch, 0).take(&all)?.batch)
}

#[cfg(test)]
mod tests;
