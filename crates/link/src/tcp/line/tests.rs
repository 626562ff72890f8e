use super::*;
use crate::tcp::wire::tests::sealed_pair;

const PATIENCE: Patience = Patience {
    heartbeat_after: Duration::from_secs(60),
    peer_timeout: Duration::from_secs(60),
};

const FRAME_BYTES: usize = 5_000;

fn exchange(line: &mut Line, outgoing: &mut Outgoing<Vec<u8>>, end: bool) {
    let news = line.exchange(outgoing, end, 1, PATIENCE);
    assert_eq!(news.expect("a sound connection"), LineEvent::None);
}

/// The seal takes bytes before the socket does.
#[test]
fn regression_what_a_seal_owes_is_not_written() {
    let (ours, mut theirs) = sealed_pair();
    let mut line = Line::new(ours, Ready::unwatched());
    let mut outgoing = Outgoing::new(4 << 20);
    outgoing.resume(0, 4 << 20).expect("a beginning");
    let mut frames = 0;
    while !line.wire.owes() {
        outgoing.add(vec![vec![7; FRAME_BYTES]], FRAME_BYTES);
        frames += 1;
        exchange(&mut line, &mut outgoing, false);
    }
    assert!(
        outgoing.is_all_written(),
        "the seal has taken the last frame"
    );
    assert!(line.is_blocked, "nobody waits for the socket");

    let (mut received, mut room) = (0, vec![0; 10_000]);
    let whole = frames * (FRAME_BYTES + HEADER_BYTES);
    while received < whole {
        if let Moved::Bytes(count) = theirs.receive(&mut room).expect("a sound connection") {
            received += count;
        }
        exchange(&mut line, &mut outgoing, false);
    }
    assert!(!line.is_blocked && !line.wire.owes());
}

/// How many bytes, each sent alone, leave the seal in debt.
fn bytes_until_debt(line: &mut Line, most: usize) -> usize {
    let mut sent = 0;
    while !line.wire.owes() && sent < most {
        let moved = line.wire.send(&[9]).expect("a sound connection");
        assert_eq!(moved, Moved::Bytes(1));
        sent += 1;
    }
    sent
}

/// A writer that is drained may be dropped.
#[test]
fn regression_an_end_that_a_seal_owes_is_not_sent() {
    let (ours, theirs) = sealed_pair();
    let count = bytes_until_debt(&mut Line::new(ours, Ready::unwatched()), usize::MAX);
    drop(theirs);

    // The same with the end in the place of the last byte.
    let (ours, mut theirs) = sealed_pair();
    let mut line = Line::new(ours, Ready::unwatched());
    assert_eq!(bytes_until_debt(&mut line, count - 1), count - 1);
    let mut outgoing = Outgoing::new(4 << 20);
    exchange(&mut line, &mut outgoing, true);
    assert!(line.end_sent && line.wire.owes());
    assert!(!line.is_end_sent() && line.is_blocked);
    let (mut received, mut room) = (0, vec![0; 10_000]);
    while received < count - 1 + HEADER_BYTES {
        if let Moved::Bytes(count) = theirs.receive(&mut room).expect("a sound connection") {
            received += count;
        }
        exchange(&mut line, &mut outgoing, true);
    }
    assert!(line.is_end_sent());
}
