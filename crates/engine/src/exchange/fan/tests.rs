//! Tests of a fan over links of this process and of shared memory, with all ends on one thread.

use arrow_array::{ArrayRef, Int64Array};
use slackwater_link::shm::{Feed, Inbox, Outbox, Peer, Subscription};
use slackwater_link::{FrameReceiver, Waiter, channel};

use super::*;
use crate::counters::InstanceCounters;
use crate::exchange::LinkReceiver;
use crate::exchange::relay::Relay;
use crate::testing::batch;

const LANE_BYTES: usize = 4096;

struct Ends {
    fan: Fan,
    receivers: Vec<LinkReceiver>,
    sent: Arc<LinkCounters>,
}

/// A local link, a lane, and a feed of two readers.
fn ends() -> Ends {
    let waiter = Waiter::new().unwrap();
    let waker = || waiter.waker();
    let peer = Peer::new("process 2");
    let counters = || Arc::<LinkCounters>::default();
    let (local, local_receiver) = channel(2, waker(), waker());
    let inbox = Inbox::create(1, 1, LANE_BYTES).unwrap();
    let lane_reader = inbox.reader(0, waker(), waker(), peer.clone());
    let outbox = Outbox::open(inbox.descriptor(), 1, peer.clone()).unwrap();
    let lane = FrameSender::Shm(outbox.writer(0, waker()));
    let feed = Feed::create(1, 2, LANE_BYTES).unwrap();
    let source = Subscription::open(feed.descriptor(), 1, peer.clone()).unwrap();
    let writer = FrameSender::Shm(feed.writer(vec![(waker(), peer.clone()), (waker(), peer)]));
    let sent = counters();
    let remote = [
        lane_reader,
        source.reader(0, waker(), waker()),
        source.reader(1, waker(), waker()),
    ];
    let remote = remote.map(|end| LinkReceiver::remote(FrameReceiver::Shm(end), counters()));
    Ends {
        fan: Fan::new(vec![
            LinkSender::Local(local),
            LinkSender::remote(lane, counters()),
            LinkSender::remote(writer, sent.clone()),
        ]),
        receivers: std::iter::once(LinkReceiver::Local(local_receiver))
            .chain(remote)
            .collect(),
        sent,
    }
}

fn chunk(first: i64, rows: i64) -> Message {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + rows));
    Message::Chunk(Chunk::new(batch(vec![("n", numbers)]), 7))
}

fn messages() -> Vec<Message> {
    let watermark = |time| Message::Watermark { time, ingest_ns: 9 };
    let end = Message::EndOfStream {
        ingest_ns: 2,
        stopped: false,
    };
    let mut messages = Vec::new();
    for number in 0..20 {
        messages.push(chunk(number * 1000, 1 + number * 9));
        messages.push(watermark(number));
    }
    messages.extend([Message::Idle, Message::EndOfWork { ingest_ns: 1 }, end]);
    messages
}

fn text(message: &Message) -> String {
    format!("{message:?}")
}

/// Gives the messages to `post` as long as it takes them, while the receivers read one at a time.
fn pass(
    receivers: &mut [LinkReceiver],
    mut post: impl FnMut(Option<Message>) -> Option<Message>,
) -> Vec<Vec<String>> {
    let mut left = messages().into_iter();
    let mut next = left.next();
    let mut received = vec![Vec::new(); receivers.len()];
    for _ in 0..10_000 {
        let held = post(next.take());
        next = held.or_else(|| left.next());
        for (receiver, received) in receivers.iter_mut().zip(&mut received) {
            received.extend(receiver.receive().unwrap().iter().map(text));
        }
        if received
            .iter()
            .all(|messages_of_one| messages_of_one.len() == messages().len())
        {
            break;
        }
    }
    received
}

#[test]
fn every_link_gets_every_message_in_order_and_a_full_one_holds_back_all() {
    let Ends {
        mut fan,
        mut receivers,
        sent,
    } = ends();
    let received = pass(&mut receivers, |message| {
        let held = message.and_then(|message| fan.post(message).unwrap());
        fan.ring(false);
        fan.flush().unwrap();
        held
    });
    let expected = messages().iter().map(text).collect::<Vec<String>>();
    for of_link in received {
        assert_eq!(of_link, expected);
    }
    assert!(fan.is_drained());
    // A feed's bytes are written once for both of its readers.
    let count = InstanceCounters::read(&sent.messages);
    assert_eq!(count, expected.len() as u64);
    // Nobody reads now: the smallest link, which holds two messages, bounds what is taken.
    let mut taken = 0;
    while fan.post(chunk(0, 5)).unwrap().is_none() {
        taken += 1;
        assert!(taken < 10, "a fan that is not bounded");
    }
    assert!(fan.is_blocked() && !fan.is_drained());
}

/// A relay forwards frames as they come, without encoding them again.
#[test]
fn a_relay_forwards_frames_from_another_process() {
    let waiter = Waiter::new().unwrap();
    let peer = Peer::new("process 1");
    let inbox = Inbox::create(1, 1, LANE_BYTES).unwrap();
    let reader = inbox.reader(0, waiter.waker(), waiter.waker(), peer.clone());
    let outbox = Outbox::open(inbox.descriptor(), 1, peer).unwrap();
    let writer = FrameSender::Shm(outbox.writer(0, waiter.waker()));
    let mut sender = LinkSender::remote(writer, Arc::default());
    let mut receiver = LinkReceiver::remote(FrameReceiver::Shm(reader), Arc::default());
    let Ends {
        fan, mut receivers, ..
    } = ends();
    let mut relay = Relay::new(fan);
    assert!(relay.has_local());
    let mut own = Vec::new();
    let received = pass(&mut receivers, |message| {
        let held = message.and_then(|message| sender.post(message).unwrap());
        sender.ring(false);
        sender.flush().unwrap();
        if relay.is_ready().unwrap() {
            let message = receiver.receive_and_relay(&mut relay).unwrap();
            own.extend(message.iter().map(text));
        }
        relay.end_step();
        relay.flush().unwrap();
        held
    });
    let expected = messages().iter().map(text).collect::<Vec<String>>();
    assert_eq!(own, expected);
    for of_link in received {
        assert_eq!(of_link, expected);
    }
}

#[test]
fn segments_make_up_the_chunk() {
    let Message::Chunk(chunk) = chunk(0, 1000) else {
        unreachable!()
    };
    for (bytes, parts) in [(1, 1000), (800, 10), (4000, 2), (8000, 1), (1 << 30, 1)] {
        let cut = segments(chunk.clone(), bytes).collect::<Vec<Chunk>>();
        assert_eq!(cut.len(), parts, "{bytes} bytes");
        let rows = cut.iter().map(Chunk::rows).sum::<usize>();
        assert_eq!(rows, 1000);
    }
    let empty = chunk.slice(0, 0);
    assert_eq!(
        segments(empty, 10).count(),
        0,
        "nothing is sent for no rows"
    );
}
