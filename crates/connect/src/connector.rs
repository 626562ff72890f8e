//! The table of connectors: what `'connector' = '…'` can name, and everything that is known of each.
//!
//! A connector's own file has its entry, a [`ConnectorKind`]; [`CONNECTORS`] has a line for each. Parsing,
//! checks of options, suggestions, completion in the shell, lists in messages and the tables of options in
//! `docs/connectors` are all generated from the entries.

use std::sync::Arc;

use slackwater_engine::operator::lookup_join::LookupConnector;
use slackwater_engine::sink::SinkConnector;
use slackwater_engine::source::SourceConnector;

use crate::file_format::{FormatKind, Formats};
use crate::options::{OptionError, OptionKind, Options, nearest};
use crate::sink::{blackhole, print};
use crate::source::{datagen, stdin};
use crate::table::{self, TableDefinition, table_settings};
use crate::{file, kafka, mqtt, postgres, sqlite, tcp};

/// All connectors, in the order in which messages name them.
pub const CONNECTORS: &[ConnectorKind] = &[
    file::CONNECTOR,
    stdin::CONNECTOR,
    tcp::CONNECTOR,
    kafka::CONNECTOR,
    mqtt::CONNECTOR,
    sqlite::CONNECTOR,
    postgres::CONNECTOR,
    datagen::CONNECTOR,
    print::CONNECTOR,
    blackhole::CONNECTOR,
];

/// Makes one use of a table. Its options are among those that the connector has; their values are not
/// checked.
pub(crate) type Make<T> = fn(&TableDefinition, &Options<'_>) -> Result<Arc<T>, OptionError>;

/// What is known of a connector.
#[derive(Debug, Clone, Copy)]
pub struct ConnectorKind {
    /// The connector's name.
    pub name: &'static str,
    /// Other engines' names for it.
    pub(crate) aliases: &'static [Alias],
    /// The feature of the build that it needs.
    pub(crate) feature: Option<&'static str>,
    /// Makes a table that is read. `None`: it can only be written.
    pub(crate) source: Option<Make<dyn SourceConnector>>,
    /// Makes a table that is written. `None`: it can only be read.
    pub(crate) sink: Option<Make<dyn SinkConnector>>,
    /// Makes a table in which rows are looked up. One declaration of such a table serves every use, so it may
    /// have the options of all of them.
    pub(crate) lookup: Option<Make<dyn LookupConnector>>,
    /// The formats that its rows can have.
    pub(crate) formats: Formats,
    /// A source's columns may be `METADATA`.
    pub(crate) has_metadata: bool,
    /// The options of every use.
    pub(crate) options: &'static [OptionKind],
    /// The options of sources, without those of every source and of the format.
    pub(crate) source_options: &'static [OptionKind],
    /// The options of sinks, without those of every sink and of the format.
    pub(crate) sink_options: &'static [OptionKind],
    /// The options of lookups.
    pub(crate) lookup_options: &'static [OptionKind],
}

/// Another engine's name for a connector.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alias {
    pub(crate) name: &'static str,
    /// Rejects a table that can't have the name, before its options are checked.
    pub(crate) check: fn(&TableDefinition, Use) -> Result<(), OptionError>,
}

/// What a statement does with a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Source,
    Sink,
    Lookup,
}

/// The maker of a connector that this build does not have.
#[cfg(not(all(feature = "kafka", feature = "sqlite", feature = "postgres")))]
pub(crate) fn not_built<T: ?Sized>(
    _table: &TableDefinition,
    options: &Options<'_>,
) -> Result<Arc<T>, OptionError> {
    let kind = ConnectorKind::named(options.text("connector").unwrap_or_default());
    let feature = kind.and_then(|kind| kind.feature).unwrap_or_default();
    Err(needs_feature("connector", feature))
}

/// The error where the build lacks a feature that the option's value needs.
#[cfg(not(all(
    feature = "kafka",
    feature = "sqlite",
    feature = "postgres",
    feature = "parquet"
)))]
pub(crate) fn needs_feature(option: &str, feature: &str) -> OptionError {
    OptionError::new(
        option,
        format!("this program was built without {feature}"),
        format!("build it with: cargo build --release --features {feature}"),
    )
}

/// The connector of a table that is read. Checks all options, and finds files; opens nothing.
pub fn source(table: &TableDefinition) -> Result<Arc<dyn SourceConnector>, OptionError> {
    let options = Options::new(&table.options);
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
    let options = Options::new(&table.options);
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
    let options = Options::new(&table.options);
    let kind = ConnectorKind::named(options.text("connector").unwrap_or_default());
    let Some((kind, make)) = kind.and_then(|kind| Some((kind, kind.lookup?))) else {
        return Ok(None);
    };
    kind.check(Use::Lookup, table, &options)?;
    make(table, &options).map(Some)
}

impl ConnectorKind {
    /// The connector of that name, in any case.
    fn named(name: &str) -> Option<&'static ConnectorKind> {
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

    fn can(&self, usage: Use) -> bool {
        match usage {
            Use::Source => self.source.is_some(),
            Use::Sink => self.sink.is_some(),
            Use::Lookup => self.lookup.is_some(),
        }
    }

    /// Rejects options and columns that no such table has.
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
            table::check_no_metadata(table, "sinks")?;
        } else if !self.has_metadata {
            table::check_no_metadata(table, &what)?;
        }
        let mut known: Vec<&str> = self.known(usage).map(|option| option.name).collect();
        known.push("connector");
        if self.formats != Formats::None {
            let format = FormatKind::of(options, usage, self.formats)?;
            what.push_str(&format!(" with format {}", format.name));
            known.push("format");
            known.extend(format.known(usage, self.formats).map(|option| option.name));
        }
        options.check_known(&what, &known)?;
        if usage != Use::Sink {
            self.check_settings(table)?;
        }
        Ok(())
    }

    /// The connector's options for one use, without those of the format.
    fn known(&self, usage: Use) -> impl Iterator<Item = &'static OptionKind> {
        let every = self.can(Use::Lookup);
        let is_for = |of: Use, options: &'static [OptionKind]| match every || usage == of {
            true => options,
            false => &[],
        };
        [
            self.options,
            is_for(Use::Source, self.source_options),
            is_for(Use::Source, table::SOURCE_OPTIONS),
            is_for(Use::Sink, self.sink_options),
            is_for(Use::Sink, table::SINK_OPTIONS),
            is_for(Use::Lookup, self.lookup_options),
        ]
        .into_iter()
        .flatten()
    }

    /// All options of the connector, in any use, without those of formats.
    pub(crate) fn every_option(&self) -> impl Iterator<Item = &'static OptionKind> {
        let own = [self.options, self.source_options, self.sink_options];
        own.into_iter().chain([self.lookup_options]).flatten()
    }

    fn check_settings(&self, table: &TableDefinition) -> Result<(), OptionError> {
        let settings = table_settings(table)?;
        crate::dead_letters(table)?;
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

/// The names of the connectors that can be used so, for messages.
fn usable(usage: Use) -> String {
    let names = CONNECTORS.iter().filter(|kind| kind.can(usage));
    let names = listed(names.map(|kind| kind.name), "or");
    match usage {
        Use::Sink => format!("write to {names}"),
        Use::Source | Use::Lookup => format!("read from {names}"),
    }
}

/// The names of all connectors, as a sentence has them.
pub(crate) fn every_name() -> String {
    listed(CONNECTORS.iter().map(|kind| kind.name), "and")
}

/// `a, b or c`.
pub(crate) fn listed<'a>(names: impl Iterator<Item = &'a str>, last: &str) -> String {
    let names: Vec<&str> = names.collect();
    match names.split_last() {
        Some((end, rest)) if !rest.is_empty() => format!("{} {last} {end}", rest.join(", ")),
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod docs_tests;
