//! Random messages over all types that links support, from a seed.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, Int8Array, Int64Array, LargeBinaryArray,
    LargeStringArray, RecordBatch, RecordBatchOptions, StringArray, StringViewArray, UInt32Array,
    UInt64Array, make_array,
};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, FieldRef, IntervalUnit, Schema, TimeUnit};

use crate::barrier::{Barrier, BucketMove};
use crate::chunk::{Chunk, Message, Origin, Partitions, Positions};

/// SplitMix64: small, and the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }

    fn text(&mut self) -> String {
        const LETTERS: [char; 8] = ['a', 'b', 'z', ' ', 'ß', '猫', '🌊', '0'];
        let length = if self.one_in(2) { 5 } else { 30 };
        let length = self.below(length);
        (0..length).map(|_| LETTERS[self.below(8)]).collect()
    }
}

const UNITS: [TimeUnit; 4] = [
    TimeUnit::Second,
    TimeUnit::Millisecond,
    TimeUnit::Microsecond,
    TimeUnit::Nanosecond,
];

/// One type of each kind that isn't nested.
pub fn flat_types() -> Vec<DataType> {
    let mut types = vec![
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
        DataType::FixedSizeBinary(0),
        DataType::FixedSizeBinary(7),
        DataType::Date32,
        DataType::Date64,
        DataType::Time32(TimeUnit::Second),
        DataType::Time32(TimeUnit::Millisecond),
        DataType::Time64(TimeUnit::Microsecond),
        DataType::Time64(TimeUnit::Nanosecond),
        DataType::Interval(IntervalUnit::YearMonth),
        DataType::Interval(IntervalUnit::DayTime),
        DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Decimal32(9, 2),
        DataType::Decimal64(18, -3),
        DataType::Decimal128(38, 10),
        DataType::Decimal256(76, 0),
    ];
    for unit in UNITS {
        types.push(DataType::Duration(unit));
        types.push(DataType::Timestamp(unit, None));
        types.push(DataType::Timestamp(unit, Some("Europe/Berlin".into())));
    }
    types
}

fn field(random: &mut Random, name: &str, nesting: usize) -> Field {
    let data_type = data_type(random, nesting);
    let field = Field::new(name, data_type, !random.one_in(3));
    if random.one_in(4) {
        let metadata = HashMap::from([(random.text(), random.text())]);
        return field.with_metadata(metadata);
    }
    field
}

fn item(random: &mut Random, nesting: usize) -> FieldRef {
    Arc::new(field(random, "item", nesting - 1))
}

/// A random type, nested at most `nesting` deep.
pub fn data_type(random: &mut Random, nesting: usize) -> DataType {
    if nesting == 0 || random.one_in(2) {
        let flat = flat_types();
        return flat[random.below(flat.len())].clone();
    }
    match random.below(7) {
        0 => DataType::List(item(random, nesting)),
        1 => DataType::LargeList(item(random, nesting)),
        2 => {
            let size = random.below(4) as i32;
            DataType::FixedSizeList(item(random, nesting), size)
        }
        3 | 4 => {
            let fields = random.below(4);
            let fields = (0..fields).map(|n| Arc::new(field(random, &n.to_string(), nesting - 1)));
            DataType::Struct(fields.collect::<Vec<FieldRef>>().into())
        }
        5 => {
            let key = field(random, "key", 0).with_nullable(false);
            let value = field(random, "value", nesting - 1);
            let entries = DataType::Struct(vec![key, value].into());
            let entries = Field::new("entries", entries, false);
            DataType::Map(Arc::new(entries), random.one_in(2))
        }
        _ => {
            const KEYS: [DataType; 4] = [
                DataType::Int8,
                DataType::UInt16,
                DataType::Int32,
                DataType::UInt64,
            ];
            let keys = KEYS[random.below(4)].clone();
            let values = data_type(random, nesting - 1);
            DataType::Dictionary(Box::new(keys), Box::new(values))
        }
    }
}

fn nulls(random: &mut Random, length: usize) -> Option<NullBuffer> {
    let share = match random.below(3) {
        0 => return None,
        1 => 2,
        _ => 10,
    };
    Some((0..length).map(|_| !random.one_in(share)).collect())
}

fn offsets(random: &mut Random, length: usize) -> Vec<i32> {
    let mut offsets = vec![random.below(3) as i32];
    for _ in 0..length {
        let items = random.below(4) as i32;
        offsets.push(offsets.last().unwrap() + items);
    }
    offsets
}

/// A random array, built with validation.
pub fn array(random: &mut Random, data_type: &DataType, length: usize, nullable: bool) -> ArrayRef {
    let nulls = if nullable {
        nulls(random, length)
    } else {
        None
    };
    let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
    let strings = |random: &mut Random| -> Vec<Option<String>> {
        let strings = (0..length).map(|row| (!is_null(row)).then(|| random.text()));
        strings.collect()
    };
    let binaries = |random: &mut Random| -> Vec<Option<Vec<u8>>> {
        let bytes = |random: &mut Random| {
            let length = random.below(30);
            random.bytes(length)
        };
        let binaries = (0..length).map(|row| (!is_null(row)).then(|| bytes(random)));
        binaries.collect()
    };
    let mut builder = ArrayData::builder(data_type.clone()).len(length);
    match data_type {
        DataType::Null => return make_array(builder.build().unwrap()),
        DataType::Boolean => {
            builder = builder.add_buffer(random.bytes(length.div_ceil(8)).into());
        }
        DataType::Utf8 => return Arc::new(StringArray::from(strings(random))),
        DataType::LargeUtf8 => return Arc::new(LargeStringArray::from(strings(random))),
        DataType::Utf8View => return Arc::new(StringViewArray::from_iter(strings(random))),
        DataType::Binary => return Arc::new(BinaryArray::from_iter(binaries(random))),
        DataType::LargeBinary => return Arc::new(LargeBinaryArray::from_iter(binaries(random))),
        DataType::BinaryView => return Arc::new(BinaryViewArray::from_iter(binaries(random))),
        DataType::FixedSizeBinary(width) => {
            builder = builder.add_buffer(random.bytes(length * *width as usize).into());
        }
        DataType::List(item) | DataType::Map(item, _) => {
            let offsets = offsets(random, length);
            let items = *offsets.last().unwrap() as usize + random.below(3);
            let values = array(random, item.data_type(), items, item.is_nullable());
            builder = builder.add_buffer(Buffer::from_vec(offsets));
            builder = builder.add_child_data(values.to_data());
        }
        DataType::LargeList(item) => {
            let offsets = offsets(random, length);
            let items = *offsets.last().unwrap() as usize;
            let offsets: Vec<i64> = offsets.into_iter().map(i64::from).collect();
            let values = array(random, item.data_type(), items, item.is_nullable());
            builder = builder.add_buffer(Buffer::from_vec(offsets));
            builder = builder.add_child_data(values.to_data());
        }
        DataType::FixedSizeList(item, size) => {
            let items = length * *size as usize;
            let values = array(random, item.data_type(), items, item.is_nullable());
            builder = builder.add_child_data(values.to_data());
        }
        DataType::Struct(fields) => {
            for field in fields {
                let column = array(random, field.data_type(), length, field.is_nullable());
                builder = builder.add_child_data(column.to_data());
            }
        }
        DataType::Dictionary(keys, values) => {
            let few = random.one_in(2);
            let entries = 1 + random.below(if few { 5 } else { 100 });
            let width = keys.primitive_width().unwrap();
            let mut bytes = Vec::new();
            for _ in 0..length {
                let key = random.below(entries) as u64;
                bytes.extend_from_slice(&key.to_le_bytes()[..width]);
            }
            let values = array(random, values, entries, nullable);
            builder = builder.add_buffer(Buffer::from(bytes.as_slice()));
            builder = builder.add_child_data(values.to_data());
        }
        other => {
            let width = other.primitive_width().unwrap();
            let bytes = random.bytes(length * width);
            builder = builder.add_buffer(Buffer::from(bytes.as_slice()));
        }
    }
    make_array(builder.nulls(nulls).build().unwrap())
}

/// A batch of random columns, cut out of a longer one in two of three cases.
pub fn batch(random: &mut Random, rows: usize, columns: usize) -> RecordBatch {
    let fields = (0..columns).map(|n| field(random, &format!("column {n}"), 3));
    let fields: Vec<Field> = fields.collect();
    let metadata = if random.one_in(3) {
        HashMap::from([("a".into(), random.text()), ("b".into(), random.text())])
    } else {
        HashMap::new()
    };
    let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
    let (before, after) = match random.below(3) {
        0 => (0, 0),
        1 => (random.below(20), random.below(20)),
        _ => (8 * random.below(4), random.below(200)),
    };
    let all = before + rows + after;
    let columns = schema.fields().iter();
    let columns = columns.map(|field| array(random, field.data_type(), all, field.is_nullable()));
    let columns = columns.collect();
    let options = RecordBatchOptions::new().with_row_count(Some(all));
    RecordBatch::try_new_with_options(schema, columns, &options)
        .unwrap()
        .slice(before, rows)
}

/// A chunk of the batch, with or without the parts that may come with rows.
pub fn chunk(random: &mut Random, batch: RecordBatch) -> Chunk {
    let rows = batch.num_rows();
    let mut chunk = Chunk::new(batch, random.next());
    if random.one_in(2) {
        let first = random.next() >> 1;
        let positions = if random.one_in(2) {
            Positions::Run { first }
        } else {
            let list = (0..rows as u64).map(|row| first + 3 * row);
            Positions::List(UInt64Array::from_iter_values(list))
        };
        let watermarks = random.one_in(2).then(|| {
            let watermarks = (0..rows).map(|_| random.next() as i64);
            Int64Array::from_iter_values(watermarks)
        });
        chunk.origin = Some(Origin {
            partitions: match random.one_in(2) {
                true => Partitions::One(random.next() as u32),
                false => {
                    let each = (0..rows).map(|_| random.next() as u32);
                    Partitions::Each(UInt32Array::from_iter_values(each))
                }
            },
            positions,
            watermarks,
        });
    }
    if random.one_in(3) {
        let kinds = (0..rows).map(|_| random.below(4) as i8);
        chunk.kinds = Some(Int8Array::from_iter_values(kinds));
    }
    chunk
}

/// One of each control message.
pub fn control_messages() -> Vec<Message> {
    vec![
        Message::Watermark {
            time: -5,
            ingest_ns: u64::MAX,
        },
        Message::EndOfWork { ingest_ns: 17 },
        Message::Idle,
        Message::Active,
        Message::EndOfStream {
            ingest_ns: 3,
            stopped: false,
        },
        Message::EndOfStream {
            ingest_ns: 3,
            stopped: true,
        },
        Message::Barrier(Barrier {
            number: 9,
            purpose: crate::barrier::Purpose::Publish,
        }),
        Message::Barrier(Barrier {
            number: 3,
            purpose: crate::barrier::Purpose::Checkpoint {
                since: None,
                bases: Arc::new([]),
                stops: true,
            },
        }),
        Message::Barrier(Barrier {
            number: 4,
            purpose: crate::barrier::Purpose::Checkpoint {
                since: Some(2),
                bases: Arc::new([0, u32::MAX]),
                stops: false,
            },
        }),
        Message::Barrier(Barrier {
            number: u64::MAX,
            purpose: crate::barrier::Purpose::Move {
                node: 3,
                moves: Arc::new([BucketMove {
                    bucket: 4095,
                    from: 0,
                    to: 7,
                }]),
            },
        }),
    ]
}
