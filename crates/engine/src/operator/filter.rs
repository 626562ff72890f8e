//! Filter: keeps the rows for which a condition is true. Several filters after one operator make a demux
//! (one input, several conditional outputs; UPM-CEP).

use std::sync::Arc;

use arrow_array::cast::AsArray;

use super::{Output, Stateless};
use crate::chunk::Chunk;
use crate::error::Result;
use crate::expression::{Expression, evaluate};

/// Keeps the rows for which a condition is true; NULL counts as false.
pub struct Filter {
    condition: [Arc<dyn Expression>; 1],
}

impl Filter {
    /// A filter by a boolean expression.
    pub fn new(condition: Arc<dyn Expression>) -> Filter {
        assert_eq!(
            condition.data_type(),
            arrow_schema::DataType::Boolean,
            "a condition is boolean"
        );
        Filter {
            condition: [condition],
        }
    }
}

impl Stateless for Filter {
    fn process(&mut self, chunk: Chunk, output: &mut Output) -> Result<()> {
        let evaluated = evaluate(&self.condition, chunk)?;
        evaluated
            .rejected
            .into_iter()
            .for_each(|rejected| output.reject(rejected));
        let (chunk, keep) = (evaluated.chunk, evaluated.columns[0].as_boolean());
        match keep.true_count() {
            0 => {}
            kept if kept == chunk.rows() => output.emit(chunk),
            _ => output.emit(chunk.filter(keep)?),
        }
        Ok(())
    }
}
