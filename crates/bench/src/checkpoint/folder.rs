//! The folder of a point, with the query's state and output.

use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use super::processes::children;

/// A folder that is removed when it is dropped, or when SIGINT or SIGTERM ends the command;
/// then the queries that use it are killed before.
pub struct Folder {
    path: PathBuf,
    _signals: slackwater::signals::Guard,
}

impl Folder {
    /// A new folder in `parent`.
    ///
    /// # Errors
    ///
    /// When it can't be made.
    pub fn make(parent: &Path) -> Result<Folder, String> {
        let path = parent.join(format!("slackwater-checkpoint-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| {
            let place = path.display();
            format!("{place}: {error}\n  = --folder DIR names another place")
        })?;
        let removed = path.clone();
        let watching = slackwater::signals::watch(move || {
            // A query that goes on would make the folder again.
            kill_children();
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

    /// Where the query keeps its checkpoints.
    pub fn state(&self) -> PathBuf {
        self.path.join("state")
    }

    /// Where its rows go.
    pub fn output(&self) -> PathBuf {
        self.path.join("out")
    }

    /// What the query says of itself.
    pub fn report(&self) -> PathBuf {
        self.path.join("report.json")
    }
}

/// Kills all that this process has started: queries, whose own processes end with them.
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
