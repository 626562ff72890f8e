//! Files of columns through the public entry points, both ways.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, PrimitiveBuilder};
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, TimestampNanosecondType, TimestampSecondType, UInt64Type,
};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, DictionaryArray, LargeStringArray, NullArray,
    PrimitiveArray, RecordBatch, StringArray, StringViewArray, StructArray,
};
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use proptest::prelude::*;
use slackwater_engine::chunk::Chunk;
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::SinkRequest;
use slackwater_engine::source::{SourcePoll, SourceRequest, Tuning};

use crate::source::resume_tests::read_with_cuts;
use crate::source::tests::{Drained, read_all, request, row_text};
use crate::table::TableDefinition;
use crate::table::tests::table;

pub(super) type Columns = Vec<(&'static str, DataType)>;

/// The kinds of files that a test goes through: format and options of the sink.
pub(super) fn kinds() -> Vec<Vec<(&'static str, &'static str)>> {
    let mut kinds = vec![
        vec![("format", "arrow")],
        vec![("format", "arrow"), ("arrow.layout", "stream")],
        vec![("format", "arrow"), ("arrow.compression", "zstd")],
    ];
    if cfg!(feature = "parquet") {
        kinds.push(vec![
            ("format", "arrow"),
            ("arrow.compression", "lz4"),
            ("arrow.layout", "stream"),
        ]);
        for compression in ["none", "snappy", "gzip", "lz4", "zstd"] {
            kinds.push(vec![
                ("format", "parquet"),
                ("parquet.compression", compression),
            ]);
        }
    }
    kinds
}

pub(super) fn columns() -> Columns {
    let inner = vec![
        Field::new("a", DataType::Int16, true),
        Field::new("s", DataType::Utf8View, true),
    ];
    vec![
        ("flag", DataType::Boolean),
        ("tiny", DataType::Int8),
        ("n", DataType::Int64),
        ("u", DataType::UInt64),
        ("x", DataType::Float64),
        ("d", DataType::Decimal128(12, 2)),
        ("day", DataType::Date32),
        ("t0", DataType::Timestamp(TimeUnit::Second, None)),
        ("t9", DataType::Timestamp(TimeUnit::Nanosecond, None)),
        ("s", DataType::Utf8View),
        ("r", DataType::Struct(inner.into())),
        (
            "l",
            DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true))),
        ),
    ]
}

/// A batch of the columns, generated from numbers. Every column has NULLs.
pub(super) fn batch(seeds: &[i64]) -> RecordBatch {
    fn primitive<T: ArrowPrimitiveType>(
        seeds: &[i64],
        salt: i64,
        value: impl Fn(i64) -> T::Native,
    ) -> PrimitiveArray<T> {
        let values = seeds.iter().map(|&seed| {
            let mixed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(salt);
            (mixed.rem_euclid(5) > 0).then(|| value(mixed))
        });
        values.collect()
    }
    let strings = |salt: i64| {
        let strings = seeds.iter().map(|&seed| {
            let mixed = seed.wrapping_add(salt);
            let text = "é longer than a view ".repeat(mixed.rem_euclid(3) as usize);
            (mixed.rem_euclid(7) > 0).then(|| format!("{text}{mixed}"))
        });
        strings.collect::<StringViewArray>()
    };
    let mut lists = ListBuilder::new(PrimitiveBuilder::<Int64Type>::new());
    for &seed in seeds {
        for item in 0..seed.rem_euclid(4) {
            lists.values().append_option((item != 1).then_some(seed));
        }
        lists.append(seed.rem_euclid(6) > 0);
    }
    let flags = seeds
        .iter()
        .map(|seed| (seed % 3 != 0).then_some(seed % 2 == 0));
    let columns = columns();
    let DataType::Struct(inner) = &columns[10].1 else {
        panic!("a row");
    };
    let nulls = seeds
        .iter()
        .map(|seed| seed % 4 != 0)
        .collect::<Vec<bool>>();
    let rows = StructArray::new(
        inner.clone(),
        vec![
            Arc::new(primitive::<Int16Type>(seeds, 7, |n| n as i16)),
            Arc::new(strings(8)),
        ],
        Some(nulls.into()),
    );
    let decimals = primitive::<Decimal128Type>(seeds, 4, |n| i128::from(n % 1_000_000_000_000))
        .with_data_type(columns[5].1.clone());
    let arrays: Vec<ArrayRef> = vec![
        Arc::new(flags.collect::<BooleanArray>()),
        Arc::new(primitive::<Int8Type>(seeds, 1, |n| n as i8)),
        Arc::new(primitive::<Int64Type>(seeds, 2, |n| n)),
        Arc::new(primitive::<UInt64Type>(seeds, 3, |n| n as u64)),
        Arc::new(primitive::<Float64Type>(seeds, 5, |n| n as f64 / 7.0)),
        Arc::new(decimals),
        Arc::new(primitive::<Date32Type>(seeds, 6, |n| (n % 100_000) as i32)),
        Arc::new(primitive::<TimestampSecondType>(seeds, 9, |n| {
            n % 10_000_000_000
        })),
        Arc::new(primitive::<TimestampNanosecondType>(seeds, 10, |n| n)),
        Arc::new(strings(11)),
        Arc::new(rows),
        Arc::new(lists.finish()),
    ];
    let named = columns
        .iter()
        .zip(arrays)
        .map(|((name, _), array)| (*name, array, true));
    RecordBatch::try_from_iter_with_nullable(named).unwrap()
}

pub(super) fn of_file(
    path: &Path,
    columns: &[(&str, DataType)],
    options: &[(&str, &str)],
) -> TableDefinition {
    let own = [("connector", "file"), ("path", path.to_str().unwrap())];
    table(columns, &[&own, options].concat())
}

pub(super) fn write(path: &Path, options: &[(&str, &str)], batches: &[RecordBatch]) {
    let table = of_file(path, &columns(), options);
    let sink = crate::sink(&table).unwrap().sink(&SinkRequest::new(0, 1));
    let mut sink = sink.unwrap();
    sink.open(&mut Waiter::new().unwrap()).unwrap();
    for batch in batches {
        sink.write(&Chunk::new(batch.clone(), 0)).unwrap();
    }
    sink.finish(true).unwrap();
}

/// What the rows are, with their positions.
fn expected(batches: &[RecordBatch], projection: &[usize]) -> Vec<String> {
    let mut strings = vec![];
    for batch in batches {
        let read = batch.project(projection).unwrap();
        for row in 0..batch.num_rows() {
            strings.push(format!("{}:{}", strings.len() + 1, row_text(&read, row)));
        }
    }
    strings
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn rows_come_back_for_any_projection_and_any_chunks(
        batches in proptest::collection::vec(proptest::collection::vec(any::<i64>(), 0..40), 0..5),
        kind in prop::sample::select(kinds()),
        columns_read in proptest::collection::btree_set(0usize..12, 0..6),
        rows in 1usize..30,
        cuts in proptest::collection::vec(0usize..9, 0..5),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.data");
        let batches = batches.iter().map(|seeds| batch(seeds)).collect::<Vec<RecordBatch>>();
        write(&path, &kind, &batches);
        let projection = columns_read.into_iter().collect::<Vec<usize>>();
        let table = of_file(&path, &columns(), &kind[..1]);
        let read = read_with_cuts(&table, &projection, rows, 0, &cuts);
        let partition = read.values().next().unwrap();
        prop_assert_eq!(&partition.rows, &expected(&batches, &projection));
        prop_assert_eq!(partition.refused.len(), 0);
    }

    #[test]
    fn broken_files_are_errors(
        kind in prop::sample::select(kinds()),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..8), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.data");
        let seeds = (0..50).collect::<Vec<i64>>();
        write(&path, &kind, &[batch(&seeds), batch(&seeds)]);
        let mut bytes = fs::read(&path).unwrap();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(&path, bytes).unwrap();
        // Rows, rejected ones or an error that names the file, but no panic.
        if let Err(error) = try_read(&of_file(&path, &columns(), &kind[..1])) {
            prop_assert!(error.starts_with(path.to_str().unwrap()), "{error}");
        }
    }
}

/// Reads all columns to the end or the first error.
pub(super) fn try_read(table: &TableDefinition) -> Result<usize, String> {
    let all = (0..table.schema.fields().len()).collect::<Vec<usize>>();
    let text = |error: slackwater_engine::Error| error.to_string();
    let connector = crate::source(table).unwrap();
    let mut source = connector.source(request(&all)).map_err(text)?;
    source.open(&mut Waiter::new().unwrap()).map_err(text)?;
    let mut rows = 0;
    loop {
        match source.poll().map_err(text)? {
            SourcePoll::Rows(read) => rows += read.batch.num_rows(),
            SourcePoll::End => return Ok(rows),
            _ => {}
        }
    }
}

/// Writes a file with the library itself: columns that our sinks never write.
fn write_foreign(path: &Path, batch: &RecordBatch) {
    let file = fs::File::create(path).unwrap();
    #[cfg(feature = "parquet")]
    if path.extension().is_some_and(|ending| ending == "parquet") {
        let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(batch).unwrap();
        writer.close().unwrap();
        return;
    }
    let mut writer = arrow_ipc::writer::FileWriter::try_new(file, &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
}

/// A file of each format.
fn foreign(folder: &Path, batch: &RecordBatch) -> Vec<(PathBuf, &'static str)> {
    let mut formats = vec!["arrow"];
    if cfg!(feature = "parquet") {
        formats.push("parquet");
    }
    let files = formats.into_iter().map(|format| {
        let path = folder.join(format!("foreign.{format}"));
        write_foreign(&path, batch);
        (path, format)
    });
    files.collect()
}

fn read(path: &Path, format: &str, columns: &[(&str, DataType)]) -> Drained {
    let table = of_file(path, columns, &[("format", format)]);
    let all = (0..columns.len()).collect::<Vec<usize>>();
    let source = crate::source(&table).unwrap().source(request(&all));
    read_all(&mut *source.unwrap())
}

/// A file with types that tables don't have, or represent differently.
fn foreign_batch() -> RecordBatch {
    let words = vec![Some("red"), None, Some("red"), Some("blue")];
    let micros = PrimitiveArray::<TimestampMicrosecondType>::from(vec![
        Some(-1),
        Some(1_999),
        None,
        Some(i64::MAX),
    ]);
    let mut lists = ListBuilder::new(PrimitiveBuilder::<Int64Type>::new());
    for items in [vec![1, 2], vec![], vec![3, 1_000, 4], vec![5]] {
        lists.append_value(items.into_iter().map(Some));
    }
    let inner = Fields::from(vec![
        Field::new("deep", DataType::Int64, true),
        Field::new("other", DataType::Utf8, true),
    ]);
    let rows = StructArray::new(
        inner,
        vec![
            Arc::new(PrimitiveArray::<Int64Type>::from(vec![1, 2, 3, 40_000])),
            Arc::new(StringArray::from(vec!["", "", "", ""])),
        ],
        None,
    );
    let binary = BinaryArray::from(vec![&b"ok"[..], b"", b"\xff", b"fine"]);
    let arrays: Vec<(&str, ArrayRef)> = vec![
        (
            "word",
            Arc::new(words.into_iter().collect::<DictionaryArray<Int32Type>>()),
        ),
        (
            "large",
            Arc::new(LargeStringArray::from(vec!["a", "b", "c", "d"])),
        ),
        ("ts", Arc::new(micros.with_timezone("Europe/Paris"))),
        (
            "n",
            Arc::new(PrimitiveArray::<Int64Type>::from(vec![1, 300, -128, 127])),
        ),
        ("l", Arc::new(lists.finish())),
        ("r", Arc::new(rows)),
        ("b", Arc::new(binary)),
        ("nothing", Arc::new(NullArray::new(4))),
    ];
    RecordBatch::try_from_iter_with_nullable(arrays.into_iter().map(|(n, a)| (n, a, true))).unwrap()
}

#[test]
fn columns_become_those_of_the_table() {
    let folder = tempfile::tempdir().unwrap();
    for (path, format) in foreign(folder.path(), &foreign_batch()) {
        let rest = [
            ("large", DataType::Utf8View),
            ("ts", DataType::Timestamp(TimeUnit::Millisecond, None)),
            ("word", DataType::Utf8View),
            ("n", DataType::Decimal128(10, 1)),
        ];
        let drained = read(&path, format, &rest);
        // The last time is outside the range that can be shown.
        assert_eq!(drained.strings.len(), 4);
        assert_eq!(
            drained.strings[..3],
            [
                "0:1:a|1969-12-31T23:59:59.999|red|1.0",
                "0:2:b|1970-01-01T00:00:00.001|NULL|300.0",
                "0:3:c|NULL|red|-128.0",
            ]
        );
    }
}

#[test]
fn fields_of_a_row_that_is_null_are_null() {
    let folder = tempfile::tempdir().unwrap();
    // Under the NULL there is a value, as other programs write it, which does not fit.
    let inner = Fields::from(vec![
        Field::new("n", DataType::Int64, true),
        Field::new("s", DataType::Utf8View, true),
    ]);
    let fields: Vec<ArrayRef> = vec![
        Arc::new(PrimitiveArray::<Int64Type>::from(vec![1, 1_000])),
        Arc::new(StringViewArray::from(vec!["a", ""])),
    ];
    let rows = StructArray::new(inner.clone(), fields, Some(vec![true, false].into()));
    let batch = RecordBatch::try_from_iter([("r", Arc::new(rows) as ArrayRef)]).unwrap();
    let path = folder.path().join("rows.arrow");
    write_foreign(&path, &batch);
    let narrow = vec![
        Field::new("n", DataType::Int8, true),
        Field::new("s", DataType::Utf8View, true),
    ];
    for inner in [inner, narrow.into()] {
        let table = of_file(
            &path,
            &[("r", DataType::Struct(inner))],
            &[("format", "arrow")],
        );
        let source = crate::source(&table).unwrap().source(request(&[0]));
        let mut source = source.unwrap();
        source.open(&mut Waiter::new().unwrap()).unwrap();
        let SourcePoll::Rows(rows) = source.poll().unwrap() else {
            panic!("no rows");
        };
        assert_eq!((rows.batch.num_rows(), rows.rejected.len()), (2, 0));
        let row = rows.batch.column(0).as_any().downcast_ref::<StructArray>();
        for field in row.unwrap().columns() {
            assert!(field.is_valid(0) && field.is_null(1), "{field:?}");
        }
    }
}

#[test]
fn values_that_do_not_fit_reject_their_rows() {
    let folder = tempfile::tempdir().unwrap();
    let list = DataType::List(Arc::new(Field::new_list_field(DataType::Int8, true)));
    let row = DataType::Struct(vec![Field::new("deep", DataType::Int16, true)].into());
    for (path, format) in foreign(folder.path(), &foreign_batch()) {
        let refused = |column: (&str, DataType)| {
            let drained = read(&path, format, &[column]);
            assert_eq!(drained.strings.len() + drained.rejected.len(), 4);
            let refused = drained.rejected.iter();
            refused
                .map(|refused| format!("{}:{}", refused.position.unwrap(), refused.reason))
                .collect::<Vec<String>>()
        };
        let cannot = "can't hold the value";
        assert_eq!(
            refused(("n", DataType::Int8)),
            [format!("2:column 'n' (TINYINT): {cannot}")]
        );
        assert_eq!(
            refused(("l", list.clone())),
            [format!("3:column 'l' (TINYINT): {cannot}")]
        );
        assert_eq!(
            refused(("r", row.clone())),
            [format!("4:column 'r' (SMALLINT): {cannot}")]
        );
        assert_eq!(
            refused(("b", DataType::Utf8View)),
            [format!("3:column 'b' (STRING): {cannot}")]
        );
        let nanos = DataType::Timestamp(TimeUnit::Nanosecond, None);
        assert_eq!(
            refused(("ts", nanos)),
            [format!("4:column 'ts' (TIMESTAMP(9)): {cannot}")]
        );
        let table = read(
            &path,
            format,
            &[("n", DataType::Int8), ("word", DataType::Utf8View)],
        );
        assert_eq!(table.strings, ["0:1:1|red", "0:3:-128|red", "0:4:127|blue"]);
        assert!(
            table.rejected[0].record.contains("\"n\":300"),
            "{:?}",
            table.rejected
        );
    }
}

#[test]
fn missing_columns_and_wrong_types_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for (path, format) in foreign(folder.path(), &foreign_batch()) {
        let error = |name, data_type| {
            let error = try_read(&of_file(&path, &[(name, data_type)], &[("format", format)]));
            let error = error.unwrap_err();
            let place = format!("{}: ", path.display());
            error.strip_prefix(&place).expect(&error).to_string()
        };
        assert_eq!(
            error("lage", DataType::Utf8View),
            "has no column 'lage' (did you mean 'large'? its columns are word, large, ts, n, l, r, b, \
             nothing)"
        );
        assert_eq!(
            error("n", DataType::Utf8View),
            "column 'n' is BIGINT, and the table has it as STRING (declare it as BIGINT)"
        );
        assert!(error("n", DataType::Float64).contains("as DOUBLE"));
        assert!(error("word", DataType::Int64).contains("as BIGINT"));
        let row = DataType::Struct(vec![Field::new("Deep", DataType::Int16, true)].into());
        assert!(error("r", row).starts_with("has no column 'r.Deep' (did you mean 'deep'?"));
        let row = DataType::Struct(vec![Field::new("other", DataType::Date32, true)].into());
        assert!(
            error("r", row).starts_with("column 'r.other' is STRING, and the table has it as DATE")
        );
        let list = DataType::List(Arc::new(Field::new_list_field(DataType::Boolean, true)));
        assert!(error("l", list).starts_with("column 'l[]' is BIGINT"));
    }
}

#[test]
fn a_file_of_another_format_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.data");
    for kind in kinds().into_iter().filter(|kind| kind.len() > 1) {
        let format = kind[0].1;
        for text in ["", "n,s\n1,x\n", "ARROW1", "PAR1", "PAR1PAR1PAR1PAR1"] {
            fs::write(&path, text).unwrap();
            let error = try_read(&of_file(&path, &columns(), &kind[..1])).unwrap_err();
            let wanted = format!("{}: is not a readable {format} file", path.display());
            assert!(error.starts_with(&wanted), "{text}: {error}");
        }
    }
}

#[test]
fn a_file_that_became_shorter_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.data");
    let name = path.display().to_string();
    for kind in kinds() {
        let mut known = request(&[0]);
        known.resume = vec![slackwater_engine::source::Resume {
            name: name.clone(),
            position: 31,
            bookmark: None,
            ended: false,
        }]
        .into();
        let again = |rows: i64, request: &SourceRequest| {
            write(
                &path,
                &[&kind[..], &[("overwrite", "true")]].concat(),
                &[batch(&(0..rows).collect::<Vec<i64>>())],
            );
            let connector = crate::source(&of_file(&path, &columns(), &kind[..1])).unwrap();
            let mut source = connector.source(request.clone()).unwrap();
            source.open(&mut Waiter::new().unwrap()).and_then(|_| {
                loop {
                    if let SourcePoll::End = source.poll()? {
                        return Ok(());
                    }
                }
            })
        };
        again(30, &known).unwrap();
        let error = again(29, &known).unwrap_err();
        assert!(
            error.reason.contains("read") && error.reason.contains("29"),
            "{error}"
        );
        assert_eq!((&error.place, error.is_final), (&name, true));
    }
}

#[test]
fn wrong_options_and_limits_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let name = |name: &str| folder.path().join(name);
    let n = [("n", DataType::Int64)];
    let sink_error = |path: &Path, options: &[(&str, &str)]| {
        let made = crate::sink(&of_file(path, &n, options));
        made.err().unwrap().to_string()
    };
    let error = sink_error(&name("x.arrow.zst"), &[("format", "arrow")]);
    assert!(error.contains("'arrow.compression'"), "{error}");
    let error = sink_error(&name("x"), &[("format", "arrow"), ("arrow.layout", "fil")]);
    assert!(error.contains("did you mean 'file'"), "{error}");
    let error = sink_error(&name("x"), &[("format", "json"), ("arrow.layout", "file")]);
    assert!(
        error.contains("is not an option of file sinks with format json"),
        "{error}"
    );
    fs::write(name("x.gz"), "").unwrap();
    let packed = crate::source(&of_file(&name("x.gz"), &n, &[("format", "arrow")]));
    assert!(
        packed
            .err()
            .unwrap()
            .to_string()
            .contains("x.gz is compressed as a whole")
    );
    for connector in ["tcp", "stdin"] {
        let options = [
            ("connector", connector),
            ("format", "arrow"),
            ("address", "h:1"),
        ];
        let error = crate::source(&table(&n, &options))
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("'arrow' is a format of files"), "{error}");
    }
    let one_file = crate::sink(&of_file(&name("x.arrow"), &n, &[("format", "arrow")])).unwrap();
    let saved = SinkRequest {
        epoch: Some(1),
        ..SinkRequest::new(0, 1)
    };
    let error = one_file.sink(&saved).err().unwrap().to_string();
    assert!(
        error.contains("(write a path without an extension: a folder"),
        "{error}"
    );
    if cfg!(not(feature = "parquet")) {
        let error = sink_error(&name("x"), &[("format", "parquet")]);
        assert!(error.contains("built without parquet") && error.contains("--features parquet"));
    }
}

#[test]
fn a_large_batch_is_passed_on_in_chunks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.data");
    let seeds = (0..20_000).collect::<Vec<i64>>();
    for kind in kinds().into_iter().step_by(4) {
        write(
            &path,
            &[&kind[..], &[("overwrite", "true")]].concat(),
            &[batch(&seeds)],
        );
        let connector = crate::source(&of_file(&path, &columns(), &kind[..1])).unwrap();
        let mut all = request(&[]);
        all.tuning = Arc::new(Tuning::new(0, 1_000_000));
        let drained = read_all(&mut *connector.source(all).unwrap());
        assert_eq!(drained.strings.len(), 20_000);
        assert!(drained.chunks >= 3, "{} chunks", drained.chunks);
    }
}
