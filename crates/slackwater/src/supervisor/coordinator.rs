//! Takes the checkpoints of one incarnation, as the pure coordinator decides: it sends barriers to the
//! sources, manifests to the store and commits to the sinks.

mod cuts;
mod figures;
mod jobs;
mod traced;

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use slackwater_checkpoint::coordinator::{self, Costs, Input, Output, Plan, Settings};
use slackwater_checkpoint::manifest::{Manifest, Partition};
use slackwater_checkpoint::{CheckpointWriter, Runner};
use slackwater_engine::barrier::{Barrier, Purpose};
use slackwater_engine::counters::CutCounts;
use slackwater_engine::hash::BUCKETS;
use slackwater_engine::protocol::Command;
use slackwater_engine::time::now_ns;

use crate::checkpoints::{AgentEvent, Members, Suspected};
use crate::hosts::{Execution, HostCommand};
use crate::traces::Traces;
use cuts::Cuts;
use jobs::{Job, work};

/// The number of checkpoints that are kept: one to resume from, and two in case it is corrupt.
const KEPT: usize = 3;

/// The most jobs that may wait for the store's thread: before the next checkpoint starts, a manifest is put
/// or a failure is examined, and each is followed by one sweep.
const JOBS_MAX: usize = 16;

/// A finished job of the store's thread.
#[derive(Debug)]
pub enum Stored {
    /// A manifest is stored.
    Manifest {
        /// The barrier.
        barrier: u64,
        /// The checkpoint's number.
        number: u64,
    },
    /// A manifest could not be stored.
    Failed {
        /// The barrier.
        barrier: u64,
        /// The reason.
        reason: String,
    },
    /// Old checkpoints are removed, or the reason why not.
    Swept(Option<String>),
    /// A later incarnation has started.
    Fenced(String),
    /// The incarnation may continue; the reason why no checkpoint was taken.
    Checked(String),
}

/// The state of an incarnation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It continues.
    Running,
    /// Everything is committed, and the query has finished.
    Finished,
    /// It was stopped, and everything that was read before is saved.
    Saved,
    /// It has to be restarted.
    Failed(String),
    /// It can't continue.
    Fatal(String),
}

/// Takes the checkpoints of one incarnation.
pub struct Coordinator {
    decides: coordinator::Coordinator,
    members: Arc<Members>,
    jobs: Option<mpsc::SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// The barrier that stops the query.
    stop: Option<u64>,
    /// Commits that processes have not answered yet, by barrier, with the checkpoint's number.
    committing: Vec<(u64, usize, u64)>,
    /// The number of the newest checkpoint that is committed.
    committed: Option<u64>,
    /// The last barrier whose manifest is stored.
    stored: Option<u64>,
    /// When that was.
    stored_at: Option<SystemTime>,
    verdict: Verdict,
    is_once: bool,
    /// Rows that processes were working on when they died.
    suspects: Vec<Suspected>,
    /// The number of the last checkpoint.
    last: Option<u64>,
    warned: BTreeSet<String>,
    stall_max_ns: u64,
    delays: Delays,
    /// The rows that instances had counted at barriers.
    cuts: Cuts,
    traces: Traces,
    /// The checkpoint that is being taken, and since when.
    taking: Option<(u64, SystemTime)>,
}

/// Times from a row's arrival to its commit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Delays {
    /// The number of commits.
    pub count: u64,
    /// The sum of the times, in nanoseconds.
    pub sum_ns: u64,
    /// The longest time, in nanoseconds.
    pub max_ns: u64,
}

impl Coordinator {
    /// Starts the coordinator of an incarnation; its thread calls `done` for finished jobs. With `is_once`,
    /// the incarnation fails with the first failed checkpoint.
    ///
    /// # Errors
    ///
    /// If the thread can't be started.
    pub fn start(
        writer: CheckpointWriter,
        interval_ns: u64,
        is_once: bool,
        members: Arc<Members>,
        restored: Option<&Manifest>,
        traces: Traces,
        done: impl Fn(Stored) + Send + 'static,
    ) -> Result<Coordinator, String> {
        let partitions = |(index, key): (usize, &str)| {
            // Otherwise closed connections would stay in all later checkpoints.
            let restored = restored.filter(|_| !members.transient[index]);
            let node = restored.and_then(|manifest| manifest.node(key));
            let partitions = node.into_iter().flat_map(|node| node.partitions.clone());
            partitions
                .map(|partition| (index, partition))
                .collect::<Vec<(usize, Partition)>>()
        };
        let keys = members.nodes.iter().map(|node| &*node.key).enumerate();
        let plan = Plan {
            buckets: BUCKETS as u32,
            nodes: members.nodes.clone(),
            members: members.members.clone(),
            restored: keys.flat_map(partitions).collect(),
        };
        let settings = Settings {
            interval_ns,
            failures_max: match is_once {
                true => 0,
                false => Settings::default().failures_max,
            },
            ..Settings::default()
        };
        let runner = Runner::new().map_err(|error| error.to_string())?;
        let (jobs, queue) = mpsc::sync_channel(JOBS_MAX);
        let mut writer = writer;
        let thread = std::thread::Builder::new()
            .name("manifests".to_string())
            .spawn(move || {
                while let Ok(job) = queue.recv() {
                    done(work(&runner, &mut writer, job));
                }
            })
            .map_err(|error| format!("can't start a thread: {error}"))?;
        Ok(Coordinator {
            decides: coordinator::Coordinator::new(settings, plan),
            members,
            jobs: Some(jobs),
            thread: Some(thread),
            stop: None,
            committing: Vec::new(),
            committed: restored.map(|manifest| manifest.number),
            stored: None,
            stored_at: None,
            verdict: Verdict::Running,
            is_once,
            suspects: Vec::new(),
            last: restored.map(|manifest| manifest.number),
            warned: BTreeSet::new(),
            stall_max_ns: 0,
            delays: Delays::default(),
            cuts: Cuts::default(),
            traces,
            taking: None,
        })
    }

    /// The state of the incarnation.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Rows that processes were working on when they died.
    pub fn suspects(&self) -> &[Suspected] {
        &self.suspects
    }

    /// Whether a barrier is on its way, so no buckets may start to move.
    pub fn is_taking(&self) -> bool {
        self.decides.in_flight().is_some()
    }

    /// The costs of checkpoints.
    pub fn costs(&self) -> &Costs {
        self.decides.costs()
    }

    /// The number of the last checkpoint.
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    /// The longest pause of an instance for its snapshot, in nanoseconds.
    pub fn stall_max_ns(&self) -> u64 {
        self.stall_max_ns
    }

    /// How long rows waited to be committed.
    pub fn delays(&self) -> Delays {
        self.delays
    }

    /// The rows that instances had counted at the barriers of the last checkpoints.
    pub fn counted(&self) -> impl Iterator<Item = &(u64, Vec<(usize, CutCounts)>)> {
        self.cuts.all()
    }

    /// The time until the next call of [`Coordinator::tick`]; `None` while there is nothing to wait for.
    pub fn next(&self) -> Option<Duration> {
        let due_ns = self.decides.next_ns()?;
        Some(Duration::from_nanos(due_ns.saturating_sub(now_ns())))
    }

    /// Handles the passing of time.
    pub fn tick(&mut self, host: &Execution) {
        self.tell(Input::Tick, host);
    }

    /// A standby follows, or none does: then what changes is stored every `interval_ns`, by the standby if
    /// `is_relayed`.
    pub fn set_standby(&mut self, interval_ns: u64, is_relayed: bool, host: &Execution) {
        self.decides.set_interval(interval_ns);
        self.decides.set_relayed(is_relayed);
        self.tick(host);
    }

    /// Stops the query with one more checkpoint, after which sources end. Returns whether that is in
    /// progress.
    pub fn stop(&mut self, host: &Execution) -> bool {
        if self.verdict != Verdict::Running {
            return false;
        }
        self.tell(Input::Stop, host);
        true
    }

    /// Buckets of a node of the query graph are about to move.
    pub fn moved(&mut self, graph_node: usize, host: &Execution) {
        if let Some(key) = self.members.key(graph_node) {
            let node = key.to_string();
            self.tell(Input::Moved { node }, host);
        }
    }

    /// Handles an event of an agent.
    pub fn hear(&mut self, event: AgentEvent, host: &Execution) {
        self.stall_max_ns = self.stall_max_ns.max(event.paused_ns());
        let input = match event {
            AgentEvent::Changed => Input::Changed,
            AgentEvent::Taken {
                barrier,
                member,
                report,
                ..
            } => Input::Done {
                barrier,
                member,
                report,
            },
            AgentEvent::Ended {
                member,
                last_barrier,
                report,
            } => Input::Ended {
                member,
                last_barrier,
                report,
            },
            AgentEvent::Stored {
                barrier,
                member,
                part,
                ..
            } => Input::PartStored {
                barrier,
                member,
                part,
            },
            AgentEvent::Failed { barrier, reason } => Input::Failed { barrier, reason },
            AgentEvent::Committed {
                barrier,
                members,
                delays_ns,
            } => {
                self.committed(barrier, &members, &delays_ns, host);
                return;
            }
            AgentEvent::Counted {
                barrier,
                instance,
                has_ended,
                counts,
            } => {
                self.cuts.add(barrier, instance, has_ended, counts);
                return;
            }
            AgentEvent::Suspects(mut suspects) => {
                self.suspects.append(&mut suspects);
                return;
            }
            AgentEvent::NotCommitted { reason } => {
                self.fail(Verdict::Failed(reason));
                return;
            }
        };
        self.tell(input, host);
    }

    fn committed(&mut self, barrier: u64, members: &[usize], delays_ns: &[u64], host: &Execution) {
        for &delay_ns in delays_ns {
            self.delays.count += 1;
            self.delays.sum_ns += delay_ns;
            self.delays.max_ns = self.delays.max_ns.max(delay_ns);
        }
        for (at, missing, number) in &mut self.committing {
            if *at == barrier {
                *missing = missing.saturating_sub(1);
                if *missing == 0 {
                    self.committed = self.committed.max(Some(*number));
                }
            }
        }
        self.committing.retain(|(_, missing, _)| *missing > 0);
        for &member in members {
            self.tell(Input::Committed { barrier, member }, host);
        }
        self.look_whether_saved();
    }

    /// Handles a finished job of the store's thread.
    pub fn stored(&mut self, stored: Stored, host: &Execution) {
        match stored {
            Stored::Manifest { barrier, number } => {
                self.last = Some(number);
                self.stored = Some(barrier);
                self.stored_at = Some(SystemTime::now());
                self.trace(barrier, Some(number), None);
                self.tell(Input::ManifestStored { barrier }, host);
                self.look_whether_saved();
            }
            Stored::Failed { barrier, reason } => {
                self.tell(Input::Failed { barrier, reason }, host);
            }
            Stored::Fenced(reason) => {
                self.fail(Verdict::Fatal(reason.clone()));
                self.tell(Input::Fenced { reason }, host);
            }
            Stored::Swept(None) => {}
            Stored::Checked(reason) => self.warn(format!("no checkpoint was taken: {reason}")),
            Stored::Swept(Some(reason)) => {
                self.warn(format!("old checkpoints can't be removed: {reason}"));
            }
        }
    }

    fn look_whether_saved(&mut self) {
        let Some(barrier) = self.stop else {
            return;
        };
        let is_stored = self.stored.is_some_and(|stored| stored >= barrier);
        if is_stored && self.committing.is_empty() && self.verdict == Verdict::Running {
            self.verdict = Verdict::Saved;
        }
    }

    fn tell(&mut self, input: Input, host: &Execution) {
        for output in self.decides.handle(now_ns(), input) {
            self.act(output, host);
        }
    }

    fn act(&mut self, output: Output, host: &Execution) {
        match output {
            Output::Inject {
                barrier,
                since,
                bases,
                stops,
            } => {
                if stops {
                    self.stop = Some(barrier);
                }
                self.taking = Some((barrier, SystemTime::now()));
                let bases = bases
                    .iter()
                    .map(|&member| self.members.instances[member] as u32);
                let bases = bases.collect::<BTreeSet<u32>>().into_iter().collect();
                let barrier = Barrier {
                    number: barrier,
                    purpose: Purpose::Checkpoint {
                        since,
                        bases,
                        stops,
                    },
                };
                host.tell(HostCommand::Workers(Command::Barrier(barrier)));
            }
            Output::Store(manifest) => {
                self.cuts.store(manifest.barrier, KEPT);
                self.give(Job::Put(manifest));
            }
            Output::Commit { barrier } => {
                let number = self.last.unwrap_or(0);
                self.committing.push((barrier, host.agents(), number));
                host.tell(HostCommand::Commit { barrier });
            }
            Output::Abort { reason: None, .. } => {}
            Output::Abort {
                barrier,
                reason: Some(reason),
            } => {
                self.give(Job::Check(reason.clone()));
                self.trace(barrier, None, Some(reason.clone()));
                if self.stop == Some(barrier) {
                    // The sources have ended, so there will be no other checkpoint.
                    self.fail(Verdict::Fatal(format!(
                        "stopped, but what the query did since checkpoint {} is not saved: {reason}",
                        self.last.unwrap_or(0)
                    )));
                }
            }
            Output::Sweep => {
                // What sinks still have to commit may be lost, so one committed checkpoint is kept. Until
                // there is one, the stored ones show which was the first.
                if let Some(committed) = self.committed {
                    self.give(Job::Sweep(committed));
                }
            }
            Output::Finished => self.verdict = Verdict::Finished,
            Output::Stop { reason } if self.is_once => {
                self.fail(Verdict::Failed(reason));
            }
            Output::Stop { reason } => self.fail(Verdict::Fatal(reason)),
        }
    }

    fn fail(&mut self, verdict: Verdict) {
        if self.verdict == Verdict::Running {
            self.verdict = verdict;
        }
    }

    /// Prints a warning once.
    fn warn(&mut self, warning: String) {
        if self.warned.insert(warning.clone()) {
            eprintln!("warning: {warning}");
        }
    }

    fn give(&mut self, job: Job) {
        let given = self.jobs.as_ref().map(|jobs| jobs.try_send(job));
        // The thread ends only with the coordinator.
        if let Some(Err(mpsc::TrySendError::Full(_))) = given {
            self.fail(Verdict::Failed(format!(
                "the checkpoint store is too slow: {JOBS_MAX} jobs are waiting for it"
            )));
        }
    }
}

impl Drop for Coordinator {
    /// Waits for what is being stored.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
