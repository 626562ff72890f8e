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

use serde::Serialize;
use serde::de::DeserializeOwned;
use slackwater_secure::Stream;
pub use slackwater_secure::frames::Beside;
use slackwater_secure::frames::{Frames, Kind, frame};

/// The most bytes of messages that wait, apart from state: a few hundred times what all processes of a host
/// say in a second, and far more than any SQL text needs.
pub const QUEUED_BYTES_MAX: usize = 64 << 20;

/// What a piece has at most: at 100 MB/s another message waits 3 ms for it.
const PIECE_BYTES: usize = 256 << 10;

/// One end of a session.
pub struct Session {
    stream: Arc<Stream>,
    queue: Mutex<Queue>,
    changed: Condvar,
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
    /// If the thread can't be started.
    pub fn new(stream: Stream, name: &str) -> io::Result<Arc<Session>> {
        let session = Arc::new(Session {
            stream: Arc::new(stream),
            queue: Mutex::default(),
            changed: Condvar::new(),
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
        (&mut &*self.stream).write_all(&frame(kind, payload))
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
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    fn pair() -> (Arc<Session>, Receiver<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ours = Stream::connect(address, None, Duration::from_secs(5)).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        let session = Session::new(ours, "a test").unwrap();
        (session, Receiver::new(theirs))
    }

    fn file(bytes: &[u8]) -> OwnedFd {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        let mut file = File::from(file);
        file.write_all(bytes).unwrap();
        file.into()
    }

    fn content(beside: Beside) -> Vec<u8> {
        match beside {
            Beside::Nothing => Vec::new(),
            Beside::Bytes(bytes) => bytes,
            Beside::File(file) => {
                let file = File::from(file);
                let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
                file.read_exact_at(&mut bytes, 0).unwrap();
                bytes
            }
        }
    }

    #[test]
    fn messages_arrive_in_order_with_what_they_bring() {
        let (session, mut receiver) = pair();
        let long = (0..3 * PIECE_BYTES + 7).map(|n| n as u8);
        let long = long.collect::<Vec<u8>>();
        session.send(&"first", Beside::Nothing);
        session.send(&"state", Beside::File(file(&long)));
        session.send(&"no state", Beside::File(file(&[])));
        session.send(&"counts", Beside::Bytes(long.clone()));
        session.send(&"no counts", Beside::Bytes(Vec::new()));
        session.finish();
        let mut received = Vec::new();
        while let Some((message, beside)) = receiver.receive::<String>().unwrap() {
            received.push((message, content(beside)));
        }
        let expected = [
            ("first", vec![]),
            ("state", long.clone()),
            ("no state", vec![]),
            ("counts", long),
            ("no counts", vec![]),
        ];
        let expected = expected.map(|(message, bytes)| (message.to_string(), bytes));
        assert_eq!(received, expected);
    }

    #[test]
    fn a_beat_does_not_wait_for_state() {
        let (session, mut receiver) = pair();
        // More than the sockets' buffers hold.
        let state = vec![7; 64 << 20];
        session.send(&"state", Beside::File(file(&state)));
        // Until the writer has begun with it.
        std::thread::sleep(Duration::from_millis(50));
        session.send_urgent(&"beat");
        let (first, _) = receiver.receive::<String>().unwrap().unwrap();
        let (second, beside) = receiver.receive::<String>().unwrap().unwrap();
        assert_eq!((&*first, &*second), ("beat", "state"));
        assert_eq!(content(beside).len(), state.len());
    }

    #[test]
    fn a_session_that_is_not_read_ends_and_blocks_nobody() {
        let (session, mut receiver) = pair();
        let bytes = vec![0; 1 << 20];
        for _ in 0..200 {
            session.send(&"counts", Beside::Bytes(bytes.clone()));
        }
        let reason = session.ended().expect("it has ended");
        assert!(reason.contains("64 MiB"), "{reason}");
        // What had been sent is still read, then the connection ends.
        while let Ok(Some((message, _))) = receiver.receive::<String>() {
            assert_eq!(message, "counts");
        }
    }

    proptest! {
        #[test]
        fn bytes_of_any_kind_are_received_or_refused(bytes: Vec<u8>) {
            let mut receiver = Receiver::new(&bytes[..]);
            while let Ok(Some((_, beside))) = receiver.receive::<serde_json::Value>() {
                content(beside);
            }
        }

        #[test]
        fn what_is_cut_short_is_no_message(cut in 0..60usize) {
            let json = br#""a message of some length, which is cut short""#;
            let frame = frame(Kind::Message, json);
            let cut = cut.min(frame.len());
            let received = Receiver::new(&frame[..cut]).receive::<String>();
            match cut {
                0 => prop_assert!(received.unwrap().is_none()),
                whole if whole == frame.len() => prop_assert!(received.unwrap().is_some()),
                _ => prop_assert!(received.is_err()),
            }
        }
    }
}
