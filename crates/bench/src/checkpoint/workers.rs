//! CPU time of the threads that process rows, and how long they waited for a core.

use std::fs;

use slackwater_engine::runtime::WORKER_NAME;

/// The time that a process's workers have had.
#[derive(Clone, Copy, Debug, Default)]
pub struct Workers {
    /// Their CPU time, in seconds.
    pub cpu_s: f64,
    /// How long they were ready to run while others had their cores, in seconds.
    pub waited_s: f64,
}

/// The times of a process's workers: the threads that process rows.
///
/// # Errors
///
/// If the process no longer exists, or the kernel doesn't count CPU time.
pub fn workers(pid: u32) -> Result<Workers, String> {
    let tasks = format!("/proc/{pid}/task");
    let failed = |error: std::io::Error| format!("{tasks}: {error}");
    let mut all = Workers::default();
    for task in fs::read_dir(&tasks).map_err(failed)?.flatten() {
        // A thread that has ended in the meantime no longer has files; it was not a worker.
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if !name.starts_with(WORKER_NAME) {
            continue;
        }
        let times = fs::read_to_string(task.path().join("schedstat")).map_err(failed)?;
        let mut seconds = times
            .split_whitespace()
            .map(|ns| Some(ns.parse::<u64>().ok()? as f64 / 1e9));
        let mut next = || {
            let seconds = seconds.next().flatten();
            seconds.ok_or_else(|| format!("{tasks}: can't parse schedstat: {times}"))
        };
        all.cpu_s += next()?;
        all.waited_s += next()?;
    }
    Ok(all)
}
