//! Manifests and claims as bytes: two lines of JSON, each readable with any tool.
//!
//! ```text
//! {"slackwater":"checkpoint","format":1,"bytes":812,"checksum":"crc32:0d4a1185"}
//! {"number":12,"epoch":9,"barrier":3,…}
//! ```
//!
//! The checksum covers both lines: kind, format and body. The first line has to be written exactly so,
//! hence no byte of a record can change unnoticed. The *format* changes when a reader of the version
//! before would misread it; what is only added has a default, and is read by all. A reader knows every
//! format up to its own, and says of a later one that it is later.

use serde::{Deserialize, Serialize};

use super::Manifest;
use crate::error::{Error, Kind, Result};

/// The format that is written. Format 1 said in words what the state of a node means ([`super::Meaning`]).
pub const FORMAT: u32 = 2;

/// A record is not longer: 2^20 parts at 250 bytes each.
pub const RECORD_BYTES_MAX: u64 = 256 << 20;

/// The first line is not longer: about 60 bytes of names, three numbers of 20 digits at most.
const HEAD_BYTES_MAX: usize = 160;

/// An incarnation takes over: nothing of an earlier one is stored behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Its number, among those of the checkpoints. It is the incarnation's epoch, too.
    pub number: u64,
    /// When, in milliseconds since 1970, for people.
    pub time_ms: u64,
    /// Tells two claims of one number apart.
    pub owner: String,
    /// The checkpoint that it goes on from.
    pub restored: Option<u64>,
    /// Neither it nor those after it go on from what is before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_scratch: bool,
}

/// What stands under a number.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// A checkpoint.
    Checkpoint(Manifest),
    /// The beginning of an incarnation.
    Claim(Claim),
}

#[derive(Serialize, Deserialize)]
struct Head<'a> {
    slackwater: &'a str,
    format: u32,
    bytes: u64,
    checksum: String,
}

const CHECKPOINT: &str = "checkpoint";
const CLAIM: &str = "claim";

impl Record {
    /// The number under which it stands.
    pub fn number(&self) -> u64 {
        match self {
            Record::Checkpoint(manifest) => manifest.number,
            Record::Claim(claim) => claim.number,
        }
    }

    /// The incarnation that wrote it.
    pub fn epoch(&self) -> u64 {
        match self {
            Record::Checkpoint(manifest) => manifest.epoch,
            Record::Claim(claim) => claim.number,
        }
    }

    /// Its bytes.
    ///
    /// # Errors
    ///
    /// When it makes no sense in itself, or is longer than [`RECORD_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        let invalid = |reason: String| Error::new(Kind::Invalid, "manifest", reason);
        let (kind, body) = match self {
            Record::Checkpoint(manifest) => {
                manifest.check().map_err(invalid)?;
                (CHECKPOINT, serde_json::to_vec(manifest))
            }
            Record::Claim(claim) => (CLAIM, serde_json::to_vec(claim)),
        };
        let body = body.map_err(|error| invalid(error.to_string()))?;
        if body.len() as u64 > RECORD_BYTES_MAX {
            return Err(invalid(format!(
                "{} bytes, and at most {RECORD_BYTES_MAX} are stored",
                body.len()
            )));
        }
        let mut bytes = head(kind, FORMAT, &body);
        bytes.extend_from_slice(&body);
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// The record that `bytes` hold.
    ///
    /// # Errors
    ///
    /// [`Kind::Corrupt`] when they are not what was written, [`Kind::Invalid`] when a later version
    /// wrote them. The place is left to the caller.
    pub fn decode(bytes: &[u8]) -> Result<Record> {
        let corrupt = |reason: &str| Error::corrupt("", reason);
        let line = bytes.iter().take(HEAD_BYTES_MAX);
        let end = line.copied().position(|byte| byte == b'\n');
        let (first, rest) = bytes.split_at(end.ok_or_else(|| corrupt("it has no first line"))?);
        let parsed = serde_json::from_slice::<Head<'_>>(first);
        let parsed = parsed.map_err(|_| corrupt("its first line is not that of a record"))?;
        let body = rest
            .strip_prefix(b"\n")
            .and_then(|rest| rest.strip_suffix(b"\n"))
            .filter(|body| body.len() as u64 == parsed.bytes)
            .ok_or_else(|| corrupt("it is shorter or longer than it says"))?;
        // Writing the line anew shows any change to it, to the body or to the checksum.
        if head(parsed.slackwater, parsed.format, body) != [first, b"\n"].concat() {
            return Err(corrupt("its checksum is wrong"));
        }
        if parsed.format == 0 || parsed.format > FORMAT {
            let reason = format!(
                "it has format {}, and this version reads up to {FORMAT}",
                parsed.format
            );
            let error = Error::new(Kind::Invalid, "", reason);
            return Err(error.mend("a later version wrote it: use that one"));
        }
        match parsed.slackwater {
            CHECKPOINT => {
                let manifest = serde_json::from_slice::<Manifest>(body)
                    .map_err(|error| corrupt(&format!("it can't be read: {error}")))?;
                manifest.check().map_err(|reason| corrupt(&reason))?;
                Ok(Record::Checkpoint(manifest))
            }
            CLAIM => {
                let claim = serde_json::from_slice(body)
                    .map_err(|error| corrupt(&format!("it can't be read: {error}")))?;
                Ok(Record::Claim(claim))
            }
            other => Err(corrupt(&format!("it is a '{other}'"))),
        }
    }
}

/// The first line, with its end.
fn head(kind: &str, format: u32, body: &[u8]) -> Vec<u8> {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(kind.as_bytes());
    hasher.update(&format.to_le_bytes());
    hasher.update(body);
    let head = Head {
        slackwater: kind,
        format,
        bytes: body.len() as u64,
        checksum: checksum_text(hasher.finalize()),
    };
    let mut line = serde_json::to_vec(&head).expect("a string map with plain keys");
    line.push(b'\n');
    line
}

/// A checksum as records hold it.
pub(crate) fn checksum_text(checksum: u32) -> String {
    format!("crc32:{checksum:08x}")
}

/// A body behind a first line that fits it, for tests and fuzzing.
pub(crate) fn with_head(kind: &str, body: &[u8]) -> Vec<u8> {
    [&head(kind, FORMAT, body), body, b"\n"].concat()
}

/// As a later version would write it.
#[cfg(test)]
pub(crate) fn with_later_head(kind: &str, body: &[u8]) -> Vec<u8> {
    [&head(kind, FORMAT + 1, body), body, b"\n"].concat()
}

#[cfg(test)]
pub(crate) mod tests;
