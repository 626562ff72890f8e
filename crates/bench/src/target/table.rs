//! The medians as text.

use super::comparison::{Comparison, targets_us};
use super::figures::Figures;
use super::order::OTHERS_PERCENT_MAX;
use super::predicted;
use super::query::Query;
use super::setting::{Setting, duration};
use super::summary::{Summary, at};
use crate::common::DISTURBED_MAX;
use crate::lab::{Table, distinct, rate, time};

impl Figures {
    fn queries(&self) -> Vec<Query> {
        distinct(self.summaries.iter().map(|summary| summary.spec.query))
    }

    fn rates(&self) -> Vec<u64> {
        distinct(self.summaries.iter().map(|summary| summary.spec.rate_per_s))
    }

    /// A table with a row for each setting of each query and a column for each rate.
    fn table(&self, cell: impl Fn(&Summary) -> String) -> String {
        let mut table = self.head("setting");
        for query in self.queries() {
            let of_it = self
                .summaries
                .iter()
                .filter(|summary| summary.spec.query == query);
            for setting in distinct(of_it.map(|summary| summary.spec.setting)) {
                let names = [query.to_string(), setting.to_string()];
                let cells = self.rates().into_iter().map(|rate_per_s| {
                    let summary = at(&self.summaries, setting, query, rate_per_s);
                    summary.map_or(String::new(), &cell)
                });
                table.line(names.into_iter().chain(cells));
            }
        }
        table.markdown()
    }

    /// `auto` compared with the cheapest fixed setting: a row for each target of each query.
    fn comparison_table(&self) -> String {
        let mut table = self.head("target");
        for query in self.queries() {
            for target_us in targets_us(&self.summaries) {
                let names = [query.to_string(), duration(target_us)];
                let cells = self.rates().into_iter().map(|rate_per_s| {
                    let place = (query, target_us, rate_per_s);
                    let is_same =
                        |each: &&Comparison| (each.query, each.target_us, each.rate_per_s) == place;
                    let comparison = self.comparisons.iter().find(is_same);
                    comparison.map_or(String::new(), compared)
                });
                table.line(names.into_iter().chain(cells));
            }
        }
        table.markdown()
    }

    /// An empty table whose columns are rates.
    fn head(&self, second: &str) -> Table {
        let names = ["query".to_string(), second.to_string()];
        let rates = self.rates().into_iter();
        let rates = rates.map(|rate_per_s| rate(rate_per_s as f64));
        Table::new(names.into_iter().chain(rates))
    }

    /// The medians as text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "records of {} bytes over TCP, due in one write per millisecond; {} round(s) of {} s a \
             point after {} s of warm-up{}; sender and receiver on core {}\nthe engine takes {}\n",
            self.record_bytes,
            self.rounds,
            self.seconds,
            self.warm_up_s,
            if self.rounds > 1 { ", medians" } else { "" },
            self.core,
            self.assumed.describe()
        );
        text.push_str(&format!(
            "in {} of {} points the query's process waited for a core for more than {} % of the time, \
             or other processes used more than {OTHERS_PERCENT_MAX} % of one, after {} were measured \
             again\n",
            self.disturbed,
            self.points.len(),
            DISTURBED_MAX * 100.0,
            self.repeated
        ));
        text.push_str(
            "\nCPU time of the query's process in % of a core; p99 latency since due as its \
             receiver saw it (as the engine did). ! target missed, !! records left\n\n",
        );
        text.push_str(&self.table(|summary| {
            let own = summary.own_p99_us.map(|own| format!(" ({})", time(own)));
            format!(
                "{:.2}; {}{}{}",
                summary.percent.median,
                summary
                    .latency
                    .map_or("no rows".to_string(), |latency| time(latency.p99_us)),
                own.unwrap_or_default(),
                mark(summary)
            )
        }));
        text.push_str(
            "\nCPU time in us per record; wake-ups per second and CPU time in us per wake-up; latency since \
             due, p50 and p99.9\n\n",
        );
        text.push_str(&self.table(|summary| {
            let latency = summary
                .latency
                .map(|latency| format!("{}, {}", time(latency.p50_us), time(latency.p999_us)));
            format!(
                "{:.3}; {:.0}, {:.0}; {}",
                summary.us_per_record,
                summary.wakeups_per_s,
                summary.us_per_wakeup,
                latency.unwrap_or("no rows".to_string())
            )
        }));
        text.push_str(
            "\nHow late the sender was (p99); the share of the time in which the query's process \
             waited for a core; CPU time of other processes in % of a core\n\n",
        );
        text.push_str(&self.table(|summary| {
            format!(
                "{}; {:.2} %; {:.1}",
                time(summary.lag_p99_us),
                summary.disturbed * 100.0,
                summary.others_percent
            )
        }));
        if !self.comparisons.is_empty() {
            text.push_str(
                "\nCPU time of auto / of the cheapest fixed setting whose p99 meets the target\n\n",
            );
            text.push_str(&self.comparison_table());
        }
        if !self.predictions.is_empty() {
            text.push_str("\nCPU time predicted by explain / measured, in % of a core\n\n");
            text.push_str(&predicted::table(&self.predictions));
        }
        text
    }
}

fn mark(summary: &Summary) -> &'static str {
    match (summary.keeps_up, summary.target_met) {
        (false, _) => " !!",
        (true, Some(false)) => " !",
        _ => "",
    }
}

fn compared(comparison: &Comparison) -> String {
    let missed = if comparison.met { "" } else { " !" };
    let Comparison { percent, .. } = comparison;
    match (comparison.best, comparison.best_percent, comparison.ratio) {
        (Some(best), Some(best_percent), Some(ratio)) => {
            format!("{percent:.2} / {best_percent:.2} ({best}) = {ratio:.2}{missed}")
        }
        _ => format!("{percent:.2} / none met it{missed}"),
    }
}

/// Whether a setting is compared with `auto` at a target: sleeps for other targets are not.
pub fn belongs(setting: Setting, target_us: u64) -> bool {
    match setting {
        Setting::Auto { target_us: own } => own == target_us,
        Setting::Sleep { .. } => setting == Setting::sleep_for(target_us),
        _ => true,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::common::Assumed;
    use crate::target::comparison::comparisons;
    use crate::target::summary::tests::{point, summary};
    use crate::target::verdict::verdicts;

    /// Figures of one rate and two rounds, with these summaries.
    pub fn figures(summaries: Vec<Summary>) -> Figures {
        let comparisons = comparisons(&summaries);
        Figures {
            core: 1,
            assumed: Assumed::here(),
            record_bytes: 200,
            rounds: 1,
            seconds: 2.0,
            warm_up_s: 1.0,
            comparisons,
            predictions: Vec::new(),
            summaries,
            repeated: 0,
            disturbed: 0,
            points: vec![point("poll", 0, 1.0, None)],
        }
    }

    #[test]
    fn tables_have_a_row_for_each_setting_and_one_for_each_target() {
        let figures = figures(vec![
            summary("auto:20ms", Query::Filter, 10_000, 1.5, 19_000.0),
            summary("auto:1ms", Query::Filter, 10_000, 9.0, 1_100.0),
            summary("interrupt", Query::Filter, 10_000, 6.0, 250.0),
            summary("hand", Query::Filter, 10_000, 4.0, 150.0),
        ]);
        let verdicts = verdicts(&figures.summaries, &figures.comparisons);
        let lines = verdicts.iter().map(|verdict| verdict.line() + "\n");
        let text = figures.text() + &lines.collect::<String>();
        for part in [
            "| query | setting | 10 k/s |",
            "| filter | auto:20ms | 1.50; 19.0 ms (18.9 ms) |",
            "| filter | auto:1ms | 9.00; 1.10 ms (1.00 ms) ! |",
            "| filter | hand | 4.00; 150 us |",
            "| filter | 20ms | 1.50 / 6.00 (interrupt) = 0.25 |",
            "| filter | 1ms | 9.00 / 6.00 (interrupt) = 1.50 ! |",
            "met: auto:20ms against hand, filter at 10 k/s: 0.38",
            "not measured: auto:20ms against interrupt, window at 10 k/s",
        ] {
            assert!(text.contains(part), "'{part}' is not in:\n{text}");
        }
    }

    #[test]
    fn a_sleep_is_only_compared_at_its_target() {
        let sleep = Setting::Sleep { delay_us: 10_000 };
        assert!(belongs(sleep, 20_000) && !belongs(sleep, 100_000));
        assert!(belongs(Setting::Poll, 1_000));
        assert!(!belongs(Setting::Auto { target_us: 1_000 }, 5_000));
    }
}
