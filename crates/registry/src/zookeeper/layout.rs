//! The nodes of a registry, and what is in them: plain data in, plain data out.
//!
//! ```text
//! PATH/format    "slackwater registry 1"
//! PATH/writes    the number of the last write (8 bytes, big-endian), then ids of the last ones, 8 bytes each
//! PATH/keys/K    an entry: its version (8 bytes, big-endian), then its value; '/' in keys is ':' here
//! PATH/keys/term the value is the term's number, a line feed, and the name of its candidate in the line
//! PATH/line/…    a candidate: 16 hexadecimal digits, '-', and ZooKeeper's number; ephemeral
//! ```

use crate::Entry;
use crate::key::check_key;

/// What `format` has.
pub const FORMAT: &str = "slackwater registry 1";
const FORMAT_START: &str = "slackwater registry ";

/// The most ids of writes that are kept: whoever loses its connection while it writes finds its own among
/// them, unless so many others have written before it is back. In the 6 s of an operation these are 170
/// writes a second; and 8 KiB to write each time.
pub const IDS_MAX: usize = 1_024;

/// Whether a registry is one that this program can use.
#[derive(Debug, PartialEq, Eq)]
pub enum Format {
    Ours,
    Later(String),
    Unknown,
}

/// Reads the node `format`.
pub fn format(data: &[u8]) -> Format {
    match std::str::from_utf8(data) {
        Ok(FORMAT) => Format::Ours,
        Ok(text) => match text.strip_prefix(FORMAT_START) {
            Some(version) => Format::Later(version.chars().take(20).collect()),
            None => Format::Unknown,
        },
        Err(_) => Format::Unknown,
    }
}

/// The node `writes`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Writes {
    /// The number of the last write.
    pub last: u64,
    /// The ids of the last ones, the newest last.
    ids: Vec<u64>,
}

impl Writes {
    /// Reads the node. None if it isn't one.
    pub fn parse(data: &[u8]) -> Option<Writes> {
        let (words, rest) = data.as_chunks::<8>();
        let (last, ids) = words.split_first()?;
        let ids: Vec<u64> = ids.iter().map(|id| u64::from_be_bytes(*id)).collect();
        let last = u64::from_be_bytes(*last);
        // Versions are numbers of writes: there is always a next one.
        let is_valid = rest.is_empty() && ids.len() <= IDS_MAX && last < u64::MAX >> 1;
        is_valid.then_some(Writes { last, ids })
    }

    /// The node after one more write.
    pub fn next(&self, id: u64) -> Writes {
        let mut ids = self.ids.clone();
        ids.push(id);
        ids.drain(..ids.len().saturating_sub(IDS_MAX));
        Writes {
            last: self.last + 1,
            ids,
        }
    }

    /// The number of the write with an id, if it is among the last ones.
    pub fn find(&self, id: u64) -> Option<u64> {
        let after = self.ids.iter().rev().position(|found| *found == id)?;
        self.last.checked_sub(after as u64)
    }

    /// The node's data.
    pub fn data(&self) -> Vec<u8> {
        let words = std::iter::once(self.last).chain(self.ids.iter().copied());
        words.flat_map(u64::to_be_bytes).collect()
    }
}

/// The data of an entry's node.
pub fn entry_data(version: u64, value: &[u8]) -> Vec<u8> {
    [&version.to_be_bytes(), value].concat()
}

/// Reads an entry's node. None if it isn't one.
pub fn parse_entry(data: &[u8]) -> Option<Entry> {
    let (version, value) = data.split_first_chunk()?;
    Some(Entry {
        value: value.to_vec(),
        version: u64::from_be_bytes(*version),
    })
}

/// The value of the entry of the term.
pub fn term_value(number: u64, candidate: &str) -> Vec<u8> {
    format!("{number}\n{candidate}").into_bytes()
}

/// The number, and the name of the candidate, in the value of the entry of the term. Neither is checked yet.
pub fn split_term(value: &[u8]) -> (&[u8], Option<&str>) {
    match value.iter().position(|byte| *byte == b'\n') {
        None => (value, None),
        Some(at) => (&value[..at], std::str::from_utf8(&value[at + 1..]).ok()),
    }
}

/// The name of a key's node.
pub fn name(key: &str) -> String {
    key.replace('/', ":")
}

/// The key of a node. None if none has such a name.
pub fn key(name: &str) -> Option<String> {
    let key = name.replace(':', "/");
    (!name.contains('/') && check_key(&key).is_ok()).then_some(key)
}

/// The number that `ZooKeeper` gave to a candidate. None if none has such a name.
pub fn number_in_line(name: &str) -> Option<u64> {
    let (id, number) = name.split_once('-')?;
    let is_id = id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    // Ten digits or, when those are used up, nineteen.
    let is_number = matches!(number.len(), 10 | 19) && number.bytes().all(|b| b.is_ascii_digit());
    (is_id && is_number).then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_found_by_their_ids() {
        let mut writes = Writes::default();
        let count = IDS_MAX as u64 + 18;
        for id in 1..=count {
            writes = writes.next(1_000 + id);
        }
        assert_eq!(Writes::parse(&writes.data()), Some(writes.clone()));
        assert_eq!(writes.last, count);
        assert_eq!(writes.find(1_000 + count), Some(count));
        assert_eq!(writes.find(1_019), Some(19));
        assert_eq!(writes.find(1_018), None);
        assert_eq!(writes.data().len(), 8 * (1 + IDS_MAX));
        for data in [
            &b""[..],
            b"1234567",
            b"123456789",
            &[0xff; 8],
            &[0; 8 * 1_026],
        ] {
            assert_eq!(Writes::parse(data), None, "{data:?}");
        }
        let beyond = Writes {
            last: 0,
            ids: vec![1, 2, 3],
        };
        assert_eq!(beyond.find(1), None);
    }

    #[test]
    fn entries_and_names_are_read_back() {
        let entry = Entry {
            value: b"v".to_vec(),
            version: 7,
        };
        assert_eq!(parse_entry(&entry_data(7, b"v")), Some(entry));
        assert_eq!(parse_entry(b"1234567"), None);
        assert_eq!(split_term(&term_value(7, "a-1")), (&b"7"[..], Some("a-1")));
        assert_eq!(split_term(b"7"), (&b"7"[..], None));
        assert_eq!(name("hosts/h1"), "hosts:h1");
        assert_eq!(key("hosts:h1"), Some("hosts/h1".to_owned()));
        for name in ["", ":", "a::b", "a/b", "ä"] {
            assert_eq!(key(name), None, "{name}");
        }
        assert_eq!(number_in_line("0123456789abcdef-0000000017"), Some(17));
        for name in [
            "",
            "-",
            "0123456789abcdef",
            "0123456789abcdef-17",
            "x-0000000017",
        ] {
            assert_eq!(number_in_line(name), None, "{name}");
        }
    }

    #[test]
    fn other_formats_are_told_apart() {
        assert_eq!(format(FORMAT.as_bytes()), Format::Ours);
        assert_eq!(
            format(b"slackwater registry 2"),
            Format::Later("2".to_owned())
        );
        assert_eq!(format(b""), Format::Unknown);
        assert_eq!(format(b"\xff"), Format::Unknown);
    }
}
