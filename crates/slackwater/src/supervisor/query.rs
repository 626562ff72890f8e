//! A query to run, and the checks before it runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use slackwater_engine::Error;
use slackwater_engine::deploy::Deployment;
use slackwater_engine::runtime::Costs;
use slackwater_sql::SqlError;
use slackwater_sql::node::SinkSpec;
use slackwater_sql::program::Program;

use super::events::Signals;
use crate::bound::Bound;
use crate::catalog::{ProgramCatalog, connector_of};
use crate::checkpoints::Members;
use crate::cluster::{Leadership, Orchestrator, check_tables};
use crate::costs::Learned;
use crate::hosts::Host;
use crate::machine::Used;
use crate::metrics::Board;
use crate::notices::Notices;
use crate::plan::{Plan, deployment};
use crate::planner::plan_bound;
use crate::script::Script;
use crate::standby::{Door, Remote, Serving};
use crate::targets::Targets;
use crate::traces::{Fact, Span, Traces};

/// Why a query is not run, or not restarted.
#[derive(Debug)]
pub enum Refused {
    /// The SQL or the options are wrong.
    Usage(String),
    /// The query had already started.
    Query(String),
}

/// The query, which is the same in each incarnation.
pub struct Query<'a> {
    /// The SQL.
    pub script: &'a Script,
    /// Settings of the command line.
    pub settings: &'a [(String, String)],
    /// The sources end after this time; windows stay open.
    pub duration: Option<Duration>,
    /// Whether to show progress on standard error.
    pub progress: bool,
    /// Whether to print a line per second instead.
    pub live: bool,
    /// The compiled program.
    pub program: &'a Program,
    /// The plan.
    pub plan: Plan,
    /// The engine's form of the plan.
    pub deployment: Deployment,
    /// The hosts that worker processes run on.
    pub hosts: Vec<Arc<dyn Host>>,
    /// What links of this query show each other.
    pub token: [u8; 16],
    /// Where hosts join, if there are to be several.
    pub orchestrator: Option<Orchestrator>,
    /// By which this process directs the query, if others could.
    pub leadership: Option<Arc<Leadership>>,
    /// The costs that earlier runs have measured.
    pub learned: &'a Learned,
    /// What waiting costs on this host.
    pub costs: Costs,
    /// The instances that are checkpointed.
    pub members: Arc<Members>,
    /// The time at which the query was started.
    pub started: Instant,
    /// What this process had used before the SQL was read.
    pub before: Used,
    /// The signals that end the query.
    pub signals: Arc<Signals>,
    /// The notices for the user about the input.
    pub notices: Arc<Notices>,
    /// The latency targets of the sinks.
    pub targets: Arc<Targets>,
    /// What is shown to those who look at the run, if somebody may.
    pub board: Option<Arc<Board>>,
    /// Where its control events are traced.
    pub traces: Traces,
    /// The folder of its state, if standbys may follow it there.
    pub folder: Option<PathBuf>,
    /// Where standbys on other hosts reach it.
    pub followed_at: Option<Remote>,
    /// Where its standby reaches it.
    pub door: Option<Door>,
    /// What clients of its views are told.
    pub serving: Arc<Serving>,
}

impl Query<'_> {
    /// Makes sure that the hosts of the query are there, and plans it for others if they are not.
    ///
    /// # Errors
    ///
    /// If too few hosts are there after a while, or the query can't be planned for them.
    pub fn gather(&mut self) -> Result<(), String> {
        let Some(orchestrator) = &self.orchestrator else {
            return Ok(());
        };
        if orchestrator.are_there(&self.hosts) {
            return Ok(());
        }
        let is_stopped = || self.signals.is_raised();
        let gathered = orchestrator.gather(&is_stopped)?;
        self.tell_of_files(&gathered.new);
        let bound = Bound::new(self.program, &gathered.names);
        let bound = bound.map_err(|error| self.script.render(&error))?;
        let planned = plan_bound(self.program, &gathered.machine, &bound, self.learned);
        let mut plan = planned.map_err(|error| self.script.render(&error))?;
        check_tables(self.program, &bound, &gathered.hosts)
            .map_err(|error| self.script.render(&error))?;
        plan.checkpoints = self.plan.checkpoints;
        plan.rows_per_s = self.plan.rows_per_s;
        self.deployment = deployment(self.program, &plan);
        self.members = Arc::new(Members::new(self.program, &self.deployment));
        self.plan = plan;
        self.hosts = gathered.hosts;
        Ok(())
    }

    /// Says that files of hosts which have joined since the query was started are not read.
    fn tell_of_files(&self, hosts: &[String]) {
        let mut sources = self.program.sources();
        let spread = sources.find(|(_, source)| !source.connector.describe().spread.is_empty());
        for (host, (_, source)) in hosts.iter().zip(spread.iter().cycle()) {
            eprintln!(
                "warning: {host} has joined after the query was started: if it has files of table '{}', they \
                 are not read before it is started again",
                source.table.name
            );
        }
    }

    /// Traces an incarnation that has ended.
    pub fn trace(&self, begun: SystemTime, epoch: Option<u64>, error: Option<String>) {
        if self.traces.are_on() {
            let epoch = epoch.map(|epoch| ("slackwater.incarnation", Fact::Number(epoch)));
            self.traces.send(Span {
                name: "incarnation",
                begun,
                ended: SystemTime::now(),
                facts: epoch.into_iter().collect(),
                error,
            });
        }
    }

    /// Rejects sinks that would destroy existing data, if a query with checkpoints starts from nothing.
    pub fn check_sinks(&self, catalog: &ProgramCatalog<'_>) -> Result<(), Refused> {
        catalog
            .sinks()
            .try_for_each(|(_, sink)| self.check_sink(sink, true))
    }

    /// Rejects a sink that would destroy existing data. `saved`: the query takes checkpoints.
    pub fn check_sink(&self, sink: &SinkSpec, saved: bool) -> Result<(), Refused> {
        let begun = sink.connector.begin(saved);
        begun.map_err(|error| self.rejected(sink, error))
    }

    /// The error for a sink that would destroy existing data.
    pub fn rejected(&self, sink: &SinkSpec, error: Error) -> Refused {
        let Some(table) = &sink.table else {
            return Refused::Usage(error.to_string());
        };
        // An error about a file is shown at its path; a server is not a place in the SQL.
        let path = connector_of(table).and_then(|kind| kind.path);
        let place = path.and_then(|path| Some((path, *table.option_places.get(path)?)));
        let option = place.map_or(String::new(), |(path, _)| format!(", option '{path}'"));
        let place = place.map(|(_, place)| place);
        let server = match place.is_none() && error.place == sink.connector.describe().to_string() {
            true => format!("{}: ", error.place),
            false => String::new(),
        };
        let refused = SqlError::new(format!(
            "table '{}'{option}: {server}{}",
            table.name, error.reason
        ));
        let refused = refused.at(place.unwrap_or(table.span)).hint(error.hint);
        Refused::Usage(self.script.render(&refused))
    }
}
