//! A candidacy: an ephemeral node in the line, a task that waits for the one before it, leads, and watches
//! whether it still does; and a thread that tells its user.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};
use zookeeper_client as zk;

use super::Shared;
use super::connection::{Connection, OPERATION_TIMEOUT, RETRY_PAUSE, is_transient, random};
use super::layout;
use super::writing::{Change, commit};
use crate::error::{Error, Kind, Result};
use crate::key::{LEADER, TERM};
use crate::thread::Thread;
use crate::write::{parse_term, removed, too_many};
use crate::{Stage, Term};

/// The most candidates at a time; each end of one is looked at by one other.
const CANDIDATES_MAX: usize = 256;
/// How long a candidacy that is dropped waits for its end to be written; then it goes on without.
const LEAVE_TIMEOUT: Duration = OPERATION_TIMEOUT;
const EPHEMERAL: zk::CreateOptions<'static> =
    zk::CreateMode::EphemeralSequential.with_acls(zk::Acls::anyone_all());

/// A candidacy in progress; dropping it gives it up.
pub struct Standing {
    place: Place,
    task: JoinHandle<()>,
    thread: Thread,
    shared: Arc<Shared>,
}

/// A place in the line.
#[derive(Clone)]
struct Place {
    connection: Arc<Connection>,
    /// Of the session that the node belongs to.
    client: zk::Client,
    /// The node's name.
    name: String,
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.task.abort();
        let place = self.place.clone();
        let (left, has_left) = sync_channel(1);
        // The session may go on for long: it isn't left standing there, whatever happens to the connection.
        self.shared.runtime.spawn(async move {
            while !place.client.state().is_terminated() {
                let leave = Change::Leave(&place.name);
                if commit(&place.connection, Some(&place.client), &leave)
                    .await
                    .is_ok()
                {
                    break;
                }
                sleep(RETRY_PAUSE).await;
            }
            // Whoever dropped it may wait no longer.
            let _ = left.try_send(());
        });
        let _ = has_left.recv_timeout(LEAVE_TIMEOUT);
        self.thread.join();
    }
}

/// Takes a place at the end of the line.
pub fn start(
    shared: Arc<Shared>,
    candidate: &[u8],
    mut told: Box<dyn FnMut(Stage) + Send>,
) -> Result<Standing> {
    // Elected, and over.
    let (tell, stages) = sync_channel(2);
    let thread = Thread::start(shared.connection.place(), "registry-stand", move || {
        for stage in stages {
            told(stage);
        }
    })?;
    let place = shared.wait(enroll)?;
    let teller = Teller {
        tell,
        place: shared.connection.place().to_owned(),
    };
    let task = stand(place.clone(), candidate.to_vec(), teller);
    Ok(Standing {
        place,
        task: shared.runtime.spawn(task),
        thread,
        shared,
    })
}

/// Tells a candidate how it stands, also when the client fails in a way that nobody has thought of.
struct Teller {
    tell: SyncSender<Stage>,
    place: String,
}

impl Drop for Teller {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let error = Error::new(Kind::Unavailable, &self.place, "its client has failed");
            let _ = self.tell.try_send(Stage::Over(error));
        }
    }
}

async fn enroll(connection: Arc<Connection>) -> Result<Place> {
    let deadline = Instant::now() + OPERATION_TIMEOUT;
    let id = format!("{:016x}", random(&connection)?);
    let line = connection.node("line");
    let mut is_lost = false;
    loop {
        let client = connection.client(deadline).await?;
        let enrolled = async {
            client.sync("/").await?;
            let names = client.list_children(&line).await?;
            // Made before the connection was lost; by another session, its end is near.
            let made = names.iter().find(|name| name.starts_with(&id));
            if let (Some(name), true) = (made, is_lost) {
                let stat = client.check_stat(&connection.line_node(name)).await?;
                if stat.is_some_and(|stat| stat.ephemeral_owner == client.session_id().0) {
                    return Ok(Some(name.clone()));
                }
            }
            if names.len() >= CANDIDATES_MAX {
                return Ok(None);
            }
            let prefix = connection.line_node(&format!("{id}-"));
            let (_, number) = client.create(&prefix, b"", &EPHEMERAL).await?;
            Ok(Some(format!("{id}-{number}")))
        };
        match timeout_at(deadline, enrolled).await {
            Ok(Ok(Some(name))) => {
                return Ok(Place {
                    connection,
                    client,
                    name,
                });
            }
            Ok(Ok(None)) => return Err(too_many(connection.place(), "candidates", CANDIDATES_MAX)),
            Ok(Err(error)) if is_transient(&error) => {
                is_lost = true;
                connection.pause(deadline).await?;
            }
            Ok(Err(error)) => return Err(connection.error(LEADER, &error)),
            Err(_) => return Err(connection.unreachable()),
        }
    }
}

async fn stand(place: Place, value: Vec<u8>, teller: Teller) {
    let over = match place.wait().await {
        Err(error) => error,
        Ok(()) => match place.lead(&value).await {
            Err(error) => error,
            Ok(term) => {
                // There is room for two.
                let _ = teller.tell.try_send(Stage::Elected(term));
                place.watch(term).await
            }
        },
    };
    let _ = teller.tell.try_send(Stage::Over(over));
}

impl Place {
    /// Waits until nobody stands before it.
    async fn wait(&self) -> Result<()> {
        let line = self.connection.node("line");
        loop {
            let line = &line;
            let names = self.again(|client| async move { client.list_children(line).await });
            let names = names.await?;
            let mut places: Vec<(u64, &String)> = names
                .iter()
                .filter_map(|name| Some((layout::number_in_line(name)?, name)))
                .collect();
            places.sort();
            let own = places.iter().position(|(_, name)| **name == self.name);
            let before = match own {
                None => return Err(removed(self.connection.place(), false)),
                Some(0) => return Ok(()),
                Some(own) => self.connection.line_node(places[own - 1].1),
            };
            let before = &before;
            let look =
                |client: zk::Client| async move { client.check_and_watch_stat(before).await };
            // Only the one before it: the end of one wakes one.
            if let (Some(_), watcher) = self.again(look).await? {
                watcher.changed().await;
            }
        }
    }

    async fn lead(&self, value: &[u8]) -> Result<Term> {
        loop {
            let lead = Change::Lead(&self.name, value);
            match commit(&self.connection, Some(&self.client), &lead).await {
                Ok(written) => {
                    let damaged = || self.connection.damaged("keys/term");
                    return written.term.ok_or_else(damaged);
                }
                // The session is alive: it is still first. If it is known to lead already, it is told so by
                // the next attempt's term.
                Err(error) if self.is_passing(error.kind) => sleep(RETRY_PAUSE).await,
                Err(error) => return Err(error),
            }
        }
    }

    fn is_passing(&self, kind: Kind) -> bool {
        let is_passing = matches!(kind, Kind::Unavailable | Kind::Unknown | Kind::Busy);
        is_passing && !self.client.state().is_terminated()
    }

    /// Watches the leader's entry until the term is over, and says why it is.
    async fn watch(&self, term: Term) -> Error {
        let leader = self.connection.key_node(LEADER);
        let number = self.connection.key_node(TERM);
        loop {
            let (leader, number) = (&leader, &number);
            let look = |client: zk::Client| async move {
                let (stat, watcher) = client.check_and_watch_stat(leader).await?;
                Ok((stat.is_some(), watcher, client.get_data(number).await?.0))
            };
            let (is_led, watcher, data) = match self.again(look).await {
                Ok(found) => found,
                Err(error) => return error,
            };
            let entry = layout::parse_entry(&data);
            let now = entry.and_then(|entry| {
                let number = layout::split_term(&entry.value).0;
                parse_term(self.connection.place(), Some(number)).ok()?
            });
            if !is_led || now != Some(term) {
                return removed(self.connection.place(), true);
            }
            watcher.changed().await;
        }
    }

    /// Asks until the session is lost.
    async fn again<T, F>(&self, ask: impl Fn(zk::Client) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, zk::Error>>,
    {
        loop {
            match ask(self.client.clone()).await {
                Ok(found) => return Ok(found),
                Err(error) if is_transient(&error) && !self.client.state().is_terminated() => {
                    sleep(RETRY_PAUSE).await;
                }
                Err(_) if self.client.state().is_terminated() => {
                    return Err(self.connection.error(LEADER, &zk::Error::SessionExpired));
                }
                Err(error) => return Err(self.connection.error(LEADER, &error)),
            }
        }
    }
}
