//! Balancers: which outgoing link gets a chunk, or how it is split.
//!
//! Control messages go to every link, behind the chunks before them.

use std::collections::VecDeque;

use arrow_array::UInt32Array;

use crate::chunk::{Chunk, Message};
use crate::error::Result;
use crate::exchange::LinkSender;
use crate::fan::segments;
use crate::hash::{BUCKETS, bucket, hash_rows};

/// How chunks are spread over the links of one output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BalancerPlan {
    /// All to the only link.
    PointToPoint,
    /// Each to the next link in turn; rows of one key lose their order.
    RoundRobin,
    /// Each row to the instance that holds its key's bucket.
    Keyed {
        /// Key columns.
        columns: Vec<usize>,
        /// The receiver asks where rows come from (it orders them by partition and position).
        /// Otherwise the origin stays behind: gathering it would cost as much as a column.
        keep_origin: bool,
    },
    /// All to every receiver, over one [fan](crate::fan) of links; behind some of them relays hand on
    /// what they get.
    Broadcast {
        /// Chunks of more bytes travel in parts of about so many, so that a relay hands on one while
        /// the next is on its way to it.
        segment_bytes: Option<usize>,
    },
}

/// One output of an instance: a balancer and its links.
pub struct Route {
    plan: BalancerPlan,
    senders: Vec<LinkSender>,
    /// Messages that found their link full. Holds what one input message makes: the instance takes
    /// no further input while there are any.
    queues: Vec<VecDeque<Message>>,
    queued: usize,
    /// What the reader of each link has not been rung for yet.
    unrung: Vec<Unrung>,
    next: usize,
    targets: Vec<u16>,
    hashes: Vec<u64>,
    rows: Vec<Vec<u32>>,
}

/// What a reader has not been rung for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unrung {
    Nothing,
    Messages,
    /// Among them one that ends a timed sleep: a barrier, or the end.
    Urgent,
}

impl Route {
    /// A route over at least one link. Buckets are dealt to the links in turn.
    pub fn new(plan: BalancerPlan, senders: Vec<LinkSender>) -> Route {
        assert!(!senders.is_empty(), "a route needs a link");
        let one_link = matches!(
            plan,
            BalancerPlan::PointToPoint | BalancerPlan::Broadcast { .. }
        );
        assert!(!one_link || senders.len() == 1, "one link, or one fan");
        let links = senders.len();
        Route {
            plan,
            queues: senders.iter().map(|_| VecDeque::new()).collect(),
            queued: 0,
            unrung: vec![Unrung::Nothing; links],
            next: 0,
            targets: (0..BUCKETS).map(|bucket| (bucket % links) as u16).collect(),
            hashes: Vec::new(),
            rows: vec![Vec::new(); links],
            senders,
        }
    }

    /// Sends a chunk.
    pub fn chunk(&mut self, mut chunk: Chunk) -> Result<()> {
        if let BalancerPlan::Broadcast {
            segment_bytes: Some(bytes),
        } = self.plan
        {
            return segments(chunk, bytes).try_for_each(|part| self.send(0, Message::Chunk(part)));
        }
        if self.senders.len() == 1 {
            return self.send(0, Message::Chunk(chunk));
        }
        let BalancerPlan::Keyed {
            columns,
            keep_origin,
        } = &self.plan
        else {
            self.send(self.next, Message::Chunk(chunk))?;
            self.next = (self.next + 1) % self.senders.len();
            return Ok(());
        };
        if !keep_origin {
            chunk.origin = None;
        }
        let keys = columns
            .iter()
            .map(|&column| chunk.batch.column(column).clone());
        hash_rows(&keys.collect::<Vec<_>>(), chunk.rows(), &mut self.hashes)?;
        let share = chunk.rows() / self.senders.len();
        for rows in &mut self.rows {
            // Somewhat more than an even share, so that few lists have to grow.
            rows.reserve(share + share / 8);
        }
        for (row, &hash) in self.hashes.iter().enumerate() {
            self.rows[usize::from(self.targets[bucket(hash)])].push(row as u32);
        }
        for link in 0..self.senders.len() {
            let rows = std::mem::take(&mut self.rows[link]);
            if rows.len() == chunk.rows() {
                self.send(link, Message::Chunk(chunk.clone()))?;
            } else if !rows.is_empty() {
                let part = chunk.take(&UInt32Array::from(rows))?;
                self.send(link, Message::Chunk(part))?;
            }
        }
        Ok(())
    }

    /// Sends a control message on every link.
    pub fn control(&mut self, message: &Message) -> Result<()> {
        let urgent = message.is_urgent();
        for link in 0..self.senders.len() {
            self.send(link, message.clone())?;
            if urgent {
                self.unrung[link] = Unrung::Urgent;
            }
        }
        Ok(())
    }

    /// Sends what was held back; returns how much of it.
    pub fn flush(&mut self) -> Result<usize> {
        let mut sent = 0;
        for link in 0..self.senders.len() {
            sent += usize::from(self.senders[link].flush()?);
            while let Some(message) = self.queues[link].pop_front() {
                if let Some(message) = self.post(link, message)? {
                    self.queues[link].push_front(message);
                    break;
                }
                self.queued -= 1;
                sent += 1;
            }
        }
        Ok(sent)
    }

    /// No message follows; what was taken still has to get there.
    pub fn close(&mut self) {
        self.senders.iter_mut().for_each(LinkSender::close);
    }

    /// Whether everything that was sent has left this process.
    pub fn is_drained(&self) -> bool {
        self.queued == 0 && self.senders.iter().all(LinkSender::is_drained)
    }

    /// When it is to be flushed though nobody rings.
    pub fn due_ns(&self) -> Option<u64> {
        self.senders.iter().filter_map(LinkSender::due_ns).min()
    }

    /// Rings the readers of what was sent since the last call. Once per step of the instance and
    /// not per message: a reader that keeps up would otherwise be woken for every chunk, and a
    /// wake-up costs more than the work on a small one.
    pub fn ring(&mut self) {
        for (sender, unrung) in self.senders.iter_mut().zip(&mut self.unrung) {
            match std::mem::replace(unrung, Unrung::Nothing) {
                Unrung::Nothing => {}
                Unrung::Messages => sender.ring(false),
                Unrung::Urgent => sender.ring(true),
            }
        }
    }

    /// Whether something is held back.
    pub fn is_blocked(&self) -> bool {
        self.queued > 0
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

    /// Hands the message back when the link is full.
    fn post(&mut self, link: usize, message: Message) -> Result<Option<Message>> {
        if self.unrung[link] == Unrung::Nothing {
            self.unrung[link] = Unrung::Messages;
        }
        self.senders[link].post(message)
    }
}
