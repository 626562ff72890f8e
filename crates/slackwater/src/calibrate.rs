//! `slackwater calibrate`: measures and saves what waiting and links cost on this host.
//!
//! ```text
//! calibrate ──► waits.rs (wake-ups, sleeps)  ──┐
//!               activations.rs (a small query) ┤
//!               links.rs (latency, bandwidth) ─┴─► Calibration ──► table or JSON, and cache.rs
//!
//! run ─────────► costs() ◄── load() ◄── the file, if it is of this host and version
//! ```
//!
//! Invariants:
//! - A query never waits for a calibration and never fails because there is none: figures that are
//!   missing, unreadable, or of another host, version or format are ignored, and
//!   [`costs`] returns the built-in ones.
//! - Every figure is a median (or a quantile) of single measurements, so a short disturbance moves it little;
//!   the number of measurements is shown with it. A long disturbance (`disturbance.rs`) is noticed: the
//!   measurement is repeated, and figures that stay disturbed are shown but not saved.
//!
//! The costs of a wake-up and of a sleep, and how long sleeps overrun, decide how a worker waits
//! (`docs/internals/waiting.md`), so they are measured instead of assumed.

mod activations;
mod cache;
mod disturbance;
mod host;
mod links;
mod side;
mod table;
mod waits;

use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use slackwater_control::latency::model::{Activations, REFERENCE_ROW_NS};
use slackwater_link::Costs;

pub use activations::{Activated, More, Runs};
pub use cache::{Unusable, is_folder_named, load, path};
use disturbance::{Watched, disturbance, implausible};
pub use host::{Host, cores, load_average};
pub use links::LinkCost;
pub(crate) use side::LinkSide;
use side::link_leader;
pub use waits::{Sleep, Wake};

use crate::measure::floor;

/// The version of the file format; files of another version are ignored.
pub const FORMAT: u32 = 1;

/// The sleep whose figures represent all sleeps in [`Costs`]. They grow with the length of the sleep, but
/// their ratio to those of a wake-up hardly changes.
const TYPICAL_SLEEP_US: u64 = 1_000;

/// The options of `slackwater calibrate`.
#[derive(Args)]
pub struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Measure for about five seconds instead of twenty, with fewer message sizes
    #[arg(long)]
    quick: bool,
    /// Measure only if there are no figures of this host and version yet; otherwise print those
    #[arg(long)]
    if_stale: bool,
    /// Save the figures even if other programs disturbed the measurement
    #[arg(long)]
    force: bool,
}

/// How often a measurement is made if it is disturbed.
const ATTEMPTS: usize = 3;

/// What was measured on a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The format's version, [`FORMAT`].
    pub format: u32,
    /// The program's version.
    pub version: String,
    /// The host that was measured.
    pub host: Host,
    /// The date of the measurement, in UTC.
    pub date: String,
    /// Whether `--quick` was given, so fewer measurements were made.
    pub quick: bool,
    /// The time that one reading of the clock takes.
    pub clock_ns: f64,
    /// The costs by which a worker chooses how to wait.
    pub costs: WaitCosts,
    /// Wake-ups through a doorbell.
    pub wakes: Vec<Wake>,
    /// Timed sleeps.
    pub sleeps: Vec<Sleep>,
    /// Links, by kind and size of message.
    pub links: Vec<LinkCost>,
    /// Activations of a small query, by the idle time before; empty in files of earlier versions.
    #[serde(default)]
    pub activations: Vec<Activated>,
    /// What an activation of that query costs more; `None` in files of earlier versions.
    #[serde(default)]
    pub more: Option<More>,
}

/// [`Costs`] as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitCosts {
    /// CPU time of a wake-up, both sides together.
    pub wake_ns: u64,
    /// CPU time of a timed sleep.
    pub sleep_ns: u64,
    /// How much longer than requested a sleep lasts, in the median.
    pub oversleep_p50_ns: u64,
    /// The 99th percentile of the same.
    pub oversleep_p99_ns: u64,
}

impl From<Costs> for WaitCosts {
    fn from(costs: Costs) -> WaitCosts {
        WaitCosts {
            wake_ns: costs.wake_ns,
            sleep_ns: costs.sleep_ns,
            oversleep_p50_ns: costs.oversleep_p50_ns,
            oversleep_p99_ns: costs.oversleep_p99_ns,
        }
    }
}

impl From<WaitCosts> for Costs {
    fn from(costs: WaitCosts) -> Costs {
        Costs {
            wake_ns: costs.wake_ns,
            sleep_ns: costs.sleep_ns,
            oversleep_p50_ns: costs.oversleep_p50_ns,
            oversleep_p99_ns: costs.oversleep_p99_ns,
        }
    }
}

/// What waiting costs on this host, for a query that is about to run: measured, else the built-in costs. A
/// measurement of another host or version is not used, and the user is told so.
pub fn costs() -> Costs {
    match load() {
        Ok(calibration) => calibration.costs.into(),
        Err(unusable) => {
            if unusable.measured_before {
                eprintln!("note: {unusable}; run slackwater calibrate again");
            }
            Costs::default()
        }
    }
}

/// Whether [`costs`] were measured on this host.
pub fn is_measured() -> bool {
    load().is_ok()
}

/// What a query costs on this host, as far as it was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueryCosts {
    /// Activations.
    pub activations: Option<Activations>,
    /// How many times as much as assumed a row costs.
    pub row_factor: Option<f64>,
}

/// A row costs at least this share of what is assumed. Less was measured only where other work disturbed
/// it, since what a row costs is a difference of two figures.
const ROW_FACTOR_MIN: f64 = 0.2;

/// What a query costs on this host.
pub fn query_costs() -> QueryCosts {
    let Ok(measured) = load() else {
        return QueryCosts::default();
    };
    let [first, last] = &measured.activations[..] else {
        return QueryCosts::default();
    };
    let after = [first.into(), last.into()];
    QueryCosts {
        activations: (last.idle_us > first.idle_us).then(|| Activations {
            after,
            arrival_ns: measured.more.map_or(0.0, |more| more.arrival_cpu_ns),
        }),
        row_factor: measured
            .more
            .map(|more| more.record_cpu_ns / REFERENCE_ROW_NS)
            .filter(|&factor| factor >= ROW_FACTOR_MIN),
    }
}

/// Runs the command and returns what to print; `runs` runs a query.
pub fn run(arguments: &Arguments, runs: &Runs<'_>) -> Result<String, String> {
    let cached = load();
    if let (true, Ok(calibration)) = (arguments.if_stale, &cached) {
        return show(calibration, arguments.json, "measured before");
    }
    if let Err(unusable) = &cached {
        eprintln!("{unusable}");
    }
    if cfg!(debug_assertions) {
        eprintln!("warning: this is a debug build; its figures for links are meaningless");
    }
    let (calibration, disturbed) = measure_in_peace(arguments.quick, runs)?;
    let is_refused = match &disturbed {
        Some(_) => !arguments.force || implausible(&calibration.costs).is_some(),
        None => false,
    };
    if let (true, Some(reason)) = (is_refused, disturbed) {
        let instead = match &cached {
            Ok(earlier) => format!("queries still use those of {}", earlier.date),
            Err(_) => "queries use the built-in ones".to_string(),
        };
        eprintln!(
            "warning: not saved: the host was busy while it was measured ({reason}); {instead}\n  = run \
             slackwater \
             calibrate again when the host is idle, or with --force if it is always this busy"
        );
        return show(
            &calibration,
            arguments.json,
            "not saved, because other work disturbed the measurement",
        );
    }
    let kept = match cache::store(&calibration) {
        Ok(path) => format!("saved in {}", path.display()),
        // The figures are still printed; only later runs do without them.
        Err(error) => {
            eprintln!("warning: not saved: {error}");
            "not saved".to_string()
        }
    };
    show(&calibration, arguments.json, &kept)
}

fn show(calibration: &Calibration, json: bool, kept: &str) -> Result<String, String> {
    if !json {
        return Ok(table::table(calibration, kept));
    }
    let text = serde_json::to_string_pretty(calibration).map_err(|error| error.to_string())?;
    Ok(text + "\n")
}

/// Measures this host until nothing disturbs it, at most [`ATTEMPTS`] times. Returns the best measurement,
/// and what disturbed it.
fn measure_in_peace(quick: bool, runs: &Runs<'_>) -> Result<(Calibration, Option<String>), String> {
    let mut best: Option<(Calibration, Option<String>)> = None;
    for attempt in 1..=ATTEMPTS {
        let watched = Watched::begin(cores());
        let calibration = measure(quick, runs)?;
        let Some(reason) = disturbance(&calibration.costs, &watched.end()) else {
            return Ok((calibration, None));
        };
        if attempt < ATTEMPTS {
            eprintln!(
                "disturbed: {reason}; measuring again ({} of {ATTEMPTS})",
                attempt + 1
            );
        }
        let tail_ns = |one: &Calibration| one.costs.oversleep_p99_ns;
        if best
            .as_ref()
            .is_none_or(|(best, _)| tail_ns(&calibration) < tail_ns(best))
        {
            best = Some((calibration, Some(reason)));
        }
    }
    best.ok_or_else(|| "nothing was measured".to_string())
}

/// Measures this host.
pub fn measure(quick: bool, runs: &Runs<'_>) -> Result<Calibration, String> {
    let cores = cores();
    let sleeps = waits::sleeps(cores.leader, quick)?;
    let wakes = waits::wakes(cores, quick)?;
    let links = links::links(cores, quick)?;
    let costs = costs_of(&wakes, &sleeps)?;
    let measured = activations::costs(cores.follower, quick, runs)?;
    Ok(Calibration {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_string(),
        host: Host::this(),
        date: host::now_utc(),
        quick,
        clock_ns: floor::clock_ns(),
        costs,
        wakes,
        sleeps,
        links,
        activations: measured.activations,
        more: Some(measured.more),
    })
}

/// The costs that stand for all: the wake-up from another core if it was measured, and the sleep of one
/// millisecond.
fn costs_of(wakes: &[Wake], sleeps: &[Sleep]) -> Result<WaitCosts, String> {
    let wake = wakes.iter().find(|wake| wake.across_cores);
    let wake = wake.or(wakes.first()).ok_or("no wake-up was measured")?;
    let sleep = sleeps
        .iter()
        .find(|sleep| sleep.asked_us == TYPICAL_SLEEP_US)
        .ok_or("no sleep was measured")?;
    // At least 1, because the choice of a wait divides by them.
    let whole = |ns: f64| (ns as u64).max(1);
    Ok(WaitCosts {
        wake_ns: whole(wake.ringing_cpu_ns + wake.woken_cpu_ns),
        sleep_ns: whole(sleep.cpu_ns),
        oversleep_p50_ns: whole(sleep.oversleep_p50_ns),
        oversleep_p99_ns: whole(sleep.oversleep_p99_ns),
    })
}

/// How long one point of a link is measured.
fn point_time(quick: bool) -> Duration {
    Duration::from_millis(if quick { 20 } else { 80 })
}
