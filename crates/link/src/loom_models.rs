//! Models for loom, which runs each in every order of its threads and with every value that a weak load
//! may return, on the code that ships (`sync.rs` swaps the atomics). A lost wake-up is a deadlock.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p slackwater-link --release loom`
//!
//! `docs/internals/waiting.md` lists which weakening of the code makes which model fail.

use loom::thread;

use crate::doorbell::{Doorbell, Listen, Waker};
use crate::error::SendError;
use crate::spsc::{Receiver, Sender, channel};
use crate::sync::{Arc, AtomicBool, Ordering};

/// One thread's sleeping place: the doorbell that ships, over loom's bell.
#[derive(Clone)]
pub(crate) struct Place {
    doorbell: Arc<Doorbell>,
}

impl Place {
    pub(crate) fn new() -> Place {
        let doorbell = Doorbell::new().expect("the model's bell needs nothing from the kernel");
        Place {
            doorbell: Arc::new(doorbell),
        }
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker::new(Arc::clone(&self.doorbell))
    }

    /// Announce, look, sleep.
    pub(crate) fn sleep_unless(&self, look: impl FnOnce() -> bool) {
        self.doorbell.announce(Listen::Everything);
        if !look() {
            self.doorbell.bell.sleep();
        }
        self.doorbell.retract();
    }
}

fn link<T: Send>(capacity: usize) -> (Sender<T>, Place, Receiver<T>, Place) {
    let writer = Place::new();
    let reader = Place::new();
    let (sender, receiver) = channel(capacity, reader.waker(), writer.waker());
    (sender, writer, receiver, reader)
}

/// Sleeps while the link is full. Doesn't check whether the reader is gone.
fn send_sleeping<T>(sender: &mut Sender<T>, place: &Place, mut message: T) {
    loop {
        match sender.send(message) {
            Ok(()) => return,
            Err(SendError::Closed(_)) => panic!("the reader left before the end"),
            Err(SendError::Full(refused)) => message = refused,
        }
        place.sleep_unless(|| sender.free() > 0);
    }
}

/// The next message, or `None` at the end.
fn receive_sleeping<T>(receiver: &mut Receiver<T>, place: &Place) -> Option<T> {
    loop {
        if let Some(message) = receiver.receive() {
            return Some(message);
        }
        if receiver.is_closed() {
            return None;
        }
        place.sleep_unless(|| !receiver.is_empty() || receiver.is_closed());
    }
}

pub(crate) fn explore(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

/// The ring alone, once around: what was taken arrives in order. Loom's cell reports a slot that is
/// written while it is read.
#[test]
fn ring_is_first_in_first_out_over_its_wrap() {
    explore(None, || {
        let (mut sender, _writer, mut receiver, _reader) = link::<Box<u32>>(1);
        let sending = thread::spawn(move || {
            let mut taken = Vec::new();
            for message in 0..3 {
                if sender.send(Box::new(message)).is_ok() {
                    taken.push(message);
                }
            }
            taken
        });
        let mut received = Vec::new();
        for _ in 0..2 {
            received.extend(receiver.receive().map(|message| *message));
        }
        let taken = sending.join().expect("the sending thread");
        while let Some(message) = receiver.receive() {
            received.push(*message);
        }
        assert_eq!(received, taken);
        assert!(receiver.is_closed());
    });
}

/// The reader sleeps only if nothing is there; a message that arrives while it falls asleep wakes it.
#[test]
fn announce_look_sleep_against_wake() {
    explore(None, || {
        let (mut sender, _writer, mut receiver, reader) = link::<u32>(2);
        let sending = thread::spawn(move || {
            sender.send(1).expect("an empty link");
            // The end must not be what wakes the reader.
            sender
        });
        assert_eq!(receive_sleeping(&mut receiver, &reader), Some(1));
        drop(sending.join().expect("the sending thread"));
        assert_eq!(receive_sleeping(&mut receiver, &reader), None);
    });
}

/// Two other threads share one waiter: the one that doesn't strike may rely on the one that does. Their
/// flags are relaxed, so that only the doorbell's fences order them.
#[test]
fn announce_look_sleep_against_two_wakers() {
    explore(Some(3), || {
        let place = Place::new();
        let flags = [
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        ];
        let threads = flags.clone().map(|flag| {
            let waker = place.waker();
            thread::spawn(move || {
                flag.store(true, Ordering::Relaxed);
                waker.wake();
            })
        });
        let all_up = || flags.iter().all(|flag| flag.load(Ordering::Relaxed));
        while !all_up() {
            place.sleep_unless(all_up);
        }
        for thread in threads {
            thread.join().expect("a foreign thread");
        }
    });
}

/// A waiter that was woken sees what its waker did, without another look. (Loom's bell is a mutex and
/// would order the two anyway, so this model uses the announcement alone.)
#[test]
fn woken_means_visible() {
    explore(None, || {
        let place = Place::new();
        let flag = Arc::new(AtomicBool::new(false));
        let ringing = {
            let (flag, waker) = (Arc::clone(&flag), place.waker());
            thread::spawn(move || {
                flag.store(true, Ordering::Relaxed);
                waker.wake();
            })
        };
        place.doorbell.announce(Listen::Everything);
        if place.doorbell.retract() {
            assert!(flag.load(Ordering::Relaxed));
        }
        ringing.join().expect("the ringing thread");
    });
}

/// The sender is dropped while the reader falls asleep.
#[test]
fn end_of_the_sender_wakes_the_reader() {
    explore(Some(3), || {
        let (mut sender, _writer, mut receiver, reader) = link::<u32>(1);
        let sending = thread::spawn(move || {
            sender.send(1).expect("an empty link");
        });
        assert_eq!(receive_sleeping(&mut receiver, &reader), Some(1));
        assert_eq!(receive_sleeping(&mut receiver, &reader), None);
        sending.join().expect("the sending thread");
    });
}

/// The end is never seen before the last message.
#[test]
fn end_does_not_overtake_the_last_message() {
    explore(None, || {
        let (mut sender, _writer, mut receiver, _reader) = link::<u32>(1);
        let sending = thread::spawn(move || {
            sender.send(1).expect("an empty link");
        });
        if receiver.receive().is_none() && receiver.is_closed() {
            panic!("the end was seen before the message");
        }
        sending.join().expect("the sending thread");
    });
}

/// `Full` promises a wake-up. Here the writer announces *before* it sends, and its refused `send` is its
/// last look: only the fence next to `wanted` guards it.
#[test]
fn wanted_against_receive() {
    explore(None, || {
        let (mut sender, writer, mut receiver, _reader) = link::<u32>(1);
        sender.send(1).expect("an empty link");
        let receiving = thread::spawn(move || {
            assert_eq!(receiver.receive(), Some(1));
            // It stops here, without having seen that nothing is left.
            receiver.settle();
            // The end must not be what wakes the writer.
            receiver
        });
        writer.doorbell.announce(Listen::Everything);
        match sender.send(2) {
            Ok(()) => {}
            Err(SendError::Closed(_)) => panic!("the reader left before the end"),
            Err(SendError::Full(message)) => {
                writer.doorbell.bell.sleep();
                sender.send(message).expect("woken, so there is room");
            }
        }
        let mut receiver = receiving.join().expect("the receiving thread");
        assert_eq!(receiver.receive(), Some(2));
    });
}

/// A receiver moves to another waiter while a message is sent: the waiter that has it then is woken, or
/// its look after the announcement finds the message.
#[test]
fn a_reader_that_moves_is_woken_where_it_is() {
    explore(None, || {
        let (before, after) = (Place::new(), Place::new());
        let (waker, switch) = Waker::moving(&[before.waker(), after.waker()]);
        let writer = Place::new();
        let (mut sender, mut receiver) = channel::<u32>(1, waker, writer.waker());
        let sending = thread::spawn(move || {
            sender.send(1).expect("an empty link");
            // The end must not be what wakes the reader.
            sender
        });
        switch.set(1);
        assert_eq!(receive_sleeping(&mut receiver, &after), Some(1));
        drop(sending.join().expect("the sending thread"));
        drop(before);
    });
}

/// Both sides sleep on one link of one slot, and the stream ends.
#[test]
fn full_and_empty_both_sleep() {
    explore(Some(3), || {
        let (mut sender, writer, mut receiver, reader) = link::<u32>(1);
        let sending = thread::spawn(move || {
            for message in 0..3 {
                send_sleeping(&mut sender, &writer, message);
            }
        });
        for message in 0..3 {
            assert_eq!(receive_sleeping(&mut receiver, &reader), Some(message));
        }
        assert_eq!(receive_sleeping(&mut receiver, &reader), None);
        sending.join().expect("the sending thread");
    });
}

/// A refused writer while the receiver is dropped: it is woken, and it sees the end.
#[test]
fn end_of_the_receiver_wakes_the_writer() {
    explore(None, || {
        let (mut sender, writer, receiver, _reader) = link::<u32>(1);
        sender.send(1).expect("an empty link");
        let receiving = thread::spawn(move || drop(receiver));
        let mut taken = 0;
        loop {
            match sender.send(2) {
                // The dropping reader empties the link, and this send began before it went.
                Ok(()) => taken += 1,
                Err(SendError::Closed(message)) => {
                    assert_eq!(message, 2);
                    break;
                }
                Err(SendError::Full(_)) => {
                    writer.sleep_unless(|| sender.free() > 0 || sender.is_closed());
                }
            }
        }
        assert!(taken <= 1, "a writer that has seen room has seen the end");
        receiving.join().expect("the receiving thread");
    });
}

/// A writer that only waits for its reader to go is woken, though it was refused nothing.
#[test]
fn end_of_the_receiver_wakes_an_idle_writer() {
    explore(None, || {
        let (sender, writer, receiver, _reader) = link::<u32>(1);
        let receiving = thread::spawn(move || drop(receiver));
        writer.sleep_unless(|| sender.is_closed());
        assert!(sender.is_closed());
        receiving.join().expect("the receiving thread");
    });
}

/// Both ends are dropped at once, with messages in between: each message is dropped once. Loom's `Arc`
/// reports one that is never dropped, and one that is dropped twice.
#[test]
fn both_ends_dropped_drop_each_message_once() {
    explore(None, || {
        let (mut sender, _writer, receiver, _reader) = link::<Arc<u32>>(2);
        sender.send(Arc::new(1)).expect("an empty link");
        let sending = thread::spawn(move || {
            // Taken or handed back: dropped once either way.
            let _ = sender.send(Arc::new(2));
        });
        drop(receiver);
        sending.join().expect("the sending thread");
    });
}

/// An ordinary wake-up doesn't end a timed sleep; an urgent one ends every sleep, whatever the sleeper
/// listens for, and a bell is struck once for each announcement.
#[test]
fn urgent_ring_ends_every_sleep() {
    for listen in [Listen::Everything, Listen::Urgent] {
        explore(Some(2), move || {
            let place = Place::new();
            let sent = Arc::new(AtomicBool::new(false));
            let (ordinary, urgent) = (place.waker(), place.waker());
            let seen = Arc::clone(&sent);
            let ringing = thread::spawn(move || ordinary.wake());
            let sending = thread::spawn(move || {
                seen.store(true, Ordering::Relaxed);
                urgent.wake_urgent();
            });
            while !sent.load(Ordering::Relaxed) {
                place.doorbell.announce(listen);
                if !sent.load(Ordering::Relaxed) {
                    place.doorbell.bell.sleep();
                }
                place.doorbell.retract();
            }
            ringing.join().expect("the ringing thread");
            sending.join().expect("the sending thread");
        });
    }
}
