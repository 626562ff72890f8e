//! The fast path for JSON: the kind of line that most producers write most of the time.
//!
//! [`quick_line`] takes a line or leaves it. It takes only lines that the slow path ([`super::json`]) takes,
//! with the same values. At anything else (an escape, a fraction, a wrong type, a broken line) it gives up,
//! and the slow path reads that line again: so errors are reported in one place.
//!
//! Ends of strings are found by comparing 16 bytes at a time, with all bytes that end a common string at
//! once.

use arrow_schema::DataType;
use wide::u8x16;

use super::json_columns::{JsonColumn, JsonRow, Values, holds};
use crate::time;

/// Deeper values are left to the slow path, which has its own limit and message.
const DEPTH_MAX: usize = 16;

/// More digits may not fit into 64 bits.
const DIGITS_MAX: usize = 18;

/// Appends the line that begins at `start` and ends before `end`. `None`: the line was not taken; some
/// columns may have received its values and must be truncated.
pub(super) fn quick_line(block: &[u8], start: usize, end: usize, row: &mut JsonRow) -> Option<()> {
    let mut cursor = Cursor {
        block,
        at: start,
        end,
    };
    cursor.spaces();
    cursor.object(row, 0)?;
    cursor.spaces();
    (cursor.at == end).then_some(())
}

struct Cursor<'b> {
    block: &'b [u8],
    at: usize,
    end: usize,
}

/// The bytes between two quotes.
struct Text<'b> {
    bytes: &'b [u8],
    /// Whether the bytes are known to be ASCII.
    is_ascii: bool,
}

impl<'b> Text<'b> {
    /// The bytes, if they are UTF-8.
    #[inline]
    fn checked(self) -> Option<&'b [u8]> {
        (self.is_ascii || std::str::from_utf8(self.bytes).is_ok()).then_some(self.bytes)
    }
}

impl<'b> Cursor<'b> {
    #[inline]
    fn peek(&self) -> Option<u8> {
        (self.at < self.end).then(|| self.block[self.at])
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
        let is_there = self.block[self.at..self.end].starts_with(word);
        is_there.then(|| self.at += word.len())
    }

    /// A string without escapes.
    #[inline]
    fn text(&mut self) -> Option<Text<'b>> {
        self.expect(b'"')?;
        let begin = self.at;
        let mut is_ascii = true;
        loop {
            let Some(window) = self.block[self.at..].first_chunk::<16>() else {
                return self.text_at_the_end(begin);
            };
            let bytes = u8x16::from(*window);
            let control = bytes.min(u8x16::splat(0x1f)).simd_eq(bytes);
            let ends =
                bytes.simd_eq(u8x16::splat(b'"')) | bytes.simd_eq(u8x16::splat(b'\\')) | control;
            is_ascii &= bytes.to_bitmask() == 0;
            let ends = ends.to_bitmask();
            if ends != 0 {
                self.at += ends.trailing_zeros() as usize;
                break;
            }
            self.at += 16;
        }
        self.end_of_text(begin, is_ascii)
    }

    /// The same at the end of the block.
    fn text_at_the_end(&mut self, begin: usize) -> Option<Text<'b>> {
        let rest = &self.block[self.at..self.end];
        let length = rest
            .iter()
            .position(|&byte| byte == b'"' || byte == b'\\' || byte < 0x20)?;
        self.at += length;
        self.end_of_text(begin, false)
    }

    #[inline]
    fn end_of_text(&mut self, begin: usize, is_ascii: bool) -> Option<Text<'b>> {
        // A line end is a control character: nothing after it was read.
        let bytes = &self.block[begin..self.at];
        self.expect(b'"')?;
        Some(Text { bytes, is_ascii })
    }

    /// An integer with few digits.
    #[inline]
    fn integer(&mut self) -> Option<i64> {
        let is_negative = self.peek()? == b'-';
        self.at += usize::from(is_negative);
        let begin = self.at;
        let mut value = 0;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            if self.at - begin == DIGITS_MAX {
                return None;
            }
            value = value * 10 + i64::from(digit - b'0');
            self.at += 1;
        }
        let digits = self.at - begin;
        let is_plain = match self.block.get(begin)? {
            // For the slow path minus zero is a fraction, and 01 is not a valid number.
            b'0' => digits == 1 && !is_negative,
            _ => digits > 0,
        };
        let is_whole = !matches!(self.peek(), Some(b'.' | b'e' | b'E'));
        (is_plain && is_whole).then_some(if is_negative { -value } else { value })
    }

    fn object(&mut self, row: &mut JsonRow, depth: usize) -> Option<()> {
        self.expect(b'{')?;
        self.spaces();
        if self.peek()? == b'}' {
            self.at += 1;
            row.end_row();
            return Some(());
        }
        let mut likely = 0;
        loop {
            let key = self.text()?.checked()?;
            self.spaces();
            self.expect(b':')?;
            self.spaces();
            let is_named = |field: &JsonColumn| field.name.as_bytes() == key;
            let nth = match row.fields.get(likely) {
                Some(field) if is_named(field) => Some(likely),
                _ => row.fields.iter().position(is_named),
            };
            match nth {
                None => self.skip(depth + 1)?,
                Some(nth) => {
                    let field = &mut row.fields[nth];
                    if field.rows() > row.rows {
                        return None;
                    }
                    self.value(field, depth + 1)?;
                    likely = nth + 1;
                }
            }
            if self.ends(b'}')? {
                row.end_row();
                return Some(());
            }
        }
    }

    /// After a value: whether the object or array ends with it.
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

    fn value(&mut self, column: &mut JsonColumn, depth: usize) -> Option<()> {
        let first = self.peek()?;
        if first == b'n' {
            self.word(b"null")?;
            column.append_null();
            return Some(());
        }
        match &mut column.values {
            Values::Text { text, ends } => {
                text.extend_from_slice(self.text()?.checked()?);
                ends.push(text.len());
            }
            Values::Signed(values) => values.push(match &column.data_type {
                DataType::Timestamp(unit, _) if first == b'"' => {
                    time::parse_timestamp(self.text()?.bytes)?.in_unit(*unit)?
                }
                DataType::Date32 => time::parse_date(self.text()?.bytes)?,
                data_type => {
                    let value = self.integer()?;
                    holds(data_type, value.into()).then_some(value)?
                }
            }),
            Values::Unsigned(values) => {
                let value = self.integer()?;
                holds(&column.data_type, value.into()).then(|| values.push(value as u64))?;
            }
            Values::Float(values) => values.push(self.integer()? as f64),
            Values::Boolean(values) => {
                let is_true = first == b't';
                self.word(if is_true { b"true" } else { b"false" })?;
                values.push(is_true);
            }
            Values::Decimal(_) => return None,
            Values::Row(row) => self.nested(depth)?.object(row, depth)?,
            Values::Array { items, offsets } => {
                self.nested(depth)?.array(items, depth)?;
                offsets.push(items.rows() as i32);
            }
        }
        column.end_value();
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
            self.value(items, depth + 1)?;
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
        if self.peek()? == b'-' {
            self.at += 1;
        }
        match self.digits()? {
            b'0' => {}
            _ => while self.digits().is_some() {},
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
            while self.digits().is_some() {}
        }
        // With an exponent a number may be too large.
        (!matches!(self.peek(), Some(b'e' | b'E' | b'0'..=b'9'))).then_some(())
    }

    /// Takes one digit.
    #[inline]
    fn digits(&mut self) -> Option<u8> {
        let digit = self.peek().filter(u8::is_ascii_digit)?;
        self.at += 1;
        Some(digit)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{Field, Fields, Schema, TimeUnit};
    use proptest::prelude::*;

    use super::super::json::JsonDecoder;
    use super::*;

    fn schema() -> Schema {
        let nested = vec![
            Field::new("id", DataType::Int64, true),
            Field::new("name", DataType::Utf8View, true),
        ];
        let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
        Schema::new(vec![
            Field::new("a", DataType::Int32, true),
            Field::new("b", DataType::Utf8View, true),
            Field::new("c", DataType::Struct(Fields::from(nested)), true),
            Field::new("d", millis, true),
            Field::new("e", DataType::Float64, true),
            Field::new("f", DataType::Boolean, true),
            Field::new(
                "g",
                DataType::List(Arc::new(Field::new("item", DataType::Int64, true))),
                true,
            ),
            Field::new("h", DataType::UInt64, true),
            Field::new("i", DataType::Date32, true),
            Field::new("j", DataType::Decimal128(10, 2), true),
        ])
    }

    fn row() -> JsonRow {
        JsonRow::new(schema().fields().iter().map(AsRef::as_ref), "")
    }

    /// Whether the fast path takes a line; if so, checks that it did what the slow path does.
    fn takes(line: &str) -> bool {
        takes_bytes(line.as_bytes())
    }

    fn takes_bytes(line: &[u8]) -> bool {
        // With a neighbor on either side, and with nothing after it.
        let mut block = b"{\"a\":1}\n".to_vec();
        let start = block.len();
        block.extend_from_slice(line);
        let end = block.len();
        let mut taken = row();
        let is_taken = quick_line(&block, start, end, &mut taken).is_some();
        block.extend_from_slice(b"\n{\"b\":\"next \\\" line\"}\n");
        let mut before_others = row();
        let again = quick_line(&block, start, end, &mut before_others).is_some();
        assert_eq!(is_taken, again);
        if is_taken {
            let (columns, others) = (taken.finish(), before_others.finish());
            let careful = JsonDecoder::careful(&schema(), line);
            let careful = careful.unwrap_or_else(|error| {
                panic!("{}: {error}", String::from_utf8_lossy(line));
            });
            assert!(
                columns == careful && others == careful,
                "{}",
                String::from_utf8_lossy(line)
            );
        }
        is_taken
    }

    #[test]
    fn usual_lines_are_taken() {
        for line in [
            r#"{}"#,
            r#"{"a":1,"b":"text","c":{"id":-2,"name":"n"},"d":"2015-07-15 00:00:00.059"}"#,
            r#" { "b" : "grün" , "a" : null, "x": [1, {"y": "z", "w": -0.5}, true, []] } "#,
            r#"{"c":null,"d":1436918400000,"e":7,"f":true,"g":[1,2,null],"h":3,"i":"2024-02-29","j":null}"#,
            r#"{"c":{},"g":[],"unknown":0,"f":false,"e":-12}"#,
            "{\"a\":1}\r",
        ] {
            assert!(takes(line), "{line}");
        }
    }

    #[test]
    fn unusual_and_broken_lines_are_left() {
        let deep = format!("{{\"x\":{}{}}}", "[".repeat(40), "]".repeat(40));
        for line in [
            r#"{"b":"an \" escape"}"#,
            r#"{"\u0061":1}"#,
            r#"{"e":1.5}"#,
            r#"{"e":1e3}"#,
            r#"{"x":1e999}"#,
            r#"{"j":1}"#,
            r#"{"a":3000000000}"#,
            r#"{"a":01}"#,
            r#"{"a":-0}"#,
            r#"{"a":-}"#,
            r#"{"h":-1}"#,
            r#"{"a":1234567890123456789}"#,
            r#"{"a":"1"}"#,
            r#"{"b":1}"#,
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,}"#,
            r#"{"a":1"#,
            r#"{"b":"open"#,
            r#"{"a":1}{"#,
            r#"{"x":nul}"#,
            r#"{"x":01}"#,
            r#"{"x":1.}"#,
            r#"{"x":[1,]}"#,
            r#"{"i":5}"#,
            r#"{"d":"no time"}"#,
            "{\"b\":\"a\ttab\"}",
            &deep,
            "[]",
            "",
        ] {
            assert!(!takes(line), "{line}");
        }
        assert!(!takes_bytes(b"{\"b\":\"\xff\"}"), "no UTF-8");
    }

    /// JSON values as text, with everything that they may contain.
    fn value() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_string()),
            any::<bool>().prop_map(|value| value.to_string()),
            any::<i64>().prop_map(|value| value.to_string()),
            (-1000..1000i64).prop_map(|value| value.to_string()),
            any::<f64>().prop_map(|value| format!("{value:?}")),
            "[a-zü \\\\\"]{0,40}".prop_map(|text| serde_json::to_string(&text).unwrap()),
            "[a-z]{0,40}".prop_map(|text| format!("\"{text}\"")),
            Just("\"2024-02-29 12:34:56.789\"".to_string()),
            Just("\"2024-02-29\"".to_string()),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            let member = ("(id|name|x)", inner.clone())
                .prop_map(|(key, value)| format!("\"{key}\":{value}"));
            prop_oneof![
                prop::collection::vec(inner, 0..4)
                    .prop_map(|items| format!("[{}]", items.join(","))),
                prop::collection::vec(member, 0..4)
                    .prop_map(|items| format!("{{{}}}", items.join(", "))),
            ]
        })
    }

    proptest! {
        #[test]
        fn lines_that_are_taken_have_the_values_of_the_slow_path(
            members in prop::collection::vec(("[a-k]", value()), 0..8),
            cut in proptest::option::weighted(0.2, any::<prop::sample::Index>()),
            changed in proptest::option::weighted(0.2, (any::<prop::sample::Index>(), any::<u8>())),
        ) {
            let members = members.iter().map(|(key, value)| format!("\"{key}\": {value}"));
            let mut line = format!("{{{}}}", members.collect::<Vec<_>>().join(",")).into_bytes();
            if let Some(cut) = cut {
                line.truncate(cut.index(line.len()));
            }
            if let (Some((at, byte)), false) = (changed, line.is_empty()) {
                let at = at.index(line.len());
                line[at] = byte;
            }
            line.retain(|&byte| byte != b'\n');
            takes_bytes(&line);
        }
    }
}
