//! Tables. Pure: from what was measured to text.

use super::figures::{Cost, Figures, Recovery, Taken};
use super::query::TARGET_MS;
use crate::common::rate;
use slackwater::measure::Spread;

/// Everything, as text.
pub fn table(figures: &Figures) -> String {
    let Figures {
        rounds, seconds, ..
    } = figures;
    let mut text = format!(
        "{}; load {:.2} before and {:.2} after\n{} rows; latency target {TARGET_MS} ms; {rounds} \
         round(s) of {seconds} s a point, medians\n\n",
        figures.host.describe(),
        figures.load_before[0],
        figures.load_after[0],
        rate(figures.rate_per_s as f64),
    );
    text.push_str("CPU time in % of a core, and latency in ms\n\n");
    text.push_str(
        "| keys | to | checkpoints | CPU | of that beside workers | more than without | p50 | p99 | max | seconds violated | others' CPU |\n",
    );
    text.push_str("|---|---|---|---|---|---|---|---|---|---|---|\n");
    figures
        .costs
        .iter()
        .for_each(|cost| text += &cost_line(cost));
    text.push_str("\nCheckpoints, in ms\n\n");
    text.push_str(
        "| keys | to | every | stored | stall max | duration | duration max | base | increment | commit delay | its max |\n",
    );
    text.push_str("|---|---|---|---|---|---|---|---|---|---|---|\n");
    for cost in &figures.costs {
        if let Some(taken) = &cost.taken {
            text += &taken_line(cost, taken);
        }
    }
    if !figures.recoveries.is_empty() {
        text.push_str(
            "\nFrom a kill of one of two worker processes, in ms: median (least to most)\n\n",
        );
        text.push_str("| keys | kills | noticed | rows are back | output has caught up |\n");
        text.push_str("|---|---|---|---|---|\n");
        figures
            .recoveries
            .iter()
            .for_each(|recovery| text += &recovery_line(recovery));
    }
    text.push_str("\nGoals\n\n");
    for verdict in &figures.verdicts {
        text.push_str(&format!("- {}\n", verdict.line()));
    }
    text
}

fn cost_line(cost: &Cost) -> String {
    let more = cost.more_percent.map_or_else(
        || "–".to_string(),
        |more| {
            let Spread { median, min, max } = more;
            format!("{median:+.1} % ({min:+.1} to {max:+.1})")
        },
    );
    format!(
        "| {} | {} | {} | {:.1} | {:.2} | {more} | {:.1} | {:.1} | {:.1} | {:.0} | {:.0} |\n",
        cost.spec.keys,
        cost.spec.place,
        cost.spec.interval(),
        cost.percent.median,
        cost.beside_percent,
        cost.p50_ms,
        cost.p99_ms,
        cost.max_ms,
        cost.violated_s,
        cost.others_percent,
    )
}

fn taken_line(cost: &Cost, taken: &Taken) -> String {
    let ms = |ms: Option<f64>| ms.map_or_else(|| "–".to_string(), |ms| format!("{ms:.0}"));
    let given_up = match taken.aborted {
        0 => String::new(),
        aborted => format!(", {aborted} given up"),
    };
    format!(
        "| {} | {} | {} | {:.0}{given_up} | {:.1} | {:.0} | {:.0} | {} | {} | {} | {} |\n",
        cost.spec.keys,
        cost.spec.place,
        cost.spec.interval(),
        taken.stored,
        taken.stall_max_ms,
        taken.duration_ms,
        taken.duration_max_ms,
        bytes(taken.base_bytes),
        bytes(taken.increment_bytes),
        ms(taken.commit_delay_ms),
        ms(taken.commit_delay_max_ms),
    )
}

fn recovery_line(recovery: &Recovery) -> String {
    let spread = |spread: &Spread| {
        let Spread { median, min, max } = spread;
        format!("{median:.0} ({min:.0} to {max:.0})")
    };
    format!(
        "| {} | {} | {} | {} | {} |\n",
        recovery.keys,
        recovery.kills,
        spread(&recovery.noticed_ms),
        spread(&recovery.back_ms),
        spread(&recovery.caught_up_ms),
    )
}

fn bytes(bytes: f64) -> String {
    match bytes {
        0.0 => "–".to_string(),
        ..1e6 => format!("{:.0} KB", bytes / 1e3),
        _ => format!("{:.1} MB", bytes / 1e6),
    }
}
