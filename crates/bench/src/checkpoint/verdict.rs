//! The goals, met or missed, from medians to lines. Pure.

use super::cost::Point;
use super::figures::{Cost, Recovery, at, more_percent};
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
pub fn verdicts(points: &[Point], costs: &[Cost], recoveries: &[Recovery]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let rounds = |cost: &Cost, figure: &dyn Fn(&Point) -> Option<f64>| {
        let own = points.iter().filter(|point| point.spec == cost.spec);
        let rounds = own.map(|point| {
            let waited = point.waited_percent;
            let figure = figure(point).map_or("–".to_string(), |figure| format!("{figure:.1}"));
            format!("{figure} (waited {waited:.1} %)")
        });
        format!("rounds: {}", rounds.collect::<Vec<String>>().join(", "))
    };
    let of_more = |cost: &Cost| rounds(cost, &|point| more_percent(points, point));
    let of_p99 = |cost: &Cost| rounds(cost, &|point| point.latency_ms.p99);
    for place in [Place::Folder, Place::Blackhole] {
        let saved = at(costs, KEYS, place, Some(INTERVAL_MS));
        let more = saved.and_then(|cost| cost.more_percent);
        let goal =
            format!("additional CPU time in the worst round, every 10 s, {KEYS} keys, {place}, %");
        let verdict = Verdict::at_most(goal, more.map(|more| more.max), MORE_PERCENT_MAX);
        verdicts.push(verdict.details(saved.map(of_more).unwrap_or_default()));
        // The difference between two runs has all of their noise; what other threads take has not.
        let without = at(costs, KEYS, place, None);
        let beside = saved.zip(without).map(|(saved, without)| {
            (saved.beside_percent - without.beside_percent) / without.percent.median * 100.0
        });
        let goal = format!("of that outside workers, every 10 s, {KEYS} keys, {place}, %");
        verdicts.push(Verdict::at_most(goal, beside, MORE_PERCENT_MAX).beside_unless(false));
    }
    let keys = costs.iter().filter(|cost| cost.spec.keys == KEYS);
    let saved = keys.filter(|cost| cost.spec.interval_ms.is_some());
    for cost in saved {
        let (place, interval) = (cost.spec.place, cost.spec.interval());
        let goal = format!("p99 with a checkpoint every {interval}, {KEYS} keys, {place}, ms");
        let verdict = Verdict::at_most(goal, Some(cost.p99_ms), TARGET_MS as f64);
        verdicts.push(verdict.details(of_p99(cost)));
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
        let goal = format!(
            "additional CPU time in the worst round, every 1 s, {KEYS_MANY} keys, {place}, %"
        );
        let more = cost.more_percent.map(|more| more.max);
        verdicts.push(Verdict::at_most(goal, more, MORE_PERCENT_MANY_MAX).details(of_more(cost)));
        let goal = format!("p99 of the worst round, every 1 s, {KEYS_MANY} keys, {place}, ms");
        let verdict = Verdict::at_most(goal, Some(cost.p99_worst_ms), TARGET_MS as f64);
        verdicts.push(verdict.details(of_p99(cost)));
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
        let lines = verdicts(&points, &costs(&points), &[]);
        let lines = lines.iter().map(Verdict::line).collect::<Vec<_>>();
        assert_eq!(
            lines[0],
            "MISSED by 5: additional CPU time in the worst round, every 10 s, 100000 keys, folder, %: \
             10, at most 5; rounds: 10.0 (waited 0.0 %)"
        );
        assert!(lines[1].starts_with("comparison, within: of that outside workers"));
        assert!(lines[2].starts_with("not measured: "), "{}", lines[2]);
        assert!(lines[4].ends_with("21.50, at most 20; rounds: 21.5 (waited 0.0 %)"));
        assert!(lines[5].starts_with("met: seconds whose p99"));
        assert!(lines[7].starts_with("not measured: from a death"));
    }
}
