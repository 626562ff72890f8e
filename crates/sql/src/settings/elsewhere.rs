//! Settings with Flink's names.
//!
//! A setting that means the same here is applied. A setting for something that does not exist here has no
//! effect, with a warning. If its meaning differs, it is rejected, with a hint what to write instead.

use slackwater_engine::time::parse_duration_ns;

use crate::error::{Result, SqlError};

/// The meaning of another engine's setting.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meant {
    /// One of our settings, and its value.
    Ours(&'static str, String),
    /// The setting asks for what is always true here.
    NoChange,
    /// No effect; the reason.
    Nothing(&'static str),
}

/// The meaning of `key`; `None` if it is not a name of another engine.
pub(super) fn meant(key: &str, value: &str) -> Option<Result<Meant>> {
    let value = value.trim();
    let ours = |name, value: String| Some(Ok(Meant::Ours(name, value)));
    let duration = |name| Some(in_our_words(key, value).map(|value| Meant::Ours(name, value)));
    let refused = |error: String, hint: &str| Some(Err(SqlError::new(error).hint(hint)));
    match key {
        "table.exec.state.ttl" => match is_zero(value) {
            // In Flink, 0 means that state is kept forever.
            true => ours("state_ttl", "none".to_string()),
            false => duration("state_ttl"),
        },
        "execution.checkpointing.interval" => duration("checkpoint_interval"),
        "execution.buffer-timeout" | "execution.buffer-timeout.interval" => match value {
            "-1" | "-1 ms" => Some(Ok(Meant::Nothing(
                "use 'linger' to set how long rows are collected",
            ))),
            _ => duration("linger"),
        },
        "parallelism.default" | "table.exec.resource.default-parallelism" => match value {
            "-1" => Some(Ok(Meant::NoChange)),
            value => ours("parallelism", value.to_string()),
        },
        "table.optimizer.agg-phase-strategy" => {
            let chosen = match value.to_uppercase().as_str() {
                "ONE_PHASE" => "off",
                "TWO_PHASE" => "on",
                _ => "auto",
            };
            ours("two_phase", chosen.to_string())
        }
        "execution.runtime-mode" | "runtime-mode" => match value.to_lowercase().as_str() {
            "streaming" | "automatic" => Some(Ok(Meant::NoChange)),
            "batch" => ours("emit", "final".to_string()),
            _ => refused(
                format!("'{key}' = '{value}': there is no such mode"),
                "use 'streaming', or 'batch', which returns the result once, when the inputs have ended",
            ),
        },
        "execution.checkpointing.mode" => match value.to_uppercase().as_str() {
            "EXACTLY_ONCE" => Some(Ok(Meant::NoChange)),
            _ => Some(Ok(Meant::Nothing("checkpoints are always exactly once"))),
        },
        "table.local-time-zone" => match is_utc(value) {
            true => Some(Ok(Meant::NoChange)),
            false => refused(
                format!("'{key}' = '{value}': all times are in UTC"),
                "remove the setting, and shift times in the query: ts + INTERVAL '1' HOUR",
            ),
        },
        "table.exec.sink.not-null-enforcer" => match value.to_uppercase().as_str() {
            "DROP" => Some(Ok(Meant::NoChange)),
            _ => refused(
                format!(
                    "'{key}' = '{value}' is not supported: a NULL in a NOT NULL column rejects its row"
                ),
                "remove the setting; the table option 'on_error' = 'fail' ends the query instead",
            ),
        },
        "table.exec.source.idle-timeout" => match is_zero(value) {
            true => Some(Ok(Meant::NoChange)),
            false => refused(
                format!("'{key}' is an option of each table here"),
                &format!("use CREATE TABLE … WITH (…, 'idle_timeout' = '{value}')"),
            ),
        },
        "state.checkpoints.dir" | "execution.checkpointing.dir" => refused(
            format!(
                "'{key}' is called 'state' here, and a query that is run again resumes from it"
            ),
            "use SET 'state' = 'DIR', or slackwater run --state DIR",
        ),
        "taskmanager.numberOfTaskSlots" => refused(
            format!("'{key}' is called 'workers' here"),
            &format!("use SET 'workers' = '{value}'"),
        ),
        _ => without_meaning(key).map(|instead| Ok(Meant::Nothing(instead))),
    }
}

/// Whether a key is the setting `parallelism`, under any of its names.
pub fn is_parallelism(key: &str) -> bool {
    let names = [
        "parallelism",
        "parallelism.default",
        "table.exec.resource.default-parallelism",
    ];
    names.contains(&key)
}

/// The reason why a setting has no effect.
fn without_meaning(key: &str) -> Option<&'static str> {
    const BY_NAME: [(&str, &str); 27] = [
        (
            "pipeline.max-parallelism",
            "keys are divided into a fixed number of buckets, which any parallelism can share",
        ),
        (
            "table.exec.mini-batch.",
            "several changes of a key within a chunk are merged; use 'latency_target', or 'linger' and \
            'chunk_rows', \
            to set how long and how many rows are collected",
        ),
        (
            "table.exec.sink.upsert-materialize",
            "a sink with a PRIMARY KEY always gets one row for each key",
        ),
        (
            "table.exec.async-lookup.",
            "lookups always keep the order of rows",
        ),
        ("table.exec.", "it configures Flink's operators"),
        ("table.optimizer.", "it configures Flink's optimizer"),
        ("table.", "it configures Flink's planner"),
        ("sql-client.", "it configures Flink's client"),
        ("pipeline.", "it configures Flink's jobs"),
        (
            "execution.checkpointing.",
            "use 'checkpoint_interval' to set how often checkpoints are taken",
        ),
        ("execution.", "it configures Flink's jobs"),
        (
            "restart-strategy",
            "use 'restarts' to set how often a query with checkpoints is restarted",
        ),
        (
            "state.backend",
            "state is kept in memory; use 'memory_limit' to bound it",
        ),
        ("state.", "it configures Flink's state backends"),
        (
            "taskmanager.",
            "there are no task managers; use 'workers', 'processes' and 'memory_limit' instead",
        ),
        ("jobmanager.", "there is no job manager"),
        ("rest.", "there is no server"),
        ("web.", "there is no server"),
        ("metrics.", "run --report writes the statistics of a run"),
        ("cluster.", "there is no cluster"),
        ("high-availability", "there is no cluster"),
        ("kubernetes.", "there is no cluster"),
        ("yarn.", "there is no cluster"),
        ("env.", "there is no Java"),
        ("classloader.", "there is no Java"),
        (
            "python.",
            "functions are written in Rust: docs/functions.md",
        ),
        ("security.", "connectors have their own options"),
    ];
    let found = BY_NAME.iter().find(|(name, _)| key.starts_with(name));
    found.map(|(_, instead)| *instead)
}

fn is_zero(value: &str) -> bool {
    value == "0" || parse_duration_ns(value) == Some(0)
}

fn is_utc(zone: &str) -> bool {
    let zone = zone.to_uppercase();
    let known = ["UTC", "GMT", "Z", "ETC/UTC", "ETC/GMT", "UCT", "ZULU"];
    let offset = zone.trim_start_matches("UTC").trim_start_matches("GMT");
    known.contains(&zone.as_str()) || ["+0", "+00:00", "-00:00", "+00"].contains(&offset)
}

/// A duration in Flink's syntax, where a number without a unit is in milliseconds.
fn in_our_words(key: &str, value: &str) -> Result<String> {
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let text = match is_number {
        true => format!("{value} ms"),
        false => value.to_string(),
    };
    match parse_duration_ns(&text) {
        Some(_) => Ok(text),
        None => Err(
            SqlError::new(format!("'{key}': '{value}' is not a duration"))
                .hint("use a number and a unit, such as '10 min', '1 h' or '1 d'"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Settings;

    #[test]
    fn flink_settings_with_the_same_meaning_are_applied() {
        let mut settings = Settings::default();
        for (key, value) in [
            ("table.exec.state.ttl", "1 d"),
            ("execution.checkpointing.interval", "PT30S"),
            ("parallelism.default", "4"),
            ("execution.buffer-timeout", "5"),
            ("execution.runtime-mode", "batch"),
            ("table.local-time-zone", "UTC"),
        ] {
            settings.set(key, value, &[]).unwrap();
        }
        assert_eq!(settings.state_ttl_us, Some(86_400_000_000));
        assert_eq!(settings.checkpoint_interval_ns, 30_000_000_000);
        assert_eq!(settings.linger_ns, 5_000_000);
        assert!(settings.emit_final);
        assert!(settings.notes.is_empty(), "{:?}", settings.notes);
        settings.set("table.exec.state.ttl", "0 ms", &[]).unwrap();
        assert_eq!(settings.state_ttl_us, None);
        for key in [
            "pipeline.max-parallelism",
            "table.exec.mini-batch.enabled",
            "sql-client.execution.result-mode",
        ] {
            settings.set(key, "x", &[]).unwrap();
            settings.set(key, "x", &[]).unwrap();
        }
        assert_eq!(settings.notes.len(), 3, "{:?}", settings.notes);
        assert!(settings.notes[0].contains("has no effect"));
    }

    #[test]
    fn flink_settings_with_another_meaning_are_rejected() {
        let mut settings = Settings::default();
        for (key, value, says) in [
            ("execution.runtime-mode", "both", "no such mode"),
            ("table.local-time-zone", "Europe/Berlin", "times are in UTC"),
            ("table.exec.source.idle-timeout", "10 s", "each table"),
            (
                "execution.checkpointing.dir",
                "file:///tmp/x",
                "called 'state' here",
            ),
            ("table.exec.state.ttl", "soon", "is not a duration"),
            (
                "parallelism.default",
                "many",
                "'parallelism.default' sets 'parallelism'",
            ),
        ] {
            let error = settings.set(key, value, &[]).unwrap_err();
            assert!(error.message.contains(says), "{key}: {error}");
            assert!(!error.hint.is_empty(), "{key}: {error}");
        }
        assert_eq!(settings, Settings::default());
    }
}
