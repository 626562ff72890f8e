//! A thread with a connection to a broker.
//!
//! It waits in the kernel for the socket and for its bell, through which the worker wakes it; there is no
//! timer unless the broker demands keep-alive. If a broker is not available, at the start or later, the
//! thread reconnects after a pause that doubles; an unfinished [`Session`] then continues. A broker that
//! rejects the connection (a wrong password) ends the query.
//!
//! Shutdown: dropping the [`Client`] stops the thread. It sends what the session has left to send, as far as
//! the broker accepts it within [`FAREWELL`].

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waker;

use super::packet::{self, ConnAck, Connect, Packet, Start};
use super::refusals::{End, dismissed, failed, not_mqtt, refused};
use super::settings::Broker;

/// How long a broker may take to answer when we connect.
const ANSWER: Duration = Duration::from_secs(10);

/// The pause before reconnecting to a broker.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How long shutdown may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// Bytes that wait for the socket before the session is asked for more.
pub(crate) const OUT_BYTES_MAX: usize = 1024 * 1024;

/// Bytes read at a time. A packet that is longer makes the buffer grow, to what MQTT allows: 256 MiB.
const READ_BYTES: usize = 64 * 1024;

/// One side of the protocol: a state machine that neither waits nor touches the socket.
pub(crate) trait Session: Send + 'static {
    /// How the broker should start the session.
    fn introduction(&self) -> Start;

    /// The broker has accepted the connection.
    fn begin(&mut self, ack: &ConnAck, out: &mut Vec<u8>) -> Result<()>;

    /// The broker has sent a packet.
    fn hear(&mut self, packet: &Packet<'_>, out: &mut Vec<u8>) -> Result<()>;

    /// Appends packets to send, as long as `out` has room.
    fn speak(&mut self, out: &mut Vec<u8>) -> Result<()>;

    /// Everything appended has been sent.
    fn said(&mut self);

    /// Whether there is room for packets from the broker.
    fn listens(&self) -> bool;

    /// Why the connection must be replaced, if it must.
    fn gives_up(&self) -> Option<&'static str>;
}

/// The state that the worker and the thread share, besides the session's own.
pub(crate) struct Bell {
    event: OwnedFd,
    woken: AtomicBool,
    stopped: AtomicBool,
    failure: Mutex<Option<Error>>,
}

impl Bell {
    pub(crate) fn new(broker: &Broker) -> Result<Arc<Bell>> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = event.map_err(|error| failed(broker, &format!("no eventfd: {error}")))?;
        Ok(Arc::new(Bell {
            event,
            woken: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            failure: Mutex::new(None),
        }))
    }

    /// Wakes the thread to process what the worker has left for it.
    pub(crate) fn ring(&self) {
        // Release: pairs with the swap in `answer`; the swap then sees what was left. Only the first wake-up
        // makes a system call.
        if !self.woken.swap(true, Ordering::AcqRel) {
            // The write can only fail because the counter is full, and then it is readable.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    fn answer(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.event, &mut count);
        // After the read: a wake-up in between is seen again.
        self.woken.swap(false, Ordering::AcqRel);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn fail(&self, error: Error) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(error);
    }

    /// Why the query can't continue, if it can't.
    pub(crate) fn check(&self) -> Result<()> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.clone().map_or(Ok(()), Err)
    }
}

/// The worker's end of a connection.
pub(crate) struct Client {
    bell: Arc<Bell>,
    ended: Receiver<()>,
}

impl Client {
    /// Starts the thread, which connects as soon as it can.
    pub(crate) fn start(
        broker: Arc<Broker>,
        session: impl Session,
        bell: Arc<Bell>,
        waker: Waker,
    ) -> Result<Client> {
        let (end, ended) = sync_channel(1);
        let connection = Connection {
            broker: Arc::clone(&broker),
            session,
            bell: Arc::clone(&bell),
            is_away: false,
        };
        std::thread::Builder::new()
            .name("mqtt".into())
            .spawn(move || {
                let bell = Arc::clone(&connection.bell);
                if let Err(error) = connection.run() {
                    bell.fail(error);
                    waker.wake_urgent();
                }
                // Nobody waits if the client was dropped.
                let _ = end.try_send(());
            })
            .map_err(|error| failed(&broker, &format!("can't start a thread: {error}")))?;
        Ok(Client { bell, ended })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.bell.stopped.store(true, Ordering::Release);
        self.bell.ring();
        let _ = self.ended.recv_timeout(FAREWELL);
    }
}

struct Connection<S> {
    broker: Arc<Broker>,
    session: S,
    bell: Arc<Bell>,
    is_away: bool,
}

/// The bytes from the broker that are not a complete packet yet.
struct Input {
    bytes: Vec<u8>,
    filled: usize,
}

impl<S: Session> Connection<S> {
    fn run(mut self) -> Result<()> {
        let mut pause = PAUSE_MIN;
        while !self.bell.is_stopped() {
            let mut since = None;
            let served = self.connect().and_then(|(stream, ack, input)| {
                self.note_back();
                since = Some(Instant::now());
                self.serve(&stream, &ack, input)
            });
            // Two clients with the same identifier close each other's connections immediately: that must not
            // become a busy loop.
            if since.is_some_and(|since| since.elapsed() > PAUSE_MAX) {
                pause = PAUSE_MIN;
            }
            match served {
                Ok(()) | Err(End::Stopped) => return Ok(()),
                Err(End::Failed(error)) => return Err(error),
                Err(End::Away(reason)) => {
                    self.note_away(&reason);
                    self.pause(pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
        Ok(())
    }

    fn note_away(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.is_away, true) {
            let Broker { table, address, .. } = &*self.broker;
            let version = self.broker.version.name();
            let other = self.broker.version.other().name();
            eprintln!(
                "warning: table '{table}': the mqtt broker {address} can't be reached: {reason}; \
                 waiting for it (is 'address' right, does it run, and has it MQTT {version}? If not, write \
                 'protocol_version' = '{other}')"
            );
        }
    }

    fn note_back(&mut self) {
        if std::mem::replace(&mut self.is_away, false) {
            let Broker { table, address, .. } = &*self.broker;
            eprintln!("note: table '{table}': the mqtt broker {address} is there");
        }
    }

    /// Waits this long, or until it is stopped.
    fn pause(&self, pause: Duration) {
        let until = Instant::now() + pause;
        while !self.bell.is_stopped() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let mut bell = [PollFd::new(&self.bell.event, PollFlags::IN)];
            let _ = poll(&mut bell, Some(&timespec(left)));
            self.bell.answer();
        }
    }

    fn connect(&self) -> std::result::Result<(TcpStream, ConnAck, Input), End> {
        let mut last = End::Away("the name has no address".to_string());
        for address in self.broker.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, ANSWER) {
                Ok(stream) => return self.introduce(stream),
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }

    fn introduce(
        &self,
        mut stream: TcpStream,
    ) -> std::result::Result<(TcpStream, ConnAck, Input), End> {
        stream.set_nodelay(true)?;
        crate::tcp::keep_alive(&stream)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        let mut out = vec![];
        packet::connect(
            self.broker.version,
            &mut out,
            &Connect {
                client_id: &self.broker.client_id,
                session: self.session.introduction(),
                username: self.broker.username(),
                password: self.broker.password(),
            },
        );
        stream.write_all(&out)?;
        let mut input = Input {
            bytes: vec![0; READ_BYTES],
            filled: 0,
        };
        loop {
            if input.filled > 0 && !packet::is_answer(input.bytes[0]) {
                return Err(not_mqtt(&self.broker, "it answers with something else"));
            }
            if let Some((packet, length)) = self.read(&input.bytes[..input.filled])? {
                let ack = match packet {
                    Packet::ConnAck(ack) => ack,
                    _ => return Err(not_mqtt(&self.broker, "it answers with another packet")),
                };
                if ack.code != 0 {
                    return Err(refused(&self.broker, ack.code));
                }
                input.bytes.copy_within(length..input.filled, 0);
                input.filled -= length;
                stream.set_nonblocking(true)?;
                return Ok((stream, ack, input));
            }
            match stream.read(&mut input.bytes[input.filled..]) {
                Ok(0) => return Err(End::Away("it closes the connection at once".into())),
                Ok(bytes) => input.filled += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(End::Away("it does not answer".into()));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn read<'i>(&self, bytes: &'i [u8]) -> std::result::Result<Option<(Packet<'i>, usize)>, End> {
        packet::read(self.broker.version, bytes)
            .map_err(|malformed| not_mqtt(&self.broker, malformed.0))
    }

    fn serve(
        &mut self,
        stream: &TcpStream,
        ack: &ConnAck,
        mut input: Input,
    ) -> std::result::Result<(), End> {
        let mut out = vec![];
        let mut sent = 0;
        let silence = ack.keep_alive_s.filter(|seconds| *seconds > 0);
        let silence = silence.map(|seconds| Duration::from_secs(seconds.into()) / 2);
        let mut last_said = Instant::now();
        self.session.begin(ack, &mut out).map_err(End::Failed)?;
        loop {
            let is_stopped = self.bell.is_stopped();
            self.session.speak(&mut out).map_err(End::Failed)?;
            if is_stopped {
                return self.farewell(stream, &out[sent..]);
            }
            if silence.is_some_and(|silence| last_said.elapsed() >= silence) {
                packet::ping(&mut out);
            }
            if sent < out.len() {
                last_said = Instant::now();
            }
            send(stream, &mut out, &mut sent)?;
            if out.is_empty() {
                self.session.said();
            }
            let left = silence.map(|silence| silence.saturating_sub(last_said.elapsed()));
            if self.wait(stream, !out.is_empty(), left)? {
                self.receive(stream, &mut input, &mut out)?;
            }
        }
    }

    /// Waits for something to do; whether it is something to read.
    fn wait(
        &self,
        stream: &TcpStream,
        sends: bool,
        left: Option<Duration>,
    ) -> std::result::Result<bool, End> {
        let mut events = PollFlags::empty();
        events.set(PollFlags::OUT, sends);
        events.set(PollFlags::IN, self.session.listens());
        let mut both = [
            PollFd::new(stream, events),
            PollFd::new(&self.bell.event, PollFlags::IN),
        ];
        let timeout = left.map(timespec);
        match poll(&mut both, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(std::io::Error::from(error).into()),
        }
        let happened = both[0].revents();
        if !both[1].revents().is_empty() {
            self.bell.answer();
        }
        // A broken connection reports it when it is read, also where there is no room: what comes is an
        // error, or it would be asked for over and over.
        let broken = PollFlags::ERR | PollFlags::HUP;
        Ok(happened.intersects(PollFlags::IN | broken))
    }

    fn receive(
        &mut self,
        mut stream: &TcpStream,
        input: &mut Input,
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), End> {
        if input.filled == input.bytes.len() {
            input.bytes.resize(input.filled * 2, 0);
        }
        match stream.read(&mut input.bytes[input.filled..]) {
            Ok(0) => {
                let reason =
                    "it has closed the connection (has another client the same 'client_id'?)";
                return Err(End::Away(reason.into()));
            }
            Ok(bytes) => input.filled += bytes,
            Err(error) if is_passing(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let mut from = 0;
        while let Some((packet, length)) = self.read(&input.bytes[from..input.filled])? {
            from += length;
            match packet {
                Packet::Disconnect { code } => return Err(dismissed(&self.broker, code)),
                packet => self.session.hear(&packet, out).map_err(End::Failed)?,
            }
        }
        if let Some(reason) = self.session.gives_up() {
            return Err(End::Away(reason.into()));
        }
        input.bytes.copy_within(from..input.filled, 0);
        input.filled -= from;
        if input.filled == 0 && input.bytes.len() > READ_BYTES {
            input.bytes = vec![0; READ_BYTES];
        }
        Ok(())
    }

    fn farewell(&mut self, mut stream: &TcpStream, left: &[u8]) -> std::result::Result<(), End> {
        let mut out = left.to_vec();
        packet::disconnect(&mut out);
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(FAREWELL))?;
        stream.write_all(&out)?;
        // Closing while data of the broker is unread would reset the connection and lose what was just sent.
        // The broker closes it when it has read everything.
        stream.shutdown(Shutdown::Write)?;
        stream.set_read_timeout(Some(FAREWELL))?;
        let until = Instant::now() + FAREWELL;
        let mut unread = [0; 4096];
        while Instant::now() < until && matches!(stream.read(&mut unread), Ok(1..)) {}
        Err(End::Stopped)
    }
}

/// Sends what the socket takes.
fn send(mut stream: &TcpStream, out: &mut Vec<u8>, sent: &mut usize) -> std::io::Result<()> {
    while *sent < out.len() {
        match stream.write(&out[*sent..]) {
            Ok(bytes) => *sent += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if *sent == out.len() {
        out.clear();
        *sent = 0;
    } else if *sent > OUT_BYTES_MAX {
        out.drain(..*sent);
        *sent = 0;
    }
    Ok(())
}

fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: duration.subsec_nanos().into(),
    }
}
