//! Files of a local directory: put where none is, on the disk before anybody sees them, and locked.

use std::fs::{File, TryLockError};
use std::io::{self, Error, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long it is waited for another run that is about to begin: it reads a few files, and writes one.
const BEGINNING_PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether it has begun.
const BEGINNING_LOOK: Duration = Duration::from_millis(20);

/// Tells files apart that one process writes at the same time.
static STAGED: AtomicU32 = AtomicU32::new(0);

/// Brings the file `name` in `root`, and its name in its folder, to the disk.
pub(super) async fn file(root: PathBuf, name: &str) -> io::Result<()> {
    let path = root.join(name);
    in_background(move || {
        File::open(&path)?.sync_all()?;
        sync_folders(&root, &path)
    })
    .await
}

/// Puts the file `name` in `root` where there is none. It is on the disk before it has its name: what is
/// there after a power failure is whole.
pub(super) async fn put(root: PathBuf, name: &str, bytes: Vec<u8>) -> io::Result<()> {
    let path = root.join(name);
    in_background(move || {
        let staged = stage(&path, &bytes)?;
        let linked = std::fs::hard_link(&staged, &path);
        // One that stays is removed by the next sweep.
        drop(std::fs::remove_file(&staged));
        linked?;
        sync_folders(&root, &path)
    })
    .await
}

/// The same where there may be one, which is replaced.
pub(super) async fn replace(root: PathBuf, name: &str, bytes: Vec<u8>) -> io::Result<()> {
    let path = root.join(name);
    in_background(move || {
        let staged = stage(&path, &bytes)?;
        std::fs::rename(&staged, &path).inspect_err(|_| drop(std::fs::remove_file(&staged)))?;
        sync_folders(&root, &path)
    })
    .await
}

/// Where there is a runtime its own threads wait for the disk, so that several objects can.
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

/// Writes a file beside `path`, under a name that is no object's.
fn stage(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let number = STAGED.fetch_add(1, Ordering::Relaxed);
    let mut staged = path.as_os_str().to_owned();
    staged.push(format!("#{}{number:010}", std::process::id()));
    let staged = PathBuf::from(staged);
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

/// Whoever holds it is about to begin; nobody else is.
#[derive(Debug)]
pub struct Beginning {
    /// The directory. The kernel lets go of its lock when the process dies.
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
