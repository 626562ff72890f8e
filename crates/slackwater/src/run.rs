//! Runs a text: compile, plan, deploy, wait for the end, report.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use slackwater_engine::counters::InstanceCounters;
use slackwater_engine::instance::SinkResult;
use slackwater_engine::runtime::Runtime;
use slackwater_engine::worker::Event;
use slackwater_sql::program::{Program, compile};
use slackwater_sql::specs::NodeSpec;

use crate::catalog::{BuiltIn, DeadLetterFile, ProgramCatalog};
use crate::cli::say;
use crate::machine;
use crate::plan::{Plan, deployment, plan};
use crate::report::{Latency, PlanReport, Report, SinkReport, SourceReport, SubqueryReport, count};

/// How a text is run.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Settings of the command line.
    pub settings: Vec<(String, String)>,
    /// The sources end after this time; windows stay open.
    pub duration: Option<Duration>,
    /// Show progress on standard error.
    pub progress: bool,
    /// SIGINT and SIGTERM end the query with its summary.
    pub signals: bool,
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

/// How long workers may take to drop a query. They do so within a duty cycle, unless a write to a
/// terminal or socket that nobody reads keeps one of them in the kernel.
const REMOVE_PATIENCE: Duration = Duration::from_secs(2);

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
        crate::explain::explain(&compiled.explain, &plan_of(&compiled.explain))
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
    let plan = plan_of(&program);
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
    let runtime = Runtime::start(&plan.placement.cores, events_sender).map_err(failed)?;
    let deployment = deployment(&program, &plan, 0);
    let counters = runtime.deploy(&deployment, &catalog).map_err(failed)?;
    let mut watch = Watch {
        runtime: &runtime,
        program: &program,
        catalog: &catalog,
        counters: &counters,
        started,
        running: deployment.instances.len(),
        sinks: Vec::new(),
        error: None,
        stop_by: None,
        abandon_by: None,
        shown: Progress::new(options.progress, &program),
    };
    watch.until_end(&news, options.duration);
    let abandoned = watch.running > 0;
    let stopped = watch.stop_by.is_some() && watch.error.is_none();
    let wall_s = started.elapsed().as_secs_f64();
    let (error, sinks) = (watch.error.take(), std::mem::take(&mut watch.sinks));
    watch.shown.clear();
    let wakeups = machine::voluntary_switches();
    let report = report(
        &program, &plan, &catalog, &counters, &sinks, wall_s, wakeups,
    );
    let finished = Box::new(Finished {
        report,
        dead_letters: catalog.dead_letter_files(),
        stopped,
        explained,
        abandoned,
    });
    if abandoned {
        // Dropping it would wait for the worker that is stuck.
        std::mem::forget(runtime);
    }
    match error {
        None => Ok(Outcome::Finished(finished)),
        Some(error) => Err(Failure::Query(error, Some(finished))),
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
pub fn plan_of(program: &Program) -> Plan {
    let cores = slackwater_engine::link::allowed_cores();
    let parallelism = program.settings.parallelism.unwrap_or(1);
    let workers = program
        .settings
        .workers
        .unwrap_or(parallelism.min(cores.len().max(1)));
    plan(&program.graph, parallelism, workers, &cores)
}

struct Watch<'a> {
    runtime: &'a Runtime,
    program: &'a Program,
    catalog: &'a ProgramCatalog<'a>,
    counters: &'a [Arc<InstanceCounters>],
    started: Instant,
    running: usize,
    sinks: Vec<SinkResult>,
    error: Option<String>,
    stop_by: Option<Instant>,
    /// When those who have not dropped the query by then are left alone.
    abandon_by: Option<Instant>,
    shown: Progress,
}

impl Watch<'_> {
    fn until_end(&mut self, news: &mpsc::Receiver<News>, duration: Option<Duration>) {
        let mut end_at = duration.map(|duration| self.started + duration);
        while self.running > 0 {
            let deadlines = [end_at, self.stop_by, self.abandon_by, self.shown.next()];
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
            self.shown
                .show(now, self.program, self.catalog, self.counters, self.started);
        }
    }

    fn stop(&mut self, now: Instant) {
        if self.stop_by.is_none() {
            self.stop_by = Some(now + STOP_PATIENCE);
            self.runtime.stop(0);
        }
    }

    fn remove(&mut self, now: Instant) {
        if self.abandon_by.is_none() {
            self.abandon_by = Some(now + REMOVE_PATIENCE);
            self.stop_by = self.abandon_by;
            self.runtime.remove(0);
        }
    }

    fn take(&mut self, event: Event, now: Instant) {
        self.running -= 1;
        match event {
            Event::Ended { sinks, .. } => self.sinks.extend(sinks),
            Event::Failed { sinks, error, .. } => {
                self.sinks.extend(sinks);
                if self.error.is_none() {
                    self.error = Some(error.to_string());
                    self.remove(now);
                }
            }
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

    fn show(
        &mut self,
        now: Instant,
        program: &Program,
        catalog: &ProgramCatalog<'_>,
        counters: &[Arc<InstanceCounters>],
        started: Instant,
    ) {
        if self.next.is_none_or(|next| next > now) {
            return;
        }
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

fn report(
    program: &Program,
    plan: &Plan,
    catalog: &ProgramCatalog<'_>,
    counters: &[Arc<InstanceCounters>],
    results: &[SinkResult],
    wall_s: f64,
    wakeups: u64,
) -> Report {
    let total = |pick: fn(&InstanceCounters) -> &std::sync::atomic::AtomicU64| -> u64 {
        counters
            .iter()
            .map(|slots| InstanceCounters::read(pick(slots)))
            .sum()
    };
    let mut all = Histogram::<u64>::new(3).expect("3 digits are supported");
    let mut sources = Vec::new();
    let mut sinks = Vec::new();
    for (number, node) in program.nodes.iter().enumerate() {
        match node {
            NodeSpec::Source(source) => {
                let subquery = plan.subqueries.of_node[number];
                let instances = plan.execution.instances.iter().zip(counters);
                let rows_in = instances
                    .filter(|(instance, _)| instance.subquery == subquery)
                    .map(|(_, slots)| InstanceCounters::read(&slots.rows_in))
                    .sum();
                sources.push(SourceReport {
                    table: source.table.name.clone(),
                    connector: source.connector.describe().connector,
                    rows_in,
                    bytes_read: catalog.bytes_read(number),
                    dead_letter: catalog.dead_letter_file(&source.table.name),
                });
            }
            NodeSpec::Sink(sink) => {
                let mut latencies = Histogram::<u64>::new(3).expect("3 digits are supported");
                let mut rows_out = 0;
                for result in results.iter().filter(|result| result.node == number) {
                    // Auto-resizing histograms take any value.
                    let _ = latencies.add(&result.latencies_us);
                    rows_out += result.rows;
                }
                let _ = all.add(&latencies);
                sinks.push(SinkReport {
                    table: sink.table.as_ref().map(|table| table.name.clone()),
                    connector: sink.connector.describe(),
                    rows_out,
                    latency_ms: Latency::of(&latencies),
                });
            }
            _ => {}
        }
    }
    let rows_in = total(|slots| &slots.rows_in);
    let cpu_s = machine::process_cpu_s();
    let target_ms = program.settings.latency_target_ns.map(|ns| ns as f64 / 1e6);
    let subqueries = plan
        .subqueries
        .subqueries
        .iter()
        .map(|subquery| SubqueryReport {
            operators: subquery
                .nodes
                .iter()
                .map(|&n| program.graph.nodes[n].name.clone())
                .collect(),
            instances: subquery.instances,
        });
    Report {
        rows_in,
        rows_out: total(|slots| &slots.rows_out),
        rows_late: total(|slots| &slots.rows_late),
        rows_bad: total(|slots| &slots.rows_bad),
        wall_s,
        cpu_s,
        cpu_us_per_row: (rows_in > 0).then(|| cpu_s * 1e6 / rows_in as f64),
        rows_per_s: rows_in as f64 / wall_s.max(1e-9),
        peak_rss_bytes: machine::peak_rss_bytes(),
        latency_target_ms: target_ms,
        target_met: target_ms.map(|target| {
            sinks
                .iter()
                .all(|sink: &SinkReport| sink.latency_ms.p99.is_none_or(|p99| p99 <= target))
        }),
        latency_ms: Latency::of(&all),
        wakeups,
        plan: PlanReport {
            parallelism: plan.parallelism,
            workers: plan.placement.cores.len(),
            cores: plan.placement.cores.clone(),
            subqueries: subqueries.collect(),
            links: plan.execution.links.len(),
            chunk_rows: program.settings.chunk_rows,
            linger_ms: program.settings.linger_ns as f64 / 1e6,
        },
        sources,
        sinks,
    }
}
