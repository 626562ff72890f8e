//! Python objects as a column.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, PrimitiveBuilder, StringViewBuilder};
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType,
};
use arrow_array::{ArrayRef, ListArray, StringViewArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, TimeUnit};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::to_python::Types;

/// A column of these objects; `None` is NULL. Strings are accepted for any type, and parsed.
///
/// # Errors
///
/// If one of them is not a value of the type.
pub fn column_of<'py>(
    types: &Types<'py>,
    values: &[Bound<'py, PyAny>],
    data_type: &DataType,
) -> PyResult<ArrayRef> {
    let is_text = |value: &Bound<'py, PyAny>| value.is_none() || value.is_instance_of::<PyString>();
    let holds_text = matches!(data_type, DataType::Utf8View | DataType::Null);
    if !holds_text && values.iter().any(|value| !value.is_none()) && values.iter().all(is_text) {
        return cast_column(&strings(values)?, data_type);
    }
    match data_type {
        DataType::Boolean => {
            let mut column = BooleanBuilder::with_capacity(values.len());
            for value in values {
                column.append_option(value.extract::<Option<bool>>()?);
            }
            Ok(Arc::new(column.finish()))
        }
        DataType::Int8 => numbers::<Int8Type>(values),
        DataType::Int16 => numbers::<Int16Type>(values),
        DataType::Int32 => numbers::<Int32Type>(values),
        DataType::Int64 => numbers::<Int64Type>(values),
        DataType::Float32 => numbers::<Float32Type>(values),
        DataType::Float64 => numbers::<Float64Type>(values),
        DataType::Utf8View => strings(values),
        DataType::Binary => {
            let mut column = BinaryBuilder::new();
            for value in values {
                column.append_option(value.extract::<Option<Vec<u8>>>()?);
            }
            Ok(Arc::new(column.finish()))
        }
        DataType::Date32 => {
            let mut column = PrimitiveBuilder::<Date32Type>::with_capacity(values.len());
            let (date, one) = (types.date()?, types.timedelta.call1((1,))?);
            let epoch = types.epoch.call_method0("date")?;
            for value in values {
                column.append_option(match value.is_none() {
                    true => None,
                    false if !value.is_instance(&date)? => return Err(wrong(value, "a date")),
                    false => {
                        let day = match value.hasattr("date")? {
                            true => value.call_method0("date")?,
                            false => value.clone(),
                        };
                        Some(day.sub(&epoch)?.floor_div(&one)?.extract::<i32>()?)
                    }
                });
            }
            Ok(Arc::new(column.finish()))
        }
        DataType::Timestamp(_, zone) => {
            let us = microseconds(types, values)?;
            let unit = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
            cast_column(&cast_column(&us, &unit)?, data_type)
        }
        DataType::Decimal128(_, _) => {
            // Python writes decimals as SQL does, but for those with an exponent.
            let text = |value: &Bound<'py, PyAny>| match value.is_none() {
                true => Ok(None),
                false => Ok(Some(
                    value
                        .call_method1("__format__", ("f",))?
                        .extract::<String>()?,
                )),
            };
            let strings = values.iter().map(text).collect::<PyResult<Vec<_>>>()?;
            cast_column(
                &(Arc::new(StringViewArray::from_iter(strings)) as ArrayRef),
                data_type,
            )
        }
        DataType::List(item) => {
            let (mut items, mut lengths, mut valid) = (Vec::new(), Vec::new(), Vec::new());
            for value in values {
                let before = items.len();
                if !value.is_none() {
                    for item in value.try_iter()? {
                        items.push(item?);
                    }
                }
                valid.push(!value.is_none());
                lengths.push(items.len() - before);
            }
            let items = column_of(types, &items, item.data_type())?;
            let (offsets, nulls) = (OffsetBuffer::from_lengths(lengths), NullBuffer::from(valid));
            let list = ListArray::try_new(item.clone(), offsets, items, Some(nulls));
            Ok(Arc::new(list.map_err(|error| {
                PyValueError::new_err(error.to_string())
            })?))
        }
        DataType::Struct(fields) => {
            let none = types.epoch.py().None().into_bound(types.epoch.py());
            let parts = fields.iter().map(|field| {
                let part = values.iter().map(|value| match value.is_none() {
                    true => Ok(none.clone()),
                    false => value.get_item(field.name()),
                });
                column_of(
                    types,
                    &part.collect::<PyResult<Vec<_>>>()?,
                    field.data_type(),
                )
            });
            let parts = parts.collect::<PyResult<Vec<ArrayRef>>>()?;
            let valid = values.iter().map(|value| !value.is_none());
            let nulls = NullBuffer::from(valid.collect::<Vec<bool>>());
            let row = StructArray::try_new(fields.clone(), parts, Some(nulls));
            Ok(Arc::new(row.map_err(|error| {
                PyValueError::new_err(error.to_string())
            })?))
        }
        other => Err(PyTypeError::new_err(format!(
            "Python objects can't be values of {other}: use Arrow"
        ))),
    }
}

fn wrong(value: &Bound<'_, PyAny>, wanted: &str) -> PyErr {
    let shown = value.repr().map(|repr| repr.to_string());
    let shown = shown.unwrap_or_else(|_| "a value".to_string());
    PyTypeError::new_err(format!("{shown} is not {wanted}"))
}

fn numbers<'py, T: ArrowPrimitiveType>(values: &[Bound<'py, PyAny>]) -> PyResult<ArrayRef>
where
    T::Native: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    let mut column = PrimitiveBuilder::<T>::with_capacity(values.len());
    for value in values {
        match value.is_none() {
            true => column.append_null(),
            false => match value.extract::<T::Native>() {
                Ok(number) => column.append_value(number),
                Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
                    return Err(wrong(value, &format!("a number of {}", T::DATA_TYPE)));
                }
                Err(error) => return Err(error),
            },
        }
    }
    Ok(Arc::new(column.finish()))
}

fn strings(values: &[Bound<'_, PyAny>]) -> PyResult<ArrayRef> {
    let mut column = StringViewBuilder::with_capacity(values.len());
    for value in values {
        match value.is_none() {
            true => column.append_null(),
            false => match value.cast::<PyString>() {
                Ok(text) => column.append_value(text.to_cow()?),
                Err(_) => return Err(wrong(value, "a string")),
            },
        }
    }
    Ok(Arc::new(column.finish()))
}

/// Times as microseconds since 1970; those without a time zone are as they are.
fn microseconds<'py>(types: &Types<'py>, values: &[Bound<'py, PyAny>]) -> PyResult<ArrayRef> {
    let one = types.timedelta.call1((0, 0, 1))?;
    let mut column = PrimitiveBuilder::<TimestampMicrosecondType>::with_capacity(values.len());
    for value in values {
        if value.is_none() {
            column.append_null();
            continue;
        }
        let zone = value.getattr("tzinfo");
        let zone = zone.map_err(|_| wrong(value, "a datetime"))?;
        let epoch = match zone.is_none() {
            true => &types.epoch,
            false => &types.epoch_utc,
        };
        column.append_value(value.sub(epoch)?.floor_div(&one)?.extract::<i64>()?);
    }
    Ok(Arc::new(column.finish()))
}

fn cast_column(column: &ArrayRef, data_type: &DataType) -> PyResult<ArrayRef> {
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let cast = cast_with_options(column, data_type, &options);
    cast.map_err(|error| PyValueError::new_err(error.to_string()))
}
