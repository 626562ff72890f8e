//! Moves of buckets between processes: barriers and state as they cross the control sockets.
//!
//! State travels in a memory file whose descriptor the parent passes on unread, so rows never pass
//! through it. In it lie frames of the message format, end to end.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use slackwater_engine::barrier::{Barrier, BucketMove, Handover, Purpose};
use slackwater_engine::chunk::{Chunk, Message};
use slackwater_engine::counters::{InstanceCounters, StepCounters};
use slackwater_engine::wire::{Decoder, Encoder};
use slackwater_engine::{Error, Result};

/// A barrier.
#[derive(Debug, Serialize, Deserialize)]
pub struct BarrierNote {
    number: u64,
    purpose: PurposeNote,
}

#[derive(Debug, Serialize, Deserialize)]
enum PurposeNote {
    Move {
        node: usize,
        /// Bucket, old and new instance.
        moves: Vec<(u16, u16, u16)>,
    },
    Checkpoint {
        since: Option<u64>,
        bases: Vec<u32>,
        stops: bool,
    },
}

impl From<&Barrier> for BarrierNote {
    fn from(barrier: &Barrier) -> BarrierNote {
        let purpose = match &barrier.purpose {
            Purpose::Move { node, moves } => {
                let moves = moves.iter();
                let moves = moves.map(|step| (step.bucket, step.from, step.to));
                PurposeNote::Move {
                    node: *node,
                    moves: moves.collect(),
                }
            }
            Purpose::Checkpoint {
                since,
                bases,
                stops,
            } => PurposeNote::Checkpoint {
                since: *since,
                bases: bases.to_vec(),
                stops: *stops,
            },
        };
        BarrierNote {
            number: barrier.number,
            purpose,
        }
    }
}

impl From<BarrierNote> for Barrier {
    fn from(note: BarrierNote) -> Barrier {
        let purpose = match note.purpose {
            PurposeNote::Move { node, moves } => {
                let moves = moves.into_iter();
                let moves = moves.map(|(bucket, from, to)| BucketMove { bucket, from, to });
                Purpose::Move {
                    node,
                    moves: moves.collect(),
                }
            }
            PurposeNote::Checkpoint {
                since,
                bases,
                stops,
            } => Purpose::Checkpoint {
                since,
                bases: bases.into(),
                stops,
            },
        };
        Barrier {
            number: note.number,
            purpose,
        }
    }
}

/// State on its way, without the state.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandoverNote {
    barrier: u64,
    node: usize,
    from: usize,
    to: usize,
    /// Bytes of each frame in the memory file that comes with it; none where there is no state.
    frames: Vec<usize>,
}

impl HandoverNote {
    /// The subquery, and the number of the one of its instances that the state is for.
    pub fn receiver(&self) -> (usize, usize) {
        (self.node, self.to)
    }

    /// Puts the state into a memory file.
    ///
    /// # Errors
    ///
    /// When there is no memory, or the state can't be written as frames.
    pub fn seal(handover: &Handover) -> Result<(HandoverNote, Option<OwnedFd>)> {
        let mut note = HandoverNote {
            barrier: handover.barrier,
            node: handover.node,
            from: handover.from,
            to: handover.to,
            frames: Vec::new(),
        };
        if handover.state.is_empty() {
            return Ok((note, None));
        }
        let mut file = File::from(
            memfd_create("slackwater-state", MemfdFlags::CLOEXEC)
                .map_err(|error| no_file(error.into()))?,
        );
        let (mut encoder, mut frames) = (Encoder::new(), Vec::new());
        for batch in &handover.state {
            let message = Message::Chunk(Chunk::new(batch.clone(), 0));
            encoder.encode(&message, &mut frames)?;
            for frame in frames.drain(..) {
                note.frames
                    .push(frame.iter().map(|piece| piece.len()).sum());
                for piece in frame {
                    file.write_all(&piece).map_err(no_file)?;
                }
            }
        }
        Ok((note, Some(file.into())))
    }

    /// Takes the state out again.
    ///
    /// # Errors
    ///
    /// When the memory file does not hold what the note says.
    pub fn open(self, file: Option<OwnedFd>) -> Result<Handover> {
        let mut state = Vec::new();
        if let Some(file) = file {
            let mut file = File::from(file);
            file.rewind().map_err(no_file)?;
            let mut decoder = Decoder::new();
            for length in self.frames {
                let mut frame = Vec::new();
                let part = (&mut file).take(length as u64);
                { part }.read_to_end(&mut frame).map_err(no_file)?;
                if let Some(Message::Chunk(chunk)) = decoder.decode(frame.into())? {
                    state.push(chunk.batch);
                }
            }
        }
        Ok(Handover {
            barrier: self.barrier,
            node: self.node,
            from: self.from,
            to: self.to,
            state,
        })
    }
}

fn no_file(error: std::io::Error) -> Error {
    Error::new("state that moves to another process", error.to_string())
}

/// What an instance counted of its steps, for who balances the load.
#[derive(Debug, Serialize, Deserialize)]
pub struct StepCounts {
    instance: usize,
    /// Of its source, where it has one.
    source: OneStep,
    steps: Vec<OneStep>,
}

#[derive(Debug, Serialize, Deserialize)]
struct OneStep {
    busy_ns: u64,
    chunks: u64,
    rows: u64,
    /// Rows by bucket; empty for steps that don't count them.
    buckets: Vec<u64>,
}

impl StepCounts {
    /// What an instance of this process has counted so far.
    pub fn of(instance: usize, counters: &InstanceCounters) -> StepCounts {
        let read = InstanceCounters::read;
        let step = |slots: &StepCounters| OneStep {
            busy_ns: read(&slots.busy_ns),
            chunks: read(&slots.chunks),
            rows: read(&slots.rows),
            buckets: slots.buckets.iter().flatten().map(read).collect(),
        };
        StepCounts {
            instance,
            source: step(&counters.source),
            steps: counters.steps.iter().map(step).collect(),
        }
    }

    /// Puts it into slots that nobody else writes; `all` are those of all instances.
    pub fn store(&self, all: &[std::sync::Arc<InstanceCounters>]) {
        let Some(counters) = all.get(self.instance) else {
            return;
        };
        self.source.store(&counters.source);
        for (counts, slots) in self.steps.iter().zip(&counters.steps) {
            counts.store(slots);
        }
    }
}

impl OneStep {
    fn store(&self, slots: &StepCounters) {
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        slots.busy_ns.store(self.busy_ns, relaxed);
        slots.chunks.store(self.chunks, relaxed);
        slots.rows.store(self.rows, relaxed);
        for (count, slot) in self.buckets.iter().zip(slots.buckets.iter().flatten()) {
            slot.store(*count, relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int64Array, RecordBatch};
    use arrow_schema::{DataType, Field, Schema};

    use super::*;

    #[test]
    fn state_comes_out_as_it_went_in() {
        let batch = |first: i64| {
            let schema = Schema::new(vec![Field::new("n", DataType::Int64, true)]);
            let numbers = Int64Array::from_iter_values(first..first + 1000);
            RecordBatch::try_new(Arc::new(schema), vec![Arc::new(numbers)]).unwrap()
        };
        for state in [vec![], vec![batch(0)], vec![batch(0), batch(5)]] {
            let handover = Handover {
                barrier: 3,
                node: 2,
                from: 1,
                to: 0,
                state,
            };
            let (note, file) = HandoverNote::seal(&handover).unwrap();
            assert_eq!(note.receiver(), (2, 0));
            let opened = note.open(file).unwrap();
            assert_eq!(opened.state, handover.state);
            assert_eq!((opened.barrier, opened.from), (3, 1));
        }
    }
}
