//! What the administrator wants: the configuration file, the command line's part of it, and passwords.
//!
//! Every value is checked while it is read, so an error names the file and the line.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, de};
use slackwater_control::power::assign::Lists;
use slackwater_control::power::{Cpu, Limits, Policy};
use toml::Spanned;

use crate::client::Login;
use crate::error::{Error, Result};
use crate::seed::Seed;
use crate::units;

mod server;

pub use server::Process;
pub use server::{Logins, Secret, Server};

use server::ServerTable;

/// How long a role must last before a core is slowed, if the configuration doesn't say.
const SETTLE_NS: u64 = 10_000_000_000;
/// The shortest lag that can be kept: beats are no shorter than 1 ms, and replicas need time to read.
const LAG_MIN_NS: u64 = 2_000_000;
/// The most bytes of a configuration file, or of a file with a password.
const BYTES_MAX: u64 = 1 << 20;

/// All settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// What is allowed.
    pub limits: Limits,
    /// Cores that the administrator gives.
    pub lists: Lists,
    /// Where servers are found.
    pub servers: Vec<Server>,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// Whether replicas may be batched: reads need not be fresh.
    pub batches: bool,
    /// What should be said though nothing is wrong.
    pub warnings: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, deserialize_with = "lag")]
    lag: Option<u64>,
    #[serde(default, deserialize_with = "loopback")]
    metrics: Option<SocketAddr>,
    #[serde(default)]
    redis: Vec<Spanned<ServerTable>>,
    #[serde(default)]
    cores: CoresTable,
    #[serde(default)]
    slow: SlowTable,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CoresTable {
    #[serde(default, deserialize_with = "cores")]
    fast: BTreeSet<Cpu>,
    #[serde(default, deserialize_with = "cores")]
    slow: BTreeSet<Cpu>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SlowTable {
    policy: Option<PolicyWord>,
    #[serde(default, deserialize_with = "frequency")]
    floor: Option<u32>,
    #[serde(default)]
    reads: ReadsWord,
    #[serde(default, deserialize_with = "duration")]
    read_delay: Option<u64>,
    #[serde(default, deserialize_with = "duration")]
    settle: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PolicyWord {
    Saturation,
    Load,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum ReadsWord {
    #[default]
    KeepUp,
    Fresh,
}

fn parsed<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: impl FnOnce(&str) -> std::result::Result<T, String>,
) -> std::result::Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).map_err(de::Error::custom)
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<u64>, D::Error> {
    parsed(from, units::duration_ns).map(Some)
}

fn lag<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<u64>, D::Error> {
    parsed(from, lag_ns).map(Some)
}

/// A lag that can be kept.
pub fn lag_ns(text: &str) -> std::result::Result<u64, String> {
    match units::duration_ns(text)? {
        short if short < LAG_MIN_NS => Err(format!(
            "a lag of '{text}' can't be kept: 2 ms are the least"
        )),
        lag => Ok(lag),
    }
}

fn frequency<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<u32>, D::Error> {
    parsed(from, units::frequency_khz).map(Some)
}

fn cores<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<BTreeSet<Cpu>, D::Error> {
    parsed(from, units::cpus)
}

fn loopback<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<Option<SocketAddr>, D::Error> {
    parsed(from, metrics_address).map(Some)
}

/// An address on which metrics may be served: whoever can read them sees what runs here.
pub fn metrics_address(text: &str) -> std::result::Result<SocketAddr, String> {
    let address = text.parse::<SocketAddr>();
    let address =
        address.map_err(|_| format!("'{text}' is not an address: write such as 127.0.0.1:9618"))?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err(format!(
            "metrics are served on this host only: write 127.0.0.1:{}",
            address.port()
        )),
    }
}

/// What the command line says beside the file.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// The configuration file.
    pub file: Option<PathBuf>,
    /// URLs of servers.
    pub urls: Vec<String>,
    /// The lag.
    pub lag_ns: Option<u64>,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
}

/// The variable with the password of servers that the command line names.
pub const PASSWORD_VARIABLE: &str = "SLACKWATER_POWER_PASSWORD";

/// The login that the environment gives.
pub fn login_of_variable() -> Option<Login> {
    let password = std::env::var(PASSWORD_VARIABLE).ok()?;
    Some(Login {
        user: None,
        password,
    })
}

/// Reads all settings. The command line wins over the file.
pub fn read(given: &Given) -> Result<Settings> {
    let text = given.file.as_deref().map(read_file).transpose()?;
    let text = text.unwrap_or_default();
    let file = match &given.file {
        Some(path) => parse(path, &text)?,
        None => File::default(),
    };
    let mut warnings = Vec::new();
    let mut servers = Vec::new();
    for url in &given.urls {
        let seed =
            Seed::parse(url).map_err(|what| Error::usage(shown(url), what).hint(URL_HINT))?;
        let is_set = std::env::var_os(PASSWORD_VARIABLE).is_some();
        let user = seed.user.clone();
        servers.push(Server {
            login: is_set.then(|| Secret::of_variable(user, PASSWORD_VARIABLE)),
            ..Server::at(seed)
        });
    }
    let path = given
        .file
        .as_deref()
        .unwrap_or(Path::new("the configuration"));
    for table in file.redis {
        let place = place_at(path, &text, table.span().start);
        servers.extend(server::read(&place, table.into_inner(), &mut warnings)?);
    }
    let both = file.cores.fast.intersection(&file.cores.slow);
    let both = both.copied().collect::<Vec<Cpu>>();
    if !both.is_empty() {
        let what = format!(
            "cores {} are listed as fast and slow",
            units::cpus_text(&both)
        );
        return Err(Error::usage(path.display(), what).hint("list each core once, in [cores]"));
    }
    Ok(Settings {
        limits: Limits {
            lag_ns: given.lag_ns.or(file.lag),
            policy: match file.slow.policy {
                Some(PolicyWord::Load) => Policy::Load,
                Some(PolicyWord::Saturation) | None => Policy::Saturation,
            },
            floor_khz: file.slow.floor,
            read_delay_ns: file.slow.read_delay,
            settle_ns: file.slow.settle.unwrap_or(SETTLE_NS),
        },
        lists: Lists {
            fast: file.cores.fast,
            slow: file.cores.slow,
        },
        servers,
        metrics: given.metrics.or(file.metrics),
        batches: file.slow.reads == ReadsWord::KeepUp,
        warnings,
    })
}

const URL_HINT: &str =
    "write redis://[user@]host:port, sentinel://host:port/name or cluster://host:port";

/// A URL without what could be a password.
fn shown(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => url.to_string(),
    }
}

fn read_file(path: &Path) -> Result<String> {
    let failed = |error: std::io::Error| Error::usage(path.display(), error);
    let size = fs::metadata(path).map_err(failed)?.len();
    if size > BYTES_MAX {
        return Err(Error::usage(
            path.display(),
            format!("has {size} bytes; {BYTES_MAX} are the most"),
        ));
    }
    fs::read_to_string(path).map_err(failed)
}

/// A file and a line of it.
fn place_at(path: &Path, text: &str, at: usize) -> String {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    format!("{}:{line}", path.display())
}

fn parse(path: &Path, text: &str) -> Result<File> {
    toml::from_str(text).map_err(|error| {
        let place = match error.span() {
            Some(span) => place_at(path, text, span.start),
            None => path.display().to_string(),
        };
        Error::usage(place, error.message().replace('\n', ": "))
            .hint("docs/power.md lists the keys; quantities are strings, such as lag = \"20 ms\"")
    })
}

#[cfg(test)]
mod tests;
