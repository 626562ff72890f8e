//! The mark of an agent that has joined, for probes of whoever keeps it running.

use std::path::Path;

use crate::terminal::say;

/// The file that says that the agent has joined: it is removed when this is dropped.
pub struct Mark<'a>(&'a Path);

impl Mark<'_> {
    /// Removes the mark of an earlier agent that was killed, and makes sure that there can be one.
    ///
    /// # Errors
    ///
    /// If there can't, with the fix.
    pub fn check(path: &Path) -> Result<(), String> {
        let made = std::fs::write(path, "").and_then(|()| std::fs::remove_file(path));
        made.map_err(|error| {
            format!(
                "--joined {}: {error}\n  = name a file in a folder that the agent may write",
                path.display()
            )
        })
    }

    /// Says that the agent has joined.
    pub fn set(path: &Path) -> Mark<'_> {
        if let Err(error) = std::fs::write(path, "") {
            say(&format!("warning: --joined {}: {error}\n", path.display()));
        }
        Mark(path)
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        // Whoever has removed it knows.
        let _ = std::fs::remove_file(self.0);
    }
}
