//! What a run costs without checkpoints, with its own, and with a standby.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::plan::{Case, Plan, WINDOW_S, Way};
use crate::checkpoint::query::{Place, Spec, text, windows};
use crate::checkpoint::running::{OUTPUT, Running};
use crate::checkpoint::workers::workers;
use crate::lab::folder::Folder;
use crate::lab::processes::{busy_s, cpu_s};

/// The query's time after the measured interval, so that it doesn't end within it.
const TAIL_S: f64 = 0.5;

/// Measurements of a point.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// What is computed.
    pub case: Case,
    /// How checkpoints are taken.
    pub way: Way,
    /// CPU time of the run, in percent of a core.
    pub percent: f64,
    /// CPU time of its threads that do not process rows.
    pub beside_percent: f64,
    /// CPU time of the standby.
    pub standby_percent: Option<f64>,
    /// CPU time of all other processes.
    pub others_percent: f64,
}

impl Point {
    /// A line of progress.
    pub fn line(&self) -> String {
        let standby = self.standby_percent;
        let standby = standby.map_or(String::new(), |percent| {
            format!(", the standby {percent:.1} %")
        });
        format!(
            "{}, {}: {:.1} %, of that beside workers {:.2} %{standby}, others {:.0} %",
            self.case.name(),
            self.way.name(),
            self.percent,
            self.beside_percent,
            self.others_percent
        )
    }
}

/// Measures a point.
///
/// # Errors
///
/// If a run fails.
pub fn measure(plan: &Plan, (case, way): (Case, Way)) -> Result<Point, String> {
    let folder = Folder::make(&plan.folder)?;
    let spec = Spec {
        keys: case.keys(),
        place: Place::Blackhole,
        interval_ms: (way != Way::None).then_some(plan.interval_ms),
    };
    let query = match case {
        Case::Keys(_) => text(&spec, plan.rate_per_s, &folder.file(OUTPUT), true),
        Case::Windows => windows(&spec, plan.rate_per_s, WINDOW_S),
    };
    let warm_up_s = plan.warm_up_s(case.keys());
    let duration = format!("{}ms", ((warm_up_s + plan.seconds + TAIL_S) * 1e3) as u64);
    // As often with a standby as without.
    let lag = format!("--set=standby_lag={} ms", 2 * plan.interval_ms);
    let begun = Instant::now();
    let arguments = ["--duration", &duration, &lag];
    let active = Running::start(&query, &folder, way != Way::None, &arguments)?;
    let standby = match way {
        Way::Standby => {
            std::thread::sleep(Duration::from_millis(500));
            Some(Running::start(&query, &folder, true, &["--standby", &lag])?)
        }
        Way::None | Way::Own => None,
    };
    sleep_until(begun + Duration::from_secs_f64(warm_up_s));
    let look = || {
        let of_standby = standby.as_ref().map(|standby| cpu_s(standby.pid()));
        Ok::<_, String>((
            Instant::now(),
            cpu_s(active.pid())?,
            workers(active.pid())?.cpu_s,
            of_standby.transpose()?,
            busy_s(),
        ))
    };
    let begin = look()?;
    sleep_until(begun + Duration::from_secs_f64(warm_up_s + plan.seconds));
    let end = look()?;
    // It must not go on when the active has come to its end.
    drop(standby);
    active.finish()?;
    let wall_s = (end.0 - begin.0).as_secs_f64();
    let percent = |cpu_s: f64| (cpu_s / wall_s * 100.0).max(0.0);
    let own_s = end.1 - begin.1;
    let standby_s = end.3.zip(begin.3).map(|(end, begin)| end - begin);
    let others_s = end.4 - begin.4 - own_s - standby_s.unwrap_or(0.0);
    Ok(Point {
        case,
        way,
        percent: percent(own_s),
        beside_percent: percent(own_s - (end.2 - begin.2)),
        standby_percent: standby_s.map(percent),
        others_percent: percent(others_s),
    })
}

fn sleep_until(at: Instant) {
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
}
