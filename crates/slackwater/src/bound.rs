//! Which parts of a query are bound to a host: what reads or writes something that only one host has.
//!
//! A terminal, a listening socket and a file of one process are where the query was started, at *home*. A
//! table's option `'host'` names another host. Of a table with `'files' = 'per_host'`, each instance is bound
//! to the host whose files it reads.

use std::collections::BTreeMap;
use std::path::Path;

use slackwater_sql::SqlError;
use slackwater_sql::program::Program;
use slackwater_sql::table::{HOST, Table};

use crate::catalog::connector_of;

/// The number of the host where a query was started.
const HOME: usize = 0;

/// The option that says whether hosts have the same files.
pub const FILES: &str = "files";

/// Where the parts of a program run.
#[derive(Debug, Clone, Default)]
pub struct Bound {
    /// The host that each node is bound to; `None` if that is said of its instances, or not at all.
    pub of_node: Vec<Option<usize>>,
    /// The names of the hosts, home's first; empty on one host.
    names: Vec<String>,
}

impl Bound {
    /// Nothing is bound: there is one host.
    pub fn none(program: &Program) -> Bound {
        Bound {
            of_node: vec![None; program.nodes.len()],
            names: Vec::new(),
        }
    }

    /// What a program's tables bind its nodes to; `names` are those of the hosts, home's first.
    ///
    /// # Errors
    ///
    /// If a table names a host that isn't there.
    pub fn new(program: &Program, names: &[String]) -> Result<Bound, SqlError> {
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
        let bound = Bound {
            of_node: bound.collect::<Result<_, _>>()?,
            names: names.to_vec(),
        };
        for (_, source) in program.sources() {
            let spread = source.connector.describe().spread;
            if let Some(host) = spread.hosts().find(|host| bound.number(host).is_none()) {
                return Err(is_missing(&source.table, host, names));
            }
        }
        Ok(bound)
    }

    /// The host that an instance of a node is bound to.
    pub fn of_instance(&self, program: &Program, node: usize, instance: usize) -> Option<usize> {
        self.of_node[node].or_else(|| {
            let source = program.nodes[node].as_source().filter(|_| self.is_used())?;
            let spread = source.connector.describe().spread;
            self.number(spread.host_of(instance)?)
        })
    }

    /// What may run in one instance with what: nodes that have different numbers may not.
    pub fn groups(&self, program: &Program) -> Vec<Option<usize>> {
        let nodes = self.of_node.iter().enumerate();
        let groups = nodes.map(|(node, bound)| {
            let is_spread = program.nodes[node]
                .as_source()
                .is_some_and(|source| !source.connector.describe().spread.is_empty());
            match is_spread {
                true => Some(self.names.len() + node),
                false => *bound,
            }
        });
        groups.collect()
    }

    fn is_used(&self) -> bool {
        !self.names.is_empty()
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }
}

/// The hosts that a program can't do without, each with a table that needs it.
pub fn needed(program: &Program) -> BTreeMap<String, String> {
    let mut needed = BTreeMap::new();
    let mut need = |host: &str, table: &Table| {
        let table = table.name.clone();
        needed.entry(host.to_string()).or_insert(table);
    };
    for (_, source) in program.sources() {
        let spread = source.connector.describe().spread;
        let named = source.table.options.get(HOST);
        let hosts = spread.hosts().chain(named.map(String::as_str));
        hosts.for_each(|host| need(host, &source.table));
    }
    for (_, sink) in program.sinks() {
        if let Some(table) = &sink.table {
            let named = table.options.get(HOST);
            named.into_iter().for_each(|host| need(host, table));
        }
    }
    needed
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

/// The number of the host that a table names.
///
/// # Errors
///
/// If it isn't there.
pub fn of_name(table: &Table, name: &str, names: &[String]) -> Result<usize, SqlError> {
    let place = names.iter().position(|known| known == name);
    place.ok_or_else(|| is_missing(table, name, names))
}

fn is_missing(table: &Table, name: &str, names: &[String]) -> SqlError {
    let option = match table.options.contains_key(HOST) {
        true => HOST,
        false => FILES,
    };
    let place = table.option_places.get(option).copied();
    SqlError::new(format!(
        "table '{}', option '{option}': there is no host '{name}'",
        table.name
    ))
    .at(place.unwrap_or(table.span))
    .hint(format!("the hosts are: {}", names.join(", ")))
}
