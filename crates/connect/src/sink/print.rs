//! The print sink: rows on the terminal, one aligned line each.
//!
//! Columns are as wide as the widest value so far, so lines of later chunks may be wider. Standard
//! output is locked once per chunk. A reader that has gone (`| head`) is an error value.

use std::io::{ErrorKind, Write};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::Array;
use arrow_schema::{DataType, SchemaRef};
use slackwater_engine::chunk::{Chunk, RowKind};
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::{
    Accepts, Delivery, Sink, SinkCapabilities, SinkCheckpoints, SinkConnector, SinkDescription,
    SinkRequest,
};
use unicode_width::UnicodeWidthStr;

use crate::connector::{AtHome, ConnectorKind, Exclusive};
use crate::encode::Cell;
use crate::file_format::Formats;

/// The connector's entry in the table of connectors.
pub(crate) const CONNECTOR: ConnectorKind = ConnectorKind {
    name: "print",
    aliases: &[],
    source: None,
    sink: Some(|table, _| Ok(Arc::new(PrintConnector::new(&table.schema)))),
    lookup: None,
    formats: Formats::None,
    has_metadata: false,
    path: None,
    exclusive: Exclusive::Nothing,
    reads_standard_input: false,
    is_pushed: false,
    at_home: AtHome::Always,
    options: &[],
    source_options: &[],
    sink_options: &[],
    lookup_options: &[],
};

/// The maximum padding of a column: one long value must not widen all lines.
const PADDED_WIDTH_MAX: usize = 40;

/// The layout of the terminal, which the instances of the sink share.
#[derive(Debug, Default)]
struct Layout {
    header_written: bool,
    /// Width of each column, in columns of a terminal.
    widths: Vec<usize>,
}

/// Prints a table's rows.
#[derive(Debug)]
pub(crate) struct PrintConnector {
    schema: SchemaRef,
    layout: Arc<Mutex<Layout>>,
}

impl PrintConnector {
    pub(crate) fn new(schema: &SchemaRef) -> PrintConnector {
        PrintConnector {
            schema: Arc::clone(schema),
            layout: Arc::default(),
        }
    }
}

impl SinkConnector for PrintConnector {
    fn describe(&self) -> SinkDescription {
        SinkDescription::new("print", "")
    }

    fn capabilities(&self) -> SinkCapabilities {
        SinkCapabilities {
            max_instances: usize::MAX,
            max_instances_saved: usize::MAX,
            uses_waiter: false,
            accepts: Accepts::Changes,
            delivery: Delivery::AtLeastOnce,
            may_lose_prepared: false,
            client_waits_ms: &[],
        }
    }

    fn sink(&self, _request: &SinkRequest) -> Result<Box<dyn Sink>> {
        Ok(Box::new(Print {
            schema: Arc::clone(&self.schema),
            layout: Arc::clone(&self.layout),
            text: vec![],
        }))
    }

    fn begin(&self, _saved: bool) -> Result<()> {
        Ok(())
    }

    fn checkpoints(&self) -> Option<&dyn SinkCheckpoints> {
        None
    }
}

struct Print {
    schema: SchemaRef,
    layout: Arc<Mutex<Layout>>,
    text: Vec<u8>,
}

/// One value, ready to be padded.
struct Value {
    text: String,
    right: bool,
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric()
}

/// Control characters could move the cursor or worse; they are escaped.
fn visible(text: &str) -> String {
    if !text.chars().any(char::is_control) {
        return text.to_string();
    }
    text.chars()
        .map(|c| {
            if c.is_control() {
                c.escape_default().to_string()
            } else {
                c.to_string()
            }
        })
        .collect()
}

/// The values of each row as they are printed.
pub fn printed_rows(chunk: &Chunk) -> Result<Vec<Vec<String>>> {
    let rows = rows(chunk)?.into_iter();
    let strings = rows.map(|values| {
        let signs = usize::from(chunk.kinds.is_some());
        values.into_iter().skip(signs).map(|value| value.text)
    });
    Ok(strings.map(Iterator::collect).collect())
}

fn rows(chunk: &Chunk) -> Result<Vec<Vec<Value>>> {
    let mut rows = (0..chunk.rows())
        .map(|row| match &chunk.kinds {
            None => vec![],
            Some(kinds) => {
                let text = RowKind::symbol(kinds.value(row)).to_string();
                vec![Value { text, right: false }]
            }
        })
        .collect::<Vec<_>>();
    for column in chunk.batch.columns() {
        let cell = Cell::new(column)?;
        let nulls = column.logical_nulls();
        let right = is_number(column.data_type());
        let mut bytes = vec![];
        for (row, values) in rows.iter_mut().enumerate() {
            bytes.clear();
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                bytes.extend_from_slice(b"NULL");
            } else {
                cell.write(row, &mut bytes)?;
            }
            values.push(Value {
                text: visible(&String::from_utf8_lossy(&bytes)),
                right,
            });
        }
    }
    Ok(rows)
}

impl Layout {
    fn write(&mut self, schema: &SchemaRef, chunk: &Chunk, out: &mut Vec<u8>) -> Result<()> {
        let rows = rows(chunk)?;
        let header = (!std::mem::replace(&mut self.header_written, true)).then(|| {
            let op = chunk.kinds.as_ref().map(|_| Value {
                text: "op".into(),
                right: false,
            });
            let names = schema.fields().iter().map(|field| Value {
                text: visible(field.name()),
                right: is_number(field.data_type()),
            });
            op.into_iter().chain(names).collect::<Vec<_>>()
        });
        for line in header.iter().chain(&rows) {
            self.widths.resize(self.widths.len().max(line.len()), 0);
            for (width, value) in self.widths.iter_mut().zip(line) {
                *width = value.text.width().min(PADDED_WIDTH_MAX).max(*width);
            }
        }
        for line in header.iter().chain(&rows) {
            self.line(line, out);
        }
        Ok(())
    }

    fn line(&self, values: &[Value], out: &mut Vec<u8>) {
        for (nth, (value, width)) in values.iter().zip(&self.widths).enumerate() {
            if nth > 0 {
                out.extend_from_slice(b"  ");
            }
            let padding = width.saturating_sub(value.text.width());
            let is_last = nth + 1 == values.len();
            if value.right {
                out.extend(std::iter::repeat_n(b' ', padding));
            }
            out.extend_from_slice(value.text.as_bytes());
            if !value.right && !is_last {
                out.extend(std::iter::repeat_n(b' ', padding));
            }
        }
        out.push(b'\n');
    }
}

fn output_error(error: &std::io::Error) -> Error {
    if error.kind() == ErrorKind::BrokenPipe {
        return Error::new("standard output", "was closed by its reader");
    }
    Error::new("standard output", format!("can't write: {error}"))
}

impl Sink for Print {
    fn open(&mut self, _waiter: &mut Waiter) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        if chunk.rows() == 0 {
            return Ok(());
        }
        // The layout stays locked while the lines are written, so that the header comes first.
        let mut layout = self.layout.lock().unwrap_or_else(PoisonError::into_inner);
        self.text.clear();
        layout.write(&self.schema, chunk, &mut self.text)?;
        let mut output = std::io::stdout().lock();
        output
            .write_all(&self.text)
            .and_then(|()| output.flush())
            .map_err(|error| output_error(&error))
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, _complete: bool) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::types::TimestampMillisecondType;
    use arrow_array::{ArrayRef, StringViewArray};
    use arrow_array::{Float64Array, Int8Array, Int64Array, PrimitiveArray, RecordBatch};

    fn chunk(kinds: Option<Vec<i8>>) -> Chunk {
        let columns: [(&str, ArrayRef); 4] = [
            (
                "n",
                Arc::new(Int64Array::from(vec![Some(1), None, Some(-300)])),
            ),
            ("x", Arc::new(Float64Array::from(vec![1.0, 0.5, f64::NAN]))),
            (
                "s",
                Arc::new(StringViewArray::from(vec!["a", "bob\u{1b}[2J", "é"])),
            ),
            (
                "t",
                Arc::new(PrimitiveArray::<TimestampMillisecondType>::from(vec![
                    0, 1, 2,
                ])),
            ),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        Chunk {
            kinds: kinds.map(Int8Array::from),
            ..Chunk::new(batch, 0)
        }
    }

    fn printed(layout: &mut Layout, chunk: &Chunk) -> String {
        let mut out = vec![];
        layout
            .write(&chunk.batch.schema(), chunk, &mut out)
            .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn aligned_with_the_header_once() {
        let mut layout = Layout::default();
        let expected = "   n    x  s             t\n\
                        \u{20}  1  1.0  a             1970-01-01 00:00:00.000\n\
                        NULL  0.5  bob\\u{1b}[2J  1970-01-01 00:00:00.001\n\
                        -300  NaN  é             1970-01-01 00:00:00.002\n";
        assert_eq!(printed(&mut layout, &chunk(None)), expected);
        assert!(printed(&mut layout, &chunk(None)).starts_with("   1  1.0  a "));
    }

    #[test]
    fn changes_have_their_sign() {
        let text = printed(&mut Layout::default(), &chunk(Some(vec![0, 1, 2])));
        let first = text.lines().map(|line| &line[..2]).collect::<Vec<_>>();
        assert_eq!(first, ["op", "+I", "+U", "-D"]);
    }

    #[test]
    fn a_closed_pipe_is_said_plainly() {
        let error = output_error(&std::io::Error::from(ErrorKind::BrokenPipe));
        assert_eq!(
            error.to_string(),
            "standard output: was closed by its reader"
        );
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let cities = StringViewArray::from(vec!["東京", "Wien"]);
        let columns: [(&str, ArrayRef); 2] = [
            ("city", Arc::new(cities)),
            ("n", Arc::new(Int64Array::from(vec![1, 20]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let schema = batch.schema();
        let mut out = Vec::new();
        let mut layout = Layout::default();
        layout
            .write(&schema, &Chunk::new(batch, 0), &mut out)
            .unwrap();
        let printed = String::from_utf8(out).unwrap();
        assert_eq!(printed, "city   n\n東京   1\nWien  20\n");
    }
}
