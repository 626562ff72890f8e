//! Keeps latency targets: plans how long sources may wait, and corrects it while the query runs.
//!
//! ```text
//! program, calibration ─► paths, planner ─► first setting ──► tunings of sources, waits of workers
//! counters of the engine ─► tick: controller, elastic ─┬────► the same, and moves of instances
//!                                                      └────► Tuned, for the report
//! ```
//!
//! Invariants:
//! - Decisions are `slackwater_control`'s; here are the clock, the counters and the commands.
//! - A tick costs some tens of microseconds. There are ten a second while something changes, two
//!   otherwise, and none in a silence: the first worker that does something ends it.
//! - What the user has set (`wait`, `linger`, `chunk_rows`) is left alone.

mod elastic;
mod paths;
mod watch;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use slackwater_control::latency::controller::{Controller, Goal, Observation, Setting};
use slackwater_control::latency::fit::Fit;
use slackwater_control::latency::model::{HostCosts, UTILISATION_MAX, Waiting, Work};
use slackwater_control::latency::planner::{Planned, Question, plan};
use slackwater_engine::deploy::Deployment;
use slackwater_engine::protocol::Command;
use slackwater_engine::runtime::{Costs, WaitMode};
use slackwater_engine::time::now_ns;
use slackwater_sql::program::Program;

use crate::catalog::ProgramCatalog;
use crate::hosts::{HostCommand, LocalHost};
use crate::plan::Plan;

use elastic::Elastic;
pub use paths::{Path, paths};
use watch::{PathWatch, WorkerWatch};

/// Ticks while something changes, and otherwise.
const SOON: Duration = Duration::from_millis(100);
const LATER: Duration = Duration::from_millis(500);

/// Quick ticks at the beginning and after each change of more than [`CHANGE_MIN`].
const SOON_TICKS: u32 = 10;

/// Targets beyond this are kept as if they were this: a wake-up in ten seconds costs nothing, and what
/// comes meanwhile has to fit a buffer.
const TARGET_NS_MAX: u64 = 10_000_000_000;

/// A delay that differs less from the last one is not worth a command, which wakes a worker.
const CHANGE_MIN: f64 = 0.02;

/// A path with how it is planned: for `explain`, and to begin with.
pub struct PathPlan {
    /// The path.
    pub path: Path,
    /// The planner's answer.
    pub planned: Planned,
    /// Rows per second that were reckoned with.
    pub rows_per_s: f64,
    /// The sources say so themselves.
    pub rate_known: bool,
}

/// Costs of waiting as the model wants them. The engine's have no time until a look; a wake-up
/// takes about as long as it costs both sides, and twice that in one of a hundred.
pub fn host_costs(costs: Costs) -> HostCosts {
    HostCosts {
        wake_ns: costs.wake_ns as f64,
        wake_until_look_p99_ns: 2.0 * costs.wake_ns as f64,
        sleep_ns: costs.sleep_ns as f64,
        oversleep_p50_ns: costs.oversleep_p50_ns as f64,
        oversleep_p99_ns: costs.oversleep_p99_ns as f64,
    }
}

/// Plans all paths to sinks with a target.
pub fn plan_paths(program: &Program, plan_: &Plan, costs: Costs) -> Vec<PathPlan> {
    let paths = paths(program, plan_).into_iter();
    let plans = paths.filter(|path| !path.sources.is_empty()).map(|path| {
        let (load, rate_known) = paths::load(program, &path);
        let planned = plan(&Question {
            target_ns: path.target_ns.min(TARGET_NS_MAX) as f64,
            stages: paths::guesses(program, plan_, &path),
            load,
            workers: plan_.placement.cores.len(),
            costs: host_costs(costs),
        });
        PathPlan {
            path,
            planned,
            rows_per_s: load.rows_per_s,
            rate_known,
        }
    });
    plans.collect()
}

/// Warnings of targets that no plan keeps, with the number that one would.
pub fn warnings(plans: &[PathPlan]) -> Vec<String> {
    let missed = plans.iter().filter(|plan| !plan.planned.meets_target);
    let lines = missed.map(|plan| {
        let target_ms = plan.path.target_ns as f64 / 1e6;
        let floor_ms = plan.planned.floor_ns / 1e6;
        let busy = plan.planned.chosen.prediction.utilisation;
        let rate = plan.rows_per_s;
        let least = floor_ms / (1.0 - slackwater_control::latency::planner::MARGIN);
        format!(
            "a latency target of {target_ms} ms can't be promised on this host: at {rate:.0} rows/s \
             the fastest plan takes {floor_ms:.2} ms for 99 of 100 rows and keeps a worker {:.0} % busy\n  \
             = a target of {least:.2} ms could be met; slackwater explain shows the plan",
            busy * 100.0
        )
    });
    lines.collect()
}

/// How workers of several processes wait: the tightest target, shared out evenly over the workers
/// that a row can pass, since nobody sees both ends of a path there. Nothing without a target.
/// Sources are set to collect rows for the same share.
pub fn spread_evenly(program: &Program, plan: &Plan, costs: Costs) -> Vec<HostCommand> {
    let settings = &program.settings;
    let targets_ns = paths(program, plan).into_iter().map(|path| path.target_ns);
    let Some(target_ns) = targets_ns.min() else {
        return Vec::new();
    };
    let mut hops = vec![1u64; plan.execution.instances.len()];
    let worker_of = &plan.placement.worker_of;
    // Links lead from earlier instances to later ones.
    for link in &plan.execution.links {
        let crosses = u64::from(worker_of[link.from] != worker_of[link.to]);
        hops[link.to] = hops[link.to].max(hops[link.from] + crosses);
    }
    let shares = hops.into_iter().max().unwrap_or(1);
    let margin = 1.0 - slackwater_control::latency::planner::MARGIN;
    let share_ns = (target_ns as f64 * margin) as u64 / shares;
    let delay_ns = share_ns.saturating_sub(costs.oversleep_p99_ns + costs.wake_ns);
    let mut commands = Vec::new();
    for (node, spec) in program.nodes.iter().enumerate() {
        if spec.is_source() && !settings.linger_set {
            let paced = paths::is_paced(program, node);
            let linger_ns = if paced { delay_ns } else { 0 };
            commands.push(HostCommand::Tune {
                node,
                linger_ns,
                chunk_rows: settings.chunk_rows,
            });
        }
    }
    if let WaitMode::Auto { .. } = settings.wait_mode() {
        let mode = match delay_ns {
            0 => WaitMode::Interrupt,
            delay_ns => WaitMode::Auto {
                delay: Duration::from_nanos(delay_ns),
            },
        };
        let workers = 0..plan.placement.cores.len();
        commands.extend(workers.map(|worker| {
            HostCommand::Workers(Command::Wait {
                worker,
                mode,
                found_ns: 0,
            })
        }));
    }
    commands
}

/// What came of tuning, for the report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tuned {
    /// The last delay that was permitted, in nanoseconds; `None` where nothing was tuned.
    pub delay_ns: Option<u64>,
    /// Rows per chunk at last.
    pub chunk_rows: usize,
    /// Corrections, and those that changed something.
    pub corrections: u64,
    /// Corrections that changed something.
    pub changes: u64,
    /// Instances that went to another worker.
    pub moves: u64,
    /// The most workers that were in use at once.
    pub workers_used_max: usize,
    /// Predicted from what was learned: CPU time per second, and p99 in nanoseconds.
    pub predicted: Option<(f64, f64)>,
    /// What was measured beside it: CPU time of the workers per second, while something happened.
    pub measured_cores: Option<f64>,
}

/// Tunes the paths of a query in one process.
pub struct Tuner<'a> {
    program: &'a Program,
    plan: &'a Plan,
    catalog: &'a ProgramCatalog<'a>,
    host: &'a LocalHost,
    /// How long each source was told to wait for rows, and for how many.
    told: HashMap<usize, (u64, usize)>,
    paths: Vec<Tuning>,
    workers: Vec<WorkerWatch>,
    elastic: Elastic,
    costs: HostCosts,
    ticked_ns: u64,
    soon: u32,
    silent: bool,
    corrections: u64,
    predicted: Predicted,
}

/// The model's predictions for every interval in which something was done.
#[derive(Default)]
struct Predicted {
    /// CPU time, and the intervals' time, in seconds.
    cpu_s: f64,
    active_s: f64,
    /// The p99 of each interval in nanoseconds times its rows, and the rows.
    p99_rows: f64,
    rows: f64,
}

/// One path while it runs.
struct Tuning {
    path: Path,
    controller: Controller,
    watch: PathWatch,
}

impl<'a> Tuner<'a> {
    /// A tuner for a query that has just been deployed; `None` when there is nothing to tune.
    pub fn new(
        program: &'a Program,
        plan: &'a Plan,
        catalog: &'a ProgramCatalog<'a>,
        deployment: &'a Deployment,
        host: &'a LocalHost,
        costs: Costs,
    ) -> Option<Tuner<'a>> {
        // Elsewhere nobody sees both ends of a path.
        if host.worker_processes() > 0 {
            return None;
        }
        let costs_ = host_costs(costs);
        let paths = plan_paths(program, plan, costs).into_iter().map(|plan_| {
            let target_ns = plan_.path.target_ns.min(TARGET_NS_MAX);
            let setting = first_setting(&plan_.planned, target_ns);
            let goal = Goal {
                target_ns,
                costs: costs_,
            };
            Tuning {
                watch: PathWatch::new(deployment, plan, &plan_.path, host.counters()),
                controller: Controller::new(goal, setting),
                path: plan_.path,
            }
        });
        let paths = paths.collect::<Vec<Tuning>>();
        if paths.is_empty() {
            return None;
        }
        let workers = host.workers().into_iter().map(WorkerWatch::new);
        let tuner = Tuner {
            program,
            plan,
            catalog,
            host,
            told: HashMap::new(),
            paths,
            workers: workers.collect(),
            elastic: Elastic::new(deployment, plan, host.counters()),
            costs: costs_,
            ticked_ns: now_ns(),
            soon: SOON_TICKS,
            silent: false,
            corrections: 0,
            predicted: Predicted::default(),
        };
        Some(tuner)
    }

    /// When the next tick is due; `None` in a silence.
    pub fn next(&self) -> Option<Duration> {
        let after = if self.soon > 0 { SOON } else { LATER };
        let due_ns = self.ticked_ns + after.as_nanos() as u64;
        (!self.silent).then(|| Duration::from_nanos(due_ns.saturating_sub(now_ns())))
    }

    /// Something was done after a silence.
    pub fn wake(&mut self) {
        if std::mem::take(&mut self.silent) {
            self.ticked_ns = now_ns();
            self.soon = SOON_TICKS;
            for worker in &mut self.workers {
                worker.skip();
            }
        }
    }

    /// Sets what the planner has chosen.
    pub fn begin(&mut self) {
        self.apply();
    }

    /// An instance runs on the worker that it was meant for.
    pub fn relocated(&mut self, instance: usize) {
        self.elastic.arrived(instance);
        self.apply();
    }

    /// An instance has ended.
    pub fn ended(&mut self, number: usize) {
        self.elastic.ended(number);
    }

    /// All instances are with their workers.
    pub fn is_settled(&self) -> bool {
        self.elastic.is_settled()
    }

    /// Looks at the counters and corrects; `may_move` says whether instances may change workers.
    pub fn tick(&mut self, may_move: bool) {
        let now_ns = now_ns();
        let interval_ns = now_ns.saturating_sub(self.ticked_ns);
        if interval_ns < SOON.as_nanos() as u64 / 2 {
            return;
        }
        self.ticked_ns = now_ns;
        self.soon = self.soon.saturating_sub(1);
        let rows = self.elastic.rows_taken(self.workers.len());
        for (worker, rows) in self.workers.iter_mut().zip(rows) {
            worker.look(interval_ns, rows);
        }
        let busiest = self.workers.iter().map(|worker| worker.utilisation);
        let utilisation = busiest.fold(0.0, f64::max);
        let sleeps = self.elastic.sleeps_in_a_row(self.plan);
        let mut something = self.workers.iter().any(|worker| worker.activations > 0);
        let mut rows_seen = 0;
        let in_use = self.tightest();
        for tuning in &mut self.paths {
            let seen = tuning.watch.look();
            something |= seen.rows > 0;
            if seen.rows == 0 && seen.latencies.is_empty() {
                continue;
            }
            let source_workers = self.elastic.workers_of(&tuning.path.sources, self.plan);
            let paced = tuning.path.sources.iter();
            let mut paced = paced.map(|&node| paths::is_paced(self.program, node));
            let slept = source_workers
                .iter()
                .any(|&worker| self.workers[worker].slept);
            let fills = tuning.path.sources.iter();
            let fill = fills.map(|&node| self.catalog.tuning(node).take_fill());
            let before = tuning.controller.setting();
            let after = tuning.controller.correct(&Observation {
                interval_ns,
                latencies: &seen.latencies,
                rows: seen.rows,
                utilisation,
                per_row_ns: seen.per_row_ns,
                slept: slept || paced.any(|paced| paced),
                sleeps,
                fill: fill.fold(0.0, f64::max),
            });
            self.corrections += 1;
            rows_seen += seen.rows;
            if differs(before.delay_ns, after.delay_ns) {
                self.soon = SOON_TICKS;
            }
        }
        let cores = self.workers.iter().map(|worker| worker.cores);
        let cores = cores.collect::<Vec<f64>>();
        if let Some((setting, _)) = in_use {
            self.predict(setting, rows_seen, interval_ns);
        }
        for (instance, worker) in self.elastic.look(interval_ns, &cores, may_move) {
            self.host.tell(HostCommand::Relocate { instance, worker });
            self.soon = SOON_TICKS;
        }
        self.apply();
        if !something && self.elastic.is_settled() {
            self.silent = true;
            self.host
                .tell(HostCommand::Workers(Command::ReportActivity));
        }
    }

    /// The tightest delay of the paths that a source feeds, and the smallest chunks.
    fn setting_of(&self, node: usize) -> Option<Setting> {
        let paths = self.paths.iter();
        let paths = paths.filter(|tuning| tuning.path.sources.contains(&node));
        let settings = paths.map(|tuning| tuning.controller.setting());
        settings.reduce(|one, other| Setting {
            delay_ns: one.delay_ns.min(other.delay_ns),
            chunk_rows: one.chunk_rows.min(other.chunk_rows),
        })
    }

    /// Hands settings to sources and workers.
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
                // Its worker sleeps instead, which costs one wait and not two.
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
        // How workers wait is the user's business where it was said.
        if !matches!(settings.wait_mode(), WaitMode::Auto { .. }) {
            return;
        }
        for (worker, delay_ns) in delays.into_iter().enumerate() {
            let mode = match delay_ns {
                Some(0) => WaitMode::Interrupt,
                Some(delay_ns) => WaitMode::Auto {
                    delay: Duration::from_nanos(delay_ns),
                },
                // A source without a target, or the same as any worker behind a source: rung.
                None if hosts_source[worker] => settings.wait_mode(),
                None => WaitMode::Interrupt,
            };
            if self.workers[worker].tell(mode) {
                let found_ns = self.workers[worker].found_ns();
                self.host.tell(HostCommand::Workers(Command::Wait {
                    worker,
                    mode,
                    found_ns,
                }));
            }
        }
    }

    fn is_source(&self, node: usize) -> bool {
        self.program.nodes[node].is_source()
    }

    /// The workers that run something.
    pub fn workers_used(&self) -> BTreeSet<usize> {
        self.elastic.workers_used()
    }

    /// What came of it.
    pub fn tuned(&self) -> Tuned {
        let tightest = self.tightest().map(|(setting, _)| setting);
        let changes = self.paths.iter().map(|tuning| tuning.controller.changes());
        let cores = self.workers.iter().map(WorkerWatch::mean_cores);
        Tuned {
            delay_ns: tightest.map(|setting| setting.delay_ns),
            chunk_rows: tightest.map_or(0, |setting| setting.chunk_rows),
            corrections: self.corrections,
            changes: changes.sum(),
            moves: self.elastic.moves(),
            workers_used_max: self.elastic.workers_used_max(),
            predicted: (self.predicted.rows > 0.0).then(|| {
                let Predicted {
                    cpu_s,
                    active_s,
                    p99_rows,
                    rows,
                } = self.predicted;
                (cpu_s / active_s, p99_rows / rows)
            }),
            measured_cores: Some(cores.sum()),
        }
    }

    /// The setting of the path with the shortest delay, and the number of that path.
    fn tightest(&self) -> Option<(Setting, usize)> {
        let paths = self.paths.iter().enumerate();
        let settings = paths.map(|(number, tuning)| (tuning.controller.setting(), number));
        settings.min_by_key(|(setting, _)| setting.delay_ns)
    }

    /// Adds what the model says of an interval, with learned costs and the rate that was measured.
    fn predict(&mut self, setting: Setting, rows: u64, interval_ns: u64) {
        use slackwater_control::latency::model::{Load, Shape, predict};
        if rows == 0 {
            return;
        }
        let seconds = interval_ns as f64 / 1e9;
        let rows_per_s = rows as f64 / seconds;
        let shape = Shape {
            groups: vec![1],
            source: match setting.delay_ns {
                0 => Waiting::Interrupt,
                ns => Waiting::Sleep(ns as f64),
            },
            between: Waiting::Interrupt,
            // What the fit calls a chunk is an activation, however many chunks it has.
            chunk_rows: f64::MAX,
        };
        let load = Load {
            rows_per_s,
            arrivals_per_s: rows_per_s.min(1_000.0),
        };
        let works = self.workers.iter().filter(|worker| worker.activations > 0);
        let works = works.map(|worker| worker.work());
        let busiest = |one: &Work, other: &Work| one.per_row_ns.total_cmp(&other.per_row_ns);
        let Some(work) = works.max_by(busiest) else {
            return;
        };
        let prediction = predict(&shape, &[work], &load, &self.costs);
        // Of a worker that falls behind the model says nothing.
        if prediction.utilisation > UTILISATION_MAX {
            return;
        }
        self.predicted.cpu_s += prediction.cores * seconds;
        self.predicted.active_s += seconds;
        self.predicted.p99_rows += prediction.p99_ns * rows as f64;
        self.predicted.rows += rows as f64;
    }
}

/// What the planner's answer is to begin with.
fn first_setting(planned: &Planned, target_ns: u64) -> Setting {
    let delay_ns = match planned.chosen.shape.source {
        Waiting::Sleep(time_ns) => time_ns as u64,
        // Interrupts cost least at the rate that was assumed; a busier source may sleep all the
        // same, and what chooses between the two is the worker itself.
        _ if planned.meets_target => target_ns / 2,
        _ => 0,
    };
    Setting {
        delay_ns,
        chunk_rows: planned.chosen.shape.chunk_rows as usize,
    }
}

fn differs(one: u64, other: u64) -> bool {
    one.abs_diff(other) as f64 > CHANGE_MIN * one.max(other) as f64
}

/// A guess of what finding something costs a worker, before anything was measured.
fn first_fit() -> Fit {
    Fit::new(Work {
        per_chunk_ns: 30_000.0,
        per_row_ns: 100.0,
    })
}
