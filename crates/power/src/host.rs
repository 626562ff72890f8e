//! What this host can do, without changing anything.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;

use slackwater_control::power::Cpu;
use slackwater_control::power::assign::Lists;

use crate::config::Settings;
use crate::cores::{self, Cores};
use crate::hand::clocks::Clocks;
use crate::process;
use crate::system;
use crate::units;

/// The cores that may be set: those that are listed as slow and those that share their clocks, or all but
/// those that are listed as fast.
pub fn may_set(cores: &Cores, lists: &Lists) -> BTreeSet<Cpu> {
    let all = cores.cores.iter().map(|described| described.core.cpu);
    let slow = match lists.slow.is_empty() {
        true => all.collect::<BTreeSet<Cpu>>(),
        false => {
            let listed = lists.slow.iter().filter_map(|cpu| cores.get(*cpu));
            listed
                .flat_map(|described| described.core.domain.iter().copied())
                .collect()
        }
    };
    slow.difference(&lists.fast).copied().collect()
}

/// A page about this host: clocks, energy, batching, pinning; and what would be done.
pub fn check(sysfs: &Path, settings: &Settings) -> String {
    let cores = Cores::read(sysfs);
    let may_set = may_set(&cores, &settings.lists);
    let clocks = Clocks::open(&cores, &may_set);
    let mut text = String::new();
    let settable = may_set
        .iter()
        .filter(|cpu| !clocks.refused.contains_key(cpu));
    let settable = settable.copied().collect::<BTreeSet<Cpu>>();
    let _ = match settable.is_empty() {
        true => writeln!(text, "frequency: no core's frequency can be set"),
        false => writeln!(
            text,
            "frequency: cores {} can be slowed (real)",
            units::cpus_text(&settable)
        ),
    };
    for described in &cores.cores {
        let cpu = described.core.cpu;
        let _ = match clocks.refused.get(&cpu) {
            Some(why) if described.fixed.is_none() => writeln!(text, "  cpu{cpu} {why}"),
            _ => writeln!(text, "  {}", cores::line(described)),
        };
    }
    let packages = cores::packages(sysfs);
    let _ = match packages.as_slice() {
        [] => writeln!(
            text,
            "energy: no RAPL: savings are modelled, and never in joules"
        ),
        _ => {
            let readable = packages
                .iter()
                .filter(|folder| std::fs::read(folder.join("energy_uj")).is_ok());
            let (all, readable) = (packages.len(), readable.count());
            writeln!(
                text,
                "energy: RAPL of {all} packages, {readable} of them readable for this user"
            )
        }
    };
    let batching = match batching() {
        Ok(()) => match settings.limits.lag_ns {
            Some(lag_ns) => format!(
                "possible (real busy time), within a lag of {}",
                units::duration_text(lag_ns)
            ),
            None => "possible (real busy time), but no lag is given: say --lag 20ms".to_string(),
        },
        Err(why) => format!("not possible: {why}"),
    };
    let _ = writeln!(text, "batch: {batching}");
    let _ = writeln!(text, "pin: {}", pinning());
    let _ = writeln!(
        text,
        "quota, hint: not used: a quota is no slow core, and saves no energy"
    );
    text
}

/// Whether a connection of another process can be duplicated and its mark be set, as far as this process can
/// try that on itself.
fn batching() -> Result<(), String> {
    let tried = || -> std::io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        system::connection(stream.as_fd())?;
        let handle = process::handle(std::process::id());
        let handle =
            handle.ok_or_else(|| std::io::Error::other("pidfd_open is not there (Linux 5.3)"))?;
        use std::os::fd::AsRawFd;
        let copy = process::duplicate(&handle, stream.as_raw_fd() as u32)?;
        system::set_low_water_mark(copy.as_fd(), crate::hand::link::MARK)
    };
    tried().map_err(|error| format!("{error}: it takes pidfd_getfd, Linux 5.6"))?;
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    // CAP_SYS_PTRACE is number 19.
    match has_capability(19) {
        true => Ok(()),
        false => Err(
            "this user may duplicate connections of its own processes at most; it takes \
                      CAP_SYS_PTRACE"
                .to_string(),
        ),
    }
}

fn pinning() -> String {
    // CAP_SYS_NICE is number 23.
    match rustix::process::geteuid().is_root() || has_capability(23) {
        true => "possible (no energy of its own)".to_string(),
        false => "only processes of this user; others take CAP_SYS_NICE".to_string(),
    }
}

fn has_capability(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> number & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Given};
    use crate::cores::tests::tree;

    #[test]
    fn a_host_says_what_it_can_do() {
        let root = tempfile::tempdir().unwrap();
        let settings = config::read(&Given::default()).unwrap();
        let none = check(root.path(), &settings);
        assert!(none.contains("no core's frequency can be set"), "{none}");
        assert!(none.contains("never in joules"), "{none}");
        assert!(none.contains("no lag is given"), "{none}");
        tree(root.path(), 4, &[2, 3]);
        let some = check(root.path(), &settings);
        assert!(some.contains("cores 0-3 can be slowed"), "{some}");
        assert!(some.contains("cpu2: 1.00 GHz to 2.20 GHz"), "{some}");
    }

    #[test]
    fn only_cores_of_the_plan_may_be_set() {
        let root = tempfile::tempdir().unwrap();
        tree(root.path(), 6, &[2, 3]);
        let cores = Cores::read(root.path());
        let mut settings = config::read(&Given::default()).unwrap();
        assert_eq!(may_set(&cores, &settings.lists), (0..6).collect());
        settings.lists.fast = BTreeSet::from([0, 1]);
        assert_eq!(may_set(&cores, &settings.lists), (2..6).collect());
        settings.lists.slow = BTreeSet::from([3]);
        assert_eq!(may_set(&cores, &settings.lists), BTreeSet::from([2, 3]));
    }
}
