//! Lines that a regular expression splits: its named groups are columns.
//!
//! The expression may match anywhere in a line. A line that it does not match is a bad record.

use arrow_schema::{DataType, Schema};
use regex::bytes::{CaptureLocations, Regex, RegexBuilder};

use super::cells::Span;
use super::progress::{Progress, Stop, each_line};
use super::types;
use crate::options::{OptionError, Options, nearest};

/// The most memory of a compiled expression: repetitions such as `(\w{100}){100}` multiply.
const PROGRAM_BYTES_MAX: usize = 10 * 1024 * 1024;

/// The most memory of the automaton that is built while lines are read, for each partition.
const CACHE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// A table's expression, and which of its groups each column is.
#[derive(Debug, Clone)]
pub(crate) struct RegexOptions {
    regex: Regex,
    groups: Vec<usize>,
    /// The columns of type STRING: an empty match is the empty string in these, and NULL in others.
    is_text: Vec<bool>,
}

impl PartialEq for RegexOptions {
    fn eq(&self, other: &RegexOptions) -> bool {
        self.regex.as_str() == other.regex.as_str() && self.groups == other.groups
    }
}

impl Eq for RegexOptions {}

impl RegexOptions {
    pub(crate) fn read(
        options: &Options<'_>,
        schema: &Schema,
    ) -> Result<RegexOptions, OptionError> {
        types::check_scalar(schema, "regex")?;
        let pattern = options.required("regex.pattern", r"(?<ip>\S+) (?<rest>.*)")?;
        let regex = compile(pattern)?;
        let groups = schema
            .fields()
            .iter()
            .map(|field| group(&regex, field.name()));
        let is_text = schema.fields().iter();
        Ok(RegexOptions {
            groups: groups.collect::<Result<Vec<usize>, OptionError>>()?,
            is_text: is_text
                .map(|field| field.data_type() == &DataType::Utf8View)
                .collect(),
            regex,
        })
    }
}

fn compile(pattern: &str) -> Result<Regex, OptionError> {
    let built = RegexBuilder::new(pattern)
        .size_limit(PROGRAM_BYTES_MAX)
        .dfa_size_limit(CACHE_BYTES_MAX)
        .build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(bytes) => OptionError::new(
            "regex.pattern",
            format!("takes more than {} MiB", bytes >> 20),
            "write smaller repetitions",
        ),
        error => wrong(pattern, &error),
    })
}

/// Why an expression is invalid, and where.
fn wrong(pattern: &str, error: &regex::Error) -> OptionError {
    let mut parser = regex_syntax::ParserBuilder::new().utf8(false).build();
    let (reason, span) = match parser.parse(pattern) {
        Err(regex_syntax::Error::Parse(error)) => (error.kind().to_string(), *error.span()),
        Err(regex_syntax::Error::Translate(error)) => (error.kind().to_string(), *error.span()),
        // The parser itself accepts the expression.
        _ => {
            let reason = error.to_string();
            let hint = "see https://docs.rs/regex for what an expression is";
            return OptionError::new("regex.pattern", reason, hint);
        }
    };
    let (start, end) = (span.start.offset, span.end.offset);
    let place = pattern[..start].chars().count() + 1;
    let text = &pattern[start..end];
    let hint = if pattern[start..].starts_with("(?=")
        || pattern[start..].starts_with("(?!")
        || pattern[start..].starts_with("(?<=")
        || pattern[start..].starts_with("(?<!")
    {
        "lines are read in one pass: an expression can't look ahead or behind"
    } else {
        "a backslash makes a special character an ordinary one; a quote of SQL is written twice"
    };
    let shown = if text.is_empty() {
        format!("at character {place}: {reason}")
    } else {
        format!("at character {place}, '{text}': {reason}")
    };
    OptionError::new("regex.pattern", shown, hint)
}

/// The group of a column.
fn group(regex: &Regex, name: &str) -> Result<usize, OptionError> {
    let found = regex.capture_names().position(|group| group == Some(name));
    if let Some(found) = found {
        return Ok(found);
    }
    let groups = regex.capture_names().flatten().collect::<Vec<&str>>();
    let hint = match nearest(name, &groups) {
        Some(near) => format!("did you mean '{near}'?"),
        None if groups.is_empty() => format!("write (?<{name}>…) around the column's value"),
        None => format!("its groups are {}", groups.join(", ")),
    };
    let reason = format!("has no group named as column '{name}'");
    Err(OptionError::new("regex.pattern", reason, hint))
}

/// Finds the groups that are read.
#[derive(Debug)]
pub(crate) struct RegexScanner {
    regex: Regex,
    /// The group of each column that is read, and whether it is text.
    read: Vec<(usize, bool)>,
    places: CaptureLocations,
}

impl RegexScanner {
    pub(crate) fn new(options: &RegexOptions, projection: &[usize]) -> RegexScanner {
        let read = projection.iter();
        // Each partition has its own cache: otherwise they would wait for each other.
        let regex = options.regex.clone();
        RegexScanner {
            read: read
                .map(|&column| (options.groups[column], options.is_text[column]))
                .collect(),
            places: regex.capture_locations(),
            regex,
        }
    }

    pub(crate) fn scan(
        &mut self,
        block: &[u8],
        from: usize,
        last: bool,
        progress: &mut Progress,
    ) -> (usize, Stop) {
        each_line(block, from, last, progress, |progress, start, end| {
            let line = &block[start..end];
            let is_match = match self.read.is_empty() {
                true => self.regex.is_match(line),
                false => self.regex.captures_read(&mut self.places, line).is_some(),
            };
            if !is_match {
                progress.reject(line, "the line does not match regex.pattern");
                return;
            }
            for &(group, is_text) in &self.read {
                let span = match self.places.get(group) {
                    Some((from, to)) if is_text || from < to => Span::new(start + from, start + to),
                    _ => Span::NULL,
                };
                progress.records.spans.push(span);
            }
            progress.accept(start, end);
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::TimeUnit;
    use proptest::prelude::*;

    use super::*;
    use crate::format::Format;
    use crate::lines::tests::{Read, read_pieces, reader};
    use crate::table::TableDefinition;
    use crate::table::tests::table;

    const PATTERN: &str = r"^(?<who>\w*) (?<n>-?\d*)(?: at (?<ts>\S+))?$";

    fn visits(pattern: &str) -> TableDefinition {
        let columns = [
            ("n", DataType::Int32),
            ("who", DataType::Utf8View),
            ("ts", DataType::Timestamp(TimeUnit::Millisecond, None)),
        ];
        table(&columns, &[("format", "regex"), ("regex.pattern", pattern)])
    }

    fn error(pattern: &str) -> String {
        let table = visits(pattern);
        let read = Format::of_source(&Options::new(&table.options), &table.schema);
        read.unwrap_err().to_string()
    }

    fn read(text: &str, projection: &[usize]) -> Read {
        read_pieces(
            reader(&visits(PATTERN), projection, 100),
            text.as_bytes(),
            &[7],
            3,
        )
    }

    #[test]
    fn groups_are_columns_by_name() {
        let text = "anna 3 at 2024-02-29T10:00:00Z\r\n\nbob \n 7\nno\nc 99999999999\nd 1 at noon\n";
        let read = read(text, &[0, 1, 2]);
        let rows = [
            "1:3|anna|2024-02-29T10:00:00",
            "3:NULL|bob|NULL",
            "4:7||NULL",
        ];
        assert_eq!(read.rows, rows);
        let refused = [
            "5:the line does not match regex.pattern",
            "6:column 'n' (INT): can't read '99999999999'",
            "7:column 'ts' (TIMESTAMP(3)): can't read 'noon'",
        ];
        assert_eq!(read.rejected, refused);
        assert_eq!(read.records[0], "no");
    }

    #[test]
    fn a_line_must_match_even_if_no_column_is_read() {
        let read = read("a 1\n-\nb x\nc 2", &[]);
        assert_eq!(read.rows, ["1:", "4:"]);
        assert_eq!(read.rejected.len(), 2);
    }

    #[test]
    fn errors_in_expressions_have_their_place() {
        assert_eq!(
            error(r"é(?<n>\d+"),
            "option 'regex.pattern': at character 2, '(': unclosed group (a backslash makes a special \
             character an ordinary one; a quote of SQL is written twice)"
        );
        assert!(error(r"(?<n>\d+)(?=x)").contains("at character 10, '(?=': look-around"));
        assert!(error(r"(?<n>\d+)(?=x)").contains("can't look ahead"));
        assert!(
            error(r"(?<n>[z-a])").contains("at character 7, 'z-a': invalid character class range")
        );
        assert!(error(r"(?<n>\d)(?<n>\d)").contains("duplicate capture group name"));
        assert!(error(r"(?<n>(\w{200}){200})").contains("takes more than 10 MiB"));
        assert!(
            error(r"(?<n>\d+) (?<whom>\w+)")
                .contains("no group named as column 'who' (did you mean 'whom'?)")
        );
        assert!(error(r"x").contains("write (?<n>…) around"));
        let none = table(&[("n", DataType::Int32)], &[("format", "regex")]);
        let error = Format::of_source(&Options::new(&none.options), &none.schema).unwrap_err();
        assert!(
            error.to_string().contains("'regex.pattern': is missing"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn equals_a_reader_that_reads_line_by_line(
            lines in proptest::collection::vec("[ab]{0,2} ?[0-9x]{0,3}", 0..30),
            block_bytes in 8usize..100,
            piece in 1usize..60,
        ) {
            let text = lines.join("\n");
            let mut expected = Read::default();
            for (line, text) in lines.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
                let position = line + 1;
                let split = text.split_once(' ').filter(|(_, n)| n.bytes().all(|b| b.is_ascii_digit()));
                match split {
                    Some((who, n)) => {
                        let n = n.parse::<i32>().map_or("NULL".into(), |n| n.to_string());
                        expected.rows.push(format!("{position}:{n}|{who}"));
                    }
                    None => {
                        expected.rejected.push(format!("{position}:the line does not match regex.pattern"));
                        expected.records.push(text.clone());
                    }
                }
            }
            let reader = reader(&visits(PATTERN), &[0, 1], block_bytes);
            prop_assert_eq!(read_pieces(reader, text.as_bytes(), &[piece], 4), expected);
        }

        #[test]
        fn never_panics(pattern in "\\PC{0,20}") {
            let _ = compile(&pattern);
        }
    }
}
