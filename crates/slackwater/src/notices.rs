//! Notices for the user about the rows that a query reads: implausible event times, columns without a field
//! in the records, records that moved the watermark too far.
//!
//! ```text
//! engine's intakes ─► SourceNotices, one for each source ─┬─► Said, at once ──────────► Notices ─► stderr
//!                                                        └─► Noticed, at the end ─► merged, sentences.rs ─┘
//! ```
//!
//! A worker process sends both to the process that the user started. Each notice is shown once.

mod sentences;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};
use slackwater_connect::FileDeadLetters;
use slackwater_engine::intake::{self, Notice, Place};
use slackwater_engine::source::Tuning;
use slackwater_sql::node::SourceSpec;

use crate::terminal::say;
use sentences::About;
pub use sentences::{empty_columns, late};

/// The number of rows after which a column without a value is reported; with fewer rows it is at the end.
const ROWS_UNTIL_TOLD: u64 = 10_000;

/// What a notice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// An implausible event time.
    Time,
    /// A header with the columns in another order.
    Header,
    /// Columns without a field in the records.
    Columns,
    /// Late rows.
    Late,
}

/// A notice for the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// The table.
    pub table: String,
    /// What the notice is about.
    pub kind: Kind,
    /// The message, with a hint.
    pub text: String,
}

/// The callback for notices.
pub type Tell = Arc<dyn Fn(Said) + Send + Sync>;

/// Shows notices to the user: each kind once for each table.
#[derive(Default)]
pub struct Notices {
    said: Mutex<Vec<Said>>,
}

impl Notices {
    /// Shows a notice, unless one of its kind was shown for the table.
    pub fn say(&self, said: Said) {
        let mut before = self.lock();
        let is_same = |other: &Said| (&other.table, other.kind) == (&said.table, said.kind);
        if !before.iter().any(is_same) {
            say(&format!("warning: {}\n", said.text));
            before.push(said);
        }
    }

    /// All notices that were shown, for the report.
    pub fn all(&self) -> Vec<String> {
        self.lock().iter().map(|said| said.text.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Said>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A row that moved a watermark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// The row's place.
    pub place: String,
    /// The largest event time before it; `None` for the first row of a partition.
    pub from_us: Option<i64>,
    /// The row's event time.
    pub to_us: i64,
}

impl Moved {
    /// How far the row moved the largest event time.
    pub fn by_us(&self) -> i64 {
        self.from_us
            .map_or(0, |from_us| self.to_us.saturating_sub(from_us))
    }
}

/// What a source of this process has noticed about its rows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Noticed {
    /// The source's node.
    pub node: usize,
    /// The number of rows read, without bad ones.
    pub rows: u64,
    /// Columns that have had a value, numbered as [`intake::leaves`].
    pub filled: BTreeSet<usize>,
    /// The names of fields in the records.
    pub fields: Vec<String>,
    /// The row that moved a partition's largest event time furthest.
    pub jump: Option<Moved>,
    /// The first row of a partition, the one with the largest event time.
    pub first: Option<Moved>,
    /// The furthest that a row was behind its watermark.
    pub behind_us: i64,
}

impl Noticed {
    fn jumped(&mut self, jump: Moved) {
        if self
            .jump
            .as_ref()
            .is_none_or(|known| known.by_us() < jump.by_us())
        {
            self.jump = Some(jump);
        }
    }

    fn began(&mut self, first: Moved) {
        if self
            .first
            .as_ref()
            .is_none_or(|known| known.to_us < first.to_us)
        {
            self.first = Some(first);
        }
    }

    /// Adds what the same source noticed in another process.
    pub fn add(&mut self, other: Noticed) {
        self.rows += other.rows;
        self.filled.extend(other.filled);
        for field in other.fields {
            if !self.fields.contains(&field) {
                self.fields.push(field);
            }
        }
        other.jump.into_iter().for_each(|jump| self.jumped(jump));
        other.first.into_iter().for_each(|first| self.began(first));
        self.behind_us = self.behind_us.max(other.behind_us);
    }
}

/// Collects what the intakes of one source notice.
pub struct SourceNotices {
    about: About,
    letters: Arc<FileDeadLetters>,
    tuning: Arc<Tuning>,
    tell: OnceLock<Tell>,
    rows: AtomicU64,
    has_looked_at_header: AtomicBool,
    has_told_of_columns: AtomicBool,
    noticed: Mutex<Noticed>,
}

impl SourceNotices {
    /// The notices of the source at `node`; its dead letters know the names of its partitions.
    pub fn new(
        node: usize,
        source: &SourceSpec,
        letters: &Arc<FileDeadLetters>,
        tuning: &Arc<Tuning>,
    ) -> SourceNotices {
        SourceNotices {
            about: About::of(source),
            letters: Arc::clone(letters),
            tuning: Arc::clone(tuning),
            tell: OnceLock::new(),
            rows: AtomicU64::new(0),
            has_looked_at_header: AtomicBool::new(false),
            has_told_of_columns: AtomicBool::new(false),
            noticed: Mutex::new(Noticed {
                node,
                ..Noticed::default()
            }),
        }
    }

    /// Sets the callback for urgent notices; only the first call has an effect.
    pub fn tell(&self, tell: &Tell) {
        let _ = self.tell.set(Arc::clone(tell));
    }

    /// What was noticed so far.
    pub fn noticed(&self) -> Noticed {
        let mut noticed = self.lock().clone();
        noticed.rows = self.rows.load(Ordering::Relaxed);
        noticed.fields = self.tuning.fields();
        noticed
    }

    fn lock(&self) -> MutexGuard<'_, Noticed> {
        self.noticed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, said: Option<Said>) {
        if let (Some(tell), Some(said)) = (self.tell.get(), said) {
            tell(said);
        }
    }

    fn read(&self, rows: u64) {
        // Relaxed: a counter publishes nothing else.
        let before = self.rows.fetch_add(rows, Ordering::Relaxed);
        if is_first(&self.has_looked_at_header) {
            self.say(self.about.header(&self.tuning.fields()));
        }
        if before + rows >= ROWS_UNTIL_TOLD && is_first(&self.has_told_of_columns) {
            self.say(self.about.empty_columns(&self.noticed()));
        }
    }

    fn moved(&self, place: Place, from_us: Option<i64>, to_us: i64) -> Moved {
        Moved {
            place: self.letters.place_of(place.partition, place.position),
            from_us,
            to_us,
        }
    }
}

/// Whether this is the first call. Later calls only read the flag.
fn is_first(has_been: &AtomicBool) -> bool {
    !has_been.load(Ordering::Relaxed) && !has_been.swap(true, Ordering::Relaxed)
}

impl intake::Notices for SourceNotices {
    fn notice(&self, notice: Notice) {
        match notice {
            Notice::Read(rows) => self.read(rows),
            Notice::Filled(column) => {
                self.lock().filled.insert(column);
            }
            Notice::First(place, time) => {
                let first = self.moved(place, None, time);
                self.lock().began(first);
            }
            Notice::Jump { place, from, to } => {
                let jump = self.moved(place, Some(from), to);
                self.lock().jumped(jump);
            }
            Notice::Behind(us) => {
                let mut noticed = self.lock();
                noticed.behind_us = noticed.behind_us.max(us);
            }
            Notice::OddTime(place, time) => {
                let place = self.letters.place_of(place.partition, place.position);
                self.say(Some(self.about.odd_time(&place, time)));
            }
        }
    }
}
