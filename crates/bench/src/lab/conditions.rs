//! The machine of an experiment, and its load at that time.

use serde::Serialize;
use slackwater::calibrate::{Host, load_average};

use super::processes::Ticks;

/// The conditions of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Conditions {
    /// The machine.
    pub host: Host,
    /// Load averages over 1, 5 and 15 minutes before the experiment, which does not include its own load.
    pub load_before: [f64; 3],
    /// Load averages after the experiment, to which it contributed.
    pub load_after: [f64; 3],
    /// The share of the cores' time that a hypervisor gave to other machines, in percent.
    pub stolen_percent: f64,
}

/// Conditions of a running experiment.
pub struct Watched {
    load: [f64; 3],
    ticks: Ticks,
}

impl Conditions {
    /// Starts observing the machine.
    pub fn watch() -> Watched {
        Watched {
            load: load_average(),
            ticks: Ticks::now(),
        }
    }

    /// The first line of every table.
    pub fn line(&self) -> String {
        format!(
            "{}; load {:.2} before and {:.2} after; {:.1} % of the cores' time stolen",
            self.host.describe(),
            self.load_before[0],
            self.load_after[0],
            self.stolen_percent
        )
    }
}

impl Watched {
    /// The conditions up to now.
    pub fn end(self) -> Conditions {
        Conditions {
            host: Host::this(),
            load_before: self.load,
            load_after: load_average(),
            stolen_percent: stolen_percent(self.ticks, Ticks::now()),
        }
    }
}

/// The share of the time of all cores between two moments that was stolen, in percent.
fn stolen_percent(before: Ticks, after: Ticks) -> f64 {
    let all = after.all.saturating_sub(before.all);
    let stolen = after.stolen.saturating_sub(before.stolen);
    stolen as f64 / all.max(1) as f64 * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_a_share_of_all_time() {
        let ticks = |all, stolen| Ticks {
            all,
            stolen,
            ..Ticks::default()
        };
        assert_eq!(stolen_percent(ticks(900, 8), ticks(1_100, 18)), 5.0);
        assert_eq!(stolen_percent(Ticks::default(), Ticks::default()), 0.0);
    }
}
