//! A changelog as plain rows: the kind of each row is in a column of its own, for sinks that can only add
//! rows.

use std::sync::Arc;

use arrow_array::{ArrayRef, StringViewArray};
use arrow_schema::SchemaRef;

use crate::chunk::{Chunk, RowKind};
use crate::error::Result;
use crate::operator::{Output, Stateless};

/// Puts a column with `+I`, `-U`, `+U` or `-D` in front of the others.
pub struct ToRows {
    schema: SchemaRef,
}

impl ToRows {
    /// An operator with the output `schema`: the kind's column, then the input's.
    pub fn new(schema: SchemaRef) -> ToRows {
        ToRows { schema }
    }
}

impl Stateless for ToRows {
    fn process(&mut self, chunk: Chunk, output: &mut Output) -> Result<()> {
        let kind = |row: usize| chunk.kinds.as_ref().map_or(0, |kinds| kinds.value(row));
        let kinds = (0..chunk.rows()).map(|row| RowKind::symbol(kind(row)));
        let kinds: ArrayRef = Arc::new(StringViewArray::from_iter_values(kinds));
        let columns = [kinds].into_iter();
        let columns = columns.chain(chunk.batch.columns().iter().cloned());
        let rows = chunk.with_columns(self.schema.clone(), columns.collect())?;
        output.emit(Chunk {
            kinds: None,
            ..rows
        });
        Ok(())
    }
}
