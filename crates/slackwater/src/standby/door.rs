//! Where a standby reaches the run that is active.

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use slackwater_secure::Door as SecureDoor;

use super::messages::{Ask, PROTOCOL, Told};
use super::serving::{Known, Serving, reached};
use super::wire::{Remote, SOCKET, Wire};
use crate::checkpoints::socket::{Listening, receive, send};
use crate::cluster::strangers;

/// The most connections at a time: a standby, one that takes its place, and questions.
const CONNECTIONS_MAX: usize = 64;

/// How long a message may wait for room. It is far shorter than a socket's buffer, so the standby has not
/// read for a long time; then it is dropped, and comes back.
const WRITE_PATIENCE: Duration = Duration::from_millis(20);

/// How long a standby may take to say that it could go on: it does so at once, unless it was stopped.
const READY_PATIENCE: Duration = Duration::from_secs(3);

/// How long somebody who has come in may be silent.
const ASK_PATIENCE: Duration = Duration::from_secs(5);

/// The door of the run that is active. Dropping it says that the run is over.
pub struct Door {
    shared: Arc<Shared>,
    /// For those on other hosts.
    _remote: Option<SecureDoor>,
}

struct Shared {
    /// For those on this host.
    listening: Option<Listening>,
    /// Called when a standby has come or gone, or is to go on.
    changed: Box<dyn Fn() + Send + Sync>,
    /// The newest record of the store.
    stamp: Box<dyn Fn() -> Option<(u64, u64)> + Send + Sync>,
    /// What clients are told.
    serving: Arc<Serving>,
    state: Mutex<State>,
    /// The standby has said that it could go on.
    ready: Condvar,
}

#[derive(Default)]
struct State {
    standby: Option<Standby>,
    /// Who waits for a switch.
    promote: Option<Wire>,
    connections: Vec<(u64, Wire)>,
    /// The newest checkpoint.
    number: Option<u64>,
    next: u64,
    is_over: bool,
}

struct Standby {
    connection: u64,
    wire: Wire,
    pid: u32,
    /// The checkpoint that it holds.
    holds: Option<u64>,
    is_ready: bool,
}

/// What the run is to do about its standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wish {
    /// The process that follows, if one does.
    pub standby: Option<u32>,
    /// By how many numbers what it holds is behind the newest checkpoint.
    pub behind: u64,
    /// Whether it is on this host, and stores what changes.
    pub stores: bool,
    /// Whether it is to go on instead of this run.
    pub hands_over: bool,
}

impl Door {
    /// Opens the door in the folder of the state, at an address for other hosts, or both; `changed` is called
    /// when there may be another [`Wish`], and `stamp` tells the newest record of the store.
    ///
    /// # Errors
    ///
    /// If there can't be a socket, or no thread is left.
    pub fn open(
        folder: Option<&Path>,
        remote: Option<&Remote>,
        number: Option<u64>,
        changed: impl Fn() + Send + Sync + 'static,
        stamp: impl Fn() -> Option<(u64, u64)> + Send + Sync + 'static,
        serving: Arc<Serving>,
    ) -> io::Result<Door> {
        let listening = folder.map(|folder| Listening::new(folder, SOCKET));
        let shared = Arc::new(Shared {
            listening: listening.transpose()?,
            changed: Box::new(changed),
            stamp: Box::new(stamp),
            serving,
            state: Mutex::new(State {
                number,
                ..State::default()
            }),
            ready: Condvar::new(),
        });
        if shared.listening.is_some() {
            let accepting = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("door".to_string())
                .spawn(move || accepting.accept())?;
        }
        let remote = remote.map(|remote| {
            let (admitting, timeout) = (Arc::clone(&shared), remote.timeout);
            let admit = move |stream, _| {
                if let Ok(wire) = Wire::remote(stream, timeout) {
                    admitting.admit(wire);
                }
            };
            let told = strangers(|| {}, |what, _| eprintln!("warning: {what}"));
            SecureDoor::bind(remote.address, remote.secret.clone(), admit, told)
        });
        // Without it, a standby of this host can still follow.
        let remote = remote.transpose().unwrap_or_else(|error| {
            eprintln!("warning: no standby on another host can follow this run: {error}");
            None
        });
        Ok(Door {
            shared,
            _remote: remote,
        })
    }

    /// Tells the standby that a checkpoint is stored.
    pub fn stored(&self, number: u64) {
        let mut state = self.shared.state();
        state.number = Some(number);
        let note = |known: &mut Known| known.number = Some(number);
        self.shared.serving.note(note);
        if let Some(standby) = &state.standby
            && send(&standby.wire, &Told::Stored { number }).is_err()
        {
            // Its thread says that it has left.
            standby.wire.shutdown();
        }
    }

    /// What the run is to do.
    pub fn wish(&self) -> Wish {
        let state = self.shared.state();
        Wish {
            standby: state.standby.as_ref().map(|standby| standby.pid),
            behind: (state.standby.as_ref()).map_or(0, |standby| {
                let holds = standby.holds.unwrap_or_default();
                state.number.unwrap_or_default().saturating_sub(holds)
            }),
            stores: (state.standby.as_ref()).is_some_and(|standby| standby.wire.is_local()),
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
        if let Some(wire) = state.promote.take() {
            let reason =
                "the standby has ended meanwhile: the query goes on where it was".to_string();
            let _ = send(&wire, &Told::Refused { reason });
        }
        true
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics under it")
    }

    fn close(&self) {
        let mut state = self.state();
        state.is_over = true;
        for (_, wire) in state.connections.drain(..) {
            wire.shutdown();
        }
        drop(state);
        self.listening.iter().for_each(Listening::close);
    }

    fn accept(self: Arc<Shared>) {
        while let Some(listening) = &self.listening {
            match listening.socket.accept() {
                Ok((stream, _)) => {
                    if stream.set_write_timeout(Some(WRITE_PATIENCE)).is_ok() {
                        self.admit(Wire::Local(Arc::new(stream)));
                    }
                }
                Err(_) if self.state().is_over => return,
                // No descriptors are left.
                Err(_) => std::thread::sleep(WRITE_PATIENCE),
            }
        }
    }

    /// Serves a connection from a thread of its own.
    fn admit(self: &Arc<Shared>, wire: Wire) {
        let Some(connection) = self.enter(&wire) else {
            wire.shutdown();
            return;
        };
        let serving = Arc::clone(self);
        let served = std::thread::Builder::new()
            .name("standby".to_string())
            .spawn(move || {
                serving.serve(connection, &wire);
                wire.shutdown();
                serving.leave(connection);
            });
        if served.is_err() {
            self.leave(connection);
        }
    }

    fn enter(&self, wire: &Wire) -> Option<u64> {
        let mut state = self.state();
        if state.is_over || state.connections.len() >= CONNECTIONS_MAX {
            return None;
        }
        state.next += 1;
        let connection = state.next;
        state.connections.push((connection, wire.clone()));
        Some(connection)
    }

    fn leave(&self, connection: u64) {
        let mut state = self.state();
        state.connections.retain(|(known, _)| *known != connection);
        let was_standby = |standby: &mut Standby| standby.connection == connection;
        let has_left = state.standby.take_if(was_standby).is_some();
        if has_left {
            self.serving.note(|known| known.is_connected = false);
        }
        drop(state);
        if has_left {
            (self.changed)();
        }
    }

    /// Answers until the connection ends.
    fn serve(&self, connection: u64, wire: &Wire) {
        // Those on other hosts have shown that they know the secret.
        if wire.is_local() && wire.await_answer(ASK_PATIENCE).is_err() {
            return;
        }
        while let Ok(Some(ask)) = receive::<Ask>(wire) {
            let told = match ask {
                Ask::Who => Some(self.active()),
                Ask::Follow {
                    protocol,
                    pid,
                    serves,
                } => {
                    let told = self.follow(connection, wire, protocol, pid);
                    if matches!(told, Told::Active { .. }) {
                        self.serving.note(|known| {
                            known.is_connected = true;
                            known.other = serves.map(|at| reached(at, wire.peer()));
                            known.other_number = None;
                        });
                    }
                    Some(told)
                }
                Ask::Holds { number } => {
                    if let Some(standby) = &mut self.state().standby
                        && standby.connection == connection
                    {
                        standby.holds = Some(number);
                        let note = |known: &mut Known| known.other_number = Some(number);
                        self.serving.note(note);
                    }
                    None
                }
                Ask::Ready => {
                    if let Some(standby) = &mut self.state().standby {
                        standby.is_ready |= standby.connection == connection;
                    }
                    self.ready.notify_all();
                    None
                }
                Ask::Promote => Some(self.promote(wire)),
            };
            let is_refused = matches!(told, Some(Told::Refused { .. }));
            if told.is_some_and(|told| send(wire, &told).is_err()) || is_refused {
                return;
            }
            match ask {
                Ask::Follow { .. } | Ask::Promote => (self.changed)(),
                Ask::Who | Ask::Ready | Ask::Holds { .. } => {}
            }
        }
    }

    fn active(&self) -> Told {
        let stamp = (self.stamp)();
        Told::Active {
            pid: std::process::id(),
            number: self.state().number,
            stamp,
            serves: self.serving.known().own,
        }
    }

    fn follow(&self, connection: u64, wire: &Wire, protocol: u32, pid: u32) -> Told {
        let refused = |reason: String| Told::Refused { reason };
        if protocol != PROTOCOL {
            return refused(format!(
                "it follows by protocol {protocol}, and the active speaks {PROTOCOL}: use the same \
                 version of Slackwater"
            ));
        }
        let mut state = self.state();
        // The same one comes back before its other connection has ended.
        if let Some(other) = state.standby.as_ref().filter(|other| other.pid != pid) {
            return refused(format!("process {} follows already", other.pid));
        }
        state.standby = Some(Standby {
            connection,
            wire: wire.clone(),
            pid,
            holds: None,
            is_ready: false,
        });
        drop(state);
        self.active()
    }

    fn promote(&self, wire: &Wire) -> Told {
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
        if let Some(standby) = &mut state.standby {
            standby.is_ready = false;
            let _ = send(&standby.wire, &Told::Prepares);
        }
        let is_late = |state: &mut State| {
            let standby = state.standby.as_ref();
            standby.is_some_and(|standby| !standby.is_ready)
        };
        let waited = self
            .ready
            .wait_timeout_while(state, READY_PATIENCE, is_late);
        let (mut state, _) = waited.expect("no thread panics under it");
        if !state
            .standby
            .as_ref()
            .is_some_and(|standby| standby.is_ready)
        {
            return Told::Refused {
                reason: format!(
                    "the standby, process {pid}, does not answer: is it stopped?\n  \
                     = the query goes on where it is; end that process, and start another standby"
                ),
            };
        }
        state.promote = Some(wire.clone());
        Told::HandsOver { standby: pid }
    }
}
