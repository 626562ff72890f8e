//! Correlative scan matching: Olson, "Real-Time Correlative Scan Matching" (2009).
//!
//! The map is a raster: each cell says how likely a ray of the laser ends there. The pose at which the ends
//! of a scan are most likely is searched in a window around the pose that the odometry predicts. As in the
//! paper, a coarse raster, whose cells hold the maximum of a block of fine ones, bounds how good a block of
//! poses can be; so the best pose of the whole window is found, and most blocks are never looked at.

use std::f64::consts::PI;

/// Where a robot is, in meters, and where it looks, in radians.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pose {
    pub x: f64,
    pub y: f64,
    pub heading: f64,
}

impl Pose {
    /// The pose that lies at `step` as seen from this one.
    pub fn then(self, step: Pose) -> Pose {
        let (sin, cos) = self.heading.sin_cos();
        Pose {
            x: self.x + step.x * cos - step.y * sin,
            y: self.y + step.x * sin + step.y * cos,
            heading: wrapped(self.heading + step.heading),
        }
    }

    /// This pose as seen from `other`.
    pub fn seen_from(self, other: Pose) -> Pose {
        let (sin, cos) = other.heading.sin_cos();
        let (x, y) = (self.x - other.x, self.y - other.y);
        Pose {
            x: x * cos + y * sin,
            y: y * cos - x * sin,
            heading: wrapped(self.heading - other.heading),
        }
    }
}

/// The angle from -π to π.
fn wrapped(angle: f64) -> f64 {
    (angle + PI).rem_euclid(2.0 * PI) - PI
}

/// Meters of a fine cell.
pub const CELL_M: f64 = 0.05;
/// Fine cells of a block, along each side.
const BLOCK: usize = 8;
/// How exactly the laser and the map agree: the deviation of a likelihood, in cells.
const BLUR: f64 = 1.5;
/// Cells around the end of a ray that its likelihood reaches.
const REACH: i32 = 4;
/// The likelihood of a wall itself.
const CERTAIN: u8 = 255;

/// The map that a robot has made, with the origin in its middle.
#[derive(Debug, Clone)]
pub struct Map {
    /// Fine cells along each side, a multiple of `BLOCK`.
    side: usize,
    fine: Vec<u8>,
    coarse: Vec<u8>,
    /// The ends of rays: one for each cell, as it was seen first. The rasters follow from them.
    points: Vec<[f64; 2]>,
}

impl Map {
    /// An empty map of `extent_m` in both directions.
    pub fn new(extent_m: f64) -> Map {
        let blocks = (extent_m / CELL_M / BLOCK as f64).ceil() as usize;
        let side = blocks * BLOCK;
        Map {
            side,
            fine: vec![0; side * side],
            coarse: vec![0; blocks * blocks],
            points: Vec::new(),
        }
    }

    pub fn points(&self) -> &[[f64; 2]] {
        &self.points
    }

    /// Adds the end of a ray; false if it lies outside of the map.
    pub fn add(&mut self, point: [f64; 2]) -> bool {
        let middle = point.map(|value| self.cell(value));
        let [x, y] = middle;
        let Some(at) = self.index(x, y) else {
            return false;
        };
        if self.fine[at] == CERTAIN {
            return true;
        }
        self.points.push(point);
        for dy in -REACH..=REACH {
            for dx in -REACH..=REACH {
                let distance2 = f64::from(dx * dx + dy * dy);
                let likelihood = (-distance2 / (2.0 * BLUR * BLUR)).exp() * f64::from(CERTAIN);
                let Some(at) = self.index(x + dx, y + dy) else {
                    continue;
                };
                self.fine[at] = self.fine[at].max(likelihood as u8);
                let block = self.block(x + dx, y + dy);
                self.coarse[block] = self.coarse[block].max(self.fine[at]);
            }
        }
        true
    }

    fn cell(&self, value: f64) -> i32 {
        (value / CELL_M).floor() as i32 + self.side as i32 / 2
    }

    fn index(&self, x: i32, y: i32) -> Option<usize> {
        let is_inside = |value: i32| value >= 0 && (value as usize) < self.side;
        (is_inside(x) && is_inside(y)).then(|| y as usize * self.side + x as usize)
    }

    fn block(&self, x: i32, y: i32) -> usize {
        y as usize / BLOCK * (self.side / BLOCK) + x as usize / BLOCK
    }

    /// The sum of the likelihoods of the cells, moved by `(dx, dy)` cells.
    fn likelihood(&self, cells: &[[i32; 2]], dx: i32, dy: i32) -> u32 {
        let found = cells.iter().filter_map(|[x, y]| self.index(x + dx, y + dy));
        found.map(|at| u32::from(self.fine[at])).sum()
    }

    /// What [`Map::likelihood`] does not exceed for any move by `dx..dx + BLOCK` and `dy..dy + BLOCK` cells:
    /// each move ends in one of four blocks.
    fn bound(&self, cells: &[[i32; 2]], dx: i32, dy: i32) -> u32 {
        let last = BLOCK as i32 - 1;
        let most = cells.iter().map(|[x, y]| {
            let corners = [(0, 0), (last, 0), (0, last), (last, last)];
            let blocks = corners.iter().map(|(right, up)| {
                let (x, y) = (x + dx + right, y + dy + up);
                let inside = self.index(x, y).map(|_| self.coarse[self.block(x, y)]);
                inside.unwrap_or(0)
            });
            u32::from(blocks.max().unwrap_or(0))
        });
        most.sum()
    }
}

/// How far around the predicted pose is searched.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Meters to each side.
    pub reach_m: f64,
    /// Radians to each side, and of a step.
    pub turn: f64,
    pub turn_step: f64,
}

/// The pose in the window at which the ends of the rays, as seen from the robot, are most likely, and their
/// mean likelihood, from 0 to 1.
pub fn best_pose(map: &Map, ends: &[[f64; 2]], predicted: Pose, window: &Window) -> (Pose, f64) {
    let turns = (window.turn / window.turn_step).round() as i32;
    let blocks = (window.reach_m / CELL_M / BLOCK as f64).ceil() as i32;
    let rotated = (-turns..=turns).map(|turn| {
        let heading = predicted.heading + f64::from(turn) * window.turn_step;
        let pose = Pose {
            heading,
            ..predicted
        };
        let cells = ends
            .iter()
            .map(|end| point(pose, *end).map(|value| map.cell(value)));
        (turn, cells.collect::<Vec<[i32; 2]>>())
    });
    let rotated = rotated.collect::<Vec<(i32, Vec<[i32; 2]>)>>();
    let mut bounds = Vec::new();
    for (at, (_, cells)) in rotated.iter().enumerate() {
        for block_y in -blocks..blocks {
            for block_x in -blocks..blocks {
                let (dx, dy) = (block_x * BLOCK as i32, block_y * BLOCK as i32);
                bounds.push((map.bound(cells, dx, dy), at, dx, dy));
            }
        }
    }
    // The most promising blocks first; of equal ones always the same order, so that runs agree.
    bounds.sort_by(|one, other| other.cmp(one));
    let middle = rotated.len() / 2;
    let mut best = (map.likelihood(&rotated[middle].1, 0, 0), middle, 0, 0);
    for (bound, at, first_x, first_y) in bounds {
        if bound <= best.0 {
            break;
        }
        for dy in first_y..first_y + BLOCK as i32 {
            for dx in first_x..first_x + BLOCK as i32 {
                let likelihood = map.likelihood(&rotated[at].1, dx, dy);
                if likelihood > best.0 {
                    best = (likelihood, at, dx, dy);
                }
            }
        }
    }
    let (likelihood, at, dx, dy) = best;
    let at_turn = |at: usize| map.likelihood(&rotated[at].1, dx, dy);
    let here = [likelihood; 3];
    let turn = match at > 0 && at + 1 < rotated.len() {
        true => peak([at_turn(at - 1), likelihood, at_turn(at + 1)]),
        false => peak(here),
    };
    let cells = &rotated[at].1;
    let moved = |x: i32, y: i32| map.likelihood(cells, dx + x, dy + y);
    let x = f64::from(dx) + peak([moved(-1, 0), likelihood, moved(1, 0)]);
    let y = f64::from(dy) + peak([moved(0, -1), likelihood, moved(0, 1)]);
    let pose = Pose {
        x: predicted.x + x * CELL_M,
        y: predicted.y + y * CELL_M,
        heading: wrapped(predicted.heading + (f64::from(rotated[at].0) + turn) * window.turn_step),
    };
    let most = (ends.len().max(1) as u32 * u32::from(CERTAIN)).max(1);
    (pose, f64::from(likelihood) / f64::from(most))
}

/// Where the top of the parabola through three values lies, from -0.5 to 0.5: between the cells.
fn peak([before, here, after]: [u32; 3]) -> f64 {
    let [before, here, after] = [before, here, after].map(f64::from);
    let bend = before - 2.0 * here + after;
    match bend < 0.0 {
        true => (0.5 * (before - after) / bend).clamp(-0.5, 0.5),
        false => 0.0,
    }
}

/// Where a point that a robot sees lies in the map.
pub fn point(pose: Pose, seen: [f64; 2]) -> [f64; 2] {
    let (sin, cos) = pose.heading.sin_cos();
    let [x, y] = seen;
    [pose.x + x * cos - y * sin, pose.y + x * sin + y * cos]
}
