//! A part of an experiment in a process of its own, and the socket between it and the parent process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;

use clap::Args;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::Serialize;
use serde::de::DeserializeOwned;
use slackwater::measure::control::Control;
use slackwater::measure::program::start_follower;

use crate::programs;

/// Arguments of a part.
#[derive(Args)]
pub struct PartArguments {
    /// The descriptor of the socket to the parent process
    #[arg(long)]
    pub control: i32,
}

/// A part, as the parent process sees it. Dropping this ends the process.
pub struct PartProcess {
    control: Control,
    child: Child,
}

impl PartProcess {
    /// Starts this program as a part with this name.
    ///
    /// # Errors
    ///
    /// If it can't be started.
    pub fn start(name: &str) -> Result<PartProcess, String> {
        let (control, child) = start_follower(|socket| programs::part(name, socket))?;
        Ok(PartProcess { control, child })
    }

    /// Sends an order, with sockets.
    ///
    /// # Errors
    ///
    /// If the part has ended.
    pub fn send(&self, order: &impl Serialize, sockets: &[BorrowedFd<'_>]) -> Result<(), String> {
        self.control.send(order, sockets)
    }

    /// The next message of the part; `None` if it failed and reported the reason on standard error.
    ///
    /// # Errors
    ///
    /// If it sends something else.
    pub fn receive<T: DeserializeOwned>(&self) -> Result<Option<T>, String> {
        let received = self.control.receive::<T>()?;
        Ok(received.map(|(received, _)| received))
    }

    /// How the process ended, once it has closed its socket.
    pub fn ending(&mut self) -> String {
        let ended = self.child.wait();
        ended.map_or_else(|error| error.to_string(), |status| status.to_string())
    }

    /// The process id of the part.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// For waiting for the part's messages together with other events.
impl AsFd for PartProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

impl Drop for PartProcess {
    fn drop(&mut self) {
        // The process has answered and is ending, or it or another part has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two connected sockets, both for other processes.
///
/// # Errors
///
/// If no descriptor is left.
pub fn pair() -> Result<(OwnedFd, OwnedFd), String> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let pair = socketpair(family, kind, SocketFlags::CLOEXEC, None);
    pair.map_err(|error| format!("can't create sockets: {error}"))
}
