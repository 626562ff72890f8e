//! The jobs of the thread that writes to the store.

use slackwater_checkpoint::manifest::Manifest;
use slackwater_checkpoint::{CheckpointWriter, Kind, Runner};

use super::{KEPT, Stored};

/// A job of the store's thread.
pub(super) enum Job {
    /// Stores a manifest.
    Put(Box<Manifest>),
    /// Removes old checkpoints before this one.
    Sweep(u64),
    /// Checks whether a checkpoint failed because of a later incarnation; the reason of the failure.
    Check(String),
}

/// Does a job.
pub(super) fn work(runner: &Runner, writer: &mut CheckpointWriter, job: Job) -> Stored {
    match job {
        Job::Put(manifest) => {
            let barrier = manifest.barrier;
            match runner.run(writer.put_manifest(*manifest)) {
                Ok(number) => Stored::Manifest { barrier, number },
                Err(error) if error.kind == Kind::Fenced => Stored::Fenced(error.to_string()),
                Err(error) => Stored::Failed {
                    barrier,
                    reason: error.to_string(),
                },
            }
        }
        Job::Check(reason) => match runner.run(writer.check()) {
            Err(error) if error.kind == Kind::Fenced => Stored::Fenced(error.to_string()),
            _ => Stored::Checked(reason),
        },
        Job::Sweep(committed) => match runner.run(writer.sweep_before(committed, KEPT)) {
            Ok(_) => Stored::Swept(None),
            Err(error) => Stored::Swept(Some(error.to_string())),
        },
    }
}
