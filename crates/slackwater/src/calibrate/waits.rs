//! Measures wake-ups and sleeps with the waiter that workers use.
//!
//! Both cost more the longer a core was idle before, so a wake-up is measured after a millisecond
//! of silence, and sleeps by their length.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use slackwater_link::{Listen, Sources, Waiter, set_timer_slack_ns};

use crate::measure::{Cores, PATIENCE, median, pin, thread_cpu};

/// The measured sleeps: requested time in microseconds, number of measurements, and their number with
/// `--quick`.
const SLEEPS: [(u64, usize, usize); 4] = [
    (50, 1_000, 300),
    (200, 1_000, 300),
    (1_000, 500, 200),
    (10_000, 200, 40),
];

/// The number of measured wake-ups, and their number with `--quick`.
const WAKES: (usize, usize) = (500, 150);

/// How long nothing happens before a wake-up.
const SILENCE: Duration = Duration::from_millis(1);

/// The cost of a timed sleep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sleep {
    /// The requested time in microseconds.
    pub asked_us: u64,
    /// The number of measurements.
    pub count: usize,
    /// The CPU time of one sleep.
    pub cpu_ns: f64,
    /// How much longer than requested the sleep lasts, in the median.
    pub oversleep_p50_ns: f64,
    /// The 99th percentile of the same.
    pub oversleep_p99_ns: f64,
}

/// The cost of a wake-up through a doorbell, a millisecond after the last one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wake {
    /// Whether the two threads run on different cores.
    pub across_cores: bool,
    /// The number of measurements.
    pub count: usize,
    /// The CPU time of the thread that wakes the other one.
    pub ringing_cpu_ns: f64,
    /// The CPU time of the woken thread, to fall asleep and to wake up.
    pub woken_cpu_ns: f64,
    /// The time until the woken thread looks for work, in the median.
    pub until_look_p50_ns: f64,
    /// The 99th percentile of the same.
    pub until_look_p99_ns: f64,
}

/// The value below which the share `quantile` of the values lies.
fn quantile(values: &mut [f64], quantile: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * quantile).ceil() as usize;
    values.get(rank.max(1) - 1).copied().unwrap_or(0.0)
}

/// Measures sleeps on one core.
pub fn sleeps(core: usize, quick: bool) -> Result<Vec<Sleep>, String> {
    let measuring = std::thread::spawn(move || {
        pin(core)?;
        set_timer_slack_ns(1);
        let waiter = Waiter::new().map_err(|error| error.to_string())?;
        let sleeps = SLEEPS.iter().map(|&(asked_us, count, hurried)| {
            let count = if quick { hurried } else { count };
            sleep(&waiter, asked_us, count)
        });
        sleeps.collect::<Result<Vec<Sleep>, String>>()
    });
    measuring
        .join()
        .map_err(|_| "a measuring thread panicked")?
}

fn sleep(waiter: &Waiter, asked_us: u64, count: usize) -> Result<Sleep, String> {
    let asked = Duration::from_micros(asked_us);
    let (mut cpu_ns, mut over_ns) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (cpu, begin) = (thread_cpu(), Instant::now());
        // Like a worker that found nothing to do.
        waiter.announce(Listen::Urgent);
        let woken = waiter.wait(Some(asked), Sources::Doorbell);
        woken.map_err(|error| error.to_string())?;
        let took = begin.elapsed();
        cpu_ns.push((thread_cpu() - cpu).as_nanos() as f64);
        over_ns.push(took.saturating_sub(asked).as_nanos() as f64);
    }
    Ok(Sleep {
        asked_us,
        count,
        cpu_ns: median(cpu_ns),
        oversleep_p50_ns: median(over_ns.clone()),
        oversleep_p99_ns: quantile(&mut over_ns, 0.99),
    })
}

/// Measures wake-ups across cores if there are two, and on one core.
pub fn wakes(cores: Cores, quick: bool) -> Result<Vec<Wake>, String> {
    let count = if quick { WAKES.1 } else { WAKES.0 };
    let same = Cores {
        leader: cores.leader,
        follower: cores.leader,
    };
    let mut wakes = Vec::new();
    if cores != same {
        wakes.push(wake(cores, count)?);
    }
    wakes.push(wake(same, count)?);
    Ok(wakes)
}

/// What the waking and the woken thread share.
struct Bell {
    /// The number of wake-ups so far.
    wakes: AtomicU64,
    /// The time of the last wake-up, in nanoseconds since the start.
    woken_at_ns: AtomicU64,
    over: AtomicBool,
}

fn wake(cores: Cores, count: usize) -> Result<Wake, String> {
    let waiter = Waiter::new().map_err(|error| error.to_string())?;
    let waker = waiter.waker();
    let start = Instant::now();
    let bell = Bell {
        wakes: AtomicU64::new(0),
        woken_at_ns: AtomicU64::new(0),
        over: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let shared = &bell;
        let sleeping = scope.spawn(move || be_woken(cores.follower, &waiter, shared, start));
        let ringing = scope.spawn(move || {
            let ringing_cpu_ns = (|| {
                pin(cores.leader)?;
                set_timer_slack_ns(1);
                let mut cpu_ns = Vec::new();
                for number in 1..=count as u64 {
                    std::thread::sleep(SILENCE);
                    shared
                        .woken_at_ns
                        .store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
                    shared.wakes.store(number, Ordering::Release);
                    let cpu = thread_cpu();
                    waker.wake();
                    cpu_ns.push((thread_cpu() - cpu).as_nanos() as f64);
                }
                Ok(median(cpu_ns))
            })();
            std::thread::sleep(SILENCE);
            shared.over.store(true, Ordering::Release);
            waker.wake_urgent();
            ringing_cpu_ns
        });
        let panicked = "a measuring thread panicked";
        let ringing_cpu_ns: Result<f64, String> = ringing.join().map_err(|_| panicked)?;
        let (woken_cpu_ns, mut until_look_ns) = sleeping.join().map_err(|_| panicked)??;
        Ok(Wake {
            across_cores: cores.leader != cores.follower,
            count: until_look_ns.len(),
            ringing_cpu_ns: ringing_cpu_ns?,
            woken_cpu_ns,
            until_look_p50_ns: quantile(&mut until_look_ns, 0.5),
            until_look_p99_ns: quantile(&mut until_look_ns, 0.99),
        })
    })
}

/// Runs the woken thread; returns its CPU time per wake-up, and how long each wake-up took.
fn be_woken(
    core: usize,
    waiter: &Waiter,
    bell: &Bell,
    start: Instant,
) -> Result<(f64, Vec<f64>), String> {
    pin(core)?;
    let (mut cpu_ns, mut until_look_ns) = (Vec::new(), Vec::new());
    let mut seen = 0;
    while !bell.over.load(Ordering::Acquire) {
        let cpu = thread_cpu();
        waiter.announce(Listen::Everything);
        if bell.over.load(Ordering::Acquire) || bell.wakes.load(Ordering::Acquire) != seen {
            waiter.retract();
            seen = bell.wakes.load(Ordering::Acquire);
            continue;
        }
        let woken = waiter.wait(Some(PATIENCE), Sources::All);
        woken.map_err(|error| error.to_string())?;
        let now_ns = start.elapsed().as_nanos() as u64;
        let wakes = bell.wakes.load(Ordering::Acquire);
        if wakes == seen {
            continue;
        }
        seen = wakes;
        cpu_ns.push((thread_cpu() - cpu).as_nanos() as f64);
        until_look_ns.push(now_ns.saturating_sub(bell.woken_at_ns.load(Ordering::Relaxed)) as f64);
    }
    Ok((median(cpu_ns), until_look_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let mut values = (1..=100).rev().map(f64::from).collect::<Vec<f64>>();
        assert_eq!(quantile(&mut values, 0.99), 99.0);
        assert_eq!(quantile(&mut values, 0.5), 50.0);
        assert_eq!(quantile(&mut values, 1.0), 100.0);
        assert_eq!(quantile(&mut [7.0], 0.99), 7.0);
        assert_eq!(quantile(&mut [], 0.5), 0.0);
    }
}
