//! The rows of earlier incarnations that belong to the answer.

use std::sync::Arc;

use slackwater_engine::counters::{CutCounts, InstanceCounters};
use slackwater_engine::deploy::Deployment;
use slackwater_sql::program::Program;

use super::Counted;
use crate::report::Report;

/// The rows that were counted up to a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    rows_in: u64,
    rows_out: u64,
    rows_late: u64,
    rows_bad: u64,
    /// The rows of each source, in the report's order: read, late and bad.
    sources: Vec<[u64; 3]>,
    /// The rows of each sink, in the report's order.
    sinks: Vec<u64>,
}

impl Totals {
    /// What instances of a deployment had counted.
    pub fn of(program: &Program, deployment: &Deployment, counts: &[(usize, CutCounts)]) -> Totals {
        let counters = deployment.instances.iter();
        let counters = counters.map(|instance| Arc::new(instance.counters()));
        let counters = counters.collect::<Vec<Arc<InstanceCounters>>>();
        for (instance, counts) in counts {
            if let Some(counters) = counters.get(*instance) {
                counts.store(counters);
            }
        }
        let counted = Counted {
            program,
            deployment,
            counters: &counters,
        };
        let read = InstanceCounters::read;
        let (refused, _) = counted.refused();
        let sources = program.sources().zip(refused);
        let sources = sources.map(|((node, _), [late, bad])| {
            let rows_in = counted.of_source(node).map(|slots| read(&slots.rows_in));
            [rows_in.sum(), late, bad]
        });
        let sum = |pick: fn(&InstanceCounters) -> u64| {
            let rows = counters.iter().map(|slots| pick(slots));
            rows.sum::<u64>()
        };
        let sinks = program.sinks().map(|(node, _)| counted.rows_of_sink(node));
        Totals {
            rows_in: sum(|slots| InstanceCounters::read(&slots.rows_in)),
            rows_out: sum(|slots| InstanceCounters::read(&slots.rows_out)),
            rows_late: sum(|slots| InstanceCounters::read(&slots.rows_late)),
            rows_bad: sum(|slots| InstanceCounters::read(&slots.rows_bad)),
            sources: sources.collect(),
            sinks: sinks.collect(),
        }
    }

    /// Adds what was counted before.
    pub fn add(&mut self, before: &Totals) {
        self.rows_in += before.rows_in;
        self.rows_out += before.rows_out;
        self.rows_late += before.rows_late;
        self.rows_bad += before.rows_bad;
        for (own, before) in self.sources.iter_mut().zip(&before.sources) {
            own.iter_mut()
                .zip(before)
                .for_each(|(own, rows)| *own += rows);
        }
        let sinks = self.sinks.iter_mut().zip(&before.sinks);
        sinks.for_each(|(own, rows)| *own += rows);
    }

    /// Adds these totals to the last incarnation's report.
    pub fn add_to(&self, report: &mut Report) {
        report.rows_in += self.rows_in;
        report.rows_out += self.rows_out;
        report.rows_late += self.rows_late;
        report.rows_bad += self.rows_bad;
        for (source, [rows_in, rows_late, rows_bad]) in report.sources.iter_mut().zip(&self.sources)
        {
            source.rows_in += rows_in;
            source.rows_late += rows_late;
            source.rows_bad += rows_bad;
        }
        for (sink, rows_out) in report.sinks.iter_mut().zip(&self.sinks) {
            sink.rows_out += rows_out;
        }
        report.rows_per_s = report.rows_in as f64 / report.wall_s.max(1e-9);
        let cpu_us = report.cpu_s * 1e6;
        report.cpu_us_per_row = (report.rows_in > 0).then(|| cpu_us / report.rows_in as f64);
    }
}
