//! Runs a program: compile, plan, deploy, wait for the end, report.

mod doors;
mod failure;
mod gathering;
mod led;
mod problem;
mod pushes;
mod served;
mod standing_by;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use slackwater_engine::operator::changelog::view::Cuts;
use slackwater_engine::runtime::{Costs, WaitMode};
use slackwater_sql::SqlError;
use slackwater_sql::node::SourceSpec;
use slackwater_sql::program::Program;
use slackwater_sql::settings::Processes;

use crate::bound::Bound;
use crate::calibrate;
use crate::catalog::{ProgramCatalog, connector_of};
use crate::checkpoints::Members;
use crate::cluster::{ClusterOptions, Leadership, check_state, check_tables};
use crate::costs::Learned;
use crate::hosts::{Facts, Host, LocalHost, token};
use crate::machine::{Machine, Used};
use crate::metrics::{Board, Job};
use crate::notices::Notices;
use crate::plan::deployment;
use crate::planner::{learns, plan_bound, plan_on};
use crate::report::DeadLetterFile;
use crate::report::Report;
use crate::script::Script;
use crate::slow::Slowness;
use crate::standby::{Readers, Replica};
use crate::supervisor::checks::check_checkpoints;
use crate::supervisor::{self, Attempted, Query, run_saved};
use crate::targets::Targets;
use crate::traces::Traces;
use crate::tuner;
use crate::views::Views;

pub use crate::supervisor::{Asker, StateOptions};
pub use doors::{Doors, open_browser};
pub use failure::Failure;
use gathering::{compile_with, gather};
use served::Serve;
pub use standing_by::StandbyOptions;
use standing_by::{opened_by, stood_by};

/// How a program is run.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Settings of the command line.
    pub settings: Vec<(String, String)>,
    /// The sources end after this time; windows stay open.
    pub duration: Option<Duration>,
    /// Whether to show progress on standard error.
    pub progress: bool,
    /// Whether to print a line per second instead: rate, latency against target, cores.
    pub live: bool,
    /// Whether SIGINT, SIGTERM and SIGHUP end the query with its summary.
    pub signals: bool,
    /// The executable that worker processes run; `None` for this one. Tests, which are other programs, set
    /// it.
    pub program: Option<PathBuf>,
    /// Makes some operators of this process slow, for tests and experiments.
    pub slowness: Option<Arc<Slowness>>,
    /// The machine as described by the user; `None` for what the operating system reports.
    pub machine: Option<Machine>,
    /// Where checkpoints are stored and resumed from; `None` for a query without checkpoints.
    pub state: Option<StateOptions>,
    /// The hosts to run on; `None` for this one.
    pub cluster: Option<ClusterOptions>,
    /// The name under which it is shown; `None` for that of its file.
    pub name: Option<String>,
    /// The doors through which others look at the query; `None` for none.
    pub doors: Option<Doors>,
    /// Asks the query while it runs.
    pub asker: Asker,
    /// Whether rows are pushed into its tables ([`slackwater_connect::push`]) by other means than doors.
    pub takes_pushes: bool,
    /// The terminal that shows what queries print, in this process.
    pub screen: Option<Arc<dyn Screen>>,
    /// Makes the materialized views readable while the program runs, and afterwards.
    pub views: Option<Arc<Views>>,
    /// How it stands by, or is followed.
    pub standby: StandbyOptions,
}

/// A terminal that shows what a program would print.
pub trait Screen: fmt::Debug + Send + Sync {
    /// Replaces the printing sinks that it can show.
    fn take_over(&self, program: &mut Program);
}

/// How a run ended.
#[derive(Debug)]
pub enum Outcome {
    /// The query ended with its inputs, by `--duration` or by a signal.
    Finished(Box<Finished>),
    /// Nothing was run: there were only EXPLAIN statements, with this text. Or another orchestrator has
    /// brought the query to its end, or this one was stopped while it stood by; then there is no text.
    Explained(String),
}

/// A run that has ended.
#[derive(Debug)]
pub struct Finished {
    /// What it cost.
    pub report: Report,
    /// Dead-letter files that were written.
    pub dead_letters: Vec<DeadLetterFile>,
    /// Whether the query was stopped before its inputs ended, so open windows were not emitted.
    pub stopped: bool,
    /// The text of EXPLAIN statements.
    pub explained: String,
    /// Whether a worker is stuck in a write, so the rows on their way are lost.
    pub abandoned: bool,
}

/// The name of a program that is read from standard input.
pub const STANDARD_INPUT: &str = "-";

/// Runs a program. `file` is its name, for messages.
pub fn run(file: &str, text: &str, options: &RunOptions) -> Result<Outcome, Failure> {
    run_script(&Script::new(file, text), options)
}

/// Runs a program of several parts.
pub fn run_script(script: &Script, options: &RunOptions) -> Result<Outcome, Failure> {
    let mut options = options.clone();
    if let Some(state) = &options.state {
        // As a setting, so that worker processes and the planner know it.
        let place = ("state".to_string(), state.place.clone());
        options.settings.push(place);
    }
    let signals = Arc::clone(&options.asker.signals);
    let _watching = if options.signals {
        let watching = crate::signals::watch(move || signals.raise());
        Some(watching.map_err(|error| Failure::Query(format!("signals: {error}"), None))?)
    } else {
        None
    };
    match led::registry(&options) {
        None => run_with(script, &options, None),
        Some(registry) => led::run(script, &options, registry),
    }
}

fn run_with(
    script: &Script,
    options: &RunOptions,
    leadership: Option<&Arc<Leadership>>,
) -> Result<Outcome, Failure> {
    let before = Used::now();
    let usage = |error: SqlError| Failure::Usage(script.render(&error));
    let compiled = compile_with(script, options, &BTreeMap::new()).map_err(usage)?;
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
    let mut program = compiled.run;
    if program.is_empty() {
        if explained.is_empty() {
            let file = script.name();
            return Err(Failure::Usage(format!(
                "{file}: nothing to run\n  = a query starts with SELECT or INSERT INTO"
            )));
        }
        return Ok(Outcome::Explained(explained));
    }
    check_standard_input(script, &program)?;
    // Their workers are where rows are: in worker processes, if there are any.
    let is_here = options.cluster.is_none() && program.settings.processes == Processes::Count(1);
    for function in program.functions.values() {
        function.start(is_here).map_err(usage)?;
    }
    let signals = Arc::clone(&options.asker.signals);
    let gathered = gather(
        script,
        options,
        &mut program,
        &machine,
        led::right(leadership, &signals),
    )?;
    if let Some(screen) = &options.screen {
        screen.take_over(&mut program);
    }
    let mut catalog = ProgramCatalog::new(&program).map_err(usage)?;
    if let Some(slowness) = &options.slowness {
        catalog = catalog.with_slowness(Arc::clone(slowness));
    }
    let notices = Arc::new(Notices::default());
    let teller = Arc::clone(&notices);
    catalog.tell(Arc::new(move |said| teller.say(said)));
    if let (None, Some(hosts)) = (&options.cluster, program.settings.hosts) {
        return Err(Failure::Usage(format!(
            "SET 'hosts' = '{hosts}' is for jobs of a server\n  \
             = slackwater run --listen ADDRESS --hosts {hosts}"
        )));
    }
    let (orchestrator, gathered) = gathered.unzip();
    let (mut plan, hosts) = match gathered {
        Some(gathered) => {
            let bound = Bound::new(&program, &gathered.names).map_err(usage)?;
            check_tables(&program, &bound, &gathered.hosts).map_err(usage)?;
            if let Some(place) = &program.settings.state {
                check_state(place, &gathered.hosts).map_err(Failure::Usage)?;
            }
            let plan = plan_bound(&program, &gathered.machine, &bound, &learned);
            (plan.map_err(usage)?, gathered.hosts)
        }
        None => {
            let plan = plan_on(&program, &machine, &learned).map_err(usage)?;
            (plan, Vec::new())
        }
    };
    let asked = options.state.as_ref();
    let is_spread = options.cluster.is_some();
    let state = program.settings.state.clone().map(|place| StateOptions {
        place: if is_spread { absolute(place) } else { place },
        from_scratch: asked.is_some_and(|state| state.from_scratch),
        accepts_duplicates: asked.is_some_and(|state| state.accepts_duplicates),
    });
    plan.checkpoints = state.is_some();
    pushes::check(script, &program, options, plan.processes)?;
    // Only the mode `auto` needs costs.
    let costs = match program.settings.wait_mode() {
        WaitMode::Auto { .. } => calibrate::costs(),
        _ => Costs::default(),
    };
    let of_targets = tuner::warnings(&tuner::plan_paths(&program, &plan, costs));
    let of_paths = crate::catalog::endings(&program);
    let warnings = program.warnings.iter().chain(&of_paths);
    for warning in warnings.chain(&of_targets) {
        eprintln!("warning: {warning}");
    }
    let targets = Arc::new(Targets::default());
    let doors = options.doors.as_ref();
    let shown = options.asker.board.as_ref();
    let has_page = shown.is_some() || doors.is_some_and(|doors| doors.page.is_some());
    let name = options.name.clone();
    let name = name.unwrap_or_else(|| Doors::name(script));
    let traces = Traces::of_environment(&name).map_err(Failure::Usage)?;
    let board = (doors.is_some() || shown.is_some()).then(|| {
        let job = match has_page {
            true => Job::of(&name, &program, &plan, &catalog),
            false => Job::default(),
        };
        Arc::new(Board::new(name, job))
    });
    if let (Some(shown), Some(board)) = (shown, &board) {
        // An asker asks one run.
        let _ = shown.set(Arc::clone(board));
    }
    if let (Some(orchestrator), Some(board)) = (&orchestrator, &board) {
        board.count_hosts(orchestrator.counter());
    }
    let deployment = deployment(&program, &plan);
    let hosts = match &orchestrator {
        Some(_) => hosts,
        None => {
            let facts = Facts::alone(&machine, costs.into());
            let host = LocalHost::new(facts, options.program.as_deref());
            vec![Arc::new(host) as Arc<dyn Host>]
        }
    };
    let mut query = Query {
        script,
        settings: &options.settings,
        duration: options.duration,
        progress: options.progress,
        live: options.live,
        program: &program,
        costs,
        members: Arc::new(Members::new(&program, &deployment)),
        plan,
        deployment,
        hosts,
        token: token()
            .map_err(|error| Failure::Query(format!("no random token: {error}"), None))?,
        orchestrator,
        leadership: leadership.cloned(),
        learned: &learned,
        started: Instant::now(),
        before,
        signals,
        notices: Arc::clone(&notices),
        targets,
        board,
        traces: traces.clone(),
        folder: options.standby.followed_in(state.as_ref()),
        followed_at: options.standby.followed_at(&program),
        door: None,
        serving: Arc::default(),
    };
    let is_served = program.settings.serve.is_some();
    let own_views = (is_served && options.views.is_none()).then(Arc::<Views>::default);
    let views = options.views.as_ref().or(own_views.as_ref());
    if let Some(views) = views {
        let signals = Arc::clone(&query.signals);
        views.open(&program, query.plan.processes, move || signals.read());
    }
    let serve = views.and_then(|views| Serve::of(&program, views, &query.serving));
    let beside = serve.as_ref().filter(|_| options.standby.stands_by);
    let mut served = beside.map(Serve::beside).transpose()?.flatten();
    let replica = match (&state, options.standby.stands_by) {
        (Some(state), true) => {
            let readers = served.as_ref().map(|served| served as &dyn Readers);
            match stood_by(&mut query, &catalog, state, &options.standby, readers)? {
                Some(replica) => Some(replica),
                None => return Ok(Outcome::Explained(explained)),
            }
        }
        _ => None,
    };
    // A run that stands by has the addresses of the one that it follows.
    let opened = doors.zip(query.board.as_ref());
    let is_heir = replica.is_some();
    let opened = opened
        .map(|(doors, board)| opened_by(is_heir, || doors.open(board, &query.signals)))
        .transpose();
    let _opened = opened.map_err(Failure::Usage)?.flatten();
    let _closing = Closing(&program.cuts);
    if let Some(serve) = serve {
        serve.lead(&mut served, is_heir)?;
    }
    let (mut finished, error) = match &state {
        None => run_once(&query, &catalog)?,
        Some(state) => run_with_state(&mut query, &mut catalog, state, replica)?,
    };
    if let Some(board) = query.board.as_ref().filter(|_| error.is_none()) {
        board.finish();
    }
    finished.explained = explained;
    if error.is_none() && learns(&program) {
        let operators = &finished.report.plan.operators;
        // The query itself has succeeded, and a later one only plans with costs that are assumed.
        if learned.add(&program, operators)
            && let Err(reason) = learned.store()
            && program
                .outputs
                .iter()
                .any(|output| output.parallelism.is_some())
        {
            eprintln!(
                "warning: what the query cost is not kept for 'parallelism' = 'auto': {reason}"
            );
        }
    }
    match error {
        None => Ok(Outcome::Finished(finished)),
        Some(error) => Err(Failure::Query(error, Some(finished))),
    }
}

/// The place of the state as other hosts know it: a folder's absolute path.
fn absolute(place: String) -> String {
    match std::path::absolute(&place) {
        Ok(path) if !place.contains("://") => path.display().to_string(),
        _ => place,
    }
}

/// A run whose views can be read; when it is over, what has remained of them.
struct Closing<'a>(&'a Cuts);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.end(true);
    }
}

/// Runs a query without checkpoints.
fn run_once(query: &Query<'_>, catalog: &ProgramCatalog<'_>) -> Result<Cost, Failure> {
    let mut sinks = catalog.sinks().map(|(_, sink)| sink);
    sinks.try_for_each(|sink| query.check_sink(sink, false))?;
    let begun = SystemTime::now();
    let attempted = query.attempt(catalog, None, None, Vec::new());
    let attempted = attempted.map_err(|error| Failure::Query(error.to_string(), None))?;
    let error = attempted.error.as_ref().map(|error| error.to_string());
    query.trace(begun, None, error.clone());
    Ok((finished(attempted), error))
}

/// Runs a query with checkpoints.
fn run_with_state(
    query: &mut Query<'_>,
    catalog: &mut ProgramCatalog<'_>,
    state: &StateOptions,
    replica: Option<Box<Replica>>,
) -> Result<Cost, Failure> {
    let checked = check_checkpoints(query.program, query.plan.processes);
    checked.map_err(|error| Failure::Usage(query.script.render(&error)))?;
    for warning in supervisor::warnings(query, catalog) {
        eprintln!("warning: {warning}");
    }
    let ended = run_saved(query, catalog, state, replica)?;
    let mut done = match ended.last {
        Some(last) => finished(last),
        None if ended.error.is_none() && ended.restored_from.is_some() => {
            eprintln!(
                "{}: the query has finished, at checkpoint {}: there is nothing left to do{} \
                 (--from-scratch starts over)",
                state.place,
                ended.restored_from.unwrap_or_default(),
                new_input(query)
            );
            nothing_done(query, catalog)
        }
        None => nothing_done(query, catalog),
    };
    ended.before.add_to(&mut done.report);
    done.report.restored_from = ended.restored_from;
    done.report.restarts = ended.restarts;
    done.report.rescales = ended.rescales;
    Ok((done, ended.error))
}

/// The tables that may have new input which a finished query does not read.
fn new_input(query: &Query<'_>) -> String {
    let sources = query.program.sources();
    let sources = sources.map(|(_, source)| (&source.table.name, source.connector.describe()));
    let tables = sources.filter(|(_, described)| described.ends_with_peer);
    let tables = tables.map(|(table, source)| format!("'{table}' ({})", source.connector));
    let tables = tables.collect::<Vec<String>>();
    match tables.is_empty() {
        true => String::new(),
        false => format!(", and new input from {} is not read", tables.join(", ")),
    }
}

fn nothing_done(query: &Query<'_>, catalog: &ProgramCatalog<'_>) -> Box<Finished> {
    Box::new(Finished {
        report: query.nothing_done(catalog),
        dead_letters: Vec::new(),
        stopped: false,
        explained: String::new(),
        abandoned: false,
    })
}

/// What a run cost, and why it failed if it did.
type Cost = (Box<Finished>, Option<String>);

fn finished(attempted: Attempted) -> Box<Finished> {
    Box::new(Finished {
        report: attempted.report,
        dead_letters: attempted.dead_letters,
        stopped: attempted.stopped,
        explained: String::new(),
        abandoned: attempted.abandoned,
    })
}

/// Rejects tables that are read from standard input if the program itself came from standard input.
fn check_standard_input(script: &Script, program: &Program) -> Result<(), Failure> {
    let reads_it = |(_, source): (usize, &SourceSpec)| {
        let kind = connector_of(&source.table).filter(|kind| kind.reads_standard_input)?;
        Some((source.table.name.clone(), kind.name))
    };
    match program.sources().find_map(reads_it) {
        Some((table, connector)) if script.has(STANDARD_INPUT) => Err(Failure::Usage(format!(
            "{STANDARD_INPUT}: table '{table}' has 'connector' = '{connector}', but the SQL itself came \
             from there\n  \
             = read the query from a file: slackwater run query.sql"
        ))),
        _ => Ok(()),
    }
}
