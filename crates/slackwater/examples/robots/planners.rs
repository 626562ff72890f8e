//! Collision avoidance: `GATHER` makes a list of all robots at a moment, which the query sends to all
//! planners, and
//! `AVOID` plans the next velocity of one robot among them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Array, ArrayRef, Float64Array};
use arrow_schema::DataType;
use slackwater::functions::operator::{Call, Column, KeyedOperator, Operator, Out, Row, Rows};
use slackwater::functions::{Functions, Time};

use super::orca::{Limits, Neighbor, Vec2, command};

/// Adds them to the language.
pub fn add(functions: &mut Functions) {
    functions
        .operator("gather", &["keep"], Gather::plan)
        .operator("avoid", AVOID, avoid);
}

/// Numbers of a robot in a list: its number, position, velocity, and the seconds since its state was true.
const NUMBERS: usize = 6;

/// A robot that gets no command for so long stops, and so the planner supposes of a silent one.
const STOPS_AFTER_S: f64 = 0.3;

/// `GATHER(TABLE states ORDER BY ts [, keep => INTERVAL '60' SECOND])`: for each moment of which there is a
/// state, the last states of all robots in one array. A silent robot is kept for `keep`: it still stands
/// somewhere.
struct Gather {
    robot: Column<i64>,
    /// `x`, `y`, `vx`, `vy`.
    state: [Column<f64>; 4],
    keep_us: i64,
}

impl Gather {
    fn plan(call: &Call) -> Result<Operator, String> {
        let input = call.input()?;
        let keep = call.optional::<Duration>("keep")?;
        let keep = keep.unwrap_or(Duration::from_secs(60));
        let gather = Gather {
            robot: input.column("robot")?,
            state: [
                input.column("x")?,
                input.column("y")?,
                input.column("vx")?,
                input.column("vy")?,
            ],
            keep_us: keep.as_micros() as i64,
        };
        Ok(Operator::keyed(gather, &["robots"]).needs_order().forgets())
    }
}

/// The last states: position and velocity, and their time in microseconds.
type States = BTreeMap<i64, ([f64; 4], i64)>;

impl KeyedOperator for Gather {
    type State = States;
    /// Robot, state and time, one after the other. Both whole numbers are small enough for a DOUBLE.
    type Saved = Vec<f64>;
    type Row = Vec<f64>;

    fn on_row(
        &self,
        states: &mut States,
        row: &Row<'_>,
        out: &mut Out<'_, '_, Vec<f64>>,
    ) -> Result<(), String> {
        let robot = row.get(self.robot).ok_or("the robot is NULL")?;
        let (_, state) = checked(robot, self.state.map(|column| row.get(column)))?;
        states.insert(robot, (state, row.time().micros));
        out.timer(row.time());
        Ok(())
    }

    fn on_time(
        &self,
        states: &mut States,
        at: Time,
        out: &mut Out<'_, '_, Vec<f64>>,
    ) -> Result<(), String> {
        states.retain(|_, (_, time)| at.micros - *time <= self.keep_us);
        let lists = states.iter().flat_map(|(robot, ([x, y, vx, vy], time))| {
            let age_s = (at.micros - time) as f64 / 1e6;
            [*robot as f64, *x, *y, *vx, *vy, age_s]
        });
        out.emit(lists.collect());
        Ok(())
    }

    fn save(&self, states: &States) -> Vec<f64> {
        let states = states.iter();
        let states = states.flat_map(|(robot, ([x, y, vx, vy], time))| {
            [*robot as f64, *x, *y, *vx, *vy, *time as f64]
        });
        states.collect()
    }

    fn load(&self, saved: Vec<f64>) -> States {
        let states = saved.chunks_exact(NUMBERS);
        let states = states.map(|state| {
            let [robot, x, y, vx, vy, time] = state else {
                unreachable!("chunks of {NUMBERS}");
            };
            (*robot as i64, ([*x, *y, *vx, *vy], *time as i64))
        });
        states.collect()
    }
}

/// The largest number of a robot: a DOUBLE holds all up to it.
const ROBOT_MAX: i64 = 1 << 53;

/// Further away than this, in meters or meters per second, a state is not plausible.
const STATE_MAX: f64 = 1e6;

/// The state of a robot, or what is wrong with it.
fn checked<const N: usize>(robot: i64, state: [Option<f64>; N]) -> Result<(i64, [f64; N]), String> {
    if !(0..=ROBOT_MAX).contains(&robot) {
        return Err(format!(
            "robot {robot}: numbers from 0 to {ROBOT_MAX} are valid"
        ));
    }
    let names = ["x", "y", "vx", "vy", "gx", "gy"];
    let mut numbers = [0.0; N];
    for ((number, value), name) in numbers.iter_mut().zip(state).zip(names) {
        match value {
            None => return Err(format!("robot {robot}: '{name}' is NULL")),
            // NaN is not within the range.
            Some(value) if !(-STATE_MAX..=STATE_MAX).contains(&value) => {
                return Err(format!(
                    "robot {robot}: '{name}' is {value:?}: from -{STATE_MAX} to {STATE_MAX} is valid"
                ));
            }
            Some(value) => *number = value,
        }
    }
    Ok((robot, numbers))
}

/// The parameters of `AVOID`, which all have defaults.
const AVOID: &[&str] = &[
    "radius",
    "speed",
    "speed_max",
    "horizon",
    "reach",
    "right",
    "step",
];

/// How a robot is driven.
struct Planner {
    limits: Limits,
    /// The speed that it prefers.
    speed: f64,
    /// Robots that are further away are not avoided yet.
    reach: f64,
    /// By how much it turns to the right of its goal, in radians: then robots that meet in the middle of a
    /// circle drive around it, instead of pushing each other.
    right: f64,
}

/// Of the robots in reach so many are avoided, the closest first: more cost time, and the closest decide.
const NEIGHBORS_MAX: usize = 20;

/// A preferred velocity is turned fully to the right at this distance from the goal, less when it is closer.
const STRAIGHT_M: f64 = 5.0;

/// The preferred velocity is disturbed by so much, so that two robots that meet face to face don't stop.
const DISTURBED: f64 = 0.02;

/// `AVOID(TABLE t [, radius, speed, speed_max, horizon, reach, right, step])`: each row is a robot's state
/// with its goal (`robot`, `x`, `y`, `vx`, `vy`, `gx`, `gy`) and the list of `GATHER` (`robots`); `command_x`
/// and `command_y` are the velocity that it should drive from the next step on.
fn avoid(call: &Call) -> Result<Operator, String> {
    let input = call.input()?;
    let robot = input.column::<i64>("robot")?;
    let state = [
        input.column::<f64>("x")?,
        input.column("y")?,
        input.column("vx")?,
        input.column("vy")?,
        input.column("gx")?,
        input.column("gy")?,
    ];
    let robots = input.column::<Vec<f64>>("robots")?;
    let above_zero = |name: &str, default: f64| match call.optional::<f64>(name)? {
        None => Ok(default),
        Some(value) if value > 0.0 && value <= STATE_MAX => Ok(value),
        Some(value) => Err(format!("'{name}' must be above 0, and is {value}")),
    };
    let planner = Planner {
        limits: Limits {
            radius: above_zero("radius", 0.45)?,
            speed_max: above_zero("speed_max", 2.0)?,
            horizon_s: above_zero("horizon", 2.0)?,
            step_s: above_zero("step", 0.1)?,
        },
        speed: above_zero("speed", 1.5)?,
        reach: above_zero("reach", 8.0)?,
        right: call.optional::<f64>("right")?.unwrap_or(0.6),
    };
    if !(-1.5..=1.5).contains(&planner.right) {
        return Err(format!(
            "'right' is from -1.5 to 1.5 radians, and is {}",
            planner.right
        ));
    }
    let operator = Operator::rows(move |batch| {
        let robot = robot.of(batch);
        let state = state.map(|column| column.of(batch));
        let robots = robots.of(batch);
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for row in 0..batch.num_rows() {
            let number = robot.is_valid(row).then(|| robot.value(row));
            let number = number.ok_or("the robot is NULL")?;
            let state = state.map(|column| column.is_valid(row).then(|| column.value(row)));
            let (number, state) = checked(number, state)?;
            let list = robots.value(row);
            let list = list.as_any().downcast_ref::<Float64Array>();
            let list = list.ok_or("'robots' is not of GATHER")?.values();
            let found = planner.plan(number, state, list)?;
            x.push(found.x);
            y.push(found.y);
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Float64Array::from(x)),
            Arc::new(Float64Array::from(y)),
        ];
        Ok(Rows::Made { of: None, columns })
    });
    let columns = [
        ("command_x", DataType::Float64),
        ("command_y", DataType::Float64),
    ];
    Ok(operator.columns(&columns))
}

impl Planner {
    /// The velocity of a robot from the next step on. All states are moved on to its beginning, because until
    /// then all robots drive as they do.
    fn plan(&self, robot: i64, state: [f64; 6], robots: &[f64]) -> Result<Vec2, String> {
        if !robots.len().is_multiple_of(NUMBERS) {
            return Err(format!(
                "'robots' has {} numbers, not {NUMBERS} for each",
                robots.len()
            ));
        }
        let step = self.limits.step_s;
        let [x, y, vx, vy, gx, gy] = state;
        let velocity = Vec2::new(vx, vy);
        let position = Vec2::new(x, y) + velocity * step;
        let others = robots.chunks_exact(NUMBERS);
        let others = others.filter(|other| other[0] != robot as f64);
        let near = others.map(|other| self.neighbor(other));
        let near = near.map(|other| ((other.position - position).length(), other));
        let mut near = near
            .filter(|(distance, _)| *distance < self.reach)
            .collect::<Vec<(f64, Neighbor)>>();
        near.sort_by(|one, other| one.0.total_cmp(&other.0));
        near.truncate(NEIGHBORS_MAX);
        let near = near.into_iter().map(|(_, other)| other);
        let near = near.collect::<Vec<Neighbor>>();
        let preferred = self.preferred(robot, position, Vec2::new(gx, gy));
        Ok(command(position, velocity, preferred, &near, &self.limits))
    }

    /// A robot of the list at the next step. A silent one stops, and does not make way.
    fn neighbor(&self, other: &[f64]) -> Neighbor {
        let [_, x, y, vx, vy, age_s] = other else {
            unreachable!("chunks of {NUMBERS}");
        };
        let (position, velocity) = (Vec2::new(*x, *y), Vec2::new(*vx, *vy));
        let step = self.limits.step_s;
        if *age_s <= 0.0 {
            return Neighbor {
                position: position + velocity * step,
                velocity,
                share: 0.5,
            };
        }
        let drives_s = (age_s + step).min(STOPS_AFTER_S);
        let velocity_now = match *age_s + step < STOPS_AFTER_S {
            true => velocity,
            false => Vec2::default(),
        };
        Neighbor {
            position: position + velocity * drives_s,
            velocity: velocity_now,
            share: 0.0,
        }
    }

    /// The velocity without other robots: to the goal, so fast that it is reached and not passed.
    fn preferred(&self, robot: i64, position: Vec2, goal: Vec2) -> Vec2 {
        let way = goal - position;
        let distance = way.length();
        let turn = -self.right * (distance / STRAIGHT_M).min(1.0);
        let (sin, cos) = turn.sin_cos();
        let way = Vec2::new(way.x * cos - way.y * sin, way.x * sin + way.y * cos);
        let speed = self.speed.min(distance / self.limits.step_s);
        let toward = way * (speed / distance.max(1e-9));
        // The golden angle: neighbors in number are disturbed differently.
        let angle = robot as f64 * 2.399_963;
        toward + Vec2::new(angle.cos(), angle.sin()) * DISTURBED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP_S: f64 = 0.1;
    const RADIUS: f64 = 0.3;

    fn planner() -> Planner {
        Planner {
            limits: Limits {
                radius: 0.45,
                speed_max: 2.0,
                horizon_s: 2.0,
                step_s: STEP_S,
            },
            speed: 1.5,
            reach: 8.0,
            right: 0.6,
        }
    }

    /// Robots that cross a circle for `steps`. Each drives as commanded, except those that are silent from
    /// step 20 on, which get no commands. Returns how close two of them came, and how many arrived.
    fn cross(count: usize, silent: &[usize], steps: usize) -> (f64, usize) {
        let planner = planner();
        let circle = (count as f64 * 1.5 / std::f64::consts::TAU).max(6.0);
        let angle = |robot: usize| robot as f64 * std::f64::consts::TAU / count as f64;
        let mut at = (0..count)
            .map(|robot| Vec2::new(angle(robot).cos(), angle(robot).sin()) * circle)
            .collect::<Vec<Vec2>>();
        let goals = at.iter().map(|place| -*place).collect::<Vec<Vec2>>();
        let mut velocity = vec![Vec2::default(); count];
        let mut closest = f64::MAX;
        for step in 0..steps {
            let age_s = |robot: usize| match silent.contains(&robot) && step >= 20 {
                true => (step - 19) as f64 * STEP_S,
                false => 0.0,
            };
            let list = (0..count).flat_map(|robot| {
                // The list has the last state that was sent.
                let (age_s, now) = (age_s(robot), at[robot]);
                let sent = match age_s > 0.0 {
                    true => now - velocity[robot] * age_s.min(STOPS_AFTER_S),
                    false => now,
                };
                let driven = velocity[robot];
                [robot as f64, sent.x, sent.y, driven.x, driven.y, age_s]
            });
            let list = list.collect::<Vec<f64>>();
            let commands = (0..count).map(|robot| {
                let (at, now) = (at[robot], velocity[robot]);
                let goal = goals[robot];
                let state = [at.x, at.y, now.x, now.y, goal.x, goal.y];
                planner.plan(robot as i64, state, &list).unwrap()
            });
            let commands = commands.collect::<Vec<Vec2>>();
            for part in 0..5 {
                for robot in 0..count {
                    // A silent robot keeps its velocity in the list, and stops after some steps.
                    let driven_s = age_s(robot) + f64::from(part) * STEP_S / 5.0;
                    if driven_s < STOPS_AFTER_S - 1e-9 {
                        at[robot] = at[robot] + velocity[robot] * (STEP_S / 5.0);
                    }
                }
                for one in 0..count {
                    for other in 0..one {
                        closest = closest.min((at[one] - at[other]).length());
                    }
                }
            }
            for robot in 0..count {
                if age_s(robot) == 0.0 {
                    velocity[robot] = commands[robot];
                }
            }
        }
        let arrived = (0..count).filter(|&robot| (at[robot] - goals[robot]).length() < 0.5);
        (closest, arrived.count())
    }

    #[test]
    fn robots_that_cross_a_circle_do_not_touch_and_arrive() {
        for (count, steps) in [(2, 150), (3, 150), (24, 300)] {
            let (closest, arrived) = cross(count, &[], steps);
            assert!(closest > 2.0 * RADIUS, "{count}: {closest}");
            assert_eq!(arrived, count, "{count}");
        }
    }

    #[test]
    fn robots_drive_around_those_that_are_silent() {
        let (closest, arrived) = cross(12, &[0, 5], 300);
        assert!(closest > 2.0 * RADIUS, "{closest}");
        assert_eq!(arrived, 10);
    }

    #[test]
    fn a_robot_alone_drives_to_its_goal_at_its_speed() {
        let found = planner()
            .plan(0, [0.0, 0.0, 0.0, 0.0, 100.0, 0.0], &[])
            .unwrap();
        assert!((found.length() - 1.5).abs() < 2.0 * DISTURBED, "{found:?}");
        // It bears to the right, and no longer at the goal.
        assert!(found.y < 0.0 && found.x > 0.0, "{found:?}");
        let found = planner()
            .plan(0, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0], &[])
            .unwrap();
        assert!(found.length() < 2.0 * DISTURBED, "{found:?}");
    }

    #[test]
    fn two_robots_at_one_place_part() {
        let list = [0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0];
        let found = [0, 1].map(|robot| {
            planner()
                .plan(robot, [1.0, 1.0, 0.0, 0.0, 5.0, 5.0], &list)
                .unwrap()
        });
        assert!(
            found
                .iter()
                .all(|found| found.x.is_finite() && found.y.is_finite()),
            "{found:?}"
        );
        assert!(
            found.iter().all(|found| found.length() <= 2.0 + 1e-9),
            "{found:?}"
        );
    }

    #[test]
    fn a_list_that_is_not_of_gather_is_an_error() {
        let wrong = planner().plan(0, [0.0; 6], &[1.0; 7]).unwrap_err();
        assert_eq!(wrong, "'robots' has 7 numbers, not 6 for each");
    }
}
