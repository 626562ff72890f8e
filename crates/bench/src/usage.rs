//! CPU time of a process between two moments, as the kernel counts it for each thread, and of
//! all other processes on the machine.
//!
//! A thread that is running when it is read is counted up to the last tick of the kernel: some
//! milliseconds of a full core are missing at either end, which is a thousandth of a point.

use std::path::{Path, PathBuf};

use slackwater_engine::time::now_ns;

use crate::common::{Interval, Usage, sleep_until};
use crate::lab::processes::busy_s;

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    now_ns: u64,
    cpu_ns: u64,
    waited_ns: u64,
    voluntary_switches: u64,
}

/// What was used in an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Used {
    /// What the process of the query used.
    pub query: Usage,
    /// CPU time of all processes except it and the generator, including other machines on the same
    /// hardware, in percent of a core. The kernel counts it in ticks: a few percent are noise.
    pub others_percent: f64,
}

/// Sleeps through the interval, and returns what was used in it.
pub fn over(query_pid: u32, generator_pid: u32, interval: Interval) -> Result<Used, String> {
    let tasks = |pid: u32| PathBuf::from(format!("/proc/{pid}/task"));
    let (query, generator) = (tasks(query_pid), tasks(generator_pid));
    let look = |at_ns: u64| -> Result<(Reading, Reading, f64), String> {
        sleep_until(at_ns);
        Ok((Reading::of(&query)?, Reading::of(&generator)?, busy_s()))
    };
    let begin = look(interval.begin_ns)?;
    let end = look(interval.end_ns)?;
    let (query, generator) = (begin.0.until(&end.0), begin.1.until(&end.1));
    let others_s = end.2 - begin.2 - query.cpu_s - generator.cpu_s;
    Ok(Used {
        query,
        others_percent: others_s.max(0.0) / query.wall_s * 100.0,
    })
}

impl Reading {
    /// What a process has used.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn of_process(pid: u32) -> Result<Reading, String> {
        Reading::of(&PathBuf::from(format!("/proc/{pid}/task")))
    }

    /// What the threads of a process with this name have used.
    ///
    /// # Errors
    ///
    /// If there are none.
    pub fn of_thread(pid: u32, name: &str) -> Result<Reading, String> {
        let tasks = PathBuf::from(format!("/proc/{pid}/task"));
        Reading::of_some(&tasks, &|status| {
            let named = status
                .lines()
                .next()
                .and_then(|line| line.strip_prefix("Name:"));
            named.is_some_and(|named| named.trim() == name)
        })
    }

    fn of(tasks: &Path) -> Result<Reading, String> {
        Reading::of_some(tasks, &|_| true)
    }

    fn of_some(tasks: &Path, counts: &dyn Fn(&str) -> bool) -> Result<Reading, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", tasks.display());
        let mut reading = Reading {
            now_ns: now_ns(),
            ..Reading::default()
        };
        let mut threads = 0;
        for task in std::fs::read_dir(tasks).map_err(failed)? {
            let task = task.map_err(failed)?.path();
            // A thread that has ended in the meantime no longer has files.
            let Ok(status) = std::fs::read_to_string(task.join("status")) else {
                continue;
            };
            if !counts(&status) {
                continue;
            }
            let schedstat = task.join("schedstat");
            let times = std::fs::read_to_string(&schedstat).ok();
            let Some((cpu_ns, waited_ns)) = times.as_deref().and_then(times_of) else {
                return Err(format!(
                    "{}: this kernel doesn't count the CPU time of threads in nanoseconds",
                    schedstat.display()
                ));
            };
            reading.cpu_ns += cpu_ns;
            reading.waited_ns += waited_ns;
            reading.voluntary_switches += switches_of(&status);
            threads += 1;
        }
        match threads {
            0 => Err(format!("{}: the process has ended", tasks.display())),
            _ => Ok(reading),
        }
    }

    /// How often threads of the process have gone to sleep.
    pub fn voluntary_switches(&self) -> u64 {
        self.voluntary_switches
    }

    /// What was used between this reading and a later one.
    pub fn until(&self, end: &Reading) -> Usage {
        // What ended threads used is no longer included: no figure goes below zero.
        let seconds = |begin_ns: u64, end_ns: u64| end_ns.saturating_sub(begin_ns) as f64 / 1e9;
        Usage {
            cpu_s: seconds(self.cpu_ns, end.cpu_ns),
            wall_s: seconds(self.now_ns, end.now_ns).max(1e-9),
            voluntary_switches: end
                .voluntary_switches
                .saturating_sub(self.voluntary_switches),
            waited_s: seconds(self.waited_ns, end.waited_ns),
        }
    }
}

/// Time on a core and time waiting for one: the first two numbers of `schedstat`.
fn times_of(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn switches_of(status: &str) -> u64 {
    let name = "voluntary_ctxt_switches:";
    let count = status.lines().find_map(|line| line.strip_prefix(name));
    count
        .and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_thread_are_read() {
        assert_eq!(times_of("123 45 6\n"), Some((123, 45)));
        assert_eq!(times_of("0\n"), None);
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(switches_of(status), 12);
    }

    #[test]
    fn usage_is_the_difference_of_two_readings() {
        let begin = Reading {
            now_ns: 1_000_000_000,
            cpu_ns: 500_000_000,
            waited_ns: 7,
            voluntary_switches: 10,
        };
        let end = Reading {
            now_ns: 3_000_000_000,
            cpu_ns: 600_000_000,
            waited_ns: 20_000_007,
            voluntary_switches: 15,
        };
        let usage = begin.until(&end);
        assert!((usage.percent() - 5.0).abs() < 1e-9);
        assert!((usage.disturbed() - 0.01).abs() < 1e-9);
        assert_eq!(usage.voluntary_switches, 5);
    }

    #[test]
    fn a_process_that_does_not_exist_is_an_error() {
        let nowhere = Reading::of(Path::new("/proc/0/task"));
        assert!(nowhere.unwrap_err().starts_with("/proc/0/task: "));
        // The kernel counts this process's threads while they are measured.
        let own = Reading::of(Path::new("/proc/self/task")).unwrap();
        assert!(own.cpu_ns > 0);
    }
}
