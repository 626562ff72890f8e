//! The part of the report about links between processes.

use serde::Serialize;

/// A link between processes.
#[derive(Debug, Clone, Serialize)]
pub struct LinkReport {
    /// Sending instance.
    pub from: String,
    /// Receiving instance.
    pub to: String,
    /// `shm` or `tcp`.
    pub kind: String,
    /// The bytes of a message at most, at the end of the run; `null` if chunks were sent whole.
    pub message_bytes: Option<usize>,
    /// The counts of the sending side.
    pub send: LinkSideReport,
    /// The counts of the receiving side.
    pub receive: LinkSideReport,
}

/// One side of a link between processes.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LinkSideReport {
    /// The number of messages.
    pub messages: u64,
    /// The rows in them.
    pub rows: u64,
    /// The bytes of the messages' frames.
    pub bytes: u64,
    /// The seconds spent on encoding, copying and waking, or on finding, decoding and checking messages.
    /// Measured by a clock that also runs while the thread is preempted.
    pub busy_s: f64,
}
