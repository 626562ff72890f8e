//! Validates a stream of Arrow IPC before `arrow-ipc` reads it.
//!
//! Its reader verifies the flatbuffers, and the arrays that it has built; in between it slices buffers at the
//! offsets in the message, allocates the lengths in the message, and asserts. So everything in the message is
//! compared with the actual data: frames and bodies are within the part, buffers are within the body, fields
//! have the one type that their name stands for, bitmaps cover their arrays.

use arrow_ipc::{
    DateUnit, Endianness, Field as WireField, IntervalUnit, Precision, RecordBatch as WireBatch,
    Schema as WireSchema, TimeUnit, Type,
};
use arrow_schema::{DataType, Field, Schema};

use super::CONTINUATION;

/// The most levels of nested types, and the most fields of a schema: an aggregate has a few dozen.
const DEPTH_MAX: usize = 16;
const FIELDS_MAX: usize = 16_384;

/// The most elements of one array: a batch of state has far fewer, and no product of a width and an accepted
/// length overflows.
const LENGTH_MAX: i64 = 1 << 31;
const WIDTH_MAX: i32 = 1 << 20;

type Check<T = ()> = std::result::Result<T, String>;

/// The metadata of the message at `at`, and the start of its body; `None` at the end of the stream, which
/// must be the end of the bytes too.
pub(super) fn frame(bytes: &[u8], at: usize) -> Check<Option<(&[u8], usize)>> {
    let word = |at: usize| bytes.get(at..at + 4)?.first_chunk::<4>().copied();
    let (marker, length) = match (word(at), word(at + 4)) {
        (Some(marker), Some(length)) => (marker, u32::from_le_bytes(length) as usize),
        _ => return Err("it ends in the middle".to_string()),
    };
    if marker != CONTINUATION {
        return Err(format!("no message begins at byte {at}"));
    }
    let begin = at + 8;
    if length == 0 {
        let is_end = begin == bytes.len();
        return if is_end {
            Ok(None)
        } else {
            Err("something follows its end".to_string())
        };
    }
    let metadata = bytes.get(begin..begin + length);
    let metadata = metadata.ok_or("a message is longer than the part")?;
    Ok(Some((metadata, begin + length)))
}

/// Whether a column has a type that is supported.
pub(super) fn field(field: &Field) -> Check {
    kind(field.data_type(), 0)
}

fn kind(data_type: &DataType, depth: usize) -> Check {
    use DataType::*;
    if depth > DEPTH_MAX {
        return Err("nests too deep".to_string());
    }
    match data_type {
        // The time zone would be lost.
        Timestamp(_, Some(zone)) if zone.is_empty() => {
            Err("has a time zone of no name".to_string())
        }
        Null | Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64
        | Float16 | Float32 | Float64 | Timestamp(..) | Date32 | Date64 | Time32(_) | Time64(_)
        | Duration(_) | Interval(_) | Binary | LargeBinary | BinaryView | Utf8 | LargeUtf8
        | Utf8View | Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) => Ok(()),
        FixedSizeBinary(width) if (0..=WIDTH_MAX).contains(width) => Ok(()),
        FixedSizeList(item, width) if (0..=WIDTH_MAX).contains(width) => {
            kind(item.data_type(), depth + 1)
        }
        List(item) | LargeList(item) | Map(item, _) => kind(item.data_type(), depth + 1),
        Struct(fields) => fields
            .iter()
            .try_for_each(|field| kind(field.data_type(), depth + 1)),
        other => Err(format!("has the type {other}, which is not stored")),
    }
}

/// Whether `arrow-ipc` can convert this schema.
pub(super) fn schema(schema: &WireSchema<'_>) -> Check {
    if schema.endianness() != Endianness::Little {
        return Err("its numbers have the other byte order".to_string());
    }
    let fields = schema.fields().ok_or("its schema has no fields")?;
    let mut count = 0;
    fields
        .iter()
        .try_for_each(|field| wire_field(field, 0, &mut count))
}

fn wire_field(field: WireField<'_>, depth: usize, count: &mut usize) -> Check {
    *count += 1;
    if depth > DEPTH_MAX || *count > FIELDS_MAX {
        return Err("its schema has too many fields".to_string());
    }
    let children = field.children();
    let (wanted, fits) = wire_type(&field);
    let found = children.map_or(0, |children| children.len());
    if !fits || wanted.is_some_and(|wanted| wanted != found) || field.dictionary().is_some() {
        let name = field.name().unwrap_or_default();
        return Err(format!("column '{name}' has a type that is not stored"));
    }
    let mut children = children.into_iter().flatten();
    children.try_for_each(|child| wire_field(child, depth + 1, count))
}

/// How many children a field of this type has (`None`: any number), and whether the type is supported.
fn wire_type(field: &WireField<'_>) -> (Option<usize>, bool) {
    let decimal = |precision: i32, most: i32, scale: i32| {
        (1..=most).contains(&precision) && (-most..=precision).contains(&scale)
    };
    let fits = match field.type_type() {
        Type::Null | Type::Bool => true,
        Type::Binary | Type::LargeBinary | Type::BinaryView => true,
        Type::Utf8 | Type::LargeUtf8 | Type::Utf8View => true,
        Type::Int => field
            .type_as_int()
            .is_some_and(|int| matches!(int.bitWidth(), 8 | 16 | 32 | 64)),
        Type::FloatingPoint => field.type_as_floating_point().is_some_and(|float| {
            matches!(
                float.precision(),
                Precision::HALF | Precision::SINGLE | Precision::DOUBLE
            )
        }),
        Type::Decimal => field.type_as_decimal().is_some_and(|found| {
            let most = match found.bitWidth() {
                32 => 9,
                64 => 18,
                128 => 38,
                256 => 76,
                _ => 0,
            };
            decimal(found.precision(), most, found.scale())
        }),
        Type::Date => field
            .type_as_date()
            .is_some_and(|date| matches!(date.unit(), DateUnit::DAY | DateUnit::MILLISECOND)),
        Type::Time => field.type_as_time().is_some_and(|time| {
            matches!(
                (time.bitWidth(), time.unit()),
                (32, TimeUnit::SECOND | TimeUnit::MILLISECOND)
                    | (64, TimeUnit::MICROSECOND | TimeUnit::NANOSECOND)
            )
        }),
        Type::Timestamp => field
            .type_as_timestamp()
            .is_some_and(|found| is_unit(found.unit()) && found.timezone() != Some("")),
        Type::Duration => field
            .type_as_duration()
            .is_some_and(|found| is_unit(found.unit())),
        Type::Interval => field.type_as_interval().is_some_and(|interval| {
            matches!(
                interval.unit(),
                IntervalUnit::YEAR_MONTH | IntervalUnit::DAY_TIME | IntervalUnit::MONTH_DAY_NANO
            )
        }),
        Type::FixedSizeBinary => field
            .type_as_fixed_size_binary()
            .is_some_and(|found| (0..=WIDTH_MAX).contains(&found.byteWidth())),
        Type::List | Type::LargeList => return (Some(1), true),
        Type::FixedSizeList => {
            let list = field.type_as_fixed_size_list();
            let fits = list.is_some_and(|list| (0..=WIDTH_MAX).contains(&list.listSize()));
            return (Some(1), fits);
        }
        Type::Map => return (Some(1), field.type_as_map().is_some() && is_map(field)),
        Type::Struct_ => return (None, true),
        _ => false,
    };
    (Some(0), fits)
}

fn is_unit(unit: TimeUnit) -> bool {
    matches!(
        unit,
        TimeUnit::SECOND | TimeUnit::MILLISECOND | TimeUnit::MICROSECOND | TimeUnit::NANOSECOND
    )
}

/// The only child of a map is a struct of a key and a value.
fn is_map(field: &WireField<'_>) -> bool {
    let entries = field.children().filter(|children| children.len() == 1);
    entries.is_some_and(|children| {
        let entries = children.get(0);
        entries.type_type() == Type::Struct_ && entries.children().is_some_and(|c| c.len() == 2)
    })
}

/// Whether a batch has the nodes and buffers that its columns need, all of them within its body.
pub(super) fn batch(batch: &WireBatch<'_>, schema: &Schema, body: usize) -> Check {
    if batch.compression().is_some() {
        return Err("a batch is compressed".to_string());
    }
    let mut buffers = Vec::new();
    for buffer in batch.buffers().into_iter().flatten() {
        let end = buffer.offset().checked_add(buffer.length());
        let lies_within = buffer.offset() >= 0
            && buffer.length() >= 0
            && end.is_some_and(|end| end as u64 <= body as u64);
        if !lies_within {
            return Err("a buffer lies outside of its batch".to_string());
        }
        buffers.push(buffer.length() as u64);
    }
    let mut nodes = Vec::new();
    for node in batch.nodes().into_iter().flatten() {
        let (length, nulls) = (node.length(), node.null_count());
        if !(0..=LENGTH_MAX).contains(&length) || !(0..=length).contains(&nulls) {
            return Err("an array has a wrong length".to_string());
        }
        nodes.push((length as u64, nulls as u64));
    }
    let variadic = batch.variadicBufferCounts().into_iter().flatten();
    let mut walk = Walk {
        nodes: nodes.into_iter(),
        buffers: buffers.into_iter(),
        variadic: variadic.collect::<Vec<i64>>().into_iter(),
    };
    let rows = batch.length();
    if !(0..=LENGTH_MAX).contains(&rows) {
        return Err("a batch has a wrong length".to_string());
    }
    for field in schema.fields() {
        if walk.array(field.data_type())? != rows as u64 {
            return Err("its columns have different lengths".to_string());
        }
    }
    if walk.nodes.next().is_some() || walk.buffers.next().is_some() {
        return Err("a batch has more buffers than its columns".to_string());
    }
    match walk.variadic.next() {
        Some(_) => Err("a batch has more buffers than its columns".to_string()),
        None => Ok(()),
    }
}

/// The nodes and buffers of a batch that its columns have not taken yet, in order.
struct Walk {
    /// The length and number of nulls of each array.
    nodes: std::vec::IntoIter<(u64, u64)>,
    /// The bytes of each buffer.
    buffers: std::vec::IntoIter<u64>,
    /// The number of buffers of each array of views.
    variadic: std::vec::IntoIter<i64>,
}

impl Walk {
    fn buffer(&mut self) -> Check<u64> {
        let buffer = self.buffers.next();
        buffer.ok_or_else(|| "a batch has too few buffers".to_string())
    }

    /// Takes a buffer of at least this many elements of this width.
    fn enough(&mut self, count: u64, width: u64) -> Check {
        let bytes = self.buffer()?;
        if bytes < count * width {
            return Err("a buffer is too short for its array".to_string());
        }
        // The validation of arrays reads whole buffers as elements, and asserts that they are a multiple of
        // the width.
        if width > 0 && bytes % width != 0 {
            return Err("a buffer ends within an element".to_string());
        }
        Ok(())
    }

    /// Takes an array's node, and returns its length.
    fn array(&mut self, data_type: &DataType) -> Check<u64> {
        use DataType::*;
        let node = self.nodes.next();
        let (length, nulls) = node.ok_or("a batch has too few arrays")?;
        if matches!(data_type, Null) {
            return Ok(length);
        }
        let bitmap = self.buffer()?;
        if nulls > 0 && bitmap < length.div_ceil(8) {
            return Err("a bitmap is too short for its array".to_string());
        }
        // An empty array may have no offsets.
        let offsets = if length == 0 { 0 } else { length + 1 };
        match data_type {
            Boolean => self.enough(length.div_ceil(8), 1)?,
            Utf8 | Binary => {
                self.enough(offsets, 4)?;
                self.buffer()?;
            }
            LargeUtf8 | LargeBinary => {
                self.enough(offsets, 8)?;
                self.buffer()?;
            }
            Utf8View | BinaryView => {
                self.enough(length, 16)?;
                let count = self.variadic.next().filter(|&count| count >= 0);
                let count = count.ok_or("a batch has a wrong number of buffers")?;
                for _ in 0..count {
                    self.buffer()?;
                }
            }
            FixedSizeBinary(width) => self.enough(length, *width as u64)?,
            List(item) | Map(item, _) => {
                self.enough(offsets, 4)?;
                self.array(item.data_type())?;
            }
            LargeList(item) => {
                self.enough(offsets, 8)?;
                self.array(item.data_type())?;
            }
            FixedSizeList(item, width) => {
                if self.array(item.data_type())? < length * *width as u64 {
                    return Err("a list has too few items".to_string());
                }
            }
            Struct(fields) => {
                for field in fields {
                    if self.array(field.data_type())? < length {
                        return Err("a struct has fields that are too short".to_string());
                    }
                }
            }
            other => {
                let width = other.primitive_width().ok_or("a column can't be read")?;
                self.enough(length, width as u64)?;
            }
        }
        Ok(length)
    }
}
