//! What a function writes to its standard output and error: line by line to this process's standard error.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The longest line: what follows is another one.
const LINE_BYTES_MAX: u64 = 8 << 10;

/// The lines that are kept to say why a worker could not start: Python names the error in the last one.
const LINES_KEPT: usize = 3;

/// How long the last lines of a process that has ended are waited for. If it has left others that hold the
/// pipe open, they don't come.
const PATIENCE: Duration = Duration::from_millis(500);

/// The output of a worker.
pub struct Output {
    last: Arc<Mutex<VecDeque<String>>>,
    ended: Receiver<()>,
}

impl Output {
    /// Forwards what comes out of a pipe, until it is closed.
    pub fn forward(function: &str, pipe: PipeReader) -> io::Result<Output> {
        let last = Arc::new(Mutex::new(VecDeque::with_capacity(LINES_KEPT)));
        let (kept, place) = (Arc::clone(&last), format!("function '{function}'"));
        let (end, ended) = sync_channel(0);
        let thread = thread::Builder::new().name("function output".to_string());
        thread.spawn(move || {
            forward(&place, pipe, &kept);
            drop(end);
        })?;
        Ok(Output { last, ended })
    }

    /// The last lines of a process that has ended.
    pub fn last(&self) -> String {
        let _ = self.ended.recv_timeout(PATIENCE);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.make_contiguous().join("\n")
    }
}

fn forward(place: &str, pipe: PipeReader, kept: &Mutex<VecDeque<String>>) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        match pipe
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)
        {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        // There may be no standard error.
        let _ = writeln!(io::stderr(), "{place}: {text}");
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == LINES_KEPT {
            kept.pop_front();
        }
        kept.push_back(text.to_string());
    }
}
