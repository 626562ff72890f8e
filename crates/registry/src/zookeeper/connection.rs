//! The session with the servers: made when it is needed, and made again after it was lost.

use std::sync::Arc;
use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use zookeeper_client as zk;

use super::layout::{self, Format, Writes};
use crate::SESSION_TIMEOUT;
use crate::error::{Error, Kind, Result};

/// How long an operation may take: the session's time-out, 7/5 of it until the client itself gives a session
/// up, and a little more to make another.
pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(6);
/// The pause before something is tried again that has failed at once: a fiftieth of an operation.
pub const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How long the end of a session is waited for.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Anybody who reaches the servers may do anything: whoever needs more has to protect the network.
const PERSISTENT: zk::CreateOptions<'static> =
    zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());

/// A session, and where its nodes are.
pub struct Connection {
    servers: String,
    path: String,
    place: String,
    client: Mutex<Option<zk::Client>>,
}

impl Connection {
    /// Not connected yet.
    pub fn new(servers: &str, path: &str) -> Connection {
        Connection {
            servers: servers.to_owned(),
            path: path.to_owned(),
            place: format!("zk://{servers}{path}"),
            client: Mutex::new(None),
        }
    }

    /// The URL.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The path of a node of the registry.
    pub fn node(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    /// The path of a key's node.
    pub fn key_node(&self, key: &str) -> String {
        format!("{}/keys/{}", self.path, layout::name(key))
    }

    /// The path of a candidate's node.
    pub fn line_node(&self, name: &str) -> String {
        format!("{}/line/{name}", self.path)
    }

    /// The client of a session that is alive as far as is known. Another begins if the last one was lost.
    pub async fn client(&self, deadline: Instant) -> Result<zk::Client> {
        // Somebody else may be connecting.
        let held = timeout_at(deadline, self.client.lock()).await;
        let mut held = held.map_err(|_| self.unreachable())?;
        if let Some(client) = &*held
            && !client.state().is_terminated()
        {
            return Ok(client.clone());
        }
        *held = None;
        // A clone goes with each operation, and with each candidacy: the last one closes the session.
        let connector = zk::Client::connector().with_session_timeout(SESSION_TIMEOUT);
        let client = match timeout_at(deadline, connector.connect(&self.servers)).await {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(self.error("", &error)),
            Err(_) => return Err(self.unreachable()),
        };
        Ok(held.insert(client).clone())
    }

    /// Makes the nodes if they are not there and `may_make`, and checks whether they are ours.
    pub async fn open(&self, may_make: bool) -> Result<()> {
        let deadline = Instant::now() + OPERATION_TIMEOUT;
        let format = self.node("format");
        loop {
            let client = self.client(deadline).await?;
            let found = async {
                if may_make {
                    client.mkdir(&self.path, &PERSISTENT).await?;
                    let writes = Writes::default().data();
                    let nodes: [(&str, &[u8]); 4] = [
                        ("writes", &writes),
                        ("keys", b""),
                        ("line", b""),
                        ("format", layout::FORMAT.as_bytes()),
                    ];
                    for (node, data) in nodes {
                        match client.create(&self.node(node), data, &PERSISTENT).await {
                            Ok(_) | Err(zk::Error::NodeExists) => {}
                            Err(error) => return Err(error),
                        }
                    }
                }
                client.sync("/").await?;
                client.get_data(&format).await
            };
            let found = match timeout_at(deadline, found).await {
                Ok(Err(error)) if is_transient(&error) => {
                    self.pause(deadline).await?;
                    continue;
                }
                Ok(Err(zk::Error::NoNode)) => {
                    let reason = "there is no registry at this path";
                    return Err(Error::new(Kind::Unavailable, &self.place, reason)
                        .hint("the registry is made by the first orchestrator: is it this path?"));
                }
                Ok(found) => found.map_err(|error| self.error("", &error))?,
                Err(_) => return Err(self.unreachable()),
            };
            return match layout::format(&found.0) {
                Format::Ours => Ok(()),
                Format::Later(version) => {
                    let reason =
                        format!("is a registry of version {version}, and this program knows 1");
                    let hint = "use the later program, or another path";
                    Err(Error::new(Kind::Later, &self.place, reason).hint(hint))
                }
                Format::Unknown => Err(self.damaged("format")),
            };
        }
    }

    /// Ends the session, and with it what belongs to it.
    pub async fn close(&self) {
        if let Some(client) = self.client.lock().await.take() {
            let mut states = client.state_watcher();
            drop(client);
            let closed = async { while !states.changed().await.is_terminated() {} };
            let _ = timeout(CLOSE_TIMEOUT, closed).await;
        }
    }

    /// Waits before the next attempt, or fails if there is no time for one.
    pub async fn pause(&self, deadline: Instant) -> Result<()> {
        if Instant::now() + RETRY_PAUSE >= deadline {
            return Err(self.unreachable());
        }
        sleep(RETRY_PAUSE).await;
        Ok(())
    }

    /// That no server has answered in time.
    pub fn unreachable(&self) -> Error {
        let reason = "no server that is part of a majority has answered in time";
        Error::new(Kind::Unavailable, &self.place, reason)
            .hint("most of its servers have to run, and to be reachable from here")
    }

    /// That a node isn't what was written.
    pub fn damaged(&self, name: &str) -> Error {
        let reason = format!("the node {name} has something else in it than a registry");
        Error::new(Kind::Damaged, &self.place, reason)
            .hint("choose another path; if no orchestrator runs, it can be removed with deleteall")
    }

    /// What an error of the client means, at a key if it is about one.
    pub fn error(&self, key: &str, error: &zk::Error) -> Error {
        let place = match key {
            "" => self.place.clone(),
            key => format!("{}: {key}", self.place),
        };
        match error {
            zk::Error::SessionExpired | zk::Error::SessionMoved | zk::Error::ClientClosed => {
                Error::new(Kind::Expired, place, "the session was lost")
                    .hint("this host, or its connection to the servers, stood still for too long")
            }
            zk::Error::QuotaExceeded => {
                Error::new(Kind::Full, place, "the quota of its path is used up")
            }
            zk::Error::NoAuth | zk::Error::AuthFailed | zk::Error::InvalidAcl => {
                let reason = format!("access was denied: {error}");
                let hint = "its path has to be open to everybody who reaches the servers";
                Error::new(Kind::Unavailable, place, reason).hint(hint)
            }
            zk::Error::NoNode => Error::new(Kind::Removed, place, "its nodes were removed")
                .hint("start the orchestrators of this registry again"),
            error if is_transient(error) => self.unreachable(),
            error => Error::new(Kind::Unavailable, place, format!("can't be used: {error}")),
        }
    }
}

/// A number that nobody else has.
pub fn random(connection: &Arc<Connection>) -> Result<u64> {
    let mut random = [0; 8];
    match getrandom(&mut random, GetRandomFlags::empty()) {
        Ok(8) => Ok(u64::from_ne_bytes(random)),
        _ => Err(Error::new(
            Kind::Unavailable,
            connection.place(),
            "this host has no randomness",
        )),
    }
}

/// Whether it is about the connection, so that what was asked may succeed the next time, or has succeeded.
pub fn is_transient(error: &zk::Error) -> bool {
    use zk::Error as E;
    !matches!(
        error,
        E::NoNode
            | E::NodeExists
            | E::BadVersion
            | E::BadArguments(_)
            | E::NoAuth
            | E::AuthFailed
            | E::InvalidAcl
            | E::NotEmpty
            | E::NoChildrenForEphemerals
            | E::QuotaExceeded
            | E::Unimplemented
            | E::MarshallingError
            | E::UnexpectedErrorCode(_)
    )
}
