//! A table's definition and the settings that every source table has.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use slackwater_engine::format::RecordFormat;

use crate::options::{OptionError, OptionKind, Options, option};

/// A table's definition as the DDL gives it.
#[derive(Debug, Clone)]
pub struct TableDefinition {
    /// The table's name.
    pub name: String,
    /// The declared physical columns: without computed ones.
    pub schema: SchemaRef,
    /// Columns of the schema that the source does not read from a record, with their metadata names.
    pub metadata: BTreeMap<usize, String>,
    /// The columns of the `PRIMARY KEY`, by which a sink replaces rows.
    pub primary_key: Vec<usize>,
    /// Who looks for what the table reads.
    pub findings: Findings,
    /// The options in `WITH (…)`.
    pub options: BTreeMap<String, String>,
    /// The formats that the program brings, besides those of this crate.
    pub formats: Vec<Arc<dyn RecordFormat>>,
}

impl TableDefinition {
    /// The options, with the formats that they can name.
    pub(crate) fn all_options(&self) -> Options<'_> {
        Options::new(&self.options).with_formats(&self.formats)
    }
}

/// Who looks for what a table reads: its files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Findings {
    /// This process.
    #[default]
    Look,
    /// The same table has looked in another process ([`SourceConnector::findings`]), or on other hosts
    /// ([`findings`]).
    ///
    /// [`SourceConnector::findings`]: slackwater_engine::source::SourceConnector::findings
    /// [`findings`]: crate::findings
    Told(String),
    /// Other hosts will, later: the table is compiled before they are there, and again when they are.
    Later,
}

/// The settings of a source table that the engine needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableSettings {
    /// After this time without a row a partition no longer holds the others back; `None`: never.
    pub idle_timeout_ns: Option<u64>,
    /// Whether each file is a unit of work.
    pub unit_of_work_file: bool,
    /// Whether a bad record ends the query.
    pub on_error_fail: bool,
    /// Whether each host of a query reads its own files.
    pub per_host: bool,
}

/// What a statement does with a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Source,
    Sink,
    Lookup,
}

/// Options of every source table.
pub(crate) const SOURCE_OPTIONS: &[OptionKind] = &[
    option(
        "on_error",
        "`skip`",
        "`skip` keeps bad records in the dead-letter file; `fail` ends the query at the first one",
    ),
    option(
        "dead_letter",
        "`slackwater-dead-letter/<table>.jsonl`",
        "the file in which bad records are kept, one JSON object per line: `table`, `place` (such \
             as `file:line`), `reason`, `record` (its first 4 KiB). It is created at the first bad \
             record; later runs append to it",
    ),
    option(
        "idle_timeout",
        "never",
        "a partition that had no row for this long no longer holds the watermark back: `'5 s'`",
    ),
    option(
        "unit_of_work",
        "`none`",
        "`file` (only with connector `file`): each file is a unit of work. Files are read one after \
             the other; windows and running results end at the end of each file",
    ),
];

/// Options of every sink table.
pub(crate) const SINK_OPTIONS: &[OptionKind] = &[option(
    "latency_target",
    "the query's",
    "how soon rows should leave ([more](../sql.md#settings))",
)];

/// Options of tables that the query acts on, not the connector.
pub(crate) const QUERY_OPTIONS: &[&str] = &["changelog", "host", "late_rows"];

/// Rejects a `latency_target` that is not a duration, or that no sink can meet.
pub(crate) fn check_latency_target(options: &Options<'_>) -> Result<(), OptionError> {
    match options.duration_ns("latency_target")? {
        Some(0) => Err(OptionError::new(
            "latency_target",
            "no row can leave at once",
            "write a duration such as '20 ms'",
        )),
        _ => Ok(()),
    }
}

/// The settings of a source table that the engine acts on.
pub fn table_settings(table: &TableDefinition) -> Result<TableSettings, OptionError> {
    settings(&Options::new(&table.options))
}

/// The settings that the options choose.
pub(crate) fn settings(options: &Options<'_>) -> Result<TableSettings, OptionError> {
    let idle_timeout_ns = options.duration_ns("idle_timeout")?;
    if idle_timeout_ns == Some(0) {
        return Err(OptionError::new(
            "idle_timeout",
            "0 would make every partition idle at once",
            "leave it out to wait for every partition",
        ));
    }
    let units = [("file", true), ("none", false)];
    let unit_of_work_file = options.choice("unit_of_work", &units, false)?;
    let per_host = options.choice("files", &[("shared", false), ("per_host", true)], false)?;
    if per_host && unit_of_work_file {
        return Err(OptionError::new(
            "files",
            "hosts read their files at the same time, and units of work are read one after the other",
            "leave 'unit_of_work' out, or share the files",
        ));
    }
    Ok(TableSettings {
        idle_timeout_ns,
        unit_of_work_file,
        per_host,
        on_error_fail: options.choice("on_error", &[("skip", false), ("fail", true)], false)?,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use arrow_schema::{DataType, Field, Schema};

    /// A table `t` for tests.
    pub(crate) fn table(columns: &[(&str, DataType)], options: &[(&str, &str)]) -> TableDefinition {
        let fields = columns
            .iter()
            .map(|(name, data_type)| Field::new(*name, data_type.clone(), true))
            .collect::<Vec<_>>();
        TableDefinition {
            name: "t".into(),
            schema: Arc::new(Schema::new(fields)),
            metadata: BTreeMap::new(),
            primary_key: Vec::new(),
            findings: Findings::Look,
            options: options
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
            formats: Vec::new(),
        }
    }

    #[test]
    fn settings_and_their_errors() {
        let options = [
            ("idle_timeout", "5 s"),
            ("unit_of_work", "file"),
            ("on_error", "fail"),
        ];
        let settings = table_settings(&table(&[], &options)).unwrap();
        assert_eq!(settings.idle_timeout_ns, Some(5_000_000_000));
        assert!(settings.unit_of_work_file && settings.on_error_fail);
        assert_eq!(
            table_settings(&table(&[], &[])).unwrap(),
            TableSettings::default()
        );
        for (name, value) in [
            ("idle_timeout", "5"),
            ("idle_timeout", "0 s"),
            ("on_error", "stop"),
        ] {
            let error = table_settings(&table(&[], &[(name, value)])).unwrap_err();
            assert_eq!(error.option.as_deref(), Some(name), "{error}");
        }
    }
}
