//! Questions to a running query: why nothing comes out.
//!
//! No thread wakes up between questions: a question is an event, workers report their sources' partitions
//! once, and the answer is made from that.

use std::collections::BTreeSet;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use slackwater_engine::deploy::Deployment;
use slackwater_engine::intake::PartitionSeen;
use slackwater_sql::program::Program;

use super::events::{Retarget, Signals};
use crate::doctor::{Examination, Examiner};
use crate::metrics::{Board, Look};

/// How long an answer waits for workers: a worker that is stuck in a write reports nothing, and what it said
/// before is used instead.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long the caller waits for an answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);

/// The most questions that wait for their answers; further ones get none.
const QUESTIONS_MAX: usize = 16;

/// Somebody who waits for an answer.
struct Question {
    /// When the answer is given, at the latest.
    until: Instant,
    /// The source instances that have not reported yet.
    missing: BTreeSet<usize>,
    reply: SyncSender<String>,
}

/// Asks a query that runs.
#[derive(Clone, Default)]
pub struct Asker {
    pub(crate) signals: Arc<Signals>,
    /// Where the query is shown, if somebody is going to look at it.
    pub(crate) board: Option<Arc<OnceLock<Arc<Board>>>>,
}

impl std::fmt::Debug for Asker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Asker")
    }
}

impl Asker {
    /// Asks a query, and looks at it.
    pub(crate) fn looking() -> Asker {
        Asker {
            board: Some(Arc::default()),
            ..Asker::default()
        }
    }

    /// Changes the latency target of these sinks; returns whether the query has heard it.
    pub(crate) fn retarget(&self, nodes: Vec<usize>, target_ns: u64) -> bool {
        let (reply, answer) = mpsc::sync_channel(1);
        self.signals.retarget(Retarget {
            targets: nodes.into_iter().map(|node| (node, target_ns)).collect(),
            done: Box::new(move || {
                // The one who asked may have gone.
                let _ = reply.send(());
            }),
        });
        answer.recv().is_ok()
    }

    /// Looks at the query, or at what is known of it if it does not run now. `None` before it is planned.
    pub(crate) fn look<T: Send + 'static>(
        &self,
        tell: impl FnOnce(&Board) -> T + Send + 'static,
    ) -> Option<T> {
        let board = self.board.as_ref()?.get()?;
        let (reply, answer) = mpsc::sync_channel(1);
        let look = Look::new(board, move |board| drop(reply.send(tell(board))));
        let look = look.with_partitions();
        if board.is_running() {
            self.signals.look(look);
        } else {
            drop(look);
        }
        answer.recv().ok()
    }

    /// Why nothing comes out, and why rows are late: sentences and a table. Of a query that does not run any
    /// longer, what was known at its end. `None` if no query has run, or it does not answer.
    pub fn why(&self) -> Option<String> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.signals.ask(reply);
        match answer.recv_timeout(ANSWER_PATIENCE) {
            Ok(text) => Some(text),
            Err(RecvTimeoutError::Timeout) => None,
            // No attempt hears it.
            Err(RecvTimeoutError::Disconnected) => self.signals.last_diagnosis(),
        }
    }
}

/// What sources have said of their partitions, and who waits for an answer.
#[derive(Default)]
pub struct Questions {
    examiner: Examiner,
    asked: Vec<Question>,
}

impl Questions {
    /// Adds a question that the source instances `missing` are going to answer. Returns whether there is
    /// room.
    pub fn add(
        &mut self,
        missing: BTreeSet<usize>,
        reply: SyncSender<String>,
        now: Instant,
    ) -> bool {
        let has_room = self.asked.len() < QUESTIONS_MAX;
        if has_room {
            self.asked.push(Question {
                until: now + PATIENCE,
                missing,
                reply,
            });
        }
        has_room
    }

    /// Takes what an instance has seen.
    pub fn hear(&mut self, instance: usize, partitions: Vec<PartitionSeen>) {
        self.examiner.hear(instance, partitions);
        self.ended(instance);
    }

    /// Waits no longer for an instance.
    pub fn ended(&mut self, instance: usize) {
        for question in &mut self.asked {
            question.missing.remove(&instance);
        }
    }

    /// When the next answer has to be given, at the latest.
    pub fn next(&self) -> Option<Instant> {
        self.asked.first().map(|question| question.until)
    }

    /// Answers the questions for which everything is known, or whose time has come.
    pub fn answer(&mut self, program: &Program, deployment: &Deployment, now: Instant) {
        let is_due = |question: &mut Question| question.missing.is_empty() || question.until <= now;
        for question in self.asked.extract_if(.., is_due) {
            let examination = self.examiner.examine(program, deployment);
            // Fails only if nobody waits any more.
            let _ = question.reply.try_send(examination.text());
        }
    }

    /// What is known now.
    pub fn known(&self, program: &Program, deployment: &Deployment) -> Examination {
        self.examiner.examine(program, deployment)
    }

    /// What is known in the end.
    pub fn examine(self, program: &Program, deployment: &Deployment) -> Examination {
        self.examiner.examine(program, deployment)
    }
}
