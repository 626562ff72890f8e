//! Other engines' names for connectors and options.
//!
//! A name with an equivalent is replaced by ours before anything is checked; one without is rejected, and the
//! message says what to write instead.

use std::collections::BTreeMap;

use crate::connector::ConnectorKind;
use crate::connectors::every_name;
use crate::options::OptionError;

/// An option under another name: the name that was written, and our name; `None` for an option that is
/// dropped because it asks for what happens anyway.
pub type Renamed = (String, Option<(String, String)>);

/// Connectors of other engines, and what to write instead.
const CONNECTORS: &[(&str, &str)] = &[
    ("socket", "'connector' = 'tcp', 'address' = 'HOST:PORT'"),
    ("mysql", JDBC),
    ("mysql-cdc", NO_CHANGES),
    ("postgres-cdc", NO_CHANGES),
    ("sqlserver-cdc", NO_CHANGES),
    ("oracle-cdc", NO_CHANGES),
    ("mongodb-cdc", NO_CHANGES),
    (
        "postgresql",
        "'connector' = 'postgres', 'url' = 'postgresql://HOST/DATABASE'",
    ),
    (
        "single_file",
        "'connector' = 'file', with a path that has an extension",
    ),
    ("posix_fs", "'connector' = 'file'"),
    ("fs", "'connector' = 'file'"),
    ("redpanda", "'connector' = 'kafka'"),
    ("confluent", "'connector' = 'kafka'"),
    ("faker", GENERATED),
    ("impulse", GENERATED),
    (
        "nexmark",
        "'connector' = 'datagen', 'generator' = 'nexmark'",
    ),
    ("kinesis", SERVERS),
    ("pulsar", SERVERS),
    ("rabbitmq", SERVERS),
    ("nats", SERVERS),
    ("google_pubsub", SERVERS),
    ("elasticsearch-6", SERVERS),
    ("elasticsearch-7", SERVERS),
    ("elasticsearch", SERVERS),
    ("opensearch", SERVERS),
    ("mongodb", SERVERS),
    ("redis", SERVERS),
    ("hbase-1.4", SERVERS),
    ("hbase-2.2", SERVERS),
    ("firehose", SERVERS),
    ("dynamodb", SERVERS),
    ("iceberg", LAKES),
    ("delta", LAKES),
    ("hudi", LAKES),
    ("paimon", LAKES),
    ("hive", LAKES),
    ("s3", LAKES),
];

const JDBC: &str = "'connector' = 'sqlite', 'path' = 'data.db', or 'connector' = 'postgres', 'url' = \
                    'postgresql://HOST/DATABASE'; 'table-name', 'username' and 'password' are the same";
const NO_CHANGES: &str = "changes of a database are not captured: the connector postgres reads a table as \
    a whole, or \
                          looks rows up (FOR SYSTEM_TIME AS OF)";
const GENERATED: &str = "datagen generates the rows of benchmarks: 'connector' = 'datagen', 'generator' = \
    'nexmark'; rows \
                         of your own come from a file";
/// A placeholder for the list of our connectors.
const SERVERS: &str = "";
const LAKES: &str =
    "'connector' = 'file', 'format' = 'parquet' reads and writes files of this machine";

/// Options without an equivalent: the connector (empty for any), the option or the beginning of its name, and
/// the hint.
const OPTIONS: &[(&str, &str, &str)] = &[
    (
        "",
        "sink.parallelism",
        "leave it out: SET 'parallelism' counts for the statements that follow",
    ),
    (
        "",
        "scan.parallelism",
        "leave it out: SET 'parallelism' counts for the statements that follow",
    ),
    (
        "",
        "lookup.async",
        "leave it out: lookups don't wait for each other",
    ),
    (
        "",
        "scan.watermark.",
        "leave it out; 'idle_timeout' = '10 s' keeps a silent partition from holding the watermark back",
    ),
    (
        "print",
        "print-identifier",
        "leave it out: a column of the query can say where a row is from",
    ),
    (
        "print",
        "standard-error",
        "leave it out: rows are printed to standard output",
    ),
    (
        "datagen",
        "rows-per-second",
        "'rate' = '10/s' is the pace, 'rows' the number of rows",
    ),
    ("datagen", "number-of-rows", "'rows' is the number of rows"),
    ("datagen", "fields.", GENERATED),
    (
        "file",
        "source.monitor-interval",
        "leave it out: the files that are there when the query starts are read to their end",
    ),
    (
        "file",
        "source.path.regex-pattern",
        "a path with * names the files",
    ),
    (
        "file",
        "sink.rolling-policy.",
        "leave it out: a folder gets a part with each checkpoint ('checkpoint_interval')",
    ),
    (
        "file",
        "sink.partition-commit.",
        "leave it out: a folder gets a part with each checkpoint",
    ),
    (
        "file",
        "partition.",
        "leave it out: a path with * reads the files of all folders",
    ),
    (
        "file",
        "auto-compaction",
        "leave it out: parts are not joined",
    ),
    (
        "kafka",
        "topic-pattern",
        "'topic' = 'a;b' names several topics",
    ),
    (
        "kafka",
        "sink.partitioner",
        "leave it out: a row with a key goes to the partition of its key",
    ),
    (
        "kafka",
        "value.fields-include",
        "leave it out: a message holds all columns",
    ),
    (
        "kafka",
        "key.fields-prefix",
        "leave it out: a message holds all columns by their names",
    ),
    (
        "kafka",
        "sink.buffer-flush.",
        "leave it out: 'latency_target' or 'linger' say how long rows are collected",
    ),
    (
        "",
        "json.timestamp-format.standard",
        "leave it out: times are read in both forms",
    ),
    ("", "json.map-null-key.", "leave it out: there are no maps"),
    (
        "",
        "csv.array-element-delimiter",
        "leave it out: csv has no arrays; 'format' = 'json' does",
    ),
    (
        "",
        "csv.disable-quote-character",
        "leave it out: a field is quoted where it has to be",
    ),
    (
        "",
        "csv.quote-character",
        "leave it out: fields are quoted with \"",
    ),
    (
        "",
        "csv.escape-character",
        "leave it out: a quote inside a field is written twice",
    ),
];

/// Other engines' names for our options: the connector (empty for any), their name and ours.
const RENAMED: &[(&str, &str, &str)] = &[
    ("", "csv.field-delimiter", "csv.delimiter"),
    ("", "csv.null-literal", "csv.null"),
    ("", "scan.watermark.idle-timeout", "idle_timeout"),
    ("kafka", "value.format", "format"),
    (
        "kafka",
        "sink.transactional-id-prefix",
        "transactional.id.prefix",
    ),
];

/// A table's options under our names.
pub fn renamed(options: &BTreeMap<String, String>) -> Result<Vec<Renamed>, OptionError> {
    let mut found = Vec::new();
    let written = options
        .get("connector")
        .map(|name| name.to_ascii_lowercase());
    let connector = match written.as_deref() {
        Some("filesystem") => {
            found.push(to("connector", "connector", "file"));
            "file"
        }
        Some(name) if name == "jdbc" || name.starts_with("jdbc:") => return Err(jdbc(options)),
        Some(name) => {
            if let Some((_, hint)) = CONNECTORS.iter().find(|(known, _)| *known == name) {
                let fix = match *hint {
                    SERVERS => format!("the connectors are {}", every_name()),
                    fix => fix.to_string(),
                };
                let reason = format!("'{name}' is not supported");
                return Err(OptionError::new("connector", reason, fix));
            }
            // An alias is kept, because the connector checks what such a table can't have.
            ConnectorKind::named(name).map_or(name, |kind| kind.name)
        }
        None => return Ok(found),
    };
    let is_of = |owner: &str| owner.is_empty() || owner == connector;
    for (name, value) in options {
        let renamed = RENAMED
            .iter()
            .find(|(owner, theirs, _)| is_of(owner) && theirs == name);
        if let Some((.., ours)) = renamed {
            if options.contains_key(*ours) {
                let reason = format!("means the same as '{ours}'");
                return Err(OptionError::new(name, reason, "leave one of them out"));
            }
            found.push(to(name, ours, value));
            continue;
        }
        if let Some(meant) = meant(connector, name, value)? {
            found.push(meant);
            continue;
        }
        let refused = OPTIONS
            .iter()
            .find(|(owner, begin, _)| is_of(owner) && name.starts_with(begin));
        if let Some((.., hint)) = refused {
            return Err(OptionError::new(name, "is not supported", *hint));
        }
    }
    Ok(found)
}

fn to(from: &str, name: &str, value: &str) -> Renamed {
    (
        from.to_string(),
        Some((name.to_string(), value.to_string())),
    )
}

/// Options whose value decides whether they have an equivalent.
fn meant(connector: &str, name: &str, value: &str) -> Result<Option<Renamed>, OptionError> {
    let as_it_is = || Ok(Some((name.to_string(), None)));
    let is_true = value.eq_ignore_ascii_case("true");
    Ok(Some(match (connector, name) {
        ("file", "path") => match value.strip_prefix("file://") {
            // Two slashes, then an empty host.
            Some(path) if path.starts_with('/') => to(name, name, path),
            _ => return Ok(None),
        },
        (_, "json.ignore-parse-errors" | "csv.ignore-parse-errors") => match is_true {
            // Flink ignores such records; we count and keep them.
            true => return as_it_is(),
            false => to(name, "on_error", "fail"),
        },
        (_, "json.fail-on-missing-field") => match is_true {
            false => return as_it_is(),
            true => {
                let hint = "leave it out: a field that is missing is NULL; a column can be declared NOT NULL";
                return Err(OptionError::new(name, "'true' is not supported", hint));
            }
        },
        (_, "csv.allow-comments") => match is_true {
            false => return as_it_is(),
            true => to(name, "csv.comment", "#"),
        },
        ("kafka", "sink.delivery-guarantee") => match value {
            "exactly-once" => to(name, "delivery", "exactly_once"),
            "at-least-once" => to(name, "delivery", "at_least_once"),
            _ => {
                let hint = "'delivery' = 'exactly_once' or 'at_least_once'";
                return Err(OptionError::new(
                    name,
                    format!("'{value}' is not supported"),
                    hint,
                ));
            }
        },
        _ => return Ok(None),
    }))
}

/// What to write instead of `jdbc`, by the URL.
fn jdbc(options: &BTreeMap<String, String>) -> OptionError {
    let url = options.get("url").map_or("", String::as_str);
    let rest = url.strip_prefix("jdbc:").unwrap_or(url);
    let same = "'table-name', 'username' and 'password' are the same";
    let hint = if rest.starts_with("postgresql:") {
        format!("'connector' = 'postgres', 'url' = '{rest}'; {same}")
    } else if let Some(path) = rest.strip_prefix("sqlite:") {
        format!("'connector' = 'sqlite', 'path' = '{path}'; {same}")
    } else {
        JDBC.to_string()
    };
    OptionError::new("connector", "'jdbc' is not supported", hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect()
    }

    #[test]
    fn equivalent_names_are_replaced_by_ours() {
        let found = renamed(&options(&[
            ("connector", "filesystem"),
            ("path", "file:///data/in.csv"),
            ("csv.field-delimiter", ";"),
            ("csv.ignore-parse-errors", "true"),
            ("csv.allow-comments", "true"),
        ]));
        assert_eq!(
            found.unwrap(),
            [
                to("connector", "connector", "file"),
                to("csv.allow-comments", "csv.comment", "#"),
                to("csv.field-delimiter", "csv.delimiter", ";"),
                ("csv.ignore-parse-errors".to_string(), None),
                to("path", "path", "/data/in.csv"),
            ]
        );
        let alias = [("connector", "Upsert-Kafka"), ("value.format", "json")];
        assert_eq!(
            renamed(&options(&alias)).unwrap(),
            [to("value.format", "format", "json")]
        );
        let ours = [("connector", "kafka"), ("topic", "t"), ("format", "json")];
        assert_eq!(renamed(&options(&ours)).unwrap(), []);
    }

    #[test]
    fn names_without_an_equivalent_are_rejected_with_a_hint() {
        for (pairs, option, says) in [
            (
                &[("connector", "kinesis")][..],
                "connector",
                "the connectors are",
            ),
            (
                &[("connector", "jdbc"), ("url", "jdbc:postgresql://h:5432/d")],
                "connector",
                "'url' = 'postgresql://h:5432/d'",
            ),
            (
                &[("connector", "jdbc"), ("url", "jdbc:sqlite:/x.db")],
                "connector",
                "'path' = '/x.db'",
            ),
            (
                &[("connector", "datagen"), ("rows-per-second", "5")],
                "rows-per-second",
                "'rate' = '10/s'",
            ),
            (
                &[
                    ("connector", "kafka"),
                    ("value.format", "json"),
                    ("format", "json"),
                ],
                "value.format",
                "leave one of them out",
            ),
            (
                &[("connector", "print"), ("print-identifier", "x")],
                "print-identifier",
                "leave it out",
            ),
        ] {
            let error = renamed(&options(pairs)).unwrap_err();
            assert_eq!(error.option.as_deref(), Some(option), "{error}");
            assert!(error.hint.contains(says), "{error}");
        }
    }
}
