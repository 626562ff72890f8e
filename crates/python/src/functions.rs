//! Functions of SQL that are written in Python.
//!
//! The interpreter's lock is taken once for a chunk. What a function raises is the reason why a row is
//! rejected, with the traceback: the engine calls a function of columns again with fewer rows, until it has
//! found the rows that fail.

mod aggregate;
mod operator;

use std::sync::Arc;

use arrow_array::builder::UInt32Builder;
use arrow_array::{Array as _, ArrayRef, BooleanArray, new_null_array};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field};
use arrow_select::filter::filter;
use arrow_select::take::take;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use slackwater::{embed, functions};

use crate::array::Array;
use crate::capsule;
use crate::error::{raised, reason};
use crate::values::{Types, column_of, objects};

pub use aggregate::define_aggregate;
pub use operator::define_operator;

/// A function of a row or of columns.
struct Function {
    callable: Py<PyAny>,
    inputs: Vec<DataType>,
    output: DataType,
    is_scalar: bool,
    /// Whether it gets NULLs; if not, the result for a NULL is NULL.
    takes_nulls: bool,
}

/// Defines a function of SQL; a function in Python that has the name is replaced.
#[pyfunction]
pub fn define_function(
    py: Python<'_>,
    name: &str,
    callable: Py<PyAny>,
    inputs: Vec<String>,
    output: String,
    is_scalar: bool,
    takes_nulls: bool,
) -> PyResult<()> {
    let inputs = types(py, &inputs)?;
    let output = types(py, &[output])?.remove(0);
    let function = Arc::new(Function {
        callable,
        inputs: inputs.clone(),
        output: output.clone(),
        is_scalar,
        takes_nulls,
    });
    let mut added = functions::Functions::default();
    added.scalar_columns(name, &inputs, output, move |columns, rows| {
        function.call(columns, rows)
    });
    install(py, added)
}

fn types(py: Python<'_>, names: &[String]) -> PyResult<Vec<DataType>> {
    embed::data_types(names).map_err(|error| raised(py, &error))
}

fn install(py: Python<'_>, added: functions::Functions) -> PyResult<()> {
    let hint = "use a name that SQL does not have: name=\"…\"";
    let defined = py.detach(|| functions::define(added));
    defined.map_err(|reason| raised(py, &embed::Error::sql(reason, hint)))
}

impl Function {
    /// The results for columns of the declared types.
    fn call(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef, String> {
        let nulls = columns.iter().fold(None, |nulls, column| {
            NullBuffer::union(nulls.as_ref(), column.logical_nulls().as_ref())
        });
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0 && !self.takes_nulls);
        let Some(nulls) = nulls else {
            return self.call_python(columns, rows);
        };
        let left = rows - nulls.null_count();
        if left == 0 {
            return Ok(new_null_array(&self.output, rows));
        }
        let valid = BooleanArray::new(nulls.inner().clone(), None);
        let columns = columns.iter().map(|column| filter(column, &valid));
        let columns = columns.collect::<Result<Vec<ArrayRef>, _>>();
        let results = self.call_python(&columns.map_err(|error| error.to_string())?, left)?;
        let mut places = UInt32Builder::with_capacity(rows);
        let mut place = 0;
        for is_valid in &nulls {
            places.append_option(is_valid.then_some(place));
            place += u32::from(is_valid);
        }
        take(&results, &places.finish(), None).map_err(|error| error.to_string())
    }

    fn call_python(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef, String> {
        let called = Python::try_attach(|py| {
            let called = match self.is_scalar {
                true => self.call_rows(py, columns, rows),
                false => self.call_columns(py, columns, rows),
            };
            called.map_err(|error| reason(py, error))
        });
        called.unwrap_or_else(|| Err("Python is ending".to_string()))
    }

    fn call_columns(
        &self,
        py: Python<'_>,
        columns: &[ArrayRef],
        rows: usize,
    ) -> PyResult<ArrayRef> {
        let arguments = columns.iter().zip(&self.inputs).enumerate();
        let arguments = arguments.map(|(number, (column, data_type))| {
            let field = Field::new(format!("{number}"), data_type.clone(), true);
            let column = Arc::clone(column);
            Py::new(py, Array { field, column })
        });
        let arguments = arguments.collect::<PyResult<Vec<_>>>()?;
        let result = self.callable.bind(py).call1(PyTuple::new(py, arguments)?)?;
        let column = returned(py, &result, &self.output)?;
        if column.len() != rows {
            let message = format!("it has returned {} values for {rows} rows", column.len());
            return Err(PyValueError::new_err(message));
        }
        Ok(column)
    }

    fn call_rows(&self, py: Python<'_>, columns: &[ArrayRef], rows: usize) -> PyResult<ArrayRef> {
        let types = Types::new(py)?;
        let columns = columns.iter().map(|column| objects(py, &types, column));
        let columns = columns.collect::<PyResult<Vec<_>>>()?;
        let function = self.callable.bind(py);
        let result = |row: usize| {
            let arguments = columns.iter().map(|column| &column[row]);
            function.call1(PyTuple::new(py, arguments)?)
        };
        let results = (0..rows).map(result).collect::<PyResult<Vec<_>>>()?;
        column_of(&types, &results, &self.output)
    }
}

/// What a function has returned, as a column: an Arrow array, a NumPy array, or a sequence.
fn returned<'py>(
    py: Python<'py>,
    result: &Bound<'py, PyAny>,
    output: &DataType,
) -> PyResult<ArrayRef> {
    let column = if let Ok(own) = result.cast::<Array>() {
        Arc::clone(&own.get().column)
    } else if result.hasattr("__arrow_c_array__")? {
        capsule::column(result)?.1
    } else if result.hasattr("__arrow_c_stream__")? {
        // A pandas or polars series, or an array in chunks: what pyarrow or polars know of it is not needed.
        let chunks = capsule::chunks(result)?;
        let chunks = chunks.iter().map(AsRef::as_ref).collect::<Vec<_>>();
        let joined = arrow_select::concat::concat(&chunks);
        joined.map_err(|error| PyValueError::new_err(error.to_string()))?
    } else if let Some(column) = crate::numpy::column(result)? {
        column
    } else {
        let values = match result.hasattr("tolist")? {
            true => result.call_method0("tolist")?,
            false => result.clone(),
        };
        let values = values.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        column_of(&Types::new(py)?, &values, output)?
    };
    if column.data_type() == output {
        return Ok(column);
    }
    embed::cast_whole(&column, output).map_err(|error| {
        let given = column.data_type();
        PyValueError::new_err(format!(
            "it has returned {given} instead of {output}: {error}"
        ))
    })
}
