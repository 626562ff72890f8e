//! A program that is started, waited for, and counted by the kernel.

use std::fs::File;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may run.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// How often a program that runs is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// The end of what a program has said, in error messages.
const SAID_BYTES_MAX: usize = 4_000;

/// A running program, which is killed when this is dropped.
pub struct Process {
    child: Child,
    name: String,
    log: PathBuf,
}

/// What processes have used from their starts to their ends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// CPU time, in user space and in the kernel.
    pub cpu_s: f64,
    /// Voluntary context switches.
    pub wake_ups: u64,
}

impl std::ops::Add for Used {
    type Output = Used;

    fn add(self, other: Used) -> Used {
        Used {
            cpu_s: self.cpu_s + other.cpu_s,
            wake_ups: self.wake_ups + other.wake_ups,
        }
    }
}

impl Used {
    /// What all processes that this one has started and waited for have used, and those that they have
    /// waited for.
    fn by_children() -> Used {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the pointer is to memory of this size, all of which may be zero.
        let usage = unsafe {
            // It fails only for another pointer or another first argument.
            libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
            usage.assume_init()
        };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Used {
            cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
            wake_ups: u64::try_from(usage.ru_nvcsw).unwrap_or(0),
        }
    }

    fn since(self, begin: Used) -> Used {
        Used {
            cpu_s: (self.cpu_s - begin.cpu_s).max(0.0),
            wake_ups: self.wake_ups.saturating_sub(begin.wake_ups),
        }
    }
}

impl Process {
    /// Starts a program. What it says is kept in a file of this folder.
    ///
    /// # Errors
    ///
    /// If it can't be started.
    pub fn start(mut command: Command, folder: &Path, name: &str) -> Result<Process, String> {
        let log = folder.join(format!("{name}.log"));
        let failed = |error: std::io::Error| format!("{}: {error}", log.display());
        let out = File::create(&log).map_err(failed)?;
        let err = out.try_clone().map_err(failed)?;
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        let program = command.get_program().display().to_string();
        Ok(Process {
            child: child.map_err(|error| format!("{program}: {error}"))?,
            name: name.to_string(),
            log,
        })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub fn is_over(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end, and says what it and the processes that it has waited for have used.
    ///
    /// # Errors
    ///
    /// If it fails, or has not ended in time; with what it said.
    pub fn finish(mut self, by: Instant) -> Result<Used, String> {
        let begin = Used::by_children();
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < by => std::thread::sleep(LOOK),
                Ok(None) => return Err(self.failed("it has not ended in time")),
                Err(error) => return Err(self.failed(&error.to_string())),
            }
        };
        match status.success() {
            true => Ok(Used::by_children().since(begin)),
            false => Err(self.failed(&status.to_string())),
        }
    }

    /// Kills it, and says what it has used.
    ///
    /// # Errors
    ///
    /// If it had ended before.
    pub fn kill(mut self) -> Result<Used, String> {
        if self.is_over() {
            return Err(self.failed("it has ended too early"));
        }
        let begin = Used::by_children();
        let ended = self.child.kill().and_then(|()| self.child.wait());
        ended.map_err(|error| self.failed(&error.to_string()))?;
        Ok(Used::by_children().since(begin))
    }

    /// An error message with what the program said last.
    pub fn failed(&self, what: &str) -> String {
        let said = std::fs::read(&self.log).unwrap_or_default();
        let said = &said[said.len().saturating_sub(SAID_BYTES_MAX)..];
        let said = String::from_utf8_lossy(said);
        format!("{}: {what}\n{}", self.name, said.trim_end())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended, or the experiment has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, folder: &Path, name: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start(command, folder, name).unwrap()
    }

    #[test]
    fn the_processes_of_a_program_are_counted_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let busy = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done";
        let nested = format!("sh -c '{busy}'; sleep 0.01");
        let used = shell(&nested, folder.path(), "busy").finish(Instant::now() + PATIENCE);
        let used = used.unwrap();
        assert!(used.cpu_s > 0.0 && used.wake_ups > 0, "{used:?}");
        assert_eq!(used.since(used), Used::default());
    }

    #[test]
    fn errors_contain_what_the_program_said() {
        let folder = tempfile::tempdir().unwrap();
        let failed = shell("echo no such table >&2; exit 3", folder.path(), "h2");
        let error = failed.finish(Instant::now() + PATIENCE).unwrap_err();
        assert!(
            error.contains("h2: exit status: 3\nno such table"),
            "{error}"
        );
        let slow = shell("sleep 60", folder.path(), "h3");
        let error = slow.finish(Instant::now()).unwrap_err();
        assert!(error.contains("h3: it has not ended in time"), "{error}");
        let mut over = shell("exit 0", folder.path(), "h4");
        while !over.is_over() {
            std::thread::sleep(LOOK);
        }
        assert!(
            over.kill()
                .unwrap_err()
                .contains("h4: it has ended too early")
        );
    }
}
