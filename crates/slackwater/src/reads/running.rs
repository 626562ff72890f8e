//! The query of a read, as its reader takes rows.

use std::sync::{Arc, LazyLock};

use arrow_array::RecordBatch;
use slackwater_engine::budget::Budget;
use slackwater_engine::deploy::{Catalog, SourcePart, SourceParts};
use slackwater_engine::inline::{Inline, OVER_BUDGET, Went};
use slackwater_engine::intake::IntakeSpec;
use slackwater_engine::operator::Operator;
use slackwater_engine::sink::{Sink, SinkRequest};
use slackwater_engine::source::{DeadLetters, Rejected, SourceRequest, Tuning};
use slackwater_engine::{Error, Result};
use slackwater_sql::SqlError;
use slackwater_sql::program::Program;

use super::Failed;
use super::ends::Shared;
use crate::costs::Learned;
use crate::machine::Machine;
use crate::plan::{Plan, deployment};
use crate::planner::plan_on;

/// A query that its reader runs.
pub struct Running {
    query: Inline,
    shared: Arc<Shared>,
}

/// The plan of a read's query: all instances run on one thread.
pub fn planned(program: &Program) -> std::result::Result<Plan, SqlError> {
    static ONE_CORE: LazyLock<Machine> = LazyLock::new(Machine::of_one_core);
    plan_on(program, &ONE_CORE, &Learned::default())
}

impl Running {
    /// Starts the query of a program.
    ///
    /// # Errors
    ///
    /// If an operator can't be made, or a view's rows can't be read.
    pub fn new(program: Program, shared: Arc<Shared>) -> std::result::Result<Running, Failed> {
        let plan = planned(&program)?;
        let deployment = deployment(&program, &plan);
        let parts = Parts {
            program: &program,
            memory: shared.limits.memory,
            letters: Arc::new(NoLetters),
        };
        match Inline::new(&deployment, &parts) {
            Ok(query) => Ok(Running { query, shared }),
            Err(error) => Err(failed(error, &shared)),
        }
    }

    /// The next rows; `None` at the end.
    pub fn next(&mut self) -> Option<std::result::Result<RecordBatch, Failed>> {
        loop {
            if let Some(batch) = self.shared.take() {
                return Some(Ok(batch));
            }
            if let Err(failed) = self.shared.limits.check() {
                return Some(Err(failed));
            }
            match self.query.step() {
                Ok(Went::On) => {}
                Ok(Went::Ended) => return self.shared.take().map(Ok),
                // A query has rows for its reader, or something to do.
                Ok(Went::Full) => match self.shared.take() {
                    Some(batch) => return Some(Ok(batch)),
                    None => {
                        let error = "the query of the read waits for nothing: this is a bug";
                        return Some(Err(Failed::Query(error.to_string())));
                    }
                },
                Err(error) => return Some(Err(failed(error, &self.shared))),
            }
        }
    }
}

/// Why the query failed: what a source has said, or the engine's error.
fn failed(error: Error, shared: &Shared) -> Failed {
    match (shared.failed(), shared.limits.memory) {
        (Some(failed), _) => failed,
        (None, Some(limit)) if error.place == OVER_BUDGET => Failed::Memory(limit),
        (None, _) => error.into(),
    }
}

/// The sources, operators and sink of a read's query.
struct Parts<'a> {
    program: &'a Program,
    memory: Option<u64>,
    letters: Arc<NoLetters>,
}

impl Catalog for Parts<'_> {
    fn source(&self, node: usize, part: SourcePart) -> Result<SourceParts> {
        let spec = self.program.nodes[node].as_source();
        let spec = spec.ok_or_else(|| not(node, "a source"))?;
        let request = SourceRequest {
            projection: spec.projection.clone(),
            instance: part.instance,
            instances: part.instances,
            here: part.here,
            parsers: part.parsers,
            tuning: Arc::new(Tuning::new(0, self.program.settings.chunk_rows)),
            unit_per_partition: false,
            bytes_read: Arc::default(),
            resume: Arc::new([]),
            saved: false,
        };
        Ok(SourceParts {
            source: spec.connector.source(request)?,
            intake: IntakeSpec {
                columns: spec.columns.clone(),
                schema: spec.schema.clone(),
                event_time: spec.event_time,
                partition_base: 0,
                idle_timeout_ns: None,
                unit_per_partition: false,
                forgets_ended: false,
                judged: Vec::new(),
            },
            dead_letters: self.letters.clone(),
            restored: Vec::new(),
            suspects: Vec::new(),
            recorder: None,
            notices: None,
        })
    }

    fn operator(&self, node: usize) -> Result<Operator> {
        let operator = self.program.nodes[node].operator()?;
        operator.ok_or_else(|| not(node, "an operator"))
    }

    fn sink(&self, node: usize, instance: usize, instances: usize) -> Result<Box<dyn Sink>> {
        let spec = self.program.nodes[node].as_sink();
        let spec = spec.ok_or_else(|| not(node, "a sink"))?;
        spec.connector.sink(&SinkRequest::new(instance, instances))
    }

    fn dead_letters(&self, _: usize) -> Arc<dyn DeadLetters> {
        self.letters.clone()
    }

    fn budget(&self) -> Budget {
        self.memory.map_or_else(Budget::default, Budget::new)
    }
}

fn not(node: usize, what: &str) -> Error {
    Error::new(format!("node {node}"), format!("is not {what}"))
}

/// A read has no dead-letter file: a value that can't be computed fails it.
struct NoLetters;

impl DeadLetters for NoLetters {
    fn name_partition(&self, _: u32, _: &str) {}

    fn reject(&self, rejected: &Rejected) -> Result<()> {
        Err(Error::new("", rejected.reason.clone()))
    }
}
