//! Replies of servers in RESP2: every malformed one is an error, and none takes more memory than its bytes
//! and a fixed number of elements.

use std::fmt;

/// The most bytes of a reply: INFO of all commands takes about 20 KB, a cluster of 1,000 shards about 500 KB.
pub const REPLY_BYTES_MAX: usize = 4 << 20;
/// The most elements of a reply, of all arrays in it.
pub const ELEMENTS_MAX: usize = 1 << 16;
/// The most arrays in each other: CLUSTER SHARDS has four.
pub const DEPTH_MAX: usize = 8;
/// The most bytes of a line: errors are the longest.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A status, such as OK.
    Status(String),
    /// An error.
    Error(String),
    /// A number.
    Integer(i64),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// Neither a string nor an array.
    Nil,
    /// Replies.
    Array(Vec<Reply>),
}

impl Reply {
    /// The text of a string or a status.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Status(text) => Some(text),
            Self::Bulk(bytes) => std::str::from_utf8(bytes).ok(),
            Self::Error(_) | Self::Integer(_) | Self::Nil | Self::Array(_) => None,
        }
    }

    /// The number, also of a string of digits.
    pub fn number(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Status(_) | Self::Error(_) | Self::Bulk(_) | Self::Nil | Self::Array(_) => {
                self.text()?.parse().ok()
            }
        }
    }

    /// The replies of an array.
    pub fn array(&self) -> Option<&[Reply]> {
        match self {
            Self::Array(replies) => Some(replies),
            Self::Status(_) | Self::Error(_) | Self::Integer(_) | Self::Bulk(_) | Self::Nil => None,
        }
    }

    /// The error, if it is one.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Error(text) => Some(text),
            Self::Status(_) | Self::Integer(_) | Self::Bulk(_) | Self::Nil | Self::Array(_) => None,
        }
    }
}

/// Why bytes are no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// A reply does not start with this byte.
    Kind(u8),
    /// A length or a number is not one.
    Number,
    /// A line does not end as lines do.
    Line,
    /// A line is not text.
    Text,
    /// It is longer than [`REPLY_BYTES_MAX`].
    Long,
    /// It has more than [`ELEMENTS_MAX`] elements.
    Many,
    /// It has more than [`DEPTH_MAX`] arrays in each other.
    Deep,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(byte) => write!(
                f,
                "does not speak RESP: a reply starts with byte 0x{byte:02x}"
            ),
            Self::Number => write!(f, "does not speak RESP: a length or number is malformed"),
            Self::Line => write!(f, "does not speak RESP: a line does not end with CR and LF"),
            Self::Text => write!(f, "sent a line that is not UTF-8"),
            Self::Long => write!(f, "sent a reply of more than {REPLY_BYTES_MAX} bytes"),
            Self::Many => write!(f, "sent a reply of more than {ELEMENTS_MAX} elements"),
            Self::Deep => write!(f, "sent a reply of more than {DEPTH_MAX} nested arrays"),
        }
    }
}

/// The first reply of these bytes, and how long it is; nothing if it is not complete.
pub fn parse(bytes: &[u8]) -> Result<Option<(Reply, usize)>, Malformed> {
    let mut cursor = Cursor {
        bytes,
        at: 0,
        elements: 0,
    };
    match cursor.reply(0) {
        Ok(reply) => Ok(Some((reply, cursor.at))),
        Err(Stop::More) if bytes.len() >= REPLY_BYTES_MAX => Err(Malformed::Long),
        Err(Stop::More) => Ok(None),
        Err(Stop::Malformed(malformed)) => Err(malformed),
    }
}

/// Why parsing stops.
enum Stop {
    /// The bytes end before the reply does.
    More,
    Malformed(Malformed),
}

impl From<Malformed> for Stop {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    elements: usize,
}

impl Cursor<'_> {
    fn reply(&mut self, depth: usize) -> Result<Reply, Stop> {
        self.elements += 1;
        if self.elements > ELEMENTS_MAX {
            return Err(Malformed::Many.into());
        }
        let kind = *self.bytes.get(self.at).ok_or(Stop::More)?;
        if !b"+-:$*".contains(&kind) {
            return Err(Malformed::Kind(kind).into());
        }
        self.at += 1;
        let line = self.line()?;
        match kind {
            b'+' => Ok(Reply::Status(line.to_string())),
            b'-' => Ok(Reply::Error(line.to_string())),
            b':' => Ok(Reply::Integer(number(line)?)),
            b'$' => match length(line, REPLY_BYTES_MAX, Malformed::Long)? {
                None => Ok(Reply::Nil),
                Some(length) => self.bulk(length),
            },
            _ => {
                let Some(length) = length(line, ELEMENTS_MAX, Malformed::Many)? else {
                    return Ok(Reply::Nil);
                };
                if depth >= DEPTH_MAX {
                    return Err(Malformed::Deep.into());
                }
                // Not with the capacity that is announced: it may never come.
                let mut replies = Vec::new();
                for _ in 0..length {
                    replies.push(self.reply(depth + 1)?);
                }
                Ok(Reply::Array(replies))
            }
        }
    }

    /// The rest of a line; the cursor is after its end then.
    fn line(&mut self) -> Result<&str, Stop> {
        let rest = &self.bytes[self.at..];
        let searched = &rest[..rest.len().min(LINE_BYTES_MAX)];
        let Some(end) = searched
            .iter()
            .position(|byte| matches!(byte, b'\r' | b'\n'))
        else {
            return match searched.len() < LINE_BYTES_MAX {
                true => Err(Stop::More),
                false => Err(Malformed::Line.into()),
            };
        };
        match rest.get(end..end + 2) {
            Some(b"\r\n") => {}
            None if rest[end] == b'\r' => return Err(Stop::More),
            Some(_) | None => return Err(Malformed::Line.into()),
        }
        self.at += end + 2;
        std::str::from_utf8(&rest[..end]).map_err(|_| Malformed::Text.into())
    }

    fn bulk(&mut self, length: usize) -> Result<Reply, Stop> {
        let rest = &self.bytes[self.at..];
        let (Some(bytes), Some(end)) = (rest.get(..length), rest.get(length..length + 2)) else {
            return Err(Stop::More);
        };
        if end != b"\r\n" {
            return Err(Malformed::Line.into());
        }
        self.at += length + 2;
        Ok(Reply::Bulk(bytes.to_vec()))
    }
}

fn number(text: &str) -> Result<i64, Malformed> {
    text.parse().map_err(|_| Malformed::Number)
}

/// A length; none for -1, which stands for nil.
fn length(text: &str, most: usize, over: Malformed) -> Result<Option<usize>, Malformed> {
    match number(text)? {
        -1 => Ok(None),
        length => {
            let length = usize::try_from(length).map_err(|_| Malformed::Number)?;
            if length > most {
                Err(over)
            } else {
                Ok(Some(length))
            }
        }
    }
}

/// A command as servers read it.
pub fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> Reply {
        let (reply, length) = parse(bytes).unwrap().unwrap();
        assert_eq!(length, bytes.len());
        reply
    }

    #[test]
    fn replies_are_read() {
        assert_eq!(whole(b"+OK\r\n"), Reply::Status("OK".to_string()));
        assert_eq!(whole(b"-ERR no\r\n").error(), Some("ERR no"));
        assert_eq!(whole(b":-7\r\n").number(), Some(-7));
        assert_eq!(whole(b"$2\r\n42\r\n").number(), Some(42));
        assert_eq!(whole(b"$0\r\n\r\n").text(), Some(""));
        assert_eq!(whole(b"$-1\r\n"), Reply::Nil);
        assert_eq!(whole(b"*-1\r\n"), Reply::Nil);
        let role = whole(b"*3\r\n$6\r\nmaster\r\n:42\r\n*1\r\n*1\r\n$1\r\nx\r\n");
        assert_eq!(role.array().unwrap()[0].text(), Some("master"));
        assert_eq!(parse(b"+a\r\n+b\r\n").unwrap().unwrap().1, 4);
    }

    #[test]
    fn every_beginning_of_a_reply_waits_for_more() {
        let reply = b"*3\r\n$7\r\nmas\r\ner\r\n:42\r\n*2\r\n-E\r\n+OK\r\n";
        for end in 0..reply.len() {
            assert_eq!(parse(&reply[..end]), Ok(None), "{end}");
        }
        assert!(parse(reply).unwrap().is_some());
    }

    #[test]
    fn malformed_replies_are_errors() {
        let deep = b"*1\r\n".repeat(100_000);
        let cases: [(&[u8], Malformed); 16] = [
            (b"HTTP/1.1 400 Bad Request\r\n", Malformed::Kind(b'H')),
            (b"\0", Malformed::Kind(0)),
            (b"%1\r\n", Malformed::Kind(b'%')),
            (b":seven\r\n", Malformed::Number),
            (b":99999999999999999999\r\n", Malformed::Number),
            (b":\r\n", Malformed::Number),
            (b"$-2\r\n", Malformed::Number),
            (b"$x\r\n", Malformed::Number),
            (b"*-9223372036854775808\r\n", Malformed::Number),
            (b"$99999999999\r\n", Malformed::Long),
            (b"*9223372036854775807\r\n", Malformed::Many),
            (b"+OK\n", Malformed::Line),
            (b"+OK\rx", Malformed::Line),
            (b"$1\r\nabc", Malformed::Line),
            (b"+\xff\r\n", Malformed::Text),
            (&deep, Malformed::Deep),
        ];
        for (bytes, expected) in cases {
            let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
            assert_eq!(parse(bytes), Err(expected), "{shown}");
            assert!(!expected.to_string().is_empty());
        }
        let long = [&b"+"[..], &vec![b'a'; LINE_BYTES_MAX]].concat();
        assert_eq!(parse(&long), Err(Malformed::Line));
        let wide = [&b"*65000\r\n"[..], &b"*2\r\n:1\r\n:1\r\n".repeat(40_000)].concat();
        assert_eq!(parse(&wide), Err(Malformed::Many));
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut random = fastrand::Rng::with_seed(11);
        let alphabet = b"+-:$*\r\n0123456789ab";
        for _ in 0..100_000 {
            let length = random.usize(0..40);
            let bytes = (0..length).map(|_| alphabet[random.usize(0..alphabet.len())]);
            let bytes = bytes.collect::<Vec<u8>>();
            if let Ok(Some((_, length))) = parse(&bytes) {
                assert!(length <= bytes.len());
            }
        }
    }

    #[test]
    fn commands_are_arrays_of_strings() {
        assert_eq!(
            command(&["INFO", "server"]),
            b"*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n"
        );
    }
}
