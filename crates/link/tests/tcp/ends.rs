//! Ends of a link: closed, and dropped at any time.

use std::time::{Duration, Instant};

use slackwater_link::tcp::Settings;
use slackwater_link::{SendError, Waiter};

use crate::harness::*;

#[test]
fn the_end_comes_once_after_the_last_frame() {
    let mut pair = Pair::open(settings());
    for number in 0..10 {
        assert!(pair.post(number, 10));
    }
    pair.writer.close();
    pair.writer.push(false);
    assert!(!pair.writer.is_drained(), "nothing is acknowledged");
    for number in 0..10 {
        assert!(!pair.reader.is_closed(), "the end overtook a frame");
        check(&pair.receive(), number, 10);
    }
    pair.turn_until("the end", |pair| pair.reader.is_closed());
    pair.turn_until("its acknowledgement", |pair| pair.writer.is_drained());
    assert!(!pair.writer.is_closed());
    assert_eq!((pair.writer.due_ns(), pair.reader.due_ns()), (None, None));
    drop(pair.writer);
    assert!(matches!(pair.reader.receive(), Ok(None)));
    assert!(pair.reader.is_closed());
}

#[test]
fn dropping_a_drained_writer_is_an_end() {
    let mut pair = Pair::open(Settings {
        heartbeat_after: Duration::from_millis(20),
        ..settings()
    });
    assert!(pair.post(0, 10));
    check(&pair.receive(), 0, 10);
    pair.turn_until("the acknowledgement", |pair| pair.writer.is_drained());
    drop(pair.writer);
    let end = Instant::now() + TOO_LONG;
    while !pair.reader.is_closed() {
        assert!(Instant::now() < end, "no end");
        assert!(pair.reader.receive().expect("an end").is_none());
    }
}

#[test]
fn dropping_a_writer_with_frames_is_an_error_after_those_that_were_sent() {
    let mut pair = Pair::open(settings());
    for number in 0..10 {
        assert!(pair.post(number, 1_000));
    }
    pair.writer.push(false);
    drop(pair.writer);
    let mut next = 0;
    let error = error_of(&mut pair.reader, |frame| {
        check(&frame, next, 1_000);
        next += 1;
    });
    assert_eq!(next, 10);
    assert!(error.peer.contains("the writer (127.0.0.1:"), "{error}");
    assert!(error.reason.contains("closed before the end"), "{error}");
}

/// Whether the greeting is answered by then is a matter of luck, so it is tried often.
#[test]
fn regression_a_writer_dropped_during_its_greeting_says_so() {
    if crate::guard().is_some() || crate::writing().transport.is_some() {
        // Nothing can be said before the handshake is over, or before the other end has changed over to
        // frames: the reader waits for a writer that never comes.
        return;
    }
    let waiter = Waiter::new().expect("a waiter");
    let acceptor = bind(settings());
    for link in 0..50 {
        let mut reader = acceptor.reader(link, "the writer", &waiter);
        let started = Instant::now();
        let writer = connect_link(acceptor.local_address(), link, &waiter, settings());
        if link % 2 == 0 {
            drop(writer);
            while !reader.is_closed() {
                assert!(started.elapsed() < TOO_LONG, "not told");
                assert!(reader.receive().expect("an end").is_none());
            }
        } else {
            let mut writer = writer;
            writer.post(pieces(0, 10)).expect("room");
            drop(writer);
            let error = error_of(&mut reader, |_| panic!("a frame"));
            assert!(error.reason.contains("closed before the end"), "{error}");
        }
    }
}

#[test]
fn regression_a_reader_that_left_before_its_writer_came_closes_the_link() {
    let waiter = Waiter::new().expect("a waiter");
    let acceptor = bind(settings());
    drop(acceptor.reader(LINK, "the writer", &waiter));
    let mut writer = connect(acceptor.local_address(), &waiter, settings());
    // It may know already.
    let posted = writer.post(pieces(0, 10));
    assert!(!matches!(posted, Err(SendError::Full(_))));
    let end = Instant::now() + TOO_LONG;
    while !writer.is_closed() {
        assert!(Instant::now() < end, "not noticed");
        writer.push(false);
    }
    assert_eq!(writer.error(), None, "it left normally");
}
