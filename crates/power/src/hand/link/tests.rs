use super::super::pace::READ_NS;
use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

const BEAT: u64 = 20_000_000;
const READING: Reading = Reading { ns: READ_NS };

struct Ends {
    master: TcpStream,
    replica: TcpStream,
    link: Link,
}

fn ends() -> Ends {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let replica = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (master, _) = listener.accept().unwrap();
    let pid = std::process::id();
    let address = listener.local_addr().unwrap();
    let found = process::connection_to(pid, address).unwrap();
    let copy = replica.try_clone().unwrap();
    let link = Link::new(pid, found, address, copy.into()).unwrap();
    Ends {
        master,
        replica,
        link,
    }
}

impl Ends {
    fn mark(&self) -> i32 {
        system::low_water_mark(self.replica.as_fd()).unwrap()
    }

    /// Sends bytes, and returns when they have arrived.
    fn send(&mut self, bytes: &[u8]) {
        let before = system::connection(self.replica.as_fd()).unwrap().received;
        self.master.write_all(bytes).unwrap();
        while system::connection(self.replica.as_fd()).unwrap().received
            < before + bytes.len() as u64
        {}
    }

    fn step(&mut self) -> u64 {
        let now = self.link.due().unwrap();
        self.link.step(now, &READING).unwrap();
        now
    }

    /// Begins a beat, and reads what `bytes` were sent before it.
    fn hand_over(&mut self, bytes: usize) {
        self.send(&vec![7; bytes]);
        self.step();
        self.replica.read_exact(&mut vec![0; bytes]).unwrap();
        self.step();
    }
}

#[test]
fn the_mark_is_down_until_all_was_read() {
    let mut ends = ends();
    ends.link.beat(1, Some(BEAT), BEAT).unwrap();
    assert_eq!((ends.mark(), ends.link.due()), (MARK, Some(BEAT)));
    ends.send(&[7; 3_000]);
    ends.step();
    assert_eq!((ends.mark(), ends.link.due()), (1, Some(BEAT + READ_NS)));
    ends.replica.read_exact(&mut [0; 1_000]).unwrap();
    ends.step();
    assert_eq!(ends.mark(), 1);
    // What comes meanwhile needs not be read.
    ends.send(&[7; 100]);
    ends.replica.read_exact(&mut [0; 2_000]).unwrap();
    ends.step();
    assert_eq!((ends.mark(), ends.link.due()), (MARK, Some(2 * BEAT)));
    ends.link.beat(1, None, BEAT).unwrap();
    assert_eq!((ends.mark(), ends.link.due()), (1, None));
}

#[test]
fn a_replica_that_does_not_read_gets_half_of_a_beat() {
    let mut ends = ends();
    ends.link.beat(1, Some(BEAT), BEAT).unwrap();
    ends.send(b"bytes");
    let began = ends.step();
    let mut now = began;
    while ends.mark() == 1 {
        now = ends.step();
        assert!(now <= began + BEAT);
    }
    assert!(now >= began + BEAT / 2);
    assert_eq!(ends.link.counts, Counts { beats: 1, slow: 1 });
}

#[test]
fn silence_waits_for_bytes_with_the_mark_down() {
    let mut ends = ends();
    ends.link.beat(1, Some(BEAT), BEAT).unwrap();
    for _ in 0..SILENT_BEATS {
        assert!(!ends.link.waits_for_bytes());
        ends.step();
    }
    assert!(ends.link.waits_for_bytes());
    assert_eq!((ends.mark(), ends.link.due()), (1, None));
    // A ping begins no beat.
    ends.send(b"ping");
    ends.link.bytes_came(1_000 * BEAT, &READING);
    assert!(ends.link.waits_for_bytes());
    ends.send(b"bytes");
    ends.link.bytes_came(1_001 * BEAT, &READING);
    assert_eq!(
        (ends.mark(), ends.link.due()),
        (1, Some(1_001 * BEAT + READ_NS))
    );
    ends.replica.read_exact(&mut [0; 9]).unwrap();
    ends.step();
    assert_eq!((ends.mark(), ends.link.due()), (MARK, Some(1_002 * BEAT)));
}

#[test]
fn the_mark_follows_the_rate() {
    for (bytes, expected) in [
        (0, 65_536),
        (26_000, 104_000),
        (1 << 20, 4 << 20),
        (u64::MAX, 64 << 20),
    ] {
        assert_eq!(mark(bytes), expected, "{bytes}");
    }
    let mut ends = ends();
    ends.link.beat(1, Some(BEAT), BEAT).unwrap();
    for _ in 0..=2 * RATE_BEATS {
        ends.hand_over(150_000);
    }
    assert_eq!(ends.mark(), mark(150_000));
    // It falls to half at a time.
    for _ in 0..RATE_BEATS {
        ends.hand_over(1_000);
    }
    assert_eq!(ends.mark(), mark(150_000) / 2);
    for _ in 0..8 * RATE_BEATS {
        ends.hand_over(1_000);
    }
    assert!(ends.mark() < 2 * mark(0));
}

#[test]
fn bytes_that_keep_coming_are_told_from_those_that_lay_there() {
    let mut ends = ends();
    ends.link.beat(1, Some(BEAT), BEAT).unwrap();
    for round in 0..4 {
        ends.send(&[7; 1_000]);
        ends.step();
        // More than lay there comes while it reads, and it reads more than that; never all of it.
        ends.replica.read_exact(&mut [0; 900]).unwrap();
        ends.send(&[7; 1_000]);
        ends.step();
        assert_eq!(ends.mark(), 1, "{round}");
        ends.replica.read_exact(&mut [0; 1_100]).unwrap();
        ends.send(&[7; 10]);
        ends.step();
        assert_eq!(ends.mark(), MARK, "{round}");
        ends.replica.read_exact(&mut [0; 10]).unwrap();
    }
}

#[test]
fn a_connection_that_ends_is_seen() {
    let mut ends = ends();
    ends.link.beat(1, Some(BEAT), BEAT).unwrap();
    assert!(ends.link.is_held());
    drop(ends.master);
    let mut byte = [0; 1];
    assert_eq!(ends.replica.read(&mut byte).unwrap(), 0);
    ends.link.counted.0 = RATE_BEATS;
    assert!(ends.link.step(BEAT, &READING).is_err());
    drop(ends.replica);
    assert!(!ends.link.is_held());
}
