//! The arguments that `run` and `explain` share: which SQL to run, and how.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::machine::Machine;
use crate::run::STANDARD_INPUT;
use crate::script::Script;

#[derive(Args)]
pub(super) struct QueryArguments {
    /// File of SQL statements; - for standard input
    #[arg(required_unless_present = "execute")]
    file: Option<PathBuf>,
    /// SQL statements to run after those of the file; can be given several times
    #[arg(long, short, value_name = "SQL")]
    execute: Vec<String>,
    /// A setting, as with SET; overrides SET in the file and can be given several times
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    settings: Vec<(String, String)>,
    /// Instances of each subquery that can run in parallel, or auto for as many as the load
    /// needs [default: auto]
    #[arg(long, value_name = "N", value_parser = number_or("auto"))]
    parallelism: Option<String>,
    /// Worker threads [default: as --parallelism, at most the cores allowed]
    #[arg(long, value_name = "W")]
    workers: Option<usize>,
    /// Processes to distribute the threads over, or nodes for one on each NUMA node [default: 1, which is
    /// this process]
    #[arg(long, value_name = "P", value_parser = number_or("nodes"))]
    processes: Option<String>,
    /// How processes are connected: auto, shm or tcp [default: auto]
    #[arg(long, value_name = "KIND")]
    link: Option<String>,
    /// A machine with a built-in name (bullion-s16, for planning only) or described in a file (JSON, as
    /// slackwater topology --json prints it) [default: this machine]
    #[arg(long, value_name = "NAME|FILE")]
    topology: Option<String>,
}

impl QueryArguments {
    pub(super) fn settings(&self) -> Vec<(String, String)> {
        let mut settings = self.settings.clone();
        let parallelism = self.parallelism.iter();
        settings.extend(parallelism.map(|n| ("parallelism".to_string(), n.clone())));
        settings.extend(self.workers.map(|n| ("workers".to_string(), n.to_string())));
        let processes = self.processes.iter();
        settings.extend(processes.map(|n| ("processes".to_string(), n.clone())));
        let link = self.link.iter();
        settings.extend(link.map(|kind| ("link".to_string(), kind.clone())));
        settings
    }

    /// The machine to run on, if `--topology` describes one.
    pub(super) fn machine_here(&self) -> Result<Option<Machine>, String> {
        let topology = self.topology.as_deref();
        topology.map(Machine::described_as).transpose()
    }

    /// The machine to plan for.
    pub(super) fn machine(&self) -> Result<Machine, String> {
        match &self.topology {
            Some(topology) => Machine::planned_for(topology),
            None => Ok(Machine::this()),
        }
    }

    /// The SQL to run.
    pub(super) fn script(&self) -> Result<Script, String> {
        let mut script = Script::default();
        if let Some(file) = &self.file {
            script.add(&file.display().to_string(), &text_of(file)?);
        }
        for (index, text) in self.execute.iter().enumerate() {
            match self.execute.len() {
                1 => script.add("-e", text),
                // Numbered, so that messages say which one they are about.
                _ => script.add(&format!("-e {}", index + 1), text),
            }
        }
        Ok(script)
    }
}

/// The content of a file or of standard input.
fn text_of(file: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = if file.as_os_str() == STANDARD_INPUT {
        std::io::stdin().read_to_end(&mut bytes).map(|_| ())
    } else {
        std::fs::read(file).map(|read| bytes = read)
    };
    read.map_err(|error| format!("{}: {error}", file.display()))?;
    String::from_utf8(bytes).map_err(|error| format!("{}: {error}", file.display()))
}

/// Parses a whole number or a word; the setting checks the number's range.
fn number_or(word: &'static str) -> impl Fn(&str) -> Result<String, String> + Clone {
    move |text| match text == word || text.parse::<usize>().is_ok() {
        true => Ok(text.to_string()),
        false => Err(format!("expected a number or {word}")),
    }
}

pub(super) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) => Ok((key.trim().to_string(), value.trim().to_string())),
        None => Err("expected key=value".to_string()),
    }
}

/// Parses rows per second: `20000`, `20000/s`, `20k/s`, `1.5M/s`.
/// More rows per second than any machine will process.
const RATE_MAX: f64 = 1e12;

pub(super) fn rows_per_s(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches("/s").trim_end();
    let (number, factor) = match number.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1e3),
        None => match number.strip_suffix('M') {
            Some(number) => (number, 1e6),
            None => (number, 1.0),
        },
    };
    let rate = number.parse::<f64>().ok().map(|number| number * factor);
    rate.filter(|rate| *rate > 0.0 && *rate <= RATE_MAX)
        .ok_or_else(|| {
            "expected rows per second up to 1000000M, such as 20000/s or 20k/s".to_string()
        })
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    slackwater_engine::time::parse_duration_ns(text)
        .map(Duration::from_nanos)
        .ok_or_else(|| "expected a duration such as 20s, 500ms or 1min".to_string())
}
