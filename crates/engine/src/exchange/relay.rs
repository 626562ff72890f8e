//! A relay: what an instance that receives a broadcast hands on to others.
//!
//! Relays are part of the engine, not of the query: the operators of an instance never see that it has
//! one. A message is handed on before the instance acts on it, frames that come from another process
//! without being decoded for that, so control messages keep their order with the rows (I5), and
//! whatever an instance has acted on is on its way to those behind it: no receiver can wait for a
//! message that its parent has, but doesn't hand on because of that receiver.
//!
//! Back-pressure: a link is not read while those behind it still hold its last message ([`Fan`]), so a
//! slow receiver holds its parent back, and the parent the origin (I3).
//!
//! The first message of a step is rung for at once, because those behind it may sleep while the
//! instance works on it; the others once, behind the step, as in [`crate::balancer`].

use arrow_buffer::Buffer;

use super::fan::Fan;
use crate::chunk::Message;
use crate::error::Result;

/// The links behind a link.
pub struct Relay {
    fan: Fan,
    rung_in_step: bool,
    unrung: bool,
    urgent: bool,
}

impl Relay {
    /// A relay that hands on to these links.
    pub fn new(fan: Fan) -> Relay {
        Relay {
            fan,
            rung_in_step: false,
            unrung: false,
            urgent: false,
        }
    }

    /// Whether it hands rows on inside the process, by reference.
    pub fn has_local(&self) -> bool {
        self.fan.has_local()
    }

    /// Whether it takes what comes next; moves on what waits.
    ///
    /// # Errors
    ///
    /// When a link broke.
    pub fn is_ready(&mut self) -> Result<bool> {
        self.fan.is_ready()
    }

    /// Hands on a message that came from an instance of this process.
    pub(crate) fn message(&mut self, message: &Message) -> Result<()> {
        let refused = self.fan.post(message.clone())?;
        debug_assert!(refused.is_none(), "it said that it is ready");
        self.handed_on(message);
        Ok(())
    }

    /// Hands on a frame that came from another process, to those in other processes.
    pub(crate) fn frame(&mut self, frame: &Buffer) -> Result<()> {
        self.fan.pass_frames(std::iter::once(vec![frame.clone()]))
    }

    /// Hands on to those in this process what the last frames were.
    pub(crate) fn decoded(&mut self, message: &Message) {
        self.fan.count_message();
        if self.fan.has_local() {
            self.fan.hand_local(message.clone());
        }
        self.handed_on(message);
    }

    fn handed_on(&mut self, message: &Message) {
        self.unrung = true;
        self.urgent |= message.is_urgent();
        if !std::mem::replace(&mut self.rung_in_step, true) {
            self.ring();
        }
    }

    /// Behind a step: rings for what was handed on since.
    pub fn end_step(&mut self) {
        self.ring();
        self.rung_in_step = false;
    }

    fn ring(&mut self) {
        if std::mem::take(&mut self.unrung) {
            self.fan.ring(std::mem::take(&mut self.urgent));
        }
    }

    /// Moves on what waits for room; returns whether something moved.
    ///
    /// # Errors
    ///
    /// When a link broke.
    pub fn flush(&mut self) -> Result<bool> {
        self.fan.flush()
    }

    /// No message follows: what was taken still has to get there.
    pub fn close(&mut self) {
        self.fan.close();
    }

    /// Whether nothing that was taken is still here.
    pub fn is_drained(&self) -> bool {
        self.fan.is_drained()
    }

    /// When it is to be flushed though nobody rings.
    pub fn due_ns(&self) -> Option<u64> {
        self.fan.due_ns()
    }
}
