//! Rows that other threads of this process push into tables with the connector `http`.
//!
//! ```text
//! a front door's thread ── push() ─► inbox.rs: parse, wait for a turn ─► source/http.rs, on its worker
//!         ▲                                              │
//!         └───────────── read, or in a checkpoint ◄──────┘
//! ```
//!
//! - A push is read as a whole, or refused as a whole: rows are parsed by the thread that pushes, before any
//!   of them is read. (By option, bad rows are rejected like those of other sources.)
//! - A push has been *accepted* when the source has handed all of its rows to the query, so nothing accepted
//!   waits in a buffer that the end of the query would drop. Until then it can be taken back, and is when the
//!   time is over.
//! - With `'acknowledge' = 'checkpoint'` it is answered when a stored checkpoint has its rows.
//! - Pushes of a producer carry sequence numbers that increase. One that was read already is answered like
//!   one that was accepted, and not read again; what a producer has pushed is in the checkpoint
//!   (`producers.rs`).
//! - Pushes of a table that wait are bounded in bytes, each of them in [`PUSH_BYTES_MAX`]. A thread that
//!   pushes sleeps until it is woken or its time is over; without pushes nobody wakes up.
//!
//! Shutdown: when the source is closed, pushes that wait for their turn are answered with an error. Those
//! that wait for a checkpoint are answered by the last one, or when the next incarnation begins.

mod inbox;
mod producers;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use slackwater_engine::error::{Error, Result};

pub(crate) use inbox::{Acknowledge, Inbox, Terms};

/// The bytes of a push: some 40,000 rows of 100 bytes. Whoever has more divides them.
pub const PUSH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The bytes of a producer's name.
pub const PRODUCER_BYTES_MAX: usize = 64;

/// Rows for a table.
#[derive(Debug, Clone, Default)]
pub struct Push {
    /// The rows, in the table's format.
    pub rows: Bytes,
    /// Who pushes them; `None`: rows that are pushed again are read again.
    pub producer: Option<Producer>,
}

/// The place of a push among those of its producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Producer {
    /// The producer's name: letters, digits and `-_.`, at most [`PRODUCER_BYTES_MAX`].
    pub name: String,
    /// The push's number, larger than that of the push before it.
    pub sequence: u64,
}

impl Producer {
    /// Whether this is a name of a producer.
    pub fn is_name(name: &str) -> bool {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (1..=PRODUCER_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_letter)
    }
}

/// What became of a push.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pushed {
    /// The rows that are read.
    pub rows: u64,
    /// The bad rows that were left out.
    pub rejected: u64,
    /// Whether the producer had pushed it before, so that it was not read again.
    pub repeated: bool,
}

/// Why a push was not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotPushed {
    /// There is no such table; these there are.
    NoTable(Vec<String>),
    /// The table's query does not run now.
    NotRunning,
    /// The push has more than [`PUSH_BYTES_MAX`].
    TooLarge,
    /// The producer's name is not valid.
    BadName,
    /// A row is not valid; no row is read.
    BadRow {
        /// The number of its line, from 1.
        line: u64,
        /// What is wrong.
        reason: String,
    },
    /// The query did not come to read the push in time; no row is read.
    Busy,
    /// The rows may have been read, but that was not confirmed: they were read only in part, or no checkpoint
    /// has them yet, when the time was over or the query ended.
    Unconfirmed,
}

impl NotPushed {
    /// What to do.
    pub fn hint(&self) -> String {
        match self {
            NotPushed::NoTable(tables) if tables.is_empty() => {
                "create a table with 'connector' = 'http', and read it".to_string()
            }
            NotPushed::NoTable(tables) => format!("the tables are: {}", tables.join(", ")),
            NotPushed::NotRunning | NotPushed::Busy => "push the rows again later".to_string(),
            NotPushed::TooLarge => "divide the rows among several pushes".to_string(),
            NotPushed::BadName => {
                format!("use 1 to {PRODUCER_BYTES_MAX} letters, digits and -_.")
            }
            NotPushed::BadRow { .. } => {
                "no row of the push was read; 'bad_rows' = 'skip' would leave bad rows out"
                    .to_string()
            }
            NotPushed::Unconfirmed => {
                "push the rows again; with the same producer and sequence they are not read twice"
                    .to_string()
            }
        }
    }
}

impl fmt::Display for NotPushed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotPushed::NoTable(_) => f.write_str("there is no such table to push rows into"),
            NotPushed::NotRunning => f.write_str("the query that reads the table does not run now"),
            NotPushed::TooLarge => write!(f, "a push has at most {PUSH_BYTES_MAX} bytes"),
            NotPushed::BadName => f.write_str("that is not a name of a producer"),
            NotPushed::BadRow { line, reason } => write!(f, "line {line}: {reason}"),
            NotPushed::Busy => f.write_str("the query is busy, and no row of the push was read"),
            NotPushed::Unconfirmed => {
                f.write_str("the rows may have been read, but that could not be confirmed in time")
            }
        }
    }
}

impl std::error::Error for NotPushed {}

/// Pushes rows into a table that a query of this process reads. Returns when they are accepted, as the
/// table's options say; until then the thread sleeps.
///
/// # Errors
///
/// If the rows are not accepted; [`NotPushed`] says which of them may have been read nevertheless.
pub fn push(table: &str, push: Push) -> std::result::Result<Pushed, NotPushed> {
    if push.rows.len() > PUSH_BYTES_MAX {
        return Err(NotPushed::TooLarge);
    }
    let producer = push.producer.as_ref();
    if producer.is_some_and(|producer| !Producer::is_name(&producer.name)) {
        return Err(NotPushed::BadName);
    }
    let desks = desks();
    let mut own = desks.iter().filter(|desk| desk.table == table).peekable();
    if own.peek().is_none() {
        drop(own);
        let mut tables = desks
            .iter()
            .map(|desk| desk.table.clone())
            .collect::<Vec<_>>();
        tables.sort();
        tables.dedup();
        return Err(NotPushed::NoTable(tables));
    }
    let inbox = own.find_map(|desk| desk.inbox().clone().filter(|inbox| inbox.is_open()));
    inbox.ok_or(NotPushed::NotRunning)?.push(push)
}

/// The place of a table at which its source, its checkpoints and those who push meet.
pub(crate) struct Desk {
    table: String,
    /// What the source reads that was made last.
    inbox: Mutex<Option<Arc<Inbox>>>,
}

/// The tables of this process that can be pushed to, as long as their connectors exist.
static DESKS: Mutex<Vec<Weak<Desk>>> = Mutex::new(Vec::new());

fn registered() -> MutexGuard<'static, Vec<Weak<Desk>>> {
    DESKS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn desks() -> Vec<Arc<Desk>> {
    registered().iter().filter_map(Weak::upgrade).collect()
}

impl Desk {
    /// The desk of a table, at which nobody reads yet.
    pub(crate) fn new(table: &str) -> Arc<Desk> {
        let desk = Arc::new(Desk {
            table: table.to_string(),
            inbox: Mutex::new(None),
        });
        let mut registered = registered();
        registered.retain(|desk| desk.strong_count() > 0);
        registered.push(Arc::downgrade(&desk));
        desk
    }

    fn inbox(&self) -> MutexGuard<'_, Option<Arc<Inbox>>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to read: whoever still waits for the incarnation before is answered.
    ///
    /// # Errors
    ///
    /// If another query of this process reads a table of this name, so that it would be unclear which one a
    /// push is for.
    pub(crate) fn open(&self, inbox: &Arc<Inbox>) -> Result<()> {
        let registered = registered();
        let others = registered.iter().filter_map(Weak::upgrade);
        let mut others = others.filter(|desk| desk.table == self.table);
        let is_read = |desk: Arc<Desk>| desk.inbox().as_ref().is_some_and(|inbox| inbox.is_open());
        if others.any(is_read) {
            let place = format!("table '{}'", self.table);
            let reason = "rows are already pushed into a table of this name";
            return Err(Error::new(place, reason)
                .hint("read it once, and use the table in several queries")
                .final_one());
        }
        if let Some(before) = self.inbox().replace(Arc::clone(inbox)) {
            before.abandon();
        }
        Ok(())
    }

    /// Notes that a stored checkpoint has everything before `position`.
    pub(crate) fn stored(&self, position: u64) {
        if let Some(inbox) = &*self.inbox() {
            inbox.stored(position);
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Some(inbox) = &*self.inbox() {
            inbox.close();
            inbox.abandon();
        }
    }
}
