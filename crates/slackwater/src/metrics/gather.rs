//! Gathers the counts of an incarnation.

use std::sync::Arc;

use slackwater_engine::counters::InstanceCounters;
use slackwater_engine::deploy::Deployment;
use slackwater_engine::latency::SLOTS;
use slackwater_sql::program::Program;

use super::hosts::Spread;
use super::name_of;
use super::snapshot::{OperatorCounts, SinkCounts, Snapshot, SourceCounts, WorkerCounts};
use crate::catalog::ProgramCatalog;
use crate::hosts::Measured;
use crate::tally::Counted;
use crate::targets::Targets;

/// A query whose counts are gathered.
#[derive(Clone, Copy)]
pub struct Gatherer<'a> {
    /// The program.
    pub program: &'a Program,
    /// The engine's form of its plan.
    pub deployment: &'a Deployment,
    /// The sources.
    pub catalog: &'a ProgramCatalog<'a>,
    /// The latency targets of the sinks.
    pub targets: &'a Targets,
    /// The hosts, if there are to be several.
    pub spread: Option<Spread<'a>>,
}

impl Gatherer<'_> {
    /// The counts of instances, and what their processes have used. `are_children`: these are other processes
    /// than this one.
    pub fn gather<'m>(
        &self,
        counters: &[Arc<InstanceCounters>],
        measured: impl Iterator<Item = &'m Measured>,
        are_children: bool,
    ) -> Snapshot {
        let counted = Counted {
            program: self.program,
            deployment: self.deployment,
            counters,
        };
        let mut snapshot = Snapshot::default();
        self.gather_sources(&counted, &mut snapshot);
        self.gather_sinks(&counted, &mut snapshot);
        let held = counted.state_bytes().into_iter().zip(counted.waiting());
        let operators = counted.operators().into_iter().zip(held);
        let operators = operators.map(|(operator, (state_bytes, waiting))| OperatorCounts {
            name: operator.name,
            busy_s: operator.busy_s,
            rows: operator.rows,
            state_bytes,
            waiting,
        });
        snapshot.operators = operators.collect();
        let mut used = Vec::new();
        for measured in measured {
            used.push((measured.process, measured.cpu_s));
            if are_children {
                snapshot.processes_cpu_s += measured.cpu_s;
                snapshot.processes_resident_bytes += measured.resident_bytes;
            }
            for worker in &measured.workers {
                let counts = WorkerCounts {
                    cpu_s: worker.cpu_s,
                    wakeups: worker.wakeups,
                };
                snapshot.workers.insert(worker.worker, counts);
            }
        }
        snapshot.hosts = self.spread.map(|spread| {
            let cpu_s = spread.cpu_s(used.into_iter());
            spread.look(&snapshot, cpu_s)
        });
        snapshot
    }

    fn gather_sources(&self, counted: &Counted<'_>, snapshot: &mut Snapshot) {
        let read = InstanceCounters::read;
        let (refused, unknown) = counted.refused();
        snapshot.unknown = unknown;
        for ((node, source), [late, bad]) in self.program.sources().zip(refused) {
            let mut counts = SourceCounts {
                bytes: self.catalog.bytes_read(node),
                late,
                bad,
                watermark_us: watermark_us(counted.of_source(node)),
                ..SourceCounts::default()
            };
            for slots in counted.of_source(node) {
                counts.rows += read(&slots.rows_in);
                counts.connections_lost += read(&slots.connections_lost);
            }
            let known = snapshot.sources.entry(source.table.name.clone());
            known.or_default().add(&counts);
        }
    }

    fn gather_sinks(&self, counted: &Counted<'_>, snapshot: &mut Snapshot) {
        for (node, sink) in self.program.sinks() {
            let mut counts = SinkCounts {
                target_ns: self.targets.of(node, sink.latency_target_ns),
                latencies: vec![0; SLOTS],
                ..SinkCounts::default()
            };
            for slots in counted.of_sink(node) {
                counts.rows += InstanceCounters::read(&slots.rows);
                let violated_ns = InstanceCounters::read(&slots.violated_ns);
                counts.violated_ns = counts.violated_ns.max(violated_ns);
                let filled = slots.latency.iter().flat_map(|latency| latency.filled());
                filled.for_each(|(slot, rows)| counts.latencies[slot] += rows);
            }
            let table = name_of(sink).to_string();
            snapshot.sinks.entry(table).or_default().add(&counts);
        }
    }
}

/// The watermark of a source: the earliest of its instances that may still have rows, else the latest. `None`
/// as long as one of these has none.
fn watermark_us<'a>(instances: impl Iterator<Item = &'a InstanceCounters>) -> Option<i64> {
    let (silent, speaking) =
        instances.partition::<Vec<_>, _>(|slots| InstanceCounters::read(&slots.silent) == 1);
    match speaking.is_empty() {
        true => silent.iter().filter_map(|slots| slots.watermark_us()).max(),
        // Without a watermark is earlier than with any.
        false => speaking.iter().map(|slots| slots.watermark_us()).min()?,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    fn slots(watermark_us: Option<i64>, silent: u64) -> InstanceCounters {
        let slots = InstanceCounters::default();
        let bits = watermark_us.map_or(0, |time| time as u64 ^ (1 << 63));
        slots.watermark.store(bits, Ordering::Relaxed);
        slots.silent.store(silent, Ordering::Relaxed);
        slots
    }

    #[test]
    fn the_watermark_is_that_of_the_instance_that_holds_the_others_back() {
        let of = |instances: &[InstanceCounters]| watermark_us(instances.iter());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[slots(Some(-5), 0), slots(Some(7), 0)]), Some(-5));
        assert_eq!(of(&[slots(None, 0), slots(Some(7), 0)]), None);
        assert_eq!(of(&[slots(Some(3), 1), slots(Some(7), 0)]), Some(7));
        assert_eq!(of(&[slots(Some(3), 1), slots(None, 1)]), Some(3));
    }
}
