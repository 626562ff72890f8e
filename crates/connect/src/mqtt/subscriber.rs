//! A source's side of a connection: it subscribes, puts messages into the inbox, and acknowledges them as far
//! as it is told to.
//!
//! Messages of a filter are numbered from 1; they are acknowledged in the order in which they arrived, once
//! the *frontier* of each filter has moved beyond them. Without checkpoints the frontier follows the rows
//! that were passed on; with checkpoints it follows the last stored one. Messages that a broker sends again
//! over a new connection, because they were not acknowledged, are recognized by their identifier and skipped.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waker;
use slackwater_engine::time::now_ns;

use super::connection::{Bell, Session, place};
use super::packet::{self, ConnAck, Packet, Publish, Qos, REFUSED};
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
    fn introduction(&self) -> (bool, u32) {
        let is_new = !self.subscription.is_persistent && !self.was_there;
        (is_new, self.subscription.session_expiry_s)
    }

    fn begin(&mut self, ack: &ConnAck, out: &mut Vec<u8>) -> Result<()> {
        if !ack.session_present {
            if self.was_there && self.subscription.qos != Qos::AtMostOnce {
                let Broker {
                    table,
                    address,
                    client_id,
                    ..
                } = &*self.broker;
                eprintln!(
                    "warning: table '{table}': the mqtt broker {address} has forgotten the session of \
                     '{client_id}': what it had kept is lost"
                );
            }
            // The identifiers are the broker's, and it starts counting again.
            self.unacknowledged.clear();
            self.ids.clear();
            self.releasing.clear();
        }
        self.was_there = true;
        for (nth, filter) in self.subscription.filters.iter().enumerate() {
            let number = nth as u8 + 1;
            packet::subscribe(out, number.into(), filter, self.subscription.qos, number);
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
            Packet::SubAck { id, code } if *code >= REFUSED => {
                let filters = &self.subscription.filters;
                let filter = filters.get(usize::from(*id).wrapping_sub(1));
                let filter = filter.map_or("", String::as_str);
                let (why, hint) = match code {
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
                    _ => ("it does not say why", "look into its log"),
                };
                let reason =
                    format!("rejects the subscription to '{filter}': {why} (code {code:#04x})");
                return Err(Error::new(place(&self.broker), reason)
                    .hint(hint)
                    .final_one());
            }
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
