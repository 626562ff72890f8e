//! The description of a connector. Its own file has its entry, a [`ConnectorKind`]; the table of all entries
//! is [`crate::connectors`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use slackwater_engine::operator::lookup_join::LookupConnector;
use slackwater_engine::sink::SinkConnector;
use slackwater_engine::source::SourceConnector;

use crate::file_format::Formats;
use crate::options::{OptionError, OptionKind, Options};
use crate::table::{self, TableDefinition, Use};

/// Makes a table for one use. Its options are known to the connector; their values are not checked yet.
pub(crate) type Make<T> = fn(&TableDefinition, &Options<'_>) -> Result<Arc<T>, OptionError>;

/// What is known of a connector.
#[derive(Debug, Clone, Copy)]
pub struct ConnectorKind {
    /// The connector's name.
    pub name: &'static str,
    /// Other engines' names for it.
    pub(crate) aliases: &'static [Alias],
    /// Makes a table that is read. `None`: it can only be written.
    pub(crate) source: Option<Make<dyn SourceConnector>>,
    /// Makes a table that is written. `None`: it can only be read.
    pub(crate) sink: Option<Make<dyn SinkConnector>>,
    /// Makes a table in which rows are looked up. One declaration of such a table serves every use, so it may
    /// have the options of all of them.
    pub(crate) lookup: Option<Make<dyn LookupConnector>>,
    /// The formats that its rows can have.
    pub(crate) formats: Formats,
    /// Whether a source's columns may be `METADATA`.
    pub(crate) has_metadata: bool,
    /// The option with the path of the files that a table reads or writes. `None`: it reads and writes no
    /// files, whatever its options are called.
    pub path: Option<&'static str>,
    /// What a sink has for itself: two sinks that share it would lose rows.
    pub exclusive: Exclusive,
    /// Whether a source reads the process's standard input, which can have only one reader.
    pub reads_standard_input: bool,
    /// Whether the rows of a source come from other threads of this process ([`crate::push`]), so that
    /// something has to take them from outside.
    pub is_pushed: bool,
    /// Which of its tables only the host where a query was started has.
    pub(crate) at_home: AtHome,
    /// The options of all uses.
    pub(crate) options: &'static [OptionKind],
    /// The options of sources, without those of every source and of the format.
    pub(crate) source_options: &'static [OptionKind],
    /// The options of sinks, without those of every sink and of the format.
    pub(crate) sink_options: &'static [OptionKind],
    /// The options of lookups.
    pub(crate) lookup_options: &'static [OptionKind],
}

/// What a sink shares with no other sink of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exclusive {
    /// The file or folder at the path in this option. A sink would overwrite what another one writes to it,
    /// and what a source reads from it.
    File(&'static str),
    /// The name in this option, or else the table's: the sink's progress is stored under it.
    Name(&'static str),
    /// Nothing: any number of sinks can write to one place.
    Nothing,
}

/// The tables of a connector that only the host where a query was started has, unless they say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtHome {
    /// None: every host reaches them.
    Never,
    /// All: a terminal, a file that one process may write.
    Always,
    /// Those with this value of an option.
    If {
        option: &'static str,
        value: &'static str,
    },
    /// Sinks of a single file. Folders are shared.
    OneFile,
}

/// Another engine's name for a connector.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alias {
    pub(crate) name: &'static str,
    /// Rejects a table that can't have the name, before its options are checked.
    pub(crate) check: fn(&TableDefinition, Use) -> Result<(), OptionError>,
}

impl ConnectorKind {
    /// The option with the path of files whose rows can have several formats, so that their ending suggests
    /// one.
    pub fn path_with_format(&self) -> Option<&'static str> {
        match self.formats {
            Formats::Files => self.path,
            Formats::None | Formats::Messages | Formats::Lines => None,
        }
    }

    /// Whether only the host where a query was started has a table that is read (or written, `is_sink`).
    pub fn runs_at_home(&self, options: &BTreeMap<String, String>, is_sink: bool) -> bool {
        let value = |option: &str| options.get(option).map(String::as_str);
        match self.at_home {
            AtHome::Never => false,
            AtHome::Always => true,
            AtHome::If {
                option,
                value: expected,
            } => value(option) == Some(expected),
            AtHome::OneFile => {
                let path = self.path.and_then(value).map(Path::new);
                is_sink && path.is_some_and(|path| path.extension().is_some())
            }
        }
    }

    pub(crate) fn can(&self, usage: Use) -> bool {
        match usage {
            Use::Source => self.source.is_some(),
            Use::Sink => self.sink.is_some(),
            Use::Lookup => self.lookup.is_some(),
        }
    }

    /// The connector's options for one use, without those of the format.
    pub(crate) fn known(&self, usage: Use) -> impl Iterator<Item = &'static OptionKind> {
        let every = self.can(Use::Lookup);
        let is_for = |side: Use, options: &'static [OptionKind]| match every || usage == side {
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
}
