//! Union: several inputs with the same columns become one stream. The instance merges their watermarks,
//! so the operator only passes chunks on.

use arrow_array::Int8Array;
use arrow_schema::SchemaRef;

use super::{Output, Stateless};
use crate::chunk::{Chunk, RowKind};
use crate::error::Result;

/// Passes on the chunks of all its inputs, under one schema.
pub struct Union {
    schema: SchemaRef,
    /// Whether some input brings changes, so that all rows need a kind.
    changes: bool,
}

impl Union {
    /// A union whose inputs all have the column types of `schema`, in order.
    pub fn new(schema: SchemaRef) -> Union {
        Union {
            schema,
            changes: false,
        }
    }

    /// A union if some input brings rows that change others.
    pub fn of_changes(schema: SchemaRef) -> Union {
        Union {
            schema,
            changes: true,
        }
    }
}

impl Stateless for Union {
    fn process(&mut self, chunk: Chunk, output: &mut Output) -> Result<()> {
        let columns = chunk.batch.columns().to_vec();
        let mut chunk = chunk.with_columns(self.schema.clone(), columns)?;
        if self.changes && chunk.kinds.is_none() {
            let inserts = vec![RowKind::Insert as i8; chunk.rows()];
            chunk.kinds = Some(Int8Array::from(inserts));
        }
        output.emit(chunk);
        Ok(())
    }
}
