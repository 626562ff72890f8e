//! What other processes use of the host meanwhile: the disturbance of a measurement.

use std::fs;
use std::time::Instant;

/// A reading of the host's clocks, to be compared with a later one.
pub struct Others {
    begin: Instant,
    busy_s: f64,
    own_s: f64,
}

impl Others {
    /// From now on.
    pub fn start() -> Others {
        Others {
            begin: Instant::now(),
            busy_s: busy_s(),
            own_s: own_s(),
        }
    }

    /// What others used since, in cores: all that was used, less what this process and its children
    /// that are alive have used. The kernel counts in hundredths of a second.
    pub fn cores(&self) -> f64 {
        let wall_s = self.begin.elapsed().as_secs_f64().max(1e-3);
        let busy_s = busy_s() - self.busy_s;
        let own_s = own_s() - self.own_s;
        ((busy_s - own_s) / wall_s).max(0.0)
    }
}

fn ticks() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// CPU time of all cores, and what a hypervisor took of them.
fn busy_s() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    busy_ticks(&text) / ticks()
}

fn busy_ticks(stat: &str) -> f64 {
    let line = stat.lines().next().unwrap_or_default();
    let fields = line.split_whitespace().skip(1);
    let fields = fields.map(|field| field.parse::<f64>().unwrap_or(0.0));
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are within user and nice.
    let busy = fields.take(8).enumerate();
    busy.filter(|(place, _)| !(3..=4).contains(place))
        .map(|(_, ticks)| ticks)
        .sum()
}

/// CPU time of this process and its children.
fn own_s() -> f64 {
    let children = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    let children = children.split_whitespace().map(|id| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        process_ticks(&stat) / ticks()
    });
    children.sum::<f64>() + slackwater::machine::process_cpu_s()
}

/// Of a process: user and system.
fn process_ticks(stat: &str) -> f64 {
    // The second field is the program's name in brackets, which may hold anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let fields = fields.split_whitespace().skip(11).take(2);
    fields
        .map(|field| field.parse::<f64>().unwrap_or(0.0))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_not_used() {
        let stat = "cpu  100 20 30 5000 600 7 8 9 10 11\ncpu0 1 2 3\n";
        assert_eq!(busy_ticks(stat), 174.0);
        assert_eq!(busy_ticks(""), 0.0);
        let process = "12 (a ) name) S 1 12 12 0 -1 4194304 9 0 0 0 41 1 5 6 20 0 1 0 100 200";
        assert_eq!(process_ticks(process), 42.0);
        assert_eq!(process_ticks("gone"), 0.0);
    }

    #[test]
    fn what_this_process_uses_is_not_of_others() {
        let others = Others::start();
        crate::chunking::work::burn(1_000_000);
        assert!(others.cores() >= 0.0);
    }
}
