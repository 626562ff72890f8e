//! What a checkpoint agent's thread does: it stores, secures and commits, and may wait for a disk or a
//! broker meanwhile.

use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

use arrow_array::RecordBatch;
use slackwater_checkpoint::manifest::Part;
use slackwater_checkpoint::{PartRequest, PartWriter, Runner};
use slackwater_engine::checkpoint::{Prepared, Slice};
use slackwater_engine::hash::BUCKETS;
use slackwater_engine::sink::SinkConnector;

use super::{AgentEvent, Job, JobDone, StoreJob, not_secured};

/// The agent's thread.
pub(super) struct AgentThread {
    pub(super) writer: PartWriter,
    pub(super) runner: Runner,
    /// The connectors of sinks, by index of the node.
    pub(super) sinks: Vec<Option<Arc<dyn SinkConnector>>>,
    pub(super) node_of: Vec<usize>,
    /// Gone when the agent is about to end.
    pub(super) agent: Weak<()>,
}

/// How often the thread checks, while it waits for a slice, whether its agent is about to end: then the
/// slices may never come.
const SLICE_PATIENCE: Duration = Duration::from_millis(50);

impl AgentThread {
    /// Does a job.
    pub(super) fn work(&self, job: Job, done: &impl Fn(JobDone)) {
        match job {
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

    /// Stores a part, with the slices that follow its batches; returns the longest pause for one, too.
    fn part(
        &self,
        request: &PartRequest<'_>,
        batches: &[RecordBatch],
        slices: Option<&mpsc::Receiver<Slice>>,
    ) -> std::result::Result<(Part, u64), String> {
        let failed = |error: slackwater_checkpoint::Error| error.to_string();
        let mut part = self.writer.open(request);
        for batch in batches {
            part.write(batch).map_err(failed)?;
        }
        let mut longest_ns = 0;
        while let Some(slices) = slices {
            // They end with the last one, or when the instance drops its end.
            match slices.recv_timeout(SLICE_PATIENCE) {
                Ok(Slice::Rows(batches)) => {
                    let mut batches = batches.iter();
                    batches
                        .try_for_each(|batch| part.write(batch))
                        .map_err(failed)?;
                }
                Ok(Slice::End { longest_ns: ns }) => {
                    longest_ns = ns;
                    break;
                }
                Err(mpsc::RecvTimeoutError::Timeout) if self.agent.strong_count() > 0 => {}
                Err(_) => return Err("an instance gave its snapshot up".to_string()),
            }
        }
        let part = self.runner.run(part.finish()).map_err(failed)?;
        Ok((part, longest_ns))
    }

    fn store(&self, job: &StoreJob, done: &impl Fn(JobDone)) {
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
            let stored = self.part(&request, batches, job.slices.as_ref());
            let event = match stored {
                Ok((part, longest_ns)) => AgentEvent::Stored {
                    longest_ns,
                    barrier: job.barrier,
                    member: job.member,
                    part,
                },
                Err(reason) => AgentEvent::Failed {
                    barrier: job.barrier,
                    reason,
                },
            };
            done(JobDone::Report(event));
        }
    }
}
