//! The part of the report about sources.

use serde::Serialize;

use super::partitions::{EventTimeReport, PartitionReport};

/// A source.
#[derive(Debug, Clone, Serialize)]
pub struct SourceReport {
    /// The source's table.
    pub table: String,
    /// The source's connector.
    pub connector: String,
    /// Records read.
    pub rows_in: u64,
    /// Its late rows, once per windowing operator. Rows that an operator could not attribute to one source
    /// are in the total only.
    pub rows_late: u64,
    /// Its rejected records, and rejected rows that were computed from them.
    pub rows_bad: u64,
    /// Bytes read, if the connector counts them.
    pub bytes_read: u64,
    /// Connections that broke, or whose peer left while the source stayed open.
    pub connections_lost: u64,
    /// The threads that parsed its input; `null` if only its workers may.
    pub parsers: Option<ParsersReport>,
    /// The file of its bad records, if there were any.
    pub dead_letter: Option<String>,
    /// Its event time, and which rows were late; `null` if it declares none.
    pub event_time: Option<EventTimeReport>,
    /// Its partitions.
    pub partitions: Vec<PartitionReport>,
}

/// The threads that parsed the input of a source.
#[derive(Debug, Clone, Serialize)]
pub struct ParsersReport {
    /// How many threads may parse, the workers of its instances included.
    pub threads_max: usize,
    /// Why so many.
    pub reason: &'static str,
    /// How many were started besides the workers.
    pub threads: u64,
    /// The seconds that these have spent: CPU time unless one was preempted meanwhile. Part of what the
    /// source cost.
    pub busy_s: f64,
}

impl SourceReport {
    /// The line of the summary about its parsers, if others than the workers took part.
    pub(super) fn parsers_line(&self) -> Option<String> {
        let parsers = self
            .parsers
            .as_ref()
            .filter(|parsers| parsers.threads > 0)?;
        let (threads, busy_s, table) = (parsers.threads, parsers.busy_s, &self.table);
        let plural = if threads == 1 { "" } else { "s" };
        Some(format!(
            "{threads} more thread{plural} parsed {table} for {busy_s:.3} s"
        ))
    }
}
