//! Tables of databases: read whole, looked up by key, and written (features `sqlite` and `postgres`).
//!
//! Values are passed as text in both directions: the parser for files reads the text of a column, and sinks
//! write the text that files would get, with a cast to the column's type if the database requires one. So
//! there is one way to read and write a type, and it costs as much as a text format.
//!
//! ```text
//! options        where the table is, and its other options
//! client         one connection: its requests, and when they are repeated
//! cells          text to columns and back
//! source         the whole table, read by a thread
//! lookup         rows by their keys
//! sink, staging  rows into the table; with checkpoints through a staging table
//! ```
//!
//! Each instance has a connection of its own.

mod cells;
mod changes;
mod client;
mod lookup;
mod options;
mod sink;
mod source;
mod staging;
mod statements;

use std::sync::Arc;

use arrow_schema::SchemaRef;

pub(crate) use cells::{Row, RowText};
pub(crate) use changes::Changes;
pub(crate) use client::{Attempt, Client, EachFound, EachRow, Failure, Select};
pub(crate) use lookup::DatabaseLookup;
pub(crate) use options::{check_columns, open};
pub(crate) use sink::DatabaseSink;
pub(crate) use source::DatabaseSource;
pub(crate) use statements::{list, no_column, no_table, order, quoted, upsert};

/// A table of a database.
#[derive(Clone)]
pub(crate) struct Table {
    /// The table's place, for messages: `sqlite shop.db, table customers`. Never contains a password.
    pub(crate) place: String,
    /// The connector's name.
    pub(crate) connector: &'static str,
    /// The database, as checkpoints name it. Never contains a password.
    pub(crate) database: String,
    /// The table's name in the database.
    pub(crate) name: String,
    /// The declared columns, which are among the table's.
    pub(crate) schema: SchemaRef,
    /// The columns of the primary key; empty if none was declared.
    pub(crate) primary_key: Vec<usize>,
    /// The sink's name in the staging tables.
    pub(crate) sink_name: String,
    /// How often a failed attempt is repeated.
    pub(crate) retries: u32,
    /// The size and age of the lookup cache.
    pub(crate) cache: slackwater_engine::operator::lookup_join::CacheSettings,
    /// Makes connections.
    pub(crate) server: Arc<dyn Server>,
}

/// A database to which connections can be made.
pub(crate) trait Server: Send + Sync {
    /// A connection, after checking that the table exists with its columns.
    fn connect(&self, table: &Arc<Table>) -> Attempt<Box<dyn Client>>;

    /// Whether strings may contain zero bytes.
    fn takes_zeros(&self) -> bool;
}

impl Table {
    /// The names of some columns.
    pub(crate) fn names(&self, columns: &[usize]) -> Vec<&str> {
        let names = columns.iter();
        let names = names.map(|&column| self.schema.field(column).name().as_str());
        names.collect()
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests;
