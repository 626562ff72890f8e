//! Commands as clients send them: RESP arrays of strings, or a line of words.

/// The longest command, and so the most bytes that wait to be a whole one: a thousand long keys.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;

/// The most words of a command: MGET of a thousand keys.
pub const WORDS_MAX: usize = 1024;

/// The longest line of words without an array, as in Redis.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// The longest line with a length: `*` or `$`, ten digits, and the end.
const LENGTH_BYTES_MAX: usize = 32;

/// What a client did wrong; its connection ends with this.
#[derive(Debug, PartialEq, Eq)]
pub struct ProtocolError(pub &'static str);

/// The words of a command, and how many bytes it took.
type Command<'a> = (Vec<&'a [u8]>, usize);

/// Where a word is in the bytes of its command.
type Place = std::ops::Range<usize>;

/// Splits bytes into commands. Keeps nothing but how far it has looked.
#[derive(Default)]
pub struct Requests {
    /// The words of the command that has begun.
    words: Vec<Place>,
    /// How many words it is to have; `None` before that is known.
    wanted: Option<usize>,
    /// The length of the word that has begun.
    length: Option<usize>,
    /// How far the command that has begun was read.
    read: usize,
}

impl Requests {
    /// The next whole command at the beginning of these bytes: its words, and how many bytes it took. `None`
    /// if more have to come. A command without words is skipped by whoever gets it.
    ///
    /// # Errors
    ///
    /// When this is not the protocol, or longer than allowed.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<Command<'a>>, ProtocolError> {
        if self.wanted.is_none() {
            match bytes.first() {
                None => return Ok(None),
                Some(b'*') => {
                    let Some((count, after)) = number(bytes, 1, "invalid multibulk length")? else {
                        return Ok(None);
                    };
                    if count > WORDS_MAX as i64 {
                        return Err(ProtocolError("invalid multibulk length"));
                    }
                    self.wanted = Some(count.max(0) as usize);
                    self.read = after;
                }
                Some(_) => return inline(bytes),
            }
        }
        let wanted = self.wanted.unwrap_or_default();
        while self.words.len() < wanted {
            let Some(length) = self.length(bytes)? else {
                return short(bytes);
            };
            let end = self.read + length;
            let Some(after) = bytes.get(end..end + 2) else {
                return short(bytes);
            };
            if after != b"\r\n" {
                return Err(ProtocolError("expected the end of a line after a string"));
            }
            self.words.push(self.read..end);
            self.read = end + 2;
            self.length = None;
        }
        let words = self.words.drain(..).map(|place| &bytes[place]).collect();
        let used = std::mem::take(&mut self.read);
        self.wanted = None;
        Ok(Some((words, used)))
    }

    /// The length of the next word, if it has come.
    fn length(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        if self.length.is_none() {
            match bytes.get(self.read) {
                None => return Ok(None),
                Some(b'$') => {}
                Some(_) => return Err(ProtocolError("expected '$'")),
            }
            let Some((length, after)) = number(bytes, self.read + 1, "invalid bulk length")? else {
                return Ok(None);
            };
            if !(0..=REQUEST_BYTES_MAX as i64).contains(&length) {
                return Err(ProtocolError("invalid bulk length"));
            }
            self.read = after;
            self.length = Some(length as usize);
        }
        Ok(self.length)
    }
}

/// More has to come, unless there is no room for it.
fn short<T>(bytes: &[u8]) -> Result<Option<T>, ProtocolError> {
    match bytes.len() < REQUEST_BYTES_MAX {
        true => Ok(None),
        false => Err(ProtocolError("a command is longer than 1 MiB")),
    }
}

/// The number of a line from `start`, and where the next line begins.
fn number(
    bytes: &[u8],
    start: usize,
    wrong: &'static str,
) -> Result<Option<(i64, usize)>, ProtocolError> {
    let rest = &bytes[start..];
    let Some(end) = memchr::memchr(b'\n', &rest[..rest.len().min(LENGTH_BYTES_MAX)]) else {
        return match rest.len() < LENGTH_BYTES_MAX {
            true => Ok(None),
            false => Err(ProtocolError(wrong)),
        };
    };
    let digits = rest[..end].strip_suffix(b"\r");
    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    match digits.map(str::parse) {
        Some(Ok(number)) => Ok(Some((number, start + end + 1))),
        Some(Err(_)) | None => Err(ProtocolError(wrong)),
    }
}

/// A line of words with spaces between.
fn inline(bytes: &[u8]) -> Result<Option<Command<'_>>, ProtocolError> {
    let Some(end) = memchr::memchr(b'\n', &bytes[..bytes.len().min(INLINE_BYTES_MAX)]) else {
        return match bytes.len() < INLINE_BYTES_MAX {
            true => Ok(None),
            false => Err(ProtocolError("too big inline request")),
        };
    };
    let line = &bytes[..end];
    let words = line.split(u8::is_ascii_whitespace);
    let words = words.filter(|word| !word.is_empty()).take(WORDS_MAX + 1);
    let words = words.collect::<Vec<_>>();
    match words.len() <= WORDS_MAX {
        true => Ok(Some((words, end + 1))),
        false => Err(ProtocolError("too many words")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All commands of bytes that come in portions.
    fn commands(bytes: &[u8], portion: usize) -> Result<Vec<Vec<String>>, ProtocolError> {
        let (mut requests, mut held, mut found) = (Requests::default(), Vec::new(), Vec::new());
        for portion in bytes.chunks(portion) {
            held.extend_from_slice(portion);
            let mut used = 0;
            while let Some((words, count)) = requests.next(&held[used..])? {
                let text = |word: &&[u8]| String::from_utf8_lossy(word).into_owned();
                found.push(words.iter().map(text).collect());
                used += count;
            }
            held.drain(..used);
        }
        Ok(found)
    }

    #[test]
    fn commands_come_in_any_portions() {
        let bytes =
            b"*2\r\n$3\r\nGET\r\n$5\r\na\r\nbc\r\nPING\r\n\r\n*1\r\n$4\r\nPING\r\n*0\r\nget  x\n";
        for portion in 1..bytes.len() {
            let found = commands(bytes, portion).unwrap();
            let expected: Vec<Vec<String>> = vec![
                vec!["GET".into(), "a\r\nbc".into()],
                vec!["PING".into()],
                vec![],
                vec!["PING".into()],
                vec![],
                vec!["get".into(), "x".into()],
            ];
            assert_eq!(found, expected, "in portions of {portion}");
        }
    }

    #[test]
    fn what_is_not_the_protocol_is_an_error() {
        let cases: [(&[u8], &str); 8] = [
            (b"*x\r\n", "invalid multibulk length"),
            (b"*99999999\r\n", "invalid multibulk length"),
            (b"*1\r\n:5\r\n", "expected '$'"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$99999999999\r\n", "invalid bulk length"),
            (
                b"*1\r\n$1\r\nab\r\n",
                "expected the end of a line after a string",
            ),
            (
                b"*1111111111111111111111111111111111111",
                "invalid multibulk length",
            ),
            (&[b'x'; 70_000], "too big inline request"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(commands(bytes, bytes.len()), Err(ProtocolError(expected)));
        }
    }

    #[test]
    fn a_command_without_an_end_is_limited() {
        let mut requests = Requests::default();
        let mut bytes = b"*1000\r\n".to_vec();
        while bytes.len() < REQUEST_BYTES_MAX {
            assert!(requests.next(&bytes).unwrap().is_none());
            bytes.extend_from_slice(b"$4000\r\n");
            bytes.resize(bytes.len() + 4000, b'k');
            bytes.extend_from_slice(b"\r\n");
        }
        assert!(requests.next(&bytes).is_err());
    }
}
