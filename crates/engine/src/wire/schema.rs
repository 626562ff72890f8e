//! Schemas as bytes.
//!
//! A field is its name, whether it may be NULL, its type and its metadata. A type is a tag, then its
//! parameters; the many types without parameters are numbered by [`PLAIN`]. Both sides reject types that
//! Arrow can describe but can't build arrays of.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::{
    Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    validate_decimal_precision_and_scale as validate_decimal,
};
use arrow_schema::{DataType, Field, FieldRef, IntervalUnit, Schema, TimeUnit};

use super::cursor::Cursor;
use super::{FIELDS_MAX, HEADER_BYTES, NESTING_MAX, SCHEMA_BYTES_MAX, VERSION, error_at, kind};
use crate::error::{Error, Result};

/// Types without parameters; a type's tag is its index. Part of the format: only ever append.
const PLAIN: [DataType; 32] = [
    DataType::Null,
    DataType::Boolean,
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt8,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
    DataType::Float16,
    DataType::Float32,
    DataType::Float64,
    DataType::Utf8,
    DataType::LargeUtf8,
    DataType::Utf8View,
    DataType::Binary,
    DataType::LargeBinary,
    DataType::BinaryView,
    DataType::Date32,
    DataType::Date64,
    DataType::Time32(TimeUnit::Second),
    DataType::Time32(TimeUnit::Millisecond),
    DataType::Time64(TimeUnit::Microsecond),
    DataType::Time64(TimeUnit::Nanosecond),
    DataType::Duration(TimeUnit::Second),
    DataType::Duration(TimeUnit::Millisecond),
    DataType::Duration(TimeUnit::Microsecond),
    DataType::Duration(TimeUnit::Nanosecond),
    DataType::Interval(IntervalUnit::YearMonth),
    DataType::Interval(IntervalUnit::DayTime),
    DataType::Interval(IntervalUnit::MonthDayNano),
];

/// The units of a time stamp, by number.
const UNITS: [TimeUnit; 4] = [
    TimeUnit::Second,
    TimeUnit::Millisecond,
    TimeUnit::Microsecond,
    TimeUnit::Nanosecond,
];

/// Tags of types with parameters.
mod tag {
    pub const FIXED_SIZE_BINARY: u8 = 64;
    pub const TIMESTAMP: u8 = 65;
    pub const TIMESTAMP_IN_ZONE: u8 = 66;
    pub const DECIMAL32: u8 = 67;
    pub const DECIMAL64: u8 = 68;
    pub const DECIMAL128: u8 = 69;
    pub const DECIMAL256: u8 = 70;
    pub const LIST: u8 = 71;
    pub const LARGE_LIST: u8 = 72;
    pub const FIXED_SIZE_LIST: u8 = 73;
    pub const STRUCT: u8 = 74;
    pub const MAP: u8 = 75;
    pub const DICTIONARY: u8 = 76;
}

/// Makes the frame of a schema.
///
/// # Errors
///
/// For a column whose type is not supported on links, with its name; for a schema over the limits.
pub fn encode(schema: &Schema, number: u32) -> Result<Vec<u8>> {
    let mut writer = Writer {
        bytes: vec![VERSION, kind::SCHEMA, 0, 0],
        fields: 0,
    };
    writer.u32(number);
    writer.bytes.resize(HEADER_BYTES, 0);
    writer.metadata(schema.metadata())?;
    writer.length(schema.fields().len())?;
    for field in schema.fields() {
        let wrap = |error: Error| error.at(&format!("column '{}'", field.name()));
        writer.field(field, 0).map_err(wrap)?;
    }
    let length = writer.bytes.len();
    if length > SCHEMA_BYTES_MAX {
        let reason = format!("takes {length} bytes, more than {SCHEMA_BYTES_MAX}");
        return Err(Error::new("schema", reason).hint("shorten its metadata"));
    }
    writer.bytes[8..12].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(writer.bytes)
}

struct Writer {
    bytes: Vec<u8>,
    fields: usize,
}

impl Writer {
    fn u32(&mut self, number: u32) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    fn length(&mut self, length: usize) -> Result<()> {
        let length = u32::try_from(length)
            .map_err(|_| Error::new("schema", "has a string or list of 2^32 bytes or items"))?;
        self.u32(length);
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<()> {
        self.length(text.len())?;
        self.bytes.extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// Writes metadata in the order of keys, so that equal schemas have equal bytes.
    fn metadata(&mut self, metadata: &HashMap<String, String>) -> Result<()> {
        self.length(metadata.len())?;
        let mut entries: Vec<_> = metadata.iter().collect();
        entries.sort();
        for (key, value) in entries {
            self.text(key)?;
            self.text(value)?;
        }
        Ok(())
    }

    fn field(&mut self, field: &Field, nesting: usize) -> Result<()> {
        self.fields += 1;
        if self.fields > FIELDS_MAX {
            return Err(Error::new("", format!("more than {FIELDS_MAX} fields")));
        }
        self.text(field.name())?;
        self.bytes.push(u8::from(field.is_nullable()));
        self.data_type(field.data_type(), nesting)?;
        self.metadata(field.metadata())
    }

    fn data_type(&mut self, data_type: &DataType, nesting: usize) -> Result<()> {
        check(data_type, nesting).map_err(|reason| Error::new("", reason))?;
        if let Some(plain) = PLAIN.iter().position(|plain| plain == data_type) {
            self.bytes.push(plain as u8);
            return Ok(());
        }
        let inner = nesting + 1;
        match data_type {
            DataType::FixedSizeBinary(width) => {
                self.bytes.push(tag::FIXED_SIZE_BINARY);
                self.u32(*width as u32);
            }
            DataType::Timestamp(unit, zone) => {
                let unit = UNITS.iter().position(|known| known == unit);
                let unit = unit.expect("all units are listed") as u8;
                match zone {
                    None => self.bytes.extend([tag::TIMESTAMP, unit]),
                    Some(zone) => {
                        self.bytes.extend([tag::TIMESTAMP_IN_ZONE, unit]);
                        self.text(zone)?;
                    }
                }
            }
            DataType::Decimal32(precision, scale) => {
                self.bytes
                    .extend([tag::DECIMAL32, *precision, *scale as u8]);
            }
            DataType::Decimal64(precision, scale) => {
                self.bytes
                    .extend([tag::DECIMAL64, *precision, *scale as u8]);
            }
            DataType::Decimal128(precision, scale) => {
                self.bytes
                    .extend([tag::DECIMAL128, *precision, *scale as u8]);
            }
            DataType::Decimal256(precision, scale) => {
                self.bytes
                    .extend([tag::DECIMAL256, *precision, *scale as u8]);
            }
            DataType::List(item) => {
                self.bytes.push(tag::LIST);
                self.field(item, inner)?;
            }
            DataType::LargeList(item) => {
                self.bytes.push(tag::LARGE_LIST);
                self.field(item, inner)?;
            }
            DataType::FixedSizeList(item, size) => {
                self.bytes.push(tag::FIXED_SIZE_LIST);
                self.u32(*size as u32);
                self.field(item, inner)?;
            }
            DataType::Struct(fields) => {
                self.bytes.push(tag::STRUCT);
                self.length(fields.len())?;
                for field in fields {
                    self.field(field, inner)?;
                }
            }
            DataType::Map(entries, sorted) => {
                self.bytes.extend([tag::MAP, u8::from(*sorted)]);
                self.field(entries, inner)?;
            }
            DataType::Dictionary(keys, values) => {
                self.bytes.push(tag::DICTIONARY);
                self.data_type(keys, inner)?;
                self.data_type(values, inner)?;
            }
            other => {
                return Err(Error::new(
                    "",
                    format!("type {other} is not supported on links"),
                ));
            }
        }
        Ok(())
    }
}

/// Reads a schema's frame from the end of its header to its end.
pub fn decode(frame: &[u8]) -> Result<Schema> {
    let mut reader = Reader {
        cursor: Cursor::new(frame, HEADER_BYTES, frame.len()),
        fields: 0,
    };
    let metadata = reader.metadata()?;
    let fields = reader.fields(0)?;
    if !reader.cursor.is_at_end() {
        let at = reader.cursor.position();
        return Err(error_at(at, "bytes after the schema's last field"));
    }
    Ok(Schema::new_with_metadata(fields, metadata))
}

struct Reader<'a> {
    cursor: Cursor<'a>,
    fields: usize,
}

impl Reader<'_> {
    fn metadata(&mut self) -> Result<HashMap<String, String>> {
        let entries = self.cursor.length("number of metadata entries")?;
        let mut metadata = HashMap::new();
        for _ in 0..entries {
            let key = self.cursor.text("metadata key")?.to_string();
            let value = self.cursor.text("metadata value")?.to_string();
            metadata.insert(key, value);
        }
        Ok(metadata)
    }

    fn fields(&mut self, nesting: usize) -> Result<Vec<FieldRef>> {
        // The list grows as fields are read: the number is an unverified claim.
        let count = self.cursor.length("number of fields")?;
        (0..count).map(|_| self.field(nesting)).collect()
    }

    fn field(&mut self, nesting: usize) -> Result<FieldRef> {
        self.fields += 1;
        if self.fields > FIELDS_MAX {
            let at = self.cursor.position();
            return Err(error_at(at, format!("more than {FIELDS_MAX} fields")));
        }
        let name = self.cursor.text("name of a field")?;
        let nullable = self.flag("nullability of a field")?;
        let data_type = self.data_type(nesting)?;
        let metadata = self.metadata()?;
        Ok(Arc::new(
            Field::new(name, data_type, nullable).with_metadata(metadata),
        ))
    }

    fn flag(&mut self, what: &str) -> Result<bool> {
        let at = self.cursor.position();
        match self.cursor.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(error_at(at, format!("{what} is {other}, not 0 or 1"))),
        }
    }

    fn item(&mut self, nesting: usize) -> Result<FieldRef> {
        // Checked before going deeper; encoding checks at each level.
        if nesting >= NESTING_MAX {
            return Err(error_at(self.cursor.position(), too_deep()));
        }
        self.field(nesting)
    }

    fn data_type(&mut self, nesting: usize) -> Result<DataType> {
        let at = self.cursor.position();
        let tag = self.cursor.u8("tag of a type")?;
        if let Some(plain) = PLAIN.get(usize::from(tag)) {
            return Ok(plain.clone());
        }
        let inner = nesting + 1;
        let data_type = match tag {
            tag::FIXED_SIZE_BINARY => {
                DataType::FixedSizeBinary(self.cursor.u32("width of a binary")? as i32)
            }
            tag::TIMESTAMP => DataType::Timestamp(self.unit()?, None),
            tag::TIMESTAMP_IN_ZONE => {
                let unit = self.unit()?;
                let zone = self.cursor.text("time zone")?;
                DataType::Timestamp(unit, Some(zone.into()))
            }
            tag::DECIMAL32 | tag::DECIMAL64 | tag::DECIMAL128 | tag::DECIMAL256 => {
                let precision = self.cursor.u8("precision of a decimal")?;
                let scale = self.cursor.u8("scale of a decimal")? as i8;
                match tag {
                    tag::DECIMAL32 => DataType::Decimal32(precision, scale),
                    tag::DECIMAL64 => DataType::Decimal64(precision, scale),
                    tag::DECIMAL128 => DataType::Decimal128(precision, scale),
                    _ => DataType::Decimal256(precision, scale),
                }
            }
            tag::LIST => DataType::List(self.item(inner)?),
            tag::LARGE_LIST => DataType::LargeList(self.item(inner)?),
            tag::FIXED_SIZE_LIST => {
                let size = self.cursor.u32("size of a list")? as i32;
                DataType::FixedSizeList(self.item(inner)?, size)
            }
            tag::STRUCT => {
                if inner >= NESTING_MAX {
                    return Err(error_at(at, too_deep()));
                }
                DataType::Struct(self.fields(inner)?.into())
            }
            tag::MAP => {
                let sorted = self.flag("order of a map")?;
                DataType::Map(self.item(inner)?, sorted)
            }
            tag::DICTIONARY => {
                if inner >= NESTING_MAX {
                    return Err(error_at(at, too_deep()));
                }
                let keys = self.data_type(inner)?;
                let values = self.data_type(inner)?;
                DataType::Dictionary(Box::new(keys), Box::new(values))
            }
            other => return Err(error_at(at, format!("{other} is not the tag of a type"))),
        };
        check(&data_type, nesting).map_err(|reason| error_at(at, reason))?;
        Ok(data_type)
    }

    fn unit(&mut self) -> Result<TimeUnit> {
        let at = self.cursor.position();
        let unit = self.cursor.u8("unit of a time stamp")?;
        let known = UNITS.get(usize::from(unit)).copied();
        known.ok_or_else(|| error_at(at, format!("{unit} is not a unit of a time stamp")))
    }
}

fn too_deep() -> String {
    format!("types nested more than {NESTING_MAX} deep are not supported")
}

/// Checks what Arrow's arrays of a type rely on, apart from the types inside it.
fn check(data_type: &DataType, nesting: usize) -> std::result::Result<(), String> {
    if nesting >= NESTING_MAX {
        return Err(too_deep());
    }
    let decimal = match data_type {
        DataType::Decimal32(precision, scale) => {
            validate_decimal::<Decimal32Type>(*precision, *scale)
        }
        DataType::Decimal64(precision, scale) => {
            validate_decimal::<Decimal64Type>(*precision, *scale)
        }
        DataType::Decimal128(precision, scale) => {
            validate_decimal::<Decimal128Type>(*precision, *scale)
        }
        DataType::Decimal256(precision, scale) => {
            validate_decimal::<Decimal256Type>(*precision, *scale)
        }
        _ => Ok(()),
    };
    decimal.map_err(|error| error.to_string())?;
    match data_type {
        DataType::FixedSizeBinary(width) if *width < 0 => {
            Err(format!("a binary of {width} bytes is not valid"))
        }
        DataType::FixedSizeList(_, size) if *size < 0 => {
            Err(format!("a list of {size} items is not valid"))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields)
                if fields.len() == 2 && !fields[0].is_nullable() && !entries.is_nullable() =>
            {
                Ok(())
            }
            other => Err(format!(
                "a map's entries must be structs, never NULL, of a key that is never NULL and a \
                 value, not {other}"
            )),
        },
        DataType::Dictionary(keys, _) if !keys.is_dictionary_key_type() => {
            Err(format!("a dictionary's keys must be integers, not {keys}"))
        }
        _ => Ok(()),
    }
}
