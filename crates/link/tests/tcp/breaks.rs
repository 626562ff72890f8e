//! Tests of connections that break, ends that leave, incarnations that are over.

use fastrand::Rng;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType};
use slackwater_link::tcp::{Identity, Settings, Writer};
use slackwater_link::{SendError, Waiter};

use crate::harness::*;

const SHORT: Duration = Duration::from_millis(300);

fn short_patience() -> Settings {
    Settings {
        peer_timeout: SHORT,
        connect_timeout: SHORT,
        heartbeat_after: Duration::from_millis(50),
        ..settings()
    }
}

/// A relay to `target` that cuts `cuts` connections, each at a random moment after it was made, and
/// leaves the rest alone. Returns its address and the number of cuts so far.
fn cutting_relay(target: SocketAddr, cuts: u64, most: Duration) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listening socket");
    let address = listener.local_addr().expect("an address");
    let done = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&done);
    std::thread::spawn(move || {
        let mut random = Rng::with_seed(11);
        for ours in listener.incoming() {
            let (Ok(ours), Ok(theirs)) = (ours, TcpStream::connect(target)) else {
                return;
            };
            for (from, to) in [(&ours, &theirs), (&theirs, &ours)] {
                let (from, to) = (from.try_clone(), to.try_clone());
                let (Ok(from), Ok(to)) = (from, to) else {
                    return;
                };
                std::thread::spawn(move || copy(from, to));
            }
            if counted.load(Ordering::Relaxed) < cuts {
                std::thread::sleep(Duration::from_nanos(random.u64(..most.as_nanos() as u64)));
                let _ = ours.shutdown(Shutdown::Both);
                let _ = theirs.shutdown(Shutdown::Both);
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    (address, done)
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    // Small and odd, so that cuts fall into the middle of records.
    let mut space = [0; 1_013];
    while let Ok(count) = from.read(&mut space) {
        if count == 0 || to.write_all(&space[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn a_hundred_cuts_lose_and_duplicate_nothing() {
    const CUTS: u64 = 100;
    let settings = patient(256 << 10);
    let waiter = Waiter::new().expect("a waiter");
    let acceptor = bind(settings);
    let mut reader = acceptor.reader(LINK, "the writer", &waiter);
    let (address, cuts) = cutting_relay(acceptor.local_address(), CUTS, Duration::from_millis(20));
    let all_cut = Arc::clone(&cuts);
    let writing = std::thread::spawn(move || {
        let waiter = Waiter::new().expect("a waiter");
        let mut writer = connect(address, &waiter, settings);
        let mut random = Rng::with_seed(12);
        let mut number = 0;
        let frames = std::iter::from_fn(|| {
            // Continues until all cuts are done.
            if all_cut.load(Ordering::Relaxed) == CUTS && number > 3_000 {
                return None;
            }
            number += 1;
            Some(pieces(number - 1, length_of(number - 1)))
        });
        write_all(&mut writer, &waiter, frames, || {
            pause_at_random(&mut random, Duration::from_micros(200));
        });
        assert_eq!(writer.error(), None);
        number
    });
    let mut next = 0;
    let sleeps = read_all(&mut reader, &waiter, |frame| {
        check(&frame, next, length_of(next));
        next += 1;
    });
    sleeps.expect("a sound link");
    assert_eq!(next, writing.join().expect("the writing thread"));
    assert_eq!(cuts.load(Ordering::Relaxed), CUTS);
    let refused = acceptor.refused();
    println!("{next} frames over {CUTS} cuts; refused: {refused:?}");
}

fn length_of(number: u64) -> usize {
    let mut random = Rng::with_seed(number ^ 0x5555);
    let most = [40, 500, 20_000, 200_000][random.u64(..4) as usize];
    1 + random.u64(..most) as usize
}

#[test]
fn a_link_that_is_cut_while_idle_is_repaired() {
    let settings = settings();
    let waiter = Waiter::new().expect("a waiter");
    let acceptor = bind(settings);
    let mut reader = acceptor.reader(LINK, "the writer", &waiter);
    let (address, cuts) = cutting_relay(acceptor.local_address(), 3, Duration::from_millis(100));
    let mut writer = connect(address, &waiter, settings);
    let end = Instant::now() + TOO_LONG;
    while cuts.load(Ordering::Relaxed) < 3 || writer.due_ns().is_some() {
        assert!(Instant::now() < end, "never repaired");
        writer.push(false);
        assert!(reader.receive().expect("a sound link").is_none());
        std::thread::sleep(Duration::from_millis(1));
    }
    writer.post(pieces(0, 100)).expect("room");
    loop {
        assert!(Instant::now() < end, "never repaired");
        writer.push(false);
        if let Some(frame) = reader.receive().expect("a sound link") {
            check(&frame, 0, 100);
            break;
        }
    }
    assert_eq!(reader.due_ns(), None);
}

#[test]
fn a_writer_that_dies_is_an_error_within_the_time_out() {
    if crate::writing().transport.is_some() {
        // Written by hand, without frames.
        return;
    }
    // A connection that closes without an end, as a killed process's does.
    let waiter = Waiter::new().expect("a waiter");
    let acceptor = bind(short_patience());
    let mut reader = acceptor.reader(LINK, "process 2", &waiter);
    let (answer, mut stream) = HELLO.greet(acceptor.local_address());
    assert_eq!(answer, 0);
    stream
        .write_all(&data(0, b"the last words"))
        .expect("a write");
    stream
        .write_all(&data(1, &[1; 500])[..300])
        .expect("a write");
    let started = Instant::now();
    drop(stream);
    let mut frames = 0;
    let mut sleeps = 0;
    let error = loop {
        // Sleeps, so that its deadline is what wakes it.
        match reader.receive() {
            Ok(Some(frame)) => {
                assert_eq!(frame[..], *b"the last words");
                frames += 1;
            }
            Ok(None) => sleep_unless(
                &waiter,
                &mut sleeps,
                || false,
                || Some(reader.due_ns().unwrap_or(u64::MAX)),
            ),
            Err(error) => break error,
        }
        assert!(started.elapsed() < TOO_LONG, "no error");
    };
    assert_eq!(frames, 1);
    assert!(
        started.elapsed() >= SHORT,
        "{error} after {:?}",
        started.elapsed()
    );
    assert!(error.peer.starts_with("process 2 (127.0.0.1:"), "{error}");
    assert!(error.reason.contains("without an end"), "{error}");
    assert!(!error.hint.is_empty());
    assert!(reader.is_closed() && reader.due_ns().is_none());
}

#[test]
fn a_writer_that_never_comes_is_an_error_that_names_it() {
    let waiter = Waiter::new().expect("a waiter");
    let acceptor = bind(short_patience());
    let mut reader = acceptor.reader(LINK, "process 3", &waiter);
    assert!(reader.due_ns().is_some());
    let error = error_of(&mut reader, |_| panic!("a frame"));
    assert_eq!(error.peer, "process 3");
    assert!(error.reason.contains("never connected"), "{error}");
}

#[test]
fn a_reader_that_leaves_closes_the_link_without_an_error() {
    let mut pair = Pair::open(settings());
    for number in 0..5 {
        assert!(pair.post(number, 10_000));
    }
    pair.writer.push(false);
    drop(pair.reader);
    let end = Instant::now() + TOO_LONG;
    while !pair.writer.is_closed() {
        assert!(Instant::now() < end, "not noticed");
        pair.writer.push(false);
    }
    assert_eq!(pair.writer.error(), None, "it left normally");
    assert!(pair.writer.is_drained() && pair.writer.due_ns().is_none());
    let refused = pair.writer.post(pieces(5, 10));
    assert!(matches!(refused, Err(SendError::Closed(frame)) if frame.concat().len() == 10));
}

#[test]
fn a_reader_that_leaves_while_the_connection_is_cut_closes_it_too() {
    let settings = settings();
    let waiter = Waiter::new().expect("a waiter");
    let acceptor = bind(settings);
    let mut reader = acceptor.reader(LINK, "the writer", &waiter);
    let (address, _) = cutting_relay(acceptor.local_address(), 1, Duration::from_millis(200));
    let mut writer = connect(address, &waiter, settings);
    writer.post(pieces(0, 10)).expect("room");
    let end = Instant::now() + TOO_LONG;
    while reader.receive().expect("a sound link").is_none() {
        assert!(Instant::now() < end, "no frame");
        writer.push(false);
    }
    drop(reader);
    while !writer.is_closed() {
        assert!(Instant::now() < end, "not noticed");
        writer.push(false);
    }
    assert_eq!(writer.error(), None);
}

#[test]
fn a_writer_without_a_reader_gives_up_and_names_it() {
    let waiter = Waiter::new().expect("a waiter");
    // A port that is taken, and on which nobody listens.
    let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
    let socket = rustix::net::socket(family, kind, None).expect("a socket");
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    rustix::net::bind(&socket, &any).expect("a port");
    let address = rustix::net::getsockname(&socket).expect("a name");
    let address = SocketAddr::try_from(address).expect("an address");
    let started = Instant::now();
    let mut writer = connect(address, &waiter, short_patience());
    writer.post(pieces(0, 10)).expect("room");
    let mut sleeps = 0;
    while !writer.is_closed() {
        assert!(started.elapsed() < TOO_LONG, "never gave up");
        writer.push(false);
        sleep_unless(
            &waiter,
            &mut sleeps,
            || writer.is_closed(),
            || writer.due_ns(),
        );
    }
    assert!(started.elapsed() >= SHORT);
    // 10, 20, 40, 80, 160 ms: each attempt costs a few wake-ups.
    assert!(
        sleeps < 60,
        "{sleeps} sleeps: the back-off does not back off"
    );
    let error = writer.error().expect("an error");
    assert_eq!(error.peer, format!("the reader ({address})"));
    assert!(error.reason.contains("can't connect"), "{error}");
}

#[test]
fn a_link_whose_reader_comes_later_is_waited_for() {
    let waiter = Waiter::new().expect("a waiter");
    let acceptor = bind(settings());
    let mut writer = connect(acceptor.local_address(), &waiter, settings());
    writer.post(pieces(0, 10)).expect("room");
    let end = Instant::now() + TOO_LONG;
    while acceptor.refused().count < 2 {
        assert!(Instant::now() < end, "no second attempt");
        writer.push(false);
    }
    let mut reader = acceptor.reader(LINK, "the writer", &waiter);
    while reader.receive().expect("a sound link").is_none() {
        assert!(Instant::now() < end, "no frame");
        writer.push(false);
    }
}

/// The error that a writer of another identity gets.
fn refusal_of(identity: Identity) -> (slackwater_link::LinkError, String) {
    let waiter = Waiter::new().expect("a waiter");
    let acceptor = bind(settings());
    let mut reader = acceptor.reader(LINK, "the writer", &waiter);
    let address = acceptor.local_address();
    let settings = Settings {
        connect_timeout: SHORT,
        ..settings()
    };
    let mut writer: Writer<Vec<u8>> = connect_as(identity, address, LINK, &waiter, settings);
    let end = Instant::now() + TOO_LONG;
    while !writer.is_closed() {
        assert!(Instant::now() < end, "not refused");
        writer.push(false);
        assert!(reader.receive().expect("a sound link").is_none());
    }
    let refused = acceptor.refused();
    let last = refused.last.last().expect("a refusal");
    assert!(last.peer.starts_with("127.0.0.1:"), "{last}");
    (writer.error().expect("an error"), last.to_string())
}

#[test]
fn a_stale_epoch_is_refused_and_named() {
    let (error, refused) = refusal_of(Identity {
        epoch: 4,
        ..IDENTITY
    });
    assert!(error.reason.contains("refused epoch 4"), "{error}");
    assert!(error.reason.contains("at epoch 5"), "{error}");
    assert!(error.hint.contains("replaced"), "{error}");
    assert!(refused.contains("stale epoch 4"), "{refused}");
}

#[test]
fn a_newer_epoch_finds_a_reader_that_is_still_old() {
    let (error, refused) = refusal_of(Identity {
        epoch: 6,
        ..IDENTITY
    });
    assert!(error.reason.contains("still at epoch 5"), "{error}");
    assert!(refused.contains("newer epoch 6"), "{refused}");
}

#[test]
fn another_token_is_refused() {
    let (error, refused) = refusal_of(Identity {
        token: [0; 16],
        ..IDENTITY
    });
    assert!(error.reason.contains("another deployment"), "{error}");
    assert!(refused.contains("token of another deployment"), "{refused}");
}

#[test]
fn a_second_writer_of_a_link_is_refused_and_the_first_continues() {
    let mut pair = Pair::open(settings());
    assert!(pair.post(0, 10));
    check(&pair.receive(), 0, 10);
    let mut second = connect(pair.acceptor.local_address(), &pair.waiter, settings());
    let end = Instant::now() + TOO_LONG;
    while !second.is_closed() {
        assert!(Instant::now() < end, "not refused");
        second.push(false);
        pair.writer.push(false);
        assert!(pair.reader.receive().expect("a sound link").is_none());
    }
    let error = second.error().expect("an error");
    assert!(error.reason.contains("another writer"), "{error}");
    assert!(pair.post(1, 10));
    check(&pair.receive(), 1, 10);
}

#[test]
fn a_reader_whose_worker_is_busy_for_longer_than_the_time_out_loses_nothing() {
    let mut pair = Pair::open(short_patience());
    let mut posted = 0;
    while pair.post(posted, 20_000) {
        posted += 1;
        pair.writer.push(false);
    }
    // The writer gets no answer, makes new connections, and the acceptor accepts it.
    let end = Instant::now() + SHORT * 5;
    while Instant::now() < end {
        pair.writer.push(false);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!pair.writer.is_closed(), "{:?}", pair.writer.error());
    for number in 0..posted {
        check(&pair.receive(), number, 20_000);
    }
    pair.writer.close();
    pair.turn_until("the end", |pair| {
        pair.reader.is_closed() && pair.writer.is_drained()
    });
    assert_eq!(pair.acceptor.refused().count, 0);
}

#[test]
fn readers_live_on_after_their_acceptor() {
    let mut pair = Pair::open(settings());
    let waiter = Waiter::new().expect("a waiter");
    let mut lonely = pair.acceptor.reader(8, "process 4", &waiter);
    drop(pair.acceptor);
    let error = error_of(&mut lonely, |_| panic!("a frame"));
    assert!(error.reason.contains("no longer accepts"), "{error}");
    pair.writer.post(pieces(0, 10)).expect("room");
    pair.writer.close();
    let mut frames = 0;
    let end = Instant::now() + TOO_LONG;
    while !pair.reader.is_closed() || !pair.writer.is_drained() {
        assert!(Instant::now() < end, "stuck");
        pair.writer.push(false);
        frames += usize::from(pair.reader.receive().expect("a sound link").is_some());
    }
    assert_eq!(frames, 1);
}
