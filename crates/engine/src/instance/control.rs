//! Control messages, on their way through the steps of an instance.

use crate::barrier::Barrier;
use crate::time::EventTime;

/// What is not rows, on its way through the steps.
pub(super) enum Control {
    Watermark { time: EventTime, ingest_ns: u64 },
    Idle,
    Active,
    Barrier(Barrier),
    EndOfWork { ingest_ns: u64 },
    End { ingest_ns: u64, stopped: bool },
}

impl Control {
    /// Whether the message ends a unit of work.
    pub(super) fn ends_unit(&self) -> bool {
        matches!(
            self,
            Control::EndOfWork { .. } | Control::End { stopped: false, .. }
        )
    }

    /// The message to send after an operator whose rows may be `delay_us` older than the watermark.
    pub(super) fn delayed(&self, delay_us: EventTime) -> Option<Control> {
        match *self {
            Control::Watermark { time, ingest_ns } if delay_us > 0 => Some(Control::Watermark {
                time: time.saturating_sub(delay_us),
                ingest_ns,
            }),
            _ => None,
        }
    }
}
