//! What may change while a query runs, apart from its workers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use slackwater_engine::source::Tuning;

use super::ProgramCatalog;

/// How the sources of a query cut their rows into chunks, and which aggregations have a first phase before
/// their rows are sent. May be changed at any time, from any thread.
#[derive(Clone)]
pub struct Controls {
    tunings: HashMap<usize, Arc<Tuning>>,
    combining: Vec<Arc<AtomicBool>>,
}

impl Controls {
    /// The source at `node` cuts its rows into chunks like this from now on.
    pub fn tune(&self, node: usize, linger_ns: u64, chunk_rows: usize) {
        if let Some(tuning) = self.tunings.get(&node) {
            tuning.set(linger_ns, chunk_rows);
        }
    }

    /// How each source cuts its rows, and how full its buffer was, by node.
    pub fn tunings(&self) -> impl Iterator<Item = (usize, &Arc<Tuning>)> {
        self.tunings.iter().map(|(&node, tuning)| (node, tuning))
    }

    /// Rows are aggregated before they are sent to the aggregation at `node`, where its plan allows it.
    pub fn combine(&self, node: usize) {
        if let Some(combining) = self.combining.get(node) {
            combining.store(true, Ordering::Relaxed);
        }
    }
}

impl ProgramCatalog<'_> {
    /// What may change while the query runs.
    pub fn controls(&self) -> Controls {
        Controls {
            tunings: self.tunings.clone(),
            combining: self.combining.clone(),
        }
    }
}
