//! A sink's side of a connection: it sends what the worker puts into the outbox, and keeps it until the
//! broker has acknowledged it.
//!
//! Messages are numbered in the order in which they were put; the *frontier* is the first that is not
//! delivered. Messages in flight when a connection breaks are sent again over the next one.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waker;

use super::connection::{Bell, OUT_BYTES_MAX, Session};
use super::packet::{self, ConnAck, Packet, Publish, Qos, REFUSED, Start, Version};
use super::refusals::place;
use super::settings::{Broker, SESSION_EXPIRY_S};

/// Bytes that wait for the thread; one chunk may exceed it.
const OUTBOX_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Reason code: more messages are in flight than the broker accepts.
const QUOTA: u8 = 0x97;

/// The messages in flight to a broker that doesn't say how many it takes (version 3.1.1). AWS IoT takes a
/// hundred; most take more.
const WINDOW_UNTOLD: usize = 100;

/// Bytes in flight to the broker.
const FLIGHT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Messages that wait: topics and payloads, one after the other, and the end of each.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) bytes: Vec<u8>,
    /// The ends of each topic and payload.
    pub(crate) ends: Vec<(usize, usize)>,
}

#[derive(Debug, Default)]
struct Outbox {
    waiting: Outgoing,
    /// How many messages were ever put.
    put: u64,
    /// The first message that is not delivered, counted from 0.
    frontier: u64,
    /// Whether the worker waits for room.
    is_full: bool,
}

/// The state that the worker, the thread and checkpoints share.
pub(crate) struct Writing {
    outbox: Mutex<Outbox>,
    moved: Condvar,
    pub(crate) bell: Arc<Bell>,
    place: String,
}

impl Writing {
    pub(crate) fn new(broker: &Broker, bell: Arc<Bell>) -> Arc<Writing> {
        Arc::new(Writing {
            outbox: Mutex::default(),
            moved: Condvar::new(),
            bell,
            place: place(broker),
        })
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is room; if not, the worker will be woken when there is.
    pub(crate) fn has_room(&self) -> bool {
        let mut outbox = self.outbox();
        outbox.is_full = outbox.waiting.bytes.len() >= OUTBOX_BYTES_MAX;
        !outbox.is_full
    }

    /// Takes messages, even without room.
    pub(crate) fn put(&self, outgoing: &mut Outgoing) {
        let mut outbox = self.outbox();
        let base = outbox.waiting.bytes.len();
        outbox.put += outgoing.ends.len() as u64;
        outbox.waiting.bytes.append(&mut outgoing.bytes);
        let ends = outgoing.ends.drain(..);
        let ends = ends.map(|(topic, payload)| (base + topic, base + payload));
        outbox.waiting.ends.extend(ends);
        drop(outbox);
        self.bell.ring();
    }

    /// How many messages were put.
    pub(crate) fn count(&self) -> u64 {
        self.outbox().put
    }

    /// Waits until the first `count` messages are delivered. Fails if the broker acknowledges none for this
    /// long.
    pub(crate) fn wait_delivered(&self, count: u64, patience: Duration) -> Result<()> {
        let mut outbox = self.outbox();
        let mut frontier = outbox.frontier;
        let mut moved = Instant::now();
        while outbox.frontier < count {
            self.bell.check()?;
            if outbox.frontier > frontier {
                (frontier, moved) = (outbox.frontier, Instant::now());
            }
            if moved.elapsed() > patience {
                let left = count - outbox.frontier;
                let seconds = patience.as_secs();
                let reason =
                    format!("has acknowledged nothing for {seconds} s; {left} messages are left");
                return Err(Error::new(&self.place, reason).hint("does it run, and take messages?"));
            }
            // A failure wakes nobody, so it is checked for periodically.
            const LOOK: Duration = Duration::from_millis(50);
            let waited = self.moved.wait_timeout(outbox, LOOK);
            outbox = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}

/// A message in flight.
struct Flying {
    id: u16,
    batch: Arc<Outgoing>,
    topic: Range<usize>,
    payload: Range<usize>,
    /// Whether the broker has received the message and must still release its identifier.
    is_received: bool,
}

/// The session of a sink.
pub(crate) struct Publisher {
    broker: Arc<Broker>,
    writing: Arc<Writing>,
    waker: Waker,
    qos: Qos,
    retain: bool,
    /// The messages taken from the outbox, how many of them were sent, and the number of the next one.
    batch: Arc<Outgoing>,
    at: usize,
    next: u64,
    flying: BTreeMap<u64, Flying>,
    numbers: HashMap<u16, u64>,
    flying_bytes: usize,
    last_id: u16,
    /// How many messages may be in flight.
    window: usize,
    packet_bytes_max: usize,
    was_there: bool,
    /// The broker has messages of the session that this side doesn't know: it was killed, and has restarted
    /// from a state that it had saved some time before.
    is_crowded: bool,
    has_resumed: bool,
}

impl Publisher {
    pub(crate) fn new(
        broker: Arc<Broker>,
        writing: Arc<Writing>,
        waker: Waker,
        (qos, retain): (Qos, bool),
    ) -> Publisher {
        Publisher {
            broker,
            writing,
            waker,
            qos,
            retain,
            batch: Arc::default(),
            at: 0,
            next: 0,
            flying: BTreeMap::new(),
            numbers: HashMap::new(),
            flying_bytes: 0,
            last_id: 0,
            window: 0,
            packet_bytes_max: 0,
            was_there: false,
            is_crowded: false,
            has_resumed: false,
        }
    }

    fn failed(&self, reason: String, hint: &str) -> Error {
        Error::new(place(&self.broker), reason).hint(hint)
    }

    /// Takes the messages that wait in the outbox, once all that were taken before are sent.
    fn refill(&mut self) {
        let mut outbox = self.writing.outbox();
        let waiting = std::mem::take(&mut outbox.waiting);
        let was_full = std::mem::take(&mut outbox.is_full);
        drop(outbox);
        self.batch = Arc::new(waiting);
        self.at = 0;
        if was_full {
            self.waker.wake();
        }
    }

    fn next_id(&mut self) -> u16 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            // There are more identifiers than messages that may be in flight.
            if !self.numbers.contains_key(&self.last_id) {
                return self.last_id;
            }
        }
    }

    fn send_next(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let start = match self.at {
            0 => 0,
            at => self.batch.ends[at - 1].1,
        };
        let (middle, end) = self.batch.ends[self.at];
        let id = match self.qos {
            Qos::AtMostOnce => 0,
            _ => self.next_id(),
        };
        let flying = Flying {
            id,
            batch: Arc::clone(&self.batch),
            topic: start..middle,
            payload: middle..end,
            is_received: false,
        };
        self.write(&flying, false, out)?;
        if id > 0 {
            self.numbers.insert(id, self.next);
            self.flying_bytes += end - start;
            self.flying.insert(self.next, flying);
        }
        self.next += 1;
        self.at += 1;
        Ok(())
    }

    fn write(&self, flying: &Flying, duplicate: bool, out: &mut Vec<u8>) -> Result<()> {
        let before = out.len();
        // The worker has put valid UTF-8 there.
        let topic = &flying.batch.bytes[flying.topic.clone()];
        let topic = std::str::from_utf8(topic).map_err(|_| {
            self.failed(
                "got a topic that is not text".into(),
                "check the topics' column",
            )
        })?;
        let message = Publish {
            topic,
            payload: &flying.batch.bytes[flying.payload.clone()],
            qos: self.qos,
            retain: self.retain,
            duplicate,
            id: flying.id,
            subscription: None,
        };
        packet::write_publish(self.broker.version, out, &message);
        let bytes = out.len() - before;
        if bytes > self.packet_bytes_max {
            let max = self.packet_bytes_max;
            let reason = format!("takes messages of {max} bytes at most, and a row needs {bytes}");
            return Err(self.failed(reason, "write smaller rows, or raise the broker's limit"));
        }
        Ok(())
    }

    /// The delivery of a message is complete.
    fn delivered(&mut self, id: u16) {
        if let Some(number) = self.numbers.remove(&id)
            && let Some(flying) = self.flying.remove(&number)
        {
            self.flying_bytes -= flying.payload.end - flying.topic.start;
            self.move_frontier();
        }
    }

    fn move_frontier(&self) {
        let first = self.flying.keys().next();
        let frontier = first.map_or(self.next, |first| *first);
        let mut outbox = self.writing.outbox();
        if outbox.frontier < frontier {
            outbox.frontier = frontier;
            self.writing.moved.notify_all();
        }
    }

    fn refused(&self, code: u8) -> Error {
        let (why, hint) = match code {
            0x87 => (
                "the user may not write to the topic",
                "ask for the right to, or write to another 'topic'",
            ),
            0x90 => ("it finds the topic wrong", "write to another 'topic'"),
            0x97 => ("a quota is used up", "raise the broker's limit"),
            _ => ("it does not say why", "look into its log"),
        };
        self.failed(format!("rejects a message: {why} (code {code:#04x})"), hint)
    }
}

impl Session for Publisher {
    fn introduction(&self) -> Start {
        Start {
            // With version 3.1.1 a session that is not clean would stay at the broker for good. A sink sends
            // what was not acknowledged anyway, so it doesn't need one.
            is_clean: !self.was_there || self.broker.version == Version::V3_1_1,
            expiry_s: SESSION_EXPIRY_S,
        }
    }

    fn begin(&mut self, ack: &ConnAck, out: &mut Vec<u8>) -> Result<()> {
        (self.was_there, self.is_crowded) = (true, false);
        self.has_resumed = ack.session_present;
        self.window = match self.broker.version {
            Version::V3_1_1 => WINDOW_UNTOLD,
            Version::V5 => ack.receive_maximum.into(),
        };
        self.packet_bytes_max = ack.packet_bytes_max as usize;
        if ack.qos_max < self.qos {
            let max = ack.qos_max as u8;
            let hint = format!("add 'qos' = '{max}'");
            let reason = format!("takes messages of QoS {max} at most");
            return Err(self.failed(reason, &hint).final_one());
        }
        if self.retain && !ack.retains {
            let hint = "leave 'retain' out";
            return Err(self
                .failed("does not retain messages".into(), hint)
                .final_one());
        }
        if self.qos == Qos::AtMostOnce {
            // Messages in flight when the connection broke are gone.
            self.move_frontier();
        }
        let flying = std::mem::take(&mut self.flying);
        for (number, mut message) in flying {
            if ack.session_present && message.is_received {
                packet::pub_rel(out, message.id);
            } else {
                // A broker that has lost our session has lost the messages that it had not passed on.
                message.is_received = false;
                self.write(&message, ack.session_present, out)?;
            }
            self.flying.insert(number, message);
        }
        Ok(())
    }

    fn hear(&mut self, packet: &Packet<'_>, out: &mut Vec<u8>) -> Result<()> {
        match packet {
            Packet::PubRec { code, .. } if *code == QUOTA && self.has_resumed => {
                (self.is_crowded, self.was_there) = (true, false);
            }
            Packet::PubAck { code, .. } | Packet::PubRec { code, .. } if *code >= REFUSED => {
                return Err(self.refused(*code));
            }
            Packet::PubAck { id, .. } | Packet::PubComp { id } => self.delivered(*id),
            Packet::PubRec { id, .. } => {
                let number = self.numbers.get(id);
                if let Some(flying) = number.and_then(|number| self.flying.get_mut(number)) {
                    flying.is_received = true;
                }
                packet::pub_rel(out, *id);
            }
            _ => {}
        }
        Ok(())
    }

    fn speak(&mut self, out: &mut Vec<u8>) -> Result<()> {
        while out.len() < OUT_BYTES_MAX
            && self.flying.len() < self.window
            && self.flying_bytes < FLIGHT_BYTES_MAX
        {
            if self.at == self.batch.ends.len() {
                self.refill();
                if self.batch.ends.is_empty() {
                    break;
                }
            }
            self.send_next(out)?;
        }
        Ok(())
    }

    fn said(&mut self) {
        if self.qos == Qos::AtMostOnce {
            self.move_frontier();
        }
    }

    fn listens(&self) -> bool {
        true
    }
    fn gives_up(&self) -> Option<&'static str> {
        self.is_crowded
            .then_some("it has no room for more messages on their way; beginning a new session")
    }
}
