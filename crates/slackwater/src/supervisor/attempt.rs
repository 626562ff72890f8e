//! One incarnation of a query: deployed, watched to its end, and reported.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};

use slackwater_checkpoint::CheckpointWriter;
use slackwater_engine::Error;
use slackwater_engine::counters::InstanceCounters;
use slackwater_engine::instance::SinkResult;
use slackwater_engine::operator::changelog::view::Cuts;
use slackwater_sql::node::MaterializedView;

use super::coordinator::{Coordinator, Verdict};
use super::events::RunEvent;
use super::looks::Looks;
use super::query::Query;
use super::questions::Questions;
use super::watch::Watch;
use crate::catalog::ProgramCatalog;
use crate::checkpoints::{Incarnation, Suspected};
use crate::cluster::HostsReading;
use crate::hosts::{Execution, FinalCounts, HostEvent, StartingExecution, Work};
use crate::live::Live;
use crate::metrics::{Gatherer, Spread};
use crate::progress::Progress;
use crate::rebalancer::Rebalancer;
use crate::report::{CheckpointReport, DeadLetterFile, FencedReport, RefusedReport, Report};
use crate::tally::{Tally, Totals};
use crate::tuner::{Clocks, Site, Tuner};

/// The number of operators that are named if all together hold too much.
const OPERATORS_NAMED: usize = 3;

fn megabytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// A claimed incarnation, which takes checkpoints.
pub struct Claimed {
    /// The incarnation as its processes know it.
    pub incarnation: Incarnation,
    /// The writer of its checkpoints.
    pub writer: CheckpointWriter,
}

/// A host that prepares to run an incarnation, and its events.
pub struct Prepared {
    /// Dropped first: whoever ends may wait for room in the queue.
    events: mpsc::Receiver<RunEvent>,
    /// The host.
    pub host: StartingExecution,
    /// The queue into which the coordinator's thread reports, too.
    sender: mpsc::SyncSender<RunEvent>,
}

/// The result of an incarnation.
pub struct Attempted {
    /// Why the incarnation failed.
    pub error: Option<Error>,
    /// The coordinator's verdict, with checkpoints.
    pub verdict: Option<Verdict>,
    /// Rows that processes were processing when they died.
    pub suspects: Vec<Suspected>,
    /// The costs, including those of earlier incarnations, and its own rows.
    pub report: Report,
    /// What was counted up to the barriers of its last checkpoints, since it began.
    pub counted: Vec<(u64, Totals)>,
    /// Dead-letter files that were written.
    pub dead_letters: Vec<DeadLetterFile>,
    /// What the sinks measured.
    pub sinks: Vec<SinkResult>,
    /// Whether it was stopped before its inputs ended.
    pub stopped: bool,
    /// Whether it was stopped so that the query goes on with other hosts.
    pub yields: bool,
    /// Whether a worker is stuck in a write.
    pub abandoned: bool,
}

impl Attempted {
    /// Where the next incarnation resumes from, in words.
    pub fn resumes_from(&self) -> String {
        let last = self.report.checkpoints.as_ref().and_then(|all| all.last);
        match last {
            Some(number) => format!("checkpoint {number}"),
            None => "the beginning".to_string(),
        }
    }
}

/// An incarnation whose views can be read.
struct Reading<'a>(&'a Cuts);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.end(false);
    }
}

impl Query<'_> {
    /// Runs the query until it ends, is stopped or fails. `sinks` has the measurements of earlier
    /// incarnations.
    ///
    /// # Errors
    ///
    /// If the query can't be started.
    pub fn attempt(
        &self,
        catalog: &ProgramCatalog<'_>,
        claimed: Option<Claimed>,
        prepared: Option<Prepared>,
        sinks: Vec<SinkResult>,
    ) -> Result<Attempted, Error> {
        let Query {
            program,
            plan,
            deployment,
            ..
        } = self;
        let (incarnation, writer) = match claimed {
            Some(claimed) => (Some(claimed.incarnation), Some(claimed.writer)),
            None => (None, None),
        };
        let Prepared {
            host,
            sender,
            events,
        } = match prepared {
            Some(prepared) => prepared,
            None => self.prepare(incarnation.as_ref())?,
        };
        program.cuts.begin(&self.instances_of_views());
        // However it ends, readers wait for the next incarnation.
        let _reading = Reading(&program.cuts);
        let mut host = host.run(&self.work(incarnation.as_ref()), catalog)?;
        catalog.has_begun();
        self.signals.has_begun();
        crate::service::tell_ready();
        self.begin_hosts();
        let coordinator = incarnation.as_ref().zip(writer);
        let coordinator = coordinator
            .map(|(incarnation, writer)| self.coordinator(incarnation, writer, sender.clone()));
        let mut watch = Watch {
            host: &host,
            program,
            deployment,
            plan,
            costs: self.costs,
            targets: &self.targets,
            traces: &self.traces,
            catalog,
            started: self.started,
            running: deployment.instances.len(),
            ended: BTreeSet::new(),
            sinks,
            error: None,
            over: None,
            signalled: None,
            stop_by: None,
            orchestrator: self.orchestrator.as_ref(),
            hosts: &self.hosts,
            yields: false,
            door: self.door.as_ref(),
            standby: None,
            hands_over: false,
            folder: self.folder.as_deref(),
            rescale_at: None,
            abandon_by: None,
            shown: Progress::new(self.progress && !self.live, program),
            live: self.live_line(&host),
            tuner: Tuner::new(
                program,
                plan,
                catalog,
                deployment,
                Site {
                    execution: &host,
                    hosts: &self.hosts,
                },
                self.costs,
                &self.targets,
            ),
            rebalancer: Rebalancer::new(program, deployment, &host),
            coordinator: coordinator.transpose()?,
            looks: Looks::new(self.board.as_ref()),
            questions: Questions::default(),
            is_read: false,
        };
        watch.until_end(&events, self.duration);
        watch.looks.pause();
        // So that no thread waits for its event to be received.
        drop(events);
        let abandoned = watch.running > 0;
        let stopped = watch.stop_by.is_some() && watch.error.is_none();
        let (mut error, sinks) = (watch.error.take(), std::mem::take(&mut watch.sinks));
        let (over, mut yields) = (watch.over, watch.yields);
        if watch.hands_over && self.door.as_ref().is_some_and(|door| door.keep()) {
            yields = true;
        }
        let tuned = watch.tuner.as_ref().map(Tuner::tuned);
        let rebalanced = watch.rebalancer.as_ref().map(Rebalancer::rebalanced);
        drop((watch.tuner.take(), watch.rebalancer.take()));
        let coordinator = watch.coordinator.take();
        let questions = std::mem::take(&mut watch.questions);
        watch.shown.clear();
        let looks = watch.looks;
        if error.is_some() && coordinator.is_some() {
            // Its further events don't matter, because the work is repeated.
            host.kill();
        }
        let finished = host.finish(catalog, error.is_some() || abandoned);
        let wall_s = self.started.elapsed().as_secs_f64();
        program.end_functions();
        let gatherer = Gatherer {
            program,
            deployment,
            catalog,
            targets: &self.targets,
            // The hosts have done their work: what they did just before says nothing.
            spread: None,
        };
        looks.end(&gatherer, &host, coordinator.as_ref());
        let verdict = coordinator.as_ref().map(|takes| takes.verdict().clone());
        if let (Some(limit), None) = (over, &error) {
            let is_saved = verdict == Some(Verdict::Saved);
            error = Some(self.over_budget(limit, is_saved, host.counters()));
        }
        let tally = Tally {
            program,
            plan,
            catalog,
            deployment,
            targets: &self.targets,
            workers: host.workers(),
            counters: host.counters(),
            finished: &finished,
            notices: &self.notices,
            sinks: &sinks,
            tuned,
            rebalanced,
            wall_s,
            before: self.before,
        };
        let mut report = tally.report();
        let examination = questions.examine(program, deployment);
        self.signals.keep_diagnosis(examination.text());
        examination.add_to(&mut report);
        report.checkpoints = coordinator.as_ref().map(CheckpointReport::from);
        self.report_hosts(&mut report, &finished);
        let suspects = coordinator.as_ref().map(|takes| takes.suspects().to_vec());
        let counted = coordinator.iter().flat_map(Coordinator::counted);
        let counted =
            counted.map(|(barrier, counts)| (*barrier, Totals::of(program, deployment, counts)));
        let counted = counted.collect();
        let stopped = stopped && verdict != Some(Verdict::Finished);
        let dead_letters = tally.dead_letters();
        if abandoned {
            // Dropping the host would wait for the stuck worker.
            std::mem::forget(host);
        }
        Ok(Attempted {
            error,
            verdict,
            suspects: suspects.unwrap_or_default(),
            report,
            counted,
            dead_letters,
            sinks,
            stopped,
            yields,
            abandoned,
        })
    }

    /// Its hosts, if there are to be several.
    fn spread(&self) -> Option<Spread<'_>> {
        let spread = |orchestrator| Spread {
            orchestrator,
            hosts: &self.hosts,
            plan: &self.plan,
        };
        self.orchestrator.as_ref().map(spread)
    }

    /// From now on hosts are judged by what they do.
    fn begin_hosts(&self) {
        if let Some(spread) = self.spread() {
            let instances = 0..self.deployment.instances.len();
            let processes = instances.map(|instance| self.deployment.process(instance));
            let used = spread.used(self.program, processes);
            spread.orchestrator.begin(used);
        }
    }

    /// Adds the hosts, and what was refused.
    fn report_hosts(&self, report: &mut Report, finished: &[FinalCounts]) {
        let Some(orchestrator) = &self.orchestrator else {
            return;
        };
        let (fenced, sessions) = orchestrator.refused();
        let of_links = finished.iter().map(|counts| counts.refused);
        let (stale, strangers) = of_links.fold((0, 0), |(stale, strangers), (one, other)| {
            (stale + one, strangers + other)
        });
        let fenced = FencedReport {
            links: stale,
            messages: fenced,
        };
        let refused = RefusedReport {
            sessions,
            links: strangers,
        };
        let hosts = orchestrator.report(&self.hosts, &self.plan.host_of);
        let clocks = Clocks::new(self.program, &self.plan, &self.deployment, &self.hosts);
        let sinks = self.program.sinks();
        let errors_ms = sinks.map(|(node, _)| clocks.error_ns(node) as f64 / 1e6);
        report.add_hosts(hosts, &errors_ms.collect::<Vec<f64>>(), fenced, refused);
        report.hosts_wanted = self.spread().and_then(|spread| {
            let used = finished.iter();
            let used = used.map(|counts| (counts.process, counts.usage.cpu_s));
            let violated_s = report.sinks.iter().filter_map(|sink| sink.violated_s);
            orchestrator.end(HostsReading {
                cpu_s: spread.cpu_s(used),
                rows_out: report.rows_out,
                violated_ns: (violated_s.fold(0.0, f64::max) * 1e9) as u64,
                ..HostsReading::default()
            })
        });
    }

    /// The number of instances of each materialized view.
    fn instances_of_views(&self) -> Vec<usize> {
        let of_view = |view: &MaterializedView| {
            let instances = self.deployment.instances.iter();
            let heads = instances.filter_map(|instance| instance.steps.first());
            heads.filter(|head| head.node == view.node).count()
        };
        self.program.views.iter().map(of_view).collect()
    }

    /// The error if operators held more than the memory limit; it names the largest.
    fn over_budget(&self, limit: u64, is_saved: bool, counters: &[Arc<InstanceCounters>]) -> Error {
        let mut by_node = std::collections::BTreeMap::<usize, u64>::new();
        for (instance, slots) in self.deployment.instances.iter().zip(counters) {
            if let Some(head) = instance.steps.first() {
                let bytes = InstanceCounters::read(&slots.state_bytes_max);
                *by_node.entry(head.node).or_default() += bytes;
            }
        }
        let mut largest = by_node.into_iter().collect::<Vec<_>>();
        largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let named = largest
            .iter()
            .take(OPERATORS_NAMED)
            .filter(|(_, bytes)| *bytes > 0);
        let named = named.map(|(node, bytes)| {
            let name = &self.program.graph.nodes[*node].name;
            format!("{name} #{node} {}", megabytes(*bytes))
        });
        let named = named.collect::<Vec<_>>().join(", ");
        let share = match self.plan.processes {
            1 => String::new(),
            processes => format!(" (shared by {processes} processes)"),
        };
        // The limit was exceeded at one moment, while the sizes are the most that each operator has held.
        let limit = megabytes(limit);
        let reason =
            format!("operators held more than {limit}{share}; the largest held up to: {named}");
        let saved = match is_saved {
            true => "all that was read is checkpointed: run the query again with a larger limit",
            false => "set a larger limit",
        };
        Error::new("'memory_limit'", reason)
            .hint(format!("{saved}, or use shorter windows or fewer keys"))
            .final_one()
    }

    /// The report of a run with nothing to do.
    pub fn nothing_done(&self, catalog: &ProgramCatalog<'_>) -> Report {
        let instances = self.deployment.instances.iter();
        let counters = instances.map(|instance| Arc::new(instance.counters()));
        let tally = Tally {
            program: self.program,
            plan: &self.plan,
            catalog,
            deployment: &self.deployment,
            targets: &self.targets,
            workers: Vec::new(),
            counters: &counters.collect::<Vec<Arc<InstanceCounters>>>(),
            finished: &[],
            notices: &self.notices,
            sinks: &[],
            tuned: None,
            rebalanced: None,
            wall_s: self.started.elapsed().as_secs_f64(),
            before: self.before,
        };
        tally.report()
    }

    /// Makes a host prepare to run the query.
    ///
    /// # Errors
    ///
    /// If the query can't be started.
    pub fn prepare(&self, incarnation: Option<&Incarnation>) -> Result<Prepared, Error> {
        let (sender, events) = self.signals.listen();
        let hearing = sender.clone();
        let report = move |event: HostEvent| {
            // The queue has no receiver only when the attempt is over.
            let _ = hearing.send(RunEvent::Host(event));
        };
        Ok(Prepared {
            host: StartingExecution::new(&self.work(incarnation), Arc::new(report))?,
            sender,
            events,
        })
    }

    /// The input of a host.
    pub fn work<'b>(&'b self, incarnation: Option<&'b Incarnation>) -> Work<'b> {
        Work {
            file: self.script.name(),
            text: self.script.text(),
            settings: self.settings,
            program: self.program,
            plan: &self.plan,
            deployment: &self.deployment,
            costs: self.costs,
            token: self.token,
            hosts: &self.hosts,
            incarnation,
            members: &self.members,
            notices: &self.notices,
        }
    }

    fn coordinator(
        &self,
        incarnation: &Incarnation,
        writer: CheckpointWriter,
        sender: mpsc::SyncSender<RunEvent>,
    ) -> Result<Coordinator, Error> {
        // After another abandoned checkpoint, two transactions would have to be committed at once.
        let mut sinks = self.program.sinks();
        let is_once = sinks.any(|(_, sink)| sink.connector.capabilities().may_lose_prepared);
        let coordinator = Coordinator::start(
            writer,
            self.program.settings.checkpoint_interval_ns,
            is_once,
            Arc::clone(&self.members),
            incarnation.manifest.as_ref(),
            self.traces.clone(),
            move |stored| {
                let _ = sender.send(RunEvent::Stored(stored));
            },
        );
        coordinator.map_err(|reason| Error::new("checkpoints", reason))
    }

    fn live_line(&self, host: &Execution) -> Option<Live> {
        let sources = self.program.sources();
        let rows_per_s = sources.filter_map(|(_, source)| source.connector.describe().rows_per_s);
        let rows_per_s = rows_per_s.sum();
        self.live.then(|| {
            Live::new(
                self.program,
                &self.deployment,
                host,
                rows_per_s,
                &self.targets,
            )
        })
    }
}
