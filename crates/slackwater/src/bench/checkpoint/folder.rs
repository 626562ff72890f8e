//! The folder of a point, with the query's state and output.

use std::path::{Path, PathBuf};

/// A folder that is removed when it is dropped, or when SIGINT or SIGTERM ends the command.
pub struct Folder {
    path: PathBuf,
    _signals: crate::signals::Guard,
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
        let watching = crate::signals::watch(move || {
            // The query gets the signal, too, and may still write: it is the terminal's.
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

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("warning: {} stays behind: {error}", self.path.display());
        }
    }
}
