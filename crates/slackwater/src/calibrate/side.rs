//! One side of a measured link, in a separate process.

use std::os::fd::RawFd;
use std::process::Command;

use clap::Args;

use crate::measure::{Cores, Kind, program};

/// The options of one side of a measured link: of the leader, which takes orders, or of its follower.
#[derive(Args)]
pub struct LinkSide {
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

impl LinkSide {
    /// Runs as leader or follower until the other side is gone.
    pub fn run(&self) -> Result<(), String> {
        let kind = Kind::named(&self.kind);
        let kind = kind.ok_or_else(|| format!("no kind of link is called {}", self.kind))?;
        let cores = Cores {
            leader: self.leader,
            follower: self.follower,
        };
        program::run(kind, cores, self.follow, |descriptor| {
            let mut command = link_leader(kind, cores)?;
            command.arg("--follow").arg(descriptor.to_string());
            Ok(command)
        })
    }
}

/// The command that starts a leader: this program with `measure-link`, which is [`LinkSide::run`].
pub fn link_leader(kind: Kind, cores: Cores) -> Result<Command, String> {
    let program =
        std::env::current_exe().map_err(|error| format!("the path of this program: {error}"))?;
    let mut command = Command::new(program);
    command.args(["measure-link", kind.name()]);
    command.args([cores.leader, cores.follower].map(|core| core.to_string()));
    Ok(command)
}
