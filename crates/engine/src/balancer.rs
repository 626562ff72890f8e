//! Balancers: they decide which outgoing link gets a chunk, or how it is split.
//!
//! Control messages go to every link, after the chunks before them.

mod demand;
mod keyed;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::chunk::{Chunk, Message};
use crate::counters::StepCounters;
use crate::error::Result;
use crate::exchange::LinkSender;
use crate::exchange::fan::segments;
use crate::hash::BUCKETS;
use demand::Demand;
pub use demand::UNACKNOWLEDGED_MAX;
use keyed::Keyed;

/// One in this many chunks that are split by key is counted by bucket: counting costs a nanosecond a row,
/// and the counts only have to be in proportion.
pub const COUNTED_CHUNKS: u64 = 8;

/// How chunks are spread over the links of one output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BalancerPlan {
    /// All chunks go to the only link.
    PointToPoint,
    /// Each chunk goes to the next link in turn; rows of one key lose their order.
    RoundRobin,
    /// Each chunk goes to the instance with the fewest rows waiting; rows of one key lose their order.
    Demand,
    /// Each row goes to the instance that holds its key's bucket.
    Keyed {
        /// Key columns.
        columns: Vec<usize>,
        /// Whether the receiver needs the rows' origin (it orders them by partition and position). If
        /// not, the origin is left out: gathering it would cost as much as a column.
        keep_origin: bool,
        /// The node of the query graph that the links lead to, whose buckets may move.
        to: usize,
    },
    /// Every chunk goes to every receiver, over one [fan](crate::exchange::fan) of links. Some receivers
    /// may be relays, which forward what they get.
    Broadcast {
        /// Chunks of more bytes are sent in parts of about this size, so that a relay forwards one part
        /// while the next is on its way.
        segment_bytes: Option<usize>,
    },
}

impl BalancerPlan {
    /// Whether receivers acknowledge the chunks that they take.
    pub fn is_acknowledged(&self) -> bool {
        matches!(self, BalancerPlan::Demand)
    }
}

/// The first owner of each bucket among `links` links, dealt out in turn.
pub fn first_owners(links: usize) -> Vec<u16> {
    (0..BUCKETS).map(|bucket| (bucket % links) as u16).collect()
}

/// One output of an instance: a balancer and its links.
pub struct Route {
    dealing: Dealing,
    senders: Vec<LinkSender>,
    /// Messages that have no link yet, in order. Only [`Dealing::Demand`] chooses a link that late.
    undealt: VecDeque<Message>,
    /// Messages that found their link full. These and `undealt` hold what one input message produces, or of a
    /// keyed route one step: the instance takes no further input while there are any.
    queues: Vec<VecDeque<Message>>,
    queued: usize,
    /// Whether the links are to be closed once everything held back is sent.
    is_closing: bool,
    /// What the reader of each link has not been woken for yet.
    not_woken: Vec<NotWoken>,
}

/// A balancer with its state.
enum Dealing {
    ToOne,
    /// As [`Dealing::ToOne`], in parts of about this many bytes.
    Segments(usize),
    InTurn {
        next: usize,
    },
    Demand(Demand),
    Keyed(Keyed),
}

/// What a reader has not been woken for yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NotWoken {
    Nothing,
    Messages,
    /// Messages of which at least one ends a timed sleep: a barrier, or the end.
    Urgent,
}

impl Route {
    /// A route over at least one link.
    pub fn new(plan: BalancerPlan, senders: Vec<LinkSender>) -> Route {
        assert!(!senders.is_empty(), "a route needs a link");
        let links = senders.len();
        let takes_one = matches!(
            plan,
            BalancerPlan::PointToPoint | BalancerPlan::Broadcast { .. }
        );
        assert!(!takes_one || links == 1, "one link, or one fan");
        let dealing = match plan {
            BalancerPlan::Keyed {
                columns,
                keep_origin,
                to,
            } if links > 1 => {
                let stays = senders.iter();
                let stays = stays.map(|sender| matches!(sender, LinkSender::Local(_)));
                Dealing::Keyed(Keyed::new(columns, keep_origin, to, stays.collect()))
            }
            BalancerPlan::RoundRobin if links > 1 => Dealing::InTurn { next: 0 },
            BalancerPlan::Demand if links > 1 => Dealing::Demand(Demand::new(links)),
            BalancerPlan::Broadcast {
                segment_bytes: Some(bytes),
            } => Dealing::Segments(bytes),
            _ => Dealing::ToOne,
        };
        Route {
            dealing,
            undealt: VecDeque::new(),
            queues: senders.iter().map(|_| VecDeque::new()).collect(),
            queued: 0,
            is_closing: false,
            not_woken: vec![NotWoken::Nothing; links],
            senders,
        }
    }

    /// Sends a chunk, or keeps it until [`Route::settle`]; `counters` are this route's.
    pub fn chunk(&mut self, chunk: Chunk, counters: &StepCounters) -> Result<()> {
        match &mut self.dealing {
            Dealing::ToOne => self.send_chunk(0, chunk),
            Dealing::Segments(bytes) => {
                let bytes = *bytes;
                segments(chunk, bytes).try_for_each(|part| self.send(0, Message::Chunk(part)))
            }
            Dealing::InTurn { next } => {
                let link = *next;
                *next = (link + 1) % self.senders.len();
                self.send_chunk(link, chunk)
            }
            Dealing::Demand(_) => {
                // The parts are dealt one by one, so that a receiver holds few of them.
                let senders = self.senders.iter();
                match senders.filter_map(|sender| sender.rows_max(&chunk)).min() {
                    Some(rows) => self.undealt.extend(chunk.parts(rows).map(Message::Chunk)),
                    None => self.undealt.push_back(Message::Chunk(chunk)),
                }
                self.deal().map(|_| ())
            }
            Dealing::Keyed(keyed) => match keyed.hold(chunk) {
                None => Ok(()),
                Some(chunk) => {
                    self.settle(counters)?;
                    self.chunk(chunk, counters)
                }
            },
        }
    }

    /// Sends the rows that are kept to be split together; returns whether there were any. Called at the end
    /// of each step of the instance.
    pub fn settle(&mut self, counters: &StepCounters) -> Result<bool> {
        let Dealing::Keyed(keyed) = &mut self.dealing else {
            return Ok(false);
        };
        if keyed.is_empty() {
            return Ok(false);
        }
        let (parts, watermark) = (keyed.split(counters)?, keyed.take_watermark());
        for (link, part) in parts {
            self.send_chunk(link, part)?;
        }
        watermark.map_or(Ok(()), |watermark| self.send_to_all(&watermark))?;
        Ok(true)
    }

    /// Sends a control message on every link. A barrier may move buckets of the receivers; from here on,
    /// the rows of those buckets go to the new owners.
    pub fn control(&mut self, message: &Message, counters: &StepCounters) -> Result<()> {
        if let Dealing::Keyed(keyed) = &mut self.dealing {
            if keyed.hold_watermark(message) {
                return Ok(());
            }
            self.settle(counters)?;
        }
        if let (Dealing::Keyed(keyed), Message::Barrier(barrier)) = (&mut self.dealing, message) {
            keyed.change(barrier);
        }
        if !self.undealt.is_empty() {
            self.undealt.push_back(message.clone());
            return Ok(());
        }
        self.send_to_all(message)
    }

    fn send_to_all(&mut self, message: &Message) -> Result<()> {
        let urgent = message.is_urgent();
        for link in 0..self.senders.len() {
            self.send(link, message.clone())?;
            if urgent {
                self.not_woken[link] = NotWoken::Urgent;
            }
        }
        Ok(())
    }

    /// Deals chunks to receivers until one finds no receiver; returns how many messages were sent.
    fn deal(&mut self) -> Result<usize> {
        let mut dealt = 0;
        while let Some(message) = self.undealt.pop_front() {
            let Message::Chunk(chunk) = message else {
                self.send_to_all(&message)?;
                dealt += 1;
                continue;
            };
            let Dealing::Demand(demand) = &mut self.dealing else {
                unreachable!("only demand leaves a chunk without a link")
            };
            let queues = &self.queues;
            let chosen = demand.choose(&mut self.senders, |link| queues[link].is_empty());
            let Some(link) = chosen else {
                self.undealt.push_front(Message::Chunk(chunk));
                break;
            };
            let rows = chunk.rows() as u64;
            self.send(link, Message::Chunk(chunk))?;
            if let Dealing::Demand(demand) = &mut self.dealing {
                demand.sent(link, self.senders[link].position(), rows);
            }
            dealt += 1;
        }
        Ok(dealt)
    }

    /// Sends messages that were held back; returns how many.
    pub fn flush(&mut self) -> Result<usize> {
        let mut sent = 0;
        for link in 0..self.senders.len() {
            sent += usize::from(self.senders[link].flush()?);
            while let Some(message) = self.queues[link].pop_front() {
                // The reader was woken when the link first refused a message. If it were woken at every
                // attempt, two workers that wait for each other's links would keep each other awake.
                if let Some(message) = self.senders[link].post(message)? {
                    self.queues[link].push_front(message);
                    break;
                }
                self.mark(link);
                self.queued -= 1;
                sent += 1;
            }
        }
        sent += self.deal()?;
        if self.is_closing {
            self.close_behind_the_last();
        }
        Ok(sent)
    }

    /// Closes the links; messages taken before are still delivered.
    pub fn close(&mut self) {
        self.is_closing = true;
        self.close_behind_the_last();
    }

    fn close_behind_the_last(&mut self) {
        if !self.is_blocked() {
            self.senders.iter_mut().for_each(LinkSender::close);
        }
    }

    /// Whether everything that was sent has left this process.
    pub fn is_drained(&self) -> bool {
        !self.is_blocked() && self.senders.iter().all(LinkSender::is_drained)
    }

    /// When to flush even if nothing wakes the worker.
    pub fn due_ns(&self) -> Option<u64> {
        self.senders.iter().filter_map(LinkSender::due_ns).min()
    }

    /// Wakes the readers of what was sent since the last call. Called once per step of the instance, not
    /// per message: a reader that keeps up would otherwise be woken for every chunk, and a wake-up costs
    /// more than the work on a small chunk.
    pub fn ring(&mut self) {
        for (sender, not_woken) in self.senders.iter_mut().zip(&mut self.not_woken) {
            match std::mem::replace(not_woken, NotWoken::Nothing) {
                NotWoken::Nothing => {}
                NotWoken::Messages => sender.ring(false),
                NotWoken::Urgent => sender.ring(true),
            }
        }
    }

    /// Whether messages are held back.
    pub fn is_blocked(&self) -> bool {
        self.queued > 0 || !self.undealt.is_empty()
    }

    /// Sends a chunk, in parts if the link's messages are smaller. The reader is woken for the first part and
    /// whenever the number of parts has doubled, so that it works on them while the rest is encoded.
    fn send_chunk(&mut self, link: usize, chunk: Chunk) -> Result<()> {
        let Some(rows) = self.senders[link].rows_max(&chunk) else {
            return self.send(link, Message::Chunk(chunk));
        };
        for (number, part) in chunk.parts(rows).enumerate() {
            self.send(link, Message::Chunk(part))?;
            if self.queues[link].is_empty() && (number + 1).is_power_of_two() {
                self.senders[link].ring(false);
            }
        }
        Ok(())
    }

    fn send(&mut self, link: usize, message: Message) -> Result<()> {
        let held = if self.queues[link].is_empty() {
            self.post(link, message)?
        } else {
            Some(message)
        };
        if let Some(message) = held {
            self.queues[link].push_back(message);
            self.queued += 1;
        }
        Ok(())
    }

    /// Posts a message on a link, or returns it when the link is full.
    fn post(&mut self, link: usize, message: Message) -> Result<Option<Message>> {
        self.mark(link);
        self.senders[link].post(message)
    }

    /// Notes that the reader of a link is to be woken.
    fn mark(&mut self, link: usize) {
        if self.not_woken[link] == NotWoken::Nothing {
            self.not_woken[link] = NotWoken::Messages;
        }
    }
}

#[cfg(test)]
mod tests;
