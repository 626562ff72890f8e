//! The query as a process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::lab::folder::Folder;
use crate::programs;

/// How long it may take to end behind its last row, and to come back.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What a query leaves in the folder of its point: its report, checkpoints and rows.
pub const REPORT: &str = "report.json";
pub const STATE: &str = "state";
pub const OUTPUT: &str = "out";

/// How often an ended process is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// What it says on its standard error, and when.
pub struct Said {
    /// When.
    pub at: Instant,
    /// The line.
    pub line: String,
}

/// A query that runs; dropped, it is killed.
pub struct Running {
    child: Child,
    lines: Receiver<Said>,
    /// All that it has said and that somebody has heard.
    heard: String,
}

impl Running {
    /// Starts it, with `text` as the query.
    ///
    /// # Errors
    ///
    /// When this program can't be started.
    pub fn start(
        text: &str,
        folder: &Folder,
        is_saved: bool,
        arguments: &[&str],
    ) -> Result<Running, String> {
        let program = programs::engine()?;
        let mut command = Command::new(&program);
        command.args(["run", "-", "--quiet", "--report"]);
        command.arg(folder.file(REPORT));
        if is_saved {
            command.arg("--state").arg(folder.file(STATE));
        }
        let pipes = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let failed = |error: std::io::Error| format!("{}: {error}", program.display());
        let mut child = pipes.spawn().map_err(failed)?;
        if let Some(mut pipe) = child.stdin.take() {
            // One that has ended before reading says why on its standard error.
            let _ = pipe.write_all(text.as_bytes());
        }
        let (sender, lines) = channel();
        if let Some(pipe) = child.stderr.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    let at = Instant::now();
                    if sender.send(Said { at, line }).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Running {
            child,
            lines,
            heard: String::new(),
        })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next thing that it says, if it says something at once.
    pub fn hear(&mut self) -> Option<Said> {
        let said = self.lines.try_recv().ok()?;
        self.heard.push_str(&said.line);
        self.heard.push('\n');
        Some(said)
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Why it has to be given up: with what it has said.
    pub fn failed(&mut self, why: &str) -> String {
        let _ = self.child.kill();
        // Its end closes the pipe.
        while let Ok(said) = self.lines.recv_timeout(PATIENCE) {
            self.heard.push_str(&said.line);
            self.heard.push('\n');
        }
        format!("{why}\n{}", self.heard.trim_end())
    }

    /// Waits for its end, which must be a good one.
    pub fn finish(mut self) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(self.failed(&format!("the query failed: {status}"))),
                Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
                Ok(None) => return Err(self.failed("the query did not end")),
                Err(error) => return Err(self.failed(&error.to_string())),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, or something is wrong with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
