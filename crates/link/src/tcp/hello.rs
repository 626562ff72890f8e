//! The greeting: a writer says who it is and where it can resume, and the acceptor answers yes, and from
//! where, or no, and why.
//!
//! Both messages have a fixed size, and begin with eight magic bytes and the version, in every version. So
//! does the token have its place in every version: a peer without it gets no answer, not even which version
//! this is. The two magics differ, so that a socket that was connected to itself is noticed.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use crate::error::LinkError;

/// The version of greeting and records. Both ends must have the same, or the writer is refused.
pub(super) const VERSION: u32 = 1;

/// The length of a writer's greeting.
pub(super) const HELLO_BYTES: usize = 80;

/// The length of the answer.
pub(super) const REPLY_BYTES: usize = 48;

const HELLO_MAGIC: [u8; 8] = *b"slackTCP";
const REPLY_MAGIC: [u8; 8] = *b"slackYES";

/// The length of magic and version, which is what all versions of an answer have in common.
const VERSIONED_BYTES: usize = 12;

/// Where the token lies in a greeting. With what comes before, all versions have it in common.
const TOKEN: std::ops::Range<usize> = 24..40;

/// A writer's greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) epoch: u64,
    pub(super) token: [u8; 16],
    pub(super) link: u64,
    /// The writer's random number: distinguishes a writer that comes back from another one.
    pub(super) writer: u64,
    /// The number of the oldest frame that the writer still has.
    pub(super) oldest: u64,
    /// The number of the first frame of which it never sent a byte.
    pub(super) unsent: u64,
    pub(super) window: u32,
}

/// The acceptor's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) answer: Answer,
    /// The reader's own epoch.
    pub(super) epoch: u64,
    /// The reader's random number.
    pub(super) reader: u64,
    /// The number of the frame to resume with.
    pub(super) position: u64,
    /// The window that counts: the smaller of both.
    pub(super) window: u32,
}

/// Whether the writer is accepted, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Accepted,
    Version,
    /// The writer belongs to an earlier incarnation than the reader.
    StaleEpoch,
    /// The writer belongs to a later incarnation than the reader.
    NewerEpoch,
    /// No reader expects the link yet.
    UnknownLink,
    /// Frames of another writer have already come by this link.
    OtherWriter,
    /// The reader expects a frame that the writer does not have.
    Position,
    /// Everything has been received, the end included.
    Ended,
    /// The window is not valid.
    Window,
    /// The link's reader has left.
    Left,
}

/// The answers by their numbers. Number 2 told a peer that its token was another one; now it gets no answer.
const ANSWERS: [Option<Answer>; 11] = [
    Some(Answer::Accepted),
    Some(Answer::Version),
    None,
    Some(Answer::StaleEpoch),
    Some(Answer::NewerEpoch),
    Some(Answer::UnknownLink),
    Some(Answer::OtherWriter),
    Some(Answer::Position),
    Some(Answer::Ended),
    Some(Answer::Window),
    Some(Answer::Left),
];

/// Why bytes are not a greeting that can be answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// The bytes are not of this protocol.
    Stranger,
    /// The bytes are of this protocol, in another version.
    Version(u32),
    /// The bytes are of our version, and damaged.
    Damaged,
}

impl Hello {
    pub(super) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&HELLO_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[TOKEN].copy_from_slice(&self.token);
        bytes[40..48].copy_from_slice(&self.link.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.writer.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.oldest.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.unsent.to_le_bytes());
        bytes[72..76].copy_from_slice(&self.window.to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, Unreadable> {
        Hello::could_be(bytes)?;
        if !is_sealed(bytes) {
            return Err(Unreadable::Damaged);
        }
        let mut token = [0; 16];
        token.copy_from_slice(&bytes[TOKEN]);
        Ok(Hello {
            epoch: number(bytes, 16),
            token,
            link: number(bytes, 40),
            writer: number(bytes, 48),
            oldest: number(bytes, 56),
            unsent: number(bytes, 64),
            window: small_number(bytes, 72),
        })
    }

    /// Whether the first bytes of a greeting, as many as have come, can be the start of a valid one.
    pub(super) fn could_be(bytes: &[u8]) -> Result<(), Unreadable> {
        could_be(bytes, HELLO_MAGIC, TOKEN.end)
    }

    /// Whether a greeting of any version has `token`.
    pub(super) fn has_token(bytes: &[u8; HELLO_BYTES], token: &[u8; 16]) -> bool {
        let mut theirs = [0; 16];
        theirs.copy_from_slice(&bytes[TOKEN]);
        is_same(&theirs, token)
    }
}

impl Reply {
    pub(super) fn refusal(answer: Answer, epoch: u64) -> Reply {
        Reply {
            answer,
            epoch,
            reader: 0,
            position: 0,
            window: 0,
        }
    }

    pub(super) fn encode(&self) -> [u8; REPLY_BYTES] {
        let answer = ANSWERS
            .iter()
            .position(|answer| *answer == Some(self.answer));
        // The array holds every variant: the test of this module goes through them.
        let answer = answer.unwrap_or(usize::from(u8::MAX)) as u32;
        let mut bytes = [0; REPLY_BYTES];
        bytes[..8].copy_from_slice(&REPLY_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&answer.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.reader.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.position.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.window.to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    pub(super) fn decode(bytes: &[u8; REPLY_BYTES]) -> Result<Reply, Unreadable> {
        could_be(bytes, REPLY_MAGIC, VERSIONED_BYTES)?;
        if !is_sealed(bytes) {
            return Err(Unreadable::Damaged);
        }
        let answer = ANSWERS.get(small_number(bytes, 12) as usize);
        Ok(Reply {
            answer: answer.copied().flatten().ok_or(Unreadable::Damaged)?,
            epoch: number(bytes, 16),
            reader: number(bytes, 24),
            position: number(bytes, 32),
            window: small_number(bytes, 40),
        })
    }
}

impl Unreadable {
    /// What the peer did, as the end of a sentence about it.
    pub(super) fn reason(&self) -> String {
        match self {
            Unreadable::Stranger => "does not use this protocol".to_owned(),
            Unreadable::Version(version) => {
                format!("uses version {version} of the protocol, but this process uses {VERSION}")
            }
            Unreadable::Damaged => "sent a greeting with a wrong checksum".to_owned(),
        }
    }

    /// The error about `peer`, with its hint.
    pub(super) fn error(&self, peer: String) -> LinkError {
        let hint = match self {
            Unreadable::Stranger => "allow only workers of the deployment to connect to this port",
            Unreadable::Version(_) => "run the same version of slackwater on every host",
            Unreadable::Damaged => {
                "check for a network device between the hosts that changes bytes"
            }
        };
        LinkError::new(peer, self.reason()).hint(hint)
    }
}

/// `common` is the length of what all versions have in common.
fn could_be(bytes: &[u8], magic: [u8; 8], common: usize) -> Result<(), Unreadable> {
    let known = bytes.len().min(magic.len());
    if bytes[..known] != magic[..known] {
        return Err(Unreadable::Stranger);
    }
    if bytes.len() >= common {
        let version = small_number(bytes, 8);
        if version != VERSION {
            return Err(Unreadable::Version(version));
        }
    }
    Ok(())
}

/// Compares tokens, in the same time for a wrong token as for a right one.
pub(super) fn is_same(left: &[u8; 16], right: &[u8; 16]) -> bool {
    let pairs = left.iter().zip(right);
    let differences = pairs.fold(0, |differences, (left, right)| differences | (left ^ right));
    std::hint::black_box(differences) == 0
}

/// A random number: the keys of a `RandomState` come from the operating system.
pub(super) fn random_number() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The last four bytes of a greeting are the FNV-1a hash of the bytes before them.
fn seal(bytes: &mut [u8]) {
    let body = bytes.len() - 4;
    let hash = fnv(&bytes[..body]);
    bytes[body..].copy_from_slice(&hash.to_le_bytes());
}

fn is_sealed(bytes: &[u8]) -> bool {
    let body = bytes.len() - 4;
    small_number(bytes, body) == fnv(&bytes[..body])
}

fn fnv(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811C_9DC5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

/// The number at `offset`, which the callers choose within the fixed size.
fn number(bytes: &[u8], offset: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(number)
}

fn small_number(bytes: &[u8], offset: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Hello = Hello {
        epoch: 7,
        token: *b"0123456789abcdef",
        link: 1 << 33,
        writer: u64::MAX,
        oldest: 11,
        unsent: 13,
        window: 4 << 20,
    };

    #[test]
    fn a_record_is_read_as_it_was_written() {
        assert_eq!(Hello::decode(&HELLO.encode()), Ok(HELLO));
        for answer in ANSWERS.into_iter().flatten() {
            let reply = Reply {
                answer,
                epoch: 8,
                reader: 9,
                position: 10,
                window: 1,
            };
            assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
        }
    }

    #[test]
    fn a_flipped_bit_is_found() {
        for bit in 0..HELLO_BYTES * 8 {
            let mut bytes = HELLO.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Hello::decode(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn strangers_and_other_versions_are_known_early() {
        let bytes = HELLO.encode();
        for length in 0..HELLO_BYTES {
            assert_eq!(Hello::could_be(&bytes[..length]), Ok(()));
        }
        assert_eq!(Hello::could_be(b"GET / HT"), Err(Unreadable::Stranger));
        assert_eq!(Hello::could_be(b"sla"), Ok(()));
        assert_eq!(Hello::could_be(b"slb"), Err(Unreadable::Stranger));
        let mut later = bytes;
        later[8] = 2;
        assert_eq!(Hello::decode(&later), Err(Unreadable::Version(2)));
        // Not before its token has come.
        assert_eq!(Hello::could_be(&later[..39]), Ok(()));
        assert_eq!(Hello::could_be(&later[..40]), Err(Unreadable::Version(2)));
        assert!(Hello::has_token(&later, b"0123456789abcdef"));
        assert!(!Hello::has_token(&later, b"0123456789abcdeg"));
    }

    #[test]
    fn a_greeting_is_not_a_reply() {
        let mut bytes = [0; REPLY_BYTES];
        bytes.copy_from_slice(&HELLO.encode()[..REPLY_BYTES]);
        assert_eq!(Reply::decode(&bytes), Err(Unreadable::Stranger));
    }
}
