//! What a server and the processes of its jobs say to each other.
//!
//! ```text
//! server ─ ToJob ─► job process      one socket, as long as the process lives
//!        ◄─ FromJob ─
//! server ─ Ask ─► job process        one socket for each conversation: it is blocked by a slow reader, and
//!        ◄─ Told ─                   closed to cancel what was asked
//! ```

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A command for a job.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToJob {
    /// The first command.
    Begin(Box<Begin>),
    /// Begins a conversation over the socket that comes with it.
    Talk,
    /// Saves and ends.
    Stop,
}

/// What a job runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Begin {
    /// The job's name.
    pub name: String,
    /// The SQL: the name and the text of each statement.
    pub parts: Vec<(String, String)>,
    /// The settings, which take precedence over those in the SQL.
    pub settings: Vec<(String, String)>,
    /// Where checkpoints are stored.
    pub state: String,
    /// Whether views are read after the inputs have ended, so that the process must stay.
    pub stays: bool,
    /// Where hosts join it, if it is to run on several.
    pub hosts: Option<JobHosts>,
}

/// How a job runs on several hosts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobHosts {
    /// The fewest hosts, and the most.
    pub count: (usize, usize),
    /// The name of the server's host.
    pub name: String,
    /// Where agents join the server, which sends them to the job.
    pub lobby: SocketAddr,
    /// What all hosts know.
    pub secret: Option<String>,
}

/// What a job says on its own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum FromJob {
    /// The query runs: again, after it was restarted.
    Running,
    /// Hosts can join it at this port.
    Listens(u16),
    /// The inputs have ended. The process stays if it was told so.
    Finished,
    /// The query was stopped, and its state is saved.
    Stopped,
    /// The SQL or the settings are wrong: it will never run as it is.
    Refused(String),
    /// The query has failed, after all restarts that it may have.
    Failed(String),
}

/// A question to a job.
#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    /// The rows of views at one cut, each as messages [`Told::Rows`] on a conversation of its own that asks
    /// for [`Ask::Scan`] with the cut's number.
    Cut {
        /// The views.
        views: Vec<String>,
        /// How old the cut may be, in nanoseconds.
        max_age_ns: u64,
        /// How long to wait for it, in nanoseconds.
        limit_ns: u64,
    },
    /// All rows of one view of a cut.
    Scan {
        /// The number from [`Told::Cut`].
        cut: u64,
        /// The view's place in the cut.
        view: usize,
        /// The columns to send; all if `None`.
        columns: Option<Vec<usize>>,
    },
    /// The rows of one view of a cut that have one of the keys in the bytes beside.
    Get {
        /// The view.
        view: String,
        /// How old the cut may be, in nanoseconds.
        max_age_ns: u64,
        /// How long to wait for it, in nanoseconds.
        limit_ns: u64,
    },
    /// Rows in the bytes beside, for a table with the connector `http`.
    Push {
        /// The table.
        table: String,
        /// Who pushes, and the number of the push, so that it is read once though it comes again.
        producer: Option<(String, u64)>,
    },
    /// The counts of the query, as the page shows them: JSON with its plan.
    Look,
    /// The metrics, as Prometheus reads them.
    Metrics {
        /// Whether each partition is shown.
        partitions: bool,
    },
    /// Why nothing comes out, and why rows are late.
    Why,
    /// Changes the latency target of a sink or view, or of all.
    Target {
        /// The table or view.
        sink: Option<String>,
        /// The target in nanoseconds.
        target_ns: u64,
    },
    /// The rows of a view, and then its changes without end.
    Subscribe {
        /// The view.
        view: String,
        /// How long to wait for the first rows, in nanoseconds.
        limit_ns: u64,
    },
}

/// A part of an answer.
#[derive(Debug, Serialize, Deserialize)]
pub enum Told {
    /// A cut, which is kept until the conversation asks for another or ends.
    Cut(u64),
    /// Rows: a stream of Arrow's IPC format in the bytes beside, with its schema.
    Rows,
    /// Text in the bytes beside.
    Text,
    /// A push was accepted.
    Pushed {
        /// The rows that are read.
        rows: u64,
        /// The bad rows that were left out.
        rejected: u64,
        /// Whether it was accepted before, so that nothing was read.
        repeated: bool,
    },
    /// A push was not accepted.
    NotPushed {
        /// Why.
        why: Why,
        /// In words.
        message: String,
        /// What to do.
        hint: String,
        /// The line that is wrong, counted from 1.
        line: Option<u64>,
    },
    /// There are no more rows, or it is done.
    End,
    /// No answer.
    Refused {
        /// Why.
        why: Why,
        /// In words.
        message: String,
    },
}

/// Why a question has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// There is no such view.
    Unknown,
    /// The query does not run.
    NotRunning,
    /// The query starts, or starts again.
    Starting,
    /// The query did not come to it in time, and has done nothing.
    Busy,
    /// It may have been done.
    Unconfirmed,
    /// It took too long.
    TimedOut,
    /// A limit is reached.
    Limit,
    /// A value is not valid.
    Value,
    /// Anything else.
    Failed,
}
