//! Names on which the reader of statements and the planner agree: what the reader writes in the place of
//! clauses that `sqlparser` does not know, and what messages of both list.

/// Table functions that assign windows.
pub const WINDOW_FUNCTIONS: &[&str] = &["TUMBLE", "HOP", "SESSION", "CUMULATE", "COUNT_WINDOW"];

/// The columns that a window table function appends.
pub const WINDOW_COLUMNS: [&str; 3] = ["window_start", "window_end", "window_time"];

/// The argument of a window table function that says what its sessions are told apart by.
pub const PARTITION_BY: &str = "PARTITION_BY";

/// The argument of a table that says which version of it is read.
pub const VERSION: &str = "SYSTEM_TIME";

/// The function that stands in a join's condition for FOR SYSTEM_TIME AS OF.
pub const SYSTEM_TIME_AS_OF: &str = "system_time_as_of";

/// What `CEIL(ts TO unit)` is written as.
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
