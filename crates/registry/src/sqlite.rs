//! A registry in a file: a database of SQLite, for orchestrators of one host.
//!
//! ```text
//! PATH              the database: entries, candidates, the number of the last write
//! PATH-changes      a byte of it is written by each write: what watches wait for
//! PATH-sessions/    a named pipe for each session, held open by its owner
//! ```
//!
//! A session is a named pipe that its owner holds open for reading. Whoever opens it for writing learns
//! whether it still does, and is woken by the kernel when the last reader is gone, also by `kill -9`: like a
//! lock that one can wait for together with other things, so that a wait can be given up.
//!
//! Shutdown: dropping the last of the registry, its candidacies and its watches removes the session's
//! entries.

mod pipe;

mod database;
mod place;

mod sleeper;

mod election;
mod watching;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{OptionalExtension, Transaction, params};

use crate::error::Result;
use crate::key::{KEYS_MAX, LEADER, TERM, check_key, check_prefix};
use crate::write::{Write, parse_term, too_many};
use crate::{Candidacy, Entry, Expect, Life, Registry, Stage, Term, Watch};
use database::{Database, number};
use pipe::Pipe;

/// A registry in SQLite.
pub struct Sqlite {
    shared: Arc<Shared>,
}

struct Shared {
    database: Database,
    /// What the entries of this registry's session live with; made by the first of them.
    session: Mutex<Option<Pipe>>,
}

impl Sqlite {
    /// Opens the database, and makes it if it is not there and `may_make`.
    pub fn open(path: &Path, may_make: bool) -> Result<Sqlite> {
        let database = Database::open(path, may_make)?;
        Ok(Sqlite {
            shared: Arc::new(Shared {
                database,
                session: Mutex::new(None),
            }),
        })
    }
}

impl Registry for Sqlite {
    fn get(&self, key: &str) -> Result<Option<Entry>> {
        check_key(key)?;
        let database = &self.shared.database;
        database.read(|tx| {
            let mut found = entries(database, tx, key, key)?;
            Ok(found.pop().map(|(_, entry)| entry))
        })
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Entry)>> {
        check_prefix(prefix)?;
        let database = &self.shared.database;
        // The characters of keys sort before '~'.
        database.read(|tx| entries(database, tx, prefix, &format!("{prefix}~")))
    }

    fn put(
        &self,
        key: &str,
        value: Option<&[u8]>,
        expect: Expect,
        guard: Option<&Term>,
        life: Life,
    ) -> Result<u64> {
        let write = Write {
            key,
            value,
            expect,
            guard: guard.copied(),
            life,
        };
        write.check()?;
        let shared = &self.shared;
        shared.database.write(|tx, version| {
            shared.put(tx, &write, version)?;
            Ok(version)
        })
    }

    fn watch(&self, prefix: &str, changed: Box<dyn Fn() + Send>) -> Result<Watch> {
        check_prefix(prefix)?;
        let watching = watching::start(Arc::clone(&self.shared), prefix.to_owned(), changed)?;
        Ok(Watch(Box::new(watching)))
    }

    fn elect(&self, candidate: &[u8], told: Box<dyn FnMut(Stage) + Send>) -> Result<Candidacy> {
        crate::key::check_value(LEADER, candidate)?;
        let standing = election::start(Arc::clone(&self.shared), candidate, told)?;
        Ok(Candidacy(Box::new(standing)))
    }
}

impl Shared {
    fn put(&self, tx: &Transaction<'_>, write: &Write<'_>, version: u64) -> Result<()> {
        let (database, place) = (&self.database, self.database.place());
        let in_key = |error| database.error_at(write.key, error);
        // The sessions that have ended are swept: what is there lives.
        let found: Option<(u64, Option<String>)> = tx
            .query_row(
                "SELECT version, session FROM entries WHERE key = ?1",
                [write.key],
                |row| Ok((number(row, 0)?, row.get(1)?)),
            )
            .optional()
            .map_err(in_key)?;
        write.guarded(place, leads(database, tx)?)?;
        write.expected(place, found.as_ref().map(|(version, _)| *version))?;
        let owner = found.as_ref().and_then(|(_, session)| session.clone());
        let Some(value) = write.value else {
            tx.execute("DELETE FROM entries WHERE key = ?1", [write.key])
                .map_err(in_key)?;
            if write.key == LEADER {
                // Its candidate stands no longer: the next one in the line leads.
                tx.execute("DELETE FROM candidates WHERE session = ?1", [owner])
                    .map_err(in_key)?;
            }
            return Ok(());
        };
        if found.is_none() {
            let keys = tx
                .query_row("SELECT count(*) FROM entries", [], |row| number(row, 0))
                .map_err(in_key)?;
            if keys >= KEYS_MAX as u64 {
                return Err(too_many(place, "keys", KEYS_MAX));
            }
        }
        let session = match write.life {
            Life::Kept => None,
            // The leader's entry lives with its candidacy.
            Life::Session if write.key == LEADER => owner,
            Life::Session => Some(self.session(tx)?),
        };
        database.set(tx, write.key, value, version, session.as_deref())
    }

    /// The session of this registry, which begins with the first call.
    fn session(&self, tx: &Transaction<'_>) -> Result<String> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let pipe = match session.take() {
            Some(pipe) if self.database.is_alive(Some(pipe.name()))? => pipe,
            // The first entry, or the pipe was removed, and the entries with it.
            _ => self.database.begin_session(tx)?,
        };
        Ok(session.insert(pipe).name().to_owned())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let session = self
            .session
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = session.take() {
            self.database.end_session(session);
        }
    }
}

/// The term that leads: the last one, while its leader's entry is there.
fn leads(database: &Database, tx: &Transaction<'_>) -> Result<Option<Term>> {
    let has_leader = value(database, tx, LEADER)?.is_some();
    let term = value(database, tx, TERM)?;
    let term = parse_term(database.place(), term.as_deref())?;
    Ok(term.filter(|_| has_leader))
}

fn value(database: &Database, tx: &Transaction<'_>, key: &str) -> Result<Option<Vec<u8>>> {
    tx.query_row("SELECT value FROM entries WHERE key = ?1", [key], |row| {
        row.get(0)
    })
    .optional()
    .map_err(|error| database.error_at(key, error))
}

/// The living entries from one key to another, in order.
fn entries(
    database: &Database,
    tx: &Transaction<'_>,
    from: &str,
    to: &str,
) -> Result<Vec<(String, Entry)>> {
    let rows = || {
        let mut rows = tx.prepare(
            "SELECT key, value, version, session FROM entries WHERE key BETWEEN ?1 AND ?2 ORDER BY key",
        )?;
        let rows = rows.query_map(params![from, to], |row| {
            let entry = Entry {
                value: row.get(1)?,
                version: number(row, 2)?,
            };
            Ok((row.get(0)?, entry, row.get(3)?))
        })?;
        rows.collect::<rusqlite::Result<Vec<(String, Entry, Option<String>)>>>()
    };
    let rows = rows().map_err(|error| database.error_at(from, error))?;
    let mut living = Vec::with_capacity(rows.len());
    for (key, entry, session) in rows {
        if database.is_alive(session.as_deref())? {
            living.push((key, entry));
        }
    }
    Ok(living)
}
