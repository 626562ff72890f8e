//! A process's part in checkpoints: it stores what its instances had at a cut, and commits what its sinks
//! have prepared, on a thread of its own, so that no worker waits for a disk or a broker.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use serde_json::Value;
use slackwater_checkpoint::coordinator::Report;
use slackwater_checkpoint::{PartWriter, Runner, Store};
use slackwater_engine::checkpoint::{Prepared, Slice, Snapshot, StateSnapshot};
use slackwater_engine::counters::clock;
use slackwater_engine::deploy::{Deployment, InstancePlan};
use slackwater_engine::protocol::{Attached, WorkerEvent};
use slackwater_engine::source::{Resume, SourceConnector};
use slackwater_sql::program::Program;

use super::{Incarnation, Members, partitions_of};
use thread::{AgentThread, Standby};

mod event;
mod thread;

pub use event::AgentEvent;

/// Jobs of a member that may wait for the agent's thread: a checkpoint has one at most to store or to
/// secure, one is under way at a time, and three may have been given up while a slow store still works.
const JOBS_PER_MEMBER_MAX: usize = 4;

/// What the agent's thread reports to the agent.
#[derive(Debug)]
pub enum JobDone {
    /// An event for the coordinator.
    Report(AgentEvent),
    /// Everything that was prepared up to a barrier is committed.
    Committed {
        /// The barrier.
        barrier: u64,
        /// The commits, with their members.
        commits: Vec<(usize, Prepared)>,
    },
}

enum Job {
    /// What changes is stored by the standby of the state in this folder from now on; by this process if
    /// there is none.
    Follow(Option<PathBuf>),
    Store(Box<StoreJob>),
    /// Makes what sinks have prepared durable, and then reports the event.
    Secure {
        prepared: Vec<(usize, Prepared)>,
        event: Box<AgentEvent>,
    },
    Commit {
        barrier: u64,
        commits: Vec<(usize, Prepared)>,
    },
}

/// How state is stored.
enum How {
    /// By this process.
    Own,
    /// By this process, at the end of its member.
    Last,
    /// By the standby, if it does: what the member reports, and how long its instance was paused.
    Relayed(Report, u64),
}

struct StoreJob {
    barrier: u64,
    since: Option<u64>,
    member: usize,
    node: String,
    instance: u32,
    owners: Option<u32>,
    watermark: Option<i64>,
    batches: Vec<RecordBatch>,
    /// What follows the batches.
    slices: Option<mpsc::Receiver<Slice>>,
    /// The number of parts that the coordinator waits for.
    parts: usize,
    /// Whether the member has ended.
    is_last: bool,
    /// If a standby may store it: what the member reports, and how long its instance was paused. That is
    /// passed on when it is stored, because only then the number of parts is known.
    report: Option<(Report, u64)>,
}

/// The agent of this process: stores the snapshots of its instances and reports to the coordinator.
pub struct CheckpointAgent {
    members: Arc<Members>,
    /// The stateful node at the head of each instance, and how many instances its subquery has.
    heads: Vec<(Option<usize>, u32)>,
    /// The source of each instance.
    sources: Vec<Option<usize>>,
    index: Vec<usize>,
    /// What each member's sink has prepared but not committed, with the barrier.
    pending: HashMap<usize, Vec<(u64, Prepared)>>,
    /// The positions of sources at barriers that may not be stored yet, with the nodes.
    read: Vec<(u64, usize, Vec<Resume>)>,
    connectors: HashMap<usize, Arc<dyn SourceConnector>>,
    /// Whether a standby stores what changes.
    follows: bool,
    /// Held as long as the thread should wait for slices.
    alive: Option<Arc<()>>,
    jobs: Option<mpsc::SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl CheckpointAgent {
    /// Starts the agent of an incarnation; its thread calls `done` for each finished job.
    ///
    /// # Errors
    ///
    /// If the store can't be opened or the thread can't be started.
    pub fn start(
        incarnation: &Incarnation,
        program: &Program,
        deployment: &Deployment,
        members: Arc<Members>,
        done: impl Fn(JobDone) + Send + 'static,
    ) -> std::result::Result<CheckpointAgent, String> {
        let store = Store::open(&incarnation.place).map_err(|error| error.to_string())?;
        let runner = Runner::new().map_err(|error| error.to_string())?;
        let sinks = members
            .graph_nodes
            .iter()
            .map(|&node| Some(program.nodes[node].as_sink()?.connector.clone()));
        let alive = Arc::new(());
        let mut thread_state = AgentThread {
            epoch: incarnation.epoch,
            store: store.clone(),
            writer: PartWriter::new(store, incarnation.epoch),
            standby: Standby::default(),
            spare: RefCell::default(),
            runner,
            sinks: sinks.collect(),
            node_of: members.members.iter().map(|(node, _)| *node).collect(),
            agent: Arc::downgrade(&alive),
        };
        // One job for each member, and a commit.
        let jobs_max = JOBS_PER_MEMBER_MAX * (members.members.len() + 1);
        let (jobs, queue) = mpsc::sync_channel(jobs_max);
        let thread = std::thread::Builder::new()
            .name("checkpoints".to_string())
            .spawn(move || {
                while let Ok(job) = queue.recv() {
                    thread_state.work(job, &done);
                }
            })
            .map_err(|error| format!("can't start a thread: {error}"))?;
        // A replayable source need not know what is stored.
        let connectors = program.sources();
        let connectors = connectors.filter(|(_, source)| !source.connector.describe().replayable);
        let connectors = connectors.map(|(node, source)| (node, source.connector.clone()));
        let instances = deployment.instances.iter();
        let heads = instances.clone().map(|instance| {
            let head = instance.steps.first().map(|step| step.node);
            let is_stateful = |node: &usize| {
                let spec = &program.nodes[*node];
                !spec.is_sink() && !spec.is_source()
            };
            (head.filter(is_stateful), instance.instances as u32)
        });
        let sources = instances.clone().map(InstancePlan::source);
        Ok(CheckpointAgent {
            heads: heads.collect(),
            sources: sources.collect(),
            index: instances.map(|instance| instance.index).collect(),
            members,
            pending: HashMap::new(),
            read: Vec::new(),
            connectors: connectors.collect(),
            follows: false,
            alive: Some(alive),
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Handles an event and the snapshot that came with it; returns what to tell the coordinator at once.
    pub fn hear(&mut self, event: &WorkerEvent, attached: Attached) -> Vec<AgentEvent> {
        match (event, attached) {
            (WorkerEvent::Changed, _) => vec![AgentEvent::Changed],
            (WorkerEvent::Snapshot { instance }, Attached::Snapshot(snapshot)) => {
                self.snapshot(*instance, *snapshot)
            }
            (WorkerEvent::Ended { instance, .. }, Attached::Snapshot(last)) => {
                self.ended(*instance, *last)
            }
            _ => Vec::new(),
        }
    }

    fn snapshot(&mut self, instance: usize, snapshot: Snapshot) -> Vec<AgentEvent> {
        let barrier = snapshot.barrier;
        let counted = AgentEvent::Counted {
            barrier,
            instance,
            has_ended: false,
            counts: snapshot.counts.clone(),
        };
        let taken_ns = snapshot.state.as_ref().map_or(0, |state| state.taken_ns);
        let (reports, mut failed) = self.reports(instance, snapshot, barrier);
        let events = reports
            .into_iter()
            .map(|(member, report)| AgentEvent::Taken {
                barrier,
                member,
                report,
                taken_ns,
            });
        // Before the manifest can be stored.
        let mut told = vec![counted];
        told.append(&mut self.secured(events.collect()));
        told.append(&mut failed);
        told
    }

    fn ended(&mut self, instance: usize, last: Snapshot) -> Vec<AgentEvent> {
        let last_barrier = last.barrier;
        let counted = AgentEvent::Counted {
            barrier: last_barrier,
            instance,
            has_ended: true,
            counts: last.counts.clone(),
        };
        // What was prepared or is stored at the end belongs to the next barrier.
        let (reports, failed) = self.reports(instance, last, last_barrier + 1);
        let events = reports
            .into_iter()
            .map(|(member, report)| AgentEvent::Ended {
                member,
                last_barrier,
                report,
            });
        let mut told = vec![counted];
        told.append(&mut self.secured(events.collect()));
        told.extend(failed.into_iter().map(|event| match event {
            AgentEvent::Failed { reason, .. } => AgentEvent::NotCommitted { reason },
            event => event,
        }));
        told
    }

    /// The events that can be reported at once. Events of sinks have to wait until what the sinks have
    /// prepared is durable, for this checkpoint or for an earlier one at which that failed.
    fn secured(&self, events: Vec<AgentEvent>) -> Vec<AgentEvent> {
        let mut at_once = Vec::new();
        for event in events {
            let (AgentEvent::Taken { member, .. } | AgentEvent::Ended { member, .. }) = event
            else {
                continue;
            };
            let pending = self.pending.get(&member).into_iter().flatten();
            let prepared = pending.map(|(_, prepared)| (member, prepared.clone()));
            let prepared = prepared.collect::<Vec<_>>();
            if prepared.is_empty() {
                at_once.push(event);
                continue;
            }
            let event = Box::new(event);
            if let Err(Job::Secure { event, .. }) = self.give(Job::Secure { prepared, event }) {
                at_once.push(not_secured(*event, too_slow()));
            }
        }
        at_once
    }

    /// The report of each member of an instance, and what could not be stored.
    fn reports(
        &mut self,
        instance: usize,
        snapshot: Snapshot,
        prepared_for: u64,
    ) -> (Vec<(usize, Report)>, Vec<AgentEvent>) {
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
        let (mut reports, mut failed) = (Vec::new(), Vec::new());
        if let Some(member) = source {
            let report = Report {
                partitions,
                watermark,
                ..Report::default()
            };
            reports.push((member, report));
        }
        let members = self.members.instances.iter().enumerate();
        let own = members.filter(|(_, number)| **number == instance);
        let own = own
            .map(|(member, _)| member)
            .filter(|&member| Some(member) != source);
        let (head, owners) = self.heads[instance];
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
                    let barrier = prepared_for;
                    let is_last = barrier > snapshot.barrier;
                    let is_relayed = self.follows && state.since.is_some() && !is_last;
                    let how = match (is_last, is_relayed) {
                        (true, _) => How::Last,
                        (false, true) => How::Relayed(report.clone(), state.taken_ns),
                        (false, false) => How::Own,
                    };
                    match self.store(barrier, member, owners, watermark, state, how) {
                        // The thread reports it.
                        Some(_) if is_relayed => continue,
                        Some(parts) => report.parts = parts,
                        None => failed.push(AgentEvent::Failed {
                            barrier,
                            reason: too_slow(),
                        }),
                    }
                }
                None => {
                    let pending = self.pending.get(&member).into_iter().flatten();
                    let pending = pending.map(|(_, prepared)| Value::from(&*prepared.commit));
                    report.pending = pending.collect();
                }
            }
            reports.push((member, report));
        }
        (reports, failed)
    }

    /// Queues state to be stored; returns the number of parts, or `None` if too many jobs wait for the store.
    fn store(
        &self,
        barrier: u64,
        member: usize,
        owners: u32,
        watermark: Option<i64>,
        state: StateSnapshot,
        how: How,
    ) -> Option<usize> {
        let (node, instance) = self.members.members[member];
        // A part has batches with the same columns; one without rows still carries the watermark.
        let mut schemas = Vec::<&SchemaRef>::new();
        for batch in &state.batches {
            if !schemas.contains(&batch.schema_ref()) {
                schemas.push(batch.schema_ref());
            }
        }
        let parts = match state.slices {
            Some(_) => state.layouts,
            None => schemas.len().max(1),
        };
        let given = self.give(Job::Store(Box::new(StoreJob {
            barrier,
            since: state.since,
            member,
            node: self.members.nodes[node].key.clone(),
            instance,
            owners: (!state.has_moved).then_some(owners),
            watermark,
            batches: state.batches,
            slices: state.slices,
            parts,
            is_last: matches!(how, How::Last),
            report: match how {
                How::Relayed(report, taken_ns) => Some((report, taken_ns)),
                How::Own | How::Last => None,
            },
        })));
        given.is_ok().then_some(parts)
    }

    /// The standby of the state in this folder is to store what changes, or none.
    pub fn follow(&mut self, folder: Option<PathBuf>) {
        self.follows = folder.is_some();
        // If the queue is full, the thread stores itself: it has no connection then.
        let _ = self.give(Job::Follow(folder));
    }

    /// Commits everything that was prepared up to a barrier, in order, and tells sources up to where their
    /// rows are stored. Returns what to tell the coordinator at once.
    pub fn commit(&mut self, barrier: u64) -> Option<AgentEvent> {
        for (at, node, resume) in std::mem::take(&mut self.read) {
            if at > barrier {
                self.read.push((at, node, resume));
            } else if let Some(connector) = self.connectors.get(&node) {
                for partition in &resume {
                    connector.stored(&partition.name, partition.position);
                }
            }
        }
        let mut commits = Vec::new();
        for (&member, pending) in &self.pending {
            let ready = pending.iter().filter(|(at, _)| *at <= barrier);
            commits.extend(ready.map(|(_, prepared)| (member, prepared.clone())));
        }
        let given = self.give(Job::Commit { barrier, commits });
        given
            .is_err()
            .then(|| AgentEvent::NotCommitted { reason: too_slow() })
    }

    /// Handles a finished job of the thread; returns what to tell the coordinator.
    pub fn done(&mut self, done: JobDone) -> AgentEvent {
        match done {
            JobDone::Report(event) => event,
            JobDone::Committed { barrier, commits } => {
                let now_ns = clock::stamp_now();
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
                // Including members with nothing left to commit: an earlier commit may have had all of it.
                let members = self.pending.keys().copied().collect();
                AgentEvent::Committed {
                    barrier,
                    members,
                    delays_ns,
                }
            }
        }
    }

    /// Hands a job to the thread, or back if too many are waiting: this never waits for a disk.
    fn give(&self, job: Job) -> std::result::Result<(), Job> {
        match self.jobs.as_ref().map(|jobs| jobs.try_send(job)) {
            Some(Err(mpsc::TrySendError::Full(job))) => Err(job),
            // The thread ends only with the agent.
            Some(Err(mpsc::TrySendError::Disconnected(_)) | Ok(())) | None => Ok(()),
        }
    }
}

fn too_slow() -> String {
    "the checkpoint store is too slow: too many writes are already waiting for it".to_string()
}

/// The event that replaces one whose sink could not make its rows durable.
fn not_secured(event: AgentEvent, reason: String) -> AgentEvent {
    match event {
        // It stays pending for the next checkpoint.
        AgentEvent::Taken { barrier, .. } => AgentEvent::Failed { barrier, reason },
        _ => AgentEvent::NotCommitted { reason },
    }
}

impl Drop for CheckpointAgent {
    /// Waits for the thread: this incarnation writes nothing afterwards.
    fn drop(&mut self) {
        (self.alive, self.jobs) = (None, None);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
