//! The connection of an orchestrator that stands by to the one that leads: when it ends, the leader's process
//! is gone.
//!
//! A registry knows that only when the leader's session has timed out, after seconds. The kernel of the
//! leader's host says so at once. A leader that is cut off, or whose host is gone, is left to the registry. A
//! wrong suspicion costs a restart of the query, and nothing else.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use slackwater_secure::{Secret, Stream};

use super::election::{Candidate, Election};
use super::joined::is_end;
use super::messages::Greeting;
use super::session::{Beside, Receiver, Session};

/// How long a connection to the leader may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long after its election a leader may refuse connections: until it listens. On a busy host that takes
/// seconds, and leaders that are suspected too early would take turns. The registry itself notices within
/// less time that a leader's process has ended before it listened.
const LISTEN_PATIENCE: Duration = Duration::from_secs(10);

/// The pause between two attempts to connect: to one that refuses, and to one that can't be reached.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);
const AWAY_PAUSE: Duration = Duration::from_secs(1);

/// A connection to the leader. Dropping it ends it.
pub struct Standby {
    version: u64,
    shared: Arc<Connection>,
}

struct Connection {
    name: String,
    address: SocketAddr,
    secret: Option<Secret>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The session, while there is one.
    session: Option<Arc<Session>>,
    is_over: bool,
}

/// What was found out.
enum Found {
    /// The leader's process is gone.
    Gone,
    /// The leader does not let this one in: why.
    Stranger(String),
}

/// How an attempt to connect, or a connection, has ended.
enum Ended {
    /// Nobody listens there.
    Refused,
    /// It was connected, and its process has ended.
    Gone,
    /// It doesn't answer.
    Silent,
    /// It has another secret, or is something else.
    Stranger(String),
}

impl Standby {
    /// Connects to the leader whose entry has this version. When its process is gone, `gone` is called; if it
    /// does not let this one in, `stranger` with the reason.
    ///
    /// # Errors
    ///
    /// If there is no thread left.
    pub fn start(
        election: &Election,
        leader: &Candidate,
        version: u64,
        gone: impl FnOnce() + Send + 'static,
        stranger: impl FnOnce(String) + Send + 'static,
    ) -> io::Result<Standby> {
        let connection = Arc::new(Connection {
            name: election.me.name.clone(),
            address: leader.address,
            secret: election.secret.clone(),
            state: Mutex::default(),
        });
        let watching = Arc::clone(&connection);
        std::thread::Builder::new()
            .name("standby".to_string())
            .spawn(move || match watching.watch() {
                Some(Found::Gone) => gone(),
                Some(Found::Stranger(reason)) => stranger(reason),
                None => {}
            })?;
        Ok(Standby {
            version,
            shared: connection,
        })
    }

    /// The version of the leader's entry.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether the leader is there.
    pub fn is_connected(&self) -> bool {
        self.shared.state().session.is_some()
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.is_over = true;
        if let Some(session) = &state.session {
            session.end("it leads itself");
        }
    }
}

impl Connection {
    /// Returns nothing when nobody wants to know any more.
    fn watch(&self) -> Option<Found> {
        let begun = Instant::now();
        let mut was_connected = false;
        while !self.state().is_over {
            let pause = match self.connect() {
                // It may just have lost this connection.
                Ended::Gone if !was_connected => {
                    was_connected = true;
                    continue;
                }
                Ended::Gone => return Some(Found::Gone),
                Ended::Refused if was_connected || begun.elapsed() > LISTEN_PATIENCE => {
                    return Some(Found::Gone);
                }
                Ended::Stranger(reason) => return Some(Found::Stranger(reason)),
                Ended::Refused => REFUSED_PAUSE,
                Ended::Silent => AWAY_PAUSE,
            };
            std::thread::sleep(pause);
        }
        None
    }

    /// Connects, and waits for the end of the connection.
    fn connect(&self) -> Ended {
        let stream = match Stream::connect(self.address, self.secret.as_ref(), PATIENCE) {
            Ok(stream) => stream,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Ended::Refused;
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Ended::Stranger(error.to_string());
            }
            Err(_) => return Ended::Silent,
        };
        let Ok(session) = Session::new(stream, "the leader") else {
            return Ended::Silent;
        };
        {
            let mut state = self.state();
            state.session = Some(Arc::clone(&session));
            if state.is_over {
                session.end("it leads itself");
            }
        }
        let name = self.name.clone();
        session.send(&Greeting::StandBy { name }, Beside::Nothing);
        let mut receiver = Receiver::new(session.stream());
        let received = receiver.receive::<serde_json::Value>();
        session.end("over");
        self.state().session = None;
        match received {
            Ok(_) => Ended::Gone,
            Err(error) if is_end(&error) => Ended::Gone,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Ended::Stranger(format!("{} {error}", self.address))
            }
            Err(_) => Ended::Silent,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics under it")
    }
}
