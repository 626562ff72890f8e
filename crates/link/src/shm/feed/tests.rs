use super::*;
use crate::doorbell::Doorbell;
use crate::error::SendError;
use crate::frame::Frame;
use crate::shm::LANE_BYTES_MIN;
use fastrand::Rng;

fn waker() -> Waker {
    Waker::new(Arc::new(Doorbell::new().expect("an eventfd")))
}

struct Ends {
    writer: Writer<Vec<u8>>,
    readers: Vec<Reader>,
    /// The processes that read.
    peers: Vec<Peer>,
}

/// A feed on the heap of this process.
fn feed(readers: usize, lane_bytes: usize) -> Ends {
    let layout = Layout::new(readers, lane_bytes).expect("possible");
    let memory = Arc::new(Memory::on_heap(layout.bytes()));
    let peers = (0..readers).map(|reader| Peer::new(format!("process {reader}")));
    let peers = peers.collect::<Vec<Peer>>();
    let opposites = peers.iter().enumerate().map(|(reader, peer)| Opposite {
        cells: layout.cells(&memory, reader),
        waker: waker(),
        peer: peer.clone(),
    });
    let writer = Writer::new(opposites.collect());
    let source = Subscription {
        memory,
        layout,
        peer: Peer::new("process 9"),
    };
    let readers = (0..readers).map(|reader| source.reader(reader, waker(), waker()));
    Ends {
        writer,
        readers: readers.collect(),
        peers,
    }
}

fn frame(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (number * 7 + at) as u8).collect()
}

#[test]
fn every_reader_gets_every_frame_in_order_and_may_keep_some() {
    let rounds = if cfg!(miri) { 300 } else { 20_000 };
    for (readers, lane_bytes) in [(1, 1 << 10), (2, 1 << 10), (3, 1 << 12), (7, 1 << 13)] {
        let mut ends = feed(readers, lane_bytes);
        let mut random = Rng::with_seed(readers as u64);
        let mut sent = 0;
        let mut received = vec![0; readers];
        let mut lent: Vec<Vec<Frame>> = (0..readers).map(|_| Vec::new()).collect();
        let length = |number: usize| 1 + Rng::with_seed(number as u64).usize(..lane_bytes / 2);
        for _ in 0..rounds {
            match random.u64(..4) {
                0 => {
                    if ends.writer.post(vec![frame(sent, length(sent))]).is_ok() {
                        sent += 1;
                    }
                }
                1 => ends.writer.push(false),
                _ => {
                    let reader = random.usize(..readers);
                    let next = &mut received[reader];
                    if let Some(got) = ends.readers[reader].receive().expect("a sound writer") {
                        assert!(*got == *frame(*next, length(*next)), "reader {reader}");
                        *next += 1;
                        lent[reader].push(got);
                    }
                    let keep = random.usize(..3);
                    let kept = lent[reader].len().min(keep);
                    lent[reader].truncate(kept);
                }
            }
        }
        assert!(
            *received.iter().min().unwrap() > rounds / 200,
            "{received:?}"
        );
    }
}

#[test]
fn the_slowest_reader_holds_the_writer_back() {
    let mut ends = feed(2, LANE_BYTES_MIN);
    while ends.writer.post(vec![frame(0, 40)]).is_ok() {}
    while ends.readers[0].receive().unwrap().is_some() {}
    assert!(!ends.writer.has_room(), "the other one has read nothing");
    assert!(matches!(
        ends.writer.post(vec![frame(0, 40)]),
        Err(SendError::Full(_))
    ));
    ends.readers[1].receive().unwrap().expect("a frame");
    ends.readers[1].settle();
    ends.writer.post(vec![frame(1, 40)]).expect("room");
}

#[test]
fn a_reader_that_leaves_or_dies_is_waited_for_no_longer() {
    for dies in [false, true] {
        let mut ends = feed(3, LANE_BYTES_MIN);
        while ends.writer.post(vec![frame(0, 40)]).is_ok() {}
        for reader in &mut ends.readers[1..] {
            while reader.receive().unwrap().is_some() {}
        }
        if dies {
            ends.peers[0].mark_dead();
        } else {
            drop(ends.readers.remove(0));
        }
        ends.writer.post(vec![frame(1, 40)]).expect("room");
        for reader in ends.readers.iter_mut().rev().take(2) {
            assert_eq!(*reader.receive().unwrap().unwrap(), *frame(1, 40));
        }
        assert!(!ends.writer.is_closed());
        let lost = ends.writer.lost().map(|error| error.peer.as_str());
        assert_eq!(lost, dies.then_some("process 0"));
        let last_two = ends.readers.len() - 2;
        ends.readers.drain(last_two..);
        assert!(ends.writer.is_closed(), "nobody reads any more");
        assert!(matches!(
            ends.writer.post(vec![frame(2, 40)]),
            Err(SendError::Closed(_))
        ));
    }
}

#[test]
fn lent_frames_stay_valid_after_their_reader_has_left() {
    let mut ends = feed(2, LANE_BYTES_MIN);
    ends.writer.post(vec![frame(5, 100)]).expect("room");
    let lent = ends.readers[0].receive().unwrap().expect("a frame");
    assert!(lent.is_lent());
    drop(ends.readers.remove(0));
    let other = &mut ends.readers[0];
    let mut posted = 0;
    // Several times around, were it not for the lent frame.
    for _ in 0..100 {
        posted += usize::from(ends.writer.post(vec![frame(6, 100)]).is_ok());
        while other.receive().unwrap().is_some() {}
    }
    assert!(posted < 10, "{posted} frames in a ring of 16 units");
    assert_eq!(*lent, *frame(5, 100));
    drop(lent);
    for _ in 0..100 {
        posted += usize::from(ends.writer.post(vec![frame(6, 100)]).is_ok());
        while other.receive().unwrap().is_some() {}
    }
    assert!(posted > 90, "{posted}: the lent frame is back");
}

#[test]
fn every_reader_sees_the_end_after_the_last_frame() {
    let mut ends = feed(3, LANE_BYTES_MIN);
    ends.writer.post(vec![frame(1, 100)]).expect("room");
    drop(ends.writer);
    for reader in &mut ends.readers {
        assert!(!reader.is_closed());
        assert_eq!(*reader.receive().unwrap().unwrap(), *frame(1, 100));
        assert!(reader.receive().unwrap().is_none() && reader.is_closed());
    }
}

#[test]
fn memory_without_a_feed_of_this_epoch_is_refused() {
    let feed = Feed::create(4, 2, LANE_BYTES_MIN).expect("memory");
    let peer = Peer::new("process 2");
    let opened = Subscription::open(feed.descriptor(), 4, peer.clone()).expect("just made");
    assert_eq!(opened.readers(), 2);
    let error = Subscription::open(feed.descriptor(), 5, peer.clone()).err();
    let error = error.expect("another epoch").to_string();
    assert!(
        error.contains("epoch 4") && error.contains("feed"),
        "{error}"
    );
    let inbox = crate::shm::Inbox::create(4, 1, LANE_BYTES_MIN).expect("memory");
    let error = Subscription::open(inbox.descriptor(), 4, peer).err();
    assert!(
        error
            .expect("an inbox")
            .reason
            .contains("without a valid feed")
    );
}
