//! A source that sends what it is ordered to, and sinks that note when it arrived.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use slackwater_engine::chunk::{Chunk, Positions};
use slackwater_engine::deploy::{Catalog, SourcePart, SourceParts};
use slackwater_engine::expression::{Column, Expression};
use slackwater_engine::intake::IntakeSpec;
use slackwater_engine::link::{Waiter, Waker};
use slackwater_engine::operator::Operator;
use slackwater_engine::sink::Sink;
use slackwater_engine::source::{DeadLetters, Rejected, Source, SourcePoll, SourceRows};
use slackwater_engine::time::now_ns;
use slackwater_engine::{Error, Result};

/// Bytes of a number, and of a cache line, of which one number is read.
const NUMBER_BYTES: usize = 8;
const LINE_NUMBERS: usize = 8;

/// A row's position is the phase's number, shifted by this, plus its position among the phase's rows:
/// 2^40 rows of 8 bytes are far more than a phase sends.
const PHASE_SHIFT: u32 = 40;

/// A message's partition says whether it is the last one of its phase.
const AMONG_OTHERS: u32 = 0;
const LAST: u32 = 1;

/// A phase: messages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Bytes of a message, a multiple of 8.
    pub size_bytes: usize,
    /// When they are sent.
    pub pace: Pace,
}

/// When messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Pace {
    /// A number of messages, at fixed intervals.
    Spaced {
        /// Number of messages.
        messages: u64,
        /// Nanoseconds from one message to the next.
        gap_ns: u64,
    },
    /// Messages without a gap, for a fixed time.
    Flat {
        /// For how long, in nanoseconds.
        time_ns: u64,
    },
}

impl Phase {
    fn rows(&self) -> usize {
        (self.size_bytes / NUMBER_BYTES).max(1)
    }
}

/// What an instance reports at the end of a phase.
#[derive(Debug)]
pub enum Note {
    /// The source: when it sent each message, or the first message of a flat phase.
    Sent {
        /// Times on the engine's clock.
        times_ns: Vec<u64>,
        /// Number of messages sent.
        messages: u64,
    },
    /// A sink: when each message arrived, or the last message of a flat phase.
    Received {
        /// Times on the engine's clock.
        times_ns: Vec<u64>,
    },
}

/// What the main thread and the instances of this process share: the present phase, and how much of it
/// may be sent.
pub struct PhaseControl {
    phases: Vec<Phase>,
    /// The present phase, counted from 1; 0 before the first.
    phase: AtomicU64,
    /// Number of its messages that may be sent.
    allowed: AtomicU64,
    waker: Mutex<Option<Waker>>,
    notes: mpsc::SyncSender<Note>,
}

impl PhaseControl {
    /// Starts before the first of these phases; the instances send their reports through `notes`.
    pub fn new(phases: Vec<Phase>, notes: mpsc::SyncSender<Note>) -> PhaseControl {
        PhaseControl {
            phases,
            phase: AtomicU64::new(0),
            allowed: AtomicU64::new(0),
            waker: Mutex::new(None),
            notes,
        }
    }

    /// Begins a phase, without allowing any messages yet.
    pub fn begin(&self, phase: usize) {
        // Release: pairs with the Acquire in `Numbers::poll`, which then sees that no messages of this
        // phase are allowed.
        self.allowed.store(0, Ordering::Relaxed);
        self.phase.store(phase as u64 + 1, Ordering::Release);
    }

    /// Allows the source to send this many messages of the phase.
    pub fn allow(&self, messages: u64) {
        self.allowed.store(messages, Ordering::Release);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waker) = waker.as_ref() {
            waker.wake_urgent();
        }
    }

    fn say(&self, note: Note) {
        // The receiver is only gone when the process is ending.
        let _ = self.notes.send(note);
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(
        "number",
        DataType::Int64,
        false,
    )]))
}

/// Creates sources and sinks that share one control.
pub struct Factory(pub Arc<PhaseControl>);

impl Catalog for Factory {
    fn source(&self, _: usize, _: SourcePart) -> Result<SourceParts> {
        let column: Arc<dyn Expression> = Arc::new(Column::new(0, DataType::Int64));
        Ok(SourceParts {
            restored: Vec::new(),
            suspects: Vec::new(),
            recorder: None,
            notices: None,
            source: Box::new(Numbers {
                control: self.0.clone(),
                running: None,
                done: 0,
            }),
            intake: IntakeSpec {
                columns: vec![column],
                schema: schema(),
                event_time: None,
                partition_base: 0,
                idle_timeout_ns: None,
                unit_per_partition: false,
                forgets_ended: false,
                judged: Vec::new(),
            },
            dead_letters: Arc::new(NoLetters),
        })
    }

    fn operator(&self, node: usize) -> Result<Operator> {
        Err(Error::new(
            format!("node {node}"),
            "is not a valid operator",
        ))
    }

    fn sink(&self, _: usize, _: usize, _: usize) -> Result<Box<dyn Sink>> {
        Ok(Box::new(Arrivals {
            control: self.0.clone(),
            times_ns: Vec::new(),
        }))
    }

    fn dead_letters(&self, _: usize) -> Arc<dyn DeadLetters> {
        Arc::new(NoLetters)
    }
}

/// Rejects nothing: numbers are always accepted.
struct NoLetters;

impl DeadLetters for NoLetters {
    fn name_partition(&self, _: u32, _: &str) {}

    fn reject(&self, rejected: &Rejected) -> Result<()> {
        Err(Error::new("a number", rejected.reason.clone()))
    }
}

struct Numbers {
    control: Arc<PhaseControl>,
    running: Option<Running>,
    /// Number of phases that have ended.
    done: u64,
}

/// A phase that is being sent.
struct Running {
    phase: Phase,
    /// The content of all of its messages.
    batch: RecordBatch,
    begin_ns: u64,
    sent: u64,
    times_ns: Vec<u64>,
}

impl Source for Numbers {
    fn open(&mut self, waiter: &mut Waiter) -> Result<Vec<(u32, String)>> {
        let mut waker = self
            .control
            .waker
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *waker = Some(waiter.waker());
        let partitions = [(AMONG_OTHERS, "messages"), (LAST, "last messages")];
        Ok(partitions
            .map(|(number, name)| (number, name.to_string()))
            .to_vec())
    }

    fn poll(&mut self) -> Result<SourcePoll> {
        let phase = self.control.phase.load(Ordering::Acquire);
        let allowed = self.control.allowed.load(Ordering::Acquire);
        if phase == self.done || allowed == 0 {
            return Ok(SourcePoll::Pending);
        }
        let now_ns = now_ns();
        if self.running.is_none() {
            let phase = self.control.phases[phase as usize - 1];
            let numbers = Int64Array::from_iter_values(0..phase.rows() as i64);
            self.running = Some(Running {
                phase,
                batch: RecordBatch::try_new(schema(), vec![Arc::new(numbers)])?,
                begin_ns: now_ns,
                sent: 0,
                times_ns: Vec::new(),
            });
        }
        let running = self.running.as_mut().expect("set above");
        if running.sent >= allowed {
            return Ok(SourcePoll::Pending);
        }
        let last = match running.phase.pace {
            Pace::Spaced { messages, .. } => {
                running.times_ns.push(now_ns);
                running.sent + 1 == messages
            }
            Pace::Flat { time_ns } => {
                if running.sent == 0 {
                    running.times_ns.push(now_ns);
                }
                now_ns >= running.begin_ns + time_ns
            }
        };
        let place = running.sent * running.phase.rows() as u64;
        running.sent += 1;
        let rows = SourceRows {
            batch: running.batch.clone(),
            partition: if last { LAST } else { AMONG_OTHERS },
            positions: Positions::Run {
                first: (phase - 1) << PHASE_SHIFT | place,
            },
            ingest_ns: now_ns,
            rejected: Vec::new(),
        };
        if last {
            self.done = phase;
            let running = self.running.take().expect("it is running");
            self.control.say(Note::Sent {
                times_ns: running.times_ns,
                messages: running.sent,
            });
        }
        Ok(SourcePoll::Rows(rows))
    }

    fn close(&mut self) {}
}

/// Notes when messages arrive.
struct Arrivals {
    control: Arc<PhaseControl>,
    times_ns: Vec<u64>,
}

impl Sink for Arrivals {
    fn open(&mut self, _: &mut Waiter) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        let numbers = chunk.batch.column(0).as_primitive::<Int64Type>().values();
        black_box(numbers.iter().step_by(LINE_NUMBERS).sum::<i64>());
        let lost = || Error::new("a message", "was lost on the way");
        let origin = chunk.origin.as_ref().ok_or_else(lost)?;
        let position = origin.positions.at(chunk.rows() - 1);
        let phase = self.control.phases.get((position >> PHASE_SHIFT) as usize);
        let phase = phase.ok_or_else(lost)?;
        let place = position & ((1 << PHASE_SHIFT) - 1);
        if !(place + 1).is_multiple_of(phase.rows() as u64) {
            // The rest of the message has not arrived yet.
            return Ok(());
        }
        let last = origin.partitions.at(0) == LAST;
        if last || matches!(phase.pace, Pace::Spaced { .. }) {
            self.times_ns.push(now_ns());
        }
        if last {
            let times_ns = std::mem::take(&mut self.times_ns);
            self.control.say(Note::Received { times_ns });
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, _: bool) -> Result<()> {
        Ok(())
    }
}
