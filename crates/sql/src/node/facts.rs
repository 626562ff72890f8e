//! What the rest of the program asks of an operator.
//!
//! A trait whose methods have no defaults, and a struct whose fields have none: whoever adds an
//! operator answers every question, and whoever adds a question asks it of every operator. The
//! compiler sees to both.

use std::fmt;

use arrow_schema::SchemaRef;
use slackwater_control::latency::model::Work;
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::aggregate::AggregateSpec;
use slackwater_engine::operator::changelog::rows::RowOrder;
use slackwater_engine::operator::window::Windows;
use slackwater_engine::time::EventTime;

use super::saved::Saved;
use crate::state::StateIdentity;

/// An operator of a query graph: what it needs, what it does to rows, and how the engine's operator is made.
pub trait Node: Send + Sync {
    /// The columns of its output.
    fn schema(&self) -> &SchemaRef;

    /// How rows of input `input` get to its instances: to where their state is. (The engine checks
    /// it again when it builds an instance:
    /// [`Facts::placed_by`](slackwater_engine::operator::Facts::placed_by).)
    fn exchange(&self, input: usize) -> Exchange;

    /// What checkpoints hold of it; `None` for what keeps nothing between rows, and for what is read again
    /// (tables of joins) or asked again (lookups).
    fn state(&self) -> Option<State>;

    /// What it takes and emits where rows change others. `wants_before`: some reader wants to hear
    /// what a row was before its update.
    fn changelog(&self, wants_before: bool) -> Changelog;

    /// Fixes what was asked in [`Node::changelog`], before the operator is made.
    fn settle(&mut self, wants_before: bool);

    /// What of its state grows as long as its input does not end; `detail` is what `explain` says
    /// of the node.
    fn growth(&self, detail: &str) -> Vec<Growth>;

    /// Everything else.
    fn facts(&self) -> Facts<'_>;

    /// The engine's operator.
    ///
    /// # Errors
    ///
    /// The engine can't do what is asked of it.
    fn operator(&self) -> slackwater_engine::Result<Operator>;
}

/// Facts that are data.
pub struct Facts<'a> {
    /// Whether the order in which rows reach it can be seen in what it emits.
    pub order: Order,
    /// What its rows are in order of.
    pub sorted: Sorted,
    /// It orders rows by where they come from: each has to bring its partition and position.
    pub orders_by_origin: bool,
    /// Chunks of a source may be dealt out to its instances by demand: it is the head of a subquery
    /// whatever feeds it, or waits (several wait at the same time).
    pub may_be_dealt: bool,
    /// An input that is read to its end before the others, and again when a query resumes: a table.
    pub first_input: Option<usize>,
    /// How far behind the watermark rows may come out that are in time.
    pub behind: Behind,
    /// Each row that it rejects is one of its input: a record of the same source.
    pub rejects_input_rows: bool,
    /// When results come out.
    pub emission: Emission,
    /// It leaves out late rows, and counts them.
    pub drops_late: bool,
    /// The windows that it gives to rows.
    pub assigns: Option<Windows>,
    /// How long it keeps what nothing touches, in event time, in microseconds (`state_ttl`); `None`
    /// where that doesn't count.
    pub retention_us: Option<EventTime>,
    /// How rows can be combined before they are sent to it.
    pub combines: Option<Combines<'a>>,
    /// What rows are taken to cost, until a run has measured it.
    pub cost: Cost,
}

/// State that checkpoints hold.
pub struct State {
    /// Which state it is.
    pub kind: Saved,
    /// What it means.
    pub identity: StateIdentity,
    /// Every instance reads all of it: what was stored doesn't say which instance needs which part.
    pub is_read_whole: bool,
}

/// Whether the order in which rows reach an operator can be seen in what the query emits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// It can.
    Seen,
    /// The same comes out whatever the order.
    Unseen,
    /// As that of what comes out can.
    AsOutput,
}

/// What rows come out in order of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sorted {
    /// Nothing.
    No,
    /// These columns.
    By(RowOrder),
    /// The same as those of its input.
    AsInput,
    /// The same, in other columns: of each the column of the input that it is, if it is one.
    Moved(Vec<Option<usize>>),
}

/// How far behind the watermark rows may come out that are in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    /// Not at all.
    Never,
    /// As far as those of the input that may come latest.
    AsInput,
    /// As rows that a window has made: their event time is the last millisecond (of finer times: microsecond)
    /// inside the window, and they come when the watermark has reached the window's end.
    ByWindow,
}

impl Behind {
    /// How far rows of windows come behind it, in microseconds.
    pub const WINDOW_US: EventTime = 1_000;
}

/// When results come out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emission {
    /// When rows or watermarks come.
    OnInput,
    /// Also when a time has passed: `'emit' = 'every …'`.
    OnTimer,
    /// When the inputs have ended.
    AtEnd,
}

/// How rows can be combined before they are sent to an aggregation: an operator that does half of its work.
pub struct Combines<'a> {
    /// The result is the same to the last bit, whichever rows are combined.
    pub is_exact: bool,
    /// The aggregation.
    pub spec: &'a AggregateSpec,
    /// The columns of its input.
    pub input: &'a SchemaRef,
}

/// What rows cost.
pub struct Cost {
    /// CPU time.
    pub work: Work,
    /// Rows that come out for each that goes in.
    pub rows_out: f64,
}

impl Cost {
    /// Rows that come out of state for each that goes in: windows give fewer than they take.
    pub const ROWS_OUT_STATE: f64 = 0.1;

    /// So many nanoseconds for each chunk and each row.
    pub fn of(per_chunk_ns: f64, per_row_ns: f64, rows_out: f64) -> Cost {
        let work = Work {
            per_chunk_ns,
            per_row_ns,
        };
        Cost { work, rows_out }
    }
}

/// State that grows as long as an input does not end.
pub struct Growth {
    /// The input whose end would end it; `None` for all of them.
    pub input: Option<usize>,
    /// The clause, and what it keeps.
    pub keeps: String,
    /// What bounds it.
    pub bound: Bound,
}

/// What bounds state.
pub enum Bound {
    /// `SET 'state_ttl' = …`.
    StateTtl,
    /// Something else, as the user is told.
    Other(&'static str),
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = match self.bound {
            Bound::StateTtl => "SET 'state_ttl' = '1 d' forgets what nothing touches for so long",
            Bound::Other(bound) => bound,
        };
        write!(f, "{}: {bound}", self.keeps)
    }
}

/// What a node takes and emits where rows change others.
pub struct Changelog {
    /// Which inputs are to say what a row was before its update.
    pub needs_before: NeedsBefore,
    /// What comes out.
    pub emits: Emits,
}

/// Which inputs are to say what a row was before its update.
pub enum NeedsBefore {
    /// All, if a reader of what comes out wants to hear it.
    AsReaders,
    /// All.
    Always,
    /// Those of which this says so.
    ByInput(Vec<bool>),
}

impl NeedsBefore {
    /// Whether input `input` is to say it.
    pub fn of(&self, input: usize, wants_before: bool) -> bool {
        match self {
            NeedsBefore::AsReaders => wants_before,
            NeedsBefore::Always => true,
            NeedsBefore::ByInput(needs) => needs[input],
        }
    }
}

/// The kinds of rows that come out, by those that go in.
pub enum Emits {
    /// New rows only.
    Appends,
    /// What goes in.
    AsInput,
    /// What goes in, and a row that is updated may go.
    Filtered,
    /// These, whatever goes in.
    Changes(ChangelogMode),
}

impl Emits {
    /// What comes out where `inputs` go in.
    pub fn of(&self, inputs: ChangelogMode) -> ChangelogMode {
        match self {
            Emits::Appends => ChangelogMode::default(),
            Emits::AsInput => inputs,
            Emits::Filtered => ChangelogMode {
                deletes: inputs.deletes || inputs.updates,
                ..inputs
            },
            Emits::Changes(mode) => *mode,
        }
    }
}

impl Changelog {
    /// Of an operator that works on each row alone.
    pub fn as_input() -> Changelog {
        Changelog {
            needs_before: NeedsBefore::AsReaders,
            emits: Emits::AsInput,
        }
    }

    /// Of an operator that takes and emits new rows only.
    pub fn appends() -> Changelog {
        Changelog {
            needs_before: NeedsBefore::AsReaders,
            emits: Emits::Appends,
        }
    }
}

/// The kinds of rows that a node emits (Flink's changelog mode).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChangelogMode {
    /// `+U`.
    pub updates: bool,
    /// `-U` in front of each `+U`.
    pub befores: bool,
    /// `-D`.
    pub deletes: bool,
}

impl ChangelogMode {
    /// Only `+I`: rows stay as they are.
    pub fn is_append(self) -> bool {
        self == ChangelogMode::default()
    }

    /// What one of two emits, or both.
    #[must_use]
    pub fn and(self, other: ChangelogMode) -> ChangelogMode {
        ChangelogMode {
            updates: self.updates || other.updates,
            befores: self.befores || other.befores,
            deletes: self.deletes || other.deletes,
        }
    }
}

impl fmt::Display for ChangelogMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("+I")?;
        for (is_there, symbol) in [
            (self.befores && self.updates, " -U"),
            (self.updates, " +U"),
            (self.deletes, " -D"),
        ] {
            if is_there {
                f.write_str(symbol)?;
            }
        }
        Ok(())
    }
}

/// An exchange by key columns: all rows go to one instance where there are none.
pub fn by_key(columns: &[usize]) -> Exchange {
    match columns {
        [] => Exchange::Single,
        columns => Exchange::Key(columns.to_vec()),
    }
}
