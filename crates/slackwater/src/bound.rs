//! Which parts of a query are bound to a host: what reads or writes something that only one host has.
//!
//! A terminal, a listening socket and a file of one process are where the query was started, at *home*. A
//! table's option `'host'` names another host.

use std::path::Path;

use slackwater_sql::SqlError;
use slackwater_sql::program::Program;
use slackwater_sql::table::{HOST, Table};

use crate::catalog::connector_of;

/// The number of the host where a query was started.
const HOME: usize = 0;

/// The host that each node of a program is bound to; `names` are those of the hosts, home's first.
///
/// # Errors
///
/// If a table names a host that isn't there.
pub fn bound(program: &Program, names: &[String]) -> Result<Vec<Option<usize>>, SqlError> {
    let of_table = |table: &Table, is_sink: bool| {
        if let Some(name) = table.options.get(HOST) {
            return of_name(table, name, names).map(Some);
        }
        let kind = connector_of(table);
        let is_home = kind.is_some_and(|kind| kind.runs_at_home(&table.options, is_sink));
        Ok(is_home.then_some(HOME))
    };
    let bound = program.nodes.iter().map(|node| {
        if let Some(source) = node.as_source() {
            return of_table(&source.table, false);
        }
        match node.as_sink() {
            Some(sink) => match &sink.table {
                Some(table) => of_table(table, true),
                // Rows of a SELECT go to the terminal.
                None => Ok(Some(HOME)),
            },
            None => Ok(None),
        }
    });
    bound.collect()
}

/// Whether a table's files are named by a relative path.
pub fn has_relative_paths(program: &Program) -> bool {
    let is_relative = |table: &Table| {
        let path = connector_of(table).and_then(|kind| table.options.get(kind.path?));
        path.is_some_and(|path| Path::new(path).is_relative())
    };
    let mut sources = program.sources();
    let mut sinks = program.sinks();
    sources.any(|(_, source)| is_relative(&source.table))
        || sinks.any(|(_, sink)| sink.table.as_ref().is_some_and(|table| is_relative(table)))
}

fn of_name(table: &Table, name: &str, names: &[String]) -> Result<usize, SqlError> {
    let place = names.iter().position(|known| known == name);
    place.ok_or_else(|| {
        let option = table.option_places.get(HOST).copied();
        SqlError::new(format!(
            "table '{}', option '{HOST}': there is no host '{name}'",
            table.name
        ))
        .at(option.unwrap_or(table.span))
        .hint(format!("the hosts are: {}", names.join(", ")))
    })
}
