//! The goals, met or missed, from medians to lines. Pure.

use super::comparison::{Comparison, MORE_PERCENT_MAX, RATIO_MAX, ratio};
use super::query::Query;
use super::setting::Setting;
use super::summary::{Summary, at};
use crate::lab::{Verdict, geometric_mean, rate};

/// The highest CPU time of `auto` compared with the cheapest fixed setting that meets the target, in the
/// geometric mean over queries, rates and targets.
const MEAN_MAX: f64 = 1.10;

/// The target of the goals that refer to a single one.
const TARGET_US: u64 = 20_000;

/// Compared with interrupts without linger: the rate, and the highest ratio.
const INTERRUPT_RATE: u64 = 10_000;
const INTERRUPT_RATIO_MAX: f64 = 0.5;

/// Compared with the hand-written program: rates, and the highest ratio at each.
const HAND_RATIOS_MAX: [(Query, u64, f64); 7] = [
    (Query::Filter, 100, 1.0),
    (Query::Filter, 1_000, 0.5),
    (Query::Filter, 10_000, 0.5),
    (Query::Filter, 100_000, 0.8),
    (Query::Filter, 500_000, 1.2),
    (Query::Wide, 1_000, 0.5),
    (Query::Wide, 10_000, 0.5),
];

/// What an activation costs, compared with the hand-written program's: with interrupts both are woken for
/// the same records.
const ACTIVATIONS: [(Query, u64); 4] = [
    (Query::Filter, 100),
    (Query::Filter, 1_000),
    (Query::Filter, 10_000),
    (Query::Wide, 10_000),
];
const ACTIVATION_RATIO_MAX: f64 = 2.0;

/// All goals.
pub fn verdicts(summaries: &[Summary], comparisons: &[Comparison]) -> Vec<Verdict> {
    let mut verdicts = vec![targets(comparisons), mean(comparisons), each(comparisons)];
    for query in [Query::Filter, Query::Window] {
        verdicts.push(against(
            summaries,
            Setting::Interrupt,
            query,
            INTERRUPT_RATE,
            INTERRUPT_RATIO_MAX,
        ));
    }
    for (query, rate_per_s, at_most) in HAND_RATIOS_MAX {
        let hand = against(summaries, Setting::Hand, query, rate_per_s, at_most);
        verdicts.push(hand);
    }
    for (query, rate_per_s) in ACTIVATIONS {
        verdicts.push(activation(summaries, query, rate_per_s));
    }
    verdicts
}

/// CPU time per wake-up under interrupts, compared with the hand-written program's.
fn activation(summaries: &[Summary], query: Query, rate_per_s: u64) -> Verdict {
    let (interrupt, hand) = (Setting::Interrupt, Setting::Hand);
    let goal = format!(
        "CPU time per wake-up, {interrupt} against {hand}, {query} at {}",
        rate(rate_per_s as f64)
    );
    let summary_of = |setting| at(summaries, setting, query, rate_per_s);
    let (Some(one), Some(other)) = (summary_of(interrupt), summary_of(hand)) else {
        return Verdict::at_most(goal, None, ACTIVATION_RATIO_MAX);
    };
    let measured = one.us_per_wakeup / other.us_per_wakeup.max(f64::MIN_POSITIVE);
    let details = format!(
        "{:.1} us / {:.1} us",
        one.us_per_wakeup, other.us_per_wakeup
    );
    Verdict::at_most(goal, Some(measured), ACTIVATION_RATIO_MAX).details(details)
}

/// Targets that `auto` missed and a fixed setting met.
fn targets(comparisons: &[Comparison]) -> Verdict {
    let goal = "targets missed by auto that a fixed setting meets".to_string();
    if comparisons.is_empty() {
        return Verdict::at_most(goal, None, 0.0);
    }
    let possible = comparisons.iter().filter(|each| each.best.is_some());
    let misses = comparisons.iter().filter(|each| each.is_miss());
    let misses = misses.map(Comparison::place).collect::<Vec<_>>();
    let nobody = comparisons.iter().filter(|each| each.best.is_none());
    let (nobody, by_auto) = (
        nobody.clone().count(),
        nobody.filter(|each| each.met).count(),
    );
    let mut details = format!("{} targets that a fixed setting met", possible.count());
    if nobody > 0 {
        details.push_str(&format!(
            ", {nobody} that none met ({by_auto} of them met by auto)"
        ));
    }
    if !misses.is_empty() {
        details.push_str(&format!("; missed: {}", misses.join(", ")));
    }
    Verdict::at_most(goal, Some(misses.len() as f64), 0.0).details(details)
}

fn mean(comparisons: &[Comparison]) -> Verdict {
    let goal = "CPU time of auto against the cheapest fixed setting that meets the target, \
                geometric mean"
        .to_string();
    let ratios = comparisons.iter().filter_map(|each| each.ratio);
    let ratios = ratios.collect::<Vec<_>>();
    if ratios.is_empty() {
        return Verdict::at_most(goal, None, MEAN_MAX);
    }
    let measured = geometric_mean(&ratios);
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    let details = format!("{} ratios from {least:.2} to {most:.2}", ratios.len());
    Verdict::at_most(goal, Some(measured), MEAN_MAX).details(details)
}

fn each(comparisons: &[Comparison]) -> Verdict {
    let goal = format!(
        "points where auto costs more than {RATIO_MAX} times as much and {MORE_PERCENT_MAX} % of a \
         core more"
    );
    let compared = comparisons.iter().filter(|each| each.ratio.is_some());
    let compared = compared.collect::<Vec<_>>();
    let worst = |one: &&&Comparison, other: &&&Comparison| {
        one.ratio
            .unwrap_or(0.0)
            .total_cmp(&other.ratio.unwrap_or(0.0))
    };
    let Some(worst) = compared.iter().max_by(worst) else {
        return Verdict::at_most(goal, None, 0.0);
    };
    let shown = |each: &Comparison| {
        format!(
            "{} {:.2} % / {:.2} % = {:.2}",
            each.place(),
            each.percent,
            each.best_percent.unwrap_or(0.0),
            each.ratio.unwrap_or(0.0)
        )
    };
    let beyond = compared.iter().filter(|each| each.is_too_much());
    let beyond = beyond.map(|each| shown(each)).collect::<Vec<_>>();
    let details = match beyond.is_empty() {
        true => format!("the largest ratio: {}", shown(worst)),
        false => beyond.join(", "),
    };
    Verdict::at_most(goal, Some(beyond.len() as f64), 0.0).details(details)
}

/// `auto` at 20 ms compared with another setting at one rate.
fn against(
    summaries: &[Summary],
    other: Setting,
    query: Query,
    rate_per_s: u64,
    at_most: f64,
) -> Verdict {
    let auto = Setting::Auto {
        target_us: TARGET_US,
    };
    let goal = format!(
        "{auto} against {other}, {query} at {}",
        rate(rate_per_s as f64)
    );
    let summary_of = |setting| at(summaries, setting, query, rate_per_s);
    let (Some(one), Some(other)) = (summary_of(auto), summary_of(other)) else {
        return Verdict::at_most(goal, None, at_most);
    };
    let measured = ratio(one, other);
    // Costs that are low because the target was missed, or because records were left, are not a saving.
    let in_time = one.meets(TARGET_US);
    let details = format!(
        "{:.2} % / {:.2} %{}{}",
        one.percent.median,
        other.percent.median,
        if in_time {
            ""
        } else {
            ", auto missed the target"
        },
        if other.keeps_up {
            ""
        } else {
            ", the other left records"
        }
    );
    let verdict = Verdict::at_most(goal, Some(measured), at_most);
    verdict.only_if(in_time).details(details)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::comparison::comparisons;
    use crate::target::summary::tests::summary;

    fn filter(setting: &str, rate: u64, percent: f64, p99_us: f64) -> Summary {
        summary(setting, Query::Filter, rate, percent, p99_us)
    }

    fn judged(summaries: &[Summary]) -> Vec<Verdict> {
        verdicts(summaries, &comparisons(summaries))
    }

    fn met(summaries: &[Summary]) -> Vec<Option<bool>> {
        judged(summaries)
            .into_iter()
            .map(|verdict| verdict.met)
            .collect()
    }

    #[test]
    fn a_target_is_missed_only_where_a_fixed_setting_meets_it() {
        let mut summaries = vec![
            filter("auto:1ms", 10_000, 1.0, 1_001.0),
            filter("poll", 10_000, 100.0, 1_500.0),
        ];
        let verdict = &judged(&summaries)[0];
        assert_eq!(verdict.met, Some(true));
        assert!(
            verdict
                .details
                .contains("1 that none met (0 of them met by auto)")
        );
        // Nor is there a ratio then.
        assert_eq!(met(&summaries)[1], None);
        summaries.push(filter("interrupt", 10_000, 5.0, 999.0));
        let verdict = &judged(&summaries)[0];
        assert_eq!((verdict.met, verdict.measured), (Some(false), Some(1.0)));
        assert!(
            verdict.line().ends_with("missed: filter 10 k/s 1ms"),
            "{}",
            verdict.line()
        );
    }

    #[test]
    fn one_point_may_cost_a_fifth_of_a_percent_more_but_the_mean_counts_all() {
        let mut summaries = vec![
            filter("auto:20ms", 100, 0.30, 100.0),
            filter("interrupt", 100, 0.12, 100.0),
        ];
        assert_eq!(met(&summaries)[1..3], [Some(false), Some(true)]);
        summaries[0] = filter("auto:20ms", 100, 0.33, 100.0);
        let verdict = &judged(&summaries)[2];
        assert_eq!(verdict.met, Some(false));
        assert!(
            verdict.details.contains("0.33 % / 0.12 % = 2.75"),
            "{verdict:?}"
        );
        // Many good ratios keep the mean low, but the bad one is reported.
        for rate in 0..20 {
            summaries.push(filter("auto:20ms", 1_000 + rate, 1.0, 100.0));
            summaries.push(filter("interrupt", 1_000 + rate, 1.0, 100.0));
        }
        assert_eq!(met(&summaries)[1..3], [Some(true), Some(false)]);
    }

    #[test]
    fn the_goals_at_20_ms_name_what_they_are_compared_with() {
        let mut summaries = vec![
            filter("auto:20ms", 10_000, 1.0, 19_000.0),
            filter("interrupt", 10_000, 2.0, 100.0),
            filter("hand", 10_000, 1.9, 100.0),
            filter("auto:20ms", 500_000, 12.0, 19_000.0),
            filter("hand", 500_000, 10.0, 100.0),
        ];
        let hand = [None, None, Some(false), None, Some(true), None, None];
        let expected = [Some(true), None].into_iter().chain(hand);
        assert_eq!(met(&summaries)[3..12], expected.collect::<Vec<_>>());
        // Under interrupts, per wake-up; each summary has 100 of them in a second.
        assert_eq!(met(&summaries)[12..], [None, None, Some(true), None]);
        summaries[1] = filter("interrupt", 10_000, 3.9, 100.0);
        let verdict = &judged(&summaries)[14];
        assert_eq!(verdict.met, Some(false));
        assert!(
            verdict.line().contains("390.0 us / 190.0 us"),
            "{}",
            verdict.line()
        );
        summaries[1] = filter("interrupt", 10_000, 2.0, 100.0);
        // Cheap but late is not a saving.
        summaries[0] = filter("auto:20ms", 10_000, 1.0, 20_100.0);
        let verdict = &judged(&summaries)[3];
        assert_eq!(verdict.met, Some(false));
        assert!(
            verdict
                .line()
                .contains("0.50, at most 0.5; 1.00 % / 2.00 %, auto missed")
        );
    }

    #[test]
    fn without_measurements_no_goal_is_met() {
        assert!(met(&[]).iter().all(Option::is_none));
        let line = judged(&[])[9].line();
        assert!(
            line.starts_with("not measured: auto:20ms against hand"),
            "{line}"
        );
    }
}
