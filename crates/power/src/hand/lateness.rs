//! How late this process wakes up: part of every lag that a beat makes.

/// Sleeps whose lateness is kept: those of the last seconds.
const SLEEPS_MAX: usize = 512;

/// By how much sleeps were longer than asked.
#[derive(Debug, Default)]
pub struct Lateness {
    sleeps: Vec<u64>,
    next: usize,
}

impl Lateness {
    /// Adds one that was late by so much.
    pub fn add(&mut self, late_ns: u64) {
        match self.sleeps.get_mut(self.next) {
            Some(sleep) => *sleep = late_ns,
            None => self.sleeps.push(late_ns),
        }
        self.next = (self.next + 1) % SLEEPS_MAX;
    }

    /// The lateness of 99 of 100 sleeps; 0 if there were none.
    pub fn p99(&self) -> u64 {
        let mut sleeps = self.sleeps.clone();
        sleeps.sort_unstable();
        let at = sleeps.len().saturating_sub(1) * 99 / 100;
        sleeps.get(at).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_sleeps_count() {
        let mut late = Lateness::default();
        assert_eq!(late.p99(), 0);
        // Of a few, the worst one says nothing yet.
        late.add(100);
        for _ in 0..50 {
            late.add(9);
        }
        assert_eq!(late.p99(), 9);
        for _ in 0..SLEEPS_MAX {
            late.add(9);
        }
        for _ in 0..SLEEPS_MAX {
            late.add(3);
        }
        assert_eq!(late.p99(), 3);
        for _ in 0..SLEEPS_MAX / 50 {
            late.add(100);
        }
        assert_eq!(late.p99(), 100);
    }
}
