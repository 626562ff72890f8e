//! From the death of the active to rows.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use super::plan::{Heir, Plan};
use super::slow::SlowStorage;
use crate::checkpoint::output::Output;
use crate::checkpoint::query::{Place, Spec, text};
use crate::checkpoint::running::{OUTPUT, Running, STATE, TIMEOUT};
use crate::lab::folder::Folder;

/// Interval between two looks at the output.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// What a standby says when the active is gone.
const GONE: &str = "is gone";

/// Times after the death of the active.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TakeOver {
    /// Number of different keys.
    pub keys: u64,
    /// By what the query goes on.
    pub heir: Heir,
    /// Time until the death was noticed.
    pub noticed_ms: f64,
    /// Time from that until rows arrived in the sink again.
    pub back_ms: f64,
}

impl TakeOver {
    /// A line of progress.
    pub fn line(&self) -> String {
        let TakeOver { keys, heir, .. } = self;
        format!(
            "{keys} keys, {}: noticed after {:.1} ms, rows {:.1} ms later",
            heir.name(),
            self.noticed_ms,
            self.back_ms
        )
    }
}

/// Kills the active, and measures how the query goes on; `None` if storage can't be slowed here.
///
/// # Errors
///
/// If the query fails, or doesn't go on.
pub fn measure(
    plan: &Plan,
    (keys, heir): (u64, Heir),
    number: u32,
) -> Result<Option<TakeOver>, String> {
    let folder = Folder::make(&plan.folder)?;
    let spec = Spec {
        keys,
        place: Place::Folder,
        interval_ms: Some(plan.interval_ms),
    };
    let query = text(&spec, plan.rate_per_s, &folder.file(OUTPUT), false);
    let lag = format!("--set=standby_lag={} ms", 2 * plan.interval_ms);
    let slow = match heir {
        Heir::SlowStorage => match SlowStorage::new(&plan.folder, plan.storage_per_s) {
            Some(slow) => Some(slow),
            None => return Ok(None),
        },
        Heir::Restart | Heir::Standby => None,
    };
    // A limit, in case this process can't end it.
    let duration = format!("{:.0}s", plan.warm_up_s(keys) + 3.0 * TIMEOUT.as_secs_f64());
    let arguments = ["--duration", &duration, &lag];
    let mut active = Running::start(&query, &folder, true, &arguments)?;
    let mut standby = match heir {
        Heir::Restart => None,
        Heir::Standby | Heir::SlowStorage => {
            std::thread::sleep(Duration::from_millis(500));
            let arguments = ["--standby", "--duration", &duration, &lag];
            Some(Running::start(&query, &folder, true, &arguments)?)
        }
    };
    let mut output = Output::new(folder.file(OUTPUT));
    let share = f64::from(number) * 0.618_034 % 1.0;
    let run_s = plan.warm_up_s(keys) + share * plan.interval_ms as f64 / 1e3;
    std::thread::sleep(Duration::from_secs_f64(run_s));
    if let Some(slow) = &slow {
        for run in [Some(&active), standby.as_ref()].into_iter().flatten() {
            if slow.add(run.pid()).is_err() {
                return Ok(None);
            }
        }
        // At least one checkpoint of slow storage.
        std::thread::sleep(Duration::from_millis(2 * plan.interval_ms));
    }
    let before = output.look().incarnation.unwrap_or(0);
    if before == 0 {
        return Err(active.failed("nothing was written before the kill"));
    }
    let victim = Pid::from_raw(active.pid() as i32).ok_or("a process has a number")?;
    let killed = Instant::now();
    kill_process(victim, Signal::KILL).map_err(|error| error.to_string())?;
    while active.is_running() {
        std::hint::spin_loop();
    }
    let mut noticed = (heir == Heir::Restart).then(Instant::now);
    let mut next = match standby.take() {
        Some(standby) => standby,
        None => Running::start(&query, &folder, true, &arguments)?,
    };
    let until = Instant::now() + TIMEOUT;
    let back = loop {
        while let Some(said) = next.next_line() {
            if noticed.is_none() && said.line.contains(GONE) {
                noticed = Some(said.at);
            }
        }
        if output
            .look()
            .incarnation
            .is_some_and(|epoch| epoch > before)
        {
            break Instant::now();
        }
        if !next.is_running() || Instant::now() > until {
            return Err(next.failed("the query did not go on"));
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    // The line may be on its way.
    std::thread::sleep(10 * POLL_INTERVAL);
    while let Some(said) = next.next_line() {
        if noticed.is_none() && said.line.contains(GONE) {
            noticed = Some(said.at);
        }
    }
    let Some(noticed) = noticed else {
        return Err(next.failed("the standby went on without saying why"));
    };
    drop(next);
    drop(std::fs::remove_dir_all(folder.file(STATE)));
    let ms = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1e3;
    Ok(Some(TakeOver {
        keys,
        heir,
        noticed_ms: ms(killed, noticed),
        back_ms: ms(noticed, back),
    }))
}
