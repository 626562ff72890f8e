//! The names of the fields in a partition's records, for messages about columns without a field.
//!
//! Only a few records are inspected: the header of CSV, and of JSON the first record of a block.

use std::sync::Arc;

use serde_json::Value;
use slackwater_engine::source::Tuning;

use super::Kind;
use super::progress::Progress;

/// In how many blocks the first record is inspected: enough to see most names of producers that omit NULLs.
const BLOCKS_LOOKED_AT: usize = 16;

/// The maximum nesting of names.
const DEPTH_MAX: usize = 4;

/// Collects the field names of a few records.
#[derive(Debug)]
pub(super) struct FieldNames {
    tuning: Arc<Tuning>,
    /// The delimiter of CSV; `None` for other formats.
    delimiter: Option<u8>,
    /// Blocks that are still to be inspected.
    left: usize,
}

impl FieldNames {
    /// For a format whose records have names; `None` for others.
    pub(super) fn of(kind: &Kind, tuning: &Arc<Tuning>) -> Option<FieldNames> {
        let (delimiter, left) = match kind {
            Kind::Csv(scanner) if scanner.header_pending => (Some(scanner.delimiter), usize::MAX),
            Kind::Json(_) => (None, BLOCKS_LOOKED_AT),
            _ => return None,
        };
        Some(FieldNames {
            tuning: Arc::clone(tuning),
            delimiter,
            left,
        })
    }

    /// Inspects the bytes that were read of a block; returns whether another block is wanted.
    pub(super) fn look(&mut self, block: &[u8], progress: &mut Progress) -> bool {
        if let Some(delimiter) = self.delimiter {
            let Some(header) = progress.header.take() else {
                return true;
            };
            self.tuning.note_fields(of_header(&header, delimiter));
            return false;
        }
        let Some(&(start, end)) = progress.records.bounds.first() else {
            return true;
        };
        let record = block.get(start as usize..end as usize).unwrap_or_default();
        if let Ok(record) = serde_json::from_slice::<Value>(record) {
            let mut names = Vec::new();
            of_object(&record, "", DEPTH_MAX, &mut names);
            self.tuning.note_fields(names);
        }
        self.left -= 1;
        self.left > 0
    }
}

/// The names in a header.
fn of_header(header: &[u8], delimiter: u8) -> Vec<String> {
    let names = header.split(|byte| *byte == delimiter);
    let names = names.map(|name| {
        String::from_utf8_lossy(name)
            .trim()
            .trim_matches('"')
            .to_string()
    });
    names.collect()
}

/// The names of an object's fields, and of those of the objects in it: `e.price`.
fn of_object(object: &Value, path: &str, depth: usize, names: &mut Vec<String>) {
    let Value::Object(fields) = object else {
        return;
    };
    for (name, value) in fields {
        let path = match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        if depth > 1 {
            of_object(value, &path, depth - 1, names);
        }
        names.push(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_record_with_their_path() {
        let mut names = Vec::new();
        let record =
            serde_json::json!({"userid": 1, "e": {"Price": 2, "deep": {"er": [{"x": 1}]}}});
        of_object(&record, "", DEPTH_MAX, &mut names);
        names.sort();
        assert_eq!(names, ["e", "e.Price", "e.deep", "e.deep.er", "userid"]);
        assert_eq!(of_header(b"a;\"b c\"; d", b';'), ["a", "b c", "d"]);
    }
}
