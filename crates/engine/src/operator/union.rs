//! Union: several inputs with the same columns become one stream. Merging watermarks is the
//! instance's work, so nothing is left to do but to pass chunks on.

use arrow_schema::SchemaRef;

use super::{Operator, Output};
use crate::chunk::Chunk;
use crate::error::Result;

/// Passes on the chunks of all its inputs, under one schema.
pub struct Union {
    schema: SchemaRef,
}

impl Union {
    /// A union whose inputs all have the column types of `schema`, in order.
    pub fn new(schema: SchemaRef) -> Union {
        Union { schema }
    }
}

impl Operator for Union {
    fn is_stateless(&self) -> bool {
        true
    }

    fn process(&mut self, _input: usize, chunk: Chunk, output: &mut Output) -> Result<()> {
        let columns = chunk.batch.columns().to_vec();
        output.emit(chunk.with_columns(self.schema.clone(), columns)?);
        Ok(())
    }
}
