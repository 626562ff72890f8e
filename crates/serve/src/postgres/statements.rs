//! What a client keeps at the server: prepared statements, portals, and cursors, which are portals with a
//! name that SQL knows. All of them are bounded.

use std::collections::HashMap;
use std::sync::Arc;

use crate::backend::Parameter;

use super::command::Command;
use super::message::Report;
use super::rows::{Columns, Running};
use super::words::words;

/// The most prepared statements of a connection, and the bytes of their names and strings.
const STATEMENTS_MAX: usize = 1_000;
const TEXT_BYTES_MAX: usize = 4 << 20;
/// The most portals and cursors of a connection, and the bytes of their names and parameters. Each holds at
/// most one batch of rows.
const PORTALS_MAX: usize = 100;
const PARAMETER_BYTES_MAX: usize = 4 << 20;

/// A prepared statement.
pub struct Prepared {
    pub command: Command,
    pub text: String,
    /// The types of the parameters.
    pub types: Vec<u32>,
    /// The columns; `None` if it returns no rows, or another statement knows them.
    pub columns: Option<Columns>,
}

/// The prepared statements of a connection.
#[derive(Default)]
pub struct Statements {
    all: HashMap<String, Arc<Prepared>>,
    text_bytes: usize,
}

impl Statements {
    /// Keeps a statement. One without a name replaces the one before.
    ///
    /// # Errors
    ///
    /// If there is one with the name, or there are too many.
    pub fn add(&mut self, name: &str, prepared: Prepared) -> Result<(), Report> {
        if name.is_empty() {
            self.remove("");
        } else if self.all.contains_key(name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(Report::error("42P05", message));
        }
        let bytes = self.text_bytes + name.len() + prepared.text.len();
        if self.all.len() >= STATEMENTS_MAX || bytes > TEXT_BYTES_MAX {
            return Err(Report {
                hint: Some("close some of them (DEALLOCATE)".to_owned()),
                ..Report::error("54000", "there are too many prepared statements")
            });
        }
        self.text_bytes = bytes;
        self.all.insert(name.to_owned(), Arc::new(prepared));
        Ok(())
    }

    pub fn get(&self, name: &str) -> Result<Arc<Prepared>, Report> {
        let message = || format!("prepared statement \"{name}\" does not exist");
        let found = self.all.get(name).map(Arc::clone);
        found.ok_or_else(|| Report::error("26000", message()))
    }

    /// Forgets a statement, if there is one.
    pub fn remove(&mut self, name: &str) {
        if let Some(prepared) = self.all.remove(name) {
            self.text_bytes -= name.len() + prepared.text.len();
        }
    }

    pub fn clear(&mut self) {
        *self = Statements::default();
    }

    /// `DEALLOCATE name`, or all.
    pub fn deallocate(&mut self, name: Option<&str>) -> Result<(), Report> {
        match name {
            Some(name) => {
                self.get(name)?;
                self.remove(name);
            }
            None => self.clear(),
        }
        Ok(())
    }
}

/// A statement with the values of its parameters, and what is left of its rows.
pub struct Portal {
    pub prepared: Arc<Prepared>,
    /// The formats that the client wants: none for text, one for all, or one for each column.
    pub results: Vec<i16>,
    pub state: State,
    /// The bytes of its name and its parameters.
    pub bytes: usize,
}

pub enum State {
    New(Vec<Parameter>),
    Open(Running),
    Done,
}

impl Portal {
    /// The format of each column.
    pub fn formats(&self, columns: usize) -> Result<Vec<i16>, Report> {
        match self.results[..] {
            [] => Ok(vec![0; columns]),
            [all] => Ok(vec![all; columns]),
            ref each if each.len() == columns => Ok(each.to_vec()),
            ref each => {
                let message = format!(
                    "bind message has {} result formats but query has {columns} columns",
                    each.len()
                );
                Err(Report::error("08P01", message))
            }
        }
    }
}

/// A cursor of `DECLARE`.
struct Cursor {
    columns: Columns,
    /// `None` after its last row.
    running: Option<Running>,
    hold: bool,
}

fn missing_portal(name: &str) -> Report {
    Report::error("34000", format!("portal \"{name}\" does not exist"))
}

/// The portals and cursors of a connection.
#[derive(Default)]
pub struct Portals {
    portals: HashMap<String, Portal>,
    cursors: HashMap<String, Cursor>,
}

impl Portals {
    fn check(&self, more: usize) -> Result<(), Report> {
        let parameters = self.portals.values().map(|portal| portal.bytes);
        let bytes = parameters.chain(self.cursors.keys().map(String::len));
        if self.portals.len() + self.cursors.len() < PORTALS_MAX
            && bytes.sum::<usize>() + more <= PARAMETER_BYTES_MAX
        {
            return Ok(());
        }
        Err(Report {
            hint: Some("close some of them".to_owned()),
            ..Report::error(
                "54000",
                "there are too many cursors, or their parameters are too long",
            )
        })
    }

    pub fn put(&mut self, name: &str, portal: Portal) -> Result<(), Report> {
        self.check(portal.bytes)?;
        self.portals.insert(name.to_owned(), portal);
        Ok(())
    }

    /// Binds a portal. One without a name replaces the one before.
    pub fn bind(&mut self, name: &str, portal: Portal) -> Result<(), Report> {
        if !name.is_empty() && self.portals.contains_key(name) {
            return Err(Report::error(
                "42P03",
                format!("cursor \"{name}\" already exists"),
            ));
        }
        self.portals.remove(name);
        self.put(name, portal)
    }

    pub fn get(&self, name: &str) -> Result<&Portal, Report> {
        self.portals.get(name).ok_or_else(|| missing_portal(name))
    }

    pub fn take(&mut self, name: &str) -> Result<Portal, Report> {
        self.portals
            .remove(name)
            .ok_or_else(|| missing_portal(name))
    }

    /// Forgets a portal or a cursor, if there is one.
    pub fn close(&mut self, name: &str) {
        self.portals.remove(name);
        self.cursors.remove(name);
    }

    /// Portals live as long as the transaction, and so do cursors without HOLD.
    pub fn end_transaction(&mut self) {
        self.portals.clear();
        self.cursors.retain(|_, cursor| cursor.hold);
    }

    pub fn clear(&mut self) {
        *self = Portals::default();
    }

    pub fn declare(&mut self, name: &str, running: Running, hold: bool) -> Result<(), Report> {
        self.check(name.len())?;
        if self.cursors.contains_key(name) {
            return Err(Report::error(
                "42P03",
                format!("cursor \"{name}\" already exists"),
            ));
        }
        let cursor = Cursor {
            columns: Arc::clone(&running.columns),
            running: Some(running),
            hold,
        };
        self.cursors.insert(name.to_owned(), cursor);
        Ok(())
    }

    /// The columns of a cursor.
    pub fn cursor(&self, name: &str) -> Result<Columns, Report> {
        let missing = || Report::error("34000", format!("cursor \"{name}\" does not exist"));
        self.cursors
            .get(name)
            .map(|cursor| Arc::clone(&cursor.columns))
            .ok_or_else(missing)
    }

    /// What is left of a cursor's rows; `None` after the last.
    pub fn take_cursor(&mut self, name: &str) -> Result<Option<Running>, Report> {
        self.cursor(name)?;
        Ok(self
            .cursors
            .get_mut(name)
            .and_then(|cursor| cursor.running.take()))
    }

    pub fn put_cursor(&mut self, name: &str, running: Running, ended: bool) {
        if let Some(cursor) = self.cursors.get_mut(name).filter(|_| !ended) {
            cursor.running = Some(running);
        }
    }

    /// `CLOSE name`, or all.
    pub fn close_cursor(&mut self, name: Option<&str>) -> Result<(), Report> {
        match name {
            Some(name) => {
                self.cursor(name)?;
                self.cursors.remove(name);
            }
            None => self.cursors.clear(),
        }
        Ok(())
    }
}

/// What of a set has come until now.
#[derive(Default)]
pub struct StatementSet(pub Option<String>);

impl StatementSet {
    /// Whether a statement is a part of a set: it opens one, or one is open.
    pub fn takes(&self, text: &str) -> bool {
        self.0.is_some() || opens(text)
    }
}

/// Whether a statement opens a set and does not end it.
pub fn opens(text: &str) -> bool {
    let words = words(text);
    let mut words = words.iter().filter(|word| !word.is_sign(";"));
    let begins = words
        .next()
        .is_some_and(|word| word.is("begin") || word.is("execute"));
    begins
        && words.next().is_some_and(|word| word.is("statement"))
        && words.next().is_some_and(|word| word.is("set"))
        && !words.next_back().is_some_and(|word| word.is("end"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_opens_a_set_does_not_end_it() {
        for text in [
            "BEGIN STATEMENT SET;",
            "begin statement set",
            "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1 FROM t",
        ] {
            assert!(opens(text), "{text}");
        }
        for text in [
            "BEGIN",
            "BEGIN STATEMENT SET; INSERT INTO a SELECT 1 FROM t; END;",
            "INSERT INTO a SELECT 1",
        ] {
            assert!(!opens(text), "{text}");
        }
    }
}
