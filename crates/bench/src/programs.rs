//! The programs that experiments start: the engine as users run it, the hand-written queries, and parts
//! of the experiment itself.

use std::fmt;
use std::io::Write;
use std::num::NonZeroUsize;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use slackwater::PROGRAM_VARIABLE;
use slackwater::report::count;

/// The engine: the program that started this one for its command `bench`, or `slackwater` in the folder
/// of this one.
///
/// # Errors
///
/// If there is none.
pub fn engine() -> Result<PathBuf, String> {
    if let Some(program) = std::env::var_os(PROGRAM_VARIABLE) {
        return Ok(program.into());
    }
    beside(
        "slackwater",
        "cargo build --release -p slackwater builds it",
    )
}

/// The hand-written queries that the engine is compared with.
///
/// # Errors
///
/// If the program does not exist; the message says how to build it.
pub fn by_hand() -> Result<PathBuf, String> {
    let hint = "it is the hand-written program that the engine is compared with: cargo build --release -p \
                slackwater-bench builds it";
    beside("slackwater-limit", hint)
}

/// The command that starts a part of an experiment as a process of its own; `descriptor` is its socket to
/// the parent process.
///
/// # Errors
///
/// If the path of this program is not known.
pub fn part(name: &str, descriptor: RawFd) -> Result<Command, String> {
    let mut command = itself()?;
    command.args([name, "--control"]);
    command.arg(descriptor.to_string());
    Ok(command)
}

/// The command that starts this program once more.
///
/// # Errors
///
/// If its path is not known.
pub fn itself() -> Result<Command, String> {
    this().map(Command::new)
}

/// The program `name` in the folder of this one.
fn beside(name: &str, hint: &str) -> Result<PathBuf, String> {
    let program = this()?.with_file_name(name);
    match program.is_file() {
        true => Ok(program),
        false => Err(format!("{}: not found\n  = {hint}", program.display())),
    }
}

fn this() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("the path of this program: {error}"))
}

/// The engine, which runs queries to the end of their input.
pub struct Engine {
    program: PathBuf,
    report: PathBuf,
}

/// The cost of a run of the engine: some fields of its report.
#[derive(Clone, Debug, Deserialize)]
pub struct Cost {
    /// Number of rows read.
    pub rows_in: u64,
    /// Number of rows rejected.
    pub rows_bad: u64,
    /// Number of late rows.
    pub rows_late: u64,
    /// Rows per second.
    pub rows_per_s: f64,
    /// Seconds from the first row to the end.
    pub wall_s: f64,
    /// CPU time of the whole process, including its start and the planning of the query.
    pub cpu_s: f64,
    /// Largest resident size.
    pub peak_rss_bytes: u64,
    /// Voluntary context switches.
    pub wakeups: u64,
}

/// The value of `--parallelism`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Parallelism {
    /// A number of instances.
    Fixed(NonZeroUsize),
    /// As the engine decides.
    Auto,
}

impl Parallelism {
    /// One instance of each subquery, on one core.
    pub const ONE: Parallelism = Parallelism::Fixed(NonZeroUsize::MIN);

    /// The number, if it is one.
    pub fn number(self) -> Option<usize> {
        match self {
            Parallelism::Fixed(number) => Some(number.get()),
            Parallelism::Auto => None,
        }
    }
}

impl From<usize> for Parallelism {
    fn from(number: usize) -> Parallelism {
        NonZeroUsize::new(number).map_or(Parallelism::ONE, Parallelism::Fixed)
    }
}

impl FromStr for Parallelism {
    type Err = String;

    fn from_str(text: &str) -> Result<Parallelism, String> {
        match text {
            "auto" => Ok(Parallelism::Auto),
            number => number
                .parse()
                .map(Parallelism::Fixed)
                .map_err(|_| "expected numbers from 1 and auto, such as 1,2,auto".to_string()),
        }
    }
}

impl fmt::Display for Parallelism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Parallelism::Fixed(number) => number.fmt(f),
            Parallelism::Auto => f.write_str("auto"),
        }
    }
}

impl Serialize for Parallelism {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Parallelism::Fixed(number) => number.serialize(serializer),
            Parallelism::Auto => serializer.serialize_str("auto"),
        }
    }
}

impl Engine {
    /// The engine, with its reports in this folder.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn new(folder: &Path) -> Result<Engine, String> {
        Ok(Engine {
            program: engine()?,
            report: folder.join("report.json"),
        })
    }

    /// Runs a query to its end.
    ///
    /// # Errors
    ///
    /// The engine's error message.
    pub fn run(&self, text: &str, parallelism: impl Into<Parallelism>) -> Result<Cost, String> {
        let mut command = Command::new(&self.program);
        command.args(["run", "-", "--quiet", "--parallelism"]);
        command.arg(parallelism.into().to_string());
        command.arg("--report").arg(&self.report);
        finish(command, text, Some(text))?;
        let json = std::fs::read(&self.report);
        let json = json.map_err(|error| format!("{}: {error}", self.report.display()))?;
        parse(&json, "the report")
    }
}

impl Cost {
    /// Checks that all rows were read, and none of them was rejected or late.
    ///
    /// # Errors
    ///
    /// If rows are missing.
    pub fn check(&self, name: &str, rows: u64) -> Result<(), String> {
        // Inputs other than the counted one may have rows, too.
        if self.rows_in >= rows && self.rows_bad == 0 && self.rows_late == 0 {
            return Ok(());
        }
        let [read, rows, bad, late] =
            [self.rows_in, rows, self.rows_bad, self.rows_late].map(count);
        Err(format!(
            "{name}: {read} of {rows} rows read, {bad} rejected, {late} late"
        ))
    }
}

/// Runs a program to its end, with this standard input. An exit code other than 0 is an error, with the
/// program's message and the query that it received.
///
/// # Errors
///
/// If the program can't be started, or fails.
pub fn finish(mut command: Command, query: &str, input: Option<&str>) -> Result<Output, String> {
    let program = command.get_program().display().to_string();
    let failed = |error: std::io::Error| format!("{program}: {error}");
    let stdin = match input {
        Some(_) => Stdio::piped(),
        None => Stdio::null(),
    };
    let command = command.stdin(stdin).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(failed)?;
    if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
        // A process that has ended before reading it reports the reason on its standard error.
        let _ = pipe.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let query = match query {
        "" => String::new(),
        query => format!("\nthe query was:\n{query}"),
    };
    Err(format!(
        "{program}: {}\n{}{query}",
        output.status,
        said.trim_end()
    ))
}

/// Parses JSON from a program.
///
/// # Errors
///
/// If it is something else.
pub fn parse<T: for<'de> Deserialize<'de>>(json: &[u8], what: &str) -> Result<T, String> {
    serde_json::from_slice(json).map_err(|error| format!("{what}: {error}"))
}
