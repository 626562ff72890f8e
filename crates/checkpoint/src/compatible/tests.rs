use serde_json::json;

use super::*;
use crate::manifest::{Part, Partition, Pending};
use crate::part::PartName;

fn identity(key: &str, kind: NodeKind, aspects: &[(&str, &str)]) -> Identity {
    let aspects = aspects.iter();
    let aspects = aspects.map(|(name, value)| (name.to_string(), json!(value)));
    Identity {
        key: key.to_string(),
        kind,
        meaning: Meaning::State(aspects.collect()),
    }
}

const SUMS: [(&str, &str); 3] = [
    ("keys", "user VARCHAR"),
    ("aggregates", "SUM(amount BIGINT)"),
    ("window", "TUMBLE 10 s"),
];

fn node(identity: Identity) -> Node {
    Node {
        identity,
        instances: 2,
        watermark: None,
        parts: Vec::new(),
        partitions: Vec::new(),
        pending: Vec::new(),
    }
}

/// `events` → `per_user` → `out`, each with something stored.
fn manifest() -> Manifest {
    let mut events = node(identity(
        "events",
        NodeKind::Source,
        &[("connector", "file")],
    ));
    events.partitions.push(Partition {
        name: "a.csv".to_string(),
        position: 10,
        extra: None,
        counted: None,
        watermark: None,
        ended: false,
    });
    let mut sums = node(identity("per_user", NodeKind::Stateful, &SUMS));
    let name = PartName {
        epoch: 1,
        barrier: 1,
    };
    sums.parts.push(Part {
        instance: 0,
        barrier: 1,
        since: None,
        buckets: (0, 4_095),
        owners: None,
        watermark: None,
        object: name.object("per_user", 0, 0),
        bytes: 1,
        rows: 1,
        checksum: String::new(),
    });
    let out = node(identity("out", NodeKind::Sink, &[("connector", "file")]));
    Manifest {
        number: 3,
        buckets: 4_096,
        nodes: vec![events, sums, out],
        ..Manifest::default()
    }
}

/// The same query.
fn query() -> Vec<Wanted> {
    let nodes = manifest().nodes.into_iter();
    let wanted = nodes.map(|node| Wanted {
        sources: match node.identity.kind {
            NodeKind::Source => Vec::new(),
            _ => vec!["events".to_string()],
        },
        identity: node.identity,
        may_begin_empty: false,
    });
    wanted.collect()
}

fn wanted(key: &str, kind: NodeKind, sources: &[&str]) -> Wanted {
    Wanted {
        identity: identity(key, kind, &[]),
        sources: sources.iter().map(ToString::to_string).collect(),
        may_begin_empty: false,
    }
}

fn reasons(manifest: &Manifest, query: &[Wanted]) -> Vec<String> {
    let compared = compare(manifest, 4_096, query, &[], &unequal);
    compared.reasons().map(ToString::to_string).collect()
}

/// What becomes of the new nodes if nothing is refused.
fn fates(manifest: &Manifest, query: &[Wanted]) -> Vec<Fate> {
    let compared = compare(manifest, 4_096, query, &[], &unequal);
    assert_eq!(compared.reasons().next(), None);
    compared.nodes
}

#[test]
fn the_same_query_resumes_whatever_precedes_its_state() {
    assert_eq!(fates(&manifest(), &query()), [0, 1, 2].map(Fate::Continues));
    // The nodes may be in another order; a filter is not part of the meaning.
    let mut query = query();
    query.reverse();
    assert_eq!(fates(&manifest(), &query), [2, 1, 0].map(Fate::Continues));
}

#[test]
fn state_with_another_meaning_is_refused_with_the_difference() {
    let mut query = query();
    let kafka = identity("events", NodeKind::Source, &[("connector", "kafka")]);
    query[0].identity.meaning = kafka.meaning;
    let found = reasons(&manifest(), &query);
    let [events] = found.as_slice() else {
        panic!("one is refused: {found:?}");
    };
    let was = "'events': its state was State(";
    assert!(events.starts_with(was), "{events}");
    let hint = r#"String("kafka")}) (undo the change, or start over)"#;
    assert!(events.ends_with(hint), "{events}");
    let mut kind = super::tests::query();
    kind[1].identity.kind = NodeKind::Sink;
    assert!(reasons(&manifest(), &kind)[0].contains("it was a stateful operator, and is a sink"));
}

#[test]
fn a_missing_node_must_be_dropped_by_name() {
    let query = &query()[..1];
    let found = reasons(&manifest(), query);
    assert_eq!(
        found.len(),
        1,
        "a sink that has committed everything may go: {found:?}"
    );
    assert!(found[0].starts_with("'per_user': it is no longer in the query, and has state"));
    let may_go = ["per_user".to_string()];
    let compared = compare(&manifest(), 4_096, query, &may_go, &unequal);
    assert_eq!(compared.reasons().next(), None);
    assert_eq!(compared.gone, [(1, Fate::Dropped), (2, Fate::Dropped)]);
    let mut pending = manifest();
    pending.nodes[2].pending.push(Pending {
        instance: 0,
        commit: json!(1),
    });
    assert!(reasons(&pending, query)[1].contains("rows wait to be committed"));
    let mut source = super::tests::query();
    source.remove(0);
    assert!(reasons(&manifest(), &source)[0].contains("its positions would be lost"));
}

#[test]
fn a_new_sink_or_source_is_fine_and_a_new_aggregate_only_over_unread_rows() {
    let mut query = query();
    query.push(wanted("out2", NodeKind::Sink, &["events"]));
    query.push(wanted("more", NodeKind::Source, &[]));
    query.push(wanted("of_more", NodeKind::Stateful, &["more"]));
    let [.., sink, source, sums] = &fates(&manifest(), &query)[..] else {
        panic!("there are six nodes")
    };
    assert_eq!([sink, source, sums], [&Fate::Begins; 3]);
    query.push(wanted("late", NodeKind::Stateful, &["more", "events"]));
    let found = reasons(&manifest(), &query);
    assert!(
        found[0].starts_with("'late': it is new, and rows of 'events' that belong to it were read"),
        "{found:?}"
    );
    query[6].may_begin_empty = true;
    assert_eq!(fates(&manifest(), &query)[6], Fate::Begins);
    query[6].may_begin_empty = false;
    let mut unread = manifest();
    unread.nodes[0].partitions[0].position = 0;
    assert_eq!(fates(&unread, &query)[6], Fate::Begins);
}

#[test]
fn other_buckets_and_duplicate_keys_are_refused() {
    let compared = compare(&manifest(), 1_024, &query(), &[], &unequal);
    let refused = compared.reasons().next().unwrap();
    assert!(refused.to_string().contains("4096 buckets"));
    let mut query = query();
    query.push(query[1].clone());
    assert!(reasons(&manifest(), &query)[0].contains("two nodes of the query"));
}
