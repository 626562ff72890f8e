//! Columns that are not in a message's payload: `METADATA FROM 'topic'`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::{ArrayRef, BooleanArray, Int32Array, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Schema, SchemaRef};

use crate::format::{DecodedRows, Message, sql_type_name};
use crate::mqtt::subscriber::MessageInfo;
use crate::options::OptionError;
use crate::table::TableDefinition;

/// The metadata of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Metadata {
    Topic,
    Qos,
    Retain,
}

/// The names of metadata, and the column types for them.
const KNOWN: &[(&str, Metadata, DataType)] = &[
    ("topic", Metadata::Topic, DataType::Utf8View),
    ("qos", Metadata::Qos, DataType::Int32),
    ("retain", Metadata::Retain, DataType::Boolean),
];

/// A table's columns, divided into those of the payload and the others.
#[derive(Debug, Clone)]
pub(super) struct Columns {
    schema: SchemaRef,
    metadata: BTreeMap<usize, Metadata>,
    /// The columns of the payload.
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

    /// The columns that a projection reads, from the payload and from the metadata.
    pub(super) fn read(&self, projection: &[usize]) -> (Vec<usize>, Beside) {
        let mut of_value = vec![];
        let columns = projection
            .iter()
            .map(|index| match self.metadata.get(index) {
                Some(&metadata) => Column::Beside(metadata),
                None => {
                    of_value.push(index - self.metadata.range(..index).count());
                    Column::OfValue(of_value.len() - 1)
                }
            });
        let columns = columns.collect();
        let fields = projection
            .iter()
            .map(|&index| Arc::clone(&self.schema.fields()[index]));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        (of_value, Beside { schema, columns })
    }
}

fn kind(table: &TableDefinition, index: usize, name: &str) -> Result<Metadata, OptionError> {
    let (column, found) = (
        table.schema.field(index).name(),
        table.schema.field(index).data_type(),
    );
    let Some((_, metadata, wanted)) = KNOWN.iter().find(|(known, _, _)| *known == name) else {
        let names = KNOWN
            .iter()
            .map(|(known, _, _)| *known)
            .collect::<Vec<&str>>();
        return Err(OptionError::table(
            format!("column '{column}': a message has no '{name}'"),
            format!("METADATA is one of {}", names.join(", ")),
        ));
    };
    if found == wanted {
        return Ok(*metadata);
    }
    let (found, wanted) = (sql_type_name(found), sql_type_name(wanted));
    Err(OptionError::table(
        format!("column '{column}' is {found}, and METADATA '{name}' is not"),
        format!("declare {column} {wanted} METADATA FROM '{name}'"),
    ))
}

/// The origin of a column that is read.
#[derive(Debug, Clone, Copy)]
enum Column {
    OfValue(usize),
    Beside(Metadata),
}

/// The columns that are read, and those among them that do not come from the payload.
#[derive(Debug, Clone)]
pub(super) struct Beside {
    schema: SchemaRef,
    columns: Vec<Column>,
}

impl Beside {
    /// Puts the columns in order, including those that are not part of the payload.
    pub(super) fn complete(
        &self,
        mut rows: DecodedRows,
        messages: &[Message],
        notes: &[MessageInfo],
    ) -> DecodedRows {
        // Finds the message of each row; some messages have no row. Both numbers increase.
        let mut at = 0;
        let of_rows = (0..rows.batch.num_rows()).map(|row| {
            while messages[at].number < rows.positions.at(row) {
                at += 1;
            }
            &notes[at]
        });
        let of_rows = of_rows.collect::<Vec<&MessageInfo>>();
        let columns = self.columns.iter().map(|column| match column {
            Column::OfValue(nth) => Arc::clone(rows.batch.column(*nth)),
            Column::Beside(metadata) => metadata.column(&of_rows),
        });
        let options = RecordBatchOptions::new().with_row_count(Some(of_rows.len()));
        let schema = Arc::clone(&self.schema);
        rows.batch = RecordBatch::try_new_with_options(schema, columns.collect(), &options)
            .expect("the columns were made for the schema, as many rows as the payload has");
        rows
    }
}

impl Metadata {
    fn column(self, notes: &[&MessageInfo]) -> ArrayRef {
        let rows = notes.iter();
        match self {
            Metadata::Topic => {
                // Few topics, many messages.
                let mut topics = StringViewBuilder::new().with_deduplicate_strings();
                rows.for_each(|note| topics.append_value(&note.topic));
                Arc::new(topics.finish())
            }
            Metadata::Qos => {
                let numbers = rows.map(|note| i32::from(note.qos as u8));
                Arc::new(Int32Array::from_iter_values(numbers))
            }
            Metadata::Retain => {
                Arc::new(rows.map(|note| Some(note.retain)).collect::<BooleanArray>())
            }
        }
    }
}
