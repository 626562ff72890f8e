//! One side of a measured kind, as a process of its own.

use std::os::fd::RawFd;
use std::process::Command;

use clap::Args;
use slackwater::measure::control::Control;
use slackwater::measure::program::{
    self, follow_all, inherit, lead_all, start_follower, with_child,
};
use slackwater::measure::{Cores, Kind, pin};

use super::plain::PlainSide;
use crate::programs;

/// What the links are compared with: descriptors that are read and written plainly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plain {
    /// A Unix stream socket.
    Unix,
    /// A Unix socket that keeps messages apart.
    UnixSeqpacket,
    /// A pair of pipes.
    Pipe,
    /// A TCP connection over the loopback interface.
    Tcp,
}

impl Plain {
    const ALL: [Plain; 4] = [Plain::Unix, Plain::UnixSeqpacket, Plain::Pipe, Plain::Tcp];

    /// The name on the command line, in tables and in JSON.
    fn name(self) -> &'static str {
        match self {
            Plain::Unix => "unix",
            Plain::UnixSeqpacket => "unix-seqpacket",
            Plain::Pipe => "pipe",
            Plain::Tcp => "tcp-plain",
        }
    }

    fn lead(self, control: &Control) -> Result<PlainSide, String> {
        match self {
            Plain::Unix => PlainSide::unix_leader(control, false),
            Plain::UnixSeqpacket => PlainSide::unix_leader(control, true),
            Plain::Pipe => PlainSide::pipe_leader(control),
            Plain::Tcp => PlainSide::tcp_leader(control),
        }
    }

    fn follow(self, control: &Control) -> Result<PlainSide, String> {
        match self {
            Plain::Unix | Plain::Pipe => PlainSide::follower(control, false),
            Plain::UnixSeqpacket => PlainSide::follower(control, true),
            Plain::Tcp => PlainSide::tcp_follower(control),
        }
    }
}

/// All kinds of this program: the links, and what they are compared with.
pub fn kinds() -> Vec<String> {
    let links = Kind::ALL.into_iter().map(Kind::name);
    let names = links.chain(Plain::ALL.into_iter().map(Plain::name));
    names.map(str::to_string).collect()
}

/// One side of a measured kind: the leader, which receives orders, or its follower.
#[derive(Args)]
pub struct PartArguments {
    /// The kind of link
    kind: String,
    /// The core of the side that sends
    leader: usize,
    /// The core of the side that receives
    follower: usize,
    /// The descriptor by which a follower finds its leader
    #[arg(long)]
    follow: Option<RawFd>,
}

impl PartArguments {
    /// Leads or follows until the other side ends.
    pub fn run(&self) -> Result<(), String> {
        let cores = Cores {
            leader: self.leader,
            follower: self.follower,
        };
        let again = |descriptor: RawFd| {
            let mut command = leader(&self.kind, cores)?;
            command.arg("--follow").arg(descriptor.to_string());
            Ok(command)
        };
        if let Some(kind) = Kind::named(&self.kind) {
            return program::run(kind, cores, self.follow, again);
        }
        let mut kinds = Plain::ALL.into_iter();
        let kind = kinds.find(|kind| kind.name() == self.kind);
        let kind = kind.ok_or_else(|| format!("there is no kind of link '{}'", self.kind))?;
        if let Some(descriptor) = self.follow {
            pin(cores.follower)?;
            let control = inherit(descriptor)?;
            return follow_all(kind.follow(&control)?, &control);
        }
        let (control, child) = start_follower(again)?;
        let led = pin(cores.leader)
            .and_then(|()| kind.lead(&control))
            .and_then(|side| lead_all(side, &control));
        // Closing it ends the follower.
        drop(control);
        with_child(child, led)
    }
}

/// The command that starts the leader of a kind of this program.
pub fn leader(kind: &str, cores: Cores) -> Result<Command, String> {
    let mut command = programs::itself()?;
    command.args(["link-part", kind]);
    command.args([cores.leader, cores.follower].map(|core| core.to_string()));
    Ok(command)
}
