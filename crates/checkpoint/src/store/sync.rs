//! Files of a local directory: created only if none exists, synced before they are visible, and locked.

use std::fs::{File, TryLockError};
use std::io::{self, Error, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::staged::Staged;
use super::{Put, Store};
use crate::error::Result;

/// How long to wait for another run that is starting: it reads a few files, and writes one.
const BEGINNING_PATIENCE: Duration = Duration::from_secs(10);

/// How often to check whether it has started.
const BEGINNING_LOOK: Duration = Duration::from_millis(20);

/// Distinguishes files that one process writes at the same time.
static STAGED: AtomicU32 = AtomicU32::new(0);

impl Store {
    /// The result of creating the file of an object.
    pub(super) fn put_in(&self, directory: &Path, name: &str, put: io::Result<()>) -> Result<Put> {
        match put {
            Ok(()) => Ok(Put::Done),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                match directory.join(name).is_file() {
                    true => Ok(Put::Taken),
                    // A folder of the store is a file.
                    false => Err(self.failed_io(name, &error)),
                }
            }
            Err(error) => Err(self.failed_io(name, &error)),
        }
    }
}

/// Syncs the file `name` in `root`, and its entry in its folder.
pub(super) async fn file(root: PathBuf, name: &str) -> io::Result<()> {
    let path = root.join(name);
    in_background(move || {
        File::open(&path)?.sync_all()?;
        sync_folders(&root, &path)
    })
    .await
}

/// Writes the file `name` in `root` if none exists. It is synced before it gets its name, so a file that
/// exists after a power failure is complete.
pub(super) async fn put(root: PathBuf, name: &str, bytes: Vec<u8>) -> io::Result<()> {
    let path = root.join(name);
    in_background(move || {
        let staged = stage(&path, &bytes)?;
        let linked = std::fs::hard_link(&staged, &path);
        // If removing fails, the next sweep removes the file.
        drop(std::fs::remove_file(&staged));
        linked?;
        sync_folders(&root, &path)
    })
    .await
}

/// Gives the complete file `staged` the name `name` in `root`, if nothing has it.
pub(super) async fn publish(root: PathBuf, name: &str, mut staged: Staged) -> io::Result<()> {
    let path = root.join(name);
    in_background(move || {
        staged.finish()?;
        std::fs::hard_link(staged.path(), &path)?;
        drop(staged);
        sync_folders(&root, &path)
    })
    .await
}

/// A file for the object `name` in `root`.
pub(super) fn staged(root: &Path, name: &str) -> Staged {
    Staged::new(staged_path(&root.join(name)))
}

/// As [`put`], but replaces an existing file.
pub(super) async fn replace(root: PathBuf, name: &str, bytes: Vec<u8>) -> io::Result<()> {
    let path = root.join(name);
    in_background(move || {
        let staged = stage(&path, &bytes)?;
        std::fs::rename(&staged, &path).inspect_err(|_| drop(std::fs::remove_file(&staged)))?;
        sync_folders(&root, &path)
    })
    .await
}

/// With a runtime, its threads wait for the disk, so that several objects can be written at once.
async fn in_background(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime
            .spawn_blocking(work)
            .await
            .map_err(Error::other)
            .flatten(),
        Err(_) => work(),
    }
}

/// A path next to `path` that no object has.
fn staged_path(path: &Path) -> PathBuf {
    let number = STAGED.fetch_add(1, Ordering::Relaxed);
    let mut staged = path.as_os_str().to_owned();
    staged.push(format!("#{}{number:010}", std::process::id()));
    PathBuf::from(staged)
}

/// Writes a file next to `path`, under a name that no object has.
fn stage(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let staged = staged_path(path);
    let create = || {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        File::create(&staged)
    };
    let written = create().and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    match written {
        Ok(()) => Ok(staged),
        Err(error) => {
            drop(std::fs::remove_file(&staged));
            Err(error)
        }
    }
}

fn sync_folders(root: &Path, path: &Path) -> io::Result<()> {
    for folder in path.ancestors().skip(1) {
        File::open(folder)?.sync_all()?;
        if folder == root {
            break;
        }
    }
    Ok(())
}

/// A lock on the directory: only its owner may start an incarnation.
#[derive(Debug)]
pub struct Beginning {
    /// The directory. The kernel releases its lock when the process dies.
    _locked: File,
}

impl Beginning {
    pub(super) fn of(directory: &Path) -> io::Result<Beginning> {
        let file = File::open(directory)?;
        let until = Instant::now() + BEGINNING_PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Beginning { _locked: file }),
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(BEGINNING_LOOK);
                }
                Err(TryLockError::WouldBlock) => return Err(ErrorKind::WouldBlock.into()),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }
}
