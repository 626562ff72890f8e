//! The stored form of manifests and claims: two lines of JSON, each readable with any tool.
//!
//! ```text
//! {"slackwater":"checkpoint","format":1,"bytes":812,"checksum":"crc32:0d4a1185"}
//! {"number":12,"epoch":9,"barrier":3,…}
//! ```
//!
//! The checksum covers both lines: kind, format and body. The first line must have exactly this form, so no
//! byte of a record can change unnoticed. The *format* changes if a reader of the version before would
//! misread it; mere additions have a default, and every version reads them. A reader knows every format up to
//! its own, and reports a later one as such.

use serde::{Deserialize, Serialize};

use super::Manifest;
use crate::error::{Error, Kind, Result};

/// The format that is written. Format 1 described the meaning of state with strings ([`super::Meaning`]).
pub const FORMAT: u32 = 2;

/// The longest record: 2^20 parts of 250 bytes each.
pub const RECORD_BYTES_MAX: u64 = 256 << 20;

/// The longest first line: about 60 bytes of names, and three numbers of at most 20 digits.
const HEAD_BYTES_MAX: usize = 160;

/// The record with which an incarnation takes over: nothing of an earlier one is stored after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The claim's number, in the same sequence as checkpoints. It is also the incarnation's epoch.
    pub number: u64,
    /// When it was stored, in milliseconds since 1970. Only for display.
    pub time_ms: u64,
    /// Distinguishes two claims with the same number.
    pub owner: String,
    /// The checkpoint from which the incarnation resumes.
    pub restored: Option<u64>,
    /// Whether neither this incarnation nor later ones may resume from a checkpoint before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_scratch: bool,
}

/// A record: a checkpoint or a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// A checkpoint.
    Checkpoint(Manifest),
    /// The start of an incarnation.
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
    /// The record's number.
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

    /// The record as bytes.
    ///
    /// # Errors
    ///
    /// If the record is inconsistent, or is longer than [`RECORD_BYTES_MAX`].
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

    /// Reads the record in `bytes`.
    ///
    /// # Errors
    ///
    /// [`Kind::Corrupt`] if they are not what was written, [`Kind::Invalid`] if a later version wrote them.
    /// The caller adds the place.
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
            .ok_or_else(|| corrupt("its length is not the stated one"))?;
        // Writing the line again shows any change to it, to the body or to the checksum.
        if head(parsed.slackwater, parsed.format, body) != [first, b"\n"].concat() {
            return Err(corrupt("its checksum is wrong"));
        }
        if parsed.format == 0 || parsed.format > FORMAT {
            let reason = format!(
                "it has format {}, and this version reads up to {FORMAT}",
                parsed.format
            );
            let error = Error::new(Kind::Invalid, "", reason);
            return Err(error.hint("a later version wrote it: use that one"));
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

/// The first line, with its line end.
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

/// A checksum in the form that records contain.
pub(crate) fn checksum_text(checksum: u32) -> String {
    format!("crc32:{checksum:08x}")
}

/// A body after a first line that matches it, for tests and fuzzing.
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
