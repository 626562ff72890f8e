//! The fast path for JSON: the kind of line that most producers write most of the time.
//!
//! [`Quick`] takes a line or leaves it. It takes only lines that the slow path ([`super::json`]) takes, with
//! the same values. At anything else (an escape, an exponent, a wrong type, a broken line) it gives up, and
//! the slow path reads that line again: so errors are reported in one place.
//!
//! Keys are expected in the order of the line before ([`super::json_shape`]), ends of strings are found by
//! comparing up to 64 bytes at a time ([`super::json_strings`]), and numbers are read 8 digits at a time. The
//! end of the line is not searched for: it is where the object ends.

use arrow_schema::DataType;

use super::json_columns::{JsonColumn, JsonRow, Values, holds, skip_to};
use super::json_nulls::put;
use super::json_shape::{After, Shape};
use super::json_strings::Finder;
use super::number::{leading_digits, parse_decimal};
use super::progress::{Line, Stop};
use crate::time::{self, RecentDate};

/// Deeper values are left to the slow path, which has its own limit and message.
const DEPTH_MAX: usize = 16;

/// More digits may not fit into 64 bits.
const DIGITS_MAX: usize = 18;

/// A number with a fraction and more digits may be between two doubles.
const FRACTION_DIGITS_MAX: usize = 15;

/// The powers of ten, which doubles hold exactly.
const POWERS: [f64; FRACTION_DIGITS_MAX + 1] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// Reads common lines.
#[derive(Debug)]
pub(super) struct Quick {
    finder: Finder,
    date: RecentDate,
}

impl Quick {
    pub(super) fn new() -> Quick {
        Quick {
            finder: Finder::new(),
            date: RecentDate::default(),
        }
    }

    /// Appends the line that begins at `start`. `last`: the line may end with the block. `None`: the line was
    /// not taken, and `row` is as it was.
    #[inline]
    pub(super) fn line(
        &mut self,
        block: &[u8],
        start: usize,
        last: bool,
        row: &mut JsonRow,
    ) -> Option<Result<Line, Stop>> {
        let rows = row.rows;
        let mut cursor = Cursor {
            block,
            at: start,
            finder: self.finder,
            date: &mut self.date,
        };
        let newline = cursor.line(last, row);
        let line = newline.map(|newline| Line::at(block, start, newline));
        if !matches!(line, Some(Ok(_))) {
            row.truncate(rows);
        }
        line
    }
}

struct Cursor<'b> {
    block: &'b [u8],
    at: usize,
    finder: Finder,
    date: &'b mut RecentDate,
}

/// The place of the bytes between two quotes.
struct Text {
    start: usize,
    end: usize,
    /// Whether the bytes are known to be ASCII.
    is_ascii: bool,
}

impl<'b> Cursor<'b> {
    /// Takes the line; returns where its line end is.
    #[inline(always)]
    fn line(&mut self, last: bool, row: &mut JsonRow) -> Option<usize> {
        if self.peek()? != b'{' {
            self.spaces();
        }
        self.object(row, 0)?;
        if self.peek() == Some(b'\n') {
            return Some(self.at);
        }
        self.spaces();
        match self.peek() {
            Some(b'\n') => Some(self.at),
            None if last => Some(self.at),
            _ => None,
        }
    }

    #[inline(always)]
    fn peek(&self) -> Option<u8> {
        self.block.get(self.at).copied()
    }

    #[inline]
    fn spaces(&mut self) {
        while let Some(b' ' | b'\t' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    #[inline]
    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    #[inline]
    fn word(&mut self, word: &[u8]) -> Option<()> {
        let is_there = self.block[self.at..].starts_with(word);
        is_there.then(|| self.at += word.len())
    }

    /// A string without escapes.
    #[inline(always)]
    fn text(&mut self) -> Option<Text> {
        self.expect(b'"')?;
        let start = self.at;
        // A line end is a control character: no string goes beyond the line.
        let end = self.finder.end(self.block, start);
        self.at = end.at;
        self.expect(b'"')?;
        Some(Text {
            start,
            end: end.at,
            is_ascii: end.is_ascii,
        })
    }

    /// The bytes of a string, if they are UTF-8.
    #[inline]
    fn checked(&self, text: &Text) -> Option<&'b [u8]> {
        let bytes = &self.block[text.start..text.end];
        (text.is_ascii || std::str::from_utf8(bytes).is_ok()).then_some(bytes)
    }

    /// An integer with few digits.
    #[inline(always)]
    fn integer(&mut self) -> Option<i64> {
        let is_negative = self.peek()? == b'-';
        self.at += usize::from(is_negative);
        let (value, digits) = self.digits()?;
        // For the slow path minus zero is a fraction.
        let is_whole = !matches!(self.peek(), Some(b'.' | b'e' | b'E'));
        let is_plain = is_whole && digits <= DIGITS_MAX && !(is_negative && value == 0);
        if !is_plain {
            // The value may have overflowed.
            return None;
        }
        let value = value as i64;
        Some(if is_negative { -value } else { value })
    }

    /// The digits of a number before its fraction: their value, if there are not too many, and their number.
    #[inline(always)]
    fn digits(&mut self) -> Option<(u64, usize)> {
        let is_zero = self.peek()? == b'0';
        let (value, digits) = leading_digits(&self.block[self.at..]);
        self.at += digits;
        // 01 is not a valid number.
        (digits == 1 || (digits > 1 && !is_zero)).then_some((value, digits))
    }

    /// A number without an exponent, with few digits.
    #[inline]
    fn double(&mut self) -> Option<f64> {
        let start = self.at;
        let is_negative = self.peek()? == b'-';
        self.at += usize::from(is_negative);
        let (whole, digits) = self.digits()?;
        if self.peek() != Some(b'.') {
            self.at = start;
            return Some(self.integer()? as f64);
        }
        self.at += 1;
        let (fraction, places) = leading_digits(&self.block[self.at..]);
        self.at += places;
        let is_plain = !matches!(self.peek(), Some(b'e' | b'E'));
        if places == 0 || digits + places > FRACTION_DIGITS_MAX || !is_plain {
            return None;
        }
        // Both are exact, so the quotient is the nearest double.
        let value = (whole * 10u64.pow(places as u32) + fraction) as f64 / POWERS[places];
        Some(if is_negative { -value } else { value })
    }

    fn object(&mut self, row: &mut JsonRow, depth: usize) -> Option<()> {
        let object = row.begin();
        let mut after = Shape::START;
        loop {
            let expected = row.shape.expected(after, self.block, self.at);
            let nth = match expected {
                Some((next, nth, value)) => {
                    after = next;
                    self.at = value;
                    nth
                }
                None => match self.key(row, &mut after)? {
                    Some(nth) => nth,
                    None => {
                        row.rows += 1;
                        return Some(());
                    }
                },
            };
            match nth {
                None => self.skip(depth + 1)?,
                Some(nth) => {
                    let field = &mut row.fields[nth];
                    if !field.found_in(object) {
                        return None;
                    }
                    self.value(field, row.rows, depth + 1)?;
                }
            }
        }
    }

    /// A key that was not expected, up to its value: the field that it names. `Some(None)`: the object ended.
    #[inline(never)]
    fn key(&mut self, row: &mut JsonRow, after: &mut After) -> Option<Option<Option<usize>>> {
        let is_first = *after == Shape::START;
        if !is_first {
            self.spaces();
        }
        let start = self.at;
        let byte = self.peek()?;
        self.at += 1;
        match byte {
            b'{' if is_first => {
                self.spaces();
                if self.peek()? == b'}' {
                    self.at += 1;
                    return Some(None);
                }
            }
            b'}' if !is_first => return Some(None),
            b',' if !is_first => self.spaces(),
            _ => return None,
        }
        let text = self.text()?;
        let key = self.checked(&text)?;
        self.spaces();
        self.expect(b':')?;
        self.spaces();
        let nth = row
            .fields
            .iter()
            .position(|field| field.name.as_bytes() == key);
        *after = row.shape.learn(*after, &self.block[start..self.at], nth);
        Some(Some(nth))
    }

    /// After an item of an array: whether the array ends with it.
    #[inline]
    fn ends(&mut self, close: u8) -> Option<bool> {
        self.spaces();
        let byte = self.peek()?;
        self.at += 1;
        if byte == b',' {
            self.spaces();
            return Some(false);
        }
        (byte == close).then_some(true)
    }

    /// Puts the value into row `nth` of its column. A NULL stays to be filled in.
    fn value(&mut self, column: &mut JsonColumn, nth: usize, depth: usize) -> Option<()> {
        let first = self.peek()?;
        if first == b'n' {
            return self.word(b"null");
        }
        let nulls = &mut column.nulls;
        match &mut column.values {
            Values::Strings(strings) => {
                let text = self.text()?;
                self.checked(&text)?;
                strings.put(nulls, nth, self.block, (text.start, text.end));
            }
            Values::Signed(values) => {
                let value = match &column.data_type {
                    DataType::Timestamp(unit, _) if first == b'"' => {
                        let text = self.text()?;
                        let text = &self.block[text.start..text.end];
                        self.date.parse_timestamp(text)?.in_unit(*unit)?
                    }
                    DataType::Date32 => {
                        let text = self.text()?;
                        time::parse_date(&self.block[text.start..text.end])?
                    }
                    DataType::Int64 | DataType::Timestamp(_, _) => self.integer()?,
                    data_type => {
                        let value = self.integer()?;
                        holds(data_type, value.into()).then_some(value)?
                    }
                };
                put(values, nulls, nth, value);
            }
            Values::Unsigned(values) => {
                let value = self.integer()?;
                holds(&column.data_type, value.into()).then_some(())?;
                put(values, nulls, nth, value as u64);
            }
            Values::Float(values) => {
                let value = self.double()?;
                put(values, nulls, nth, value);
            }
            Values::Boolean(values) => {
                let is_true = first == b't';
                self.word(if is_true { b"true" } else { b"false" })?;
                put(values, nulls, nth, is_true);
            }
            Values::Decimal(values) => {
                let DataType::Decimal128(precision, scale) = column.data_type else {
                    return None;
                };
                let start = self.at;
                // The shortest text of the double, which the slow path reads, has the same digits.
                self.double()?;
                let value = parse_decimal(&self.block[start..self.at], precision, scale)?;
                put(values, nulls, nth, value);
            }
            Values::Row(row) => {
                row.skip_to(nth, nulls);
                self.nested(depth)?.object(row, depth)?;
            }
            Values::Array { items, offsets } => {
                skip_to(offsets, nulls, nth);
                self.nested(depth)?.array(items, depth)?;
                offsets.push(items.rows() as i32);
            }
        }
        Some(())
    }

    #[inline]
    fn nested(&mut self, depth: usize) -> Option<&mut Self> {
        (depth < DEPTH_MAX).then_some(self)
    }

    fn array(&mut self, items: &mut JsonColumn, depth: usize) -> Option<()> {
        self.expect(b'[')?;
        self.spaces();
        if self.peek()? == b']' {
            self.at += 1;
            return Some(());
        }
        loop {
            let nth = items.rows();
            self.value(items, nth, depth + 1)?;
            items.fill(nth + 1);
            if self.ends(b']')? {
                return Some(());
            }
        }
    }

    /// Skips a valid value that is not read.
    fn skip(&mut self, depth: usize) -> Option<()> {
        match self.peek()? {
            b'"' => self.text().map(drop),
            b'n' => self.word(b"null"),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'{' => self.nested(depth)?.skip_members(b'}', depth),
            b'[' => self.nested(depth)?.skip_members(b']', depth),
            _ => self.skip_number(),
        }
    }

    fn skip_members(&mut self, close: u8, depth: usize) -> Option<()> {
        self.at += 1;
        self.spaces();
        if self.peek()? == close {
            self.at += 1;
            return Some(());
        }
        loop {
            if close == b'}' {
                self.text()?;
                self.spaces();
                self.expect(b':')?;
                self.spaces();
            }
            self.skip(depth + 1)?;
            if self.ends(close)? {
                return Some(());
            }
        }
    }

    fn skip_number(&mut self) -> Option<()> {
        self.at += usize::from(self.peek()? == b'-');
        self.digits()?;
        if self.peek() == Some(b'.') {
            self.at += 1;
            let (_, places) = leading_digits(&self.block[self.at..]);
            self.at += places;
            (places > 0).then_some(())?;
        }
        // With an exponent a number may be too large.
        (!matches!(self.peek(), Some(b'e' | b'E'))).then_some(())
    }
}

#[cfg(test)]
mod tests;
