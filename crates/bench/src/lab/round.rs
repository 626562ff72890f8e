//! Rounds: each round measures all cases one after the other, every other round backwards.

use std::fmt::Display;

/// The share of a round's points that may be measured again because they were disturbed.
pub const REPEATED_SHARE_MAX: f64 = 0.2;

/// A round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// The round's number, starting at 1.
    pub number: u32,
    count: u32,
}

/// This many rounds, each of which is announced when it begins.
pub fn rounds(count: u32) -> impl Iterator<Item = Round> {
    (1..=count).map(move |number| {
        let round = Round { number, count };
        eprintln!("{round}");
        round
    })
}

impl Display for Round {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "round {} of {}", self.number, self.count)
    }
}

impl Round {
    /// Reports progress.
    pub fn note(&self, what: impl Display) {
        eprintln!("{self}: {what}");
    }

    /// The indexes of this many cases in the order in which this round measures them.
    pub fn places(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let is_backwards = self.number.is_multiple_of(2);
        (0..count).map(move |place| match is_backwards {
            true => count - 1 - place,
            false => place,
        })
    }

    /// The cases in the order in which this round measures them.
    pub fn order<'a, C>(&self, cases: &'a [C]) -> impl Iterator<Item = &'a C> + use<'a, C> {
        self.places(cases.len()).map(|place| &cases[place])
    }

    /// Measures the most disturbed points again, at most [`REPEATED_SHARE_MAX`] of them, and keeps the
    /// less disturbed measurement of each; returns the number of points measured again.
    ///
    /// `disturbance` returns the share of the time in which other processes used what the point needed;
    /// points with up to `disturbed_max` are not measured again.
    ///
    /// # Errors
    ///
    /// If a point can't be measured again.
    pub fn repeat<P>(
        &self,
        points: &mut [P],
        disturbed_max: f64,
        disturbance: impl Fn(&P) -> f64,
        mut measure: impl FnMut(&P) -> Result<P, String>,
    ) -> Result<usize, String> {
        let most = (points.len() as f64 * REPEATED_SHARE_MAX) as usize;
        let disturbed = points.iter_mut();
        let disturbed = disturbed.filter(|point| disturbance(point) > disturbed_max);
        let mut disturbed = disturbed.collect::<Vec<_>>();
        disturbed.sort_by(|one, other| disturbance(other).total_cmp(&disturbance(one)));
        disturbed.truncate(most);
        let count = disturbed.len();
        if count > 0 {
            self.note(format!(
                "measuring {count} points again that other processes disturbed"
            ));
        }
        for point in disturbed {
            let again = measure(point)?;
            if disturbance(&again) < disturbance(point) {
                *point = again;
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_round_goes_backwards() {
        let orders = rounds(3).map(|round| round.order(&['a', 'b', 'c']).collect::<String>());
        assert_eq!(orders.collect::<Vec<_>>(), ["abc", "cba", "abc"]);
    }

    #[test]
    fn the_most_disturbed_points_are_measured_again_and_the_better_measurement_counts() {
        let round = rounds(1).next().unwrap();
        let mut points = [0.0, 0.3, 0.005, 0.5, 0.02, 0.0, 0.0, 0.0, 0.0, 0.0];
        let mut again = [0.9, 0.1].into_iter();
        let measure = |_: &f64| again.next().ok_or_else(|| "a third".to_string());
        let repeated = round.repeat(&mut points, 0.01, |&point| point, measure);
        // Two of ten: the worst did not improve, the second did.
        assert_eq!(repeated, Ok(2));
        assert_eq!(points[..5], [0.0, 0.1, 0.005, 0.5, 0.02]);
    }
}
