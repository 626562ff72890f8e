//! The combined log format of web servers (Apache, nginx):
//! `ip identity user [time] "request" status bytes "referer" "user agent"`.
//!
//! A line is only read as far as the query's columns need it, so a malformed user agent rejects its row only
//! if the user agent is read.

use arrow_schema::{DataType, Schema};
use memchr::{memchr, memchr2, memmem};

use super::cells::Span;
use super::progress::{Progress, Stop, each_line};
use super::types::sql_type_name;
use crate::options::OptionError;

/// A part of a line, in the order in which they stand there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Ip,
    Identity,
    UserName,
    Time,
    Request,
    Method,
    Path,
    Protocol,
    Status,
    Bytes,
    Referer,
    UserAgent,
}

const PARTS: &[(&str, Part)] = &[
    ("ip", Part::Ip),
    ("identity", Part::Identity),
    ("user_name", Part::UserName),
    ("user", Part::UserName),
    ("time", Part::Time),
    ("request", Part::Request),
    ("method", Part::Method),
    ("path", Part::Path),
    ("protocol", Part::Protocol),
    ("status", Part::Status),
    ("bytes", Part::Bytes),
    ("size", Part::Bytes),
    ("referer", Part::Referer),
    ("user_agent", Part::UserAgent),
    ("agent", Part::UserAgent),
];

/// Which part each declared column is.
pub(crate) fn parts(schema: &Schema) -> Result<Vec<Part>, OptionError> {
    schema
        .fields()
        .iter()
        .map(|field| part_of(field.name(), field.data_type()))
        .collect()
}

fn part_of(name: &str, data_type: &DataType) -> Result<Part, OptionError> {
    let Some((_, part)) = PARTS
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
    else {
        let known = PARTS.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let mut hint = format!("its columns are {}", known.join(", "));
        if let Some(near) = crate::options::nearest(name, &known) {
            hint = format!("did you mean '{near}'? {hint}");
        }
        let reason = format!("column '{name}' is not part of format combined_log");
        return Err(OptionError::table(reason, hint));
    };
    let (fits, wanted) = match part {
        Part::Time => (
            matches!(data_type, DataType::Timestamp(_, None)),
            "TIMESTAMP(3)",
        ),
        Part::Status => (data_type.is_integer(), "INT"),
        Part::Bytes => (data_type.is_integer(), "BIGINT"),
        _ => (data_type == &DataType::Utf8View, "STRING"),
    };
    if fits || data_type == &DataType::Utf8View {
        return Ok(*part);
    }
    let reason = format!(
        "column '{name}' of format combined_log can't be {}",
        sql_type_name(data_type)
    );
    Err(OptionError::table(
        reason,
        format!("declare it as {wanted}"),
    ))
}

/// Finds the parts that are read.
#[derive(Debug)]
pub(crate) struct LogScanner {
    /// The part of each column that is read.
    read: Vec<Part>,
    /// Nothing after this part is read.
    furthest: Option<Part>,
}

impl LogScanner {
    pub(crate) fn new(read: Vec<Part>) -> LogScanner {
        LogScanner {
            furthest: read.iter().copied().max(),
            read,
        }
    }

    pub(crate) fn scan(
        &mut self,
        block: &[u8],
        from: usize,
        last: bool,
        progress: &mut Progress,
    ) -> (usize, Stop) {
        each_line(
            block,
            from,
            last,
            progress,
            |progress, start, end| match self.line(block, start, end) {
                Ok(line) => {
                    let spans = self.read.iter().map(|part| line.spans[*part as usize]);
                    progress.records.spans.extend(spans);
                    progress.accept(start, end);
                }
                Err(reason) => progress.reject(&block[start..end], reason),
            },
        )
    }

    fn line(&self, block: &[u8], start: usize, end: usize) -> Result<Line, String> {
        let mut line = Line {
            spans: [Span::NULL; Part::UserAgent as usize + 1],
        };
        let Some(furthest) = self.furthest else {
            return Ok(line);
        };
        let mut rest = Rest {
            bytes: &block[..end],
            at: start,
        };
        line.set(Part::Ip, rest.word("ip")?);
        if furthest > Part::Ip {
            line.set(Part::Identity, rest.word("identity")?.or_dash(block));
        }
        if furthest > Part::Identity {
            // A user's name may contain spaces; the bracket of the time ends it.
            line.set(
                Part::UserName,
                rest.until(b" [", "user_name", "time")?.or_dash(block),
            );
        }
        if furthest > Part::UserName {
            line.set(Part::Time, rest.until(b"] ", "time", "request")?);
        }
        if furthest > Part::Time {
            let request = rest.quoted("request")?;
            line.set(Part::Request, request);
            line.split_request(block, request);
        }
        if furthest > Part::Protocol {
            line.set(Part::Status, rest.word("status")?);
        }
        if furthest > Part::Status {
            line.set(Part::Bytes, rest.word("bytes")?.or_dash(block));
        }
        if furthest > Part::Bytes {
            line.set(Part::Referer, rest.quoted("referer")?.or_dash(block));
        }
        if furthest > Part::Referer {
            line.set(Part::UserAgent, rest.quoted("user_agent")?.or_dash(block));
        }
        Ok(line)
    }
}

struct Line {
    spans: [Span; Part::UserAgent as usize + 1],
}

#[derive(Clone, Copy)]
struct Place {
    start: usize,
    end: usize,
    absent: bool,
}

impl Place {
    /// A single dash means NULL.
    fn or_dash(mut self, block: &[u8]) -> Place {
        self.absent = &block[self.start..self.end] == b"-";
        self
    }
}

impl Line {
    fn set(&mut self, part: Part, place: Place) {
        self.spans[part as usize] = if place.absent {
            Span::NULL
        } else {
            Span::new(place.start, place.end)
        };
    }

    /// `GET /path HTTP/1.1`: the method ends at the first space, the protocol begins after the last one. A
    /// request of another form (such as the bytes of a port scan) has none of the three.
    fn split_request(&mut self, block: &[u8], request: Place) {
        let text = &block[request.start..request.end];
        let Some(first) = memchr(b' ', text) else {
            return;
        };
        let Some(second) = memchr::memrchr(b' ', text).filter(|last| *last > first) else {
            return;
        };
        if !text[second + 1..].starts_with(b"HTTP/") {
            return;
        }
        let place = |start: usize, end: usize| Place {
            start: request.start + start,
            end: request.start + end,
            absent: false,
        };
        self.set(Part::Method, place(0, first));
        self.set(Part::Path, place(first + 1, second));
        self.set(Part::Protocol, place(second + 1, text.len()));
    }
}

/// The rest of the line.
struct Rest<'a> {
    /// The block up to the line's end.
    bytes: &'a [u8],
    at: usize,
}

impl Rest<'_> {
    fn place(&self, end: usize) -> Place {
        Place {
            start: self.at,
            end,
            absent: false,
        }
    }

    /// Up to the next space or the end.
    fn word(&mut self, name: &str) -> Result<Place, String> {
        let length = memchr(b' ', &self.bytes[self.at..]).unwrap_or(self.bytes.len() - self.at);
        if length == 0 {
            return Err(format!("no {name}"));
        }
        let place = self.place(self.at + length);
        self.at = (place.end + 1).min(self.bytes.len());
        Ok(place)
    }

    /// Up to a mark between two parts.
    fn until(&mut self, mark: &[u8], name: &str, next: &str) -> Result<Place, String> {
        let Some(length) = memmem::find(&self.bytes[self.at..], mark) else {
            return Err(format!("no {next} after the {name}"));
        };
        let place = self.place(self.at + length);
        self.at = place.end + mark.len();
        Ok(place)
    }

    /// A part in double quotes; a backslash lets the next character stand for itself.
    fn quoted(&mut self, name: &str) -> Result<Place, String> {
        if self.bytes.get(self.at) != Some(&b'"') {
            return Err(format!("no quoted {name}"));
        }
        self.at += 1;
        let mut from = self.at;
        loop {
            match memchr2(b'"', b'\\', &self.bytes[from.min(self.bytes.len())..]) {
                None => return Err(format!("the quote of the {name} is not closed")),
                Some(length) if self.bytes[from + length] == b'\\' => from += length + 2,
                Some(length) => {
                    let place = self.place(from + length);
                    self.at = (place.end + 2).min(self.bytes.len());
                    return Ok(place);
                }
            }
        }
    }
}
