//! Columns that are not in a message's value: `METADATA FROM 'timestamp'`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::types::{
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow_array::{
    ArrayRef, Int32Array, Int64Array, PrimitiveArray, RecordBatch, RecordBatchOptions,
    StringViewArray,
};
use arrow_schema::{DataType, Schema, SchemaRef, TimeUnit};

use crate::format::{DecodedRows, Message, sql_type_name};
use crate::kafka::partitions::Place;
use crate::options::OptionError;
use crate::table::TableDefinition;

/// The metadata of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metadata {
    Topic,
    Partition,
    Offset,
    Timestamp(TimeUnit),
    Key,
}

/// The names of metadata (Flink's, and `key`), and the column types for them.
const KNOWN: &[(&str, &str)] = &[
    ("topic", "STRING"),
    ("partition", "INT"),
    ("offset", "BIGINT"),
    ("timestamp", "TIMESTAMP(3)"),
    ("key", "STRING"),
];

/// A table's columns, divided into those of the value and the others.
#[derive(Debug, Clone)]
pub(super) struct Columns {
    schema: SchemaRef,
    metadata: BTreeMap<usize, Metadata>,
    /// The columns of the value.
    pub(super) values: SchemaRef,
}

impl Columns {
    pub(super) fn new(table: &TableDefinition) -> Result<Columns, OptionError> {
        let mut metadata = BTreeMap::new();
        for (&index, name) in &table.metadata {
            metadata.insert(index, kind(table, index, name)?);
        }
        let fields = table.schema.fields().iter().enumerate();
        let of_value = fields.filter(|(index, _)| !metadata.contains_key(index));
        let of_value = of_value.map(|(_, field)| Arc::clone(field));
        Ok(Columns {
            schema: Arc::clone(&table.schema),
            values: Arc::new(Schema::new(of_value.collect::<Vec<_>>())),
            metadata,
        })
    }

    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The columns that a projection reads, from the value and from the metadata.
    pub(super) fn read(&self, projection: &[usize]) -> (Vec<usize>, Beside) {
        let mut of_value = vec![];
        let mut columns = vec![];
        for index in projection {
            match self.metadata.get(index) {
                Some(&metadata) => columns.push(Column::Beside(metadata)),
                None => {
                    columns.push(Column::OfValue(of_value.len()));
                    of_value.push(index - self.metadata.range(..index).count());
                }
            }
        }
        let fields = projection
            .iter()
            .map(|&index| Arc::clone(&self.schema.fields()[index]));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        (of_value, Beside { schema, columns })
    }
}

fn kind(table: &TableDefinition, index: usize, name: &str) -> Result<Metadata, OptionError> {
    let field = table.schema.field(index);
    let found = match (name, field.data_type()) {
        ("topic", DataType::Utf8View) => Some(Metadata::Topic),
        ("partition", DataType::Int32) => Some(Metadata::Partition),
        ("offset", DataType::Int64) => Some(Metadata::Offset),
        ("timestamp", DataType::Timestamp(unit, None)) => Some(Metadata::Timestamp(*unit)),
        ("key", DataType::Utf8View) => Some(Metadata::Key),
        _ => None,
    };
    found.ok_or_else(|| {
        let column = field.name();
        match KNOWN.iter().find(|(known, _)| *known == name) {
            Some((_, sql_type)) => OptionError::table(
                format!(
                    "column '{column}' is {}, and METADATA '{name}' is not",
                    sql_type_name(field.data_type())
                ),
                format!("declare {column} {sql_type} METADATA FROM '{name}'"),
            ),
            None => {
                let names = KNOWN.iter().map(|(known, _)| *known).collect::<Vec<_>>();
                OptionError::table(
                    format!("column '{column}': a message has no '{name}'"),
                    format!("METADATA is one of {}", names.join(", ")),
                )
            }
        }
    })
}

/// The origin of a column that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    OfValue(usize),
    Beside(Metadata),
}

/// The columns that are read, and those among them that do not come from the value.
#[derive(Debug, Clone)]
pub(super) struct Beside {
    schema: SchemaRef,
    columns: Vec<Column>,
}

/// The metadata of messages, in their order.
#[derive(Debug, Default)]
pub(super) struct Notes {
    timestamps_ms: Vec<Option<i64>>,
    keys: Vec<Option<String>>,
}

impl Notes {
    pub(super) fn clear(&mut self) {
        self.timestamps_ms.clear();
        self.keys.clear();
    }
}

impl Beside {
    fn wants(&self, wanted: impl Fn(Metadata) -> bool) -> bool {
        let mut columns = self.columns.iter();
        columns.any(|column| matches!(column, Column::Beside(metadata) if wanted(*metadata)))
    }

    /// Records the metadata of a message that is read; an error rejects the message.
    pub(super) fn note(
        &self,
        notes: &mut Notes,
        key: Option<&[u8]>,
        timestamp_ms: Option<i64>,
    ) -> Result<(), &'static str> {
        if self.wants(|metadata| metadata == Metadata::Key) {
            let key = key.map(std::str::from_utf8).transpose();
            let key = key.map_err(|_| "the key is not UTF-8")?;
            notes.keys.push(key.map(str::to_string));
        }
        if self.wants(|metadata| matches!(metadata, Metadata::Timestamp(_))) {
            notes.timestamps_ms.push(timestamp_ms);
        }
        Ok(())
    }

    /// Puts the columns in order, including those that are not part of the value.
    pub(super) fn complete(
        &self,
        mut rows: DecodedRows,
        place: &Place,
        messages: &[Message],
        notes: &Notes,
    ) -> DecodedRows {
        if !self.wants(|_| true) {
            return rows;
        }
        // Finds the message of each row; some messages have no row. Both numbers increase.
        let mut at = 0;
        let of_rows = (0..rows.batch.num_rows()).map(|row| {
            while messages[at].number < rows.positions.at(row) {
                at += 1;
            }
            at
        });
        let of_rows = of_rows.collect::<Vec<usize>>();
        let columns = self.columns.iter().map(|column| match column {
            Column::OfValue(nth) => Arc::clone(rows.batch.column(*nth)),
            Column::Beside(metadata) => metadata.column(place, messages, notes, &of_rows),
        });
        let options = RecordBatchOptions::new().with_row_count(Some(of_rows.len()));
        let schema = Arc::clone(&self.schema);
        rows.batch = RecordBatch::try_new_with_options(schema, columns.collect(), &options)
            .expect("the columns were made for the schema, as many rows as the value has");
        rows
    }
}

impl Metadata {
    fn column(
        self,
        place: &Place,
        messages: &[Message],
        notes: &Notes,
        of_rows: &[usize],
    ) -> ArrayRef {
        let rows = of_rows.iter();
        match self {
            Metadata::Topic => {
                // One string for all rows.
                let mut topics = StringViewBuilder::new().with_deduplicate_strings();
                rows.for_each(|_| topics.append_value(&place.topic));
                Arc::new(topics.finish())
            }
            Metadata::Partition => Arc::new(Int32Array::from_value(place.partition, of_rows.len())),
            Metadata::Offset => {
                let offsets = rows.map(|&row| messages[row].number as i64);
                Arc::new(Int64Array::from_iter_values(offsets))
            }
            Metadata::Key => {
                let keys = rows.map(|&row| notes.keys[row].as_deref());
                Arc::new(StringViewArray::from_iter(keys))
            }
            Metadata::Timestamp(unit) => {
                let ticks = |per_ms: i64| {
                    rows.map(move |&row| notes.timestamps_ms[row]?.checked_mul(per_ms))
                };
                match unit {
                    TimeUnit::Second => {
                        let seconds = ticks(1).map(|ms| ms.map(|ms| ms.div_euclid(1_000)));
                        Arc::new(PrimitiveArray::<TimestampSecondType>::from_iter(seconds))
                    }
                    TimeUnit::Millisecond => Arc::new(
                        PrimitiveArray::<TimestampMillisecondType>::from_iter(ticks(1)),
                    ),
                    TimeUnit::Microsecond => {
                        let micros = ticks(1_000);
                        Arc::new(PrimitiveArray::<TimestampMicrosecondType>::from_iter(
                            micros,
                        ))
                    }
                    TimeUnit::Nanosecond => {
                        let nanos = ticks(1_000_000);
                        Arc::new(PrimitiveArray::<TimestampNanosecondType>::from_iter(nanos))
                    }
                }
            }
        }
    }
}
