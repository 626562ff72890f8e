//! The hosts of a query, and what was refused.

use serde::{Deserialize, Serialize};

/// A host.
#[derive(Debug, Clone, Serialize)]
pub struct HostReport {
    /// The host's name.
    pub name: String,
    /// The address at which its processes listened for links.
    pub address: String,
    /// The numbers of its processes.
    pub processes: Vec<usize>,
    /// How far the clock of the host where the query was started is ahead of its clock.
    pub clock_offset_ms: f64,
    /// The truth is at most so far from it.
    pub clock_error_ms: f64,
}

/// What earlier incarnations of a query were not allowed to do, as far as it was noticed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FencedReport {
    /// Connections of their processes to links.
    pub links: u64,
    /// Messages of their agents.
    pub messages: u64,
}

/// Connections of strangers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedReport {
    /// To the address where agents join.
    pub sessions: u64,
    /// To the addresses where processes listen for links.
    pub links: u64,
}
