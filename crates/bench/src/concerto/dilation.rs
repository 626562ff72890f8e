//! The preloaded library that makes a server slow, see `crates/bench/dilate`.

use std::path::PathBuf;
use std::process::Command;

/// The library's file name.
const LIBRARY: &str = "libslackwater_dilate.so";

/// What the library reads.
const VARIABLE: &str = "SLACKWATER_DILATE";

/// A slow-down of unmodified programs.
#[derive(Clone, Debug, PartialEq)]
pub struct Dilation {
    library: PathBuf,
    /// How many times as much an instruction costs.
    pub factor: f64,
}

impl Dilation {
    /// Finds the library next to this program, or in the folder above it (tests).
    ///
    /// # Errors
    ///
    /// If the library was not built.
    pub fn of(factor: f64) -> Result<Dilation, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let folders = program.ancestors().skip(1).take(2);
        let library = folders
            .map(|folder| folder.join(LIBRARY))
            .find(|file| file.is_file());
        let library = library.ok_or_else(|| {
            format!(
                "{LIBRARY} is not next to {}\n  = build it with cargo build -p slackwater-dilate (with \
                 --release as this program), or use --slow none",
                program.display()
            )
        })?;
        Ok(Dilation { library, factor })
    }

    /// Makes a program slow that is yet to be started.
    pub fn apply(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library);
        command.env(VARIABLE, format!("{:.4}", self.factor));
    }
}
