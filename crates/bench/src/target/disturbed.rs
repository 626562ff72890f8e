//! `slackwater bench target --disturb`: each point undisturbed and disturbed, and what that costs.

mod goals;
mod table;

use serde::Serialize;

use super::child::Programs;
use super::disturber::{Disturbance, Disturber, is_preferred};
use super::order::{Own, Point, Spec};
use super::plan::Plan;
use super::point;
use super::predicted::{self, Prediction};
use super::summary::Summary;
use crate::common::Assumed;
use crate::lab::{self, Experiment, Verdict, minutes, rate};

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
    /// The engine's corrections in all rounds, and how often its worker changed between sleeping and
    /// waiting to be woken.
    pub corrections: f64,
    pub mode_changes: f64,
    /// Late rows in all rounds, and those that the engine puts down to the host.
    pub late: f64,
    pub late_by_host: f64,
}

impl Measured {
    /// A point's medians, and the engine's own counts, over its rounds.
    fn of(disturbance: Disturbance, summary: Summary, points: &[Point]) -> Measured {
        let of_it = points.iter().filter(|point| point.spec == summary.spec);
        let owns = of_it.filter_map(|point| point.own.as_ref());
        let owns = owns.collect::<Vec<&Own>>();
        let sum = |of: &dyn Fn(&serde_json::Value) -> f64| -> f64 {
            owns.iter().map(|own| of(&own.plan)).sum()
        };
        let number = |value: &serde_json::Value| value.as_f64().unwrap_or(0.0);
        let tuning = |name: &str| sum(&|plan| number(&plan["tuning"][name]));
        let lateness = |name: &str| sum(&|plan| number(&plan["tuning"]["lateness"][name]));
        Measured {
            disturbance,
            summary,
            corrections: tuning("corrections"),
            mode_changes: sum(&|plan| {
                let threads = plan["threads"].as_array().into_iter().flatten();
                let changes = threads.map(|thread| number(&thread["mode_changes"]));
                changes.fold(0.0, f64::max)
            }),
            late: lateness("rows"),
            late_by_host: lateness("rows_by_host"),
        }
    }
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
    /// What `explain` predicts for points with a target, beside what was measured undisturbed.
    pub predictions: Vec<Prediction>,
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
            let specs = plan.groups.iter().flatten();
            let summaries = specs.filter_map(|&spec| Summary::of(spec, &under));
            measured.extend(summaries.map(|summary| Measured::of(disturbance, summary, &under)));
        }
        let quiet = measured
            .iter()
            .filter(|one| one.disturbance == Disturbance::None);
        let quiet = quiet.map(|one| one.summary).collect::<Vec<Summary>>();
        Ok(Figures {
            core: plan.core,
            assumed: Assumed::here(),
            real_time: is_preferred(),
            rounds: plan.rounds,
            seconds: plan.seconds,
            measured,
            predictions: predicted::predictions(&quiet)?,
        })
    }

    fn verdicts(&self, figures: &Figures) -> Vec<Verdict> {
        let disturbances = self.disturbances.iter();
        let disturbances = disturbances.filter(|&&one| one != Disturbance::None);
        let goals =
            disturbances.flat_map(|&disturbance| goals::verdicts(&figures.measured, disturbance));
        [predicted::verdict(&figures.predictions)]
            .into_iter()
            .chain(goals)
            .collect()
    }

    fn text(&self, figures: &Figures) -> String {
        table::text(figures)
    }
}
