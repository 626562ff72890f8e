//! Rows that an operator keeps one by one, each in memory of its own: a row that is no longer needed then
//! holds nothing, however many others came with it.

use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array, UInt64Array};
use arrow_row::{RowConverter, SortField};
use arrow_schema::Schema;

use crate::accumulator::OrderKey;
use crate::chunk::{Chunk, Origin};
use crate::error::Result;

/// A row, and its place among the rows of its key: rows compare by event time, partition and position,
/// and rows without these (made by a stateful operator) by their values.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptRow {
    pub order: OrderKey,
    bytes: Box<[u8]>,
}

impl KeptRow {
    /// About how many bytes it holds.
    pub fn bytes(&self) -> usize {
        // Its order, a pointer, and the allocator's overhead.
        self.bytes.len() + 56
    }
}

/// Turns columns into kept rows, and kept rows into columns.
pub struct RowKeeper {
    converter: RowConverter,
}

impl RowKeeper {
    /// A keeper for rows with the columns of `schema`.
    pub fn new(schema: &Schema) -> Result<RowKeeper> {
        let fields = schema.fields().iter();
        let fields = fields.map(|field| SortField::new(field.data_type().clone()));
        Ok(RowKeeper {
            converter: RowConverter::new(fields.collect())?,
        })
    }

    /// Keeps the first columns of a chunk's rows, as many as the schema has, with these event times.
    pub fn keep(&self, columns: &[ArrayRef], chunk: &Chunk, times: &[i64]) -> Result<Vec<KeptRow>> {
        let rows = self.converter.convert_columns(columns)?;
        let kept = times.iter().enumerate().map(|(row, &time)| {
            let (partition, position) = chunk.place(row);
            KeptRow {
                order: (time, partition, position),
                bytes: rows.row(row).as_ref().into(),
            }
        });
        Ok(kept.collect())
    }

    /// The columns of kept rows.
    pub fn columns<'a>(&self, rows: impl Iterator<Item = &'a KeptRow>) -> Result<Vec<ArrayRef>> {
        let parser = self.converter.parser();
        let rows = rows.map(|row| parser.parse(&row.bytes));
        Ok(self.converter.convert_rows(rows)?)
    }

    /// Restores rows from the columns of [`RowKeeper::columns`] and [`places`], with these event times.
    pub fn restore(
        &self,
        columns: &[ArrayRef],
        times: &[i64],
        partitions: &UInt32Array,
        positions: &UInt64Array,
    ) -> Result<Vec<KeptRow>> {
        let rows = self.converter.convert_columns(columns)?;
        let kept = times.iter().enumerate().map(|(row, &time)| KeptRow {
            order: (time, partitions.value(row), positions.value(row)),
            bytes: rows.row(row).as_ref().into(),
        });
        Ok(kept.collect())
    }
}

/// The origin of rows that are emitted.
pub fn origin<'a>(rows: impl Iterator<Item = &'a KeptRow> + Clone) -> Option<Origin> {
    Origin::of_places(rows.map(|row| (row.order.1, row.order.2)))
}

/// The partition and position of rows, as columns.
pub fn places<'a>(rows: impl Iterator<Item = &'a KeptRow> + Clone) -> (UInt32Array, UInt64Array) {
    let partitions = rows.clone().map(|row| row.order.1);
    let positions = rows.map(|row| row.order.2);
    (
        UInt32Array::from_iter_values(partitions),
        UInt64Array::from_iter_values(positions),
    )
}

/// Whether the columns fit `schema`.
pub fn fit(columns: &[ArrayRef], schema: &Schema) -> bool {
    let types = schema.fields().iter().map(|field| field.data_type());
    types.eq(columns.iter().map(|column| column.data_type()))
}

/// A column of a snapshot, without NULLs.
pub fn own_column<T: Array + 'static>(batch: &RecordBatch, index: usize) -> Option<&T> {
    let column = batch.columns().get(index)?;
    let column = (column.null_count() == 0).then_some(column)?;
    column.as_any().downcast_ref::<T>()
}
