//! Cores and their clocks as Linux describes them in files, and the files by which they are slowed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use slackwater_control::power::{Core, Cpu};
use slackwater_control::topology::parse_list;

use crate::units;

/// The folder of cores, below the root of sysfs.
const CPUS: &str = "devices/system/cpu";
/// The folder of NUMA nodes, below the root of sysfs.
const NODES: &str = "devices/system/node";
/// The most frequencies of a core that are read.
const STEPS_MAX: usize = 256;

/// A host's cores, with the reason why one can't be slowed.
#[derive(Debug, Clone, PartialEq)]
pub struct Cores {
    /// Online cores, by their numbers.
    pub cores: Vec<Described>,
}

/// A core and what its files say.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    /// What decisions need of it.
    pub core: Core,
    /// The file that caps the frequency, if there is one.
    pub cap: Option<PathBuf>,
    /// The file of the energy preference, if there is one.
    pub preference: Option<PathBuf>,
    /// The driver.
    pub driver: Option<String>,
    /// The governor.
    pub governor: Option<String>,
    /// Why its frequency can't be set, if it can't.
    pub fixed: Option<String>,
}

impl Cores {
    /// Reads them below `sysfs`, which is `/sys` or a tree of the same form.
    pub fn read(sysfs: &Path) -> Self {
        let folder = sysfs.join(CPUS);
        let online = list(&folder.join("online")).unwrap_or_default();
        let cores = online.iter().map(|&cpu| describe(sysfs, &folder, cpu));
        Self {
            cores: cores.collect(),
        }
    }

    /// A core by its number.
    pub fn get(&self, cpu: Cpu) -> Option<&Described> {
        let at = self
            .cores
            .binary_search_by_key(&cpu, |described| described.core.cpu);
        at.ok().map(|at| &self.cores[at])
    }

    /// Whether any core's frequency can be set.
    pub fn any_clock(&self) -> bool {
        self.cores
            .iter()
            .any(|described| described.core.khz.is_some())
    }
}

fn describe(sysfs: &Path, folder: &Path, cpu: Cpu) -> Described {
    let own = folder.join(format!("cpu{cpu}"));
    let clock = own.join("cpufreq");
    let khz = |name: &str| number(&clock.join(name));
    let cap = clock.join("scaling_max_freq");
    let (lowest, highest) = (khz("cpuinfo_min_freq"), khz("cpuinfo_max_freq"));
    // Whoever limited a core before has a reason: it is never made faster than that.
    let highest = match (highest, number(&cap)) {
        (Some(highest), Some(limit)) => Some(highest.min(limit)),
        (highest, limit) => highest.or(limit),
    };
    let (range, fixed) = match (clock.is_dir(), lowest, highest) {
        (false, _, _) => (
            None,
            Some("has no cpufreq: the host or its hypervisor sets the clock".to_string()),
        ),
        (true, Some(lowest), Some(highest)) if lowest < highest => (Some((lowest, highest)), None),
        (true, Some(lowest), Some(highest)) => {
            let what = format!("has no frequencies between {lowest} and {highest} kHz");
            (None, Some(what))
        }
        (true, _, _) => (
            None,
            Some("has no cpuinfo_min_freq and cpuinfo_max_freq".to_string()),
        ),
    };
    let mut domain = BTreeSet::from([cpu]);
    for file in [
        clock.join("related_cpus"),
        clock.join("freqdomain_cpus"),
        own.join("topology/thread_siblings_list"),
    ] {
        domain.extend(list(&file).unwrap_or_default());
    }
    let steps = text(&clock.join("scaling_available_frequencies")).unwrap_or_default();
    let steps = steps.split_whitespace().take(STEPS_MAX);
    let mut steps_khz = steps
        .filter_map(|step| step.parse().ok())
        .collect::<Vec<u32>>();
    steps_khz.sort_unstable();
    if let Some((lowest, highest)) = range {
        steps_khz.retain(|khz| (lowest..=highest).contains(khz));
    }
    let preference = clock.join("energy_performance_preference");
    Described {
        core: Core {
            cpu,
            khz: range,
            steps_khz,
            domain,
            node: node(sysfs, cpu),
        },
        cap: range.map(|_| canonical(cap)),
        preference: preference.exists().then(|| canonical(preference)),
        driver: text(&clock.join("scaling_driver")),
        governor: text(&clock.join("scaling_governor")),
        fixed,
    }
}

/// Cores of one policy reach the same file by several paths; it is changed, and undone, once.
fn canonical(path: PathBuf) -> PathBuf {
    fs::canonicalize(&path).unwrap_or(path)
}

fn node(sysfs: &Path, cpu: Cpu) -> u32 {
    let nodes = list(&sysfs.join(NODES).join("online")).unwrap_or_default();
    let has = |node: &Cpu| {
        let cpus = list(&sysfs.join(NODES).join(format!("node{node}/cpulist")));
        cpus.unwrap_or_default().contains(&cpu)
    };
    nodes.into_iter().find(has).unwrap_or(0)
}

/// A file's text without the newline; none if it is missing or empty.
pub fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_string())
}

fn number(path: &Path) -> Option<u32> {
    text(path)?.parse().ok()
}

/// Some files separate cores by commas and ranges, some by spaces.
fn list(path: &Path) -> Option<BTreeSet<Cpu>> {
    let text = text(path)?;
    let mut cpus = BTreeSet::new();
    for part in text.split_whitespace() {
        cpus.extend(
            parse_list(part)
                .ok()?
                .into_iter()
                .filter_map(|cpu| Cpu::try_from(cpu).ok()),
        );
    }
    Some(cpus)
}

/// Which cores are online, as the host says it: another text is another set of cores.
pub fn online(sysfs: &Path) -> String {
    text(&sysfs.join(CPUS).join("online")).unwrap_or_default()
}

/// The frequency at which a core runs, by what the kernel measures; none if it only says what was asked for.
pub fn measured_khz(sysfs: &Path, cpu: Cpu) -> Option<u32> {
    let clock = sysfs.join(CPUS).join(format!("cpu{cpu}/cpufreq"));
    number(&clock.join("cpuinfo_avg_freq")).or_else(|| number(&clock.join("scaling_cur_freq")))
}

/// Where the host's energy can be read: the folders of powercap's packages.
pub fn packages(sysfs: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(sysfs.join("class/powercap")) else {
        return Vec::new();
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut packages = paths
        .filter(|path| text(&path.join("name")).is_some_and(|name| name.starts_with("package")))
        .filter(|path| path.join("energy_uj").exists())
        .take(PACKAGES_MAX)
        .collect::<Vec<PathBuf>>();
    packages.sort();
    packages
}

/// The most packages whose energy is read.
const PACKAGES_MAX: usize = 16;

/// What a core is called in messages.
pub fn named(cpu: Cpu) -> String {
    format!("cpu{cpu}")
}

/// One line for people about a core's clock.
pub fn line(described: &Described) -> String {
    let core = &described.core;
    let name = named(core.cpu);
    match (&described.fixed, core.khz) {
        (None, Some((lowest, highest))) => format!(
            "{name}: {} to {}, driver {}, governor {}, shares its clock with {}",
            units::frequency_text(lowest),
            units::frequency_text(highest),
            described.driver.as_deref().unwrap_or("unknown"),
            described.governor.as_deref().unwrap_or("unknown"),
            match core.domain.len() {
                1 => "no other core".to_string(),
                _ => units::cpus_text(core.domain.iter().filter(|cpu| **cpu != core.cpu)),
            }
        ),
        (why, _) => format!("{name} {}", why.as_deref().unwrap_or("can't be set")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A tree of files for `cpus` cores, each with a clock from 1.0 to 2.2 GHz; those of `shared` have one.
    pub fn tree(root: &Path, cpus: Cpu, shared: &[Cpu]) {
        let folder = root.join(CPUS);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("online"), format!("0-{}\n", cpus - 1)).unwrap();
        for cpu in 0..cpus {
            let clock = folder.join(format!("cpu{cpu}/cpufreq"));
            if let Some(first) = shared
                .first()
                .filter(|first| shared.contains(&cpu) && cpu != **first)
            {
                fs::create_dir_all(clock.parent().unwrap()).unwrap();
                std::os::unix::fs::symlink(folder.join(format!("cpu{first}/cpufreq")), clock)
                    .unwrap();
                continue;
            }
            fs::create_dir_all(&clock).unwrap();
            let related = match shared.contains(&cpu) {
                true => shared
                    .iter()
                    .map(Cpu::to_string)
                    .collect::<Vec<String>>()
                    .join(" "),
                false => cpu.to_string(),
            };
            for (name, value) in [
                ("cpuinfo_min_freq", "1000000"),
                ("cpuinfo_max_freq", "2200000"),
                ("scaling_max_freq", "2200000"),
                ("scaling_min_freq", "1000000"),
                ("scaling_cur_freq", "2200000"),
                ("scaling_driver", "acpi-cpufreq"),
                ("scaling_governor", "performance"),
                (
                    "scaling_available_frequencies",
                    "2200000 1800000 1400000 1000000",
                ),
                ("energy_performance_preference", "balance_performance"),
                ("related_cpus", &related),
            ] {
                fs::write(clock.join(name), format!("{value}\n")).unwrap();
            }
        }
    }

    #[test]
    fn cores_that_share_a_clock_are_one_file() {
        let root = tempfile::tempdir().unwrap();
        tree(root.path(), 4, &[2, 3]);
        let cores = Cores::read(root.path());
        let caps = cores
            .cores
            .iter()
            .map(|described| described.cap.clone().unwrap());
        assert_eq!(caps.collect::<BTreeSet<PathBuf>>().len(), 3);
        let core = &cores.get(3).unwrap().core;
        assert_eq!(core.domain, BTreeSet::from([2, 3]));
        assert_eq!(core.khz, Some((1_000_000, 2_200_000)));
        assert_eq!(core.steps_khz, [1_000_000, 1_400_000, 1_800_000, 2_200_000]);
        assert_eq!(cores.get(4), None);
        assert_eq!(measured_khz(root.path(), 1), Some(2_200_000));
    }

    #[test]
    fn a_core_without_a_clock_says_why() {
        let root = tempfile::tempdir().unwrap();
        tree(root.path(), 3, &[]);
        let clock = |cpu| root.path().join(CPUS).join(format!("cpu{cpu}/cpufreq"));
        fs::remove_dir_all(clock(1)).unwrap();
        fs::write(clock(2).join("cpuinfo_min_freq"), "garbage").unwrap();
        let cores = Cores::read(root.path());
        assert!(cores.any_clock());
        assert!(line(cores.get(1).unwrap()).contains("has no cpufreq"));
        assert!(line(cores.get(2).unwrap()).contains("has no cpuinfo_min_freq"));
        let none = Cores::read(&root.path().join("missing"));
        assert!(none.cores.is_empty() && !none.any_clock());
    }

    #[test]
    fn a_core_is_never_made_faster_than_it_was_found() {
        let root = tempfile::tempdir().unwrap();
        tree(root.path(), 1, &[]);
        let cap = root.path().join(CPUS).join("cpu0/cpufreq/scaling_max_freq");
        fs::write(cap, "1800000\n").unwrap();
        let core = Cores::read(root.path()).get(0).unwrap().core.clone();
        assert_eq!(core.khz, Some((1_000_000, 1_800_000)));
        assert_eq!(core.steps_khz, [1_000_000, 1_400_000, 1_800_000]);
    }
}
