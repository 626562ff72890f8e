//! Options of tables, and the errors that their author sees.

use arrow_schema::DataType;
use slackwater_engine::sink::Delivery;

use crate::table::tests::table;
use crate::{sink, source};

fn source_error(options: &[(&str, &str)]) -> String {
    source(&table(&[("a", DataType::Utf8View)], options))
        .err()
        .unwrap()
        .to_string()
}

fn sink_error(options: &[(&str, &str)]) -> String {
    sink(&table(&[("a", DataType::Utf8View)], options))
        .err()
        .unwrap()
        .to_string()
}

#[test]
fn errors_say_what_to_write() {
    for (error, parts) in [
        (source_error(&[]), &["'connector'", "is missing"][..]),
        (
            source_error(&[("connector", "fil")]),
            &["did you mean 'file'", "stdin", "tcp", "datagen"],
        ),
        (
            source_error(&[("connector", "print")]),
            &["can only be written"],
        ),
        (sink_error(&[("connector", "stdin")]), &["can only be read"]),
        (
            sink_error(&[("connector", "kafca")]),
            &[
                "'kafca' is not a connector",
                "did you mean 'kafka'",
                "blackhole",
            ],
        ),
        (
            source_error(&[("connector", "file"), ("path", "x"), ("format", "jsn")]),
            &["did you mean 'json'", "combined_log", "raw"],
        ),
        (
            source_error(&[("connector", "tcp"), ("adress", "x")]),
            &[
                "'adress'",
                "did you mean 'address'",
                "is not an option of tcp sources with format csv",
            ],
        ),
        (
            source_error(&[("connector", "tcp"), ("format", "json"), ("csv.null", "x")]),
            &[
                "'csv.null'",
                "is not an option of tcp sources with format json",
            ],
        ),
        (
            source_error(&[("connector", "tcp")]),
            &["'address'", "is missing"],
        ),
        (
            source_error(&[("connector", "tcp"), ("address", "9000")]),
            &["not a host and port"],
        ),
        (
            source_error(&[("connector", "tcp"), ("address", "h:99999")]),
            &["not a host and port"],
        ),
        (
            source_error(&[("connector", "stdin"), ("idle_timeout", "5")]),
            &["not a duration"],
        ),
        (
            source_error(&[("connector", "stdin"), ("unit_of_work", "file")]),
            &["needs a source of files"],
        ),
        (
            source_error(&[("connector", "stdin"), ("csv.delimiter", "||")]),
            &["not a single byte"],
        ),
        (
            source_error(&[("connector", "stdin"), ("csv.comment", ",")]),
            &["is also the delimiter"],
        ),
        (
            sink_error(&[("connector", "print"), ("format", "csv")]),
            &["is not an option of print sinks"],
        ),
        (
            sink_error(&[("connector", "file"), ("format", "raw")]),
            &["'raw' can only be read", "'arrow' or 'parquet'"],
        ),
        (
            sink_error(&[("connector", "file"), ("on_error", "skip")]),
            &["is not an option of file sinks"],
        ),
        (
            source_error(&[("connector", "file"), ("overwrite", "true")]),
            &["is not an option of file sources"],
        ),
    ] {
        for part in parts {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    }
}

#[test]
fn formats_refuse_columns_that_they_can_not_represent() {
    let row = DataType::Struct(vec![arrow_schema::Field::new("x", DataType::Int64, true)].into());
    let error = |column: (&str, DataType), format| {
        let table = table(&[column], &[("connector", "stdin"), ("format", format)]);
        source(&table).err().unwrap().to_string()
    };
    assert!(error(("e", row.clone()), "csv").contains("use 'format' = 'json'"));
    assert!(error(("e", DataType::Binary), "json").contains("declare the column as STRING"));
    assert!(error(("n", DataType::Int64), "raw").contains("exactly one column, of type STRING"));
    assert!(error(("statsu", DataType::Int64), "combined_log").contains("did you mean 'status'"));
    assert!(error(("time", DataType::Int64), "combined_log").contains("TIMESTAMP(3)"));
    let options = [("connector", "stdin"), ("format", "json")];
    assert!(source(&table(&[("e", row)], &options)).is_ok());
}

#[test]
fn what_can_be_read_again_and_what_is_written_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.csv");
    std::fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    let columns = [("ip", DataType::Utf8View)];
    let described =
        |options: &[(&str, &str)]| source(&table(&columns, options)).unwrap().describe();
    assert!(described(&[("connector", "file"), ("path", file)]).replayable);
    assert!(described(&[("connector", "datagen"), ("generator", "uservisits")]).replayable);
    let address = ("address", "127.0.0.1:9");
    assert!(!described(&[("connector", "tcp"), address]).replayable);
    assert!(!described(&[("connector", "stdin")]).replayable);
    let http = [("connector", "http"), ("acknowledge", "checkpoint")];
    assert!(described(&http).redelivers && described(&http).keeps_positions);
    assert!(!described(&http[..1]).redelivers && !described(&http).replayable);
    let mqtt = [("connector", "mqtt"), ("address", "h"), ("topic", "t")];
    assert!(!described(&mqtt).redelivers);
    let mqtt = [&mqtt[..], &[("client_id", "me")]].concat();
    assert!(described(&mqtt).redelivers && !described(&mqtt).replayable);
    let mqtt = [&mqtt[..], &[("qos", "0")]].concat();
    assert!(!described(&mqtt).redelivers);

    let delivery = |options: &[(&str, &str)]| {
        sink(&table(&columns, options))
            .unwrap()
            .capabilities()
            .delivery
    };
    let once = [
        delivery(&[("connector", "file"), ("path", file)]),
        delivery(&[("connector", "blackhole")]),
    ];
    assert_eq!(once, [Delivery::ExactlyOnce; 2]);
    let least = [
        delivery(&[("connector", "tcp"), address]),
        delivery(&[("connector", "print")]),
        delivery(&[("connector", "mqtt"), ("address", "h"), ("topic", "t")]),
    ];
    assert_eq!(least, [Delivery::AtLeastOnce; 3]);
}

#[cfg(not(feature = "kafka"))]
#[test]
fn a_build_without_kafka_says_how_to_get_it() {
    for error in [
        source_error(&[("connector", "kafka")]),
        sink_error(&[("connector", "kafka")]),
    ] {
        assert!(
            error.contains("cargo build --release --features kafka"),
            "{error}"
        );
    }
}
