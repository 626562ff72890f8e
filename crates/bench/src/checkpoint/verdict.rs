//! The goals, met or missed, from medians to lines. Pure.

use super::figures::{Cost, Recovery, at};
use super::query::{Place, TARGET_MS};
use crate::lab::Verdict;

/// The number of keys that most goals refer to.
const KEYS: u64 = 100_000;

/// The number of keys of a large state: all of it changes between two checkpoints.
const KEYS_MANY: u64 = 1_000_000;

/// The interval of checkpoints of a large state, in milliseconds.
const INTERVAL_MANY_MS: u64 = 1_000;

/// The most CPU time that they may add, in percent of that without checkpoints.
const MORE_PERCENT_MANY_MAX: f64 = 20.0;

/// The checkpoint interval that the CPU time goal refers to, in milliseconds.
const INTERVAL_MS: u64 = 10_000;

/// The most CPU time that checkpoints may add, in percent of that without checkpoints.
const MORE_PERCENT_MAX: f64 = 5.0;

/// The longest time from a death to rows in the sink.
const BACK_MS_MAX: f64 = 2_000.0;

/// The longest time from a death until the parent reports it.
const NOTICED_MS_MAX: f64 = 1_000.0;

/// All goals.
pub fn verdicts(costs: &[Cost], recoveries: &[Recovery]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for place in [Place::Folder, Place::Blackhole] {
        let saved = at(costs, KEYS, place, Some(INTERVAL_MS));
        let more = saved.and_then(|cost| cost.more_percent);
        verdicts.push(Verdict::at_most(
            format!("additional CPU time in the worst round, every 10 s, {KEYS} keys, {place}, %"),
            more.map(|more| more.max),
            MORE_PERCENT_MAX,
        ));
    }
    let keys = costs.iter().filter(|cost| cost.spec.keys == KEYS);
    let saved = keys.filter(|cost| cost.spec.interval_ms.is_some());
    for cost in saved {
        let (place, interval) = (cost.spec.place, cost.spec.interval());
        verdicts.push(Verdict::at_most(
            format!("p99 with a checkpoint every {interval}, {KEYS} keys, {place}, ms"),
            Some(cost.p99_ms),
            TARGET_MS as f64,
        ));
        let without = at(costs, KEYS, place, None);
        let without = without.map_or(0.0, |cost| cost.violated_s);
        verdicts.push(Verdict::at_most(
            format!(
                "seconds whose p99 missed the target, every {interval}, {KEYS} keys, {place}; at most \
                 as many as without checkpoints"
            ),
            Some(cost.violated_s),
            without,
        ));
    }
    for place in [Place::Folder, Place::Blackhole] {
        let Some(cost) = at(costs, KEYS_MANY, place, Some(INTERVAL_MANY_MS)) else {
            continue;
        };
        verdicts.push(Verdict::at_most(
            format!("additional CPU time, every 1 s, {KEYS_MANY} keys, {place}, %"),
            cost.more_percent.map(|more| more.median),
            MORE_PERCENT_MANY_MAX,
        ));
        verdicts.push(Verdict::at_most(
            format!("p99 of the worst round, every 1 s, {KEYS_MANY} keys, {place}, ms"),
            Some(cost.p99_worst_ms),
            TARGET_MS as f64,
        ));
    }
    let recovery = recoveries.iter().find(|recovery| recovery.keys == KEYS);
    verdicts.push(Verdict::at_most(
        format!("from a death to rows in the sink, {KEYS} keys, ms"),
        recovery.map(|recovery| recovery.back_ms.median),
        BACK_MS_MAX,
    ));
    let slowest = recoveries.iter().map(|recovery| recovery.noticed_ms.max);
    verdicts.push(Verdict::at_most(
        "from a death until the parent reports it, the slowest of all kills, ms".to_string(),
        slowest.reduce(f64::max),
        NOTICED_MS_MAX,
    ));
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::figures::costs;
    use crate::checkpoint::figures::tests::point;

    #[test]
    fn goals_are_met_missed_by_a_difference_or_not_measured() {
        let points = [
            point(1, None, 20.0, 9.0),
            point(1, Some(10_000), 22.0, 21.5),
        ];
        let lines = verdicts(&costs(&points), &[]);
        let lines = lines.iter().map(Verdict::line).collect::<Vec<_>>();
        assert_eq!(
            lines[0],
            "MISSED by 5: additional CPU time in the worst round, every 10 s, 100000 keys, folder, %: \
             10, at most 5"
        );
        assert!(lines[1].starts_with("not measured: "), "{}", lines[1]);
        assert!(lines[2].ends_with("21.50, at most 20"));
        assert!(lines[3].starts_with("met: seconds whose p99"));
        assert!(lines[5].starts_with("not measured: from a death"));
    }
}
