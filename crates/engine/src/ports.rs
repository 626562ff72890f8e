//! The receiving side of an instance: it merges its links into one input.
//!
//! A port is one input of the head operator; its lanes are the links from the instances that feed it.
//!
//! - The watermark is the minimum over all lanes that are neither idle nor ended. If all are, it is the
//!   maximum of theirs; otherwise the windows that close would depend on which lane fell silent last.
//! - Lanes from instances that receive from the same sources fall silent and return together. If one of
//!   them is idle and another is not, the idle one has not received the news yet, and holds the watermark
//!   back until it has.
//! - The end of a silence is reported before the first row after it (`Active`): a source that a client
//!   has connected to, and that has sent nothing yet, is waited for.
//! - `EndOfWork` and barriers are aligned: a lane that has delivered one is not read until all others
//!   have. The two never mix: no barrier is sent through a query with units of work, where one source may
//!   end its unit before the barrier and another after it.
//! - One port may come first ([`Port::first`]): a table, read to its end before anything else. Its lanes
//!   bring rows and an end; they don't count in what is computed over all lanes.

use crate::barrier::Barrier;
use crate::chunk::{Chunk, Message};
use crate::error::Result;
use crate::exchange::LinkReceiver;
use crate::exchange::relay::Relay;
use crate::time::{EventTime, MAX_WATERMARK, MIN_WATERMARK};

/// The next thing for an instance to do.
// As for `Message`: most of these are chunks.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum Input {
    /// Rows of port `port`.
    Chunk {
        /// The input of the head operator.
        port: usize,
        /// The rows.
        chunk: Chunk,
    },
    /// The watermark over all inputs has moved.
    Watermark {
        /// The new watermark.
        time: EventTime,
        /// When the input that moved it entered the engine.
        ingest_ns: u64,
    },
    /// All inputs are idle.
    Idle,
    /// The inputs are no longer all idle, though nothing has moved yet.
    Active,
    /// All inputs have reached the barrier.
    Barrier(Barrier),
    /// The unit of work has ended on all inputs.
    EndOfWork {
        /// When its last input entered the engine.
        ingest_ns: u64,
    },
    /// All inputs have ended.
    End {
        /// When the last input entered the engine.
        ingest_ns: u64,
        /// Whether the query was stopped, rather than the inputs ending.
        stopped: bool,
    },
    /// A sender is gone without an end: it has failed or was removed. Nothing made from the rows so far
    /// may look complete.
    Lost,
}

struct Lane {
    port: usize,
    receiver: LinkReceiver,
    /// Forwards what is received.
    relay: Option<Relay>,
    first: bool,
    watermark: EventTime,
    idle: bool,
    held: bool,
    /// Whether the writer counts what is not received yet, so that each chunk is acknowledged.
    acknowledges: bool,
    ended: bool,
    /// Whether the lane ended by a stop: it still holds the watermark where it was, so that windows stay
    /// open.
    stopped: bool,
}

/// The links of one input of the head operator.
pub struct Port {
    /// Links from the instances that feed the input, each with the relay that forwards its messages.
    pub links: Vec<(LinkReceiver, Option<Relay>)>,
    /// Whether the writers count what is not received yet, so that each chunk is acknowledged.
    pub acknowledges: bool,
    /// Whether the instances receive from the same sources, and so send the same control messages.
    pub in_step: bool,
    /// Whether the port is read to its end before the other ports.
    pub first: bool,
}

/// All inputs of an instance.
pub struct Ports {
    lanes: Vec<Lane>,
    /// For each port, whether its lanes are in step.
    in_step: Vec<bool>,
    next: usize,
    /// The number of lanes of the first port that have not ended.
    first_open: usize,
    watermark: EventTime,
    ingest_ns: u64,
    all_idle: bool,
    /// The barrier that held lanes wait for; `None` if they wait for the end of a unit of work.
    barrier: Option<Barrier>,
    /// Whether all lanes are idle, which is to be reported after the resulting watermark.
    idle_due: bool,
    stopped: bool,
    ended: bool,
}

impl Ports {
    /// The inputs of the head operator, in their order.
    pub fn new(ports: Vec<Port>) -> Ports {
        let in_step = ports.iter().map(|port| port.in_step).collect();
        let lanes = ports.into_iter().enumerate().flat_map(|(number, port)| {
            let (acknowledges, first) = (port.acknowledges, port.first);
            port.links.into_iter().map(move |(receiver, relay)| Lane {
                port: number,
                receiver,
                relay,
                acknowledges,
                first,
                watermark: MIN_WATERMARK,
                idle: false,
                held: false,
                ended: false,
                stopped: false,
            })
        });
        let lanes = lanes.collect::<Vec<_>>();
        assert!(!lanes.is_empty(), "an instance without a source has links");
        let first_open = lanes.iter().filter(|lane| lane.first).count();
        assert!(first_open < lanes.len(), "something comes behind the first");
        Ports {
            lanes,
            in_step,
            next: 0,
            first_open,
            watermark: MIN_WATERMARK,
            ingest_ns: 0,
            all_idle: false,
            barrier: None,
            idle_due: false,
            stopped: false,
            ended: false,
        }
    }

    /// Resumes from a checkpoint, at this watermark.
    pub fn resume(&mut self, watermark: EventTime) {
        self.watermark = watermark;
    }

    /// The watermark over all inputs; `None` before the first.
    pub fn watermark(&self) -> Option<EventTime> {
        (self.watermark > MIN_WATERMARK).then_some(self.watermark)
    }

    /// When to look again even if nothing wakes the worker.
    pub fn due_ns(&self) -> Option<u64> {
        // Lanes that are not read now can wait.
        let lanes = self.lanes.iter().filter(|lane| self.is_read(lane));
        let due = lanes.filter_map(|lane| lane.receiver.due_ns());
        due.chain(self.relays().filter_map(Relay::due_ns)).min()
    }

    /// Whether the lane's next message would be taken.
    fn is_read(&self, lane: &Lane) -> bool {
        !lane.ended && !lane.held && (lane.first || self.first_open == 0)
    }

    fn relays(&self) -> impl Iterator<Item = &Relay> {
        self.lanes.iter().filter_map(|lane| lane.relay.as_ref())
    }

    fn relays_mut(&mut self) -> impl Iterator<Item = &mut Relay> {
        self.lanes.iter_mut().filter_map(|lane| lane.relay.as_mut())
    }

    /// Ends a step: wakes the receivers that something was forwarded to.
    pub fn ring_relays(&mut self) {
        self.relays_mut().for_each(Relay::end_step);
    }

    /// Sends what relays hold; returns how many relays could send.
    ///
    /// # Errors
    ///
    /// When a link broke.
    pub fn flush_relays(&mut self) -> Result<usize> {
        let mut moved = 0;
        for relay in self.relays_mut() {
            moved += usize::from(relay.flush()?);
        }
        Ok(moved)
    }

    /// Closes the relays: no message follows on any lane.
    pub fn close_relays(&mut self) {
        self.relays_mut().for_each(Relay::close);
    }

    /// Whether everything that was forwarded has left this process.
    pub fn is_drained(&self) -> bool {
        self.relays().all(Relay::is_drained)
    }

    /// Settles the links; called before the worker may sleep although messages may be left.
    pub fn settle_links(&mut self) {
        self.lanes
            .iter_mut()
            .for_each(|lane| lane.receiver.settle());
    }

    /// The next input, or `None` when no lane has a message.
    ///
    /// # Errors
    ///
    /// When a link broke.
    pub fn next_input(&mut self) -> Result<Option<Input>> {
        if std::mem::take(&mut self.idle_due) {
            return Ok(Some(Input::Idle));
        }
        let mut empty = 0;
        while empty < self.lanes.len() && !self.ended {
            let index = self.next;
            self.next = (self.next + 1) % self.lanes.len();
            if !self.is_read(&self.lanes[index]) {
                empty += 1;
                continue;
            }
            let lane = &mut self.lanes[index];
            let received = match &mut lane.relay {
                None => lane.receiver.receive()?,
                Some(relay) => {
                    if !relay.is_ready()? {
                        // The receivers of the relay hold the lane back; it counts as a lane without
                        // messages.
                        lane.receiver.settle();
                        empty += 1;
                        continue;
                    }
                    lane.receiver.receive_and_relay(relay)?
                }
            };
            let message = match received {
                Some(message) => message,
                None if lane.receiver.is_closed() => {
                    self.ended = true;
                    return Ok(Some(Input::Lost));
                }
                None => {
                    empty += 1;
                    continue;
                }
            };
            empty = 0;
            if let Some(input) = self.take(index, message) {
                return Ok(Some(input));
            }
        }
        Ok(None)
    }

    fn take(&mut self, index: usize, message: Message) -> Option<Input> {
        let lane = &mut self.lanes[index];
        if lane.first && !matches!(message, Message::Chunk(_)) {
            return self.take_of_first(index, message);
        }
        match message {
            Message::Chunk(chunk) => {
                if lane.acknowledges {
                    lane.receiver.settle();
                }
                lane.idle = false;
                self.all_idle = false;
                return Some(Input::Chunk {
                    port: lane.port,
                    chunk,
                });
            }
            Message::Watermark { time, ingest_ns } => {
                lane.idle = false;
                lane.watermark = lane.watermark.max(time);
                self.ingest_ns = self.ingest_ns.max(ingest_ns);
            }
            Message::Idle => lane.idle = true,
            Message::Active => lane.idle = false,
            Message::EndOfWork { ingest_ns } => {
                lane.held = true;
                // The lane is not read until the others have come as far.
                lane.receiver.settle();
                self.ingest_ns = self.ingest_ns.max(ingest_ns);
            }
            Message::Barrier(barrier) => {
                lane.held = true;
                lane.receiver.settle();
                debug_assert!(self.barrier.as_ref().is_none_or(|known| *known == barrier));
                self.barrier = Some(barrier);
            }
            Message::EndOfStream { ingest_ns, stopped } => {
                (lane.ended, lane.stopped) = (true, stopped);
                lane.receiver.settle();
                self.stopped |= stopped;
                self.ingest_ns = self.ingest_ns.max(ingest_ns);
            }
        }
        self.settle()
    }

    /// Handles a control message of the first port: only its end matters.
    fn take_of_first(&mut self, index: usize, message: Message) -> Option<Input> {
        let Message::EndOfStream { ingest_ns, stopped } = message else {
            return None;
        };
        let lane = &mut self.lanes[index];
        lane.ended = true;
        lane.receiver.settle();
        self.first_open -= 1;
        // Half a table must not be joined with anything.
        stopped.then(|| {
            self.ended = true;
            Input::End { ingest_ns, stopped }
        })
    }

    /// Derives the next input from the lanes' states, after one of them has changed.
    fn settle(&mut self) -> Option<Input> {
        let ingest_ns = self.ingest_ns;
        if self.barrier.is_some() && self.lanes.iter().all(|lane| lane.ended || lane.held) {
            self.lanes.iter_mut().for_each(|lane| lane.held = false);
            return self.barrier.take().map(Input::Barrier);
        }
        // A stop in the middle of a unit of work is the end; otherwise the unit's open windows would
        // close.
        let over = |lane: &Lane| lane.ended || (lane.held && self.stopped);
        if self.lanes.iter().all(over) {
            self.ended = true;
            return Some(Input::End {
                ingest_ns,
                stopped: self.stopped,
            });
        }
        if self.lanes.iter().all(|lane| lane.ended || lane.held) {
            for lane in &mut self.lanes {
                lane.held = false;
                lane.idle = false;
                lane.watermark = MIN_WATERMARK;
            }
            self.watermark = MIN_WATERMARK;
            self.all_idle = false;
            return Some(Input::EndOfWork { ingest_ns });
        }
        let goes_on = |lane: &Lane| !lane.ended || lane.stopped;
        // Checked only if a lane is idle, which is rare.
        let is_heard = |port: usize| {
            let mut lanes = self.lanes.iter();
            self.in_step[port] && lanes.any(|lane| lane.port == port && goes_on(lane) && !lane.idle)
        };
        let holds = |lane: &&Lane| goes_on(lane) && (!lane.idle || is_heard(lane.port));
        let active = self.lanes.iter().filter(holds);
        let held_at = active.map(|lane| lane.watermark).min();
        let furthest = self.lanes.iter().map(|lane| lane.watermark).max();
        let was_idle = std::mem::replace(&mut self.all_idle, held_at.is_none());
        let newly_idle = held_at.is_none() && !was_idle;
        match held_at.or(furthest) {
            Some(time) if time > self.watermark && time < MAX_WATERMARK => {
                self.watermark = time;
                self.idle_due = newly_idle;
                Some(Input::Watermark { time, ingest_ns })
            }
            _ if newly_idle => Some(Input::Idle),
            // The instances after this one must wait for it again, before its first row has come.
            _ => (was_idle && held_at.is_some()).then_some(Input::Active),
        }
    }
}

#[cfg(test)]
mod tests;
