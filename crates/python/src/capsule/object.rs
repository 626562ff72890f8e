//! Python objects with the capsule methods: `__arrow_c_schema__`, `__arrow_c_array__`, `__arrow_c_stream__`.

use std::ffi::CStr;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use super::stream::{Make, batch_of, exported, row_of};
use super::{CArray, CSchema, CStream, export, import, stream};
use crate::error::wrong;

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

/// The capsule of a column's type.
pub fn schema_capsule<'py>(py: Python<'py>, field: &Field) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = export::schema(field).map_err(PyTypeError::new_err)?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// The two capsules of a column.
pub fn array_capsules<'py>(
    py: Python<'py>,
    field: &Field,
    column: &dyn Array,
) -> PyResult<Bound<'py, PyTuple>> {
    let schema = schema_capsule(py, field)?;
    let array = PyCapsule::new_with_value(py, export::array(&column.to_data()), ARRAY)?;
    PyTuple::new(py, [schema, array])
}

/// The two capsules of a batch.
pub fn batch_capsules<'py>(py: Python<'py>, batch: &RecordBatch) -> PyResult<Bound<'py, PyTuple>> {
    array_capsules(py, &row_of(&batch.schema()), &stream::struct_of(batch))
}

/// The capsule of a stream.
pub fn stream_capsule(
    py: Python<'_>,
    schema: SchemaRef,
    make: Make,
) -> PyResult<Bound<'_, PyCapsule>> {
    PyCapsule::new_with_value(py, exported(schema, make), STREAM)
}

/// The capsule of the type of rows.
pub fn rows_schema_capsule<'py>(
    py: Python<'py>,
    schema: &Schema,
) -> PyResult<Bound<'py, PyCapsule>> {
    schema_capsule(py, &row_of(schema))
}

/// What a structure in a capsule is moved out as.
fn taken<T>(capsule: &Bound<'_, PyAny>, name: &CStr, take: unsafe fn(*mut T) -> T) -> PyResult<T> {
    let capsule = capsule.cast::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(name))?;
    // SAFETY: a capsule of this name has such a structure.
    Ok(unsafe { take(pointer.as_ptr().cast::<T>()) })
}

/// Whether an object can be read as rows or a column.
pub fn is_arrow(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(object.hasattr("__arrow_c_stream__")? || object.hasattr("__arrow_c_array__")?)
}

/// A column of another library, and its field.
pub fn column(object: &Bound<'_, PyAny>) -> PyResult<(Field, ArrayRef)> {
    if !object.hasattr("__arrow_c_array__")? {
        let kind = object.get_type().qualname()?;
        return Err(PyTypeError::new_err(format!(
            "{kind} is not an Arrow array"
        )));
    }
    let capsules = object.call_method0("__arrow_c_array__")?;
    let schema = taken(&capsules.get_item(0)?, SCHEMA, CSchema::taken)?;
    let array = taken(&capsules.get_item(1)?, ARRAY, CArray::taken)?;
    let refused = |reason| wrong(object.py(), reason);
    let field = import::field(&schema).map_err(refused)?;
    let column = import::array(array, field.data_type()).map_err(refused)?;
    Ok((field, column))
}

/// The columns of another library's series, one for each of its chunks.
pub fn chunks(object: &Bound<'_, PyAny>) -> PyResult<Vec<ArrayRef>> {
    let capsule = object.call_method0("__arrow_c_stream__")?;
    let stream = taken(&capsule, STREAM, CStream::taken)?;
    let read = object.py().detach(|| stream::chunks(stream));
    Ok(read.map_err(|reason| wrong(object.py(), reason))?.1)
}

/// The rows of another library's table, data frame, batch or stream.
pub fn rows(object: &Bound<'_, PyAny>) -> PyResult<(SchemaRef, Vec<RecordBatch>)> {
    if object.hasattr("__arrow_c_stream__")? {
        let capsule = object.call_method0("__arrow_c_stream__")?;
        let stream = taken(&capsule, STREAM, CStream::taken)?;
        // The producer may run Python code on this thread or on another one.
        let read = object.py().detach(|| stream::imported(stream));
        return read.map_err(|reason| wrong(object.py(), reason));
    }
    let (_, column) = column(object)?;
    let batch = batch_of(&column).map_err(|reason| wrong(object.py(), reason))?;
    Ok((batch.schema(), vec![batch]))
}

/// The columns of a schema, a table or a data frame of another library.
pub fn rows_schema(object: &Bound<'_, PyAny>) -> PyResult<SchemaRef> {
    let capsule = object.call_method0("__arrow_c_schema__")?;
    let schema = taken(&capsule, SCHEMA, CSchema::taken)?;
    let row = import::field(&schema).map_err(|reason| wrong(object.py(), reason))?;
    match row.data_type() {
        DataType::Struct(fields) => Ok(Arc::new(Schema::new(fields.clone()))),
        other => Err(PyTypeError::new_err(format!(
            "an Arrow schema of {other}, not of rows"
        ))),
    }
}
