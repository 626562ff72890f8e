//! The standby's side of its connection to the run that is active.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::door::SOCKET;
use super::messages::{Ask, PROTOCOL, Told};
use crate::checkpoints::socket::{connect, receive, send};

/// How long the active may take to answer: it answers at once, unless it was stopped.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// What a standby hears of the active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// A checkpoint is stored.
    Stored(u64),
    /// The active is gone.
    Gone,
    /// Somebody wants it to go on, although nobody is there to follow.
    Promote,
}

/// A connection to the active.
pub struct Following {
    stream: UnixStream,
    /// The active's process.
    pub pid: u32,
}

impl Following {
    /// Follows the run that is active on the state in a folder; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Why it does not let this one follow.
    pub fn begin(folder: &Path) -> Result<Option<Following>, String> {
        let Ok(stream) = connect(folder, SOCKET) else {
            return Ok(None);
        };
        let asked = stream
            .set_read_timeout(Some(ANSWER_PATIENCE))
            .and_then(|()| {
                let ask = Ask::Follow {
                    protocol: PROTOCOL,
                    pid: std::process::id(),
                };
                send(&stream, &ask, &[])?;
                let answer = receive::<Told>(&stream)?;
                stream.set_read_timeout(None)?;
                Ok(answer.map(|(told, _)| told))
            });
        match asked {
            Ok(Some(Told::Active { pid, .. })) => Ok(Some(Following { stream, pid })),
            Ok(Some(Told::Refused { reason })) => Err(reason),
            Ok(Some(told)) => Err(format!("the active answered {told:?}")),
            // It has ended just now.
            Ok(None) => Ok(None),
            Err(error) => Err(format!("the active does not answer: {error}")),
        }
    }

    /// Calls `tell` for everything that is heard, from a thread; [`Heard::Gone`] comes last.
    ///
    /// # Errors
    ///
    /// If no thread is left.
    pub fn listen(&self, tell: impl Fn(Heard) + Send + 'static) -> io::Result<()> {
        let stream = self.stream.try_clone()?;
        let spawned = std::thread::Builder::new()
            .name("standby".to_string())
            .spawn(move || {
                while let Ok(Some((told, _))) = receive::<Told>(&stream) {
                    if let Told::Stored { number } = told {
                        tell(Heard::Stored(number));
                    }
                }
                tell(Heard::Gone);
            });
        spawned.map(drop)
    }

    /// Says which checkpoint is held.
    pub fn holds(&self, number: u64) {
        // If it fails, the active is gone, which is heard.
        let _ = send(&self.stream, &Ask::Holds { number }, &[]);
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}
