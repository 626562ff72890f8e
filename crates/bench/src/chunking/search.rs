//! The highest rate that keeps a guarantee, by bisection. Pure.

/// Smallest share of the highest rate that is tried: below it a point would contain too few updates.
const SHARE_MIN: f64 = 1.0 / 64.0;

/// Narrows down the highest rate that is kept; assumes that lower rates are kept as well.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    kept: f64,
    not_kept: f64,
    /// The lowest rate that is tried.
    least: f64,
}

impl Search {
    /// A search between zero and the highest possible rate; a rate below `least_per_s` is not found.
    pub fn new(highest_per_s: f64, least_per_s: f64) -> Search {
        Search {
            kept: 0.0,
            not_kept: highest_per_s,
            least: least_per_s.max(highest_per_s * SHARE_MIN),
        }
    }

    /// The same search, starting at a rate that is known to be kept.
    pub fn from(self, kept_per_s: f64) -> Search {
        Search {
            kept: kept_per_s.min(self.not_kept),
            ..self
        }
    }

    /// The next rate to try; `None` when the search has ended.
    pub fn next(&self) -> Option<f64> {
        let middle = self.kept.midpoint(self.not_kept);
        (middle >= self.least && self.kept < self.not_kept).then_some(middle)
    }

    /// Notes whether a rate was kept.
    pub fn tried(&mut self, rate_per_s: f64, kept: bool) {
        if kept {
            self.kept = self.kept.max(rate_per_s);
        } else {
            self.not_kept = self.not_kept.min(rate_per_s);
        }
    }

    /// The highest rate that was kept; 0 if none was.
    pub fn kept(&self) -> f64 {
        self.kept
    }

    /// The lowest rate that was not kept, or the highest possible rate.
    pub fn not_kept(&self) -> f64 {
        self.not_kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(limit: f64, probes: usize) -> f64 {
        let mut search = Search::new(100.0, 0.0);
        for _ in 0..probes {
            let Some(rate) = search.next() else {
                break;
            };
            search.tried(rate, rate <= limit);
        }
        search.kept()
    }

    #[test]
    fn each_probe_halves_the_range() {
        assert_eq!(found(100.0, 5), 96.875);
        assert_eq!(found(60.0, 3), 50.0);
        assert_eq!(found(60.0, 4), 56.25);
        assert_eq!(found(1.0, 20), 0.0);
        let close = found(33.3, 20);
        assert!((33.2..=33.3).contains(&close), "{close}");
    }

    #[test]
    fn rates_with_too_few_updates_are_not_tried() {
        let mut search = Search::new(100.0, 30.0);
        assert_eq!(search.next(), Some(50.0));
        search.tried(50.0, false);
        assert_eq!(search.next(), None);
        assert_eq!(Search::new(0.0, 0.0).next(), None);
        assert_eq!(Search::new(100.0, 0.0).from(50.0).next(), Some(75.0));
        assert_eq!(Search::new(100.0, 0.0).from(100.0).next(), None);
    }
}
