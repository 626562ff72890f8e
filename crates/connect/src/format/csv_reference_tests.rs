//! CSV against a naive reference, for random text in random pieces.

use arrow_schema::DataType;
use proptest::prelude::*;

use crate::lines::tests::{Read, read_pieces, reader};
use crate::table::TableDefinition;
use crate::table::tests::table;

/// CSV read the slow and obvious way.
mod naive {
    pub struct Field {
        pub text: Vec<u8>,
        pub quoted: bool,
    }

    pub enum Record {
        Fields(Vec<Field>),
        Bad(String),
    }

    /// Records with the numbers of their lines.
    pub fn records(bytes: &[u8], delimiter: u8, comment: u8) -> Vec<(u64, Record)> {
        let mut records = vec![];
        let (mut at, mut line) = (0, 1);
        while at < bytes.len() {
            let first = line;
            let rest_of_line = |from: usize| {
                bytes[from..]
                    .iter()
                    .position(|b| *b == b'\n')
                    .map_or(bytes.len(), |n| from + n)
            };
            if bytes[at] == comment {
                at = rest_of_line(at) + 1;
                line += 1;
                continue;
            }
            let start = at;
            let mut fields = vec![];
            let mut bad = None;
            let end = loop {
                let mut field = Field {
                    text: vec![],
                    quoted: false,
                };
                if bytes.get(at) == Some(&b'"') {
                    field.quoted = true;
                    at += 1;
                    let mut closed = false;
                    while let Some(&byte) = bytes.get(at) {
                        at += 1;
                        if byte != b'"' {
                            field.text.push(byte);
                        } else if bytes.get(at) == Some(&b'"') {
                            field.text.push(b'"');
                            at += 1;
                        } else {
                            closed = true;
                            break;
                        }
                    }
                    let nth = fields.len() + 1;
                    if !closed {
                        bad = Some(format!("field {nth}: the quote is not closed"));
                        break bytes.len();
                    }
                    let next = (bytes.get(at), bytes.get(at + 1));
                    let is_end = matches!(next, (None, _) | (Some(b'\n'), _));
                    if matches!(next, (Some(b'\r'), None | Some(b'\n'))) {
                        at += 1;
                    } else if !is_end && bytes[at] != delimiter {
                        bad = Some(format!("field {nth}: text after the closing quote"));
                        break rest_of_line(at);
                    }
                } else {
                    while at < bytes.len() && bytes[at] != delimiter && bytes[at] != b'\n' {
                        field.text.push(bytes[at]);
                        at += 1;
                    }
                    if bytes.get(at).is_none_or(|b| *b == b'\n')
                        && field.text.last() == Some(&b'\r')
                    {
                        field.text.pop();
                    }
                }
                fields.push(field);
                if bytes.get(at) == Some(&delimiter) {
                    at += 1;
                    continue;
                }
                break at;
            };
            let text = &bytes[start..end];
            line += text.iter().filter(|b| **b == b'\n').count() as u64 + 1;
            at = end + 1;
            if text.is_empty() || text == b"\r" {
                continue;
            }
            records.push((first, bad.map_or(Record::Fields(fields), Record::Bad)));
        }
        records
    }
}

/// What the reference reads for columns STRING, BIGINT, STRING.
fn expected(bytes: &[u8], projection: &[usize], null: &[u8]) -> Read {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let mut read = Read::default();
    for (line, record) in naive::records(bytes, b',', b'#') {
        let fields = match record {
            naive::Record::Bad(reason) => {
                read.rejected.push(format!("{line}:{reason}"));
                continue;
            }
            naive::Record::Fields(fields) => fields,
        };
        if fields.len() != 3 {
            let are = if fields.len() == 1 { "field" } else { "fields" };
            read.rejected.push(format!(
                "{line}:{} {are} where 3 are declared",
                fields.len()
            ));
            continue;
        }
        let values = projection.iter().map(|&column| {
            let field = &fields[column];
            let text = String::from_utf8_lossy(&field.text).into_owned();
            if !field.quoted && field.text == null {
                return Ok("NULL".to_string());
            }
            if column != 1 {
                return match std::str::from_utf8(&field.text) {
                    Ok(text) => Ok(text.to_string()),
                    Err(_) => Err(format!("column 'c{column}' (STRING): not valid UTF-8")),
                };
            }
            if field.text.is_empty() && null.is_empty() {
                return Ok("NULL".to_string());
            }
            match text
                .trim_matches(|c: char| c.is_ascii_whitespace())
                .parse::<i64>()
            {
                Ok(number) => Ok(number.to_string()),
                Err(_) => {
                    let mut shown = text.chars().take(64).collect::<String>();
                    if shown.len() < text.len() {
                        shown.push('…');
                    }
                    Err(format!("column 'c1' (BIGINT): can't read '{shown}'"))
                }
            }
        });
        match values.collect::<Result<Vec<_>, String>>() {
            Ok(values) => read.rows.push(format!("{line}:{}", values.join("|"))),
            Err(reason) => read.rejected.push(format!("{line}:{reason}")),
        }
    }
    read
}

/// Text that is mostly sensible CSV, with all special characters and invalid UTF-8.
fn csv_text() -> impl Strategy<Value = Vec<u8>> {
    let field = prop_oneof![
        4 => "[a-z]{0,20}",
        4 => "-?[0-9]{0,20}",
        2 => "\"([a-z,\n#]|\"\"|\r\n){0,30}\"",
        1 => "[a-z\" ]{0,9}",
        1 => " ?[0-9]{1,3} ?",
        1 => "NA|\0|é|ééééééé|#",
        1 => ".{0,40}",
    ];
    let end = prop_oneof![6 => Just("\n"), 2 => Just("\r\n"), 1 => Just("\n\n"), 1 => Just("")];
    let record = (proptest::collection::vec(field, 1..5), end)
        .prop_map(|(fields, end)| fields.join(",") + end)
        .prop_map(String::into_bytes);
    let wild = proptest::collection::vec(
        prop_oneof![
            Just(b','),
            Just(b'"'),
            Just(b'\n'),
            Just(b'\r'),
            Just(b'#'),
            Just(0xFF),
            Just(b'7')
        ],
        0..12,
    );
    let part = prop_oneof![9 => record, 1 => wild];
    proptest::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

fn three_columns(null: &str) -> TableDefinition {
    table(
        &[
            ("c0", DataType::Utf8View),
            ("c1", DataType::Int64),
            ("c2", DataType::Utf8View),
        ],
        &[("csv.comment", "#"), ("csv.null", null)],
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn csv_equals_the_naive_reference(
        text in csv_text(),
        projection in proptest::sample::subsequence(vec![0usize, 1, 2], 0..=3),
        pieces in proptest::collection::vec(1usize..200, 1..8),
        block_bytes in 16usize..400,
        rows_max in 1usize..20,
        null in prop_oneof![Just(""), Just("NA"), Just("7")],
    ) {
        let table = three_columns(null);
        let expected = expected(&text, &projection, null.as_bytes());
        let reader = reader(&table, &projection, block_bytes);
        let read = read_pieces(reader, &text, &pieces, rows_max);
        prop_assert_eq!(&read.rows, &expected.rows);
        prop_assert_eq!(&read.rejected, &expected.rejected);
    }
}
