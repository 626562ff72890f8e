//! RESP2, the protocol of Redis and Valkey: commands are written, replies are read.
//!
//! A reply from a server is not trusted: its length, depth and size are limited, and bytes that are no reply
//! are an error.

use std::io::{self, BufRead, Read, Write};

/// The longest line of a reply, without its end: errors of servers are shorter.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The longest string in a reply; the longest here is `INFO`, the longest value has 2 KB.
const STRING_BYTES_MAX: usize = 1 << 20;

/// Replies in an array: a scan returns at most 100 keys, a record has 10 fields.
const ARRAY_MAX: usize = 100_000;

/// Arrays within arrays: `ROLE` of a master has two.
const DEPTH_MAX: usize = 4;

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// A status, such as `OK`.
    Status(String),
    /// An error that the server reports.
    Error(String),
    /// A number.
    Number(i64),
    /// A string, which may hold any bytes; none if there is none.
    String(Option<Vec<u8>>),
    /// Replies.
    Array(Vec<Reply>),
}

impl Reply {
    /// The string as text, if it is one.
    pub fn text(&self) -> Option<String> {
        match self {
            Reply::String(Some(bytes)) => Some(String::from_utf8_lossy(bytes).into_owned()),
            Reply::Status(text) => Some(text.clone()),
            Reply::Error(_) | Reply::Number(_) | Reply::String(None) | Reply::Array(_) => None,
        }
    }
}

/// Appends a command.
pub fn command(bytes: &mut Vec<u8>, arguments: &[&[u8]]) {
    // Writing to a vector never fails.
    let _ = write!(bytes, "*{}\r\n", arguments.len());
    for argument in arguments {
        let _ = write!(bytes, "${}\r\n", argument.len());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
}

/// Reads the next reply.
///
/// # Errors
///
/// If the connection ends or fails, or the bytes are no reply.
pub fn read(from: &mut impl BufRead) -> io::Result<Reply> {
    read_at(from, 0)
}

/// The first reply in these bytes and its length; none if it is not complete.
///
/// # Errors
///
/// If the bytes are no reply.
pub fn first(bytes: &[u8]) -> io::Result<Option<(Reply, usize)>> {
    let mut rest = bytes;
    match read(&mut rest) {
        Ok(reply) => Ok(Some((reply, bytes.len() - rest.len()))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_at(from: &mut impl BufRead, depth: usize) -> io::Result<Reply> {
    let line = line(from)?;
    let (&kind, rest) = line.split_first().ok_or_else(|| bad("an empty line"))?;
    let text = || String::from_utf8_lossy(rest).into_owned();
    match kind {
        b'+' => Ok(Reply::Status(text())),
        b'-' => Ok(Reply::Error(text())),
        b':' => number(rest).map(Reply::Number),
        b'$' => Ok(Reply::String(match length(rest, STRING_BYTES_MAX)? {
            Some(length) => Some(string(from, length)?),
            None => None,
        })),
        b'*' if depth == DEPTH_MAX => Err(bad("arrays that are nested too deeply")),
        b'*' => {
            let count = length(rest, ARRAY_MAX)?.unwrap_or(0);
            // Not reserved: a few bytes must not cost megabytes.
            let mut replies = Vec::new();
            for _ in 0..count {
                replies.push(read_at(from, depth + 1)?);
            }
            Ok(Reply::Array(replies))
        }
        _ => Err(bad("a line of an unknown kind")),
    }
}

/// Skips line feeds, with which both sides of a replication show that they are alive during a copy.
///
/// # Errors
///
/// If the connection fails.
pub fn skip_line_feeds(from: &mut impl BufRead) -> io::Result<()> {
    loop {
        let bytes = match from.fill_buf() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let count = bytes.iter().take_while(|byte| **byte == b'\n').count();
        let is_all = count > 0 && count == bytes.len();
        from.consume(count);
        if !is_all {
            return Ok(());
        }
    }
}

/// The next line without its end.
pub fn line(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let most = LINE_BYTES_MAX as u64 + 2;
    from.by_ref().take(most).read_until(b'\n', &mut line)?;
    if !line.ends_with(b"\n") && line.len() < most as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if !line.ends_with(b"\r\n") {
        return Err(bad("a line without an end, or one that is too long"));
    }
    line.truncate(line.len() - 2);
    Ok(line)
}

fn string(from: &mut impl BufRead, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length + 2];
    from.read_exact(&mut bytes)?;
    match bytes.ends_with(b"\r\n") {
        true => bytes.truncate(length),
        false => return Err(bad("a string of another length than announced")),
    }
    Ok(bytes)
}

fn number(text: &[u8]) -> io::Result<i64> {
    let number = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok());
    number.ok_or_else(|| bad("a number that is none"))
}

/// A length; none for −1.
fn length(text: &[u8], most: usize) -> io::Result<Option<usize>> {
    match number(text)? {
        -1 => Ok(None),
        length => match usize::try_from(length) {
            Ok(length) if length <= most => Ok(Some(length)),
            Ok(_) | Err(_) => Err(bad("a length that is too large")),
        },
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the server sent {what}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> io::Result<Reply> {
        read(&mut io::BufReader::new(bytes))
    }

    #[test]
    fn commands_and_replies_have_the_documented_form() {
        let mut bytes = Vec::new();
        command(&mut bytes, &[b"SET", b"k", b"\r\n"]);
        assert_eq!(bytes, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n");
        let role = b"*3\r\n$5\r\nslave\r\n:-7\r\n*2\r\n+OK\r\n$-1\r\n";
        let inner = vec![Reply::Status("OK".to_string()), Reply::String(None)];
        let outer = vec![
            Reply::String(Some(b"slave".to_vec())),
            Reply::Number(-7),
            Reply::Array(inner),
        ];
        assert_eq!(parse(role).unwrap(), Reply::Array(outer));
    }

    #[test]
    fn hostile_bytes_are_errors() {
        let deep = "*1\r\n".repeat(6);
        let long = format!("+{}\r\n", "x".repeat(LINE_BYTES_MAX + 1));
        let hostile: [&[u8]; 12] = [
            b"",
            b"\r\n",
            b"+OK",
            b"+OK\n",
            b"$5\r\nabc",
            b"$3\r\nabcde",
            b"$-2\r\n",
            b"$9999999999999\r\n",
            b"*99999999\r\n",
            b":x\r\n",
            deep.as_bytes(),
            long.as_bytes(),
        ];
        for bytes in hostile {
            assert!(
                parse(bytes).is_err(),
                "{:?}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    #[test]
    fn a_reply_is_complete_with_its_last_byte() {
        let bytes = b"*2\r\n$2\r\nab\r\n:1\r\n";
        for length in 0..bytes.len() {
            assert_eq!(first(&bytes[..length]).unwrap(), None, "{length}");
        }
        let more = [bytes.as_slice(), b"+OK"].concat();
        let (reply, length) = first(&more).unwrap().unwrap();
        assert!(matches!(reply, Reply::Array(_)) && length == bytes.len());
        assert!(first(b"x\r\n").is_err());
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let length = random.usize(0..40);
            let bytes = (0..length).map(|_| *random.choice(b"$*:+-\r\n0129x".iter()).unwrap());
            let _ = parse(&bytes.collect::<Vec<u8>>());
        }
    }
}
