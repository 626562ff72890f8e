//! The contract of a link, tested for each kind (the bullets are in the crate's documentation). A new
//! kind implements [`Kind`] and gets one `conformance!` line at the end.

#![cfg(not(loom))]

use fastrand::Rng;
use std::time::{Duration, Instant};

use slackwater_link::{Listen, SendError, Sources, Waiter, Waker, Woken};

/// Nothing in these tests takes this long on any machine: a longer sleep is a lost wake-up.
const LOST_WAKE_UP: Duration = Duration::from_secs(20);

/// A kind of link, carrying numbers.
trait Kind {
    type Sender: Sending + Send + 'static;
    type Receiver: Receiving + Send + 'static;

    /// A link of at least `capacity` messages, and of less than `capacity + SLACK`.
    fn open(capacity: usize, reader: Waker, writer: Waker) -> (Self::Sender, Self::Receiver);

    /// How much a kind may round a capacity up.
    const SLACK: usize;
}

trait Sending {
    fn send(&mut self, number: u64) -> Result<(), SendError<u64>>;
    fn is_closed(&self) -> bool;
    fn free(&mut self) -> usize;
}

trait Receiving {
    fn receive(&mut self) -> Option<u64>;
    fn is_empty(&self) -> bool;
    fn is_closed(&self) -> bool;
    /// How many messages wait, if the kind can tell.
    fn len(&self) -> Option<usize>;
}

/// Now and then a pause of up to 60 µs, spun so that it can be that short: long enough for
/// the other side to fall asleep, with all the moments before and after it.
fn pause(random: &mut Rng) {
    if random.u64(..4) > 0 {
        return;
    }
    let end = Instant::now() + Duration::from_nanos(random.u64(..60_000));
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

fn waiter() -> Waiter {
    Waiter::new().expect("two descriptors")
}

/// Both ends on one thread, with a waiter that both wake.
fn open_here<K: Kind>(capacity: usize) -> (K::Sender, K::Receiver, Waiter) {
    let waiter = waiter();
    let (sender, receiver) = K::open(capacity, waiter.waker(), waiter.waker());
    (sender, receiver, waiter)
}

/// Announce, look, sleep; counts real sleeps.
fn sleep_unless(waiter: &Waiter, sleeps: &mut u64, look: impl FnOnce() -> bool) {
    waiter.announce(Listen::Everything);
    if look() {
        waiter.retract();
        return;
    }
    *sleeps += 1;
    let woken = waiter
        .wait(Some(LOST_WAKE_UP), Sources::All)
        .expect("a wait");
    assert_ne!(woken, Woken::TimedOut, "a wake-up was lost");
}

fn was_woken(waiter: &Waiter) -> bool {
    // Only a bell that was struck for an earlier announcement can end this at once.
    waiter.announce(Listen::Everything);
    let woken = waiter.wait(Some(Duration::ZERO), Sources::Doorbell);
    woken.expect("a wait") == Woken::Waker
}

fn fifo_at_every_fill<K: Kind>() {
    for capacity in 1..=9 {
        let (mut sender, mut receiver, _waiter) = open_here::<K>(capacity);
        let mut random = Rng::with_seed(capacity as u64);
        let (mut sent, mut received) = (0, 0);
        for _ in 0..2_000 {
            for _ in 0..random.u64(..capacity as u64 + 2) {
                match sender.send(sent) {
                    Ok(()) => sent += 1,
                    Err(SendError::Full(number)) => assert_eq!(number, sent),
                    Err(SendError::Closed(_)) => panic!("the receiver is here"),
                }
            }
            for _ in 0..random.u64(..capacity as u64 + 2) {
                match receiver.receive() {
                    Some(number) => {
                        assert_eq!(number, received);
                        received += 1;
                    }
                    None => assert_eq!(sent, received, "a message is there and isn't handed out"),
                }
            }
        }
        assert!(received > 500, "the test moved next to nothing");
    }
}

fn full_hands_the_message_back<K: Kind>() {
    for capacity in [1, 2, 3, 8, 100] {
        let (mut sender, mut receiver, _waiter) = open_here::<K>(capacity);
        let mut taken = 0;
        let refused = loop {
            match sender.send(taken) {
                Ok(()) => taken += 1,
                Err(error) => break error,
            }
            assert!(
                taken < (capacity + K::SLACK) as u64,
                "the link is not bounded"
            );
        };
        assert!(taken >= capacity as u64);
        assert_eq!(refused, SendError::Full(taken));
        assert_eq!(sender.free(), 0);
        assert!(receiver.len().is_none_or(|len| len == taken as usize));
        assert_eq!(receiver.receive(), Some(0));
        assert_eq!(sender.free(), 1);
        assert_eq!(sender.send(taken), Ok(()));
        assert_eq!(sender.send(0), Err(SendError::Full(0)));
        for number in 1..=taken {
            assert_eq!(receiver.receive(), Some(number));
        }
        assert_eq!(receiver.receive(), None);
    }
}

fn end_comes_once_after_the_last_message<K: Kind>() {
    let (mut sender, mut receiver, _waiter) = open_here::<K>(4);
    assert!(receiver.is_empty() && !receiver.is_closed());
    sender.send(1).expect("room");
    sender.send(2).expect("room");
    drop(sender);
    for number in [1, 2] {
        assert!(!receiver.is_closed(), "the end overtook a message");
        assert_eq!(receiver.receive(), Some(number));
    }
    assert!(receiver.is_closed());
    assert_eq!(receiver.receive(), None);
    assert!(receiver.is_closed() && receiver.is_empty());
}

fn gone_receiver_hands_messages_back<K: Kind>() {
    let (mut sender, receiver, _waiter) = open_here::<K>(2);
    sender.send(1).expect("room");
    assert!(!sender.is_closed());
    drop(receiver);
    assert!(sender.is_closed());
    for number in 0..5 {
        assert_eq!(sender.send(number), Err(SendError::Closed(number)));
    }
}

fn only_an_announced_reader_is_woken<K: Kind>() {
    let (reader, writer) = (waiter(), waiter());
    let (mut sender, mut receiver) = K::open(4, reader.waker(), writer.waker());
    sender.send(1).expect("room");
    assert!(!was_woken(&reader), "woke a reader that is awake");
    reader.announce(Listen::Everything);
    sender.send(2).expect("room");
    sender.send(3).expect("room");
    assert_eq!(
        reader
            .wait(Some(LOST_WAKE_UP), Sources::All)
            .expect("a wait"),
        Woken::Waker
    );
    assert!(!was_woken(&reader), "one announcement, two wake-ups");
    while receiver.receive().is_some() {}
    reader.announce(Listen::Everything);
    drop(sender);
    let woken = reader.wait(Some(LOST_WAKE_UP), Sources::Doorbell);
    assert_eq!(woken.expect("a wait"), Woken::Waker);
    assert!(receiver.is_closed());
}

fn refused_writer_is_woken_once_there_is_room<K: Kind>() {
    let (reader, writer) = (waiter(), waiter());
    let (mut sender, mut receiver) = K::open(2, reader.waker(), writer.waker());
    let fill = |sender: &mut K::Sender| while sender.send(7).is_ok() {};

    // Room without a refusal before it wakes nobody.
    sender.send(7).expect("room");
    writer.announce(Listen::Everything);
    receiver.receive().expect("a message");
    writer.retract();
    assert!(!was_woken(&writer), "nobody was refused");

    fill(&mut sender);
    writer.announce(Listen::Everything);
    receiver.receive().expect("a message");
    let woken = writer.wait(Some(LOST_WAKE_UP), Sources::All);
    assert_eq!(woken.expect("a wait"), Woken::Waker);
    assert_eq!(sender.send(7), Ok(()));

    // One refusal, one wake-up, however much room comes after it.
    fill(&mut sender);
    receiver.receive().expect("a message");
    writer.announce(Listen::Everything);
    receiver.receive().expect("a message");
    writer.retract();
    assert!(!was_woken(&writer), "the writer has been told of its room");

    fill(&mut sender);
    writer.announce(Listen::Everything);
    drop(receiver);
    let woken = writer.wait(Some(LOST_WAKE_UP), Sources::Doorbell);
    assert_eq!(woken.expect("a wait"), Woken::Waker);
    assert_eq!(sender.send(7), Err(SendError::Closed(7)));

    // A writer that was refused nothing is told about the end as well.
    let (sender, receiver) = K::open(2, reader.waker(), writer.waker());
    writer.announce(Listen::Everything);
    drop(receiver);
    let woken = writer.wait(Some(LOST_WAKE_UP), Sources::Doorbell);
    assert_eq!(woken.expect("a wait"), Woken::Waker);
    assert!(sender.is_closed());
}

/// Arrivals at random moments between two threads that both really sleep.
fn no_wake_up_is_lost<K: Kind>(capacity: usize, arrivals: u64, seed: u64) {
    let (reader, writer) = (waiter(), waiter());
    let (mut sender, mut receiver) = K::open(capacity, reader.waker(), writer.waker());
    let writing = std::thread::spawn(move || {
        let mut random = Rng::with_seed(seed);
        let mut sleeps = 0;
        for number in 0..arrivals {
            pause(&mut random);
            let mut message = number;
            loop {
                match sender.send(message) {
                    Ok(()) => break,
                    Err(SendError::Full(refused)) => message = refused,
                    Err(SendError::Closed(_)) => panic!("the reader left before the end"),
                }
                sleep_unless(&writer, &mut sleeps, || {
                    sender.free() > 0 || sender.is_closed()
                });
            }
        }
        sleeps
    });
    let mut random = Rng::with_seed(!seed);
    let mut reader_sleeps = 0;
    let mut next = 0;
    while !receiver.is_closed() {
        match receiver.receive() {
            Some(number) => {
                assert_eq!(number, next, "lost, doubled or out of order");
                next += 1;
                // Sometimes the reader is the slow one, so that the link fills.
                if (next / 1_000) % 2 == 0 {
                    pause(&mut random);
                }
            }
            None => sleep_unless(&reader, &mut reader_sleeps, || {
                !receiver.is_empty() || receiver.is_closed()
            }),
        }
    }
    assert_eq!(next, arrivals);
    let writer_sleeps = writing.join().expect("the writing thread");
    println!("{arrivals} arrivals, reader slept {reader_sleeps}, writer {writer_sleeps} times");
    assert!(reader_sleeps > arrivals / 100, "the reader hardly slept");
    if capacity <= 2 {
        assert!(writer_sleeps > arrivals / 100, "the writer hardly slept");
    }
}

/// Many writers, one waiter: the wake-up for one must not hide the message of another.
fn several_links_share_a_waiter<K: Kind>() {
    const LINKS: u64 = 3;
    const ARRIVALS: u64 = 10_000;
    let reader = waiter();
    let mut receivers = Vec::new();
    let mut threads = Vec::new();
    for seed in 0..LINKS {
        let writer = waiter();
        let (mut sender, receiver) = K::open(4, reader.waker(), writer.waker());
        receivers.push((receiver, 0));
        threads.push(std::thread::spawn(move || {
            let mut random = Rng::with_seed(seed);
            let mut sleeps = 0;
            for number in 0..ARRIVALS {
                pause(&mut random);
                while sender.send(number).is_err() {
                    sleep_unless(&writer, &mut sleeps, || sender.free() > 0);
                }
            }
        }));
    }
    let mut sleeps = 0;
    while !receivers.iter().all(|(receiver, _)| receiver.is_closed()) {
        let mut work = 0;
        for (receiver, next) in &mut receivers {
            while let Some(number) = receiver.receive() {
                assert_eq!(number, *next);
                *next += 1;
                work += 1;
            }
        }
        if work == 0 {
            // A link that has ended delivers nothing further.
            sleep_unless(&reader, &mut sleeps, || {
                receivers.iter().any(|(receiver, _)| !receiver.is_empty())
                    || receivers.iter().all(|(receiver, _)| receiver.is_closed())
            });
        }
    }
    for (_, next) in receivers {
        assert_eq!(next, ARRIVALS);
    }
    for thread in threads {
        thread.join().expect("a writing thread");
    }
    assert!(sleeps > 100, "the reader hardly slept");
}

macro_rules! conformance {
    ($module:ident, $kind:ty) => {
        mod $module {
            use super::*;

            #[test]
            fn fifo_at_every_fill() {
                super::fifo_at_every_fill::<$kind>();
            }

            #[test]
            fn full_hands_the_message_back() {
                super::full_hands_the_message_back::<$kind>();
            }

            #[test]
            fn end_comes_once_after_the_last_message() {
                super::end_comes_once_after_the_last_message::<$kind>();
            }

            #[test]
            fn gone_receiver_hands_messages_back() {
                super::gone_receiver_hands_messages_back::<$kind>();
            }

            #[test]
            fn only_an_announced_reader_is_woken() {
                super::only_an_announced_reader_is_woken::<$kind>();
            }

            #[test]
            fn refused_writer_is_woken_once_there_is_room() {
                super::refused_writer_is_woken_once_there_is_room::<$kind>();
            }

            #[test]
            fn no_wake_up_is_lost_with_room() {
                super::no_wake_up_is_lost::<$kind>(64, 200_000, 1);
            }

            #[test]
            fn no_wake_up_is_lost_without_room() {
                super::no_wake_up_is_lost::<$kind>(1, 50_000, 2);
            }

            #[test]
            fn several_links_share_a_waiter() {
                super::several_links_share_a_waiter::<$kind>();
            }
        }
    };
}

mod kinds {
    use super::{Kind, Receiving, SendError, Sending, Waker};
    use slackwater_link::shm::{Feed, Inbox, Outbox, Peer, Reader, Subscription, Writer};
    use slackwater_link::{Frame, Receiver, Sender, channel};

    /// The ring between threads of a process.
    pub struct InProcess;

    impl Kind for InProcess {
        type Sender = Sender<u64>;
        type Receiver = Receiver<u64>;
        /// Up to the next power of two: 100 becomes 128.
        const SLACK: usize = 29;

        fn open(capacity: usize, reader: Waker, writer: Waker) -> (Sender<u64>, Receiver<u64>) {
            channel(capacity, reader, writer)
        }
    }

    impl Sending for Sender<u64> {
        fn send(&mut self, number: u64) -> Result<(), SendError<u64>> {
            self.send(number)
        }

        fn is_closed(&self) -> bool {
            self.is_closed()
        }

        fn free(&mut self) -> usize {
            Sender::free(self)
        }
    }

    impl Receiving for Receiver<u64> {
        fn receive(&mut self) -> Option<u64> {
            self.receive()
        }

        fn is_empty(&self) -> bool {
            self.is_empty()
        }

        fn is_closed(&self) -> bool {
            self.is_closed()
        }

        fn len(&self) -> Option<usize> {
            Some(self.len())
        }
    }

    /// Shared memory, both ends in one process; frames copied out of the ring, or lent.
    pub struct SharedMemory<const LENDS: bool>;

    /// A message takes four units of 64 bytes, which a ring of any size holds without padding.
    const MESSAGE_BYTES: usize = 192;
    const UNITS: usize = 4;

    pub struct Lane<const LENDS: bool>(Reader);

    impl<const LENDS: bool> Kind for SharedMemory<LENDS> {
        type Sender = Writer<Vec<u8>>;
        type Receiver = Lane<LENDS>;
        /// A ring of a power of two of messages, of which one is never filled.
        const SLACK: usize = 29;

        fn open(capacity: usize, reader: Waker, writer: Waker) -> (Self::Sender, Self::Receiver) {
            let messages = (capacity + 1).next_power_of_two().max(4);
            let peer = Peer::new("this process");
            let inbox = Inbox::create(1, 1, messages * UNITS * 64).expect("memory");
            let mut receiving = inbox.reader(0, writer, reader.clone(), peer.clone());
            receiving.lend(LENDS);
            let outbox = Outbox::open(inbox.descriptor(), 1, peer).expect("just made");
            (outbox.writer(0, reader), Lane(receiving))
        }
    }

    /// A feed, as one of its readers sees it when the other one has left.
    pub struct SharedFeed;

    impl Kind for SharedFeed {
        type Sender = Writer<Vec<u8>>;
        type Receiver = Lane<true>;
        const SLACK: usize = SharedMemory::<true>::SLACK;

        fn open(capacity: usize, reader: Waker, writer: Waker) -> (Self::Sender, Self::Receiver) {
            let messages = (capacity + 1).next_power_of_two().max(4);
            let peer = Peer::new("this process");
            let feed = Feed::create(1, 2, messages * UNITS * 64).expect("memory");
            let source = Subscription::open(feed.descriptor(), 1, peer.clone()).expect("just made");
            let nobody = slackwater_link::Waiter::new().expect("two descriptors");
            drop(source.reader(0, nobody.waker(), nobody.waker()));
            let receiving = source.reader(1, writer, reader.clone());
            let readers = vec![(nobody.waker(), peer.clone()), (reader, peer)];
            (feed.writer(readers), Lane(receiving))
        }
    }

    fn number(frame: &Frame) -> u64 {
        let bytes = frame[..8].try_into().expect("eight bytes");
        assert!(frame[8..].iter().all(|byte| *byte == frame[0]), "torn");
        u64::from_le_bytes(bytes)
    }

    impl Sending for Writer<Vec<u8>> {
        fn send(&mut self, number: u64) -> Result<(), SendError<u64>> {
            let mut bytes = number.to_le_bytes().to_vec();
            bytes.resize(MESSAGE_BYTES, bytes[0]);
            let posted = self.post(vec![bytes]);
            self.push(false);
            posted.map_err(|error| match error {
                SendError::Full(_) => SendError::Full(number),
                SendError::Closed(_) => SendError::Closed(number),
            })
        }

        fn is_closed(&self) -> bool {
            self.is_closed()
        }

        fn free(&mut self) -> usize {
            self.free() / UNITS
        }
    }

    impl<const LENDS: bool> Receiving for Lane<LENDS> {
        fn receive(&mut self) -> Option<u64> {
            let frame = self.0.receive().expect("a sound writer")?;
            assert!(LENDS || !frame.is_lent());
            let number = number(&frame);
            drop(frame);
            self.0.settle();
            Some(number)
        }

        fn is_empty(&self) -> bool {
            self.0.is_empty()
        }

        fn is_closed(&self) -> bool {
            self.0.is_closed()
        }

        fn len(&self) -> Option<usize> {
            None
        }
    }
}

conformance!(in_process, kinds::InProcess);
conformance!(shared_memory_copied, kinds::SharedMemory<false>);
conformance!(shared_memory_lent, kinds::SharedMemory<true>);
conformance!(shared_memory_feed, kinds::SharedFeed);
