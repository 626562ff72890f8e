//! Rows in the forms of an answer.
//!
//! Values are written as the JSON and CSV sinks write them: times in UTC as `YYYY-MM-DD HH:MM:SS`, but with
//! only as many digits of a second as they have.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_json::writer::{JsonArray, JsonFormat};
use arrow_json::{Writer, WriterBuilder};
use arrow_schema::{ArrowError, DataType, Schema, TimeUnit};

use super::forms::{Form, TIMESTAMP};
use super::table::Table;

/// Writes the rows of a statement.
pub enum RowsWriter {
    Lines(Writer<Vec<u8>, RowLine>),
    Json(Writer<Vec<u8>, JsonArray>),
    Events(Writer<Vec<u8>, RowEvent>),
    Arrow(StreamWriter<Vec<u8>>),
    Csv { has_begun: bool },
    Text(Table),
}

impl RowsWriter {
    /// Begins with the columns.
    pub fn begin(form: Form, schema: &Schema, out: &mut Vec<u8>) -> Result<RowsWriter, ArrowError> {
        Ok(match form {
            Form::Lines => {
                let columns = columns(schema);
                line(out, &serde_json::json!({ "columns": columns }));
                RowsWriter::Lines(json())
            }
            Form::Json => RowsWriter::Json(json()),
            Form::Events => RowsWriter::Events(json()),
            Form::Arrow => {
                let mut writer = StreamWriter::try_new(Vec::new(), schema)?;
                out.append(writer.get_mut());
                RowsWriter::Arrow(writer)
            }
            Form::Csv => {
                let mut writer = RowsWriter::Csv { has_begun: false };
                writer.write(&RecordBatch::new_empty(schema.clone().into()), out)?;
                writer
            }
            Form::Text => RowsWriter::Text(Table::new(schema)),
        })
    }

    /// Writes rows.
    pub fn write(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ArrowError> {
        match self {
            RowsWriter::Lines(writer) => {
                writer.write(batch)?;
                out.append(writer.get_mut());
            }
            RowsWriter::Json(writer) => {
                writer.write(batch)?;
                out.append(writer.get_mut());
            }
            RowsWriter::Events(writer) => {
                writer.write(batch)?;
                out.append(writer.get_mut());
            }
            RowsWriter::Arrow(writer) => {
                writer.write(batch)?;
                out.append(writer.get_mut());
            }
            RowsWriter::Csv { has_begun } => {
                let builder = arrow_csv::WriterBuilder::new()
                    .with_header(!std::mem::replace(has_begun, true))
                    .with_timestamp_format(TIMESTAMP.to_string())
                    .with_timestamp_tz_format(TIMESTAMP.to_string());
                builder.build(&mut *out).write(batch)?;
            }
            RowsWriter::Text(table) => table.write(batch, out)?,
        }
        Ok(())
    }

    /// The last row was written; so many there were.
    pub fn end(self, rows: u64, out: &mut Vec<u8>) -> Result<(), ArrowError> {
        match self {
            RowsWriter::Lines(_) => done(out, &format!("SELECT {rows}"), &[]),
            RowsWriter::Json(mut writer) => {
                writer.finish()?;
                out.append(writer.get_mut());
                out.push(b'\n');
            }
            RowsWriter::Events(_) => out.extend_from_slice(b"event: end\ndata: {}\n\n"),
            RowsWriter::Arrow(mut writer) => {
                writer.finish()?;
                out.append(writer.get_mut());
            }
            RowsWriter::Csv { .. } => {}
            RowsWriter::Text(mut table) => table.end(rows, out),
        }
        Ok(())
    }
}

/// The line that says that a statement was done.
pub fn done(out: &mut Vec<u8>, tag: &str, notices: &[String]) {
    line(out, &serde_json::json!({ "done": tag, "notices": notices }));
}

fn line(out: &mut Vec<u8>, value: &serde_json::Value) {
    // Writing into memory never fails.
    let _ = writeln!(out, "{value}");
}

fn json<F: JsonFormat>() -> Writer<Vec<u8>, F> {
    WriterBuilder::new()
        .with_explicit_nulls(true)
        .with_timestamp_format(TIMESTAMP.to_string())
        .with_timestamp_tz_format(TIMESTAMP.to_string())
        .build(Vec::new())
}

/// The names and types of columns.
fn columns(schema: &Schema) -> Vec<serde_json::Value> {
    let columns = schema.fields().iter();
    let columns = columns.map(
        |field| serde_json::json!({ "name": field.name(), "type": sql_type(field.data_type()) }),
    );
    columns.collect()
}

/// A type as SQL writes it.
pub fn sql_type(data_type: &DataType) -> String {
    let digits = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    };
    match data_type {
        DataType::Boolean => "BOOLEAN".to_string(),
        DataType::Int8 => "TINYINT".to_string(),
        DataType::Int16 => "SMALLINT".to_string(),
        DataType::Int32 => "INT".to_string(),
        DataType::Int64 => "BIGINT".to_string(),
        DataType::Float32 => "FLOAT".to_string(),
        DataType::Float64 => "DOUBLE".to_string(),
        DataType::Decimal128(precision, scale) => format!("DECIMAL({precision}, {scale})"),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "STRING".to_string(),
        DataType::Date32 => "DATE".to_string(),
        DataType::Timestamp(unit, None) => format!("TIMESTAMP({})", digits(unit)),
        DataType::Timestamp(unit, Some(_)) => format!("TIMESTAMP_LTZ({})", digits(unit)),
        DataType::List(item) => format!("ARRAY<{}>", sql_type(item.data_type())),
        DataType::Struct(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|field| {
                let name = super::quoted(field.name());
                format!("{name} {}", sql_type(field.data_type()))
            });
            format!("ROW<{}>", fields.collect::<Vec<_>>().join(", "))
        }
        // No column of SQL has one of these.
        other => other.to_string(),
    }
}

/// A row in a line of its own: `{"row": …}`.
#[derive(Debug, Default)]
pub struct RowLine;

impl JsonFormat for RowLine {
    fn start_row<W: Write>(&self, writer: &mut W, _: bool) -> Result<(), ArrowError> {
        Ok(writer.write_all(b"{\"row\":")?)
    }

    fn end_row<W: Write>(&self, writer: &mut W) -> Result<(), ArrowError> {
        Ok(writer.write_all(b"}\n")?)
    }
}

/// A row as an event.
#[derive(Debug, Default)]
pub struct RowEvent;

impl JsonFormat for RowEvent {
    fn start_row<W: Write>(&self, writer: &mut W, _: bool) -> Result<(), ArrowError> {
        Ok(writer.write_all(b"data: ")?)
    }

    fn end_row<W: Write>(&self, writer: &mut W) -> Result<(), ArrowError> {
        Ok(writer.write_all(b"\n\n")?)
    }
}
