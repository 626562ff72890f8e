//! The query as a process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::lab::folder::Folder;
use crate::programs;

/// How long the query may take to end after its last row, and to recover.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Names of the files in a point's folder: the query's report, checkpoints and rows.
pub const REPORT: &str = "report.json";
pub const STATE: &str = "state";
pub const OUTPUT: &str = "out";

/// Interval between two checks whether the process has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A line of the query's standard error, and its time.
pub struct StderrLine {
    /// When the line arrived.
    pub at: Instant,
    /// The text of the line.
    pub line: String,
}

/// A running query, which is killed when this is dropped.
pub struct Running {
    child: Child,
    lines: Receiver<StderrLine>,
    /// All lines that were read so far.
    stderr: String,
}

impl Running {
    /// Starts the query `text`.
    ///
    /// # Errors
    ///
    /// If this program can't be started.
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
            // A process that has ended before reading it reports the reason on its standard error.
            let _ = pipe.write_all(text.as_bytes());
        }
        let (sender, lines) = channel();
        if let Some(pipe) = child.stderr.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    let at = Instant::now();
                    if sender.send(StderrLine { at, line }).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Running {
            child,
            lines,
            stderr: String::new(),
        })
    }

    /// The query's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of standard error, if there is one now.
    pub fn next_line(&mut self) -> Option<StderrLine> {
        let said = self.lines.try_recv().ok()?;
        self.stderr.push_str(&said.line);
        self.stderr.push('\n');
        Some(said)
    }

    /// Whether the query is still running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends the query; an error with the reason and all lines that it wrote.
    pub fn failed(&mut self, why: &str) -> String {
        let _ = self.child.kill();
        // The end of the process closes the pipe.
        while let Ok(said) = self.lines.recv_timeout(TIMEOUT) {
            self.stderr.push_str(&said.line);
            self.stderr.push('\n');
        }
        format!("{why}\n{}", self.stderr.trim_end())
    }

    /// Waits until the query ends, which must be without an error.
    pub fn finish(mut self) -> Result<(), String> {
        let until = Instant::now() + TIMEOUT;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(self.failed(&format!("the query failed: {status}"))),
                Ok(None) if Instant::now() < until => std::thread::sleep(POLL_INTERVAL),
                Ok(None) => return Err(self.failed("the query did not end")),
                Err(error) => return Err(self.failed(&error.to_string())),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process has ended, or it has to be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
