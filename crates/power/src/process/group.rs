//! Processes of a unit of systemd, or of a control group, as the kernel's files list them.

use std::fs;
use std::path::{Path, PathBuf};

/// The most processes of a group that are looked at: a server and its children.
const PROCESSES_MAX: usize = 64;
/// How deep a unit's folder lies at most: controller, slices of a user, slices of slices.
const DEPTH_MAX: usize = 6;
/// The most folders that are looked through for a unit.
const FOLDERS_MAX: usize = 10_000;

/// The processes of a unit; else why there are none.
pub fn of_unit(sysfs: &Path, unit: &str) -> Result<Vec<u32>, String> {
    let root = sysfs.join("fs/cgroup");
    match find(&root, unit) {
        Some(folder) => listed(&folder).ok_or_else(|| format!("unit {unit} has no process")),
        None => Err(format!(
            "unit {unit} is not running: systemctl status {unit}"
        )),
    }
}

/// The processes of a control group, by its path below the root; else why there are none.
pub fn of_cgroup(sysfs: &Path, path: &str) -> Result<Vec<u32>, String> {
    let root = sysfs.join("fs/cgroup");
    let path_below = path.trim_start_matches('/');
    // The second is where version 1 has systemd's own hierarchy.
    let folders = [root.join(path_below), root.join("systemd").join(path_below)];
    let folder = folders.iter().find(|folder| folder.is_dir());
    let folder = folder.ok_or_else(|| format!("there is no control group {path}"))?;
    listed(folder).ok_or_else(|| format!("control group {path} has no process"))
}

/// A unit's folder, the nearest one to the root.
fn find(root: &Path, unit: &str) -> Option<PathBuf> {
    let mut level = vec![root.to_path_buf()];
    let mut looked = 0;
    for _ in 0..DEPTH_MAX {
        let mut next = Vec::new();
        for folder in level {
            let here = folder.join(unit);
            if here.join("cgroup.procs").exists() {
                return Some(here);
            }
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            next.extend(folders.map(|entry| entry.path()));
            looked += 1;
            if looked >= FOLDERS_MAX {
                return None;
            }
        }
        level = next;
    }
    None
}

fn listed(folder: &Path) -> Option<Vec<u32>> {
    let text = fs::read_to_string(folder.join("cgroup.procs")).ok()?;
    // 0 is a process of a namespace that can't be seen from here.
    let pids = text.lines().filter_map(|line| line.trim().parse().ok());
    let pids = pids.filter(|pid| *pid > 1).take(PROCESSES_MAX);
    Some(pids.collect::<Vec<u32>>()).filter(|pids| !pids.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_units_and_groups_are_listed() {
        let root = tempfile::tempdir().unwrap();
        let folder = |path: &str| root.path().join("fs/cgroup").join(path);
        let unit = folder("system.slice/system-redis.slice/redis@1.service");
        fs::create_dir_all(&unit).unwrap();
        fs::write(unit.join("cgroup.procs"), "4711\n4712\n0\n").unwrap();
        let empty = folder("systemd/machine.slice/empty.scope");
        fs::create_dir_all(&empty).unwrap();
        fs::write(empty.join("cgroup.procs"), "").unwrap();
        let of = |name| of_unit(root.path(), name);
        assert_eq!(of("redis@1.service"), Ok(vec![4_711, 4_712]));
        assert!(of("empty.scope").unwrap_err().contains("has no process"));
        assert!(of("other.service").unwrap_err().contains("is not running"));
        let of = |path| of_cgroup(root.path(), path);
        let path = "/system.slice/system-redis.slice/redis@1.service";
        assert_eq!(of(path), Ok(vec![4_711, 4_712]));
        let wrong = of("/machine.slice/empty.scope").unwrap_err();
        assert!(wrong.contains("has no process"), "{wrong}");
        assert!(of("/missing").unwrap_err().contains("there is no"));
    }
}
