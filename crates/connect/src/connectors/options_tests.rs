//! Every option that is declared is read: one that nothing reads would be accepted and have no effect.

use std::collections::BTreeSet;

use arrow_schema::DataType;

use super::CONNECTORS;
use crate::connector::ConnectorKind;
use crate::dead_letters;
use crate::file_format::{FORMATS, FormatKind, Formats, Layout};
use crate::options::{OptionError, OptionKind, Options, option};
use crate::table::tests::table;
use crate::table::{self, TableDefinition, Use};

/// The options with which a table of each connector can be made. A new connector needs a line here.
const REQUIRED: &[(&str, &[(&str, &str)])] = &[
    ("file", &[("path", "src/lib.rs")]),
    ("stdin", &[]),
    ("tcp", &[("address", "127.0.0.1:1")]),
    ("http", &[]),
    (
        "kafka",
        &[
            ("topic", "t"),
            ("properties.bootstrap.servers", "127.0.0.1:1"),
        ],
    ),
    ("mqtt", &[("address", "127.0.0.1:1"), ("topic", "t")]),
    ("sqlite", &[("path", "shop.db")]),
    ("postgres", &[("url", "postgresql://user@127.0.0.1:1/shop")]),
    ("datagen", &[("generator", "uservisits")]),
    ("memory", &[("feed", "rows")]),
    ("custom", &[("name", "readings")]),
    ("print", &[]),
    ("blackhole", &[]),
];

/// The options of formats without which there is an error.
const REQUIRED_OF_FORMATS: &[(&str, &str)] = &[("regex.pattern", "(?<ip>.*)")];

/// A table with one column, which every connector and format can hold.
fn one_column(options: &[(&str, &str)]) -> TableDefinition {
    table(&[("ip", DataType::Utf8View)], options)
}

/// The declared options that were not looked up; none if this build does not contain what was made.
fn unread(
    declared: impl Iterator<Item = &'static OptionKind>,
    options: &Options<'_>,
    made: Result<(), OptionError>,
) -> Vec<&'static str> {
    if made.is_err_and(|error| error.reason.contains("was built without")) {
        return Vec::new();
    }
    let looked_up = options.looked_up();
    let names = declared.map(|option| option.name);
    names.filter(|name| !looked_up.contains(*name)).collect()
}

/// The options of a connector that a table for this use does not read, and the format if it has one.
fn unread_of(kind: &ConnectorKind, usage: Use) -> Vec<&'static str> {
    const FORMAT: &[OptionKind] = &[option("format", "", "")];
    let required = REQUIRED.iter().find(|(name, _)| *name == kind.name);
    let (_, required) = required.unwrap_or_else(|| {
        panic!(
            "add the options that a table of '{}' requires to REQUIRED in connectors/options_tests.rs",
            kind.name
        )
    });
    let table = one_column(required);
    let options = Options::new(&table.options);
    let (made, own) = match usage {
        Use::Source => (
            kind.source.map(|make| make(&table, &options).map(|_| ())),
            kind.source_options,
        ),
        Use::Sink => (
            kind.sink.map(|make| make(&table, &options).map(|_| ())),
            kind.sink_options,
        ),
        Use::Lookup => (
            kind.lookup.map(|make| make(&table, &options).map(|_| ())),
            kind.lookup_options,
        ),
    };
    let Some(made) = made else {
        return Vec::new();
    };
    let format = match kind.formats {
        Formats::None => &[],
        Formats::Messages | Formats::Lines | Formats::Files => FORMAT,
    };
    let declared = kind.options.iter().chain(own).chain(format);
    unread(declared, &options, made)
}

/// The options of a format that a table for this use does not read.
fn unread_of_format(kind: &FormatKind, usage: Use) -> Vec<&'static str> {
    let table = one_column(REQUIRED_OF_FORMATS);
    let options = Options::new(&table.options);
    let made = match (kind.layout, usage) {
        (Layout::Lines { read, .. }, Use::Source | Use::Lookup) => {
            read(&options, &table.schema).map(|_| ())
        }
        (Layout::Lines { write: None, .. }, Use::Sink) => return Vec::new(),
        (
            Layout::Lines {
                write: Some(write), ..
            },
            Use::Sink,
        ) => write(&options, &table.schema).map(|_| ()),
        (Layout::Columns(make), _) => make(&options, &table.schema).map(|_| ()),
    };
    let own = match usage {
        Use::Source | Use::Lookup => kind.source_options,
        Use::Sink => kind.sink_options,
    };
    unread(kind.options.iter().chain(own), &options, made)
}

#[test]
fn connectors_read_every_option_that_they_declare() {
    for kind in CONNECTORS {
        for usage in [Use::Source, Use::Sink, Use::Lookup] {
            let unread = unread_of(kind, usage);
            let what = format!("{} declares for {usage:?} but does not read", kind.name);
            assert!(unread.is_empty(), "{what}: {unread:?}");
        }
    }
}

#[test]
fn formats_read_every_option_that_they_declare() {
    for kind in FORMATS {
        for usage in [Use::Source, Use::Sink] {
            let unread = unread_of_format(kind, usage);
            let what = format!("{} declares for {usage:?} but does not read", kind.name);
            assert!(unread.is_empty(), "{what}: {unread:?}");
        }
    }
}

#[test]
fn the_options_of_every_table_are_read() {
    let table = one_column(&[]);
    let options = Options::new(&table.options);
    let made = dead_letters::dead_letters("t", &options, Formats::Lines).map(|_| ());
    let made = made.and_then(|_| table::settings(&options).map(|_| ()));
    let none: [&str; 0] = [];
    assert_eq!(unread(table::SOURCE_OPTIONS.iter(), &options, made), none);

    let options = Options::new(&table.options);
    let made = table::check_latency_target(&options);
    assert_eq!(unread(table::SINK_OPTIONS.iter(), &options, made), none);
}

#[test]
fn an_option_that_nothing_reads_is_found() {
    const FORGOTTEN: &[OptionKind] = &[option("path", "", ""), option("forgotten", "", "")];
    let tcp = ConnectorKind::named("tcp").unwrap();
    let of_sources = ConnectorKind {
        source_options: FORGOTTEN,
        ..*tcp
    };
    assert_eq!(unread_of(&of_sources, Use::Source), ["path", "forgotten"]);
    assert_eq!(unread_of(&of_sources, Use::Sink), [""; 0]);
    let of_all = ConnectorKind {
        options: FORGOTTEN,
        ..*tcp
    };
    assert_eq!(unread_of(&of_all, Use::Sink), ["path", "forgotten"]);
    let csv = FormatKind {
        sink_options: FORGOTTEN,
        ..FORMATS[0]
    };
    assert_eq!(unread_of_format(&csv, Use::Sink), ["path", "forgotten"]);

    let names: BTreeSet<&str> = REQUIRED.iter().map(|(name, _)| *name).collect();
    let known: BTreeSet<&str> = CONNECTORS.iter().map(|kind| kind.name).collect();
    assert_eq!(names, known, "REQUIRED has a line for each connector");
}
