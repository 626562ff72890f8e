//! The measured query.

use std::fmt;
use std::path::Path;

use clap::ValueEnum;
use serde::Serialize;

/// The query's latency target, in milliseconds.
pub const TARGET_MS: u64 = 20;

/// The time of the first row; the next row is a millisecond later, so a row's time is also its number.
const START_MS: u64 = 1_000_000_000_000;

/// Odd, and not a multiple of five: neighboring rows get keys far apart, and each key occurs once in as
/// many rows as there are keys.
const FACTOR: u64 = 48_271;

/// Where rows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// A folder of files: with checkpoints each row is written to it exactly once.
    Folder,
    /// Nowhere.
    Blackhole,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::Folder => "folder",
            Place::Blackhole => "blackhole",
        })
    }
}

/// What distinguishes the points of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Spec {
    /// Number of different keys.
    pub keys: u64,
    /// Where rows go.
    pub place: Place,
    /// Checkpoint interval, in milliseconds; `None` for runs without checkpoints.
    pub interval_ms: Option<u64>,
}

impl Spec {
    /// The checkpoint interval as text.
    pub fn interval(&self) -> String {
        match self.interval_ms {
            None => "none".to_string(),
            Some(ms) if ms % 1_000 == 0 => format!("{} s", ms / 1_000),
            Some(ms) => format!("{ms} ms"),
        }
    }
}

/// The query of a point: number of rows, a sum, and the number of the last row for each key. Without a
/// target its rows wait as long as the defaults say.
pub fn text(spec: &Spec, rate_per_s: u64, output: &Path, has_target: bool) -> String {
    let Spec { keys, place, .. } = spec;
    let connector = match place {
        Place::Folder => format!("'connector' = 'file', 'path' = '{}'", output.display()),
        Place::Blackhole => "'connector' = 'blackhole'".to_string(),
    };
    let mut text = String::new();
    if has_target {
        text.push_str(&format!("SET 'latency_target' = '{TARGET_MS} ms';\n"));
    }
    if let Some(ms) = spec.interval_ms {
        text.push_str(&format!("SET 'checkpoint_interval' = '{ms} ms';\n"));
    }
    text.push_str(&format!(
        "CREATE TABLE visits (ts_ms BIGINT, duration INT, k AS CAST((ts_ms * {FACTOR}) % {keys} AS STRING))
         WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'start' = '{START_MS}',
           'events_per_second' = '1000', 'rate' = '{rate_per_s}/s');
         CREATE TABLE sums (last_ms BIGINT, k STRING, n BIGINT, total BIGINT) WITH ({connector});
         INSERT INTO sums SELECT MAX(ts_ms), k, COUNT(*), SUM(duration) FROM visits GROUP BY k;"
    ));
    text
}

/// fixwindow of HiBench, by address in windows of so many seconds, whose time passes as the clock's.
pub fn windows(spec: &Spec, rate_per_s: u64, window_s: u64) -> String {
    let interval = spec
        .interval_ms
        .map(|ms| format!("SET 'checkpoint_interval' = '{ms} ms';\n"));
    format!(
        "{}SET 'latency_target' = '{TARGET_MS} ms';
         CREATE TABLE visits (ts_ms BIGINT, duration INT, ip STRING,
           ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts)
         WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'start' = '{START_MS}',
           'events_per_second' = '{rate_per_s}', 'rate' = '{rate_per_s}/s');
         CREATE TABLE sums (window_end TIMESTAMP_LTZ(3), ip STRING, n BIGINT, total BIGINT)
         WITH ('connector' = 'blackhole');
         INSERT INTO sums SELECT window_end, ip, COUNT(*), SUM(duration)
         FROM TUMBLE(TABLE visits, DESCRIPTOR(ts), INTERVAL '{window_s}' SECOND)
         GROUP BY window_start, window_end, ip;",
        interval.unwrap_or_default()
    )
}

/// The number of the row that produced a line of the output: the first column.
pub fn row_number(line: &str) -> Option<u64> {
    let last_ms = line.split(',').next()?.parse::<u64>().ok()?;
    last_ms.checked_sub(START_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_contains_the_number_of_its_row() {
        assert_eq!(row_number("1000000000042,7,3,99"), Some(42));
        assert_eq!(row_number("last_ms,k"), None);
        assert_eq!(row_number(""), None);
    }
}
