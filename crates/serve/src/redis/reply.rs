//! Replies, and how they are written in RESP2 and RESP3.

use std::io::Write;
use std::sync::Arc;

use super::table::Row;

/// Which form of the protocol a client has asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Version {
    /// Without maps and NULL.
    #[default]
    Two,
    /// With them.
    Three,
}

/// A reply. What it holds of a row is found, and not written yet: that is the handler's work.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    /// `+OK`
    Simple(&'static str),
    /// `-ERR …`
    Error(String),
    Integer(i64),
    Bytes(Arc<[u8]>),
    Null,
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    /// All columns of a row.
    Columns(Row),
    /// A row as one string: its only column that is not in the key, or JSON.
    Whole(Row),
    /// Columns of a row; `None` for one that it does not have.
    Some(Row, Vec<Option<usize>>),
    /// The names or the values of a row's columns.
    Names(Row),
    Values(Row),
}

impl Reply {
    /// A string.
    pub fn text(text: &str) -> Reply {
        Reply::Bytes(text.as_bytes().into())
    }

    /// Writes it.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) {
        match self {
            Reply::Simple(text) => line(out, b'+', text.as_bytes()),
            Reply::Error(text) => {
                // A line: what a client sent may hold the end of one.
                let text = text.replace(['\r', '\n'], " ");
                line(out, b'-', text.as_bytes());
            }
            Reply::Integer(number) => number_line(out, b':', *number),
            Reply::Bytes(bytes) => string(out, bytes),
            Reply::Null => null(out, version),
            Reply::Array(replies) => {
                number_line(out, b'*', replies.len() as i64);
                for reply in replies {
                    reply.encode(version, out);
                }
            }
            Reply::Map(pairs) => {
                map(out, version, pairs.len());
                for (name, value) in pairs {
                    name.encode(version, out);
                    value.encode(version, out);
                }
            }
            Reply::Columns(row) => {
                // As Redis' hashes, which have no NULL: such a column is not there.
                let present = row.values.iter().filter(|value| value.is_some()).count();
                map(out, version, present);
                for (column, value) in row.schema.columns.iter().zip(row.values.iter()) {
                    if let Some(value) = value {
                        string(out, column.name.as_bytes());
                        string(out, value);
                    }
                }
            }
            Reply::Whole(row) => match row.schema.value() {
                Some(column) => optional(out, version, row.values[column].as_deref()),
                None => string(out, &json(row)),
            },
            Reply::Some(row, columns) => {
                number_line(out, b'*', columns.len() as i64);
                for column in columns {
                    let value = column.and_then(|column| row.values[column].as_deref());
                    optional(out, version, value);
                }
            }
            Reply::Names(row) => {
                let names = row.schema.columns.iter().zip(row.values.iter());
                let names = names.filter(|(_, value)| value.is_some());
                let names = names.map(|(column, _)| column.name.as_bytes());
                strings(out, names.collect());
            }
            Reply::Values(row) => {
                let values = row.values.iter().flatten().map(|value| &**value);
                strings(out, values.collect());
            }
        }
    }
}

fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn number_line(out: &mut Vec<u8>, kind: u8, number: i64) {
    out.push(kind);
    // Memory takes everything.
    let _ = write!(out, "{number}\r\n");
}

fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    number_line(out, b'$', bytes.len() as i64);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn strings(out: &mut Vec<u8>, all: Vec<&[u8]>) {
    number_line(out, b'*', all.len() as i64);
    for bytes in all {
        string(out, bytes);
    }
}

fn null(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(match version {
        Version::Two => b"$-1\r\n",
        Version::Three => b"_\r\n",
    });
}

fn optional(out: &mut Vec<u8>, version: Version, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => string(out, bytes),
        None => null(out, version),
    }
}

fn map(out: &mut Vec<u8>, version: Version, pairs: usize) {
    match version {
        Version::Two => number_line(out, b'*', 2 * pairs as i64),
        Version::Three => number_line(out, b'%', pairs as i64),
    }
}

/// About how many bytes of JSON a column takes beside its value.
const JSON_MARKS: usize = 16;

/// A row as an object of JSON.
fn json(row: &Row) -> Vec<u8> {
    let bytes = row
        .values
        .iter()
        .flatten()
        .map(|value| value.len() + JSON_MARKS);
    let mut out = Vec::with_capacity(bytes.sum::<usize>() + JSON_MARKS);
    out.push(b'{');
    for (column, value) in row.schema.columns.iter().zip(row.values.iter()) {
        if out.len() > 1 {
            out.push(b',');
        }
        quoted(&mut out, column.name.as_bytes());
        out.push(b':');
        match value {
            None => out.extend_from_slice(b"null"),
            Some(value) if column.is_plain && is_json(value) => out.extend_from_slice(value),
            Some(value) => quoted(&mut out, value),
        }
    }
    out.push(b'}');
    out
}

/// Whether a number is one of JSON, which has no NaN and no infinity.
fn is_json(value: &[u8]) -> bool {
    matches!(value, b"true" | b"false") || value.iter().any(u8::is_ascii_digit)
}

fn quoted(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    let mut rest = text;
    // What needs no escape is copied as a whole.
    while let Some(at) = rest
        .iter()
        .position(|byte| matches!(byte, b'"' | b'\\' | 0..b' '))
    {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            byte @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            // Memory takes everything.
            byte => drop(write!(out, "\\u{byte:04x}")),
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::super::table::{Column, TableSchema};
    use super::*;

    fn row(values: &[Option<&str>]) -> Row {
        let columns = [("ip", false), ("visits", true), ("said", false)];
        let columns = columns.map(|(name, is_plain)| Column {
            name: name.into(),
            is_plain,
        });
        Row {
            schema: Arc::new(TableSchema {
                name: "totals".into(),
                columns: columns[..values.len()].to_vec(),
                key: vec![0],
            }),
            values: values
                .iter()
                .map(|value| value.map(|value| value.as_bytes().into()))
                .collect(),
        }
    }

    fn encoded(reply: &Reply, version: Version) -> String {
        let mut out = Vec::new();
        reply.encode(version, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rows_are_maps_or_flat_arrays_and_null_is_left_out() {
        let reply = Reply::Columns(row(&[Some("a"), Some("7"), None]));
        let fields = "$2\r\nip\r\n$1\r\na\r\n$6\r\nvisits\r\n$1\r\n7\r\n";
        assert_eq!(encoded(&reply, Version::Two), format!("*4\r\n{fields}"));
        assert_eq!(encoded(&reply, Version::Three), format!("%2\r\n{fields}"));
    }

    #[test]
    fn a_whole_row_is_its_only_value_or_json() {
        let one = Reply::Whole(row(&[Some("a"), Some("7")]));
        assert_eq!(encoded(&one, Version::Two), "$1\r\n7\r\n");
        let none = Reply::Whole(row(&[Some("a"), None]));
        assert_eq!(encoded(&none, Version::Two), "$-1\r\n");
        assert_eq!(encoded(&none, Version::Three), "_\r\n");
        let all = Reply::Whole(row(&[Some("a"), Some("-7.5"), Some("\"x\"\n\u{1}\\")]));
        let expected = r#"{"ip":"a","visits":-7.5,"said":"\"x\"\n\u0001\\"}"#;
        assert_eq!(
            encoded(&all, Version::Two),
            format!("${}\r\n{expected}\r\n", expected.len())
        );
        let odd = Reply::Whole(row(&[Some("a"), Some("NaN"), None]));
        assert!(encoded(&odd, Version::Two).contains(r#""visits":"NaN","said":null"#));
    }

    #[test]
    fn an_error_is_one_line() {
        let error = Reply::Error("ERR unknown command 'a\r\n+OK'".to_owned());
        assert_eq!(
            encoded(&error, Version::Two),
            "-ERR unknown command 'a  +OK'\r\n"
        );
    }
}
