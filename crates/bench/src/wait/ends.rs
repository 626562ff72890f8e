//! The two ends of a channel that sends messages in one direction between two processes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::os::fd::AsFd;
use std::time::Duration;

use slackwater_link::shm::{Inbox, Outbox, Peer, Watch, watch};
use slackwater_link::tcp::{Acceptor, Identity, Settings, Writer};
use slackwater_link::{
    FrameReceiver, FrameSender, Listen, SendError, Sources, Waiter, Waker, Woken,
};

use super::order::MESSAGE_BYTES;
use super::way::Transport;
use slackwater::measure::RING_BYTES;
use slackwater::measure::control::Control;

/// Any value will do, as long as both sides use the same.
const EPOCH: u64 = 1;

/// Bytes per read of a plain reader.
const READ_BYTES: usize = 64 << 10;

/// Nothing here takes this long: a process that sleeps for this time was not woken.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// A message: its number, when it was due, when its sending began, and padding.
#[derive(Clone, Copy)]
pub struct Message([u8; MESSAGE_BYTES]);

impl Message {
    /// A message with these stamps.
    #[inline]
    pub fn new(number: u64, due_ns: u64, sent_ns: u64) -> Message {
        let mut bytes = [0x5a; MESSAGE_BYTES];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..16].copy_from_slice(&due_ns.to_le_bytes());
        bytes[16..24].copy_from_slice(&sent_ns.to_le_bytes());
        Message(bytes)
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// The sender's end.
pub enum SendingEnd {
    /// No end, for the baseline.
    Nothing,
    /// A link.
    Link(Box<SendingLink>),
    /// A socket, and the bytes to write to it.
    Plain(TcpStream, Vec<u8>),
}

/// The sender's end of a link.
pub struct SendingLink {
    sender: FrameSender<Message>,
    waiter: Waiter,
    /// Shared memory: detects that the other process has ended, and the socket by which the other process
    /// detects our end.
    _watch: Option<(Watch, Control)>,
}

fn failed(error: std::io::Error) -> String {
    error.to_string()
}

fn identity() -> Identity {
    Identity {
        epoch: EPOCH,
        token: [0; 16],
    }
}

impl SendingEnd {
    /// Connects; the receiver connects at the same time.
    pub fn connect(transport: Transport, control: Option<&Control>) -> Result<SendingEnd, String> {
        let no_control = || "the sender received no socket to its receiver".to_string();
        let control = control.ok_or_else(no_control);
        match transport {
            Transport::Nothing => Ok(SendingEnd::Nothing),
            Transport::Shm => SendingEnd::shared_memory(control?),
            Transport::Tcp => {
                let (address, _) = control?.expect::<SocketAddr>()?;
                let waiter = Waiter::new().map_err(failed)?;
                let name = "the receiver";
                let settings = Settings::default();
                let writer = Writer::connect(address, identity(), 0, name, &waiter, settings);
                Ok(SendingEnd::Link(Box::new(SendingLink {
                    sender: FrameSender::Tcp(Box::new(writer)),
                    waiter,
                    _watch: None,
                })))
            }
            Transport::Plain => {
                let (address, _) = control?.expect::<SocketAddr>()?;
                let stream = TcpStream::connect(address).map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                Ok(SendingEnd::Plain(stream, Vec::new()))
            }
        }
    }

    fn shared_memory(control: &Control) -> Result<SendingEnd, String> {
        let waiter = Waiter::shared().map_err(failed)?;
        let own = waiter.waker();
        let (flag, bell) = own.export().expect("the waiter is shared");
        let (leash, their_leash) = Control::pair()?;
        control.send(&"waker", &[flag, bell, their_leash.as_fd()])?;
        drop(their_leash);
        let (_, descriptors) = control.expect::<String>()?;
        let Ok([flag, bell, watched, inbox]) = <[_; 4]>::try_from(descriptors) else {
            return Err("the receiver sent no inbox".to_string());
        };
        let reader = Waker::import(flag, bell).map_err(failed)?;
        let peer = Peer::new("the receiver");
        let outbox = Outbox::open(inbox.as_fd(), EPOCH, peer.clone()).map_err(|e| e.to_string())?;
        let watch = watch(vec![(watched, peer)], vec![waiter.waker()]).map_err(failed)?;
        Ok(SendingEnd::Link(Box::new(SendingLink {
            sender: FrameSender::Shm(outbox.writer(0, reader)),
            waiter,
            _watch: Some((watch, leash)),
        })))
    }

    /// Sends a message, waiting for room if there is none. The message may remain here until the push.
    #[inline]
    pub fn send(&mut self, message: &Message) -> Result<(), String> {
        match self {
            SendingEnd::Nothing => {
                std::hint::black_box(message);
                Ok(())
            }
            SendingEnd::Link(link) => link.send(message),
            SendingEnd::Plain(_, batch) => {
                batch.extend_from_slice(message);
                Ok(())
            }
        }
    }

    /// Pushes what was sent, and wakes the reader.
    pub fn push(&mut self) -> Result<(), String> {
        match self {
            SendingEnd::Nothing => {}
            SendingEnd::Link(link) => link.sender.push(false),
            SendingEnd::Plain(stream, batch) => {
                stream.write_all(batch).map_err(failed)?;
                batch.clear();
            }
        }
        Ok(())
    }

    /// Sends the end, and waits until everything has been sent.
    pub fn finish(self) -> Result<(), String> {
        let SendingEnd::Link(mut link) = self else {
            return Ok(());
        };
        link.sender.close();
        link.wait_until(|sender| {
            sender.push(true);
            sender.is_drained()
        })
    }
}

impl SendingLink {
    #[inline]
    fn send(&mut self, message: &Message) -> Result<(), String> {
        match self.sender.post(vec![*message]) {
            Ok(()) => Ok(()),
            Err(refused) => self.send_later(refused),
        }
    }

    #[cold]
    fn send_later(&mut self, mut refused: SendError<Vec<Message>>) -> Result<(), String> {
        loop {
            let SendError::Full(frame) = refused else {
                let error = self.sender.error();
                return Err(
                    error.map_or("the receiver has disconnected".to_string(), |e| {
                        e.to_string()
                    }),
                );
            };
            self.wait_until(|sender| {
                sender.push(false);
                sender.has_room() || sender.is_closed()
            })?;
            match self.sender.post(frame) {
                Ok(()) => return Ok(()),
                Err(again) => refused = again,
            }
        }
    }

    /// Announces, looks and sleeps, until `look` finds something.
    fn wait_until(
        &mut self,
        mut look: impl FnMut(&mut FrameSender<Message>) -> bool,
    ) -> Result<(), String> {
        loop {
            self.waiter.announce(Listen::Everything);
            if look(&mut self.sender) {
                self.waiter.retract();
                return Ok(());
            }
            let due = self.sender.due_ns().map(until);
            let timeout = due.map_or(TIMEOUT, |due| due.min(TIMEOUT));
            let woken = self.waiter.wait(Some(timeout), Sources::All);
            if woken.map_err(failed)? == Woken::TimedOut && timeout == TIMEOUT {
                return Err("the sender was not woken: a wake-up was lost".to_string());
            }
        }
    }
}

/// The receiver's end.
pub enum ReceivingEnd {
    /// A link.
    Link(Box<ReceivingLink>),
    /// A socket, and the bytes read from it.
    Plain(PlainReader),
}

/// The receiver's end of a link.
pub struct ReceivingLink {
    /// The link's receiver.
    pub receiver: FrameReceiver,
    /// The waiter on which the reader sleeps.
    pub waiter: Waiter,
    _watch: Option<(Watch, Control)>,
    _acceptor: Option<Acceptor>,
}

impl ReceivingEnd {
    /// Connects; the sender connects at the same time.
    pub fn connect(transport: Transport, control: &Control) -> Result<ReceivingEnd, String> {
        match transport {
            Transport::Nothing => Err("the baseline has no receiver".to_string()),
            Transport::Shm => ReceivingEnd::shared_memory(control),
            Transport::Tcp => {
                let waiter = Waiter::new().map_err(failed)?;
                let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                let acceptor = Acceptor::bind(any_port, identity(), Settings::default());
                let acceptor = acceptor.map_err(failed)?;
                let reader = acceptor.reader(0, "the sender", &waiter);
                control.send(&acceptor.local_address(), &[])?;
                Ok(ReceivingEnd::Link(Box::new(ReceivingLink {
                    receiver: FrameReceiver::Tcp(Box::new(reader)),
                    waiter,
                    _watch: None,
                    _acceptor: Some(acceptor),
                })))
            }
            Transport::Plain => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
                control.send(&listener.local_addr().map_err(failed)?, &[])?;
                let (stream, _) = listener.accept().map_err(failed)?;
                Ok(ReceivingEnd::Plain(PlainReader {
                    stream,
                    bytes: vec![0; READ_BYTES],
                    end: 0,
                }))
            }
        }
    }

    fn shared_memory(control: &Control) -> Result<ReceivingEnd, String> {
        let waiter = Waiter::shared().map_err(failed)?;
        let inbox = Inbox::create(EPOCH, 1, RING_BYTES).map_err(failed)?;
        let own = waiter.waker();
        let (flag, bell) = own.export().expect("the waiter is shared");
        let (leash, their_leash) = Control::pair()?;
        let ends = [flag, bell, their_leash.as_fd(), inbox.descriptor()];
        control.send(&"inbox", &ends)?;
        drop(their_leash);
        let (_, descriptors) = control.expect::<String>()?;
        let Ok([flag, bell, watched]) = <[_; 3]>::try_from(descriptors) else {
            return Err("the sender sent no waker".to_string());
        };
        let writer = Waker::import(flag, bell).map_err(failed)?;
        let peer = Peer::new("the sender");
        let reader = inbox.reader(0, writer, waiter.waker(), peer.clone());
        let watch = watch(vec![(watched, peer)], vec![waiter.waker()]).map_err(failed)?;
        Ok(ReceivingEnd::Link(Box::new(ReceivingLink {
            receiver: FrameReceiver::Shm(reader),
            waiter,
            _watch: Some((watch, leash)),
            _acceptor: None,
        })))
    }
}

/// A socket that is read by blocking calls, into one buffer.
pub struct PlainReader {
    stream: TcpStream,
    bytes: Vec<u8>,
    /// End of the bytes that were read and not yet processed.
    end: usize,
}

impl PlainReader {
    /// Reads once and passes on complete messages; `false` at the end.
    pub fn read(
        &mut self,
        mut take: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<bool, String> {
        let count = self.stream.read(&mut self.bytes[self.end..]);
        let count = count.map_err(failed)?;
        if count == 0 {
            return match self.end {
                0 => Ok(false),
                _ => Err("the sender disconnected in the middle of a message".to_string()),
            };
        }
        let filled = self.end + count;
        let whole = filled - filled % MESSAGE_BYTES;
        self.bytes[..whole]
            .chunks_exact(MESSAGE_BYTES)
            .try_for_each(&mut take)?;
        self.bytes.copy_within(whole..filled, 0);
        self.end = filled - whole;
        Ok(true)
    }
}

/// The time until then.
pub fn until(due_ns: u64) -> Duration {
    Duration::from_nanos(due_ns.saturating_sub(slackwater_engine::time::now_ns()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_reader_joins_split_messages() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut writer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut reader = PlainReader {
            stream: listener.accept().unwrap().0,
            bytes: vec![0; READ_BYTES],
            end: 0,
        };
        let bytes = [Message::new(0, 10, 20).0, Message::new(1, 30, 40).0].concat();
        let mut numbers = Vec::new();
        for piece in bytes.chunks(150) {
            writer.write_all(piece).unwrap();
            let read = reader.read(|message| {
                assert_eq!(message.len(), MESSAGE_BYTES);
                numbers.push(message[0]);
                Ok(())
            });
            assert_eq!(read, Ok(true));
        }
        assert_eq!(numbers, [0, 1]);
        drop(writer);
        assert_eq!(reader.read(|_| Ok(())), Ok(false));
    }
}
