//! Plans the paths to sinks with a latency target, before anything is measured.

use slackwater_control::latency::controller::{Goal, Setting};
use slackwater_control::latency::model::{HostCosts, UTILISATION_MAX, Waiting};
use slackwater_control::latency::planner::{Planned, Question, plan};
use slackwater_engine::runtime::Costs;
use slackwater_sql::program::Program;

use super::paths::{self, Path, RateFrom, path, paths};
use super::running::PathControl;
use crate::plan::Plan;

/// Longer targets are treated like this one: a wake-up every ten seconds costs nothing, and what arrives in
/// the meantime has to fit a buffer.
pub const TARGET_NS_MAX: u64 = 10_000_000_000;

/// The plan of a path: for `explain`, and for the start.
pub struct PathPlan {
    /// The path.
    pub path: Path,
    /// The planner's answer.
    pub planned: Planned,
    /// The rows per second of the plan.
    pub rows_per_s: f64,
    /// Where that rate comes from.
    pub rate_from: RateFrom,
}

/// The costs of waiting for the model. The engine's costs don't contain the duration of a wake-up, which is
/// about as long as the CPU time of both sides, and twice that at p99.
pub fn host_costs(costs: Costs) -> HostCosts {
    HostCosts {
        wake_ns: costs.wake_ns as f64,
        wake_until_look_p99_ns: 2.0 * costs.wake_ns as f64,
        sleep_ns: costs.sleep_ns as f64,
        oversleep_p50_ns: costs.oversleep_p50_ns as f64,
        oversleep_p99_ns: costs.oversleep_p99_ns as f64,
        activations: None,
    }
}

/// The costs of this host for plans: those of waiting, and what was measured of queries. A running query
/// measures its own.
#[derive(Clone, Copy)]
struct PlanCosts {
    waiting: HostCosts,
    /// How many times as much as assumed a row costs.
    row_factor: f64,
}

fn plan_costs(costs: Costs) -> PlanCosts {
    let measured = crate::calibrate::query_costs();
    PlanCosts {
        waiting: HostCosts {
            activations: measured.activations,
            ..host_costs(costs)
        },
        row_factor: measured.row_factor.unwrap_or(1.0),
    }
}

/// Plans all paths to sinks with a target.
pub fn plan_paths(program: &Program, plan: &Plan, costs: Costs) -> Vec<PathPlan> {
    let costs = plan_costs(costs);
    let paths = paths(program, plan).into_iter();
    paths
        .map(|path| plan_path(program, plan, path, costs))
        .collect()
}

/// Plans the path to a sink as if it had this target; `None` if the sink has no sources.
pub fn plan_sink(
    program: &Program,
    plan: &Plan,
    sink: usize,
    target_ns: u64,
    costs: Costs,
) -> Option<PathPlan> {
    let path = path(program, plan, sink, target_ns);
    let has_sources = !path.sources.is_empty();
    has_sources.then(|| plan_path(program, plan, path, plan_costs(costs)))
}

fn plan_path(program: &Program, plan_: &Plan, path: Path, costs: PlanCosts) -> PathPlan {
    let (load, rate_from) = paths::load(program, plan_, &path);
    let planned = plan(&Question {
        target_ns: path.target_ns.min(TARGET_NS_MAX) as f64,
        stages: paths::guesses(program, plan_, &path, costs.row_factor),
        load,
        workers: plan_.placement.cores.len(),
        in_a_row: (plan_.processes > 1).then(|| paths::workers_in_a_row(plan_, &path)),
        costs: costs.waiting,
    });
    PathPlan {
        path,
        planned,
        rows_per_s: load.rows_per_s,
        rate_from,
    }
}

/// Warnings about targets that no plan meets, with the lowest target that could be met.
pub fn warnings(plans: &[PathPlan]) -> Vec<String> {
    let missed = plans.iter().filter(|plan| !plan.planned.meets_target);
    let lines = missed.map(|plan| {
        let target_ms = plan.path.target_ns as f64 / 1e6;
        let floor_ms = plan.planned.floor_ns / 1e6;
        let busy = plan.planned.chosen.prediction.utilisation;
        let rate = plan.rows_per_s;
        let least = floor_ms / (1.0 - slackwater_control::latency::planner::MARGIN);
        if plan.planned.is_overloaded() {
            return format!(
                "a latency target of {target_ms} ms can't be met on this host: {rate:.0} rows/s would keep a \
                 worker {:.0} % busy, and above {:.0} % queues build up\n  \
                 = a longer target makes larger chunks, which cost less; --parallelism adds workers",
                busy * 100.0,
                UTILISATION_MAX * 100.0
            );
        }
        format!(
            "a latency target of {target_ms} ms can't be met on this host: at {rate:.0} rows/s the fastest \
             plan \
             takes {floor_ms:.2} ms for 99 of 100 rows and keeps a worker {:.0} % busy\n  \
             = a target of {least:.2} ms can be met; slackwater explain shows the plan",
            busy * 100.0
        )
    });
    lines.collect()
}

/// The first setting of a planned path.
fn first_setting(planned: &Planned, target_ns: u64) -> Setting {
    let delay_ns = match planned.chosen.shape.source {
        Waiting::Sleep(time_ns) => time_ns as u64,
        // Interrupts cost least at the assumed rate. A busier source may still sleep: the worker itself
        // chooses between the two.
        _ if planned.meets_target => target_ns / 2,
        _ => 0,
    };
    Setting {
        delay_ns,
        chunk_rows: planned.chosen.shape.chunk_rows as usize,
    }
}

/// The control of the path to the sink at `node`, with the planner's first setting; `None` if the sink has no
/// sources. Between hosts, latencies may be wrong by `error_ns`, which is half of the shortest round trips:
/// so it also tells how long the way takes at least.
pub fn path_control(
    program: &Program,
    plan: &Plan,
    node: usize,
    target_ns: u64,
    error_ns: u64,
    costs: Costs,
) -> Option<PathControl> {
    let target_ns = target_ns.min(TARGET_NS_MAX);
    let planned_ns = target_ns.saturating_sub(2 * error_ns).max(1);
    let planned = plan_sink(program, plan, node, planned_ns, costs)?;
    let goal = Goal {
        target_ns,
        costs: host_costs(costs),
    };
    let parts = paths::parts(program, plan, &planned.path);
    let setting = first_setting(&planned.planned, planned_ns);
    Some(PathControl::new(parts, goal, setting))
}
