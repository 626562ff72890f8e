//! A column and its values in Python: the class `Array`.

use arrow_array::cast::AsArray;
use arrow_array::{Array as _, ArrayRef, downcast_primitive_array};
use arrow_schema::{DataType, Field, TimeUnit};
use pyo3::exceptions::{PyAttributeError, PyIndexError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList, PyTuple};

use crate::capsule;
use crate::values::{Types, objects};

/// A column: Arrow's, so that `pyarrow.array(a)`, `polars.Series(a)` and `numpy.asarray(a)` read it without
/// copying it. (NumPy copies columns with NULLs, and columns other than numbers and times.)
#[pyclass(frozen, module = "slackwater")]
#[derive(Clone)]
pub struct Array {
    pub field: Field,
    pub column: ArrayRef,
}

impl Array {
    /// The type of the values in NumPy, if they are stored like there.
    fn numpy_type(&self) -> Option<String> {
        let kind = match self.column.data_type() {
            DataType::Int8 => "|i1",
            DataType::Int16 => "<i2",
            DataType::Int32 => "<i4",
            DataType::Int64 => "<i8",
            DataType::UInt8 => "|u1",
            DataType::UInt16 => "<u2",
            DataType::UInt32 => "<u4",
            DataType::UInt64 => "<u8",
            DataType::Float32 => "<f4",
            DataType::Float64 => "<f8",
            DataType::Timestamp(unit, _) => match unit {
                TimeUnit::Second => "<M8[s]",
                TimeUnit::Millisecond => "<M8[ms]",
                TimeUnit::Microsecond => "<M8[us]",
                TimeUnit::Nanosecond => "<M8[ns]",
            },
            _ => return None,
        };
        Some(kind.to_string())
    }

    /// Where the values are.
    fn address(&self) -> usize {
        let column = self.column.as_ref();
        downcast_primitive_array!(
            column => column.values().inner().as_ptr() as usize,
            _ => 0
        )
    }
}

#[pymethods]
impl Array {
    /// The number of values.
    fn __len__(&self) -> usize {
        self.column.len()
    }

    /// The Arrow type, as text.
    #[getter]
    fn r#type(&self) -> String {
        self.column.data_type().to_string()
    }

    /// The number of NULLs.
    #[getter]
    fn null_count(&self) -> usize {
        self.column.null_count()
    }

    /// The values as Python objects; NULL is None.
    fn to_pylist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, objects(py, &Types::new(py)?, &self.column)?)
    }

    /// The values as a NumPy array.
    fn to_numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("numpy")?.call_method1("asarray", (slf,))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, row: isize) -> PyResult<Py<PyAny>> {
        let length = self.column.len() as isize;
        let at = if row < 0 { row + length } else { row };
        if !(0..length).contains(&at) {
            return Err(PyIndexError::new_err(format!(
                "{row} is not a row of {length}"
            )));
        }
        let mut value = objects(py, &Types::new(py)?, &self.column.slice(at as usize, 1))?;
        Ok(value.remove(0))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsule::schema_capsule(py, &self.field)
    }

    /// Arrow's PyCapsule interface. The requested schema is not looked at, as the interface allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        drop(requested_schema);
        capsule::array_capsules(py, &self.field, &self.column)
    }

    /// NumPy's interface, for columns that are stored as there.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let kind = self.numpy_type().filter(|_| self.column.null_count() == 0);
        let kind = kind.ok_or_else(|| PyAttributeError::new_err("__array_interface__"))?;
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", (self.column.len(),))?;
        interface.set_item("typestr", kind)?;
        interface.set_item("data", (self.address(), true))?;
        Ok(interface)
    }

    /// NumPy's interface for all other columns: NULLs of numbers are NaN.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        drop(copy);
        let arguments = PyDict::new(py);
        let is_number = self.column.data_type().is_numeric();
        match dtype {
            Some(dtype) => arguments.set_item("dtype", dtype)?,
            None if is_number => arguments.set_item("dtype", "float64")?,
            None if self.column.as_boolean_opt().is_some() && self.column.null_count() == 0 => {
                arguments.set_item("dtype", "bool")?;
            }
            None => arguments.set_item("dtype", "object")?,
        }
        let values = self.to_pylist(py)?;
        py.import("numpy")?
            .call_method("array", (values,), Some(&arguments))
    }

    fn __repr__(&self) -> String {
        let (rows, kind) = (self.column.len(), self.column.data_type());
        format!(
            "<slackwater.Array '{}' {kind}, {rows} values>",
            self.field.name()
        )
    }
}
