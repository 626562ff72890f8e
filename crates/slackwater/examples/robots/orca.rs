//! Optimal reciprocal collision avoidance (ORCA): van den Berg, Guy, Lin, Manocha, "Reciprocal n-Body
//! Collision Avoidance" (2011).
//!
//! Each neighbor forbids a half-plane of velocities: with those beyond its line, the two robots don't touch
//! within
//! `horizon_s`, if each of them takes its share of the change. The new velocity is the allowed one that is
//! closest to the preferred one: a linear program in two dimensions. Where robots are so dense that no
//! velocity is allowed, it is the one that lies least far in forbidden half-planes.

use std::ops::{Add, Mul, Neg, Sub};

/// A point or a velocity, in meters or meters per second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Vec2 {
    pub x: f64,
    pub y: f64,
}

impl Vec2 {
    pub fn new(x: f64, y: f64) -> Vec2 {
        Vec2 { x, y }
    }

    pub fn dot(self, other: Vec2) -> f64 {
        self.x * other.x + self.y * other.y
    }

    /// The determinant of the two as columns: above zero if `other` is to the left of this.
    fn det(self, other: Vec2) -> f64 {
        self.x * other.y - self.y * other.x
    }

    pub fn length(self) -> f64 {
        self.dot(self).sqrt()
    }

    /// The vector of length 1; that to the right if this has no length.
    fn unit(self) -> Vec2 {
        match self.length() {
            length if length > 0.0 => self * (1.0 / length),
            _ => Vec2::new(1.0, 0.0),
        }
    }
}

impl Add for Vec2 {
    type Output = Vec2;

    fn add(self, other: Vec2) -> Vec2 {
        Vec2::new(self.x + other.x, self.y + other.y)
    }
}

impl Sub for Vec2 {
    type Output = Vec2;

    fn sub(self, other: Vec2) -> Vec2 {
        Vec2::new(self.x - other.x, self.y - other.y)
    }
}

impl Mul<f64> for Vec2 {
    type Output = Vec2;

    fn mul(self, factor: f64) -> Vec2 {
        Vec2::new(self.x * factor, self.y * factor)
    }
}

impl Neg for Vec2 {
    type Output = Vec2;

    fn neg(self) -> Vec2 {
        self * -1.0
    }
}

/// A robot that another one avoids.
#[derive(Debug, Clone, Copy)]
pub struct Neighbor {
    pub position: Vec2,
    pub velocity: Vec2,
    /// The part of the change that this robot leaves to the neighbor: a half, and nothing if the neighbor
    /// does not get commands.
    pub share: f64,
}

/// What all robots have in common.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The radius of a robot, with the distance that it keeps.
    pub radius: f64,
    pub speed_max: f64,
    /// How far ahead collisions are avoided.
    pub horizon_s: f64,
    /// How long a command holds.
    pub step_s: f64,
}

/// A line; the velocities to its left are allowed.
#[derive(Debug, Clone, Copy)]
struct Line {
    point: Vec2,
    /// Of length 1.
    direction: Vec2,
}

/// Lines that are closer to parallel than this have no intersection.
const PARALLEL: f64 = 1e-9;

/// The new velocity of a robot at `position` with `velocity`, that prefers `preferred`.
pub fn command(
    position: Vec2,
    velocity: Vec2,
    preferred: Vec2,
    neighbors: &[Neighbor],
    limits: &Limits,
) -> Vec2 {
    let lines = neighbors.iter();
    let lines = lines.map(|neighbor| line_of(position, velocity, neighbor, limits));
    let lines = lines.collect::<Vec<Line>>();
    match closest(&lines, limits.speed_max, preferred, false) {
        Ok(found) => found,
        Err((failed, found)) => least_forbidden(&lines, failed, limits.speed_max, found),
    }
}

/// The half-plane of one neighbor: section 4 of the paper.
fn line_of(position: Vec2, velocity: Vec2, neighbor: &Neighbor, limits: &Limits) -> Line {
    let apart = neighbor.position - position;
    let relative = velocity - neighbor.velocity;
    let radius = 2.0 * limits.radius;
    let (direction, change) = if apart.dot(apart) > radius * radius {
        // The velocities that collide form a cone, cut off by a circle of radius / horizon.
        let from_circle = relative - apart * (1.0 / limits.horizon_s);
        let along = from_circle.dot(apart);
        if along < 0.0 && along * along > radius * radius * from_circle.dot(from_circle) {
            onto_circle(from_circle, radius / limits.horizon_s)
        } else {
            let distance2 = apart.dot(apart);
            let leg = (distance2 - radius * radius).sqrt();
            let direction = if apart.det(from_circle) > 0.0 {
                Vec2::new(
                    apart.x * leg - apart.y * radius,
                    apart.x * radius + apart.y * leg,
                )
            } else {
                -Vec2::new(
                    apart.x * leg + apart.y * radius,
                    apart.y * leg - apart.x * radius,
                )
            };
            let direction = direction * (1.0 / distance2);
            (direction, direction * relative.dot(direction) - relative)
        }
    } else {
        // The two are too close already: they part within one step.
        onto_circle(
            relative - apart * (1.0 / limits.step_s),
            radius / limits.step_s,
        )
    };
    Line {
        point: velocity + change * (1.0 - neighbor.share),
        direction,
    }
}

/// The tangent of a circle of velocities, and the change that leads onto it.
fn onto_circle(from_circle: Vec2, radius: f64) -> (Vec2, Vec2) {
    let unit = from_circle.unit();
    let change = unit * (radius - from_circle.length());
    (Vec2::new(unit.y, -unit.x), change)
}

/// The best allowed velocity on line `at`: `None` if the lines before it leave none.
fn on_line(
    lines: &[Line],
    at: usize,
    radius: f64,
    preferred: Vec2,
    is_direction: bool,
) -> Option<Vec2> {
    let line = lines[at];
    let along = line.point.dot(line.direction);
    let discriminant = along * along + radius * radius - line.point.dot(line.point);
    if discriminant < 0.0 {
        return None;
    }
    let root = discriminant.sqrt();
    let (mut from, mut to) = (-along - root, -along + root);
    for other in &lines[..at] {
        let denominator = line.direction.det(other.direction);
        let numerator = other.direction.det(line.point - other.point);
        if denominator.abs() <= PARALLEL {
            if numerator < 0.0 {
                return None;
            }
            continue;
        }
        let place = numerator / denominator;
        match denominator >= 0.0 {
            true => to = to.min(place),
            false => from = from.max(place),
        }
        if from > to {
            return None;
        }
    }
    let place = match is_direction {
        true if preferred.dot(line.direction) > 0.0 => to,
        true => from,
        false => line.direction.dot(preferred - line.point).clamp(from, to),
    };
    Some(line.point + line.direction * place)
}

/// The allowed velocity that is closest to `preferred`, or furthest in that direction; else the first line
/// that leaves none, and the velocity so far.
fn closest(
    lines: &[Line],
    radius: f64,
    preferred: Vec2,
    is_direction: bool,
) -> Result<Vec2, (usize, Vec2)> {
    let mut found = match is_direction {
        true => preferred * radius,
        false if preferred.length() > radius => preferred.unit() * radius,
        false => preferred,
    };
    for (at, line) in lines.iter().enumerate() {
        if line.direction.det(line.point - found) > 0.0 {
            match on_line(lines, at, radius, preferred, is_direction) {
                Some(better) => found = better,
                None => return Err((at, found)),
            }
        }
    }
    Ok(found)
}

/// The velocity that lies least far in the half-planes from line `first` on.
fn least_forbidden(lines: &[Line], first: usize, radius: f64, mut found: Vec2) -> Vec2 {
    let mut distance = 0.0;
    for (at, line) in lines.iter().enumerate().skip(first) {
        if line.direction.det(line.point - found) <= distance {
            continue;
        }
        // The lines on which a velocity is equally far in the half-plane of this and of an earlier line.
        let mut between = Vec::with_capacity(at);
        for other in &lines[..at] {
            let determinant = line.direction.det(other.direction);
            let point = if determinant.abs() <= PARALLEL {
                if line.direction.dot(other.direction) > 0.0 {
                    continue;
                }
                (line.point + other.point) * 0.5
            } else {
                let along = other.direction.det(line.point - other.point) / determinant;
                line.point + line.direction * along
            };
            let direction = (other.direction - line.direction).unit();
            between.push(Line { point, direction });
        }
        let away = Vec2::new(-line.direction.y, line.direction.x);
        // By construction there is one; only rounding can say otherwise, and then the last one stays.
        if let Ok(better) = closest(&between, radius, away, true) {
            found = better;
        }
        distance = line.direction.det(line.point - found);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        radius: 0.5,
        speed_max: 2.0,
        horizon_s: 2.0,
        step_s: 0.1,
    };

    fn at(x: f64, y: f64) -> Vec2 {
        Vec2::new(x, y)
    }

    #[test]
    fn without_neighbors_the_preferred_velocity_is_kept_within_the_limit() {
        let found = command(at(0.0, 0.0), at(0.0, 0.0), at(1.0, 1.0), &[], &LIMITS);
        assert_eq!(found, at(1.0, 1.0));
        let found = command(at(0.0, 0.0), at(0.0, 0.0), at(30.0, 40.0), &[], &LIMITS);
        assert!((found - at(1.2, 1.6)).length() < 1e-12, "{found:?}");
    }

    #[test]
    fn each_takes_half_of_the_change_and_one_alone_takes_all() {
        // Toward each other, a little apart sideways: the change is sideways.
        let neighbor = |share: f64| Neighbor {
            position: at(4.0, 0.2),
            velocity: at(-1.0, 0.0),
            share,
        };
        let half = command(
            at(0.0, 0.0),
            at(1.0, 0.0),
            at(1.0, 0.0),
            &[neighbor(0.5)],
            &LIMITS,
        );
        let all = command(
            at(0.0, 0.0),
            at(1.0, 0.0),
            at(1.0, 0.0),
            &[neighbor(0.0)],
            &LIMITS,
        );
        let (half, all) = (half - at(1.0, 0.0), all - at(1.0, 0.0));
        assert!(half.length() > 0.05, "{half:?}");
        assert!((half * 2.0 - all).length() < 1e-9, "{half:?} {all:?}");
        // With all of the change they pass without touching: the closest distance of the two ways.
        let relative = all + at(1.0, 0.0) - at(-1.0, 0.0);
        let apart = at(4.0, 0.2);
        let time = apart.dot(relative) / relative.dot(relative);
        let closest = (apart - relative * time).length();
        assert!(closest >= 1.0 - 1e-9, "{closest}");
    }

    #[test]
    fn the_velocity_is_the_closest_of_all_that_are_allowed() {
        // Compared with a search over a grid of velocities.
        let neighbors = [
            (2.0, 0.5, -1.0, 0.0),
            (0.5, -2.0, 0.0, 1.0),
            (-3.0, 1.0, 1.5, -0.5),
        ];
        let neighbors = neighbors.map(|(x, y, vx, vy)| Neighbor {
            position: at(x, y),
            velocity: at(vx, vy),
            share: 0.5,
        });
        let (velocity, preferred) = (at(0.5, -0.3), at(1.4, -0.2));
        let found = command(at(0.0, 0.0), velocity, preferred, &neighbors, &LIMITS);
        let lines = neighbors.map(|other| line_of(at(0.0, 0.0), velocity, &other, &LIMITS));
        let is_allowed = |tried: Vec2| {
            let inside = lines
                .iter()
                .all(|line| line.direction.det(tried - line.point) >= -1e-9);
            inside && tried.length() <= LIMITS.speed_max + 1e-9
        };
        assert!(is_allowed(found), "{found:?}");
        assert!(!is_allowed(preferred));
        let grid = (-200..=200).flat_map(|x| (-200..=200).map(move |y| (x, y)));
        let grid = grid.map(|(x, y)| at(f64::from(x) * 0.01, f64::from(y) * 0.01));
        let best = grid
            .filter(|tried| is_allowed(*tried))
            .map(|tried| (tried - preferred).length())
            .fold(f64::MAX, f64::min);
        let own = (found - preferred).length();
        assert!(own <= best + 1e-9 && own > best - 0.02, "{own} and {best}");
    }

    #[test]
    fn where_nothing_is_allowed_the_velocity_is_finite_and_within_the_limit() {
        // Surrounded, and touched by all.
        let neighbors = (0..12).map(|number| {
            let angle = f64::from(number) * 0.52;
            let position = at(angle.cos(), angle.sin()) * 0.7;
            Neighbor {
                position,
                velocity: -position,
                share: 0.5,
            }
        });
        let neighbors = neighbors.collect::<Vec<Neighbor>>();
        let found = command(
            at(0.0, 0.0),
            at(0.0, 0.0),
            at(1.0, 0.0),
            &neighbors,
            &LIMITS,
        );
        assert!(found.length() <= 2.0 + 1e-9, "{found:?}");
    }
}
