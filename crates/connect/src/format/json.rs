//! JSON lines: one object per line, read straight into columns.
//!
//! No document is built: the deserializer visits a column's builder for each value that is read and skips the
//! others. A bad line is rolled back. Common lines take a fast path ([`super::json_quick`]), which leaves all
//! others, and all errors, to this one.

use std::fmt;

use arrow_array::ArrayRef;
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Schema};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess};
use serde::de::{Unexpected, Visitor};

use super::json_columns::{JsonColumn, JsonRow, Values, holds, skip_to};
use super::json_nulls::put;
use super::json_quick::Quick;
use super::number::parse_decimal;
use super::progress::{Line, Progress, Stop};
use super::types::sql_type_name;
use crate::time;

/// Reads lines of JSON into the columns that are read.
#[derive(Debug)]
pub(crate) struct JsonDecoder {
    row: JsonRow,
    quick: Quick,
    /// How often the fast path has given up lately.
    unusual: u32,
}

/// Once the fast path has given up this often, it is tried only for every line number that this divides: a
/// producer of one unusual line usually produces more.
const UNUSUAL_MAX: u32 = 64;

impl JsonDecoder {
    /// A decoder for the columns of `read`.
    pub(crate) fn new(read: &Schema) -> JsonDecoder {
        JsonDecoder {
            row: JsonRow::new(read.fields().iter().map(AsRef::as_ref), ""),
            quick: Quick::new(),
            unusual: 0,
        }
    }

    pub(crate) fn scan(
        &mut self,
        block: &[u8],
        from: usize,
        last: bool,
        progress: &mut Progress,
    ) -> (usize, Stop) {
        let mut start = from;
        loop {
            let is_tried =
                self.unusual < UNUSUAL_MAX || progress.line.is_multiple_of(u64::from(UNUSUAL_MAX));
            let quick = match is_tried {
                true => self.quick.line(block, start, last, &mut self.row),
                false => None,
            };
            let line = match quick {
                Some(Ok(line)) => {
                    self.unusual /= 2;
                    progress.accept(start, line.end);
                    line
                }
                Some(Err(stop)) => return (start, stop),
                None => match Line::find(block, start, last) {
                    Ok(line) => {
                        self.unusual = (self.unusual + u32::from(is_tried)).min(2 * UNUSUAL_MAX);
                        self.read_carefully(&block[start..line.end], line, progress);
                        line
                    }
                    Err(stop) => return (start, stop),
                },
            };
            progress.line += 1;
            start = line.next;
            if progress.is_full() {
                return (start, Stop::Full);
            }
        }
    }

    /// Takes or rejects a line by the slow path, unless it is empty.
    fn read_carefully(&mut self, text: &[u8], line: Line, progress: &mut Progress) {
        if text.is_empty() {
            return;
        }
        let rows = self.row.rows;
        match self.line(text) {
            Ok(()) => progress.accept(line.start, line.end),
            Err(error) => {
                self.row.truncate(rows);
                progress.reject(text, reason(&error));
            }
        }
    }

    fn line(&mut self, line: &[u8]) -> serde_json::Result<()> {
        let mut deserializer = serde_json::Deserializer::from_slice(line);
        deserializer.deserialize_map(Object {
            row: &mut self.row,
            path: "",
        })?;
        deserializer.end()
    }

    /// The columns of one line, by the slow path.
    #[cfg(test)]
    pub(super) fn careful(read: &Schema, line: &[u8]) -> serde_json::Result<Vec<ArrayRef>> {
        let mut decoder = JsonDecoder::new(read);
        decoder.line(line)?;
        Ok(decoder.finish(&Buffer::from(&[][..])))
    }

    /// The rows of the lines that were taken, which were in `block`.
    pub(crate) fn finish(&mut self, block: &Buffer) -> Vec<ArrayRef> {
        self.row.finish(block)
    }
}

/// The parser counts lines and columns of its input, which is one line of ours.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let what = text.strip_suffix(&place).unwrap_or(&text);
    match error.classify() {
        serde_json::error::Category::Data => format!("{what}, at byte {}", error.column()),
        _ => format!("not JSON: {what} at byte {}", error.column()),
    }
}

/// Visits an object's fields.
struct Object<'a> {
    row: &'a mut JsonRow,
    path: &'a str,
}

/// Finds the field of a key.
struct Key<'a> {
    fields: &'a [JsonColumn],
    /// The field that is probably next: producers keep the order of their fields.
    likely: usize,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        if self
            .fields
            .get(self.likely)
            .is_some_and(|field| field.name == key)
        {
            return Ok(Some(self.likely));
        }
        Ok(self.fields.iter().position(|field| field.name == key))
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path {
            "" => f.write_str("an object"),
            path => write!(f, "an object for column '{path}'"),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let row = self.row;
        let object = row.begin();
        let mut likely = 0;
        while let Some(key) = map.next_key_seed(Key {
            fields: &row.fields,
            likely,
        })? {
            let Some(nth) = key else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let field = &mut row.fields[nth];
            if !field.found_in(object) {
                return Err(A::Error::custom(format_args!(
                    "column '{}' twice",
                    field.path
                )));
            }
            map.next_value_seed(Value {
                column: field,
                row: row.rows,
            })?;
            likely = nth + 1;
        }
        row.rows += 1;
        Ok(())
    }
}

/// Puts a value into a row of its column.
struct Value<'a> {
    column: &'a mut JsonColumn,
    row: usize,
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Value<'_> {
    fn text<E>(self, value: &str) -> Result<(), E> {
        let JsonColumn { values, nulls, .. } = self.column;
        if let Values::Strings(strings) = values {
            strings.put_beside(nulls, self.row, value);
        }
        Ok(())
    }

    fn integer<E: serde::de::Error>(self, value: i128, found: Unexpected<'_>) -> Result<(), E> {
        let data_type = &self.column.data_type;
        let nulls = &mut self.column.nulls;
        match &mut self.column.values {
            Values::Signed(values) if data_type != &DataType::Date32 => {
                if !holds(data_type, value) {
                    return Err(E::invalid_value(found, &self));
                }
                put(values, nulls, self.row, value as i64);
            }
            Values::Unsigned(values) => {
                if !holds(data_type, value) {
                    return Err(E::invalid_value(found, &self));
                }
                put(values, nulls, self.row, value as u64);
            }
            Values::Float(values) => put(values, nulls, self.row, value as f64),
            Values::Decimal(_) => return self.decimal(&value.to_string(), found),
            Values::Strings(_) => return self.text(itoa::Buffer::new().format(value)),
            _ => return Err(E::invalid_type(found, &self)),
        }
        Ok(())
    }

    fn decimal<E: serde::de::Error>(self, text: &str, found: Unexpected<'_>) -> Result<(), E> {
        let DataType::Decimal128(precision, scale) = self.column.data_type else {
            unreachable!("only a decimal has the values of one");
        };
        let Some(value) = parse_decimal(text.as_bytes(), precision, scale) else {
            return Err(E::invalid_value(found, &self));
        };
        if let Values::Decimal(values) = &mut self.column.values {
            put(values, &mut self.column.nulls, self.row, value);
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "column '{}' ({})",
            self.column.path,
            sql_type_name(&self.column.data_type)
        )
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.column.fill(self.row + 1);
        Ok(())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        match &mut self.column.values {
            Values::Boolean(values) => put(values, &mut self.column.nulls, self.row, value),
            Values::Strings(_) => return self.text(if value { "true" } else { "false" }),
            _ => return Err(E::invalid_type(Unexpected::Bool(value), &self)),
        }
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.integer(value.into(), Unexpected::Signed(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.integer(value.into(), Unexpected::Unsigned(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        match &mut self.column.values {
            Values::Float(values) => put(values, &mut self.column.nulls, self.row, value),
            Values::Decimal(_) => {
                let text = zmij::Buffer::new().format(value).to_string();
                return self.decimal(&text, Unexpected::Float(value));
            }
            Values::Strings(_) => return self.text(zmij::Buffer::new().format(value)),
            _ => return Err(E::invalid_type(Unexpected::Float(value), &self)),
        }
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        let parsed = match (&self.column.data_type, &self.column.values) {
            (_, Values::Strings(_)) => return self.text(value),
            (DataType::Timestamp(unit, _), _) => {
                time::parse_timestamp(value.as_bytes()).and_then(|time| time.in_unit(*unit))
            }
            (DataType::Date32, _) => time::parse_date(value.as_bytes()),
            _ => return Err(E::invalid_type(Unexpected::Str(value), &self)),
        };
        let (Some(parsed), Values::Signed(values)) = (parsed, &mut self.column.values) else {
            return Err(E::invalid_value(Unexpected::Str(value), &self));
        };
        put(values, &mut self.column.nulls, self.row, parsed);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let Values::Row(row) = &mut self.column.values else {
            return Err(A::Error::invalid_type(Unexpected::Map, &self));
        };
        row.skip_to(self.row, &mut self.column.nulls);
        Object {
            row,
            path: &self.column.path,
        }
        .visit_map(map)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let nulls = &mut self.column.nulls;
        let Values::Array {
            items: column,
            offsets,
        } = &mut self.column.values
        else {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        };
        skip_to(offsets, nulls, self.row);
        loop {
            let row = column.rows();
            if items.next_element_seed(Value { column, row })?.is_none() {
                break;
            }
        }
        offsets.push(column.rows() as i32);
        Ok(())
    }
}
