//! Options and their errors, without a broker.

use arrow_schema::DataType;
use slackwater_engine::sink::{Delivery, SinkRequest};

use super::settings::{Cluster, Delivering, Keys, Scan, Startup};
use crate::options::Options;
use crate::table::TableDefinition;
use crate::table::tests::table;
use crate::{sink, source};

const COLUMNS: &[(&str, DataType)] = &[("a", DataType::Int64), ("b", DataType::Utf8View)];

/// A kafka table with these options added.
fn kafka(options: &[(&str, &str)]) -> TableDefinition {
    let servers = "127.0.0.1:1";
    let mut table = table(
        COLUMNS,
        &[
            ("connector", "kafka"),
            ("topic", "orders"),
            ("properties.bootstrap.servers", servers),
        ],
    );
    for (name, value) in options {
        table.options.insert(name.to_string(), value.to_string());
    }
    table
}

fn scan(options: &[(&str, &str)]) -> Result<Scan, String> {
    let table = kafka(options);
    Scan::read(&Options::new(&table.options), 1).map_err(|error| error.to_string())
}

#[test]
fn a_source_starts_at_the_first_offset_and_is_unbounded() {
    let scan = scan(&[]).unwrap();
    assert_eq!(scan.startup, Startup::Earliest);
    assert!(!scan.bounded);
    assert_eq!(scan.discovery_ns, Some(300_000_000_000));
}

#[test]
fn a_bounded_source_looks_for_no_new_partitions() {
    let bounded = [("scan.bounded.mode", "latest-offset")];
    let scan = scan(&bounded).unwrap();
    assert!(scan.bounded && scan.discovery_ns.is_none());
}

#[test]
fn discovery_can_be_switched_off() {
    for never in ["0", "0 s"] {
        let interval = [("scan.topic-partition-discovery.interval", never)];
        assert_eq!(scan(&interval).unwrap().discovery_ns, None);
    }
}

#[test]
fn places_to_begin_at() {
    let offsets = |text: &str| {
        scan(&[
            ("scan.startup.mode", "specific-offsets"),
            ("scan.startup.specific-offsets", text),
        ])
    };
    let two = offsets("partition:0,offset:42;partition:3,offset:7;").unwrap();
    assert_eq!(two.startup, Startup::Offsets(vec![(0, 42), (3, 7)]));
    for wrong in [
        "partition:0",
        "0,42",
        "partition:0,offset:-1",
        "partition:0,offset:1;partition:0,offset:2",
    ] {
        let error = offsets(wrong).unwrap_err();
        assert!(error.contains("write 'partition:0,offset:42;"), "{error}");
    }
    let time = [
        ("scan.startup.mode", "timestamp"),
        ("scan.startup.timestamp-millis", "1767225600000"),
    ];
    assert_eq!(
        scan(&time).unwrap().startup,
        Startup::Timestamp(1_767_225_600_000)
    );
    let error = scan(&time[..1]).unwrap_err();
    assert!(
        error.contains("'scan.startup.timestamp-millis': is missing"),
        "{error}"
    );
    let error = scan(&time[1..]).unwrap_err();
    assert!(
        error.contains("needs scan.startup.mode 'timestamp'"),
        "{error}"
    );
    let error = scan(&[("scan.startup.mode", "group-offsets")]).unwrap_err();
    assert!(error.contains("there is no consumer group"), "{error}");
}

#[test]
fn errors_say_what_to_write() {
    let of_source = |options: &[(&str, &str)]| source(&kafka(options)).err().unwrap().to_string();
    let of_sink = |options: &[(&str, &str)]| sink(&kafka(options)).err().unwrap().to_string();
    for (error, parts) in [
        (
            of_source(&[("topik", "x")]),
            &["'topik'", "did you mean 'topic'"][..],
        ),
        (of_source(&[("topic", "")]), &["'topic': is missing"]),
        (
            of_source(&[("topic", "a b")]),
            &["'a b' is not a valid topic name"],
        ),
        (
            of_source(&[("properties.bootstrap.servers", "")]),
            &["is missing", "127.0.0.1:9092"],
        ),
        (
            of_source(&[("properties.group.id", "g")]),
            &[
                "'properties.group.id': is set by the engine",
                "scan.startup.mode",
            ],
        ),
        (
            of_source(&[("properties.auto.offset.reset", "latest")]),
            &["is set by the engine", "scan.startup.mode"],
        ),
        (
            of_source(&[("properties.sasl.jaas.config", "x")]),
            &["'properties.sasl.jaas.config': Java", "sasl.username"],
        ),
        (
            of_source(&[("properties.fetch.wait.max.ms", "soon")]),
            &["'properties.fetch.wait.max.ms': Invalid value"],
        ),
        (
            of_source(&[("csv.header", "true")]),
            &[
                "'csv.header'",
                "is not an option of kafka sources with format csv",
            ],
        ),
        (
            of_source(&[("key.fields", "a")]),
            &["is not an option of kafka sources"],
        ),
        (
            of_sink(&[("topic", "a;b")]),
            &["a sink writes to one topic"],
        ),
        (
            of_sink(&[("delivery", "exactly-once")]),
            &["did you mean 'exactly_once'"],
        ),
        (
            of_sink(&[("transactional.id.prefix", "")]),
            &["'transactional.id.prefix': '' can't begin the names"],
        ),
        (
            of_sink(&[("properties.transactional.id", "x")]),
            &["is set by the engine", "'transactional.id.prefix'"],
        ),
        (
            of_sink(&[("properties.acks", "1")]),
            &["'properties.acks'", "a row could be lost"],
        ),
        (
            of_sink(&[("key.fields", "a;c")]),
            &["there is no column 'c'", "the columns are: a, b"],
        ),
        (of_sink(&[("key.format", "json")]), &["there is no key"]),
        (
            of_sink(&[("scan.bounded.mode", "latest-offset")]),
            &["is not an option of kafka sinks"],
        ),
    ] {
        for part in parts {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    }
}

#[test]
fn a_sink_of_one_transaction_has_one_instance() {
    let delivery_of = |options: &[(&str, &str)]| {
        let sink = sink(&kafka(options)).unwrap();
        (
            sink.capabilities().delivery,
            sink.capabilities().max_instances_saved,
        )
    };
    assert_eq!(delivery_of(&[]), (Delivery::ExactlyOnce, 1));
    let once = [("delivery", "exactly_once")];
    assert_eq!(delivery_of(&once), (Delivery::ExactlyOnce, 1));
    let twice = [("delivery", "at_least_once")];
    assert_eq!(delivery_of(&twice), (Delivery::AtLeastOnce, usize::MAX));
}

#[test]
fn the_options_that_let_rows_wait_in_the_producer_are_milliseconds() {
    let waits = sink(&kafka(&[])).unwrap().capabilities().client_waits_ms;
    assert!(waits.contains(&"properties.linger.ms"), "{waits:?}");
    for name in waits {
        assert!(sink(&kafka(&[(name, "7")])).is_ok(), "{name}");
        assert!(sink(&kafka(&[(name, "soon")])).is_err(), "{name}");
    }
}

#[test]
fn transactions_need_checkpoints_and_one_instance() {
    let request = |instances, epoch| SinkRequest {
        epoch,
        ..SinkRequest::new(0, instances)
    };
    let error_of = |options: &[(&str, &str)], request: SinkRequest| {
        let made = sink(&kafka(options)).unwrap().sink(&request);
        made.err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    let once = [("delivery", "exactly_once")];
    let twice = [("delivery", "at_least_once")];
    assert_eq!(error_of(&[], request(2, None)), "");
    assert_eq!(error_of(&[], request(1, Some(3))), "");
    assert_eq!(error_of(&twice, request(2, Some(3))), "");
    assert!(error_of(&once, request(1, None)).contains("needs checkpoints"));
    assert!(error_of(&[], request(2, Some(3))).contains("several instances"));
}

#[test]
fn transactions_have_names_and_a_time() {
    let settings_of = |options: &[(&str, &str)]| {
        let table = kafka(options);
        let options = Options::new(&table.options);
        let prefix = Delivering::read(&table, &options).unwrap().prefix;
        let cluster = Cluster::read(&options).unwrap();
        (prefix, cluster.transaction_timeout().as_millis())
    };
    assert_eq!(settings_of(&[]), ("slackwater.orders.t".into(), 900_000));
    let set = [
        ("transactional.id.prefix", "totals"),
        ("properties.transaction.timeout.ms", "60000"),
    ];
    assert_eq!(settings_of(&set), ("totals".into(), 60_000));
}

#[cfg(not(feature = "kafka-tls"))]
#[test]
fn a_build_without_tls_says_so() {
    let table = kafka(&[("properties.security.protocol", "SSL")]);
    let error = Cluster::read(&Options::new(&table.options)).unwrap_err();
    assert!(
        error.to_string().contains("--features kafka-tls"),
        "{error}"
    );
}

#[cfg(not(feature = "kafka-zstd"))]
#[test]
fn a_build_without_zstandard_says_so() {
    let table = kafka(&[("properties.compression.codec", "zstd")]);
    let error = Cluster::read(&Options::new(&table.options)).unwrap_err();
    assert!(
        error.to_string().contains("--features kafka-zstd"),
        "{error}"
    );
}

#[test]
fn a_key_has_columns_and_a_format() {
    let table = kafka(&[("key.fields", "b; a"), ("format", "json")]);
    let keys = Keys::read(&table, &Options::new(&table.options))
        .unwrap()
        .unwrap();
    assert_eq!(keys.columns, [1, 0]);
    assert_eq!(keys.format, crate::format::Format::Json);
}
