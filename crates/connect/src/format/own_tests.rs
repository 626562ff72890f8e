//! Formats that the program brings: a table names them, rows of one record stay together, and bad records are
//! kept as those of other formats.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int8Array, RecordBatch};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field, Schema};
use proptest::prelude::*;
use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::Result;
use slackwater_engine::format::{
    FormatError, RecordDecoder, RecordEncoder, RecordFormat, RecordTable, Records,
};

use super::Message;
use crate::encode::Encoder;
use crate::file_format::FileFormat;
use crate::format::Format;
use crate::lines::tests::{Read, read_pieces, reader};
use crate::options::OptionError;
use crate::table::TableDefinition;
use crate::table::tests::table;

/// Numbers with a separator: a row for each, as a TINYINT `n`. A word is a bad record, and a larger number a
/// bad row.
#[derive(Debug)]
struct Words {
    options: Vec<String>,
}

impl RecordFormat for Words {
    fn name(&self) -> &str {
        "words"
    }

    fn options(&self) -> &[String] {
        &self.options
    }

    fn records(
        &self,
        table: &RecordTable<'_>,
    ) -> std::result::Result<Arc<dyn Records>, FormatError> {
        let field = table.schema.field(0);
        if field.data_type() != &DataType::Int8 {
            return Err(FormatError::new("needs a TINYINT", "declare n TINYINT"));
        }
        match table
            .options
            .get("words.between")
            .map(|text| text.as_bytes())
        {
            None => Ok(Arc::new(Between(b' '))),
            Some(&[between]) => Ok(Arc::new(Between(between))),
            Some(_) => Err(FormatError {
                option: Some("words.between".to_string()),
                ..FormatError::new("is not a character", "write one")
            }),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Between(u8);

impl Records for Between {
    fn decoder(&self, projection: &[usize]) -> Box<dyn RecordDecoder> {
        Box::new(WordsDecoder {
            between: *self,
            columns: projection.len(),
            values: vec![],
        })
    }

    fn encoder(&self) -> Box<dyn RecordEncoder> {
        Box::new(*self)
    }
}

#[derive(Debug)]
struct WordsDecoder {
    between: Between,
    columns: usize,
    values: Vec<i64>,
}

impl RecordDecoder for WordsDecoder {
    fn decode(&mut self, record: &[u8]) -> std::result::Result<usize, String> {
        let text = String::from_utf8_lossy(record);
        let parts = text
            .split(char::from(self.between.0))
            .filter(|part| !part.is_empty());
        let values = parts.map(|part| part.parse::<i64>().map_err(|_| format!("'{part}'?")));
        let values = values.collect::<std::result::Result<Vec<i64>, String>>()?;
        self.values.extend(&values);
        Ok(values.len())
    }

    fn take(&mut self) -> (Vec<ArrayRef>, Vec<(usize, String)>) {
        let values = std::mem::take(&mut self.values).into_iter().enumerate();
        let mut bad = vec![];
        let values = values.map(|(row, value)| {
            let small = i8::try_from(value);
            small.unwrap_or_else(|_| {
                bad.push((row, format!("{value} is large")));
                0
            })
        });
        let column: ArrayRef = Arc::new(Int8Array::from_iter_values(values));
        (vec![column; self.columns], bad)
    }
}

/// Writes the number, and as many `x` as it says; a negative one writes a line end.
impl RecordEncoder for Between {
    fn encode(
        &mut self,
        rows: &RecordBatch,
        out: &mut Vec<u8>,
        written: &mut dyn FnMut(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let numbers = rows.column(0).as_any().downcast_ref::<Int8Array>().unwrap();
        for number in numbers.values() {
            match number {
                0 => {}
                1.. => out.extend(std::iter::repeat_n(b'x', *number as usize)),
                -1 => out.extend_from_slice(b"a\nb"),
                _ => out.extend_from_slice(b"a\r"),
            }
            written(out)?;
        }
        Ok(())
    }
}

/// A table with the format `words`, and one column.
pub(crate) fn words(options: &[(&str, &str)]) -> TableDefinition {
    let mut table = table(
        &[("n", DataType::Int8)],
        &[&[("format", "words")], options].concat(),
    );
    table.formats = vec![Arc::new(Words {
        options: vec!["words.between".to_string()],
    })];
    table
}

/// Lines of numbers, some of them bad.
pub(crate) fn any_words() -> impl Strategy<Value = String> {
    let line =
        prop_oneof![6 => "([0-9]{1,2} ){0,4}[0-9]", 1 => "([0-9]{1,4} ){2}", 1 => "[0-9] [a-z]?"];
    proptest::collection::vec(line, 0..40).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn records_with_several_rows_do_not_depend_on_how_bytes_are_split(
        text in any_words(),
        pieces in proptest::collection::vec(1usize..100, 1..8),
        block_bytes in 16usize..300,
        rows_max in 1usize..10,
    ) {
        let table = words(&[]);
        let once = reader(&table, &[0], 1 << 16);
        let once = read_pieces(once, text.as_bytes(), &[usize::MAX], 1_000);
        let reader = reader(&table, &[0], block_bytes);
        prop_assert_eq!(read_pieces(reader, text.as_bytes(), &pieces, rows_max), once);
    }
}

#[test]
fn rows_of_a_record_have_its_position_and_bad_ones_are_rejected() {
    let text = b"1 2 3\r\n\n4 x 5\n6 700 8\n9";
    let read = |projection: &[usize]| {
        let table = words(&[]);
        let reader = reader(&table, projection, 1 << 16);
        read_pieces(reader, text, &[usize::MAX], 2)
    };
    let found = read(&[0]);
    assert_eq!(found.rows, ["1:1", "1:2", "1:3", "4:6", "4:8", "5:9"]);
    assert_eq!(found.rejected, ["3:'x'?", "4:700 is large"]);
    assert_eq!(found.records, ["4 x 5", "6 700 8"]);
    assert_eq!(read(&[]).rows.len(), 6, "rows without columns count");
}

#[test]
fn a_message_is_one_record_with_all_its_bytes() {
    let table = words(&[("words.between", "\n")]);
    let format = Format::of_source(&table.all_options(), &table.schema).unwrap();
    let mut decoder = format.decoder(&table.schema, &[0]);
    let (mut bytes, mut messages) = (vec![], vec![]);
    for (number, payload) in [(3, "1\n2\n"), (4, ""), (7, "\n"), (8, "1 2"), (9, "5")] {
        let start = bytes.len() as u32;
        bytes.extend_from_slice(decoder.trim_message(payload.as_bytes()));
        decoder.prepare_message(&mut bytes[start as usize..]);
        messages.push(Message {
            start,
            end: bytes.len() as u32,
            number,
        });
    }
    let mut read = Read::default();
    read.take(decoder.decode_messages(&Buffer::from(bytes), &messages));
    assert_eq!(read.rows, ["3:1", "3:2", "9:5"]);
    assert_eq!(
        (read.rejected, read.records),
        (vec!["8:'1 2'?".to_string()], vec!["1 2".to_string()])
    );
}

#[test]
fn lines_that_a_reader_would_not_find_are_not_written() {
    let table = words(&[]);
    let format = Format::of_sink(&table.all_options(), &table.schema).unwrap();
    let chunk = |numbers: &[i8]| {
        let column: ArrayRef = Arc::new(Int8Array::from(numbers.to_vec()));
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int8, true)]));
        Chunk::new(RecordBatch::try_new(schema, vec![column]).unwrap(), 0)
    };
    let mut encoder = Encoder::new(&format, &table.schema);
    let mut out = vec![];
    encoder.encode(&chunk(&[1, 3]), &mut out).unwrap();
    assert_eq!(out, b"x\nxxx\n");
    for (number, reason) in [
        (0, "a row is an empty line, and readers skip those"),
        (-1, "a row has a line end in it"),
        (
            -2,
            "a row ends with a carriage return, which readers leave out",
        ),
    ] {
        let error = encoder.encode(&chunk(&[number]), &mut vec![]).unwrap_err();
        assert_eq!(error.reason, reason);
    }
    let (mut out, mut ends) = (vec![], vec![]);
    let messages = chunk(&[0, -1, 2]);
    encoder
        .encode_each(&messages.batch, &mut out, |end| ends.push(end))
        .unwrap();
    assert_eq!(
        (&out[..], &ends[..]),
        (&b"\na\nb\nxx\n"[..], &[1, 5, 8][..])
    );
}

#[test]
fn a_table_names_the_format_and_its_options() {
    let made = |table: &TableDefinition| crate::source(table).map(|_| ());
    let of_file = |options: &[(&str, &str)]| {
        words(&[&[("connector", "file"), ("path", "src/lib.rs")], options].concat())
    };
    assert_eq!(made(&of_file(&[("words.between", ",")])), Ok(()));
    let error = |table: &TableDefinition| made(table).unwrap_err().to_string();
    assert_eq!(
        error(&of_file(&[("words.betwen", ",")])),
        "option 'words.betwen': is not an option of file sources with format words (did you mean \
         'words.between'? the options are: connector, dead_letter, files, format, idle_timeout, on_error, \
         path, replay_rate, unit_of_work, words.between)"
    );
    assert_eq!(
        error(&of_file(&[("words.between", ", ")])),
        "option 'words.between': is not a character (write one)"
    );
    let mut wide = of_file(&[]);
    wide.schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    assert_eq!(
        error(&wide),
        "format words needs a TINYINT (declare n TINYINT)"
    );
    let mut unknown = of_file(&[]);
    unknown.options.insert("format".into(), "wrods".into());
    let shown = error(&unknown);
    assert!(
        shown.contains("'wrods' is not a format (did you mean 'words'?"),
        "{shown}"
    );
    assert!(shown.contains("'arrow', 'parquet' or 'words'"), "{shown}");
    let mut other = of_file(&[]);
    other.options.insert("format".into(), "WORDS".into());
    assert_eq!(made(&other), Ok(()));
}

#[derive(Debug)]
struct Named;

impl RecordFormat for Named {
    fn name(&self) -> &str {
        "json"
    }

    fn options(&self) -> &[String] {
        &[]
    }

    fn records(&self, _: &RecordTable<'_>) -> std::result::Result<Arc<dyn Records>, FormatError> {
        Ok(Arc::new(Between(b' ')))
    }
}

#[test]
fn a_format_that_every_build_has_is_not_replaced() {
    let mut table = table(&[("n", DataType::Int8)], &[("format", "JSON")]);
    table.formats = vec![Arc::new(Named)];
    let made = FileFormat::of_source(&table.all_options(), &table.schema);
    let expected = OptionError::new(
        "format",
        "'JSON' is a format of the program's own and one that every build has",
        "the program must give its format another name",
    );
    assert_eq!(made.unwrap_err(), expected);
}
