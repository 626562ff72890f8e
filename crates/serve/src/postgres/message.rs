//! The messages of PostgreSQL's protocol, version 3: what a client sends is read with every length checked,
//! what it gets is appended to a buffer.

use bytes::{BufMut, BytesMut};

use crate::backend::{Kind, Refusal};

use super::types::PgType;

/// What the first four bytes after the length of a packet without a type mean.
pub const CANCEL: u32 = 80_877_102;
/// The client asks for TLS.
pub const SSL: u32 = 80_877_103;
/// The client asks for encryption by GSSAPI.
pub const GSS: u32 = 80_877_104;
/// Version 3.0 of the protocol, which every client speaks.
pub const VERSION_MAJOR: u32 = 3;

/// What a client sends after it was let in.
#[derive(Debug, PartialEq, Eq)]
pub enum Frontend<'a> {
    Query(&'a str),
    Parse {
        name: &'a str,
        text: &'a str,
        types: Vec<u32>,
    },
    Bind {
        portal: &'a str,
        statement: &'a str,
        formats: Vec<i16>,
        values: Vec<Option<&'a [u8]>>,
        results: Vec<i16>,
    },
    Describe(Target<'a>),
    Close(Target<'a>),
    Execute {
        portal: &'a str,
        rows_max: i32,
    },
    Flush,
    Sync,
    Terminate,
    /// Part of a `COPY … FROM STDIN`, which nobody has begun: ignored, as PostgreSQL does.
    Copy,
    Password(&'a [u8]),
}

/// A prepared statement or a portal, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    Statement(&'a str),
    Portal(&'a str),
}

/// The bytes of a message that are left to read.
struct Body<'a>(&'a [u8]);

/// A message that ends too early, or is not what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

type Read<T> = Result<T, Malformed>;

impl<'a> Body<'a> {
    fn bytes(&mut self, count: usize) -> Read<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        self.bytes(N)?.try_into().map_err(|_| Malformed)
    }

    fn i16(&mut self) -> Read<i16> {
        self.array().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Read<i32> {
        self.array().map(i32::from_be_bytes)
    }

    fn text(&mut self) -> Read<&'a str> {
        let end = memchr::memchr(0, self.0).ok_or(Malformed)?;
        let text = self.bytes(end + 1)?;
        std::str::from_utf8(&text[..end]).map_err(|_| Malformed)
    }

    fn count(&mut self) -> Read<usize> {
        self.array().map(u16::from_be_bytes).map(usize::from)
    }

    fn formats(&mut self) -> Read<Vec<i16>> {
        (0..self.count()?).map(|_| self.i16()).collect()
    }

    fn target(&mut self) -> Read<Target<'a>> {
        match self.bytes(1)? {
            b"S" => self.text().map(Target::Statement),
            b"P" => self.text().map(Target::Portal),
            _ => Err(Malformed),
        }
    }
}

/// Reads a message: its type, and its bytes after the length.
///
/// # Errors
///
/// If it is not one that a client sends at this point.
pub fn read(kind: u8, body: &[u8]) -> Result<Frontend<'_>, Malformed> {
    let mut body = Body(body);
    Ok(match kind {
        b'Q' => Frontend::Query(body.text()?),
        b'P' => Frontend::Parse {
            name: body.text()?,
            text: body.text()?,
            types: {
                let count = body.count()?;
                let one = |_| body.array().map(u32::from_be_bytes);
                (0..count).map(one).collect::<Read<_>>()?
            },
        },
        b'B' => Frontend::Bind {
            portal: body.text()?,
            statement: body.text()?,
            formats: body.formats()?,
            values: {
                let count = body.count()?;
                let one = |_| match body.i32()? {
                    -1 => Ok(None),
                    length => body
                        .bytes(usize::try_from(length).map_err(|_| Malformed)?)
                        .map(Some),
                };
                (0..count).map(one).collect::<Read<_>>()?
            },
            results: body.formats()?,
        },
        b'D' => Frontend::Describe(body.target()?),
        b'C' => Frontend::Close(body.target()?),
        b'E' => Frontend::Execute {
            portal: body.text()?,
            rows_max: body.i32()?,
        },
        b'H' => Frontend::Flush,
        b'S' => Frontend::Sync,
        b'X' => Frontend::Terminate,
        b'd' | b'c' | b'f' => Frontend::Copy,
        b'p' => Frontend::Password(body.0),
        _ => return Err(Malformed),
    })
}

/// The names and values of a packet that begins a connection.
///
/// # Errors
///
/// If a value is missing.
pub fn read_startup(body: &[u8]) -> Result<Vec<(&str, &str)>, Malformed> {
    let mut body = Body(body);
    let mut values = Vec::new();
    loop {
        match body.text()? {
            "" => return Ok(values),
            name => values.push((name, body.text()?)),
        }
    }
}

/// The first answer to a password with SASL: the mechanism and the client's first message.
///
/// # Errors
///
/// If it ends too early.
pub fn read_sasl(body: &[u8]) -> Result<(&str, &[u8]), Malformed> {
    let mut body = Body(body);
    let mechanism = body.text()?;
    let length = usize::try_from(body.i32()?).map_err(|_| Malformed)?;
    Ok((mechanism, body.bytes(length)?))
}

/// Appends a message whose body is written by a closure.
fn append(out: &mut BytesMut, kind: u8, body: impl FnOnce(&mut BytesMut)) {
    out.put_u8(kind);
    let start = out.len();
    out.put_i32(0);
    body(out);
    end(out, start);
}

/// Fills in a length whose four bytes begin at `start`, and which counts itself.
pub fn end(out: &mut BytesMut, start: usize) {
    // A message is at most a row, and rows are bounded.
    let length = i32::try_from(out.len() - start).unwrap_or(i32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

fn put_text(out: &mut BytesMut, text: &str) {
    // A NUL would end it earlier.
    out.extend(text.bytes().map(|byte| if byte == 0 { b' ' } else { byte }));
    out.put_u8(0);
}

fn put_count(out: &mut BytesMut, count: usize) {
    out.put_u16(u16::try_from(count).unwrap_or(u16::MAX));
}

/// A message without a body.
pub fn signal(out: &mut BytesMut, kind: u8) {
    append(out, kind, |_| {});
}

/// `ParseComplete`.
pub const PARSED: u8 = b'1';
/// `BindComplete`.
pub const BOUND: u8 = b'2';
/// `CloseComplete`.
pub const CLOSED: u8 = b'3';
/// `EmptyQueryResponse`.
pub const EMPTY: u8 = b'I';
/// `NoData`.
pub const NO_DATA: u8 = b'n';
/// `PortalSuspended`.
pub const SUSPENDED: u8 = b's';
/// `CopyDone`.
pub const COPY_DONE: u8 = b'c';

/// A step of authentication: 0 is success, 10 to 12 are those of SASL.
pub fn authentication(out: &mut BytesMut, step: i32, data: &[u8]) {
    append(out, b'R', |out| {
        out.put_i32(step);
        out.put_slice(data);
    });
}

/// The value of a setting that the client wants to know.
pub fn parameter_status(out: &mut BytesMut, name: &str, value: &str) {
    append(out, b'S', |out| {
        put_text(out, name);
        put_text(out, value);
    });
}

/// What the client needs to cancel a statement.
pub fn key(out: &mut BytesMut, process: i32, secret: u32) {
    append(out, b'K', |out| {
        out.put_i32(process);
        out.put_u32(secret);
    });
}

/// Says that only version 3.0 is spoken here, and which options are not known.
pub fn negotiate(out: &mut BytesMut, options: &[&str]) {
    append(out, b'v', |out| {
        out.put_u32(VERSION_MAJOR << 16);
        out.put_u32(u32::try_from(options.len()).unwrap_or(u32::MAX));
        options.iter().for_each(|option| put_text(out, option));
    });
}

/// Whether a transaction is open, or has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transaction {
    None,
    Open,
    Failed,
}

/// `ReadyForQuery`.
pub fn ready(out: &mut BytesMut, transaction: Transaction) {
    append(out, b'Z', |out| {
        out.put_u8(match transaction {
            Transaction::None => b'I',
            Transaction::Open => b'T',
            Transaction::Failed => b'E',
        });
    });
}

/// `CommandComplete`.
pub fn complete(out: &mut BytesMut, tag: &str) {
    append(out, b'C', |out| put_text(out, tag));
}

/// The types of a statement's parameters.
pub fn parameters(out: &mut BytesMut, types: &[u32]) {
    append(out, b't', |out| {
        put_count(out, types.len());
        types.iter().for_each(|oid| out.put_u32(*oid));
    });
}

/// The columns of rows, each with its format (0 text, 1 binary).
pub fn columns(out: &mut BytesMut, columns: &[(String, PgType)], format: impl Fn(usize) -> i16) {
    append(out, b'T', |out| {
        put_count(out, columns.len());
        for (at, (name, kind)) in columns.iter().enumerate() {
            put_text(out, name);
            // No table, no column of it.
            out.put_u32(0);
            out.put_i16(0);
            out.put_u32(kind.oid);
            out.put_i16(kind.size);
            out.put_i32(kind.modifier);
            out.put_i16(format(at));
        }
    });
}

/// The beginning of `COPY … TO STDOUT`.
pub fn copy_out(out: &mut BytesMut, columns: usize, binary: bool) {
    append(out, b'H', |out| {
        out.put_u8(u8::from(binary));
        put_count(out, columns);
        (0..columns).for_each(|_| out.put_i16(i16::from(binary)));
    });
}

/// How bad a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Notice,
    Warning,
    Error,
    /// The connection ends.
    Fatal,
}

/// What a client is told: the code of the SQL standard, the message, and perhaps more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub severity: Severity,
    pub code: &'static str,
    pub message: String,
    pub hint: Option<String>,
    /// The place in the text that the client sent, counted in characters from 1.
    pub position: Option<usize>,
}

impl Report {
    /// An error with this code.
    pub fn error(code: &'static str, message: impl Into<String>) -> Report {
        Report {
            severity: Severity::Error,
            code,
            message: message.into(),
            hint: None,
            position: None,
        }
    }

    /// An error that ends the connection.
    pub fn fatal(code: &'static str, message: impl Into<String>) -> Report {
        Report {
            severity: Severity::Fatal,
            ..Report::error(code, message)
        }
    }

    /// What the client should know.
    pub fn notice(message: impl Into<String>) -> Report {
        Report {
            severity: Severity::Notice,
            ..Report::error("00000", message)
        }
    }

    /// What the client should know, and has perhaps not expected.
    pub fn warning(code: &'static str, message: impl Into<String>) -> Report {
        Report {
            severity: Severity::Warning,
            ..Report::error(code, message)
        }
    }

    /// The report of a refusal. `before` characters of the client's text lie before what was refused.
    pub fn of(refusal: Refusal, before: usize) -> Report {
        Report {
            severity: Severity::Error,
            code: code(refusal.kind),
            message: refusal.message,
            hint: refusal.hint,
            position: refusal.position.map(|position| before + position + 1),
        }
    }

    /// Appends it.
    pub fn write(&self, out: &mut BytesMut) {
        let (kind, severity) = match self.severity {
            Severity::Notice => (b'N', "NOTICE"),
            Severity::Warning => (b'N', "WARNING"),
            Severity::Error => (b'E', "ERROR"),
            Severity::Fatal => (b'E', "FATAL"),
        };
        append(out, kind, |out| {
            let mut field = |kind: u8, text: &str| {
                out.put_u8(kind);
                put_text(out, text);
            };
            field(b'S', severity);
            field(b'V', severity);
            field(b'C', self.code);
            field(b'M', &self.message);
            if let Some(hint) = &self.hint {
                field(b'H', hint);
            }
            if let Some(position) = self.position {
                field(b'P', &position.to_string());
            }
            out.put_u8(0);
        });
    }
}

/// The code of PostgreSQL's table for a kind of refusal.
fn code(kind: Kind) -> &'static str {
    match kind {
        Kind::Syntax => "42601",
        Kind::Undefined => "42P01",
        Kind::UndefinedColumn => "42703",
        Kind::NoSuchJob => "42704",
        Kind::Duplicate => "42P07",
        Kind::Dependent => "2BP01",
        Kind::Value => "22000",
        Kind::NotRunning => "55000",
        // What clients try again later.
        Kind::Starting => "57P03",
        Kind::Busy => "55P03",
        Kind::Unconfirmed => "08007",
        Kind::Cancelled => "57014",
        Kind::Limit => "54000",
        Kind::Denied => "42501",
        Kind::System => "58000",
        Kind::Internal => "XX000",
    }
}
