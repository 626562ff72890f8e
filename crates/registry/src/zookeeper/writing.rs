//! Writes: read what is there, decide, and write all or nothing, if nobody else has written meanwhile.
//!
//! Each write replaces the node `writes`, whose version it checks: writes follow one another, and what was
//! read before is what is there. Sessions that end write nothing, so the nodes of a session that a decision
//! rests on are checked themselves.
//!
//! When the connection is lost in the middle, the write's id in `writes` tells whether it has happened.

use std::sync::Arc;

use tokio::time::{Instant, sleep, timeout_at};
use zookeeper_client as zk;

use super::connection::{Connection, OPERATION_TIMEOUT, is_transient, random};
use super::layout::{self, Writes};
use super::reading::look;
use crate::error::{Error, Kind, Result};
use crate::key::{KEYS_MAX, LEADER, TERM};
use crate::write::{Write, next_term, parse_term, removed, too_many};
use crate::{Life, Term};

const PERSISTENT: zk::CreateOptions<'static> =
    zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
const EPHEMERAL: zk::CreateOptions<'static> =
    zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all());

/// The pause after somebody else was faster: a fraction of a write.
const FASTER_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);

/// What is to be written.
pub enum Change<'a> {
    /// What a caller asks for.
    Put(&'a Write<'a>),
    /// The next term, for a candidate in the line, with the value of the leader's entry.
    Lead(&'a str, &'a [u8]),
    /// The end of a candidacy, and of its term.
    Leave(&'a str),
}

/// What was written.
pub struct Written {
    /// The write's number.
    pub version: u64,
    /// The term that has begun.
    pub term: Option<Term>,
}

/// Puts an entry.
pub async fn put(connection: &Arc<Connection>, write: &Write<'_>) -> Result<u64> {
    let written = commit(connection, None, &Change::Put(write)).await?;
    Ok(written.version)
}

/// Writes a change in a session, or in whichever there is.
pub async fn commit(
    connection: &Arc<Connection>,
    session: Option<&zk::Client>,
    change: &Change<'_>,
) -> Result<Written> {
    let deadline = Instant::now() + OPERATION_TIMEOUT;
    let mut attempt = Attempt {
        connection,
        change,
        id: random(connection)?,
        sent: None,
        term: None,
    };
    loop {
        let client = match session {
            None => connection.client(deadline).await,
            Some(client) if client.state().is_terminated() => {
                Err(connection.error(LEADER, &zk::Error::SessionExpired))
            }
            Some(client) => Ok(client.clone()),
        };
        let end = match client {
            Err(error) => End::Failed(error),
            Ok(client) => match timeout_at(deadline, attempt.run(&client)).await {
                Ok(Ok(version)) => {
                    return Ok(Written {
                        version,
                        term: attempt.term,
                    });
                }
                Ok(Err(end)) => end,
                Err(_) => End::Failed(connection.unreachable()),
            },
        };
        let paused = match end {
            End::Faster => {
                sleep(FASTER_PAUSE).await;
                match Instant::now() < deadline {
                    true => Ok(()),
                    false => {
                        let reason = "others were faster for too long";
                        Err(Error::new(Kind::Busy, connection.place(), reason))
                    }
                }
            }
            End::Lost => connection.pause(deadline).await,
            End::Failed(error) => Err(error),
        };
        let is_about_connection = |kind| matches!(kind, Kind::Unavailable | Kind::Expired);
        paused.map_err(|error| match attempt.sent {
            Some(_) if is_about_connection(error.kind) => attempt.unknown(),
            _ => error,
        })?;
    }
}

/// Why an attempt has written nothing, as far as is known.
enum End {
    /// Somebody else has written meanwhile.
    Faster,
    /// The connection was lost.
    Lost,
    /// It can't be written.
    Failed(Error),
}

struct Attempt<'a> {
    connection: &'a Arc<Connection>,
    change: &'a Change<'a>,
    id: u64,
    /// The number of the last write before this one was sent, if it is unknown what has become of it.
    sent: Option<u64>,
    term: Option<Term>,
}

impl Attempt<'_> {
    async fn run(&mut self, client: &zk::Client) -> Result<u64, End> {
        let connection = self.connection;
        let failed = |error: zk::Error| match is_transient(&error) {
            true => End::Lost,
            false => End::Failed(connection.error(self.key(), &error)),
        };
        client.sync("/").await.map_err(failed)?;
        let node = connection.node("writes");
        let (data, stat) = client.get_data(&node).await.map_err(failed)?;
        let writes = Writes::parse(&data);
        let writes = writes.ok_or_else(|| End::Failed(connection.damaged("writes")))?;
        if let Some(before) = self.sent {
            if let Some(version) = writes.find(self.id) {
                return Ok(version);
            }
            if writes.last >= before + layout::IDS_MAX as u64 {
                return Err(End::Failed(self.unknown()));
            }
        }
        let version = writes.last + 1;
        let mut multi = client.new_multi_writer();
        let data = writes.next(self.id).data();
        multi
            .add_set_data(&node, &data, Some(stat.version))
            .map_err(failed)?;
        let added = match self.change {
            Change::Put(write) => self.put(client, &mut multi, write, version).await,
            Change::Lead(candidate, value) => {
                self.lead(client, &mut multi, candidate, value, version)
                    .await
            }
            Change::Leave(candidate) => self.leave(client, &mut multi, candidate).await,
        };
        added?;
        let known = self.sent.replace(writes.last);
        let (end, is_known) = match multi.commit().await {
            Ok(_) => return Ok(version),
            Err(zk::MultiWriteError::OperationFailed { source, .. }) => match source {
                zk::Error::BadVersion | zk::Error::NoNode | zk::Error::NodeExists => {
                    (End::Faster, true)
                }
                source => (End::Failed(connection.error(self.key(), &source)), true),
            },
            Err(zk::MultiWriteError::RequestFailed { source }) => match is_transient(&source) {
                true => (End::Lost, false),
                false => (End::Failed(connection.error(self.key(), &source)), true),
            },
        };
        if is_known {
            // This one has written nothing. One before it may still have.
            self.sent = known;
        }
        Err(end)
    }

    async fn put(
        &mut self,
        client: &zk::Client,
        multi: &mut zk::MultiWriter<'_>,
        write: &Write<'_>,
        version: u64,
    ) -> Result<(), End> {
        let connection = self.connection;
        let (place, node) = (connection.place(), connection.key_node(write.key));
        let found = self.look(client, write.key).await?;
        if write.guard.is_some() {
            let (leads, leader) = self.leads(client).await?;
            write
                .guarded(place, leads.map(|(term, _)| term))
                .map_err(End::Failed)?;
            if write.key != LEADER && leader {
                let leader = connection.key_node(LEADER);
                self.added(multi.add_check_version(&leader, -1))?;
            }
        }
        let found_version = found.as_ref().map(|found| found.version);
        write.expected(place, found_version).map_err(End::Failed)?;
        let Some(value) = write.value else {
            if let Some(found) = found {
                self.added(multi.add_delete(&node, Some(found.stat.version)))?;
            }
            if write.key == LEADER
                && let (Some((_, Some(candidate))), _) = self.leads(client).await?
            {
                // It stands no longer: the next one in the line leads.
                let candidate = connection.line_node(&candidate);
                if self.is_there(client, &candidate).await? {
                    self.added(multi.add_delete(&candidate, None))?;
                }
            }
            return Ok(());
        };
        let options = match write.life {
            Life::Kept => &PERSISTENT,
            Life::Session => &EPHEMERAL,
        };
        let owner = match write.life {
            Life::Kept => 0,
            Life::Session => client.session_id().0,
        };
        let data = layout::entry_data(version, value);
        match found {
            // The leader's entry stays with its candidate's session.
            Some(found) if found.stat.ephemeral_owner == owner || write.key == LEADER => {
                self.added(multi.add_set_data(&node, &data, Some(found.stat.version)))
            }
            Some(found) => {
                self.added(multi.add_delete(&node, Some(found.stat.version)))?;
                self.added(multi.add_create(&node, &data, options))
            }
            None => {
                let keys = client.check_stat(&connection.node("keys")).await;
                let keys = keys.map_err(|error| self.failed(error))?;
                if keys.is_some_and(|keys| keys.num_children as usize >= KEYS_MAX) {
                    return Err(End::Failed(too_many(place, "keys", KEYS_MAX)));
                }
                self.added(multi.add_create(&node, &data, options))
            }
        }
    }

    async fn lead(
        &mut self,
        client: &zk::Client,
        multi: &mut zk::MultiWriter<'_>,
        candidate: &str,
        value: &[u8],
        version: u64,
    ) -> Result<(), End> {
        let connection = self.connection;
        let line = connection.line_node(candidate);
        if !self.is_there(client, &line).await? {
            return Err(End::Failed(removed(connection.place(), false)));
        }
        self.added(multi.add_check_version(&line, -1))?;
        if let Some(left) = self.look(client, LEADER).await? {
            // Its candidate was removed by hand, say: it doesn't stand before this one.
            let leader = connection.key_node(LEADER);
            self.added(multi.add_delete(&leader, Some(left.stat.version)))?;
        }
        let found = self.look(client, TERM).await?;
        let last = match &found {
            None => None,
            Some(found) => self.term(&found.value)?,
        };
        let term = next_term(connection.place(), last).map_err(End::Failed)?;
        let data = layout::entry_data(version, &layout::term_value(term.number(), candidate));
        let node = connection.key_node(TERM);
        self.added(match found {
            Some(found) => multi.add_set_data(&node, &data, Some(found.stat.version)),
            None => multi.add_create(&node, &data, &PERSISTENT),
        })?;
        let data = layout::entry_data(version, value);
        self.added(multi.add_create(&connection.key_node(LEADER), &data, &EPHEMERAL))?;
        self.term = Some(term);
        Ok(())
    }

    async fn leave(
        &mut self,
        client: &zk::Client,
        multi: &mut zk::MultiWriter<'_>,
        candidate: &str,
    ) -> Result<(), End> {
        let connection = self.connection;
        if let (Some((_, Some(leads))), true) = self.leads(client).await?
            && leads == candidate
        {
            self.added(multi.add_delete(&connection.key_node(LEADER), None))?;
        }
        let line = connection.line_node(candidate);
        if self.is_there(client, &line).await? {
            self.added(multi.add_delete(&line, None))?;
        }
        Ok(())
    }

    /// The term that leads, with its candidate's name, and whether the leader's entry is there.
    async fn leads(
        &self,
        client: &zk::Client,
    ) -> Result<(Option<(Term, Option<String>)>, bool), End> {
        let is_led = self.look(client, LEADER).await?.is_some();
        let Some(found) = self.look(client, TERM).await? else {
            return Ok((None, is_led));
        };
        let candidate = layout::split_term(&found.value).1.map(str::to_owned);
        let candidate = candidate.filter(|name| layout::number_in_line(name).is_some());
        let term = self.term(&found.value)?.filter(|_| is_led);
        Ok((term.map(|term| (term, candidate)), is_led))
    }

    fn term(&self, value: &[u8]) -> Result<Option<Term>, End> {
        let number = layout::split_term(value).0;
        parse_term(self.connection.place(), Some(number)).map_err(End::Failed)
    }

    async fn look(&self, client: &zk::Client, key: &str) -> Result<Option<Found>, End> {
        let found = look(client, &self.connection.key_node(key)).await;
        let Some((data, stat)) = found.map_err(|error| self.failed(error))? else {
            return Ok(None);
        };
        match layout::parse_entry(&data) {
            Some(entry) => Ok(Some(Found {
                value: entry.value,
                version: entry.version,
                stat,
            })),
            None => {
                let name = format!("keys/{}", layout::name(key));
                Err(End::Failed(self.connection.damaged(&name)))
            }
        }
    }

    async fn is_there(&self, client: &zk::Client, node: &str) -> Result<bool, End> {
        let stat = client.check_stat(node).await;
        stat.map(|stat| stat.is_some())
            .map_err(|error| self.failed(error))
    }

    fn added(&self, added: Result<(), zk::Error>) -> Result<(), End> {
        added.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: zk::Error) -> End {
        match is_transient(&error) {
            true => End::Lost,
            false => End::Failed(self.connection.error(self.key(), &error)),
        }
    }

    fn unknown(&self) -> Error {
        let place = format!("{}: {}", self.connection.place(), self.key());
        let reason =
            "the connection broke during a write, and it is unknown whether it was written";
        Error::new(Kind::Unknown, place, reason).hint("look at the key, and decide again")
    }

    fn key(&self) -> &str {
        match self.change {
            Change::Put(write) => write.key,
            Change::Lead(..) | Change::Leave(_) => LEADER,
        }
    }
}

/// An entry that is there.
struct Found {
    value: Vec<u8>,
    version: u64,
    stat: zk::Stat,
}
