//! Rejects programs in which two sinks would overwrite each other's output, or a sink would overwrite an
//! input.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use slackwater_connect::Exclusive;
use slackwater_sql::error::SqlError;
use slackwater_sql::program::Program;
use slackwater_sql::table::Table;

use super::kind::connector_of;

/// Rejects two sinks that share what each needs for itself ([`Exclusive`]), and a sink whose file is also
/// read.
pub fn check(program: &Program) -> std::result::Result<(), SqlError> {
    let mut written: HashMap<PathBuf, &str> = HashMap::new();
    let mut sinks: HashMap<String, &str> = HashMap::new();
    let read = read(program);
    let tables = program.sinks().filter_map(|(_, sink)| sink.table.as_ref());
    for table in tables {
        let option = match connector_of(table).map(|kind| kind.exclusive) {
            Some(Exclusive::File(option)) => option,
            Some(Exclusive::Name(option)) => {
                let name = table.options.get(option).unwrap_or(&table.name);
                if let Some(other) = sinks.insert(name.clone(), &table.name) {
                    return Err(same_name(table, other, option, name));
                }
                continue;
            }
            Some(Exclusive::Nothing) | None => continue,
        };
        let Some(path) = table.options.get(option) else {
            continue;
        };
        let place = table.option_places.get(option).copied();
        let place = place.unwrap_or(table.span);
        if let Some(source) = read.get(&real_path(Path::new(path))) {
            let reason = format!(
                "table '{}' writes to {path}, which table '{source}' reads",
                table.name
            );
            let hint = "the query would overwrite its input: use another path";
            return Err(SqlError::new(reason).at(place).hint(hint));
        }
        let Some(other) = written.insert(real_path(Path::new(path)), &table.name) else {
            continue;
        };
        let reason = if other == table.name {
            format!("two queries write to table '{other}', which is {path}")
        } else {
            format!(
                "tables '{other}' and '{}' write to the same {path}",
                table.name
            )
        };
        return Err(SqlError::new(reason)
            .at(place)
            .hint("combine the queries with UNION ALL, or give each its own path"));
    }
    Ok(())
}

/// The files that tables read, with the names of the tables.
fn read(program: &Program) -> HashMap<PathBuf, &str> {
    let sources = program.sources().map(|(_, source)| &source.table);
    let paths = sources.filter_map(|table| {
        let path = table.options.get(connector_of(table)?.path?)?;
        Some((path, &table.name[..]))
    });
    // A pattern does not name a file.
    let files = paths.map(|(path, name)| (real_path(Path::new(path)), name));
    files.collect()
}

fn same_name(table: &Table, other: &str, option: &str, name: &str) -> SqlError {
    let (reason, hint) = match other == table.name {
        true => (
            format!("two queries write to table '{other}'"),
            "combine the queries with UNION ALL",
        ),
        false => (
            format!(
                "tables '{other}' and '{}' have the same '{option}', '{name}'",
                table.name
            ),
            "give each its own name",
        ),
    };
    SqlError::new(reason).at(table.span).hint(hint)
}

/// The canonical path of a file, which may not exist yet.
fn real_path(path: &Path) -> PathBuf {
    let known = path.canonicalize().or_else(|_| {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.canonicalize()?,
            _ => std::env::current_dir()?,
        };
        Ok::<PathBuf, std::io::Error>(folder.join(path.file_name().unwrap_or_default()))
    });
    known.unwrap_or_else(|_| path.to_path_buf())
}
