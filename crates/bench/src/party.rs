//! A part of an experiment in a process of its own, and the socket between it and whoever measures.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;

use clap::Args;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::Serialize;
use serde::de::DeserializeOwned;
use slackwater::measure::control::Control;
use slackwater::measure::program::start_follower;

use crate::programs;

/// What a part is started with.
#[derive(Args)]
pub struct PartArguments {
    /// The descriptor of the socket to whoever measures
    #[arg(long)]
    pub control: i32,
}

/// A part, as whoever measures sees it. The process goes with it.
pub struct Party {
    control: Control,
    child: Child,
}

impl Party {
    /// Starts this program as a part of this name.
    ///
    /// # Errors
    ///
    /// When it can't be started.
    pub fn start(name: &str) -> Result<Party, String> {
        let (control, child) = start_follower(|socket| programs::part(name, socket))?;
        Ok(Party { control, child })
    }

    /// Tells it something, with sockets.
    ///
    /// # Errors
    ///
    /// When it is gone.
    pub fn tell(&self, order: &impl Serialize, sockets: &[BorrowedFd<'_>]) -> Result<(), String> {
        self.control.send(order, sockets)
    }

    /// What it says next; `None` when it failed, and said why on standard error.
    ///
    /// # Errors
    ///
    /// When it says something else.
    pub fn hear<T: DeserializeOwned>(&self) -> Result<Option<T>, String> {
        let heard = self.control.receive::<T>()?;
        Ok(heard.map(|(heard, _)| heard))
    }

    /// How the process ended, once it has closed its socket.
    pub fn ending(&mut self) -> String {
        let ended = self.child.wait();
        ended.map_or_else(|error| error.to_string(), |status| status.to_string())
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// To wait for what it says beside other things.
impl AsFd for Party {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        // It has answered and ends, or something is wrong with it or with another part.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two ends of a socket, of which neither stays here.
///
/// # Errors
///
/// When there is no descriptor left.
pub fn pair() -> Result<(OwnedFd, OwnedFd), String> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let pair = socketpair(family, kind, SocketFlags::CLOEXEC, None);
    pair.map_err(|error| format!("no pair of sockets: {error}"))
}
