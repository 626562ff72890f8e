//! Records in pieces of any size, against the whole.

use super::*;
use crate::format::Format;
use crate::source::tests::row_text;
use crate::table::TableDefinition;
use crate::table::tests::table;
use arrow_schema::DataType;
use proptest::prelude::*;

/// Rows as `position:value|value…` and rejections as `position:reason`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) rows: Vec<String>,
    pub(crate) rejected: Vec<String>,
    pub(crate) records: Vec<String>,
}

impl Read {
    pub(crate) fn take(&mut self, rows: DecodedRows) {
        for row in 0..rows.batch.num_rows() {
            let text = row_text(&rows.batch, row);
            self.rows.push(format!("{}:{text}", rows.positions.at(row)));
        }
        for rejected in rows.rejected {
            self.rejected.push(format!(
                "{}:{}",
                rejected.position.unwrap(),
                rejected.reason
            ));
            self.records.push(rejected.record);
        }
    }
}

pub(crate) fn reader(
    table: &TableDefinition,
    projection: &[usize],
    block_bytes: usize,
) -> RecordReader {
    let format = Format::of_source(&table.all_options(), &table.schema).unwrap();
    RecordReader::new(
        format.decoder(&table.schema, projection),
        &BlockPool::new(block_bytes),
    )
}

/// Reads the bytes of a partition that breaks off after them.
pub(crate) fn read_broken(mut reader: RecordReader, bytes: &[u8]) -> Read {
    reader.room()[..bytes.len()].copy_from_slice(bytes);
    reader.filled(bytes.len());
    reader.break_off("it broke".to_string());
    let mut read = Read::default();
    while let Some(rows) = reader.rows(1_000) {
        read.take(rows);
    }
    read
}

/// Whether there are at most `rows_max` rows, besides those of the last record.
pub(crate) fn is_bounded(rows: &DecodedRows, rows_max: usize) -> bool {
    let (count, positions) = (rows.batch.num_rows(), &rows.positions);
    count <= rows_max || positions.at(rows_max - 1) == positions.at(count - 1)
}

/// Reads the bytes in pieces of the given lengths (repeated).
pub(crate) fn read_pieces(
    mut reader: RecordReader,
    mut bytes: &[u8],
    pieces: &[usize],
    rows_max: usize,
) -> Read {
    let mut read = Read::default();
    let mut pieces = pieces.iter().cycle();
    loop {
        while let Some(rows) = reader.rows(rows_max) {
            assert!(is_bounded(&rows, rows_max));
            read.take(rows);
        }
        if bytes.is_empty() {
            if reader.ended {
                return read;
            }
            reader.end();
            continue;
        }
        let room = reader.room();
        assert!(!room.is_empty(), "a reader without rows has room");
        let length = room.len().min(bytes.len()).min(*pieces.next().unwrap());
        room[..length].copy_from_slice(&bytes[..length]);
        reader.filled(length);
        bytes = &bytes[length..];
    }
}

fn raw() -> TableDefinition {
    table(&[("line", DataType::Utf8View)], &[("format", "raw")])
}

#[test]
fn regression_an_unfinished_record_is_rejected() {
    let table = table(
        &[("n", DataType::Int64), ("s", DataType::Utf8View)],
        &[("format", "csv")],
    );
    let records = ["1,\"a\nb\"\n", "2,c\r\n", "\n", "3,\"\"\"\"\n"];
    let bytes = records.concat().into_bytes();
    for cut in 0..=bytes.len() {
        // Where the last whole record ends, and how many rows come before.
        let mut whole = (0, 0);
        let mut end = 0;
        for record in records {
            end += record.len();
            if end <= cut {
                whole = (end, whole.1 + usize::from(record != "\n"));
            }
        }
        for piece in [1, 4, 100] {
            let mut reader = reader(&table, &[0, 1], 64);
            let mut read = Read::default();
            for piece in bytes[..cut].chunks(piece) {
                reader.room()[..piece.len()].copy_from_slice(piece);
                reader.filled(piece.len());
                while let Some(rows) = reader.rows(1) {
                    read.take(rows);
                }
            }
            reader.break_off("it broke".to_string());
            assert_eq!(reader.has_rows(), whole.0 < cut, "cut at {cut}");
            while let Some(rows) = reader.rows(1) {
                read.take(rows);
            }
            assert!(!reader.has_rows());
            let left = String::from_utf8_lossy(&bytes[whole.0..cut]).into_owned();
            assert_eq!(read.rows.len(), whole.1, "cut at {cut}");
            let expected = Some(left).filter(|left| !left.is_empty());
            assert_eq!(read.records, Vec::from_iter(expected), "cut at {cut}");
        }
    }
}

#[test]
fn a_line_of_40_megabytes_is_rejected_in_bounded_memory() {
    let block_bytes = 256 * 1024;
    for newline in ["\n", "\r\n"] {
        let mut reader = reader(&raw(), &[0], block_bytes);
        let mut read = Read::default();
        let mut feed = |mut bytes: &[u8]| {
            while !bytes.is_empty() {
                while let Some(rows) = reader.rows(100) {
                    read.take(rows);
                }
                let room = reader.room();
                let length = room.len().min(bytes.len());
                room[..length].copy_from_slice(&bytes[..length]);
                reader.filled(length);
                bytes = &bytes[length..];
                assert!(reader.block.len() <= RECORD_BYTES_MAX + block_bytes);
            }
        };
        feed(format!("first{newline}").as_bytes());
        let megabyte = vec![b'x'; 1_000_000];
        for _ in 0..40 {
            feed(&megabyte);
        }
        feed(format!("{newline}last").as_bytes());
        reader.end();
        while let Some(rows) = reader.rows(100) {
            read.take(rows);
        }
        assert_eq!(read.rows, ["1:first", "3:last"]);
        assert_eq!(read.rejected, ["2:longer than 16 MiB"]);
        assert_eq!(read.records[0].len(), 4_096);
        assert_eq!(reader.pool.block_bytes(), block_bytes);
    }
}

#[test]
fn the_limit_does_not_depend_on_how_bytes_arrive() {
    let line = |length: usize| [vec![b'y'; length], b"\nnext\n".to_vec()].concat();
    for (length, refused) in [(RECORD_BYTES_MAX, false), (RECORD_BYTES_MAX + 1, true)] {
        for block_bytes in [64 * 1024, 32 * 1024 * 1024] {
            let reader = reader(&raw(), &[], block_bytes);
            let read = read_pieces(reader, &line(length), &[usize::MAX], 10);
            assert_eq!(
                read.rejected.len(),
                usize::from(refused),
                "{length} {block_bytes}"
            );
            assert_eq!(read.rows.last().unwrap(), "2:");
        }
    }
}

#[test]
fn a_quote_that_is_never_closed_loses_16_mebibytes_and_no_more() {
    let table = table(&[("a", DataType::Utf8View)], &[]);
    let mut text = b"1\n\"open\n".to_vec();
    for line in 0..2_000_000 {
        text.extend_from_slice(format!("line {line:05}\n").as_bytes());
    }
    let mut seen = vec![];
    for block_bytes in [100_000, 40_000_000] {
        let read = read_pieces(
            reader(&table, &[0], block_bytes),
            &text,
            &[usize::MAX],
            5_000,
        );
        assert_eq!(read.rejected, ["2:longer than 16 MiB"]);
        assert_eq!(read.rows[0], "1:1");
        // Positions are still those of the file: line n holds the number n - 3.
        let (position, line) = read.rows[1].split_once(":line ").unwrap();
        assert_eq!(
            position.parse::<u64>().unwrap(),
            line.parse::<u64>().unwrap() + 3
        );
        assert_eq!(read.rows.last().unwrap(), "2000002:line 1999999");
        seen.push(read.rows.len());
    }
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn blocks_are_used_again() {
    let mut reader = reader(&raw(), &[0], 1_000);
    let pool = Arc::clone(&reader.pool);
    let mut addresses = std::collections::BTreeSet::new();
    for _ in 0..1_000 {
        let room = reader.room();
        let line = b"a line that is too long to be kept in its view\n";
        for part in room.chunks_exact_mut(line.len()) {
            part.copy_from_slice(line);
        }
        let filled = room.len() / line.len() * line.len();
        addresses.insert(room.as_ptr() as usize);
        reader.filled(filled);
        while reader.rows(7).is_some() {}
    }
    // Nothing is carried over: all lines are complete, so every block is filled from its start.
    assert!(addresses.len() <= 2, "{} blocks", addresses.len());
    assert!(pool.kept() >= 1);
}

#[test]
fn a_few_lines_do_not_hold_a_block() {
    let mut reader = reader(&raw(), &[0], 100_000);
    let line = b"a line that is too long to be kept in its view\n";
    reader.room()[..line.len()].copy_from_slice(line);
    reader.filled(line.len());
    let rows = reader.rows(7).unwrap();
    let column = rows.batch.column(0);
    assert!(
        column.get_buffer_memory_size() < 1_000,
        "{}",
        column.get_buffer_memory_size()
    );
}

#[test]
fn regression_a_byte_order_mark_is_not_part_of_an_unfinished_record() {
    let table = table(&[("s", DataType::Utf8View)], &[("format", "csv")]);
    for (text, records) in [("\u{feff}abc", &["abc"][..]), ("\u{feff}", &[])] {
        let read = read_broken(reader(&table, &[0], 64), text.as_bytes());
        assert_eq!(read.records, records);
        assert!(read.rows.is_empty());
    }
}

#[test]
fn a_byte_order_mark_is_not_data() {
    let read = read_pieces(reader(&raw(), &[0], 100), b"\xEF\xBB\xBFa\nb", &[3], 10);
    assert_eq!(read.rows, ["1:a", "2:b"]);
}

/// Records of all kinds as CSV: quotes over lines, rejected ones, lines that are not records.
pub(crate) fn any_csv() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        4 => "[0-9]{1,3},[a-z]{0,9}",
        1 => "[0-9]{1,3},\"[a-z]{0,3}[\r\n,]{1,3}\"\"[a-z]{0,3}\"",
        1 => "[a-z]{1,3},[a-z]{0,2}",
        1 => "[0-9,]{0,6}",
        1 => "[0-9],[a-z]{60,90}",
        1 => Just("1,\"never closed".to_string()),
    ];
    let end = prop_oneof![4 => Just("\n"), 1 => Just("\r\n")];
    let lines = proptest::collection::vec((line, end), 0..40);
    (lines, any::<(bool, bool)>()).prop_map(|(lines, (has_mark, has_end))| {
        let lines = lines.iter().map(|(line, end)| format!("{line}{end}"));
        let mark = if has_mark { "\u{feff}" } else { "" };
        let mut text = format!("{mark}{}", lines.collect::<String>());
        if !has_end && text.ends_with('\n') {
            text.pop();
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn a_reader_resumes_where_another_stopped(
        text in any_csv(),
        header in prop_oneof![Just("true"), Just("false")],
        block_bytes in 8usize..200,
        piece in 1usize..200,
        rows_max in 1usize..9,
        cut in any::<prop::sample::Index>(),
    ) {
        let columns = [("n", DataType::Int64), ("s", DataType::Utf8View)];
        let table = table(&columns, &[("csv.header", header)]);
        let whole = reader(&table, &[0, 1], block_bytes);
        let whole = read_pieces(whole, text.as_bytes(), &[piece], rows_max);
        let chunks = cut.index(20);
        // The first reader stops after this many chunks.
        let mut first = reader(&table, &[0, 1], block_bytes);
        let mut read = Read::default();
        let mut rest = text.as_bytes();
        let mut taken = 0;
        'reading: loop {
            while let Some(rows) = first.rows(rows_max) {
                read.take(rows);
                taken += 1;
                if taken >= chunks {
                    break 'reading;
                }
            }
            if first.ended {
                break;
            }
            let room = first.room();
            let length = room.len().min(rest.len()).min(piece);
            room[..length].copy_from_slice(&rest[..length]);
            first.filled(length);
            rest = &rest[length..];
            if rest.is_empty() {
                first.end();
            }
        }
        let mark = first.mark();
        let next = reader(&table, &[0, 1], block_bytes);
        let next = RecordReader::going_on(next.decoder, &next.pool, mark);
        let rest = &text.as_bytes()[mark.offset as usize..];
        let rest = read_pieces(next, rest, &[piece], rows_max);
        read.rows.extend(rest.rows);
        read.rejected.extend(rest.rejected);
        read.records.extend(rest.records);
        prop_assert_eq!(read, whole);
    }
}

#[test]
fn a_reader_resumes_within_and_after_a_record_that_is_too_long() {
    let mut text = b"first\n".to_vec();
    text.resize(RECORD_BYTES_MAX + 5_000_000, b'x');
    text.extend_from_slice(b"\nthird\nlast");
    // With the chunk that rejects it, and with the next one.
    for (chunks, skipping, left) in [(2, true, 2), (3, false, 1)] {
        let mut first = reader(&raw(), &[0], 64 * 1024);
        let mut rest = &text[..];
        let mut taken = 0;
        while taken < chunks {
            if first.rows(1).is_some() {
                taken += 1;
                continue;
            }
            let room = first.room();
            let length = room.len().min(rest.len());
            room[..length].copy_from_slice(&rest[..length]);
            first.filled(length);
            rest = &rest[length..];
        }
        let mark = first.mark();
        assert_eq!(mark.skipping, skipping, "{mark:?}");
        let next = reader(&raw(), &[0], 64 * 1024);
        let next = RecordReader::going_on(next.decoder, &next.pool, mark);
        let read = read_pieces(next, &text[mark.offset as usize..], &[usize::MAX], 10);
        assert_eq!(read.rows, ["3:third", "4:last"][2 - left..]);
        assert_eq!(read.rejected.len(), 0);
    }
}
