//! What a checkpoint agent's thread does: it stores, secures and commits, and may wait for a disk or a
//! broker meanwhile.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use slackwater_checkpoint::manifest::Part;
use slackwater_checkpoint::{OpenPart, PartRequest, PartWriter, Runner, Store};
use slackwater_engine::checkpoint::{Prepared, Slice};
use slackwater_engine::hash::BUCKETS;
use slackwater_engine::sink::SinkConnector;

use super::{AgentEvent, Job, JobDone, StoreJob, not_secured};
use crate::checkpoints::Shelf;

/// The agent's thread.
pub(super) struct AgentThread {
    pub(super) epoch: u64,
    pub(super) store: Store,
    pub(super) writer: PartWriter,
    /// The standby that stores what changes.
    pub(super) standby: Standby,
    /// Memory of parts that were stored.
    pub(super) spare: RefCell<Vec<Vec<u8>>>,
    pub(super) runner: Runner,
    /// The connectors of sinks, by index of the node.
    pub(super) sinks: Vec<Option<Arc<dyn SinkConnector>>>,
    pub(super) node_of: Vec<usize>,
    /// Gone when the agent is about to end.
    pub(super) agent: Weak<()>,
}

/// The most pieces of memory that are kept for the parts of the next checkpoint.
const SPARE_MAX: usize = 4;

/// How long after a standby has not stored something it is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// The standby that stores what changes, if one follows.
#[derive(Default)]
pub(super) struct Standby {
    /// The folder in which it is found.
    folder: Option<PathBuf>,
    shelf: Option<Shelf>,
    /// When it has last failed.
    failed: Option<Instant>,
}

impl Standby {
    /// Has it store parts; returns all that the checkpoint gets, or `None` if it doesn't.
    fn store(&mut self, epoch: u64, node: &str, parts: &[(Part, Vec<u8>)]) -> Option<Vec<Part>> {
        if self
            .failed
            .is_some_and(|failed| failed.elapsed() < ASK_AGAIN)
        {
            return None;
        }
        if self.shelf.is_none() {
            self.shelf = Shelf::connect(self.folder.as_ref()?).ok();
        }
        let stored = self.shelf.as_ref()?.store(epoch, node, parts).ok();
        if stored.is_none() {
            (self.shelf, self.failed) = (None, Some(Instant::now()));
        }
        stored
    }
}

/// How often the thread checks, while it waits for a slice, whether its agent is about to end: then the
/// slices may never come.
const SLICE_PATIENCE: Duration = Duration::from_millis(50);

impl AgentThread {
    /// Does a job.
    pub(super) fn work(&mut self, job: Job, done: &impl Fn(JobDone)) {
        match job {
            // On another host there is no such socket, and what changes is stored from here.
            Job::Follow(folder) => {
                self.standby = Standby {
                    folder,
                    ..Standby::default()
                }
            }
            Job::Store(job) if job.report.is_some() => self.relay(&job, done),
            Job::Store(job) => self.store(&job, done),
            Job::Secure { prepared, event } => {
                let secured = self.for_each(&prepared, |sink, text| sink.secure(text));
                done(JobDone::Report(match secured {
                    Ok(()) => *event,
                    Err(reason) => not_secured(*event, reason),
                }));
            }
            Job::Commit {
                barrier,
                mut commits,
            } => {
                // What may be lost is committed first: if it is lost, the previous checkpoint is used, and
                // nothing of this one may be visible anywhere.
                commits.sort_by_key(|(member, _)| {
                    let sink = self.sinks[self.node_of[*member]].as_ref();
                    !sink.is_some_and(|sink| sink.capabilities().may_lose_prepared)
                });
                if let Err(reason) = self.for_each(&commits, |sink, text| sink.commit(text)) {
                    done(JobDone::Report(AgentEvent::NotCommitted { reason }));
                    return;
                }
                done(JobDone::Committed { barrier, commits });
            }
        }
    }

    /// Calls `with` for everything that sinks have prepared, in order.
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

    /// Stores the parts of a job, with the slices that follow its batches.
    fn store(&self, job: &StoreJob, done: &impl Fn(JobDone)) {
        // A member that has ended can't store its state again.
        let failed = |reason: String| match job.is_last {
            true => AgentEvent::NotCommitted { reason },
            false => AgentEvent::Failed {
                barrier: job.barrier,
                reason,
            },
        };
        let written = self.write(job);
        let (parts, longest_ns) = match written {
            Ok(written) => written,
            Err(reason) => return done(JobDone::Report(failed(reason))),
        };
        for part in parts {
            let stored = self.runner.run(part.finish());
            let event = match stored {
                Ok(part) => AgentEvent::Stored {
                    longest_ns,
                    barrier: job.barrier,
                    member: job.member,
                    part,
                },
                Err(error) => failed(error.to_string()),
            };
            done(JobDone::Report(event));
        }
    }

    /// Has the standby store the parts of a job, or stores them if it doesn't.
    fn relay(&mut self, job: &StoreJob, done: &impl Fn(JobDone)) {
        let stored = self.write(job).and_then(|(parts, longest_ns)| {
            let encoded = parts.into_iter().map(OpenPart::encode);
            let encoded = encoded.collect::<slackwater_checkpoint::Result<Vec<_>>>();
            let encoded = encoded.map_err(|error| error.to_string())?;
            if let Some(parts) = self.standby.store(self.epoch, &job.node, &encoded) {
                // The largest are needed first, and are taken from the end.
                let spare = self.spare.get_mut();
                spare.extend(encoded.into_iter().map(|(_, memory)| memory));
                spare.sort_by_key(Vec::capacity);
                spare.drain(..spare.len().saturating_sub(SPARE_MAX));
                return Ok((parts, longest_ns));
            }
            let put = encoded.into_iter().map(|(part, bytes)| {
                let put = self.runner.run(self.store.put_part(&part, &bytes, || true));
                put.map(|()| part).map_err(|error| error.to_string())
            });
            Ok((
                put.collect::<std::result::Result<Vec<_>, String>>()?,
                longest_ns,
            ))
        });
        let barrier = job.barrier;
        let (parts, longest_ns) = match stored {
            Ok(stored) => stored,
            Err(reason) => return done(JobDone::Report(AgentEvent::Failed { barrier, reason })),
        };
        let (mut report, taken_ns) = job.report.clone().unwrap_or_default();
        report.parts = parts.len();
        let member = job.member;
        done(JobDone::Report(AgentEvent::Taken {
            barrier,
            member,
            report,
            taken_ns,
        }));
        for part in parts {
            done(JobDone::Report(AgentEvent::Stored {
                barrier,
                member,
                part,
                longest_ns,
            }));
        }
    }

    /// Writes a job's parts: batches with the same columns go to the same one. Returns the longest pause for
    /// a slice, too.
    fn write(&self, job: &StoreJob) -> std::result::Result<(Vec<OpenPart>, u64), String> {
        let mut parts = Vec::<(SchemaRef, OpenPart)>::new();
        let mut write = |batch: &RecordBatch| {
            let of_batch = |(schema, _): &(SchemaRef, _)| schema == batch.schema_ref();
            let known = parts.iter().position(of_batch);
            let number = known.unwrap_or_else(|| {
                parts.push((batch.schema(), self.open(job, parts.len())));
                parts.len() - 1
            });
            let written = parts[number].1.write(batch);
            written.map_err(|error| error.to_string())
        };
        job.batches.iter().try_for_each(&mut write)?;
        let mut longest_ns = 0;
        while let Some(slices) = &job.slices {
            // They end with the last one, or when the instance drops its end.
            match slices.recv_timeout(SLICE_PATIENCE) {
                Ok(Slice::Rows(batches)) => batches.iter().try_for_each(&mut write)?,
                Ok(Slice::End { longest_ns: ns }) => {
                    longest_ns = ns;
                    break;
                }
                Err(mpsc::RecvTimeoutError::Timeout) if self.agent.strong_count() > 0 => {}
                Err(_) => return Err("an instance gave its snapshot up".to_string()),
            }
        }
        // The coordinator waits for as many parts as there may be.
        while parts.len() < job.parts {
            let mut part = self.open(job, parts.len());
            let empty = RecordBatch::new_empty(Arc::new(Schema::empty()));
            part.write(&empty).map_err(|error| error.to_string())?;
            parts.push((empty.schema(), part));
        }
        debug_assert!(parts.len() == job.parts, "an operator knows its layouts");
        let parts = parts.into_iter().map(|(_, part)| part);
        Ok((parts.collect(), longest_ns))
    }
}

impl AgentThread {
    fn open(&self, job: &StoreJob, piece: usize) -> OpenPart {
        let request = job.request(piece);
        match job.report.is_some() {
            true => {
                let memory = self.spare.borrow_mut().pop();
                self.writer
                    .open_in_memory(&request, memory.unwrap_or_default())
            }
            false => self.writer.open(&request),
        }
    }
}

impl StoreJob {
    fn request(&self, piece: usize) -> PartRequest<'_> {
        PartRequest {
            barrier: self.barrier,
            since: self.since,
            node: &self.node,
            instance: self.instance,
            piece: piece as u32,
            buckets: (0, BUCKETS as u32 - 1),
            owners: self.owners,
            watermark: self.watermark,
        }
    }
}
