//! Map: computes columns (SQL's projection).

use std::sync::Arc;

use arrow_schema::SchemaRef;

use super::{Output, Stateless};
use crate::chunk::Chunk;
use crate::error::Result;
use crate::expression::{Expression, evaluate};

/// Replaces the columns of each chunk by the values of expressions.
pub struct Map {
    expressions: Vec<Arc<dyn Expression>>,
    schema: SchemaRef,
}

impl Map {
    /// A map to `schema`, one expression per field.
    pub fn new(expressions: Vec<Arc<dyn Expression>>, schema: SchemaRef) -> Map {
        assert_eq!(
            expressions.len(),
            schema.fields().len(),
            "one expression per field"
        );
        Map {
            expressions,
            schema,
        }
    }
}

impl Stateless for Map {
    fn process(&mut self, chunk: Chunk, output: &mut Output) -> Result<()> {
        let evaluated = evaluate(&self.expressions, chunk)?;
        evaluated
            .rejected
            .into_iter()
            .for_each(|rejected| output.reject(rejected));
        output.emit(
            evaluated
                .chunk
                .with_columns(self.schema.clone(), evaluated.columns)?,
        );
        Ok(())
    }
}
