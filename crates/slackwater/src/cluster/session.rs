//! A session between an orchestrator and an agent: messages both ways over one connection.
//!
//! Messages are JSON, in the frames of [`slackwater_secure::frames`]. What comes with one, counters or state
//! that moves, follows in pieces, and a message without any may come between two pieces of another one: beats
//! don't wait for state.
//!
//! Invariants:
//! - Sending never blocks: messages wait in a queue of bounded size, and a session whose queue is full is
//!   ended. State waits in its memory file.
//! - What is received is bounded, and anything unexpected ends the session.
//!
//! Shutdown: [`Session::end`] makes both threads return.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use slackwater_secure::Stream;
pub use slackwater_secure::frames::Beside;
use slackwater_secure::frames::{Frames, Kind, frame};

use super::traffic::Traffic;

/// The most bytes of messages that wait, apart from state: a few hundred times what all processes of a host
/// say in a second, and far more than any SQL text needs.
pub const QUEUED_BYTES_MAX: usize = 64 << 20;

/// The kernel breaks a silent session so long after its other end has gone: 5 s + 3 × 2 s. Nothing wakes up
/// for it here.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_COUNT: u32 = 3;

/// What a piece has at most: at 100 MB/s another message waits 3 ms for it.
const PIECE_BYTES: usize = 256 << 10;

/// One end of a session.
pub struct Session {
    stream: Arc<Stream>,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// What goes both ways.
    pub traffic: Traffic,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Vec<u8>, Beside)>,
    /// Messages that may be sent between two pieces of another.
    urgent: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Why nothing is sent any more.
    ended: Option<String>,
}

impl Session {
    /// A session over a connection, and the thread that writes to it.
    ///
    /// # Errors
    ///
    /// If the thread can't be started, or the connection has ended.
    pub fn new(stream: Stream, name: &str) -> io::Result<Arc<Session>> {
        stream.keep_alive(KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_COUNT)?;
        let session = Arc::new(Session {
            stream: Arc::new(stream),
            queue: Mutex::default(),
            changed: Condvar::new(),
            traffic: Traffic::default(),
        });
        let writing = Arc::clone(&session);
        std::thread::Builder::new()
            .name(format!("to {name}"))
            .spawn(move || {
                if let Err(error) = writing.write_all() {
                    writing.end(&error.to_string());
                }
            })?;
        Ok(session)
    }

    /// Queues a message.
    pub fn send(&self, message: &impl Serialize, beside: Beside) {
        let json = encoded(message);
        let mut queue = self.queue();
        if queue.ended.is_some() {
            return;
        }
        queue.bytes += json.len();
        if let Beside::Bytes(bytes) = &beside {
            queue.bytes += bytes.len();
        }
        queue.waiting.push_back((json, beside));
        self.queued(queue);
    }

    /// Queues a message that may overtake others.
    pub fn send_urgent(&self, message: &impl Serialize) {
        let json = encoded(message);
        let mut queue = self.queue();
        if queue.ended.is_some() {
            return;
        }
        queue.bytes += json.len();
        queue.urgent.push_back(json);
        self.queued(queue);
    }

    fn queued(&self, queue: MutexGuard<'_, Queue>) {
        let is_full = queue.bytes > QUEUED_BYTES_MAX;
        drop(queue);
        match is_full {
            true => self.end(&format!(
                "does not read what it is sent: more than {} MiB are waiting",
                QUEUED_BYTES_MAX >> 20
            )),
            false => self.changed.notify_one(),
        }
    }

    /// Ends the session: nothing is sent or received any more. The first reason is kept.
    pub fn end(&self, reason: &str) {
        let mut queue = self.queue();
        queue.ended.get_or_insert_with(|| reason.to_string());
        queue.waiting.clear();
        queue.urgent.clear();
        drop(queue);
        self.changed.notify_one();
        self.stream.shutdown();
    }

    /// Ends the session once everything that waits is sent.
    pub fn finish(&self) {
        self.queue().ended.get_or_insert_default();
        self.changed.notify_one();
    }

    /// Why the session was ended by this side.
    pub fn ended(&self) -> Option<String> {
        self.queue()
            .ended
            .clone()
            .filter(|reason| !reason.is_empty())
    }

    /// The connection.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no thread panics under it")
    }

    fn write_all(&self) -> io::Result<()> {
        while let Some((kind, json, beside)) = self.next() {
            self.write(kind, &json)?;
            match beside {
                Beside::Nothing => {}
                Beside::Bytes(bytes) => {
                    let mut pieces = bytes.chunks(PIECE_BYTES).peekable();
                    if pieces.peek().is_none() {
                        self.write(Kind::Last, &[])?;
                    }
                    while let Some(piece) = pieces.next() {
                        self.write_piece(piece, pieces.peek().is_none())?;
                    }
                }
                Beside::File(file) => self.write_file(&File::from(file))?,
            }
        }
        self.stream.shutdown();
        Ok(())
    }

    /// The next message to send; `None` at the end.
    fn next(&self) -> Option<(Kind, Vec<u8>, Beside)> {
        let mut queue = self.queue();
        loop {
            if let Some(json) = queue.urgent.pop_front() {
                queue.bytes -= json.len();
                return Some((Kind::Message, json, Beside::Nothing));
            }
            if let Some((json, beside)) = queue.waiting.pop_front() {
                queue.bytes -= json.len();
                let kind = match &beside {
                    Beside::Nothing => Kind::Message,
                    Beside::Bytes(bytes) => {
                        queue.bytes -= bytes.len();
                        Kind::WithBytes
                    }
                    Beside::File(_) => Kind::WithFile,
                };
                return Some((kind, json, beside));
            }
            if queue.ended.is_some() {
                return None;
            }
            let waited = self.changed.wait(queue);
            queue = waited.expect("no thread panics under it");
        }
    }

    fn write_file(&self, file: &File) -> io::Result<()> {
        let length = file.metadata()?.len();
        let mut piece = vec![0; PIECE_BYTES];
        let mut at = 0;
        loop {
            let left = usize::try_from(length - at).unwrap_or(usize::MAX);
            let part = &mut piece[..left.min(PIECE_BYTES)];
            file.read_exact_at(part, at)?;
            at += part.len() as u64;
            self.write_piece(part, at == length)?;
            if at == length {
                return Ok(());
            }
        }
    }

    fn write_piece(&self, piece: &[u8], is_last: bool) -> io::Result<()> {
        self.write(if is_last { Kind::Last } else { Kind::Piece }, piece)?;
        loop {
            let urgent = {
                let mut queue = self.queue();
                let urgent = queue.urgent.pop_front();
                queue.bytes -= urgent.as_ref().map_or(0, Vec::len);
                urgent
            };
            match urgent {
                Some(json) => self.write(Kind::Message, &json)?,
                None => return Ok(()),
            }
        }
    }

    fn write(&self, kind: Kind, payload: &[u8]) -> io::Result<()> {
        // A queue is smaller than 2^32 bytes, and so is a piece.
        let frame = frame(kind, payload);
        self.traffic.sent(frame.len());
        (&mut &*self.stream).write_all(&frame)
    }
}

fn encoded(message: &impl Serialize) -> Vec<u8> {
    // Maps have strings as keys, and no field refuses to be written.
    serde_json::to_vec(message).expect("messages are plain data")
}

/// Receives the messages of the other end.
pub struct Receiver<R>(Frames<R>);

impl<R: Read> Receiver<R> {
    /// Receives from a connection.
    pub fn new(from: R) -> Receiver<R> {
        Receiver(Frames::new(from))
    }

    /// The next message and what came with it; `None` if the other end has gone between two messages.
    ///
    /// # Errors
    ///
    /// If the connection breaks, or something else comes.
    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<(T, Beside)>> {
        let Some((json, beside)) = self.0.receive()? else {
            return Ok(None);
        };
        let message = serde_json::from_slice(&json).map_err(io::Error::other)?;
        Ok(Some((message, beside)))
    }
}

#[cfg(test)]
pub mod tests;
