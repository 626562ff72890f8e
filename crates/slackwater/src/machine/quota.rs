//! The CPU quota of a container, from the kernel's control groups (version 2).

use std::fs;
use std::path::Path;

/// The folder of control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// The CPU quota of this process in cores, if it is limited.
pub fn quota_cores() -> Option<f64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    read(Path::new(GROUPS), &own)
}

/// The tightest limit of a group and its parents. `own` is the content of `/proc/self/cgroup`, `groups` the
/// folder where the groups are mounted. A container sees its own group as the root.
fn read(groups: &Path, own: &str) -> Option<f64> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let path = path.trim().trim_start_matches('/');
    let folders = Path::new(path).ancestors();
    let limits = folders.filter_map(|folder| {
        let text = fs::read_to_string(groups.join(folder).join("cpu.max")).ok()?;
        parse(&text)
    });
    limits.reduce(f64::min)
}

/// Parses a limit: `max 100000` means none, `150000 100000` means 1.5 cores.
fn parse(text: &str) -> Option<f64> {
    let mut fields = text.split_whitespace();
    let quota_us = fields.next()?.parse::<f64>().ok()?;
    let period_us = fields.next()?.parse::<f64>().ok()?;
    let cores = quota_us / period_us;
    (cores.is_finite() && cores > 0.0).then_some(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_group_counts() {
        let groups = tempfile::tempdir().unwrap();
        let inner = groups.path().join("outer/inner");
        fs::create_dir_all(&inner).unwrap();
        let write = |path: &Path, text: &str| fs::write(path.join("cpu.max"), text).unwrap();
        let quota = |own: &str| read(groups.path(), own);
        assert_eq!(quota("0::/outer/inner\n"), None);
        write(&inner, "max 100000\n");
        assert_eq!(quota("0::/outer/inner\n"), None);
        write(&groups.path().join("outer"), "150000 100000\n");
        assert_eq!(quota("1:cpu:/\n0::/outer/inner\n"), Some(1.5));
        write(&inner, "50000 100000\n");
        assert_eq!(quota("0::/outer/inner\n"), Some(0.5));
        // A file that can't be parsed limits nothing; version 1 is not supported.
        write(&inner, "some 0\n");
        assert_eq!(quota("0::/outer/inner\n"), Some(1.5));
        assert_eq!(quota("4:cpu:/outer\n"), None);
        assert_eq!(parse("5 0"), None);
    }
}
