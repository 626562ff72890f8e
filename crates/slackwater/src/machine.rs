//! What the operating system reports about this machine and this process.

use std::fs;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

mod described;
mod quota;
mod stolen;
mod system;
mod thread_times;
mod usable;

pub use described::{Described, describe, named};
pub use stolen::Stolen;
pub use system::{read, topology};
pub use thread_times::ThreadTimes;
pub use usable::Machine;

/// CPU time of the whole process so far, in seconds.
pub fn process_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// How often the CPU time of children is read again because a worker has ended meanwhile.
const READ_AGAIN_MAX: usize = 3;

/// CPU time of child processes that have ended and were waited for, and of running workers of functions, in
/// seconds. The system counts hundredths.
pub fn children_cpu_s() -> f64 {
    let mut ticks = 0;
    for _ in 0..READ_AGAIN_MAX {
        let workers = slackwater_udf::running();
        // utime and stime, and cutime and cstime: the 14th to 17th fields.
        let running = workers.iter();
        let running = running.map(|pid| stat_ticks(&format!("/proc/{pid}/stat"), 14));
        ticks = running.sum::<u64>() + stat_ticks("/proc/self/stat", 16);
        // One that was waited for between the two was counted twice.
        if slackwater_udf::running().is_superset(&workers) {
            break;
        }
    }
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// The sum of two fields of a file of `/proc` about a process, `first` and the next one; 0 if it has ended.
fn stat_ticks(path: &str, first: usize) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    // The second field is the program's name in parentheses, which may contain anything.
    let Some((_, fields)) = text.rsplit_once(')') else {
        return 0;
    };
    let ticks = fields.split_whitespace().skip(first - 3).take(2);
    ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// What this process has used so far. Taken when a query starts, so that earlier use is not counted for it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used {
    process_s: f64,
    children_s: f64,
    switches: u64,
}

impl Used {
    /// What was used until now.
    pub fn now() -> Used {
        Used {
            process_s: process_cpu_s(),
            children_s: children_cpu_s(),
            switches: voluntary_switches(),
        }
    }

    /// The CPU time of this process since then, in seconds.
    pub fn cpu_s_since(&self) -> f64 {
        (process_cpu_s() - self.process_s).max(0.0)
    }

    /// The CPU time of children that were waited for since then, in seconds.
    pub fn children_cpu_s_since(&self) -> f64 {
        (children_cpu_s() - self.children_s).max(0.0)
    }

    /// Voluntary context switches since then of all running threads. Those of threads that have ended are not
    /// counted.
    pub fn switches_since(&self) -> u64 {
        voluntary_switches().saturating_sub(self.switches)
    }
}

/// Largest resident size of the process so far, in bytes.
pub fn peak_rss_bytes() -> u64 {
    status_field(Path::new("/proc/self/status"), "VmHWM:").unwrap_or(0) * 1024
}

/// The CPU time of the calling thread, in nanoseconds.
pub fn own_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The CPU time of a thread of this process, by its number; `None` if the system doesn't count it.
pub fn thread_cpu_s(thread: u64) -> Option<f64> {
    let (cpu_ns, _) = ThreadTimes::default().read_ns(thread)?;
    Some(cpu_ns as f64 / 1e9)
}

/// The voluntary context switches of all running threads: how often one of them went to sleep.
pub fn voluntary_switches() -> u64 {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return 0;
    };
    let tasks = tasks.flatten().map(|task| task.path().join("status"));
    tasks
        .filter_map(|path| status_field(&path, "voluntary_ctxt_switches:"))
        .sum()
}

/// The voluntary context switches of a thread of this process, by its number.
pub fn thread_switches(thread: u64) -> Option<u64> {
    let path = format!("/proc/self/task/{thread}/status");
    status_field(Path::new(&path), "voluntary_ctxt_switches:")
}

/// The memory that this process holds now, in bytes.
pub fn resident_bytes() -> u64 {
    status_field(Path::new("/proc/self/status"), "VmRSS:").unwrap_or(0) * 1024
}

fn status_field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line[name.len()..].split_whitespace().next()?.parse().ok()
}
