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
    exchange(&mut line, &mut outgoing, true);
    assert!(!line.is_end_sent(), "the end overtook what is owed");

    let (mut received, mut room) = (0, vec![0; 10_000]);
    let whole = frames * (FRAME_BYTES + HEADER_BYTES) + HEADER_BYTES;
    let mut was_sent_with_debts = false;
    while received < whole {
        if let Moved::Bytes(count) = theirs.receive(&mut room).expect("a sound connection") {
            received += count;
        }
        exchange(&mut line, &mut outgoing, true);
        was_sent_with_debts |= line.is_end_sent() && line.wire.owes();
    }
    assert!(line.is_end_sent() && !was_sent_with_debts && !line.is_blocked);
    assert_eq!(
        theirs.receive(&mut room).expect("nothing"),
        Moved::WouldBlock
    );
}
