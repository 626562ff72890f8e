//! Values of columns as WebAssembly has them.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, PrimitiveBuilder, StringViewBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time64MicrosecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, StringViewArray,
};
use arrow_schema::{DataType, TimeUnit};
use wasmi::Val;

/// A column of arguments.
pub(super) enum Column {
    Boolean(BooleanArray),
    Int8(Int8Array),
    Int16(Int16Array),
    Int32(Int32Array),
    Int64(Int64Array),
    Float32(Float32Array),
    Float64(Float64Array),
    Text(StringViewArray),
    Bytes(BinaryArray),
}

impl Column {
    /// A column; `None` if its type can't be passed.
    pub(super) fn new(column: &ArrayRef) -> Option<Column> {
        Some(match column.data_type() {
            DataType::Boolean => Column::Boolean(column.as_boolean().clone()),
            DataType::Int8 => Column::Int8(column.as_primitive::<Int8Type>().clone()),
            DataType::Int16 => Column::Int16(column.as_primitive::<Int16Type>().clone()),
            DataType::Int32 => Column::Int32(column.as_primitive::<Int32Type>().clone()),
            DataType::Date32 => Column::Int32(
                column
                    .as_primitive::<Date32Type>()
                    .reinterpret_cast::<Int32Type>(),
            ),
            DataType::Int64 => Column::Int64(column.as_primitive::<Int64Type>().clone()),
            DataType::Timestamp(TimeUnit::Second, None) => long::<TimestampSecondType>(column),
            DataType::Timestamp(TimeUnit::Millisecond, None) => {
                long::<TimestampMillisecondType>(column)
            }
            DataType::Timestamp(TimeUnit::Microsecond, None) => {
                long::<TimestampMicrosecondType>(column)
            }
            DataType::Timestamp(TimeUnit::Nanosecond, None) => {
                long::<TimestampNanosecondType>(column)
            }
            DataType::Time64(TimeUnit::Microsecond) => long::<Time64MicrosecondType>(column),
            DataType::Float32 => Column::Float32(column.as_primitive::<Float32Type>().clone()),
            DataType::Float64 => Column::Float64(column.as_primitive::<Float64Type>().clone()),
            DataType::Utf8View => Column::Text(column.as_string_view().clone()),
            DataType::Binary => Column::Bytes(column.as_binary::<i32>().clone()),
            _ => return None,
        })
    }

    /// The number in a row, or the bytes of the string.
    pub(super) fn number(&self, row: usize) -> Result<Val, &[u8]> {
        Ok(match self {
            Column::Boolean(column) => Val::I32(i32::from(column.value(row))),
            Column::Int8(column) => Val::I32(i32::from(column.value(row))),
            Column::Int16(column) => Val::I32(i32::from(column.value(row))),
            Column::Int32(column) => Val::I32(column.value(row)),
            Column::Int64(column) => Val::I64(column.value(row)),
            Column::Float32(column) => Val::F32(column.value(row).into()),
            Column::Float64(column) => Val::F64(column.value(row).into()),
            Column::Text(column) => return Err(column.value(row).as_bytes()),
            Column::Bytes(column) => return Err(column.value(row)),
        })
    }
}

fn long<T: ArrowPrimitiveType<Native = i64>>(column: &ArrayRef) -> Column {
    Column::Int64(column.as_primitive::<T>().reinterpret_cast::<Int64Type>())
}

/// A column of results.
pub(super) enum Results {
    Boolean(BooleanBuilder),
    Int8(PrimitiveBuilder<Int8Type>),
    Int16(PrimitiveBuilder<Int16Type>),
    /// INT and DATE.
    Int32(PrimitiveBuilder<Int32Type>, DataType),
    /// BIGINT, TIME and TIMESTAMP.
    Int64(PrimitiveBuilder<Int64Type>, DataType),
    Float32(PrimitiveBuilder<Float32Type>),
    Float64(PrimitiveBuilder<Float64Type>),
    Text(StringViewBuilder),
    Bytes(BinaryBuilder),
}

impl Results {
    /// Room for the results of so many rows; `None` if the type can't be passed.
    pub(super) fn new(result: &DataType, rows: usize) -> Option<Results> {
        Some(match result {
            DataType::Boolean => Results::Boolean(BooleanBuilder::with_capacity(rows)),
            DataType::Int8 => Results::Int8(PrimitiveBuilder::with_capacity(rows)),
            DataType::Int16 => Results::Int16(PrimitiveBuilder::with_capacity(rows)),
            DataType::Int32 | DataType::Date32 => {
                Results::Int32(PrimitiveBuilder::with_capacity(rows), result.clone())
            }
            DataType::Int64
            | DataType::Timestamp(_, None)
            | DataType::Time64(TimeUnit::Microsecond) => {
                Results::Int64(PrimitiveBuilder::with_capacity(rows), result.clone())
            }
            DataType::Float32 => Results::Float32(PrimitiveBuilder::with_capacity(rows)),
            DataType::Float64 => Results::Float64(PrimitiveBuilder::with_capacity(rows)),
            DataType::Utf8View => Results::Text(StringViewBuilder::with_capacity(rows)),
            DataType::Binary => Results::Bytes(BinaryBuilder::new()),
            _ => return None,
        })
    }

    /// Whether results are strings.
    pub(super) fn is_text(&self) -> bool {
        matches!(self, Results::Text(_) | Results::Bytes(_))
    }

    /// Adds NULL.
    pub(super) fn push_null(&mut self) {
        match self {
            Results::Boolean(column) => column.append_null(),
            Results::Int8(column) => column.append_null(),
            Results::Int16(column) => column.append_null(),
            Results::Int32(column, _) => column.append_null(),
            Results::Int64(column, _) => column.append_null(),
            Results::Float32(column) => column.append_null(),
            Results::Float64(column) => column.append_null(),
            Results::Text(column) => column.append_null(),
            Results::Bytes(column) => column.append_null(),
        }
    }

    /// Adds a number.
    pub(super) fn push_number(&mut self, number: &Val) -> Result<(), String> {
        match (self, number) {
            (Results::Boolean(column), Val::I32(number)) => column.append_value(*number != 0),
            (Results::Int8(column), Val::I32(number)) => {
                column.append_value(
                    i8::try_from(*number).map_err(|_| out_of_range(*number, "TINYINT"))?,
                );
            }
            (Results::Int16(column), Val::I32(number)) => {
                column.append_value(
                    i16::try_from(*number).map_err(|_| out_of_range(*number, "SMALLINT"))?,
                );
            }
            (Results::Int32(column, _), Val::I32(number)) => column.append_value(*number),
            (Results::Int64(column, _), Val::I64(number)) => column.append_value(*number),
            (Results::Float32(column), Val::F32(number)) => column.append_value(number.to_float()),
            (Results::Float64(column), Val::F64(number)) => column.append_value(number.to_float()),
            (_, other) => return Err(format!("its result is {other:?}")),
        }
        Ok(())
    }

    /// Adds a string.
    pub(super) fn push_text(&mut self, text: &[u8]) -> Result<(), String> {
        match self {
            Results::Text(column) => {
                let text =
                    std::str::from_utf8(text).map_err(|error| format!("its result: {error}"))?;
                column.append_value(text);
            }
            Results::Bytes(column) => column.append_value(text),
            _ => return Err("its result is not a string".to_string()),
        }
        Ok(())
    }

    /// The column.
    pub(super) fn finish(self) -> ArrayRef {
        match self {
            Results::Boolean(mut column) => Arc::new(column.finish()),
            Results::Int8(mut column) => Arc::new(column.finish()),
            Results::Int16(mut column) => Arc::new(column.finish()),
            Results::Int32(mut column, data_type) => match data_type {
                DataType::Date32 => Arc::new(column.finish().reinterpret_cast::<Date32Type>()),
                _ => Arc::new(column.finish()),
            },
            Results::Int64(mut column, data_type) => {
                let column = column.finish();
                match data_type {
                    DataType::Timestamp(TimeUnit::Second, _) => {
                        as_type::<TimestampSecondType>(&column)
                    }
                    DataType::Timestamp(TimeUnit::Millisecond, _) => {
                        as_type::<TimestampMillisecondType>(&column)
                    }
                    DataType::Timestamp(TimeUnit::Microsecond, _) => {
                        as_type::<TimestampMicrosecondType>(&column)
                    }
                    DataType::Timestamp(TimeUnit::Nanosecond, _) => {
                        as_type::<TimestampNanosecondType>(&column)
                    }
                    DataType::Time64(_) => as_type::<Time64MicrosecondType>(&column),
                    _ => Arc::new(column),
                }
            }
            Results::Float32(mut column) => Arc::new(column.finish()),
            Results::Float64(mut column) => Arc::new(column.finish()),
            Results::Text(mut column) => Arc::new(column.finish()),
            Results::Bytes(mut column) => Arc::new(column.finish()),
        }
    }
}

fn as_type<T: ArrowPrimitiveType<Native = i64>>(column: &Int64Array) -> ArrayRef {
    Arc::new(column.reinterpret_cast::<T>())
}

fn out_of_range(number: i32, data_type: &str) -> String {
    format!("its result {number} is not in the range of {data_type}")
}
