//! Where a standby reaches the run that is active.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::messages::{Ask, PROTOCOL, Told};
use crate::checkpoints::socket::{Listening, receive, send};

/// The name of the socket in the folder of the state.
pub const SOCKET: &str = "active.sock";

/// The most connections at a time: a standby, one that takes its place, and questions.
const CONNECTIONS_MAX: usize = 8;

/// How long a message may wait for room. It is far shorter than a socket's buffer, so the standby has not
/// read for a long time; then it is dropped, and comes back.
const WRITE_PATIENCE: Duration = Duration::from_millis(20);

/// The door of the run that is active. Dropping it says that the run is over.
pub struct Door {
    shared: Arc<Shared>,
}

struct Shared {
    listening: Listening,
    /// Called when a standby has come or gone, or is to go on.
    changed: Box<dyn Fn() + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    standby: Option<Standby>,
    /// Who waits for a switch.
    promote: Option<UnixStream>,
    connections: Vec<(u64, UnixStream)>,
    /// The newest checkpoint.
    number: Option<u64>,
    next: u64,
    is_over: bool,
}

struct Standby {
    connection: u64,
    stream: UnixStream,
    pid: u32,
    /// The checkpoint that it holds.
    holds: Option<u64>,
}

/// What the run is to do about its standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wish {
    /// The process that follows, if one does.
    pub standby: Option<u32>,
    /// The checkpoint that it holds.
    pub holds: Option<u64>,
    /// Whether it is to go on instead of this run.
    pub hands_over: bool,
}

impl Door {
    /// Opens the door in the folder of the state; `changed` is called when there may be another [`Wish`].
    ///
    /// # Errors
    ///
    /// If there can't be a socket, or no thread is left.
    pub fn open(
        folder: &Path,
        number: Option<u64>,
        changed: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Door> {
        let shared = Arc::new(Shared {
            listening: Listening::new(folder, SOCKET)?,
            changed: Box::new(changed),
            state: Mutex::new(State {
                number,
                ..State::default()
            }),
        });
        let accepting = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("door".to_string())
            .spawn(move || accepting.accept())?;
        Ok(Door { shared })
    }

    /// Tells the standby that a checkpoint is stored.
    pub fn stored(&self, number: u64) {
        let mut state = self.shared.state();
        state.number = Some(number);
        if let Some(standby) = &state.standby
            && send(&standby.stream, &Told::Stored { number }, &[]).is_err()
        {
            // Its thread says that it has left.
            let _ = standby.stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// What the run is to do.
    pub fn wish(&self) -> Wish {
        let state = self.shared.state();
        Wish {
            standby: state.standby.as_ref().map(|standby| standby.pid),
            holds: state.standby.as_ref().and_then(|standby| standby.holds),
            hands_over: state.promote.is_some() && state.standby.is_some(),
        }
    }

    /// The run has been stopped for its standby. Returns whether it has to go on itself, because the standby
    /// is gone.
    pub fn keep(&self) -> bool {
        let mut state = self.shared.state();
        if state.standby.is_some() {
            return false;
        }
        if let Some(stream) = state.promote.take() {
            let reason =
                "the standby has ended meanwhile: the query goes on where it was".to_string();
            let _ = send(&stream, &Told::Refused { reason }, &[]);
        }
        true
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.is_over = true;
        for (_, stream) in state.connections.drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        drop(state);
        self.shared.listening.close();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics under it")
    }

    fn accept(self: Arc<Shared>) {
        loop {
            let Ok((stream, _)) = self.listening.socket.accept() else {
                if self.state().is_over {
                    return;
                }
                // No descriptors are left.
                std::thread::sleep(WRITE_PATIENCE);
                continue;
            };
            let Some(connection) = self.enter(&stream) else {
                continue;
            };
            let serving = Arc::clone(&self);
            let served = std::thread::Builder::new()
                .name("standby".to_string())
                .spawn(move || {
                    serving.serve(connection, &stream);
                    serving.leave(connection);
                });
            if served.is_err() {
                self.leave(connection);
            }
        }
    }

    fn enter(&self, stream: &UnixStream) -> Option<u64> {
        let mut state = self.state();
        if state.is_over || state.connections.len() >= CONNECTIONS_MAX {
            return None;
        }
        stream.set_write_timeout(Some(WRITE_PATIENCE)).ok()?;
        let kept = stream.try_clone().ok()?;
        state.next += 1;
        let connection = state.next;
        state.connections.push((connection, kept));
        Some(connection)
    }

    fn leave(&self, connection: u64) {
        let mut state = self.state();
        state.connections.retain(|(known, _)| *known != connection);
        let was_standby = |standby: &mut Standby| standby.connection == connection;
        let has_left = state.standby.take_if(was_standby).is_some();
        drop(state);
        if has_left {
            (self.changed)();
        }
    }

    /// Answers until the connection ends.
    fn serve(&self, connection: u64, stream: &UnixStream) {
        while let Ok(Some((ask, _))) = receive::<Ask>(stream) {
            let told = match ask {
                Ask::Who => Some(self.active()),
                Ask::Follow { protocol, pid } => {
                    Some(self.follow(connection, stream, protocol, pid))
                }
                Ask::Holds { number } => {
                    if let Some(standby) = &mut self.state().standby
                        && standby.connection == connection
                    {
                        standby.holds = Some(number);
                    }
                    None
                }
                Ask::Promote => Some(self.promote(stream)),
            };
            let is_refused = matches!(told, Some(Told::Refused { .. }));
            if told.is_some_and(|told| send(stream, &told, &[]).is_err()) || is_refused {
                return;
            }
            match ask {
                Ask::Follow { .. } | Ask::Promote => (self.changed)(),
                Ask::Who | Ask::Holds { .. } => {}
            }
        }
    }

    fn active(&self) -> Told {
        Told::Active {
            pid: std::process::id(),
            number: self.state().number,
        }
    }

    fn follow(&self, connection: u64, stream: &UnixStream, protocol: u32, pid: u32) -> Told {
        let refused = |reason: String| Told::Refused { reason };
        if protocol != PROTOCOL {
            return refused(format!(
                "it follows by protocol {protocol}, and the active speaks {PROTOCOL}: use the same \
                 version of Slackwater"
            ));
        }
        let mut state = self.state();
        if let Some(other) = &state.standby {
            return refused(format!("process {} follows already", other.pid));
        }
        let Ok(stream) = stream.try_clone() else {
            return refused("the active has no descriptors left".to_string());
        };
        state.standby = Some(Standby {
            connection,
            stream,
            pid,
            holds: None,
        });
        Told::Active {
            pid: std::process::id(),
            number: state.number,
        }
    }

    fn promote(&self, stream: &UnixStream) -> Told {
        let mut state = self.state();
        let refused = |reason: &str| Told::Refused {
            reason: reason.to_string(),
        };
        let Some(standby) = &state.standby else {
            return refused(
                "no standby follows\n  = start one: slackwater run QUERY --state DIR --standby",
            );
        };
        let pid = standby.pid;
        if state.number.is_some() && standby.holds.is_none() {
            return refused(
                "the standby is still reading the first checkpoint\n  = try again in a moment",
            );
        }
        let Ok(kept) = stream.try_clone() else {
            return refused("the active has no descriptors left");
        };
        state.promote = Some(kept);
        Told::HandsOver { standby: pid }
    }
}
