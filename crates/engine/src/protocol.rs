//! What workers are told and what they report.
//!
//! Messages are plain data that can cross a socket as well as a queue. What can't (instances, and the
//! state and snapshots of instances) travels beside a message, as [`Attached`].
//!
//! A new message is a variant here and an arm in `worker.rs`; whoever only passes messages on passes
//! the new one on, too.

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use slackwater_link::WaitMode;

use crate::barrier::{Barrier, Handover};
use crate::checkpoint::Snapshot;
use crate::error::Error;
use crate::instance::{Instance, SinkResult};

/// Commands that may wait for a worker: deploying and stopping are rare, a few suffice.
pub const COMMANDS_MAX: usize = 16;

/// Events that may wait for whoever listens, 200 bytes each. A worker keeps what does not fit: at most
/// what its instances have to say about one move and one checkpoint, since the next one of each begins
/// only when all have answered the last.
pub const EVENTS_MAX: usize = 1024;

/// What workers are told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Run the instances that come with it.
    Deploy,
    /// End the sources; what is on its way still comes through, and windows stay open.
    Stop,
    /// Drop the instances at once.
    Remove,
    /// A worker waits like this from now on.
    Wait {
        /// The worker, by its number in the deployment.
        worker: usize,
        /// How it waits.
        #[serde(with = "WaitModeData")]
        mode: WaitMode,
        /// CPU time that finding something costs in addition to the waiting, for
        /// [`WaitMode::Auto`]: what each chunk costs, however few rows it has.
        found_ns: u64,
    },
    /// Take an instance away from its worker ([`WorkerEvent::Detached`]). Nothing is done when it has
    /// ended.
    Detach {
        /// The instance's number.
        instance: usize,
    },
    /// Run an instance that was detached, and comes with the command, on another worker.
    Adopt {
        /// The instance's number.
        instance: usize,
        /// The worker, by its number in the deployment.
        worker: usize,
    },
    /// Let the sources send a barrier.
    Barrier(Barrier),
    /// Take over the state that comes with the command ([`WorkerEvent::Handover`]).
    TakeOver {
        /// The number of the instance that gets it.
        instance: usize,
        /// Whose state it is.
        handover: Handover,
    },
    /// The next worker that does something reports it, once ([`WorkerEvent::Active`]): for whoever
    /// watches the counters and has seen nothing happen, so that no timer need run in a silence.
    ReportActivity,
}

/// What workers report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum WorkerEvent {
    /// An instance has come to its end. Its last snapshot comes with it where the instance takes part in
    /// checkpoints; there is none where the query was stopped, or a sender has gone: that is no end.
    Ended {
        /// The instance's number.
        instance: usize,
        /// What its sinks measured.
        sinks: Vec<SinkResult>,
    },
    /// An instance has answered the barrier of a checkpoint: its snapshot comes with it.
    Snapshot {
        /// The instance's number.
        instance: usize,
    },
    /// A source has read something after the last barrier that it sent.
    Changed,
    /// The operators of the process hold more than they may. Reported once.
    OverBudget {
        /// What they hold, in bytes.
        held: u64,
        /// What they may hold.
        limit: u64,
    },
    /// Something was done after a silence ([`Command::ReportActivity`]).
    Active,
    /// An instance was taken away from its worker; it comes with the event.
    Detached {
        /// The instance's number.
        instance: usize,
    },
    /// State for another instance comes with it, which is to get it by [`Command::TakeOver`].
    Handover(Handover),
    /// An instance has taken part in a move of buckets, and goes on.
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
        /// What its sinks measured until then.
        sinks: Vec<SinkResult>,
        /// Why.
        error: Error,
    },
}

/// What travels beside a message, and can't be written down as one.
#[derive(Debug, Default)]
pub enum Attached {
    /// Nothing.
    #[default]
    Nothing,
    /// Instances, with their numbers.
    Instances(Vec<(usize, Instance)>),
    /// State that moves with its buckets.
    State(Vec<RecordBatch>),
    /// What an instance has at a cut.
    Snapshot(Box<Snapshot>),
}

/// [`WaitMode`] as data; the crate that defines it knows no formats.
#[derive(Serialize, Deserialize)]
#[serde(remote = "WaitMode")]
enum WaitModeData {
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
