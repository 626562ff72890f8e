//! What makes a server slow: a preloaded library (`crates/bench/dilate`), or the cores on which it runs.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::cpufreq::SlowCores;

/// The library's file name.
const LIBRARY: &str = "libslackwater_dilate.so";

/// What the library reads.
const VARIABLE: &str = "SLACKWATER_DILATE";
const THREADS: &str = "SLACKWATER_DILATE_THREADS";

/// A slow-down of unmodified programs.
#[derive(Debug)]
pub struct Dilation {
    means: Means,
    /// How many times as long an instruction takes.
    pub factor: f64,
}

#[derive(Debug)]
enum Means {
    Library(PathBuf),
    Cores(SlowCores),
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
        let means = Means::Library(library);
        Ok(Dilation { means, factor })
    }

    /// Slow servers run on these cores, and this process leaves them.
    ///
    /// # Errors
    ///
    /// If there is no other core.
    pub fn by(cores: SlowCores) -> Result<Dilation, String> {
        cores.leave()?;
        Ok(Dilation {
            factor: cores.factor,
            means: Means::Cores(cores),
        })
    }

    /// Makes some threads of a program slow that is yet to be started, by their names. By cores that can't be
    /// done from outside: then the whole program is slow, and [`Dilation::slow_and_fast_core`] says where
    /// others can run.
    pub fn apply_to(&self, command: &mut Command, threads: &str) {
        self.apply(command);
        if let Means::Library(_) = self.means {
            command.env(THREADS, threads);
        }
    }

    /// A slow core and a fast one, if it is cores that are slow.
    pub fn slow_and_fast_core(&self) -> Option<(usize, usize)> {
        let Means::Cores(cores) = &self.means else {
            return None;
        };
        let (set, all) = (cores.set(), rustix::thread::CpuSet::MAX_CPU);
        let slow = (0..all).find(|core| set.is_set(*core))?;
        let fast = (0..all).find(|core| !set.is_set(*core))?;
        Some((slow, fast))
    }

    /// Makes a program slow that is yet to be started.
    pub fn apply(&self, command: &mut Command) {
        match &self.means {
            Means::Library(library) => {
                command.env("LD_PRELOAD", library);
                command.env(VARIABLE, format!("{:.4}", self.factor));
            }
            Means::Cores(cores) => {
                let set = cores.set();
                let move_there = move || Ok(rustix::thread::sched_setaffinity(None, &set)?);
                // SAFETY: between fork and exec only one system call is made, on a plain value.
                unsafe { command.pre_exec(move_there) };
            }
        }
    }

    /// The means in words.
    pub fn describe(&self) -> String {
        match &self.means {
            Means::Library(_) => format!("dilation by {:.2} (no cpufreq)", self.factor),
            Means::Cores(_) => format!("cpufreq, {:.2} times slower", self.factor),
        }
    }
}
