//! Converts a file's column to the table's type. `fit` has checked that the conversion is possible.

use std::sync::Arc;

use arrow_array::types::{
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, LargeListArray, ListArray, PrimitiveArray,
    StructArray, new_null_array,
};
use arrow_buffer::OffsetBuffer;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, FieldRef, TimeUnit};
use arrow_select::nullif::nullif;

use crate::format::{BadRow, sql_type_name};
use crate::time::units_per_second;

type Result<T> = std::result::Result<T, ArrowError>;

/// The rows of the batch that an array's items belong to; `None`: each to the row of its number.
type Rows<'a> = Option<&'a [u32]>;

/// The column in the table's type. Rows with a value that doesn't fit are rejected.
pub(super) fn column(
    array: &ArrayRef,
    wanted: &FieldRef,
    bad_rows: &mut Vec<BadRow>,
) -> Result<ArrayRef> {
    let mut conversion = Conversion {
        column: wanted.name(),
        bad_rows,
    };
    conversion.array(array, wanted.data_type(), None)
}

struct Conversion<'a> {
    column: &'a str,
    bad_rows: &'a mut Vec<BadRow>,
}

impl Conversion<'_> {
    fn array(&mut self, array: &ArrayRef, to: &DataType, rows: Rows<'_>) -> Result<ArrayRef> {
        if array.data_type() == to && !has_rows(to) {
            return Ok(Arc::clone(array));
        }
        match (array.data_type(), to) {
            (DataType::Null, _) => Ok(new_null_array(to, array.len())),
            (DataType::Dictionary(_, values), _) => {
                let plain = cast(array, values)?;
                self.array(&plain, to, rows)
            }
            (DataType::Struct(_), DataType::Struct(wanted)) => self.row(array, wanted, rows),
            (DataType::List(_) | DataType::LargeList(_), DataType::List(item)) => {
                self.list(array, item, rows)
            }
            (DataType::Timestamp(from, _), DataType::Timestamp(unit, None)) => {
                let found = self.timestamps(array, *from, *unit)?;
                self.judge(array, &found, to, rows);
                Ok(found)
            }
            (from, DataType::Utf8View) if is_binary(from) => {
                // Converted through text, whose bytes are read one value at a time.
                let text = cast(&cast(array, &DataType::LargeBinary)?, &DataType::LargeUtf8)?;
                self.judge(array, &text, to, rows);
                cast(&text, to)
            }
            _ => {
                let found = cast(array, to)?;
                self.judge(array, &found, to, rows);
                Ok(found)
            }
        }
    }

    /// Rejects the rows whose values have become NULL: they did not fit.
    fn judge(&mut self, before: &ArrayRef, after: &ArrayRef, to: &DataType, rows: Rows<'_>) {
        if after.null_count() <= before.null_count() {
            return;
        }
        for item in 0..after.len() {
            if after.is_null(item) && before.is_valid(item) {
                let row = rows.map_or(item, |rows| rows[item] as usize);
                let (column, wanted) = (self.column, sql_type_name(to));
                let reason = format!("column '{column}' ({wanted}): can't hold the value");
                self.bad_rows.push((row, reason));
            }
        }
    }

    fn row(
        &mut self,
        array: &ArrayRef,
        wanted: &arrow_schema::Fields,
        rows: Rows<'_>,
    ) -> Result<ArrayRef> {
        let array = as_type::<StructArray>(array)?;
        let fields = wanted.iter().map(|field| {
            let found = array
                .column_by_name(field.name())
                .ok_or_else(|| ArrowError::SchemaError(format!("no field '{}'", field.name())))?;
            // The fields of a row that is NULL may hold anything; their values don't count.
            let found = match array.nulls() {
                Some(nulls) => nullif(found, &BooleanArray::new(!nulls.inner(), None))?,
                None => Arc::clone(found),
            };
            self.array(&found, field.data_type(), rows)
        });
        let fields = fields.collect::<Result<Vec<ArrayRef>>>()?;
        let nulls = array.nulls().cloned();
        Ok(Arc::new(StructArray::try_new_with_length(
            wanted.clone(),
            fields,
            nulls,
            array.len(),
        )?))
    }

    fn list(&mut self, array: &ArrayRef, item: &FieldRef, rows: Rows<'_>) -> Result<ArrayRef> {
        // A slice of a large array contains all items of the array: only those of the slice are checked.
        let (first, lengths, items) = match array.data_type() {
            DataType::List(_) => {
                let array = as_type::<ListArray>(array)?;
                let offsets = array.offsets();
                (offsets[0] as usize, lengths(offsets), array.values())
            }
            _ => {
                let array = as_type::<LargeListArray>(array)?;
                let offsets = array.offsets();
                (offsets[0] as usize, lengths(offsets), array.values())
            }
        };
        let count = lengths.iter().sum::<usize>();
        let row_of = |nth: usize| rows.map_or(nth as u32, |rows| rows[nth]);
        let of_items = lengths.iter().enumerate();
        let of_items = of_items.flat_map(|(nth, length)| std::iter::repeat_n(row_of(nth), *length));
        let of_items = of_items.collect::<Vec<u32>>();
        let items = self.array(
            &items.slice(first, count),
            item.data_type(),
            Some(&of_items),
        )?;
        let offsets = OffsetBuffer::from_lengths(lengths);
        let nulls = array.nulls().cloned();
        Ok(Arc::new(ListArray::try_new(
            Arc::clone(item),
            offsets,
            items,
            nulls,
        )?))
    }

    /// A time zone says how a time is displayed; the values are UTC with and without one. Digits beyond the
    /// unit are cut off towards the past.
    fn timestamps(&mut self, array: &ArrayRef, from: TimeUnit, to: TimeUnit) -> Result<ArrayRef> {
        let ticks = match from {
            TimeUnit::Second => ticks::<TimestampSecondType>(array)?,
            TimeUnit::Millisecond => ticks::<TimestampMillisecondType>(array)?,
            TimeUnit::Microsecond => ticks::<TimestampMicrosecondType>(array)?,
            TimeUnit::Nanosecond => ticks::<TimestampNanosecondType>(array)?,
        };
        let (from, per_second) = (units_per_second(from), units_per_second(to));
        let change = move |tick: i64| match per_second >= from {
            true => tick.checked_mul(per_second / from),
            false => Some(tick.div_euclid(from / per_second)),
        };
        Ok(match to {
            TimeUnit::Second => Arc::new(ticks.unary_opt::<_, TimestampSecondType>(change)),
            TimeUnit::Millisecond => {
                Arc::new(ticks.unary_opt::<_, TimestampMillisecondType>(change))
            }
            TimeUnit::Microsecond => {
                Arc::new(ticks.unary_opt::<_, TimestampMicrosecondType>(change))
            }
            TimeUnit::Nanosecond => Arc::new(ticks.unary_opt::<_, TimestampNanosecondType>(change)),
        })
    }
}

/// Whether there are rows within a value of the type.
fn has_rows(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(_) => true,
        DataType::List(item) => has_rows(item.data_type()),
        _ => false,
    }
}

fn lengths<O: arrow_buffer::ArrowNativeType + arrow_array::OffsetSizeTrait>(
    offsets: &OffsetBuffer<O>,
) -> Vec<usize> {
    offsets.lengths().collect()
}

fn is_binary(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView
    )
}

/// Values that don't fit become NULL.
fn cast(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let options = CastOptions {
        safe: true,
        ..CastOptions::default()
    };
    cast_with_options(array, to, &options)
}

/// The time stamps as plain numbers.
fn ticks<T: ArrowPrimitiveType<Native = i64>>(
    array: &ArrayRef,
) -> Result<PrimitiveArray<arrow_array::types::Int64Type>> {
    Ok(as_type::<PrimitiveArray<T>>(array)?.reinterpret_cast())
}

fn as_type<T: 'static>(array: &ArrayRef) -> Result<&T> {
    array.as_any().downcast_ref::<T>().ok_or_else(|| {
        let found = array.data_type();
        ArrowError::SchemaError(format!("a column claims to be {found}, and is not"))
    })
}
