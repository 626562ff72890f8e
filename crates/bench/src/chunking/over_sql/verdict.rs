//! The goals of the three experiments.

use super::{COMPLETE_TILES, Figures, Load, QueryWay};
use crate::lab::{Verdict, number};

/// How much lower the latency of partial updates should be.
const LATENCY_MIN: f64 = 10.0;

/// How much higher the rate of complete updates should be.
const RATE_MIN: f64 = 4.0;

/// Guaranteed latencies, as multiples of TCP's lowest.
const GUARANTEES: [f64; 3] = [1.5, 3.0, 6.0];

/// The verdicts.
pub fn verdicts(figures: &Figures) -> Vec<Verdict> {
    vec![latency(figures), rate(figures), mixed(figures)]
}

/// The median latency of partial updates of a way that keeps the rate.
fn kept(figures: &Figures, way: QueryWay, load: Load) -> Option<f64> {
    let summary = figures.summary(way, load)?;
    summary.is_kept.then_some(summary.partial_ms.0)
}

fn latency(figures: &Figures) -> Verdict {
    let ratios = figures.loads(false).into_iter().filter_map(|load| {
        let tcp = kept(figures, QueryWay::Tcp, load)?;
        let planned = kept(figures, QueryWay::Planned, load)?;
        let same = kept(figures, QueryWay::SameBlock, load);
        let same = same.map_or("-".to_string(), |ms| number(tcp / ms));
        let ratio = tcp / planned;
        let share = load.tiles_per_s / figures.tiles_per_s;
        let shown = format!(
            "{share:.2}: {} / {} ms = {} (same block {same})",
            number(tcp),
            number(planned),
            number(ratio)
        );
        Some((ratio, shown))
    });
    let (ratios, shown): (Vec<f64>, Vec<String>) = ratios.unzip();
    Verdict::at_least(
        "median latency of partial updates under a guaranteed rate: TCP with its best block / shared memory, \
         planned, largest ratio of the rates",
        ratios.into_iter().reduce(f64::max),
        LATENCY_MIN,
    )
    .details(shown.join(", "))
}

fn rate(figures: &Figures) -> Verdict {
    let loads = figures.loads(false);
    let lowest = loads
        .iter()
        .filter_map(|&load| kept(figures, QueryWay::Tcp, load))
        .reduce(f64::min);
    let guarantees = lowest.into_iter().flat_map(|lowest| {
        GUARANTEES.map(|factor| {
            let most_ms = factor * lowest;
            let most = |way| {
                let kept = loads.iter().filter(|&&load| {
                    kept(figures, way, load).is_some_and(|p50_ms| p50_ms <= most_ms)
                });
                let rates = kept.map(|load| load.tiles_per_s);
                rates.reduce(f64::max)
            };
            (most_ms, most(QueryWay::Tcp), most(QueryWay::Planned))
        })
    });
    let ratios = guarantees.filter_map(|(most_ms, tcp, planned)| {
        let (tcp, planned) = (tcp?, planned?);
        let updates = |tiles_per_s: f64| number(tiles_per_s / COMPLETE_TILES);
        let shown = format!(
            "{} ms: {}/s / {}/s = {}",
            number(most_ms),
            updates(planned),
            updates(tcp),
            number(planned / tcp)
        );
        Some((planned / tcp, shown))
    });
    let (ratios, shown): (Vec<f64>, Vec<String>) = ratios.unzip();
    Verdict::at_least(
        "rate of complete updates with partial ones within a multiple of what they take over TCP at best: \
         shared memory, planned / TCP with its best block, largest ratio",
        ratios.into_iter().reduce(f64::max),
        RATE_MIN,
    )
    .details(shown.join(", "))
}

fn mixed(figures: &Figures) -> Verdict {
    let response = |way: QueryWay, load: Load| {
        let summary = figures.summary(way, load)?;
        let share = load.mixed?;
        Some(share * summary.complete_ms.0 + (1.0 - share) * summary.partial_ms.0)
    };
    let loads = figures.loads(true);
    let at = loads.iter().find(|load| load.mixed == Some(0.6));
    let limit = at.and_then(|&load| response(QueryWay::Tcp, load));
    let within = limit.and_then(|limit| {
        let shares = loads
            .iter()
            .filter(|&&load| response(QueryWay::Planned, load).is_some_and(|ms| ms <= limit));
        shares.filter_map(|load| load.mixed).reduce(f64::max)
    });
    Verdict::at_least(
        "share of complete updates among mixed queries in the time in which TCP bears 0.6",
        within,
        0.9,
    )
    .details(limit.map_or(String::new(), |ms| format!("{} ms", number(ms))))
    .beside_unless(false)
}
