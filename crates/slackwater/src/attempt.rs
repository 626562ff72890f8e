//! One incarnation of a query: deployed, watched to its end, and reported.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

use slackwater_engine::Error;
use slackwater_engine::counters::InstanceCounters;
use slackwater_engine::deploy::Deployment;
use slackwater_engine::instance::SinkResult;
use slackwater_engine::runtime::{Costs, Runtime, RuntimeOptions};
use slackwater_engine::worker::Event;
use slackwater_sql::program::Program;
use slackwater_sql::settings::LinkKind;
use slackwater_sql::specs::NodeSpec;

use crate::catalog::{DeadLetterFile, ProgramCatalog};
use crate::checkpoints::{Agent, Incarnation, Keeper, Members, Suspected, Verdict};
use crate::costs::Learned;
use crate::crew::Crew;
use crate::live::Live;
use crate::machine::{Machine, Used};
use crate::notices::Notices;
use crate::plan::{Plan, fingerprint};
use crate::processes::{Children, Work};
use crate::progress::Progress;
use crate::rebalancer::Rebalancer;
use crate::report::{CheckpointReport, Report};
use crate::run::RunOptions;
use crate::script::Script;
use crate::tally::Ran;
use crate::tuner::Tuner;
use crate::watch::{News, Note, Watch};

/// Operators that are named when all hold too much.
const OPERATORS_NAMED: usize = 3;

fn megabytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// What is run: the same in each incarnation.
pub struct Query<'a> {
    /// The text.
    pub script: &'a Script,
    /// How it is run.
    pub options: &'a RunOptions,
    /// What it says.
    pub program: &'a Program,
    /// Where it is planned for.
    pub machine: &'a Machine,
    /// What earlier runs have learned of its costs.
    pub learned: &'a Learned,
    /// The plan.
    pub plan: &'a Plan,
    /// The plan as the engine has it.
    pub deployment: &'a Deployment,
    /// What waiting costs on this host.
    pub costs: Costs,
    /// Who takes part in checkpoints.
    pub members: Arc<Members>,
    /// When it was started.
    pub started: Instant,
    /// What this process had used before the query's text was read.
    pub before: Used,
    /// Where news come in.
    pub sender: mpsc::Sender<Note>,
    /// Where they come out.
    pub news: &'a mpsc::Receiver<Note>,
    /// Who tells the user what is noticed of the input.
    pub notices: Arc<Notices>,
}

/// An incarnation that takes checkpoints.
pub struct Begun {
    /// What its processes are told.
    pub incarnation: Incarnation,
    /// Who may store its checkpoints.
    pub claim: slackwater_checkpoint::Incarnation,
}

/// What became of an incarnation.
pub struct Attempted {
    /// Why it failed.
    pub error: Option<Error>,
    /// What became of its checkpoints.
    pub verdict: Option<Verdict>,
    /// Rows that processes were working on when they died.
    pub suspects: Vec<Suspected>,
    /// What it cost, with those before it.
    pub report: Report,
    /// Dead-letter files that were written.
    pub dead_letters: Vec<DeadLetterFile>,
    /// What the sinks measured.
    pub sinks: Vec<SinkResult>,
    /// It was stopped before its inputs ended.
    pub stopped: bool,
    /// A worker is stuck in a write that nobody takes.
    pub abandoned: bool,
}

impl Attempted {
    /// Where the next incarnation goes on, in words.
    pub fn goes_on_from(&self) -> String {
        let last = self.report.checkpoints.as_ref().and_then(|all| all.last);
        match last {
            Some(number) => format!("checkpoint {number}"),
            None => "its beginning".to_string(),
        }
    }
}

impl Query<'_> {
    /// Runs the query until it ends, is stopped or fails. `sinks` is what those of earlier incarnations
    /// measured.
    ///
    /// # Errors
    ///
    /// When it can't be started.
    pub fn attempt(
        &self,
        number: usize,
        catalog: &ProgramCatalog<'_>,
        begun: Option<Begun>,
        sinks: Vec<SinkResult>,
    ) -> Result<Attempted, Error> {
        let Query {
            program,
            plan,
            deployment,
            ..
        } = *self;
        let events = self.events(number);
        let (incarnation, claim) = match begun {
            Some(begun) => (Some(begun.incarnation), Some(begun.claim)),
            None => (None, None),
        };
        let mut crew = self.crew(number, catalog, incarnation.as_ref(), events)?;
        catalog.has_begun();
        let keeper = incarnation.as_ref().zip(claim);
        let keeper = keeper.map(|(incarnation, claim)| self.keeper(number, incarnation, claim));
        let mut watch = Watch {
            incarnation: number,
            crew: &crew,
            program,
            plan,
            catalog,
            started: self.started,
            running: deployment.instances.len(),
            sinks,
            error: None,
            over: None,
            signalled: None,
            stop_by: None,
            abandon_by: None,
            shown: Progress::new(self.options.progress && !self.options.live, program),
            live: self.live(&crew),
            tuner: match &crew {
                Crew::Threads {
                    runtime, deployed, ..
                } => Tuner::new(
                    program, plan, catalog, deployment, runtime, deployed, self.costs,
                ),
                Crew::Processes(_) => None,
            },
            rebalancer: Rebalancer::new(program, deployment, &crew, catalog),
            keeper: keeper.transpose()?,
        };
        watch.until_end(self.news, self.options.duration);
        let abandoned = watch.running > 0;
        let stopped = watch.stop_by.is_some() && watch.error.is_none();
        let (mut error, sinks) = (watch.error.take(), std::mem::take(&mut watch.sinks));
        let over = watch.over;
        let tuned = watch.tuner.as_ref().map(Tuner::tuned);
        let rebalanced = watch.rebalancer.as_ref().map(Rebalancer::rebalanced);
        drop((watch.tuner.take(), watch.rebalancer.take()));
        let keeper = watch.keeper.take();
        watch.shown.clear();
        if error.is_some() && keeper.is_some() {
            // Nothing that it would still say matters: it is done again.
            crew.kill();
        }
        let farewells = crew.finish(catalog);
        let verdict = keeper.as_ref().map(|keeper| keeper.verdict().clone());
        if let (Some(limit), None) = (over, &error) {
            let is_saved = verdict == Some(Verdict::Saved);
            error = Some(self.over_budget(limit, is_saved, crew.counters()));
        }
        let run = Ran {
            program,
            plan,
            catalog,
            deployment,
            workers: crew.workers(),
            counters: crew.counters(),
            farewells: &farewells,
            notices: &self.notices,
            sinks: &sinks,
            tuned,
            rebalanced,
            wall_s: self.started.elapsed().as_secs_f64(),
            before: self.before,
        };
        let mut report = run.report();
        report.checkpoints = keeper.as_ref().map(CheckpointReport::from);
        let suspects = keeper.as_ref().map(|keeper| keeper.suspects().to_vec());
        let stopped = stopped && verdict != Some(Verdict::Finished);
        let dead_letters = run.dead_letters();
        if abandoned {
            // Dropping it would wait for the worker that is stuck.
            std::mem::forget(crew);
        }
        Ok(Attempted {
            error,
            verdict,
            suspects: suspects.unwrap_or_default(),
            report,
            dead_letters,
            sinks,
            stopped,
            abandoned,
        })
    }

    /// Its operators held more than they may: the largest are named.
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
            processes => format!(", which {processes} processes share"),
        };
        // What was found is a moment's; what is named is the most that each has held since.
        let limit = megabytes(limit);
        let reason =
            format!("operators held more than {limit}{share}; the largest held up to: {named}");
        let saved = match is_saved {
            true => "all that was read is saved: run it again with a larger one",
            false => "set a larger one",
        };
        Error::new("'memory_limit'", reason)
            .mend(format!("{saved}, or let windows be shorter or keys fewer"))
            .final_one()
    }

    /// What a run cost that had nothing to do.
    pub fn nothing_done(&self, catalog: &ProgramCatalog<'_>) -> Report {
        let instances = self.deployment.instances.iter();
        let counters = instances.map(|instance| Arc::new(instance.counters()));
        let run = Ran {
            program: self.program,
            plan: self.plan,
            catalog,
            deployment: self.deployment,
            workers: Vec::new(),
            counters: &counters.collect::<Vec<Arc<InstanceCounters>>>(),
            farewells: &[],
            notices: &self.notices,
            sinks: &[],
            tuned: None,
            rebalanced: None,
            wall_s: self.started.elapsed().as_secs_f64(),
            before: self.before,
        };
        run.report()
    }

    /// What carries news of an incarnation to who watches it.
    fn post(&self, incarnation: usize) -> impl Fn(News) + Send + Sync + Clone + 'static {
        let sender = self.sender.clone();
        move |news| {
            // Nobody listens only when the run is over.
            let _ = sender.send(Note { incarnation, news });
        }
    }

    fn events(&self, number: usize) -> mpsc::Sender<Event> {
        let (sender, events) = mpsc::channel();
        let post = self.post(number);
        std::thread::spawn(move || {
            while let Ok(event) = events.recv() {
                post(News::Engine(event));
            }
        });
        sender
    }

    fn crew(
        &self,
        number: usize,
        catalog: &ProgramCatalog<'_>,
        incarnation: Option<&Incarnation>,
        events: mpsc::Sender<Event>,
    ) -> Result<Crew, Error> {
        let post = self.post(number);
        if self.plan.processes == 1 {
            let workers = RuntimeOptions {
                wait: self.plan.wait,
                costs: self.costs,
                nodes: self.plan.memory_nodes.clone(),
                ..RuntimeOptions::on(&self.plan.placement.cores)
            };
            let agent = incarnation.map(|incarnation| {
                let done = move |done| post(News::Agent(done));
                let members = Arc::clone(&self.members);
                Agent::start(incarnation, self.program, self.deployment, members, done)
            });
            let agent = agent
                .transpose()
                .map_err(|reason| Error::new("checkpoints", reason))?;
            let runtime = Runtime::start(&workers, events)?;
            let deployed = runtime.deploy(self.deployment, catalog)?;
            return Ok(Crew::Threads {
                runtime,
                deployed,
                agent: agent.map(|agent| Box::new(Mutex::new(agent))),
            });
        }
        let work = Work {
            file: self.script.name(),
            text: self.script.text(),
            settings: &self.options.settings,
            machine: self.machine,
            learned: self.learned,
            deployment: self.deployment,
            processes: self.plan.processes,
            fingerprint: fingerprint(self.program, self.deployment),
            program: self.options.program.as_deref(),
            tcp: self.program.settings.link == LinkKind::Tcp,
            costs: self.costs,
            incarnation,
            notices: &self.notices,
        };
        let words = Arc::new(move |word| post(News::Word(word)));
        let children = Children::start(&work, events, words);
        children
            .map(Crew::Processes)
            .map_err(|error| Error::new("worker processes", error.to_string()))
    }

    fn keeper(
        &self,
        number: usize,
        incarnation: &Incarnation,
        claim: slackwater_checkpoint::Incarnation,
    ) -> Result<Keeper, Error> {
        let post = self.post(number);
        // One checkpoint more that is given up, and two transactions would have to be committed at once.
        let is_once = self.program.nodes.iter().any(|node| match node {
            NodeSpec::Sink(sink) => sink.connector.capabilities().may_lose_prepared,
            _ => false,
        });
        let keeper = Keeper::start(
            claim,
            self.program.settings.checkpoint_interval_ns,
            is_once,
            Arc::clone(&self.members),
            incarnation.manifest.as_ref(),
            move |stored| post(News::Stored(stored)),
        );
        keeper.map_err(|reason| Error::new("checkpoints", reason))
    }

    fn live(&self, crew: &Crew) -> Option<Live> {
        let sources = self.program.nodes.iter().filter_map(|node| match node {
            NodeSpec::Source(source) => source.connector.describe().rows_per_s,
            _ => None,
        });
        let rows_per_s = sources.sum();
        let live = self.options.live;
        live.then(|| Live::new(self.program, self.deployment, crew, rows_per_s))
    }
}
