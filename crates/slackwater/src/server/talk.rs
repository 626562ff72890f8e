//! A conversation with a job's process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::Shutdown;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use slackwater_serve::backend::{Cancelled, Kind, Refusal};

use super::protocol::{Ask, Told, Why};
use crate::hosts::channel::{Channel, Received};

/// How long a process may be silent within an answer: longer than a reader waits for a cut. Then it hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// What to do when a process is gone.
pub const TRY_AGAIN: &str = "try again";

/// One end of a conversation. Dropping it ends what was asked.
pub struct Talk {
    channel: Channel,
}

impl Talk {
    /// Two ends; the second one is for the process.
    ///
    /// # Errors
    ///
    /// If there are too many open files.
    pub fn pair() -> io::Result<(Talk, OwnedFd)> {
        let (channel, theirs) = Channel::pair()?;
        set_socket_timeout(channel.as_fd(), Timeout::Recv, Some(PATIENCE))?;
        Ok((Talk { channel }, theirs))
    }

    /// Asks something, with the bytes `beside` it.
    ///
    /// # Errors
    ///
    /// If the process is gone.
    pub fn ask(&self, ask: &Ask, beside: &[u8]) -> Result<(), Refusal> {
        let sent = self.channel.send_with(ask, beside, &[]);
        sent.map_err(|_| gone())
    }

    /// The next part of the answer.
    ///
    /// # Errors
    ///
    /// If the process is gone, silent, or refuses.
    pub fn told(&self) -> Result<Received<Told>, Refusal> {
        let told = self.channel.receive_with::<Told>();
        match told {
            Ok(Some(Received {
                message: Told::Refused { why, message },
                ..
            })) => Err(Refusal::new(kind(why), message)),
            Ok(Some(Received {
                message:
                    Told::NotPushed {
                        why,
                        message,
                        hint,
                        line,
                    },
                ..
            })) => Err(Refusal {
                line,
                ..Refusal::new(kind(why), message).hint(hint)
            }),
            Ok(Some(received)) => Ok(received),
            Ok(None) => Err(gone()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Refusal::new(
                Kind::System,
                format!(
                    "the job's process did not answer in {} s",
                    PATIENCE.as_secs()
                ),
            )),
            Err(error) => Err(Refusal::new(
                Kind::System,
                format!("the job's process: {error}"),
            )),
        }
    }

    /// Changes come when they come: silence is no fault.
    ///
    /// # Errors
    ///
    /// If the socket is gone.
    pub fn wait_without_end(&self) -> Result<(), Refusal> {
        set_socket_timeout(self.channel.as_fd(), Timeout::Recv, None).map_err(|_| gone())
    }

    /// Ends the conversation when the client cancels.
    ///
    /// # Errors
    ///
    /// If there are too many open files.
    pub fn end_when(&self, cancelled: &Cancelled) -> Result<(), Refusal> {
        let socket = self.socket()?;
        cancelled.when_cancelled(move || Talk::end(&socket));
        Ok(())
    }

    /// Another handle of its socket, to end it.
    ///
    /// # Errors
    ///
    /// If there are too many open files.
    pub fn socket(&self) -> Result<OwnedFd, Refusal> {
        let socket = self.channel.as_fd().try_clone_to_owned();
        socket.map_err(|error| Refusal::new(Kind::System, error.to_string()))
    }

    /// Ends the conversation over a socket: whoever receives sees the end.
    pub fn end(socket: &OwnedFd) {
        // It may have ended.
        let _ = rustix::net::shutdown(socket, Shutdown::Both);
    }
}

/// The refusal when a process is gone.
pub fn gone() -> Refusal {
    Refusal::new(Kind::Starting, "the job's process has ended meanwhile").hint(TRY_AGAIN)
}

fn kind(why: Why) -> Kind {
    match why {
        Why::Unknown => Kind::Undefined,
        Why::NotRunning => Kind::NotRunning,
        Why::Starting => Kind::Starting,
        Why::Busy => Kind::Busy,
        Why::Unconfirmed => Kind::Unconfirmed,
        Why::TimedOut => Kind::Cancelled,
        Why::Limit => Kind::Limit,
        Why::Value => Kind::Value,
        Why::Failed => Kind::System,
    }
}
