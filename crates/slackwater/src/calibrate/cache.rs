//! The file in which calibration figures are saved between runs.
//!
//! The file is written under a temporary name and then renamed, so a reader finds either the old figures or
//! the new ones. A damaged file counts as missing and never makes a query fail.

use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::disturbance::implausible;
use super::{Calibration, FORMAT, Host};

/// The environment variable that names another folder than the usual one.
const FOLDER_VARIABLE: &str = "SLACKWATER_CACHE";

const FILE: &str = "calibration.json";

/// The most bytes that are read from the file; a file that was written here has about 10 kB.
const BYTES_MAX: u64 = 1 << 20;

/// The file's path: in `$SLACKWATER_CACHE`, else in `$XDG_CACHE_HOME/slackwater`, else
/// in `~/.cache/slackwater`. `None` without a home folder.
pub fn path() -> Option<PathBuf> {
    let folder = |name: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    let cache = || Some(folder("XDG_CACHE_HOME")?.join("slackwater"));
    let home = || Some(folder("HOME")?.join(".cache/slackwater"));
    let folder = folder(FOLDER_VARIABLE).or_else(cache).or_else(home)?;
    Some(folder.join(FILE))
}

/// Whether `$SLACKWATER_CACHE` names the folder.
pub fn is_folder_named() -> bool {
    std::env::var_os(FOLDER_VARIABLE).is_some_and(|folder| !folder.is_empty())
}

/// Why there are no usable figures.
#[derive(Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The reason, with the path.
    pub reason: String,
    /// Whether there is a file, so this host or another one was calibrated before.
    pub measured_before: bool,
}

impl fmt::Display for Unusable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.reason)
    }
}

/// Reads the figures of this host and version.
pub fn load() -> Result<Calibration, Unusable> {
    let path = path().ok_or_else(|| Unusable {
        reason: nowhere(),
        measured_before: false,
    })?;
    load_from(&path, &Host::this(), env!("CARGO_PKG_VERSION"))
}

/// Saves figures and returns the path.
pub fn store(calibration: &Calibration) -> Result<PathBuf, String> {
    let path = path().ok_or_else(nowhere)?;
    store_in(&path, calibration)?;
    Ok(path)
}

fn nowhere() -> String {
    format!("there is no home folder to save figures in: set {FOLDER_VARIABLE} to a folder")
}

fn load_from(path: &Path, host: &Host, version: &str) -> Result<Calibration, Unusable> {
    let stale = |reason: &str| Unusable {
        reason: format!("{}: {reason}", path.display()),
        measured_before: true,
    };
    let text = match read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Unusable {
                measured_before: false,
                ..stale("this host has not been calibrated yet")
            });
        }
        Err(error) => return Err(stale(&format!("can't be read ({error})"))),
    };
    // The format is read first: another one may have other fields.
    #[derive(serde::Deserialize)]
    struct Format {
        format: u32,
    }
    let format = serde_json::from_str::<Format>(&text);
    let format = format.map_err(|error| stale(&format!("is not a calibration ({error})")))?;
    if format.format != FORMAT {
        let format = format.format;
        return Err(stale(&format!(
            "has format {format}, but this program reads format {FORMAT}"
        )));
    }
    let calibration = serde_json::from_str::<Calibration>(&text);
    let calibration =
        calibration.map_err(|error| stale(&format!("is not a calibration ({error})")))?;
    if calibration.version != version {
        let measured = &calibration.version;
        return Err(stale(&format!(
            "was measured by version {measured}, this is {version}"
        )));
    }
    if calibration.host != *host {
        let measured = calibration.host.describe();
        return Err(stale(&format!("was measured on another host ({measured})")));
    }
    if let Some(reason) = implausible(&calibration.costs) {
        return Err(stale(&format!("is not used, because it holds {reason}")));
    }
    Ok(calibration)
}

fn read(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    let file = fs::File::open(path)?;
    file.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn store_in(path: &Path, calibration: &Calibration) -> Result<(), String> {
    let failed = |error: std::io::Error| {
        let folder = FOLDER_VARIABLE;
        let path = path.display();
        format!("{path}: {error}; {folder} may name another folder")
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let text = serde_json::to_string_pretty(calibration).map_err(|error| error.to_string())?;
    // Each process uses its own temporary name, so two that calibrate at once don't write into one file.
    let temporary = path.with_extension(format!("json.{}", std::process::id()));
    let written = fs::File::create(&temporary)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            // Otherwise a host that crashes now may keep the name and lose the content.
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::WaitCosts;

    fn figures() -> Calibration {
        Calibration {
            format: FORMAT,
            version: "1.2.3".to_string(),
            host: Host {
                machine_id: Some("0123".to_string()),
                processor: "a processor".to_string(),
                cores: 2,
                kernel: "6.1".to_string(),
                virtual_machine: true,
            },
            date: "2026-01-31T23:59:59Z".to_string(),
            quick: true,
            clock_ns: 20.0,
            costs: WaitCosts {
                wake_ns: 30_000,
                sleep_ns: 20_000,
                oversleep_p50_ns: 30_000,
                oversleep_p99_ns: 60_000,
            },
            wakes: Vec::new(),
            sleeps: Vec::new(),
            links: Vec::new(),
            activations: Vec::new(),
            more: None,
        }
    }

    fn refused(path: &Path, host: &Host, version: &str) -> String {
        let unusable = load_from(path, host, version).expect_err("not to be used");
        let under_a_file = path.parent().is_some_and(Path::is_file);
        assert_eq!(unusable.measured_before, path.exists() || under_a_file);
        unusable.reason
    }

    #[test]
    fn what_was_kept_is_found_again_by_the_same_host_and_version_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/folder").join(FILE);
        let kept = figures();
        let missing = refused(&path, &kept.host, "1.2.3");
        assert!(missing.contains("not been calibrated yet"), "{missing}");
        store_in(&path, &kept).unwrap();
        assert_eq!(load_from(&path, &kept.host, "1.2.3"), Ok(kept.clone()));
        let version = refused(&path, &kept.host, "1.2.4");
        assert!(version.contains("version 1.2.3"), "{version}");
        let changes: [fn(&mut Host); 4] = [
            |host| host.machine_id = None,
            |host| host.processor.push('2'),
            |host| host.cores += 1,
            |host| host.kernel.push_str(".1"),
        ];
        for change in changes {
            let mut other = kept.host.clone();
            change(&mut other);
            let reason = refused(&path, &other, "1.2.3");
            assert!(reason.contains("another host"), "{reason}");
        }
        // Nothing but the file is left.
        let names = fs::read_dir(path.parent().unwrap()).unwrap();
        assert_eq!(names.count(), 1);
    }

    #[test]
    fn garbage_is_no_figures_and_gives_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let kept = figures();
        let whole = serde_json::to_string(&kept).unwrap();
        let format = whole.replacen("\"format\":1", "\"format\":7", 1);
        let zero = whole.replacen("\"sleep_ns\":20000", "\"sleep_ns\":0", 1);
        let busy = whole.replacen(
            "\"oversleep_p99_ns\":60000",
            "\"oversleep_p99_ns\":968000000",
            1,
        );
        for (text, expected) in [
            (&whole[..whole.len() / 2], "not a calibration"),
            ("", "not a calibration"),
            ("{\"format\":1}", "not a calibration"),
            (&format, "format 7"),
            (&zero, "impossible"),
            (&busy, "968.00 ms at p99"),
        ] {
            fs::write(&path, text).unwrap();
            let reason = refused(&path, &kept.host, "1.2.3");
            assert!(reason.contains(expected), "{reason}");
        }
        fs::write(&path, b"\xff\xfe").unwrap();
        assert!(refused(&path, &kept.host, "1.2.3").contains("can't be read"));
        store_in(&path, &kept).unwrap();
        assert_eq!(load_from(&path, &kept.host, "1.2.3"), Ok(kept));
    }

    #[test]
    fn a_folder_that_can_not_be_made_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let path = file.join(FILE);
        let error = store_in(&path, &figures()).expect_err("a file is no folder");
        assert!(
            error.contains("file") && error.contains(FOLDER_VARIABLE),
            "{error}"
        );
        assert!(refused(&path, &figures().host, "1.2.3").contains("can't be read"));
    }
}
