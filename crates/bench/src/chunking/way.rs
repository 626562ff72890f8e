//! What is compared: the link that blocks are sent over, and how their size is chosen.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::order::Transport;

/// One of the variants that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// TCP with its best block.
    TcpFixed,
    /// Shared memory with the same block.
    ShmSame,
    /// Shared memory with the block planned for what is needed.
    ShmPlanned,
    /// TCP with the block planned for what is needed: shows the effect of planning alone.
    TcpPlanned,
}

impl Way {
    /// The ways that the goals refer to.
    pub const COMPARED: [Way; 3] = [Way::TcpFixed, Way::ShmSame, Way::ShmPlanned];

    /// All ways.
    pub const ALL: [Way; 4] = [
        Way::TcpFixed,
        Way::ShmSame,
        Way::ShmPlanned,
        Way::TcpPlanned,
    ];

    /// How blocks travel.
    pub fn transport(self) -> Transport {
        match self {
            Way::TcpFixed | Way::TcpPlanned => Transport::Tcp,
            Way::ShmSame | Way::ShmPlanned => Transport::Shm,
        }
    }

    /// Whether the block size depends on what is needed.
    pub fn is_planned(self) -> bool {
        matches!(self, Way::ShmPlanned | Way::TcpPlanned)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Way::TcpFixed => "TCP, its best block",
            Way::ShmSame => "shared memory, the same block",
            Way::ShmPlanned => "shared memory, planned block",
            Way::TcpPlanned => "TCP, planned block",
        })
    }
}
