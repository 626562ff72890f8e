//! Tests of every kind of link under every way to wait: the parts of the contract that need two threads.
//!
//! A million messages in total, at random moments, through links that are full now and then: they arrive
//! in order; the end comes once, after the last message; and nobody sleeps while there is a message,
//! room, or the end. A wait without a time-out that takes longer than [`LOST_WAKE_UP`] is a lost wake-up.

#![cfg(not(loom))]

use fastrand::Rng;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slackwater_link::shm::{Inbox, Outbox, Peer};
use slackwater_link::tcp::{Acceptor, Guard, Identity, Settings, Writer};
use slackwater_link::{
    Costs, FrameReceiver, FrameSender, Idle, IdleStrategy, Receiver, SendError, Sender, Wait,
    WaitMode, Waiter, Woken, channel,
};

#[path = "tcp/rough_seal.rs"]
mod rough_seal;

/// Nothing in these tests takes this long on any machine: a longer sleep is a lost wake-up.
const LOST_WAKE_UP: Duration = Duration::from_secs(20);

/// Messages of a run. Eight modes and five kinds make more than a million.
const MESSAGES: u64 = 31_250;

const MODES: [&str; 8] = [
    "auto",
    "auto:200us",
    "poll",
    "interrupt",
    "sleep:200us",
    "sleep:1ms",
    "spin:50us",
    "backoff",
];

fn mode(name: &str) -> WaitMode {
    match name.strip_prefix("auto:") {
        Some("200us") => WaitMode::Auto {
            delay: Duration::from_micros(200),
        },
        Some(other) => panic!("no delay {other}"),
        None => name.parse().expect("a mode"),
    }
}

/// Seldom a pause, mostly a short one: long enough for the other side to fall asleep.
fn pause(random: &mut Rng) {
    let bound = match random.u64(..256) {
        0 => 1_000_000,
        1..16 => 60_000,
        _ => return,
    };
    let end = Instant::now() + Duration::from_nanos(random.u64(..bound));
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// What a side of a link found to do.
#[derive(PartialEq, Eq)]
enum Found {
    Something,
    Nothing,
    Over,
}

trait Sending: Send + 'static {
    /// Takes a number, or not.
    fn offer(&mut self, number: u64) -> bool;
    fn ring(&mut self);
    /// Whether everything up to the last number is delivered.
    fn finish(&mut self) -> bool;
}

trait Receiving: Send + 'static {
    fn next(&mut self) -> Option<u64>;
    fn is_over(&self) -> bool;
}

/// Runs `look` as a worker runs its instances: again while it finds something; otherwise as the strategy
/// says.
fn drive(waiter: &Waiter, mode: WaitMode, mut look: impl FnMut() -> Found) -> u64 {
    let begin = Instant::now();
    let now_ns = || begin.elapsed().as_nanos() as u64;
    let mut idle = IdleStrategy::new(mode, Costs::default());
    let mut waits = 0;
    loop {
        match look() {
            Found::Something => {
                idle.worked();
                continue;
            }
            Found::Over => return waits,
            Found::Nothing => {}
        }
        let wait = match idle.idle(now_ns) {
            Idle::Spin => {
                std::hint::spin_loop();
                continue;
            }
            Idle::Wait(wait) => wait,
        };
        waiter.announce(wait.listen);
        match look() {
            Found::Something => {
                waiter.retract();
                idle.worked();
            }
            Found::Over => {
                waiter.retract();
                return waits;
            }
            Found::Nothing => {
                let Wait {
                    timeout, sources, ..
                } = wait;
                waits += 1;
                let woken = waiter.wait(timeout.or(Some(LOST_WAKE_UP)), sources);
                let woken = woken.expect("a wait");
                let lost = timeout.is_none() && woken == Woken::TimedOut;
                assert!(!lost, "{mode}: a wake-up was lost");
                idle.woke(now_ns(), woken);
            }
        }
    }
}

fn run<S: Sending, R: Receiving>(name: &str, seed: u64, open: impl Fn(&Waiter, &Waiter) -> (S, R)) {
    let waiter = || Waiter::new().expect("descriptors");
    for mode_name in MODES {
        let mode = mode(mode_name);
        let (reading, writing) = (waiter(), waiter());
        let (mut sender, mut receiver) = open(&reading, &writing);
        let writer = std::thread::spawn(move || {
            let mut random = Rng::with_seed(seed);
            let mut next = 0;
            drive(&writing, mode, || {
                let mut found = Found::Nothing;
                while next < MESSAGES && sender.offer(next) {
                    next += 1;
                    found = Found::Something;
                    if random.u64(..8) == 0 {
                        break;
                    }
                }
                sender.ring();
                pause(&mut random);
                if next == MESSAGES && sender.finish() {
                    return Found::Over;
                }
                found
            })
        });
        let mut random = Rng::with_seed(!seed);
        let mut next = 0;
        let reader_waits = drive(&reading, mode, || {
            let mut found = Found::Nothing;
            while let Some(number) = receiver.next() {
                assert_eq!(
                    number, next,
                    "{name}, {mode_name}: lost, doubled or out of order"
                );
                next += 1;
                found = Found::Something;
                // Now and then the reader is the slow one, so that the link fills.
                if (next / 4_096) % 2 == 0 {
                    pause(&mut random);
                }
            }
            match found {
                Found::Nothing if receiver.is_over() => Found::Over,
                found => found,
            }
        });
        assert_eq!(
            next, MESSAGES,
            "{name}, {mode_name}: the end came too early"
        );
        assert!(receiver.next().is_none() && receiver.is_over());
        let writer_waits = writer.join().expect("the writing thread");
        println!("{name}, {mode_name}: reader waited {reader_waits}, writer {writer_waits} times");
        if mode == WaitMode::Poll {
            assert_eq!((reader_waits, writer_waits), (0, 0));
        } else {
            assert!(
                reader_waits > 20,
                "{name}, {mode_name}: the reader hardly waited"
            );
        }
    }
}

impl Sending for Sender<u64> {
    fn offer(&mut self, number: u64) -> bool {
        match self.post(number) {
            Ok(()) => true,
            Err(SendError::Full(_)) => false,
            Err(SendError::Closed(_)) => panic!("the reader left before the end"),
        }
    }

    fn ring(&mut self) {
        Sender::ring(self);
    }

    fn finish(&mut self) -> bool {
        true
    }
}

impl Receiving for Receiver<u64> {
    fn next(&mut self) -> Option<u64> {
        self.receive()
    }

    fn is_over(&self) -> bool {
        self.is_closed()
    }
}

/// The bytes of message `number`: its number, and after that, often, more bytes, all derived from it.
fn frame(number: u64) -> Vec<u8> {
    let length = match number % 64 {
        0 => 9_000,
        1..8 => 700,
        _ => 8,
    };
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(length, number as u8);
    bytes
}

impl Sending for FrameSender<Vec<u8>> {
    fn offer(&mut self, number: u64) -> bool {
        match self.post(vec![frame(number)]) {
            Ok(()) => true,
            Err(SendError::Full(_)) => false,
            Err(SendError::Closed(_)) => panic!("closed: {:?}", self.error()),
        }
    }

    fn ring(&mut self) {
        self.push(false);
    }

    fn finish(&mut self) -> bool {
        self.close();
        self.push(true);
        self.is_drained()
    }
}

struct Frames {
    receiver: FrameReceiver,
    /// Frames that are still held, so that lent ones come back late and out of order.
    held: Vec<slackwater_link::Frame>,
}

impl Receiving for Frames {
    fn next(&mut self) -> Option<u64> {
        let received = self.receiver.receive().expect("a sound writer")?;
        let number = u64::from_le_bytes(received[..8].try_into().expect("eight bytes"));
        assert!(*received == *frame(number), "frame {number} is not whole");
        if self.held.len() == 3 {
            self.held.swap_remove(number as usize % 3);
        }
        // A thread that sleeps must not hold frames that its writer waits for.
        if number % 16 == 15 {
            self.held.clear();
        } else {
            self.held.push(received);
        }
        Some(number)
    }

    fn is_over(&self) -> bool {
        self.receiver.is_closed()
    }
}

#[test]
fn in_process() {
    run("in process", 1, |reader, writer| {
        channel(16, reader.waker(), writer.waker())
    });
}

fn shared_memory(name: &str, lends: bool) {
    run(name, 2 + u64::from(lends), |reader, writer| {
        let peer = Peer::new("this process");
        // Frames of 9,000 bytes go through in pieces of 4 KiB.
        let inbox = Inbox::create(1, 1, 16 << 10).expect("memory");
        let mut receiving = inbox.reader(0, writer.waker(), reader.waker(), peer.clone());
        receiving.lend(lends);
        let outbox = Outbox::open(inbox.descriptor(), 1, peer).expect("just made");
        let sender = FrameSender::Shm(outbox.writer(0, reader.waker()));
        let receiver = FrameReceiver::Shm(receiving);
        (
            sender,
            Frames {
                receiver,
                held: Vec::new(),
            },
        )
    });
}

#[test]
fn shared_memory_lent() {
    shared_memory("shared memory, lent", true);
}

#[test]
fn shared_memory_copied() {
    shared_memory("shared memory, copied", false);
}

fn tcp_with(name: &str, seed: u64, guard: Option<Arc<dyn Guard>>) {
    let identity = Identity {
        epoch: 1,
        token: [7; 16],
    };
    let settings = Settings {
        window_bytes: 32 << 10,
        ..Settings::default()
    };
    let address = "127.0.0.1:0".parse().expect("an address");
    let acceptor = Acceptor::bind_guarded(address, identity, settings, guard.clone());
    let acceptor = acceptor.expect("a port");
    let link = std::cell::Cell::new(0);
    run(name, seed, |reader, writer| {
        link.set(link.get() + 1);
        let receiving = acceptor.reader(link.get(), "the writer", reader);
        let address = acceptor.local_address();
        let sending = Writer::connect_guarded(
            address,
            identity,
            link.get(),
            "the reader",
            writer,
            settings,
            guard.clone(),
        );
        (
            FrameSender::Tcp(Box::new(sending)),
            Frames {
                receiver: FrameReceiver::Tcp(Box::new(receiving)),
                held: Vec::new(),
            },
        )
    });
}

#[test]
fn tcp() {
    tcp_with("tcp", 4, None);
}

#[test]
fn tcp_sealed() {
    tcp_with("tcp, sealed", 5, Some(rough_seal::rough_guard(2)));
}
