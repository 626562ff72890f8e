//! A tree of files that stands for /sys: cores with clocks of their own.

use std::fs;
use std::path::{Path, PathBuf};

/// The highest frequency of each core, which is also what is found.
pub const HIGHEST: &str = "2200000";

/// A tree of `cpus` cores.
pub fn make(root: &Path, cpus: u32) {
    let folder = root.join("devices/system/cpu");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("online"), format!("0-{}\n", cpus - 1)).unwrap();
    for cpu in 0..cpus {
        let clock = folder.join(format!("cpu{cpu}/cpufreq"));
        fs::create_dir_all(&clock).unwrap();
        for (name, value) in [
            ("cpuinfo_min_freq", "1000000"),
            ("cpuinfo_max_freq", HIGHEST),
            ("scaling_max_freq", HIGHEST),
            ("scaling_driver", "acpi-cpufreq"),
            ("scaling_governor", "performance"),
            (
                "scaling_available_frequencies",
                "2200000 1800000 1400000 1000000",
            ),
            ("energy_performance_preference", "balance_performance"),
            ("related_cpus", &cpu.to_string()),
        ] {
            fs::write(clock.join(name), format!("{value}\n")).unwrap();
        }
    }
}

/// The file that caps a core.
pub fn cap(root: &Path, cpu: u32) -> PathBuf {
    root.join(format!(
        "devices/system/cpu/cpu{cpu}/cpufreq/scaling_max_freq"
    ))
}

/// What caps all cores, and their energy preferences.
pub fn values(root: &Path, cpus: u32) -> Vec<String> {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap().trim().to_string();
    let caps = (0..cpus).map(|cpu| read(cap(root, cpu)));
    let preferences =
        (0..cpus).map(|cpu| read(cap(root, cpu).with_file_name("energy_performance_preference")));
    caps.chain(preferences).collect()
}

/// Whether a core is slowed.
pub fn any_slow(root: &Path, cpus: u32) -> bool {
    values(root, cpus)[..cpus as usize]
        .iter()
        .any(|value| value != HIGHEST)
}
