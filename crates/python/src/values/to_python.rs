//! Values of a column as Python objects.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_cast::cast;
use arrow_schema::{DataType, TimeUnit};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

type Object = Py<PyAny>;

/// The classes of Python that values of time and decimals have.
pub struct Types<'py> {
    datetime: Bound<'py, PyModule>,
    decimal: Bound<'py, PyAny>,
    pub epoch: Bound<'py, PyAny>,
    /// The epoch with a time zone, UTC.
    pub epoch_utc: Bound<'py, PyAny>,
    pub timedelta: Bound<'py, PyAny>,
}

impl<'py> Types<'py> {
    /// Finds the classes.
    pub fn new(py: Python<'py>) -> PyResult<Types<'py>> {
        let datetime = py.import("datetime")?;
        let utc = datetime.getattr("timezone")?.getattr("utc")?;
        let epoch = datetime.getattr("datetime")?.call1((1970, 1, 1))?;
        let with_zone = PyDict::new(py);
        with_zone.set_item("tzinfo", utc)?;
        Ok(Types {
            decimal: py.import("decimal")?.getattr("Decimal")?,
            epoch_utc: epoch.call_method("replace", (), Some(&with_zone))?,
            epoch,
            timedelta: datetime.getattr("timedelta")?,
            datetime,
        })
    }

    /// A time span of so many microseconds.
    fn span(&self, us: i64) -> PyResult<Bound<'py, PyAny>> {
        self.timedelta.call1((0, 0, us))
    }

    /// The class `datetime.date`.
    pub fn date(&self) -> PyResult<Bound<'py, PyAny>> {
        self.datetime.getattr("date")
    }
}

fn numbers<'py, T: ArrowPrimitiveType>(py: Python<'py>, column: &dyn Array) -> PyResult<Vec<Object>>
where
    T::Native: IntoPyObjectExt<'py>,
{
    let column = column.as_primitive::<T>().iter();
    column.map(|value| value.into_py_any(py)).collect()
}

/// The values of a column; `None` is NULL. Times have microseconds, as in Python.
///
/// # Errors
///
/// If values of the type are not Python objects.
pub fn objects<'py>(
    py: Python<'py>,
    types: &Types<'py>,
    column: &ArrayRef,
) -> PyResult<Vec<Object>> {
    match column.data_type() {
        DataType::Null => Ok((0..column.len()).map(|_| py.None()).collect()),
        DataType::Boolean => {
            let column = column.as_boolean().iter();
            column.map(|value| value.into_py_any(py)).collect()
        }
        DataType::Int8 => numbers::<Int8Type>(py, column),
        DataType::Int16 => numbers::<Int16Type>(py, column),
        DataType::Int32 => numbers::<Int32Type>(py, column),
        DataType::Int64 => numbers::<Int64Type>(py, column),
        DataType::UInt8 => numbers::<UInt8Type>(py, column),
        DataType::UInt16 => numbers::<UInt16Type>(py, column),
        DataType::UInt32 => numbers::<UInt32Type>(py, column),
        DataType::UInt64 => numbers::<UInt64Type>(py, column),
        DataType::Float32 => numbers::<Float32Type>(py, column),
        DataType::Float64 => numbers::<Float64Type>(py, column),
        DataType::Utf8View => {
            let column = column.as_string_view().iter();
            column.map(|value| value.into_py_any(py)).collect()
        }
        DataType::Binary => {
            let column = column.as_binary::<i32>().iter();
            let bytes = |bytes: &[u8]| PyBytes::new(py, bytes).into_any().unbind();
            Ok(column
                .map(|value| value.map_or_else(|| py.None(), bytes))
                .collect())
        }
        DataType::Utf8 | DataType::LargeUtf8 => cast_first(py, types, column, &DataType::Utf8View),
        DataType::BinaryView | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
            cast_first(py, types, column, &DataType::Binary)
        }
        DataType::Dictionary(_, values) => cast_first(py, types, column, values),
        DataType::Decimal128(_, _) => {
            let column = column.as_primitive::<Decimal128Type>();
            let value = |row: usize| match column.is_null(row) {
                true => Ok(py.None()),
                false => Ok(types
                    .decimal
                    .call1((column.value_as_string(row),))?
                    .unbind()),
            };
            (0..column.len()).map(value).collect()
        }
        DataType::Date32 => {
            let column = column.as_primitive::<Date32Type>().iter();
            let date = |days: i32| -> PyResult<Object> {
                let day = types.epoch.add(types.timedelta.call1((days,))?)?;
                Ok(day.call_method0("date")?.unbind())
            };
            let dates = column.map(|value| value.map_or_else(|| Ok(py.None()), date));
            dates.collect()
        }
        DataType::Date64 => cast_first(py, types, column, &DataType::Date32),
        DataType::Timestamp(_, zone) => {
            let epoch = match zone {
                Some(_) => &types.epoch_utc,
                None => &types.epoch,
            };
            let unit = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
            spans(py, types, &cast_to(column, &unit)?, |span| epoch.add(span))
        }
        DataType::Duration(_) => {
            let unit = DataType::Duration(TimeUnit::Microsecond);
            spans(py, types, &cast_to(column, &unit)?, |span| {
                Ok(span.into_any())
            })
        }
        DataType::Time32(_) | DataType::Time64(_) => {
            let unit = DataType::Time64(TimeUnit::Microsecond);
            let time = |span| types.epoch.add(span)?.call_method0("time");
            spans(py, types, &cast_to(column, &unit)?, time)
        }
        DataType::List(_) => {
            let column = column.as_list::<i32>();
            let list = |row: usize| match column.is_null(row) {
                true => Ok(py.None()),
                false => {
                    let items = objects(py, types, &column.value(row))?;
                    Ok(PyList::new(py, items)?.into_any().unbind())
                }
            };
            (0..column.len()).map(list).collect()
        }
        DataType::Struct(fields) => {
            let column = column.as_struct();
            let parts = column.columns().iter().map(|part| objects(py, types, part));
            let parts = parts.collect::<PyResult<Vec<Vec<Object>>>>()?;
            let row = |row: usize| {
                if column.is_null(row) {
                    return Ok(py.None());
                }
                let dict = PyDict::new(py);
                for (field, part) in fields.iter().zip(&parts) {
                    dict.set_item(field.name(), &part[row])?;
                }
                Ok(dict.into_any().unbind())
            };
            (0..column.len()).map(row).collect()
        }
        other => Err(PyTypeError::new_err(format!(
            "values of {other} are not Python objects: read the column as Arrow"
        ))),
    }
}

fn cast_to(column: &ArrayRef, data_type: &DataType) -> PyResult<ArrayRef> {
    cast(column, data_type).map_err(|error| PyTypeError::new_err(error.to_string()))
}

fn cast_first<'py>(
    py: Python<'py>,
    types: &Types<'py>,
    column: &ArrayRef,
    data_type: &DataType,
) -> PyResult<Vec<Object>> {
    objects(py, types, &cast_to(column, data_type)?)
}

/// The values of a column of microseconds, made of spans.
fn spans<'py>(
    py: Python<'py>,
    types: &Types<'py>,
    column: &ArrayRef,
    made: impl Fn(Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Vec<Object>> {
    let us = cast_to(column, &DataType::Int64)?;
    let value = |us: Option<i64>| match us {
        Some(us) => Ok(made(types.span(us)?)?.unbind()),
        None => Ok(py.None()),
    };
    us.as_primitive::<Int64Type>().iter().map(value).collect()
}
