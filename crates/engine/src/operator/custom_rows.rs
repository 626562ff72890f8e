//! A custom operator without state: a function that the program brings gets chunks, and keeps, changes or
//! adds rows.
//!
//! Each row of the output comes from one row of the input, and has its event time, origin and kind, so that
//! lateness and order are decided as if the operator were not there.

use std::fmt::Debug;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, Int32Array, RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;

use super::{Output, Stateless};
use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::expression::reject;

/// What a custom operator without state does.
#[derive(Debug, Clone)]
pub struct CustomRowsSpec {
    /// The operator's name in SQL.
    pub name: String,
    /// The columns of the input that the function gets.
    pub gets: Vec<usize>,
    /// The columns of the input that each row keeps: the first columns of the output.
    pub keeps: Vec<usize>,
    /// The number of outputs. If there are several, the last column of the output says which one.
    pub outputs: usize,
    /// The most rows that are emitted together; `None` for the usual size of chunks.
    pub together: Option<usize>,
    /// The columns of the output: those that are kept, the function's own, and the number of the output.
    pub schema: SchemaRef,
    /// The function.
    pub function: Arc<dyn RowsFunction>,
}

/// The function of a custom operator without state.
pub trait RowsFunction: Debug + Send + Sync {
    /// The rows of each output for a batch of rows.
    ///
    /// # Errors
    ///
    /// At least one row fails: the function is called again with fewer rows, until the failing rows are
    /// found.
    fn rows(&self, batch: &RecordBatch) -> std::result::Result<Vec<Rows>, RowsFailure>;
}

/// Why the function of a custom operator without state has failed.
#[derive(Debug, Clone)]
pub struct RowsFailure {
    /// The reason.
    pub reason: String,
    /// A row that fails, if one is known.
    pub row: Option<usize>,
    /// Whether it would be the same for any row, so that the query must end.
    pub is_final: bool,
}

impl From<String> for RowsFailure {
    fn from(reason: String) -> RowsFailure {
        RowsFailure {
            reason,
            row: None,
            is_final: false,
        }
    }
}

/// The rows of an output.
#[derive(Debug, Clone)]
pub enum Rows {
    /// The rows of the input for which the value is true (NULL counts as false).
    Kept(BooleanArray),
    /// Rows with columns of the function's own.
    Made {
        /// For each row the row of the input that it comes from; `None` if they are the rows of the input.
        of: Option<UInt32Array>,
        /// The function's own columns.
        columns: Vec<ArrayRef>,
    },
}

/// A custom operator without state.
pub struct CustomRows {
    spec: CustomRowsSpec,
    /// Whether the output has the columns of the input.
    is_same: bool,
}

impl CustomRows {
    /// An operator for an input with these columns.
    pub fn new(spec: CustomRowsSpec, input: &SchemaRef) -> CustomRows {
        CustomRows {
            is_same: spec.schema == *input
                && spec.keeps.iter().copied().eq(0..input.fields().len()),
            spec,
        }
    }

    fn failed(&self, reason: impl Into<String>) -> Error {
        Error::new(format!("operator '{}'", self.spec.name), reason).final_one()
    }

    /// The rows of output number `number`.
    fn output(&self, chunk: &Chunk, number: usize, rows: Rows) -> Result<Chunk> {
        let (taken, own) = match rows {
            Rows::Kept(keep) if keep.len() != chunk.rows() => {
                let error = format!("it decided on {} of {} rows", keep.len(), chunk.rows());
                return Err(self.failed(error));
            }
            Rows::Kept(keep) => (chunk.filter(&keep)?, Vec::new()),
            Rows::Made { of: None, columns } => (chunk.clone(), columns),
            Rows::Made {
                of: Some(of),
                columns,
            } => {
                let is_row = |row: &u32| (*row as usize) < chunk.rows();
                if of.null_count() > 0 || !of.values().iter().all(is_row) {
                    return Err(self.failed("it named a row that it did not get"));
                }
                (chunk.take(&of)?, columns)
            }
        };
        if self.is_same && own.is_empty() {
            return Ok(taken);
        }
        let number_column = usize::from(self.spec.outputs > 1);
        let declared = self.spec.schema.fields().len() - self.spec.keeps.len() - number_column;
        if own.len() != declared {
            let error = format!("it made {} columns, and declares {declared}", own.len());
            return Err(self.failed(error));
        }
        let keeps = self.spec.keeps.iter();
        let mut columns = keeps
            .map(|&index| taken.batch.column(index).clone())
            .collect::<Vec<ArrayRef>>();
        columns.extend(own);
        if self.spec.outputs > 1 {
            let numbers = Int32Array::from(vec![number as i32; taken.rows()]);
            columns.push(Arc::new(numbers));
        }
        self.check(&columns, taken.rows())?;
        taken.with_columns(self.spec.schema.clone(), columns)
    }

    /// Columns that are not those that were declared.
    fn check(&self, columns: &[ArrayRef], rows: usize) -> Result<()> {
        let fields = self.spec.schema.fields();
        for (field, column) in fields.iter().zip(columns) {
            if column.data_type() != field.data_type() {
                let (is, should) = (column.data_type(), field.data_type());
                let error = format!(
                    "column '{}' is {is}, and was declared as {should}",
                    field.name()
                );
                return Err(self.failed(error));
            }
            if column.len() != rows {
                let error = format!(
                    "column '{}' has {} of {rows} rows",
                    field.name(),
                    column.len()
                );
                return Err(self.failed(error));
            }
        }
        Ok(())
    }
}

impl CustomRows {
    /// The rows of each output for a chunk.
    fn call(&self, chunk: &Chunk) -> Result<std::result::Result<Vec<Rows>, RowsFailure>> {
        let batch = match self.is_same && self.spec.gets == self.spec.keeps {
            true => chunk.batch.clone(),
            false => chunk.batch.project(&self.spec.gets)?,
        };
        Ok(self.spec.function.rows(&batch))
    }
}

impl Stateless for CustomRows {
    fn process(&mut self, chunk: Chunk, output: &mut Output) -> Result<()> {
        // The last part is next: rows stay in their order.
        let mut parts = vec![chunk];
        while let Some(chunk) = parts.pop() {
            let rows = chunk.rows();
            let failure = match self.call(&chunk)? {
                Ok(outputs) if outputs.len() == self.spec.outputs => {
                    // Only an operator that makes more rows than it gets has to cut them.
                    let most = output.chunk_rows.max(rows);
                    let most = self.spec.together.map_or(most, |rows| rows.max(1));
                    for (number, rows) in outputs.into_iter().enumerate() {
                        let chunk = self.output(&chunk, number, rows)?;
                        chunk.parts(most).for_each(|part| output.emit(part));
                    }
                    continue;
                }
                Ok(outputs) => {
                    let (is, should) = (outputs.len(), self.spec.outputs);
                    return Err(self.failed(format!("it has {should} outputs, and not {is}")));
                }
                Err(failure) if failure.is_final => return Err(self.failed(failure.reason)),
                Err(failure) => failure,
            };
            if rows <= 1 {
                if rows == 1 {
                    output.reject(reject(&chunk, 0, failure.reason));
                }
                continue;
            }
            // A row that has failed among others is tried alone.
            let row = failure.row.filter(|row| *row < rows);
            let (from, to) = row.map_or((rows / 2, rows / 2), |row| (row, row + 1));
            let rest = [(to, rows), (from, to), (0, from)];
            let rest = rest.into_iter().filter(|(from, to)| from < to);
            parts.extend(rest.map(|(from, to)| chunk.slice(from, to - from)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Int64Array;
    use arrow_schema::{DataType, Field, Schema};

    use super::*;
    use crate::testing::batch;

    /// Each row as often as its number says.
    #[derive(Debug)]
    struct Repeated;

    impl RowsFunction for Repeated {
        fn rows(&self, batch: &RecordBatch) -> std::result::Result<Vec<Rows>, RowsFailure> {
            let numbers = batch.column(0).as_any().downcast_ref::<Int64Array>();
            let numbers = numbers
                .ok_or("not numbers".to_string())?
                .values()
                .iter()
                .enumerate();
            let of = numbers.flat_map(|(row, &times)| vec![row as u32; times as usize]);
            let of = Some(UInt32Array::from_iter_values(of));
            Ok(vec![Rows::Made {
                of,
                columns: Vec::new(),
            }])
        }
    }

    /// The rows of each chunk that is emitted for 3 rows, of which 10 are made.
    fn emitted(together: Option<usize>, chunk_rows: usize) -> Vec<usize> {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![2, 0, 8]));
        let chunk = Chunk::new(batch(vec![("n", numbers)]), 0);
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
        let input = chunk.batch.schema();
        let spec = CustomRowsSpec {
            name: "repeated".to_string(),
            gets: vec![0],
            keeps: vec![0],
            outputs: 1,
            together,
            schema,
            function: Arc::new(Repeated),
        };
        let mut output = Output::new(chunk_rows);
        let mut operator = CustomRows::new(spec, &input);
        operator.process(chunk, &mut output).unwrap();
        let chunks = output.take_chunks();
        let numbers = chunks.iter().flat_map(|chunk| {
            let column = chunk.batch.column(0).as_any();
            column
                .downcast_ref::<Int64Array>()
                .unwrap()
                .values()
                .to_vec()
        });
        assert_eq!(
            numbers.collect::<Vec<i64>>(),
            [2, 2, 8, 8, 8, 8, 8, 8, 8, 8]
        );
        chunks.iter().map(Chunk::rows).collect()
    }

    #[test]
    fn regression_rows_that_are_made_keep_the_size_of_chunks() {
        assert_eq!(emitted(None, 4), [4, 4, 2]);
        assert_eq!(emitted(None, 100), [10]);
        // Chunks that were longer before are not cut.
        assert_eq!(emitted(None, 1), [3, 3, 3, 1]);
    }

    #[test]
    fn few_rows_are_handed_on_together() {
        assert_eq!(emitted(Some(1), 100), [1; 10]);
        assert_eq!(emitted(Some(6), 2), [6, 4]);
    }
}
