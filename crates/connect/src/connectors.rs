//! The table of connectors: what `'connector' = '…'` can name.
//!
//! Each entry is in the file of its connector (in this folder if a connector has a source and a sink);
//! [`CONNECTORS`] has a line for each. Parsing, checks of options, suggestions, completion in the shell,
//! lists in messages and the tables of options in `docs/connectors` are all generated from the entries.

mod file;
mod kafka;
mod mqtt;
mod tcp;

use std::sync::{Arc, LazyLock};

use slackwater_engine::operator::lookup_join::LookupConnector;
use slackwater_engine::sink::SinkConnector;
use slackwater_engine::source::SourceConnector;

use crate::connector::{Alias, ConnectorKind};
use crate::dead_letters::{self, FileDeadLetters};
use crate::file_format::{Chosen, FORMATS, Formats};
use crate::options::{OptionError, Options, listed, nearest};
use crate::sink::{blackhole, print};
use crate::source::{datagen, http, memory, stdin};
use crate::table::{self, TableDefinition, Use, table_settings};
use crate::{custom, postgres, sqlite};

/// All connectors, in the order in which messages name them.
pub const CONNECTORS: &[ConnectorKind] = &[
    file::CONNECTOR,
    stdin::CONNECTOR,
    tcp::CONNECTOR,
    http::CONNECTOR,
    kafka::CONNECTOR,
    mqtt::CONNECTOR,
    sqlite::CONNECTOR,
    postgres::CONNECTOR,
    datagen::CONNECTOR,
    memory::CONNECTOR,
    custom::CONNECTOR,
    print::CONNECTOR,
    blackhole::CONNECTOR,
];

/// The connector of a table that is read. Checks all options and lists files; opens nothing.
pub fn source(table: &TableDefinition) -> Result<Arc<dyn SourceConnector>, OptionError> {
    let options = table.all_options();
    let kind = ConnectorKind::of(&options, Use::Source)?;
    let Some(make) = kind.source else {
        let reason = format!("{} can only be written", kind.name);
        return Err(OptionError::new("connector", reason, usable(Use::Source)));
    };
    kind.check(Use::Source, table, &options)?;
    make(table, &options)
}

/// The connector of a table that is written. Checks all options; opens nothing.
pub fn sink(table: &TableDefinition) -> Result<Arc<dyn SinkConnector>, OptionError> {
    let options = table.all_options();
    let kind = ConnectorKind::of(&options, Use::Sink)?;
    let Some(make) = kind.sink else {
        let reason = format!("{} can only be read", kind.name);
        return Err(OptionError::new("connector", reason, usable(Use::Sink)));
    };
    kind.check(Use::Sink, table, &options)?;
    table::check_latency_target(&options)?;
    make(table, &options)
}

/// The connector of a table in which rows are looked up by their keys; `None` for one that is only read or
/// written. Checks all options; opens nothing.
pub fn lookup(table: &TableDefinition) -> Result<Option<Arc<dyn LookupConnector>>, OptionError> {
    let options = table.all_options();
    let kind = ConnectorKind::named(options.text("connector").unwrap_or_default());
    let Some((kind, make)) = kind.and_then(|kind| Some((kind, kind.lookup?))) else {
        return Ok(None);
    };
    kind.check(Use::Lookup, table, &options)?;
    make(table, &options).map(Some)
}

/// The dead letters of a table that is read, from its options `on_error` and `dead_letter`. A table without a
/// connector stands for the rows that operators produce.
pub fn dead_letters(table: &TableDefinition) -> Result<FileDeadLetters, OptionError> {
    let options = Options::new(&table.options);
    let kind = ConnectorKind::named(options.text("connector").unwrap_or_default());
    let formats = kind.map_or(Formats::None, |kind| kind.formats);
    dead_letters::dead_letters(&table.name, &options, formats)
}

impl ConnectorKind {
    /// The connector of that name, in any case; `None` if there is none.
    pub fn named(name: &str) -> Option<&'static ConnectorKind> {
        CONNECTORS.iter().find(|kind| {
            let is_alias = |alias: &Alias| alias.name.eq_ignore_ascii_case(name);
            kind.name.eq_ignore_ascii_case(name) || kind.aliases.iter().any(is_alias)
        })
    }

    fn of(options: &Options<'_>, usage: Use) -> Result<&'static ConnectorKind, OptionError> {
        let name = options.required("connector", CONNECTORS[0].name)?;
        if let Some(kind) = ConnectorKind::named(name) {
            return Ok(kind);
        }
        let known: Vec<&str> = (CONNECTORS.iter().filter(|kind| kind.can(usage)))
            .map(|kind| kind.name)
            .collect();
        let mut fix = usable(usage);
        if let Some(near) = nearest(name, &known) {
            fix = format!("did you mean '{near}'? {fix}");
        }
        let reason = format!("'{name}' is not a connector");
        Err(OptionError::new("connector", reason, fix))
    }

    /// Rejects options and columns that such a table can't have.
    fn check(
        &self,
        usage: Use,
        table: &TableDefinition,
        options: &Options<'_>,
    ) -> Result<(), OptionError> {
        let name = options.text("connector").unwrap_or_default();
        let mut aliases = self.aliases.iter();
        if let Some(alias) = aliases.find(|alias| alias.name.eq_ignore_ascii_case(name)) {
            (alias.check)(table, usage)?;
        }
        let mut what = match (self.can(Use::Lookup), usage) {
            (true, _) => format!("tables of {}", self.name),
            (false, Use::Sink) => format!("{} sinks", self.name),
            (false, _) => format!("{} sources", self.name),
        };
        if usage == Use::Sink {
            check_no_metadata(table, "sinks")?;
        } else if !self.has_metadata {
            check_no_metadata(table, &what)?;
        }
        let mut known: Vec<&str> = self.known(usage).map(|option| option.name).collect();
        known.push("connector");
        if self.formats != Formats::None {
            let format = Chosen::of(options, usage, self.formats)?;
            what.push_str(&format!(" with format {}", format.name()));
            known.push("format");
            known.extend(format.known(usage, self.formats));
        }
        check_known(options, &what, &known)?;
        if usage != Use::Sink {
            self.check_settings(table)?;
        }
        Ok(())
    }

    fn check_settings(&self, table: &TableDefinition) -> Result<(), OptionError> {
        let settings = table_settings(table)?;
        dead_letters(table)?;
        if settings.unit_of_work_file && self.formats != Formats::Files {
            return Err(OptionError::new(
                "unit_of_work",
                "'file' needs a source of files",
                "leave it out, or use 'connector' = 'file'",
            ));
        }
        Ok(())
    }
}

/// The names of the connectors that support this use, for messages.
fn usable(usage: Use) -> String {
    let names = CONNECTORS.iter().filter(|kind| kind.can(usage));
    let names = listed(names.map(|kind| kind.name), "or");
    match usage {
        Use::Sink => format!("write to {names}"),
        Use::Source | Use::Lookup => format!("read from {names}"),
    }
}

/// The names of all connectors, as a phrase.
pub(crate) fn every_name() -> String {
    listed(CONNECTORS.iter().map(|kind| kind.name), "and")
}

/// Names of all options that a table's `WITH` may hold, whatever its connector. What is not among
/// them belongs to `SET`, or nowhere.
pub fn known_table_options() -> &'static [&'static str] {
    static KNOWN: LazyLock<Vec<&str>> = LazyLock::new(|| {
        let own = CONNECTORS.iter().flat_map(|kind| kind.every_option());
        let of_formats = FORMATS.iter().flat_map(|kind| kind.every_option());
        let common = table::SOURCE_OPTIONS.iter().chain(table::SINK_OPTIONS);
        let described = own.chain(of_formats).chain(common);
        let names = described.map(|option| option.name);
        let names = names.chain(["connector", "format"]);
        let names = names.chain(table::QUERY_OPTIONS.iter().copied());
        let mut names: Vec<&str> = names.filter(|name| !name.ends_with('.')).collect();
        names.sort_unstable();
        names.dedup();
        names
    });
    &KNOWN
}

/// Rejects every option that is not among `known`. `what` names their owner.
fn check_known(options: &Options<'_>, what: &str, known: &[&str]) -> Result<(), OptionError> {
    let Some(name) = options.unknown(known) else {
        return Ok(());
    };
    let all = known.iter().map(|name| match name.ends_with('.') {
        true => format!("{name}…"),
        false => name.to_string(),
    });
    let mut all: Vec<String> = all.collect();
    all.sort_unstable();
    let mut fix = format!("the options are: {}", all.join(", "));
    let belongs_elsewhere = known_table_options().contains(&name);
    // librdkafka's names have a prefix in tables: `properties.`.
    let prefixed = known
        .iter()
        .find(|known| known.ends_with(&format!(".{name}")));
    let near = prefixed.copied().or_else(|| nearest(name, known));
    if !belongs_elsewhere && let Some(near) = near {
        fix = format!("did you mean '{near}'? {fix}");
    }
    let reason = format!("is not an option of {what}");
    Err(OptionError::new(name, reason, fix))
}

/// Rejects `METADATA` columns, for connectors that have none.
fn check_no_metadata(table: &TableDefinition, what: &str) -> Result<(), OptionError> {
    let Some(&index) = table.metadata.keys().next() else {
        return Ok(());
    };
    let name = table.schema.field(index).name();
    let having = CONNECTORS.iter().filter(|kind| kind.has_metadata);
    let having = listed(having.map(|kind| kind.name), "and");
    Err(OptionError::table(
        format!("column '{name}' is METADATA, which {what} do not have"),
        format!("sources of {having} have METADATA"),
    ))
}

#[cfg(test)]
mod docs_tests;
#[cfg(test)]
mod facts_tests;
#[cfg(test)]
mod options_tests;
