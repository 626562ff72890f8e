use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use super::*;
use crate::frame::FRAME_ALIGNMENT;
use crate::tcp::wire::tests::sealed_pair;

const WINDOW: usize = 4 << 10;
const PAYLOAD: usize = 800;

/// A reader's connection, beginning at frame `position`, and the socket of its peer.
fn incoming(position: u64) -> (Incoming, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    ours.set_nonblocking(true).expect("a socket");
    let incoming = Incoming::new(
        Arrival {
            wire: Wire::new(ours.into(), None),
            frames: None,
            address: "127.0.0.1:1".parse().expect("an address"),
            writer: 1,
            window: WINDOW,
            position,
        },
        Ready::unwatched(),
        true,
    );
    (incoming, theirs)
}

fn record(number: u64, first: bool, last: bool, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    let header = Record::Data(Fragment {
        number,
        length,
        first,
        last,
    });
    [&header.encode(), payload].concat()
}

fn next(incoming: &mut Incoming, received: u64) -> Option<Frame> {
    match incoming.next(received) {
        Ok(Next::Frame(frame)) => Some(frame),
        Ok(Next::Nothing) => None,
        _ => panic!("neither a frame nor nothing"),
    }
}

#[test]
fn credit_that_finds_no_room_is_accumulated() {
    let (mut incoming, mut peer) = incoming(0);
    // Fills the socket with credits of nothing.
    let nothing = Record::Credit { frames: 0, cost: 0 }.encode();
    while incoming.wire.send(&nothing).expect("a write") != Moved::WouldBlock {}
    for number in 0..4 {
        let bytes = record(number, true, true, &[1; PAYLOAD]);
        peer.write_all(&bytes).expect("a write");
        assert!(next(&mut incoming, number).is_some());
    }
    assert!(incoming.answer.is_some() && incoming.owed > 0);
    peer.set_nonblocking(true).expect("a socket");
    let (mut records, mut cost, mut acknowledged) = (0, 0, 0);
    while acknowledged < 4 {
        let mut bytes = [0; HEADER_BYTES];
        while peer.read_exact(&mut bytes).is_ok() {
            let Ok(Record::Credit { frames, cost: more }) = Record::decode(bytes) else {
                panic!("no credit: {bytes:?}");
            };
            cost += u64::from(more);
            acknowledged = frames;
            records += u32::from(more > 0);
        }
        assert!(next(&mut incoming, 4).is_none());
        incoming.settle(4).expect("a sound connection");
    }
    assert_eq!(cost, 4 * (PAYLOAD + RECORD_COST) as u64);
    assert_eq!(records, 2, "the first, and the sum of the others");
}

#[test]
fn a_peer_that_never_reads_does_not_hold_the_reader_up_and_is_dropped() {
    let (mut incoming, mut peer) = incoming(0);
    let nothing = Record::Credit { frames: 0, cost: 0 }.encode();
    while incoming.wire.send(&nothing).expect("a write") != Moved::WouldBlock {}
    for number in 0.. {
        let bytes = record(number, true, true, &[1; PAYLOAD]);
        peer.write_all(&bytes).expect("a write");
        match incoming.next(number) {
            Ok(Next::Frame(_)) => assert!(number < 8, "twice its window"),
            Err(Broken::Breach(reason)) => {
                assert!(reason.contains("exceeded its window of 4096"), "{reason}");
                return;
            }
            _ => panic!("neither a frame nor a breach"),
        }
    }
}

#[test]
fn frames_that_came_by_the_previous_connection_are_skipped() {
    // The acceptor answered "resume at 3"; meanwhile 3 and 4 came by the old connection.
    let (mut incoming, mut peer) = incoming(3);
    let received = 5;
    let half = PAYLOAD / 2;
    for bytes in [
        record(3, true, true, b"old"),
        record(4, true, false, &[4; PAYLOAD]),
        record(4, false, true, &[4; PAYLOAD]),
    ] {
        peer.write_all(&bytes[..half.min(bytes.len())])
            .expect("a write");
        assert!(next(&mut incoming, received).is_none());
        peer.write_all(&bytes[half.min(bytes.len())..])
            .expect("a write");
        assert!(next(&mut incoming, received).is_none());
    }
    assert!(!incoming.is_halfway());
    peer.write_all(&record(5, true, true, b"new"))
        .expect("a write");
    let frame = next(&mut incoming, received).expect("a frame");
    assert_eq!(frame[..], *b"new");
    // They cost credit like any other.
    let cost = 3 + 2 * PAYLOAD + 3 + 4 * RECORD_COST;
    assert_eq!(incoming.taken, cost as u64);
}

/// Bytes arrive in every possible portion.
#[test]
fn a_frame_may_arrive_byte_by_byte() {
    let (mut incoming, mut peer) = incoming(0);
    let frames: [&[u8]; 4] = [b"x", &[2; INLINE_BYTES_MAX], &[3; 100], &[4; 896]];
    for (number, payload) in frames.iter().enumerate() {
        let bytes = record(number as u64, true, true, payload);
        for (sent, byte) in bytes.iter().enumerate() {
            assert!(next(&mut incoming, number as u64).is_none());
            assert_eq!(incoming.is_halfway(), sent > 0);
            peer.write_all(&[*byte]).expect("a write");
        }
        let frame = next(&mut incoming, number as u64).expect("a frame");
        assert_eq!(frame[..], payload[..]);
        assert!(!incoming.is_halfway());
    }
}

#[test]
fn memory_follows_received_bytes_and_not_claimed_lengths() {
    let (mut incoming, mut peer) = incoming(0);
    // The longest record of this window, of which almost nothing comes.
    let bytes = record(0, true, false, &[9; 896]);
    peer.write_all(&bytes[..30]).expect("a write");
    assert!(next(&mut incoming, 0).is_none());
    let frame = incoming.frame.as_ref().expect("a frame under way");
    assert_eq!(frame.bytes.len(), 30 - HEADER_BYTES);
}

/// Frames of all lengths at which their memory changes, several in each read.
#[test]
fn short_frames_of_one_read_share_memory_unless_they_are_kept() {
    for shares in [true, false] {
        let (mut incoming, mut peer) = incoming(0);
        incoming.shares = shares;
        let lengths = [100, 1, 49, 48, 64, 65, 896, 512, 200, 200, 128];
        let mut bytes = Vec::new();
        for (number, &length) in lengths.iter().enumerate() {
            bytes.extend(record(
                number as u64,
                true,
                true,
                &vec![number as u8; length],
            ));
        }
        // The last two records arrive in parts, and so by another read.
        let (first, second) = bytes.split_at(bytes.len() - 250);
        let mut frames = Vec::new();
        for part in [first, second] {
            peer.write_all(part).expect("a write");
            while let Some(frame) = next(&mut incoming, frames.len() as u64) {
                frames.push(frame);
            }
        }
        assert_eq!(frames.len(), lengths.len());
        for (number, (frame, &length)) in frames.iter().zip(&lengths).enumerate() {
            assert_eq!(frame[..], vec![number as u8; length]);
            let is_aligned = (frame.as_ptr() as usize).is_multiple_of(FRAME_ALIGNMENT);
            assert!(is_aligned || length <= INLINE_BYTES_MAX, "{number}");
        }
        let distance = |one: usize, other: usize| {
            (frames[other].as_ptr() as usize).wrapping_sub(frames[one].as_ptr() as usize)
        };
        // The frames of 100 and 49 bytes lie two lines apart, with a frame of one byte between them.
        assert_eq!(distance(0, 2) == 128 && distance(2, 4) == 64, shares);
        // What is left of the others does not depend on them.
        let kept = frames.remove(5);
        drop(frames);
        assert_eq!(kept[..], [5; 65]);
    }
}

/// The seal gives its plaintext in portions, and the socket has one event for all of it.
#[test]
fn regression_frames_that_are_left_in_a_seal_are_found_without_an_event() {
    let (mut peer, ours) = sealed_pair();
    let waiter = crate::Waiter::new().expect("a waiter");
    let watch = waiter
        .registrar()
        .register(ours.as_fd(), crate::waiter::Interest::Both);
    let mut incoming = Incoming::new(
        Arrival {
            wire: ours,
            frames: None,
            address: "127.0.0.1:1".parse().expect("an address"),
            writer: 1,
            window: 1 << 20,
            position: 0,
        },
        Ready::new(watch.expect("a watch")),
        true,
    );
    let mut received = 0;
    for round in 0..20 {
        assert!(next(&mut incoming, received).is_none(), "round {round}");
        let records = (0..70).map(|number| record(received + number, true, true, &[1; PAYLOAD]));
        let bytes: Vec<u8> = records.flatten().collect();
        assert_eq!(
            peer.send(&bytes).expect("a write"),
            Moved::Bytes(bytes.len())
        );
        waiter.look();
        for _ in 0..70 {
            assert!(next(&mut incoming, received).is_some(), "round {round}");
            received += 1;
            // Looks that name nothing, so that the socket is not asked for want of a look.
            waiter.look();
        }
    }
}
