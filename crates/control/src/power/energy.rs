//! What slow cores save, as far as it can be said without a meter.
//!
//! ```text
//! E = κ · Σ dt · [u · V(f)² f + (1 − u) · σ · V(f)² f]
//! ```
//!
//! with the busy share u, the *measured* frequency f and its voltage V. σ says what an idle core costs: 1 if
//! its power follows its frequency as a busy one's does, as the paper assumes, and 0 if it costs nothing. The
//! truth lies between, so both are always given. κ is chosen so that a busy core at its highest frequency
//! costs one second a second: the unit is **core-seconds at the top P-state**, never watts or joules.
//!
//! The comparison is with the same work in the same time, all cores at their highest frequency. The master
//! is at its highest either way. So for each core: `V(f)² f` instead of `V(f_H)² f_H`, and busy for as long
//! as its bytes take at f instead of at f_H. With the paper's figures, per write of a saturated master
//! (77.69 µs; a replica takes 10.98 at 2.2 GHz and 22.28 at 1.0), that is
//!
//! ```text
//! n replicas, σ = 1:  n · (2.662 − 0.740) / ((1 + n) · 2.662)                       36.1, 48.1 %
//! n replicas, σ = 0:  n · (0.141 · 2.662 − 0.287 · 0.740) / ((1 + n · 0.141) · 2.662)  5.4,  9.6 %
//! ```
//!
//! What isn't known saves nothing: a frequency that was not measured counts as the highest, and so does a
//! core behind a quota, which is no slower while it runs.

/// The voltages of the paper's processor, in millivolts by MHz (Concerto, table 2).
pub const PAPER: [(u32, u32); 7] = [
    (1_000, 860),
    (1_200, 900),
    (1_400, 940),
    (1_600, 980),
    (1_800, 1_020),
    (2_000, 1_060),
    (2_200, 1_100),
];

/// What has to be said where [`Voltages::paper`] is used.
pub const PAPER_WORDS: &str = "voltages of a Xeon 4114";

/// The points of a table of voltages: more than any processor has P-states.
pub const POINTS_MAX: usize = 64;

/// Voltages by frequency.
#[derive(Debug, Clone, PartialEq)]
pub struct Voltages {
    /// MHz and millivolts, ascending.
    points: Vec<(u32, u32)>,
    is_paper: bool,
}

impl Voltages {
    /// The paper's: `V = 0.66 + 0.20 f`, with f in GHz, below and above its table as well.
    pub fn paper() -> Voltages {
        Voltages {
            points: Vec::new(),
            is_paper: true,
        }
    }

    /// A table of MHz and millivolts, ascending in both. Nothing if it isn't that.
    pub fn of(points: Vec<(u32, u32)>) -> Option<Voltages> {
        let ascend = points.windows(2);
        let ascend = ascend
            .into_iter()
            .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        let first = points.first()?;
        let may_be = ascend && first.0 > 0 && first.1 > 0 && points.len() <= POINTS_MAX;
        may_be.then_some(Voltages {
            points,
            is_paper: false,
        })
    }

    /// Whose voltages they are, if not this machine's.
    pub fn words(&self) -> Option<&'static str> {
        self.is_paper.then_some(PAPER_WORDS)
    }

    /// The voltage at a frequency: between two points on the line through them, outside of them that of the
    /// nearest.
    pub fn volts(&self, khz: u32) -> f64 {
        let mhz = f64::from(khz) / 1e3;
        if self.is_paper {
            return 0.66 + 0.20 * mhz / 1e3;
        }
        let point = |at: usize| {
            let (mhz, millivolts) = self.points[at];
            (f64::from(mhz), f64::from(millivolts) / 1e3)
        };
        let after = self
            .points
            .partition_point(|point| f64::from(point.0) < mhz);
        if after == 0 || after == self.points.len() {
            return point(after.min(self.points.len() - 1)).1;
        }
        let ((low, low_volts), (high, high_volts)) = (point(after - 1), point(after));
        low_volts + (high_volts - low_volts) * (mhz - low) / (high - low)
    }

    /// The power of a busy core at a frequency, as a share of that at another one.
    fn share(&self, khz: u32, top_khz: u32) -> f64 {
        let power = |khz: u32| self.volts(khz).powi(2) * f64::from(khz);
        power(khz) / power(top_khz)
    }
}

/// By what a core is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// By its frequency.
    Frequency,
    /// By a quota, or by a hint whose effect wasn't measured: it saves nothing.
    Quota,
}

/// What a core did in a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// The time, in nanoseconds.
    pub time_ns: u64,
    /// The CPU time of it that was used, in nanoseconds.
    pub busy_ns: u64,
    /// The frequency that was measured.
    pub khz: Option<u32>,
    /// The core's highest frequency.
    pub top_khz: u32,
    /// By what it is slow.
    pub by: By,
    /// What a unit of work costs at the highest frequency, as a share of what it costs at this one, if that
    /// was learned. Without it, the least that it can be.
    pub cost_at_top: Option<f64>,
}

/// Core-seconds at the top P-state.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Modelled {
    /// What was used.
    pub used_s: f64,
    /// What the same work would have used at the highest frequency.
    pub all_fast_s: f64,
}

impl Modelled {
    /// What was saved.
    pub fn saved_s(&self) -> f64 {
        (self.all_fast_s - self.used_s).max(0.0)
    }

    /// The share that was saved, 0 to 1.
    pub fn saved_share(&self) -> f64 {
        match self.all_fast_s > 0.0 {
            true => self.saved_s() / self.all_fast_s,
            false => 0.0,
        }
    }

    fn add(&mut self, used_s: f64, all_fast_s: f64) {
        self.used_s += used_s;
        self.all_fast_s += all_fast_s;
    }
}

/// The energy of cores, modelled.
#[derive(Debug, Clone, PartialEq)]
pub struct Energy {
    voltages: Voltages,
    /// With σ = 1: an idle core costs what a busy one does.
    sigma_one: Modelled,
    /// With σ = 0: an idle core costs nothing.
    sigma_zero: Modelled,
}

impl Energy {
    /// Nothing was used yet.
    pub fn new(voltages: Voltages) -> Energy {
        Energy {
            voltages,
            sigma_one: Modelled::default(),
            sigma_zero: Modelled::default(),
        }
    }

    /// Adds what a core did.
    pub fn add(&mut self, span: &Span) {
        let time_s = span.time_ns as f64 / 1e9;
        let busy_s = (span.busy_ns as f64 / 1e9).min(time_s);
        let top_khz = span.top_khz.max(1);
        let khz = match (span.by, span.khz) {
            (By::Frequency, Some(khz)) => khz.clamp(1, top_khz),
            (By::Frequency, None) | (By::Quota, _) => top_khz,
        };
        let power = self.voltages.share(khz, top_khz).min(1.0);
        // Work is never slower at the highest frequency, and never faster by more than the clock is.
        let least = f64::from(khz) / f64::from(top_khz);
        let cost_at_top = span.cost_at_top.filter(|cost| cost.is_finite());
        let busy_at_top_s = busy_s * cost_at_top.unwrap_or(least).clamp(least, 1.0);
        self.sigma_one.add(power * time_s, time_s);
        // Voltages ascend, so this is never above what the highest frequency would have used.
        self.sigma_zero.add(power * busy_s, busy_at_top_s);
    }

    /// What was used, with σ = 1 and with σ = 0. Each is true of some processors.
    pub fn modelled(&self) -> (Modelled, Modelled) {
        (self.sigma_one, self.sigma_zero)
    }

    /// The voltages that were used.
    pub fn voltages(&self) -> &Voltages {
        &self.voltages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIGH: u32 = 2_200_000;
    const LOW: u32 = 1_000_000;
    /// What a write costs (Concerto, figure 3), in tens of nanoseconds, of which a saturated master's is the
    /// time that passes.
    const MASTER: u64 = 7_769;
    const REPLICA_FAST: u64 = 1_098;
    const REPLICA_SLOW: u64 = 2_228;

    fn span(busy_ns: u64, khz: u32) -> Span {
        Span {
            time_ns: MASTER,
            busy_ns,
            khz: Some(khz),
            top_khz: HIGH,
            by: By::Frequency,
            cost_at_top: None,
        }
    }

    fn shares(replica: Span, replicas: usize) -> (f64, f64) {
        let mut energy = Energy::new(Voltages::paper());
        energy.add(&span(MASTER, HIGH));
        for _ in 0..replicas {
            energy.add(&replica);
        }
        let (one, zero) = energy.modelled();
        let percent = |modelled: Modelled| (modelled.saved_share() * 1e3).round() / 10.0;
        (percent(one), percent(zero))
    }

    #[test]
    fn the_fit_matches_the_paper_s_table() {
        let table = Voltages::of(PAPER.to_vec()).expect("a table");
        for (mhz, millivolts) in PAPER {
            let volts = f64::from(millivolts) / 1e3;
            assert!((Voltages::paper().volts(mhz * 1_000) - volts).abs() < 1e-9);
            assert!((table.volts(mhz * 1_000) - volts).abs() < 1e-9);
        }
        assert!((table.volts(1_300_000) - 0.92).abs() < 1e-9);
        assert!((table.volts(500_000) - 0.86).abs() < 1e-9);
        assert!((table.volts(3_000_000) - 1.10).abs() < 1e-9);
        assert_eq!(table.words(), None);
        assert_eq!(Voltages::paper().words(), Some(PAPER_WORDS));
    }

    #[test]
    fn one_and_two_replicas_save_what_the_paper_s_figures_give() {
        let slow = Span {
            cost_at_top: Some(10.98 / 22.28),
            ..span(REPLICA_SLOW, LOW)
        };
        assert_eq!(shares(slow, 1), (36.1, 5.4));
        assert_eq!(shares(slow, 2), (48.1, 9.6));
    }

    #[test]
    fn all_fast_saves_nothing() {
        assert_eq!(shares(span(REPLICA_FAST, HIGH), 2), (0.0, 0.0));
        assert_eq!(shares(span(REPLICA_FAST, HIGH * 2), 2), (0.0, 0.0));
    }

    #[test]
    fn what_is_not_known_saves_nothing() {
        let slow = span(REPLICA_SLOW, LOW);
        assert_eq!(shares(Span { khz: None, ..slow }, 2), (0.0, 0.0));
        let quota = Span {
            by: By::Quota,
            ..slow
        };
        assert_eq!(shares(quota, 2), (0.0, 0.0));
        // A cost that no processor has counts as one that it can have.
        let strange = |cost| {
            shares(
                Span {
                    cost_at_top: Some(cost),
                    ..slow
                },
                1,
            )
            .1
        };
        let least = shares(slow, 1).1;
        assert!(least > 0.0 && least < 5.4);
        assert_eq!(strange(0.0), least);
        assert_eq!(strange(f64::NAN), least);
        assert_eq!(strange(7.0), strange(1.0));
    }

    #[test]
    fn nothing_is_divided_by_nothing() {
        let empty = Energy::new(Voltages::paper());
        assert_eq!(empty.modelled().0.saved_share(), 0.0);
        let mut energy = Energy::new(Voltages::of(vec![(1, 1)]).expect("a table"));
        energy.add(&Span {
            time_ns: 0,
            top_khz: 0,
            khz: Some(0),
            ..span(5, 0)
        });
        let (one, zero) = energy.modelled();
        for share in [
            one.saved_share(),
            zero.saved_share(),
            one.used_s,
            zero.used_s,
        ] {
            assert!(share.is_finite());
        }
    }

    #[test]
    fn tables_that_are_none_are_not_taken() {
        assert_eq!(Voltages::of(Vec::new()), None);
        assert_eq!(Voltages::of(vec![(0, 800)]), None);
        assert_eq!(Voltages::of(vec![(1_000, 900), (1_000, 950)]), None);
        assert_eq!(Voltages::of(vec![(1_000, 900), (1_200, 850)]), None);
    }
}
