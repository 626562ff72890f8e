//! A candidacy: its place in the line, and a thread that waits for the one before it, leads, and watches
//! whether it still does.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rusqlite::{OptionalExtension, Transaction, params};

use super::database::{SESSIONS_MAX, number};
use super::pipe::Pipe;
use super::sleeper::{Bell, Sleeper};
use super::{Shared, value};
use crate::error::Result;
use crate::key::{LEADER, TERM};
use crate::thread::Thread;
use crate::write::{next_term, parse_term, removed, too_many};
use crate::{Stage, Term};

/// A candidacy in progress; dropping it gives it up.
pub struct Standing {
    bell: Bell,
    thread: Thread,
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.bell.ring();
        self.thread.join();
    }
}

/// Takes a place at the end of the line.
pub fn start(
    shared: Arc<Shared>,
    candidate: &[u8],
    mut told: Box<dyn FnMut(Stage) + Send>,
) -> Result<Standing> {
    let sleeper = Sleeper::new(&shared.database)?;
    let bell = sleeper.bell();
    let pipe = shared.database.write(|tx, _| {
        let pipe = shared.database.begin_session(tx)?;
        let count = "SELECT count(*) FROM candidates";
        let add = "INSERT INTO candidates (session, value) VALUES (?1, ?2)";
        let added = || -> rusqlite::Result<u64> {
            let candidates = tx.query_row(count, [], |row| number(row, 0))?;
            tx.execute(add, params![pipe.name(), candidate])?;
            Ok(candidates)
        };
        let candidates = added().map_err(|error| shared.database.error_at(LEADER, error))?;
        match candidates < SESSIONS_MAX as u64 {
            true => Ok(pipe),
            false => Err(too_many(
                shared.database.place(),
                "candidates",
                SESSIONS_MAX,
            )),
        }
    })?;
    let place = shared.database.place().to_owned();
    let thread = Thread::start(&place, "registry-stand", move || {
        if let Err(error) = stand(&shared, &pipe, &sleeper, &mut told) {
            told(Stage::Over(error));
        }
        shared.database.end_session(pipe);
    })?;
    Ok(Standing { bell, thread })
}

/// Until it is given up; an error is the end of the candidacy.
fn stand(
    shared: &Shared,
    pipe: &Pipe,
    sleeper: &Sleeper,
    told: &mut dyn FnMut(Stage),
) -> Result<()> {
    let database = &shared.database;
    let mut leads = false;
    loop {
        let turn = match database.read(|tx| turn(shared, tx, pipe, leads))? {
            // What was read may be old by now: it is decided under the lock.
            Turn::First if !leads => lead(shared, pipe)?,
            turn => turn,
        };
        let before = match turn {
            Turn::Gone => return Err(removed(database.place(), leads)),
            Turn::Elected(term) => {
                leads = true;
                told(Stage::Elected(term));
                // It may have to end by now, or the entry be gone.
                continue;
            }
            Turn::First => None,
            Turn::Behind(end) => Some(end),
        };
        if !sleeper.sleep(before.as_slice())? || !sleeper.settle(database)? {
            return Ok(());
        }
    }
}

enum Turn {
    /// Nobody who lives stands before it.
    First,
    /// Somebody does: what reports the end of the nearest.
    Behind(OwnedFd),
    /// It leads from now on.
    Elected(Term),
    /// Its place, or its entry, was removed.
    Gone,
}

fn turn(shared: &Shared, tx: &Transaction<'_>, pipe: &Pipe, leads: bool) -> Result<Turn> {
    let database = &shared.database;
    let before = || -> rusqlite::Result<Option<Vec<String>>> {
        let place = "SELECT place FROM candidates WHERE session = ?1";
        let place: Option<i64> = tx
            .query_row(place, [pipe.name()], |row| row.get(0))
            .optional()?;
        let Some(place) = place else {
            return Ok(None);
        };
        if leads {
            let leader = "SELECT count(*) FROM entries WHERE key = ?1 AND session = ?2";
            let is_leader: i64 =
                tx.query_row(leader, params![LEADER, pipe.name()], |row| row.get(0))?;
            return Ok((is_leader > 0).then(Vec::new));
        }
        let mut before =
            tx.prepare("SELECT session FROM candidates WHERE place < ?1 ORDER BY place DESC")?;
        before
            .query_map([place], |row| row.get(0))?
            .collect::<Result<_, _>>()
            .map(Some)
    };
    let before = before().map_err(|error| database.error_at(LEADER, error))?;
    for session in before.iter().flatten() {
        if let Some(end) = database.look(session)? {
            return Ok(Turn::Behind(end));
        }
    }
    Ok(match before {
        Some(_) => Turn::First,
        None => Turn::Gone,
    })
}

/// Leads from the next term on, if it is first in the line.
fn lead(shared: &Shared, pipe: &Pipe) -> Result<Turn> {
    let database = &shared.database;
    database.write(|tx, version| {
        match turn(shared, tx, pipe, false)? {
            Turn::First => {}
            turn => return Ok(turn),
        }
        let term = parse_term(database.place(), value(database, tx, TERM)?.as_deref())?;
        let term = next_term(database.place(), term)?;
        let candidate: Vec<u8> = tx
            .query_row(
                "SELECT value FROM candidates WHERE session = ?1",
                [pipe.name()],
                |row| row.get(0),
            )
            .map_err(|error| database.error_at(LEADER, error))?;
        database.set(
            tx,
            TERM,
            term.number().to_string().as_bytes(),
            version,
            None,
        )?;
        database.set(tx, LEADER, &candidate, version, Some(pipe.name()))?;
        Ok(Turn::Elected(term))
    })
}
