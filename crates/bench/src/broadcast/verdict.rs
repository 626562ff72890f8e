//! The goals of broadcasts, and whether they are met; and whether the published ordering of the algorithms
//! holds here.

use std::collections::BTreeMap;

use serde::Serialize;

use super::measured::{Measured, PointFigures, WayFigures};
use super::plan::{Link, Point, Way};
use crate::lab::{Verdict, geometric_mean};
use slackwater::measure::Spread;

/// The automatic choice may cost this many times the cost of the best.
const CHOICE_MAX: f64 = 1.1;

/// In the largest setting, compared with the serial broadcast over TCP.
const THROUGHPUT_MIN: f64 = 3.0;
const LATENCY_MAX: f64 = 0.5;

/// Receivers of the largest setting.
const RECEIVERS: usize = 32;

/// The ordering of the algorithms in the largest setting over a link, each with whole messages.
#[derive(Debug, Serialize)]
pub struct Ordering {
    /// The link.
    pub link: Link,
    /// Bytes of a message.
    pub size_bytes: usize,
    /// By latency, the lowest first, with microseconds.
    pub by_latency: Vec<(&'static str, f64)>,
    /// By throughput, the highest first, with messages per second.
    pub by_throughput: Vec<(&'static str, f64)>,
}

/// The goals with their verdicts.
pub fn verdicts(points: &[PointFigures], measured: &[Measured]) -> Vec<Verdict> {
    let latency = |one: &Measured| one.latency_p50_us;
    let period = |one: &Measured| 1.0 / one.messages_per_s;
    let mut choice_latency = Vec::new();
    let mut choice_throughput = Vec::new();
    for figures in points {
        for choices in &figures.choices {
            let ways = figures.ways.iter().map(|measured| measured.way);
            let ways = ways
                .filter(|way| way.link == choices.link)
                .collect::<Vec<Way>>();
            let penalty_of = |chosen, cost: &dyn Fn(&Measured) -> f64| {
                of_the_best(measured, figures.point, chosen, &ways, cost)
            };
            choice_latency.extend(penalty_of(choices.latency, &latency));
            choice_throughput.extend(penalty_of(choices.throughput, &period));
        }
    }
    let serial = Way {
        link: Link::Tcp,
        algorithm: "serial",
        segment_bytes: None,
    };
    let mut times_latency = Vec::new();
    let mut times_throughput = Vec::new();
    for figures in points
        .iter()
        .filter(|measured| measured.point.receivers == RECEIVERS)
    {
        let shm = figures
            .choices
            .iter()
            .find(|choices| choices.link == Link::Shm);
        let Some(choices) = shm else { continue };
        let to_serial = |chosen, cost: &dyn Fn(&Measured) -> f64| {
            of_the_best(measured, figures.point, chosen, &[serial], cost)
        };
        times_latency.extend(to_serial(choices.latency, &latency));
        let periods = to_serial(choices.throughput, &period);
        times_throughput.extend(periods.map(|times| 1.0 / times));
    }
    let at_most = |goal: &str, values, limit| judge(goal, values, limit, Verdict::at_most);
    let at_least = |goal: &str, values, limit| judge(goal, values, limit, Verdict::at_least);
    let goals = [
        at_most(
            "automatic choice: latency, compared with the best way's",
            choice_latency,
            CHOICE_MAX,
        ),
        at_most(
            "automatic choice: time per message, compared with the best way's",
            choice_throughput,
            CHOICE_MAX,
        ),
        at_least(
            "32 receivers, automatic, shared memory: throughput, compared with serial TCP",
            times_throughput,
            THROUGHPUT_MIN,
        ),
        at_most(
            "32 receivers, automatic, shared memory: latency, compared with serial TCP",
            times_latency,
            LATENCY_MAX,
        ),
    ];
    goals.into_iter().flatten().collect()
}

/// The cost of the chosen way at a point, as a multiple of the best of some ways: the median over rounds,
/// in each of which they are neighbors. The best way is the one with the lowest median. Ways that use the
/// very same links are one way, measured several times.
fn of_the_best(
    measured: &[Measured],
    point: Point,
    chosen: Way,
    ways: &[Way],
    cost: &dyn Fn(&Measured) -> f64,
) -> Option<f64> {
    let each = |way: Way| {
        let own = measured
            .iter()
            .filter(|one| one.point == point && point.uses_the_same_links(one.way, way));
        let mut rounds = BTreeMap::<u32, Vec<f64>>::new();
        for one in own {
            rounds.entry(one.round).or_default().push(cost(one));
        }
        let means = rounds.values().map(|costs| geometric_mean(costs));
        means.collect::<Vec<f64>>()
    };
    let of_ways = ways.iter().map(|&way| each(way));
    let of_ways = of_ways.filter(|costs| !costs.is_empty());
    let median = |costs: &Vec<f64>| Spread::of(costs.clone()).median;
    let best = of_ways.min_by(|one, other| median(one).total_cmp(&median(other)))?;
    let ratios = each(chosen).into_iter().zip(best);
    let ratios = ratios
        .map(|(chosen, best)| chosen / best)
        .collect::<Vec<f64>>();
    (!ratios.is_empty()).then(|| Spread::of(ratios).median)
}

/// The geometric mean over points, compared with a limit; `None` if nothing was measured.
fn judge(
    goal: &str,
    values: Vec<f64>,
    limit: f64,
    bound: fn(String, Option<f64>, f64) -> Verdict,
) -> Option<Verdict> {
    if values.is_empty() {
        return None;
    }
    let is_met = |value| bound(String::new(), Some(value), limit).met == Some(true);
    let (met, all) = (
        values.iter().filter(|&&value| is_met(value)).count(),
        values.len(),
    );
    let verdict = bound(goal.to_string(), Some(geometric_mean(&values)), limit);
    let Spread { min, max, .. } = Spread::of(values);
    Some(verdict.note(format!("{min:.2} to {max:.2}; {met} of {all} points")))
}

/// The ordering of the algorithms in the largest setting.
pub fn orderings(points: &[PointFigures]) -> Vec<Ordering> {
    let largest = points
        .iter()
        .map(|measured| (measured.point.receivers, measured.point.processes))
        .max();
    let points = points.iter().filter(|measured| {
        Some((measured.point.receivers, measured.point.processes)) == largest
            && measured.point.processes > 1
    });
    let orderings = points.flat_map(|figures| {
        Link::ALL.into_iter().map(|link| {
            let whole = |measured: &&WayFigures| {
                measured.way.link == link && measured.way.segment_bytes.is_none()
            };
            let sorted = |pick: fn(&WayFigures) -> f64, sign: f64| {
                let ways = figures.ways.iter().filter(whole);
                let mut ranked = ways
                    .map(|measured| (measured.way.algorithm, pick(measured)))
                    .collect::<Vec<_>>();
                ranked.sort_by(|one, other| (sign * one.1).total_cmp(&(sign * other.1)));
                ranked
            };
            Ordering {
                link,
                size_bytes: figures.point.size_bytes,
                by_latency: sorted(|measured| measured.latency_p50_us.median, 1.0),
                by_throughput: sorted(|measured| measured.messages_per_s.median, -1.0),
            }
        })
    });
    orderings
        .filter(|ordering| !ordering.by_latency.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::figures::Figures;
    use super::super::plan::Plan;
    use super::*;

    /// All ways at all points of a quick run, with a latency for each way; `is_serial` says whether a way
    /// is the serial one, and differs from the others at this point.
    fn figures(latency_us: impl Fn(&Way, bool) -> f64) -> Figures {
        let plan = Plan::new(true, None, false);
        let mut measured = Vec::new();
        for run in plan.runs() {
            for size_bytes in run.sizes.clone() {
                let point = Point {
                    receivers: run.receivers,
                    processes: run.processes,
                    size_bytes,
                };
                let way = run.way();
                let tree = Way {
                    algorithm: "flat_tree",
                    ..way
                };
                let is_serial = way.algorithm == "serial" && !point.uses_the_same_links(way, tree);
                let latency_us = latency_us(&way, is_serial);
                measured.push(Measured {
                    round: 0,
                    point,
                    way,
                    latency_p50_us: latency_us,
                    latency_p90_us: latency_us,
                    messages_per_s: 1e6 / latency_us,
                    cpu_us_per_message: latency_us,
                });
            }
        }
        Figures::new(&plan, measured)
    }

    #[test]
    fn goals_compare_with_the_best_way_and_serial_tcp() {
        let figures = figures(|way, is_serial| match (way.link, is_serial) {
            (Link::Tcp, true) => 400.0,
            _ => 100.0,
        });
        let judged = |figures: &Figures| verdicts(&figures.points, &figures.measured);
        let met = |verdicts: &[Verdict]| {
            let met = verdicts.iter().map(|verdict| verdict.met == Some(true));
            met.collect::<Vec<bool>>()
        };
        let goals = judged(&figures);
        assert_eq!(met(&goals), [true; 4], "{goals:?}");
        assert!((goals[2].measured.unwrap() - 4.0).abs() < 1e-9);
        assert!(goals[3].note.contains("to 0.25"), "{:?}", goals[3]);
        // Nothing is better than serial TCP: the last two goals are missed, and the choice is not the
        // best.
        let worse = self::figures(|_, is_serial| if is_serial { 50.0 } else { 100.0 });
        assert_eq!(met(&judged(&worse))[2..], [false; 2]);
        assert_eq!(worse.orderings[0].by_latency[0].0, "serial");
        assert_eq!(worse.orderings[0].by_throughput[0].0, "serial");
    }
}
