//! The goals.

use slackwater::measure::Spread;

use super::batch::{Between, Summary, Way};
use super::effect;
use super::energy::{Configuration, Costs, saved_percent};
use super::figures::Figures;
use super::reads::{self, Point};
use crate::lab::{Verdict, median, spread};

/// CPU time per write with an allowed lag of 20 ms, compared with the default.
const RATIO_GOAL: f64 = 0.35;

/// The rates of that goal.
const RATES: std::ops::RangeInclusive<f64> = 1_000.0..=10_000.0;

/// The 99th percentile of visible lag with an allowed lag of 20 ms, in milliseconds.
const LAG_GOAL_MS: f64 = 25.0;

/// The throughput of a master whose replica has a beat, compared with the default.
const THROUGHPUT_GOAL: f64 = 0.98;

/// What a replica on a slow core loses of its GETs with the read path split, compared with what it loses
/// without.
const LOST_GOAL: f64 = 1.0 / 3.0;

/// GETs per CPU second, compared with those of a server in C.
const GETS_GOAL: f64 = 0.8;

/// The paper's savings with one and two replicas, in percent.
const SAVED: [(u32, f64); 2] = [(1, 36.1), (2, 48.1)];

/// All goals whose points were measured.
pub fn verdicts(figures: &Figures) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let beats = figures.batch.iter().filter(|one| one.way == Way::Beat(20));
    for beat in beats.filter(|one| RATES.contains(&one.rate_per_s)) {
        verdicts.extend(of_beat(beat, &figures.batch));
    }
    for kind in figures
        .servers
        .iter()
        .filter(|_| !figures.effect.is_empty())
    {
        let ratios = effect::ratios(&figures.effect, &kind.name);
        let ratio = spread(&ratios, |ratio| *ratio);
        let what = format!(
            "{}: throughput of a saturated master, with a beat of 20 ms",
            kind.name
        );
        let verdict = Verdict::at_least(what, Some(ratio.median), THROUGHPUT_GOAL);
        verdicts.push(verdict.note(between(&ratio)));
    }
    verdicts.extend(of_reads(figures));
    if figures.is_energy {
        for (replicas, goal) in SAVED {
            let saved = saved_percent(&Costs::PAPER, replicas, Configuration::Concerto, 1.0);
            let what = format!(
                "percent of energy saved by the paper's costs, {replicas} replica(s), computed"
            );
            verdicts.push(Verdict::at_least(
                what,
                Some((saved * 10.0).round() / 10.0),
                goal,
            ));
        }
        for one in figures.mixes.iter().filter(|one| one.case.replicas <= 2) {
            let goal = SAVED[one.case.replicas as usize - 1].1;
            let (most, least) = (1.0, 0.0);
            let saved = one.saved_percent(Configuration::Concerto, most);
            let what = format!(
                "{} {} {} B, {} replica(s): percent of energy saved, computed from measured costs",
                one.server,
                one.case.mix.name(),
                one.case.value_bytes,
                one.case.replicas
            );
            let idle = one.saved_percent(Configuration::Concerto, least);
            let details = format!("{idle:.1} if idle cores cost nothing");
            let verdict = Verdict::at_least(what, Some((saved * 10.0).round() / 10.0), goal);
            verdicts.push(verdict.beside_unless(false).details(details));
        }
    }
    verdicts
}

fn of_reads(figures: &Figures) -> Vec<Verdict> {
    let points = &figures.reads;
    let cpu_us = |server: &str| {
        let of = |point: &&Point| (point.server.as_str(), point.way) == (server, reads::Way::Fast);
        let own = points.iter().filter(of).collect::<Vec<&Point>>();
        (!own.is_empty()).then(|| median(&own, |point| point.cpu_us()))
    };
    let mut verdicts = Vec::new();
    let lost = |server: &str, way| reads::lost(points, server, way);
    let split = lost("slackwater", reads::Way::Split);
    if let (Some(split), Some(whole)) = (split, lost("slackwater", reads::Way::Whole)) {
        let what =
            "percent of GETs lost on a slow core with the read path split, one core each, computed";
        let goal = whole * 100.0 * LOST_GOAL;
        let verdict = Verdict::at_most(what.to_string(), Some(split * 100.0), goal);
        verdicts.push(verdict.details(format!("{:.0} without", whole * 100.0)));
    }
    for kind in &figures.servers {
        if let (Some(own), Some(other)) = (cpu_us("slackwater"), cpu_us(&kind.name)) {
            let what = format!("GETs of 1 KB per CPU second, compared with {}", kind.name);
            verdicts.push(Verdict::at_least(what, Some(other / own), GETS_GOAL));
        }
    }
    verdicts
}

fn of_beat(beat: &Summary, all: &[Summary]) -> Vec<Verdict> {
    let place = format!(
        "{}, {}, {:.0} SET/s, beat of 20 ms",
        beat.server,
        beat.between.name(),
        beat.rate_per_s
    );
    let mut verdicts = vec![
        Verdict::at_most(
            format!("{place}: CPU time per write, compared with the default"),
            Some(beat.ratio.median),
            RATIO_GOAL,
        )
        .note(between(&beat.ratio))
        .details(format!(
            "{:.2} excluding what a silent replica uses",
            beat.ratio_excluding_idle
        )),
        Verdict::at_most(
            format!("{place}: p99 of the visible lag, in ms"),
            Some(beat.lag.p99_us / 1e3),
            LAG_GOAL_MS,
        )
        .details(format!("p50 {:.1} ms", beat.lag.p50_us / 1e3)),
    ];
    let nagle = all.iter().find(|one| {
        one.way == Way::Nagle
            && (one.between, one.rate_per_s) == (beat.between, beat.rate_per_s)
            && one.server == beat.server
    });
    if let Some(nagle) = nagle {
        let ratio = beat.cpu_us.median / nagle.cpu_us.median;
        let what = format!("{place}: CPU time per write, compared with Nagle");
        let verdict = Verdict::at_most(what, Some(ratio), 1.0);
        verdicts.push(verdict.beside_unless(beat.between == Between::Mtu1500));
    }
    verdicts
}

fn between(ratio: &Spread) -> String {
    format!("{:.2} to {:.2}", ratio.min, ratio.max)
}
