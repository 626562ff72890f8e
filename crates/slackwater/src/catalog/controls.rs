//! Settings of sources and aggregations that may change while a query runs.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use slackwater_engine::source::Tuning;

use super::ProgramCatalog;

/// How the sources of a query divide their rows into chunks, and which aggregations pre-aggregate before rows
/// are sent. Any thread may change them at any time.
#[derive(Clone)]
pub struct Controls {
    tunings: HashMap<usize, Arc<Tuning>>,
    combining: Vec<Arc<AtomicBool>>,
}

impl Controls {
    /// Sets how the source at `node` divides its rows into chunks.
    pub fn tune(&self, node: usize, linger_ns: u64, chunk_rows: usize) {
        if let Some(tuning) = self.tunings.get(&node) {
            tuning.set(linger_ns, chunk_rows);
        }
    }

    /// How each source divides its rows, and how full its buffer was, by node.
    pub fn tunings(&self) -> impl Iterator<Item = (usize, &Arc<Tuning>)> {
        self.tunings.iter().map(|(&node, tuning)| (node, tuning))
    }

    /// Pre-aggregates the rows for the aggregation at `node`, if its plan allows it.
    pub fn combine(&self, node: usize) {
        if let Some(combining) = self.combining.get(node) {
            combining.store(true, Ordering::Relaxed);
        }
    }
}

impl ProgramCatalog<'_> {
    /// The settings that may change while the query runs.
    pub fn controls(&self) -> Controls {
        Controls {
            tunings: self.tunings.clone(),
            combining: self.combining.clone(),
        }
    }
}
