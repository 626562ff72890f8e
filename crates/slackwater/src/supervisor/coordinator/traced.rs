//! Checkpoints as spans.

use std::time::SystemTime;

use super::Coordinator;
use crate::traces::{Fact, Span};

impl Coordinator {
    /// Traces a checkpoint that was stored, or why it was not.
    pub(super) fn trace(&mut self, barrier: u64, number: Option<u64>, error: Option<String>) {
        let Some((_, begun)) = self.taking.take_if(|(taken, _)| *taken == barrier) else {
            return;
        };
        if !self.traces.are_on() {
            return;
        }
        let number = number.map(|number| ("slackwater.checkpoint", Fact::Number(number)));
        self.traces.send(Span {
            name: "checkpoint",
            begun,
            ended: SystemTime::now(),
            facts: number.into_iter().collect(),
            error,
        });
    }
}
