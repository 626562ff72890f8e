//! Files of columns that are truncated, damaged, empty or something else: the rows before the damage are
//! read, the error says where it is, and nothing panics.

use std::fs;
use std::path::Path;

use arrow_array::RecordBatch;
use slackwater_engine::link::Waiter;

use super::tests::{batch, columns, of_file, write};
use crate::source::tests::{Drained, request};

type Kind = &'static [(&'static str, &'static str)];

const ARROW: &[Kind] = &[
    &[("format", "arrow")],
    &[("format", "arrow"), ("arrow.layout", "stream")],
    &[("format", "arrow"), ("arrow.compression", "zstd")],
];

#[cfg(feature = "parquet")]
const PARQUET: &[Kind] = &[
    &[("format", "parquet"), ("parquet.compression", "none")],
    &[("format", "parquet")],
];

#[cfg(not(feature = "parquet"))]
const PARQUET: &[Kind] = &[];

fn kinds() -> impl Iterator<Item = Kind> {
    ARROW.iter().chain(PARQUET).copied()
}

/// The rows before the first error, and the error.
fn read(path: &Path, kind: Kind) -> (Drained, Option<slackwater_engine::Error>) {
    let table = of_file(path, &columns(), &kind[..1]);
    let all = (0..columns().len()).collect::<Vec<usize>>();
    let mut drained = Drained::default();
    let mut source = match crate::source(&table).unwrap().source(request(&all)) {
        Ok(source) => source,
        Err(error) => return (drained, Some(error)),
    };
    if let Err(error) = source.open(&mut Waiter::new().unwrap()) {
        return (drained, Some(error));
    }
    loop {
        match source.poll() {
            Ok(poll) => {
                if drained.take(poll) {
                    return (drained, None);
                }
            }
            Err(error) => return (drained, Some(error)),
        }
    }
}

/// Three batches of this many rows.
fn batches(rows: i64) -> Vec<RecordBatch> {
    let seeds = |batch: i64| (batch * rows..(batch + 1) * rows).collect::<Vec<i64>>();
    (0..3).map(|number| batch(&seeds(number))).collect()
}

/// A file with three batches of 20 rows, and its bytes.
fn whole(path: &Path, kind: Kind) -> Vec<u8> {
    write(path, kind, &batches(20));
    fs::read(path).unwrap()
}

#[test]
fn a_wrong_byte_never_panics_and_errors_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.data");
    for kind in kinds() {
        let bytes = whole(&path, kind);
        // Every byte would take minutes. The step does not divide what lengths are multiples of.
        for (nth, at) in (0..bytes.len()).step_by(23).enumerate() {
            let mut damaged = bytes.clone();
            damaged[at] = [0, 0x7f, 0xff, bytes[at] ^ 1][nth % 4];
            fs::write(&path, damaged).unwrap();
            let (drained, error) = read(&path, kind);
            if let Some(error) = error {
                let is_named = error.place == path.display().to_string();
                assert!(is_named, "{kind:?}, byte {at}: {error}");
                let is_said = !error.reason.is_empty() && !error.hint.is_empty();
                assert!(is_said, "{kind:?}, byte {at}: {error}");
            }
            // A length in the file never makes more rows.
            assert!(drained.strings.len() <= 60, "{kind:?}, byte {at}");
        }
    }
}

#[test]
fn a_truncated_file_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.data");
    for kind in kinds() {
        let bytes = whole(&path, kind);
        fs::remove_file(&path).unwrap();
        let is_stream = kind.contains(&("arrow.layout", "stream"));
        for length in (0..bytes.len()).rev().step_by(31).chain([0, 1, 4, 8]) {
            fs::write(&path, &bytes[..length]).unwrap();
            let (drained, error) = read(&path, kind);
            let rows = drained.strings.len();
            assert!(rows % 20 == 0, "{kind:?}, {length}: {rows} rows");
            match error {
                Some(error) => {
                    assert_eq!(error.place, path.display().to_string(), "{error}");
                    assert!(is_stream || rows == 0, "{kind:?}, {length}: {error}");
                }
                // A stream that was cut between two messages is a shorter one.
                None => assert!(is_stream, "{kind:?}, {length}: it looks whole"),
            }
        }
    }
}

#[test]
fn rows_before_the_damage_are_kept_and_the_error_names_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.data");
    for kind in ARROW.iter().copied() {
        let mut bytes = whole(&path, kind);
        // The head of the third batch: the schema has the first mark.
        let mark = [0xff; 4];
        let heads = bytes.windows(8).enumerate();
        let heads =
            heads.filter(|(at, head)| at % 8 == 0 && head[..4] == mark && head[6..] == [0; 2]);
        let heads = heads.map(|(at, _)| at).collect::<Vec<usize>>();
        let third = heads[3];
        bytes[third + 4..third + 8].copy_from_slice(&u32::MAX.to_le_bytes());
        fs::write(&path, bytes).unwrap();
        let (drained, error) = read(&path, kind);
        assert_eq!(drained.strings.len(), 40, "{kind:?}");
        let error = error.unwrap().to_string();
        let wanted = format!(
            "{}: can't be read on after row 40: at byte {third}: there is no message of Arrow where one \
             should be \
             (the file may be damaged or in another format: create or fetch it again)",
            path.display()
        );
        assert_eq!(error, wanted, "{kind:?}");
    }
}

/// Writes row groups of this many rows each; returns the offset of each.
#[cfg(feature = "parquet")]
fn write_groups(path: &Path, rows: usize) -> Vec<usize> {
    use parquet::arrow::ArrowWriter;
    use parquet::basic::Compression;
    use parquet::file::properties::WriterProperties;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(rows))
        .build();
    let batches = batches(rows as i64);
    let file = fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batches[0].schema(), Some(properties)).unwrap();
    for batch in &batches {
        writer.write(batch).unwrap();
    }
    writer.close().unwrap();
    let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let groups = reader.metadata().row_groups().iter();
    groups
        .map(|group| group.column(0).byte_range().0 as usize)
        .collect()
}

#[cfg(feature = "parquet")]
#[test]
fn the_damaged_row_group_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.data");
    let kind: Kind = &[("format", "parquet")];
    for (rows, kept, groups) in [
        (20, 0, "in one of the row groups 0 to 2 (the last is 2)"),
        (8_192, 16_384, "in row group 2 (the last is 2)"),
        (
            10_000,
            16_384,
            "in one of the row groups 1 to 2 (the last is 2)",
        ),
    ] {
        let begins = write_groups(&path, rows);
        let mut bytes = fs::read(&path).unwrap();
        bytes[begins[2]..begins[2] + 40].fill(0xff);
        fs::write(&path, bytes).unwrap();
        let (drained, error) = read(&path, kind);
        assert_eq!(drained.strings.len(), kept, "{rows} rows in each group");
        let error = error.unwrap();
        let wanted = format!("can't be read on after row {kept}: {groups}: ");
        assert!(error.reason.starts_with(&wanted), "{error}");
        assert_eq!(error.place, path.display().to_string());
    }
}
