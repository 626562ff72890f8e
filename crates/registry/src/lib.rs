//! The registry: where the orchestrators of one query agree who leads, and keep what the next leader needs.
//!
//! ```text
//! open(url) ─┬─ sqlite:PATH           one host: a database, and named pipes that say who lives
//!            └─ zk://h1:2181,h2/path  a cluster: nodes of ZooKeeper, and its sessions
//! ```
//!
//! Only orchestrators speak to it. Agents and worker processes join the orchestrator that leads.
//!
//! Invariants, the same for each kind:
//!
//! - **A version is the number of the write that made a value.** Writes are numbered over the whole
//!   registry, and no number is given twice: a key that was removed and made again has another version.
//! - **A term has one leader, and terms only grow.** A candidate gets its term in the write that makes it the
//!   leader.
//! - **A guarded write happens while its term leads, or not at all**: both are decided in one transaction.
//! - **The entries of a session end with it**: when its process is gone (SQLite), when it was not heard of
//!   for [`SESSION_TIMEOUT`] (ZooKeeper), or when it is dropped.
//! - **Values are opaque**, and what is read of the registry's own is never trusted to parse.
//! - **Nobody polls.** Waiting is done by the kernel (SQLite) or by the servers (ZooKeeper, whose sessions
//!   need a ping now and then).
//!
//! Shutdown: dropping a [`Candidacy`] or a [`Watch`] ends it, and waits for its function if that is just
//! being called. The session ends when its registry, its candidacies and its watches are dropped.
//!
//! ```
//! # #[cfg(feature = "sqlite")]
//! # fn main() -> slackwater_registry::Result<()> {
//! use slackwater_registry::{Expect, LEADER, Life, Stage, open};
//!
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let path = folder.path().join("q.db").display().to_string();
//! let registry = open(&format!("sqlite:{path}"))?;
//! let (told, stages) = std::sync::mpsc::sync_channel(2);
//! let candidacy = registry.elect(b"10.0.0.1:7070", Box::new(move |stage| told.send(stage).unwrap()))?;
//!
//! if let Ok(Stage::Elected(term)) = stages.recv() {
//!     // Written only while this one leads.
//!     registry.put("job", Some(b"sealed"), Expect::Any, Some(&term), Life::Kept)?;
//! }
//! // A standby, whose connection to the leader has ended: whoever is next leads at once.
//! if let Some(leader) = registry.get(LEADER)? {
//!     registry.put(LEADER, None, Expect::Version(leader.version), None, Life::Kept)?;
//! }
//! assert!(matches!(stages.recv(), Ok(Stage::Over(_))));
//! drop(candidacy);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "sqlite"))]
//! # fn main() {}
//! ```
//!
//! `docs/internals/registry.md` has what is stored, and what each failure does.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod error;
mod key;

#[cfg(any(feature = "sqlite", feature = "zookeeper"))]
mod thread;
#[cfg(any(feature = "sqlite", feature = "zookeeper"))]
mod write;

#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "zookeeper")]
mod zookeeper;

mod url;

use std::fmt;
use std::time::Duration;

pub use error::{Error, Kind, Result};
pub use key::{KEY_MAX, KEYS_MAX, LEADER, TERM, VALUE_MAX};
pub use url::{open, open_existing};

/// How long ZooKeeper keeps the session of a process that it doesn't hear of: two of its ticks, the shortest
/// that its default settings allow. SQLite needs no such time.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(4);

/// A place where orchestrators agree. All operations block the caller until they are done or have failed, for
/// a limited time.
pub trait Registry: Send + Sync {
    /// The entry of a key.
    fn get(&self, key: &str) -> Result<Option<Entry>>;

    /// The entries whose keys start with `prefix`, in the order of their keys, as they were at one moment.
    fn list(&self, prefix: &str) -> Result<Vec<(String, Entry)>>;

    /// Writes `value`, or removes the key if there is none, if the entry is as expected and, with a guard,
    /// while that term leads. Returns the write's number, which is the entry's version. To remove a key that
    /// isn't there is a write too.
    ///
    /// [`TERM`] is written by elections only. [`LEADER`] is written by whoever leads, guarded by its term;
    /// everybody may remove it by version, which ends that term: for somebody who knows that the leader is
    /// gone before its session ends.
    fn put(
        &self,
        key: &str,
        value: Option<&[u8]>,
        expect: Expect,
        guard: Option<&Term>,
        life: Life,
    ) -> Result<u64>;

    /// Calls `changed` after each change of an entry whose key starts with `prefix`, also when a session's
    /// end removes it. Several changes may cause one call, and a call may be about nothing; changes that
    /// cancel each other before anybody looks may cause none. It is called on a thread of its own and may use
    /// the registry.
    fn watch(&self, prefix: &str, changed: Box<dyn Fn() + Send>) -> Result<Watch>;

    /// Stands for leader, in line with the others. When it is this one's turn, `candidate` becomes the value
    /// of [`LEADER`], and `told` gets [`Stage::Elected`]; when the term or the candidacy ends without being
    /// dropped, [`Stage::Over`], the last. It is called on a thread of its own and may use the registry.
    fn elect(&self, candidate: &[u8], told: Box<dyn FnMut(Stage) + Send>) -> Result<Candidacy>;
}

/// A value and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The bytes that were put.
    pub value: Vec<u8>,
    /// The number of the write that put them.
    pub version: u64,
}

/// What a write expects of the entry that it replaces or removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Nothing.
    Any,
    /// There is none.
    Absent,
    /// It has this version.
    Version(u64),
}

/// How long an entry lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// Until it is removed.
    Kept,
    /// As long as the session of the registry that put it, at most.
    Session,
}

/// A term of a leader: what its writes are guarded by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term(u64);

impl Term {
    /// The number of the term, the first one is 1. Each is larger than all before it.
    pub fn number(&self) -> u64 {
        self.0
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "term {}", self.0)
    }
}

/// What a candidate is told.
#[derive(Debug)]
pub enum Stage {
    /// It leads from now on.
    Elected(Term),
    /// It no longer leads, or no longer stands, and why: [`Kind::Fenced`] if it was removed,
    /// [`Kind::Expired`] if the session was lost, others if the registry was. Whoever wants to lead again
    /// has to stand again.
    Over(Error),
}

/// A candidacy. Dropping it gives it up, and the term with it.
#[must_use = "dropping it gives it up"]
pub struct Candidacy(#[allow(dead_code)] Box<dyn Send + Sync>);

/// A watch. Dropping it ends it.
#[must_use = "dropping it ends it"]
pub struct Watch(#[allow(dead_code)] Box<dyn Send + Sync>);

impl fmt::Debug for Candidacy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Candidacy")
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}
