//! CPU time of the threads that process rows.

use std::fs;

use slackwater_engine::runtime::WORKER_NAME;

/// CPU time of a process's workers: the threads that process rows.
///
/// # Errors
///
/// If the process no longer exists, or the kernel doesn't count CPU time.
pub fn workers_s(pid: u32) -> Result<f64, String> {
    let tasks = format!("/proc/{pid}/task");
    let failed = |error: std::io::Error| format!("{tasks}: {error}");
    let mut cpu_ns = 0;
    for task in fs::read_dir(&tasks).map_err(failed)?.flatten() {
        // A thread that has ended in the meantime no longer has files; it was not a worker.
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if !name.starts_with(WORKER_NAME) {
            continue;
        }
        let times = fs::read_to_string(task.path().join("schedstat")).map_err(failed)?;
        let first = times.split_whitespace().next();
        let own_ns = first.and_then(|ns| ns.parse::<u64>().ok());
        cpu_ns += own_ns.ok_or_else(|| format!("{tasks}: can't parse schedstat: {times}"))?;
    }
    Ok(cpu_ns as f64 / 1e9)
}
