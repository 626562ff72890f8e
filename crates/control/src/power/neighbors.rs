//! Whether a core that was slowed has slowed a master's core: some processors have clocks that depend on each
//! other and don't say so.
//!
//! ```text
//!            a domain is slowed                a master's clock fell
//!  Nothing ─────────────────────► Slowed ─────────────────────────────► Undone
//!     ▲                              │                                    │ it is back: the domain is barred
//!     └──── no clock has fallen ◄────┘ ◄──────────────────────────────────┘ it is not: something else did it
//! ```
//!
//! - A master's clock counts while it works: an idle core's says nothing. So it is compared by the median of
//!   some samples of times in which it was busy.
//! - What was undone is tried again only if that was not the reason, and not before [`AGAIN_NS`].
//! - Of a clock that nobody measures nothing is concluded.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Cpu, InstanceId};

/// A clock has fallen if it lost more than this share.
const FALLEN: f64 = 0.03;
/// It is back if no more than this share is missing.
const BACK: f64 = 0.015;
/// The samples of which a median is taken, and how far apart they are at least, in nanoseconds.
const SAMPLES: usize = 5;
const APART_NS: u64 = 500_000_000;
/// Samples before are no older than this.
const OLD_NS: u64 = 60_000_000_000;
/// The share of the time that a master has to be busy in.
const BUSY_MIN: f64 = 0.05;
/// How long a comparison may take: a master that does nothing has no clock to compare.
const TRIAL_NS: u64 = 60_000_000_000;
/// When something else was the reason, nothing is compared for so long, in nanoseconds: ten minutes.
pub const AGAIN_NS: u64 = 600_000_000_000;

/// What is known of masters' clocks, and of domains that disturb them.
#[derive(Debug, Clone, Default)]
pub struct Neighbors {
    masters: BTreeMap<InstanceId, Clock>,
    trial: Option<Trial>,
    /// Domains that are not slowed, and the master that they disturb.
    barred: BTreeMap<Cpu, InstanceId>,
    rests_until_ns: u64,
}

/// A master's clock.
#[derive(Debug, Clone, Default)]
struct Clock {
    last: Option<(u64, u64)>,
    samples: VecDeque<(u64, u32)>,
}

#[derive(Debug, Clone)]
struct Trial {
    domains: BTreeSet<Cpu>,
    since_ns: u64,
    /// Masters' clocks before.
    before: BTreeMap<InstanceId, u32>,
    /// The master whose clock fell, once it did.
    fell: Option<InstanceId>,
}

impl Clock {
    fn median(&self, from_ns: u64, to_ns: u64) -> Option<u32> {
        let samples = self.samples.iter();
        let within = samples.filter(|(at_ns, _)| (from_ns..to_ns).contains(at_ns));
        let mut khz = within.map(|(_, khz)| *khz).collect::<Vec<u32>>();
        if khz.len() < SAMPLES {
            return None;
        }
        // The latest ones.
        let mut khz = khz.split_off(khz.len() - SAMPLES);
        khz.sort_unstable();
        Some(khz[SAMPLES / 2])
    }
}

impl Neighbors {
    /// Takes the clock of the core on which a master ran, and its CPU time.
    pub fn seen(&mut self, now_ns: u64, master: InstanceId, khz: Option<u32>, cpu_ns: u64) {
        let clock = self.masters.entry(master).or_default();
        let (last_ns, last_cpu_ns) = *clock.last.get_or_insert((now_ns, cpu_ns));
        let time_ns = now_ns.saturating_sub(last_ns);
        if time_ns < APART_NS {
            return;
        }
        clock.last = Some((now_ns, cpu_ns));
        let busy = cpu_ns.saturating_sub(last_cpu_ns) as f64 / time_ns as f64;
        let Some(khz) = khz.filter(|_| busy >= BUSY_MIN) else {
            return;
        };
        if clock.samples.len() == 2 * SAMPLES {
            clock.samples.pop_front();
        }
        clock.samples.push_back((now_ns, khz));
    }

    /// These are the masters that there are.
    pub fn keep(&mut self, is_master: impl Fn(InstanceId) -> bool) {
        self.masters.retain(|id, _| is_master(*id));
        self.barred.retain(|_, id| is_master(*id));
    }

    /// A domain was slowed.
    pub fn slowed(&mut self, now_ns: u64, domain: Cpu) {
        if now_ns < self.rests_until_ns {
            return;
        }
        match &mut self.trial {
            Some(trial) if trial.fell.is_some() => {}
            Some(trial) => {
                trial.domains.insert(domain);
            }
            None => {
                let from_ns = now_ns.saturating_sub(OLD_NS);
                let masters = self.masters.iter();
                let before = masters
                    .filter_map(|(id, clock)| Some((*id, clock.median(from_ns, now_ns + 1)?)));
                let before = before.collect::<BTreeMap<InstanceId, u32>>();
                if !before.is_empty() {
                    self.trial = Some(Trial {
                        domains: BTreeSet::from([domain]),
                        since_ns: now_ns,
                        before,
                        fell: None,
                    });
                }
            }
        }
    }

    /// The master that a domain disturbs, or may: the domain must not be slow.
    pub fn disturbs(&self, domain: Cpu) -> Option<InstanceId> {
        let trial = self.trial.as_ref();
        let tried = trial.filter(|trial| trial.domains.contains(&domain));
        let barred = self.barred.get(&domain).copied();
        barred.or_else(|| tried.and_then(|trial| trial.fell))
    }

    /// Compares masters' clocks.
    pub fn compare(&mut self, now_ns: u64) {
        let Some(trial) = &mut self.trial else {
            return;
        };
        let from_ns = trial.since_ns + 1;
        let now_of = |id: &InstanceId| self.masters.get(id)?.median(from_ns, now_ns + 1);
        let missing = |before: u32, now: u32| 1.0 - f64::from(now) / f64::from(before.max(1));
        let is_late = now_ns.saturating_sub(trial.since_ns) > TRIAL_NS;
        match trial.fell {
            None => {
                let clocks = trial.before.iter();
                let now = clocks
                    .map(|(id, before)| (*id, now_of(id).map(|now| missing(*before, now))))
                    .collect::<Vec<(InstanceId, Option<f64>)>>();
                let fell = now
                    .iter()
                    .find(|(_, lost)| lost.is_some_and(|lost| lost > FALLEN));
                if let Some((id, _)) = fell {
                    trial.fell = Some(*id);
                    trial.since_ns = now_ns;
                } else if is_late || now.iter().all(|(_, lost)| lost.is_some()) {
                    self.trial = None;
                }
            }
            Some(id) => {
                let before = trial.before.get(&id).copied().unwrap_or_default();
                let Some(lost) = now_of(&id).map(|now| missing(before, now)) else {
                    if is_late || !self.masters.contains_key(&id) {
                        self.trial = None;
                    }
                    return;
                };
                if lost <= BACK {
                    let domains = trial.domains.iter();
                    self.barred.extend(domains.map(|domain| (*domain, id)));
                } else {
                    self.rests_until_ns = now_ns.saturating_add(AGAIN_NS);
                }
                self.trial = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// A master that is busy for half of the time, at a clock, for some seconds.
    struct Host {
        neighbors: Neighbors,
        now_ns: u64,
        cpu_ns: u64,
    }

    impl Host {
        fn new() -> Self {
            let mut host = Self {
                neighbors: Neighbors::default(),
                now_ns: S,
                cpu_ns: 0,
            };
            host.run(10, Some(2_200_000), 0.5);
            host
        }

        fn run(&mut self, seconds: u64, khz: Option<u32>, busy: f64) {
            for _ in 0..seconds {
                self.now_ns += S;
                self.cpu_ns += (S as f64 * busy) as u64;
                self.neighbors.seen(self.now_ns, 1, khz, self.cpu_ns);
                self.neighbors.compare(self.now_ns);
            }
        }

        fn slow(&mut self) {
            self.neighbors.slowed(self.now_ns, 7);
        }

        fn disturbs(&self) -> bool {
            self.neighbors.disturbs(7) == Some(1)
        }
    }

    #[test]
    fn a_domain_that_slows_a_master_is_undone_and_barred() {
        let mut host = Host::new();
        host.slow();
        host.run(SAMPLES as u64 - 1, Some(2_100_000), 0.5);
        assert!(!host.disturbs());
        host.run(1, Some(2_100_000), 0.5);
        assert!(host.disturbs());
        assert_eq!(host.neighbors.disturbs(8), None);
        host.run(100, Some(2_190_000), 0.5);
        assert!(host.disturbs() && host.neighbors.trial.is_none());
        // With its master gone it disturbs nobody.
        host.neighbors.keep(|_| false);
        assert!(!host.disturbs());
    }

    #[test]
    fn a_clock_that_stays_down_when_it_was_undone_has_another_reason() {
        let mut host = Host::new();
        host.slow();
        host.run(5, Some(2_000_000), 0.5);
        assert!(host.disturbs());
        host.run(5, Some(2_000_000), 0.5);
        assert!(!host.disturbs());
        // Nothing is compared for a while.
        host.slow();
        host.run(5, Some(1_000_000), 0.5);
        assert!(!host.disturbs());
    }

    #[test]
    fn a_clock_that_does_not_fall_or_is_not_known_or_idles_says_nothing() {
        for (khz, busy) in [(Some(2_150_000), 0.5), (Some(1_000_000), 0.01), (None, 0.5)] {
            let mut host = Host::new();
            host.slow();
            host.run(100, khz, busy);
            assert!(!host.disturbs());
            assert!(host.neighbors.trial.is_none());
        }
        let mut host = Host::new();
        host.neighbors.masters.clear();
        host.slow();
        assert!(host.neighbors.trial.is_none());
    }
}
