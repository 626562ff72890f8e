//! What a row of a deployment costs, in terms from which its throughput can be computed by hand.

use serde::Serialize;
use slackwater_control::topology::DISTANCE_LOCAL;

/// Bytes of a cache line.
pub const LINE_BYTES: f64 = 64.0;

/// What decides the throughput of a deployment: `workers / ns`, with
/// `ns = work + local × (state lines × distance of state + link lines × distance) / 10`.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Terms {
    /// CPU time for work.
    pub work_ns: f64,
    /// Cache lines of state.
    pub state_lines: f64,
    /// Cache lines over links.
    pub link_lines: f64,
    /// How far a line over a link travels when placed, 0 on a core; state is on the worker's own node.
    pub distance: f64,
    /// The share of the lines over links that go to another node when placed.
    pub crossing: f64,
    /// How far every line travels when the kernel places threads on the whole machine.
    pub unaware_distance: f64,
    /// Workers.
    pub workers: usize,
    /// How much more the busiest worker has to do than all on average when placed.
    pub busiest: f64,
}

impl Terms {
    /// CPU time of a row when placed, over all workers; `local_ns` is the time for a line of the same node.
    pub fn aware_ns(&self, local_ns: f64) -> f64 {
        let local = f64::from(DISTANCE_LOCAL);
        let lines = self.state_lines + self.link_lines * self.distance / local;
        self.work_ns + local_ns * lines
    }

    /// The same when the kernel places threads.
    pub fn unaware_ns(&self, local_ns: f64) -> f64 {
        let lines = self.state_lines + self.link_lines;
        let distance = self.unaware_distance / f64::from(DISTANCE_LOCAL);
        self.work_ns + local_ns * lines * distance
    }

    /// Bytes that a row moves between nodes when placed.
    pub fn aware_bytes(&self) -> f64 {
        self.link_lines * self.crossing * LINE_BYTES
    }

    /// The same when the kernel places threads: of `nodes` nodes one is the own.
    pub fn unaware_bytes(&self, nodes: usize) -> f64 {
        (self.state_lines + self.link_lines) * LINE_BYTES * (1.0 - 1.0 / nodes as f64)
    }
}
