//! CSV records with quotes in them, field by field.
//!
//! A field that begins with a double quote ends at the next one that is not doubled, and may contain
//! delimiters and line ends. A quote within an unquoted field is an ordinary character.

use memchr::{memchr, memchr_iter, memchr2};

use super::cells::Span;
use super::csv_scan::{CsvScanner, QuotedEnd};
use super::progress::{Progress, RECORD_BYTES_MAX, without_return};

/// A field as it was found.
struct Found {
    span: Span,
    /// Doubled quotes must be replaced by single ones.
    escaped: Option<(usize, usize)>,
    /// The place of the delimiter or line end after the field; `None`: the record ends with the block.
    stop: Option<usize>,
}

enum Field {
    Found(Found),
    Incomplete,
    /// The field can't be read; the record ends at the line end after this place.
    Bad(usize, &'static str),
}

impl CsvScanner {
    /// Takes the record that begins at `start`.
    #[cold]
    #[inline(never)]
    pub(super) fn quoted_record(
        &mut self,
        block: &[u8],
        start: usize,
        last: bool,
        progress: &mut Progress,
    ) -> QuotedEnd {
        if self.comment == Some(block[start]) {
            return match line_end(block, start, last) {
                None => QuotedEnd::Incomplete,
                Some((_, next)) => {
                    progress.line += 1;
                    QuotedEnd::Next(next)
                }
            };
        }
        let spans_before = progress.records.spans.len();
        let aside_before = progress.records.aside.len();
        let mut read = self.projection.iter().copied().peekable();
        let mut fields = 0;
        let mut at = start;
        let mut bad = None;
        let (newline, next) = loop {
            let found = match self.field(block, at, last) {
                Field::Found(found) => found,
                Field::Incomplete => {
                    progress.records.spans.truncate(spans_before);
                    progress.records.aside.truncate(aside_before);
                    return QuotedEnd::Incomplete;
                }
                Field::Bad(from, reason) => match line_end(block, from, last) {
                    None => {
                        progress.records.spans.truncate(spans_before);
                        progress.records.aside.truncate(aside_before);
                        return QuotedEnd::Incomplete;
                    }
                    Some(end) => {
                        bad = Some(format!("field {}: {reason}", fields + 1));
                        break end;
                    }
                },
            };
            if read.next_if_eq(&fields).is_some() {
                let span = match found.escaped {
                    None => found.span,
                    Some((from, to)) => unescape(&block[from..to], &mut progress.records.aside),
                };
                progress.records.spans.push(span);
            }
            fields += 1;
            match found.stop {
                Some(stop) if block[stop] == self.delimiter => at = stop + 1,
                Some(stop) => break (stop, stop + 1),
                None => break (block.len(), block.len()),
            }
        };
        if newline - start > RECORD_BYTES_MAX {
            progress.records.spans.truncate(spans_before);
            progress.records.aside.truncate(aside_before);
            return QuotedEnd::TooLong;
        }
        let end = without_return(block, start, newline);
        let record = &block[start..end];
        if bad.is_some() || fields != self.fields || self.header_pending {
            progress.records.spans.truncate(spans_before);
            progress.records.aside.truncate(aside_before);
            match bad {
                Some(reason) if !self.header_pending => progress.reject(record, reason),
                _ => self.no_row(record, fields, progress),
            }
        } else {
            progress.accept(start, end);
        }
        progress.line += memchr_iter(b'\n', record).count() as u64 + 1;
        QuotedEnd::Next(next)
    }

    fn field(&self, block: &[u8], at: usize, last: bool) -> Field {
        if block.get(at) == Some(&b'"') {
            return self.quoted_field(block, at, last);
        }
        match memchr2(self.delimiter, b'\n', &block[at..]) {
            Some(length) => {
                let stop = at + length;
                let mut end = stop;
                if block[stop] == b'\n' {
                    end = without_return(block, at, stop);
                }
                Field::Found(Found {
                    span: Span::new(at, end),
                    escaped: None,
                    stop: Some(stop),
                })
            }
            None if last => {
                let end = without_return(block, at, block.len());
                Field::Found(Found {
                    span: Span::new(at, end),
                    escaped: None,
                    stop: None,
                })
            }
            None => Field::Incomplete,
        }
    }

    fn quoted_field(&self, block: &[u8], at: usize, last: bool) -> Field {
        let content = at + 1;
        let mut from = content;
        let mut has_doubled = false;
        let closing = loop {
            let Some(length) = memchr(b'"', &block[from..]) else {
                if last {
                    return Field::Bad(block.len(), "the quote is not closed");
                }
                return Field::Incomplete;
            };
            let quote = from + length;
            match block.get(quote + 1) {
                Some(b'"') => {
                    has_doubled = true;
                    from = quote + 2;
                }
                None if !last => return Field::Incomplete,
                _ => break quote,
            }
        };
        let behind = closing + 1;
        let stop = match (block.get(behind), block.get(behind + 1)) {
            (Some(&byte), _) if byte == self.delimiter || byte == b'\n' => Some(behind),
            (Some(b'\r'), Some(b'\n')) => Some(behind + 1),
            (Some(b'\r'), None) if !last => return Field::Incomplete,
            (Some(b'\r'), None) | (None, _) => None,
            _ => return Field::Bad(behind, "text after the closing quote"),
        };
        if closing - content > RECORD_BYTES_MAX {
            // The caller finds the record too long; the span is never read.
            return Field::Found(Found {
                span: Span::NULL,
                escaped: None,
                stop,
            });
        }
        Field::Found(Found {
            span: Span::new(content, closing).quoted(),
            escaped: has_doubled.then_some((content, closing)),
            stop,
        })
    }
}

/// The end of the line that `from` is in, and the beginning of the next one.
fn line_end(block: &[u8], from: usize, last: bool) -> Option<(usize, usize)> {
    match memchr(b'\n', &block[from..]) {
        Some(length) => Some((from + length, from + length + 1)),
        None if last => Some((block.len(), block.len())),
        None => None,
    }
}

/// Copies the field to the side buffer, with each doubled quote as one.
fn unescape(field: &[u8], aside: &mut Vec<u8>) -> Span {
    let start = aside.len();
    let mut from = 0;
    while let Some(length) = memchr(b'"', &field[from..]) {
        aside.extend_from_slice(&field[from..=from + length]);
        from += length + 2;
    }
    aside.extend_from_slice(&field[from..]);
    Span::new(start, aside.len()).quoted().aside()
}
