//! Ends of links on threads that really sleep, frames with content that can be checked, and the bytes of
//! the protocol written by hand, as in `docs/internals/tcp.md`.

// Links over frames need no bytes written by hand.
#![allow(dead_code)]

use fastrand::Rng;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use slackwater_link::tcp::{Acceptor, Identity, Moved, Reader, Seal, Settings, Writer};
use slackwater_link::{Frame, LinkError, Listen, SendError, Sources, Waiter, Woken};

/// Nothing in these tests takes this long on any machine.
pub const TOO_LONG: Duration = Duration::from_secs(20);

pub const IDENTITY: Identity = Identity {
    epoch: 5,
    token: *b"a token of tests",
};

pub const LINK: u64 = 7;

pub type Pieces = Vec<Vec<u8>>;

/// Now and then a pause of up to `most`, spun so that it can be short.
pub fn pause_at_random(random: &mut Rng, most: Duration) {
    if random.u64(..4) > 0 {
        return;
    }
    let end = Instant::now() + Duration::from_nanos(random.u64(..most.as_nanos() as u64));
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// Short deadlines, and a window that is full soon.
pub fn settings() -> Settings {
    Settings {
        window_bytes: 256 << 10,
        connect_timeout: TOO_LONG,
        ..Settings::default()
    }
}

/// No deadline of the link ends before a lost wake-up is noticed.
pub fn patient(window_bytes: usize) -> Settings {
    Settings {
        window_bytes,
        connect_timeout: TOO_LONG * 3,
        peer_timeout: TOO_LONG * 3,
        heartbeat_after: TOO_LONG * 3,
        ..Settings::default()
    }
}

pub fn bind(settings: Settings) -> Acceptor {
    let address = "127.0.0.1:0".parse().expect("an address");
    let acceptor = Acceptor::bind_guarded(address, IDENTITY, settings, crate::reading());
    acceptor.expect("a listening socket")
}

pub fn connect(address: SocketAddr, waiter: &Waiter, settings: Settings) -> Writer<Vec<u8>> {
    connect_link(address, LINK, waiter, settings)
}

pub fn connect_link(
    address: SocketAddr,
    link: u64,
    waiter: &Waiter,
    settings: Settings,
) -> Writer<Vec<u8>> {
    connect_as(IDENTITY, address, link, waiter, settings)
}

pub fn connect_as<P: std::ops::Deref<Target = [u8]>>(
    identity: Identity,
    address: SocketAddr,
    link: u64,
    waiter: &Waiter,
    settings: Settings,
) -> Writer<P> {
    let carrier = crate::writing();
    Writer::connect_guarded(
        address,
        identity,
        link,
        "the reader",
        waiter,
        settings,
        carrier,
    )
}

/// Both ends on one thread, connected.
pub struct Pair {
    pub acceptor: Acceptor,
    pub writer: Writer<Vec<u8>>,
    pub reader: Reader,
    pub waiter: Waiter,
}

impl Pair {
    pub fn open(settings: Settings) -> Pair {
        let waiter = Waiter::new().expect("a waiter");
        let acceptor = bind(settings);
        let reader = acceptor.reader(LINK, "the writer", &waiter);
        let writer = connect(acceptor.local_address(), &waiter, settings);
        let mut pair = Pair {
            acceptor,
            writer,
            reader,
            waiter,
        };
        pair.turn_until("a connection", |pair| pair.writer.is_drained());
        // The reader has fetched it as well.
        pair.turn_until("a connection", |pair| pair.reader.due_ns().is_none());
        pair
    }

    /// Lets both ends work until `done`. Frames that come meanwhile are a failure.
    pub fn turn_until(&mut self, what: &str, mut done: impl FnMut(&mut Pair) -> bool) {
        let end = Instant::now() + TOO_LONG;
        while !done(self) {
            assert!(Instant::now() < end, "waited too long for {what}");
            self.writer.push(false);
            let frame = self.reader.receive().expect("a sound link");
            assert!(frame.is_none(), "a frame nobody asked for");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Over frames, what was received last is acknowledged a little later.
    pub fn be_quiet(&mut self) {
        if crate::writing().transport.is_some() {
            self.turn_until("silence", |pair| {
                (pair.writer.due_ns(), pair.reader.due_ns()) == (None, None)
            });
        }
    }

    pub fn post(&mut self, number: u64, length: usize) -> bool {
        match self.writer.post(pieces(number, length)) {
            Ok(()) => true,
            Err(SendError::Full(_)) => false,
            Err(SendError::Closed(_)) => panic!("closed: {:?}", self.writer.error()),
        }
    }

    /// The next frame, while the writer is pushed.
    pub fn receive(&mut self) -> Frame {
        let end = Instant::now() + TOO_LONG;
        loop {
            self.writer.push(false);
            if let Some(frame) = self.reader.receive().expect("a sound link") {
                return frame;
            }
            assert!(Instant::now() < end, "waited too long for a frame");
        }
    }
}

/// The content of the frame of this number.
pub fn content(number: u64, length: usize) -> Vec<u8> {
    let mut random = Rng::with_seed(number);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend(random.u64(..).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// The same in one to five pieces, some of them empty.
pub fn pieces(number: u64, length: usize) -> Pieces {
    let whole = content(number, length);
    let mut random = Rng::with_seed(!number);
    let mut cuts: Vec<usize> = (0..random.u64(..5))
        .map(|_| random.u64(..length as u64 + 1) as usize)
        .collect();
    cuts.extend([0, length]);
    cuts.sort_unstable();
    let ends = cuts.windows(2);
    ends.map(|ends| whole[ends[0]..ends[1]].to_vec()).collect()
}

pub fn check(frame: &Frame, number: u64, length: usize) {
    assert_eq!(frame.len(), length, "the length of frame {number}");
    assert!(frame[..] == content(number, length), "frame {number}");
    if length > 48 {
        assert_eq!(frame.as_ptr() as usize % 64, 0, "alignment");
    }
}

pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Announce, look, sleep, until a waker is used or the end is due. Counts real sleeps.
pub fn sleep_unless(
    waiter: &Waiter,
    sleeps: &mut u64,
    mut look: impl FnMut() -> bool,
    due_ns: impl FnOnce() -> Option<u64>,
) {
    waiter.announce(Listen::Everything);
    if look() {
        waiter.retract();
        return;
    }
    // After the look, which may have set it.
    let due = due_ns().map(|due_ns| Duration::from_nanos(due_ns.saturating_sub(now_ns())));
    *sleeps += 1;
    let timeout = due.map_or(TOO_LONG, |due| due.min(TOO_LONG));
    let woken = waiter.wait(Some(timeout), Sources::All).expect("a wait");
    let is_lost = woken == Woken::TimedOut && timeout == TOO_LONG;
    assert!(!is_lost, "a wake-up was lost");
}

/// Writes all frames, closes, and waits until everything is acknowledged. Returns its sleeps.
pub fn write_all(
    writer: &mut Writer<Vec<u8>>,
    waiter: &Waiter,
    frames: impl Iterator<Item = Pieces>,
    mut between: impl FnMut(),
) -> u64 {
    let mut sleeps = 0;
    for frame in frames {
        let mut message = frame;
        loop {
            match writer.post(message) {
                Ok(()) => break,
                Err(SendError::Full(refused)) => message = refused,
                Err(SendError::Closed(_)) => panic!("closed: {:?}", writer.error()),
            }
            writer.push(false);
            let writer = std::cell::RefCell::new(&mut *writer);
            sleep_unless(
                waiter,
                &mut sleeps,
                || writer.borrow_mut().has_room() || writer.borrow().is_closed(),
                || writer.borrow().due_ns(),
            );
        }
        writer.push(false);
        between();
    }
    writer.close();
    while !writer.is_drained() {
        let writer = std::cell::RefCell::new(&mut *writer);
        sleep_unless(
            waiter,
            &mut sleeps,
            || {
                writer.borrow_mut().push(false);
                writer.borrow().is_drained()
            },
            || writer.borrow().due_ns(),
        );
    }
    sleeps
}

/// Receives until the end. Returns its sleeps.
pub fn read_all(
    reader: &mut Reader,
    waiter: &Waiter,
    mut take: impl FnMut(Frame),
) -> Result<u64, LinkError> {
    let mut sleeps = 0;
    loop {
        match reader.receive()? {
            Some(frame) => take(frame),
            None if reader.is_closed() => return Ok(sleeps),
            None => {
                let mut found = Ok(None);
                let reader = std::cell::RefCell::new(&mut *reader);
                sleep_unless(
                    waiter,
                    &mut sleeps,
                    || {
                        found = reader.borrow_mut().receive();
                        !matches!(found, Ok(None)) || reader.borrow().is_closed()
                    },
                    || reader.borrow().due_ns(),
                );
                if let Some(frame) = found? {
                    take(frame);
                }
            }
        }
    }
}

/// Waits until the reader reports an error; frames that come before it go to `take`.
pub fn error_of(reader: &mut Reader, mut take: impl FnMut(Frame)) -> LinkError {
    let end = Instant::now() + TOO_LONG;
    loop {
        match reader.receive() {
            Ok(Some(frame)) => take(frame),
            Ok(None) => {
                assert!(!reader.is_closed(), "an end in the place of an error");
                assert!(Instant::now() < end, "waited too long for an error");
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => {
                assert!(reader.is_closed());
                assert!(matches!(reader.receive(), Ok(None)), "an error comes once");
                return error;
            }
        }
    }
}

/// A greeting, written by hand.
#[derive(Clone, Copy)]
pub struct Hello {
    pub version: u32,
    pub epoch: u64,
    pub token: [u8; 16],
    pub link: u64,
    pub writer: u64,
    pub oldest: u64,
    pub unsent: u64,
    pub window: u32,
}

pub const HELLO: Hello = Hello {
    version: 1,
    epoch: IDENTITY.epoch,
    token: IDENTITY.token,
    link: LINK,
    writer: 99,
    oldest: 0,
    unsent: 0,
    window: 64 << 10,
};

impl Hello {
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"slackTCP".to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.epoch.to_le_bytes());
        bytes.extend(self.token);
        for number in [self.link, self.writer, self.oldest, self.unsent] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.window.to_le_bytes());
        bytes.extend(fnv(&bytes).to_le_bytes());
        assert_eq!(bytes.len(), 80);
        bytes
    }

    /// Connects and greets. Returns the answer, and the connection.
    pub fn greet(&self, address: SocketAddr) -> (u32, Raw) {
        let mut stream = stream(address);
        stream.write_all(&self.bytes()).expect("a greeting");
        let mut reply = [0; 48];
        stream.read_exact(&mut reply).expect("an answer");
        assert_eq!(reply[..8], *b"slackYES");
        let seal = u32::from_le_bytes(reply[44..].try_into().expect("four bytes"));
        assert_eq!(seal, fnv(&reply[..44]));
        let answer = u32::from_le_bytes(reply[12..16].try_into().expect("four bytes"));
        (answer, stream)
    }
}

/// A connection as a stranger makes it.
pub fn plain(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(TOO_LONG)).expect("a time-out");
    stream
}

/// A connection that is written by hand above its seal.
pub fn stream(address: SocketAddr) -> Raw {
    let seal = crate::guard().map(|guard| guard.connecting().expect("a seal"));
    Raw::new(plain(address), seal)
}

/// A connection below a link, sealed as the link is.
pub struct Raw {
    pub stream: TcpStream,
    seal: Option<Box<dyn Seal>>,
}

impl Raw {
    /// Makes the handshake.
    fn new(stream: TcpStream, seal: Option<Box<dyn Seal>>) -> Raw {
        let mut raw = Raw { stream, seal };
        if let Some(seal) = &mut raw.seal {
            loop {
                seal.open(&mut []).expect("a handshake");
                seal.pay(&mut raw.stream).expect("a write");
                if seal.is_ready() {
                    break;
                }
                assert!(seal.take(&mut raw.stream).expect("a read") > 0);
            }
        }
        raw
    }

    /// The other end of a connection that was accepted.
    pub fn accepted(stream: TcpStream) -> Raw {
        let seal = crate::guard().map(|guard| guard.accepting().expect("a seal"));
        Raw::new(stream, seal)
    }
}

impl Read for Raw {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        let Some(seal) = &mut self.seal else {
            return self.stream.read(room);
        };
        loop {
            match seal.open(room)? {
                Moved::Bytes(count) => return Ok(count),
                Moved::End => return Ok(0),
                Moved::WouldBlock if seal.take(&mut self.stream)? == 0 => return Ok(0),
                Moved::WouldBlock => {}
            }
        }
    }
}

impl Write for Raw {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let Some(seal) = &mut self.seal else {
            return self.stream.write(bytes);
        };
        // What an earlier write left.
        seal.pay(&mut self.stream)?;
        let count = seal.seal(&[IoSlice::new(bytes)])?;
        seal.pay(&mut self.stream)?;
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Reads until the peer closes or resets the connection.
pub fn read_to_the_end(stream: &mut impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    let mut space = [0; 4096];
    loop {
        match stream.read(&mut space) {
            Ok(0) => return all,
            Ok(count) => all.extend(&space[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return all,
            Err(error) => panic!("not closed: {error}"),
        }
    }
}

fn fnv(bytes: &[u8]) -> u32 {
    let start = 0x811C_9DC5;
    bytes.iter().fold(start, |hash: u32, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

pub const DATA: u8 = 1;
pub const HEARTBEAT: u8 = 2;
pub const CREDIT: u8 = 5;
pub const FIRST: u8 = 1;
pub const LAST: u8 = 2;

/// A record's header, written by hand.
pub fn header(kind: u8, flags: u8, length: u32, number: u64) -> Vec<u8> {
    let front = u64::from(kind) | u64::from(flags) << 8 | u64::from(length) << 32;
    let mixed = (front ^ number.rotate_left(29)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut bytes = (front | (mixed >> 48) << 16).to_le_bytes().to_vec();
    bytes.extend(number.to_le_bytes());
    bytes
}

/// A frame in one record.
pub fn data(number: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = header(DATA, FIRST | LAST, payload.len() as u32, number);
    bytes.extend(payload);
    bytes
}
