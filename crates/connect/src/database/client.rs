//! A connection to a database, and when it is retried.

use std::sync::Arc;
use std::time::Duration;

use slackwater_engine::error::{Error, Result};

use super::{Changes, Row, Table};

/// The result of a request to a database.
pub(crate) type Attempt<T> = std::result::Result<T, Failure>;

/// Why a request to a database failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The reason.
    pub(crate) reason: String,
    /// How to fix it; may be empty.
    pub(crate) hint: String,
    /// The failure may be temporary: the server is not available, or the file is locked.
    pub(crate) passes: bool,
    /// The connection is gone: it is not known whether the request was carried out.
    pub(crate) is_lost: bool,
}

impl Failure {
    /// A permanent failure.
    pub(crate) fn new(reason: impl Into<String>) -> Failure {
        Failure {
            reason: reason.into(),
            hint: String::new(),
            passes: false,
            is_lost: false,
        }
    }

    /// The same failure with a fix.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = hint.into();
        self
    }
}

/// What is read from a table. All fields are indices into the declared columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Select {
    /// The columns.
    pub(crate) columns: Vec<usize>,
    /// The columns that are compared with the keys of a lookup.
    pub(crate) keys: Vec<usize>,
}

/// Called with each row; returns whether it wants more.
pub(crate) type EachRow<'a> = dyn FnMut(Row<'_>) -> bool + 'a;

/// Called with the number of a key and one of its rows; returns whether it wants more.
pub(crate) type EachFound<'a> = dyn FnMut(u32, Row<'_>) -> bool + 'a;

/// A connection. A failed one is dropped, with its transaction.
pub(crate) trait Client: Send {
    /// All rows of the table, as they were at one moment, in an order that stays the same while the
    /// table does.
    fn scan(&mut self, select: &Select, each: &mut EachRow<'_>) -> Attempt<()>;

    /// The rows of the given keys, as they were at one moment. `keys[i][k]` is the text of column `i` of key
    /// `k`.
    fn look_up(
        &mut self,
        select: &Select,
        keys: &[Vec<String>],
        each: &mut EachFound<'_>,
    ) -> Attempt<()>;

    /// Begins a transaction that may write. `note("COMMIT")` ends it.
    fn begin(&mut self) -> Attempt<()>;

    /// Writes rows to the table.
    fn write(&mut self, changes: &Changes) -> Attempt<()>;

    /// Runs a statement with strings for `$1`, `$2`, …, numbered in the order of their first use, and
    /// gives the first column of what it returns.
    fn note(&mut self, statement: &str, strings: &[&str]) -> Attempt<Vec<String>>;
}

/// The wait before the second attempt; each further wait is twice as long.
const WAIT_FIRST: Duration = Duration::from_millis(100);

/// The longest wait between two attempts.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// One instance's connection.
pub(super) struct Connection {
    pub(super) table: Arc<Table>,
    client: Option<Box<dyn Client>>,
}

impl Connection {
    /// A connection that is made when it is first used.
    pub(super) fn new(table: &Arc<Table>) -> Connection {
        Connection {
            table: Arc::clone(table),
            client: None,
        }
    }

    /// Makes the connection, if there is none.
    pub(super) fn open(&mut self) -> Result<()> {
        self.run(|_| Ok(()))
    }

    /// Does some work, which may run twice: after a temporary failure it is repeated on a new connection.
    /// Sleeps between attempts.
    pub(super) fn run<T>(
        &mut self,
        mut work: impl FnMut(&mut dyn Client) -> Attempt<T>,
    ) -> Result<T> {
        let mut wait = WAIT_FIRST;
        let mut left = self.table.retries;
        loop {
            let failure = match self.once(&mut work) {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            if !failure.passes || left == 0 {
                return Err(self.error(failure));
            }
            std::thread::sleep(wait);
            wait = (wait * 2).min(WAIT_MAX);
            left -= 1;
        }
    }

    /// Does some work once.
    pub(super) fn once<T>(
        &mut self,
        work: &mut impl FnMut(&mut dyn Client) -> Attempt<T>,
    ) -> Attempt<T> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.table.server.connect(&self.table)?,
        };
        let done = work(client.as_mut())?;
        self.client = Some(client);
        Ok(done)
    }

    /// The engine's error for a failure.
    pub(super) fn error(&self, failure: Failure) -> Error {
        let tried = match (failure.passes, self.table.retries) {
            (true, 1..) => format!(" (tried {} times)", self.table.retries + 1),
            _ => String::new(),
        };
        Error::new(&self.table.place, format!("{}{tried}", failure.reason)).hint(failure.hint)
    }
}
