//! `explain`: how the plan meets latency targets, and with `--analyze` what was measured.

use slackwater_control::latency::model::{Prediction, Shape, UTILISATION_MAX, Waiting};
use slackwater_control::latency::planner::MARGIN;
use slackwater_engine::runtime::WaitMode;
use slackwater_sql::program::Program;

use crate::plan::Plan;
use crate::report::{Report, count};
use crate::tuner::{PathPlan, plan_paths, warnings};

/// A time with about three significant digits.
pub(super) fn time(ns: f64) -> String {
    match ns {
        ..1e6 => format!("{:.0} us", ns / 1e3),
        ..1e7 => format!("{:.2} ms", ns / 1e6),
        ..1e9 => format!("{:.1} ms", ns / 1e6),
        120e9.. => format!("{:.0} min", ns / 60e9),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

fn shape(shape: &Shape) -> String {
    let workers = match shape.groups.as_slice() {
        [_] => "all on one worker".to_string(),
        groups => format!("{} workers in a row ({groups:?} subqueries)", groups.len()),
    };
    let waits = |waiting| match waiting {
        Waiting::Poll => "polls".to_string(),
        Waiting::Interrupt => "waits to be woken".to_string(),
        Waiting::Sleep(ns) => format!("sleeps {}", time(ns)),
    };
    let between = match shape.groups.len() {
        1 => String::new(),
        _ => format!(", the others: {}", waits(shape.between)),
    };
    format!(
        "{workers}; the source's worker {}{between}; chunks of at most {} rows",
        waits(shape.source),
        shape.chunk_rows
    )
}

fn prediction(prediction: &Prediction) -> String {
    format!(
        "p99 {}, {:.2} % of a core",
        time(prediction.p99_ns),
        prediction.cores * 100.0
    )
}

/// A sink's name in messages.
pub fn sink_name(program: &Program, node: usize) -> String {
    let Some(sink) = program.nodes[node].as_sink() else {
        return String::new();
    };
    match &sink.table {
        Some(table) => table.name.clone(),
        None => "the terminal".to_string(),
    }
}

fn path(program: &Program, plan: &PathPlan) -> String {
    let planned = &plan.planned;
    let sink = sink_name(program, plan.path.sink);
    let rate = format!(
        "{} rows/s ({})",
        count(plan.rows_per_s as u64),
        plan.rate_from.words()
    );
    let mut text = format!(
        "\nLatency of {sink} (sink #{}): 99 of 100 rows within {}, at {rate}\n",
        plan.path.sink,
        time(plan.path.target_ns as f64)
    );
    let mut line = |name: &str, value: String| text.push_str(&format!("  {name:<10} {value}\n"));
    line("chosen", shape(&planned.chosen.shape));
    line("predicted", prediction(&planned.chosen.prediction));
    match &planned.runner_up {
        Some(other) => {
            line("next best", shape(&other.shape));
            line("predicted", prediction(&other.prediction));
        }
        None => line("next best", "no other way meets the target".to_string()),
    }
    let why = match (planned.meets_target, &planned.runner_up) {
        (true, Some(other)) => format!(
            "the cheapest of {} ways considered; the next best costs {:.1} times as much",
            planned.considered,
            other.prediction.cores / planned.chosen.prediction.cores.max(1e-9)
        ),
        (true, None) => format!(
            "no other kind of the {} ways considered meets the target",
            planned.considered
        ),
        (false, _) if planned.is_overloaded() => format!(
            "each of the {} ways considered keeps a worker more than {:.0} % busy, so that queues build up: \
             this is the least busy",
            planned.considered,
            UTILISATION_MAX * 100.0
        ),
        (false, _) => format!(
            "none of the {} ways considered meets the target with {:.0} % to spare: this is the fastest",
            planned.considered,
            MARGIN * 100.0
        ),
    };
    line("why", why);
    if !planned.is_overloaded() {
        line(
            "at best",
            format!("{}, however the workers wait", time(planned.floor_ns)),
        );
    }
    text
}

/// How the plan meets each target; empty without targets.
pub fn targets(program: &Program, plan: &Plan) -> String {
    let paths = plan_paths(program, plan, crate::calibrate::costs());
    let mut text = paths
        .iter()
        .map(|planned| path(program, planned))
        .collect::<String>();
    for warning in warnings(&paths) {
        text.push_str(&format!("  warning: {warning}\n"));
    }
    let tightest = paths.iter().min_by_key(|planned| planned.path.target_ns);
    if let Some(tightest) = tightest.filter(|_| paths.len() > 1) {
        text.push_str(&format!(
            "  (where sinks share a source or a worker, the tightest target counts: {})\n",
            shape(&tightest.planned.chosen.shape)
        ));
    }
    if plan.processes > 1 && !paths.is_empty() {
        text.push_str(
            "  (with several processes, instances stay on their workers; how long sources sleep and how \
             large chunks are is corrected while the query runs)\n",
        );
    }
    if !text.is_empty() && !matches!(program.settings.wait_mode(), WaitMode::Auto { .. }) {
        text.push_str("  (not used, because 'wait' is set)\n");
    }
    text
}

/// The plan's prediction for a sink with a target.
pub struct Predicted {
    /// The sink's number among the sinks.
    sink: usize,
    name: String,
    prediction: Prediction,
    rows_per_s: f64,
}

/// The plan's predictions, as [`targets`] shows them.
pub fn predicted(program: &Program, plan: &Plan) -> Vec<Predicted> {
    let is_sink = |node: &usize| program.nodes[*node].is_sink();
    let paths = plan_paths(program, plan, crate::calibrate::costs()).into_iter();
    let predicted = paths.map(|path| Predicted {
        sink: (0..path.path.sink).filter(is_sink).count(),
        name: sink_name(program, path.path.sink),
        prediction: path.planned.chosen.prediction,
        rows_per_s: path.rows_per_s,
    });
    predicted.collect()
}

/// The measured figures next to the predicted ones.
pub fn analysed(report: &Report, predicted: &[Predicted]) -> String {
    let mut text = String::from("\nMeasured\n");
    let mut line = |name: &str, value: String| text.push_str(&format!("  {name:<28} {value}\n"));
    let ms = |value: Option<f64>| value.map_or("-".to_string(), |ms| time(ms * 1e6));
    for predicted in predicted {
        let sink = report.sinks.get(predicted.sink);
        line(
            &format!("p99 of {}", predicted.name),
            format!(
                "{} predicted, {} measured",
                time(predicted.prediction.p99_ns),
                ms(sink.and_then(|sink| sink.latency_ms.p99))
            ),
        );
    }
    let tuning = report.plan.tuning.as_ref();
    if let Some(measured) = tuning.and_then(|tuning| tuning.measured_cpu_percent) {
        // Of sinks that share a worker, the most demanding one is predicted.
        let cores = predicted.iter().map(|predicted| predicted.prediction.cores);
        line(
            "CPU time of the workers",
            format!(
                "{:.2} % of a core predicted, {measured:.2} % measured",
                cores.fold(0.0, f64::max) * 100.0
            ),
        );
    }
    if let Some(rows_per_s) = predicted.iter().map(|one| one.rows_per_s).reduce(f64::max) {
        line(
            "rows/s",
            format!(
                "{} assumed for the prediction, {} measured over the whole run",
                count(rows_per_s as u64),
                count(report.rows_per_s as u64)
            ),
        );
    }
    if let Some(tuning) = tuning {
        line(
            "at the end",
            format!(
                "{}, chunks of at most {} rows, {} corrections ({} changed something), {} moves",
                match tuning.chooses_wait {
                    true => format!("sleeps of up to {:.2} ms", tuning.delay_ms),
                    false => "waiting as 'wait' says".to_string(),
                },
                tuning.chunk_rows,
                tuning.corrections,
                tuning.changes,
                tuning.moves
            ),
        );
    }
    if predicted.is_empty() {
        line("p99", ms(report.latency_ms.p99));
    }
    for operator in &report.plan.operators {
        let rows = operator.rows.max(1) as f64;
        line(
            &format!("#{} {}", operator.node, operator.name),
            format!(
                "{:.3} s busy, {} rows in {} chunks, {:.3} us per row",
                operator.busy_s,
                count(operator.rows),
                count(operator.chunks),
                operator.busy_s * 1e6 / rows
            ),
        );
    }
    for (number, thread) in report.plan.threads.iter().enumerate() {
        line(
            &format!("worker {number}"),
            format!(
                "{:.3} s of CPU, {} sleeps ({:.0} ms asked for, {:.0} ms got), {} waits to be woken",
                thread.cpu_s.unwrap_or(0.0),
                count(thread.sleeps),
                thread.asked_ms,
                thread.slept_ms,
                count(thread.parks)
            ),
        );
    }
    text
}
