//! `COPY … TO STDOUT`: what is asked for, and rows in the three formats.

use std::ops::Range;

use arrow_array::RecordBatch;
use bytes::{BufMut, BytesMut};

use super::cells::{OutOfRange, with_length, write_binary, write_text};
use super::types::PgType;
use super::words::{Kind, Word, closing};

/// A `COPY`, as a client asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    pub source: Source,
    pub format: Format,
}

/// How the binary format begins: without flags, and without an extension.
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// What is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A query: its place in the text.
    Query(Range<usize>),
    /// A table or view, and the columns that are named: their place in the text.
    Table(Range<usize>, Option<Range<usize>>),
    /// What is copied here instead; the message says that it is not supported.
    Unsupported(&'static str),
}

/// A format, and its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    Text {
        delimiter: char,
        null: String,
        header: bool,
    },
    Csv {
        delimiter: char,
        null: String,
        header: bool,
        quote: char,
    },
    Binary,
}

/// The options, before the format is known.
#[derive(Default)]
struct Options {
    format: Option<String>,
    delimiter: Option<char>,
    null: Option<String>,
    header: bool,
    quote: Option<char>,
}

impl Copy {
    /// `COPY { (query) | name [(columns)] } TO STDOUT [options]`; `None` if it has another form.
    pub fn recognize(words: &[Word<'_>]) -> Option<Copy> {
        let second = words.get(1)?;
        let (source, mut at) = if second.is_sign("(") {
            let close = closing(words, 1)?;
            let query = words.get(2)?.at..words[close - 1].range().end;
            (Source::Query(query), close + 1)
        } else {
            let mut end = 1;
            while words.get(end + 1).is_some_and(|word| word.is_sign(".")) {
                end += 2;
            }
            let name = second.at..words.get(end)?.range().end;
            let columns = words.get(end + 1).filter(|word| word.is_sign("("));
            match columns {
                Some(open) => {
                    let close = closing(words, end + 1)?;
                    let inner = open.range().end..words[close].at;
                    (Source::Table(name, Some(inner)), close + 1)
                }
                None => (Source::Table(name, None), end + 1),
            }
        };
        let source = match (words.get(at)?, words.get(at + 1)?) {
            (to, out) if to.is("to") && out.is("stdout") => source,
            (from, _) if from.is("from") => Source::Unsupported("COPY … FROM is not supported"),
            _ => Source::Unsupported("COPY … TO supports STDOUT only"),
        };
        at += 2;
        let mut options = Options::default();
        let known = options.read(words.get(at..)?);
        let (source, format) = match known.then(|| options.format()).flatten() {
            Some(format) => (source, format),
            None => {
                let message =
                    "this option of COPY is not supported: use FORMAT, DELIMITER, NULL, HEADER";
                (Source::Unsupported(message), Format::Binary)
            }
        };
        Some(Copy { source, format })
    }
}

impl Options {
    /// Both forms: `WITH (FORMAT csv, HEADER true)`, and the old `CSV HEADER DELIMITER ','`. False if there
    /// are others.
    fn read(&mut self, words: &[Word<'_>]) -> bool {
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.name().as_deref() {
                Some("format") => {
                    self.format = words
                        .next()
                        .and_then(|value| value.string().or_else(|| value.name()))
                }
                Some(format @ ("csv" | "binary" | "text")) => self.format = Some(format.to_owned()),
                Some("header") => self.header = true,
                Some("false" | "off") => self.header = false,
                Some("delimiter" | "delimiters") => self.delimiter = one_sign(&mut words),
                Some("quote") => self.quote = one_sign(&mut words),
                Some("null") => self.null = next_text(&mut words),
                // Strings are UTF-8, and a quote in quotes is written twice.
                Some("encoding") => {
                    let name = next_text(&mut words).unwrap_or_default().to_lowercase();
                    if !matches!(name.as_str(), "utf8" | "utf-8") {
                        return false;
                    }
                }
                Some("escape") => {
                    if one_sign(&mut words) != Some(self.quote.unwrap_or('"')) {
                        return false;
                    }
                }
                Some("with" | "true" | "on") => {}
                None if ["(", ")", ",", "1"].contains(&word.text) => {}
                _ => return false,
            }
        }
        true
    }

    fn format(self) -> Option<Format> {
        let header = self.header;
        match self.format.as_deref() {
            None | Some("text") => Some(Format::Text {
                delimiter: self.delimiter.unwrap_or('\t'),
                null: self.null.unwrap_or_else(|| "\\N".to_owned()),
                header,
            }),
            Some("csv") => Some(Format::Csv {
                delimiter: self.delimiter.unwrap_or(','),
                null: self.null.unwrap_or_default(),
                header,
                quote: self.quote.unwrap_or('"'),
            }),
            Some("binary") => Some(Format::Binary),
            Some(_) => None,
        }
    }
}

/// The string that follows, with an `AS` before it perhaps.
fn next_text<'a, 'b: 'a>(words: &mut impl Iterator<Item = &'a Word<'b>>) -> Option<String> {
    let word = words.find(|word| !word.is("as"))?;
    (word.kind == Kind::Text).then(|| word.string())?
}

fn one_sign<'a, 'b: 'a>(words: &mut impl Iterator<Item = &'a Word<'b>>) -> Option<char> {
    next_text(words)?.chars().next()
}

impl Format {
    pub fn is_binary(&self) -> bool {
        matches!(self, Format::Binary)
    }

    /// What comes before the rows: a line with the names.
    pub fn begin(&self, columns: &[(String, PgType)], out: &mut BytesMut) {
        let mut line = String::new();
        match self {
            // The signature comes with the first row: some clients expect it there.
            Format::Binary
            | Format::Text { header: false, .. }
            | Format::Csv { header: false, .. } => return,
            Format::Text { delimiter, .. } => {
                for (at, (name, _)) in columns.iter().enumerate() {
                    line.extend((at > 0).then_some(*delimiter));
                    escape(name, *delimiter, &mut line);
                }
            }
            Format::Csv {
                delimiter,
                quote,
                null,
                ..
            } => {
                for (at, (name, _)) in columns.iter().enumerate() {
                    line.extend((at > 0).then_some(*delimiter));
                    put_csv(name, *delimiter, *quote, null, &mut line);
                }
            }
        }
        line.push('\n');
        data(out, |out| out.put_slice(line.as_bytes()));
    }

    /// A row, and whether it is the first.
    ///
    /// # Errors
    ///
    /// If a value has no binary form.
    pub fn row(
        &self,
        batch: &RecordBatch,
        row: usize,
        columns: &[(String, PgType)],
        is_first: bool,
        out: &mut BytesMut,
    ) -> Result<(), OutOfRange> {
        if let Format::Binary = self {
            let mut bytes = Vec::new();
            bytes.extend_from_slice(if is_first { SIGNATURE } else { b"" });
            bytes.extend((columns.len() as u16).to_be_bytes());
            for (column, (_, kind)) in batch.columns().iter().zip(columns) {
                with_length(&mut bytes, |out| write_binary(column, row, *kind, out))?;
            }
            data(out, |out| out.put_slice(&bytes));
            return Ok(());
        }
        let (mut line, mut text) = (String::new(), String::new());
        for (at, column) in batch.columns().iter().enumerate() {
            text.clear();
            let valid = write_text(column, row, &mut text);
            match self {
                Format::Text {
                    delimiter, null, ..
                } => {
                    line.extend((at > 0).then_some(*delimiter));
                    match valid {
                        true => escape(&text, *delimiter, &mut line),
                        false => line.push_str(null),
                    }
                }
                Format::Csv {
                    delimiter,
                    null,
                    quote,
                    ..
                } => {
                    line.extend((at > 0).then_some(*delimiter));
                    match valid {
                        true => put_csv(&text, *delimiter, *quote, null, &mut line),
                        false => line.push_str(null),
                    }
                }
                Format::Binary => {}
            }
        }
        line.push('\n');
        data(out, |out| out.put_slice(line.as_bytes()));
        Ok(())
    }

    /// What comes after so many rows.
    pub fn end(&self, rows: usize, out: &mut BytesMut) {
        if self.is_binary() {
            data(out, |out| {
                out.put_slice(if rows == 0 { SIGNATURE } else { b"" });
                out.put_i16(-1);
            });
        }
    }
}

fn data(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    out.put_u8(b'd');
    let start = out.len();
    out.put_i32(0);
    write(out);
    super::message::end(out, start);
}

fn escape(text: &str, delimiter: char, line: &mut String) {
    for character in text.chars() {
        match character {
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            other => {
                line.extend((other == delimiter).then_some('\\'));
                line.push(other);
            }
        }
    }
}

fn put_csv(text: &str, delimiter: char, quote: char, null: &str, line: &mut String) {
    let special = |character: char| {
        character == delimiter || character == quote || matches!(character, '\n' | '\r')
    };
    if text != null && !text.contains(special) {
        line.push_str(text);
        return;
    }
    line.push(quote);
    for character in text.chars() {
        line.extend((character == quote).then_some(quote));
        line.push(character);
    }
    line.push(quote);
}

#[cfg(test)]
mod tests {
    use super::super::words::words;
    use super::*;

    fn of(text: &str) -> Option<Copy> {
        Copy::recognize(&words(text))
    }

    #[test]
    fn the_forms_of_clients_are_recognized() {
        let text = "COPY (SELECT a, (b) FROM v) TO STDOUT (FORMAT binary)";
        let Some(Copy {
            source: Source::Query(query),
            format,
        }) = of(text)
        else {
            panic!("not recognized")
        };
        assert_eq!(
            (&text[query], format),
            ("SELECT a, (b) FROM v", Format::Binary)
        );
        let csv = |delimiter, header| Format::Csv {
            delimiter,
            null: String::new(),
            header,
            quote: '"',
        };
        let format = |text| of(text).unwrap().format;
        assert_eq!(
            format("COPY v TO STDOUT WITH (FORMAT csv, HEADER, DELIMITER ';')"),
            csv(';', true)
        );
        assert_eq!(format("COPY v TO STDOUT CSV HEADER"), csv(',', true));
        assert_eq!(
            format("COPY a.v (x, y) TO STDOUT (HEADER false, FORMAT 'csv')"),
            csv(',', false)
        );
        let refused = of("COPY v FROM STDIN").unwrap().source;
        assert_eq!(refused, Source::Unsupported("COPY … FROM is not supported"));
        assert_eq!(of("COPY v"), None);
        let refused = of("COPY v TO STDOUT (FORMAT csv, FORCE_QUOTE *)")
            .unwrap()
            .source;
        assert!(matches!(refused, Source::Unsupported(message) if message.contains("option")));
    }

    #[test]
    fn lines_are_escaped() {
        let mut line = String::new();
        escape("a\tb\\\n", '\t', &mut line);
        assert_eq!(line, "a\\tb\\\\\\n");
        let mut line = String::new();
        put_csv("a\"b,c", ',', '"', "", &mut line);
        put_csv("", ',', '"', "", &mut line);
        put_csv("x", ',', '"', "", &mut line);
        assert_eq!(line, "\"a\"\"b,c\"\"\"x");
    }
}
