use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::manifest::{Identity, Meaning, Node, NodeKind, Part, Partition, Pending};
use crate::part::PartName;

/// A manifest with one of everything.
pub fn manifest() -> Manifest {
    let node = |key: &str, kind| Node {
        identity: Identity {
            key: key.to_string(),
            kind,
            meaning: Meaning::State(json!({ "version": 1, "keys": ["user"] })),
        },
        instances: 2,
        watermark: Some(-5),
        parts: Vec::new(),
        partitions: Vec::new(),
        pending: Vec::new(),
    };
    let name = PartName {
        epoch: 4,
        barrier: 7,
    };
    let mut source = node("events", NodeKind::Source);
    source.partitions.push(Partition {
        name: "a \"b\"\n.csv".to_string(),
        position: u64::MAX,
        extra: Some("{}".to_string()),
        counted: Some(serde_json::json!({"rows": u64::MAX, "largest": i64::MIN})),
        watermark: Some(i64::MIN),
        ended: true,
    });
    let mut stateful = node("per_user", NodeKind::Stateful);
    stateful.parts.push(Part {
        instance: 1,
        barrier: 7,
        since: None,
        buckets: (0, 4_095),
        owners: None,
        watermark: None,
        object: name.object("per_user", 1, 0),
        bytes: 812,
        rows: 3,
        checksum: checksum_text(9),
    });
    let mut sink = node("out", NodeKind::Sink);
    sink.pending.push(Pending {
        instance: 0,
        commit: json!({"files": ["x.tmp"], "n": 1.5}),
    });
    Manifest {
        number: 12,
        epoch: 4,
        barrier: 7,
        time_ms: 1,
        buckets: 4_096,
        finished: false,
        nodes: vec![source, stateful, sink],
    }
}

fn claim() -> Record {
    Record::Claim(Claim {
        number: 3,
        time_ms: 5,
        owner: "1-ab".to_string(),
        restored: Some(2),
        from_scratch: false,
    })
}

#[test]
fn records_come_back_as_they_were() {
    for record in [Record::Checkpoint(manifest()), claim()] {
        let bytes = record.encode().unwrap();
        assert_eq!(Record::decode(&bytes).unwrap(), record);
        // Two lines that any tool can read.
        let text = String::from_utf8(bytes).unwrap();
        let lines = text.lines().map(serde_json::from_str::<serde_json::Value>);
        assert_eq!(lines.filter(|line| line.is_ok()).count(), 2);
    }
}

/// Later versions must be able to read these.
#[test]
fn the_formats_are_what_they_were() {
    let text = |format: u32, checksum: &str| {
        format!(
            "{{\"slackwater\":\"claim\",\"format\":{format},\"bytes\":52,\
             \"checksum\":\"crc32:{checksum}\"}}\n\
             {{\"number\":3,\"time_ms\":5,\"owner\":\"1-ab\",\"restored\":2}}\n"
        )
    };
    let written = String::from_utf8(claim().encode().unwrap()).unwrap();
    assert_eq!(written, text(2, "7278d743"));
    let before = text(1, "54c7e33a");
    assert_eq!(Record::decode(before.as_bytes()).unwrap(), claim());
}

/// Format 1 described the meaning of state with strings.
#[test]
fn the_aspects_of_format_1_are_read() {
    let stored = json!({"key": "sums", "kind": "stateful", "aspects": [["keys", "user Utf8View"]]});
    let identity = serde_json::from_value::<Identity>(stored).unwrap();
    let aspects = vec![("keys".to_string(), "user Utf8View".to_string())];
    assert_eq!(identity.meaning, Meaning::Aspects(aspects));
}

#[test]
fn no_byte_can_change_unnoticed() {
    for record in [Record::Checkpoint(manifest()), claim()] {
        let bytes = record.encode().unwrap();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                let error = Record::decode(&changed).expect_err("it was changed");
                assert_eq!(error.kind, Kind::Corrupt, "bit {bit} of byte {at}: {error}");
            }
            let error = Record::decode(&bytes[..at]).expect_err("it was cut off");
            assert_eq!(error.kind, Kind::Corrupt);
            let mut longer = bytes.clone();
            longer.insert(at, b' ');
            assert!(Record::decode(&longer).is_err(), "a byte more at {at}");
        }
        let mut longer = bytes.clone();
        longer.push(b'\n');
        assert!(Record::decode(&longer).is_err());
    }
}

#[test]
fn a_later_format_is_not_corruption() {
    let body = b"{\"what\":\"nobody knows\"}";
    let mut bytes = head(CHECKPOINT, FORMAT + 1, body);
    bytes.extend_from_slice(body);
    bytes.push(b'\n');
    let error = Record::decode(&bytes).unwrap_err();
    assert_eq!(error.kind, Kind::Invalid);
    assert!(error.to_string().contains("a later version wrote it"));
}

#[test]
fn unknown_additions_are_ignored() {
    let body = br#"{"number":1,"epoch":1,"barrier":1,"time_ms":0,"buckets":8,"nodes":[],"new":{}}"#;
    let mut bytes = head(CHECKPOINT, FORMAT, body);
    bytes.extend_from_slice(body);
    bytes.push(b'\n');
    let record = Record::decode(&bytes).unwrap();
    assert_eq!(record.number(), 1);
}

#[test]
fn an_inconsistent_manifest_is_not_written() {
    let mut twice = manifest();
    twice.nodes.push(twice.nodes[0].clone());
    let mut outside = manifest();
    outside.nodes[1].parts[0].object = "../elsewhere".to_string();
    let mut alone = manifest();
    alone.nodes[1].parts[0].since = Some(3);
    let mut beyond = manifest();
    beyond.nodes[1].parts[0].buckets = (0, 4_096);
    for wrong in [twice, outside, alone, beyond] {
        let error = Record::Checkpoint(wrong).encode().unwrap_err();
        assert_eq!(error.kind, Kind::Invalid, "{error}");
    }
}

fn manifests() -> impl Strategy<Value = Manifest> {
    let partition = (".*", any::<u64>(), any::<Option<i64>>(), any::<bool>());
    let partition = partition.prop_map(|(name, position, watermark, ended)| Partition {
        name,
        position,
        extra: None,
        counted: ended.then(|| serde_json::json!([position, "\n"])),
        watermark,
        ended,
    });
    let partitions = proptest::collection::vec(partition, 0..5);
    let aspects = proptest::collection::vec((".*", ".*"), 0..3);
    let node = (".*", aspects, partitions, any::<u32>());
    let node = node.prop_map(|(key, aspects, partitions, instances)| Node {
        identity: Identity {
            key,
            kind: NodeKind::Source,
            meaning: Meaning::Aspects(aspects),
        },
        instances,
        watermark: None,
        parts: Vec::new(),
        partitions,
        pending: Vec::new(),
    });
    (proptest::collection::vec(node, 0..4), any::<[u64; 4]>()).prop_map(|(mut nodes, numbers)| {
        for (index, node) in nodes.iter_mut().enumerate() {
            node.identity.key.push_str(&index.to_string());
        }
        Manifest {
            number: numbers[0],
            epoch: numbers[1],
            barrier: numbers[2],
            time_ms: numbers[3],
            buckets: 4_096,
            finished: numbers[0] % 2 == 0,
            nodes,
        }
    })
}

proptest! {
    #[test]
    fn any_manifest_comes_back(manifest in manifests()) {
        let keys = manifest.nodes.iter().map(|node| &node.identity.key);
        let distinct = keys.collect::<std::collections::HashSet<_>>().len();
        prop_assume!(distinct == manifest.nodes.len());
        let record = Record::Checkpoint(manifest);
        prop_assert_eq!(Record::decode(&record.encode().unwrap()).unwrap(), record);
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Record::decode(&bytes).is_err());
    }
}
