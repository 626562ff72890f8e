//! Settings by Flink's names.
//!
//! One that means the same here is set, one that is about something that isn't there changes nothing, and is
//! warned of; where the meaning differs it is refused, with what to write instead.

use slackwater_engine::time::parse_duration_ns;

use crate::error::{Result, SqlError};

/// What a setting of another engine means here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meant {
    /// Our setting, and its value.
    Ours(&'static str, String),
    /// It asks for what is the case anyway.
    AsItIs,
    /// Nothing, and why.
    Nothing(&'static str),
}

/// What `key` means; `None` where it is no name of another engine.
pub(super) fn meant(key: &str, value: &str) -> Option<Result<Meant>> {
    let value = value.trim();
    let ours = |name, value: String| Some(Ok(Meant::Ours(name, value)));
    let duration = |name| Some(in_our_words(key, value).map(|value| Meant::Ours(name, value)));
    let refused = |error: String, hint: &str| Some(Err(SqlError::new(error).hint(hint)));
    match key {
        "table.exec.state.ttl" => match is_zero(value) {
            // Flink keeps state for ever then.
            true => ours("state_ttl", "none".to_string()),
            false => duration("state_ttl"),
        },
        "execution.checkpointing.interval" => duration("checkpoint_interval"),
        "execution.buffer-timeout" | "execution.buffer-timeout.interval" => match value {
            "-1" | "-1 ms" => Some(Ok(Meant::Nothing(
                "'linger' says how long rows are collected",
            ))),
            _ => duration("linger"),
        },
        "parallelism.default" | "table.exec.resource.default-parallelism" => match value {
            "-1" => Some(Ok(Meant::AsItIs)),
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
            "streaming" | "automatic" => Some(Ok(Meant::AsItIs)),
            "batch" => ours("emit", "final".to_string()),
            _ => refused(
                format!("'{key}' = '{value}': there is no such mode"),
                "'streaming', or 'batch': the result once, when the inputs have ended",
            ),
        },
        "execution.checkpointing.mode" => match value.to_uppercase().as_str() {
            "EXACTLY_ONCE" => Some(Ok(Meant::AsItIs)),
            _ => Some(Ok(Meant::Nothing("checkpoints are exactly once"))),
        },
        "table.local-time-zone" => match is_utc(value) {
            true => Some(Ok(Meant::AsItIs)),
            false => refused(
                format!("'{key}' = '{value}': times are in UTC here"),
                "leave it out, and shift times in the query: ts + INTERVAL '1' HOUR",
            ),
        },
        "table.exec.sink.not-null-enforcer" => match value.to_uppercase().as_str() {
            "DROP" => Some(Ok(Meant::AsItIs)),
            _ => refused(
                format!(
                    "'{key}' = '{value}': a NULL in a NOT NULL column rejects its row, which is counted and kept"
                ),
                "leave it out; 'on_error' = 'fail' among the options of the table that is read ends the query instead",
            ),
        },
        "table.exec.source.idle-timeout" => match is_zero(value) {
            true => Some(Ok(Meant::AsItIs)),
            false => refused(
                format!("'{key}' belongs to each table here"),
                &format!("CREATE TABLE … WITH (…, 'idle_timeout' = '{value}')"),
            ),
        },
        "state.checkpoints.dir" | "execution.checkpointing.dir" => refused(
            format!(
                "'{key}' is 'state' here, and a query that is run again goes on from what is kept there"
            ),
            "SET 'state' = 'DIR', or slackwater run --state DIR",
        ),
        "taskmanager.numberOfTaskSlots" => refused(
            format!("'{key}' is 'workers' here"),
            &format!("SET 'workers' = '{value}'"),
        ),
        _ => without_meaning(key).map(|instead| Ok(Meant::Nothing(instead))),
    }
}

/// Whether it is the setting `parallelism`, by whatever name.
pub fn is_parallelism(key: &str) -> bool {
    let names = [
        "parallelism",
        "parallelism.default",
        "table.exec.resource.default-parallelism",
    ];
    names.contains(&key)
}

/// What to know about a setting that is about something that isn't there.
fn without_meaning(key: &str) -> Option<&'static str> {
    const BY_NAME: [(&str, &str); 27] = [
        (
            "pipeline.max-parallelism",
            "keys lie in a fixed number of buckets, which any parallelism shares out",
        ),
        (
            "table.exec.mini-batch.",
            "changes of a key within a chunk are one; 'latency_target' or 'linger', and 'chunk_rows' say how long \
             and how many rows are collected",
        ),
        (
            "table.exec.sink.upsert-materialize",
            "a sink with a PRIMARY KEY gets one row for each key without it",
        ),
        ("table.exec.async-lookup.", "lookups keep the order of rows"),
        ("table.exec.", "it is about Flink's operators"),
        ("table.optimizer.", "it is about Flink's optimizer"),
        ("table.", "it is about Flink's planner"),
        ("sql-client.", "it is about Flink's client"),
        ("pipeline.", "it is about Flink's jobs"),
        (
            "execution.checkpointing.",
            "'checkpoint_interval' says how often a query is saved",
        ),
        ("execution.", "it is about Flink's jobs"),
        (
            "restart-strategy",
            "'restarts' says how often a query that is saved is started again",
        ),
        (
            "state.backend",
            "state is kept in memory; 'memory_limit' bounds it",
        ),
        ("state.", "it is about Flink's state backends"),
        (
            "taskmanager.",
            "there are no task managers; 'workers', 'processes' and 'memory_limit' say what a query may use",
        ),
        ("jobmanager.", "there is no job manager"),
        ("rest.", "there is no server"),
        ("web.", "there is no server"),
        ("metrics.", "run --report writes the figures of a run"),
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

/// A duration of Flink's, whose number alone counts milliseconds.
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
                .hint("a number and a unit, such as '10 min', '1 h' or '1 d'"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Settings;

    #[test]
    fn settings_by_the_names_of_flink() {
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
        assert!(settings.notes[0].contains("changes nothing here"));
    }

    #[test]
    fn settings_that_mean_something_else_here_are_refused() {
        let mut settings = Settings::default();
        for (key, value, says) in [
            ("execution.runtime-mode", "both", "no such mode"),
            ("table.local-time-zone", "Europe/Berlin", "times are in UTC"),
            ("table.exec.source.idle-timeout", "10 s", "each table"),
            (
                "execution.checkpointing.dir",
                "file:///tmp/x",
                "'state' here",
            ),
            ("table.exec.state.ttl", "soon", "is not a duration"),
            (
                "parallelism.default",
                "many",
                "'parallelism.default' is 'parallelism' here",
            ),
        ] {
            let error = settings.set(key, value, &[]).unwrap_err();
            assert!(error.message.contains(says), "{key}: {error}");
            assert!(!error.hint.is_empty(), "{key}: {error}");
        }
        assert_eq!(settings, Settings::default());
    }
}
