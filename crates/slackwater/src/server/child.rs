//! The process of a job, as the server sees it.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::protocol::{Begin, FromJob, ToJob};
use crate::hosts::channel::Channel;
use crate::service::SOCKET_VARIABLE;

/// The longest line of a log, in bytes: longer ones are cut into several.
const LINE_BYTES_MAX: usize = 16 << 10;

/// A started process.
pub struct Child {
    /// What it is told.
    pub channel: Channel,
    process: u32,
    pidfd: OwnedFd,
    /// Until it is split off.
    started: Option<std::process::Child>,
}

/// What a process says.
pub enum Said {
    /// A message.
    Message(FromJob),
    /// A line of its log.
    Line(String),
}

/// The listening side.
pub struct Listener {
    channel: Channel,
    child: std::process::Child,
    /// What it writes to standard error; `None` after the end.
    output: Option<std::process::ChildStderr>,
    /// The bytes of a line without its end.
    line: Vec<u8>,
    lines: VecDeque<String>,
    is_over: bool,
}

/// Only one process is started at a time: its end of the socket is inherited by all that start meanwhile.
static STARTING: Mutex<()> = Mutex::new(());

impl Child {
    /// Starts a process and tells it what to run.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn start(begin: &Begin) -> io::Result<Child> {
        let (channel, theirs) = Channel::pair()?;
        let starting = STARTING.lock();
        // Without the close-on-exec flag.
        let inherited = rustix::io::dup(&theirs)?;
        let started = Command::new("/proc/self/exe")
            .arg0("slackwater")
            .args(["job", "--control", &inherited.as_raw_fd().to_string()])
            // Shown in the list of processes.
            .args(["--name", &begin.name])
            .env_remove(SOCKET_VARIABLE)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            // Ctrl-C in the server's terminal is for the server.
            .process_group(0)
            .spawn();
        drop(inherited);
        drop(starting);
        let started = started?;
        let process = started.id();
        let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process has no number"))?;
        let child = Child {
            pidfd: pidfd_open(pid, PidfdFlags::empty())?,
            channel,
            process,
            started: Some(started),
        };
        let begin = ToJob::Begin(Box::new(begin.clone()));
        child.channel.send(&begin, &[])?;
        Ok(child)
    }

    /// The number of the process.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Kills the process at once.
    pub fn kill(&self) {
        // It may be gone already.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// The side that listens, and the side that tells.
    ///
    /// # Errors
    ///
    /// If there are too many open files.
    pub fn split(mut self) -> io::Result<(Listener, Child)> {
        let channel = self.channel.try_clone()?;
        let mut child = self
            .started
            .take()
            .ok_or_else(|| io::Error::other("split twice"))?;
        let output = child.stderr.take();
        let listener = Listener {
            channel,
            child,
            output,
            line: Vec::new(),
            lines: VecDeque::new(),
            is_over: false,
        };
        Ok((listener, self))
    }
}

impl Drop for Child {
    /// A process that nobody listens to would not be missed.
    fn drop(&mut self) {
        if let Some(mut started) = self.started.take() {
            let _ = started.kill();
            let _ = started.wait();
        }
    }
}

impl Listener {
    /// What the process says next; `None` when it is gone.
    pub fn next(&mut self) -> Option<Said> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(Said::Line(line));
            }
            if self.is_over {
                return None;
            }
            let mut looked = vec![PollFd::new(&self.channel, PollFlags::IN)];
            looked.extend(
                self.output
                    .as_ref()
                    .map(|output| PollFd::new(output, PollFlags::IN)),
            );
            match poll(&mut looked, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
            let has = |at: usize| {
                looked
                    .get(at)
                    .is_some_and(|looked| !looked.revents().is_empty())
            };
            let (is_told, is_written) = (has(0), has(1));
            if is_written {
                self.read();
            } else if is_told {
                match self.channel.receive::<FromJob>() {
                    Ok(Some((message, _))) => return Some(Said::Message(message)),
                    // What it wrote last is already there.
                    Ok(None) | Err(_) => {
                        self.read_rest();
                        self.is_over = true;
                    }
                }
            }
        }
    }

    /// Reads what was written.
    fn read(&mut self) {
        let mut bytes = [0; 4096];
        let read = self.output.as_mut().map(|output| output.read(&mut bytes));
        match read {
            Some(Ok(0) | Err(_)) | None => {
                self.output = None;
                self.end_line();
            }
            Some(Ok(read)) => {
                for &byte in &bytes[..read] {
                    match byte {
                        b'\n' => self.end_line(),
                        byte => self.line.push(byte),
                    }
                    if self.line.len() >= LINE_BYTES_MAX {
                        self.end_line();
                    }
                }
            }
        }
    }

    fn read_rest(&mut self) {
        while let Some(output) = &self.output {
            let mut looked = [PollFd::new(output, PollFlags::IN)];
            let at_once = rustix::event::Timespec::default();
            match poll(&mut looked, Some(&at_once)) {
                Ok(1..) => self.read(),
                _ => break,
            }
        }
        self.end_line();
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&self.line);
        let line = line.trim_end();
        if !line.is_empty() {
            self.lines.push_back(line.to_string());
        }
        self.line.clear();
    }

    /// Waits for the process, which has closed its socket, and returns how it ended.
    pub fn wait(mut self) -> String {
        match self.child.wait() {
            Ok(status) => how(status),
            Err(error) => format!("ended; how is not known: {error}"),
        }
    }
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (_, Some(9)) => {
            "was killed (signal 9; the system does that when memory runs out)".to_string()
        }
        (_, Some(signal)) => format!("died of signal {signal}"),
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, None) => "ended".to_string(),
    }
}
