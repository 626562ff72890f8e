//! The machine: what it is, how busy, and how late its sleeps end.

use std::time::{Duration, Instant};

use serde::Serialize;
use slackwater_link::{Listen, Sources, Waiter, set_timer_slack_ns};

use super::order::{Latency, histogram};
use crate::machine;
use crate::measure::{self, Cores};

/// For how long sleeps of one length are measured in each round, and how many at most.
const OVERSLEEP_TIME: Duration = Duration::from_millis(700);
const OVERSLEEPS_MAX: u32 = 1_000;

/// Where this was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// The processor's name, as it gives it.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// Whether it is a virtual machine.
    pub virtualised: bool,
    /// Processes that ran or waited to, in the mean of the last minute, before.
    pub load_before: f64,
    /// And after.
    pub load_after: f64,
}

impl Host {
    /// This one, now.
    pub fn this() -> Host {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            line.split_once(':').map(|(_, value)| value.trim())
        };
        let flags = field("flags").unwrap_or_default();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Host {
            processor: field("model name").unwrap_or("unknown").to_string(),
            cores: slackwater_engine::link::allowed_cores().len(),
            kernel: kernel.trim().to_string(),
            virtualised: flags.split_whitespace().any(|flag| flag == "hypervisor"),
            load_before: load(),
            load_after: load(),
        }
    }
}

/// Processes that run or wait to, in the mean of the last minute.
pub fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// Two cores to measure on, if possible not two threads of one.
pub fn cores() -> Result<Cores, String> {
    let topology = machine::topology();
    let allowed = topology.cores.iter().filter(|core| core.allowed);
    let allowed = allowed.collect::<Vec<_>>();
    let first = allowed.first().ok_or("this process may use no core")?;
    let apart = |core: &&&slackwater_control::topology::Core| !first.siblings.contains(&core.id);
    let second = allowed.iter().find(apart).or(allowed.get(1));
    let second = second.ok_or("two cores are needed, and this process may use one")?;
    Ok(Cores {
        leader: first.id,
        follower: second.id,
    })
}

/// How late sleeps end.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Oversleep {
    /// How long they were to last.
    pub sleep_us: f64,
    /// How much longer they lasted.
    pub late: Latency,
}

/// Measures sleeps of such lengths, as a worker sleeps.
pub fn oversleeps(core: usize, sleeps: &[Duration]) -> Result<Vec<Oversleep>, String> {
    let sleeps = sleeps.to_vec();
    let measuring = std::thread::spawn(move || -> Result<Vec<Oversleep>, String> {
        measure::pin(core)?;
        set_timer_slack_ns(1);
        let failed = |error: std::io::Error| error.to_string();
        let waiter = Waiter::new().map_err(failed)?;
        let measure = |sleep: Duration| -> Result<Oversleep, String> {
            let mut late = histogram();
            let begin = Instant::now();
            let mut count = 0;
            while count < OVERSLEEPS_MAX && begin.elapsed() < OVERSLEEP_TIME {
                let fell_asleep = Instant::now();
                waiter.announce(Listen::Urgent);
                let woken = waiter.wait(Some(sleep), Sources::Doorbell);
                woken.map_err(failed)?;
                let took = fell_asleep.elapsed();
                late.saturating_record(took.saturating_sub(sleep).as_nanos() as u64);
                count += 1;
            }
            Ok(Oversleep {
                sleep_us: sleep.as_nanos() as f64 / 1e3,
                late: Latency::of(&late),
            })
        };
        sleeps.into_iter().map(measure).collect()
    });
    measuring.join().map_err(|_| "a measuring thread panicked")?
}
