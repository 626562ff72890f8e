//! A source's side of a connection: it subscribes, puts messages into the inbox, and acknowledges them as far
//! as it is told to.
//!
//! Messages of a filter are numbered from 1; they are acknowledged in the order in which they arrived, once
//! the *frontier* of each filter has moved beyond them. Without checkpoints the frontier follows the rows
//! that were passed on; with checkpoints it follows the last stored one. Messages that a broker sends again
//! over a new connection, because they were not acknowledged, are recognized by their identifier and skipped.
//! Not so with QoS 1 of MQTT 3.1.1: brokers exist (RabbitMQ) that number messages anew with each connection,
//! so an identifier may name another message. There they are read again.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waker;
use slackwater_engine::time::now_ns;

use super::connection::{Bell, Session};
use super::packet::{self, ConnAck, Packet, Publish, Qos, REFUSED, Start, Version};
use super::refusals::place;
use super::settings::{Broker, Subscription};

/// Bytes that wait for the worker; one message may exceed it.
const INBOX_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Messages that wait for the worker.
const INBOX_MESSAGES_MAX: usize = 65_536;

/// The metadata of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MessageInfo {
    pub(crate) topic: String,
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
}

/// Messages of one filter that wait for the worker.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The payloads, one after the other.
    pub(crate) bytes: Vec<u8>,
    /// The end and the number of each payload.
    pub(crate) messages: Vec<(usize, u64)>,
    pub(crate) notes: Vec<MessageInfo>,
    /// When the first message arrived.
    pub(crate) since_ns: u64,
}

#[derive(Debug, Default)]
struct Inbox {
    batches: Vec<Batch>,
    bytes: usize,
    messages: usize,
    /// Whether the thread has stopped reading from the broker.
    is_full: bool,
}

impl Inbox {
    fn has_room(&self) -> bool {
        self.bytes < INBOX_BYTES_MAX && self.messages < INBOX_MESSAGES_MAX
    }
}

/// The state that the worker, the thread and checkpoints share.
pub(crate) struct Reading {
    inbox: Mutex<Inbox>,
    /// For each filter, the first number that must not be acknowledged yet.
    frontier: Vec<AtomicU64>,
    pub(crate) bell: Arc<Bell>,
}

impl Reading {
    pub(crate) fn new(filters: usize, bell: Arc<Bell>) -> Arc<Reading> {
        let mut inbox = Inbox::default();
        inbox.batches.resize_with(filters, Batch::default);
        Arc::new(Reading {
            inbox: Mutex::new(inbox),
            frontier: (0..filters).map(|_| AtomicU64::new(1)).collect(),
            bell,
        })
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the messages that have arrived for a filter; `empty` replaces them.
    pub(crate) fn take(&self, filter: usize, empty: Batch) -> Option<Batch> {
        let mut inbox = self.inbox();
        if inbox.batches[filter].messages.is_empty() {
            return None;
        }
        let batch = std::mem::replace(&mut inbox.batches[filter], empty);
        inbox.bytes -= batch.bytes.len();
        inbox.messages -= batch.messages.len();
        let was_full = inbox.is_full && inbox.has_room();
        inbox.is_full &= !was_full;
        drop(inbox);
        if was_full {
            self.bell.ring();
        }
        Some(batch)
    }

    /// Acknowledges the messages of a filter before `number`.
    pub(crate) fn acknowledge(&self, filter: usize, number: u64) {
        // Release: pairs with the load in `speak`, through the bell.
        if self.frontier[filter].fetch_max(number, Ordering::Release) < number {
            self.bell.ring();
        }
    }
}

/// A message that was not acknowledged.
struct Unacknowledged {
    id: u16,
    qos: Qos,
    filter: usize,
    number: u64,
}

/// The session of a source.
pub(crate) struct Subscriber {
    broker: Arc<Broker>,
    subscription: Arc<Subscription>,
    reading: Arc<Reading>,
    waker: Waker,
    /// For each filter, the number of the next message.
    next: Vec<u64>,
    unacknowledged: VecDeque<Unacknowledged>,
    /// Their numbers at the broker.
    ids: HashSet<u16>,
    /// Messages with exactly-once delivery that the broker has not released yet.
    releasing: HashSet<u16>,
    was_there: bool,
    /// Which subscriptions the broker has granted.
    subscribed: Vec<bool>,
    has_strangers: bool,
}

impl Subscriber {
    pub(crate) fn new(
        broker: Arc<Broker>,
        subscription: Arc<Subscription>,
        reading: Arc<Reading>,
        waker: Waker,
    ) -> Subscriber {
        Subscriber {
            next: vec![1; subscription.filters.len()],
            subscribed: vec![false; subscription.filters.len()],
            broker,
            subscription,
            reading,
            waker,
            unacknowledged: VecDeque::new(),
            ids: HashSet::new(),
            releasing: HashSet::new(),
            was_there: false,
            has_strangers: false,
        }
    }

    /// The filter that a message belongs to.
    fn filter_of(&self, message: &Publish<'_>) -> Option<usize> {
        let filters = &self.subscription.filters;
        // A session may have subscriptions of an earlier query, with other numbers.
        let said = message
            .subscription
            .and_then(|number| number.checked_sub(1));
        let said = said.map(|index| index as usize);
        let said = said.filter(|&index| {
            filters
                .get(index)
                .is_some_and(|filter| matches(filter, message.topic))
        });
        said.or_else(|| {
            filters
                .iter()
                .position(|filter| matches(filter, message.topic))
        })
    }

    fn message(&mut self, message: &Publish<'_>, out: &mut Vec<u8>) {
        let id = message.id;
        if message.qos != Qos::AtMostOnce {
            if self.ids.contains(&id) {
                return;
            }
            if message.qos == Qos::ExactlyOnce && self.releasing.contains(&id) {
                packet::pub_rec(out, id);
                return;
            }
        }
        let filter = self.filter_of(message);
        let number = match filter {
            None => {
                self.note_stranger(message.topic);
                0
            }
            Some(filter) if is_empty(message.payload) => self.next[filter] - 1,
            Some(filter) => self.push(filter, message),
        };
        if message.qos != Qos::AtMostOnce {
            self.ids.insert(id);
            self.unacknowledged.push_back(Unacknowledged {
                id,
                qos: message.qos,
                filter: filter.unwrap_or(0),
                number,
            });
        }
    }

    fn push(&mut self, filter: usize, message: &Publish<'_>) -> u64 {
        let number = self.next[filter];
        self.next[filter] += 1;
        let mut inbox = self.reading.inbox();
        inbox.bytes += message.payload.len();
        inbox.messages += 1;
        let batch = &mut inbox.batches[filter];
        let was_empty = batch.messages.is_empty();
        if was_empty {
            batch.since_ns = now_ns();
        }
        batch.bytes.extend_from_slice(message.payload);
        batch.messages.push((batch.bytes.len(), number));
        batch.notes.push(MessageInfo {
            topic: message.topic.to_string(),
            qos: message.qos,
            retain: message.retain,
        });
        drop(inbox);
        if was_empty {
            self.waker.wake();
        }
        number
    }

    /// Forgets messages that are acknowledged once: the broker sends them again, under whatever identifiers.
    fn forget_acknowledged_once(&mut self) {
        let is_kept = |message: &Unacknowledged| message.qos == Qos::ExactlyOnce;
        self.unacknowledged.retain(is_kept);
        self.ids = self
            .unacknowledged
            .iter()
            .map(|message| message.id)
            .collect();
    }

    fn note_forgotten(&self) {
        let Broker {
            table,
            address,
            client_id,
            ..
        } = &*self.broker;
        if self.broker.version == Version::V3_1_1 && !self.subscription.is_persistent {
            eprintln!(
                "warning: table '{table}': the connection to the mqtt broker {address} has broken, and its \
                 session with it: messages in between are lost (add 'client_id', and the broker keeps them)"
            );
            return;
        }
        eprintln!(
            "warning: table '{table}': the mqtt broker {address} has forgotten the session of \
             '{client_id}': what it had kept is lost"
        );
    }

    /// The broker has answered the subscription to a filter.
    fn granted(&mut self, id: u16, code: u8) -> Result<()> {
        let nth = usize::from(id).wrapping_sub(1);
        let Some(filter) = self.subscription.filters.get(nth) else {
            return Ok(());
        };
        let asked = self.subscription.qos as u8;
        let lower = format!("write 'qos' = '{code}'");
        let (why, hint) = match code {
            code if (asked..REFUSED).contains(&code) => {
                self.subscribed[nth] = true;
                return Ok(());
            }
            // What the option promises would not hold.
            0..REFUSED => {
                let reason = format!(
                    "grants QoS {code} for '{filter}', and 'qos' = '{asked}' was asked for: it can't keep \
                     that promise"
                );
                let error = Error::new(place(&self.broker), reason);
                return Err(error.hint(&lower).final_one());
            }
            0x87 => (
                "the user may not read it",
                "ask for the right to, or name others in 'topic'",
            ),
            0x8f | 0xa2 => ("it finds the filter wrong", "write others in 'topic'"),
            0x9e => (
                "it has no shared subscriptions",
                "leave $share/…/ out of 'topic'",
            ),
            0xa1 => ("it does not number subscriptions", "use a broker that does"),
            _ => (
                "it does not say why",
                "look into its log; may the user read it?",
            ),
        };
        let reason = format!("rejects the subscription to '{filter}': {why} (code {code:#04x})");
        Err(Error::new(place(&self.broker), reason)
            .hint(hint)
            .final_one())
    }

    /// A message of a subscription that this table doesn't have.
    fn note_stranger(&mut self, topic: &str) {
        if !std::mem::replace(&mut self.has_strangers, true) {
            let Broker {
                table, client_id, ..
            } = &*self.broker;
            eprintln!(
                "warning: table '{table}': messages of topic '{topic}' come for the session of \
                 '{client_id}' and are none of the table's: they are left out"
            );
        }
    }
}

/// Whether a payload consists only of line ends, so that it is not a record.
fn is_empty(payload: &[u8]) -> bool {
    payload.iter().all(|byte| matches!(byte, b'\n' | b'\r'))
}

/// Whether a topic matches a filter (section 4.7).
pub(super) fn matches(filter: &str, topic: &str) -> bool {
    let filter = match filter.strip_prefix("$share/") {
        Some(shared) => shared.split_once('/').map_or("", |(_, filter)| filter),
        None => filter,
    };
    // Wildcards at the beginning don't match the broker's own topics.
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut levels = topic.split('/');
    for wanted in filter.split('/') {
        match (wanted, levels.next()) {
            ("#", _) => return true,
            (_, None) => return false,
            ("+", Some(_)) => {}
            (wanted, Some(level)) if wanted == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

impl Session for Subscriber {
    fn introduction(&self) -> Start {
        self.subscription.start(self.broker.version, self.was_there)
    }

    fn begin(&mut self, ack: &ConnAck, out: &mut Vec<u8>) -> Result<()> {
        let version = self.broker.version;
        if !ack.session_present {
            if self.was_there && self.subscription.qos != Qos::AtMostOnce {
                self.note_forgotten();
            }
            // The identifiers are the broker's, and it starts counting again.
            self.unacknowledged.clear();
            self.ids.clear();
            self.releasing.clear();
        } else if version == Version::V3_1_1 {
            self.forget_acknowledged_once();
        }
        // A session of this run has the subscriptions. Version 3.1.1 sends retained messages again with each.
        let has_them = self.subscribed.iter().all(|is_subscribed| *is_subscribed);
        if version == Version::V3_1_1 && ack.session_present && has_them {
            return Ok(());
        }
        self.was_there = true;
        self.subscribed.fill(false);
        for (nth, filter) in self.subscription.filters.iter().enumerate() {
            packet::subscribe(version, out, (filter, self.subscription.qos), nth as u8 + 1);
        }
        Ok(())
    }

    fn hear(&mut self, packet: &Packet<'_>, out: &mut Vec<u8>) -> Result<()> {
        match packet {
            Packet::Publish(message) => self.message(message, out),
            Packet::PubRel { id } => {
                self.releasing.remove(id);
                packet::pub_comp(out, *id);
            }
            Packet::SubAck { id, code } => self.granted(*id, *code)?,
            _ => {}
        }
        Ok(())
    }

    fn speak(&mut self, out: &mut Vec<u8>) -> Result<()> {
        while let Some(first) = self.unacknowledged.front() {
            // Acquire: pairs with `acknowledge`.
            let frontier = self.reading.frontier[first.filter].load(Ordering::Acquire);
            if first.number >= frontier {
                return Ok(());
            }
            self.ids.remove(&first.id);
            if first.qos == Qos::ExactlyOnce {
                packet::pub_rec(out, first.id);
                self.releasing.insert(first.id);
            } else {
                packet::pub_ack(out, first.id);
            }
            self.unacknowledged.pop_front();
        }
        Ok(())
    }

    fn said(&mut self) {}

    fn listens(&self) -> bool {
        let mut inbox = self.reading.inbox();
        inbox.is_full = !inbox.has_room();
        !inbox.is_full
    }
    fn gives_up(&self) -> Option<&'static str> {
        None
    }
}
