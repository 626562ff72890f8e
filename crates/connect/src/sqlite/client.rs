//! A connection to a file of SQLite.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::{DataType, Field};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, Statement, ToSql};

use slackwater_engine::operator::lookup_join::LookupConnector;
use slackwater_engine::sink::SinkConnector;
use slackwater_engine::source::SourceConnector;

use crate::database::{
    Attempt, Changes, Client, DatabaseLookup, DatabaseSink, DatabaseSource, EachFound, EachRow,
    Failure, Row, RowText, Select, Server, Table, check_columns, list, no_column, no_table, open,
    order, quoted, upsert,
};
use crate::options::{OptionError, Options};
use crate::table::TableDefinition;

/// How long another process may hold the file's lock: what SQLite's documentation calls generous.
const BUSY: Duration = Duration::from_secs(5);

pub(super) fn read(
    definition: &TableDefinition,
    options: &Options<'_>,
) -> Result<Arc<dyn SourceConnector>, OptionError> {
    Ok(Arc::new(DatabaseSource(table(definition, options)?)))
}

pub(super) fn write(
    definition: &TableDefinition,
    options: &Options<'_>,
) -> Result<Arc<dyn SinkConnector>, OptionError> {
    // A SQLite file has one writer at a time.
    const WRITERS_MAX: usize = 1;
    let table = table(definition, options)?;
    Ok(Arc::new(DatabaseSink::new(&table, WRITERS_MAX)))
}

pub(super) fn look_up(
    definition: &TableDefinition,
    options: &Options<'_>,
) -> Result<Arc<dyn LookupConnector>, OptionError> {
    Ok(Arc::new(DatabaseLookup(table(definition, options)?)))
}

/// The table that the options describe. Opens nothing.
fn table(definition: &TableDefinition, options: &Options<'_>) -> Result<Arc<Table>, OptionError> {
    check_columns(definition, "sqlite")?;
    let path = options.required("path", "shop.db")?;
    let server = File(PathBuf::from(path));
    open(definition, options, "sqlite", path, Arc::new(server))
}

struct File(PathBuf);

impl Server for File {
    fn connect(&self, table: &Arc<Table>) -> Attempt<Box<dyn Client>> {
        // Without CREATE: an empty database would only hide a wrong path.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if !Path::new(&self.0).exists() {
            return Err(Failure::new("there is no such file")
                .hint("the database and the table must exist before the query starts"));
        }
        let connection = Connection::open_with_flags(&self.0, flags).map_err(failure)?;
        connection.busy_timeout(BUSY).map_err(failure)?;
        find(&connection, table)?;
        Ok(Box::new(SqliteClient {
            table: Arc::clone(table),
            connection,
        }))
    }

    fn takes_zeros(&self) -> bool {
        true
    }
}

/// Checks that the table has the columns.
fn find(connection: &Connection, table: &Table) -> Attempt<()> {
    let strings = |sql: &str, name: &str| -> Attempt<Vec<String>> {
        let mut statement = connection.prepare(sql).map_err(failure)?;
        let rows = statement.query_map([name], |row| row.get(0));
        let rows = rows.map_err(failure)?.collect::<Result<Vec<String>, _>>();
        rows.map_err(failure)
    };
    let columns = strings("SELECT name FROM pragma_table_xinfo(?1)", &table.name)?;
    if columns.is_empty() {
        let sql = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name <> ?1";
        let tables = strings(sql, &table.name)?;
        return Err(no_table(&table.name, &tables));
    }
    for field in table.schema.fields() {
        // Names are case-sensitive here, but not in SQLite.
        if !columns.iter().any(|c| c.eq_ignore_ascii_case(field.name())) {
            return Err(no_column(field, &columns));
        }
    }
    Ok(())
}

fn failure(error: rusqlite::Error) -> Failure {
    let code = error.sqlite_error_code();
    let failed = Failure::new(error.to_string());
    match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Failure {
            passes: true,
            ..failed.hint(
                "somebody holds the file's lock; a file that is read and written at the same time needs \
                 PRAGMA journal_mode = WAL",
            )
        },
        Some(ErrorCode::NotADatabase) => failed.hint("'path' has to be a file of SQLite 3"),
        _ => failed,
    }
}

struct SqliteClient {
    table: Arc<Table>,
    connection: Connection,
}

/// How a string is bound: SQLite stores a type with each value.
#[derive(Clone, Copy)]
enum Binding {
    Integer,
    Real,
    Text,
}

fn binding(field: &Field) -> Binding {
    match field.data_type() {
        DataType::Boolean => Binding::Integer,
        DataType::Float32 | DataType::Float64 => Binding::Real,
        other if other.is_integer() => Binding::Integer,
        _ => Binding::Text,
    }
}

struct Bound<'a>(Option<&'a str>, Binding);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let Some(text) = self.0 else {
            return Ok(ToSqlOutput::Owned(Value::Null));
        };
        let number = match self.1 {
            Binding::Integer => match text {
                "true" => Some(Value::Integer(1)),
                "false" => Some(Value::Integer(0)),
                _ => text.parse().ok().map(Value::Integer),
            },
            Binding::Real => text.parse().ok().map(Value::Real),
            Binding::Text => None,
        };
        Ok(match number {
            Some(number) => ToSqlOutput::Owned(number),
            None => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        })
    }
}

impl SqliteClient {
    fn bindings(&self, columns: &[usize]) -> Vec<Binding> {
        let columns = columns.iter();
        columns
            .map(|&column| binding(self.table.schema.field(column)))
            .collect()
    }

    fn select(&self, select: &Select) -> String {
        let columns = list(&self.table.names(&select.columns));
        let columns = if columns.is_empty() { "1" } else { &columns };
        let table = quoted(&self.table.name);
        let keys = self.table.names(&select.keys);
        format!("SELECT {columns} FROM {table} AS t{}", matching(&keys))
    }
}

/// ` WHERE "a" = ?1 AND "b" = ?2`.
fn matching(keys: &[&str]) -> String {
    let equal = keys.iter().enumerate();
    let equal = equal.map(|(index, name)| format!("{} = ?{}", quoted(name), index + 1));
    let equal = equal.collect::<Vec<_>>().join(" AND ");
    match keys.is_empty() {
        true => String::new(),
        false => format!(" WHERE {equal}"),
    }
}

/// The values of a row as text.
#[derive(Default)]
struct RowBytes {
    bytes: Vec<u8>,
    ends: Vec<Option<usize>>,
}

impl RowBytes {
    fn read(&mut self, row: &rusqlite::Row<'_>, columns: usize) -> Attempt<()> {
        self.bytes.clear();
        self.ends.clear();
        for column in 0..columns {
            let value = row.get_ref(column).map_err(failure)?;
            match value {
                ValueRef::Null => {}
                ValueRef::Integer(number) => {
                    let mut buffer = itoa::Buffer::new();
                    self.bytes
                        .extend_from_slice(buffer.format(number).as_bytes());
                }
                ValueRef::Real(number) => {
                    let mut buffer = zmij::Buffer::new();
                    self.bytes
                        .extend_from_slice(buffer.format(number).as_bytes());
                }
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                    self.bytes.extend_from_slice(bytes);
                }
            }
            let is_null = matches!(value, ValueRef::Null);
            self.ends.push((!is_null).then_some(self.bytes.len()));
        }
        Ok(())
    }

    fn row(&self) -> Vec<Option<&[u8]>> {
        let mut start = 0;
        let values = self.ends.iter().map(|end| {
            let value = &self.bytes[start..(*end)?];
            start = (*end)?;
            Some(value)
        });
        values.collect()
    }
}

/// Passes on the rows of a statement; returns whether more are wanted.
fn each_row(
    statement: &mut Statement<'_>,
    values: &[Bound<'_>],
    columns: usize,
    each: &mut dyn FnMut(Row<'_>) -> bool,
) -> Attempt<bool> {
    let values = rusqlite::params_from_iter(values);
    let mut rows = statement.query(values).map_err(failure)?;
    let mut bytes = RowBytes::default();
    while let Some(row) = rows.next().map_err(failure)? {
        bytes.read(row, columns)?;
        if !each(&bytes.row()) {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Client for SqliteClient {
    fn scan(&mut self, select: &Select, each: &mut EachRow<'_>) -> Attempt<()> {
        let sql = self.select(select) + &order(&self.table, select);
        let mut statement = self.connection.prepare(&sql).map_err(failure)?;
        each_row(&mut statement, &[], select.columns.len(), each).map(|_| ())
    }

    /// There is no server, so no round trips: one statement for each key, all within one transaction.
    fn look_up(
        &mut self,
        select: &Select,
        keys: &[Vec<String>],
        each: &mut EachFound<'_>,
    ) -> Attempt<()> {
        let bindings = self.bindings(&select.keys);
        let sql = self.select(select);
        self.connection.execute_batch("BEGIN").map_err(failure)?;
        let mut statement = self.connection.prepare(&sql).map_err(failure)?;
        for key in 0..keys.first().map_or(0, Vec::len) {
            let values = keys.iter().zip(&bindings);
            let values = values.map(|(column, binding)| Bound(Some(&column[key]), *binding));
            let values = values.collect::<Vec<_>>();
            let columns = select.columns.len();
            let mut found = |row: Row<'_>| each(key as u32, row);
            if !each_row(&mut statement, &values, columns, &mut found)? {
                break;
            }
        }
        drop(statement);
        self.connection.execute_batch("COMMIT").map_err(failure)
    }

    fn begin(&mut self) -> Attempt<()> {
        let begun = self.connection.execute_batch("BEGIN IMMEDIATE");
        begun.map_err(failure)
    }

    fn write(&mut self, changes: &Changes) -> Attempt<()> {
        let all = (0..self.table.schema.fields().len()).collect::<Vec<usize>>();
        let table = quoted(&self.table.name);
        let key = self.table.names(&self.table.primary_key);
        let run = |sql: String, rows: &[RowText], columns: &[usize]| -> Attempt<()> {
            if rows.is_empty() {
                return Ok(());
            }
            let bindings = self.bindings(columns);
            let mut statement = self.connection.prepare(&sql).map_err(failure)?;
            for row in rows {
                let values = row.iter().zip(&bindings);
                let values = values.map(|(value, binding)| Bound(value.as_deref(), *binding));
                let done = statement.execute(rusqlite::params_from_iter(values));
                done.map_err(failure)?;
            }
            Ok(())
        };
        let numbers = all.iter().map(|column| format!("?{}", column + 1));
        let numbers = numbers.collect::<Vec<_>>().join(", ");
        let names = list(&self.table.names(&all));
        let upsert = upsert(&self.table);
        let insert = format!("INSERT INTO {table} ({names}) VALUES ({numbers}){upsert}");
        run(insert, &changes.rows, &all)?;
        let delete = format!("DELETE FROM {table}{}", matching(&key));
        run(delete, &changes.deleted, &self.table.primary_key)
    }

    fn note(&mut self, statement: &str, strings: &[&str]) -> Attempt<Vec<String>> {
        let statement = statement.replace('$', "?");
        let mut statement = self.connection.prepare(&statement).map_err(failure)?;
        let strings = rusqlite::params_from_iter(strings);
        let mut rows = statement.query(strings).map_err(failure)?;
        let mut first = Vec::new();
        while let Some(row) = rows.next().map_err(failure)? {
            first.push(row.get(0).map_err(failure)?);
        }
        Ok(first)
    }
}
