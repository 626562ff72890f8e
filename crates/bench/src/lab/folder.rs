//! The folder of what an experiment generates, which goes when the experiment ends.

use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use slackwater::report::count;

use super::processes::children;

/// What must stay free beside the files: the runs need some 100 MB, the machine the rest.
const SPARE_BYTES: u64 = 1 << 30;

/// `statfs`'s name for a file system in memory.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// A folder that is removed when it is dropped, or when SIGINT or SIGTERM ends the command; then the
/// processes that use it are killed first.
pub struct Folder {
    path: PathBuf,
    _signals: slackwater::signals::Guard,
}

/// What needs room.
pub struct Room<'a> {
    /// Bytes at most.
    pub bytes: u64,
    /// What it is, for messages: `5,000 records`.
    pub what: &'a str,
    /// The option for less of it.
    pub option: &'a str,
}

impl Folder {
    /// A new folder in `parent`.
    ///
    /// # Errors
    ///
    /// When it can't be made.
    pub fn make(parent: &Path) -> Result<Folder, String> {
        let path = parent.join(format!("slackwater-bench-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| {
            let place = path.display();
            format!("{place}: {error}\n  = --folder DIR names another place")
        })?;
        let removed = path.clone();
        let watching = slackwater::signals::watch(move || {
            // What goes on would make the folder again.
            kill_children();
            // Nothing to tell: the folder is all that would outlive the process.
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

    /// A new folder with room, in `parent` or where files are fastest.
    ///
    /// # Errors
    ///
    /// When there is too little room, or the folder can't be made.
    pub fn with_room(parent: Option<&Path>, room: &Room<'_>) -> Result<Folder, String> {
        let parent = parent.map_or_else(fastest, Path::to_path_buf);
        check_room(&parent, room)?;
        Folder::make(&parent)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of something in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Kills all that this process has started: their own processes end with them.
fn kill_children() {
    let children = children(std::process::id()).into_iter();
    for pid in children.filter_map(|pid| Pid::from_raw(pid as i32)) {
        // It may have come to its end just now.
        let _ = kill_process(pid, Signal::KILL);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("warning: {} stays behind: {error}", self.path.display());
        }
    }
}

/// In memory where possible.
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
    let fewer = format!("take fewer {option}, or another --folder");
    if free < needed {
        return Err(format!(
            "{shown}: {what} need up to {} MB, {} MB are free\n  = {fewer}",
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
            "{shown} is in memory: {what} need up to {} MB and {} MB to spare, {} MB are \
             available\n  = {fewer}",
            count(needed / 1_000_000),
            count(SPARE_BYTES / 1_000_000),
            count(memory / 1_000_000)
        ));
    }
    Ok(())
}

/// Memory that could be used without swapping, where the system says.
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
    fn files_that_do_not_fit_are_refused_before_they_are_made() {
        let parent = tempfile::tempdir().unwrap();
        let room = Room {
            bytes: u64::MAX,
            what: "records",
            option: "--rows",
        };
        let error = Folder::with_room(Some(parent.path()), &room).err().unwrap();
        assert!(error.contains("take fewer --rows"), "{error}");
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_system_says_how_much_memory_is_there() {
        assert!(available_memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn the_folder_goes_with_what_is_in_it() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::make(parent.path()).unwrap();
        let path = folder.path().to_path_buf();
        std::fs::write(folder.file("visits.csv"), "x").unwrap();
        drop(folder);
        assert!(!path.exists());
    }
}
