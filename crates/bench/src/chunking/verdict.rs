//! The goals, met or missed, from medians to lines. Pure.

use super::figures::Level;
use super::latency::AtRate;
use super::mixed::share_at;
use super::rate::AtLatency;
use super::way::Way;
use crate::lab::{Verdict, time};

/// How many times lower the latency of partial updates must be.
const LATENCY_RATIO_MIN: f64 = 10.0;

/// How many times higher the rate of complete updates must be.
const RATE_RATIO_MIN: f64 = 4.0;

/// The share of complete updates that TCP sustains in P4, and the share required of shared memory.
const SHARE_OF_TCP: f64 = 0.6;
const SHARE_MIN: f64 = 0.9;

/// Number of parts of the image in that mix.
const PARTITIONS: usize = 64;

/// All verdicts for these measurements.
pub fn verdicts(levels: &[Level]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for level in levels {
        verdicts.extend(latencies(level));
        verdicts.extend(rates(level));
        verdicts.extend(mixes(level));
    }
    verdicts
}

fn computing(level: &Level) -> String {
    match level.ns_per_byte {
        0.0 => "without computing".to_string(),
        ns => format!("with {ns} ns of computing per byte"),
    }
}

/// Partial updates under a guaranteed rate: the largest ratio, as P4 reports it, and the smallest.
fn latencies(level: &Level) -> Vec<Verdict> {
    let at = |way, fraction: f64| {
        let mut rows = level.latency.iter();
        rows.find(|row| row.way == way && row.fraction == fraction && row.kept)
    };
    let mut ratios = Vec::new();
    let mut details = Vec::new();
    for planned in &level.latency {
        let AtRate { way, fraction, .. } = *planned;
        if way != Way::ShmPlanned || fraction <= 0.0 {
            continue;
        }
        let rate = format!("{:.3}/s", planned.complete_per_s);
        if !planned.kept {
            details.push(format!("{rate}: the planned block does not keep it"));
            continue;
        }
        let same = at(Way::ShmSame, fraction);
        let Some(tcp) = at(Way::TcpFixed, fraction) else {
            let same = same.map_or(String::new(), |same| {
                format!(" (same block {})", time(same.mean_us))
            });
            let planned = time(planned.mean_us);
            details.push(format!("{rate}: TCP does not keep it, {planned}{same}"));
            continue;
        };
        let ratio = tcp.mean_us / planned.mean_us;
        let same = same.map_or(String::new(), |same| {
            format!(" (same block {:.1})", tcp.mean_us / same.mean_us)
        });
        ratios.push(ratio);
        details.push(format!(
            "{rate}: {} / {} = {ratio:.1}{same}",
            time(tcp.mean_us),
            time(planned.mean_us)
        ));
    }
    let (Some(least), Some(most)) = extremes(&ratios) else {
        return Vec::new();
    };
    let goal = |which: &str| {
        format!(
            "mean latency of partial updates under a guaranteed rate, {}: TCP with its best block / \
             shared memory with planned blocks, {which}",
            computing(level)
        )
    };
    let at_least = |which, ratio| Verdict::at_least(goal(which), Some(ratio), LATENCY_RATIO_MIN);
    let largest =
        at_least("largest ratio of the rates", most).beside_unless(level.ns_per_byte == 0.0);
    let smallest = at_least("smallest ratio of the rates", least).beside_unless(false);
    vec![
        largest.details(details.join(", ")),
        smallest.details("as above"),
    ]
}

fn extremes(values: &[f64]) -> (Option<f64>, Option<f64>) {
    let least = values.iter().copied().min_by(f64::total_cmp);
    (least, values.iter().copied().max_by(f64::total_cmp))
}

/// Complete updates under the tightest guarantee.
fn rates(level: &Level) -> Option<Verdict> {
    let mut tightest = None;
    let mut details = Vec::new();
    for planned in &level.rate {
        let AtLatency { way, multiple, .. } = *planned;
        let same_guarantee = |other: Way| {
            let mut rows = level.rate.iter();
            rows.find(|row| row.way == other && row.multiple == multiple)
        };
        if way != Way::ShmPlanned {
            continue;
        }
        let Some(tcp) = same_guarantee(Way::TcpFixed) else {
            continue;
        };
        // If TCP kept the guarantee at no rate that was tried, it may still keep it at lower ones.
        let none = tcp.complete_per_s == 0.0;
        let of_tcp = if none {
            tcp.not_kept_per_s
        } else {
            tcp.complete_per_s
        };
        let ratio = planned.complete_per_s / of_tcp;
        let same = same_guarantee(Way::ShmSame).map_or(String::new(), |same| {
            format!(" (same block {:.3}/s)", same.complete_per_s)
        });
        details.push(format!(
            "{}: {:.3}/s / {}{of_tcp:.3}/s = {}{ratio:.1}{same}",
            time(planned.latency_us),
            planned.complete_per_s,
            if none { "less than " } else { "" },
            if none { "more than " } else { "" },
        ));
        if tightest.is_none_or(|(least, _)| multiple < least) {
            tightest = Some((multiple, ratio));
        }
    }
    let (multiple, ratio) = tightest?;
    let goal = format!(
        "rate of complete updates with partial ones within {multiple} times what they take over TCP \
         alone, {}: shared memory with planned blocks / TCP with its best block",
        computing(level)
    );
    let verdict = Verdict::at_least(goal, Some(ratio), RATE_RATIO_MIN);
    let verdict = verdict.beside_unless(level.ns_per_byte == 0.0);
    Some(verdict.details(details.join(", ")))
}

/// The share of complete updates that a mix can have in the time that TCP needs for P4's share.
fn mixes(level: &Level) -> Option<Verdict> {
    let mut of_tcp = level
        .mixed
        .iter()
        .filter(|mix| mix.way == Way::TcpFixed && mix.partitions == PARTITIONS);
    let tcp = of_tcp.find(|mix| mix.complete_share == SHARE_OF_TCP)?;
    let planned = share_at(&level.mixed, Way::ShmPlanned, PARTITIONS, tcp.mean_us)?;
    let same = share_at(&level.mixed, Way::ShmSame, PARTITIONS, tcp.mean_us)?;
    let goal = format!(
        "share of complete updates among mixed queries over {PARTITIONS} parts in the time that \
         TCP needs for {SHARE_OF_TCP}, {}",
        computing(level)
    );
    let details = format!("{}; same block {same:.2}", time(tcp.mean_us));
    let verdict = Verdict::at_least(goal, Some(planned), SHARE_MIN);
    Some(verdict.beside_unless(false).details(details))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::chunking::latency::tests::at_rate;
    use crate::chunking::mixed::tests::mix;
    use crate::chunking::rate::tests::at_latency;
    use crate::chunking::sweep::tests::sweep;

    /// A level with all measurements.
    pub fn level(ns_per_byte: f64) -> Level {
        Level {
            ns_per_byte,
            seconds: 0.5,
            rounds: 3,
            short_rounds: 2,
            sweep: sweep(),
            latency: vec![
                at_rate(Way::TcpFixed, 0.0, 600.0),
                at_rate(Way::ShmPlanned, 0.0, 1.0),
                at_rate(Way::TcpFixed, 0.5, 2_000.0),
                at_rate(Way::ShmSame, 0.5, 1_000.0),
                at_rate(Way::ShmPlanned, 0.5, 250.0),
                at_rate(Way::TcpFixed, 0.9, 4_800.0),
                at_rate(Way::ShmPlanned, 0.9, 400.0),
            ],
            rate: vec![
                at_latency(Way::TcpFixed, 3.0, 60.0),
                at_latency(Way::ShmPlanned, 3.0, 300.0),
                at_latency(Way::TcpFixed, 1.5, 20.0),
                at_latency(Way::ShmPlanned, 1.5, 60.0),
            ],
            mixed: vec![
                mix(Way::TcpFixed, 0.6, 6_000.0),
                mix(Way::ShmSame, 0.0, 1_000.0),
                mix(Way::ShmSame, 1.0, 8_000.0),
                mix(Way::ShmPlanned, 0.0, 500.0),
                mix(Way::ShmPlanned, 1.0, 4_000.0),
            ],
        }
    }

    #[test]
    fn the_largest_ratio_is_a_goal_and_the_smallest_a_comparison() {
        let [largest, smallest, rate, mixed] = &verdicts(&[level(0.0)])[..] else {
            panic!("four lines");
        };
        assert!((largest.measured.unwrap() - 12.0).abs() < 1e-9);
        assert!(
            largest.line().starts_with("met: mean latency"),
            "{}",
            largest.line()
        );
        assert!(
            largest
                .details
                .contains("50.000/s: 2.00 ms / 250 us = 8.0 (same block 2.0)")
        );
        assert!((smallest.measured.unwrap() - 8.0).abs() < 1e-9);
        assert!(!smallest.is_goal && smallest.met == Some(false));
        // The tightest guarantee, not the first one.
        assert!((rate.measured.unwrap() - 3.0).abs() < 1e-9);
        assert!(
            rate.line()
                .starts_with("MISSED by 1: rate of complete updates")
        );
        assert!(
            (mixed.measured, mixed.met) == (Some(1.0), Some(true)),
            "{mixed:?}"
        );
        assert!(mixed.details.contains("same block 0.71"), "{mixed:?}");
    }

    #[test]
    fn rates_that_were_not_kept_do_not_count() {
        let mut level = level(18.0);
        level.latency[5].kept = false;
        let verdicts = verdicts(&[level]);
        assert!((verdicts[0].measured.unwrap() - 8.0).abs() < 1e-9);
        assert!(
            verdicts[0]
                .details
                .contains("90.000/s: TCP does not keep it")
        );
        assert!(verdicts.iter().all(|verdict| !verdict.is_goal));
    }

    #[test]
    fn a_guarantee_that_tcp_never_kept_gives_a_bound() {
        let mut level = level(0.0);
        level.rate[2] = at_latency(Way::TcpFixed, 1.5, 0.0);
        let verdicts = verdicts(&[level]);
        assert!((verdicts[2].measured.unwrap() - 12.0).abs() < 1e-9);
        assert!(
            verdicts[2]
                .details
                .contains("less than 5.000/s = more than 12.0")
        );
    }

    #[test]
    fn without_measurements_there_are_no_verdicts() {
        let nothing = Level {
            latency: Vec::new(),
            rate: Vec::new(),
            mixed: Vec::new(),
            ..level(0.0)
        };
        assert!(verdicts(&[nothing]).is_empty());
    }
}
