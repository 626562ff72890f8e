//! Slow operators: for tests that answers don't depend on which operator is slow, and to measure balancers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slackwater_engine::Result;
use slackwater_engine::chunk::Chunk;
use slackwater_engine::operator::{Facts, Operator, Output, Progress, Stateful, Stateless, Timer};
use slackwater_engine::state::KeyedState;
use slackwater_engine::time::{EventTime, now_ns};

/// The longest pause before a chunk of an operator that is slow by chance.
const PAUSE_MAX_US: u64 = 300;

/// Shorter pauses are added up, because sleeps are not more exact.
const PAUSE_MIN_NS: u64 = 100_000;

/// A sleep that is too long by less than this still counts as work.
const OVERSLEEP_NS: u64 = 150_000;

/// The difference between the seeds of two operators.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Which operators are slow, and how.
#[derive(Debug)]
pub enum Slowness {
    /// A random third of all operators pauses before each chunk for a random time.
    ByChance(AtomicU64),
    /// The instances of one operator take a fixed time per row, and the first one a longer time.
    Timed(Timed),
}

/// Instances whose work takes a fixed time. They sleep instead of working, so there may be more of them than
/// cores.
#[derive(Debug)]
pub struct Timed {
    /// The operator's name in the query graph.
    pub operator: &'static str,
    /// The time per row, in nanoseconds.
    pub row_ns: u64,
    /// How many times longer the first instance takes while it is slow.
    pub factor: f64,
    /// The share of the chunks for which it is slow.
    pub probability: f64,
    /// The time after which the first instance becomes slow.
    pub slow_after: Duration,
    /// The time after which it had processed the last chunk from before it became slow, in nanoseconds.
    pub reaction_ns: AtomicU64,
    /// The number of instances created so far.
    pub instances: AtomicU64,
}

/// Makes an operator slow, if `slowness` says so.
pub fn slowed(slowness: &Arc<Slowness>, name: &str, operator: Operator) -> Operator {
    let pause = match &**slowness {
        Slowness::ByChance(seed) => {
            let chance = mix(seed.fetch_add(SEED_STEP, Ordering::Relaxed));
            match chance % 3 {
                0 => Pause::Before(Duration::from_micros(chance / 3 % PAUSE_MAX_US)),
                _ => return operator,
            }
        }
        Slowness::Timed(timed) if timed.operator == name => Pause::Timed {
            slowness: Arc::clone(slowness),
            is_first: timed.instances.fetch_add(1, Ordering::Relaxed) == 0,
            slow_from_ns: None,
            busy_until_ns: 0,
            chunks: 0,
        },
        Slowness::Timed(_) => return operator,
    };
    match operator {
        Operator::Stateless(inner) => Operator::stateless(Slow { inner, pause }),
        Operator::Stateful(inner) => Operator::stateful(Slow { inner, pause }),
    }
}

/// An operator that pauses before each chunk.
struct Slow<O: ?Sized> {
    inner: Box<O>,
    pause: Pause,
}

enum Pause {
    Before(Duration),
    Timed {
        slowness: Arc<Slowness>,
        is_first: bool,
        slow_from_ns: Option<u64>,
        busy_until_ns: u64,
        chunks: u64,
    },
}

impl Pause {
    fn pause(&mut self, chunk: &Chunk) {
        match self {
            Pause::Before(pause) => std::thread::sleep(*pause),
            Pause::Timed {
                slowness,
                is_first,
                slow_from_ns,
                busy_until_ns,
                chunks,
            } => {
                let Slowness::Timed(timed) = &**slowness else {
                    return;
                };
                let now = now_ns();
                let slow_from =
                    *slow_from_ns.get_or_insert_with(|| now + timed.slow_after.as_nanos() as u64);
                let mut cost = chunk.rows() as f64 * timed.row_ns as f64;
                *chunks += 1;
                let chance = mix(*chunks) as f64 / u64::MAX as f64;
                if *is_first && now >= slow_from && chance < timed.probability {
                    cost *= timed.factor;
                }
                let begin = match *busy_until_ns {
                    // The last sleep was too long, so this one is shorter.
                    until if until + OVERSLEEP_NS > now => until,
                    _ => now,
                };
                *busy_until_ns = begin + cost as u64;
                if *busy_until_ns > now + PAUSE_MIN_NS {
                    std::thread::sleep(Duration::from_nanos(*busy_until_ns - now));
                }
                if *is_first && chunk.ingest_ns <= slow_from {
                    let late = now_ns().saturating_sub(slow_from);
                    timed.reaction_ns.fetch_max(late, Ordering::Relaxed);
                }
            }
        }
    }
}

/// SplitMix64's finaliser.
fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_mul(SEED_STEP);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Stateless for Slow<dyn Stateless> {
    fn begin_unit(&mut self) -> Result<()> {
        self.inner.begin_unit()
    }

    fn process(&mut self, chunk: Chunk, output: &mut Output) -> Result<()> {
        self.pause.pause(&chunk);
        self.inner.process(chunk, output)
    }

    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
}

impl Stateful for Slow<dyn Stateful> {
    fn facts(&self) -> Facts {
        self.inner.facts()
    }

    fn process(&mut self, input: usize, chunk: Chunk, output: &mut Output) -> Result<()> {
        self.pause.pause(&chunk);
        self.inner.process(input, chunk, output)
    }

    fn rest(&mut self, output: &mut Output) -> Result<Progress> {
        self.inner.rest(output)
    }

    fn advance(&mut self, watermark: EventTime, output: &mut Output) -> Result<Progress> {
        self.inner.advance(watermark, output)
    }

    fn timer(&mut self) -> Option<&mut dyn Timer> {
        self.inner.timer()
    }

    fn end_unit(&mut self, output: &mut Output) -> Result<()> {
        self.inner.end_unit(output)
    }

    fn state(&mut self) -> Option<&mut dyn KeyedState> {
        self.inner.state()
    }

    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
}
