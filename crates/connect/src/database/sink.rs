//! Rows into a table.
//!
//! With a primary key a row replaces the one with the same key, and a retraction deletes it; of several rows
//! of one key only the last is written. Without a primary key rows are inserted, and nothing can be
//! retracted.
//!
//! A query without checkpoints writes each batch of rows in its own transaction. A query with checkpoints
//! keeps rows in a staging table until their checkpoint is stored ([`super::staging`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use slackwater_engine::chunk::{Chunk, RowKind};
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::{
    Accepts, Delivery, Recovered, Sink, SinkCapabilities, SinkCheckpoints, SinkConnector,
    SinkDescription, SinkRequest,
};

use super::Table;
use super::cells::{RowText, text};
use super::changes::Changes;
use super::client::{Connection, Failure};
use super::staging::{self, Token};
use crate::encode::Cell;

/// Rows of one transaction, at most.
const ROWS_MAX: usize = 4_096;

/// Bytes of values in one transaction: 1 MiB; the last row may exceed it.
const BYTES_MAX: usize = 1 << 20;

/// The most instances that insert into one table: each has a connection, and servers allow about a hundred.
const INSTANCES_MAX: usize = 16;

/// A table that is written.
pub(crate) struct DatabaseSink {
    pub(crate) table: Arc<Table>,
    /// How many instances can write to the database at the same time.
    pub(crate) writers_max: usize,
    /// The connection for commits.
    committer: Mutex<Connection>,
}

impl DatabaseSink {
    pub(crate) fn new(table: &Arc<Table>, writers_max: usize) -> DatabaseSink {
        DatabaseSink {
            table: Arc::clone(table),
            writers_max,
            committer: Mutex::new(Connection::new(table)),
        }
    }

    fn committer<T>(&self, work: impl FnOnce(&mut Connection) -> Result<T>) -> Result<T> {
        let committer = self.committer.lock();
        work(&mut committer.unwrap_or_else(PoisonError::into_inner))
    }
}

impl SinkConnector for DatabaseSink {
    fn describe(&self) -> SinkDescription {
        SinkDescription {
            connector: self.table.connector,
            place: self.table.database.clone(),
            table: Some(self.table.name.clone()),
            column: None,
        }
    }

    fn capabilities(&self) -> SinkCapabilities {
        // Rows of one key must be written in their order, so by one instance.
        let (max_instances, accepts) = match self.table.primary_key.is_empty() {
            true => (self.writers_max.min(INSTANCES_MAX), Accepts::Rows),
            false => (1, Accepts::Changes),
        };
        SinkCapabilities {
            max_instances,
            max_instances_saved: max_instances,
            uses_waiter: false,
            accepts,
            delivery: Delivery::ExactlyOnce,
            may_lose_prepared: false,
            client_waits_ms: &[],
        }
    }

    fn sink(&self, request: &SinkRequest) -> Result<Box<dyn Sink>> {
        let token = request.epoch.map(|epoch| Token {
            instance: request.instance as u64,
            epoch,
            number: 0,
        });
        Ok(Box::new(TableSink {
            connection: Connection::new(&self.table),
            rows: Rows::new(&self.table),
            token,
            parts: 0,
        }))
    }

    fn begin(&self, saved: bool) -> Result<()> {
        match saved {
            true => self.committer(staging::begin),
            false => Ok(()),
        }
    }

    fn checkpoints(&self) -> Option<&dyn SinkCheckpoints> {
        Some(self)
    }
}

impl SinkCheckpoints for DatabaseSink {
    /// Prepared rows are in the staging table already.
    fn secure(&self, _prepared: &str) -> Result<()> {
        Ok(())
    }

    fn commit(&self, prepared: &str) -> Result<()> {
        self.committer(|connection| staging::commit(connection, prepared))
    }

    fn recover(&self, epoch: u64, prepared: Option<&[String]>) -> Result<Recovered> {
        let prepared = prepared.unwrap_or_default();
        self.committer(|connection| staging::recover(connection, epoch, prepared))
    }
}

/// The rows that are not written yet.
struct Rows {
    table: Arc<Table>,
    rows: Vec<Slot>,
    /// The position of each key's row, if there is a primary key.
    known: HashMap<RowText, usize>,
    bytes: usize,
}

/// The last row of one key.
enum Slot {
    Written(RowText),
    Deleted(RowText),
}

impl Rows {
    fn new(table: &Arc<Table>) -> Rows {
        Rows {
            table: Arc::clone(table),
            rows: Vec::new(),
            known: HashMap::new(),
            bytes: 0,
        }
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_MAX || self.bytes >= BYTES_MAX
    }

    /// Takes a row or a retraction.
    fn take(&mut self, row: RowText, is_deleted: bool) -> Result<()> {
        if !self.table.server.takes_zeros() {
            self.check_zeros(&row)?;
        }
        self.bytes += row.iter().flatten().map(String::len).sum::<usize>();
        if self.table.primary_key.is_empty() {
            if is_deleted {
                let reason = "the query retracts rows, and the table has no primary key";
                let hint = "declare it with the table: PRIMARY KEY (id) NOT ENFORCED";
                return Err(Error::new(&self.table.place, reason).hint(hint).final_one());
            }
            self.rows.push(Slot::Written(row));
            return Ok(());
        }
        let key = self.table.primary_key.iter();
        let key = key.map(|&column| row[column].clone());
        let key = key.collect::<RowText>();
        if let Some(null) = key.iter().position(Option::is_none) {
            let name = self.table.names(&self.table.primary_key)[null];
            let reason = format!("column '{name}' of the primary key is NULL");
            let hint = format!("leave such rows out: WHERE {name} IS NOT NULL");
            return Err(Error::new(&self.table.place, reason).hint(hint).final_one());
        }
        let slot = match is_deleted {
            true => Slot::Deleted(key.clone()),
            false => Slot::Written(row),
        };
        match self.known.get(&key) {
            Some(&known) => self.rows[known] = slot,
            None => {
                self.known.insert(key, self.rows.len());
                self.rows.push(slot);
            }
        }
        Ok(())
    }

    /// Rejects a string that the database would reject once its checkpoint is stored.
    fn check_zeros(&self, row: &RowText) -> Result<()> {
        let has_zero = |text: &Option<String>| text.as_ref().is_some_and(|t| t.contains('\0'));
        let Some(column) = row.iter().position(has_zero) else {
            return Ok(());
        };
        let name = self.table.schema.field(column).name();
        let reason =
            format!("a string of column '{name}' has a zero byte, which the table can't hold");
        let hint = format!("take it out: REPLACE({name}, CHR(0), '')");
        Err(Error::new(&self.table.place, reason).hint(hint).final_one())
    }

    /// Takes the changes to write.
    fn changes(&mut self) -> Changes {
        self.known.clear();
        self.bytes = 0;
        let mut changes = Changes::default();
        for slot in self.rows.drain(..) {
            match slot {
                Slot::Written(row) => changes.rows.push(row),
                Slot::Deleted(key) => changes.deleted.push(key),
            }
        }
        changes
    }
}

/// One instance's sink.
struct TableSink {
    connection: Connection,
    rows: Rows,
    /// The token that was prepared last. `None`: the query takes no checkpoints.
    token: Option<Token>,
    /// The number of parts prepared for the next token.
    parts: u64,
}

impl TableSink {
    /// The token that will be prepared next.
    fn next(&self) -> Option<Token> {
        self.token.map(|token| Token {
            number: token.number + 1,
            ..token
        })
    }

    /// Writes the rows so far to the database.
    fn push(&mut self) -> Result<()> {
        let changes = self.rows.changes();
        if changes.is_empty() {
            return Ok(());
        }
        match self.next() {
            Some(token) => {
                staging::stage(&mut self.connection, token, self.parts, &changes)?;
                self.parts += 1;
                Ok(())
            }
            None => self.write_now(&changes),
        }
    }

    /// Writes rows in their own transaction. If it is unknown whether they were committed, they are written
    /// again if there is a primary key, since this changes nothing; otherwise the query fails.
    fn write_now(&mut self, changes: &Changes) -> Result<()> {
        let has_key = !self.rows.table.primary_key.is_empty();
        let mut is_unknown = false;
        let written = self.connection.run(|client| {
            client.begin()?;
            client.write(changes)?;
            let committed = client.note("COMMIT", &[]).map(|_| ());
            committed.map_err(|failure| {
                is_unknown = failure.is_lost && !has_key;
                Failure {
                    passes: failure.passes && !is_unknown,
                    ..failure
                }
            })
        });
        written.map_err(|error| match is_unknown {
            false => error,
            true => {
                let rows = changes.rows.len();
                let reason = format!(
                    "it is not known whether the last {rows} rows were written: {}",
                    error.reason
                );
                let hint = "look which before you run the query again; with a primary key, or with \
                            --state, it would be safe";
                Error::new(error.place, reason).hint(hint).final_one()
            }
        })
    }
}

impl Sink for TableSink {
    fn open(&mut self, _waiter: &mut Waiter) -> Result<()> {
        self.connection.open()
    }

    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        let columns = chunk.batch.columns();
        let cells = columns.iter().map(|column| Cell::new(column));
        let cells = cells.collect::<Result<Vec<Cell<'_>>>>()?;
        for row in 0..chunk.rows() {
            let kind = chunk.kinds.as_ref().map_or(0, |kinds| kinds.value(row));
            // The update that follows replaces it.
            if kind == RowKind::UpdateBefore as i8 && !self.rows.table.primary_key.is_empty() {
                continue;
            }
            let values = cells.iter().zip(columns);
            let values = values.map(|(cell, column)| text(cell, column, row));
            let values = values.collect::<Result<RowText>>()?;
            self.rows.take(values, RowKind::is_retraction(kind))?;
            if self.rows.is_full() {
                self.push()?;
            }
        }
        Ok(())
    }

    /// With checkpoints, rows wait for these in memory or in the staging table.
    fn flush(&mut self) -> Result<()> {
        match self.token {
            None => self.push(),
            Some(_) => Ok(()),
        }
    }

    fn prepare(&mut self, _is_last: bool) -> Result<Option<String>> {
        let Some(next) = self.next() else {
            return Ok(None);
        };
        self.push()?;
        if self.parts == 0 {
            return Ok(None);
        }
        self.parts = 0;
        self.token = Some(next);
        Ok(Some(next.to_string()))
    }

    /// Rows that were not prepared are written again by the incarnation that resumes from the last
    /// checkpoint.
    fn finish(&mut self, complete: bool) -> Result<()> {
        match (complete, self.token) {
            (true, None) => self.push(),
            _ => Ok(()),
        }
    }
}
