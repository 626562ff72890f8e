//! Blocks of every size, parsed by several threads, against one reader.

use std::fs::File;
use std::io::Write;
use std::sync::mpsc;
use std::task::Poll;

use arrow_schema::DataType;
use proptest::prelude::*;

use super::*;
use crate::block::BlockPool;
use crate::format::own_tests::{any_words, words};
use crate::format::{Decoder, Format};
use crate::lines::tests::{Read, any_csv, is_bounded, read_pieces};
use crate::lines::{Mark, RecordReader};
use crate::table::TableDefinition;
use crate::table::tests::table;

fn decoder(table: &TableDefinition) -> Decoder {
    let format = Format::of_source(&table.all_options(), &table.schema).unwrap();
    let all = (0..table.schema.fields().len()).collect::<Vec<usize>>();
    format.decoder(&table.schema, &all)
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// A reader, and what it has read.
struct Reading {
    reader: BlockReader,
    read: Read,
    chunks: usize,
    rows_max: usize,
    bytes: mpsc::Receiver<usize>,
}

impl Reading {
    fn new(
        table: &TableDefinition,
        file: &File,
        block_bytes: usize,
        mark: Option<Mark>,
    ) -> Reading {
        let pool = BlockPool::new(block_bytes);
        let (sender, bytes) = mpsc::channel();
        let count = Box::new(move |bytes| sender.send(bytes).unwrap_or_default());
        let table = table.clone();
        let file = file.try_clone().unwrap();
        let make_decoder = move || decoder(&table);
        Reading {
            reader: BlockReader::new((file, u64::MAX), &pool, count, mark, make_decoder),
            read: Read::default(),
            chunks: 0,
            rows_max: usize::MAX,
            bytes,
        }
    }

    /// Reads so many chunks more, or to the end; returns whether it was the end.
    fn chunks(
        &mut self,
        parsers: &Parsers,
        chunks: usize,
        rows_max: usize,
    ) -> std::io::Result<bool> {
        let until = self.chunks.saturating_add(chunks);
        while self.chunks < until {
            match self.reader.rows(parsers, 1, self.rows_max.min(rows_max))? {
                Poll::Pending => std::thread::yield_now(),
                Poll::Ready(None) => return Ok(true),
                Poll::Ready(Some(rows)) => {
                    assert!(is_bounded(&rows, rows_max));
                    self.read.take(rows);
                    self.chunks += 1;
                    // Rows may be paced: the next chunk may be of another size.
                    self.rows_max = self.rows_max % rows_max + 1;
                }
            }
        }
        Ok(false)
    }
}

/// A reader of what can only be read in order, in pieces of these lengths.
fn unpacking(
    table: &TableDefinition,
    text: &[u8],
    block_bytes: usize,
    pieces: Vec<usize>,
) -> Reading {
    struct Pieces(
        std::io::Cursor<Vec<u8>>,
        std::iter::Cycle<std::vec::IntoIter<usize>>,
    );
    impl std::io::Read for Pieces {
        fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
            let length = self.1.next().unwrap_or(1).min(room.len());
            std::io::Read::read(&mut self.0, &mut room[..length])
        }
    }
    let input = std::io::Cursor::new(text.to_vec());
    let input = Box::new(Pieces(input, pieces.into_iter().cycle()));
    let of = table.clone();
    let pool = BlockPool::new(block_bytes);
    let reader = BlockReader::unpacking(input, &pool, move || decoder(&of));
    Reading {
        reader,
        ..Reading::new(table, &file_of(b""), block_bytes, None)
    }
}

/// What one reader reads.
fn expected(table: &TableDefinition, text: &[u8]) -> Read {
    let reader = RecordReader::new(decoder(table), &BlockPool::new(64 * 1024));
    read_pieces(reader, text, &[usize::MAX], 1_000)
}

/// Adds what was read from `position` on; returns the position after it.
fn add(read: &mut Read, part: Read, position: u64) -> u64 {
    let of = |text: &String| text.split(':').next().unwrap().parse::<u64>().unwrap();
    let mut next = position;
    for row in part.rows.into_iter().filter(|row| of(row) >= position) {
        next = next.max(of(&row) + 1);
        read.rows.push(row);
    }
    let rejected = part.rejected.into_iter().zip(part.records);
    for (rejected, record) in rejected.filter(|(rejected, _)| of(rejected) >= position) {
        next = next.max(of(&rejected) + 1);
        read.rejected.push(rejected);
        read.records.push(record);
    }
    next
}

fn csv(header: &str) -> TableDefinition {
    let columns = [("n", DataType::Int64), ("s", DataType::Utf8View)];
    let options = [("csv.header", header), ("csv.comment", "#")];
    table(&columns, &options)
}

fn json() -> TableDefinition {
    let columns = [("n", DataType::Int64), ("s", DataType::Utf8View)];
    table(&columns, &[("format", "json")])
}

/// Lines of JSON, some of them bad.
fn any_json() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        4 => r#"\{"n":[1-9]{1,4},"s":"[a-z]{0,9}"\}"#,
        1 => r#"\{"s":"\\n[a-z]{0,30}","n":"?[0-9]\}"#,
        1 => Just(String::new()),
    ];
    proptest::collection::vec(line, 0..40).prop_map(|lines| lines.join("\n"))
}

/// A table and its text: quotes with line ends in them, comments, headers, bad records.
fn any_case() -> impl Strategy<Value = (TableDefinition, String)> {
    let header = prop_oneof![Just("true"), Just("false")];
    let comments = prop_oneof![Just(""), Just("#"), Just("# a \"comment\n#\n# another\n")];
    let of_csv = (header, comments, any_csv())
        .prop_map(|(header, comments, text)| (csv(header), format!("{comments}{text}")));
    prop_oneof![
        3 => of_csv,
        1 => any_json().prop_map(|text| (json(), text)),
        1 => any_words().prop_map(|text| (words(&[]), text)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn blocks_give_the_rows_of_one_reader_and_resume_anywhere(
        (table, text) in any_case(),
        block_bytes in 2usize..200,
        threads in 0usize..4,
        rows_max in 1usize..9,
        cuts in proptest::collection::vec((0usize..9, 2usize..200, 0usize..3), 0..4),
        pieces in proptest::collection::vec(1usize..300, 1..5),
    ) {
        let whole = expected(&table, text.as_bytes());
        let file = file_of(text.as_bytes());
        let mut read = Read::default();
        let mut mark = None;
        let mut position = 0;
        let last = (usize::MAX, block_bytes, threads);
        for (chunks, block_bytes, threads) in cuts.into_iter().chain([last]) {
            let parsers = Parsers::new(threads);
            let mut part = Reading::new(&table, &file, block_bytes, mark);
            part.chunks(&parsers, chunks, rows_max).unwrap();
            // What was handed out after the mark is read again, and left out as the engine does.
            mark = Some(part.reader.mark());
            position = add(&mut read, part.read, position);
        }
        prop_assert_eq!(&read, &whole);
        let parsers = Parsers::new(threads);
        let mut unpacked = unpacking(&table, text.as_bytes(), block_bytes, pieces);
        unpacked.chunks(&parsers, usize::MAX, rows_max).unwrap();
        prop_assert_eq!(unpacked.read, whole);
    }
}

#[test]
fn large_files_are_read_in_blocks_and_counted() {
    let table = csv("true");
    let mut text = b"n,s\n".to_vec();
    for line in 0..60_000 {
        match line % 1_000 {
            77 => text.extend_from_slice(b"bad\n"),
            500 => text.extend_from_slice(b"1,\"a line end\nin a field\"\n"),
            _ => text.extend_from_slice(format!("{line},line {line:06}\n").as_bytes()),
        }
    }
    let whole = expected(&table, &text);
    for threads in [0, 1, 3] {
        let parsers = Parsers::new(threads);
        let mut reading = Reading::new(&table, &file_of(&text), 64 * 1024, None);
        assert!(reading.chunks(&parsers, usize::MAX, 5_000).unwrap());
        assert_eq!(reading.read, whole, "{threads} threads");
        assert!(reading.chunks >= text.len() / (64 * 1024));
        assert_eq!(reading.bytes.try_iter().sum::<usize>(), text.len());
    }
}

#[test]
fn lines_that_are_too_long_are_left_to_the_reader_in_order() {
    use crate::format::RECORD_BYTES_MAX;
    let table = table(&[("line", DataType::Utf8View)], &[("format", "raw")]);
    let mut text = b"first\n".to_vec();
    text.resize(text.len() + RECORD_BYTES_MAX + 300_000, b'x');
    text.extend_from_slice(b"\nthird\n");
    for line in 4..40_000 {
        text.extend_from_slice(format!("line {line}\n").as_bytes());
    }
    let whole = expected(&table, &text);
    assert_eq!(whole.rejected, ["2:longer than 16 MiB"]);
    let parsers = Parsers::new(2);
    let mut reading = Reading::new(&table, &file_of(&text), 64 * 1024, None);
    assert!(reading.chunks(&parsers, usize::MAX, 1_000).unwrap());
    assert_eq!(reading.read, whole);
    assert!(
        reading.reader.careful.is_none(),
        "the rest was read in blocks"
    );
    let mut unpacked = unpacking(&table, &text, 64 * 1024, vec![usize::MAX]);
    assert!(unpacked.chunks(&parsers, usize::MAX, 1_000).unwrap());
    assert_eq!(unpacked.read, whole);
    assert!(unpacked.reader.careful.is_none(), "likewise");
}

#[test]
fn regression_help_ends_when_most_blocks_are_parsed_in_vain() {
    let table = csv("false");
    // Each record has lines that look like records.
    let lines = "7,seven\n".repeat(60);
    let record = format!("1,\"{lines}\"\n");
    let text = record.repeat(4_000).into_bytes();
    let whole = expected(&table, &text);
    assert_eq!(whole.rows.len(), 4_000);
    let parsers = Parsers::new(2);
    let mut reading = Reading::new(&table, &file_of(&text), 16 * 1024, None);
    assert!(reading.chunks(&parsers, usize::MAX, 1_000).unwrap());
    assert_eq!(reading.read, whole);
    assert!(reading.reader.has_given_up());
    assert_eq!(reading.bytes.try_iter().sum::<usize>(), text.len());
    let mut unpacked = unpacking(&table, &text, 16 * 1024, vec![usize::MAX]);
    assert!(unpacked.chunks(&parsers, usize::MAX, 1_000).unwrap());
    assert_eq!(unpacked.read, whole);
    assert!(unpacked.reader.has_given_up());
    // Blocks of whole records are parsed with help to the end.
    let plain = "1,one\n2,\"two\"\n".repeat(50_000).into_bytes();
    let mut reading = Reading::new(&table, &file_of(&plain), 16 * 1024, None);
    assert!(reading.chunks(&parsers, usize::MAX, 1_000).unwrap());
    assert!(!reading.reader.has_given_up());
}

#[test]
fn an_error_of_the_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = File::open(folder.path()).unwrap();
    let parsers = Parsers::new(2);
    let mut reading = Reading::new(&csv("false"), &file, 4_096, None);
    let error = reading.chunks(&parsers, usize::MAX, 10).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::IsADirectory);
}
