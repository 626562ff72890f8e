//! Bringing files of a local directory to the disk.

use std::fs::File;
use std::io::{self, Error};
use std::path::{Path, PathBuf};

/// The file `name` in `root`, and its name in its folder.
pub(super) async fn file(root: PathBuf, name: &str) -> io::Result<()> {
    let path = root.join(name);
    let work = move || sync_all(&root, &path);
    // Where there is a runtime its own threads wait for the disk, so that several objects can.
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime
            .spawn_blocking(work)
            .await
            .map_err(Error::other)
            .flatten(),
        Err(_) => work(),
    }
}

fn sync_all(root: &Path, path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    for folder in path.ancestors().skip(1) {
        File::open(folder)?.sync_all()?;
        if folder == root {
            break;
        }
    }
    Ok(())
}
