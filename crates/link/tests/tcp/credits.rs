//! Tests of the window: it limits what is in flight, comes back, and never locks a writer out for good.

use std::time::{Duration, Instant};

use slackwater_link::tcp::Settings;

use crate::harness::*;

const WINDOW: usize = 64 << 10;

fn with_window() -> Settings {
    patient(WINDOW)
}

/// Posts and pushes until the writer takes no more, for a while. Returns how many frames it took.
fn fill(pair: &mut Pair, first: u64, length: usize) -> u64 {
    let mut taken = 0;
    let mut refused_at = Instant::now();
    let patience = match crate::writing().transport {
        None => Duration::from_millis(100),
        // A credit in a frame may be lost.
        Some(_) => Duration::from_secs(1),
    };
    while refused_at.elapsed() < patience {
        if pair.post(first + taken, length) {
            taken += 1;
            refused_at = Instant::now();
            assert!(
                taken as usize * length <= 2 * WINDOW + length,
                "not bounded"
            );
        }
        pair.writer.push(false);
    }
    taken
}

#[test]
fn a_writer_stops_when_the_reader_does_not_read() {
    for length in [1, 48, 1_000, 10_000] {
        let mut pair = Pair::open(with_window());
        let taken = fill(&mut pair, 0, length);
        // 128 bytes of each record count besides its payload.
        let most = WINDOW / (length + 128) + 1;
        assert!(
            (most - 1..=most).contains(&(taken as usize)),
            "{taken} of {length}"
        );
        assert!(pair.writer.held_bytes() < WINDOW + length + 128);
        assert!(!pair.writer.has_room());
        for number in 0..taken {
            check(&pair.receive(), number, length);
        }
        // And it continues: a quarter of the window is all that may be kept back.
        let again = fill(&mut pair, taken, length);
        assert!(again >= taken * 3 / 4 - 1, "{again} after {taken}");
        for number in taken..taken + again {
            check(&pair.receive(), number, length);
        }
    }
}

#[test]
fn a_settled_reader_keeps_nothing_back() {
    let mut pair = Pair::open(with_window());
    let taken = fill(&mut pair, 0, 1_000);
    for number in 0..3 {
        check(&pair.receive(), number, 1_000);
    }
    assert!(
        !pair.writer.has_room(),
        "credit came back for three frames of sixty"
    );
    pair.reader.settle();
    let end = Instant::now() + TOO_LONG;
    while !pair.writer.has_room() {
        assert!(Instant::now() < end, "no room after the reader settled");
    }
    assert!(pair.post(taken, 1_000));
}

#[test]
fn a_frame_may_be_longer_than_the_window() {
    let mut pair = Pair::open(with_window());
    for (number, length) in [(0, 40 * WINDOW), (1, 1), (2, WINDOW), (3, 40 * WINDOW)] {
        // The credit for the frame before.
        pair.turn_until("room", |pair| pair.writer.has_room());
        assert!(pair.post(number, length));
        if length > WINDOW {
            assert!(!pair.post(9, 1), "a frame beyond a window that is used up");
        }
        check(&pair.receive(), number, length);
        // Its last record acknowledges it, though less than a quarter of a window is owed.
        if length > WINDOW {
            pair.turn_until("room", |pair| pair.writer.has_room());
        }
    }
}

#[test]
fn the_smaller_window_counts() {
    for (ours, theirs) in [(WINDOW, 8 * WINDOW), (8 * WINDOW, WINDOW)] {
        let waiter = slackwater_link::Waiter::new().expect("a waiter");
        let acceptor = bind(patient(theirs));
        let mut reader = acceptor.reader(LINK, "the writer", &waiter);
        let mut writer = connect(acceptor.local_address(), &waiter, patient(ours));
        let (mut sent, mut received) = (0, 0);
        let end = Instant::now() + TOO_LONG;
        while received < 2_000 {
            assert!(Instant::now() < end, "stuck at {received}");
            if sent < 2_000 && writer.post(pieces(sent, 1_500)).is_ok() {
                sent += 1;
            }
            writer.push(false);
            if let Some(frame) = reader.receive().expect("a sound link") {
                check(&frame, received, 1_500);
                received += 1;
            }
        }
        assert_eq!(acceptor.refused().count, 0);
    }
}

#[test]
fn the_last_frames_are_acknowledged_on_request_and_then_it_is_quiet() {
    let mut pair = Pair::open(Settings {
        heartbeat_after: Duration::from_millis(50),
        ..patient(WINDOW)
    });
    assert_eq!(pair.writer.due_ns(), None, "idle");
    let before = now_ns();
    assert!(pair.post(0, 500));
    check(&pair.receive(), 0, 500);
    let due_ns = pair.writer.due_ns().expect("something is unacknowledged");
    assert!(due_ns >= before + 50_000_000 && due_ns <= now_ns() + 50_000_000);
    assert!(!pair.writer.is_drained());
    pair.turn_until("an acknowledgement", |pair| pair.writer.is_drained());
    assert!(now_ns() >= before + 50_000_000, "nobody had asked yet");
    pair.be_quiet();
    assert_eq!(pair.writer.due_ns(), None, "idle again");
    assert_eq!(pair.reader.due_ns(), None);
    assert_eq!(pair.writer.held_bytes(), 0);
}

#[test]
fn pieces_are_kept_until_they_are_acknowledged_and_no_longer() {
    use std::sync::Arc;

    #[derive(Clone)]
    struct Piece(Arc<Vec<u8>>);
    impl std::ops::Deref for Piece {
        type Target = [u8];
        fn deref(&self) -> &[u8] {
            &self.0
        }
    }

    let waiter = slackwater_link::Waiter::new().expect("a waiter");
    let acceptor = bind(with_window());
    let mut reader = acceptor.reader(LINK, "the writer", &waiter);
    let address = acceptor.local_address();
    let mut writer = connect_as(IDENTITY, address, LINK, &waiter, with_window());
    let piece = Piece(Arc::new(content(0, 5_000)));
    for _ in 0..4 {
        assert!(writer.post(vec![piece.clone()]).is_ok());
    }
    assert_eq!(Arc::strong_count(&piece.0), 5);
    let end = Instant::now() + TOO_LONG;
    let mut received = 0;
    while received < 4 {
        assert!(Instant::now() < end, "stuck");
        writer.push(false);
        received += usize::from(reader.receive().expect("a sound link").is_some());
    }
    reader.settle();
    while Arc::strong_count(&piece.0) > 1 {
        assert!(Instant::now() < end, "stuck");
        writer.push(false);
    }
}
