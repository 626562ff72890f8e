//! The properties that hold for any bytes: the body of the fuzz target `record`, here so that an ordinary
//! test runs its corpus too.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field, Schema, TimeUnit};

use crate::block::BlockPool;
use crate::format::{DecodedRows, Format, Message};
use crate::lines::RecordReader;
use crate::options::Options;

/// The separator between two messages of an input.
const BETWEEN: u8 = 0;

/// Formats, each with an option that changes how it is read.
const FORMATS: &[&[(&str, &str)]] = &[
    &[("format", "csv")],
    &[("format", "csv"), ("csv.delimiter", "|"), ("csv.null", "-")],
    &[("format", "json")],
    &[("format", "raw")],
];

fn schema(format: &str) -> Arc<Schema> {
    let field = |name: &str, data_type: DataType| Field::new(name, data_type, true);
    let fields = match format {
        "raw" => vec![field("line", DataType::Utf8View)],
        _ => vec![
            field("a", DataType::Int64),
            field("b", DataType::Utf8View),
            field("c", DataType::Float64),
            field("d", DataType::Timestamp(TimeUnit::Millisecond, None)),
            field("e", DataType::Boolean),
        ],
    };
    Arc::new(Schema::new(fields))
}

/// Reads `bytes` in every format: as messages of a topic, and as lines that arrive in pieces. Every record is
/// a row or is rejected, and the result does not depend on the pieces.
pub fn fuzz_record(bytes: &[u8]) {
    for options in FORMATS {
        let owned = options.iter();
        let owned = owned.map(|(key, value)| (key.to_string(), value.to_string()));
        let owned = owned.collect::<BTreeMap<String, String>>();
        let schema = schema(options[0].1);
        let Ok(format) = Format::of_source(&Options::new(&owned), &schema) else {
            unreachable!("the options are right")
        };
        messages(&format, &schema, bytes);
        let whole = lines(&format, &schema, bytes, usize::MAX);
        let pieces = lines(&format, &schema, bytes, 7);
        assert_eq!(whole, pieces, "{options:?}");
    }
}

fn messages(format: &Format, schema: &Schema, bytes: &[u8]) {
    let all = (0..schema.fields().len()).collect::<Vec<usize>>();
    let mut decoder = format.decoder(schema, &all);
    let (mut block, mut places) = (Vec::new(), Vec::new());
    for (number, payload) in bytes.split(|byte| *byte == BETWEEN).enumerate() {
        let record = decoder.trim_message(payload).to_vec();
        if record.is_empty() {
            continue;
        }
        let start = block.len();
        block.extend_from_slice(&record);
        decoder.prepare_message(&mut block[start..]);
        places.push(Message {
            start: start as u32,
            end: block.len() as u32,
            number: number as u64,
        });
    }
    let rows = decoder.decode_messages(&Buffer::from(block), &places);
    let found = rows.batch.num_rows() + rows.rejected.len();
    assert_eq!(found, places.len(), "a message is a row or is rejected");
}

/// The result of reading the bytes as lines: rows as text, and rejections.
fn lines(format: &Format, schema: &Schema, bytes: &[u8], piece: usize) -> Vec<String> {
    let all = (0..schema.fields().len()).collect::<Vec<usize>>();
    let mut reader = RecordReader::new(format.decoder(schema, &all), &BlockPool::new(64));
    let (mut found, mut rest) = (Vec::new(), bytes);
    loop {
        while let Some(rows) = reader.rows(3) {
            said(&rows, &mut found);
        }
        if rest.is_empty() {
            break;
        }
        let room = reader.room();
        let length = room.len().min(rest.len()).min(piece);
        room[..length].copy_from_slice(&rest[..length]);
        reader.filled(length);
        rest = &rest[length..];
    }
    reader.end();
    while let Some(rows) = reader.rows(3) {
        said(&rows, &mut found);
    }
    found.sort();
    found
}

fn said(rows: &DecodedRows, found: &mut Vec<String>) {
    for row in 0..rows.batch.num_rows() {
        found.push(format!(
            "{} {:?}",
            rows.positions.at(row),
            rows.batch.slice(row, 1)
        ));
    }
    for refused in &rows.rejected {
        found.push(format!("{:?} {}", refused.position, refused.reason));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The stored inputs, and each of them with one byte changed.
    #[test]
    fn the_corpus_of_records_and_mutations_of_it_are_survived() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/record");
        let mut inputs = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            fuzz_record(&bytes);
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] = changed[at].wrapping_add(0x55);
                fuzz_record(&changed);
            }
            inputs += 1;
        }
        assert!(inputs > 3);
    }

    proptest! {
        #[test]
        fn any_bytes_are_rows_or_rejected(bytes: Vec<u8>) {
            fuzz_record(&bytes);
        }
    }
}
