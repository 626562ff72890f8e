//! What runs of one query say to each other at the door of the one that is active.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The version of these messages, and of those to a standby that stores.
pub const PROTOCOL: u32 = 1;

/// What the active is asked, or told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// A standby wants to follow.
    Follow {
        /// Its version of the messages.
        protocol: u32,
        /// Its process.
        pid: u32,
        /// Where clients read it.
        #[serde(default)]
        serves: Option<SocketAddr>,
    },
    /// The standby holds a checkpoint.
    Holds {
        /// The checkpoint's number.
        number: u64,
    },
    /// The standby is to go on instead.
    Promote,
    /// The standby could go on at once.
    Ready,
    /// Who runs the query?
    Who,
}

/// What the active tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// It runs the query.
    Active {
        /// Its process.
        pid: u32,
        /// The newest checkpoint.
        number: Option<u64>,
        /// The number of a record of its store, and when that was stored, in milliseconds since 1970.
        stamp: Option<(u64, u64)>,
        /// Where clients read it.
        #[serde(default)]
        serves: Option<SocketAddr>,
    },
    /// Could the standby go on now? ([`Ask::Ready`])
    Prepares,
    /// A checkpoint is stored.
    Stored {
        /// The checkpoint's number.
        number: u64,
    },
    /// It saves and ends, and the standby goes on.
    HandsOver {
        /// The standby's process.
        standby: u32,
    },
    /// What was asked for is not possible.
    Refused {
        /// Why, and what to do.
        reason: String,
    },
}
