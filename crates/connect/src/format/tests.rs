//! Decoders: types, rejections, and the same answer however the bytes are split.

use arrow_schema::{DataType, Field, TimeUnit};
use proptest::prelude::*;

use crate::lines::tests::{Read, read_pieces, reader};
use crate::table::TableDefinition;
use crate::table::tests::table;

fn whole(table: &TableDefinition, projection: &[usize], text: &[u8]) -> Read {
    read_pieces(
        reader(table, projection, 1 << 16),
        text,
        &[usize::MAX],
        1_000,
    )
}

fn all(table: &TableDefinition) -> Vec<usize> {
    (0..table.schema.fields().len()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn other_formats_do_not_depend_on_how_bytes_are_split(
        lines in proptest::collection::vec(prop_oneof![
            "\\{\"a\": ?[0-9]{1,20}, \"e\": \\{\"x\": \"[a-zé]{0,20}\"\\}\\}",
            "\\{\"e\": \\{\"x\": [0-9.]{1,4}\\}, \"z\": \\[1, \\{\\}\\]\\}",
            "[0-9.]{3,9} - [a-z-]{1,3} \\[17/May/2015:10:05:0[0-9] \\+0000\\] \"GET /[a-z]{0,20} HTTP/1.1\" 200 ([0-9]{1,9}|-) \"-\" \"[a-z\\\\\"]{0,20}\"",
            ".{0,60}",
        ], 0..30),
        crlf: bool,
        pieces in proptest::collection::vec(1usize..100, 1..8),
        block_bytes in 16usize..300,
        rows_max in 1usize..10,
    ) {
        let text = lines.join(if crlf { "\r\n" } else { "\n" });
        for table in [json_table(), log_table(), table(&[("line", DataType::Utf8View)], &[("format", "raw")])] {
            let projection = all(&table);
            let once = whole(&table, &projection, text.as_bytes());
            let reader = reader(&table, &projection, block_bytes);
            prop_assert_eq!(read_pieces(reader, text.as_bytes(), &pieces, rows_max), once);
        }
    }
}

fn json_table() -> TableDefinition {
    let row = DataType::Struct(vec![Field::new("x", DataType::Utf8View, true)].into());
    let list = DataType::List(Field::new("item", DataType::Int64, true).into());
    table(
        &[("a", DataType::Int64), ("e", row), ("l", list)],
        &[("format", "json")],
    )
}

fn log_table() -> TableDefinition {
    let time = DataType::Timestamp(TimeUnit::Millisecond, None);
    let columns = [
        ("ip", DataType::Utf8View),
        ("user_name", DataType::Utf8View),
        ("time", time),
        ("method", DataType::Utf8View),
        ("path", DataType::Utf8View),
        ("status", DataType::Int32),
        ("bytes", DataType::Int64),
        ("referer", DataType::Utf8View),
        ("user_agent", DataType::Utf8View),
    ];
    table(&columns, &[("format", "combined_log")])
}

#[test]
fn csv_types_and_their_rejections() {
    let columns = [
        ("b", DataType::Boolean),
        ("i8", DataType::Int8),
        ("u16", DataType::UInt16),
        ("f", DataType::Float64),
        ("d", DataType::Decimal128(5, 2)),
        ("day", DataType::Date32),
        ("t", DataType::Timestamp(TimeUnit::Millisecond, None)),
        ("s", DataType::Utf8View),
    ];
    let table = table(&columns, &[]);
    let good = "true,-128,65535,1e3,123.455,2015-05-17,2015-05-17T10:05:03.5Z,x\n\
                F, 7 ,0,-0.5,-.5,1969-12-31,2015-05-17 10:05:03,\"\"\n\
                ,,,,,,,\n";
    let read = whole(&table, &all(&table), good.as_bytes());
    assert_eq!(read.rejected, Vec::<String>::new());
    assert_eq!(
        read.rows,
        [
            "1:true|-128|65535|1000.0|123.46|2015-05-17|2015-05-17T10:05:03.500|x",
            "2:false|7|0|-0.5|-0.50|1969-12-31|2015-05-17T10:05:03|",
            "3:NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL",
        ]
    );
    for (column, value, data_type) in [
        (0, "maybe", "BOOLEAN"),
        (1, "128", "TINYINT"),
        (2, "-1", "SMALLINT UNSIGNED"),
        (3, "1,5", "DOUBLE"),
        (4, "1000.00", "DECIMAL(5, 2)"),
        (4, ".", "DECIMAL(5, 2)"),
        (5, "2015-02-29", "DATE"),
        (6, "yesterday", "TIMESTAMP(3)"),
    ] {
        let mut fields =
            ["1", "1", "1", "1", "1", "2015-05-17", "2015-05-17", "x"].map(String::from);
        fields[column] = format!("\"{value}\"");
        let text = format!(
            "{}\ntrue,1,1,1,1,2015-05-17,2015-05-17,ok\n",
            fields.join(",")
        );
        let read = whole(&table, &all(&table), text.as_bytes());
        let name = columns[column].0;
        assert_eq!(
            read.rejected,
            [format!(
                "1:column '{name}' ({data_type}): can't read '{value}'"
            )]
        );
        assert_eq!(read.rows.len(), 1, "the other row is kept");
        let others = all(&table)
            .into_iter()
            .filter(|c| *c != column)
            .collect::<Vec<_>>();
        assert_eq!(
            whole(&table, &others, text.as_bytes()).rows.len(),
            2,
            "not read, not parsed"
        );
    }
}

#[test]
fn csv_header_delimiter_null_and_comment() {
    let options = [
        ("csv.delimiter", "\\t"),
        ("csv.header", "true"),
        ("csv.null", "NA"),
        ("csv.comment", "#"),
    ];
    let table = table(
        &[("n", DataType::Int64), ("s", DataType::Utf8View)],
        &options,
    );
    let text = "# made by hand\n\nn\ts\n1\tNA\n# \"between\nNA\t\"NA\"\n\t\n2\t\n";
    let read = whole(&table, &[0, 1], text.as_bytes());
    assert_eq!(read.rows, ["4:1|NULL", "6:NULL|NA", "8:2|"]);
    assert_eq!(read.rejected, ["7:column 'n' (BIGINT): can't read ''"]);
    assert_eq!(
        whole(&table, &[0, 1], b"n\ts"),
        Read::default(),
        "a header alone"
    );
    assert_eq!(whole(&table, &[0, 1], b""), Read::default());
}

#[test]
fn csv_nul_and_invalid_utf8() {
    let table = table(&[("s", DataType::Utf8View), ("n", DataType::Int64)], &[]);
    let text = b"a\0b,1\nthis is a long text with \xFF in it,2\nshort \xC3,3\ngood \xC3\xA9,4\n";
    let read = whole(&table, &[0, 1], text);
    assert_eq!(read.rows, ["1:a\0b|1", "4:good é|4"]);
    assert_eq!(
        read.rejected,
        [
            "2:column 's' (STRING): not valid UTF-8",
            "3:column 's' (STRING): not valid UTF-8"
        ]
    );
    assert_eq!(
        whole(&table, &[1], text).rows.len(),
        4,
        "what is not read is not checked"
    );
}

#[test]
fn json_nested_missing_and_wrong() {
    let table = json_table();
    let text = br#"{"a": 1, "e": {"x": "one", "y": [1, {"z": 2}]}, "l": [1, 2]}
{"e": {"x": 2.50}, "other": null}
{"e": null, "a": null, "l": []}

{"e": {"x": true}, "a": 9223372036854775807}
{"e": {"x": "\u00e9\n"}, "l": [null, 3]}
"#;
    let read = whole(&table, &all(&table), text);
    assert_eq!(read.rejected, Vec::<String>::new());
    assert_eq!(
        read.rows,
        [
            "1:1|{x: one}|[1, 2]",
            "2:NULL|{x: 2.5}|NULL",
            "3:NULL|NULL|[]",
            "5:9223372036854775807|{x: true}|NULL",
            "6:NULL|{x: é\n}|[, 3]",
        ]
    );
    for (line, reason) in [
        (
            r#"{"l": [1], "a": "7"}"#,
            "invalid type: string \"7\", expected column 'a' (BIGINT), at byte 19",
        ),
        (
            r#"{"a": 9223372036854775808}"#,
            "invalid value: integer `9223372036854775808`, expected column 'a' (BIGINT), at byte 25",
        ),
        (
            r#"{"a": 1.0}"#,
            "invalid type: floating point `1.0`, expected column 'a' (BIGINT), at byte 9",
        ),
        (
            r#"{"e": {"x": {}}}"#,
            "invalid type: map, expected column 'e.x' (STRING), at byte 14",
        ),
        (
            r#"{"e": 5}"#,
            "invalid type: integer `5`, expected column 'e' (ROW), at byte 7",
        ),
        (
            r#"{"l": [1, "x"]}"#,
            "invalid type: string \"x\", expected column 'l[]' (BIGINT), at byte 13",
        ),
        (r#"{"a": 1, "a": 2}"#, "column 'a' twice, at byte 12"),
        (r#"{"a": 1} {}"#, "not JSON: trailing characters at byte 10"),
        (
            r#"{"a": 1"#,
            "not JSON: EOF while parsing an object at byte 7",
        ),
        ("hello", "not JSON: expected value at byte 1"),
        (
            "[1]",
            "invalid type: sequence, expected an object, at byte 0",
        ),
    ] {
        let text = format!("{{\"a\":1,\"l\":[1]}}\n{line}\n{{\"a\":3,\"l\":[2,3]}}\n");
        let read = whole(&table, &all(&table), text.as_bytes());
        assert_eq!(read.rejected, [format!("2:{reason}")], "{line}");
        assert_eq!(
            read.rows,
            ["1:1|NULL|[1]", "3:3|NULL|[2, 3]"],
            "{line} leaves no trace"
        );
    }
    assert_eq!(
        whole(&table, &[0], br#"{"e": 5}"#).rows,
        ["1:NULL"],
        "what is not read may be wrong"
    );
    assert_eq!(whole(&table, &[], b"no json\n{}\n").rows, ["2:"]);
    let deep = format!("{{\"other\": {}}}", "[".repeat(100_000));
    assert_eq!(
        whole(&table, &[0], deep.as_bytes()).rejected.len(),
        1,
        "no stack overflow"
    );
    let invalid = b"{\"e\": {\"x\": \"\xFF\"}}";
    assert_eq!(whole(&table, &[1], invalid).rejected.len(), 1);
}

#[test]
fn json_times_decimals_and_floats() {
    let columns = [
        ("t", DataType::Timestamp(TimeUnit::Millisecond, None)),
        ("d", DataType::Decimal128(6, 2)),
        ("f", DataType::Float32),
        ("day", DataType::Date32),
        ("u", DataType::UInt8),
    ];
    let table = table(&columns, &[("format", "json")]);
    let text = r#"{"t": 1500, "d": 12.345, "f": 1, "day": "2015-05-17", "u": 255}
{"t": "1970-01-01T00:00:01.5Z", "d": -7, "f": 0.1}
{"u": 256}
{"t": "soon"}
{"d": 12345.678}
{"day": 7}
"#;
    let read = whole(&table, &all(&table), text.as_bytes());
    assert_eq!(
        read.rows,
        [
            "1:1970-01-01T00:00:01.500|12.35|1.0|2015-05-17|255",
            "2:1970-01-01T00:00:01.500|-7.00|0.1|NULL|NULL",
        ]
    );
    assert_eq!(read.rejected.len(), 4);
}

#[test]
fn combined_log_reads_no_further_than_it_must() {
    let table = log_table();
    let line = r#"::1 - ann [17/May/2015:12:05:03 +0200] "GET /a b?c HTTP/1.1" 404 - "-" "say \"hi\" twice""#;
    let read = whole(&table, &all(&table), line.as_bytes());
    assert_eq!(
        read.rows,
        [r#"1:::1|ann|2015-05-17T10:05:03|GET|/a b?c|404|NULL|NULL|say \"hi\" twice"#]
    );
    let broken = r#"1.2.3.4 - - [17/May/2015:10:05:03 +0000] "\x16\x03" 200 12 "-" "never closed"#;
    assert_eq!(
        whole(&table, &[0, 2, 5, 6], broken.as_bytes()).rows,
        ["1:1.2.3.4|2015-05-17T10:05:03|200|12"]
    );
    assert_eq!(whole(&table, &[3], broken.as_bytes()).rows, ["1:NULL"]);
    let read = whole(&table, &[0, 8], broken.as_bytes());
    assert_eq!(
        read.rejected,
        ["1:the quote of the user_agent is not closed"]
    );
    let read = whole(&table, &[5], b"nonsense\n1.2.3.4 - - [x] \"r\" 2OO 1\n");
    assert_eq!(
        read.rejected,
        ["1:no identity", "2:column 'status' (INT): can't read '2OO'"]
    );
}

#[test]
fn every_line_of_the_real_log_parses() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/data/apache_logs.log"
    );
    let Ok(text) = std::fs::read(path) else {
        println!("skipped: no shared/data/apache_logs.log beside the repository");
        return;
    };
    let table = log_table();
    let read = whole(&table, &[0, 2, 5, 6], &text);
    assert_eq!((read.rows.len(), read.rejected.len()), (10_000, 0));
    let read = whole(&table, &[8], &text);
    assert_eq!(
        read.rejected,
        ["8899:the quote of the user_agent is not closed"]
    );
}
