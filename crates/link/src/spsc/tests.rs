//! Tests of what only the ring in a process has: positions that wrap, and messages with a drop.
//! `tests/conformance.rs` has the contract.

#[cfg(not(miri))]
use crate::Listen;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize as Counter, Ordering::SeqCst};
use std::thread;

use super::*;
use crate::doorbell::Doorbell;

fn waker() -> Waker {
    Waker::new(Arc::new(Doorbell::new().expect("a descriptor")))
}

fn link<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    channel(capacity, waker(), waker())
}

/// Counts its drops, each one once.
struct Counted<'c>(&'c Counter);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn positions_wrap_with_the_machine_word() {
    for before in 0..6 {
        let start = usize::MAX - before;
        let (mut sender, mut receiver) = channel_from(start, 4, waker(), waker());
        let mut next = 0;
        for lap in 0..5 {
            while sender.send(Box::new(next)).is_ok() {
                next += 1;
            }
            assert_eq!((sender.free(), receiver.len()), (0, 4));
            assert_eq!(receiver.receive().as_deref(), Some(&(lap * 2)));
            assert_eq!(receiver.receive().as_deref(), Some(&(lap * 2 + 1)));
            assert_eq!((sender.free(), receiver.len()), (2, 2));
        }
    }
}

#[test]
fn capacity_is_rounded_up_to_a_power_of_two() {
    for (wanted, given) in [(1, 1), (2, 2), (3, 4), (5, 8), (1_000, 1_024)] {
        let (sender, receiver) = link::<u8>(wanted);
        assert_eq!((sender.capacity(), receiver.capacity()), (given, given));
    }
}

#[test]
fn impossible_capacities_are_bugs() {
    for capacity in [0, CAPACITY_MAX + 1, usize::MAX] {
        let outcome = catch_unwind(|| drop(link::<u8>(capacity)));
        assert!(outcome.is_err(), "a link of {capacity} messages was made");
    }
}

#[test]
fn every_message_is_dropped_once() {
    // (sent, received, which end goes first)
    for sent in 0..=4 {
        for received in 0..=sent {
            for sender_first in [true, false] {
                let drops = Counter::new(0);
                let (mut sender, mut receiver) = link(4);
                for _ in 0..sent {
                    sender.send(Counted(&drops)).expect("room");
                }
                for _ in 0..received {
                    drop(receiver.receive().expect("a message"));
                }
                assert_eq!(drops.load(SeqCst), received);
                if sender_first {
                    drop(sender);
                    assert_eq!(
                        drops.load(SeqCst),
                        received,
                        "the reader may still want them"
                    );
                    drop(receiver);
                } else {
                    drop(receiver);
                    assert_eq!(drops.load(SeqCst), sent, "nobody can want them any more");
                    drop(sender);
                }
                assert_eq!(drops.load(SeqCst), sent);
            }
        }
    }
}

#[test]
fn a_refused_message_is_not_dropped_by_the_link() {
    let drops = Counter::new(0);
    let (mut sender, receiver) = link(1);
    sender.send(Counted(&drops)).expect("room");
    let refused = sender.send(Counted(&drops)).expect_err("full");
    assert!(matches!(refused, SendError::Full(_)));
    assert_eq!(drops.load(SeqCst), 0);
    drop(receiver);
    assert_eq!(drops.load(SeqCst), 1);
    let refused = sender
        .send(refused.into_message())
        .expect_err("the receiver is gone");
    assert!(matches!(refused, SendError::Closed(_)));
    assert_eq!(drops.load(SeqCst), 1);
    drop(refused);
    assert_eq!(drops.load(SeqCst), 2);
}

#[test]
fn drops_are_counted_right_between_threads() {
    let rounds = if cfg!(miri) { 5 } else { 500 };
    for round in 0..rounds {
        let drops = Counter::new(0);
        let made = Counter::new(0);
        thread::scope(|scope| {
            let (mut sender, mut receiver) = link(4);
            scope.spawn(|| {
                let (drops, made) = (&drops, &made);
                loop {
                    made.fetch_add(1, SeqCst);
                    match sender.send(Counted(drops)) {
                        Ok(()) => {}
                        Err(SendError::Full(_)) => thread::yield_now(),
                        Err(SendError::Closed(_)) => break,
                    }
                }
                drop(sender);
            });
            let mut received = 0;
            while received < round {
                match receiver.receive() {
                    Some(_) => received += 1,
                    None => thread::yield_now(),
                }
            }
            drop(receiver);
        });
        assert_eq!(drops.load(SeqCst), made.load(SeqCst));
    }
}

#[test]
fn a_message_that_panics_in_its_drop_is_dropped_once() {
    struct Bomb<'c>(Counted<'c>);
    impl Drop for Bomb<'_> {
        fn drop(&mut self) {
            if self.0.0.load(SeqCst) == 0 && !thread::panicking() {
                panic!("the first message to be dropped");
            }
        }
    }
    for sender_first in [true, false] {
        let drops = Counter::new(0);
        let (mut sender, receiver) = link(4);
        for _ in 0..3 {
            sender.send(Bomb(Counted(&drops))).expect("room");
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            if sender_first {
                drop(sender);
                drop(receiver);
            } else {
                drop(receiver);
                drop(sender);
            }
        }));
        assert!(outcome.is_err());
        // The first by the receiver, the others by the ring while the panic passes.
        assert_eq!(drops.load(SeqCst), 3);
    }
}

#[test]
fn messages_cross_threads_whole() {
    let count = if cfg!(miri) { 200 } else { 200_000 };
    let (mut sender, mut receiver) = link(8);
    let sending = thread::spawn(move || {
        for number in 0..count {
            let mut message = vec![number; 3];
            while let Err(error) = sender.send(message) {
                message = error.into_message();
                thread::yield_now();
            }
        }
    });
    let mut next = 0;
    while !receiver.is_closed() {
        match receiver.receive() {
            Some(message) => {
                assert_eq!(message, [next; 3]);
                next += 1;
            }
            None => thread::yield_now(),
        }
    }
    assert_eq!(next, count);
    sending.join().expect("the sending thread");
}

#[test]
fn a_message_need_not_be_shareable() {
    // `Cell` is Send and not Sync.
    let (mut sender, mut receiver) = link(1);
    let sending = thread::spawn(move || sender.send(Cell::new(5)).expect("room"));
    sending.join().expect("the sending thread");
    assert_eq!(receiver.receive().map(Cell::into_inner), Some(5));
}

#[test]
fn errors_say_what_to_do() {
    let full = SendError::Full(Cell::new(0));
    let closed = SendError::Closed(Cell::new(0));
    assert!(full.to_string().contains("full"), "{full}");
    assert!(closed.to_string().contains("gone"), "{closed}");
    assert_eq!(format!("{full:?} {closed:?}"), "Full(..) Closed(..)");
}

#[test]
#[cfg(not(miri))] // needs a descriptor
fn posted_messages_ring_the_reader_once_and_only_when_asked_to() {
    let waiter = crate::Waiter::new().expect("a waiter");
    let (mut sender, mut receiver) = channel(4, waiter.waker(), waker());
    waiter.announce(Listen::Everything);
    sender.post(1).expect("room");
    sender.post(2).expect("room");
    let woken = waiter.wait(Some(std::time::Duration::ZERO), crate::Sources::Doorbell);
    assert_eq!(
        woken.expect("a wait"),
        crate::Woken::TimedOut,
        "no waker was used"
    );
    waiter.announce(Listen::Everything);
    sender.ring();
    let woken = waiter.wait(None, crate::Sources::Doorbell).expect("a wait");
    assert_eq!(woken, crate::Woken::Waker);
    assert_eq!((receiver.receive(), receiver.receive()), (Some(1), Some(2)));
}
