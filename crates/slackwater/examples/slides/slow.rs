//! Work that is done several times, for measurements: P4's slow nodes compute repeatedly.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::time::{ClockId, clock_gettime};
use slackwater::functions::operator::Call;

/// The most repetitions.
const REPEAT_MAX: i64 = 1_000;

thread_local! {
    /// Whether this thread makes blocks and deals them.
    static DEALS: Cell<bool> = const { Cell::new(false) };
    /// The copy that this thread runs; `None` before its first block.
    static COPY: RefCell<Option<OneCopy>> = const { RefCell::new(None) };
}

/// How often copies compute.
pub struct Slow {
    repeat: i64,
    /// The slow copy is the one whose thread has made no blocks when it gets its first: a thread that
    /// computes slowly would deal slowly, too. It computes as many times as often as the file `<mark>.slow`
    /// says, while there is one: so copies of other processes know of it.
    mark: Option<String>,
}

/// What a copy has done.
struct OneCopy {
    is_slow: bool,
    /// `<mark>.slow-count` or `<mark>.fast-count`, the two numbers below. Without it a measurement fails.
    count: Option<File>,
    blocks: u64,
    /// The CPU time of what was repeated, in nanoseconds.
    cpu_ns: u64,
}

impl Slow {
    /// By the arguments `repeat`, `slow` and `mark` of a call.
    pub fn of(call: &Call) -> Result<Slow, String> {
        let repeat = call.optional::<i64>("repeat")?.unwrap_or(0);
        if !(0..=REPEAT_MAX).contains(&repeat) {
            return Err(format!(
                "'repeat' is {repeat}: must be from 0 to {REPEAT_MAX}"
            ));
        }
        Ok(Slow {
            repeat,
            mark: call.optional::<String>("mark")?,
        })
    }

    /// Repeats work as often as this copy does.
    pub fn repeat(&self, work: impl Fn()) {
        let Some(mark) = &self.mark else {
            (0..self.repeat).for_each(|_| work());
            return;
        };
        COPY.with_borrow_mut(|copy| {
            let copy = copy.get_or_insert_with(|| OneCopy::new(mark));
            let times = self.repeat * copy.factor(mark);
            let begin = thread_ns();
            (0..times).for_each(|_| work());
            copy.count(thread_ns() - begin);
        });
    }
}

impl OneCopy {
    fn new(mark: &str) -> OneCopy {
        let is_slow = !DEALS.get();
        let kind = if is_slow { "slow" } else { "fast" };
        OneCopy {
            is_slow,
            count: File::create(format!("{mark}.{kind}-count")).ok(),
            blocks: 0,
            cpu_ns: 0,
        }
    }

    /// How many times as often the copy computes.
    fn factor(&self, mark: &str) -> i64 {
        let text = self
            .is_slow
            .then(|| std::fs::read_to_string(format!("{mark}.slow")).ok());
        let factor = text.flatten().and_then(|text| text.trim().parse().ok());
        i64::clamp(factor.unwrap_or(1), 1, REPEAT_MAX)
    }

    fn count(&mut self, cpu_ns: u64) {
        self.blocks += 1;
        self.cpu_ns += cpu_ns;
        let numbers = [self.blocks.to_le_bytes(), self.cpu_ns.to_le_bytes()].concat();
        let written = self
            .count
            .as_ref()
            .is_some_and(|file| file.write_all_at(&numbers, 0).is_ok());
        if !written {
            self.count = None;
        }
    }
}

/// Says that this thread makes blocks.
pub fn deals_here() {
    DEALS.set(true);
}

/// The blocks that the slow copy (or the other one) has computed, and their CPU time in seconds. For
/// measurements.
///
/// # Errors
///
/// When the copy has not counted.
pub fn counted(mark: &str, is_slow: bool) -> Result<(f64, f64), String> {
    let kind = if is_slow { "slow" } else { "fast" };
    let path = format!("{mark}.{kind}-count");
    let bytes = std::fs::read(&path).map_err(|error| format!("{path}: {error}"))?;
    let number = |at: usize| bytes.get(at..).and_then(<[u8]>::first_chunk);
    match (number(0), number(8)) {
        (Some(blocks), Some(cpu_ns)) => Ok((
            u64::from_le_bytes(*blocks) as f64,
            u64::from_le_bytes(*cpu_ns) as f64 / 1e9,
        )),
        _ => Err(format!("{path}: the copy has not counted")),
    }
}

/// The CPU time of this thread in nanoseconds.
fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
