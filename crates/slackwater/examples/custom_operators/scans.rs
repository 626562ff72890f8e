//! A scan matcher: it turns each scan of a robot until it fits the scan before, beginning at the turn that
//! the odometry tells, and follows the robot's heading by that.

use slackwater::functions::Functions;
use slackwater::functions::Time;
use slackwater::functions::operator::{Call, Column, KeyedOperator, Operator, Out, Row};

/// Adds it to the language.
pub fn add(functions: &mut Functions) {
    functions.operator("match_scans", &["search"], MatchScans::plan);
}

/// `MATCH_SCANS(TABLE scans PARTITION BY robot ORDER BY ts, TABLE odometry PARTITION BY robot ORDER BY ts
/// [, search])`: for each scan the robot's heading in degrees, how many degrees the odometry was wrong, and
/// how badly the scans fit. A scan is an array of ranges around the robot, an odometry row a turn in
/// degrees since the one before.
struct MatchScans {
    ranges: Column<Vec<f64>>,
    turn: Column<f64>,
    /// How many degrees around the odometry's turn are tried.
    search: f64,
}

/// What is known of a robot.
#[derive(Default)]
struct Robot {
    scan: Vec<f64>,
    heading: f64,
    /// The degrees that it turned since the last scan, as the odometry tells.
    turned: f64,
}

impl MatchScans {
    fn plan(call: &Call) -> Result<Operator, String> {
        let [scans, odometry] = call.inputs_of()?;
        let operator = MatchScans {
            ranges: scans.column("ranges")?,
            turn: odometry.column("turn")?,
            search: call.optional("search")?.unwrap_or(20.0),
        };
        Ok(Operator::keyed(operator, &["heading", "drift", "misfit"]).needs_order())
    }

    /// The shift of the scan, in rays, at which it fits the scan before best, and the mean square difference.
    fn fit(&self, before: &[f64], scan: &[f64], turned: f64) -> (i64, f64) {
        let rays = scan.len() as i64;
        let per_ray = 360.0 / rays as f64;
        let (from, to) = (turned - self.search, turned + self.search);
        let (from, to) = (
            (from / per_ray).ceil() as i64,
            (to / per_ray).floor() as i64,
        );
        let shifts = (from..=to.max(from)).map(|shift| {
            let misfit = (0..rays).map(|ray| {
                let other = (ray + shift).rem_euclid(rays) as usize;
                (scan[ray as usize] - before[other]).powi(2)
            });
            (shift, misfit.sum::<f64>() / rays as f64)
        });
        let best = shifts.min_by(|one, other| one.1.total_cmp(&other.1));
        best.unwrap_or((0, 0.0))
    }
}

impl KeyedOperator for MatchScans {
    type State = Robot;
    type Saved = (Vec<f64>, f64, f64);
    type Row = (f64, f64, f64);

    fn on_row(
        &self,
        robot: &mut Robot,
        row: &Row<'_>,
        out: &mut Out<'_, '_, Self::Row>,
    ) -> Result<(), String> {
        if row.input() == 1 {
            robot.turned += row.get(self.turn).unwrap_or(0.0);
            return Ok(());
        }
        let Some(scan) = row.get(self.ranges) else {
            return Ok(());
        };
        if scan.is_empty() || (!robot.scan.is_empty() && robot.scan.len() != scan.len()) {
            return Err(format!("a scan of {} ranges", scan.len()));
        }
        let (turn, misfit) = match robot.scan.is_empty() {
            true => (robot.turned, 0.0),
            false => {
                let (shift, misfit) = self.fit(&robot.scan, &scan, robot.turned);
                (shift as f64 * 360.0 / scan.len() as f64, misfit)
            }
        };
        let drift = robot.turned - turn;
        robot.heading = (robot.heading + turn).rem_euclid(360.0);
        robot.turned = 0.0;
        robot.scan = scan;
        out.emit((robot.heading, drift, misfit));
        Ok(())
    }

    fn on_time(
        &self,
        _: &mut Robot,
        _: Time,
        _: &mut Out<'_, '_, Self::Row>,
    ) -> Result<(), String> {
        Ok(())
    }

    fn save(&self, robot: &Robot) -> Self::Saved {
        (robot.scan.clone(), robot.heading, robot.turned)
    }

    fn load(&self, (scan, heading, turned): Self::Saved) -> Robot {
        Robot {
            scan,
            heading,
            turned,
        }
    }
}
