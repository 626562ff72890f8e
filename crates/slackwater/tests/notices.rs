//! What a user is told of rows that are read, and how late and bad rows are counted by table.

use crate::process::{Finished, Folder};

/// Counts by minute what is in `in.csv`; `delay` is the watermark's.
fn counting(precision: u32, delay: &str) -> String {
    format!(
        "CREATE TABLE t (x BIGINT, k STRING, ts AS TO_TIMESTAMP_LTZ(x, {precision}),
           WATERMARK FOR ts AS ts - INTERVAL {delay})
         WITH ('connector' = 'file', 'path' = 'in*.csv');
         CREATE TABLE o (start TIMESTAMP(3), n BIGINT) WITH ('connector' = 'blackhole');
         INSERT INTO o SELECT window_start, COUNT(*)
         FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end;"
    )
}

/// 2024-05-01 in seconds.
const MAY_S: u64 = 1_714_521_600;

/// How often each of these warnings was given: those whose text has `part`.
fn warnings(finished: &Finished, part: &str) -> usize {
    let lines = finished.err.lines();
    lines
        .filter(|line| line.starts_with("warning: ") && line.contains(part))
        .count()
}

const SETTINGS: [&[&str]; 3] = [
    &[],
    &["--parallelism", "2", "--set", "chunk_rows=7"],
    &["--processes", "2", "--parallelism", "2"],
];

#[test]
fn regression_late_rows_are_explained_by_the_record_that_moved_the_watermark() {
    let row = |number: u64| match number {
        // 2086.
        10 => format!("{}000,bad\n", 3_660_681_600u64),
        number => format!("{}000,good\n", MAY_S + number),
    };
    let rows = (0..300).map(row).collect::<String>();
    let folder = Folder::with(&[("in.csv", &rows)]);
    for settings in SETTINGS {
        let finished = folder.run(&counting(3, "'5' SECOND"), settings).ok();
        let report = folder.json("report.json");
        assert_eq!(report["rows_late"], 289, "{settings:?}");
        let expected = "table 't': 289 of 300 rows were late (96 %): the watermark jumped by 61.7 years at \
                        in.csv:11, from 2024-05-01 00:00:04 to 2085-12-31 23:59:55";
        assert_eq!(
            warnings(&finished, expected),
            1,
            "{settings:?}: {}",
            finished.err
        );
        assert!(finished.err.contains("make it NULL"), "{}", finished.err);
        let told = report["warnings"].as_array().unwrap();
        let is_told = |text: &serde_json::Value| text.as_str().unwrap().starts_with(expected);
        assert_eq!(
            told.iter().filter(|text| is_told(text)).count(),
            1,
            "{told:?}"
        );
    }
    // Its own fault is the order: a longer delay is named that keeps them all.
    let turned = (0..300u64).rev();
    let turned = turned
        .map(|number| format!("{}000,k\n", MAY_S + number))
        .collect::<String>();
    folder.write("in.csv", turned.as_bytes());
    let finished = folder.run(&counting(3, "'5' SECOND"), &["-q"]).ok();
    assert!(
        finished
            .err
            .contains("the first row, at in.csv:1, has the largest event time"),
        "{}",
        finished.err
    );
    assert!(
        finished.err.contains("ts - INTERVAL '5' MINUTE"),
        "{}",
        finished.err
    );
    let finished = folder.run(&counting(3, "'5' MINUTE"), &[]).ok();
    assert_eq!(folder.json("report.json")["rows_late"], 0);
    assert!(!finished.err.contains("late ("), "{}", finished.err);
}

#[test]
fn regression_seconds_read_as_milliseconds_are_told_of_once() {
    let rows = (0..50)
        .map(|number| format!("{},k\n", MAY_S + number))
        .collect::<String>();
    let folder = Folder::with(&[("in.csv", &rows), ("in2.csv", &rows)]);
    for settings in SETTINGS {
        let finished = folder.run(&counting(3, "'5' SECOND"), settings).ok();
        let expected = "table 't': column 'ts': the event time 1970-01-20 20:15:21.6 at in";
        assert_eq!(
            warnings(&finished, expected),
            1,
            "{settings:?}: {}",
            finished.err
        );
        assert!(
            finished.err.contains(
                "TO_TIMESTAMP_LTZ(x, 3) reads milliseconds: as TO_TIMESTAMP_LTZ(x, 0) it is 2024-05-01 \
                 00:00:00"
            ),
            "{}",
            finished.err
        );
        let finished = folder.run(&counting(0, "'5' SECOND"), settings).ok();
        assert_eq!(warnings(&finished, "event time"), 0, "{}", finished.err);
    }
    // The other way round, after rows that were right.
    let folder = Folder::with(&[("in.csv", &format!("{MAY_S},k\n{MAY_S},k\n{MAY_S}000,k\n"))]);
    let finished = folder.run(&counting(0, "'5' SECOND"), &[]).ok();
    assert_eq!(
        warnings(&finished, "at in.csv:3 is after 2099"),
        1,
        "{}",
        finished.err
    );
    assert!(
        finished
            .err
            .contains("as TO_TIMESTAMP_LTZ(x, 3) it is 2024-05-01"),
        "{}",
        finished.err
    );
    // Times that are counted from zero are no slip.
    let folder = Folder::with(&[("in.csv", "100,k\n700000000,k\n")]);
    let finished = folder.run(&counting(3, "'5' SECOND"), &[]).ok();
    assert_eq!(warnings(&finished, ""), 0, "{}", finished.err);
}

#[test]
fn regression_json_columns_without_a_field_are_told_of_with_the_field_that_was_meant() {
    let text = "CREATE TABLE t (userId STRING, n BIGINT, e ROW<`Price` BIGINT, size BIGINT>)
                WITH ('connector' = 'file', 'path' = 'in*.json', 'format' = 'json');
                CREATE TABLE o (userId STRING, n BIGINT, p BIGINT) WITH ('connector' = 'blackhole');
                INSERT INTO o SELECT userId, n, e.`Price` + e.size FROM t;";
    let line = |number: u64| {
        format!(
            "{{\"userid\":\"u{number}\",\"n\":{number},\"e\":{{\"price\":{number},\"size\":null}}}}\n"
        )
    };
    let lines = (0..40).map(line).collect::<String>();
    let folder = Folder::with(&[("in.json", &lines), ("in2.json", &lines)]);
    for settings in SETTINGS {
        let finished = folder.run(text, settings).ok();
        let expected = "table 't': columns 'userId', 'e.Price' are NULL in all of the 80 rows read";
        assert_eq!(
            warnings(&finished, expected),
            1,
            "{settings:?}: {}",
            finished.err
        );
        assert!(
            finished
                .err
                .contains("did you mean 'userid', 'e.price'? the fields are: "),
            "{}",
            finished.err
        );
    }
    // One file has the field.
    folder.write(
        "in3.json",
        b"{\"userId\":\"a\",\"n\":1,\"e\":{\"Price\":1,\"size\":null}}\n",
    );
    for settings in SETTINGS {
        let finished = folder.run(text, settings).ok();
        assert_eq!(warnings(&finished, ""), 0, "{settings:?}: {}", finished.err);
    }
    // A column that the query doesn't read is nobody's.
    let folder = Folder::with(&[("in.json", &lines)]);
    let other = text.replace("SELECT userId, n, e.`Price` + e.size", "SELECT 'x', n, n");
    let finished = folder.run(&other, &[]).ok();
    assert_eq!(warnings(&finished, ""), 0, "{}", finished.err);
}

#[test]
fn a_csv_header_in_another_order_is_told_of() {
    let text = "CREATE TABLE t (a BIGINT, b BIGINT)
                WITH ('connector' = 'file', 'path' = 'in.csv', 'csv.header' = 'true');
                SELECT a, b FROM t;";
    let folder = Folder::with(&[("in.csv", "b,a\n1,2\n")]);
    let finished = folder.run(text, &[]).ok();
    let expected =
        "table 't': column 'a' is number 1 in the declaration and number 2 in the header";
    assert_eq!(warnings(&finished, expected), 1, "{}", finished.err);
    folder.write("in.csv", b"A,\"b\"\n1,2\n");
    let finished = folder.run(text, &[]).ok();
    assert_eq!(warnings(&finished, ""), 0, "{}", finished.err);
}

#[test]
fn late_and_bad_rows_are_counted_by_table() {
    let table = |name: &str| {
        format!(
            "CREATE TABLE {name} (ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
             WITH ('connector' = 'file', 'path' = '{name}.csv');"
        )
    };
    // Windows over one table, over another one, and over both.
    let window = |input: &str, sink: &str| {
        format!(
            "CREATE TABLE {sink} (n BIGINT) WITH ('connector' = 'blackhole');
             INSERT INTO {sink} SELECT COUNT(*)
             FROM TUMBLE(TABLE {input}, DESCRIPTOR(ts), INTERVAL '1' SECOND) GROUP BY window_start, \
             window_end;"
        )
    };
    let text = format!(
        "{}{}{}CREATE VIEW u AS SELECT ts FROM a UNION ALL SELECT ts FROM b;{}{}{}",
        table("a"),
        table("b"),
        table("c"),
        window("a", "of_a"),
        window("u", "of_both"),
        window("c", "of_c"),
    );
    let folder = Folder::with(&[
        ("a.csv", "1000\n9000\n2000\nx\n3000\n"),
        ("b.csv", "1000\n9000\n2000\n"),
        ("c.csv", "1000\n"),
    ]);
    for settings in SETTINGS {
        let finished = folder.run(&text, settings).ok();
        let report = folder.json("report.json");
        let counts_of = |table: &str| {
            let sources = report["sources"].as_array().unwrap().iter();
            let mut sources = sources.filter(|source| source["table"] == table);
            let source = sources.next().unwrap();
            (source["rows_late"].clone(), source["rows_bad"].clone())
        };
        // Two late rows of `a`, for two window functions.
        assert_eq!(counts_of("a"), (4.into(), 1.into()), "{settings:?}");
        assert_eq!(counts_of("b"), (1.into(), 0.into()), "{settings:?}");
        assert_eq!(counts_of("c"), (0.into(), 0.into()), "{settings:?}");
        assert_eq!(report["rows_late"], 5);
        assert!(
            finished
                .err
                .contains("by table   4 late and 1 bad of 5 in a; 1 late of 3 in b\n"),
            "{}",
            finished.err
        );
    }
}
