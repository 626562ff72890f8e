//! What processes have used, as the kernel counts it.

use std::fs;

use slackwater_engine::runtime::WORKER_NAME;

/// The processes that a process has started and that are still there.
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

/// CPU time of a process and of all that it has started, those included that have ended.
///
/// # Errors
///
/// When the process is gone.
pub fn cpu_s(pid: u32) -> Result<f64, String> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let ticks = ticks(&text).ok_or_else(|| format!("{path}: it can't be read: {text}"))?;
    let own_s = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    // One that has ended meanwhile is counted by its parent a moment later.
    let theirs = children(pid).into_iter().filter_map(|pid| cpu_s(pid).ok());
    Ok(own_s + theirs.sum::<f64>())
}

/// CPU time of a process's workers: the threads that rows go through.
///
/// # Errors
///
/// When the process is gone, or the kernel doesn't count.
pub fn workers_s(pid: u32) -> Result<f64, String> {
    let tasks = format!("/proc/{pid}/task");
    let failed = |error: std::io::Error| format!("{tasks}: {error}");
    let mut cpu_ns = 0;
    for task in fs::read_dir(&tasks).map_err(failed)?.flatten() {
        // A thread that has ended meanwhile has no files any more, and no worker does.
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if !name.starts_with(WORKER_NAME) {
            continue;
        }
        let times = fs::read_to_string(task.path().join("schedstat")).map_err(failed)?;
        let first = times.split_whitespace().next();
        let own_ns = first.and_then(|ns| ns.parse::<u64>().ok());
        cpu_ns += own_ns.ok_or_else(|| format!("{tasks}: schedstat can't be read: {times}"))?;
    }
    Ok(cpu_ns as f64 / 1e9)
}

/// Of itself and of those that it has waited for: in user space and in the kernel.
fn ticks(stat: &str) -> Option<u64> {
    // The name may have spaces and brackets; what follows has none.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields = fields.split_whitespace().skip(11).take(4);
    let ticks = fields.map(|ticks| ticks.parse::<u64>().ok());
    let ticks = ticks.collect::<Option<Vec<u64>>>()?;
    (ticks.len() == 4).then(|| ticks.iter().sum())
}

/// How long the cores of the machine were not idle so far; 0 where the kernel doesn't say.
pub fn busy_s() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "));
    // User, nice, system, idle, waiting for a disk, interrupts of two kinds, taken by the hypervisor.
    let ticks = line.unwrap_or_default().split_whitespace().take(8);
    let ticks = ticks.map(|ticks| ticks.parse::<u64>().unwrap_or(0));
    let busy = ticks
        .enumerate()
        .filter(|(place, _)| ![3, 4].contains(place));
    let busy = busy.map(|(_, ticks)| ticks).sum::<u64>();
    busy as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_hide_the_times() {
        let stat = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 20 0";
        assert_eq!(ticks(stat), Some(127));
        assert_eq!(ticks("12 (a) S 1 2"), None);
        assert!(cpu_s(std::process::id()).is_ok());
        assert!(cpu_s(0).is_err());
    }
}
