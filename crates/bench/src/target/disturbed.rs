//! `slackwater bench target --disturb`: each point undisturbed and disturbed, and what that costs.

use serde::Serialize;
use slackwater_control::latency::controller::WORSE_MAX;

use super::child::Programs;
use super::disturber::{Disturbance, Disturber, is_preferred};
use super::order::{Point, Spec};
use super::plan::Plan;
use super::point;
use super::predicted::predicted_percent;
use super::setting::Setting;
use super::summary::Summary;
use crate::common::Assumed;
use crate::lab::{self, Experiment, Table, Verdict, geometric_mean, minutes, rate};

/// The most CPU time under a disturbance, compared with the same point undisturbed.
const MORE_MAX: f64 = 1.15;

/// How far the CPU time that `explain` predicts may be from the measured one, undisturbed, as a factor.
const PREDICTED_MAX: f64 = 1.3;

/// The most CPU time, compared with interrupts under the same disturbance.
const INTERRUPTS_MAX: f64 = 1.0;

/// The experiment: the points of a plan under several disturbances, the first of which is none.
pub struct Disturbed<'a> {
    plan: &'a Plan,
    disturbances: Vec<Disturbance>,
}

/// A point under a disturbance: medians over the rounds.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// The disturbance.
    pub disturbance: Disturbance,
    /// The figures.
    #[serde(flatten)]
    pub summary: Summary,
    /// The CPU time that `explain` predicts, in percent of a core; for points with a target.
    pub predicted_percent: Option<f64>,
    /// The host's part in late rows, as the engine saw it in the last round.
    pub lateness: serde_json::Value,
}

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// The core of the process that sent and received, which is not disturbed.
    pub core: usize,
    /// The assumed cost of waiting.
    #[serde(flatten)]
    pub assumed: Assumed,
    /// Whether bursts had real-time priority.
    pub real_time: bool,
    /// Number of rounds.
    pub rounds: u32,
    /// How long each point was measured in each round.
    pub seconds: f64,
    /// All points.
    pub measured: Vec<Measured>,
}

impl<'a> Disturbed<'a> {
    /// The points of a plan, without and with these disturbances.
    pub fn of(plan: &'a Plan, disturbances: &[Disturbance]) -> Disturbed<'a> {
        let all = [Disturbance::None].into_iter();
        Disturbed {
            plan,
            disturbances: all.chain(disturbances.iter().copied()).collect(),
        }
    }

    fn points(&self) -> usize {
        self.plan.points() * self.disturbances.len()
    }
}

impl Experiment for Disturbed<'_> {
    type Figures = Figures;

    fn announcement(&self) -> String {
        let seconds = self.plan.expected_s() * self.disturbances.len() as f64;
        format!("{} points, about {}", self.points(), minutes(seconds))
    }

    fn measure(&self) -> Result<Figures, String> {
        let plan = self.plan;
        let programs = Programs::find(plan.needs_hand())?;
        let cores = slackwater_link::allowed_cores().into_iter();
        let cores = cores.filter(|&core| core != plan.core);
        let cores = cores.collect::<Vec<usize>>();
        if cores.is_empty() {
            return Err(
                "--disturb needs a core besides that of the sender and receiver".to_string(),
            );
        }
        let mut points: Vec<(Disturbance, Point)> = Vec::new();
        for round in lab::rounds(plan.rounds) {
            for group in &plan.groups {
                for &spec in round.order(group) {
                    for &disturbance in round.order(&self.disturbances) {
                        let Spec { setting, query, .. } = spec;
                        let at = rate(spec.rate_per_s as f64);
                        round.note(format!(
                            "{setting}, {query} at {at}, disturbed: {disturbance}"
                        ));
                        let order = plan.order(&spec);
                        let start = |pid| Disturber::start(disturbance, pid, &cores);
                        let point =
                            point::measure_while(&programs, spec, &order, round.number, start)?;
                        points.push((disturbance, point));
                    }
                }
            }
        }
        let mut measured = Vec::new();
        for &disturbance in &self.disturbances {
            let under = points.iter().filter(|(under, _)| *under == disturbance);
            let under = under.map(|(_, point)| point.clone());
            let under = under.collect::<Vec<Point>>();
            for &spec in plan.groups.iter().flatten() {
                let last = under.iter().rfind(|point| point.spec == spec);
                let own = last.and_then(|point| point.own.as_ref());
                let lateness = own.map(|own| own.plan["tuning"]["lateness"].clone());
                let predicted_percent = predicted_percent(&spec)?;
                measured.extend(Summary::of(spec, &under).map(|summary| Measured {
                    disturbance,
                    summary,
                    predicted_percent,
                    lateness: lateness.unwrap_or_default(),
                }));
            }
        }
        Ok(Figures {
            core: plan.core,
            assumed: Assumed::here(),
            real_time: is_preferred(),
            rounds: plan.rounds,
            seconds: plan.seconds,
            measured,
        })
    }

    fn verdicts(&self, figures: &Figures) -> Vec<Verdict> {
        let disturbances = self.disturbances.iter();
        let disturbances = disturbances.filter(|&&one| one != Disturbance::None);
        let verdicts =
            disturbances.flat_map(|&disturbance| verdicts(&figures.measured, disturbance));
        [prediction(&figures.measured)]
            .into_iter()
            .chain(verdicts)
            .collect()
    }

    fn text(&self, figures: &Figures) -> String {
        text(figures)
    }
}

/// How far predictions are from what was measured without a disturbance, at worst. Pure.
fn prediction(measured: &[Measured]) -> Verdict {
    let quiet = measured
        .iter()
        .filter(|one| one.disturbance == Disturbance::None);
    let ratios = quiet.filter_map(|one| Some(one.predicted_percent? / one.summary.percent.median));
    let ratios = ratios.collect::<Vec<f64>>();
    let worst = ratios
        .iter()
        .map(|ratio| ratio.max(1.0 / ratio))
        .reduce(f64::max);
    let shown = ratios.iter().map(|ratio| format!("{ratio:.2}"));
    let goal =
        "CPU time predicted by explain against measured, undisturbed, as a factor either way";
    Verdict::at_most(goal, worst, PREDICTED_MAX).details(format!(
        "predicted / measured: {}",
        shown.collect::<Vec<String>>().join(", ")
    ))
}

fn p99_us(summary: &Summary) -> Option<f64> {
    summary.latency.map(|latency| latency.p99_us)
}

/// The goals under a disturbance, over all points with a latency target. Pure.
fn verdicts(measured: &[Measured], disturbance: Disturbance) -> Vec<Verdict> {
    let (mut quiet, mut interrupts, mut p99) = (Vec::new(), Vec::new(), Vec::new());
    for one in measured.iter().filter(|one| one.disturbance == disturbance) {
        let Setting::Auto { target_us } = one.summary.spec.setting else {
            continue;
        };
        let spec = one.summary.spec;
        let beside = |other: &&Measured| {
            let other = other.summary.spec;
            (other.query, other.rate_per_s) == (spec.query, spec.rate_per_s)
        };
        let beside = measured.iter().filter(beside).collect::<Vec<_>>();
        let percent = one.summary.percent.median;
        let undisturbed = beside.iter().find(|other| {
            other.disturbance == Disturbance::None && other.summary.spec.setting == spec.setting
        });
        quiet.extend(undisturbed.map(|other| percent / other.summary.percent.median));
        let under = beside
            .iter()
            .filter(|other| other.disturbance == disturbance);
        let fixed = under.filter(|other| other.summary.spec.setting.is_fixed());
        let fixed = fixed.map(|other| &other.summary).collect::<Vec<&Summary>>();
        let woken = fixed
            .iter()
            .find(|other| other.spec.setting == Setting::Interrupt);
        interrupts.extend(woken.map(|other| percent / other.percent.median));
        let least = fixed
            .iter()
            .filter_map(|other| p99_us(other))
            .reduce(f64::min);
        // Within the target, a lower latency is no gain.
        let least = least.map(|least| least.max(target_us as f64 / (1.0 + WORSE_MAX)));
        p99.extend(
            p99_us(&one.summary)
                .zip(least)
                .map(|(own, least)| own / least),
        );
    }
    let worst = |ratios: &[f64]| ratios.iter().copied().reduce(f64::max);
    let details = |ratios: &[f64]| match ratios {
        [] => String::new(),
        ratios => format!(
            "{} points, {:.2} in the geometric mean",
            ratios.len(),
            geometric_mean(ratios)
        ),
    };
    let of = |goal: &str, ratios: &[f64], most: f64| {
        let goal = format!("{goal}, disturbed: {disturbance}");
        Verdict::at_most(goal, worst(ratios), most).details(details(ratios))
    };
    vec![
        of("CPU time of auto against undisturbed", &quiet, MORE_MAX),
        of(
            "CPU time of auto against interrupts",
            &interrupts,
            INTERRUPTS_MAX,
        ),
        of(
            "p99 of auto against the lowest of a fixed setting, or the target",
            &p99,
            1.0 + WORSE_MAX,
        ),
    ]
}

fn text(figures: &Figures) -> String {
    let mut table = Table::new([
        "query",
        "rate",
        "setting",
        "disturbed",
        "CPU %",
        "predicted %",
        "p99 ms",
        "own p99 ms",
        "wake-ups/s",
        "late by host",
    ]);
    let ms = |us: Option<f64>| us.map_or("-".to_string(), |us| format!("{:.2}", us / 1e3));
    for one in &figures.measured {
        let summary = &one.summary;
        let late = |field: &str| one.lateness[field].as_f64();
        let by_host = late("rows_by_host").zip(late("rows"));
        table.line([
            summary.spec.query.to_string(),
            rate(summary.spec.rate_per_s as f64),
            summary.spec.setting.to_string(),
            one.disturbance.to_string(),
            format!("{:.2}", summary.percent.median),
            one.predicted_percent
                .map_or("-".to_string(), |percent| format!("{percent:.2}")),
            ms(p99_us(summary)),
            ms(summary.own_p99_us),
            format!("{:.0}", summary.wakeups_per_s),
            by_host.map_or("-".to_string(), |(by_host, rows)| {
                format!("{by_host:.0} of {rows:.0}")
            }),
        ]);
    }
    let priority = match figures.real_time {
        true => "with real-time priority",
        false => "with normal priority, since real-time priority is not permitted",
    };
    format!(
        "bursts {priority} on all cores but {}, where records are sent and rows received; {} round(s) of \
         {} s a point\n{}\n\n{}",
        figures.core,
        figures.rounds,
        figures.seconds,
        figures.assumed.describe(),
        table.markdown()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::query::Query;
    use crate::target::summary::tests::summary;

    fn measured(disturbance: Disturbance, setting: &str, percent: f64, p99_ms: f64) -> Measured {
        Measured {
            disturbance,
            summary: summary(setting, Query::Filter, 10_000, percent, p99_ms * 1e3),
            predicted_percent: None,
            lateness: serde_json::Value::Null,
        }
    }

    #[test]
    fn a_prediction_may_be_too_high_or_too_low() {
        let mut all = [
            measured(Disturbance::None, "auto:20ms", 1.0, 18.0),
            measured(Disturbance::None, "auto:5ms", 2.0, 4.0),
            measured(Disturbance::Stops, "auto:5ms", 9.0, 4.0),
        ];
        assert_eq!(prediction(&all).met, None);
        for (one, percent) in all.iter_mut().zip([1.2, 1.0, 1.0]) {
            one.predicted_percent = Some(percent);
        }
        assert_eq!(prediction(&all).measured, Some(2.0));
    }

    #[test]
    fn auto_is_compared_under_the_same_disturbance() {
        let five = Disturbance::Bursts(5.0);
        let all = [
            measured(Disturbance::None, "auto:20ms", 1.0, 18.0),
            measured(Disturbance::None, "interrupt", 4.0, 0.2),
            measured(five, "auto:20ms", 2.0, 33.0),
            measured(five, "interrupt", 4.0, 30.0),
            measured(five, "sleep:10ms", 1.5, 40.0),
        ];
        let ratios = verdicts(&all, five).into_iter().map(|one| one.measured);
        assert_eq!(
            ratios.collect::<Vec<_>>(),
            [Some(2.0), Some(0.5), Some(1.1)]
        );
        assert!(
            verdicts(&all, Disturbance::Stops)
                .iter()
                .all(|one| one.met.is_none())
        );
        // Nothing is better than the target.
        let early = [
            measured(five, "auto:20ms", 2.0, 20.0),
            measured(five, "interrupt", 4.0, 3.0),
        ];
        assert!(verdicts(&early, five)[2].met.unwrap());
    }
}
