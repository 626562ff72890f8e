//! The tables of options in `docs/connectors` are generated from the entries; `UPDATE_EXPECTED=1` writes
//! them.

use std::path::PathBuf;

use super::{CONNECTORS, ConnectorKind};
use crate::file_format::{FORMATS, Formats};
use crate::options::OptionKind;
use crate::table::{self, Use};

fn page(name: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("../../docs/connectors").join(name)
}

fn row(option: &OptionKind) -> String {
    let dots = if option.name.ends_with('.') {
        "…"
    } else {
        ""
    };
    format!(
        "| `{}{dots}` | {} | {} |\n",
        option.name, option.default, option.meaning
    )
}

fn table_of(rows: impl Iterator<Item = String>) -> String {
    let rows: String = rows.collect();
    format!("| option | default | meaning |\n|---|---|---|\n{rows}")
}

/// The row of the option `format`.
fn format_row(kind: &ConnectorKind, usage: Use) -> Option<String> {
    let names = FORMATS
        .iter()
        .filter(|format| format.is_of(kind.formats) && format.can(usage))
        .map(|format| format!("[`{0}`](formats.md#{0})", format.name));
    let names = names.collect::<Vec<_>>().join(", ");
    let default = FORMATS[0].name;
    let is_any = kind.formats != Formats::None;
    is_any.then(|| format!("| `format` | `{default}` | {names}; each has options of its own |\n"))
}

/// The text below `<!-- options of NAME: SECTION -->`.
fn expected(name: &str, section: &str) -> String {
    if let Some(format) = FORMATS.iter().find(|format| format.name == name) {
        let options = match section {
            "both" => format.options,
            "source" => format.source_options,
            "sink" => format.sink_options,
            _ => panic!("a format has no section '{section}'"),
        };
        return table_of(options.iter().map(row));
    }
    let kind = CONNECTORS.iter().find(|kind| kind.name == name);
    let kind = kind.unwrap_or_else(|| panic!("'{name}' is neither a connector nor a format"));
    let (own, usage, common) = match section {
        "all" => return table_of(kind.options.iter().map(row)),
        "lookup" => return table_of(kind.lookup_options.iter().map(row)),
        "source" => (kind.source_options, Use::Source, table::SOURCE_OPTIONS),
        "sink" => (kind.sink_options, Use::Sink, table::SINK_OPTIONS),
        _ => panic!("a connector has no section '{section}'"),
    };
    let own = own.iter().map(row).chain(format_row(kind, usage));
    table_of(own.chain(common.iter().map(row)))
}

/// The page with its tables as they should be, and the sections that it has.
fn generated(text: &str) -> (String, Vec<String>) {
    const BEGIN: &str = "<!-- options of ";
    const END: &str = "<!-- end of options -->";
    let (mut written, mut sections) = (String::new(), Vec::new());
    let mut rest = text;
    while let Some(at) = rest.find(BEGIN) {
        let (before, begun) = rest.split_at(at);
        let (marker, begun) = begun.split_once('\n').expect("the marker has a line");
        let section = marker.trim_start_matches(BEGIN).trim_end_matches(" -->");
        let (name, part) = section.split_once(": ").expect("NAME: SECTION");
        let (_, after) = begun
            .split_once(END)
            .expect("the table has an end of options");
        sections.push(section.to_string());
        written.push_str(&format!(
            "{before}{marker}\n\n{}\n{END}",
            expected(name, part)
        ));
        rest = after;
    }
    (written + rest, sections)
}

#[test]
fn the_pages_of_connectors_and_formats_have_all_options() {
    let update = std::env::var_os("UPDATE_EXPECTED").is_some();
    let mut wanted = Vec::new();
    for kind in CONNECTORS {
        let sections = [
            ("all", !kind.options.is_empty()),
            ("source", kind.can(Use::Source)),
            ("sink", kind.can(Use::Sink)),
            ("lookup", kind.can(Use::Lookup)),
        ];
        let had = sections.iter().filter(|(_, has)| *has);
        let had = had.map(|(section, _)| format!("{}: {section}", kind.name));
        wanted.push((format!("{}.md", kind.name), had.collect::<Vec<_>>()));
    }
    let sections = FORMATS.iter().flat_map(|format| {
        let sections = [
            ("both", format.options),
            ("source", format.source_options),
            ("sink", format.sink_options),
        ];
        let had = sections.into_iter().filter(|(_, list)| !list.is_empty());
        had.map(|(section, _)| format!("{}: {section}", format.name))
    });
    wanted.push(("formats.md".to_string(), sections.collect()));
    for (name, mut wanted) in wanted {
        let path = page(&name);
        let text = std::fs::read_to_string(&path);
        let text = text.unwrap_or_else(|error| panic!("{name} needs its page: {error}"));
        let (written, mut sections) = generated(&text);
        sections.sort();
        wanted.sort();
        assert_eq!(sections, wanted, "the tables of options in {name}");
        if update {
            std::fs::write(&path, written).unwrap();
        } else {
            let what = "the options have changed; UPDATE_EXPECTED=1 writes the page again";
            assert!(written == text, "{name}: {what}");
        }
    }
}

#[test]
fn connectors_are_complete_and_unique() {
    for (index, kind) in CONNECTORS.iter().enumerate() {
        assert!(
            kind.can(Use::Source) || kind.can(Use::Sink),
            "{}",
            kind.name
        );
        let is_same = |other: &ConnectorKind| other.name == kind.name;
        assert_eq!(CONNECTORS.iter().position(is_same), Some(index));
        let options: Vec<&str> = [Use::Source, Use::Sink]
            .into_iter()
            .filter(|usage| kind.can(*usage))
            .flat_map(|usage| kind.known(usage))
            .map(|option| option.name)
            .collect();
        for name in options.iter().filter(|name| !name.ends_with('.')) {
            assert!(crate::known_table_options().contains(name), "{name}");
        }
    }
}
