//! The paper's accounting of energy: `E ∝ Σ V² f · time`, in shares of the power of a busy core at the
//! highest frequency.
//!
//! ```text
//! a core:   busy share · V² f  +  (1 − busy share) · σ · V² f
//! ```
//!
//! σ says what an idle core costs: with 1 its power follows its frequency as a busy core's does, which
//! reproduces the paper's figures; with 0 it costs nothing. Real processors lie between, so both are always
//! given. The figures are computed, and contain neither memory nor the rest of the processor.
//!
//! Work is a number of writes; the master is saturated with them, and each replica is busy for as long as
//! these writes take it. With the paper's costs and all replicas slow:
//!
//! ```text
//! σ = 1:  36.1 % with one replica, 48.1 % with two
//! σ = 0:   5.4 %,                   9.6 %
//! ```

use serde::Serialize;

/// GHz and volts of the paper's processor, a Xeon 4114 (Concerto, table 2).
#[cfg(test)]
const STATES: [(f64, f64); 7] = [
    (2.2, 1.10),
    (2.0, 1.06),
    (1.8, 1.02),
    (1.6, 0.98),
    (1.4, 0.94),
    (1.2, 0.90),
    (1.0, 0.86),
];

/// The frequency of a fast core, in GHz.
pub const FAST_GHZ: f64 = 2.2;

/// The frequency of a slow core, in GHz.
pub const SLOW_GHZ: f64 = 1.0;

/// CPU time per write, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// Of the master, on a fast core,
    pub master_us: f64,
    /// and on a slow one.
    pub master_slow_us: f64,
    /// Of a replica on a fast core,
    pub replica_us: f64,
    /// and on a slow one.
    pub replica_slow_us: f64,
}

impl Costs {
    /// The paper's costs of a write of 1 KB (its section 4). It gives none for a slow master: its work is
    /// taken to follow the frequency.
    pub const PAPER: Costs = Costs {
        master_us: 77.69,
        master_slow_us: 77.69 * FAST_GHZ / SLOW_GHZ,
        replica_us: 10.98,
        replica_slow_us: 22.28,
    };
}

/// Which cores are slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Configuration {
    /// None.
    AllFast,
    /// The replicas'.
    Concerto,
    /// All.
    AllSlow,
}

/// V² f of a state, as a share of the highest one; interpolated as the table does, V = 0.66 + 0.20 f.
pub fn power(ghz: f64) -> f64 {
    let of = |ghz: f64| (0.66 + 0.20 * ghz).powi(2) * ghz;
    of(ghz) / of(FAST_GHZ)
}

/// Seconds of a busy fast core that a saturated master and its replicas need for a million writes.
pub fn energy(costs: &Costs, replicas: u32, configuration: Configuration, sigma: f64) -> f64 {
    let (master, replica) = match configuration {
        Configuration::AllFast => (FAST_GHZ, FAST_GHZ),
        Configuration::Concerto => (FAST_GHZ, SLOW_GHZ),
        Configuration::AllSlow => (SLOW_GHZ, SLOW_GHZ),
    };
    let at = |ghz: f64, fast_us: f64, slow_us: f64| match ghz == FAST_GHZ {
        true => fast_us,
        false => slow_us,
    };
    let busy_master_us = at(master, costs.master_us, costs.master_slow_us);
    let busy_replica_us = at(replica, costs.replica_us, costs.replica_slow_us);
    // A replica that takes longer than the master holds the stream back: the whole lasts as long as it does.
    let time_us = busy_master_us.max(busy_replica_us);
    let core = |busy_us: f64, ghz: f64| power(ghz) * (busy_us + sigma * (time_us - busy_us));
    core(busy_master_us, master) + f64::from(replicas) * core(busy_replica_us, replica)
}

/// The share of the energy of all-fast cores that a configuration saves, in percent.
pub fn saved_percent(
    costs: &Costs,
    replicas: u32,
    configuration: Configuration,
    sigma: f64,
) -> f64 {
    let fast = energy(costs, replicas, Configuration::AllFast, sigma);
    let used = energy(costs, replicas, configuration, sigma);
    (1.0 - used / fast) * 100.0
}

/// Writes per second of a saturated master whose replicas have cores of their own: the slowest of them all
/// decides.
pub fn writes_per_s(costs: &Costs, replicas: u32, configuration: Configuration) -> f64 {
    let (master_us, replica_us) = match configuration {
        Configuration::AllFast => (costs.master_us, costs.replica_us),
        Configuration::Concerto => (costs.master_us, costs.replica_slow_us),
        Configuration::AllSlow => (costs.master_slow_us, costs.replica_slow_us),
    };
    match replicas {
        0 => 1e6 / master_us,
        _ => 1e6 / master_us.max(replica_us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(replicas: u32, sigma: f64) -> String {
        let saved = saved_percent(&Costs::PAPER, replicas, Configuration::Concerto, sigma);
        format!("{saved:.1}")
    }

    #[test]
    fn the_voltages_of_the_table_follow_the_frequency() {
        for (ghz, volts) in STATES {
            assert!((0.66 + 0.20 * ghz - volts).abs() < 1e-9, "{ghz}");
        }
        assert_eq!(power(FAST_GHZ), 1.0);
        assert!((power(SLOW_GHZ) - 0.7396 / 2.662).abs() < 1e-9);
    }

    #[test]
    fn the_papers_costs_save_what_the_paper_says() {
        assert_eq!([percent(1, 1.0), percent(2, 1.0)], ["36.1", "48.1"]);
    }

    #[test]
    fn idle_cores_that_cost_nothing_leave_little_to_save() {
        assert_eq!([percent(1, 0.0), percent(2, 0.0)], ["5.4", "9.6"]);
    }

    #[test]
    fn slow_replicas_do_not_hold_a_master_back_and_a_slow_master_does() {
        let rate = |configuration| writes_per_s(&Costs::PAPER, 2, configuration);
        assert_eq!(rate(Configuration::Concerto), rate(Configuration::AllFast));
        let slow = rate(Configuration::AllSlow) / rate(Configuration::AllFast);
        assert!((slow - 1.0 / 2.2).abs() < 1e-9);
        let lazy = Costs {
            replica_slow_us: 100.0,
            ..Costs::PAPER
        };
        assert_eq!(writes_per_s(&lazy, 1, Configuration::Concerto), 1e4);
        assert_eq!(writes_per_s(&lazy, 0, Configuration::Concerto), 1e6 / 77.69);
    }
}
