use fastrand::Rng;
use std::io::Read;
use std::os::unix::net::UnixStream;

use super::*;

const WINDOW: usize = 64 << 10;

/// The frames that the records in `bytes` make up.
fn frames_of(mut bytes: &[u8], mut number: u64) -> Vec<Vec<u8>> {
    let mut frames: Vec<Vec<u8>> = Vec::new();
    while !bytes.is_empty() {
        let header = bytes[..HEADER_BYTES].try_into().expect("a header");
        let Ok(Record::Data(fragment)) = Record::decode(header) else {
            panic!("no fragment: {header:?}");
        };
        assert_eq!(fragment.number, number);
        if fragment.first {
            frames.push(Vec::new());
        }
        let payload = &bytes[HEADER_BYTES..HEADER_BYTES + fragment.length as usize];
        assert!(payload.len() <= fragment_bytes_max(WINDOW));
        frames.last_mut().expect("a first fragment").extend(payload);
        number += u64::from(fragment.last);
        bytes = &bytes[HEADER_BYTES + payload.len()..];
    }
    frames
}

fn add(outgoing: &mut Outgoing<Vec<u8>>, pieces: Vec<Vec<u8>>) -> Vec<u8> {
    let whole = pieces.concat();
    outgoing.add(pieces, whole.len());
    whole
}

/// However much the socket takes at a time, the bytes are those of the frames.
#[test]
fn partial_writes_continue_where_they_stopped() {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
    ours.set_nonblocking(true).expect("a socket");
    let mut wire = Wire::new(ours.into(), None);
    theirs.set_nonblocking(true).expect("a socket");
    let mut random = Rng::with_seed(42);
    let mut outgoing = Outgoing::new(WINDOW);
    outgoing.resume(0, WINDOW).expect("a beginning");
    let mut expected = Vec::new();
    for _ in 0..300 {
        let pieces = (0..random.u64(..5) + 1)
            .map(|_| {
                let length = [0, 7, 900, 5_000, 70_000][random.usize(..5)];
                vec![random.u8(..); length]
            })
            .chain([vec![1]])
            .collect();
        expected.push(add(&mut outgoing, pieces));
    }
    let mut bytes = Vec::new();
    let mut space = vec![0; 100_000];
    while !outgoing.is_all_written() {
        let (_, stop) = outgoing.write(&mut wire).expect("a write");
        if stop == Stop::NoCredit {
            let cost = outgoing.sent + WINDOW as u64 - outgoing.limit;
            let frames = outgoing.first + outgoing.cursor.frame as u64;
            outgoing.credit(frames, cost as u32).expect("a credit");
        }
        let most = random.usize(..space.len());
        if let Ok(count) = theirs.read(&mut space[..most]) {
            bytes.extend(&space[..count]);
        }
    }
    while let Ok(count) = theirs.read(&mut space) {
        bytes.extend(&space[..count]);
    }
    assert_eq!(frames_of(&bytes, 0), expected);
}

#[test]
fn a_record_is_begun_only_with_credit_for_all_of_it() {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
    let mut wire = Wire::new(ours.into(), None);
    let mut outgoing = Outgoing::new(WINDOW);
    outgoing.resume(0, WINDOW).expect("a beginning");
    for _ in 0..10 {
        add(&mut outgoing, vec![vec![5; 15_000]]);
    }
    assert_eq!(outgoing.held(), 10 * (15_000 + RECORD_COST));
    let (count, stop) = outgoing.write(&mut wire).expect("a write");
    // Four records of 15,128 fit 65,536, the fifth does not.
    assert_eq!((count, stop), (4 * (15_000 + HEADER_BYTES), Stop::NoCredit));
    assert!(outgoing.is_between_records() && outgoing.awaits());
    assert!(outgoing.credit(1, 15_128).expect("a credit"));
    let (count, _) = outgoing.write(&mut wire).expect("a write");
    assert_eq!(count, 15_000 + HEADER_BYTES);
    let mut bytes = vec![0; 5 * (15_000 + HEADER_BYTES)];
    theirs.read_exact(&mut bytes).expect("all bytes");
    assert_eq!(frames_of(&bytes, 0).len(), 5);
}

#[test]
fn impossible_credits_are_refused() {
    let (ours, _theirs) = UnixStream::pair().expect("a pair of sockets");
    let mut wire = Wire::new(ours.into(), None);
    let mut outgoing = Outgoing::new(WINDOW);
    outgoing.resume(0, WINDOW).expect("a beginning");
    add(&mut outgoing, vec![vec![5; 100]]);
    add(&mut outgoing, vec![vec![5; 100]]);
    assert!(outgoing.credit(1, 0).is_err(), "nothing is written");
    assert!(outgoing.credit(0, 1).is_err(), "nothing was spent");
    outgoing.write(&mut wire).expect("a write");
    assert!(outgoing.credit(3, 0).is_err(), "a frame that is not there");
    assert!(outgoing.credit(1, 457).is_err(), "more than was spent");
    assert_eq!(outgoing.credit(2, 456), Ok(true));
    assert_eq!(outgoing.credit(2, 0), Ok(false));
    assert!(outgoing.credit(1, 0).is_err(), "it goes back");
    assert!(outgoing.is_empty() && !outgoing.awaits() && outgoing.held() == 0);
}

#[test]
fn a_new_connection_begins_at_the_readers_frame() {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
    let mut wire = Wire::new(ours.into(), None);
    let mut outgoing = Outgoing::new(WINDOW);
    outgoing.resume(0, WINDOW).expect("a beginning");
    let frames: Vec<_> = (0..6)
        .map(|number| add(&mut outgoing, vec![vec![number; 15_000]]))
        .collect();
    outgoing.write(&mut wire).expect("a write");
    assert_eq!(outgoing.begun(), 4);
    assert!(
        outgoing.resume(5, WINDOW).is_err(),
        "frame 4 was never sent"
    );
    outgoing.resume(2, WINDOW).expect("frame 2 is there");
    assert!(outgoing.resume(1, WINDOW).is_err(), "frame 1 is gone");
    let mut bytes = vec![0; 4 * (15_000 + HEADER_BYTES)];
    theirs.read_exact(&mut bytes).expect("the first connection");
    outgoing.write(&mut wire).expect("a write");
    theirs
        .read_exact(&mut bytes)
        .expect("the second connection");
    assert_eq!(frames_of(&bytes, 2), frames[2..]);
}
