//! A watch: a thread that sleeps until a write or the end of a session, and looks whether it concerns it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rusqlite::params;

use super::Shared;
use super::database::number;
use super::sleeper::{Bell, Sleeper};
use crate::error::Result;
use crate::thread::Thread;

/// A watch in progress; dropping it ends it.
pub struct Watching {
    bell: Bell,
    thread: Thread,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.bell.ring();
        self.thread.join();
    }
}

/// Starts to watch the keys with `prefix`.
pub fn start(
    shared: Arc<Shared>,
    prefix: String,
    changed: Box<dyn Fn() + Send>,
) -> Result<Watching> {
    let sleeper = Sleeper::new(&shared.database)?;
    let bell = sleeper.bell();
    let mut seen = look(&shared, &prefix)?;
    let place = shared.database.place().to_owned();
    let thread = Thread::start(&place, "registry-watch", move || {
        while let Ok(true) = sleeper.sleep(&seen.sessions) {
            let now = match sleeper.settle(&shared.database) {
                Ok(false) => return,
                Ok(true) => look(&shared, &prefix),
                Err(error) => Err(error),
            };
            let Ok(now) = now else {
                // Whoever looks learns why. Ends that were reported once would be reported for ever.
                seen = Seen::default();
                changed();
                if shared.database.check_identity().is_err() {
                    return;
                }
                continue;
            };
            let is_news = now.versions != seen.versions;
            seen = now;
            if is_news {
                changed();
            }
        }
    })?;
    Ok(Watching { bell, thread })
}

/// What a watch has seen.
#[derive(Default)]
struct Seen {
    /// The versions of all living entries, in the order of their keys: no two states have the same, for a
    /// version is given once.
    versions: Vec<u64>,
    /// What reports the end of the sessions that own some of them.
    sessions: Vec<OwnedFd>,
}

fn look(shared: &Shared, prefix: &str) -> Result<Seen> {
    let database = &shared.database;
    database.read(|tx| {
        let rows = || {
            let mut rows = tx.prepare(
                "SELECT version, session FROM entries WHERE key BETWEEN ?1 AND ?2 ORDER BY key",
            )?;
            let end = format!("{prefix}~");
            let rows = rows.query_map(params![prefix, end], |row| {
                Ok((number(row, 0)?, row.get(1)?))
            })?;
            rows.collect::<rusqlite::Result<Vec<(u64, Option<String>)>>>()
        };
        let rows = rows().map_err(|error| database.error(error))?;
        let mut seen = Seen {
            versions: Vec::with_capacity(rows.len()),
            sessions: Vec::new(),
        };
        let mut known: Vec<(String, bool)> = Vec::new();
        for (version, session) in rows {
            let lives = match session {
                None => true,
                Some(session) => match known.iter().find(|(name, _)| *name == session) {
                    Some((_, lives)) => *lives,
                    None => {
                        let end = database.look(&session)?;
                        known.push((session, end.is_some()));
                        let lives = end.is_some();
                        seen.sessions.extend(end);
                        lives
                    }
                },
            };
            if lives {
                seen.versions.push(version);
            }
        }
        Ok(seen)
    })
}
