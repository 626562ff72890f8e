//! The standby's side of its connection to the run that is active.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::messages::{Ask, PROTOCOL, Told};
use super::serving::reached;
use super::wire::{Place, Wire};
use crate::checkpoints::socket::{receive, send};

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
    wire: Wire,
    /// The active's process.
    pub pid: u32,
    /// A record of the active's store, and when that was stored.
    pub stamp: Option<(u64, u64)>,
    /// Where clients read the active.
    pub serves: Option<SocketAddr>,
}

impl Following {
    /// Follows the run that is active; `None` if there is none. `serves` is where clients read this one.
    ///
    /// # Errors
    ///
    /// Why it does not let this one follow.
    pub fn begin(place: &Place, serves: Option<SocketAddr>) -> Result<Option<Following>, String> {
        let connected = place.connect().map_err(|error| error.to_string())?;
        let Some(wire) = connected else {
            return Ok(None);
        };
        let ask = Ask::Follow {
            protocol: PROTOCOL,
            pid: std::process::id(),
            serves,
        };
        let asked = send(&wire, &ask).and_then(|()| {
            wire.await_answer(ANSWER_PATIENCE)?;
            loop {
                match receive::<Told>(&wire)? {
                    // A checkpoint that was stored just now; what is held is brought to the newest.
                    Some(Told::Stored { .. }) => {}
                    told => return Ok(told),
                }
            }
        });
        match asked {
            Ok(Some(Told::Active {
                pid, stamp, serves, ..
            })) => {
                let serves = serves.map(|at| reached(at, wire.peer()));
                Ok(Some(Following {
                    wire,
                    pid,
                    stamp,
                    serves,
                }))
            }
            Ok(Some(Told::Refused { reason })) => Err(reason),
            Ok(Some(told)) => Err(format!("the active answered {told:?}")),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Err(format!("the active does not answer: {error}"))
            }
            // It has ended just now, or wants a secret.
            Ok(None) | Err(_) if wire.is_local() => Ok(None),
            Ok(None) | Err(_) => Err(
                "it closes connections without an answer: is --secret used on both hosts?"
                    .to_string(),
            ),
        }
    }

    /// Calls `tell` for everything that is heard, from a thread; [`Heard::Gone`] comes last.
    ///
    /// # Errors
    ///
    /// If no thread is left.
    pub fn listen(&self, tell: impl Fn(Heard) + Send + 'static) -> io::Result<()> {
        let wire = self.wire.clone();
        let spawned = std::thread::Builder::new()
            .name("standby".to_string())
            .spawn(move || {
                while let Ok(Some(told)) = receive::<Told>(&wire) {
                    match told {
                        Told::Stored { number } => tell(Heard::Stored(number)),
                        Told::Prepares => drop(send(&wire, &Ask::Ready)),
                        _ => {}
                    }
                }
                tell(Heard::Gone);
            });
        spawned.map(drop)
    }

    /// Says which checkpoint is held.
    pub fn holds(&self, number: u64) {
        // If it fails, the active is gone, which is heard.
        let _ = send(&self.wire, &Ask::Holds { number });
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.wire.shutdown();
    }
}
