//! Two sessions over a network that loses, repeats, reorders and damages packets, all from a seed, with a
//! clock of its own.

use std::os::fd::BorrowedFd;

use super::*;
use crate::tcp::user::Place;

/// What a port does to packets, each in a thousand.
#[derive(Clone, Copy)]
struct Trouble {
    lost: u64,
    repeated: u64,
    late: u64,
    damaged: u64,
    /// How often the port takes nothing.
    full: u64,
}

struct Network {
    random: Random,
    trouble: Trouble,
    /// Packets on their way, with the time at which they arrive.
    packets: Vec<(u64, Vec<u8>)>,
    now_ns: u64,
    sent: u64,
}

/// A generator of its own: the crate's tests of modules have none that is seeded.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        // Knuth's multiplier; the upper half is the better one.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn thousandth(&mut self, count: u64) -> bool {
        self.below(1_000) < count
    }
}

impl Network {
    fn new(seed: u64, trouble: Trouble) -> Network {
        Network {
            random: Random(seed),
            trouble,
            packets: Vec::new(),
            now_ns: 0,
            sent: 0,
        }
    }

    fn put(&mut self, mut packet: Vec<u8>) {
        let late = self.random.thousandth(self.trouble.late);
        let delay_ns = match late {
            true => self.random.below(300_000),
            false => 20_000,
        };
        if self.random.thousandth(self.trouble.damaged) {
            let at = self.random.below(packet.len() as u64) as usize;
            packet[at] ^= 1 << self.random.below(8);
        }
        self.packets.push((self.now_ns + delay_ns, packet));
    }

    /// The packets that have arrived.
    fn arrived(&mut self) -> Vec<Vec<u8>> {
        let now_ns = self.now_ns;
        let (here, rest): (Vec<_>, Vec<_>) =
            (self.packets.drain(..)).partition(|(at, _)| *at <= now_ns);
        self.packets = rest;
        let mut here = here;
        here.sort_by_key(|(at, _)| *at);
        here.into_iter().map(|(_, packet)| packet).collect()
    }
}

impl Port for Network {
    fn descriptor(&self) -> BorrowedFd<'_> {
        unreachable!("a session does not wait")
    }

    fn place(&self) -> Place {
        unreachable!("a session has its offers")
    }

    fn send(&mut self, _address: [u8; 8], packet: [&[u8]; 2]) -> bool {
        if self.random.thousandth(self.trouble.full) {
            return false;
        }
        self.sent += 1;
        let packet = packet.concat();
        if self.random.thousandth(self.trouble.repeated) {
            self.put(packet.clone());
        }
        if !self.random.thousandth(self.trouble.lost) {
            self.put(packet);
        }
        true
    }

    fn flush(&mut self) -> bool {
        !self.random.thousandth(self.trouble.full)
    }

    fn receive(&mut self, _take: &mut dyn FnMut(&[u8]) -> bool) {}
}

fn offers() -> (Offer, Offer) {
    let offer = |key| Offer {
        place: Place {
            address: [0; 8],
            slot: 0,
            packet_bytes: 600,
        },
        key,
    };
    (offer(1), offer(2))
}

/// One end, with the network to the other one.
struct End {
    session: Session,
    network: Network,
    to_send: Vec<u8>,
    sent: usize,
    received: Vec<u8>,
    /// How long the owner does not look, now and then.
    asleep_until_ns: u64,
    sleeps: bool,
}

impl End {
    fn turn(&mut self, now_ns: u64, from: &mut Network) {
        if now_ns < self.asleep_until_ns {
            return;
        }
        if self.sleeps && self.network.random.thousandth(20) {
            self.asleep_until_ns = now_ns + self.network.random.below(3_000_000);
        }
        for packet in from.arrived() {
            if let Taken::Payload(payload) = self.session.take(&packet, now_ns) {
                self.received.extend(payload);
            }
        }
        let rest = self.to_send.len() - self.sent;
        if rest > 0 {
            let count = 1 + self.network.random.below(4_000) as usize;
            let bytes = &self.to_send[self.sent..self.sent + count.min(rest)];
            self.sent += self.session.add(&[IoSlice::new(bytes)]);
        }
        self.session.go_on(&mut self.network, now_ns);
        assert!(self.session.frames.len() <= WINDOW_FRAMES, "bounded");
    }
}

/// Two streams, in both directions, through this trouble. Returns the packets of both, and the time.
fn run(seed: u64, trouble: Trouble, lengths: [usize; 2], sleeps: bool) -> (u64, u64) {
    let (first, second) = offers();
    let mut random = Random(!seed);
    let mut end = |own, peer, length: usize, salt: u64| End {
        session: Session::new(own, peer),
        network: Network::new(seed ^ salt, trouble),
        to_send: (0..length).map(|_| random.below(256) as u8).collect(),
        sent: 0,
        received: Vec::new(),
        asleep_until_ns: 0,
        sleeps,
    };
    let mut left = end(first, second, lengths[0], 0xAAAA);
    let mut right = end(second, first, lengths[1], 0x5555);
    let mut now_ns = 1;
    let is_over = |end: &End| end.sent == end.to_send.len() && end.session.due_ns().is_none();
    while !(is_over(&left) && is_over(&right)) {
        now_ns += 10_000;
        let is_quiet = [&left, &right].iter().all(|end| {
            let can_send = end.sent < end.to_send.len() && end.session.frames.len() < WINDOW_FRAMES;
            end.network.packets.is_empty() && !can_send
        });
        if is_quiet {
            // Until something is due.
            let ends = [&left, &right];
            let due = ends.iter().filter_map(|end| end.session.due_ns()).min();
            now_ns = now_ns.max(due.unwrap_or(now_ns));
        }
        (left.network.now_ns, right.network.now_ns) = (now_ns, now_ns);
        left.turn(now_ns, &mut right.network);
        right.turn(now_ns, &mut left.network);
        assert!(now_ns < 600_000_000_000, "seed {seed}: stands still");
        let arrived = right.received.len();
        assert!(
            right.received[..] == left.to_send[..arrived],
            "seed {seed}: another stream"
        );
    }
    assert!(right.received == left.to_send, "seed {seed}: not all of it");
    assert!(left.received == right.to_send, "seed {seed}: not all of it");
    (left.network.sent + right.network.sent, now_ns)
}

const CALM: Trouble = Trouble {
    lost: 0,
    repeated: 0,
    late: 0,
    damaged: 0,
    full: 0,
};

#[test]
fn a_stream_comes_through_any_trouble_whole_and_once() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let mut up_to = |limit: u64| match random.below(3) {
            0 => 0,
            _ => random.below(limit),
        };
        let trouble = Trouble {
            lost: up_to(200),
            repeated: up_to(200),
            late: up_to(200),
            damaged: up_to(200),
            full: up_to(300),
        };
        run(seed, trouble, [60_000, 20_000], seed % 2 == 0);
    }
}

#[test]
fn a_calm_network_carries_each_frame_once() {
    let payload = 600 - HEADER_BYTES;
    let (packets, _) = run(1, CALM, [200 * payload, 0], false);
    // Pieces of frames, because the bytes come in pieces; acknowledgements, a quarter of a window each.
    assert!((200..=400).contains(&packets), "{packets} packets");
}

#[test]
fn a_lost_last_frame_is_asked_for() {
    let (first, second) = offers();
    let mut left = Session::new(first, second);
    let mut right = Session::new(second, first);
    let mut network = Network::new(1, CALM);
    assert_eq!(left.add(&[IoSlice::new(b"the last")]), 8);
    left.go_on(&mut network, 0);
    network.packets.clear();
    let due_ns = left.due_ns().expect("something is not acknowledged");
    assert_eq!(due_ns, 100_000_000);
    let mut exchange = |from: &mut Session, to: &mut Session, now_ns| {
        from.go_on(&mut network, now_ns);
        let packets = std::mem::take(&mut network.packets);
        let mut payloads = Vec::new();
        for (_, packet) in &packets {
            if let Taken::Payload(payload) = to.take(packet, now_ns) {
                payloads.push(payload.to_vec());
            }
        }
        (packets.len(), payloads)
    };
    // A question, an answer, the frame.
    assert_eq!(exchange(&mut left, &mut right, due_ns), (1, vec![]));
    assert_eq!(exchange(&mut right, &mut left, due_ns), (1, vec![]));
    let sent = exchange(&mut left, &mut right, due_ns);
    assert_eq!(sent, (1, vec![b"the last".to_vec()]));
    let due_ns = left.due_ns().expect("not acknowledged yet");
    assert_eq!(exchange(&mut left, &mut right, due_ns), (1, vec![]));
    assert_eq!(exchange(&mut right, &mut left, due_ns), (1, vec![]));
    // Idle: no timer on either side.
    assert_eq!((left.due_ns(), right.due_ns()), (None, None));
}

#[test]
fn a_full_window_takes_nothing_until_a_quarter_is_acknowledged() {
    let (first, second) = offers();
    let mut left = Session::new(first, second);
    let mut right = Session::new(second, first);
    let mut network = Network::new(1, CALM);
    let payload = 600 - HEADER_BYTES;
    let bytes = vec![7; 2 * WINDOW_FRAMES * payload];
    assert_eq!(left.add(&[IoSlice::new(&bytes)]), WINDOW_FRAMES * payload);
    assert_eq!(left.add(&[IoSlice::new(&bytes)]), 0);
    left.go_on(&mut network, 0);
    let packets = std::mem::take(&mut network.packets);
    assert_eq!(packets.len(), WINDOW_FRAMES);
    for (_, packet) in &packets[..WINDOW_FRAMES / 4] {
        right.take(packet, 0);
    }
    right.go_on(&mut network, 0);
    let answers = std::mem::take(&mut network.packets);
    assert_eq!(answers.len(), 1);
    left.take(&answers[0].1, 0);
    assert_eq!(
        left.add(&[IoSlice::new(&bytes)]),
        WINDOW_FRAMES / 4 * payload
    );
}

#[test]
fn nonsense_changes_nothing() {
    let (first, second) = offers();
    let mut left = Session::new(first, second);
    assert_eq!(left.add(&[IoSlice::new(b"held")]), 4);
    let nonsense = Packet {
        number: u64::MAX,
        received: u64::MAX,
        asks: false,
        repeat: true,
    };
    let packet = nonsense.encode(&first, b"payload");
    let packet = [&packet[..], b"payload"].concat();
    assert_eq!(left.take(&packet, 0), Taken::Nothing);
    assert_eq!(left.frames.len(), 1);
    for length in 0..packet.len() {
        assert_eq!(left.take(&packet[..length], 0), Taken::Nothing);
    }
}
