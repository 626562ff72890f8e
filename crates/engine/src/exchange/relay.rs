//! A relay: forwards what an instance receives by broadcast to other instances.
//!
//! Relays are part of the engine, not of the query: the operators of an instance don't know that it has
//! one. A message is forwarded before the instance acts on it, and frames from another process are
//! forwarded without being decoded first. So control messages keep their order with the rows (I5), and
//! whatever an instance has acted on is already on its way to the receivers after it: no receiver can
//! wait for a message that its parent holds back because of that receiver.
//!
//! Back-pressure: a link is not read while the relay's links still hold its last message ([`Fan`]), so a
//! slow receiver holds its parent back, and the parent the origin (I3).
//!
//! The first message of a step wakes receivers at once, because they may sleep while the instance works
//! on it; the other messages wake them once, after the step, as in [`crate::balancer`].

use arrow_buffer::Buffer;

use super::fan::Fan;
use crate::chunk::Message;
use crate::error::Result;

/// The links that a link's messages are forwarded to.
pub struct Relay {
    fan: Fan,
    woken_in_step: bool,
    unrung: bool,
    urgent: bool,
}

impl Relay {
    /// A relay that forwards to these links.
    pub fn new(fan: Fan) -> Relay {
        Relay {
            fan,
            woken_in_step: false,
            unrung: false,
            urgent: false,
        }
    }

    /// Whether it forwards rows inside the process, by reference.
    pub fn has_local(&self) -> bool {
        self.fan.has_local()
    }

    /// Whether the relay takes the next message; sends what waits first.
    ///
    /// # Errors
    ///
    /// When a link broke.
    pub fn is_ready(&mut self) -> Result<bool> {
        self.fan.is_ready()
    }

    /// Forwards a message that came from an instance of this process.
    pub(crate) fn message(&mut self, message: &Message) -> Result<()> {
        let refused = self.fan.post(message.clone())?;
        debug_assert!(refused.is_none(), "it said that it is ready");
        self.handed_on(message);
        Ok(())
    }

    /// Forwards a frame that came from another process to the links to other processes.
    pub(crate) fn frame(&mut self, frame: &Buffer) -> Result<()> {
        self.fan.pass_frames(std::iter::once(vec![frame.clone()]))
    }

    /// Forwards the message that the last frames held to the links inside this process.
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
        if !std::mem::replace(&mut self.woken_in_step, true) {
            self.ring();
        }
    }

    /// Ends a step: wakes receivers for what was forwarded since.
    pub fn end_step(&mut self) {
        self.ring();
        self.woken_in_step = false;
    }

    fn ring(&mut self) {
        if std::mem::take(&mut self.unrung) {
            self.fan.ring(std::mem::take(&mut self.urgent));
        }
    }

    /// Sends what waits for room; returns whether something was sent.
    ///
    /// # Errors
    ///
    /// When a link broke.
    pub fn flush(&mut self) -> Result<bool> {
        self.fan.flush()
    }

    /// Closes the links; messages taken before are still delivered.
    pub fn close(&mut self) {
        self.fan.close();
    }

    /// Whether every message that was taken has been sent.
    pub fn is_drained(&self) -> bool {
        self.fan.is_drained()
    }

    /// When to flush even if nothing wakes the worker.
    pub fn due_ns(&self) -> Option<u64> {
        self.fan.due_ns()
    }
}
