//! Converts located fields to typed columns.
//!
//! A text format first finds where the fields of each record are ([`Records`]), then they are read column by
//! column: each loop has one type, and only columns that the query reads are read. A field that can't be
//! parsed rejects only its row; the row is taken out of all columns afterwards, which costs something only
//! when it happens.

use std::sync::Arc;

use arrow_array::builder::BooleanBuilder;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray, StringViewArray};
use arrow_buffer::{Buffer, NullBufferBuilder, ScalarBuffer};
use arrow_schema::{DataType, Field, TimeUnit};

use super::number::{parse_decimal, parse_i64, parse_u64};
use super::types::sql_type_name;
use crate::time;

/// The place of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    /// Length in the low bits, marks above.
    length_and_marks: u32,
}

/// Bits for a length: records have at most 2^24 bytes.
const LENGTH_BITS: u32 = 25;
const LENGTH_MASK: u32 = (1 << LENGTH_BITS) - 1;
const QUOTED: u32 = 1 << 31;
const ASIDE: u32 = 1 << 30;
const NULL: u32 = 1 << 29;

impl Span {
    pub(crate) const NULL: Span = Span {
        start: 0,
        length_and_marks: NULL,
    };

    #[inline]
    pub(crate) fn new(start: usize, end: usize) -> Span {
        debug_assert!(start <= end && end - start <= LENGTH_MASK as usize);
        Span {
            start: start as u32,
            length_and_marks: (end - start) as u32,
        }
    }

    /// The field was quoted.
    pub(crate) fn quoted(mut self) -> Span {
        self.length_and_marks |= QUOTED;
        self
    }

    /// The field is in the side buffer instead of the block, because it was changed (escapes were removed).
    pub(crate) fn aside(mut self) -> Span {
        self.length_and_marks |= ASIDE;
        self
    }

    #[inline]
    fn range(self) -> (usize, usize) {
        let start = self.start as usize;
        (
            start,
            start + (self.length_and_marks & LENGTH_MASK) as usize,
        )
    }

    #[inline]
    fn has(self, mark: u32) -> bool {
        self.length_and_marks & mark != 0
    }
}

/// The records that a scan has found, and the places of the fields that are read.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// Start and end of each record.
    pub(crate) bounds: Vec<(u32, u32)>,
    /// `fields_per_record` spans for each record.
    pub(crate) spans: Vec<Span>,
    /// The side buffer: fields that had to be changed.
    pub(crate) aside: Vec<u8>,
}

impl Records {
    pub(crate) fn clear(&mut self) {
        self.bounds.clear();
        self.spans.clear();
        self.aside.clear();
    }
}

/// A rejected row: its number among the records, and the reason.
pub(crate) type BadRow = (usize, String);

/// One column's fields.
#[derive(Clone, Copy)]
pub(crate) struct Cells<'a> {
    pub(crate) block: &'a Buffer,
    pub(crate) aside: &'a Buffer,
    pub(crate) spans: &'a [Span],
    /// The index of the field, and the number of fields per record.
    pub(crate) nth: usize,
    pub(crate) stride: usize,
    /// An unquoted field equal to this is NULL. `None`: only spans that are marked as NULL are.
    pub(crate) null: Option<&'a [u8]>,
}

impl<'a> Cells<'a> {
    fn rows(&self) -> usize {
        self.spans.len() / self.stride
    }

    fn spans(&self) -> impl Iterator<Item = Span> + 'a {
        self.spans
            .get(self.nth..)
            .unwrap_or(&[])
            .iter()
            .step_by(self.stride)
            .copied()
    }

    #[inline]
    fn place(&self, span: Span) -> (&'a [u8], usize, usize) {
        let (start, end) = span.range();
        if span.has(ASIDE) {
            (self.aside, start, end)
        } else {
            (self.block, start, end)
        }
    }

    pub(crate) fn bytes(&self, span: Span) -> &'a [u8] {
        let (block, start, end) = self.place(span);
        &block[start..end]
    }

    #[inline]
    fn is_null(&self, span: Span) -> bool {
        match self.null {
            Some(b"") => span.length_and_marks & (LENGTH_MASK | QUOTED) == 0 || span.has(NULL),
            Some(null) => span.has(NULL) || (!span.has(QUOTED) && self.bytes(span) == null),
            None => span.has(NULL),
        }
    }

    /// Reads the cells as a column of the field's type. `parse_time` reads a time stamp's text.
    pub(crate) fn column(
        &self,
        field: &Field,
        parse_time: fn(&[u8]) -> Option<time::Instant>,
        bad_rows: &mut Vec<BadRow>,
    ) -> ArrayRef {
        let mut typed = Typed {
            cells: *self,
            field,
            bad_rows,
        };
        match field.data_type() {
            DataType::Boolean => typed.booleans(),
            DataType::Int8 => typed.signed::<Int8Type>(),
            DataType::Int16 => typed.signed::<Int16Type>(),
            DataType::Int32 => typed.signed::<Int32Type>(),
            DataType::Int64 => typed.signed::<Int64Type>(),
            DataType::UInt8 => typed.unsigned::<UInt8Type>(),
            DataType::UInt16 => typed.unsigned::<UInt16Type>(),
            DataType::UInt32 => typed.unsigned::<UInt32Type>(),
            DataType::UInt64 => typed.unsigned::<UInt64Type>(),
            DataType::Float32 => typed.primitive::<Float32Type>(|b, s, e| parse_text(&b[s..e])),
            DataType::Float64 => typed.primitive::<Float64Type>(|b, s, e| parse_text(&b[s..e])),
            DataType::Decimal128(precision, scale) => {
                let (precision, scale) = (*precision, *scale);
                let array = typed.primitive_array::<Decimal128Type>(|b, s, e| {
                    parse_decimal(&b[s..e], precision, scale)
                });
                Arc::new(array.with_data_type(field.data_type().clone()))
            }
            DataType::Date32 => typed
                .primitive::<Date32Type>(|b, s, e| i32::try_from(time::parse_date(&b[s..e])?).ok()),
            DataType::Timestamp(unit, None) => {
                let unit = *unit;
                let parse = move |b: &[u8], s: usize, e: usize| parse_time(&b[s..e])?.in_unit(unit);
                match unit {
                    TimeUnit::Second => typed.primitive::<TimestampSecondType>(parse),
                    TimeUnit::Millisecond => typed.primitive::<TimestampMillisecondType>(parse),
                    TimeUnit::Microsecond => typed.primitive::<TimestampMicrosecondType>(parse),
                    TimeUnit::Nanosecond => typed.primitive::<TimestampNanosecondType>(parse),
                }
            }
            DataType::Utf8View => typed.strings(),
            other => unreachable!("columns of type {other} are refused when the table is made"),
        }
    }
}

/// The text of a number with a fraction.
fn parse_text<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

struct Typed<'a, 'c> {
    cells: Cells<'a>,
    field: &'a Field,
    bad_rows: &'c mut Vec<BadRow>,
}

impl Typed<'_, '_> {
    #[cold]
    fn reject(&mut self, row: usize, span: Span) {
        let text = self.cells.bytes(span);
        self.bad_rows.push((row, unreadable(self.field, text)));
    }

    fn signed<T: ArrowPrimitiveType<Native: TryFrom<i64>>>(&mut self) -> ArrayRef {
        self.primitive::<T>(|b, s, e| parse_i64(b, s, e)?.try_into().ok())
    }

    fn unsigned<T: ArrowPrimitiveType<Native: TryFrom<u64>>>(&mut self) -> ArrayRef {
        self.primitive::<T>(|b, s, e| parse_u64(b, s, e)?.try_into().ok())
    }

    fn primitive<T: ArrowPrimitiveType>(
        &mut self,
        parse: impl Fn(&[u8], usize, usize) -> Option<T::Native>,
    ) -> ArrayRef {
        Arc::new(self.primitive_array::<T>(parse))
    }

    fn primitive_array<T: ArrowPrimitiveType>(
        &mut self,
        parse: impl Fn(&[u8], usize, usize) -> Option<T::Native>,
    ) -> PrimitiveArray<T> {
        let cells = self.cells;
        let mut values: Vec<T::Native> = Vec::with_capacity(cells.rows());
        let mut nulls = NullBufferBuilder::new(cells.rows());
        for (row, span) in cells.spans().enumerate() {
            let (block, start, end) = cells.place(span);
            if let Some(value) = parse(block, start, end) {
                // A marker that reads as a number ('0' or '-1') still means NULL.
                if cells.null.is_some_and(|null| !null.is_empty()) && cells.is_null(span) {
                    values.push(T::Native::default());
                    nulls.append_null();
                    continue;
                }
                values.push(value);
                nulls.append_non_null();
                continue;
            }
            values.push(self.unparsed(row, span, &parse, &mut nulls));
        }
        PrimitiveArray::new(ScalarBuffer::from(values), nulls.finish())
    }

    /// A cell that does not parse as it is: NULL, a number surrounded by spaces, or a bad row.
    #[cold]
    fn unparsed<N: Default>(
        &mut self,
        row: usize,
        span: Span,
        parse: &impl Fn(&[u8], usize, usize) -> Option<N>,
        nulls: &mut NullBufferBuilder,
    ) -> N {
        let cells = self.cells;
        let text = cells.bytes(span);
        let empty_is_null = cells.null == Some(b"") && text.is_empty();
        if cells.is_null(span) || empty_is_null {
            nulls.append_null();
            return N::default();
        }
        let trimmed = text.trim_ascii();
        nulls.append_non_null();
        match parse(trimmed, 0, trimmed.len()) {
            Some(value) => value,
            None => {
                self.reject(row, span);
                N::default()
            }
        }
    }

    fn booleans(&mut self) -> ArrayRef {
        let cells = self.cells;
        let mut builder = BooleanBuilder::with_capacity(cells.rows());
        for (row, span) in cells.spans().enumerate() {
            let text = cells.bytes(span);
            let empty_is_null = cells.null == Some(b"") && text.is_empty();
            if cells.is_null(span) || empty_is_null {
                builder.append_null();
                continue;
            }
            match parse_boolean(text) {
                Some(value) => builder.append_value(value),
                None => {
                    builder.append_value(false);
                    self.reject(row, span);
                }
            }
        }
        Arc::new(builder.finish())
    }

    fn strings(&mut self) -> ArrayRef {
        let cells = self.cells;
        let mut views: Vec<u128> = Vec::with_capacity(cells.rows());
        let mut nulls = NullBufferBuilder::new(cells.rows());
        let mut has_long = false;
        for (row, span) in cells.spans().enumerate() {
            if cells.is_null(span) {
                views.push(0);
                nulls.append_null();
                continue;
            }
            nulls.append_non_null();
            let (block, start, end) = cells.place(span);
            let (mut view, is_ascii) = view(block, start, end, u32::from(span.has(ASIDE)));
            if !is_ascii && std::str::from_utf8(&block[start..end]).is_err() {
                self.reject(row, span);
                view = 0;
            }
            has_long |= view as u32 > INLINE_BYTES_MAX;
            views.push(view);
        }
        // An array without long strings must not hold the block.
        let buffers = if has_long {
            vec![cells.block.clone(), cells.aside.clone()]
        } else {
            vec![]
        };
        // SAFETY: each view is made by `view` for bytes that were sliced out of one of the two
        // buffers (0 the block, 1 beside it) and found to be ASCII or UTF-8 just above; views of
        // up to 12 bytes have zeros after them; views that need the buffers set `has_long`.
        // Checked again by Arrow, this costs 14 ns for each string of a dozen bytes.
        let array =
            unsafe { StringViewArray::new_unchecked(views.into(), buffers, nulls.finish()) };
        debug_assert!(
            StringViewArray::try_new(
                array.views().clone(),
                array.data_buffers().to_vec(),
                array.nulls().cloned()
            )
            .is_ok()
        );
        Arc::new(array)
    }
}

/// Longer strings are not part of their view.
pub(super) const INLINE_BYTES_MAX: u32 = 12;

/// The high bit of every byte: set in none of ASCII.
const HIGH_BITS: u128 = 0x8080_8080_8080_8080_8080_8080_8080_8080;

/// The view of a string, itself up to 12 bytes, else its place (Arrow's variable-size view).
#[inline]
pub(super) fn place_view(block: &[u8], start: usize, end: usize, buffer: u32) -> u128 {
    match word(block, start) {
        Some(word) => view_of(word, (end - start) as u32, start, buffer),
        None => arrow_array::builder::make_view(&block[start..end], buffer, start as u32),
    }
}

/// The same, and whether the string is ASCII.
#[inline]
fn view(block: &[u8], start: usize, end: usize, buffer: u32) -> (u128, bool) {
    let bytes = &block[start..end];
    let length = bytes.len() as u32;
    let Some(word) = word(block, start) else {
        let view = arrow_array::builder::make_view(bytes, buffer, start as u32);
        return (view, bytes.is_ascii());
    };
    let is_ascii = match length {
        0..16 => word & ((1u128 << (8 * length)) - 1) & HIGH_BITS == 0,
        16 => word & HIGH_BITS == 0,
        _ => bytes.is_ascii(),
    };
    (view_of(word, length, start, buffer), is_ascii)
}

/// The first 16 bytes from `start` on, if the block has as many.
#[inline]
fn word(block: &[u8], start: usize) -> Option<u128> {
    let bytes = block.get(start..start + 16)?;
    Some(u128::from_le_bytes(
        bytes.try_into().expect("the slice has 16 bytes"),
    ))
}

#[inline]
fn view_of(word: u128, length: u32, start: usize, buffer: u32) -> u128 {
    if length <= INLINE_BYTES_MAX {
        let kept = word & ((1u128 << (8 * length)) - 1);
        return u128::from(length) | kept << 32;
    }
    let prefix = u128::from(word as u32) << 32;
    u128::from(length) | prefix | u128::from(buffer) << 64 | (start as u128) << 96
}

fn parse_boolean(text: &[u8]) -> Option<bool> {
    let is = |word: &str| text.eq_ignore_ascii_case(word.as_bytes());
    if is("true") || is("t") || is("1") || is("yes") {
        Some(true)
    } else if is("false") || is("f") || is("0") || is("no") {
        Some(false)
    } else {
        None
    }
}

/// Why a text is not a valid value of the column.
pub(crate) fn unreadable(field: &Field, text: &[u8]) -> String {
    // Enough to see what is wrong; the whole record is kept beside the reason.
    const SHOWN_CHARACTERS_MAX: usize = 64;
    let column = format!(
        "column '{}' ({})",
        field.name(),
        sql_type_name(field.data_type())
    );
    if field.data_type() == &DataType::Utf8View {
        return format!("{column}: not valid UTF-8");
    }
    // A character has at most four bytes.
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * SHOWN_CHARACTERS_MAX + 4)]);
    let shown = text.chars().take(SHOWN_CHARACTERS_MAX).collect::<String>();
    let more = if shown.len() < text.len() { "…" } else { "" };
    format!("{column}: can't read '{shown}{more}'")
}
