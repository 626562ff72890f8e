//! The part of the report about event time: where each partition of a source stands, and which rows were
//! late.
//!
//! `slackwater doctor` reads it again.

use serde::{Deserialize, Serialize};

/// The event time of a source, over all its partitions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventTimeReport {
    /// The column.
    pub column: String,
    /// How far the watermark stays behind the largest event time, in microseconds.
    pub delay_us: i64,
    /// `idle_timeout`, as it was written; `null` if it isn't set.
    pub idle_timeout: Option<String>,
    /// The rows of all partitions whose late rows are counted, without bad ones, since the query first
    /// started.
    pub rows: u64,
    /// By how much rows were behind the largest event time of their partition.
    pub behind: BehindReport,
    /// The rows that were late for an operator, counted for each operator.
    pub rows_late: u64,
    /// Those of them that were late because their partition appeared late or returned after a silence.
    pub rows_late_by_start: u64,
    /// The late rows by operator.
    pub late_for: Vec<LateForReport>,
    /// The delays that would have kept most rows; empty if no operator drops late rows.
    pub proposals: Vec<ProposalReport>,
    /// The time-outs that would have kept most rows; empty if none were late after a silence.
    pub idle_proposals: Vec<ProposalReport>,
}

/// A partition of a source.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PartitionReport {
    /// The partition's number; `null` for all that have ended and are no longer told apart: connections,
    /// units of work.
    pub partition: Option<u32>,
    /// The partition's name, such as the file's.
    pub name: String,
    /// `active`, `idle` or `ended`: only an active partition holds the watermark back.
    pub state: String,
    /// Whether it is the one for whose watermark the others wait.
    pub holds_back: bool,
    /// The number of rows, without bad ones, since the query first started.
    pub rows: u64,
    /// When its last row came; `null` if none has since the query was last started.
    pub last_row: Option<String>,
    /// How long ago that was or, without a row, how long ago the partition appeared.
    pub silent_s: Option<f64>,
    /// The partition's watermark; `null` before its first row.
    pub watermark: Option<String>,
    /// The same in microseconds since 1970, for metrics.
    #[serde(skip)]
    pub watermark_us: Option<i64>,
    /// By how much rows were behind the largest event time before them; `null` without event time, and for
    /// partitions beyond those whose late rows are counted.
    pub behind: Option<BehindReport>,
    /// The rows that were late for an operator, counted for each operator.
    pub rows_late: u64,
    /// Those of them that were late because the partition appeared late or returned after a silence.
    pub rows_late_by_start: u64,
    /// The late rows by operator.
    pub late_for: Vec<LateForReport>,
}

/// By how much rows are behind the largest event time before them in their partition.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BehindReport {
    /// The rows that were behind at all.
    pub rows: u64,
    /// Half of the rows were at most so far behind, in microseconds: a boundary of `slots`, or 0.
    pub p50_us: u64,
    /// 99 of 100 rows.
    pub p99_us: u64,
    /// 999 of 1,000 rows.
    pub p999_us: u64,
    /// The furthest that a row was behind, exactly.
    pub max_us: i64,
    /// The number of rows up to each boundary, in microseconds, and above the boundary before it. Boundaries
    /// are round numbers; those without rows are left out.
    pub slots: Vec<(u64, u64)>,
}

/// The late rows of an operator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LateForReport {
    /// The operator: what makes a row late.
    pub operator: String,
    /// The late rows.
    pub rows_late: u64,
    /// The start of the earliest window that a row was late for; for operators without windows the time of
    /// the earliest late row.
    pub first: Option<String>,
    /// The end of the latest such window, or the time of the latest late row.
    pub last: Option<String>,
    /// The shortest delay of the watermark that would have kept all rows, in microseconds; 0 if any would.
    pub delay_max_us: i64,
}

/// A setting that would have kept most rows, and how many it would not have kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProposalReport {
    /// The share of rows to keep, in percent.
    pub keep_percent: f64,
    /// The delay of the watermark, or the time-out, in microseconds.
    pub us: u64,
    /// The setting as it is written in `CREATE TABLE`.
    pub setting: String,
    /// The rows that would still have been late, exactly.
    pub rows_late: u64,
}
