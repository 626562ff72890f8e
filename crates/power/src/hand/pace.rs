//! When links are served: all at once, so that a beat wakes this process once for its beginning and once for
//! its end, however many replicas there are.

/// The first time that replicas are given to read what lay there. The time that they take is learned.
pub const READ_NS: u64 = 200_000;
/// The least time after which is looked whether replicas have read: below, looking costs more than it saves.
const READ_MIN_NS: u64 = 50_000;
/// Looking too early wakes this process for nothing; looking too late wakes a replica for each write in
/// between, which costs more. So one look in three is too early: the time grows by a quarter then, and
/// otherwise shrinks by half of that.
const GROWS_BY: u64 = 4;
const SHRINKS_BY: u64 = 8;
/// The longest time, as a part of a beat.
const MOST: u64 = 16;

/// The time that replicas take to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// How long after the beginning of a beat is looked whether all was read, and how long after a look that
    /// was too early.
    pub ns: u64,
}

impl Default for Reading {
    fn default() -> Self {
        Self { ns: READ_NS }
    }
}

impl Reading {
    /// Learns from a look: whether some replica had not read all, at beats of this length.
    pub fn learn(&mut self, was_early: bool, beat_ns: u64) {
        let most = (beat_ns / MOST).max(READ_MIN_NS);
        let ns = match was_early {
            true => self.ns + self.ns / GROWS_BY,
            false => self.ns - self.ns / SHRINKS_BY,
        };
        self.ns = ns.clamp(READ_MIN_NS, most);
    }
}

/// The beat that is set where `wanted_ns` is allowed and the shortest beat of all is `shortest_ns`: a
/// multiple of that one, so that no beat needs a wake-up of its own.
pub fn in_step(wanted_ns: u64, shortest_ns: u64) -> u64 {
    match shortest_ns {
        0 => wanted_ns,
        shortest_ns => (wanted_ns / shortest_ns).max(1) * shortest_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beats_are_multiples_of_the_shortest() {
        assert_eq!(in_step(17, 17), 17);
        assert_eq!(in_step(30, 17), 17);
        assert_eq!(in_step(40, 17), 34);
        assert_eq!(in_step(40, 0), 40);
    }

    #[test]
    fn the_time_to_read_is_learned_within_its_bounds() {
        let mut reading = Reading::default();
        for _ in 0..1_000 {
            reading.learn(false, 20_000_000);
        }
        assert_eq!(reading.ns, READ_MIN_NS);
        for _ in 0..1_000 {
            reading.learn(true, 20_000_000);
        }
        assert_eq!(reading.ns, 1_250_000);
        reading.learn(true, 0);
        assert_eq!(reading.ns, READ_MIN_NS);
    }
}
