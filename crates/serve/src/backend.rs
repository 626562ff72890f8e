//! What the front doors need of a server: conversations in SQL, the state of its jobs, and rows that are
//! pushed.
//!
//! Everything here blocks. Front doors call it from threads of their own, of which there is a bounded number
//! (I3).

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};

/// A server, as its front doors see it.
pub trait Backend: Send + Sync + 'static {
    /// A conversation with one client. Its settings are its own.
    fn session(&self) -> Box<dyn Session>;

    /// Everything that has a name, in alphabetical order.
    fn objects(&self) -> Vec<Object>;

    /// The jobs, in alphabetical order.
    fn jobs(&self) -> Vec<JobState>;

    /// What a job does now, as JSON: `job`, with its name and its plan, and `counts`.
    ///
    /// # Errors
    ///
    /// If there is no such job, or it does not answer in time.
    fn report(&self, job: &str) -> Result<String, Refusal>;

    /// Why nothing comes out of a job, and why rows are late: sentences and a table.
    ///
    /// # Errors
    ///
    /// If there is no such job, or it does not answer in time.
    fn why(&self, job: &str) -> Result<String, Refusal>;

    /// Changes the latency target of a job, or of one of its sinks, while it runs and for later.
    ///
    /// # Errors
    ///
    /// If there is no such job or sink, or the target is not a duration.
    fn retarget(&self, job: &str, sink: Option<&str>, target: &str) -> Result<(), Refusal>;

    /// Rows for a table with the connector `http`, as text in the table's format. Returns after they were
    /// accepted or, for a table that says so, after a checkpoint has them. A push with a producer and its
    /// number is read once, though it may come again.
    ///
    /// # Errors
    ///
    /// If there is no such table, no job that runs reads it, or one of the rows is not valid: none is
    /// accepted then. If one of several jobs fails in the middle, others may have the rows, and the message
    /// says so.
    fn push(
        &self,
        table: &str,
        rows: &[u8],
        producer: Option<(String, u64)>,
    ) -> Result<Pushed, Refusal>;
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

/// A conversation with one client.
pub trait Session: Send {
    /// Checks the syntax of the statements of a text, without running them.
    ///
    /// # Errors
    ///
    /// If the text is not valid SQL.
    fn parse(&self, text: &str) -> Result<Vec<Statement>, Refusal>;

    /// The parameters that a statement has, and the columns that it returns.
    ///
    /// # Errors
    ///
    /// If a name in the statement is not known, or types do not fit.
    fn describe(&self, statement: &Statement) -> Result<Description, Refusal>;

    /// Runs a statement with the values of its parameters. Rows are produced as they are taken.
    ///
    /// # Errors
    ///
    /// If the statement is refused. What fails later is an item of the rows.
    fn run(
        &mut self,
        statement: &Statement,
        parameters: &[Parameter],
        cancelled: &Cancelled,
    ) -> Result<Answer, Refusal>;
}

/// A statement of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The statement, as it was written.
    pub text: Arc<str>,
    /// The place of its first character in the text that was parsed, counted in characters from 0.
    pub begin: usize,
}

/// What a statement takes and returns.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// The types of the parameters `$1`, `$2`, …
    pub parameters: Vec<DataType>,
    /// The columns; `None` for a statement that returns no rows.
    pub columns: Option<SchemaRef>,
}

/// The value of a parameter: its text as in SQL, without quotes; `None` for NULL.
pub type Parameter = Option<String>;

/// What a statement answers.
pub enum Answer {
    /// It was done.
    Done {
        /// The words that PostgreSQL's protocol shows (`CREATE TABLE`).
        tag: String,
        /// What the client should know.
        notices: Vec<String>,
    },
    /// Rows.
    Rows(Rows),
}

/// Rows, as they are produced.
pub struct Rows {
    /// The columns.
    pub schema: SchemaRef,
    /// The rows; after an error there are no more. A stream of changes ends only when it is cancelled or its
    /// job ends.
    pub batches: Box<dyn Iterator<Item = Result<RecordBatch, Refusal>> + Send>,
    /// Whether these are changes of a view, which have no end (`SUBSCRIBE`).
    pub are_changes: bool,
}

/// Says that the client does not want the answer any longer.
#[derive(Clone, Default)]
pub struct Cancelled(Arc<Mutex<Cancelling>>);

#[derive(Default)]
struct Cancelling {
    is_set: bool,
    /// Wakes up whoever waits for rows.
    wake: Option<Box<dyn FnOnce() + Send>>,
}

impl Cancelled {
    /// Cancels, and wakes up whoever waits.
    pub fn cancel(&self) {
        let wake = {
            let mut state = self.lock();
            state.is_set = true;
            state.wake.take()
        };
        if let Some(wake) = wake {
            wake();
        }
    }

    /// Whether it was cancelled.
    pub fn is_set(&self) -> bool {
        self.lock().is_set
    }

    /// Calls a closure when this is cancelled; at once, if it was already. It wakes whoever waits without a
    /// time-out. There is one closure: a second one replaces the first.
    pub fn when_cancelled(&self, wake: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        if !state.is_set {
            state.wake = Some(Box::new(wake));
            return;
        }
        drop(state);
        wake();
    }

    fn lock(&self) -> MutexGuard<'_, Cancelling> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Cancelled {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Cancelled").field(&self.is_set()).finish()
    }
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The kind of error.
    pub kind: Kind,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
    /// The place in the statement's text, counted in characters from 0.
    pub position: Option<usize>,
    /// The line of a push, counted from 1.
    pub line: Option<u64>,
}

impl Refusal {
    /// A refusal without a hint and a place.
    pub fn new(kind: Kind, message: impl Into<String>) -> Refusal {
        Refusal {
            kind,
            message: message.into(),
            hint: None,
            position: None,
            line: None,
        }
    }

    /// The refusal as JSON: `{"error": {"kind": …, "message": …, "hint": …, "position": …, "line": …}}`.
    pub fn json(&self) -> String {
        let mut error = serde_json::Map::new();
        let mut put = |name: &str, value: serde_json::Value| error.insert(name.to_string(), value);
        put("kind", self.kind.word().into());
        put("message", self.message.as_str().into());
        if let Some(hint) = &self.hint {
            put("hint", hint.as_str().into());
        }
        if let Some(position) = self.position {
            put("position", position.into());
        }
        if let Some(line) = self.line {
            put("line", line.into());
        }
        serde_json::json!({ "error": error }).to_string()
    }

    /// The refusal of a text in which the refused statement begins at this character.
    #[must_use]
    pub fn moved(mut self, begin: usize) -> Refusal {
        self.position = self.position.map(|position| position + begin);
        self
    }

    /// Adds what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Refusal {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(out, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// The kinds of errors, each with a code of the SQL standard and a status of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The text is not valid SQL, or not supported.
    Syntax,
    /// A table or view is not there.
    Undefined,
    /// A column is not there.
    UndefinedColumn,
    /// A job is not there.
    NoSuchJob,
    /// There is already something with the name.
    Duplicate,
    /// Others depend on it.
    Dependent,
    /// A value does not fit its type.
    Value,
    /// The job is stopped, or it failed.
    NotRunning,
    /// The job starts, or starts again: a moment later it may be different.
    Starting,
    /// The job did not come to it in time, and has done nothing.
    Busy,
    /// It may have been done, or not.
    Unconfirmed,
    /// It was cancelled, or took too long.
    Cancelled,
    /// A limit is reached: memory, connections, the size of a text.
    Limit,
    /// The client may not.
    Denied,
    /// A file or a peer failed.
    System,
    /// An error of the server.
    Internal,
}

impl Kind {
    /// The name in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Syntax => "syntax",
            Kind::Undefined | Kind::UndefinedColumn => "undefined",
            Kind::NoSuchJob => "no_such_job",
            Kind::Duplicate => "duplicate",
            Kind::Dependent => "dependent",
            Kind::Value => "value",
            Kind::NotRunning | Kind::Starting => "not_running",
            Kind::Busy => "busy",
            Kind::Unconfirmed => "unconfirmed",
            Kind::Cancelled => "cancelled",
            Kind::Limit => "limit",
            Kind::Denied => "denied",
            Kind::System => "system",
            Kind::Internal => "internal",
        }
    }
}

/// Something that has a name.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// The name.
    pub name: String,
    /// What it is.
    pub kind: ObjectKind,
    /// The columns; empty for a job.
    pub columns: Vec<Column>,
    /// The statement that made it.
    pub definition: String,
}

/// What has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// A table: what is read or written.
    Table,
    /// A view: a query with a name.
    View,
    /// A materialized view, whose rows are kept.
    MaterializedView,
    /// A job that writes into a table.
    Sink,
}

/// A column.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The name.
    pub name: String,
    /// The type.
    pub data_type: DataType,
    /// Whether it can be NULL.
    pub nullable: bool,
    /// Whether it is part of the key.
    pub is_key: bool,
}

/// A job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobState {
    /// The name: of the materialized view or the sink.
    pub name: String,
    /// What it does.
    pub status: Status,
    /// The process; `None` while it has none.
    pub process: Option<u32>,
    /// How often it was started.
    pub starts: u64,
}

/// What a job does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// It starts.
    Starting,
    /// It runs.
    Running,
    /// It was stopped, and its state is kept.
    Stopped,
    /// Its inputs have ended.
    Finished,
    /// It failed, and is not started again.
    Failed {
        /// Why.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn who_waits_is_woken_once_by_a_cancellation() {
        let cancelled = Cancelled::default();
        let (woken, wakes) = mpsc::channel();
        let first = woken.clone();
        cancelled.when_cancelled(move || first.send(1).unwrap());
        let second = woken.clone();
        cancelled.when_cancelled(move || second.send(2).unwrap());
        assert!(!cancelled.is_set());
        cancelled.clone().cancel();
        cancelled.cancel();
        assert!(cancelled.is_set());
        // Too late to wait: woken at once.
        cancelled.when_cancelled(move || woken.send(3).unwrap());
        assert_eq!(wakes.iter().collect::<Vec<_>>(), [2, 3]);
    }
}
