//! A query with checkpoints that dies at any moment: each row that survives is in its table once.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use rusqlite::Connection;
use slackwater_engine::chunk::RowKind;
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::{Recovered, Sink, SinkConnector, SinkRequest};

use super::{NUMBER_AND_TEXT, chunk, database, rows_of, table_of};
use crate::table::TableDefinition;

/// An event in the life of a query.
#[derive(Debug, Clone, Copy)]
enum Act {
    /// This many rows arrive, with this many keys.
    Write(usize, i64),
    /// A checkpoint: whether it is stored, and how often the commit reaches the sink.
    Checkpoint(bool, usize),
    /// Everything dies; the query is restored this many times and continues.
    Crash(usize),
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (1usize..30, 1i64..20).prop_map(|(rows, keys)| Act::Write(rows, keys)),
        3 => (prop::bool::weighted(0.8), 0usize..3).prop_map(|(is, n)| Act::Checkpoint(is, n)),
        2 => (1usize..3).prop_map(Act::Crash),
    ]
}

type Row = (i64, String, RowKind);

struct Query {
    table: TableDefinition,
    connector: Arc<dyn SinkConnector>,
    sink: Box<dyn Sink>,
    epoch: u64,
    written: Vec<Row>,
    pending: Vec<String>,
    /// The rows and what was pending in the stored checkpoint.
    stored: (usize, Vec<String>),
    /// Rows that a commit or a restore has made visible.
    committed: usize,
}

fn open(connector: &dyn SinkConnector, epoch: u64) -> Box<dyn Sink> {
    let request = SinkRequest {
        epoch: Some(epoch),
        ..SinkRequest::new(0, 1)
    };
    let mut sink = connector.sink(&request).unwrap();
    sink.open(&mut Waiter::new().unwrap()).unwrap();
    sink
}

impl Query {
    fn begin(table: TableDefinition) -> Query {
        let connector = crate::sink(&table).unwrap();
        connector.begin(true).unwrap();
        Query {
            sink: open(&*connector, 1),
            connector,
            table,
            epoch: 1,
            written: vec![],
            pending: vec![],
            stored: (0, vec![]),
            committed: 0,
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Write(rows, keys) => {
                let has_key = !self.table.primary_key.is_empty();
                let first = self.written.len();
                let rows = (first..first + rows).map(|number| {
                    let is_deleted = has_key && number % 5 == 4;
                    let kind = if is_deleted {
                        RowKind::Delete
                    } else {
                        RowKind::Insert
                    };
                    (number as i64 % keys, format!("row {number}"), kind)
                });
                let rows = rows.collect::<Vec<Row>>();
                let of_chunk = rows.iter().map(|row| (Some(row.0), &row.1[..], row.2));
                self.sink
                    .write(&chunk(&of_chunk.collect::<Vec<_>>()))
                    .unwrap();
                self.sink.flush().unwrap();
                self.written.extend(rows);
            }
            Act::Checkpoint(is_stored, commits) => {
                self.pending.extend(self.sink.prepare(false).unwrap());
                if !is_stored {
                    return;
                }
                self.stored = (self.written.len(), self.pending.clone());
                for _ in 0..commits {
                    for prepared in &self.pending {
                        self.connector.commit(prepared).unwrap();
                    }
                }
                if commits > 0 {
                    self.pending.clear();
                    self.committed = self.stored.0;
                }
            }
            Act::Crash(times) => {
                self.written.truncate(self.stored.0);
                for _ in 0..times {
                    self.connector = crate::sink(&self.table).unwrap();
                    let next = self.epoch + 1;
                    let recovered = self.connector.recover(next, Some(&self.stored.1));
                    assert_eq!(recovered, Ok(Recovered::Committed));
                }
                self.pending.clear();
                self.committed = self.stored.0;
                self.epoch += 1;
                self.sink = open(&*self.connector, self.epoch);
            }
        }
    }

    /// The rows that a reader must find.
    fn visible(&self) -> Vec<(i64, String)> {
        let rows = self.written[..self.committed].iter();
        if self.table.primary_key.is_empty() {
            return rows.map(|row| (row.0, row.1.clone())).collect();
        }
        let mut by_key = BTreeMap::new();
        for (key, text, kind) in rows {
            match kind {
                RowKind::Delete => by_key.remove(key),
                _ => by_key.insert(*key, text.clone()),
            };
        }
        by_key.into_iter().collect()
    }
}

fn look(connection: &Connection, has_key: bool) -> Vec<(i64, String)> {
    let order = if has_key { "id" } else { "rowid" };
    rows_of(
        connection,
        &format!("SELECT id, name FROM t ORDER BY {order}"),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn each_surviving_row_is_there_once(
        has_key: bool,
        acts in prop::collection::vec(any_act(), 0..20),
        commits in 0usize..2,
    ) {
        let unique = if has_key { "PRIMARY KEY" } else { "" };
        // Without syncing: only processes die here.
        let make = format!("PRAGMA journal_mode = WAL; CREATE TABLE t (id INTEGER {unique}, name TEXT)");
        let (folder, connection) = database(&make);
        let mut table = table_of(folder.path(), &NUMBER_AND_TEXT, &[]);
        table.primary_key = if has_key { vec![0] } else { vec![] };
        let mut query = Query::begin(table);
        for act in acts {
            query.act(act);
            prop_assert_eq!(look(&connection, has_key), query.visible());
        }
        query.act(Act::Checkpoint(true, commits));
        query.act(Act::Crash(2));
        prop_assert_eq!(look(&connection, has_key), query.visible());
        let left = connection.query_row("SELECT count(*) FROM \
                                         slackwater_staged", [], |row| row.get::<_, i64>(0));
        prop_assert_eq!(left.unwrap(), 0);
    }
}

#[test]
fn inconsistent_state_is_refused() {
    let (folder, connection) = database("CREATE TABLE t (id INT, name TEXT)");
    let table = table_of(folder.path(), &NUMBER_AND_TEXT, &[]);
    let mut query = Query::begin(table);
    query.act(Act::Write(3, 5));
    query.act(Act::Checkpoint(true, 1));
    let old = query.stored.clone();
    query.act(Act::Write(3, 5));
    query.act(Act::Checkpoint(true, 1));
    // A checkpoint after which rows were committed.
    let error = query.connector.recover(2, Some(&old.1)).unwrap_err();
    assert!(
        error.is_final && error.to_string().contains("would be written again"),
        "{error}"
    );
    // The prepared rows are missing.
    query.act(Act::Write(3, 5));
    query.act(Act::Checkpoint(true, 0));
    connection
        .execute_batch("DELETE FROM slackwater_staged")
        .unwrap();
    let error = query.connector.recover(2, Some(&query.stored.1));
    let error = error.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("0-1-3 is no longer in slackwater_staged"),
        "{error}"
    );
    // A token of another kind of sink.
    let error = query.connector.commit("part-1").unwrap_err();
    assert!(
        error.to_string().contains("'part-1' was not prepared"),
        "{error}"
    );
    // A query that starts over keeps the rows of the one before, and discards what it had staged.
    query.connector.begin(true).unwrap();
    query.connector.recover(2, None).unwrap();
    assert_eq!(look(&connection, false).len(), 6);
    // Two incarnations commit the same rows: an earlier one is still alive.
    let mut query = Query::begin(table_of(folder.path(), &NUMBER_AND_TEXT, &[]));
    query.act(Act::Write(2, 5));
    query.act(Act::Checkpoint(true, 0));
    let commits = (0..4).map(|_| {
        let connector = crate::sink(&query.table).unwrap();
        let prepared = query.stored.1[0].clone();
        std::thread::spawn(move || connector.commit(&prepared))
    });
    for commit in commits.collect::<Vec<_>>() {
        commit.join().unwrap().unwrap();
    }
    assert_eq!(look(&connection, false).len(), 8);
}

#[test]
fn an_earlier_incarnation_removes_nothing_of_a_later_one() {
    let (folder, connection) = database("CREATE TABLE t (id INT, name TEXT)");
    let mut query = Query::begin(table_of(folder.path(), &NUMBER_AND_TEXT, &[]));
    query.act(Act::Write(2, 5));
    query.act(Act::Checkpoint(true, 0));
    query.act(Act::Crash(1));
    query.act(Act::Write(3, 5));
    query.act(Act::Checkpoint(true, 0));
    // A slow incarnation starts only now, from what was the newest checkpoint.
    let slow = crate::sink(&query.table).unwrap();
    slow.recover(2, Some(&[])).unwrap();
    for prepared in &query.stored.1 {
        query.connector.commit(prepared).unwrap();
    }
    assert_eq!(look(&connection, false).len(), 5);
}
