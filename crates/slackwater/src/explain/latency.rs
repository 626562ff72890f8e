//! `explain`: how latency targets are to be kept, and with `--analyze` what came of it.

use slackwater_control::latency::model::{Prediction, Shape, Waiting};
use slackwater_engine::runtime::WaitMode;
use slackwater_sql::program::Program;
use slackwater_sql::specs::NodeSpec;

use crate::plan::Plan;
use crate::report::{Report, count};
use crate::tuner::{PathPlan, plan_paths, warnings};

/// A time with three digits.
fn time(ns: f64) -> String {
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
        Waiting::Interrupt => "waits to be rung".to_string(),
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

fn path(program: &Program, plan: &PathPlan) -> String {
    let planned = &plan.planned;
    let sink = match &program.nodes[plan.path.sink] {
        NodeSpec::Sink(sink) => match &sink.table {
            Some(table) => table.name.clone(),
            None => "the terminal".to_string(),
        },
        _ => String::new(),
    };
    let rate = format!(
        "{} rows/s ({})",
        count(plan.rows_per_s as u64),
        if plan.rate_known {
            "as the source says"
        } else {
            "assumed; the running query measures"
        }
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
            "the cheapest of {} ways that were looked at; the next costs {:.1} times as much",
            planned.considered,
            other.prediction.cores / planned.chosen.prediction.cores.max(1e-9)
        ),
        (true, None) => format!(
            "the only kind of the {} ways that meets it",
            planned.considered
        ),
        (false, _) => format!(
            "none of {} ways meets the target: this is the fastest",
            planned.considered
        ),
    };
    line("why", why);
    line(
        "at best",
        format!("{} with any way to wait", time(planned.floor_ns)),
    );
    text
}

/// How each target is to be kept; empty without targets.
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
            "  (where sinks share a source or a worker the tightest counts: {})\n",
            shape(&tightest.planned.chosen.shape)
        ));
    }
    if plan.processes > 1 && !paths.is_empty() {
        text.push_str(
            "  (not used: between several processes the tightest target is shared out evenly over the \
             workers that a row passes, and nothing is corrected while the query runs)\n",
        );
    }
    if !text.is_empty() && !matches!(program.settings.wait_mode(), WaitMode::Auto { .. }) {
        text.push_str("  (not used: 'wait' was set, and is left as it is)\n");
    }
    text
}

/// What was measured, beside what was predicted.
pub fn analysed(report: &Report) -> String {
    let mut text = String::from("\nMeasured\n");
    let mut line = |name: &str, value: String| text.push_str(&format!("  {name:<28} {value}\n"));
    let ms = |value: Option<f64>| value.map_or("-".to_string(), |ms| format!("{ms:.2} ms"));
    let percent = |value: Option<f64>| value.map_or("-".to_string(), |p| format!("{p:.2} %"));
    if let Some(tuning) = &report.plan.tuning {
        line(
            "p99, predicted : measured",
            format!(
                "{} : {}",
                ms(tuning.predicted_p99_ms),
                ms(report.latency_ms.p99)
            ),
        );
        line(
            "workers, predicted : measured",
            format!(
                "{} : {} of a core",
                percent(tuning.predicted_cpu_percent),
                percent(tuning.measured_cpu_percent)
            ),
        );
        line(
            "at last",
            format!(
                "sleeps of up to {:.2} ms, chunks of at most {} rows, {} corrections ({} changed \
                 something), {} moves",
                tuning.delay_ms,
                tuning.chunk_rows,
                tuning.corrections,
                tuning.changes,
                tuning.moves
            ),
        );
    } else {
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
                "{:.3} s of CPU, {} sleeps ({:.0} ms asked for, {:.0} ms got), {} waits to be rung",
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
