//! The kinds of operator state in checkpoints.

macro_rules! saved {
    ($($kind:ident = $word:literal, $what:literal;)*) => {
        /// The state of an operator in checkpoints.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Saved {
            $(#[doc = $what] $kind,)*
        }

        impl Saved {
            /// All kinds of state.
            pub const ALL: &[Saved] = &[$(Saved::$kind,)*];

            /// The kind's name in checkpoints.
            pub fn word(self) -> &'static str {
                match self {
                    $(Saved::$kind => $word,)*
                }
            }
        }
    };
}

// Checkpoints contain these names: state under another name would not be found again.
saved! {
    WindowAggregate = "aggregate", "An aggregation in windows, emitted when they close.";
    RefiringAggregate = "aggregate", "An aggregation in windows that are emitted more than once.";
    RunningAggregate = "aggregate", "A running aggregation of rows that never change.";
    UpdatingAggregate = "aggregate", "A running aggregation with retractions or previous rows.";
    SessionAggregate = "aggregate", "An aggregation in sessions.";
    SessionRows = "sessions", "The rows of sessions.";
    CountWindow = "count window", "The rows of count windows.";
    WindowJoin = "join", "A join over the same window.";
    IntervalJoin = "interval join", "A join within an interval of time.";
    TemporalJoin = "temporal join", "A join with the versions of a table.";
    ChangelogJoin = "join of streams", "A join of two streams without a window.";
    Over = "over", "Functions with OVER.";
    TopN = "top", "The first rows of each partition.";
    WindowTopN = "top", "The first rows of each partition in a window.";
    ByPrimaryKey = "primary key", "The row of each primary key.";
    FinalAggregate = "aggregate", "An aggregation that is emitted when its input has ended.";
    FinalRows = "final", "The rows that remain when the input has ended.";
    Custom = "operator", "The keys of an operator that a build has added.";
    MaterializedView = "view", "The rows of a materialized view.";
}
