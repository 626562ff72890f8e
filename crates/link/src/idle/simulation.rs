//! A simulation of waiting: a worker with one link, arrivals from a seed, a host whose costs are known.
//!
//! It measures the CPU time of reader and writer together, and the delay from a message's arrival to the
//! look that finds it. The host is not the one that the strategy assumes: its costs grow with the time
//! that a core was idle, as measured ones do, and can be wrong as a whole.

use std::time::Duration;

use super::{Costs, Idle, IdleStrategy, WaitMode};
use crate::doorbell::Listen;
use crate::waiter::Woken;

/// Small numbers from a seed.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        // xorshift64*.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// From 0 (not included) to 1.
    pub(super) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 1.0) / (1u64 << 53) as f64
    }

    /// Exponentially distributed, with this mean.
    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }
}

/// When messages come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arrivals {
    /// At random, independently of each other.
    Poisson,
    /// At equal intervals.
    Regular,
    /// At random, but all that are due leave together once a millisecond.
    Batched,
    /// At random for 50 ms at ten times the rate, then not at all for 450 ms.
    OnOff,
}

/// The times at which messages arrive, in nanoseconds.
struct Times {
    arrivals: Arrivals,
    /// The mean interval in nanoseconds.
    mean: f64,
    time: f64,
    random: Random,
}

impl Times {
    fn next(&mut self) -> u64 {
        const MILLISECOND: f64 = 1e6;
        match self.arrivals {
            Arrivals::Regular => self.time += self.mean,
            Arrivals::Poisson => self.time += self.random.exponential(self.mean),
            Arrivals::Batched => {
                self.time += self.random.exponential(self.mean);
                return ((self.time / MILLISECOND).ceil() * MILLISECOND) as u64;
            }
            Arrivals::OnOff => {
                self.time += self.random.exponential(self.mean / 10.0);
                let periods = (self.time / (50.0 * MILLISECOND)).floor();
                return (self.time + periods * 450.0 * MILLISECOND) as u64;
            }
        }
        self.time as u64
    }
}

/// The costs on the simulated host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Host {
    /// The factor on the cost of a wake-up, and on that of a sleep.
    pub wake: f64,
    pub sleep: f64,
    /// Messages that fit the link.
    pub capacity: usize,
    /// Work per message.
    pub work_ns: u64,
    /// The cost of finding something, however many messages.
    pub found_ns: u64,
}

/// The cost of a look that finds nothing.
const LOOK_NS: u64 = 50;

impl Host {
    pub(super) const MEASURED: Host = Host {
        wake: 1.0,
        sleep: 1.0,
        capacity: 1 << 16,
        work_ns: 150,
        found_ns: 0,
    };

    /// As measured: from 20 µs after 20 µs to 45 µs after 10 ms without work, both sides together.
    fn wake_ns(&self, idle_ns: u64) -> u64 {
        (self.wake * between(idle_ns, 20_000.0, 45_000.0)) as u64
    }

    /// The woken side's share of it, which is also how long it takes until that side looks.
    fn wake_latency_ns(&self, idle_ns: u64) -> u64 {
        self.wake_ns(idle_ns) / 5 * 4
    }

    /// As measured: from 15 µs (20 µs) to 28 µs (10 ms).
    fn sleep_ns(&self, time_ns: u64) -> u64 {
        (self.sleep * between(time_ns, 15_000.0, 28_000.0)) as u64
    }

    /// As measured: 15 µs for short, 57 µs for long sleeps in the median; one of a hundred twice.
    fn oversleep_ns(&self, time_ns: u64, random: &mut Random) -> u64 {
        let median = between(time_ns, 15_000.0, 57_000.0);
        (median * (0.9 + 0.2 * random.unit()) * if random.unit() < 0.01 { 2.0 } else { 1.0 }) as u64
    }

    /// The longest oversleep.
    fn oversleep_max_ns(&self, time_ns: u64) -> u64 {
        (between(time_ns, 15_000.0, 57_000.0) * 2.2) as u64
    }
}

/// Grows with the logarithm of the time from its value at 20 µs to that at 10 ms.
fn between(time_ns: u64, short: f64, long: f64) -> f64 {
    let decades = (time_ns as f64 / 20_000.0).max(1.0).ln() / (10_000.0_f64 / 20.0).ln();
    short + (long - short) * decades.min(1.0)
}

/// The result of a run.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// Reader and writer, as a share of one core.
    pub cpu: f64,
    pub delay_p99_ns: u64,
    pub changes: u64,
    pub sleeps: u64,
    pub sleeps_ended_early: u64,
    pub seconds: f64,
}

impl Outcome {
    /// Whether the delay keeps to the permitted one, plus the host's oversleep.
    pub(super) fn keeps(&self, delay: Duration, host: &Host) -> bool {
        let delay_ns = delay.as_nanos() as u64;
        self.delay_p99_ns <= delay_ns + host.oversleep_max_ns(delay_ns)
    }
}

/// Runs a mode until `messages` have come or `seconds` have passed.
pub(super) fn run(
    mode: WaitMode,
    host: Host,
    arrivals: Arrivals,
    rate: f64,
    (messages, seconds): (usize, f64),
    seed: u64,
) -> Outcome {
    let mut times = Times {
        arrivals,
        mean: 1e9 / rate,
        time: 0.0,
        random: Random::new(seed),
    };
    let mut random = Random::new(seed + 1);
    let mut strategy = IdleStrategy::new(mode, Costs::default());
    strategy.change(mode, host.found_ns);
    let mut cpu_ns = 0u64;
    let mut delays = Vec::with_capacity(messages.min(1 << 16));
    // Messages on the link, or on their way to it, in the order of their times.
    let mut coming = std::collections::VecDeque::new();
    let end_ns = (seconds * 1e9) as u64;
    let mut now_ns = 0u64;
    while now_ns < end_ns && delays.len() < messages {
        if coming.is_empty() {
            coming.push_back(times.next());
        }
        if coming[0] <= now_ns {
            let look_ns = now_ns;
            now_ns += host.found_ns;
            cpu_ns += host.found_ns;
            while coming.front().is_some_and(|&at| at <= now_ns) {
                let at_ns = coming.pop_front().expect("looked at");
                // Messages that come while others are processed need no further look.
                delays.push(look_ns.saturating_sub(at_ns));
                now_ns += host.work_ns;
                cpu_ns += host.work_ns;
                if coming.is_empty() {
                    coming.push_back(times.next());
                }
            }
            strategy.worked();
            continue;
        }
        let before_ns = now_ns;
        now_ns += LOOK_NS;
        match strategy.idle(|| now_ns) {
            // Nothing happens until the next message, so the looks until then are one.
            Idle::Spin if mode == WaitMode::Poll => now_ns = now_ns.max(coming[0]),
            Idle::Spin => {}
            Idle::Wait(wait) if coming[0] <= now_ns => {
                // The message came between the looks: the announcement is retracted.
                assert!(wait.listen == Listen::Urgent || wait.timeout.is_none());
            }
            Idle::Wait(wait) => {
                let begin_ns = now_ns;
                let sleep = wait.timeout.map(|time| {
                    let time_ns = time.as_nanos() as u64;
                    let until_ns = begin_ns + time_ns + host.oversleep_ns(time_ns, &mut random);
                    (until_ns, time_ns)
                });
                match sleep {
                    None => {
                        let idle_ns = coming[0] - begin_ns;
                        now_ns = coming[0] + host.wake_latency_ns(idle_ns);
                        cpu_ns += host.wake_ns(idle_ns);
                        strategy.woke(now_ns, Woken::Waker);
                    }
                    Some((until_ns, time_ns)) => {
                        while coming.back().is_some_and(|&at| at <= until_ns) {
                            coming.push_back(times.next());
                        }
                        cpu_ns += host.sleep_ns(time_ns);
                        now_ns = until_ns;
                        let mut woken = Woken::TimedOut;
                        if let Some(&nearly_full) = coming.get(host.capacity / 4 * 3)
                            && nearly_full < until_ns
                        {
                            let idle_ns = nearly_full.saturating_sub(begin_ns);
                            now_ns = nearly_full.max(begin_ns) + host.wake_latency_ns(idle_ns);
                            cpu_ns += host.wake_ns(idle_ns);
                            woken = Woken::Waker;
                        }
                        strategy.woke(now_ns, woken);
                    }
                }
                cpu_ns += LOOK_NS;
                continue;
            }
        }
        cpu_ns += now_ns - before_ns;
    }
    delays.sort_unstable();
    let seconds = now_ns as f64 / 1e9;
    Outcome {
        cpu: cpu_ns as f64 / now_ns as f64,
        delay_p99_ns: delays
            .get(delays.len() * 99 / 100)
            .copied()
            .unwrap_or_default(),
        changes: strategy.counters().changes,
        sleeps: strategy.counters().sleeps,
        sleeps_ended_early: strategy.counters().sleeps_ended_early,
        seconds,
    }
}
