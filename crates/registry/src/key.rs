//! Keys and values: their limits, and which characters a key may have.

use crate::error::{Error, Kind, Result};

/// The key of whoever leads. Its value is the candidate's.
pub const LEADER: &str = "leader";
/// The key of the present term: its number, in decimal digits.
pub const TERM: &str = "term";

/// The longest key, in bytes: a name of a host (64) in a folder, three times.
pub const KEY_MAX: usize = 200;
/// The most keys: their names fill a reply of ZooKeeper (4,096 × (200 + 4) bytes = 816 KiB) by less than its
/// limit of 1 MiB, and they are a thousand hosts with four keys each.
pub const KEYS_MAX: usize = 4_096;
/// The longest value, in bytes: ZooKeeper's default limit of a request (`jute.maxbuffer`, 1 MiB − 1) without
/// 64 KiB for the paths and the other operations of the same write.
pub const VALUE_MAX: usize = (1 << 20) - (64 << 10);

/// Refuses what is not a key: names of letters, digits, `.`, `-` and `_`, with `/` between them.
pub fn check_key(key: &str) -> Result<()> {
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && name.chars().all(is_plain);
    match key.len() <= KEY_MAX && key.split('/').all(is_name) {
        true => Ok(()),
        false => Err(refused(key, "is not a valid key")),
    }
}

/// Refuses what no key starts with.
#[cfg(any(test, feature = "sqlite", feature = "zookeeper"))]
pub fn check_prefix(prefix: &str) -> Result<()> {
    let is_plain = prefix.chars().all(|c| is_plain(c) || c == '/');
    match prefix.len() <= KEY_MAX && is_plain {
        true => Ok(()),
        false => Err(refused(prefix, "is not a valid prefix of keys")),
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')
}

fn refused(key: &str, what: &str) -> Error {
    let shown: String = key.escape_debug().take(KEY_MAX).collect();
    let hint = format!(
        "letters, digits, '.', '-' and '_', with '/' between names, and at most {KEY_MAX} bytes"
    );
    Error::new(Kind::Invalid, format!("'{shown}'"), what).hint(hint)
}

/// Refuses a value that is too long.
#[cfg(any(feature = "sqlite", feature = "zookeeper"))]
pub fn check_value(key: &str, value: &[u8]) -> Result<()> {
    if value.len() <= VALUE_MAX {
        return Ok(());
    }
    let what = format!(
        "a value of {} bytes is too long: at most {VALUE_MAX}",
        value.len()
    );
    Err(Error::new(Kind::Invalid, key, what)
        .hint("store it elsewhere, and put its place into the registry"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_names_with_slashes() {
        let long = "k".repeat(KEY_MAX);
        for key in ["leader", "hosts/h-1.example_com", "a/b/c", "...", &long] {
            assert_eq!(check_key(key), Ok(()), "{key}");
        }
        let too_long = "k".repeat(KEY_MAX + 1);
        for key in [
            "", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a b", "a\0", "ä", "a:b", "a%",
            &too_long,
        ] {
            assert_eq!(
                check_key(key).map_err(|error| error.kind),
                Err(Kind::Invalid),
                "{key}"
            );
        }
    }

    #[test]
    fn prefixes_may_end_anywhere() {
        for prefix in ["", "h", "hosts/", "hosts/h"] {
            assert_eq!(check_prefix(prefix), Ok(()), "{prefix}");
        }
        for prefix in ["*", "a b", "\n", "%"] {
            assert!(check_prefix(prefix).is_err(), "{prefix}");
        }
    }
}
