//! Localization and mapping: `HYPOTHESES` follows each robot several times, `MATCH_SCAN` matches its scans
//! with the map of a hypothesis, and `BEST` tells the hypothesis that fits best.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, UInt32Array};
use arrow_schema::DataType;
use slackwater::functions::operator::{Call, Column, KeyedOperator, Operator, Out, Row, Rows};
use slackwater::functions::{Functions, Time};

use super::correlate::{Pose, Window};
use super::slam::{Hypothesis, Settings, noise};

/// Adds them to the language.
pub fn add(functions: &mut Functions) {
    functions
        .operator("hypotheses", &["count"], hypotheses)
        .operator("match_scan", MatchScan::PARAMETERS, MatchScan::plan)
        .operator("best", &[], Best::plan);
}

/// The most hypotheses of a robot: each has a map.
const HYPOTHESES_MAX: i64 = 1000;

/// `HYPOTHESES(TABLE odometry, count)`: each row `count` times, with a column `hypothesis` from 0.
fn hypotheses(call: &Call) -> Result<Operator, String> {
    call.input()?.all();
    let count = call.argument::<i64>("count")?;
    if !(1..=HYPOTHESES_MAX).contains(&count) {
        return Err(format!(
            "'count' is from 1 to {HYPOTHESES_MAX}, and is {count}"
        ));
    }
    let operator = Operator::rows(move |batch| {
        let rows = batch.num_rows();
        let of = (0..rows as u32).flat_map(|row| (0..count).map(move |_| row));
        let numbers = (0..rows).flat_map(|_| 0..count);
        let columns: Vec<ArrayRef> = vec![Arc::new(numbers.collect::<Int64Array>())];
        Ok(Rows::Made {
            of: Some(of.collect::<UInt32Array>()),
            columns,
        })
    });
    Ok(operator.columns(&[("hypothesis", DataType::Int64)]))
}

/// `MATCH_SCAN(TABLE t PARTITION BY (robot, hypothesis) ORDER BY ts [, …])`: each row is a scan (`ranges`, an
/// array) and the odometry at its time (`odometry_x`, `odometry_y`, `odometry_heading`: a pose, not steps, so
/// nothing is missing after a scan that was lost). Gives the pose, how well the scan fits, and the weight of
/// the hypothesis.
struct MatchScan {
    robot: Column<i64>,
    hypothesis: Column<i64>,
    ranges: Column<Vec<f64>>,
    odometry: [Column<f64>; 3],
    settings: Settings,
    seed: u64,
}

impl MatchScan {
    const PARAMETERS: &[&str] = &["extent", "range", "reach", "turn", "spread", "seed"];

    fn plan(call: &Call) -> Result<Operator, String> {
        let input = call.input()?;
        let within = |name: &str, default: f64, least: f64, most: f64| {
            let value = call.optional::<f64>(name)?.unwrap_or(default);
            match (least..=most).contains(&value) {
                true => Ok(value),
                false => Err(format!(
                    "'{name}' is from {least} to {most}, and is {value}"
                )),
            }
        };
        let operator = MatchScan {
            robot: input.column("robot")?,
            hypothesis: input.column("hypothesis")?,
            ranges: input.column("ranges")?,
            odometry: [
                input.column("odometry_x")?,
                input.column("odometry_y")?,
                input.column("odometry_heading")?,
            ],
            settings: Settings {
                // 200 m are 16 million cells.
                extent_m: within("extent", 30.0, 1.0, 200.0)?,
                range_m: within("range", 8.0, 0.1, 1000.0)?,
                window: Window {
                    reach_m: within("reach", 0.4, 0.05, 5.0)?,
                    turn: within("turn", 0.16, 0.0, 3.2)?,
                    turn_step: 0.01,
                },
                spread: within("spread", 0.05, 0.0, 1.0)?,
            },
            seed: call.optional::<i64>("seed")?.unwrap_or(1) as u64,
        };
        let names = ["x", "y", "heading", "fit", "weight", "points"];
        Ok(Operator::keyed(operator, &names).needs_order())
    }
}

impl KeyedOperator for MatchScan {
    /// Nothing before the first scan.
    type State = Option<Box<Hypothesis>>;
    type Saved = Vec<f64>;
    type Row = (f64, f64, f64, f64, f64, i64);

    fn on_row(
        &self,
        state: &mut Self::State,
        row: &Row<'_>,
        out: &mut Out<'_, '_, Self::Row>,
    ) -> Result<(), String> {
        let robot = row.get(self.robot).ok_or("the robot is NULL")?;
        let wrong = |reason: &str| format!("robot {robot}: {reason}");
        let hypothesis = row.get(self.hypothesis);
        let hypothesis = hypothesis.ok_or_else(|| wrong("the hypothesis is NULL"))?;
        let ranges = row.get(self.ranges);
        let ranges = ranges.ok_or_else(|| wrong("'ranges' is NULL or contains NULL"))?;
        let [x, y, heading] = self
            .odometry
            .map(|column| row.get(column).unwrap_or(f64::NAN));
        let odometry = Pose { x, y, heading };
        let noise = noise(self.seed, robot, row.time().micros, hypothesis);
        let known = state.get_or_insert_default();
        let fit = known.scan(&ranges, odometry, noise, &self.settings);
        let fit = fit.map_err(|reason| wrong(&reason))?;
        let Pose { x, y, heading } = known.pose;
        out.emit((x, y, heading, fit, known.weight, known.points() as i64));
        Ok(())
    }

    fn on_time(
        &self,
        _: &mut Self::State,
        _: Time,
        _: &mut Out<'_, '_, Self::Row>,
    ) -> Result<(), String> {
        Ok(())
    }

    fn save(&self, state: &Self::State) -> Vec<f64> {
        state.as_ref().map_or_else(Vec::new, |known| known.saved())
    }

    fn load(&self, saved: Vec<f64>) -> Self::State {
        Some(Box::new(Hypothesis::loaded(&saved, &self.settings)))
    }
}

/// `BEST(TABLE t PARTITION BY robot ORDER BY ts)`: of the rows of a time, the one with the largest `weight`;
/// of equal ones that of the first hypothesis.
struct Best {
    weight: Column<f64>,
    hypothesis: Column<i64>,
    pose: [Column<f64>; 3],
}

impl Best {
    fn plan(call: &Call) -> Result<Operator, String> {
        let input = call.input()?;
        let operator = Best {
            weight: input.column("weight")?,
            hypothesis: input.column("hypothesis")?,
            pose: [
                input.column("x")?,
                input.column("y")?,
                input.column("heading")?,
            ],
        };
        let names = ["hypothesis", "x", "y", "heading", "weight"];
        Ok(Operator::keyed(operator, &names).needs_order().forgets())
    }
}

/// The best row of a time so far: weight, hypothesis and pose.
type Candidate = (Option<f64>, i64, f64, f64, f64);

impl KeyedOperator for Best {
    type State = Candidate;
    type Saved = Candidate;
    type Row = (i64, f64, f64, f64, f64);

    fn on_row(
        &self,
        best: &mut Candidate,
        row: &Row<'_>,
        out: &mut Out<'_, '_, Self::Row>,
    ) -> Result<(), String> {
        let weight = row.get(self.weight).ok_or("'weight' is NULL")?;
        let hypothesis = row.get(self.hypothesis).ok_or("'hypothesis' is NULL")?;
        let [x, y, heading] = self.pose.map(|column| row.get(column).unwrap_or(f64::NAN));
        let is_better = match best.0 {
            None => true,
            Some(known) => weight > known || (weight == known && hypothesis < best.1),
        };
        if is_better {
            *best = (Some(weight), hypothesis, x, y, heading);
        }
        out.timer(row.time());
        Ok(())
    }

    fn on_time(
        &self,
        best: &mut Candidate,
        _: Time,
        out: &mut Out<'_, '_, Self::Row>,
    ) -> Result<(), String> {
        if let (Some(weight), hypothesis, x, y, heading) = *best {
            out.emit((hypothesis, x, y, heading, weight));
        }
        out.forget();
        Ok(())
    }

    fn save(&self, best: &Candidate) -> Candidate {
        *best
    }

    fn load(&self, saved: Candidate) -> Candidate {
        saved
    }
}
