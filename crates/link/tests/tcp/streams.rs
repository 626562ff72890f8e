//! Tests that frames arrive in order, each once, whole, and that nobody sleeps while there is one.

use fastrand::Rng;
use std::time::Duration;

use slackwater_link::Waiter;
use slackwater_link::tcp::Settings;

use crate::harness::*;

/// Streams `lengths` from a thread to this one, with pauses on both sides. Returns the sleeps of
/// the writer and of the reader.
fn stream(settings: Settings, lengths: &[usize], pause: Duration, seed: u64) -> (u64, u64) {
    let waiter = Waiter::new().expect("a waiter");
    let acceptor = bind(settings);
    let mut reader = acceptor.reader(LINK, "the writer", &waiter);
    let address = acceptor.local_address();
    let mut number = 0;
    let (writing, reading) = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let waiter = Waiter::new().expect("a waiter");
            let mut writer = connect(address, &waiter, settings);
            let mut random = Rng::with_seed(seed);
            let frames = lengths.iter().enumerate();
            let frames = frames.map(|(number, &length)| pieces(number as u64, length));
            let sleeps = write_all(&mut writer, &waiter, frames, || {
                pause_at_random(&mut random, pause)
            });
            assert_eq!(writer.error(), None);
            sleeps
        });
        let mut random = Rng::with_seed(!seed);
        let reading = read_all(&mut reader, &waiter, |frame| {
            check(&frame, number, lengths[number as usize]);
            number += 1;
            // Sometimes the reader is the slow one, so that the window fills.
            if number / 1_000 % 2 == 0 {
                pause_at_random(&mut random, pause);
            }
        });
        let reading = reading.expect("a sound link");
        (writing.join().expect("the writing thread"), reading)
    });
    assert_eq!(number as usize, lengths.len());
    assert_eq!(acceptor.refused().count, 0);
    println!("writer slept {writing}, reader {reading} times");
    (writing, reading)
}

#[test]
fn sizes_from_one_byte_to_three_mebibytes() {
    let mut random = Rng::with_seed(1);
    let lengths: Vec<usize> = (0..600)
        .map(|_| {
            let most = [48, 64, 1_000, 5_000, 70_000, 3 << 20][random.u64(..6) as usize];
            1 + random.u64(..most) as usize
        })
        .chain([1, 47, 48, 49, 63, 64, 65, 3 << 20])
        .collect();
    for window in [4 << 10, 64 << 10, 4 << 20] {
        stream(patient(window), &lengths, Duration::from_micros(300), 2);
    }
}

#[test]
fn no_wake_up_is_lost_with_room() {
    let mut random = Rng::with_seed(3);
    let lengths: Vec<usize> = (0..100_000)
        .map(|_| 1 + random.u64(..200) as usize)
        .collect();
    let (_, reader) = stream(patient(1 << 20), &lengths, Duration::from_micros(60), 4);
    assert!(reader > 1_000, "the reader hardly slept");
}

#[test]
fn no_wake_up_is_lost_without_room() {
    let mut random = Rng::with_seed(5);
    let lengths: Vec<usize> = (0..50_000)
        .map(|_| 1 + random.u64(..900) as usize)
        .collect();
    let (writer, _) = stream(patient(4 << 10), &lengths, Duration::from_micros(60), 6);
    assert!(writer > 500, "the writer hardly slept");
}

#[test]
fn a_reader_in_timed_sleeps_gets_everything() {
    // It never sees the socket's edges, and looks again when its time is over.
    let mut pair = Pair::open(settings());
    let sleep_and_look = |pair: &mut Pair| {
        pair.writer.push(false);
        std::thread::sleep(Duration::from_micros(100));
        while let Some(frame) = pair.reader.receive().expect("a sound link") {
            assert_eq!(frame.len(), 3_000);
        }
    };
    for number in 0..200 {
        // Over frames, a lost one is repeated when the reader looks.
        while !pair.post(number, 3_000) {
            sleep_and_look(&mut pair);
        }
        if number % 7 == 0 {
            sleep_and_look(&mut pair);
        }
    }
    pair.writer.close();
    while !pair.reader.is_closed() {
        pair.writer.push(false);
        pair.reader.receive().expect("a sound link");
    }
}

#[test]
fn many_links_share_two_waiters() {
    const LINKS: u64 = 8;
    const FRAMES: u64 = 300;
    let settings = patient(32 << 10);
    let acceptor = bind(settings);
    let address = acceptor.local_address();
    let waiter = Waiter::new().expect("a waiter");
    let mut readers: Vec<_> = (0..LINKS)
        .map(|link| (acceptor.reader(link, "the writer", &waiter), 0))
        .collect();
    let writing = std::thread::spawn(move || {
        let waiter = Waiter::new().expect("a waiter");
        let mut writers: Vec<_> = (0..LINKS)
            .map(|link| (connect_link(address, link, &waiter, settings), 0))
            .collect();
        let mut sleeps = 0;
        while !writers.iter().all(|(writer, _)| writer.is_drained()) {
            let mut step = || {
                let mut worked = false;
                for (link, (writer, next)) in writers.iter_mut().enumerate() {
                    while *next < FRAMES && writer.has_room() {
                        let number = link as u64 * FRAMES + *next;
                        writer.post(pieces(number, 5_000)).expect("room");
                        *next += 1;
                        worked = true;
                        if *next == FRAMES {
                            writer.close();
                        }
                    }
                    let before = writer.is_drained();
                    writer.push(false);
                    worked |= before != writer.is_drained();
                }
                worked
            };
            if !step() {
                sleep_unless(&waiter, &mut sleeps, step, || None);
            }
        }
        writers
            .iter()
            .for_each(|(writer, _)| assert_eq!(writer.error(), None));
    });
    let mut sleeps = 0;
    while !readers.iter().all(|(reader, _)| reader.is_closed()) {
        let mut step = || {
            let mut worked = false;
            for (link, (reader, next)) in readers.iter_mut().enumerate() {
                let was_closed = reader.is_closed();
                while let Some(frame) = reader.receive().expect("a sound link") {
                    check(&frame, link as u64 * FRAMES + *next, 5_000);
                    *next += 1;
                    worked = true;
                }
                worked |= was_closed != reader.is_closed();
            }
            worked
        };
        if !step() {
            sleep_unless(&waiter, &mut sleeps, step, || None);
        }
    }
    assert!(readers.iter().all(|(_, next)| *next == FRAMES));
    writing.join().expect("the writing thread");
}
