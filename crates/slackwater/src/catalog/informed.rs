//! The connectors of a process that does not look for the files of its tables alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use slackwater_connect::{Findings, table_settings};
use slackwater_engine::operator::lookup_join::LookupConnector;
use slackwater_engine::sink::SinkConnector;
use slackwater_engine::source::SourceConnector;
use slackwater_sql::connectors::Connectors;
use slackwater_sql::error::Result;
use slackwater_sql::functions::DeclaredFunction;
use slackwater_sql::program::Program;
use slackwater_sql::statement::{Body, CreateFunction, CreateTable};
use slackwater_sql::table::{HOST, Table};

use super::tables::{BuiltIn, declared, definition, option_error};

/// The connectors of this build, for a process that is told what others have found.
#[derive(Debug, Clone, Copy)]
pub struct Informed<'a> {
    /// What others have found ([`SourceConnector::findings`]), by table.
    pub findings: &'a BTreeMap<String, String>,
    /// The name of this host, if files that only other hosts have will be looked for later.
    pub home: Option<&'a str>,
}

/// The name among findings of the text of a function's file: no table has one like it.
fn of_function(name: &str) -> String {
    format!("CREATE FUNCTION {}", name.to_lowercase())
}

/// What was read from the files of functions, which other processes of a query don't read.
pub fn files_of_functions(program: &Program) -> impl Iterator<Item = (String, String)> {
    let functions = program.functions.iter();
    functions.filter_map(|(name, function)| {
        let text = function.file_text()?;
        Some((of_function(name), text.to_string()))
    })
}

/// Whether each host reads its own files of a table.
///
/// # Errors
///
/// If an option of the table is wrong.
pub fn reads_per_host(table: &Table) -> Result<bool> {
    let settings = table_settings(&definition(table));
    Ok(settings
        .map_err(|error| option_error(table, error))?
        .per_host)
}

/// Whether other hosts than `home` have files of a table.
///
/// # Errors
///
/// If an option of the table is wrong.
pub fn is_elsewhere(table: &Table, home: &str) -> Result<bool> {
    let host = table.options.get(HOST);
    Ok(reads_per_host(table)? || host.is_some_and(|host| host != home))
}

impl Connectors for Informed<'_> {
    fn source(&self, table: &Table) -> Result<Arc<dyn SourceConnector>> {
        let mut definition = definition(table);
        definition.findings = match (self.findings.get(&table.name), self.home) {
            (Some(findings), _) => Findings::Told(findings.clone()),
            (None, Some(home)) if is_elsewhere(table, home)? => Findings::Later,
            (None, _) => Findings::Look,
        };
        let connector = slackwater_connect::source(&definition);
        connector.map_err(|error| option_error(table, error))
    }

    fn sink(&self, table: Option<&Table>, schema: &SchemaRef) -> Result<Arc<dyn SinkConnector>> {
        BuiltIn.sink(table, schema)
    }

    fn lookup(&self, table: &Table) -> Result<Option<Arc<dyn LookupConnector>>> {
        BuiltIn.lookup(table)
    }

    fn translate(&self, create: &mut CreateTable) -> Result<()> {
        BuiltIn.translate(create)
    }

    fn function(&self, create: &CreateFunction) -> Result<Arc<dyn DeclaredFunction>> {
        match (
            &create.body,
            self.findings.get(&of_function(&create.name.value)),
        ) {
            (Body::File(path), Some(text)) => declared(create, text.clone(), Some(path)),
            _ => BuiltIn.function(create),
        }
    }

    fn check(&self, table: &Table) -> Result<()> {
        BuiltIn.check(table)
    }

    fn table_options(&self) -> Vec<String> {
        BuiltIn.table_options()
    }
}
