//! Staging: holds what a sink has prepared until the checkpoint that names it is stored.
//!
//! Rows must not be visible before their checkpoint is stored, and must not be lost afterwards. So they are
//! kept in a table of the same database, `slackwater_staged`. One transaction moves them into the sink's
//! table and records this in `slackwater_committed`, so that a second commit does nothing. A transaction of
//! the database itself could not wait for the checkpoint: it ends with its connection.
//!
//! Both tables have only text columns; the first one is the sink's name.

use std::fmt;

use slackwater_engine::error::{Error, Result};
use slackwater_engine::sink::Recovered;

use super::Changes;
use super::client::{Attempt, Client, Connection, Failure};

/// The tables, and the statements that create them.
const TABLES: [(&str, &str); 2] = [
    (
        "SELECT token FROM slackwater_staged LIMIT 0",
        "CREATE TABLE IF NOT EXISTS slackwater_staged (sink TEXT NOT NULL, token TEXT NOT NULL, part TEXT \
         NOT NULL, \
         changes TEXT NOT NULL, PRIMARY KEY (sink, token, part))",
    ),
    (
        "SELECT token FROM slackwater_committed LIMIT 0",
        "CREATE TABLE IF NOT EXISTS slackwater_committed (sink TEXT NOT NULL, instance TEXT NOT NULL, \
         token TEXT NOT NULL, PRIMARY KEY (sink, instance))",
    ),
];

/// The name of what an instance has prepared for one checkpoint. Later names of one instance are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Token {
    pub(super) instance: u64,
    pub(super) epoch: u64,
    pub(super) number: u64,
}

impl Token {
    pub(super) fn parse(text: &str) -> Option<Token> {
        let mut numbers = text.split('-').map(|number| number.parse().ok());
        let token = Token {
            instance: numbers.next()??,
            epoch: numbers.next()??,
            number: numbers.next()??,
        };
        (token.to_string() == text).then_some(token)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.instance, self.epoch, self.number)
    }
}

/// Creates the tables if they are missing.
fn make_tables(client: &mut dyn Client) -> Attempt<()> {
    for (look, make) in TABLES {
        // A user without the right to create tables can have them created by somebody else.
        if client.note(look, &[]).is_err() {
            client.note(make, &[]).map_err(|failure| {
                let hint =
                    format!("what is not committed yet is kept there; have it created: {make}");
                match failure.hint.is_empty() && !failure.passes {
                    true => failure.hint(hint),
                    false => failure,
                }
            })?;
        }
    }
    Ok(())
}

/// Starts a query from nothing: removes what an earlier query has left.
pub(super) fn begin(connection: &mut Connection) -> Result<()> {
    let sink = connection.table.sink_name.clone();
    connection.run(|client| {
        make_tables(client)?;
        client.begin()?;
        client.note("DELETE FROM slackwater_staged WHERE sink = $1", &[&sink])?;
        client.note("DELETE FROM slackwater_committed WHERE sink = $1", &[&sink])?;
        client.note("COMMIT", &[]).map(|_| ())
    })
}

/// Keeps a part of what is prepared. Doing it again does nothing.
pub(super) fn stage(
    connection: &mut Connection,
    token: Token,
    part: u64,
    changes: &Changes,
) -> Result<()> {
    let place = &connection.table.place;
    let text = serde_json::to_string(changes);
    let text = text.map_err(|error| Error::new(place, error.to_string()))?;
    let (sink, token) = (connection.table.sink_name.clone(), token.to_string());
    // As text, numbers of this width sort in numeric order.
    let part = format!("{part:010}");
    connection.run(|client| {
        let insert = "INSERT INTO slackwater_staged (sink, token, part, changes) VALUES ($1, $2, $3, $4) \
                      ON CONFLICT (sink, token, part) DO UPDATE SET changes = excluded.changes";
        client
            .note(insert, &[&sink, &token, &part, &text])
            .map(|_| ())
    })
}

/// Commits the prepared rows.
pub(super) fn commit(connection: &mut Connection, prepared: &str) -> Result<()> {
    let token = parse(connection, prepared)?;
    let sink = connection.table.sink_name.clone();
    connection.run(|client| {
        client.begin()?;
        move_rows(client, &sink, token)?;
        client.note("COMMIT", &[]).map(|_| ())
    })
}

fn parse(connection: &Connection, prepared: &str) -> Result<Token> {
    Token::parse(prepared).ok_or_else(|| {
        let reason = format!("'{prepared}' was not prepared by a database sink");
        Error::new(&connection.table.place, reason).hint("resume the query that took it")
    })
}

/// Moves staged rows into their table, within a transaction, unless that has been done.
fn move_rows(client: &mut dyn Client, sink: &str, token: Token) -> Attempt<()> {
    let instance = token.instance.to_string();
    // Another committer of the same rows (an earlier incarnation that is still alive) waits here.
    let lock = "INSERT INTO slackwater_committed (sink, instance, token) VALUES ($1, $2, '') \
                ON CONFLICT (sink, instance) DO UPDATE SET sink = excluded.sink RETURNING token";
    let last = client.note(lock, &[sink, &instance])?;
    if last.first().and_then(|last| Token::parse(last)) >= Some(token) {
        return Ok(());
    }
    let token = token.to_string();
    let parts = "SELECT part FROM slackwater_staged WHERE sink = $1 AND token = $2 ORDER BY part";
    let parts = client.note(parts, &[sink, &token])?;
    if parts.is_empty() {
        let reason = format!("what was prepared as {token} is no longer in slackwater_staged");
        let hint = "rows were lost with it: start over with --from-scratch and an empty table, and keep \
                    the two tables of slackwater";
        return Err(Failure::new(reason).hint(hint));
    }
    for part in parts {
        let read =
            "SELECT changes FROM slackwater_staged WHERE sink = $1 AND token = $2 AND part = $3";
        for changes in client.note(read, &[sink, &token, &part])? {
            let changes = serde_json::from_str::<Changes>(&changes);
            let changes = changes.map_err(|error| {
                let reason =
                    format!("part {part} of {token} in slackwater_staged can't be read: {error}");
                Failure::new(reason)
            })?;
            client.write(&changes)?;
        }
    }
    let remove = "DELETE FROM slackwater_staged WHERE sink = $1 AND token = $2";
    client.note(remove, &[sink, &token])?;
    let mark = "UPDATE slackwater_committed SET token = $1 WHERE sink = $2 AND instance = $3";
    client.note(mark, &[&token, sink, &instance]).map(|_| ())
}

/// Resumes incarnation `epoch` of a query from a checkpoint with these prepared rows.
pub(super) fn recover(
    connection: &mut Connection,
    epoch: u64,
    prepared: &[String],
) -> Result<Recovered> {
    let tokens = prepared.iter().map(|text| parse(connection, text));
    let mut tokens = tokens.collect::<Result<Vec<Token>>>()?;
    tokens.sort_unstable();
    connection.run(make_tables)?;
    for token in &tokens {
        let is_same = |other: &&Token| other.instance == token.instance;
        let newest = tokens.iter().rfind(is_same).unwrap_or(token);
        check_newest(connection, *newest)?;
        commit(connection, &token.to_string())?;
    }
    remove_earlier(connection, epoch)?;
    Ok(Recovered::Committed)
}

/// Removes what earlier incarnations have left, and nothing of a later one, which may have started meanwhile.
fn remove_earlier(connection: &mut Connection, epoch: u64) -> Result<()> {
    let sink = connection.table.sink_name.clone();
    let read = "SELECT DISTINCT token FROM slackwater_staged WHERE sink = $1";
    let remove = "DELETE FROM slackwater_staged WHERE sink = $1 AND token = $2";
    let staged = connection.run(|client| client.note(read, &[&sink]))?;
    for text in staged {
        let is_later = Token::parse(&text).is_some_and(|token| token.epoch >= epoch);
        if !is_later {
            connection.run(|client| client.note(remove, &[&sink, &text]).map(|_| ()))?;
        }
    }
    Ok(())
}

/// Rejects a checkpoint if rows were committed after it that would be written again. With a primary key this
/// is allowed, because it changes nothing.
fn check_newest(connection: &mut Connection, newest: Token) -> Result<()> {
    if !connection.table.primary_key.is_empty() {
        return Ok(());
    }
    let sink = connection.table.sink_name.clone();
    let read = "SELECT token FROM slackwater_committed WHERE sink = $1 AND instance = $2";
    let instance = newest.instance.to_string();
    let last = connection.run(|client| client.note(read, &[&sink, &instance]))?;
    match last.first().and_then(|last| Token::parse(last)) {
        Some(last) if last > newest => {
            let reason = format!(
                "the checkpoint ends with {newest}, and {last} was committed: its rows would be written again"
            );
            Err(Error::new(&connection.table.place, reason)
                .hint("resume from the newest checkpoint; or declare a primary key")
                .final_one())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_and_later_ones_are_greater() {
        let strings = ["0-3-1", "0-3-2", "0-3-10", "0-12-1", "1-1-1"];
        let tokens = strings.map(|text| Token::parse(text).unwrap());
        assert_eq!(tokens.map(|token| token.to_string()), strings);
        assert!(tokens.is_sorted());
        for text in ["", "3-1", "3-1-", "-1-1-1", "a-1-1", "0-1-2-3", "0-01-2"] {
            assert_eq!(Token::parse(text), None, "{text}");
        }
    }
}
