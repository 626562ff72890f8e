//! What checkpoints hold of operators.

macro_rules! saved {
    ($($kind:ident = $word:literal, $what:literal;)*) => {
        /// State that checkpoints hold, by the operator that keeps it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Saved {
            $(#[doc = $what] $kind,)*
        }

        impl Saved {
            /// All of them.
            pub const ALL: &[Saved] = &[$(Saved::$kind,)*];

            /// What checkpoints call the nodes.
            pub fn word(self) -> &'static str {
                match self {
                    $(Saved::$kind => $word,)*
                }
            }
        }
    };
}

// Checkpoints hold the words: a node of another word would not be found again.
saved! {
    WindowAggregate = "aggregate", "Aggregation in windows, emitted when they close.";
    RefiringAggregate = "aggregate", "Aggregation in windows that are emitted more than once.";
    RunningAggregate = "aggregate", "Running aggregation of rows that stay.";
    UpdatingAggregate = "aggregate", "Running aggregation that takes rows back, or says what was before.";
    SessionAggregate = "aggregate", "Aggregation in sessions.";
    SessionRows = "sessions", "Rows of sessions.";
    CountWindow = "count window", "Windows of so many rows.";
    WindowJoin = "join", "Join of rows of the same window.";
    IntervalJoin = "interval join", "Join of rows whose times are near each other.";
    TemporalJoin = "temporal join", "Join with the versions of a table.";
    ChangelogJoin = "join of streams", "Join of two streams.";
    Over = "over", "Functions of the rows before each row.";
    TopN = "top", "The first rows of each partition.";
    WindowTopN = "top", "The first rows of each partition of a window.";
    ByPrimaryKey = "primary key", "The row of each primary key.";
    FinalAggregate = "aggregate", "Aggregation that is emitted when its input has ended.";
    FinalRows = "final", "The rows that are left when the input has ended.";
}
