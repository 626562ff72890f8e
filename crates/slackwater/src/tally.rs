//! Adds up the results of a run: counters, the sinks' measurements and the reports of other processes.

mod counted;
mod totals;

use std::collections::BTreeMap;
use std::sync::Arc;

use hdrhistogram::Histogram;
use slackwater_engine::counters::{InstanceCounters, WorkerCounters};
use slackwater_engine::deploy::Deployment;
use slackwater_engine::instance::SinkResult;
use slackwater_sql::node::NodeSpec;
use slackwater_sql::program::Program;

use crate::catalog::ProgramCatalog;
use crate::hosts::FinalCounts;
use crate::machine;
use crate::notices::{self, Notices};
use crate::plan::{Plan, instance_name};
use crate::rebalancer::Rebalanced;
use crate::report::DeadLetterFile;
use crate::report::{
    Latency, LatenessReport, LinkReport, LinkSideReport, ParsersReport, PlanReport, ProcessReport,
    RebalancingReport, Report, SinkReport, SourceReport, SubqueryReport, ThreadReport,
    TuningReport,
};
use crate::targets::Targets;
use crate::tuner::Tuned;
pub use counted::Counted;
pub use totals::Totals;

/// A finished run.
pub struct Tally<'a> {
    /// The program that ran.
    pub program: &'a Program,
    /// The plan.
    pub plan: &'a Plan,
    /// The sources and dead letters of this process.
    pub catalog: &'a ProgramCatalog<'a>,
    /// The engine's form of the plan.
    pub deployment: &'a Deployment,
    /// The latency targets of the sinks.
    pub targets: &'a Targets,
    /// The counters of this process's workers.
    pub workers: Vec<Arc<WorkerCounters>>,
    /// The counters of all instances.
    pub counters: &'a [Arc<InstanceCounters>],
    /// The final counts of worker processes.
    pub finished: &'a [FinalCounts],
    /// The notices for the user about the input.
    pub notices: &'a Notices,
    /// The measurements of the sinks.
    pub sinks: &'a [SinkResult],
    /// The results of tuning.
    pub tuned: Option<Tuned>,
    /// The results of moving keys.
    pub rebalanced: Option<Rebalanced>,
    /// The duration of the run.
    pub wall_s: f64,
    /// What this process had used before the run started.
    pub before: machine::Used,
}

impl Tally<'_> {
    /// The dead-letter files of all processes, each listed once.
    pub fn dead_letters(&self) -> Vec<DeadLetterFile> {
        let theirs = self
            .finished
            .iter()
            .flat_map(|counts| counts.dead_letters.clone());
        let mut files: BTreeMap<String, DeadLetterFile> = BTreeMap::new();
        for file in self.catalog.dead_letter_files().into_iter().chain(theirs) {
            files
                .entry(file.path.clone())
                .and_modify(|known| known.records += file.records)
                .or_insert(file);
        }
        files.into_values().collect()
    }

    /// The dead-letter file of a table, if there are bad records.
    fn dead_letter_file(&self, table: &str) -> Option<String> {
        let theirs = self.finished.iter().flat_map(|counts| &counts.dead_letters);
        let mut theirs = theirs.filter(|file| file.table == table);
        let own = self.catalog.dead_letter_file(table);
        own.or_else(|| theirs.next().map(|file| file.path.clone()))
    }

    fn processes(&self) -> Vec<ProcessReport> {
        let finished = self.finished.iter();
        let reports = finished.map(|counts| ProcessReport {
            process: counts.process,
            pid: counts.usage.pid,
            cpu_s: counts.usage.cpu_s,
            peak_rss_bytes: counts.usage.peak_rss_bytes,
            wakeups: counts.usage.wakeups,
            looks: counts.usage.looks,
            settings: counts.usage.settings,
        });
        reports.collect()
    }

    /// The kind of a link between processes.
    fn link_kind(&self, link: usize) -> String {
        let deployment = self.deployment;
        match deployment.is_on_one_host(&deployment.links[link]) {
            true => self.program.settings.link.used().to_string(),
            false => self.program.settings.link.between_hosts().to_string(),
        }
    }

    /// Links between processes, with what each side counted.
    fn links(&self) -> Vec<LinkReport> {
        let graph = &self.program.graph;
        let mut links = BTreeMap::new();
        for counts in self.finished.iter().flat_map(|counts| &counts.links) {
            let link = links.entry(counts.link).or_insert_with(|| {
                let ends = &self.plan.execution.links[counts.link];
                LinkReport {
                    from: instance_name(graph, self.plan, ends.from),
                    to: instance_name(graph, self.plan, ends.to),
                    kind: self.link_kind(counts.link),
                    message_bytes: None,
                    send: LinkSideReport::default(),
                    receive: LinkSideReport::default(),
                }
            });
            let side = LinkSideReport {
                messages: counts.messages,
                rows: counts.rows,
                bytes: counts.bytes,
                busy_s: counts.busy_s,
            };
            if counts.sends {
                link.message_bytes = counts.message_bytes;
                link.send = side;
            } else {
                link.receive = side;
            }
        }
        links.into_values().collect()
    }

    /// Shows the notices of the sources, and why many rows were late.
    fn tell_of(&self, nodes: &[usize], reports: &[SourceReport]) {
        let theirs = self.finished.iter().flat_map(|counts| &counts.noticed);
        let mut noticed = self.catalog.noticed();
        for theirs in theirs {
            let same = noticed.iter_mut().find(|own| own.node == theirs.node);
            same.into_iter().for_each(|own| own.add(theirs.clone()));
        }
        for (&node, report) in nodes.iter().zip(reports) {
            let Some(source) = self.program.nodes[node].as_source() else {
                continue;
            };
            let Some(noticed) = noticed.iter().find(|noticed| noticed.node == node) else {
                continue;
            };
            let said = [
                notices::empty_columns(source, noticed),
                notices::late(source, noticed, report),
            ];
            said.into_iter()
                .flatten()
                .for_each(|said| self.notices.say(said));
        }
    }

    fn threads(&self) -> Vec<ThreadReport> {
        let read = InstanceCounters::read;
        let threads = self.workers.iter().map(|slots| ThreadReport {
            cpu_s: machine::thread_cpu_s(read(&slots.thread)),
            busy_s: read(&slots.busy_ns) as f64 / 1e9,
            activations: read(&slots.activations),
            sleeps: read(&slots.sleeps),
            sleeps_ended_early: read(&slots.sleeps_ended_early),
            parks: read(&slots.parks),
            mode_changes: read(&slots.changes),
            asked_ms: read(&slots.asked_ns) as f64 / 1e6,
            slept_ms: read(&slots.slept_ns) as f64 / 1e6,
        });
        threads.collect()
    }

    /// The report.
    pub fn report(&self) -> Report {
        let total = |pick: fn(&InstanceCounters) -> &std::sync::atomic::AtomicU64| -> u64 {
            self.counters
                .iter()
                .map(|slots| InstanceCounters::read(pick(slots)))
                .sum()
        };
        let mut all = Histogram::<u64>::new(3).expect("3 digits are supported");
        let (mut sources, mut source_nodes) = (Vec::new(), Vec::new());
        let mut sinks = Vec::new();
        let counted = Counted {
            program: self.program,
            deployment: self.deployment,
            counters: self.counters,
        };
        let (refused, _) = counted.refused();
        for (number, node) in self.program.nodes.iter().enumerate() {
            match node {
                NodeSpec::Source(source) => {
                    let (mut rows_in, mut connections_lost) = (0, 0);
                    let (mut parsers, mut parsers_ns) = (0, 0);
                    for slots in counted.of_source(number) {
                        rows_in += InstanceCounters::read(&slots.rows_in);
                        connections_lost += InstanceCounters::read(&slots.connections_lost);
                        parsers += InstanceCounters::read(&slots.parsers);
                        parsers_ns += InstanceCounters::read(&slots.parsers_busy_ns);
                    }
                    let parsing = self.plan.parsers[number];
                    let [rows_late, rows_bad] = refused[sources.len()];
                    source_nodes.push(number);
                    sources.push(SourceReport {
                        table: source.table.name.clone(),
                        connector: source.connector.describe().connector,
                        rows_in,
                        rows_late,
                        rows_bad,
                        bytes_read: self.catalog.bytes_read(number),
                        connections_lost,
                        parsers: (parsing.threads > 1).then(|| ParsersReport {
                            threads_max: parsing.threads,
                            reason: parsing.why.text(),
                            threads: parsers,
                            busy_s: parsers_ns as f64 / 1e9,
                        }),
                        dead_letter: self.dead_letter_file(&source.table.name),
                        event_time: None,
                        partitions: Vec::new(),
                    });
                }
                NodeSpec::Sink(sink) => {
                    let mut latencies = Histogram::<u64>::new(3).expect("3 digits are supported");
                    // Rows that an earlier incarnation wrote for nothing are measured, but not counted.
                    let rows_out = counted.rows_of_sink(number);
                    let mut connections_lost = 0;
                    let (mut active_ns, mut violated_ns) = (0, 0);
                    for result in self.sinks.iter().filter(|result| result.node == number) {
                        // Auto-resizing histograms take any value.
                        let _ = latencies.add(&result.latencies_us);
                        connections_lost += result.connections_lost;
                        // Of parallel instances, the one that was late for the longest time counts.
                        active_ns = active_ns.max(result.seconds.active_ns);
                        violated_ns = violated_ns.max(result.seconds.violated_ns);
                    }
                    let target_ns = self.targets.of(number, sink.latency_target_ns);
                    let target_ms = target_ns.map(|ns| ns as f64 / 1e6);
                    let latency_ms = Latency::of(&latencies);
                    let changes = self.targets.changes(number);
                    let keeps = |target: f64| Some(latency_ms.p99? <= target);
                    let _ = all.add(&latencies);
                    sinks.push(SinkReport {
                        table: sink.table.as_ref().map(|table| table.name.clone()),
                        connector: sink.connector.describe().to_string(),
                        rows_out,
                        connections_lost,
                        latency_target_ms: target_ms,
                        latency_target_changes: changes,
                        target_met: target_ms.filter(|_| changes == 0).and_then(keeps),
                        active_s: target_ms.map(|_| active_ns as f64 / 1e9),
                        violated_s: target_ms.map(|_| violated_ns as f64 / 1e9),
                        latency_ms,
                    });
                }
                NodeSpec::Operator(_) => {}
            }
        }
        self.tell_of(&source_nodes, &sources);
        let rows_in = total(|slots| &slots.rows_in);
        let processes = self.processes();
        let theirs = processes.iter().map(|process| process.cpu_s).sum::<f64>();
        // Killed processes report nothing, but the system counts them once they are waited for.
        let cpu_s = self.before.cpu_s_since() + theirs.max(self.before.children_cpu_s_since());
        let their_rss_bytes = processes.iter().map(|process| process.peak_rss_bytes);
        let peak_rss_bytes = machine::peak_rss_bytes() + their_rss_bytes.sum::<u64>();
        let their_wakeups = processes.iter().map(|process| process.wakeups);
        let wakeups = self.before.switches_since() + their_wakeups.sum::<u64>();
        let targets = sinks
            .iter()
            .filter_map(|sink: &SinkReport| sink.latency_target_ms);
        let target_ms = targets.reduce(f64::min);
        let met = sinks.iter().filter_map(|sink| sink.target_met);
        let subqueries = self
            .plan
            .subqueries
            .subqueries
            .iter()
            .map(|subquery| SubqueryReport {
                operators: subquery
                    .nodes
                    .iter()
                    .map(|&n| self.program.graph.nodes[n].name.clone())
                    .collect(),
                instances: subquery.instances,
            });
        Report {
            rows_in,
            rows_out: total(|slots| &slots.rows_out),
            rows_late: total(|slots| &slots.rows_late),
            rows_bad: total(|slots| &slots.rows_bad),
            wall_s: self.wall_s,
            cpu_s,
            cpu_us_per_row: (rows_in > 0).then(|| cpu_s * 1e6 / rows_in as f64),
            rows_per_s: rows_in as f64 / self.wall_s.max(1e-9),
            peak_rss_bytes,
            latency_target_ms: target_ms,
            target_met: met.reduce(|all, one| all && one),
            latency_ms: Latency::of(&all),
            wakeups,
            restored_from: None,
            restarts: 0,
            rescales: 0,
            hosts_wanted: None,
            checkpoints: None,
            hosts: Vec::new(),
            fenced: None,
            refused: None,
            latency_error_ms: None,
            warnings: self.notices.all(),
            diagnosis: Vec::new(),
            plan: PlanReport {
                parallelism: self.plan.parallelism,
                workers: self.plan.placement.cores.len(),
                cores: self.plan.placement.cores.clone(),
                placement: self.plan.placement.strategy.name(),
                nodes: self.plan.placement.nodes.clone(),
                distance_mean: self.plan.placement.distance_mean,
                copies: self.plan.copies_report(),
                wait: self.plan.wait.to_string(),
                notes: self.plan.notes.clone(),
                subqueries: subqueries.collect(),
                links: self.plan.execution.links.len(),
                processes,
                remote_links: self.links(),
                chunk_rows: self.program.settings.chunk_rows,
                linger_ms: self.program.settings.linger_ns as f64 / 1e6,
                operators: counted.operators(),
                threads: self.threads(),
                tuning: self.tuned.as_ref().map(TuningReport::of),
                rebalancing: self.rebalanced.map(RebalancingReport::from),
            },
            sources,
            sinks,
        }
    }
}

impl From<Rebalanced> for RebalancingReport {
    fn from(rebalanced: Rebalanced) -> RebalancingReport {
        let Rebalanced {
            times,
            buckets,
            combined,
        } = rebalanced;
        RebalancingReport {
            times,
            buckets,
            combined,
        }
    }
}

impl TuningReport {
    /// The report of the tuner's results.
    fn of(tuned: &Tuned) -> TuningReport {
        TuningReport {
            delay_first_ms: tuned.delay_first_ns as f64 / 1e6,
            delay_ms: tuned.delay_ns.unwrap_or(0) as f64 / 1e6,
            chooses_wait: tuned.chooses_wait,
            chunk_rows: tuned.chunk_rows,
            corrections: tuned.corrections,
            changes: tuned.changes,
            moves: tuned.moves,
            workers_used_max: tuned.workers_used_max,
            predicted_cpu_percent: tuned.predicted.map(|(cores, _)| cores * 100.0),
            measured_cpu_percent: tuned.measured_cores.map(|cores| cores * 100.0),
            predicted_p99_ms: tuned.predicted.map(|(_, p99_ns)| p99_ns / 1e6),
            lateness: LatenessReport::of(&tuned.late),
            unseen_percent: TuningReport::unseen_percent(&tuned.late),
        }
    }
}
