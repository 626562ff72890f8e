//! The tables of options in `docs/connectors` are generated from the entries; `UPDATE_EXPECTED=1` writes
//! them, and the page of a connector that has none.

use std::io::ErrorKind;
use std::path::Path;

use super::{CONNECTORS, ConnectorKind};
use crate::file_format::{FORMATS, Formats};
use crate::options::OptionKind;
use crate::table::{self, Use};

/// The command that writes the tables, and pages that don't exist yet.
const UPDATE: &str = "UPDATE_EXPECTED=1 cargo test -p slackwater-connect connectors::";

const BEGIN: &str = "<!-- options of ";
const END: &str = "<!-- end of options -->";

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

/// Checks that the page `DIRECTORY/NAME` has the tables `sections`, as they should be. `update`: writes the
/// tables, and the page if there is none.
fn check_page(
    directory: &Path,
    name: &str,
    sections: &[String],
    update: bool,
) -> Result<(), String> {
    let path = directory.join(name);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(format!("docs/connectors/{name}: {error}"));
        }
        Err(_) if update => format!(
            "# Connector `{}`\n\n{}",
            name.trim_end_matches(".md"),
            markers(sections)
        ),
        Err(_) => {
            let lines = markers(sections);
            return Err(format!(
                "create docs/connectors/{name}, with these lines:\n\n{lines}\n{UPDATE} creates it"
            ));
        }
    };
    let (written, found) = generated(&text);
    let lacking = |of: &[String], all: &[String]| -> Vec<String> {
        let missing = all.iter().filter(|section| !of.contains(section));
        missing.cloned().collect()
    };
    let missing = lacking(&found, sections);
    if !missing.is_empty() {
        let lines = markers(&missing);
        return Err(format!(
            "docs/connectors/{name} needs these lines:\n\n{lines}"
        ));
    }
    let unknown = lacking(sections, &found);
    if !unknown.is_empty() || found.len() > sections.len() {
        let tables = match unknown.is_empty() {
            true => found.join("', '"),
            false => unknown.join("', '"),
        };
        return Err(format!(
            "docs/connectors/{name} has tables that do not exist, or one of them twice: '{tables}'"
        ));
    }
    if update {
        return std::fs::write(&path, written).map_err(|error| error.to_string());
    }
    match written == text {
        true => Ok(()),
        false => Err(format!(
            "docs/connectors/{name}: the options have changed; {UPDATE} writes the page again"
        )),
    }
}

/// The lines between which the tables of these sections are written.
fn markers(sections: &[String]) -> String {
    let lines = sections.iter();
    let lines = lines.map(|section| format!("{BEGIN}{section} -->\n{END}\n"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The tables of options on a connector's page.
fn sections_of(kind: &ConnectorKind) -> Vec<String> {
    let sections = [
        ("all", !kind.options.is_empty()),
        ("source", kind.can(Use::Source)),
        ("sink", kind.can(Use::Sink)),
        ("lookup", kind.can(Use::Lookup)),
    ];
    let had = sections.iter().filter(|(_, has)| *has);
    let had = had.map(|(section, _)| format!("{}: {section}", kind.name));
    had.collect()
}

#[test]
fn the_pages_of_connectors_and_formats_have_all_options() {
    let update = std::env::var_os("UPDATE_EXPECTED").is_some();
    let mut pages: Vec<(String, Vec<String>)> = (CONNECTORS.iter())
        .map(|kind| (format!("{}.md", kind.name), sections_of(kind)))
        .collect();
    let sections = FORMATS.iter().flat_map(|format| {
        let sections = [
            ("both", format.options),
            ("source", format.source_options),
            ("sink", format.sink_options),
        ];
        let had = sections.into_iter().filter(|(_, list)| !list.is_empty());
        had.map(|(section, _)| format!("{}: {section}", format.name))
    });
    pages.push(("formats.md".to_string(), sections.collect()));
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/connectors");
    let checked = pages
        .iter()
        .filter_map(|(name, sections)| check_page(&directory, name, sections, update).err());
    let wrong: Vec<String> = checked.collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n\n"));
}

#[test]
fn a_connector_without_a_page_is_told_what_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let sections = sections_of(ConnectorKind::named("tcp").unwrap());
    let check = |sections: &[String], update| check_page(folder.path(), "tcp.md", sections, update);
    assert_eq!(
        check(&sections, false).unwrap_err(),
        "create docs/connectors/tcp.md, with these lines:\n\n\
         <!-- options of tcp: all -->\n<!-- end of options -->\n\n\
         <!-- options of tcp: source -->\n<!-- end of options -->\n\n\
         <!-- options of tcp: sink -->\n<!-- end of options -->\n\n\
         UPDATE_EXPECTED=1 cargo test -p slackwater-connect connectors:: creates it"
    );
    let path = folder.path().join("tcp.md");
    assert!(!path.exists());

    check(&sections, true).unwrap();
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.starts_with("# Connector `tcp`\n\n<!-- options of tcp: all -->\n\n| option |"));
    assert!(page.contains("| `address` | required |"), "{page}");
    assert!(page.ends_with("|\n\n<!-- end of options -->\n"), "{page}");
    assert_eq!(check(&sections, false), Ok(()));

    let changed = page.replace("| required |", "| none |");
    std::fs::write(&path, changed).unwrap();
    assert_eq!(
        check(&sections, false).unwrap_err(),
        "docs/connectors/tcp.md: the options have changed; UPDATE_EXPECTED=1 cargo test -p \
         slackwater-connect connectors:: writes the page again"
    );
    check(&sections, true).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), page);

    let error = check(
        &[&sections[..], &["tcp: lookup".to_string()]].concat(),
        true,
    )
    .unwrap_err();
    assert!(error.ends_with(
        "needs these lines:\n\n<!-- options of tcp: lookup -->\n<!-- end of options -->\n"
    ));
    let error = check(&sections[..2], false).unwrap_err();
    assert!(
        error.ends_with("do not exist, or one of them twice: 'tcp: sink'"),
        "{error}"
    );
    std::fs::write(&path, [&page[..], &page[..]].concat()).unwrap();
    assert!(check(&sections, false).unwrap_err().contains("twice"));
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
