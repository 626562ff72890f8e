//! What a run has covered.

/// The events that a run has covered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    pub events: u64,
    pub checkpoints: u64,
    pub increments: u64,
    pub aborted: u64,
    pub restores: u64,
    pub fenced: u64,
    pub skipped: u64,
    pub deployments: u64,
    /// Queries that were stopped after everything that they had read was committed.
    pub saved: u64,
    /// Snapshots whose parts standbys have stored.
    pub relayed: u64,
    /// Answers of standbys with a base.
    pub bases: u64,
    /// How often a standby came to a checkpoint.
    pub synced: u64,
    pub takeovers: u64,
    /// Restores from what a standby has held, and those of them for which nothing was read.
    pub adopted: u64,
    pub from_memory: u64,
}

impl Seen {
    pub fn add(&mut self, other: &Seen) {
        self.events += other.events;
        self.checkpoints += other.checkpoints;
        self.increments += other.increments;
        self.aborted += other.aborted;
        self.restores += other.restores;
        self.fenced += other.fenced;
        self.skipped += other.skipped;
        self.deployments += other.deployments;
        self.saved += other.saved;
        self.relayed += other.relayed;
        self.bases += other.bases;
        self.synced += other.synced;
        self.takeovers += other.takeovers;
        self.adopted += other.adopted;
        self.from_memory += other.from_memory;
    }
}
