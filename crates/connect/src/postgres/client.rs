//! A connection to a PostgreSQL server.

use std::collections::HashMap;
use std::error::Error as _;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use postgres::config::{Host, SslMode};
use postgres::fallible_iterator::FallibleIterator;
use postgres::types::ToSql;
use postgres::{Config, NoTls, Statement};

use super::statements::{Statements, quoted_path};
use slackwater_engine::operator::lookup_join::LookupConnector;
use slackwater_engine::sink::SinkConnector;
use slackwater_engine::source::SourceConnector;

use crate::database::{
    Attempt, Changes, Client, DatabaseLookup, DatabaseSink, DatabaseSource, EachFound, EachRow,
    Failure, RowText, Select, Server, Table, check_columns, no_table, open,
};
use crate::options::{OptionError, Options};
use crate::table::TableDefinition;

/// How long an address may take to answer.
const CONNECT: Duration = Duration::from_secs(10);

/// How long a server may be silent before the kernel probes it, and how long sent data may stay
/// unacknowledged: a server that lost its power is noticed within a minute.
const SILENCE: Duration = Duration::from_secs(30);

/// How long the kernel waits before it probes again, and then gives up.
const PROBES: Duration = Duration::from_secs(10);

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
    const WRITERS_MAX: usize = usize::MAX;
    let table = table(definition, options)?;
    Ok(Arc::new(DatabaseSink::new(&table, WRITERS_MAX)))
}

pub(super) fn look_up(
    definition: &TableDefinition,
    options: &Options<'_>,
) -> Result<Arc<dyn LookupConnector>, OptionError> {
    Ok(Arc::new(DatabaseLookup(table(definition, options)?)))
}

/// The table that the options describe. Does not connect.
fn table(definition: &TableDefinition, options: &Options<'_>) -> Result<Arc<Table>, OptionError> {
    check_columns(definition, "postgres")?;
    const EXAMPLE: &str = "postgresql://user@localhost:5432/shop";
    let url = options.required("url", EXAMPLE)?;
    let url = url.strip_prefix("jdbc:").unwrap_or(url);
    let wrong = |reason: String| {
        OptionError::new("url", reason, format!("write it as in 'url' = '{EXAMPLE}'"))
    };
    let mut config = Config::from_str(url).map_err(|error| {
        // The error names only the invalid part, because the whole text may contain a password.
        let source = error.source().map(|source| format!(": {source}"));
        wrong(format!("can't be read{}", source.unwrap_or_default()))
    })?;
    if config.get_hosts().is_empty() {
        return Err(wrong("names no host".to_string()));
    }
    if config.get_ssl_mode() == SslMode::Require {
        return Err(wrong(
            "asks for TLS, which is not supported yet".to_string(),
        ));
    }
    if let Some(user) = options.text("username") {
        config.user(user);
    }
    if let Some(password) = options.text("password") {
        config.password(password);
    } else if config.get_password().is_none()
        && let Ok(password) = std::env::var("PGPASSWORD")
    {
        config.password(password);
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(SILENCE);
    }
    config.keepalives_idle(SILENCE).keepalives_interval(PROBES);
    if config.get_application_name().is_none() {
        config.application_name("slackwater");
    }
    let place = place(&config);
    open(
        definition,
        options,
        "postgres",
        &place,
        Arc::new(Address(config)),
    )
}

/// `host:port/database`.
fn place(config: &Config) -> String {
    let hosts = config.get_hosts().iter().enumerate().map(|(index, host)| {
        let ports = config.get_ports();
        let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(host) => format!("{host}:{port}"),
            #[cfg(unix)]
            Host::Unix(folder) => format!("{}:{port}", folder.display()),
        }
    });
    let hosts = hosts.collect::<Vec<_>>().join(",");
    let database = config.get_dbname().or(config.get_user()).unwrap_or("");
    format!("{hosts}/{database}")
}

struct Address(Config);

impl Server for Address {
    fn connect(&self, table: &Arc<Table>) -> Attempt<Box<dyn Client>> {
        let mut client = self.0.connect(NoTls).map_err(failure)?;
        // Times as strings are in UTC and in ISO format, whatever the server's settings.
        let settings = "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; \
                        SET client_min_messages = 'warning'";
        client.batch_execute(settings).map_err(failure)?;
        let actual = columns(&mut client, table)?;
        Ok(Box::new(PostgresClient {
            table: Arc::clone(table),
            statements: Statements::new(table, &actual)?,
            client,
            prepared: HashMap::new(),
        }))
    }

    fn takes_zeros(&self) -> bool {
        false
    }
}

/// Names and types of the table's columns.
fn columns(client: &mut postgres::Client, table: &Table) -> Attempt<Vec<(String, String)>> {
    let sql = "SELECT attname::text, format_type(atttypid, -1)::text FROM pg_attribute \
               WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum";
    let rows = client.query(sql, &[&quoted_path(&table.name)]);
    let rows = rows.map_err(failure)?;
    if !rows.is_empty() {
        return Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect());
    }
    let sql = "SELECT CASE WHEN pg_table_is_visible(c.oid) THEN relname::text ELSE nspname || '.' || \
        relname END \
               FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace \
               WHERE relkind IN ('r', 'v', 'm', 'p', 'f') AND nspname NOT IN ('pg_catalog', \
               'information_schema')";
    let tables = client.query(sql, &[]).map_err(failure)?;
    let tables = tables.iter().map(|row| row.get(0));
    Err(no_table(&table.name, &tables.collect::<Vec<String>>()))
}

fn failure(error: postgres::Error) -> Failure {
    let Some(said) = error.as_db_error() else {
        let source = error.source();
        let is_io = source.is_some_and(|source| source.is::<std::io::Error>());
        let text = error.to_string();
        let is_lost = error.is_closed() || is_io || text.contains("timeout");
        let reason = match source.map(ToString::to_string) {
            Some(source) if !text.contains(&source) => format!("{text}: {source}"),
            _ => text,
        };
        return Failure {
            passes: is_lost,
            is_lost,
            ..Failure::new(reason)
        };
    };
    let detail = said.detail().map(|detail| format!(": {detail}"));
    let reason = format!("{}{}", said.message(), detail.unwrap_or_default());
    let code = said.code().code();
    // The server is stopping or not available yet: connection exceptions, shutdown, crash, starting up.
    let is_lost = code.starts_with("08") || matches!(code, "57P01" | "57P02" | "57P03");
    // Too many connections, and transactions that conflict.
    let passes = is_lost || matches!(code, "53300" | "40001" | "40P01");
    let hint = match (said.hint(), code) {
        (Some(hint), _) => hint.to_string(),
        (None, "28P01" | "28000") => {
            "'username' and 'password' say who it is, or the variable PGPASSWORD".to_string()
        }
        (None, "42P10") => {
            "the table needs a unique index over the columns of PRIMARY KEY".to_string()
        }
        _ => String::new(),
    };
    Failure {
        passes,
        is_lost,
        ..Failure::new(reason).hint(hint)
    }
}

struct PostgresClient {
    table: Arc<Table>,
    statements: Statements,
    client: postgres::Client,
    /// The prepared statements.
    prepared: HashMap<String, Statement>,
}

impl PostgresClient {
    fn prepared(&mut self, sql: &str) -> Attempt<Statement> {
        if let Some(known) = self.prepared.get(sql) {
            return Ok(known.clone());
        }
        let statement = self.client.prepare(sql).map_err(failure)?;
        self.prepared.insert(sql.to_string(), statement.clone());
        Ok(statement)
    }

    /// Runs a statement with an array for each column of the rows.
    fn with_rows(&mut self, sql: &str, rows: &[RowText], columns: usize) -> Attempt<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let statement = self.prepared(sql)?;
        let column = |column: usize| {
            let values = rows.iter().map(|row| row[column].as_deref());
            values.collect::<Vec<Option<&str>>>()
        };
        let arrays = (0..columns).map(column).collect::<Vec<_>>();
        let arrays = arrays.iter().map(|array| array as &(dyn ToSql + Sync));
        let arrays = arrays.collect::<Vec<_>>();
        let done = self.client.execute(&statement, &arrays);
        done.map(|_| ()).map_err(failure)
    }

    /// Passes on the rows of a statement, of which the first `skipped` columns are not strings.
    fn each_row(
        &mut self,
        sql: &str,
        arrays: &[Vec<Option<&str>>],
        skipped: usize,
        each: &mut dyn FnMut(&postgres::Row, crate::database::Row<'_>) -> bool,
    ) -> Attempt<()> {
        let statement = self.prepared(sql)?;
        let rows = self.client.query_raw(&statement, arrays);
        let mut rows = rows.map_err(failure)?;
        while let Some(row) = rows.next().map_err(failure)? {
            let mut values = Vec::with_capacity(row.len());
            for column in skipped..row.len() {
                let text: Option<&str> = row.try_get(column).map_err(failure)?;
                values.push(text.map(str::as_bytes));
            }
            if !each(&row, &values) {
                break;
            }
        }
        Ok(())
    }
}

impl Client for PostgresClient {
    fn scan(&mut self, select: &Select, each: &mut EachRow<'_>) -> Attempt<()> {
        let sql = self.statements.scan(&self.table, select);
        self.each_row(&sql, &[], 0, &mut |_, row| each(row))
    }

    fn look_up(
        &mut self,
        select: &Select,
        keys: &[Vec<String>],
        each: &mut EachFound<'_>,
    ) -> Attempt<()> {
        let sql = self.statements.look_up(&self.table, select);
        let keys = keys.iter().zip(&select.keys).map(|(strings, &column)| {
            let is_time = self.table.schema.field(column).data_type().is_temporal();
            // No table contains such a key, and asking for it would be an error.
            let is_known =
                |text: &&str| !(text.contains('\0') || is_time && text.starts_with(['-', '+']));
            let strings = strings.iter().map(|text| Some(&text[..]).filter(is_known));
            strings.collect::<Vec<Option<&str>>>()
        });
        let keys = keys.collect::<Vec<_>>();
        self.each_row(&sql, &keys, 1, &mut |row, values| {
            let number: i64 = row.get(0);
            each((number - 1) as u32, values)
        })
    }

    fn begin(&mut self) -> Attempt<()> {
        self.client.batch_execute("BEGIN").map_err(failure)
    }

    fn write(&mut self, changes: &Changes) -> Attempt<()> {
        let insert = self.statements.insert(&self.table);
        let columns = self.table.schema.fields().len();
        self.with_rows(&insert, &changes.rows, columns)?;
        if changes.deleted.is_empty() {
            return Ok(());
        }
        let delete = self.statements.delete(&self.table);
        let columns = self.table.primary_key.len();
        self.with_rows(&delete, &changes.deleted, columns)
    }

    fn note(&mut self, statement: &str, strings: &[&str]) -> Attempt<Vec<String>> {
        if strings.is_empty() {
            // COMMIT, and tables that are checked or created.
            return match self.client.batch_execute(statement) {
                Ok(()) => Ok(Vec::new()),
                Err(error) => Err(failure(error)),
            };
        }
        let statement = self.prepared(statement)?;
        let strings = strings.iter().map(|text| text as &(dyn ToSql + Sync));
        let rows = self.client.query(&statement, &strings.collect::<Vec<_>>());
        let rows = rows.map_err(failure)?;
        let first = rows.iter().map(|row| row.try_get(0));
        let first = first.collect::<Result<Vec<String>, _>>();
        first.map_err(failure)
    }
}
