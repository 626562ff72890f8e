//! Tests of messages through shared memory, with both ends on one thread.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, StringArray};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use slackwater_link::Waiter;
use slackwater_link::shm::{Inbox, Outbox, Peer};
use slackwater_link::tcp::{Acceptor, Identity, Settings, Writer};

use super::*;
use crate::balancer::{BalancerPlan, Route};
use crate::chunk::{Chunk, Origin, Partitions, Positions};
use crate::counters::{InstanceCounters, StepCounters};
use crate::testing::batch;

struct Link {
    sender: LinkSender,
    receiver: LinkReceiver,
    peer: Peer,
    sent: Arc<LinkCounters>,
    received: Arc<LinkCounters>,
}

fn link(lane_bytes: usize) -> Link {
    let waiter = Waiter::new().unwrap();
    let peer = Peer::new("process 2");
    let inbox = Inbox::create(1, 1, lane_bytes).unwrap();
    let reader = inbox.reader(0, waiter.waker(), waiter.waker(), peer.clone());
    let outbox = Outbox::open(inbox.descriptor(), 1, peer.clone()).unwrap();
    let writer = outbox.writer(0, waiter.waker());
    let (sent, received) = (Arc::default(), Arc::default());
    Link {
        sender: LinkSender::remote(FrameSender::Shm(writer), Arc::clone(&sent)),
        receiver: LinkReceiver::remote(FrameReceiver::Shm(reader), Arc::clone(&received)),
        peer,
        sent,
        received,
    }
}

fn chunk(first: i64, rows: i64) -> Message {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + rows));
    let strings = (first..first + rows).map(|n| format!("row {n}"));
    let strings: ArrayRef = Arc::new(StringArray::from_iter_values(strings));
    let mut chunk = Chunk::new(batch(vec![("n", numbers), ("text", strings)]), 7);
    chunk.origin = Some(Origin {
        partitions: Partitions::One(3),
        positions: Positions::Run { first: 1 },
        watermarks: None,
    });
    Message::Chunk(chunk)
}

fn messages() -> Vec<Message> {
    vec![
        chunk(0, 5),
        Message::Watermark {
            time: -4,
            ingest_ns: 9,
        },
        chunk(5, 500),
        Message::Idle,
        Message::Active,
        Message::EndOfWork { ingest_ns: 1 },
        Message::EndOfStream {
            ingest_ns: 2,
            stopped: true,
        },
    ]
}

#[test]
fn messages_arrive_as_they_were_sent() {
    let mut link = link(1 << 20);
    let sent = messages();
    for message in sent.clone() {
        assert!(link.sender.post(message).unwrap().is_none());
        link.sender.ring(false);
    }
    link.sender.close();
    assert!(link.sender.is_drained());
    drop(link.sender);
    for message in sent {
        let received = link.receiver.receive().unwrap().expect("a message");
        assert_eq!(format!("{received:?}"), format!("{message:?}"));
    }
    assert!(link.receiver.receive().unwrap().is_none());
    assert!(link.receiver.is_closed());
    let count = |counters: &LinkCounters| {
        let counts = [&counters.messages, &counters.bytes];
        counts.map(InstanceCounters::read)
    };
    assert_eq!(count(&link.sent), count(&link.received));
    assert_eq!(count(&link.sent)[0], 7);
}

/// The rows of the chunks that a link has for its receiver, by message.
fn rows_received(link: &mut Link) -> Vec<Vec<i64>> {
    let mut received = Vec::new();
    while let Some(message) = link.receiver.receive().unwrap() {
        let Message::Chunk(chunk) = message else {
            panic!("only chunks were sent: {message:?}");
        };
        let column = chunk.batch.column(0).as_primitive::<Int64Type>();
        received.push(column.values().to_vec());
    }
    received
}

#[test]
fn chunks_are_sent_in_parts_of_the_planned_bytes_which_may_change() {
    let mut link = link(1 << 20);
    let sender = std::mem::replace(
        &mut link.sender,
        LinkSender::Fan(Box::new(Fan::new(vec![]))),
    );
    let mut route = Route::new(BalancerPlan::PointToPoint, vec![sender]);
    let counters = InstanceCounters::new(1, &[], &[]);
    let mut next = 0;
    let mut send = |link: &mut Link, route: &mut Route, rows: i64| {
        let Message::Chunk(chunk) = chunk(next, rows) else {
            unreachable!("a chunk was made")
        };
        route.chunk(chunk, &counters.steps[0]).unwrap();
        route.ring();
        assert!(!route.is_blocked());
        let received = rows_received(link);
        assert_eq!(received.concat(), (next..next + rows).collect::<Vec<_>>());
        next += rows;
        received.iter().map(Vec::len).collect::<Vec<_>>()
    };
    // Whole, as long as nothing was planned.
    assert_eq!(send(&mut link, &mut route, 4_000), [4_000]);
    let bytes = InstanceCounters::read(&link.sent.bytes);
    let row_bytes = (bytes as usize).div_ceil(4_000);
    for message_bytes in [100 * row_bytes, 1_000 * row_bytes, 3_000 * row_bytes] {
        link.sent.resize(Some(message_bytes));
        let parts = send(&mut link, &mut route, 4_000);
        let rows = message_bytes / row_bytes;
        // Later strings are longer, and the header of each part counts.
        assert!((rows / 2..=rows).contains(&parts[0]), "{parts:?}, {rows}");
        assert!(parts.len() >= 4_000 / rows && parts[0] > 1, "{parts:?}");
    }
    // Less than a row takes: a row each.
    link.sent.resize(Some(1));
    assert_eq!(send(&mut link, &mut route, 3), [1, 1, 1]);
    link.sent.resize(None);
    assert_eq!(send(&mut link, &mut route, 4_000), [4_000]);
    let rows = [&link.sent.rows, &link.received.rows].map(InstanceCounters::read);
    assert_eq!(rows, [next as u64; 2]);
}

/// Chunks that are many times larger than the lane arrive while the receiver keeps what it got.
#[test]
fn chunks_larger_than_the_lane_get_through_and_may_be_kept() {
    let mut link = link(4096);
    link.receiver.copy_frames();
    let mut kept = Vec::new();
    let mut next = 0;
    let mut refused = 0;
    for _ in 0..100_000 {
        if next < 20 {
            match link.sender.post(chunk(next * 1000, 1000)).unwrap() {
                None => next += 1,
                Some(Message::Chunk(back)) => {
                    assert_eq!(back.rows(), 1000);
                    refused += 1;
                }
                Some(other) => panic!("another message comes back: {other:?}"),
            }
        }
        link.sender.flush().unwrap();
        kept.extend(link.receiver.receive().unwrap());
        if kept.len() == 20 {
            break;
        }
    }
    assert!(refused > 20, "the lane was never full");
    assert!(link.sender.is_drained());
    for (number, message) in kept.iter().enumerate() {
        let expected = chunk(number as i64 * 1000, 1000);
        assert_eq!(format!("{message:?}"), format!("{expected:?}"));
    }
}

#[test]
fn a_dead_peer_is_a_consequence_that_names_it() {
    let mut link = link(4096);
    link.sender.post(chunk(0, 3)).unwrap();
    link.sender.ring(false);
    link.peer.mark_dead();
    // Both ends have the same peer here: a frame that was whole still arrives.
    assert!(link.receiver.receive().unwrap().is_some());
    let error = link.receiver.receive().unwrap_err();
    assert!(error.consequence && error.place == "process 2", "{error}");
    let mut link = self::link(4096);
    link.peer.mark_dead();
    let error = link.sender.post(chunk(3, 3)).unwrap_err();
    assert!(error.consequence && error.place == "process 2", "{error}");
}

#[test]
fn a_sender_that_left_without_an_end_is_seen() {
    let mut link = link(4096);
    link.sender.post(chunk(0, 3)).unwrap();
    drop(link.sender);
    assert!(link.receiver.receive().unwrap().is_some());
    assert!(link.receiver.receive().unwrap().is_none());
    assert!(link.receiver.is_closed(), "ports make a loss of it");
}

/// A link inside the process.
fn local() -> (LinkSender, LinkReceiver) {
    let waiter = Waiter::new().unwrap();
    let (sender, receiver) = slackwater_link::channel(16, waiter.waker(), waiter.waker());
    (LinkSender::Local(sender), LinkReceiver::Local(receiver))
}

#[test]
fn only_what_the_receiver_has_taken_is_acknowledged() {
    let shared = link(1 << 20);
    for (mut sender, mut receiver) in [local(), (shared.sender, shared.receiver)] {
        let mut positions = Vec::new();
        for first in 0..3 {
            assert!(sender.post(chunk(first, 5)).unwrap().is_none());
            positions.push(sender.position());
        }
        sender.ring(false);
        assert!(
            positions.is_sorted_by(|one, other| one < other),
            "{positions:?}"
        );
        for taken in 0..=3 {
            for (number, &position) in positions.iter().enumerate() {
                assert_eq!(sender.is_acknowledged(position), number < taken);
                assert_eq!(sender.await_acknowledged(position), number < taken);
            }
            if taken < 3 {
                drop(receiver.receive().unwrap().expect("three were sent"));
                receiver.settle();
            }
        }
    }
}

#[test]
fn a_receiver_that_is_gone_has_taken_everything() {
    let (mut sender, receiver) = local();
    assert!(sender.post(chunk(0, 5)).unwrap().is_none());
    let position = sender.position();
    assert!(!sender.is_acknowledged(position));
    drop(receiver);
    assert!(sender.await_acknowledged(position));
}

/// A sender over TCP whose window stays full while its reader takes nothing.
fn tcp() -> (LinkSender, LinkReceiver, Waiter, Acceptor) {
    let waiter = Waiter::new().unwrap();
    let identity = Identity {
        epoch: 1,
        token: [0; 16],
    };
    let settings = Settings {
        window_bytes: 1 << 12,
        ..Settings::default()
    };
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let acceptor = Acceptor::bind(any_port, identity, settings).unwrap();
    let reader = acceptor.reader(0, "the writer", &waiter);
    let address = acceptor.local_address();
    let writer = Writer::connect(address, identity, 0, "the reader", &waiter, settings);
    let sender = LinkSender::remote(FrameSender::Tcp(Box::new(writer)), Arc::default());
    let receiver = LinkReceiver::remote(FrameReceiver::Tcp(Box::new(reader)), Arc::default());
    (sender, receiver, waiter, acceptor)
}

/// Over TCP the end of the link is a message of its own, and nothing may follow it: messages that still
/// wait for room when a query ends must be sent first.
#[test]
fn regression_a_link_is_closed_after_what_waits_for_room() {
    type Wrap = fn(LinkSender) -> LinkSender;
    let wraps: [Wrap; 2] = [
        |sender| sender,
        |sender| LinkSender::Fan(Box::new(Fan::new(vec![sender]))),
    ];
    for wrap in wraps {
        let (sender, mut receiver, _waiter, _acceptor) = tcp();
        let mut route = Route::new(BalancerPlan::PointToPoint, vec![wrap(sender)]);
        // The link takes the first message, holds the second and leaves the others to the route.
        for first in 0..4 {
            route
                .control(&chunk(first * 500, 500), &StepCounters::default())
                .unwrap();
        }
        let end = Message::EndOfStream {
            ingest_ns: 2,
            stopped: false,
        };
        route.control(&end, &StepCounters::default()).unwrap();
        assert!(route.is_blocked(), "its window took everything");
        route.close();
        let start = Instant::now();
        let mut received = Vec::new();
        while received.len() < 5 || !route.is_drained() {
            assert!(start.elapsed() < Duration::from_secs(20), "{received:?}");
            route.flush().unwrap();
            received.extend(receiver.receive().unwrap());
            receiver.settle();
        }
        let last = received.last().unwrap();
        assert!(matches!(last, Message::EndOfStream { .. }), "{last:?}");
    }
}
