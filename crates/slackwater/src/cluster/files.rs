//! Asks hosts for files that other hosts don't have.

use std::collections::BTreeMap;

use slackwater_connect::{Files, findings};
use slackwater_sql::SqlError;
use slackwater_sql::program::Program;
use slackwater_sql::table::{HOST, Table};

use super::orchestrator::Gathered;
use super::sameness::{folder, path_of};
use crate::bound::of_name;
use crate::catalog::{is_elsewhere, option_error, reads_per_host};
use crate::hosts::Ask;

/// What hosts have found.
#[derive(Debug, Default)]
pub struct FoundFiles {
    /// What the connectors of tables are told, by table.
    pub findings: BTreeMap<String, String>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Looks for the files of tables that not all hosts have, on the hosts that have them.
///
/// # Errors
///
/// If a table's host isn't there, or files can't be found, at the table's place in the SQL.
pub fn find_elsewhere(program: &Program, gathered: &Gathered) -> Result<FoundFiles, SqlError> {
    let mut all = FoundFiles::default();
    for (_, source) in program.sources() {
        let table = &source.table;
        let Some((_, pattern)) = path_of(table) else {
            continue;
        };
        if !is_elsewhere(table, &gathered.names[0])? || all.findings.contains_key(&table.name) {
            continue;
        }
        let per_host = reads_per_host(table)?;
        let hosts = match table.options.get(HOST) {
            Some(name) => vec![of_name(table, name, &gathered.names)?],
            None => {
                let hosts = 0..gathered.hosts.len();
                hosts.filter(|&host| gathered.works[host]).collect()
            }
        };
        let mut found = Vec::new();
        for host in hosts {
            let files = ask(table, pattern, host, gathered)?;
            let name = &gathered.names[host];
            if files.is_empty() {
                let table = &table.name;
                let note = format!("table '{table}': no file matches '{pattern}' on {name}");
                all.notes.push(note);
            }
            found.push((name.clone(), files));
        }
        let findings = findings(found, per_host).map_err(|error| option_error(table, error))?;
        all.findings.insert(table.name.clone(), findings);
    }
    Ok(all)
}

fn ask(table: &Table, pattern: &str, host: usize, gathered: &Gathered) -> Result<Files, SqlError> {
    let ask = Ask {
        folder: folder().map_err(SqlError::new)?,
        patterns: vec![pattern.to_string()],
        ..Ask::default()
    };
    let found = gathered.hosts[host].look(&ask);
    let found = found.map_err(|error| SqlError::new(error.to_string()))?;
    let name = &gathered.names[host];
    let place = path_of(table).and_then(|(option, _)| table.option_places.get(option));
    let failed = |reason: &str| {
        let table_name = &table.name;
        let error = SqlError::new(format!("table '{table_name}', on {name}: {reason}"));
        error.at(place.copied().unwrap_or(table.span))
    };
    match found.matches.into_iter().next() {
        Some(Ok(files)) => Ok(files),
        Some(Err(error)) => Err(failed(&error.reason).hint(error.hint)),
        None => Err(failed("the host did not answer the question")),
    }
}
