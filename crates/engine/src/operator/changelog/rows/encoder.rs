//! Rows as bytes, and back.

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{SchemaRef, SortOptions};

use super::packed::{Packed, Packer};
use crate::chunk::Chunk;
use crate::error::Result;
use crate::key::{Comparable, EncodedKeys, Key, KeyColumns, KeyEncoder};

/// The columns that rows of a key are ordered by.
pub type RowOrder = Vec<(usize, SortOptions)>;

/// Encodes rows and their keys.
pub struct Encoder {
    /// The columns of a row.
    pub schema: SchemaRef,
    keys: Vec<usize>,
    order: RowOrder,
    key_encoder: KeyEncoder,
    encoding: Encoding,
}

/// How rows are encoded.
enum Encoding {
    /// The columns of the order, then all columns.
    Sorted {
        rows: RowConverter,
        /// Converts only the columns of the order.
        order: RowConverter,
    },
    Packed(Packer),
}

/// The rows of a chunk, encoded.
pub struct Encoded {
    keys: EncodedKeys,
    rows: EncodedRows,
}

enum EncodedRows {
    /// Rows without columns, of which only the number counts.
    Empty,
    Sorted(Rows),
    Packed(Packed),
}

impl Encoded {
    /// The key of row `row`.
    pub fn key(&self, row: usize) -> Key<'_> {
        self.keys.key(row)
    }

    /// Whether the key of row `row` has a NULL: in a join it equals no other.
    pub fn has_null(&self, row: usize) -> bool {
        self.keys.is_null(row)
    }

    /// The encoding of row `row`.
    pub fn row(&self, row: usize) -> &[u8] {
        match &self.rows {
            EncodedRows::Empty => &[],
            EncodedRows::Sorted(rows) => rows.row(row).data(),
            EncodedRows::Packed(rows) => rows.row(row),
        }
    }
}

impl Encoder {
    /// An encoder whose encodings have the order of the rows: by the columns of `order`, then by all.
    pub fn sorted(schema: SchemaRef, keys: Vec<usize>, order: RowOrder) -> Result<Encoder> {
        let of = |column: usize| schema.field(column).data_type().clone();
        let in_order = order
            .iter()
            .map(|&(column, options)| SortField::new_with_options(of(column), options));
        let in_order = in_order.collect::<Vec<SortField>>();
        let all = (0..schema.fields().len()).map(|column| SortField::new(of(column)));
        let encoding = Encoding::Sorted {
            order: RowConverter::new(in_order.clone())?,
            rows: RowConverter::new(in_order.into_iter().chain(all).collect())?,
        };
        Encoder::new(schema, keys, order, encoding)
    }

    /// An encoder whose encodings are short.
    pub fn packed(schema: SchemaRef, keys: Vec<usize>) -> Result<Encoder> {
        match Packer::new(&schema) {
            Some(packer) => Encoder::new(schema, keys, vec![], Encoding::Packed(packer)),
            None => Encoder::sorted(schema, keys, vec![]),
        }
    }

    fn new(
        schema: SchemaRef,
        keys: Vec<usize>,
        order: RowOrder,
        encoding: Encoding,
    ) -> Result<Encoder> {
        Ok(Encoder {
            key_encoder: KeyEncoder::of_schema(&schema, &keys)?,
            schema,
            keys,
            order,
            encoding,
        })
    }

    /// Encodes the rows of a chunk.
    pub fn encode(&self, chunk: &Chunk) -> Result<Encoded> {
        self.encode_rows(&chunk.batch, KeyColumns::of_chunk(chunk, &self.keys)?)
    }

    /// Encodes the rows of a batch.
    pub fn encode_batch(&self, batch: &RecordBatch) -> Result<Encoded> {
        self.encode_rows(batch, KeyColumns::of_batch(batch, &self.keys)?)
    }

    fn encode_rows(&self, batch: &RecordBatch, keys: KeyColumns) -> Result<Encoded> {
        Ok(Encoded {
            keys: self.key_encoder.encode(keys)?,
            rows: match &self.encoding {
                _ if batch.num_columns() == 0 => EncodedRows::Empty,
                Encoding::Packed(packer) => {
                    EncodedRows::Packed(packer.pack(batch.columns(), batch.num_rows()))
                }
                Encoding::Sorted { rows, .. } => {
                    // The order's columns are encoded in their canonical form, the row itself as it came.
                    let in_order = self.in_order(batch);
                    let mut columns = Comparable::new(&in_order).columns().to_vec();
                    columns.extend(batch.columns().iter().cloned());
                    EncodedRows::Sorted(rows.convert_columns(&columns)?)
                }
            },
        })
    }

    /// Encodes keys alone.
    pub fn encode_keys(&self, keys: KeyColumns) -> Result<EncodedKeys> {
        self.key_encoder.encode(keys)
    }

    fn in_order(&self, batch: &RecordBatch) -> Vec<ArrayRef> {
        let in_order = self.order.iter();
        let in_order = in_order.map(|&(column, _)| batch.column(column).clone());
        in_order.collect()
    }

    /// Encodes only the beginnings of a chunk's rows, by which they are ordered, and the keys; `None` if rows
    /// have no order.
    pub fn encode_order(&self, chunk: &Chunk) -> Result<Option<Encoded>> {
        let Encoding::Sorted { order, .. } = &self.encoding else {
            return Ok(None);
        };
        if self.order.is_empty() {
            return Ok(None);
        }
        let in_order = self.in_order(&chunk.batch);
        let in_order = Comparable::new(&in_order);
        let rows = order.convert_columns(in_order.columns())?;
        Ok(Some(Encoded {
            keys: (self.key_encoder).encode(KeyColumns::of_chunk(chunk, &self.keys)?)?,
            rows: EncodedRows::Sorted(rows),
        }))
    }

    /// The rows that these encodings stand for.
    pub fn decode<'r>(&self, encodings: impl Iterator<Item = &'r [u8]>) -> Result<RecordBatch> {
        let mut rows = 0;
        let encodings = encodings.inspect(|_| rows += 1);
        let columns = match &self.encoding {
            _ if self.schema.fields().is_empty() => {
                encodings.for_each(drop);
                Vec::new()
            }
            Encoding::Packed(packer) => packer.unpack(encodings)?,
            Encoding::Sorted { rows, .. } => {
                let parser = rows.parser();
                let parsed = encodings.map(|encoding| parser.parse(encoding));
                let columns = rows.convert_rows(parsed)?;
                columns[self.order.len()..].to_vec()
            }
        };
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(
            self.schema.clone(),
            columns,
            &options,
        )?)
    }
}
