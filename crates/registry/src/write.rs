//! What any kind asks before it writes: plain data in, plain data out.

use crate::error::{Error, Kind, Result};
use crate::key::{LEADER, TERM, check_key, check_value};
use crate::{Expect, Life, Term};

/// A write that a caller asks for.
#[derive(Debug, Clone)]
pub struct Write<'a> {
    /// The key.
    pub key: &'a str,
    /// The new value; none removes the key.
    pub value: Option<&'a [u8]>,
    /// What has to be there.
    pub expect: Expect,
    /// The term that has to lead.
    pub guard: Option<Term>,
    /// How long the entry lives.
    pub life: Life,
}

impl Write<'_> {
    /// Refuses what is wrong whatever is there.
    pub fn check(&self) -> Result<()> {
        check_key(self.key)?;
        check_value(self.key, self.value.unwrap_or_default())?;
        let refused = |what: &str| Err(Error::new(Kind::Invalid, self.key, what));
        match (self.key, self.value) {
            (TERM, _) => refused("is written by elections only"),
            (LEADER, Some(_)) if self.guard.is_none() || self.life == Life::Kept => {
                refused("is written by whoever leads, guarded by its term, for its session")
            }
            (LEADER, None) if !matches!(self.expect, Expect::Version(_)) => {
                refused("is removed by version only")
            }
            _ => Ok(()),
        }
    }

    /// Refuses to write over `found`, the version that is there.
    pub fn expected(&self, place: &str, found: Option<u64>) -> Result<()> {
        let reason = match (self.expect, found) {
            (Expect::Any, _) | (Expect::Absent, None) => return Ok(()),
            (Expect::Version(expected), Some(found)) if expected == found => return Ok(()),
            (Expect::Absent, Some(found)) => format!("is there already, with version {found}"),
            (Expect::Version(expected), None) => {
                format!("isn't there, and was expected with version {expected}")
            }
            (Expect::Version(expected), Some(found)) => {
                format!("has version {found}, and was expected with version {expected}")
            }
        };
        let at = format!("{place}: {}", self.key);
        Err(Error::new(Kind::Conflict, at, reason))
    }

    /// Refuses to write unless the guard is the term that `leads`.
    pub fn guarded(&self, place: &str, leads: Option<Term>) -> Result<()> {
        let Some(guard) = self.guard else {
            return Ok(());
        };
        let reason = match leads {
            Some(leads) if leads == guard => return Ok(()),
            Some(leads) => format!("{guard} no longer leads, {leads} does"),
            None => format!("{guard} no longer leads"),
        };
        let at = format!("{place}: {}", self.key);
        Err(Error::new(Kind::Fenced, at, reason))
    }
}

/// The term in the value of [`TERM`]; none before the first.
pub fn parse_term(place: &str, value: Option<&[u8]>) -> Result<Option<Term>> {
    let Some(value) = value else {
        return Ok(None);
    };
    let number = std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok());
    match number {
        Some(number @ 1..) => Ok(Some(Term(number))),
        _ => {
            let reason = format!("is not a term: '{}'", value.escape_ascii());
            Err(
                Error::new(Kind::Damaged, format!("{place}: {TERM}"), reason)
                    .hint("if no orchestrator runs, remove the registry: the next one starts over"),
            )
        }
    }
}

/// The term after `term`.
pub fn next_term(place: &str, term: Option<Term>) -> Result<Term> {
    let next = term.map_or(Some(1), |term| term.0.checked_add(1));
    next.map(Term)
        .ok_or_else(|| Error::new(Kind::Damaged, format!("{place}: {TERM}"), "is the last one"))
}

/// That an entry or a candidate was removed by somebody.
pub fn removed(place: &str, was_leader: bool) -> Error {
    let reason = match was_leader {
        true => "no longer leads: its entry was removed",
        false => "no longer stands: its place in the line was removed",
    };
    Error::new(Kind::Fenced, format!("{place}: {LEADER}"), reason)
}

/// That there are as many keys as there may be.
pub fn too_many(place: &str, what: &str, most: usize) -> Error {
    Error::new(
        Kind::Full,
        place,
        format!("has {most} {what}, the most that it may have"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_read_as_numbers_or_refused() {
        assert_eq!(parse_term("x", None), Ok(None));
        assert_eq!(parse_term("x", Some(b"17")), Ok(Some(Term(17))));
        for value in [
            &b""[..],
            b"0",
            b"-1",
            b"x",
            b"\xff",
            b"99999999999999999999999",
        ] {
            let error = parse_term("x", Some(value)).unwrap_err();
            assert_eq!(error.kind, Kind::Damaged);
        }
        assert_eq!(next_term("x", None), Ok(Term(1)));
        assert!(next_term("x", Some(Term(u64::MAX))).is_err());
    }

    #[test]
    fn the_keys_of_elections_are_protected() {
        let write = |key, value, expect, guard, life| {
            let write = Write {
                key,
                value,
                expect,
                guard,
                life,
            };
            write.check().map_err(|error| error.kind)
        };
        let value = Some(&b"v"[..]);
        let refused = Err(Kind::Invalid);
        assert_eq!(
            write(TERM, value, Expect::Any, Some(Term(1)), Life::Kept),
            refused
        );
        assert_eq!(
            write(TERM, None, Expect::Version(1), None, Life::Kept),
            refused
        );
        assert_eq!(
            write(LEADER, value, Expect::Absent, None, Life::Session),
            refused
        );
        assert_eq!(
            write(LEADER, value, Expect::Any, Some(Term(1)), Life::Kept),
            refused
        );
        assert_eq!(
            write(LEADER, value, Expect::Any, Some(Term(1)), Life::Session),
            Ok(())
        );
        assert_eq!(
            write(LEADER, None, Expect::Any, Some(Term(1)), Life::Kept),
            refused
        );
        assert_eq!(
            write(LEADER, None, Expect::Version(3), None, Life::Kept),
            Ok(())
        );
    }
}
