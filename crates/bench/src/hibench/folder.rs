//! The folder of generated files: in memory where possible, and gone when the command ends.

use std::path::{Path, PathBuf};

use slackwater::report::count;

/// Longest generated record with its line end, rounded up: the longest string of each table and
/// the widest number of each column come to 233 bytes.
const RECORD_BYTES_MAX: u64 = 240;

/// What must stay free beside the file: the runs need some 100 MB, the machine the rest.
const SPARE_BYTES: u64 = 1 << 30;

/// `statfs`'s name for a file system in memory.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// A folder that is removed when it is dropped, or when SIGINT or SIGTERM ends the command.
pub struct Folder {
    path: PathBuf,
    _signals: slackwater::signals::Guard,
}

impl Folder {
    /// A new folder with room for `rows` records, in `parent` or where files are fastest.
    pub fn make(parent: Option<&Path>, rows: u64) -> Result<Folder, String> {
        let parent = parent.map_or_else(fastest, Path::to_path_buf);
        let bytes = rows.saturating_mul(RECORD_BYTES_MAX);
        Folder::with_room(
            &parent,
            bytes,
            &format!("{} records", count(rows)),
            "--rows",
        )
    }

    /// A new folder with room for so many bytes of `what`, of which `fewer` is the option for fewer.
    pub fn with_room(parent: &Path, bytes: u64, what: &str, fewer: &str) -> Result<Folder, String> {
        check_room(parent, bytes, what, fewer)?;
        let path = parent.join(format!("slackwater-bench-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| {
            format!(
                "{}: {error}\n  = --folder DIR names another place",
                path.display()
            )
        })?;
        let removed = path.clone();
        let watching = slackwater::signals::watch(move || {
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("warning: {} stays behind: {error}", self.path.display());
        }
    }
}

fn fastest() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        return memory.to_path_buf();
    }
    std::env::temp_dir()
}

fn check_room(folder: &Path, needed: u64, what: &str, fewer: &str) -> Result<(), String> {
    let shown = folder.display();
    let system = rustix::fs::statfs(folder).map_err(|error| format!("{shown}: {error}"))?;
    let free = system.f_bavail.saturating_mul(system.f_bsize as u64);
    let fewer = format!("take fewer {fewer}, or another --folder");
    if free < needed {
        return Err(format!(
            "{shown}: {what} need up to {} MB, {} MB are free\n  = {fewer}",
            count(needed / 1_000_000),
            count(free / 1_000_000)
        ));
    }
    let memory = slackwater::machine::available_memory_bytes();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_does_not_fit_is_refused_before_it_is_made() {
        let parent = tempfile::tempdir().unwrap();
        let error = Folder::make(Some(parent.path()), u64::MAX).err().unwrap();
        assert!(error.contains("take fewer --rows"), "{error}");
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_folder_goes_with_what_is_in_it() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::make(Some(parent.path()), 1).unwrap();
        let path = folder.path().to_path_buf();
        std::fs::write(path.join("visits.csv"), "x").unwrap();
        drop(folder);
        assert!(!path.exists());
    }
}
