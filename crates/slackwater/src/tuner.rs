//! Meets latency targets: plans how long sources may wait, and corrects that while the query runs.
//!
//! ```text
//! program, calibration ─► paths, planner ─► first setting ──► tunings of sources, waits of workers
//! each process: probe ─► Seen ─► running, elastic (decisions, here) ─┬─► the same, and moves of instances
//!                                                                    └─► Tuned, for the report
//! ```
//!
//! The activity of threads is read by a call. Worker processes are asked, at most once per tick, and the
//! tuner decides as soon as all have answered. A process that doesn't answer in time delays no other; its
//! answer counts when it arrives.
//!
//! Invariants:
//! - `slackwater_control` and `running` decide; this module has the clock and sends the commands.
//! - Looks cost at most a twentieth of what the workers cost, apart from one in two seconds (`pace`). There
//!   are none while the query is idle: the first active worker ends that.
//! - Explicit settings (`wait`, `linger`, `chunk_rows`) are not changed.

mod asked;
mod change;
mod clocks;
mod elastic;
mod messages;
mod pace;
mod paths;
mod planned;
mod predicted;
mod running;
mod tuned;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use slackwater_control::latency::controller::Setting;
use slackwater_control::latency::lateness::{Late, Lost};
use slackwater_control::latency::model::HostCosts;
use slackwater_engine::deploy::Deployment;
use slackwater_engine::protocol::Command;
use slackwater_engine::runtime::{Costs, WaitMode};
use slackwater_engine::time::now_ns;
use slackwater_sql::program::Program;

use crate::catalog::ProgramCatalog;
use crate::hosts::{Execution, HostCommand};
use crate::machine::own_cpu_ns;
use crate::plan::Plan;
use crate::probe::{Probe, Seen};
use crate::targets::Targets;

use asked::Asked;
use change::{differs, same_wait};
pub use clocks::{Clocks, Site};
use elastic::Elastic;
use messages::Messages;
use pace::Pace;
pub use planned::{PathPlan, host_costs, plan_paths, plan_sink, warnings};
use planned::{TARGET_NS_MAX, path_control};
use predicted::Predicted;
use running::{Around, PathControl, WorkerState};
pub use tuned::Tuned;

/// How the activity is measured.
enum Looks {
    /// By a probe of this process.
    Here(Box<Probe>),
    /// By worker processes, which are asked.
    There(Asked),
}

/// Tunes the paths of a query.
pub struct Tuner<'a> {
    program: &'a Program,
    plan: &'a Plan,
    host: &'a Execution,
    clocks: Clocks<'a>,
    looks: Looks,
    /// The linger and the chunk size that each source was told.
    told: HashMap<usize, (u64, usize)>,
    /// The wait mode and the cost of finding work that each worker was told.
    told_waits: Vec<Option<(WaitMode, u64)>>,
    paths: Vec<PathControl>,
    workers: Vec<WorkerState>,
    elastic: Elastic,
    messages: Messages,
    costs: HostCosts,
    engine_costs: Costs,
    pace: Pace,
    corrected_ns: u64,
    silent: bool,
    delay_first_ns: u64,
    corrections: u64,
    predicted: Predicted,
}

impl<'a> Tuner<'a> {
    /// A tuner for a query that has just been deployed; `None` if there is nothing to tune.
    pub fn new(
        program: &'a Program,
        plan: &'a Plan,
        catalog: &ProgramCatalog<'_>,
        deployment: &Deployment,
        site: Site<'a>,
        costs: Costs,
        targets: &Targets,
    ) -> Option<Tuner<'a>> {
        let host = site.execution;
        let clocks = Clocks::new(program, plan, deployment, site.hosts);
        let sinks = program.sinks();
        let paths = sinks.filter_map(|(node, sink)| {
            let target_ns = targets.of(node, sink.latency_target_ns)?;
            let error_ns = clocks.error_ns(node);
            path_control(program, plan, node, target_ns, error_ns, costs)
        });
        let paths = paths.collect::<Vec<PathControl>>();
        let first = paths.iter().map(|path| path.setting().delay_ns).min()?;
        let processes = host.worker_processes();
        let looks = match processes {
            0 => {
                let (counters, workers) = (host.counters(), host.workers());
                let controls = catalog.controls();
                let sources = controls.tunings();
                let sources = sources.map(|(node, tuning)| (node, Arc::clone(tuning)));
                let sources = sources.collect();
                let probe = Probe::new(deployment, 0, counters, &workers, sources);
                Looks::Here(Box::new(probe))
            }
            processes => Looks::There(Asked::new(processes)),
        };
        let workers = plan.placement.cores.len();
        let now_ns = now_ns();
        Some(Tuner {
            program,
            plan,
            host,
            clocks,
            looks,
            told: HashMap::new(),
            told_waits: vec![None; workers],
            paths,
            workers: vec![WorkerState::default(); workers],
            elastic: Elastic::new(deployment, plan),
            messages: Messages::new(&plan.messages),
            costs: host_costs(costs),
            engine_costs: costs,
            pace: Pace::new(now_ns),
            corrected_ns: now_ns,
            silent: false,
            delay_first_ns: first,
            corrections: 0,
            predicted: Predicted::default(),
        })
    }

    /// The time until the next tick; `None` while the query is idle.
    pub fn next(&self) -> Option<Duration> {
        let after_ns = || self.pace.next_ns().saturating_sub(now_ns());
        (!self.silent).then(|| Duration::from_nanos(after_ns()))
    }

    /// The query is no longer idle.
    pub fn wake(&mut self) {
        if std::mem::take(&mut self.silent) {
            self.corrected_ns = now_ns();
            self.pace.wake(self.corrected_ns);
            // Worker processes do this without a request.
            if let Looks::Here(probe) = &mut self.looks {
                probe.skip();
            }
        }
    }

    /// Applies the planner's settings.
    pub fn begin(&mut self) {
        self.apply();
    }

    /// Changes the target of the sink at `node`, or gives it one.
    pub fn retarget(&mut self, node: usize, target_ns: u64) {
        let mut paths = self.paths.iter_mut();
        match paths.find(|path| path.parts().sink == node) {
            Some(path) => path.retarget(target_ns.min(TARGET_NS_MAX)),
            None => {
                let (program, plan, costs) = (self.program, self.plan, self.engine_costs);
                let error_ns = self.clocks.error_ns(node);
                let path = path_control(program, plan, node, target_ns, error_ns, costs);
                self.paths.extend(path);
            }
        }
        self.pace.hurry();
        self.apply();
    }

    /// An instance has arrived on its new worker.
    pub fn relocated(&mut self, instance: usize) {
        self.elastic.arrived(instance);
        self.apply();
    }

    /// An instance has ended.
    pub fn ended(&mut self, number: usize) {
        self.elastic.ended(number);
    }

    /// Whether no instance is moving to another worker.
    pub fn is_settled(&self) -> bool {
        self.elastic.is_settled()
    }

    /// Reads the activity and corrects the settings, if that is worth it, or asks worker processes for their
    /// activity; `may_move` says whether instances may change workers.
    pub fn tick(&mut self, may_move: bool) {
        let now_ns = now_ns();
        if !self.pace.tick(now_ns) {
            return;
        }
        let chooses_wait = self.chooses_wait();
        match &mut self.looks {
            Looks::Here(probe) => {
                // Workers that poll are not known to be busy.
                if chooses_wait && !self.pace.is_worth_it(now_ns, probe.busy_ns()) {
                    return;
                }
                self.look(may_move);
            }
            Looks::There(asked) => {
                let begin_ns = own_cpu_ns();
                let (now, seen) = asked.tick();
                let errors_ns = self.clocks.errors_ns();
                for process in now {
                    let errors_ns = errors_ns.clone();
                    self.host.tell(HostCommand::Observe { process, errors_ns });
                }
                if !seen.is_empty() {
                    self.correct(&seen, begin_ns, false);
                }
            }
        }
    }

    /// Looks now, where no request is needed, so that [`Tuner::late`] is up to date.
    pub fn look(&mut self, may_move: bool) {
        if let Looks::Here(probe) = &mut self.looks {
            let begin_ns = own_cpu_ns();
            let seen = probe.look();
            self.correct(&[seen], begin_ns, may_move);
        }
    }

    /// Handles the answer of a worker process; corrects the settings when all have answered.
    pub fn observed(&mut self, seen: Seen) {
        let Looks::There(asked) = &mut self.looks else {
            return;
        };
        if let Some(seen) = asked.answer(seen) {
            // Instances stay in their processes.
            self.correct(&seen, own_cpu_ns(), false);
        }
    }

    /// Corrects the settings by the processes' activity, in a look that began at `begin_ns` of this thread's
    /// CPU time.
    fn correct(&mut self, seen: &[Seen], begin_ns: u64, may_move: bool) {
        let now_ns = now_ns();
        let interval_ns = now_ns.saturating_sub(std::mem::replace(&mut self.corrected_ns, now_ns));
        let rows = self.elastic.rows_taken(seen, self.workers.len());
        for seen in seen {
            for worker in &seen.workers {
                if let Some(state) = self.workers.get_mut(worker.worker) {
                    let rows = rows[worker.worker];
                    state.see(worker, rows, seen.interval_ns, seen.stolen_ns);
                }
            }
        }
        let busiest = self.workers.iter().map(|worker| worker.utilization);
        let utilization = busiest.fold(0.0, f64::max);
        let lost = self.workers.iter().map(|worker| worker.lost);
        let lost = lost.fold(Lost::default(), Lost::max);
        let sleeps = self.elastic.sleeps_in_a_row(self.plan);
        let in_use = self.tightest();
        let mut rows_seen = 0;
        for path in &mut self.paths {
            let sources = path.parts().sources.iter().copied();
            let sources = sources.collect::<Vec<usize>>();
            let source_workers = self.elastic.workers_of(&sources, self.plan);
            let corrected = path.correct(
                seen,
                &Around {
                    interval_ns,
                    utilization,
                    slept: source_workers
                        .iter()
                        .any(|&worker| self.workers[worker].slept),
                    sleeps,
                    error_ns: self.clocks.error_ns(path.parts().sink),
                    lost,
                },
            );
            let Some(corrected) = corrected else {
                continue;
            };
            self.corrections += 1;
            rows_seen += corrected.rows;
            if differs(corrected.before.delay_ns, corrected.after.delay_ns) {
                self.pace.hurry();
            }
        }
        if let Some(setting) = in_use
            && rows_seen > 0
        {
            let shares = self.shares(setting, rows_seen, interval_ns);
            self.predicted
                .add(&shares, &self.costs, rows_seen, interval_ns);
        }
        let cores = self.workers.iter().map(|worker| worker.cores);
        let cores = cores.collect::<Vec<f64>>();
        for (instance, worker) in self.elastic.look(seen, interval_ns, &cores, may_move) {
            self.host.tell(HostCommand::Relocate { instance, worker });
            self.pace.hurry();
        }
        for (link, message_bytes) in self.messages.correct(seen) {
            self.host.tell(HostCommand::Resize {
                link,
                message_bytes,
            });
        }
        self.apply();
        let all_answered = match &self.looks {
            Looks::Here(_) => true,
            Looks::There(asked) => seen.len() == asked.processes(),
        };
        let nothing = all_answered && seen.iter().all(Seen::is_silent);
        if nothing && self.elastic.is_settled() {
            self.silent = true;
            self.host
                .tell(HostCommand::Workers(Command::ReportActivity));
        }
        let workers = seen.iter().flat_map(|seen| &seen.workers);
        let busy_ns = workers.map(|worker| worker.busy_ns).sum();
        // Each process that was asked has worked about as much for it.
        let cpu_ns =
            own_cpu_ns().saturating_sub(begin_ns) * (1 + self.host.worker_processes() as u64);
        self.pace.looked(now_ns, busy_ns, cpu_ns);
    }

    /// Each worker's share of the predicted work. In one process, the busiest worker represents all.
    fn shares(&self, setting: Setting, rows: u64, interval_ns: u64) -> Vec<predicted::Share> {
        let active = self.workers.iter().enumerate();
        let active = active.filter(|(_, worker)| worker.activations > 0);
        if let Looks::Here(_) = &self.looks {
            let per_row_ns = |worker: &WorkerState| worker.work().per_row_ns;
            let busiest =
                active.max_by(|(_, one), (_, other)| per_row_ns(one).total_cmp(&per_row_ns(other)));
            let share = busiest.map(|(_, worker)| {
                predicted::Share::of_source(worker.work(), rows, interval_ns, setting)
            });
            return share.into_iter().collect();
        }
        let sources = (0..self.program.nodes.len()).filter(|&node| self.is_source(node));
        let sources = self
            .elastic
            .workers_of(&sources.collect::<Vec<usize>>(), self.plan);
        let shares = active.map(|(number, worker)| match sources.contains(&number) {
            true => {
                predicted::Share::of_source(worker.work(), worker.rows, worker.interval_ns, setting)
            }
            false => predicted::Share::woken(
                worker.work(),
                worker.rows,
                worker.activations,
                worker.interval_ns,
            ),
        });
        shares.collect()
    }

    /// The shortest delay of the paths that a source feeds, and the smallest chunks.
    fn setting_of(&self, node: usize) -> Option<Setting> {
        let paths = self.paths.iter();
        let paths = paths.filter(|path| path.parts().sources.contains(&node));
        let settings = paths.map(PathControl::setting);
        settings.reduce(|one, other| Setting {
            delay_ns: one.delay_ns.min(other.delay_ns),
            chunk_rows: one.chunk_rows.min(other.chunk_rows),
        })
    }

    /// Sends the settings to sources and workers.
    fn apply(&mut self) {
        let settings = &self.program.settings;
        let mut delays: Vec<Option<u64>> = vec![None; self.workers.len()];
        let mut hosts_source = vec![false; self.workers.len()];
        for node in 0..self.program.nodes.len() {
            let workers = self.elastic.workers_of(&[node], self.plan);
            if !self.is_source(node) {
                continue;
            }
            for &worker in &workers {
                hosts_source[worker] = true;
            }
            let Some(setting) = self.setting_of(node) else {
                continue;
            };
            let linger_ns = match (settings.linger_set, paths::is_paced(self.program, node)) {
                (true, _) => settings.linger_ns,
                (false, true) => setting.delay_ns,
                // Its worker sleeps instead, which costs one wait instead of two.
                (false, false) => 0,
            };
            let chunk_rows = match settings.chunk_rows_set {
                true => settings.chunk_rows,
                false => setting.chunk_rows,
            };
            if self.told.insert(node, (linger_ns, chunk_rows)) != Some((linger_ns, chunk_rows)) {
                self.host.tell(HostCommand::Tune {
                    node,
                    linger_ns,
                    chunk_rows,
                });
            }
            for worker in workers {
                let delay = &mut delays[worker];
                *delay = Some(delay.map_or(setting.delay_ns, |ns| ns.min(setting.delay_ns)));
            }
        }
        // An explicit wait mode is not changed.
        if !matches!(settings.wait_mode(), WaitMode::Auto { .. }) {
            return;
        }
        for (worker, delay_ns) in delays.into_iter().enumerate() {
            let mode = match delay_ns {
                Some(0) => WaitMode::Interrupt,
                Some(delay_ns) => WaitMode::Auto {
                    delay: Duration::from_nanos(delay_ns),
                },
                // A source without a target keeps its mode; other workers are woken.
                None if hosts_source[worker] => settings.wait_mode(),
                None => WaitMode::Interrupt,
            };
            let found_ns = self.workers[worker].found_ns();
            let told = &mut self.told_waits[worker];
            if told.is_none_or(|told| !same_wait(told, (mode, found_ns))) {
                *told = Some((mode, found_ns));
                self.host.tell(HostCommand::Workers(Command::Wait {
                    worker,
                    mode,
                    found_ns,
                }));
            }
        }
    }

    fn chooses_wait(&self) -> bool {
        matches!(self.program.settings.wait_mode(), WaitMode::Auto { .. })
    }

    fn is_source(&self, node: usize) -> bool {
        self.program.nodes[node].is_source()
    }

    /// The workers that run something.
    pub fn workers_used(&self) -> BTreeSet<usize> {
        self.elastic.workers_used()
    }

    /// The rows of all paths that were late, and by what.
    pub fn late(&self) -> Late {
        let late = self.paths.iter().map(PathControl::late);
        late.fold(Late::default(), |sum, late| sum.with(&late))
    }

    /// The results of tuning.
    pub fn tuned(&self) -> Tuned {
        let tightest = self.tightest();
        let changes = self.paths.iter().map(PathControl::changes);
        let cores = self.workers.iter().map(WorkerState::mean_cores);
        Tuned {
            delay_first_ns: self.delay_first_ns,
            delay_ns: tightest.map(|setting| setting.delay_ns),
            chooses_wait: self.chooses_wait(),
            chunk_rows: tightest.map_or(0, |setting| setting.chunk_rows),
            corrections: self.corrections,
            changes: changes.sum(),
            moves: self.elastic.moves(),
            workers_used_max: self.elastic.workers_used_max(),
            predicted: self.predicted.mean(),
            measured_cores: Some(cores.sum()),
            late: self.late(),
        }
    }

    /// The setting of the path with the shortest delay.
    fn tightest(&self) -> Option<Setting> {
        let settings = self.paths.iter().map(PathControl::setting);
        settings.min_by_key(|setting| setting.delay_ns)
    }
}
