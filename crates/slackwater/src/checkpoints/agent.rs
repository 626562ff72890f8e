//! A process's part in checkpoints: it stores what its instances had at a cut, and commits what its sinks
//! have prepared, on a thread of its own, so that no worker waits for a disk or a broker.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use slackwater_checkpoint::coordinator::Report;
use slackwater_checkpoint::manifest::Part;
use slackwater_checkpoint::{PartRequest, PartWriter, Runner, Store};
use slackwater_engine::checkpoint::{Prepared, Snapshot, StateSnapshot};
use slackwater_engine::deploy::{Deployment, InstancePlan};
use slackwater_engine::hash::BUCKETS;
use slackwater_engine::sink::SinkConnector;
use slackwater_engine::source::{Resume, SourceConnector};
use slackwater_engine::time::now_ns;
use slackwater_engine::worker::Event;
use slackwater_sql::program::Program;
use slackwater_sql::specs::NodeSpec;

use super::{Incarnation, Members, Suspected, partitions_of};

/// What an agent says to the keeper. Members are named by their index in [`Members`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Word {
    /// A source has read something.
    Changed,
    /// A member has taken its snapshot.
    Taken {
        /// The barrier.
        barrier: u64,
        /// The member.
        member: usize,
        /// What it says.
        report: Report,
        /// How long its instance stood still for it, in nanoseconds.
        taken_ns: u64,
    },
    /// A member has ended.
    Ended {
        /// The member.
        member: usize,
        /// The last barrier that it answered.
        last_barrier: u64,
        /// What it says.
        report: Report,
    },
    /// A part is stored.
    Stored {
        /// The barrier.
        barrier: u64,
        /// The member.
        member: usize,
        /// It.
        part: Part,
    },
    /// A part could not be stored.
    Failed {
        /// The barrier.
        barrier: u64,
        /// Why; names the place.
        reason: String,
    },
    /// All sinks of the process have committed what they had prepared up to a barrier.
    Committed {
        /// The barrier.
        barrier: u64,
        /// The members that have prepared something since they began.
        members: Vec<usize>,
        /// For each commit the time from its oldest input to now, in nanoseconds.
        delays_ns: Vec<u64>,
    },
    /// Rows that a process was working on when it died.
    Suspects(Vec<Suspected>),
    /// What a sink has prepared can't be made durable at its end, or committed.
    NotCommitted {
        /// Why; names the place.
        reason: String,
    },
}

/// What the agent's thread has done.
#[derive(Debug)]
pub enum Done {
    /// What the keeper is told.
    Word(Word),
    /// What was prepared up to a barrier is committed.
    Committed {
        /// The barrier.
        barrier: u64,
        /// The commits, with their members.
        commits: Vec<(usize, Prepared)>,
    },
}

enum Job {
    Store(Box<StoreJob>),
    /// Makes what sinks have prepared durable, and then says the word.
    Secure {
        prepared: Vec<(usize, Prepared)>,
        word: Box<Word>,
    },
    Commit {
        barrier: u64,
        commits: Vec<(usize, Prepared)>,
    },
}

struct StoreJob {
    barrier: u64,
    since: Option<u64>,
    member: usize,
    node: String,
    instance: u32,
    owners: Option<u32>,
    watermark: Option<i64>,
    pieces: Vec<Vec<RecordBatch>>,
}

/// The agent of this process.
pub struct Agent {
    members: Arc<Members>,
    /// The stateful node at the head of each instance, and how many instances its subquery has.
    heads: Vec<(Option<usize>, u32)>,
    /// The source of each instance.
    sources: Vec<Option<usize>>,
    index: Vec<usize>,
    /// What each member's sink has prepared and not committed, with the barrier.
    pending: HashMap<usize, Vec<(u64, Prepared)>>,
    /// How far sources were at barriers of which it is not known whether they are stored, and the nodes.
    read: Vec<(u64, usize, Vec<Resume>)>,
    connectors: HashMap<usize, Arc<dyn SourceConnector>>,
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Starts the agent of an incarnation; `done` hears what its thread has done.
    ///
    /// # Errors
    ///
    /// When the store can't be opened, or there can be no thread.
    pub fn start(
        incarnation: &Incarnation,
        program: &Program,
        deployment: &Deployment,
        members: Arc<Members>,
        done: impl Fn(Done) + Send + 'static,
    ) -> std::result::Result<Agent, String> {
        let store = Store::open(&incarnation.place).map_err(|error| error.to_string())?;
        let writer = PartWriter::new(store, incarnation.epoch);
        let runner = Runner::new().map_err(|error| error.to_string())?;
        let sinks = members
            .graph_nodes
            .iter()
            .map(|&node| match &program.nodes[node] {
                NodeSpec::Sink(sink) => Some(sink.connector.clone()),
                _ => None,
            });
        let clerk = Clerk {
            writer,
            runner,
            sinks: sinks.collect(),
            node_of: members.members.iter().map(|(node, _)| *node).collect(),
        };
        let (jobs, queue) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("checkpoints".to_string())
            .spawn(move || {
                while let Ok(job) = queue.recv() {
                    clerk.work(job, &done);
                }
            })
            .map_err(|error| format!("can't start a thread: {error}"))?;
        let nodes = program.nodes.iter().enumerate();
        let connectors = nodes.filter_map(|(node, spec)| match spec {
            // Who can be read again keeps everything anyway.
            NodeSpec::Source(source) if !source.connector.describe().replayable => {
                Some((node, source.connector.clone()))
            }
            _ => None,
        });
        let instances = deployment.instances.iter();
        let heads = instances.clone().map(|instance| {
            let head = instance.steps.first().map(|step| step.node);
            let is_stateful = |node: &usize| {
                let spec = &program.nodes[*node];
                !matches!(spec, NodeSpec::Sink(_) | NodeSpec::Source(_))
            };
            (head.filter(is_stateful), instance.of as u32)
        });
        let sources = instances.clone().map(InstancePlan::source);
        Ok(Agent {
            heads: heads.collect(),
            sources: sources.collect(),
            index: instances.map(|instance| instance.index).collect(),
            members,
            pending: HashMap::new(),
            read: Vec::new(),
            connectors: connectors.collect(),
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Takes out of an event what is about a checkpoint: what the keeper is told of it at once.
    pub fn hear(&mut self, event: &mut Event) -> Vec<Word> {
        match event {
            Event::Changed { .. } => vec![Word::Changed],
            Event::Snapshot {
                instance, snapshot, ..
            } => self.snapshot(*instance, std::mem::take(&mut **snapshot)),
            Event::Ended { instance, last, .. } => match last.take() {
                Some(last) => self.ended(*instance, *last),
                None => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    fn snapshot(&mut self, instance: usize, snapshot: Snapshot) -> Vec<Word> {
        let barrier = snapshot.barrier;
        let taken_ns = snapshot.state.as_ref().map_or(0, |state| state.taken_ns);
        let reports = self.reports(instance, snapshot, barrier);
        let words = reports.into_iter().map(|(member, report)| Word::Taken {
            barrier,
            member,
            report,
            taken_ns,
        });
        self.secured(words.collect())
    }

    fn ended(&mut self, instance: usize, last: Snapshot) -> Vec<Word> {
        let last_barrier = last.barrier;
        // What was prepared at the end belongs to whatever barrier comes next.
        let reports = self.reports(instance, last, last_barrier + 1);
        let words = reports.into_iter().map(|(member, report)| Word::Ended {
            member,
            last_barrier,
            report,
        });
        self.secured(words.collect())
    }

    /// The words that can be said at once. Those of sinks have to wait until what these have prepared is
    /// durable: now, or for an earlier checkpoint, at which that may have failed.
    fn secured(&self, words: Vec<Word>) -> Vec<Word> {
        let mut at_once = Vec::new();
        for word in words {
            let (Word::Taken { member, .. } | Word::Ended { member, .. }) = word else {
                continue;
            };
            let pending = self.pending.get(&member).into_iter().flatten();
            let prepared = pending.map(|(_, prepared)| (member, prepared.clone()));
            let prepared = prepared.collect::<Vec<_>>();
            if prepared.is_empty() {
                at_once.push(word);
            } else {
                let word = Box::new(word);
                self.give(Job::Secure { prepared, word });
            }
        }
        at_once
    }

    /// What each member of an instance says.
    fn reports(
        &mut self,
        instance: usize,
        snapshot: Snapshot,
        prepared_for: u64,
    ) -> Vec<(usize, Report)> {
        let watermark = snapshot.watermark;
        let index = self.index[instance];
        for prepared in snapshot.prepared {
            if let Some(member) = self.members.find(prepared.node, index) {
                let pending = self.pending.entry(member).or_default();
                pending.push((prepared_for, prepared));
            }
        }
        let node = self.sources[instance];
        if let Some(node) = node.filter(|node| self.connectors.contains_key(node)) {
            let resume = snapshot.partitions.iter().map(|state| state.resume.clone());
            self.read.push((prepared_for, node, resume.collect()));
        }
        let source = self.sources[instance].and_then(|node| self.members.find(node, index));
        let partitions = partitions_of(&snapshot.partitions);
        let mut reports = Vec::new();
        if let Some(member) = source {
            let report = Report {
                partitions,
                watermark,
                ..Report::default()
            };
            reports.push((member, report));
        }
        let members = self.members.instances.iter().enumerate();
        let own = members.filter(|(_, of)| **of == instance);
        let own = own
            .map(|(member, _)| member)
            .filter(|&of| Some(of) != source);
        let (head, of) = self.heads[instance];
        let head = head.and_then(|node| self.members.find(node, index));
        let mut state = snapshot.state;
        for member in own.collect::<Vec<usize>>() {
            let mut report = Report {
                watermark,
                ..Report::default()
            };
            match state.take_if(|_| head == Some(member)) {
                Some(state) => {
                    report.memory = state.bytes as u64;
                    report.parts = self.store(snapshot.barrier, member, of, watermark, state);
                }
                None => {
                    let pending = self.pending.get(&member).into_iter().flatten();
                    let pending = pending.map(|(_, prepared)| Value::from(&*prepared.commit));
                    report.pending = pending.collect();
                }
            }
            reports.push((member, report));
        }
        reports
    }

    /// Has state stored; returns in how many parts.
    fn store(
        &self,
        barrier: u64,
        member: usize,
        of: u32,
        watermark: Option<i64>,
        state: StateSnapshot,
    ) -> usize {
        let (node, instance) = self.members.members[member];
        let mut pieces: Vec<Vec<RecordBatch>> = Vec::new();
        for batch in state.batches {
            // A part has one schema.
            match pieces.last_mut() {
                Some(piece) if piece[0].schema() == batch.schema() => piece.push(batch),
                _ => pieces.push(vec![batch]),
            }
        }
        if pieces.is_empty() {
            // A part without rows says the watermark all the same.
            pieces.push(vec![RecordBatch::new_empty(Arc::new(Schema::empty()))]);
        }
        let count = pieces.len();
        self.give(Job::Store(Box::new(StoreJob {
            barrier,
            since: state.since,
            member,
            node: self.members.nodes[node].key.clone(),
            instance,
            owners: (!state.has_moved).then_some(of),
            watermark,
            pieces,
        })));
        count
    }

    /// Commits everything that was prepared up to a barrier, in its order, and tells sources how far they
    /// are stored.
    pub fn commit(&mut self, barrier: u64) {
        for (of, node, resume) in std::mem::take(&mut self.read) {
            if of > barrier {
                self.read.push((of, node, resume));
            } else if let Some(connector) = self.connectors.get(&node) {
                for partition in &resume {
                    connector.stored(&partition.name, partition.position);
                }
            }
        }
        let mut commits = Vec::new();
        for (&member, pending) in &self.pending {
            let ready = pending.iter().filter(|(of, _)| *of <= barrier);
            commits.extend(ready.map(|(_, prepared)| (member, prepared.clone())));
        }
        self.give(Job::Commit { barrier, commits });
    }

    /// Takes in what its thread has done; returns what the keeper is told.
    pub fn done(&mut self, done: Done) -> Word {
        match done {
            Done::Word(word) => word,
            Done::Committed { barrier, commits } => {
                let now_ns = now_ns();
                let delays_ns = commits
                    .iter()
                    .filter_map(|(_, prepared)| prepared.ingest_ns);
                let delays_ns = delays_ns
                    .map(|at_ns| now_ns.saturating_sub(at_ns))
                    .collect();
                for (member, prepared) in &commits {
                    if let Some(pending) = self.pending.get_mut(member) {
                        pending.retain(|(_, known)| known != prepared);
                    }
                }
                // Also those that had nothing left: an earlier commit may have been all of it.
                let members = self.pending.keys().copied().collect();
                Word::Committed {
                    barrier,
                    members,
                    delays_ns,
                }
            }
        }
    }

    fn give(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // The thread ends only with the agent.
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Agent {
    /// Waits for what is being stored: nothing of this incarnation is written after it.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the agent's thread works with.
struct Clerk {
    writer: PartWriter,
    runner: Runner,
    /// The connectors of sinks, by index of the node.
    sinks: Vec<Option<Arc<dyn SinkConnector>>>,
    node_of: Vec<usize>,
}

impl Clerk {
    fn work(&self, job: Job, done: &impl Fn(Done)) {
        match job {
            Job::Store(job) => self.store(&job, done),
            Job::Secure { prepared, word } => {
                let secured = self.for_each(&prepared, |sink, text| sink.secure(text));
                let word = match (secured, *word) {
                    (Ok(()), word) => word,
                    // The next checkpoint has it pending, too.
                    (Err(reason), Word::Taken { barrier, .. }) => Word::Failed { barrier, reason },
                    (Err(reason), _) => Word::NotCommitted { reason },
                };
                done(Done::Word(word));
            }
            Job::Commit {
                barrier,
                mut commits,
            } => {
                // What may be lost comes first: when it is, the checkpoint before is used, and nothing
                // of this one may be seen anywhere.
                commits.sort_by_key(|(member, _)| {
                    let sink = self.sinks[self.node_of[*member]].as_ref();
                    !sink.is_some_and(|sink| sink.capabilities().may_lose_prepared)
                });
                if let Err(reason) = self.for_each(&commits, |sink, text| sink.commit(text)) {
                    done(Done::Word(Word::NotCommitted { reason }));
                    return;
                }
                done(Done::Committed { barrier, commits });
            }
        }
    }

    /// Does something with what sinks have prepared, in order.
    fn for_each(
        &self,
        prepared: &[(usize, Prepared)],
        act: impl Fn(&dyn SinkConnector, &str) -> slackwater_engine::Result<()>,
    ) -> std::result::Result<(), String> {
        for (member, prepared) in prepared {
            if let Some(sink) = &self.sinks[self.node_of[*member]] {
                act(&**sink, &prepared.commit).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    fn store(&self, job: &StoreJob, done: &impl Fn(Done)) {
        for (piece, batches) in job.pieces.iter().enumerate() {
            let request = PartRequest {
                barrier: job.barrier,
                since: job.since,
                node: &job.node,
                instance: job.instance,
                piece: piece as u32,
                buckets: (0, BUCKETS as u32 - 1),
                owners: job.owners,
                watermark: job.watermark,
            };
            let word = match self.runner.run(self.writer.put(&request, batches)) {
                Ok(part) => Word::Stored {
                    barrier: job.barrier,
                    member: job.member,
                    part,
                },
                Err(error) => Word::Failed {
                    barrier: job.barrier,
                    reason: error.to_string(),
                },
            };
            done(Done::Word(word));
        }
    }
}
