//! This host, and the two of its cores that are measured.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::machine;
use crate::measure::Cores;

/// What distinguishes hosts with different figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// `/etc/machine-id`, if it exists. Images of virtual machines may share it, so it is not enough.
    pub machine_id: Option<String>,
    /// The processor's name.
    pub processor: String,
    /// The number of the host's cores, including those that this process may not use.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// Whether the processor reports a hypervisor.
    pub virtual_machine: bool,
}

impl Host {
    /// The host that this process runs on.
    pub fn this() -> Host {
        let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let id = id.trim();
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':'))
                .map(|(_, value)| value.trim().to_string())
        };
        let flags = field("flags").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Host {
            machine_id: (!id.is_empty()).then(|| id.to_string()),
            processor: field("model name").unwrap_or_else(|| "unknown".to_string()),
            cores: machine::topology().cores.len().max(1),
            kernel: kernel.trim().to_string(),
            virtual_machine: flags.split_whitespace().any(|flag| flag == "hypervisor"),
        }
    }

    /// The host in one line.
    pub fn describe(&self) -> String {
        let kind = match self.virtual_machine {
            true => "virtual machine",
            false => "no hypervisor",
        };
        format!(
            "{}, {} core(s), Linux {}, {kind}",
            self.processor, self.cores, self.kernel
        )
    }
}

/// Two cores that this process may use, on different physical cores if possible; the same core twice if there
/// is only one.
pub fn cores() -> Cores {
    let topology = machine::topology();
    let allowed = topology.cores.iter().filter(|core| core.allowed);
    let allowed = allowed.collect::<Vec<_>>();
    let Some(first) = allowed.first() else {
        let cores = slackwater_link::allowed_cores();
        return Cores {
            leader: cores[0],
            follower: cores[cores.len() - 1],
        };
    };
    let apart = allowed
        .iter()
        .skip(1)
        .find(|core| !core.siblings.contains(&first.id));
    Cores {
        leader: first.id,
        follower: apart.or(allowed.last()).map_or(first.id, |core| core.id),
    }
}

/// The load averages over 1, 5 and 15 minutes; zeros if the system doesn't say.
pub fn load_average() -> [f64; 3] {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut loads = [0.0; 3];
    for (load, word) in loads.iter_mut().zip(text.split_whitespace()) {
        *load = word.parse().unwrap_or(0.0);
    }
    loads
}

/// The time of day in UTC, such as `2026-01-31T23:59:59Z`.
pub fn now_utc() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    utc(now.map_or(0, |now| now.as_secs()))
}

fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March end with the leap day, so months have fixed offsets
    // (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days).
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_767_225_599), "2025-12-31T23:59:59Z");
    }

    #[test]
    fn the_two_cores_are_allowed() {
        let allowed = slackwater_link::allowed_cores();
        let cores = cores();
        assert!(allowed.contains(&cores.leader) && allowed.contains(&cores.follower));
        assert!(allowed.len() == 1 || cores.leader != cores.follower);
    }
}
