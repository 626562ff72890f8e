//! What a user types while a query runs: `\why` says why nothing comes out.
//!
//! The terminal passes on whole lines. A thread waits for them, and for the end of the query, without a
//! time-out (I7).

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use super::Screen;
use crate::run::Asker;
use crate::terminal::print;

/// The answer to `\why` if no query runs.
pub(super) const NOTHING_RUNS: &str = "no query runs: type \\why while one does \
                                       (slackwater doctor shows the report of one that has ended)\n";

/// The answer if the query doesn't answer.
const NO_ANSWER: &str =
    "the query does not answer: it starts, ends, or a worker is stuck in a write\n";

/// The most lines that are kept for the shell while a query runs; further ones stay in the terminal.
const LINES_MAX: usize = 1_000;

/// The longest line that is taken; the rest of it is another line.
const LINE_BYTES_MAX: usize = 4_096;

/// Listens to the user while a query runs.
pub(super) struct Listening {
    /// Closing it ends the thread.
    end: Option<OwnedFd>,
    thread: Option<JoinHandle<Typed>>,
}

/// What was typed meanwhile and is not for the query: the shell's next lines.
#[derive(Default)]
pub(super) struct Typed {
    /// Lines that are no question to the query.
    pub(super) lines: Vec<String>,
    /// Whether Ctrl-D was typed after them.
    pub(super) is_end: bool,
}

impl Listening {
    /// Answers the questions of the user. Without descriptors or threads there are no answers, and the query
    /// runs all the same.
    pub(super) fn start(asker: &Asker, screen: Option<Arc<Screen>>) -> Listening {
        let asker = asker.clone();
        let started = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from);
        let started = started.and_then(|(ended, end)| {
            let listen = move || listen(&asker, screen.as_deref(), &ended);
            let thread = std::thread::Builder::new().name("keys".to_string());
            Ok((end, thread.spawn(listen)?))
        });
        match started {
            Ok((end, thread)) => Listening {
                end: Some(end),
                thread: Some(thread),
            },
            Err(_) => Listening {
                end: None,
                thread: None,
            },
        }
    }
}

impl Listening {
    /// Stops listening, and returns what was typed for the shell.
    pub(super) fn end(self) -> Typed {
        drop(self.end);
        // A thread that has panicked has heard nothing.
        let heard = self.thread.and_then(|thread| thread.join().ok());
        heard.unwrap_or_default()
    }
}

fn listen(asker: &Asker, screen: Option<&Screen>, ended: &OwnedFd) -> Typed {
    let mut input = io::stdin();
    let mut typed = Typed::default();
    loop {
        let line = match next_line(&mut input, ended) {
            Next::Line(line) => line,
            Next::Over => return typed,
            Next::End => {
                typed.is_end = true;
                return typed;
            }
        };
        let is_question = line.trim().trim_end_matches(';').trim_end() == "\\why";
        if !is_question {
            // It was pasted, or typed ahead.
            typed.lines.push(line.trim_end_matches('\n').to_string());
            if typed.lines.len() >= LINES_MAX {
                return typed;
            }
            continue;
        }
        let answer = asker.why().unwrap_or_else(|| NO_ANSWER.to_string());
        match screen {
            // A table is drawn again below the answer.
            Some(screen) => screen.between(|| print(&answer)),
            None => print(&answer),
        }
    }
}

enum Next {
    Line(String),
    /// The query has ended.
    Over,
    /// The input has ended.
    End,
}

fn next_line(input: &mut io::Stdin, ended: &OwnedFd) -> Next {
    loop {
        let mut both = [
            PollFd::new(&*input, PollFlags::IN),
            PollFd::new(ended, PollFlags::IN),
        ];
        match poll(&mut both, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return Next::Over,
        }
        let [typed, over] = both.map(|polled| !polled.revents().is_empty());
        if over {
            return Next::Over;
        }
        if typed {
            // The terminal has a whole line, and passes on no more than that.
            let mut bytes = vec![0; LINE_BYTES_MAX];
            return match input.read(&mut bytes) {
                Ok(0) | Err(_) => Next::End,
                Ok(length) => Next::Line(String::from_utf8_lossy(&bytes[..length]).into_owned()),
            };
        }
    }
}
