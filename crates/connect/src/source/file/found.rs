//! Finding the files of a table: those of this host, or those that other hosts have.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use slackwater_engine::source::Spread;

use crate::options::OptionError;

/// The most files of one table: all are open at once, and the usual limit is 1,024 descriptors.
pub(crate) const FILES_MAX: usize = 1_000;

/// A file as it was found when the table was made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct FoundFile {
    /// The host that has it, if each host has its own.
    pub(super) host: Option<String>,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

impl FoundFile {
    /// The name of its partition: with the host, if each has its own.
    pub(super) fn name(&self) -> String {
        let path = self.path.display();
        match &self.host {
            Some(host) => format!("{host}:{path}"),
            None => path.to_string(),
        }
    }
}

/// The hosts that have these files, which are sorted.
pub(super) fn spread(files: &[FoundFile]) -> Spread {
    let mut hosts = BTreeMap::<&String, usize>::new();
    for host in files.iter().filter_map(|file| file.host.as_ref()) {
        *hosts.entry(host).or_default() += 1;
    }
    Spread::new(hosts.into_iter().map(|(host, files)| (host.clone(), files)))
}

/// Files with their lengths.
pub type Files = Vec<(PathBuf, u64)>;

/// What hosts have found of a table, as [`Findings::Told`] has it. With `per_host`, each of them reads its
/// own.
///
/// # Errors
///
/// If these are no files, or too many, or if a path can't be sent to other hosts.
///
/// [`Findings::Told`]: crate::Findings::Told
pub fn findings(
    found: impl IntoIterator<Item = (String, Files)>,
    per_host: bool,
) -> Result<String, OptionError> {
    let mut all = Vec::new();
    for (host, files) in found {
        let host = per_host.then_some(host);
        all.extend(files.into_iter().map(|(path, bytes)| FoundFile {
            host: host.clone(),
            path,
            bytes,
        }));
    }
    if all.is_empty() {
        let hint = "check the path on each host: relative paths begin where `run` was given";
        return Err(OptionError::new("path", "no host has such a file", hint));
    }
    if all.len() > FILES_MAX {
        let reason = format!("there are more than {FILES_MAX} such files on all hosts together");
        return Err(OptionError::new("path", reason, JOIN_FILES));
    }
    all.sort();
    text(&all).ok_or_else(|| {
        OptionError::new(
            "path",
            "the name of a file is not UTF-8, and can't be sent to other hosts",
            "rename it",
        )
    })
}

/// Files as text for other processes; `None` if a path is not UTF-8.
pub(super) fn text(files: &[FoundFile]) -> Option<String> {
    serde_json::to_string(files).ok()
}

/// The files that another process or other hosts have found.
pub(super) fn told(findings: &str) -> Result<Vec<FoundFile>, OptionError> {
    serde_json::from_str::<Vec<FoundFile>>(findings).map_err(|error| {
        let reason = format!("what another process has found can't be read: {error}");
        OptionError::new("path", reason, "run the same program on every host")
    })
}

/// The files that a path or pattern names on this host.
pub(super) fn here(pattern: &str) -> Result<Vec<FoundFile>, OptionError> {
    let folder = Path::new("");
    let files = find_files(pattern, folder)?;
    if files.is_empty() {
        let reason = format!("no file matches '{pattern}'");
        return Err(OptionError::new("path", reason, relative_to(folder)));
    }
    let files = files.into_iter().map(|(path, bytes)| FoundFile {
        host: None,
        path,
        bytes,
    });
    Ok(files.collect())
}

/// The files that a path or pattern names, sorted; relative paths begin in `folder`. No file may match a
/// pattern.
///
/// # Errors
///
/// If there is no such file, or what is there can't be read as one.
pub fn find_files(pattern: &str, folder: &Path) -> Result<Files, OptionError> {
    let is_pattern = pattern.contains(['*', '?', '[']);
    if !is_pattern || folder.join(pattern).exists() {
        return Ok(vec![look(Path::new(pattern), folder)?]);
    }
    let whole = match folder.to_str() {
        Some("") => pattern.to_string(),
        _ if Path::new(pattern).is_absolute() => pattern.to_string(),
        Some(folder) => format!("{}/{pattern}", glob::Pattern::escape(folder)),
        None => {
            let reason = format!("the name of the folder {} is not UTF-8", folder.display());
            return Err(OptionError::new("path", reason, "write an absolute path"));
        }
    };
    let paths = glob::glob(&whole).map_err(|error| {
        let reason = format!("'{pattern}' is not a valid pattern: {}", error.msg);
        OptionError::new(
            "path",
            reason,
            "write * for any characters, ? for one, [ab] for a choice",
        )
    })?;
    let mut files = vec![];
    for path in paths {
        let path = path.map_err(|error| {
            let reason = format!(
                "can't read folder {}: {}",
                error.path().display(),
                error.error()
            );
            OptionError::new("path", reason, "check its permissions")
        })?;
        if !path.is_dir() {
            // As it was written: relative paths stay relative.
            let written = match Path::new(pattern).is_absolute() {
                true => path.as_path(),
                false => path.strip_prefix(folder).unwrap_or(&path),
            };
            files.push(look(written, folder)?);
        }
        if files.len() > FILES_MAX {
            let reason = format!("'{pattern}' matches more than {FILES_MAX} files");
            return Err(OptionError::new("path", reason, JOIN_FILES));
        }
    }
    files.sort();
    Ok(files)
}

/// The hint for too many files.
const JOIN_FILES: &str =
    "each file is a partition that is open all the time; join the files, or read fewer at a time";

/// Where relative paths begin.
fn relative_to(folder: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    // Joined part by part: an empty folder is none, and adds no slash.
    let folder = folder.components().fold(here, |path, part| path.join(part));
    format!("relative paths begin in {}", folder.display())
}

fn look(path: &Path, folder: &Path) -> Result<(PathBuf, u64), OptionError> {
    let shown = path.display();
    let metadata = folder.join(path).metadata().map_err(|error| {
        let hint = if path.to_string_lossy().contains("://") {
            "write a path of this machine, without a scheme such as file://".to_string()
        } else if error.kind() == ErrorKind::NotFound && path.is_relative() {
            relative_to(folder)
        } else {
            "check the path and its permissions".to_string()
        };
        OptionError::new("path", format!("can't find {shown}: {error}"), hint)
    })?;
    if metadata.is_dir() {
        let hint = format!(
            "write '{}/*' to read all files in it",
            shown.to_string().trim_end_matches('/')
        );
        return Err(OptionError::new(
            "path",
            format!("{shown} is a folder"),
            hint,
        ));
    }
    if !metadata.is_file() {
        return Err(OptionError::new(
            "path",
            format!("{shown} is not a regular file"),
            "read pipes with 'connector' = 'stdin'",
        ));
    }
    Ok((path.to_path_buf(), metadata.len()))
}
