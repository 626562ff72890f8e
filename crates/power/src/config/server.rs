//! `[[redis]]`: where servers are found, how to log in, and which process they are if they can't say it.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

use super::{BYTES_MAX, parsed};
use crate::client::Login;
use crate::error::{Error, Result};
use crate::seed::{Kind, Seed};

/// The most Sentinels of a master.
const SENTINELS_MAX: usize = 16;

/// Where servers are found, and how to log in.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// Where.
    pub seed: Seed,
    /// The user and where the password is, if there is one.
    pub login: Option<Secret>,
    /// The same for the Sentinel itself, if that differs.
    pub sentinel_login: Option<Secret>,
    /// The process, if the server can't name it.
    pub process: Option<Process>,
}

impl Server {
    /// Reads the passwords.
    pub fn logins(&self) -> Result<Logins> {
        let read = |secret: &Option<Secret>| secret.as_ref().map(Secret::login).transpose();
        Ok(Logins {
            server: read(&self.login)?,
            sentinel: read(&self.sentinel_login)?,
        })
    }

    /// A server that needs no login and names its process.
    pub fn at(seed: Seed) -> Self {
        Self {
            seed,
            login: None,
            sentinel_login: None,
            process: None,
        }
    }
}

/// What a configured place is logged in to with.
#[derive(Debug, Clone, Default)]
pub struct Logins {
    /// Servers.
    pub server: Option<Login>,
    /// The Sentinel, if it has a login of its own.
    pub sentinel: Option<Login>,
}

/// Which process a server is, where its own answer can't be verified: it is in another PID namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Process {
    /// This one.
    Pid(u32),
    /// One of this unit of systemd.
    Unit(String),
    /// One of this control group, a path below its root.
    Cgroup(String),
}

/// A user, and where the password is.
#[derive(Debug, Clone, PartialEq)]
pub struct Secret {
    user: Option<String>,
    place: Place,
}

#[derive(Debug, Clone, PartialEq)]
enum Place {
    File(PathBuf),
    Variable(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerTable {
    #[serde(default, deserialize_with = "url")]
    url: Option<Seed>,
    #[serde(default, deserialize_with = "sentinels")]
    sentinel: Vec<(String, u16)>,
    #[serde(default, deserialize_with = "master_name")]
    name: Option<String>,
    user: Option<String>,
    password_file: Option<PathBuf>,
    password_env: Option<String>,
    sentinel_user: Option<String>,
    sentinel_password_file: Option<PathBuf>,
    #[serde(default, deserialize_with = "pid")]
    pid: Option<u32>,
    #[serde(default, deserialize_with = "unit")]
    unit: Option<String>,
    #[serde(default, deserialize_with = "cgroup")]
    cgroup: Option<String>,
}

fn url<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<Seed>, D::Error> {
    parsed(from, Seed::parse).map(Some)
}

fn sentinels<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<Vec<(String, u16)>, D::Error> {
    let all = Vec::<String>::deserialize(from)?;
    let wrong = <D::Error as serde::de::Error>::custom::<String>;
    if all.is_empty() || all.len() > SENTINELS_MAX {
        return Err(wrong(format!(
            "{} Sentinels: list 1 to {SENTINELS_MAX}, such as [\"10.0.0.1:26379\"]",
            all.len()
        )));
    }
    let read = all.iter().map(|text| Seed::sentinel_address(text));
    read.collect::<std::result::Result<_, String>>()
        .map_err(wrong)
}

fn master_name<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<Option<String>, D::Error> {
    parsed(from, |text| match Seed::is_name(text) {
        true => Ok(Some(text.to_string())),
        false => Err(format!("'{text}' is not a name that Sentinel accepts")),
    })
}

fn pid<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<u32>, D::Error> {
    let pid = u32::deserialize(from)?;
    match pid {
        // The first process of the host is no server.
        0 | 1 => Err(serde::de::Error::custom(format!(
            "{pid} is not the process of a server on this host"
        ))),
        pid => Ok(Some(pid)),
    }
}

fn unit<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<String>, D::Error> {
    parsed(from, |text| {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || "@._-:\\".contains(c);
        let is_unit = text.ends_with(".service") || text.ends_with(".scope");
        match is_unit && text.len() <= 255 && text.chars().all(is_valid) {
            true => Ok(Some(text.to_string())),
            false => Err(format!(
                "'{text}' is not the name of a unit: write such as \"redis-server.service\""
            )),
        }
    })
}

fn cgroup<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<String>, D::Error> {
    parsed(from, |text| {
        let is_path = text.starts_with('/') && text.len() > 1 && !text.contains('\0');
        match is_path && text.split('/').all(|part| part != "..") {
            true => Ok(Some(text.to_string())),
            false => Err(format!(
                "'{text}' is not the path of a control group: write it as /proc/PID/cgroup shows it, such as \
                 \"/system.slice/docker-0123.scope\""
            )),
        }
    })
}

/// Checks what only the whole table shows, at this place, and reads it.
pub(super) fn read(
    place: &str,
    table: ServerTable,
    warnings: &mut Vec<String>,
) -> Result<Vec<Server>> {
    let wrong = |what: &str, hint: &str| Error::usage(place, what).hint(hint);
    const WHERE: &str =
        "write url = \"redis://host:port\", or sentinel = [\"host:port\"] with name = \"mymaster\"";
    let seeds = match (table.url, table.sentinel, table.name) {
        (Some(seed), sentinels, None) if sentinels.is_empty() => vec![seed],
        (Some(_), _, _) => {
            return Err(wrong(
                "[[redis]] has url, and sentinel or name",
                "remove one of the two, or write a [[redis]] for each",
            ));
        }
        (None, sentinels, None) if sentinels.is_empty() => {
            return Err(wrong("[[redis]] does not say where its server is", WHERE));
        }
        (None, sentinels, Some(name)) if !sentinels.is_empty() => {
            let seeds = sentinels.into_iter();
            let seeds = seeds.map(|(host, port)| Seed::of_sentinel(host, port, &name));
            seeds.collect::<Vec<Seed>>()
        }
        (None, _, None) => {
            return Err(wrong(
                "[[redis]] has sentinel and no name of a master",
                "add name = \"mymaster\", as `sentinel monitor` has it",
            ));
        }
        (None, _, Some(_)) => {
            return Err(wrong(
                "[[redis]] has the name of a master and no sentinel",
                "add sentinel = [\"host:port\"]",
            ));
        }
    };
    let user = table.user.or_else(|| seeds[0].user.clone());
    let secret = match (table.password_file, table.password_env) {
        (Some(_), Some(_)) => {
            return Err(wrong(
                "[[redis]] has password_file and password_env",
                "remove one of the two",
            ));
        }
        (Some(file), None) => Some(Place::File(file)),
        (None, Some(variable)) => Some(Place::Variable(variable)),
        (None, None) => None,
    };
    if user.is_some() && secret.is_none() {
        return Err(wrong(
            "[[redis]] has a user and no password",
            "add password_file or password_env",
        ));
    }
    let asks_sentinel = matches!(seeds[0].kind, Kind::Sentinel(_));
    let sentinel_secret = table.sentinel_password_file.map(Place::File);
    let is_for_sentinel = sentinel_secret.is_some() || table.sentinel_user.is_some();
    if is_for_sentinel && !asks_sentinel {
        return Err(wrong(
            "[[redis]] has a login for Sentinel and no Sentinel",
            "write user and password_file, or add sentinel and name",
        ));
    }
    if table.sentinel_user.is_some() && sentinel_secret.is_none() {
        return Err(wrong(
            "[[redis]] has sentinel_user and no password",
            "add sentinel_password_file",
        ));
    }
    let process = match (table.pid, table.unit, table.cgroup) {
        (None, None, None) => None,
        (Some(pid), None, None) => Some(Process::Pid(pid)),
        (None, Some(unit), None) => Some(Process::Unit(unit)),
        (None, None, Some(cgroup)) => Some(Process::Cgroup(cgroup)),
        _ => {
            return Err(wrong(
                "[[redis]] has more than one of pid, unit and cgroup",
                "keep one of them",
            ));
        }
    };
    // The process with the permissions has no network, and looks up no name.
    let is_one = seeds[0].kind == Kind::Server && seeds[0].host.parse::<IpAddr>().is_ok();
    if process.is_some() && !is_one {
        return Err(wrong(
            "[[redis]] names a process, and its url no address of this host",
            "write url = \"redis://127.0.0.1:6379\", a [[redis]] for each server",
        ));
    }
    let files = [&secret, &sentinel_secret].into_iter().flatten();
    for file in files.filter_map(Place::file) {
        let mode = fs::metadata(file).map(|metadata| metadata.permissions().mode());
        if mode.is_ok_and(|mode| mode & 0o077 != 0) {
            warnings.push(format!(
                "{}: can be read by others; chmod 600 it",
                file.display()
            ));
        }
    }
    let login = secret.map(|place| Secret { user, place });
    let sentinel_login = sentinel_secret.map(|place| Secret {
        user: table.sentinel_user,
        place,
    });
    let servers = seeds.into_iter().map(|seed| Server {
        seed,
        login: login.clone(),
        sentinel_login: sentinel_login.clone(),
        process: process.clone(),
    });
    Ok(servers.collect())
}

impl Place {
    fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Variable(_) => None,
        }
    }
}

impl Secret {
    /// A password that a variable holds.
    pub(super) fn of_variable(user: Option<String>, variable: &str) -> Self {
        Self {
            user,
            place: Place::Variable(variable.to_string()),
        }
    }

    /// A password that a file holds.
    #[cfg(test)]
    pub(super) fn of_file(path: &str) -> Self {
        Self {
            user: None,
            place: Place::File(path.into()),
        }
    }

    /// Reads the password.
    pub fn login(&self) -> Result<Login> {
        let password = match &self.place {
            Place::Variable(name) => std::env::var(name).map_err(|_| {
                Error::usage(format!("${name}"), "is not set, or not UTF-8")
                    .hint("it holds the password")
            })?,
            Place::File(path) => {
                let failed = |error: std::io::Error| Error::usage(path.display(), error);
                if fs::metadata(path).map_err(failed)?.len() > BYTES_MAX {
                    return Err(Error::usage(path.display(), "is too long for a password"));
                }
                let text = fs::read_to_string(path).map_err(failed)?;
                text.trim_end_matches(['\r', '\n']).to_string()
            }
        };
        if password.is_empty() {
            let place = match &self.place {
                Place::File(path) => path.display().to_string(),
                Place::Variable(name) => format!("${name}"),
            };
            return Err(Error::usage(place, "holds an empty password"));
        }
        Ok(Login {
            user: self.user.clone(),
            password,
        })
    }
}
