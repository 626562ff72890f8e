//! A folder for generated files, which is removed when the experiment ends.

use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use slackwater::report::count;

use super::processes::children;

/// Free space to leave in addition to the files: the runs need some 100 MB, the machine the rest.
const SPARE_BYTES: u64 = 1 << 30;

/// The type of a file system in memory, as `statfs` reports it.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// A folder that is removed when this is dropped, or when SIGINT or SIGTERM ends the command; in that
/// case the processes that use it are killed first.
pub struct Folder {
    path: PathBuf,
    _signals: slackwater::signals::Guard,
}

/// The space that is needed.
pub struct Room<'a> {
    /// Number of bytes, at most.
    pub bytes: u64,
    /// The name of the contents in messages, such as `5,000 records`.
    pub what: &'a str,
    /// The option with which users reduce it.
    pub option: &'a str,
}

impl Folder {
    /// Creates a folder in `parent`.
    ///
    /// # Errors
    ///
    /// If it can't be created.
    pub fn make(parent: &Path) -> Result<Folder, String> {
        let path = parent.join(format!("slackwater-bench-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| {
            let place = path.display();
            format!("{place}: {error}\n  = use --folder DIR for another place")
        })?;
        let removed = path.clone();
        let watching = slackwater::signals::watch(move || {
            // A process that continues would create the folder again.
            kill_children();
            // Errors are not reported: the folder is all that would remain after the process.
            let _ = std::fs::remove_dir_all(&removed);
            std::process::exit(130);
        });
        match watching {
            Ok(signals) => Ok(Folder {
                path,
                _signals: signals,
            }),
            Err(error) => {
                let _ = std::fs::remove_dir_all(&path);
                Err(format!("signals: {error}"))
            }
        }
    }

    /// Creates a folder with enough space, in `parent` or where files are fastest.
    ///
    /// # Errors
    ///
    /// If there is too little space, or the folder can't be created.
    pub fn with_room(parent: Option<&Path>, room: &Room<'_>) -> Result<Folder, String> {
        let parent = parent.map_or_else(fastest, Path::to_path_buf);
        check_room(&parent, room)?;
        Folder::make(&parent)
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Kills all processes that this one has started; the processes started by those end with them.
fn kill_children() {
    let children = children(std::process::id()).into_iter();
    for pid in children.filter_map(|pid| Pid::from_raw(pid as i32)) {
        // The process may have ended in the meantime.
        let _ = kill_process(pid, Signal::KILL);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("warning: can't remove {}: {error}", self.path.display());
        }
    }
}

/// In memory if possible.
fn fastest() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        return memory.to_path_buf();
    }
    std::env::temp_dir()
}

fn check_room(folder: &Path, room: &Room<'_>) -> Result<(), String> {
    let Room {
        bytes: needed,
        what,
        option,
    } = *room;
    let shown = folder.display();
    let system = rustix::fs::statfs(folder).map_err(|error| format!("{shown}: {error}"))?;
    let free = system.f_bavail.saturating_mul(system.f_bsize as u64);
    let fewer = format!("use fewer {option}, or another --folder");
    if free < needed {
        return Err(format!(
            "{shown}: {what} need up to {} MB; {} MB are free\n  = {fewer}",
            count(needed / 1_000_000),
            count(free / 1_000_000)
        ));
    }
    let memory = available_memory_bytes();
    if system.f_type as i64 == TMPFS_MAGIC
        && let Some(memory) = memory
        && memory < needed.saturating_add(SPARE_BYTES)
    {
        return Err(format!(
            "{shown} is in memory: {what} need up to {} MB and {} MB to spare; {} MB are \
             available\n  = {fewer}",
            count(needed / 1_000_000),
            count(SPARE_BYTES / 1_000_000),
            count(memory / 1_000_000)
        ));
    }
    Ok(())
}

/// Memory that could be used without swapping, if the system reports it.
fn available_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes = line.split_whitespace().next()?.parse::<u64>().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_do_not_fit_are_refused_before_they_are_written() {
        let parent = tempfile::tempdir().unwrap();
        let room = Room {
            bytes: u64::MAX,
            what: "records",
            option: "--rows",
        };
        let error = Folder::with_room(Some(parent.path()), &room).err().unwrap();
        assert!(error.contains("use fewer --rows"), "{error}");
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_system_reports_available_memory() {
        assert!(available_memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn the_folder_is_removed_with_its_files() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::make(parent.path()).unwrap();
        let path = folder.path().to_path_buf();
        std::fs::write(folder.file("visits.csv"), "x").unwrap();
        drop(folder);
        assert!(!path.exists());
    }
}
