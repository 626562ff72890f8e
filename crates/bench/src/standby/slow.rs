//! Storage that is slow: a control group limits what its processes write to a disk.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The controller of version 1, and the unified hierarchy of version 2.
const BLKIO: &str = "/sys/fs/cgroup/blkio";
const UNIFIED: &str = "/sys/fs/cgroup";

/// A control group with slow storage. Dropping it removes the group, once its processes have ended.
pub struct SlowStorage {
    group: PathBuf,
}

impl SlowStorage {
    /// A group whose processes write at most so many bytes per second to the disk that holds `folder`;
    /// `None` where that is not possible.
    pub fn new(folder: &Path, bytes_per_s: u64) -> Option<SlowStorage> {
        let disk = disk(folder)?;
        let name = format!("slackwater-bench-{}", std::process::id());
        let (group, file, limit) = match Path::new(BLKIO).is_dir() {
            true => (
                Path::new(BLKIO).join(name),
                "blkio.throttle.write_bps_device",
                format!("{disk} {bytes_per_s}"),
            ),
            false => (
                Path::new(UNIFIED).join(name),
                "io.max",
                format!("{disk} wbps={bytes_per_s}"),
            ),
        };
        fs::create_dir_all(&group).ok()?;
        let slow = SlowStorage { group };
        fs::write(slow.group.join(file), limit).ok()?;
        Some(slow)
    }

    /// Moves a process into the group.
    ///
    /// # Errors
    ///
    /// If it has ended, or may not be moved.
    pub fn add(&self, pid: u32) -> Result<(), String> {
        let file = self.group.join("cgroup.procs");
        fs::write(&file, pid.to_string()).map_err(|error| format!("{}: {error}", file.display()))
    }
}

impl Drop for SlowStorage {
    fn drop(&mut self) {
        // It has no processes by then; if one is left, the group stays, and limits nothing else.
        drop(fs::remove_dir(&self.group));
    }
}

/// The disk that holds a folder, as `major:minor`: of a partition, the disk that it is on.
fn disk(folder: &Path) -> Option<String> {
    let device = fs::metadata(folder).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let entry = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let of_disk = match entry.join("partition").exists() {
        true => fs::canonicalize(&entry).ok()?.parent()?.join("dev"),
        false => entry.join("dev"),
    };
    Some(fs::read_to_string(of_disk).ok()?.trim().to_string())
}
