//! Runs a text: compile, plan, deploy, wait for the end, report.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use slackwater_engine::counters::InstanceCounters;
use slackwater_engine::instance::SinkResult;
use slackwater_engine::runtime::{Costs, Runtime, RuntimeOptions, WaitMode};
use slackwater_engine::worker::Event;
use slackwater_sql::program::{Program, compile};
use slackwater_sql::settings::LinkKind;
use slackwater_sql::specs::NodeSpec;

use crate::calibrate;
use crate::catalog::{BuiltIn, DeadLetterFile, ProgramCatalog};
use crate::cli::say;
use crate::costs::Learned;
use crate::crew::Crew;
use crate::live::Live;
use crate::machine::Machine;
use crate::plan::{Plan, deployment, fingerprint};
use crate::planner::{learns, plan_on};
use crate::processes::{Children, Work};
use crate::rebalancer::Rebalancer;
use crate::report::{Report, count};
use crate::slow::Slowness;
use crate::tally::Ran;
use crate::tuner::{self, Tuner};

/// How a text is run.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Settings of the command line.
    pub settings: Vec<(String, String)>,
    /// The sources end after this time; windows stay open.
    pub duration: Option<Duration>,
    /// Show progress on standard error.
    pub progress: bool,
    /// Draw a line a second instead: rate, latency against target, cores.
    pub live: bool,
    /// SIGINT and SIGTERM end the query with its summary.
    pub signals: bool,
    /// The program that worker processes run; this one unless it is another program that runs
    /// queries, as the tests are.
    pub program: Option<PathBuf>,
    /// Some operators of this process are slow: for tests and experiments.
    pub slowness: Option<Arc<Slowness>>,
    /// The machine as somebody described it; `None` for what the operating system says.
    pub machine: Option<Machine>,
}

/// How a run ended.
#[derive(Debug)]
pub enum Outcome {
    /// With its inputs, by `--duration` or by a signal.
    Finished(Box<Finished>),
    /// There was nothing to run, only to explain.
    Explained(String),
}

/// A run that came to its end.
#[derive(Debug)]
pub struct Finished {
    /// What it cost.
    pub report: Report,
    /// Dead-letter files that were written.
    pub dead_letters: Vec<DeadLetterFile>,
    /// It did not come to the end of its inputs: open windows were not emitted.
    pub stopped: bool,
    /// Text of EXPLAIN statements.
    pub explained: String,
    /// A worker is stuck in a write that nobody takes: what was on its way there is lost.
    pub abandoned: bool,
}

/// Why a run did not come to its end.
#[derive(Debug)]
pub enum Failure {
    /// The text or the settings are wrong (exit code 2).
    Usage(String),
    /// The query failed (exit code 1), and what it cost until then.
    Query(String, Option<Box<Finished>>),
}

/// The name of a text that is read from standard input.
pub const STANDARD_INPUT: &str = "-";

/// How long a query that is stopped may take to bring what is on its way to its sinks: longer than
/// a full set of links of a slow pipeline, shorter than a supervisor's patience (10 s).
const STOP_PATIENCE: Duration = Duration::from_secs(5);

enum News {
    Engine(Event),
    Signal,
}

/// Runs a text. `file` is its name, for messages.
pub fn run(file: &str, text: &str, options: &RunOptions) -> Result<Outcome, Failure> {
    let usage = |error: slackwater_sql::SqlError| Failure::Usage(error.render(file, text));
    let compiled = compile(text, &options.settings, &BuiltIn).map_err(usage)?;
    let machine = options.machine.clone().unwrap_or_else(Machine::this);
    let programs = [&compiled.run, &compiled.explain];
    let mut learned = match programs.into_iter().any(learns) {
        true => Learned::load(),
        false => Learned::default(),
    };
    let explained = if compiled.explain.is_empty() {
        String::new()
    } else {
        let plan = plan_on(&compiled.explain, &machine, &learned).map_err(usage)?;
        crate::explain::explain(&compiled.explain, &plan)
    };
    let program = compiled.run;
    if program.is_empty() {
        if explained.is_empty() {
            return Err(Failure::Usage(format!(
                "{file}: nothing to run\n  = a query begins with SELECT or INSERT INTO"
            )));
        }
        return Ok(Outcome::Explained(explained));
    }
    check_standard_input(file, &program)?;
    let mut catalog = ProgramCatalog::new(&program).map_err(usage)?;
    if let Some(slowness) = &options.slowness {
        catalog = catalog.with_slowness(Arc::clone(slowness));
    }
    let plan = plan_on(&program, &machine, &learned).map_err(usage)?;
    // Other modes than `auto` don't ask for them.
    let costs = match program.settings.wait_mode() {
        WaitMode::Auto { .. } => calibrate::costs(),
        _ => Costs::default(),
    };
    for warning in tuner::warnings(&tuner::plan_paths(&program, &plan, costs)) {
        eprintln!("warning: {warning}");
    }
    let (news_sender, news) = mpsc::channel();
    let _signals = if options.signals {
        let sender = news_sender.clone();
        let watching = crate::signals::watch(move || {
            let _ = sender.send(News::Signal);
        });
        Some(watching.map_err(|error| Failure::Query(format!("signals: {error}"), None))?)
    } else {
        None
    };
    let (events_sender, events) = mpsc::channel();
    std::thread::spawn(move || {
        while let Ok(event) = events.recv() {
            if news_sender.send(News::Engine(event)).is_err() {
                return;
            }
        }
    });
    let started = Instant::now();
    let failed = |error: slackwater_engine::Error| Failure::Query(error.to_string(), None);
    let deployment = deployment(&program, &plan, 0);
    let mut crew = if plan.processes == 1 {
        let workers = RuntimeOptions {
            wait: plan.wait,
            costs,
            nodes: plan.memory_nodes.clone(),
            ..RuntimeOptions::on(&plan.placement.cores)
        };
        let runtime = Runtime::start(&workers, events_sender).map_err(failed)?;
        let deployed = runtime.deploy(&deployment, &catalog).map_err(failed)?;
        Crew::Threads { runtime, deployed }
    } else {
        let work = Work {
            file,
            text,
            settings: &options.settings,
            machine: &machine,
            learned: &learned,
            deployment: &deployment,
            processes: plan.processes,
            fingerprint: fingerprint(&program, &deployment),
            program: options.program.as_deref(),
            tcp: program.settings.link == LinkKind::Tcp,
            costs,
        };
        let children = Children::start(&work, events_sender);
        Crew::Processes(children.map_err(|error| Failure::Query(error.to_string(), None))?)
    };
    let mut watch = Watch {
        crew: &crew,
        program: &program,
        plan: &plan,
        catalog: &catalog,
        started,
        running: deployment.instances.len(),
        sinks: Vec::new(),
        error: None,
        stop_by: None,
        abandon_by: None,
        shown: Progress::new(options.progress && !options.live, &program),
        live: options.live.then(|| {
            let sources = program.nodes.iter().filter_map(|node| match node {
                NodeSpec::Source(source) => source.connector.describe().rows_per_s,
                _ => None,
            });
            Live::new(&deployment, crew.counters(), sources.sum())
        }),
        tuner: match &crew {
            Crew::Threads { runtime, deployed } => {
                let (program, plan, catalog) = (&program, &plan, &catalog);
                Tuner::new(
                    program,
                    plan,
                    catalog,
                    &deployment,
                    runtime,
                    deployed,
                    costs,
                )
            }
            Crew::Processes(_) => None,
        },
        rebalancer: Rebalancer::new(&program, &deployment, &crew, &catalog),
    };
    watch.until_end(&news, options.duration);
    let abandoned = watch.running > 0;
    let stopped = watch.stop_by.is_some() && watch.error.is_none();
    let wall_s = started.elapsed().as_secs_f64();
    let (error, sinks) = (watch.error.take(), std::mem::take(&mut watch.sinks));
    let tuned = watch.tuner.as_ref().map(Tuner::tuned);
    let rebalanced = watch.rebalancer.as_ref().map(Rebalancer::rebalanced);
    drop((watch.tuner.take(), watch.rebalancer.take()));
    watch.shown.clear();
    let farewells = crew.finish(&catalog);
    let run = Ran {
        program: &program,
        plan: &plan,
        catalog: &catalog,
        deployment: &deployment,
        workers: crew.workers(),
        counters: crew.counters(),
        farewells: &farewells,
        sinks: &sinks,
        tuned,
        rebalanced,
        wall_s,
    };
    let report = run.report();
    if error.is_none() && learns(&program) && learned.add(&program, &report.plan.operators) {
        // The query is none the worse for it.
        if let Err(reason) = learned.store() {
            eprintln!(
                "warning: what the query cost is not kept for 'parallelism' = 'auto': {reason}"
            );
        }
    }
    let finished = Box::new(Finished {
        report,
        dead_letters: run.dead_letters(),
        stopped,
        explained,
        abandoned,
    });
    if abandoned {
        // Dropping it would wait for the worker that is stuck.
        std::mem::forget(crew);
    }
    match error {
        None => Ok(Outcome::Finished(finished)),
        Some(error) => Err(Failure::Query(error.to_string(), Some(finished))),
    }
}

/// A text that came from standard input has used it up.
fn check_standard_input(file: &str, program: &Program) -> Result<(), Failure> {
    let reads_it = |node: &NodeSpec| match node {
        NodeSpec::Source(source) if source.connector.describe().connector == "stdin" => {
            Some(source.table.name.clone())
        }
        _ => None,
    };
    match program.nodes.iter().find_map(reads_it) {
        Some(table) if file == STANDARD_INPUT => Err(Failure::Usage(format!(
            "{file}: table '{table}' has 'connector' = 'stdin', but the text itself came from there\n  \
             = read the query from a file: slackwater run query.sql"
        ))),
        _ => Ok(()),
    }
}

struct Watch<'a> {
    crew: &'a Crew,
    program: &'a Program,
    plan: &'a Plan,
    catalog: &'a ProgramCatalog<'a>,
    started: Instant,
    running: usize,
    sinks: Vec<SinkResult>,
    error: Option<slackwater_engine::Error>,
    stop_by: Option<Instant>,
    /// When those who have not dropped the query by then are left alone.
    abandon_by: Option<Instant>,
    shown: Progress,
    /// Draws a line a second, where that was asked for.
    live: Option<Live>,
    /// Keeps latency targets, where there are any.
    tuner: Option<Tuner<'a>>,
    /// Moves keys between instances, where there are several.
    rebalancer: Option<Rebalancer<'a>>,
}

impl Watch<'_> {
    fn until_end(&mut self, news: &mpsc::Receiver<News>, duration: Option<Duration>) {
        let mut end_at = duration.map(|duration| self.started + duration);
        if let Some(tuner) = &mut self.tuner {
            tuner.begin();
        }
        if let Some(rebalancer) = &mut self.rebalancer {
            rebalancer.begin();
        }
        while self.running > 0 {
            let tick = self.tuner.as_ref().and_then(Tuner::next);
            let tick = tick.map(|after| Instant::now() + after);
            let look = self.rebalancer.as_ref().and_then(Rebalancer::next);
            let look = look.map(|after| Instant::now() + after);
            let live = self.live.as_ref().map(Live::next);
            let shown = self.shown.next();
            let ends = [end_at, self.stop_by, self.abandon_by];
            let deadlines = ends.into_iter().chain([shown, tick, look, live]);
            let received = match deadlines.flatten().min() {
                // Nothing to wait for but news: no timer runs (I7).
                None => news.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => news.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            let now = Instant::now();
            match received {
                Ok(News::Engine(event)) => self.take(event, now),
                Ok(News::Signal) if self.stop_by.is_some() => self.remove(now),
                Ok(News::Signal) => self.stop(now),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if tick.is_some_and(|at| at <= now)
                && let Some(tuner) = &mut self.tuner
            {
                let may_move = self.rebalancer.as_ref().is_none_or(Rebalancer::is_settled);
                tuner.tick(may_move);
            }
            if look.is_some_and(|at| at <= now)
                && let Some(rebalancer) = &mut self.rebalancer
            {
                rebalancer.tick(self.tuner.as_ref().is_none_or(Tuner::is_settled));
            }
            if end_at.is_some_and(|at| at <= now) {
                end_at = None;
                self.stop(now);
            }
            if self.abandon_by.is_some_and(|at| at <= now) {
                break;
            }
            if self.abandon_by.is_none() && self.stop_by.is_some_and(|at| at <= now) {
                self.remove(now);
            }
            if live.is_some_and(|at| at <= now)
                && let Some(live) = &mut self.live
            {
                self.crew.count(self.catalog);
                let workers = self.tuner.as_ref().map(Tuner::workers_used);
                live.draw(self.crew.counters(), workers.as_ref());
            }
            if self.shown.is_due(now) {
                let counters = self.crew.counters();
                self.crew.count(self.catalog);
                self.shown
                    .show(now, self.program, self.catalog, counters, self.started);
            }
        }
    }

    fn stop(&mut self, now: Instant) {
        if self.stop_by.is_none() {
            self.stop_by = Some(now + STOP_PATIENCE);
            self.crew.stop();
        }
    }

    fn remove(&mut self, now: Instant) {
        if self.abandon_by.is_none() {
            self.abandon_by = Some(now + self.crew.remove_patience());
            self.stop_by = self.abandon_by;
            self.crew.remove();
        }
    }

    fn take(&mut self, event: Event, now: Instant) {
        match event {
            Event::Active => {
                if let Some(tuner) = &mut self.tuner {
                    tuner.wake();
                }
                if let Some(rebalancer) = &mut self.rebalancer {
                    rebalancer.wake();
                }
            }
            Event::Handover { handover, .. } => {
                let plan = self.plan;
                let tuner = self.tuner.as_ref();
                let worker_of = |instance: usize| match tuner {
                    Some(tuner) => tuner.worker_of(instance),
                    None => plan.placement.worker_of[instance],
                };
                if let Some(rebalancer) = &mut self.rebalancer {
                    rebalancer.hand_over(handover, worker_of);
                }
            }
            Event::Moved { barrier, .. } => {
                if let Some(rebalancer) = &mut self.rebalancer {
                    rebalancer.moved(barrier);
                }
            }
            Event::Detached {
                number,
                mut instance,
                ..
            } => match &mut self.tuner {
                Some(tuner) if self.abandon_by.is_none() => tuner.detached(number, instance),
                // The query is being dropped, and no worker has this part of it.
                _ => {
                    self.running -= 1;
                    self.sinks.extend(instance.close());
                }
            },
            Event::Ended {
                sinks, instance, ..
            } => {
                self.ended(instance);
                self.sinks.extend(sinks);
            }
            Event::Failed {
                sinks,
                error,
                instance,
                ..
            } => {
                self.ended(instance);
                self.sinks.extend(sinks);
                // What follows from a failure elsewhere is said only if that says nothing.
                let known = self.error.as_ref();
                if known.is_none_or(|known| known.consequence && !error.consequence) {
                    self.error = Some(error);
                }
                self.remove(now);
            }
        }
    }
}

impl Watch<'_> {
    fn ended(&mut self, instance: usize) {
        self.running -= 1;
        if let Some(tuner) = &mut self.tuner {
            tuner.ended(instance);
        }
        if let Some(rebalancer) = &mut self.rebalancer {
            rebalancer.ended(instance);
        }
    }
}

/// The progress line on standard error, for bounded inputs that take a while.
struct Progress {
    next: Option<Instant>,
    every: Duration,
    terminal: bool,
    bytes_total: u64,
    last: (Instant, u64),
    visible: bool,
}

/// Nothing is shown for runs shorter than this.
const PROGRESS_AFTER: Duration = Duration::from_secs(2);

impl Progress {
    fn new(wanted: bool, program: &Program) -> Progress {
        use std::io::IsTerminal;
        let sources = program.nodes.iter().filter_map(|node| match node {
            NodeSpec::Source(source) => Some(source.connector.describe()),
            _ => None,
        });
        let sources = sources.collect::<Vec<_>>();
        let bounded = sources.iter().all(|source| source.bounded);
        let terminal = std::io::stderr().is_terminal();
        let now = Instant::now();
        Progress {
            next: (wanted && bounded).then(|| now + PROGRESS_AFTER),
            every: if terminal {
                Duration::from_secs(1)
            } else {
                Duration::from_secs(10)
            },
            terminal,
            bytes_total: sources.iter().filter_map(|source| source.total_bytes).sum(),
            last: (now, 0),
            visible: false,
        }
    }

    fn next(&self) -> Option<Instant> {
        self.next
    }

    fn is_due(&self, now: Instant) -> bool {
        self.next.is_some_and(|next| next <= now)
    }

    fn show(
        &mut self,
        now: Instant,
        program: &Program,
        catalog: &ProgramCatalog<'_>,
        counters: &[Arc<InstanceCounters>],
        started: Instant,
    ) {
        self.next = Some(now + self.every);
        let rows: u64 = counters
            .iter()
            .map(|c| InstanceCounters::read(&c.rows_in))
            .sum();
        let seconds = now.duration_since(self.last.0).as_secs_f64().max(1e-3);
        let rate = (rows - self.last.1) as f64 / seconds;
        self.last = (now, rows);
        let bytes: u64 = (0..program.nodes.len())
            .map(|node| catalog.bytes_read(node))
            .sum();
        let percent = match self.bytes_total {
            0 => String::new(),
            total => format!(
                ", {:.0} %",
                (bytes as f64 / total as f64 * 100.0).min(100.0)
            ),
        };
        let latency_ns = counters
            .iter()
            .map(|c| InstanceCounters::read(&c.latency_recent_ns))
            .max();
        let text = format!(
            "{:.0} s: {} rows, {} rows/s{percent}, latency {:.1} ms",
            now.duration_since(started).as_secs_f64(),
            count(rows),
            count(rate as u64),
            latency_ns.unwrap_or(0) as f64 / 1e6
        );
        if self.terminal {
            say(&format!("\r\x1b[K{text}"));
            self.visible = true;
        } else {
            say(&format!("{text}\n"));
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.visible) {
            say("\r\x1b[K");
        }
    }
}
