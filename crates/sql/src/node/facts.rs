//! The facts about an operator that the rest of the program needs.
//!
//! The methods of the trait and the fields of the struct have no defaults: whoever adds an operator must
//! answer every question, and whoever adds a question must answer it for every operator. The compiler checks
//! both.

use std::fmt;

use arrow_schema::SchemaRef;
use slackwater_control::latency::model::Work;
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::aggregate::AggregateSpec;
use slackwater_engine::operator::changelog::rows::RowOrder;
use slackwater_engine::operator::late_rows::Lateness;
use slackwater_engine::operator::window::Windows;
use slackwater_engine::time::EventTime;

use super::saved::Saved;
use crate::state::StateIdentity;

/// An operator of a query graph: what it needs, what it does to rows, and how the engine's operator is made.
pub trait Node: Send + Sync {
    /// The columns of the output.
    fn schema(&self) -> &SchemaRef;

    /// How rows of input `input` are sent to the operator's instances: to where their state is. The engine
    /// checks this again when it builds an instance:
    /// [`Facts::placed_by`](slackwater_engine::operator::Facts::placed_by).
    fn exchange(&self, input: usize) -> Exchange;

    /// The operator's state in checkpoints; `None` if it keeps nothing between rows, or reads it again
    /// (tables of joins) or looks it up again (lookup joins).
    fn state(&self) -> Option<State>;

    /// The kinds of changes that the operator needs and emits. `wants_before`: a reader of the output needs
    /// the previous row of each update.
    fn changelog(&self, wants_before: bool) -> Changelog;

    /// Stores the answer of [`Node::changelog`] before the operator is made.
    fn settle(&mut self, wants_before: bool);

    /// The state that grows as long as the input does not end; `detail` is the description of the node in
    /// EXPLAIN.
    fn growth(&self, detail: &str) -> Vec<Growth>;

    /// All other facts.
    fn facts(&self) -> Facts<'_>;

    /// The engine's operator.
    ///
    /// # Errors
    ///
    /// When the engine does not support what the node asks for.
    fn operator(&self) -> slackwater_engine::Result<Operator>;
}

/// The facts about an operator that are plain data.
pub struct Facts<'a> {
    /// Whether the order of the input affects the output of the query.
    pub order: Order,
    /// The order of the output.
    pub sorted: Sorted,
    /// Whether the operator orders rows by origin: each row must carry its partition and position.
    pub orders_by_origin: bool,
    /// Whether chunks of a source may be dealt out to instances by demand: the operator starts a subquery in
    /// any case, or waits (several instances wait at the same time).
    pub may_be_dealt: bool,
    /// The input that is read to its end before the others, and again when a query resumes: a table.
    pub first_input: Option<usize>,
    /// How far behind the watermark rows may be in the output without being late.
    pub behind: Behind,
    /// Whether each row that the operator rejects is a row of its input: a record of the same source.
    pub rejects_input_rows: bool,
    /// When results are emitted.
    pub emission: Emission,
    /// When a row is late for the operator, which drops and counts late rows; `None` if it doesn't.
    pub judges: Option<Lateness>,
    /// The windows that the operator adds to rows.
    pub assigns: Option<Windows>,
    /// How long the operator keeps unused state, in event time, in microseconds (`state_ttl`); `None` if the
    /// setting does not apply.
    pub retention_us: Option<EventTime>,
    /// How rows can be combined before they are sent to the operator.
    pub combines: Option<Combines<'a>>,
    /// The assumed cost of rows, until a run has measured it.
    pub cost: Cost,
}

/// The state of an operator in checkpoints.
pub struct State {
    /// The kind of the state.
    pub kind: Saved,
    /// The identity of the state: what it was computed from.
    pub identity: StateIdentity,
    /// Whether every instance reads the whole state, because the state doesn't say which instance needs which
    /// part.
    pub is_read_whole: bool,
}

/// Whether the order of an operator's input affects the output of the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The order affects the output.
    Seen,
    /// The output is the same for any order.
    Unseen,
    /// The order matters if that of the operator's own output does.
    AsOutput,
}

/// The order of an operator's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sorted {
    /// No order.
    No,
    /// Ordered by these columns.
    By(RowOrder),
    /// The order of the input.
    AsInput,
    /// The order of the input, in other columns: for each output column the input column that it copies, if
    /// any.
    Moved(Vec<Option<usize>>),
}

/// How far behind the watermark rows may be in the output without being late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    /// Rows are never behind the watermark.
    Never,
    /// As far as the rows of the input whose delay is longest.
    AsInput,
    /// As far as rows of windows: their event time is the last millisecond (of finer times: microsecond)
    /// inside the window, and they are emitted when the watermark reaches the window's end.
    ByWindow,
}

impl Behind {
    /// How far rows of windows are behind the watermark, in microseconds.
    pub const WINDOW_US: EventTime = 1_000;
}

/// When results are emitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emission {
    /// When rows or watermarks arrive.
    OnInput,
    /// Also when a time has passed: `'emit' = 'every …'`.
    OnTimer,
    /// When the inputs have ended.
    AtEnd,
}

/// How rows are combined before they are sent to an aggregation: by an operator that does half of its work.
pub struct Combines<'a> {
    /// Whether the result is the same to the last bit, whichever rows are combined.
    pub is_exact: bool,
    /// The aggregation.
    pub spec: &'a AggregateSpec,
    /// The columns of the aggregation's input.
    pub input: &'a SchemaRef,
}

/// The cost of rows.
pub struct Cost {
    /// CPU time.
    pub work: Work,
    /// The number of output rows for each input row.
    pub rows_out: f64,
}

impl Cost {
    /// The number of output rows for each input row of operators with state: windows emit fewer rows than
    /// they get.
    pub const ROWS_OUT_STATE: f64 = 0.1;

    /// A cost in nanoseconds for each chunk and each row.
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
    /// The input whose end would stop the growth; `None` for all inputs.
    pub input: Option<usize>,
    /// The clause, and what it keeps.
    pub keeps: String,
    /// What bounds the state.
    pub bound: Bound,
}

/// What bounds state.
pub enum Bound {
    /// `SET 'state_ttl' = …`.
    StateTtl,
    /// Something else, as a hint for the user.
    Other(&'static str),
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = match self.bound {
            Bound::StateTtl => {
                "SET 'state_ttl' = '1 d' discards state that is unused for that long"
            }
            Bound::Other(bound) => bound,
        };
        write!(f, "{}: {bound}", self.keeps)
    }
}

/// The kinds of changes that a node needs and emits.
pub struct Changelog {
    /// The inputs that must send the previous row of each update.
    pub needs_before: NeedsBefore,
    /// The kinds of rows that the node emits.
    pub emits: Emits,
}

/// The inputs that must send the previous row of each update.
pub enum NeedsBefore {
    /// All inputs, if a reader of the output needs previous rows.
    AsReaders,
    /// All inputs.
    Always,
    /// The inputs for which the vector says so.
    ByInput(Vec<bool>),
}

impl NeedsBefore {
    /// Whether input `input` must send previous rows.
    pub fn of(&self, input: usize, wants_before: bool) -> bool {
        match self {
            NeedsBefore::AsReaders => wants_before,
            NeedsBefore::Always => true,
            NeedsBefore::ByInput(needs) => needs[input],
        }
    }
}

/// The kinds of rows in the output, depending on those of the inputs.
pub enum Emits {
    /// New rows only.
    Appends,
    /// The kinds of the input.
    AsInput,
    /// The kinds of the input, and an updated row may be deleted.
    Filtered,
    /// These kinds, for any input.
    Changes(ChangelogMode),
}

impl Emits {
    /// The kinds of rows in the output for those of `inputs`.
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
    /// The changelog of an operator that processes each row alone.
    pub fn as_input() -> Changelog {
        Changelog {
            needs_before: NeedsBefore::AsReaders,
            emits: Emits::AsInput,
        }
    }

    /// The changelog of an operator that accepts and emits only new rows.
    pub fn appends() -> Changelog {
        Changelog {
            needs_before: NeedsBefore::AsReaders,
            emits: Emits::Appends,
        }
    }
}

/// The kinds of rows that a node emits, besides `+I` (Flink's changelog mode).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChangelogMode {
    /// `+U`: updates.
    pub updates: bool,
    /// `-U` before each `+U`: previous rows.
    pub befores: bool,
    /// `-D`: deletions.
    pub deletes: bool,
}

impl ChangelogMode {
    /// Whether rows are only added.
    pub fn is_append(self) -> bool {
        self == ChangelogMode::default()
    }

    /// All kinds of rows of two modes.
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

/// An exchange by key columns; without columns all rows go to one instance.
pub fn by_key(columns: &[usize]) -> Exchange {
    match columns {
        [] => Exchange::Single,
        columns => Exchange::Key(columns.to_vec()),
    }
}
