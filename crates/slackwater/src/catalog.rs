//! Connectors for the SQL layer, and sources, operators and sinks for the engine.

mod aggregates;
mod controls;
mod endings;
mod held;
mod informed;
pub(crate) mod keyed_operators;
mod kind;
pub(crate) mod operators;
mod statement;
mod tables;
mod wasm;
mod written;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use slackwater_connect::{FileDeadLetters, Findings, TableDefinition};
use slackwater_engine::budget::Budget;
use slackwater_engine::checkpoint::Chain;
use slackwater_engine::chunk::PARTITIONS_PER_SOURCE;
use slackwater_engine::deploy::{Adopted, Catalog, FirstPhases, SourcePart, SourceParts};
use slackwater_engine::intake::{IntakeSpec, Notices};
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::aggregate::{Combine, FirstPhase};
use slackwater_engine::recorder::{Recorder, Suspect};
use slackwater_engine::sink::{Sink, SinkRequest};
use slackwater_engine::source::{DeadLetters, SourceRequest, Tuning};
use slackwater_engine::{Error, Result};
use slackwater_sql::error::SqlError;
use slackwater_sql::node::SinkSpec;
use slackwater_sql::program::Program;
use slackwater_sql::settings::TwoPhase;

use crate::checkpoints::{Restored, Suspected, takes_part};
use crate::notices::{Noticed, SourceNotices, Tell};
use crate::report::DeadLetterFile;
use crate::slow::{Slowness, slowed};

pub use controls::Controls;
pub use endings::endings;
pub use held::{Held, HeldInstance};
pub use informed::{Informed, files_of_functions, is_elsewhere, reads_per_host};
pub use kind::connector_of;
pub use statement::written;
pub use tables::BuiltIn;
use tables::definition;
pub use tables::option_error;

/// A table's name without the options of a hint.
fn plain_name(name: &str) -> &str {
    let plain = name.split(slackwater_sql::statement::OPTIONS_OF).next();
    plain.unwrap_or(name)
}

/// The sources, operators and sinks of a program's nodes, as the engine asks for them.
pub struct ProgramCatalog<'a> {
    program: &'a Program,
    letters: HashMap<String, Arc<FileDeadLetters>>,
    /// The dead letters of each node.
    letters_of: Vec<Arc<FileDeadLetters>>,
    bytes_read: HashMap<usize, Arc<AtomicU64>>,
    /// What each source has noticed about its rows.
    notices: HashMap<usize, Arc<SourceNotices>>,
    /// How each source divides its rows into chunks.
    tunings: HashMap<usize, Arc<Tuning>>,
    /// Whether rows are aggregated before they are sent to each node.
    combining: Vec<Arc<AtomicBool>>,
    /// Operators that are made slow, for tests and experiments.
    slowness: Option<Arc<Slowness>>,
    /// The incarnation of a query that takes checkpoints.
    epoch: Option<u64>,
    restored: Option<Restored>,
    /// What is held of the checkpoint already.
    held: Option<Held>,
    /// Whether each node is checkpointed.
    takes_part: Vec<bool>,
    /// How many processes share the memory.
    processes: usize,
    /// Where sources record which rows are being processed.
    recorder: Option<Recorder>,
    suspects: Vec<Suspected>,
}

impl<'a> ProgramCatalog<'a> {
    /// How the source at `node` divides its rows into chunks.
    pub fn tuning(&self, node: usize) -> &Arc<Tuning> {
        &self.tunings[&node]
    }

    /// Makes some operators slow, for tests and experiments.
    pub fn with_slowness(mut self, slowness: Arc<Slowness>) -> ProgramCatalog<'a> {
        self.slowness = Some(slowness);
        self
    }

    /// Starts an incarnation: what is created from now on belongs to it and resumes from the checkpoint.
    pub fn begin(&mut self, epoch: u64, restored: Option<Restored>) {
        (self.epoch, self.restored, self.held) = (Some(epoch), restored, None);
        for bytes in self.bytes_read.values() {
            bytes.store(0, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// The incarnation resumes with state that is there already, and not read.
    pub fn adopt(&mut self, held: Held) {
        self.held = Some(held);
    }

    /// Whether the state of a node can be held.
    pub fn can_be_held(&self, node: usize) -> bool {
        self.takes_part[node]
    }

    /// Calls `tell` at once for each urgent notice of a source.
    pub fn tell(&self, tell: Tell) {
        self.notices
            .values()
            .for_each(|notices| notices.tell(&tell));
    }

    /// What the sources of this process have noticed about their rows.
    pub fn noticed(&self) -> Vec<Noticed> {
        let notices = self.notices.values();
        notices.map(|notices| notices.noticed()).collect()
    }

    /// Sets how many processes share the query's memory limit.
    pub fn share_memory(&mut self, processes: usize) {
        self.processes = processes;
    }

    /// Makes sources record which rows are being processed, and process suspected rows one by one.
    pub fn watch_out(&mut self, recorder: Option<Recorder>, suspects: Vec<Suspected>) {
        (self.recorder, self.suspects) = (recorder, suspects);
    }

    /// All instances have been created, so what was read from the checkpoint is dropped.
    pub fn has_begun(&self) {
        if let Some(restored) = &self.restored {
            restored.let_go();
        }
    }

    /// The checkpoint from which a node resumes, if the node is checkpointed.
    fn restored_of(&self, node: usize) -> Option<&Restored> {
        self.restored.as_ref().filter(|_| self.takes_part[node])
    }

    /// Reads an instance's state from the checkpoint and keeps it until all instances have started. `node` is
    /// the head of its subquery, and `share` is as in [`Catalog::restored`].
    ///
    /// # Errors
    ///
    /// If a part can't be read or is damaged.
    pub fn read_restored(
        &self,
        node: usize,
        share: Option<(usize, usize)>,
    ) -> slackwater_checkpoint::Result<()> {
        if self.held.as_ref().is_some_and(|held| held.has(node)) {
            return Ok(());
        }
        let share = self.share_of(node, share);
        self.restored_of(node)
            .map_or(Ok(()), |restored| restored.read_chains(node, share))
    }

    /// The share, or `None` if an earlier version stored state that doesn't say which instance needs it.
    fn share_of(&self, node: usize, share: Option<(usize, usize)>) -> Option<(usize, usize)> {
        let state = self.program.nodes[node].state();
        share.filter(|_| !state.is_some_and(|state| state.is_read_whole))
    }

    /// The sinks, with their nodes.
    pub fn sinks(&self) -> impl Iterator<Item = (usize, &SinkSpec)> {
        self.program.sinks()
    }

    /// A catalog of the program's nodes.
    pub fn new(program: &'a Program) -> std::result::Result<ProgramCatalog<'a>, SqlError> {
        written::check(program)?;
        let mut letters: HashMap<String, Arc<FileDeadLetters>> = HashMap::new();
        let mut bytes_read = HashMap::new();
        let (mut tunings, mut notices) = (HashMap::new(), HashMap::new());
        let mut fail = false;
        for (number, source) in program.sources() {
            let mut definition = definition(&source.table);
            definition.name = plain_name(&source.table.name).to_string();
            let made_now = slackwater_connect::dead_letters(&definition)
                .map_err(|error| option_error(&source.table, error))?;
            // A table that is read twice has one dead-letter file.
            let made = letters.entry(definition.name.clone());
            let made = Arc::clone(made.or_insert_with(|| Arc::new(made_now)));
            bytes_read.insert(number, Arc::new(AtomicU64::new(0)));
            let settings = &program.settings;
            let tuning = Arc::new(Tuning::new(settings.linger_ns, settings.chunk_rows));
            let heard = SourceNotices::new(number, source, &made, &tuning);
            notices.insert(number, Arc::new(heard));
            tunings.insert(number, tuning);
            fail |= slackwater_connect::table_settings(&definition)
                .map_err(|error| option_error(&source.table, error))?
                .on_error_fail;
        }
        // For rows that come from no single source: results of aggregates and joins.
        let of_query = TableDefinition {
            name: "query".to_string(),
            schema: Arc::new(arrow_schema::Schema::empty()),
            metadata: Default::default(),
            primary_key: Vec::new(),
            findings: Findings::Look,
            options: [("on_error", if fail { "fail" } else { "skip" })]
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .into(),
            formats: Vec::new(),
        };
        let of_query = slackwater_connect::dead_letters(&of_query);
        let of_query = Arc::new(of_query.map_err(|error| SqlError::new(error.to_string()))?);
        let mut letters_of: Vec<Arc<FileDeadLetters>> = Vec::new();
        for (number, node) in program.nodes.iter().enumerate() {
            let inputs = &program.graph.nodes[number].inputs;
            letters_of.push(match (node.as_source(), inputs.as_slice()) {
                (Some(source), _) => letters[plain_name(&source.table.name)].clone(),
                (None, [edge]) if node.facts().rejects_input_rows => letters_of[edge.from].clone(),
                (None, _) => of_query.clone(),
            });
        }
        letters.insert(String::new(), of_query);
        Ok(ProgramCatalog {
            program,
            letters,
            letters_of,
            bytes_read,
            notices,
            tunings,
            combining: (program.nodes.iter())
                .map(|_| Arc::new(AtomicBool::new(program.settings.two_phase == TwoPhase::On)))
                .collect(),
            slowness: None,
            epoch: None,
            restored: None,
            held: None,
            takes_part: takes_part(program),
            processes: 1,
            recorder: None,
            suspects: Vec::new(),
        })
    }

    /// The dead-letter files that were written.
    pub fn dead_letter_files(&self) -> Vec<DeadLetterFile> {
        let files = self.letters.iter().filter_map(|(table, letters)| {
            Some(DeadLetterFile {
                table: table.clone(),
                path: letters.path_if_created()?.display().to_string(),
                records: letters.count(),
                first: letters.first().unwrap_or_default(),
            })
        });
        let mut files = files.collect::<Vec<_>>();
        files.sort_by(|one, other| one.path.cmp(&other.path));
        files
    }

    /// The dead-letter file of a source's table, if it was written.
    pub fn dead_letter_file(&self, table: &str) -> Option<String> {
        let letters = self.letters.get(plain_name(table))?;
        letters
            .path_if_created()
            .map(|path| path.display().to_string())
    }

    /// The dead-letter file of each source's table, whether it was written or not.
    pub fn dead_letter_paths(&self) -> Vec<(String, PathBuf)> {
        let letters = self.letters.iter();
        let paths = letters.map(|(table, letters)| (table.clone(), letters.path().to_path_buf()));
        let mut paths = paths.collect::<Vec<_>>();
        paths.sort();
        paths
    }

    /// Bytes that the source at `node` has read so far.
    pub fn bytes_read(&self, node: usize) -> u64 {
        self.bytes_read
            .get(&node)
            .map_or(0, |b| b.load(std::sync::atomic::Ordering::Relaxed))
    }

    /// Sets how many bytes the source at `node` has read in other processes.
    pub fn store_bytes_read(&self, node: usize, bytes: u64) {
        if let Some(slot) = self.bytes_read.get(&node) {
            slot.store(bytes, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// The source's number among the sources.
    fn ordinal(&self, node: usize) -> u32 {
        let sources = self.program.nodes[..node].iter();
        sources.filter(|node| node.is_source()).count() as u32
    }
}

impl Catalog for ProgramCatalog<'_> {
    fn source(&self, node: usize, part: SourcePart) -> Result<SourceParts> {
        let Some(spec) = self.program.nodes[node].as_source() else {
            return Err(Error::new(format!("node {node}"), "is not a source"));
        };
        let table = definition(&spec.table);
        let settings = slackwater_connect::table_settings(&table)
            .map_err(|error| Error::new(table.name.clone(), error.to_string()))?;
        // A source that is not replayable delivers only new rows, and numbers them anew unless it says so.
        let described = spec.connector.describe();
        let restored = self
            .restored_of(node)
            .filter(|_| described.replayable || described.keeps_positions);
        let restored = restored.map(|restored| restored.partitions(node));
        let restored = restored.unwrap_or_default();
        let resume = restored.iter().map(|state| state.resume.clone());
        let request = SourceRequest {
            projection: spec.projection.clone(),
            instance: part.instance,
            instances: part.instances,
            here: part.here,
            parsers: part.parsers,
            tuning: self.tunings[&node].clone(),
            unit_per_partition: settings.unit_of_work_file,
            bytes_read: self.bytes_read[&node].clone(),
            resume: resume.collect(),
            saved: self.epoch.is_some(),
        };
        let notices = self.notices.get(&node);
        Ok(SourceParts {
            source: spec.connector.source(request)?,
            intake: IntakeSpec {
                columns: spec.columns.clone(),
                schema: spec.schema.clone(),
                event_time: spec.event_time,
                partition_base: self.ordinal(node) * PARTITIONS_PER_SOURCE,
                idle_timeout_ns: settings.idle_timeout_ns,
                unit_per_partition: settings.unit_of_work_file,
                forgets_ended: described.transient_partitions,
                judged: self.program.judges(node),
            },
            dead_letters: self.letters_of[node].clone(),
            restored,
            // Positions name the same rows again only if the source is replayable.
            suspects: (self.suspects.iter())
                .filter(|suspect| suspect.node == node && described.replayable)
                .map(|suspect| Suspect {
                    partition: suspect.partition,
                    first: suspect.first,
                    last: suspect.last,
                })
                .collect(),
            recorder: self.recorder.clone(),
            notices: notices.map(|notices| Arc::clone(notices) as Arc<dyn Notices>),
        })
    }

    fn operator(&self, node: usize) -> Result<Operator> {
        let operator = self.program.nodes[node].operator()?;
        let operator =
            operator.ok_or_else(|| Error::new(format!("node {node}"), "is not an operator"))?;
        Ok(match &self.slowness {
            None => operator,
            Some(slowness) => slowed(slowness, &self.program.graph.nodes[node].name, operator),
        })
    }

    fn first_phase(&self, node: usize, holds: bool) -> Result<FirstPhases> {
        let Some(combines) = self.program.nodes[node].facts().combines else {
            return Err(Error::new(format!("node {node}"), "is not an aggregation"));
        };
        let (spec, input) = (combines.spec.clone(), combines.input);
        Ok(match holds {
            true => FirstPhases::Held(Box::new(FirstPhase::new(spec, input)?)),
            false => {
                let is_on = self.combining[node].clone();
                FirstPhases::OfChunk(Box::new(Combine::new(spec, input, is_on)?))
            }
        })
    }

    fn sink(&self, node: usize, instance: usize, instances: usize) -> Result<Box<dyn Sink>> {
        let Some(spec) = self.program.nodes[node].as_sink() else {
            return Err(Error::new(format!("node {node}"), "is not a sink"));
        };
        let request = SinkRequest {
            epoch: self.epoch,
            ..SinkRequest::new(instance, instances)
        };
        spec.connector.sink(&request)
    }

    fn dead_letters(&self, node: usize) -> Arc<dyn DeadLetters> {
        self.letters_of[node].clone()
    }

    fn budget(&self) -> Budget {
        let limit = self.program.settings.memory_limit;
        limit.map_or_else(Budget::default, |bytes| {
            Budget::new((bytes / self.processes as u64).max(1))
        })
    }

    fn restored(&self, node: usize, share: Option<(usize, usize)>) -> Result<Vec<Chain>> {
        if let Some(held) = self.held.as_ref().filter(|held| held.has(node)) {
            return held.chains_of(node);
        }
        let share = self.share_of(node, share);
        match self.restored_of(node) {
            Some(restored) => restored.chains(node, share),
            None => Ok(Vec::new()),
        }
    }

    fn adopted(&self, node: usize, instance: usize, instances: usize) -> Option<Adopted> {
        let state = self.program.nodes[node].state();
        let is_divided = !state.is_some_and(|state| state.is_read_whole);
        // A view publishes for the incarnation in which it was made.
        let is_view = self.program.views.iter().any(|view| view.node == node);
        let held = self.held.as_ref().filter(|_| is_divided && !is_view)?;
        held.take(node, instance, instances)
    }
}
