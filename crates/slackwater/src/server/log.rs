//! The server's log: lines or JSON on standard error, with the job and its incarnation.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{DateTime, SecondsFormat};
use serde::Serialize;

use crate::terminal::say;

/// How the log is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// `2026-11-23T12:00:00.000Z warning job=v.2 text`.
    #[default]
    Lines,
    /// An object per line: `time`, `level`, `job`, `incarnation`, `message`.
    Json,
}

/// How serious a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// What has happened.
    Info,
    /// Something may be wrong.
    Warning,
    /// Something has failed.
    Error,
}

/// A job, and how often it was started.
#[derive(Debug, Clone, Copy)]
pub struct Incarnation<'a> {
    /// The job's name.
    pub job: &'a str,
    /// The number of its starts.
    pub number: u64,
}

/// The log.
#[derive(Debug, Clone, Copy, Default)]
pub struct Log {
    format: Format,
}

#[derive(Serialize)]
struct Line<'a> {
    time: &'a str,
    level: Level,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    incarnation: Option<u64>,
    message: &'a str,
}

impl Log {
    /// A log in this format.
    pub fn new(format: Format) -> Log {
        Log { format }
    }

    /// Writes a line about the server.
    pub fn server(&self, level: Level, message: &str) {
        say(&self.line(level, None, message, SystemTime::now()));
    }

    /// Writes a line about a job.
    pub fn job(&self, level: Level, of: Incarnation<'_>, message: &str) {
        say(&self.line(level, Some(of), message, SystemTime::now()));
    }

    /// Writes what a job's process has written to its standard error.
    pub fn said(&self, of: Incarnation<'_>, line: &str) {
        let known = [("warning: ", Level::Warning), ("error: ", Level::Error)];
        let found = known
            .iter()
            .find_map(|(prefix, level)| Some((*level, line.strip_prefix(prefix)?)));
        let (level, message) = found.unwrap_or((Level::Info, line));
        self.job(level, of, message);
    }

    fn line(
        &self,
        level: Level,
        of: Option<Incarnation<'_>>,
        message: &str,
        now: SystemTime,
    ) -> String {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        let time = DateTime::from_timestamp(seconds, since.subsec_nanos()).unwrap_or_default();
        let time = time.to_rfc3339_opts(SecondsFormat::Millis, true);
        let mut line = match self.format {
            Format::Lines => {
                let level = match level {
                    Level::Info => "info",
                    Level::Warning => "warning",
                    Level::Error => "error",
                };
                let mut line = format!("{time} {level} ");
                if let Some(Incarnation { job, number }) = of {
                    let written = write!(line, "job={job}.{number} ");
                    written.expect("a string can be written");
                }
                // One line each, so that lines can be sorted and searched.
                line + &message.replace('\n', "\\n")
            }
            Format::Json => {
                let line = Line {
                    time: &time,
                    level,
                    job: of.map(|of| of.job),
                    incarnation: of.map(|of| of.number),
                    message,
                };
                serde_json::to_string(&line).expect("strings and numbers are valid JSON")
            }
        };
        line.push('\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_is_one_line() {
        let now = UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        let of = Incarnation {
            job: "v",
            number: 2,
        };
        let lines = Log::new(Format::Lines);
        let written = lines.line(Level::Warning, Some(of), "a\nb", now);
        assert_eq!(written, "2023-11-14T22:13:20.123Z warning job=v.2 a\\nb\n");
        let json = Log::new(Format::Json).line(Level::Info, Some(of), "a \"b\"\n", now);
        let read = serde_json::from_str::<serde_json::Value>(&json).unwrap();
        assert_eq!(read["message"], "a \"b\"\n");
        assert_eq!(
            (&read["job"], &read["incarnation"]),
            (&"v".into(), &2.into())
        );
        assert_eq!(json.matches('\n').count(), 1);
        let own = Log::new(Format::Json).line(Level::Error, None, "x", now);
        assert!(!own.contains("job"));
    }
}
