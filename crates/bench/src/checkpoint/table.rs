//! Tables, from measured figures to text. Pure.

use super::figures::{Cost, Figures, Recovery, Taken};
use super::query::TARGET_MS;
use crate::lab::{Table, rate};
use slackwater::measure::Spread;

/// All figures, as text.
pub fn text(figures: &Figures) -> String {
    let mut text = format!(
        "{} rows; latency target {TARGET_MS} ms; {} round(s) of {} s a point, medians\n\n\
         CPU time in % of a core, and latency in ms\n\n{}\nCheckpoints, in ms\n\n{}",
        rate(figures.rate_per_s as f64),
        figures.rounds,
        figures.seconds,
        costs(&figures.costs).markdown(),
        taken(&figures.costs).markdown(),
    );
    if !figures.recoveries.is_empty() {
        text.push_str(&format!(
            "\nFrom a kill of one of two worker processes, in ms: median (least to most)\n\n{}",
            recoveries(&figures.recoveries).markdown()
        ));
    }
    text
}

/// The cells that identify a point.
fn point(cost: &Cost) -> [String; 3] {
    let spec = &cost.spec;
    [
        spec.keys.to_string(),
        spec.place.to_string(),
        spec.interval().to_string(),
    ]
}

fn costs(costs: &[Cost]) -> Table {
    let cpu = [
        "keys",
        "to",
        "checkpoints",
        "CPU",
        "of that outside workers",
        "more than without",
    ];
    let others = [
        "p50",
        "p99",
        "max",
        "seconds violated",
        "others' CPU",
        "waited for a core",
    ];
    let mut table = Table::new(cpu.into_iter().chain(others));
    for cost in costs {
        let more = cost
            .more_percent
            .map(|Spread { median, min, max }| format!("{median:+.1} % ({min:+.1} to {max:+.1})"));
        let figures = [
            format!("{:.1}", cost.percent.median),
            format!("{:.2}", cost.beside_percent),
            more.unwrap_or_else(|| "–".to_string()),
            format!("{:.1}", cost.p50_ms),
            format!("{:.1}", cost.p99_ms),
            format!("{:.1}", cost.max_ms),
            format!("{:.0}", cost.violated_s),
            format!("{:.0}", cost.others_percent),
            format!("{:.1} %", cost.waited_percent),
        ];
        table.line(point(cost).into_iter().chain(figures));
    }
    table
}

fn taken(costs: &[Cost]) -> Table {
    let durations = [
        "keys",
        "to",
        "every",
        "stored",
        "stall max",
        "duration",
        "duration max",
    ];
    let others = ["base", "increment", "commit delay", "its max"];
    let mut table = Table::new(durations.into_iter().chain(others));
    for cost in costs {
        if let Some(taken) = &cost.taken {
            table.line(point(cost).into_iter().chain(taken_cells(taken)));
        }
    }
    table
}

fn taken_cells(taken: &Taken) -> [String; 8] {
    let ms = |ms: Option<f64>| ms.map_or_else(|| "–".to_string(), |ms| format!("{ms:.0}"));
    let given_up = match taken.aborted {
        0 => String::new(),
        aborted => format!(", {aborted} aborted"),
    };
    [
        format!("{:.0}{given_up}", taken.stored),
        format!("{:.1}", taken.stall_max_ms),
        format!("{:.0}", taken.duration_ms),
        format!("{:.0}", taken.duration_max_ms),
        bytes(taken.base_bytes),
        bytes(taken.increment_bytes),
        ms(taken.commit_delay_ms),
        ms(taken.commit_delay_max_ms),
    ]
}

fn recoveries(recoveries: &[Recovery]) -> Table {
    let head = ["keys", "kills", "noticed", "rows back", "output caught up"];
    let mut table = Table::new(head);
    let spread = |spread: &Spread| {
        let Spread { median, min, max } = spread;
        format!("{median:.0} ({min:.0} to {max:.0})")
    };
    for recovery in recoveries {
        table.line([
            recovery.keys.to_string(),
            recovery.kills.to_string(),
            spread(&recovery.noticed_ms),
            spread(&recovery.back_ms),
            spread(&recovery.caught_up_ms),
        ]);
    }
    table
}

fn bytes(bytes: f64) -> String {
    match bytes {
        0.0 => "–".to_string(),
        ..1e6 => format!("{:.0} KB", bytes / 1e3),
        _ => format!("{:.1} MB", bytes / 1e6),
    }
}
