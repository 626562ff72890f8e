//! Both sides of a connection, without a socket: the packets that they send in reply to others.

mod versions;

use std::sync::Arc;

use proptest::prelude::*;
use slackwater_engine::link::Waiter;

use super::connection::{Bell, Session};
use super::packet::{self, ConnAck, Packet, Publish, Qos, Version};
use super::publisher::{Outgoing, Publisher, Writing};
use super::settings::{Broker, Subscription};
use super::subscriber::{Batch, Reading, Subscriber, matches};
use crate::options::Options;
use crate::table::tests::table;

const ADDRESS: (&str, &str) = ("address", "broker");

fn broker() -> Arc<Broker> {
    broker_of(Version::V5)
}

fn broker_of(version: Version) -> Arc<Broker> {
    let table = table(&[], &[ADDRESS, ("protocol_version", version.name())]);
    Arc::new(Broker::read(&table, &Options::new(&table.options)).unwrap())
}

fn ack(session_present: bool) -> ConnAck {
    ConnAck {
        session_present,
        code: 0,
        receive_maximum: 5,
        packet_bytes_max: 1_000,
        qos_max: Qos::ExactlyOnce,
        retains: true,
        keep_alive_s: None,
    }
}

/// The packets that were sent, in short.
fn said(out: &mut Vec<u8>) -> Vec<String> {
    said_in(Version::V5, out)
}

fn said_in(version: Version, out: &mut Vec<u8>) -> Vec<String> {
    let mut strings = vec![];
    let mut at = 0;
    while at < out.len() {
        // Packets that only clients send are recognized by their first byte.
        let kind = out[at] >> 4;
        let length = out[at + 1] as usize + 2;
        let text = match kind {
            8 => "subscribe".to_string(),
            _ => match packet::read(version, &out[at..at + length])
                .unwrap()
                .unwrap()
                .0
            {
                Packet::Publish(message) => {
                    let again = if message.duplicate { " again" } else { "" };
                    let payload = String::from_utf8_lossy(message.payload);
                    format!("{}={payload} #{}{again}", message.topic, message.id)
                }
                Packet::PubAck { id, .. } => format!("ack {id}"),
                Packet::PubRec { id, .. } => format!("rec {id}"),
                Packet::PubRel { id } => format!("rel {id}"),
                Packet::PubComp { id } => format!("comp {id}"),
                other => format!("{other:?}"),
            },
        };
        strings.push(text);
        at += length;
    }
    out.clear();
    strings
}

struct Source {
    reading: Arc<Reading>,
    subscriber: Subscriber,
    out: Vec<u8>,
    _waiter: Waiter,
}

impl Source {
    fn new(topic: &str) -> Source {
        Source::of(Version::V5, topic, &[("qos", "2"), ("client_id", "me")])
    }

    fn of(version: Version, topic: &str, options: &[(&str, &str)]) -> Source {
        let table = table(&[], &[&[ADDRESS, ("topic", topic)], options].concat());
        let options = Options::new(&table.options);
        let subscription = Subscription::read(&options, version).unwrap();
        let waiter = Waiter::new().unwrap();
        let bell = Bell::new(&broker()).unwrap();
        let reading = Reading::new(subscription.filters.len(), bell);
        let shared = Arc::clone(&reading);
        let broker = broker_of(version);
        let subscriber = Subscriber::new(broker, Arc::new(subscription), shared, waiter.waker());
        Source {
            reading,
            subscriber,
            out: vec![],
            _waiter: waiter,
        }
    }

    fn hear(&mut self, topic: &str, payload: &str, qos: Qos, id: u16, duplicate: bool) {
        let message = Publish {
            topic,
            payload: payload.as_bytes(),
            qos,
            retain: false,
            duplicate,
            id,
            subscription: None,
        };
        let packet = Packet::Publish(message);
        self.subscriber.hear(&packet, &mut self.out).unwrap();
    }

    fn connect(&mut self, session_present: bool) {
        self.subscriber
            .begin(&ack(session_present), &mut self.out)
            .unwrap();
        assert_eq!(said(&mut self.out)[0], "subscribe");
    }

    fn says(&mut self) -> Vec<String> {
        self.subscriber.speak(&mut self.out).unwrap();
        said(&mut self.out)
    }

    /// What waits in the inbox of a filter: `number:payload`.
    fn taken(&self, filter: usize) -> Vec<String> {
        let Some(batch) = self.reading.take(filter, Batch::default()) else {
            return vec![];
        };
        let mut start = 0;
        let strings = batch.messages.iter().map(|(end, number)| {
            let payload = String::from_utf8_lossy(&batch.bytes[start..*end]);
            start = *end;
            format!("{number}:{payload}")
        });
        strings.collect()
    }
}

#[test]
fn messages_are_acknowledged_in_order_once_they_are_stored() {
    let mut source = Source::new("a/#;b");
    source.connect(false);
    source.hear("a/x", "one", Qos::AtLeastOnce, 7, false);
    source.hear("b", "two", Qos::AtLeastOnce, 8, false);
    source.hear("a", "three", Qos::ExactlyOnce, 9, false);
    source.hear("a", "no number", Qos::AtMostOnce, 0, false);
    source.hear("b", "\n", Qos::AtLeastOnce, 10, false);
    assert_eq!(source.taken(0), ["1:one", "2:three", "3:no number"]);
    assert_eq!(source.taken(1), ["1:two"]);
    assert_eq!(source.says(), [""; 0]);
    source.reading.acknowledge(0, 4);
    assert_eq!(source.says(), ["ack 7"], "the one after it waits");
    source.reading.acknowledge(1, 2);
    assert_eq!(source.says(), ["ack 8", "rec 9", "ack 10"]);
    let rel = Packet::PubRel { id: 9 };
    source.subscriber.hear(&rel, &mut source.out).unwrap();
    assert_eq!(said(&mut source.out), ["comp 9"]);
}

#[test]
fn duplicates_over_a_new_connection_are_skipped() {
    let mut source = Source::new("t");
    source.connect(false);
    source.hear("t", "one", Qos::AtLeastOnce, 1, false);
    source.hear("t", "two", Qos::ExactlyOnce, 2, false);
    source.reading.acknowledge(0, 3);
    assert_eq!(source.says(), ["ack 1", "rec 2"]);
    source.hear("t", "three", Qos::AtLeastOnce, 3, false);
    source.connect(true);
    // The broker has not received `rec 2`, and nothing was sent about 3.
    source.hear("t", "two", Qos::ExactlyOnce, 2, true);
    source.hear("t", "three", Qos::AtLeastOnce, 3, true);
    assert_eq!(said(&mut source.out), ["rec 2"]);
    assert_eq!(source.taken(0), ["1:one", "2:two", "3:three"]);
    // A broker that has lost the session starts its identifiers over: nothing old is acknowledged.
    source.connect(false);
    source.hear("t", "four", Qos::AtLeastOnce, 3, false);
    source.reading.acknowledge(0, 4);
    assert_eq!(source.says(), [""; 0]);
    source.reading.acknowledge(0, 5);
    assert_eq!(source.says(), ["ack 3"]);
    assert_eq!(source.taken(0), ["4:four"]);
}

#[test]
fn a_full_inbox_stops_reading() {
    let mut source = Source::new("t");
    source.connect(false);
    let payload = "x".repeat(1024 * 1024);
    for id in 1..=8 {
        assert!(source.subscriber.listens());
        source.hear("t", &payload, Qos::AtLeastOnce, id, false);
    }
    assert!(!source.subscriber.listens());
    assert_eq!(source.taken(0).len(), 8);
    assert!(source.subscriber.listens());
}

#[test]
fn filters_and_topics() {
    for (filter, topic, is_its) in [
        ("a/b", "a/b", true),
        ("a/b", "a/b/c", false),
        ("a/+", "a/b", true),
        ("a/+", "a", false),
        ("a/+", "a/b/c", false),
        ("+/+", "/x", true),
        ("a/#", "a", true),
        ("a/#", "a/b/c", true),
        ("#", "a", true),
        ("#", "$SYS/x", false),
        ("$SYS/#", "$SYS/x", true),
        ("$share/g/a/+", "a/b", true),
    ] {
        assert_eq!(matches(filter, topic), is_its, "{filter} {topic}");
    }
}

struct Sink {
    writing: Arc<Writing>,
    publisher: Publisher,
    out: Vec<u8>,
    _waiter: Waiter,
}

impl Sink {
    fn new(qos: Qos) -> Sink {
        Sink::of(Version::V5, qos)
    }

    fn of(version: Version, qos: Qos) -> Sink {
        let waiter = Waiter::new().unwrap();
        let writing = Writing::new(&broker(), Bell::new(&broker()).unwrap());
        let shared = Arc::clone(&writing);
        Sink {
            publisher: Publisher::new(broker_of(version), shared, waiter.waker(), (qos, false)),
            writing,
            out: vec![],
            _waiter: waiter,
        }
    }

    fn connect(&mut self, session_present: bool) -> Vec<String> {
        self.publisher
            .begin(&ack(session_present), &mut self.out)
            .unwrap();
        said(&mut self.out)
    }

    fn put(&mut self, payloads: &[&str]) -> Vec<String> {
        let mut outgoing = Outgoing::default();
        for payload in payloads {
            outgoing.bytes.push(b't');
            let middle = outgoing.bytes.len();
            outgoing.bytes.extend_from_slice(payload.as_bytes());
            outgoing.ends.push((middle, outgoing.bytes.len()));
        }
        self.writing.put(&mut outgoing);
        self.says()
    }

    fn says(&mut self) -> Vec<String> {
        self.publisher.speak(&mut self.out).unwrap();
        said(&mut self.out)
    }

    fn hear(&mut self, packet: Packet<'_>) -> Vec<String> {
        self.publisher.hear(&packet, &mut self.out).unwrap();
        said(&mut self.out)
    }

    fn is_delivered(&self, count: u64) -> bool {
        self.writing
            .wait_delivered(count, std::time::Duration::ZERO)
            .is_ok()
    }
}

#[test]
fn what_is_not_acknowledged_is_sent_again() {
    let mut sink = Sink::new(Qos::AtLeastOnce);
    assert_eq!(sink.connect(false), [""; 0]);
    assert_eq!(sink.put(&["a", "b"]), ["t=a #1", "t=b #2"]);
    sink.hear(Packet::PubAck { id: 2, code: 0 });
    assert!(!sink.is_delivered(1), "the one before it is in flight");
    assert_eq!(sink.connect(true), ["t=a #1 again"]);
    assert_eq!(sink.connect(false), ["t=a #1"]);
    sink.hear(Packet::PubAck { id: 1, code: 0 });
    assert!(sink.is_delivered(2));
    let refused = sink
        .publisher
        .hear(&Packet::PubAck { id: 9, code: 0x87 }, &mut vec![]);
    let error = refused.unwrap_err().to_string();
    assert!(
        error.contains("broker:1883") && error.contains("may not write"),
        "{error}"
    );
}

#[test]
fn exactly_once_within_a_session() {
    let mut sink = Sink::new(Qos::ExactlyOnce);
    sink.connect(false);
    sink.put(&["a", "b"]);
    assert_eq!(sink.hear(Packet::PubRec { id: 1, code: 0 }), ["rel 1"]);
    assert_eq!(sink.connect(true), ["rel 1", "t=b #2 again"]);
    sink.hear(Packet::PubComp { id: 1 });
    assert!(sink.is_delivered(1) && !sink.is_delivered(2));
    sink.hear(Packet::PubRec { id: 2, code: 0 });
    // A broker that has lost the session may have lost the message.
    assert_eq!(sink.connect(false), ["t=b #2"]);
}

#[test]
fn a_session_that_the_broker_has_mixed_up_is_started_over() {
    let mut sink = Sink::new(Qos::ExactlyOnce);
    sink.connect(false);
    sink.put(&["a"]);
    sink.connect(true);
    sink.hear(Packet::PubRec { id: 1, code: 0x97 });
    assert!(sink.publisher.gives_up().is_some());
    assert!(
        sink.publisher.introduction().is_clean,
        "the broker must forget it"
    );
    assert_eq!(sink.connect(false), ["t=a #1"]);
    assert!(sink.publisher.gives_up().is_none());
}

#[test]
fn no_more_is_in_flight_than_the_broker_accepts() {
    let mut sink = Sink::new(Qos::AtLeastOnce);
    sink.connect(false);
    let payloads = ["x"; 12];
    assert_eq!(sink.put(&payloads).len(), 5);
    assert_eq!(sink.says(), [""; 0]);
    for id in 1..=3 {
        sink.hear(Packet::PubAck { id, code: 0 });
    }
    assert_eq!(sink.says().len(), 3);
    let long = "y".repeat(2_000);
    sink.put(&[&long]);
    for id in 4..=12 {
        sink.hear(Packet::PubAck { id, code: 0 });
        if let Err(error) = sink.publisher.speak(&mut sink.out) {
            assert!(error.reason.contains("1000 bytes at most"), "{error}");
            return;
        }
    }
    panic!("a message that is too long was sent");
}

#[test]
fn messages_with_qos_0_are_delivered_when_they_are_sent() {
    let mut sink = Sink::new(Qos::AtMostOnce);
    sink.connect(false);
    assert_eq!(sink.put(&["a"]), ["t=a #0"]);
    assert!(!sink.is_delivered(1));
    sink.publisher.said();
    assert!(sink.is_delivered(1));
}

proptest! {
    #[test]
    fn every_row_is_delivered_whatever_breaks(
        acts in proptest::collection::vec((0u8..6, any::<bool>()), 0..60),
        exactly: bool,
    ) {
        let qos = if exactly { Qos::ExactlyOnce } else { Qos::AtLeastOnce };
        let mut sink = Sink::new(qos);
        let mut broker: Vec<String> = vec![];
        let mut to_broker = sink.connect(false);
        let mut put = 0u64;
        let mut known = std::collections::HashSet::new();
        let step = |sink: &mut Sink, said: String, broker: &mut Vec<String>, known: &mut std::collections::HashSet<u16>| {
            if let Some(id) = said.strip_prefix("rel ") {
                let id = id.parse::<u16>().unwrap();
                known.remove(&id);
                return sink.hear(Packet::PubComp { id });
            }
            let (payload, rest) = said.split_once(" #").unwrap();
            let id = rest.split(' ').next().unwrap().parse::<u16>().unwrap();
            if !exactly {
                broker.push(payload.to_string());
                return sink.hear(Packet::PubAck { id, code: 0 });
            }
            if known.insert(id) {
                broker.push(payload.to_string());
            }
            sink.hear(Packet::PubRec { id, code: 0 })
        };
        for (act, keeps) in acts {
            match act {
                0 | 1 => {
                    to_broker.extend(sink.put(&[&put.to_string()]));
                    put += 1;
                }
                2 => {
                    // The connection breaks; packets in flight are lost.
                    if !keeps {
                        known.clear();
                    }
                    to_broker = sink.connect(keeps);
                }
                _ if to_broker.is_empty() => {}
                _ => {
                    let said = to_broker.remove(0);
                    to_broker.extend(step(&mut sink, said, &mut broker, &mut known));
                    to_broker.extend(sink.says());
                }
            }
        }
        to_broker.extend(sink.says());
        while !to_broker.is_empty() {
            let said = to_broker.remove(0);
            to_broker.extend(step(&mut sink, said, &mut broker, &mut known));
            to_broker.extend(sink.says());
        }
        prop_assert!(sink.is_delivered(put));
        for number in 0..put {
            prop_assert!(broker.contains(&format!("t={number}")), "{number} of {put}: {broker:?}");
        }
    }
}
