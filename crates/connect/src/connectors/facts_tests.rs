//! The facts in the entries agree with each other and with the options.

use super::CONNECTORS;
use crate::connector::{ConnectorKind, Exclusive};
use crate::table::Use;

#[test]
fn facts_name_options_that_the_connector_has() {
    let has = |kind: &ConnectorKind, usage: Use, name: &str| {
        let mut known = kind.known(usage);
        let is_known = !kind.can(usage) || known.any(|option| option.name == name);
        assert!(is_known, "{}: '{name}' is not an option", kind.name);
    };
    for kind in CONNECTORS {
        if let Some(path) = kind.path {
            has(kind, Use::Source, path);
            has(kind, Use::Sink, path);
        }
        match kind.exclusive {
            Exclusive::File(option) => assert_eq!(kind.path, Some(option), "{}", kind.name),
            Exclusive::Name(option) => has(kind, Use::Sink, option),
            Exclusive::Nothing => {}
        }
        let is_read = !kind.reads_standard_input || kind.can(Use::Source);
        assert!(is_read, "{}: only a source reads standard input", kind.name);
    }
}

#[test]
fn connectors_state_what_a_sink_has_for_itself() {
    let exclusive = |name: &str| ConnectorKind::named(name).unwrap().exclusive;
    assert_eq!(exclusive("file"), Exclusive::File("path"));
    // A SQLite file may have several writers; the sinks only need different names.
    assert_eq!(exclusive("sqlite"), Exclusive::Name("sink.name"));
    assert_eq!(exclusive("Postgres"), Exclusive::Name("sink.name"));
    for name in ["tcp", "kafka", "upsert-kafka", "mqtt", "print", "blackhole"] {
        assert_eq!(exclusive(name), Exclusive::Nothing, "{name}");
    }
    let suggests = CONNECTORS
        .iter()
        .filter(|kind| kind.path_with_format().is_some());
    let suggests: Vec<&str> = suggests.map(|kind| kind.name).collect();
    assert_eq!(suggests, ["file"]);
    assert!(ConnectorKind::named("filesystem").is_none());
}
