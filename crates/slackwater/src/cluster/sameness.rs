//! Checks that all hosts of a query see the same files and folders, before anything of it runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slackwater_sql::SqlError;
use slackwater_sql::program::Program;
use slackwater_sql::table::Table;

use crate::bound::Bound;
use crate::catalog::connector_of;
use crate::hosts::{Ask, Host};

/// The name of a file that is written to see whether other hosts find it; removed at once.
const MARK: &str = ".slackwater-is-shared";

/// Checks the tables of a program, of which each node is `bound` to a host or runs on any. Files that only
/// some host has were found there, and are not compared.
///
/// # Errors
///
/// If a host lacks a file or has another one, or has another folder, at the table's place in the SQL.
pub fn check_tables(
    program: &Program,
    bound: &Bound,
    hosts: &[Arc<dyn Host>],
) -> Result<(), SqlError> {
    for (node, source) in program.sources() {
        let Some(files) = source
            .connector
            .files()
            .filter(|_| bound.of_node[node].is_none())
        else {
            continue;
        };
        check_files(&source.table, &files, hosts)?;
    }
    for (node, sink) in program.sinks() {
        let Some(table) = sink
            .table
            .as_ref()
            .filter(|_| bound.of_node[node].is_none())
        else {
            continue;
        };
        let Some((option, path)) = path_of(table) else {
            continue;
        };
        if let Err(other) = check_folder(Path::new(path), hosts) {
            let place = table.option_places.get(option).copied();
            return Err(SqlError::new(format!(
                "table '{}', option '{option}': {other}",
                table.name
            ))
            .at(place.unwrap_or(table.span))
            .hint("write to a folder that all hosts share, or name one host: 'host' = 'h1'"));
        }
    }
    Ok(())
}

/// The folder in which relative paths begin.
///
/// # Errors
///
/// If other hosts can't be told its name.
pub(super) fn folder() -> Result<PathBuf, String> {
    let folder = std::env::current_dir();
    let folder = folder.map_err(|error| format!("the working folder can't be found: {error}"))?;
    match folder.to_str() {
        Some(_) => Ok(folder),
        None => Err(format!(
            "the name of the working folder {} is not UTF-8, and can't be sent to other hosts: start the \
             query in another folder",
            folder.display()
        )),
    }
}

pub(super) fn path_of(table: &Table) -> Option<(&'static str, &String)> {
    let option = connector_of(table)?.path?;
    Some((option, table.options.get(option)?))
}

fn check_files(
    table: &Table,
    files: &[(PathBuf, u64)],
    hosts: &[Arc<dyn Host>],
) -> Result<(), SqlError> {
    if let Some((path, _)) = files.iter().find(|(path, _)| path.to_str().is_none()) {
        let reason = format!(
            "table '{}': the name of the file {} is not UTF-8, and can't be sent to other hosts",
            table.name,
            path.display()
        );
        return Err(SqlError::new(reason).at(table.span).hint("rename it"));
    }
    let ask = Ask {
        folder: folder().map_err(SqlError::new)?,
        files: files.iter().map(|(path, _)| path.clone()).collect(),
        ..Ask::default()
    };
    for host in hosts {
        let name = &host.facts().name;
        let found = host
            .look(&ask)
            .map_err(|error| SqlError::new(error.to_string()))?;
        if found.files.len() != files.len() {
            let reason = format!("{name} did not answer which files it has");
            return Err(SqlError::new(reason).at(table.span));
        }
        for ((path, expected), found) in files.iter().zip(found.files) {
            let path = path.display();
            let differs = match found {
                // It may have grown meanwhile.
                Ok(found) if found >= *expected => continue,
                Ok(found) => format!(
                    "{path} has {found} bytes on {name}, and {expected} where the query was started"
                ),
                Err(error) => format!("{path} can't be read on {name}: {error}"),
            };
            let option = path_of(table).map_or("path", |(option, _)| option);
            let place = table.option_places.get(option).copied();
            return Err(SqlError::new(format!(
                "table '{}', option '{option}': {differs}",
                table.name
            ))
            .at(place.unwrap_or(table.span))
            .hint(
                "share the folder with all hosts; or name the host that has it: 'host' = 'h1'; or, if each \
                 has files of its own: 'files' = 'per_host'",
            ));
        }
    }
    Ok(())
}

/// Checks that the folder of checkpoints is the same on all hosts.
///
/// # Errors
///
/// If a host has another one, as a sentence about it.
pub fn check_state(place: &str, hosts: &[Arc<dyn Host>]) -> Result<(), String> {
    let folder = match place.split_once("://") {
        None => place,
        Some(("file", folder)) => folder,
        // All hosts reach an object store, or say that they don't.
        Some(_) => return Ok(()),
    };
    check_folder(Path::new(folder), hosts).map_err(|other| {
        format!("--state: {other}\n  = name a folder that all hosts share, or s3://bucket/folder")
    })
}

/// Checks that a folder is the same on all hosts; creates it if need be.
fn check_folder(folder: &Path, hosts: &[Arc<dyn Host>]) -> Result<(), String> {
    let shown = folder.display();
    let mark = format!("{}-{}", std::process::id(), fastrand::u64(..));
    let file = folder.join(MARK);
    let failed = |error: std::io::Error| format!("can't write into {shown}: {error}");
    let made = made(folder);
    std::fs::create_dir_all(folder).map_err(failed)?;
    std::fs::write(&file, &mark).map_err(failed)?;
    let ask = Ask {
        folder: self::folder()?,
        marks: vec![(file.clone(), mark)],
        ..Ask::default()
    };
    let looked = hosts.iter().map(|host| (host, host.look(&ask)));
    let looked = looked.collect::<Vec<_>>();
    let _ = std::fs::remove_file(&file);
    let mut others = BTreeSet::new();
    for (host, found) in looked {
        let found = found.map_err(|error| error.to_string())?;
        if found.marks != [true] {
            others.insert(host.facts().name.clone());
        }
    }
    let others = others.into_iter().collect::<Vec<String>>();
    if others.is_empty() {
        return Ok(());
    }
    // What was created for the question only.
    for folder in made.iter().rev() {
        let _ = std::fs::remove_dir(folder);
    }
    let sees = if others.len() == 1 { "sees" } else { "see" };
    Err(format!(
        "{} {sees} another folder at {shown}",
        others.join(" and ")
    ))
}

/// The folders that have to be created for `folder`, the outermost first.
fn made(folder: &Path) -> Vec<PathBuf> {
    let all = folder
        .ancestors()
        .take_while(|ancestor| !ancestor.as_os_str().is_empty() && !ancestor.exists());
    let mut made = all.map(Path::to_path_buf).collect::<Vec<PathBuf>>();
    made.reverse();
    made
}
