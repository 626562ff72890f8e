//! The figures as text: each point undisturbed and disturbed, side by side. Pure.

use super::goals::p99_us;
use super::{Figures, Measured};
use crate::lab::{Table, distinct, rate, time};
use crate::target::disturber::Disturbance;
use crate::target::predicted;

/// All figures.
pub fn text(figures: &Figures) -> String {
    let priority = match figures.real_time {
        true => "with real-time priority",
        false => "with normal priority, since real-time priority is not permitted",
    };
    format!(
        "bursts {priority} on all cores but {}, where records are sent and rows received; {} round(s) of \
         {} s a point\n{}\n\nCPU time of the query's process in % of a core; p99 latency since due as its \
         receiver saw it\n\n{}\nAs the engine saw it: p99, wake-ups per second, changes between sleeping and \
         waiting to be woken / corrections, rows late by the host / late rows\n\n{}\nCPU time predicted by \
         explain, and measured undisturbed\n\n{}",
        figures.core,
        figures.rounds,
        figures.seconds,
        figures.assumed.describe(),
        beside(figures, &seen),
        beside(figures, &own),
        predicted::table(&figures.predictions),
    )
}

/// A row for each point and a column for each disturbance.
fn beside(figures: &Figures, cell: &dyn Fn(&Measured) -> Option<String>) -> String {
    let all = &figures.measured;
    let disturbances = distinct(all.iter().map(|one| one.disturbance));
    let named = disturbances.iter().map(|disturbance| match disturbance {
        Disturbance::None => "undisturbed".to_string(),
        other => other.to_string(),
    });
    let head = ["query", "rate", "setting"].map(str::to_string);
    let mut table = Table::new(head.into_iter().chain(named));
    for spec in distinct(all.iter().map(|one| one.summary.spec)) {
        let of_it = |disturbance: &Disturbance| {
            let same =
                |one: &&Measured| (one.summary.spec, one.disturbance) == (spec, *disturbance);
            all.iter().find(same).and_then(cell)
        };
        let cells = disturbances.iter().map(of_it);
        let cells = cells.collect::<Vec<Option<String>>>();
        if cells.iter().any(Option::is_some) {
            let names = [
                spec.query.to_string(),
                rate(spec.rate_per_s as f64),
                spec.setting.to_string(),
            ];
            let cells = cells.into_iter().map(Option::unwrap_or_default);
            table.line(names.into_iter().chain(cells));
        }
    }
    table.markdown()
}

fn seen(one: &Measured) -> Option<String> {
    let p99 = p99_us(&one.summary).map_or("no rows".to_string(), time);
    let missed = match one.summary.target_met {
        Some(false) => " !",
        _ => "",
    };
    Some(format!("{:.2}; {p99}{missed}", one.summary.percent.median))
}

/// `None` for settings without a target.
fn own(one: &Measured) -> Option<String> {
    one.summary.target_met?;
    Some(format!(
        "{}; {:.0}; {:.0} / {:.0}; {:.0} / {:.0}",
        one.summary.own_p99_us.map_or("-".to_string(), time),
        one.summary.wakeups_per_s,
        one.mode_changes,
        one.corrections,
        one.late_by_host,
        one.late,
    ))
}

#[cfg(test)]
mod tests {
    use super::super::goals::tests::measured;
    use super::*;
    use crate::common::Assumed;

    #[test]
    fn a_point_has_a_column_for_each_disturbance() {
        let five = Disturbance::Bursts(5.0);
        let figures = Figures {
            core: 1,
            assumed: Assumed::here(),
            real_time: true,
            rounds: 1,
            seconds: 5.0,
            measured: vec![
                measured(Disturbance::None, "auto:20ms", 1.0, 18.0),
                measured(Disturbance::None, "interrupt", 4.0, 0.2),
                measured(five, "auto:20ms", 2.0, 33.0),
                measured(five, "interrupt", 4.5, 30.0),
            ],
            predictions: Vec::new(),
        };
        let text = text(&figures);
        for part in [
            "| query | rate | setting | undisturbed | 5% |",
            "| filter | 10 k/s | auto:20ms | 1.00; 18.0 ms | 2.00; 33.0 ms ! |",
            "| filter | 10 k/s | interrupt | 4.00; 200 us | 4.50; 30.0 ms |",
            "1 / 20; 0 / 0 |",
        ] {
            assert!(text.contains(part), "'{part}' is not in:\n{text}");
        }
        // Only a setting with a target has corrections.
        assert_eq!(text.matches("interrupt |").count(), 1, "{text}");
    }
}
