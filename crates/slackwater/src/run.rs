//! Runs a text: compile, plan, deploy, wait for the end, report.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use slackwater_engine::counters::{InstanceCounters, WorkerCounters};
use slackwater_engine::instance::SinkResult;
use slackwater_engine::runtime::{Costs, Deployed, Runtime, RuntimeOptions, WaitMode};
use slackwater_engine::worker::Event;
use slackwater_sql::SqlError;
use slackwater_sql::program::{Program, compile};
use slackwater_sql::settings::LinkKind;
use slackwater_sql::specs::NodeSpec;

use crate::broadcast;
use crate::calibrate;
use crate::catalog::{BuiltIn, DeadLetterFile, ProgramCatalog};
use crate::cli::say;
use crate::live::Live;
use crate::plan::{Plan, deployment, fingerprint, plan};
use crate::processes::{Children, Farewell, Work};
use crate::report::{Report, count};
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
    let explained = if compiled.explain.is_empty() {
        String::new()
    } else {
        let plan = plan_of(&compiled.explain).map_err(usage)?;
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
    let catalog = ProgramCatalog::new(&program).map_err(usage)?;
    let cores = slackwater_engine::link::allowed_cores();
    let plan = plan_on(&program, &cores).map_err(usage)?;
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
    let mut crew = if program.settings.processes == 1 {
        let workers = RuntimeOptions {
            wait: program.settings.wait_mode(),
            costs,
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
            cores: &cores,
            deployment: &deployment,
            processes: program.settings.processes,
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
    };
    watch.until_end(&news, options.duration);
    let abandoned = watch.running > 0;
    let stopped = watch.stop_by.is_some() && watch.error.is_none();
    let wall_s = started.elapsed().as_secs_f64();
    let (error, sinks) = (watch.error.take(), std::mem::take(&mut watch.sinks));
    let tuned = watch.tuner.as_ref().map(Tuner::tuned);
    drop(watch.tuner.take());
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
        wall_s,
    };
    let finished = Box::new(Finished {
        report: run.report(),
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

/// Who runs a query.
enum Crew {
    /// Threads of this process.
    Threads {
        runtime: Runtime,
        deployed: Deployed,
    },
    /// Processes of their own.
    Processes(Children),
}

impl Crew {
    fn stop(&self) {
        match self {
            Crew::Threads { runtime, .. } => runtime.stop(0),
            Crew::Processes(children) => children.stop(),
        }
    }

    fn remove(&self) {
        match self {
            Crew::Threads { runtime, .. } => runtime.remove(0),
            Crew::Processes(children) => children.remove(),
        }
    }

    fn counters(&self) -> &[Arc<InstanceCounters>] {
        match self {
            Crew::Threads { deployed, .. } => &deployed.counters,
            Crew::Processes(children) => children.counters(),
        }
    }

    fn workers(&self) -> Vec<Arc<WorkerCounters>> {
        match self {
            Crew::Threads { runtime, .. } => runtime.counters(),
            Crew::Processes(_) => Vec::new(),
        }
    }

    /// Brings counters up to date for who looks at them now and then.
    fn count(&self, catalog: &ProgramCatalog<'_>) {
        if let Crew::Processes(children) = self {
            children.store_bytes_read(catalog);
            children.count();
        }
    }

    /// Ends other processes; what they counted is in the counters afterwards.
    fn finish(&mut self, catalog: &ProgramCatalog<'_>) -> Vec<Farewell> {
        match self {
            Crew::Threads { .. } => Vec::new(),
            Crew::Processes(children) => {
                let mut farewells = children.finish();
                farewells.sort_by_key(|farewell| farewell.process);
                children.store_bytes_read(catalog);
                farewells
            }
        }
    }

    /// How long it may take to drop a query. Workers do so within a duty cycle, unless a write to
    /// a terminal or socket that nobody reads keeps one of them in the kernel. A process that is
    /// stuck is killed, so less patience is needed there: a query whose process died is over
    /// within two seconds.
    fn remove_patience(&self) -> Duration {
        match self {
            Crew::Threads { .. } => Duration::from_secs(2),
            Crew::Processes(_) => Duration::from_millis(500),
        }
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

/// The plan of a program on this machine.
///
/// # Errors
///
/// As [`plan_on`].
pub fn plan_of(program: &Program) -> Result<Plan, SqlError> {
    plan_on(program, &slackwater_engine::link::allowed_cores())
}

/// The plan of a program on some cores.
///
/// # Errors
///
/// When there are more processes than workers.
pub fn plan_on(program: &Program, cores: &[usize]) -> Result<Plan, SqlError> {
    let settings = &program.settings;
    let parallelism = settings.parallelism.unwrap_or(1);
    let processes = settings.processes;
    // With a target the workers are there to be spread to: one that has nothing to do costs nothing.
    let elastic = has_target(program) && processes == 1;
    let wanted = if elastic { cores.len() } else { parallelism };
    let workers = settings
        .workers
        .unwrap_or(wanted.min(cores.len()).max(processes));
    if processes > workers {
        return Err(SqlError::new(format!(
            "{processes} processes for {workers} worker threads"
        ))
        .mend(format!(
            "each process runs a worker at least: --workers {processes}"
        )));
    }
    let graph = &program.graph;
    let mut plan = plan(graph, parallelism, workers, processes, cores, elastic);
    broadcast::decide(program, &mut plan);
    Ok(plan)
}

/// Whether a sink has a latency target.
pub fn has_target(program: &Program) -> bool {
    let mut nodes = program.nodes.iter();
    nodes.any(|node| matches!(node, NodeSpec::Sink(sink) if sink.latency_target_ns.is_some()))
}

struct Watch<'a> {
    crew: &'a Crew,
    program: &'a Program,
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
}

impl Watch<'_> {
    fn until_end(&mut self, news: &mpsc::Receiver<News>, duration: Option<Duration>) {
        let mut end_at = duration.map(|duration| self.started + duration);
        if let Some(tuner) = &mut self.tuner {
            tuner.begin();
        }
        while self.running > 0 {
            let tick = self.tuner.as_ref().and_then(Tuner::next);
            let tick = tick.map(|after| Instant::now() + after);
            let live = self.live.as_ref().map(Live::next);
            let shown = self.shown.next();
            let deadlines = [end_at, self.stop_by, self.abandon_by, shown, tick, live];
            let received = match deadlines.into_iter().flatten().min() {
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
                tuner.tick();
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
