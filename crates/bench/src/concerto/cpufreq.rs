//! Slow cores by cpufreq: the cores of one clock are capped at their lowest frequency for the whole
//! experiment, slow servers run on them, and everything else runs on the others.
//!
//! The cap that was found is written back when this is dropped. If this process is killed, the caps stay:
//! `echo FOUND > …/scaling_max_freq` removes them, and so does a restart of the machine.

use std::path::{Path, PathBuf};

use rustix::thread::{CpuSet, sched_setaffinity};

/// The clocks of this machine.
pub const POLICIES: &str = "/sys/devices/system/cpu/cpufreq";

/// Cores with a lowered frequency.
#[derive(Debug)]
pub struct SlowCores {
    cap: PathBuf,
    found: String,
    /// The slow cores,
    cores: Vec<usize>,
    /// and how many times slower they are.
    pub factor: f64,
}

impl SlowCores {
    /// Caps the cores of the last clock, and keeps this process and what it starts away from them.
    ///
    /// # Errors
    ///
    /// If there are not two clocks, or a cap can't be written.
    pub fn cap(policies: &Path) -> Result<SlowCores, String> {
        let fix = "use --slow dilate";
        let shown = policies.display();
        let mut clocks = std::fs::read_dir(policies)
            .map_err(|error| format!("--slow cpufreq: {shown}: {error}\n  = {fix}"))?
            .flatten()
            .map(|entry| entry.path())
            .filter_map(|path| Some((cores(&read(&path, "related_cpus").ok()?), path)))
            .collect::<Vec<(Vec<usize>, PathBuf)>>();
        clocks.sort();
        let (Some((slow, clock)), false) = (clocks.pop(), clocks.is_empty()) else {
            return Err(format!(
                "--slow cpufreq: {shown}: there are not two clocks\n  = {fix}"
            ));
        };
        let number = |name: &str| {
            let text = read(&clock, name)?;
            let number = text.parse::<f64>().ok().filter(|number| *number > 0.0);
            number.ok_or_else(|| format!("{}: {name}: not a frequency: {text}", clock.display()))
        };
        let factor = number("cpuinfo_max_freq")? / number("cpuinfo_min_freq")?;
        let cap = clock.join("scaling_max_freq");
        let found = read(&clock, "scaling_max_freq")?;
        let lowest = read(&clock, "cpuinfo_min_freq")?;
        std::fs::write(&cap, &lowest)
            .map_err(|error| format!("{}: {error}\n  = run it as root, or {fix}", cap.display()))?;
        Ok(SlowCores {
            cap,
            found,
            cores: slow,
            factor,
        })
    }

    /// Keeps this process, and what it starts from now on, away from the slow cores.
    ///
    /// # Errors
    ///
    /// If no other core is allowed.
    pub fn leave(&self) -> Result<(), String> {
        let failed = |error: rustix::io::Errno| format!("--slow cpufreq: no fast core: {error}");
        let mut fast = rustix::thread::sched_getaffinity(None).map_err(failed)?;
        for core in &self.cores {
            fast.unset(*core);
        }
        sched_setaffinity(None, &fast).map_err(failed)
    }

    /// The slow cores, for a server that is to be slow.
    pub fn set(&self) -> CpuSet {
        let mut set = CpuSet::new();
        for core in &self.cores {
            set.set(*core);
        }
        set
    }
}

impl Drop for SlowCores {
    fn drop(&mut self) {
        if let Err(error) = std::fs::write(&self.cap, &self.found) {
            let cap = self.cap.display();
            eprintln!("warning: {cap}: {error}; it was {} kHz", self.found);
        }
    }
}

fn read(folder: &Path, name: &str) -> Result<String, String> {
    let path = folder.join(name);
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text.trim().to_string())
}

/// The numbers in a list with spaces.
fn cores(list: &str) -> Vec<usize> {
    list.split_whitespace()
        .filter_map(|core| core.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(folder: &Path, number: usize) {
        let clock = folder.join(format!("policy{number}"));
        std::fs::create_dir(&clock).unwrap();
        for (name, value) in [
            ("related_cpus", format!("{number}\n")),
            ("cpuinfo_max_freq", "2200000\n".to_string()),
            ("cpuinfo_min_freq", "1000000\n".to_string()),
            ("scaling_max_freq", "2100000\n".to_string()),
        ] {
            std::fs::write(clock.join(name), value).unwrap();
        }
    }

    #[test]
    fn the_cap_that_was_found_is_restored() {
        let folder = tempfile::tempdir().unwrap();
        assert!(SlowCores::cap(&folder.path().join("none")).is_err());
        clock(folder.path(), 0);
        let error = SlowCores::cap(folder.path()).unwrap_err();
        assert!(error.contains("not two clocks"), "{error}");
        clock(folder.path(), 1);
        let last = folder.path().join("policy1");
        let slow = SlowCores::cap(folder.path()).unwrap();
        assert_eq!(read(&last, "scaling_max_freq").unwrap(), "1000000");
        assert!((slow.factor - 2.2).abs() < 1e-9 && slow.cores == [1]);
        drop(slow);
        assert_eq!(read(&last, "scaling_max_freq").unwrap(), "2100000");
    }
}
