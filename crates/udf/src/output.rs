//! What a function writes to its standard output and error: line by line to this process's standard error.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

/// The longest line: what follows is another one.
const LINE_BYTES_MAX: usize = 8 << 10;

/// Bytes read at a time.
const READ_BYTES: usize = 4 << 10;

/// The lines that are kept to say why a worker could not start: Python names the error in the last one.
const LINES_KEPT: usize = 3;

/// How long the last lines of a process that has ended are waited for. They are in the pipe already, so this
/// only ends if nobody reads the standard error, or if a process that the worker has left behind writes
/// without pause.
const PATIENCE: Duration = Duration::from_secs(10);

/// The output of a worker.
pub struct Output {
    last: Arc<Mutex<VecDeque<String>>>,
    shown: Receiver<()>,
}

impl Output {
    /// Forwards what comes out of a pipe, until it is closed. `process` is readable once the worker has
    /// ended.
    pub fn forward(function: &str, pipe: PipeReader, process: OwnedFd) -> io::Result<Output> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let last = Arc::new(Mutex::new(VecDeque::with_capacity(LINES_KEPT)));
        let (end, shown) = sync_channel(0);
        let forwarder = Forwarder {
            place: format!("function '{function}'"),
            pipe,
            line: Vec::new(),
            kept: Arc::clone(&last),
        };
        let thread = thread::Builder::new().name("function output".to_string());
        thread.spawn(move || forwarder.run(process, end))?;
        Ok(Output { last, shown })
    }

    /// Waits until everything is shown that a process wrote which has ended.
    pub fn finish(&self) {
        let _ = self.shown.recv_timeout(PATIENCE);
    }

    /// The last lines of a process that has ended.
    pub fn last(&self) -> String {
        self.finish();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.make_contiguous().join("\n")
    }
}

struct Forwarder {
    place: String,
    pipe: PipeReader,
    /// The beginning of a line.
    line: Vec<u8>,
    kept: Arc<Mutex<VecDeque<String>>>,
}

impl Forwarder {
    /// Forwards until the pipe is closed. `shown` is dropped once everything is shown that the worker wrote:
    /// processes that it has left behind may hold the pipe open for longer.
    fn run(mut self, process: OwnedFd, shown: SyncSender<()>) {
        let mut worker = Some((process, shown));
        loop {
            let mut ends = vec![PollFd::new(&self.pipe, PollFlags::IN)];
            ends.extend(
                worker
                    .iter()
                    .map(|(process, _)| PollFd::new(process, PollFlags::IN)),
            );
            // If it is interrupted, nothing is there to read.
            let _ = poll(&mut ends, None);
            // Looked at before the pipe is read: what the worker wrote before it ended is in there.
            let has_ended = ends.get(1).is_some_and(|end| !end.revents().is_empty());
            drop(ends);
            let is_open = self.read();
            if has_ended || !is_open {
                self.show();
                worker = None;
            }
            if !is_open {
                return;
            }
        }
    }

    /// Reads what is there; returns whether the pipe is open.
    fn read(&mut self) -> bool {
        let mut bytes = [0; READ_BYTES];
        loop {
            match self.pipe.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => self.add(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match byte {
                b'\n' => self.end_line(),
                byte => self.line.push(byte),
            }
            if self.line.len() == LINE_BYTES_MAX {
                self.end_line();
            }
        }
    }

    /// Shows a line without an end.
    fn show(&mut self) {
        if !self.line.is_empty() {
            self.end_line();
        }
    }

    fn end_line(&mut self) {
        let text = String::from_utf8_lossy(&self.line);
        let text = text.trim_end_matches('\r').to_string();
        self.line.clear();
        // There may be no standard error.
        let _ = writeln!(io::stderr(), "{}: {text}", self.place);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == LINES_KEPT {
            kept.pop_front();
        }
        kept.push_back(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worker has ended, and another process holds its pipe open: its last line is there all the same,
    /// however late the thread that forwards it gets to run.
    #[test]
    fn regression_the_last_line_is_shown_when_the_worker_has_ended() {
        let (pipe, mut input) = io::pipe().unwrap();
        let (process, alive) = io::pipe().unwrap();
        input.write_all(b"first\r\nlast").unwrap();
        drop(alive);
        let output = Output::forward("f", pipe, process.into()).unwrap();
        assert_eq!(output.last(), "first\nlast");
        input.write_all(b" of a child\n").unwrap();
        drop(input);
    }

    #[test]
    fn a_line_that_is_too_long_is_cut() {
        let (pipe, mut input) = io::pipe().unwrap();
        let (process, alive) = io::pipe().unwrap();
        let output = Output::forward("f", pipe, process.into()).unwrap();
        input.write_all(&[b'x'; LINE_BYTES_MAX + 1]).unwrap();
        drop((input, alive));
        let lengths = output.last();
        let lengths = lengths.lines().map(str::len).collect::<Vec<usize>>();
        assert_eq!(lengths, [LINE_BYTES_MAX, 1]);
    }
}
