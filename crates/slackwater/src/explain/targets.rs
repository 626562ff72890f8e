//! `explain --targets`: what each latency target would cost, before anything runs.

use slackwater_control::latency::model::{UTILISATION_MAX, Waiting};
use slackwater_control::latency::planner::MARGIN;
use slackwater_sql::program::Program;

use super::latency::{sink_name, time};
use crate::plan::Plan;
use crate::report::count;
use crate::tuner::{PathPlan, plan_sink};

/// The targets of the table, in microseconds.
const TARGETS_US: [u64; 11] = [
    500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
];

/// Hours in an average month.
const HOURS_PER_MONTH: f64 = 730.0;

/// The highest price that is accepted.
const PRICE_MAX: f64 = 1e9;

/// What a core costs per hour, in any currency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price(pub f64);

impl std::str::FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Price, String> {
        let price = text.parse::<f64>().ok();
        price
            .filter(|price| (0.0..=PRICE_MAX).contains(price))
            .map(Price)
            .ok_or_else(|| "expected a price per core and hour, such as 0.04".to_string())
    }
}

/// The table of each sink.
pub fn table(program: &Program, plan: &Plan, price: Price) -> String {
    let costs = crate::calibrate::costs();
    let sinks = program.sinks().map(|(sink, _)| {
        let plans = TARGETS_US
            .iter()
            .filter_map(|&target_us| plan_sink(program, plan, sink, target_us * 1_000, costs));
        of_sink(&sink_name(program, sink), &plans.collect::<Vec<_>>(), price)
    });
    let tables = sinks.collect::<Vec<String>>();
    let mut text = tables.join("\n");
    if !crate::calibrate::is_measured() {
        text.push_str(
            "\nWhat waiting costs was not measured on this host: slackwater calibrate does it.\n",
        );
    }
    if tables.len() > 1 {
        text.push_str(
            "\nSinks that share a source share its cost: the tables must not be added up.\n",
        );
    }
    text
}

fn of_sink(name: &str, plans: &[PathPlan], price: Price) -> String {
    let Some(first) = plans.first() else {
        return format!("{name}: no source feeds it\n");
    };
    let mut text = format!(
        "{name} at {} rows/s ({}); a core costs {} per hour\n\n  {:>8}  {:>13}  {:>8}  {:>10}  the source's \
         worker\n",
        count(first.rows_per_s as u64),
        first.rate_from.words(),
        price.0,
        "target",
        "predicted p99",
        "cores",
        "per month",
    );
    let (most, spare) = (UTILISATION_MAX * 100.0, MARGIN * 100.0);
    for plan in plans {
        let chosen = &plan.planned.chosen;
        let target = time(plan.path.target_ns as f64);
        let p99 = time(chosen.prediction.p99_ns);
        if !plan.planned.meets_target {
            let busy = chosen.prediction.utilisation * 100.0;
            let (p99, why) = match plan.planned.is_overloaded() {
                true => (
                    "-",
                    format!("keep a worker {busy:.0} % busy, and {most:.0} % is the most"),
                ),
                false => (
                    p99.as_str(),
                    format!("not leave {spare:.0} % to spare, a worker {busy:.0} % busy"),
                ),
            };
            text.push_str(&format!(
                "  {target:>8}  {p99:>13}  {:>8}  {:>10}  can't be met: the best way would {why}\n",
                "-", "-"
            ));
            continue;
        }
        let cores = chosen.prediction.cores;
        let waits = match chosen.shape.source {
            Waiting::Poll => "polls".to_string(),
            Waiting::Interrupt => "waits to be woken".to_string(),
            Waiting::Sleep(ns) => format!("sleeps {}", time(ns)),
        };
        let workers = match chosen.shape.groups.len() {
            1 => String::new(),
            workers => format!(", {workers} workers in a row"),
        };
        text.push_str(&format!(
            "  {target:>8}  {p99:>13}  {cores:>8.4}  {:>10.2}  {waits}{workers}\n",
            cores * price.0 * HOURS_PER_MONTH
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_a_number() {
        assert_eq!("0.04".parse::<Price>(), Ok(Price(0.04)));
        for text in ["", "-1", "NaN", "free", "inf"] {
            assert!(text.parse::<Price>().is_err(), "{text}");
        }
    }
}
