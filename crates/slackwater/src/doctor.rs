//! The doctor: why nothing comes out of a query, and why rows are late.
//!
//! ```text
//! engine's intakes ─► PartitionSeen ─► examined.rs ─► report (sources[].partitions, diagnosis)
//!                                       └─► sentences, table.rs ─► `\why`, `slackwater doctor`
//! ```

mod examined;
mod file;
mod sentences;
mod sources;
mod spans;
mod table;

pub use examined::{Examination, Examiner};
pub use file::diagnose;

use crate::report::Report;

impl Examination {
    /// The sentences and the table, as `\why` prints them.
    pub fn text(&self) -> String {
        let tables = self.sources.iter().map(|(_, source)| source);
        table::text(&self.diagnosis, tables)
    }

    /// Adds what was found to the report.
    pub fn add_to(self, report: &mut Report) {
        for ((_, examined), source) in self.sources.into_iter().zip(&mut report.sources) {
            source.event_time = examined.event_time;
            source.partitions = examined.partitions;
        }
        report.diagnosis = self.diagnosis;
    }
}
