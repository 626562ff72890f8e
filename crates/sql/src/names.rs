//! Names that the parser and the planner share: those that the parser writes in place of clauses that
//! `sqlparser` does not support, and those that messages list.

/// Table functions that assign windows.
pub const WINDOW_FUNCTIONS: &[&str] = &["TUMBLE", "HOP", "SESSION", "CUMULATE", "COUNT_WINDOW"];

/// The table function whose outputs are rows that meet conditions.
pub const SPLIT: &str = "SPLIT";

/// All table functions of the language.
pub const TABLE_FUNCTIONS: &[&str] = &[
    "TUMBLE",
    "HOP",
    "SESSION",
    "CUMULATE",
    "COUNT_WINDOW",
    SPLIT,
];

/// The nodes of a query graph that join within an interval of time.
pub const INTERVAL_JOIN: &str = "interval join";

/// The columns that a window table function appends.
pub const WINDOW_COLUMNS: [&str; 3] = ["window_start", "window_end", "window_time"];

/// The argument of a table function with the columns of the table before it that separate its keys.
pub const PARTITION_BY: &str = "PARTITION_BY";

/// The argument of a table function with a table: `TABLE t`.
pub const TABLE_OF: &str = "TABLE_OF";

/// The argument of a table function with the column by which the rows of the table before it are ordered.
pub const ORDER_BY: &str = "ORDER_BY";

/// The argument of a table function with the name of the output that is read.
pub const OUTPUT_OF: &str = "OUTPUT_OF";

/// The argument of a table that says as of which time it is read.
pub const VERSION: &str = "SYSTEM_TIME";

/// The function that stands for FOR SYSTEM_TIME AS OF in the condition of a join.
pub const SYSTEM_TIME_AS_OF: &str = "system_time_as_of";

/// The function that stands for the hint SUBQUERY, in the condition of a query.
pub const SUBQUERY_MARK: &str = "begins_subquery";

/// The function that stands for the hint BROADCAST in the condition of a join.
pub const BROADCAST_MARK: &str = "broadcasts_side";

/// The function that `CEIL(ts TO unit)` becomes.
pub const CEIL: &str = "date_ceil";

/// The units of time that TIMESTAMPDIFF, TIMESTAMPADD, FLOOR and CEIL take.
pub const UNITS: [&str; 10] = [
    "MICROSECOND",
    "MILLISECOND",
    "SECOND",
    "MINUTE",
    "HOUR",
    "DAY",
    "WEEK",
    "MONTH",
    "QUARTER",
    "YEAR",
];
