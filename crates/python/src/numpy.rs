//! Arrays of NumPy as columns. Their values are copied, because NumPy's arrays may change.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, make_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::{DataType, TimeUnit};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The column of a one-dimensional array of numbers or times without gaps; `None` for anything else.
pub fn column(array: &Bound<'_, PyAny>) -> PyResult<Option<ArrayRef>> {
    let Some(interface) = array.getattr_opt("__array_interface__")? else {
        return Ok(None);
    };
    let interface = interface.cast_into::<PyDict>()?;
    let get = |key: &str| interface.get_item(key);
    let (Some(kind), Some(shape), Some(data)) = (get("typestr")?, get("shape")?, get("data")?)
    else {
        return Ok(None);
    };
    let is_dense = get("strides")?.is_none_or(|strides| strides.is_none());
    let shape = shape.extract::<Vec<usize>>()?;
    let kind = kind.extract::<String>()?;
    let (true, [rows]) = (is_dense, shape.as_slice()) else {
        return Ok(None);
    };
    let (address, _) = data.extract::<(usize, bool)>()?;
    let bytes = |width: usize| match rows * width {
        0 => Vec::new(),
        // SAFETY: NumPy promises that the dense values of the array are there, as long as it is referred to.
        length => unsafe { std::slice::from_raw_parts(address as *const u8, length) }.to_vec(),
    };
    if kind == "|b1" {
        let values = bytes(1).into_iter().map(|byte| Some(byte != 0));
        return Ok(Some(Arc::new(values.collect::<BooleanArray>())));
    }
    let Some((data_type, width)) = type_of(&kind) else {
        return Ok(None);
    };
    let built = ArrayData::builder(data_type)
        .len(*rows)
        .add_buffer(Buffer::from(bytes(width)))
        .align_buffers(true)
        .build();
    Ok(built.ok().map(make_array))
}

/// The type of Arrow that stores values like NumPy's type, and their bytes.
fn type_of(kind: &str) -> Option<(DataType, usize)> {
    Some(match kind {
        "|i1" => (DataType::Int8, 1),
        "<i2" => (DataType::Int16, 2),
        "<i4" => (DataType::Int32, 4),
        "<i8" => (DataType::Int64, 8),
        "|u1" => (DataType::UInt8, 1),
        "<u2" => (DataType::UInt16, 2),
        "<u4" => (DataType::UInt32, 4),
        "<u8" => (DataType::UInt64, 8),
        "<f4" => (DataType::Float32, 4),
        "<f8" => (DataType::Float64, 8),
        "<M8[s]" => (DataType::Timestamp(TimeUnit::Second, None), 8),
        "<M8[ms]" => (DataType::Timestamp(TimeUnit::Millisecond, None), 8),
        "<M8[us]" => (DataType::Timestamp(TimeUnit::Microsecond, None), 8),
        "<M8[ns]" => (DataType::Timestamp(TimeUnit::Nanosecond, None), 8),
        _ => return None,
    })
}
