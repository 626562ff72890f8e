//! The secret of a cluster, and the file that holds it: a key that all hosts have, or certificates.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};

use crate::certificates::{BEGIN, Certificates};

/// The length of a key: as many bits as the hash that everything is derived with.
pub(crate) const KEY_BYTES: usize = 32;

/// The most keys of a secret: the new one and the old one, while it is changed.
const KEYS_MAX: usize = 2;

/// The longest file: two keys are 130 bytes, a certificate is some 2 KB, and the rest is room for comments
/// and for a chain of certificates.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Makes the file, in messages.
pub(crate) const MAKE: &str = "slackwater key > cluster.key";

/// What lets a host into a cluster.
///
/// Mostly what all hosts know, and nobody else: one key of 32 random bytes, or two while it is changed. The
/// first is the one that is shown to others; both are accepted from them. Otherwise this host's certificate
/// with its private key, and the authorities whose certificates are accepted.
#[derive(Clone)]
pub struct Secret {
    kind: Kind,
}

#[derive(Clone)]
pub(crate) enum Kind {
    /// One or two.
    Keys(Vec<[u8; KEY_BYTES]>),
    Certificates(Arc<Certificates>),
}

impl Secret {
    /// A new secret of one random key.
    ///
    /// # Errors
    ///
    /// When the operating system has no randomness.
    pub fn generate() -> io::Result<Secret> {
        let mut key = [0; KEY_BYTES];
        let filled = SystemRandom::new().fill(&mut key);
        filled.map_err(|_| io::Error::other("the operating system gave no random bytes"))?;
        let kind = Kind::Keys(vec![key]);
        Ok(Secret { kind })
    }

    /// Reads a file with one key per line; `#` begins a comment. Or a file in the PEM format: this host's
    /// certificate, those between it and the authority, its private key, and the authorities.
    ///
    /// # Errors
    ///
    /// When the file can't be read, when others can read or change it, when it doesn't hold one or two
    /// keys, or when the certificate is not one of the authorities, not of this key, or not valid today. The
    /// message names the file, the line and the fix.
    pub fn read(path: impl AsRef<Path>) -> io::Result<Secret> {
        let path = path.as_ref();
        let file = path.display();
        let wrong = |kind, what: String| Err(io::Error::new(kind, format!("{file}{what}")));
        let mut opened = match File::open(path) {
            Ok(opened) => opened,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let what = format!(": no such file; make one: {MAKE}");
                return wrong(ErrorKind::NotFound, what);
            }
            Err(error) => return wrong(error.kind(), format!(": can't be read: {error}")),
        };
        // Of the file that is open, so that it can't be exchanged in between.
        let metadata = opened.metadata()?;
        if metadata.is_dir() {
            let what = format!(" is a folder; name the file in it, or make one: {MAKE}");
            return wrong(ErrorKind::IsADirectory, what);
        }
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            let what =
                format!(": others can read or change it (mode {mode:o}); run: chmod 600 {file}");
            return wrong(ErrorKind::PermissionDenied, what);
        }
        let mut text = String::new();
        let limited = (&mut opened).take(FILE_BYTES_MAX + 1);
        match { limited }.read_to_string(&mut text) {
            Ok(count) if count as u64 > FILE_BYTES_MAX => {
                let what = format!(": longer than {FILE_BYTES_MAX} bytes; make a new one: {MAKE}");
                wrong(ErrorKind::InvalidData, what)
            }
            Ok(_) => Secret::parse(&text).or_else(|what| wrong(ErrorKind::InvalidData, what)),
            Err(error) => wrong(error.kind(), format!(": can't be read: {error}")),
        }
    }

    /// The text of a file with this secret: a line of hexadecimal digits for each key, or what was read.
    pub fn text(&self) -> String {
        let hex = |key: &[u8; KEY_BYTES]| key.iter().map(|byte| format!("{byte:02x}")).collect();
        match &self.kind {
            Kind::Keys(keys) => {
                let lines = keys.iter().map(hex).map(|line: String| line + "\n");
                lines.collect()
            }
            Kind::Certificates(certificates) => certificates.text().to_owned(),
        }
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    ///
    /// What is wrong, after the name of the file.
    pub fn parse(text: &str) -> Result<Secret, String> {
        if text.contains(BEGIN) {
            let kind = Kind::Certificates(Arc::new(Certificates::parse(text)?));
            return Ok(Secret { kind });
        }
        let mut keys = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let number = index + 1;
            let Some(key) = key(line) else {
                // Not the line itself: it may be most of a key.
                return Err(format!(
                    ":{number}: not a key of {KEY_BYTES} bytes (64 hexadecimal digits, or base64) but {} \
                     characters; make a new one: {MAKE}",
                    line.chars().count()
                ));
            };
            if keys.len() == KEYS_MAX {
                return Err(format!(
                    ":{number}: a third key; keep the new key and the one before it"
                ));
            }
            if keys.contains(&key) {
                return Err(format!(":{number}: the same key again; remove the line"));
            }
            keys.push(key);
        }
        if keys.is_empty() {
            return Err(format!(": holds no key; make one: {MAKE}"));
        }
        let kind = Kind::Keys(keys);
        Ok(Secret { kind })
    }
}

/// The key never reaches a log.
impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Keys(keys) => write!(formatter, "Secret({} keys)", keys.len()),
            Kind::Certificates(_) => write!(formatter, "Secret(certificates)"),
        }
    }
}

fn key(line: &str) -> Option<[u8; KEY_BYTES]> {
    if line.len() != 2 * KEY_BYTES {
        let bytes = STANDARD.decode(line).ok()?;
        return bytes.try_into().ok();
    }
    let mut key = [0; KEY_BYTES];
    for (byte, digits) in key.iter_mut().zip(line.as_bytes().chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(digits[0])? << 4 | digit(digits[1])?) as u8;
    }
    Some(key)
}

#[cfg(test)]
mod tests;
