//! Rows in Python: the classes `RecordBatch` and `Rows`.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch as Batch, RecordBatchOptions, StringViewArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList, PyTuple};
use slackwater::embed;

use crate::array::Array;
use crate::capsule;
use crate::error::{raised, wrong};
use crate::values::{Types, column_of, objects};

/// The column that says what a row does to a result that changes.
const CHANGE: &str = "change";

/// The columns of a result, as its reader sees them: with the kind of change if rows change earlier ones.
pub fn read_schema(schema: &SchemaRef, changes: bool) -> SchemaRef {
    if !changes {
        return Arc::clone(schema);
    }
    let change = Arc::new(Field::new(CHANGE, DataType::Utf8View, false));
    let fields = std::iter::once(change).chain(schema.fields().iter().cloned());
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Rows of a result, as its reader sees them.
pub fn read_batch(batch: &embed::Batch, changes: bool) -> Result<Batch, String> {
    if !changes {
        return Ok(batch.rows.clone());
    }
    let rows = batch.rows.num_rows();
    let symbols = (0..rows).map(|row| {
        let kind = batch.kinds.as_ref().map_or(0, |kinds| kinds.value(row));
        embed::symbol(kind)
    });
    let symbols: ArrayRef = Arc::new(StringViewArray::from_iter_values(symbols));
    let columns = std::iter::once(symbols).chain(batch.rows.columns().iter().cloned());
    let schema = read_schema(&batch.rows.schema(), true);
    let count = RecordBatchOptions::new().with_row_count(Some(rows));
    Batch::try_new_with_options(schema, columns.collect(), &count)
        .map_err(|error| error.to_string())
}

fn names(schema: &Schema) -> Vec<String> {
    let fields = schema.fields().iter();
    fields.map(|field| field.name().clone()).collect()
}

fn rows_of<'py>(py: Python<'py>, batches: &[Batch]) -> PyResult<Bound<'py, PyList>> {
    let types = Types::new(py)?;
    let rows = PyList::empty(py);
    for batch in batches {
        let names = names(&batch.schema());
        let columns = batch
            .columns()
            .iter()
            .map(|column| objects(py, &types, column));
        let columns = columns.collect::<PyResult<Vec<_>>>()?;
        for row in 0..batch.num_rows() {
            let dict = PyDict::new(py);
            for (name, column) in names.iter().zip(&columns) {
                dict.set_item(name, &column[row])?;
            }
            rows.append(dict)?;
        }
    }
    Ok(rows)
}

/// What other packages make of an object with Arrow's methods.
fn converted<'py>(
    object: &Bound<'py, PyAny>,
    module: &str,
    function: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let module = object.py().import(module);
    module?.call_method1(function, (object,))
}

/// Some rows of a result.
///
/// `pyarrow.record_batch(batch)`, `polars.DataFrame(batch)` and DuckDB read it without copying it.
#[pyclass(frozen, module = "slackwater")]
#[derive(Clone)]
pub struct RecordBatch {
    pub batch: Batch,
}

#[pymethods]
impl RecordBatch {
    /// The number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// The number of columns.
    #[getter]
    fn num_columns(&self) -> usize {
        self.batch.num_columns()
    }

    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        names(&self.batch.schema())
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// A column, by its name or number.
    fn column(&self, which: &Bound<'_, PyAny>) -> PyResult<Array> {
        let schema = self.batch.schema();
        let number = match which.extract::<usize>() {
            Ok(number) => number,
            Err(_) => {
                let name = which.extract::<String>()?;
                let number = schema.index_of(&name);
                number.map_err(|_| PyKeyError::new_err(name))?
            }
        };
        if number >= self.batch.num_columns() {
            return Err(PyKeyError::new_err(number));
        }
        Ok(Array {
            field: schema.field(number).clone(),
            column: self.batch.column(number).clone(),
        })
    }

    fn __getitem__(&self, which: &Bound<'_, PyAny>) -> PyResult<Array> {
        self.column(which)
    }

    /// The rows as dictionaries.
    fn to_pylist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        rows_of(py, std::slice::from_ref(&self.batch))
    }

    /// The rows as a `pyarrow.RecordBatch`.
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        converted(slf, "pyarrow", "record_batch")
    }

    /// The rows as a `pandas.DataFrame`, by way of pyarrow.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        converted(slf, "slackwater.convert", "pandas_of")
    }

    /// The rows as a `polars.DataFrame`.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        converted(slf, "polars", "DataFrame")
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsule::rows_schema_capsule(py, &self.batch.schema())
    }

    /// Arrow's PyCapsule interface. The requested schema is not looked at, as the interface allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        drop(requested_schema);
        capsule::batch_capsules(py, &self.batch)
    }

    fn __repr__(&self) -> String {
        let columns = self.column_names().join(", ");
        format!(
            "<slackwater.RecordBatch ({columns}), {} rows>",
            self.batch.num_rows()
        )
    }
}

/// All rows of a result.
///
/// `pyarrow.table(rows)`, `polars.DataFrame(rows)` and DuckDB read them without copying them.
#[pyclass(frozen, module = "slackwater")]
#[derive(Clone)]
pub struct Rows {
    pub schema: SchemaRef,
    pub batches: Vec<Batch>,
}

impl Rows {
    /// Rows of lists of values, one for each column.
    pub fn of_columns(
        py: Python<'_>,
        schema: &SchemaRef,
        values: &[Vec<Bound<'_, PyAny>>],
    ) -> PyResult<Rows> {
        let types = Types::new(py)?;
        let columns = schema.fields().iter().zip(values).map(|(field, values)| {
            let column = column_of(&types, values, field.data_type());
            column.map_err(|error| {
                let message = format!("column '{}': {}", field.name(), error.value(py));
                raised(
                    py,
                    &embed::Error::sql(message, "use values of the column's type"),
                )
            })
        });
        let columns = columns.collect::<PyResult<Vec<_>>>()?;
        let fields = schema.fields().iter();
        let fields = fields.map(|field| field.as_ref().clone().with_nullable(true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let batch = Batch::try_new(Arc::clone(&schema), columns);
        let batch = batch.map_err(|error| wrong(py, error.to_string()))?;
        let batches = vec![batch];
        Ok(Rows { schema, batches })
    }
}

#[pymethods]
impl Rows {
    /// Rows of an object with Arrow's methods: a table, a data frame, a batch, a stream.
    #[staticmethod]
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Rows> {
        if !capsule::is_arrow(object)? {
            let kind = object.get_type().qualname()?;
            return Err(PyTypeError::new_err(format!(
                "{kind} is not Arrow: it has neither __arrow_c_stream__ nor __arrow_c_array__"
            )));
        }
        let (schema, batches) = capsule::rows(object)?;
        Ok(Rows { schema, batches })
    }

    /// Rows of lists of values, one for each column in the text of CREATE TABLE's columns.
    #[staticmethod]
    fn of_values(
        py: Python<'_>,
        columns: &str,
        values: Vec<Vec<Bound<'_, PyAny>>>,
    ) -> PyResult<Rows> {
        let schema = embed::columns(columns).map_err(|error| raised(py, &error))?;
        Rows::of_columns(py, &schema, &values)
    }

    /// The number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.batches.iter().map(Batch::num_rows).sum()
    }

    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        names(&self.schema)
    }

    /// The batches.
    #[getter]
    fn batches(&self) -> Vec<RecordBatch> {
        let batches = self.batches.iter().cloned();
        batches.map(|batch| RecordBatch { batch }).collect()
    }

    /// The columns as CREATE TABLE writes them.
    fn sql_columns(&self, py: Python<'_>) -> PyResult<String> {
        embed::sql_columns(&self.schema).map_err(|error| raised(py, &error))
    }

    fn __len__(&self) -> usize {
        self.num_rows()
    }

    /// The rows as dictionaries.
    fn to_pylist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        rows_of(py, &self.batches)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsule::rows_schema_capsule(py, &self.schema)
    }

    /// Arrow's PyCapsule interface. The requested schema is not looked at, as the interface allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let mut batches = self.batches.clone().into_iter();
        let make = move || Ok(batches.next());
        capsule::stream_capsule(py, Arc::clone(&self.schema), Box::new(make))
    }

    fn __repr__(&self) -> String {
        let columns = self.column_names().join(", ");
        format!("<slackwater.Rows ({columns}), {} rows>", self.num_rows())
    }
}

/// The columns of a schema of Arrow as CREATE TABLE writes them.
#[pyfunction]
pub fn sql_columns(schema: &Bound<'_, PyAny>) -> PyResult<String> {
    let columns = embed::sql_columns(&capsule::rows_schema(schema)?);
    columns.map_err(|error| raised(schema.py(), &error))
}

/// The names of the columns in the text of CREATE TABLE's columns.
#[pyfunction]
pub fn column_names(py: Python<'_>, columns: &str) -> PyResult<Vec<String>> {
    let schema = embed::columns(columns).map_err(|error| raised(py, &error))?;
    Ok(names(&schema))
}
