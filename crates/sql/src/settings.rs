//! `SET 'key' = 'value'`: what belongs to the query.

use slackwater_engine::time::parse_duration_ns;

use crate::error::{Result, SqlError, nearest};

/// The settings of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Instances of each parallelisable subquery; `None` leaves it to the command line.
    pub parallelism: Option<usize>,
    /// Threads that run them; `None` for as many as instances, at most the cores allowed.
    pub workers: Option<usize>,
    /// Rows per chunk at most.
    pub chunk_rows: usize,
    /// How long a source may collect rows, in nanoseconds.
    pub linger_ns: u64,
    /// A running aggregation emits one row per input row.
    pub emit_every_row: bool,
    /// The order of rows of one key is kept where it can be seen.
    pub keep_order: bool,
    /// Chunks of a source are dealt out in turn.
    pub round_robin: bool,
    /// The latency that is wanted, in nanoseconds.
    pub latency_target_ns: Option<u64>,
}

/// Rows per chunk: large enough that the work per chunk (some 5 µs) is nothing per row, small
/// enough that a chunk of 100-byte rows fits a core's second-level cache.
pub const CHUNK_ROWS: usize = 8192;

/// The most that can be asked for: 1 M rows of 1 KB are a gigabyte per chunk.
pub const CHUNK_ROWS_MAX: usize = 1 << 20;

/// Without a latency target rows are collected for at most 10 ms.
pub const LINGER_NS: u64 = 10_000_000;

/// Instances that can be asked for: more than the cores of the largest machine we know.
pub const PARALLELISM_MAX: usize = 1024;

/// All settings, with the values that they take.
pub const KNOWN: &[(&str, &str)] = &[
    (
        "balancer",
        "'auto' or 'round_robin' (which needs 'order' = 'none')",
    ),
    (
        "chunk_rows",
        "rows per chunk at most, 1 to 1048576; default 8192",
    ),
    (
        "emit",
        "'changes' (a running aggregate merges changes of a key within a chunk) or 'every_row'",
    ),
    (
        "latency_target",
        "'none' or a duration such as '20 ms', which the report compares with",
    ),
    (
        "linger",
        "how long a source may collect rows, such as '10 ms' (the default) or '0 ms'",
    ),
    (
        "order",
        "'keep' (rows of one key stay in the order of their partition) or 'none'",
    ),
    (
        "parallelism",
        "instances of each parallelisable subquery, 1 to 1024",
    ),
    ("workers", "threads that run them, 1 to 1024"),
];

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            parallelism: None,
            workers: None,
            chunk_rows: CHUNK_ROWS,
            linger_ns: LINGER_NS,
            emit_every_row: false,
            keep_order: true,
            round_robin: false,
            latency_target_ns: None,
        }
    }
}

impl Settings {
    /// Sets one; `table_options` are names that belong into a table's WITH instead.
    pub fn set(&mut self, key: &str, value: &str, table_options: &[String]) -> Result<()> {
        let number = |max: usize| match value.trim().parse::<usize>() {
            Ok(number) if (1..=max).contains(&number) => Ok(number),
            _ => Err(wrong(key, value)),
        };
        match key {
            "parallelism" => self.parallelism = Some(number(PARALLELISM_MAX)?),
            "workers" => self.workers = Some(number(PARALLELISM_MAX)?),
            "chunk_rows" => self.chunk_rows = number(CHUNK_ROWS_MAX)?,
            "linger" => {
                self.linger_ns = parse_duration_ns(value).ok_or_else(|| wrong(key, value))?
            }
            "latency_target" => {
                self.latency_target_ns = match value.trim() {
                    "none" => None,
                    value => Some(
                        parse_duration_ns(value)
                            .filter(|&t| t > 0)
                            .ok_or_else(|| wrong(key, value))?,
                    ),
                }
            }
            "emit" => self.emit_every_row = choice(key, value, ["changes", "every_row"])?,
            "order" => self.keep_order = !choice(key, value, ["keep", "none"])?,
            "balancer" => self.round_robin = choice(key, value, ["auto", "round_robin"])?,
            _ => {
                let names = KNOWN
                    .iter()
                    .map(|(name, _)| name.to_string())
                    .collect::<Vec<_>>();
                let error = SqlError::new(format!("there is no setting '{key}'"));
                return Err(if table_options.iter().any(|option| option == key) {
                    error.mend(format!(
                        "'{key}' belongs to a table: CREATE TABLE … WITH ('{key}' = '{value}')"
                    ))
                } else if let Some(near) = nearest(key, &names) {
                    error.mend(format!("did you mean '{near}'?"))
                } else {
                    error.mend(format!("the settings are: {}", names.join(", ")))
                });
            }
        }
        Ok(())
    }

    /// Checks settings against each other.
    pub fn check(&self) -> Result<()> {
        if self.round_robin && self.keep_order {
            return Err(
                SqlError::new("'balancer' = 'round_robin' gives up the order of rows")
                    .mend("say so: SET 'order' = 'none'"),
            );
        }
        Ok(())
    }
}

fn choice(key: &str, value: &str, choices: [&str; 2]) -> Result<bool> {
    match choices.iter().position(|choice| *choice == value.trim()) {
        Some(index) => Ok(index == 1),
        None => Err(wrong(key, value)),
    }
}

fn wrong(key: &str, value: &str) -> SqlError {
    let meaning = KNOWN
        .iter()
        .find(|(name, _)| *name == key)
        .map_or("", |(_, meaning)| meaning);
    SqlError::new(format!("'{value}' is no value of '{key}'")).mend(format!("'{key}' is {meaning}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misplaced_option_is_told_where_it_goes() {
        let mut settings = Settings::default();
        let options = ["on_error".to_string()];
        let error = settings.set("on_error", "fail", &options).unwrap_err();
        assert!(
            error.mend.contains("WITH ('on_error' = 'fail')"),
            "{}",
            error.mend
        );
        let error = settings.set("parallelizm", "2", &options).unwrap_err();
        assert_eq!(error.mend, "did you mean 'parallelism'?");
    }

    #[test]
    fn values_are_checked() {
        let mut settings = Settings::default();
        for (key, value) in [
            ("parallelism", "0"),
            ("parallelism", "many"),
            ("chunk_rows", "1048577"),
            ("linger", "10"),
            ("latency_target", "0 ms"),
            ("emit", "sometimes"),
        ] {
            assert!(settings.set(key, value, &[]).is_err(), "{key} = {value}");
        }
        settings.set("linger", "1.5 ms", &[]).unwrap();
        assert_eq!(settings.linger_ns, 1_500_000);
        settings.set("balancer", "round_robin", &[]).unwrap();
        assert!(settings.check().is_err());
        settings.set("order", "none", &[]).unwrap();
        assert!(settings.check().is_ok());
    }
}
