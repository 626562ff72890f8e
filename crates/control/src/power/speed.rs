//! How slow the core of a replica may be.
//!
//! The lowest frequency f at which the busy share stays below ρ, with the costs of `costs`:
//!
//! ```text
//! idle(f) + bytes · c_r(f) + reads · c_read(f) <= ρ
//! ```
//!
//! By [`Policy::Saturation`] the bytes are those of a saturated master, 1 / c_m. Where a byte is all cycles,
//! and nothing is read, that is `f >= f_H · r / ρ` with the ratio r = c_r / c_m at the highest frequency f_H.
//! By [`Policy::Load`] they are 1.5 times the most of the last minute, and so are reads by either.
//!
//! - A read may become slower by a bounded time: `c_read(f) − c_read(f_H) <= read_delay`.
//! - **Up at once, down a step at a time**, every ten seconds.
//! - After a boost the frequency that was too low is left out for ten minutes ([`Floor`]).

use super::costs::Law;
use super::{Core, Policy};

/// The busy share that a core may have.
pub const BUSY_MAX: f64 = 0.8;

/// The load that a core must bear, as a multiple of the most of the last minute.
pub const LOAD_ROOM: f64 = 1.5;

/// The busy share that a lower frequency must keep to be set, as a share of the allowed one: a load that
/// wavers moves nothing.
const DOWN_ROOM: f64 = 0.95;

/// The time between two steps down, in nanoseconds.
pub const STEP_DOWN_NS: u64 = 10_000_000_000;

/// A core's frequency is set lower at most so often a second. One step in [`STEP_DOWN_NS`] is less.
pub const DOWN_PER_SECOND_MAX: u64 = 2;
const _: () = assert!(STEP_DOWN_NS >= 1_000_000_000 / DOWN_PER_SECOND_MAX);

/// The steps of a core that can have any frequency are apart by this, in kHz, and at most [`STEPS_MAX`].
const STEP_KHZ: u32 = 200_000;

/// The most steps: 200 MHz apart they reach over 12.8 GHz. Of a longer list the lowest are left out.
const STEPS_MAX: usize = 64;

/// How long a frequency that was too low is left out, in nanoseconds: ten minutes.
const FLOOR_NS: u64 = 600_000_000_000;

/// What a core must bear.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Need {
    /// What a byte costs.
    pub per_byte: Law,
    /// What a read costs.
    pub per_read: Law,
    /// The busy share without any load.
    pub idle: Law,
    /// Bytes per nanosecond.
    pub bytes: f64,
    /// Reads per nanosecond.
    pub reads: f64,
    /// By how much a read may become slower, in nanoseconds, if that is bounded.
    pub read_delay_ns: Option<u64>,
}

impl Need {
    /// The busy share at a frequency.
    pub fn busy(&self, khz: u32) -> f64 {
        let bytes = self.bytes * self.per_byte.at(khz);
        self.idle.at(khz) + bytes + self.reads * self.per_read.at(khz)
    }

    fn fits(&self, khz: u32, top_khz: u32, room: f64) -> bool {
        let slower_ns = self.per_read.at(khz) - self.per_read.at(top_khz);
        let may_be = self
            .read_delay_ns
            .is_none_or(|most_ns| slower_ns <= most_ns as f64);
        may_be && self.busy(khz) <= BUSY_MAX * room
    }

    /// The lowest of the steps that bears it, with room to the allowed busy share; none is the highest.
    fn lowest(&self, steps: &[u32], room: f64) -> Option<u32> {
        let (top_khz, below) = steps.split_last()?;
        let mut below = below.iter();
        below.find(|khz| self.fits(**khz, *top_khz, room)).copied()
    }

    /// The frequency that it needs, and the one to which it may go down.
    pub fn wish(&self, steps: &[u32], floor_khz: Option<u32>) -> Wish {
        let above = |khz: Option<u32>| match (khz, floor_khz) {
            (Some(khz), Some(floor_khz)) => at_least(steps, khz.max(floor_khz)),
            (khz, None) => khz,
            (None, Some(_)) => None,
        };
        Wish {
            needed: Speed::of(above(self.lowest(steps, 1.0))),
            down_to: Speed::of(above(self.lowest(steps, DOWN_ROOM))),
        }
    }
}

/// The bytes per nanosecond that a core must bear. `master_byte` is what a byte costs the master; without
/// it a saturated master's rate isn't known.
pub fn bytes(
    policy: Policy,
    master_byte: Option<Law>,
    top_khz: u32,
    most_bytes: f64,
) -> Option<f64> {
    let most = most_bytes * LOAD_ROOM;
    match policy {
        Policy::Load => Some(most),
        Policy::Saturation => {
            let cost_ns = master_byte.map(|law| law.at(top_khz));
            let cost_ns = cost_ns.filter(|cost_ns| *cost_ns > 0.0);
            // What has come already can come again, whatever was measured of the master.
            cost_ns.map(|cost_ns| (1.0 / cost_ns).max(most))
        }
    }
}

/// The first step that isn't below a frequency; none is the highest.
fn at_least(steps: &[u32], khz: u32) -> Option<u32> {
    let (_, below) = steps.split_last()?;
    below.iter().find(|step| **step >= khz).copied()
}

/// The frequencies of a core, ascending, the highest last; nothing if it can't be set.
pub fn steps(core: &Core) -> Vec<u32> {
    let Some((low, high)) = core.khz else {
        return Vec::new();
    };
    let mut steps = core.steps_khz.clone();
    if steps.is_empty() {
        let apart = STEP_KHZ.max((high - low) / STEPS_MAX as u32 + 1);
        steps.extend((low..high).step_by(apart as usize));
    }
    if steps.last() != Some(&high) {
        steps.push(high);
    }
    steps.split_off(steps.len().saturating_sub(STEPS_MAX))
}

/// A frequency, in the order of speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Speed {
    /// One below the highest.
    Khz(u32),
    /// The highest.
    Highest,
}

impl Speed {
    fn of(khz: Option<u32>) -> Speed {
        khz.map_or(Speed::Highest, Speed::Khz)
    }

    /// As an order says it.
    pub fn khz(self) -> Option<u32> {
        match self {
            Speed::Khz(khz) => Some(khz),
            Speed::Highest => None,
        }
    }
}

/// What an instance, or a domain of several, wishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// No slower than this.
    pub needed: Speed,
    /// No slower than this, if it is slowed.
    pub down_to: Speed,
}

impl Wish {
    /// As fast as can be.
    pub const HIGHEST: Wish = Wish {
        needed: Speed::Highest,
        down_to: Speed::Highest,
    };

    /// What is fast enough for both.
    pub fn and(self, other: Wish) -> Wish {
        Wish {
            needed: self.needed.max(other.needed),
            down_to: self.down_to.max(other.down_to),
        }
    }
}

/// The frequency of a clock domain in the course of time.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    speed: Speed,
    /// When it was changed.
    changed_ns: Option<u64>,
}

impl Pace {
    /// As fast as can be, from which a step down may follow at once.
    pub const HIGHEST: Pace = Pace {
        speed: Speed::Highest,
        changed_ns: None,
    };

    /// The speed that is set.
    pub fn speed(&self) -> Speed {
        self.speed
    }

    /// The speed from now on.
    pub fn next(&mut self, now_ns: u64, wish: Wish, steps: &[u32]) -> Speed {
        if wish.needed > self.speed {
            self.set(now_ns, wish.needed);
            return self.speed;
        }
        let is_time = self
            .changed_ns
            .is_none_or(|changed_ns| now_ns.saturating_sub(changed_ns) >= STEP_DOWN_NS);
        if wish.down_to < self.speed && is_time {
            let below = match self.speed {
                Speed::Khz(khz) => steps.iter().rfind(|step| **step < khz),
                Speed::Highest => steps.iter().rev().nth(1),
            };
            if let Some(khz) = below {
                self.set(now_ns, Speed::Khz(*khz).max(wish.down_to));
            }
        }
        self.speed
    }

    fn set(&mut self, now_ns: u64, speed: Speed) {
        if self.speed != speed {
            self.speed = speed;
            self.changed_ns = Some(now_ns);
        }
    }
}

/// The lowest frequency that an instance may have, after others were too low.
#[derive(Debug, Clone, Copy, Default)]
pub struct Floor {
    /// The frequency that was too low, and until when it counts.
    too_low: Option<(u32, u64)>,
}

impl Floor {
    /// The instance fell behind at a frequency.
    pub fn raise(&mut self, now_ns: u64, khz: u32) {
        let before = self.too_low_khz(now_ns).unwrap_or(0);
        self.too_low = Some((before.max(khz), now_ns.saturating_add(FLOOR_NS)));
    }

    /// The lowest frequency, of what the configuration and the past say.
    pub fn khz(&self, now_ns: u64, configured: Option<u32>) -> Option<u32> {
        let above = self.too_low_khz(now_ns).map(|khz| khz.saturating_add(1));
        above.max(configured)
    }

    fn too_low_khz(&self, now_ns: u64) -> Option<u32> {
        let too_low = self.too_low.filter(|(_, until_ns)| now_ns < *until_ns);
        too_low.map(|(khz, _)| khz)
    }
}

#[cfg(test)]
mod tests;
