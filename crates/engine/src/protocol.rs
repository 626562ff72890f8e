//! The control protocol of workers: the commands that they get and the events that they report.
//!
//! Messages are plain data that can cross a socket as well as a queue. What can't be data (instances, and
//! the state and snapshots of instances) travels beside a message, as [`Attached`].
//!
//! A new message is a variant here and an arm in `worker.rs`; code that only forwards messages needs no
//! change.

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use slackwater_link::WaitMode;

use crate::barrier::{Barrier, Handover};
use crate::checkpoint::Snapshot;
use crate::error::Error;
use crate::instance::{Instance, SinkResult};
use crate::intake::PartitionSeen;

/// The most commands that may wait for a worker: deploying and stopping are rare, so a few suffice.
pub const COMMANDS_MAX: usize = 16;

/// The most events that may wait for the listener, 200 bytes each. A worker keeps what does not fit: at
/// most what its instances report about one move and one checkpoint, since the next one of each begins
/// only when all instances have answered the last.
pub const EVENTS_MAX: usize = 1024;

/// A command to workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Run the instances attached to the command.
    Deploy,
    /// End the sources; rows on their way are still processed, and windows stay open.
    Stop,
    /// Drop the instances at once.
    Remove,
    /// Change how a worker waits.
    Wait {
        /// The worker, by its number in the deployment.
        worker: usize,
        /// How it waits.
        #[serde(with = "WaitModeData")]
        mode: WaitMode,
        /// The CPU time, in nanoseconds, that a wait which finds something costs in addition to the
        /// waiting, for [`WaitMode::Auto`]: the cost of each chunk, however few rows it has.
        found_ns: u64,
    },
    /// Take an instance away from its worker ([`WorkerEvent::Detached`]). Has no effect if the instance
    /// has ended.
    Detach {
        /// The instance's number.
        instance: usize,
    },
    /// Run the attached instance, which was detached before, on another worker.
    Adopt {
        /// The instance's number.
        instance: usize,
        /// The worker, by its number in the deployment.
        worker: usize,
    },
    /// Make the sources send a barrier.
    Barrier(Barrier),
    /// Take over the attached state ([`WorkerEvent::Handover`]).
    TakeOver {
        /// The number of the instance that receives the state.
        instance: usize,
        /// Names the state.
        handover: Handover,
    },
    /// Report, once, when a worker next does something ([`WorkerEvent::Active`]). For a controller that
    /// watches the counters and has seen no activity, so that it needs no timer meanwhile.
    ReportActivity,
    /// Report what is known of the partitions of sources ([`WorkerEvent::Examined`]).
    Examine,
}

/// An event that a worker reports.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum WorkerEvent {
    /// An instance has ended. If the instance is checkpointed, its last snapshot is attached; there is
    /// none if the query was stopped or a sender was lost.
    Ended {
        /// The instance's number.
        instance: usize,
        /// What the instance's sinks measured.
        sinks: Vec<SinkResult>,
    },
    /// An instance has passed the barrier of a checkpoint: its snapshot is attached.
    Snapshot {
        /// The instance's number.
        instance: usize,
    },
    /// A source has read something since the last barrier that it sent.
    Changed,
    /// The operators of the process hold more than they may. Reported once.
    OverBudget {
        /// How much they hold, in bytes.
        held: u64,
        /// How much they may hold, in bytes.
        limit: u64,
    },
    /// What is known of the partitions of a source instance: when somebody asks ([`Command::Examine`]), and
    /// just before the instance ends or fails.
    Examined {
        /// The instance's number.
        instance: usize,
        /// The instance's partitions.
        partitions: Vec<PartitionSeen>,
    },
    /// A worker did something after a silence ([`Command::ReportActivity`]).
    Active,
    /// An instance was taken away from its worker; the instance is attached.
    Detached {
        /// The instance's number.
        instance: usize,
    },
    /// State for another instance, attached; [`Command::TakeOver`] passes it on.
    Handover(Handover),
    /// An instance has done its part in a move of buckets, and continues.
    Moved {
        /// The instance's number.
        instance: usize,
        /// The barrier's number.
        barrier: u64,
    },
    /// An instance has failed; it has been closed.
    Failed {
        /// The instance's number.
        instance: usize,
        /// What the instance's sinks measured until then.
        sinks: Vec<SinkResult>,
        /// Why it failed.
        error: Error,
    },
}

/// What travels beside a message because it can't be plain data.
#[derive(Debug, Default)]
pub enum Attached {
    /// Nothing.
    #[default]
    Nothing,
    /// Instances, with their numbers.
    Instances(Vec<(usize, Instance)>),
    /// State that moves with its buckets.
    State(Vec<RecordBatch>),
    /// What an instance has recorded at a cut.
    Snapshot(Box<Snapshot>),
}

/// [`WaitMode`] as data; the crate that defines it has no serialization.
#[derive(Serialize, Deserialize)]
#[serde(remote = "WaitMode")]
#[expect(
    missing_docs,
    reason = "the fields are documented where they are defined"
)]
pub enum WaitModeData {
    Auto { delay: std::time::Duration },
    Poll,
    Interrupt,
    Sleep(std::time::Duration),
    SpinThenPark { spin: std::time::Duration },
    BackOff,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hdrhistogram::Histogram;
    use serde_json::{from_str, to_string};

    use super::*;
    use crate::barrier::{BucketMove, Purpose};
    use crate::latency::Seconds;

    const HANDOVER: Handover = Handover {
        barrier: 3,
        node: 2,
        from: 1,
        to: 0,
    };

    #[test]
    fn commands_are_data() {
        let barrier = |purpose| Command::Barrier(Barrier { number: 7, purpose });
        let step = |bucket| BucketMove {
            bucket,
            from: 0,
            to: 1,
        };
        let mut commands = vec![
            Command::Deploy,
            Command::Stop,
            Command::Remove,
            Command::Detach { instance: 4 },
            Command::Adopt {
                instance: 4,
                worker: 1,
            },
            barrier(Purpose::Move {
                node: 2,
                moves: [step(0), step(4095)].into(),
            }),
            barrier(Purpose::Checkpoint {
                since: Some(6),
                bases: [1, 2].into(),
                stops: true,
            }),
            Command::TakeOver {
                instance: 5,
                handover: HANDOVER,
            },
            Command::ReportActivity,
            Command::Examine,
        ];
        let time = Duration::from_micros(250);
        let modes = [
            WaitMode::Auto { delay: time },
            WaitMode::Poll,
            WaitMode::Interrupt,
            WaitMode::Sleep(time),
            WaitMode::SpinThenPark { spin: time },
            WaitMode::BackOff,
        ];
        commands.extend(modes.map(|mode| Command::Wait {
            worker: 1,
            mode,
            found_ns: 30_000,
        }));
        for command in commands {
            let written = to_string(&command).unwrap();
            assert_eq!(from_str::<Command>(&written).unwrap(), command, "{written}");
        }
    }

    #[test]
    fn events_are_data() {
        let mut latencies_us = Histogram::new(3).unwrap();
        for value in [1, 1, 300, 70_000_000] {
            latencies_us.record(value).unwrap();
        }
        let mut seconds = Seconds::since(0);
        (seconds.active_ns, seconds.violated_ns) = (5, 2);
        let sink = SinkResult {
            node: 3,
            rows: 4,
            latencies_us,
            seconds,
            connections_lost: 1,
        };
        let event = WorkerEvent::Failed {
            instance: 2,
            sinks: vec![sink.clone()],
            error: Error::new("a.csv:3", "is broken").consequence(),
        };
        let written = to_string(&event).unwrap();
        let WorkerEvent::Failed {
            instance: 2,
            sinks,
            error,
        } = from_str(&written).unwrap()
        else {
            panic!("{written}");
        };
        assert_eq!(error, Error::new("a.csv:3", "is broken").consequence());
        let read = &sinks[0];
        assert_eq!((read.node, read.rows, read.connections_lost), (3, 4, 1));
        assert_eq!(read.seconds, sink.seconds);
        // A histogram keeps values to three digits.
        assert_eq!(read.latencies_us.len(), 4);
        assert_eq!(read.latencies_us.max(), sink.latencies_us.max());
        for quantile in [0.1, 0.5, 0.75] {
            let values = [&read.latencies_us, &sink.latencies_us];
            let [read, written] = values.map(|values| values.value_at_quantile(quantile));
            assert_eq!(read, written);
        }
        let handover = to_string(&WorkerEvent::Handover(HANDOVER)).unwrap();
        let read = from_str::<WorkerEvent>(&handover).unwrap();
        assert!(matches!(read, WorkerEvent::Handover(HANDOVER)));
    }
}
