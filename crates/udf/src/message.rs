//! Requests and replies: 32 bytes each, little-endian.
//!
//! | bytes | request | reply |
//! |---|---|---|
//! | 0–3 | 1 start, 2 call, 3–7 see `aggregate.rs`, 8–9 `operator.rs` | 1 result, 2 failed, 3 ready |
//! | 4–7 | 0 | 0 |
//! | 8–15 | the number of rows | the row that has failed, -1 if it is not known, -2 if any row would fail |
//! | 16–23 | the size of the memory of arguments | that of results |
//! | 24–31 | the bytes of it that are used | the bytes that are used; of a reason, its length |

use std::io::{self, Write};
use std::os::unix::net::UnixStream;

/// Bytes of a message.
pub const BYTES: usize = 32;

/// A request or a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    pub what: u32,
    pub row: i64,
    pub size: u64,
    pub length: u64,
}

pub const START: u32 = 1;
pub const CALL: u32 = 2;
pub const ACCUMULATE: u32 = 3;
pub const RETRACT: u32 = 4;
pub const MERGE: u32 = 5;
pub const FINISH: u32 = 6;
pub const SCAN: u32 = 7;
pub const KEYED: u32 = 8;
pub const TABLE: u32 = 9;

pub const RESULT: u32 = 1;
pub const FAILED: u32 = 2;
pub const READY: u32 = 3;

/// Instead of the row that has failed: any row would fail.
pub const ANY_ROW: i64 = -2;

impl Message {
    /// Sends the message.
    pub fn send(&self, mut socket: &UnixStream) -> io::Result<()> {
        let mut bytes = [0; BYTES];
        bytes[..4].copy_from_slice(&self.what.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.row.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.size.to_le_bytes());
        bytes[24..].copy_from_slice(&self.length.to_le_bytes());
        socket.write_all(&bytes)
    }

    /// The message with these bytes.
    pub fn of(bytes: &[u8; BYTES]) -> Message {
        let eight = |at: usize| {
            let eight = bytes[at..at + 8].try_into();
            u64::from_le_bytes(eight.expect("a message has 32 bytes"))
        };
        Message {
            what: eight(0) as u32,
            row: eight(8) as i64,
            size: eight(16),
            length: eight(24),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_message_arrives_as_it_was_sent() {
        let message = Message {
            what: FAILED,
            row: -1,
            size: 1 << 40,
            length: 7,
        };
        let (here, mut there) = UnixStream::pair().unwrap();
        message.send(&here).unwrap();
        let mut bytes = [0; BYTES];
        there.read_exact(&mut bytes).unwrap();
        assert_eq!(Message::of(&bytes), message);
    }
}
