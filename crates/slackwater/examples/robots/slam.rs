//! What a scan matcher knows of a robot: its pose, the map that it has made of the scans so far, and the
//! odometry at the last scan. A robot is followed by several hypotheses, each with a map of its own.

use super::correlate::{Map, Pose, Window, best_pose, point};

/// What all scan matchers have in common.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The side of the map.
    pub extent_m: f64,
    /// Rays that reach further than this have hit nothing.
    pub range_m: f64,
    pub window: Window,
    /// How much the odometry's steps differ among hypotheses: the deviation, as a part of the step.
    pub spread: f64,
}

/// A scan is added to the map when the robot has moved or turned so far since the last one that was.
const KEYFRAME_M: f64 = 0.2;
const KEYFRAME_TURN: f64 = 0.15;
/// What of the weight is left with each scan.
const MEMORY: f64 = 0.9;

/// A hypothesis about a robot.
#[derive(Debug, Clone, Default)]
pub struct Hypothesis {
    map: Option<Map>,
    pub pose: Pose,
    /// The pose at which a scan was added to the map last.
    keyframe: Pose,
    odometry: Pose,
    /// How well its scans fit, the last ones most.
    pub weight: f64,
}

impl Hypothesis {
    /// Processes a scan with `ranges` around the robot, from straight ahead to the left. `noise` are two
    /// numbers that differ among hypotheses. Returns how well the scan fits, from 0 to 1.
    ///
    /// # Errors
    ///
    /// Why the scan or the odometry can't be used; then nothing has changed.
    pub fn scan(
        &mut self,
        ranges: &[f64],
        odometry: Pose,
        noise: [f64; 2],
        settings: &Settings,
    ) -> Result<f64, String> {
        if [odometry.x, odometry.y, odometry.heading]
            .iter()
            .any(|value| !value.is_finite())
        {
            return Err("the odometry is not finite".to_string());
        }
        let ends = ends(ranges, settings.range_m)?;
        if self.map.is_none() {
            // The map begins where the robot is, as the odometry says.
            self.pose = odometry;
            self.odometry = odometry;
        }
        let mut step = odometry.seen_from(self.odometry);
        let length = step.x.hypot(step.y);
        step.x += noise[0] * settings.spread * length;
        step.heading += noise[1] * settings.spread * (step.heading.abs() + length * 0.1);
        let predicted = self.pose.then(step);
        let half_m = settings.extent_m / 2.0;
        if predicted.x.abs().max(predicted.y.abs()) > half_m {
            return Err(format!(
                "the robot is {:.1} m, {:.1} m from the middle of a map of {} m: use a larger 'extent'",
                predicted.x, predicted.y, settings.extent_m
            ));
        }
        let is_first = self.map.is_none();
        let map = self.map.get_or_insert_with(|| Map::new(settings.extent_m));
        let (pose, fit) = match is_first {
            true => (predicted, 1.0),
            false => best_pose(map, &ends, predicted, &settings.window),
        };
        let moved = pose.seen_from(self.keyframe);
        if is_first || moved.x.hypot(moved.y) > KEYFRAME_M || moved.heading.abs() > KEYFRAME_TURN {
            for end in &ends {
                // What lies outside of the map is not needed as long as the robot is inside.
                map.add(point(pose, *end));
            }
            self.keyframe = pose;
        }
        self.pose = pose;
        self.odometry = odometry;
        self.weight = self.weight * MEMORY + fit * (1.0 - MEMORY);
        Ok(fit)
    }

    /// The number of points in the map.
    pub fn points(&self) -> usize {
        self.map.as_ref().map_or(0, |map| map.points().len())
    }

    /// All of it: the numbers first, then the points of the map.
    pub fn saved(&self) -> Vec<f64> {
        let Some(map) = &self.map else {
            return Vec::new();
        };
        let mut saved = Vec::with_capacity(FIXED + 2 * map.points().len());
        for pose in [self.pose, self.keyframe, self.odometry] {
            saved.extend([pose.x, pose.y, pose.heading]);
        }
        saved.push(self.weight);
        saved.extend(map.points().iter().flatten());
        saved
    }

    /// What was saved. The map's rasters are made again from its points, in their order, so they are the
    /// same.
    pub fn loaded(saved: &[f64], settings: &Settings) -> Hypothesis {
        if saved.len() < FIXED {
            return Hypothesis::default();
        }
        let (fixed, points) = saved.split_at(FIXED);
        let pose = |at: usize| Pose {
            x: fixed[at],
            y: fixed[at + 1],
            heading: fixed[at + 2],
        };
        let mut map = Map::new(settings.extent_m);
        for pair in points.chunks_exact(2) {
            map.add([pair[0], pair[1]]);
        }
        Hypothesis {
            map: Some(map),
            pose: pose(0),
            keyframe: pose(3),
            odometry: pose(6),
            weight: fixed[9],
        }
    }
}

/// The numbers before the points.
const FIXED: usize = 10;

/// The ends of the rays that have hit something, as seen from the robot.
fn ends(ranges: &[f64], range_m: f64) -> Result<Vec<[f64; 2]>, String> {
    if ranges.is_empty() {
        return Err("the scan has no ranges".to_string());
    }
    if let Some(ray) = ranges
        .iter()
        .position(|range| !range.is_finite() || *range < 0.0)
    {
        return Err(format!(
            "range {ray} of the scan is {}: at least 0 is needed",
            ranges[ray]
        ));
    }
    let per_ray = std::f64::consts::TAU / ranges.len() as f64;
    let rays = ranges.iter().enumerate();
    let hits = rays.filter(|(_, range)| **range < range_m);
    Ok(hits
        .map(|(ray, range)| {
            let (sin, cos) = (ray as f64 * per_ray).sin_cos();
            [range * cos, range * sin]
        })
        .collect())
}

/// Two numbers with deviation 1 for a scan and a hypothesis: the same in each run. The first hypothesis takes
/// the odometry as it is.
pub fn noise(seed: u64, robot: i64, micros: i64, hypothesis: i64) -> [f64; 2] {
    if hypothesis == 0 {
        return [0.0; 2];
    }
    let mut state = seed;
    for part in [robot, micros, hypothesis] {
        state = mixed(state ^ part as u64);
    }
    [0, 1].map(|_| {
        // The sum of twelve uniform numbers, less its mean, is nearly normal.
        let sum = (0..12).map(|_| {
            state = mixed(state);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        });
        sum.sum::<f64>() - 6.0
    })
}

/// SplitMix64 (Steele, Lea, Flood 2014).
fn mixed(state: u64) -> u64 {
    let mut mixed = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings {
        extent_m: 20.0,
        range_m: 12.0,
        window: Window {
            reach_m: 0.4,
            turn: 0.16,
            turn_step: 0.01,
        },
        spread: 0.0,
    };

    /// What a laser sees at a pose in a room of 8 by 6 meters with a pillar, exactly.
    fn seen(pose: Pose) -> Vec<f64> {
        let walls = [(-4.0, -3.0, 8.0, 6.0), (1.0, 0.5, 0.8, 0.8)];
        let rays = (0..72).map(|ray| {
            let (sin, cos) =
                (pose.heading + f64::from(ray) * std::f64::consts::TAU / 72.0).sin_cos();
            let mut range = f64::MAX;
            for (x, y, wide, high) in walls {
                for (at, along, to, from, size) in [
                    ((x - pose.x) / cos, sin, pose.y, y, high),
                    ((x + wide - pose.x) / cos, sin, pose.y, y, high),
                    ((y - pose.y) / sin, cos, pose.x, x, wide),
                    ((y + high - pose.y) / sin, cos, pose.x, x, wide),
                ] {
                    let place = to + at * along;
                    if at > 0.0 && place >= from && place <= from + size {
                        range = range.min(at);
                    }
                }
            }
            range
        });
        rays.collect()
    }

    /// A drive with an odometer that tells too much: the errors of matching and of the odometer at the end.
    fn drive(settings: &Settings, middle: impl Fn(Hypothesis) -> Hypothesis) -> (f64, f64) {
        let mut known = Hypothesis::default();
        let mut truth = Pose {
            x: -2.0,
            y: -1.0,
            heading: 0.2,
        };
        let mut odometry = truth;
        for step in 0..60 {
            if step == 30 {
                known = middle(known);
            }
            truth = truth.then(Pose {
                x: 0.08,
                y: 0.0,
                heading: 0.03,
            });
            odometry = odometry.then(Pose {
                x: 0.084,
                y: 0.0,
                heading: 0.034,
            });
            known
                .scan(&seen(truth), odometry, [0.0; 2], settings)
                .unwrap();
        }
        let error = |pose: Pose| (pose.x - truth.x).hypot(pose.y - truth.y);
        (error(known.pose), error(odometry))
    }

    #[test]
    fn scan_matching_corrects_the_odometry() {
        let (error, other) = drive(&SETTINGS, |known| known);
        assert!(other > 0.3, "the odometry is wrong: {other}");
        assert!(error < other / 5.0, "{error} and {other}");
    }

    #[test]
    fn what_was_saved_goes_on_as_if_nothing_had_happened() {
        let whole = drive(&SETTINGS, |known| known);
        let restored = drive(&SETTINGS, |known| {
            let saved = known.saved();
            let loaded = Hypothesis::loaded(&saved, &SETTINGS);
            assert_eq!(loaded.saved(), saved);
            loaded
        });
        assert_eq!(whole, restored);
        let nothing = Hypothesis::loaded(&Hypothesis::default().saved(), &SETTINGS);
        assert!(nothing.saved().is_empty());
    }

    #[test]
    fn a_scan_that_cannot_be_used_changes_nothing() {
        let mut known = Hypothesis::default();
        let pose = Pose {
            x: 1.0,
            y: -1.0,
            heading: 0.0,
        };
        known.scan(&seen(pose), pose, [0.0; 2], &SETTINGS).unwrap();
        let before = known.saved();
        let mut refused = |ranges: &[f64], odometry: Pose| {
            known
                .scan(ranges, odometry, [0.0; 2], &SETTINGS)
                .unwrap_err()
        };
        assert_eq!(refused(&[], pose), "the scan has no ranges");
        assert_eq!(
            refused(&[1.0, f64::NAN], pose),
            "range 1 of the scan is NaN: at least 0 is needed"
        );
        assert_eq!(
            refused(&[-1.0], pose),
            "range 0 of the scan is -1: at least 0 is needed"
        );
        let nowhere = Pose {
            x: f64::NAN,
            ..pose
        };
        assert_eq!(refused(&[1.0], nowhere), "the odometry is not finite");
        let outside = Pose { x: 50.0, ..pose };
        assert!(refused(&[1.0], outside).contains("use a larger 'extent'"));
        assert_eq!(known.saved(), before);
        // A scan in which no ray hits anything is one: the odometry holds.
        let fit = known.scan(&[99.0; 72], pose, [0.0; 2], &SETTINGS).unwrap();
        assert_eq!((fit, known.pose), (0.0, pose));
    }

    #[test]
    fn noise_is_the_same_in_each_run_and_has_deviation_one() {
        assert_eq!(noise(1, 2, 3, 0), [0.0; 2]);
        assert_eq!(noise(1, 2, 3, 4), noise(1, 2, 3, 4));
        assert_ne!(noise(1, 2, 3, 4), noise(1, 2, 3, 5));
        let all = (0..2000)
            .flat_map(|time| noise(7, 1, time, 3))
            .collect::<Vec<f64>>();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let square = all.iter().map(|value| value * value).sum::<f64>() / all.len() as f64;
        assert!(
            mean.abs() < 0.1 && (square - 1.0).abs() < 0.1,
            "{mean} {square}"
        );
    }
}
