//! A kill: the query runs on two processes, one of which is killed.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use super::output::Output;
use super::plan::Plan;
use super::query::{Place, Spec, text};
use super::running::{OUTPUT, Running, TIMEOUT};
use crate::lab::folder::Folder;
use crate::lab::processes::children;

/// Checkpoint interval: one second.
const INTERVAL_MS: u64 = 1_000;

/// Number of processes that run the query.
const PROCESSES: usize = 2;

/// Interval between two looks at the query's output.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Times after the death of a process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Kill {
    /// Number of different keys.
    pub keys: u64,
    /// Time until the parent reported the death.
    pub noticed_ms: f64,
    /// Time until rows arrived in the sink again.
    pub back_ms: f64,
    /// Time until everything that was due at the death was committed.
    pub caught_up_ms: f64,
}

impl Kill {
    /// A line of progress.
    pub fn line(&self) -> String {
        let Kill { keys, .. } = self;
        format!(
            "{keys} keys: noticed after {:.0} ms, rows after {:.0} ms, caught up after {:.0} ms",
            self.noticed_ms, self.back_ms, self.caught_up_ms
        )
    }
}

/// Kills one process of a query, and measures the recovery.
///
/// # Errors
///
/// If the query fails for good, or doesn't recover.
pub fn measure(plan: &Plan, keys: u64, number: u32) -> Result<Kill, String> {
    let spec = Spec {
        keys,
        place: Place::Folder,
        interval_ms: Some(INTERVAL_MS),
    };
    let folder = Folder::make(&plan.folder)?;
    let text = text(&spec, plan.rate_per_s, &folder.file(OUTPUT), false);
    let count = PROCESSES.to_string();
    // A limit for the query, in case this process can't end it.
    let duration_s = plan.warm_up_s(keys) + TIMEOUT.as_secs_f64() * 3.0;
    let duration = format!("{duration_s:.0}s");
    let arguments = [
        "--duration",
        &duration,
        "--processes",
        &count,
        "--workers",
        &count,
        "--parallelism",
        &count,
    ];
    let mut running = Running::start(&text, &folder, true, &arguments)?;
    let mut output = Output::new(folder.file(OUTPUT));
    let begun = wait(&mut running, |_| output.look().incarnation)?;
    // Every key has occurred; then a random moment between two checkpoints.
    let share = f64::from(number) * 0.618_034 % 1.0;
    let run_s = plan.warm_up_s(keys) + (1.0 + share) * INTERVAL_MS as f64 / 1e3;
    std::thread::sleep(Duration::from_secs_f64(run_s));
    let before = output.look();
    if before.last_row.is_none() {
        return Err(running.failed("nothing was committed before the kill"));
    }
    let workers = children(running.pid());
    let victim = workers.get(number as usize % workers.len().max(1));
    let victim = victim.and_then(|&pid| Pid::from_raw(pid as i32));
    let Some(victim) = victim else {
        return Err(running.failed("the query has no process that could be killed"));
    };
    kill_process(victim, Signal::KILL).map_err(|error| running.failed(&error.to_string()))?;
    let killed = Instant::now();
    let due_rows = ((killed - begun.0).as_secs_f64() * plan.rate_per_s as f64) as u64;
    let mut noticed = None;
    let back = wait(&mut running, |running| {
        while let Some(said) = running.next_line() {
            // Earlier lines are not about this death.
            if said.at >= killed {
                noticed.get_or_insert(said.at);
            }
        }
        let incarnation = output.look().incarnation;
        incarnation.filter(|&epoch| epoch > begun.1)
    })?;
    let caught_up = wait(&mut running, |_| {
        let last_row = output.look().last_row;
        last_row.filter(|&row| row >= due_rows)
    })?;
    let Some(noticed) = noticed else {
        return Err(running.failed("the query recovered without reporting it"));
    };
    let ms = |at: Instant| at.saturating_duration_since(killed).as_secs_f64() * 1e3;
    Ok(Kill {
        keys,
        noticed_ms: ms(noticed),
        back_ms: ms(back.0),
        caught_up_ms: ms(caught_up.0),
    })
}

/// Polls until the function returns something; returns the time and the value.
fn wait<T>(
    running: &mut Running,
    mut look: impl FnMut(&mut Running) -> Option<T>,
) -> Result<(Instant, T), String> {
    let until = Instant::now() + TIMEOUT;
    loop {
        if let Some(seen) = look(running) {
            return Ok((Instant::now(), seen));
        }
        if !running.is_running() {
            return Err(running.failed("the query has ended"));
        }
        if Instant::now() > until {
            return Err(running.failed("the query did not recover"));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
