//! Source and sink against a broker: Mosquitto, which `make test-mqtt` installs. The tests start and stop
//! their own brokers, each on a free port of the loopback address, with its data in a temporary folder.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::DataType;
use slackwater_engine::source::SourcePoll;

use crate::table::tests::table;
use support::{Broker, Reader, Writer, numbers_of, subscribe};

/// The versions, and the highest quality of service of a sink.
const VERSIONS: [(&str, &str); 2] = [("5", "2"), ("3.1.1", "1")];

#[test]
fn mqtt_rows_come_back() {
    let Some(broker) = Broker::running("") else {
        return;
    };
    for ((version, highest), qos) in VERSIONS
        .into_iter()
        .flat_map(|version| ["0", "1", "2"].map(|qos| (version, qos)))
    {
        let topic = format!("v{version}/q{qos}/#");
        let client = format!("reader {version} {qos}");
        let spoken = ("protocol_version", version);
        let options = [
            ("topic", &*topic),
            ("qos", qos),
            ("client_id", &client),
            spoken,
        ];
        let mut of_source = broker.table(&options);
        subscribe(&of_source);
        let topics = arrow_schema::Field::new("topic", DataType::Utf8View, true);
        let fields = of_source
            .schema
            .fields()
            .iter()
            .cloned()
            .chain([Arc::new(topics)]);
        of_source.schema = Arc::new(arrow_schema::Schema::new(fields.collect::<Vec<_>>()));
        of_source.metadata = [(2, "topic".to_string())].into();
        let mut reader = Reader::new(&of_source, false);
        // With qos 0 nothing is kept for clients that are not connected.
        std::thread::sleep(Duration::from_millis(if qos == "0" { 500 } else { 0 }));
        let options = [("topic_column", "place"), ("qos", qos.min(highest)), spoken];
        let mut writer = Writer::new(&broker.table(&options));
        for first in (0..3_000).step_by(1_000) {
            writer.write(first..first + 1_000, &format!("v{version}/q{qos}/{first}"));
        }
        let read = reader.read(3_000).strings;
        let place = |first: usize| format!("v{version}/q{qos}/{first}|v{version}/q{qos}/{first}");
        assert_eq!(read[0], format!("0:1:0|{}", place(0)));
        assert_eq!(read[2_999], format!("0:3000:2999|{}", place(2_000)));
        assert_eq!(read.len(), 3_000);
        writer.sink.finish(true).unwrap();
        reader.close();
    }
}

#[test]
fn mqtt_waits_for_a_broker_that_is_not_available() {
    let Some(mut broker) = Broker::new("allow_anonymous true") else {
        return;
    };
    let mut writer = Writer::new(&broker.table(&[("topic", "t"), ("retain", "true")]));
    let mut reader = Reader::new(&broker.table(&[("topic", "t")]), false);
    writer.write(7..8, "x");
    assert!(matches!(reader.source.poll().unwrap(), SourcePoll::Pending));
    broker.start();
    assert_eq!(reader.read(1).strings, ["0:1:7|x"]);
    writer.sink.finish(true).unwrap();
}

#[test]
fn mqtt_survives_brokers_that_are_stopped_or_killed_or_stalled() {
    VERSIONS.into_iter().for_each(survives);
}

fn survives((version, qos_of_sink): (&str, &str)) {
    let Some(mut broker) = Broker::running("") else {
        return;
    };
    let spoken = ("protocol_version", version);
    let named = [
        ("topic", "t/#"),
        ("client_id", "reader"),
        ("qos", "2"),
        spoken,
    ];
    let of_source = broker.table(&named);
    subscribe(&of_source);
    let mut reader = Reader::new(&of_source, false);
    let of_sink = [("topic", "t/x"), ("qos", qos_of_sink), spoken];
    let mut writer = Writer::new(&broker.table(&of_sink));
    writer.write(0..500, "x");
    writer.checkpoint().unwrap();
    let mut numbers = reader.read_all(0..500);
    broker.end("-TERM");
    writer.write(500..1_000, "x");
    broker.start();
    numbers.extend(reader.read_all(500..1_000));
    writer.checkpoint().unwrap();
    broker.signal("-STOP");
    writer.write(1_000..1_500, "x");
    std::thread::sleep(Duration::from_millis(300));
    broker.signal("-CONT");
    numbers.extend(reader.read_all(1_000..1_500));
    // Each message at least once: of those in flight when it was stopped, Mosquitto keeps the identifiers of
    // only twenty, and sends the others again as new ones.
    assert!(numbers.len() >= 1_500);
    // Killed: the broker forgets what it has not saved, and messages in flight are sent again.
    writer.write(1_500..2_000, "x");
    broker.end("-KILL");
    broker.start();
    writer.write(2_000..2_100, "x");
    writer.checkpoint().unwrap();
    reader.read_all(2_000..2_100);
}

#[test]
fn mqtt_a_stalled_broker_holds_the_sink_back() {
    let Some(broker) = Broker::running("") else {
        return;
    };
    let mut writer = Writer::new(&broker.table(&[("topic", "t")]));
    writer.write(0..10, "x");
    writer.checkpoint().unwrap();
    broker.signal("-STOP");
    let mut chunks = 0;
    while writer.sink.ready().unwrap() {
        writer.write(0..1_000, &"y".repeat(1_000));
        chunks += 1;
        // 4 MiB that wait, 8 MiB in flight, and what sockets hold; a chunk has one.
        assert!(chunks < 40, "nothing holds it back");
        std::thread::sleep(Duration::from_millis(5));
    }
    broker.signal("-CONT");
    writer.checkpoint().unwrap();
    assert!(writer.sink.ready().unwrap());
}

#[test]
fn mqtt_messages_that_are_in_no_checkpoint_are_sent_again() {
    // A client of version 3.1.1 can't say how many messages it takes before it acknowledges them.
    let Some(broker) = Broker::running("max_inflight_messages 0") else {
        return;
    };
    for (version, qos) in [("5", "1"), ("5", "2"), ("3.1.1", "1"), ("3.1.1", "2")] {
        let level = format!("again{version}{qos}");
        let topic = format!("{level}/#");
        let client = format!("again {version} {qos}");
        let spoken = ("protocol_version", version);
        let options = [
            ("topic", &*topic),
            ("client_id", &client),
            ("qos", qos),
            spoken,
        ];
        let of_source = broker.table(&options);
        subscribe(&of_source);
        let mut writer = Writer::new(&broker.table(&[("topic", &format!("{level}/x"))]));
        writer.write(0..30, "x");
        writer.checkpoint().unwrap();
        let mut reader = Reader::new(&of_source, true);
        assert_eq!(numbers_of(&reader.read(30)), (0..30).collect::<Vec<i64>>());
        // A checkpoint that contains the first ten.
        reader.connector.stored(&topic, 11);
        reader.close();
        let mut reader = Reader::new(&of_source, true);
        let mut numbers = numbers_of(&reader.read(20));
        numbers.sort_unstable();
        assert_eq!(numbers, (10..30).collect::<Vec<i64>>());
        reader.connector.stored(&topic, 21);
        reader.close();
        writer.write(30..31, "x");
        let mut reader = Reader::new(&of_source, true);
        assert_eq!(numbers_of(&reader.read(1)), [30]);
    }
}

#[test]
fn mqtt_errors_name_the_broker_and_the_option_but_no_password() {
    let Some(mut broker) = Broker::new("") else {
        return;
    };
    let passwords = broker.folder.path().join("passwords");
    let made = Command::new("mosquitto_passwd")
        .args(["-c", "-b", passwords.to_str().unwrap(), "anna", "right"])
        .output();
    let Ok(made) = made else {
        eprintln!("skipped: no mosquitto_passwd");
        return;
    };
    assert!(made.status.success(), "{made:?}");
    let acl = broker.folder.path().join("acl");
    fs::write(&acl, "user anna\ntopic readwrite open/#\n").unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(&passwords, everybody).unwrap();
    let mut settings = fs::File::options()
        .append(true)
        .open(broker.folder.path().join("mosquitto.conf"))
        .unwrap();
    let (passwords, acl) = (passwords.display(), acl.display());
    writeln!(
        settings,
        "allow_anonymous false\npassword_file {passwords}\nacl_file {acl}"
    )
    .unwrap();
    broker.start();
    let wrong = [
        ("topic", "open/x"),
        ("username", "anna"),
        ("password", "secret7"),
    ];
    let older = [&wrong[..], &[("protocol_version", "3.1.1")]].concat();
    for error in [
        Reader::new(&broker.table(&wrong), false).error(),
        Writer::new(&broker.table(&wrong)).error(),
        Reader::new(&broker.table(&older), false).error(),
        Writer::new(&broker.table(&older)).error(),
    ] {
        assert!(
            error.contains(&format!("mqtt broker {}", broker.address())),
            "{error}"
        );
        assert!(error.contains("check 'username' and 'password'"), "{error}");
        assert!(!error.contains("secret7"), "{error}");
    }
    let error = Reader::new(&broker.table(&[("topic", "t")]), false).error();
    assert!(error.contains("add 'username' and 'password'"), "{error}");
    let right = [("username", "anna"), ("password", "right")];
    let shut = [&right[..], &[("topic", "shut/x")]].concat();
    let mut writer = Writer::new(&broker.table(&shut));
    writer.write(0..1, "x");
    let error = writer.error();
    assert!(
        error.contains("may not write to the topic") && error.contains("'topic'"),
        "{error}"
    );
    let open = [&right[..], &[("topic", "open/x")]].concat();
    let mut writer = Writer::new(&broker.table(&open));
    writer.write(0..1, "x");
    writer.checkpoint().unwrap();
}

/// What a source says of a server that gives this answer to its first packet.
fn error_of_answer(answer: &'static [u8], version: &str) -> (String, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(answer).unwrap();
        // Until the other side has read it and closes the connection.
        let _ = stream.read_to_end(&mut vec![]);
    });
    let options = [
        ("connector", "mqtt"),
        ("format", "raw"),
        ("topic", "t"),
        ("address", &address),
        ("protocol_version", version),
    ];
    let table = table(&[("line", DataType::Utf8View)], &options);
    let error = Reader::new(&table, false).error();
    server.join().unwrap();
    (error, address)
}

#[test]
fn mqtt_a_server_that_does_not_speak_mqtt_is_named() {
    let (error, address) = error_of_answer(b"HTTP/1.1 400 Bad Request\r\n\r\n", "5");
    assert!(error.contains("does not speak MQTT 5"), "{error}");
    assert!(
        error.contains(&address) && error.contains("'address'"),
        "{error}"
    );
}

#[test]
fn mqtt_a_broker_of_another_version_is_told_how_to_use_it() {
    // Each refuses in its own version: with return code 1, or with reason 0x84 and properties.
    for (answer, version, other) in [
        (&[0x20, 2, 0, 1][..], "5", "3.1.1"),
        (&[0x20, 3, 0, 0x84, 0], "5", "3.1.1"),
        (&[0x20, 3, 0, 0x84, 0], "3.1.1", "5"),
        (&[0x20, 2, 0, 1], "3.1.1", "5"),
    ] {
        let (error, _) = error_of_answer(answer, version);
        for part in [
            format!("does not speak MQTT {version} "),
            format!("write 'protocol_version' = '{other}'"),
        ] {
            assert!(error.contains(&part), "'{part}' is not in: {error}");
        }
    }
}
