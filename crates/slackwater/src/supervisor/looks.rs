//! Scrapes of a running incarnation: asks for its counters, and answers when they have come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::coordinator::Coordinator;
use crate::catalog::ProgramCatalog;
use crate::doctor::Examination;
use crate::hosts::{Execution, Measured};
use crate::metrics::{Board, CheckpointCounts, Gatherer, Look, Snapshot, StandbyCounts};
use crate::standby::Door;

/// The most scrapes that wait for the same counters: as many as there can be connections.
const LOOKS_MAX: usize = 64;

/// How long worker processes may take to report their counters: far longer than one that runs takes. Then
/// scrapes are answered with what it has reported before.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often sources are asked for their partitions at most.
const EXAMINE_AGAIN: Duration = Duration::from_millis(900);

/// Answers scrapes.
pub struct Looks {
    board: Option<Arc<Board>>,
    waiting: Vec<Look>,
    /// When to answer, if there is something to answer.
    by: Option<Instant>,
    /// The processes that have not reported yet.
    missing: BTreeSet<usize>,
    /// When sources were last asked for their partitions.
    examined: Option<Instant>,
    /// What each process has reported last.
    measured: BTreeMap<usize, Measured>,
}

impl Looks {
    /// Begins to answer what is asked of `board`.
    pub fn new(board: Option<&Arc<Board>>) -> Looks {
        if let Some(board) = board {
            board.begin();
        }
        Looks {
            board: board.cloned(),
            waiting: Vec::new(),
            by: None,
            missing: BTreeSet::new(),
            examined: None,
            measured: BTreeMap::new(),
        }
    }

    /// When to call [`Looks::answer`] at the latest; `None` while nobody asks.
    pub fn next(&self) -> Option<Instant> {
        self.by
    }

    /// Whether to ask sources for their partitions now: `look` shows them, and was not preceded by another
    /// one just before.
    pub fn examines(&mut self, look: &Look, now: Instant) -> bool {
        let is_known = self
            .examined
            .is_some_and(|examined| now.duration_since(examined) < EXAMINE_AGAIN);
        let examines = look.shows_partitions() && !is_known;
        if examines {
            self.examined = Some(now);
        }
        examines
    }

    /// Takes a scrape, and asks the host for its counters unless it was asked already.
    pub fn ask(
        &mut self,
        look: Look,
        host: &Execution,
        catalog: &ProgramCatalog<'_>,
        now: Instant,
    ) {
        if self.waiting.len() >= LOOKS_MAX {
            // Dropped, it is answered with what is known.
            return;
        }
        self.waiting.push(look);
        if self.by.is_some() {
            return;
        }
        match host.look(catalog) {
            Some(measured) => {
                self.measured.insert(measured.process, measured);
                self.by = Some(now);
            }
            None => {
                self.missing = (0..host.worker_processes()).collect();
                self.by = Some(now + PATIENCE);
            }
        }
    }

    /// A worker process has reported its counters, and what it uses.
    pub fn measured(&mut self, measured: Measured, now: Instant) {
        self.missing.remove(&measured.process);
        self.measured.insert(measured.process, measured);
        if self.missing.is_empty() {
            self.by = self.by.map(|by| by.min(now));
        }
    }

    /// Answers what is due.
    pub fn answer(
        &mut self,
        gatherer: &Gatherer<'_>,
        host: &Execution,
        coordinator: Option<&Coordinator>,
        door: Option<&Door>,
        known: impl FnOnce() -> Examination,
        now: Instant,
    ) {
        if self.by.is_none_or(|by| by > now) {
            return;
        }
        self.by = None;
        let mut snapshot = self.snapshot(gatherer, host, coordinator, door);
        if self.waiting.iter().any(Look::shows_partitions) {
            snapshot.show_partitions(known());
        }
        if let Some(board) = &self.board {
            board.show(snapshot);
        }
        self.waiting.clear();
    }

    fn snapshot(
        &self,
        gatherer: &Gatherer<'_>,
        host: &Execution,
        coordinator: Option<&Coordinator>,
        door: Option<&Door>,
    ) -> Snapshot {
        let has_children = host.worker_processes() > 0;
        host.store_bytes_read(gatherer.catalog);
        let measured = self.measured.values();
        let mut snapshot = gatherer.gather(host.counters(), measured, has_children);
        let standby = door.map(Door::wish).map(|wish| StandbyCounts {
            is_connected: wish.standby.is_some(),
            behind: wish.behind,
        });
        snapshot.checkpoints = coordinator.map(|coordinator| CheckpointCounts {
            standby,
            ..coordinator.counts()
        });
        snapshot
    }

    /// No scrape is heard any more: those that wait are answered with what is known.
    pub fn pause(&mut self) {
        if let Some(board) = &self.board {
            board.pause();
        }
        self.waiting.clear();
        self.by = None;
    }

    /// The incarnation has ended; its counters are kept.
    pub fn end(
        mut self,
        gatherer: &Gatherer<'_>,
        host: &Execution,
        coordinator: Option<&Coordinator>,
    ) {
        let Some(board) = self.board.clone() else {
            return;
        };
        if host.worker_processes() == 0
            && let Some(measured) = host.look(gatherer.catalog)
        {
            self.measured.insert(measured.process, measured);
        }
        board.end(self.snapshot(gatherer, host, coordinator, None));
    }
}
