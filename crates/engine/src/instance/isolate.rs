//! Rejects a row that makes an operator panic, so that the query continues: the chunk is processed again
//! row by row, and a row that causes a second panic is kept as a dead letter.
//!
//! Only for stateless operators: the state of others may be half-changed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::expression::reject;
use crate::operator::{Output, Stateless};

/// Lets a stateless operator process a chunk.
pub(super) fn process(
    operator: &mut dyn Stateless,
    chunk: Chunk,
    output: &mut Output,
) -> Result<()> {
    debug_assert!(output.chunks.is_empty(), "it was handed on");
    let kept = chunk.clone();
    match guarded(operator, chunk, output) {
        Ok(processed) => processed,
        Err(_) => {
            output.forget();
            (0..kept.rows()).try_for_each(|row| {
                let alone = kept.slice(row, 1);
                let (chunks, late) = (output.chunks.len(), output.rows_late);
                match guarded(operator, alone, output) {
                    Ok(processed) => processed,
                    Err(panic) => {
                        output.chunks.truncate(chunks);
                        output.rows_late = late;
                        output.reject(reject(&kept, row, format!("an operator {}", panic.reason)));
                        Ok(())
                    }
                }
            })
        }
    }
}

/// Calls the operator; returns its result, or its panic.
fn guarded(
    operator: &mut dyn Stateless,
    chunk: Chunk,
    output: &mut Output,
) -> std::result::Result<Result<()>, Error> {
    let work = AssertUnwindSafe(|| operator.process(chunk, output));
    catch_unwind(work).map_err(|panic| Error::of_panic("", panic.as_ref()))
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int64Array, RecordBatch};
    use arrow_schema::{DataType, Field, Schema};
    use std::sync::Arc;

    use super::*;

    /// Passes rows on, and panics at a certain number after it has emitted something.
    struct Fragile(i64);

    impl Stateless for Fragile {
        fn process(&mut self, chunk: Chunk, output: &mut Output) -> Result<()> {
            let numbers = chunk.batch.column(0).clone();
            let numbers = numbers.as_any().downcast_ref::<Int64Array>().unwrap();
            output.emit(chunk);
            output.count_late(1);
            assert!(!numbers.values().contains(&self.0), "{} is poison", self.0);
            Ok(())
        }
    }

    #[test]
    fn only_the_row_that_panics_is_rejected() {
        let schema = Schema::new(vec![Field::new("n", DataType::Int64, false)]);
        let numbers = Int64Array::from_iter_values(0..5);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(numbers)]).unwrap();
        let mut output = Output::new(100);
        process(&mut Fragile(3), Chunk::new(batch.clone(), 7), &mut output).unwrap();
        let rows = output.take_chunks().iter().map(Chunk::rows).sum::<usize>();
        assert_eq!((rows, output.rows_late()), (4, 4));
        let [rejected] = output.rejected() else {
            panic!("{:?}", output.rejected());
        };
        assert_eq!(rejected.reason, "an operator panicked: 3 is poison");
        assert_eq!(rejected.record, "n=3");
        // An operator that doesn't panic sees the chunk once, whole.
        let mut output = Output::new(100);
        process(&mut Fragile(9), Chunk::new(batch, 7), &mut output).unwrap();
        assert_eq!((output.take_chunks().len(), output.rows_late()), (1, 1));
    }
}
