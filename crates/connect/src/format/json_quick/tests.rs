//! Whatever the fast path takes has the values of the slow path.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::Buffer;
use arrow_schema::{Field, Fields, Schema, TimeUnit};
use proptest::prelude::*;

use super::super::json::JsonDecoder;
use super::super::progress::{Progress, RECORD_BYTES_MAX};
use super::*;

fn schema() -> Schema {
    let nested = vec![
        Field::new("id", DataType::Int64, true),
        Field::new("name", DataType::Utf8View, true),
    ];
    let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
    Schema::new(vec![
        Field::new("a", DataType::Int32, true),
        Field::new("b", DataType::Utf8View, true),
        Field::new("c", DataType::Struct(Fields::from(nested)), true),
        Field::new("d", millis, true),
        Field::new("e", DataType::Float64, true),
        Field::new("f", DataType::Boolean, true),
        Field::new(
            "g",
            DataType::List(Arc::new(Field::new("item", DataType::Int64, true))),
            true,
        ),
        Field::new("h", DataType::UInt64, true),
        Field::new("i", DataType::Date32, true),
        Field::new("j", DataType::Decimal128(10, 2), true),
    ])
}

fn row() -> JsonRow {
    JsonRow::new(schema().fields().iter().map(AsRef::as_ref), "")
}

/// Whether the fast path takes a line; if so, checks that it did what the slow path does.
fn takes(line: &str) -> bool {
    takes_bytes(line.as_bytes())
}

fn takes_bytes(line: &[u8]) -> bool {
    // With a neighbor on either side, with nothing after it, and after the same line, so that its keys are
    // expected.
    let mut block = b"{\"a\":1}\n".to_vec();
    let start = block.len();
    block.extend_from_slice(line);
    let alone = quickly(&block, start, true, &mut row());
    assert_eq!(quickly(&block, start, false, &mut row()), None);
    block.extend_from_slice(b"\n{\"b\":\"next \\\" line\"}\n");
    let mut row = row();
    let before_others = quickly(&block, start, false, &mut row);
    assert_eq!(alone, before_others);
    assert_eq!(alone, quickly(&block, start, false, &mut row));
    if let Some(columns) = &alone {
        let careful = JsonDecoder::careful(&schema(), line);
        let careful = careful.unwrap_or_else(|error| {
            panic!("{}: {error}", String::from_utf8_lossy(line));
        });
        assert!(columns == &careful, "{}", String::from_utf8_lossy(line));
    }
    alone.is_some()
}

/// The columns of the line, if it is taken.
fn quickly(block: &[u8], start: usize, last: bool, row: &mut JsonRow) -> Option<Vec<ArrayRef>> {
    let line = Quick::new().line(block, start, last, row);
    let rows = row.rows;
    let columns = row.finish(&Buffer::from(block));
    let is_taken = matches!(line, Some(Ok(_)));
    assert_eq!(
        rows,
        usize::from(is_taken),
        "only a line that is taken leaves a row"
    );
    is_taken.then_some(columns)
}

#[test]
fn usual_lines_are_taken() {
    for line in [
        r#"{}"#,
        r#"{"a":1,"b":"text","c":{"id":-2,"name":"n"},"d":"2015-07-15 00:00:00.059"}"#,
        r#" { "b" : "grün" , "a" : null, "x": [1, {"y": "z", "w": -0.5}, true, []] } "#,
        r#"{"c":null,"d":1436918400000,"e":7,"f":true,"g":[1,2,null],"h":3,"i":"2024-02-29","j":null}"#,
        r#"{"c":{},"g":[],"unknown":0,"f":false,"e":-12}"#,
        r#"{"e":1.5,"j":-12.345}"#,
        r#"{"e":-0.0,"j":-0.004}"#,
        r#"{"e":0.1,"j":99999999}"#,
        r#"{"e":123456789012.345,"j":0.10}"#,
        r#"{"x":12345678901234567890123,"y":-0}"#,
        "{\"a\":1}\r",
    ] {
        assert!(takes(line), "{line}");
    }
}

#[test]
fn unusual_and_broken_lines_are_left() {
    let deep = format!("{{\"x\":{}{}}}", "[".repeat(40), "]".repeat(40));
    for line in [
        r#"{"b":"an \" escape"}"#,
        r#"{"\u0061":1}"#,
        r#"{"e":1e3}"#,
        r#"{"x":1e999}"#,
        r#"{"j":-0}"#,
        r#"{"j":100000000}"#,
        r#"{"j":"1"}"#,
        r#"{"e":1.5e3}"#,
        r#"{"e":1.}"#,
        r#"{"e":.5}"#,
        r#"{"e":01.5}"#,
        r#"{"e":1.234567890123456}"#,
        r#"{"e":-}"#,
        r#"{"a":1 "b":"x"}"#,
        r#"{,"a":1}"#,
        r#"{"a":1,,"b":"x"}"#,
        r#"{"a" 1}"#,
        r#"{"a":3000000000}"#,
        r#"{"a":01}"#,
        r#"{"a":-0}"#,
        r#"{"a":-}"#,
        r#"{"h":-1}"#,
        r#"{"a":1234567890123456789}"#,
        r#"{"a":"1"}"#,
        r#"{"b":1}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"a":1,}"#,
        r#"{"a":1"#,
        r#"{"b":"open"#,
        r#"{"a":1}{"#,
        r#"{"x":nul}"#,
        r#"{"x":01}"#,
        r#"{"x":1.}"#,
        r#"{"x":[1,]}"#,
        r#"{"i":5}"#,
        r#"{"d":"no time"}"#,
        "{\"b\":\"a\ttab\"}",
        &deep,
        "[]",
        "",
    ] {
        assert!(!takes(line), "{line}");
    }
    assert!(!takes_bytes(b"{\"b\":\"\xff\"}"), "no UTF-8");
}

/// JSON values as text, with everything that they may contain.
fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_string()),
        any::<bool>().prop_map(|value| value.to_string()),
        any::<i64>().prop_map(|value| value.to_string()),
        (-1000..1000i64).prop_map(|value| value.to_string()),
        any::<f64>().prop_map(|value| format!("{value:?}")),
        "[a-zü \\\\\"]{0,40}".prop_map(|text| serde_json::to_string(&text).unwrap()),
        "[a-z]{0,40}".prop_map(|text| format!("\"{text}\"")),
        Just("\"2024-02-29 12:34:56.789\"".to_string()),
        Just("\"2024-02-29\"".to_string()),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let member =
            ("(id|name|x)", inner.clone()).prop_map(|(key, value)| format!("\"{key}\":{value}"));
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(member, 0..4)
                .prop_map(|items| format!("{{{}}}", items.join(", "))),
        ]
    })
}

/// A line with some of the columns, as a producer writes it: in one of a few orders, with or without spaces.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let members = prop::collection::vec((prop::sample::select(&COLUMNS[..]), value()), 0..8);
    let usual = (members, 0..3usize, 0..2usize).prop_map(|(mut members, spaces, order)| {
        if order == 0 {
            members.sort_by_key(|(key, _)| *key);
        }
        let (comma, colon) = [(",", ":"), (", ", ": "), (" ,\t", " : ")][spaces];
        let members = members
            .iter()
            .map(|(key, value)| format!("\"{key}\"{colon}{value}"));
        format!("{{{}}}", members.collect::<Vec<_>>().join(comma)).into_bytes()
    });
    let changed = proptest::option::weighted(0.1, (any::<prop::sample::Index>(), any::<u8>()));
    let cut = proptest::option::weighted(0.1, any::<prop::sample::Index>());
    (usual, cut, changed).prop_map(|(mut line, cut, changed)| {
        if let Some(cut) = cut {
            line.truncate(cut.index(line.len()));
        }
        if let (Some((at, byte)), false) = (changed, line.is_empty()) {
            let at = at.index(line.len());
            line[at] = byte;
        }
        line.retain(|&byte| byte != b'\n');
        line
    })
}

/// The declared columns, keys that are not declared, and one that is too long to be expected.
const COLUMNS: [&str; 13] = [
    "a",
    "b",
    "c",
    "d",
    "e",
    "f",
    "g",
    "h",
    "i",
    "j",
    "x",
    "",
    "a key that is longer than what is compared at once",
];

proptest! {
    #[test]
    fn lines_that_are_taken_have_the_values_of_the_slow_path(line in line()) {
        takes_bytes(&line);
    }

    #[test]
    fn a_block_has_the_rows_that_its_lines_have_by_the_slow_path(
        lines in prop::collection::vec((line(), 0..3usize), 1..40),
        ends: bool,
    ) {
        let mut block = vec![];
        let (mut rows, mut rejected) = (vec![], vec![]);
        for (number, (line, again)) in lines.iter().enumerate() {
            // Some lines come several times, so that their keys are expected.
            for _ in 0..=*again {
                match JsonDecoder::careful(&schema(), line) {
                    _ if line.is_empty() || line == b"\r" => {}
                    Ok(columns) => rows.push(columns),
                    Err(_) => rejected.push(line.clone()),
                }
                block.extend_from_slice(line);
                block.extend_from_slice(if number % 3 == 0 { b"\r\n" } else { b"\n" });
            }
        }
        if ends {
            block.pop();
        }
        let mut decoder = JsonDecoder::new(&schema());
        let mut progress = Progress::new();
        progress.begin(usize::MAX);
        let (at, _) = decoder.scan(&block, 0, true, &mut progress);
        prop_assert_eq!(at, block.len());
        prop_assert_eq!(progress.rows(), rows.len());
        prop_assert_eq!(progress.rejected.len(), rejected.len());
        let columns = decoder.finish(&Buffer::from(block));
        for (nth, column) in columns.iter().enumerate() {
            prop_assert_eq!(column.len(), rows.len());
            for (row, expected) in rows.iter().enumerate() {
                prop_assert_eq!(&column.slice(row, 1), &expected[nth], "row {}", row);
            }
        }
    }
}

#[test]
fn numbers_at_their_limits_are_those_of_the_slow_path() {
    let signs = ["", "-"];
    for digits in 1..=22 {
        for number in ["9".repeat(digits), format!("1{}", "0".repeat(digits - 1))] {
            for sign in signs {
                for (column, places) in [("a", 0), ("h", 0), ("e", 0), ("e", 3), ("j", 0), ("j", 2)]
                {
                    let (whole, part) = number.split_at(digits.saturating_sub(places).max(1));
                    let point = if part.is_empty() { "" } else { "." };
                    takes(&format!("{{\"{column}\":{sign}{whole}{point}{part}}}"));
                }
            }
        }
    }
    // Digits that wrap around to a number that can't be negated, too.
    for power in [31, 32, 63, 64] {
        for number in (1u128 << power) - 1..=(1 << power) + 1 {
            for sign in signs {
                takes(&format!("{{\"a\":{sign}{number}}}"));
                takes(&format!("{{\"g\":[{sign}{number}],\"e\":{sign}{number}}}"));
            }
        }
    }
    assert!(takes(r#"{"a":2147483647,"h":999999999999999999}"#));
    assert!(takes(r#"{"a":-2147483648}"#));
    assert!(!takes(r#"{"a":2147483648}"#));
}

#[test]
fn a_line_that_is_too_long_is_not_taken() {
    let mut block = format!("{{\"b\":\"{}\"}}", "x".repeat(RECORD_BYTES_MAX)).into_bytes();
    let mut row = row();
    let line = Quick::new().line(&block, 0, true, &mut row);
    assert!(matches!(line, Some(Err(Stop::TooLong))), "{line:?}");
    block.push(b'\n');
    let line = Quick::new().line(&block, 0, false, &mut row);
    assert!(matches!(line, Some(Err(Stop::TooLong))), "{line:?}");
    assert_eq!(row.rows, 0);
    assert!(
        row.finish(&Buffer::from(block))
            .iter()
            .all(|column| column.is_empty())
    );
}

#[test]
fn strings_point_into_the_block() {
    let long = "a string of more than twelve bytes";
    let block = format!("{{\"b\":\"{long}\"}}\n{{\"b\":\"{long}\\n\"}}\n{{\"b\":\"{long}ü\"}}\n");
    let block = Buffer::from(block.into_bytes());
    let mut decoder = JsonDecoder::new(&schema());
    let mut progress = Progress::new();
    progress.begin(usize::MAX);
    decoder.scan(&block, 0, true, &mut progress);
    let columns = decoder.finish(&block);
    let strings = columns[1].as_string_view();
    let place = |row: usize| strings.value(row).as_ptr() as usize - block.as_ptr() as usize;
    assert_eq!((place(0), place(2)), (6, 2 * long.len() + 26));
    assert_eq!(strings.value(1), format!("{long}\n"));
    assert!(place(1) > block.len(), "an escape was replaced in a copy");
}
