//! CPU time of processes and of the whole machine, as the kernel counts it.

use std::fs;

/// The running processes that a process has started.
pub fn children(parent: u32) -> Vec<u32> {
    let mut children = Vec::new();
    let tasks = fs::read_dir(format!("/proc/{parent}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        let listed = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let numbers = listed.split_whitespace();
        children.extend(numbers.filter_map(|pid| pid.parse::<u32>().ok()));
    }
    children.sort_unstable();
    children
}

/// A process, the running processes that it has started, those that these have started, and so on.
pub fn with_descendants(process: u32) -> Vec<u32> {
    let mut all = vec![process];
    let mut next = 0;
    while let Some(&parent) = all.get(next) {
        all.extend(children(parent));
        next += 1;
    }
    all
}

/// CPU time of a process and of all processes that it started, including those that have ended.
///
/// # Errors
///
/// If the process no longer exists.
pub fn cpu_s(pid: u32) -> Result<f64, String> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let ticks = ticks(&text).ok_or_else(|| format!("{path}: can't parse: {text}"))?;
    let own_s = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    // A process that has ended in the meantime is counted by its parent a moment later.
    let theirs = children(pid).into_iter().filter_map(|pid| cpu_s(pid).ok());
    Ok(own_s + theirs.sum::<f64>())
}

/// Ticks of the process itself and of those that it has waited for, in user space and in the kernel.
fn ticks(stat: &str) -> Option<u64> {
    // The name may contain spaces and parentheses; the fields after it contain none.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields = fields.split_whitespace().skip(11).take(4);
    let ticks = fields.map(|ticks| ticks.parse::<u64>().ok());
    let ticks = ticks.collect::<Option<Vec<u64>>>()?;
    (ticks.len() == 4).then(|| ticks.iter().sum())
}

/// Ticks of all cores since the machine started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ticks {
    /// All time.
    pub all: u64,
    /// Time in which a core was not idle, including stolen time.
    pub busy: u64,
    /// Time that a hypervisor gave to other machines.
    pub stolen: u64,
}

impl Ticks {
    /// The ticks up to now; zeros if the kernel doesn't count them.
    pub fn now() -> Ticks {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        Ticks::of(&text)
    }

    /// Parses the line of all cores: user, nice, system, idle, waiting for I/O (counted as idle), two
    /// kinds of interrupts, and stolen. The fields after these are already included in user and nice.
    fn of(text: &str) -> Ticks {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "));
        let ticks = line.unwrap_or_default().split_whitespace().take(8);
        let ticks = ticks.map(|ticks| ticks.parse().unwrap_or(0));
        let ticks = ticks.collect::<Vec<u64>>();
        let at = |place: usize| ticks.get(place).copied().unwrap_or(0);
        let all = ticks.iter().sum::<u64>();
        Ticks {
            all,
            busy: all - at(3) - at(4),
            stolen: at(7),
        }
    }
}

/// CPU seconds in which the cores of the machine were not idle so far; 0 if the kernel doesn't report it.
pub fn busy_s() -> f64 {
    Ticks::now().busy as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_hide_the_times() {
        let stat = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 20 0";
        assert_eq!(ticks(stat), Some(127));
        assert_eq!(ticks("12 (a) S 1 2"), None);
        assert!(cpu_s(std::process::id()).is_ok());
        assert!(cpu_s(0).is_err());
    }

    #[test]
    fn idle_cores_are_not_busy() {
        let text = "cpu  10 20 30 400 500 6 7 8 900 1000\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        let ticks = Ticks::of(text);
        assert_eq!((ticks.all, ticks.busy, ticks.stolen), (981, 81, 8));
        assert_eq!(Ticks::of(""), Ticks::default());
    }
}
