//! Clocks that are not equally fast.

use super::S;

/// A clock that is fast by so many parts of a million.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    begin_ns: u64,
    ppm: i64,
}

impl Clock {
    /// One that is up to 1 % fast or slow, often as much as that.
    pub fn random(random: &mut fastrand::Rng) -> Clock {
        let ppm = [-10_000, 10_000, 0, random.i64(-10_000..=10_000)];
        Clock {
            begin_ns: random.u64(0..1_000_000 * S),
            ppm: ppm[random.usize(0..4)],
        }
    }

    /// The true time in which it advances by so much.
    pub fn lasts(&self, clock_ns: u64) -> u64 {
        let rate = (1_000_000 + self.ppm) as u128;
        (u128::from(clock_ns) * 1_000_000).div_ceil(rate) as u64
    }

    pub fn reads(&self, true_ns: u64) -> u64 {
        let rate = (1_000_000 + self.ppm) as u128;
        self.begin_ns + (u128::from(true_ns) * rate / 1_000_000) as u64
    }

    /// The first moment at which it shows a time or a later one.
    pub fn shows(&self, clock_ns: u64) -> u64 {
        let rate = (1_000_000 + self.ppm) as u128;
        let since_ns = u128::from(clock_ns.saturating_sub(self.begin_ns));
        (since_ns * 1_000_000).div_ceil(rate) as u64
    }
}
