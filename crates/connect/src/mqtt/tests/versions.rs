//! What differs between the versions of the protocol.

use super::*;

/// A subscription is granted with this quality of service, or rejected.
fn grant(source: &mut Source, code: u8) -> Result<(), String> {
    let granted = Packet::SubAck { id: 1, code };
    let heard = source.subscriber.hear(&granted, &mut source.out);
    heard.map_err(|error| error.to_string())
}

/// RabbitMQ numbers messages anew with each connection: 1 is the second message then, which has not arrived
/// before. If it were taken for the first one, it would be lost.
#[test]
fn version_3_1_1_reads_messages_again_that_are_acknowledged_once() {
    let options = [("qos", "1"), ("client_id", "me")];
    let mut source = Source::of(Version::V3_1_1, "t", &options);
    source.connect(false);
    grant(&mut source, 1).unwrap();
    source.hear("t", "one", Qos::AtLeastOnce, 1, false);
    assert_eq!(source.taken(0), ["1:one"]);
    source
        .subscriber
        .begin(&ack(true), &mut source.out)
        .unwrap();
    assert_eq!(source.out, [0; 0], "the session has the subscription");
    source.hear("t", "two", Qos::AtLeastOnce, 1, true);
    source.hear("t", "one", Qos::AtLeastOnce, 2, true);
    assert_eq!(source.taken(0), ["2:two", "3:one"]);
    source.reading.acknowledge(0, 2);
    assert_eq!(source.says(), [""; 0], "1 is another message now");
    source.reading.acknowledge(0, 4);
    assert_eq!(source.says(), ["ack 1", "ack 2"]);
}

#[test]
fn version_3_1_1_keeps_the_identifiers_of_messages_that_come_exactly_once() {
    let options = [("qos", "2"), ("client_id", "me")];
    let mut source = Source::of(Version::V3_1_1, "t", &options);
    source.connect(false);
    grant(&mut source, 2).unwrap();
    source.hear("t", "one", Qos::ExactlyOnce, 1, false);
    source
        .subscriber
        .begin(&ack(true), &mut source.out)
        .unwrap();
    source.hear("t", "one", Qos::ExactlyOnce, 1, true);
    assert_eq!(source.taken(0), ["1:one"]);
    source.reading.acknowledge(0, 2);
    assert_eq!(source.says(), ["rec 1"]);
}

/// A session that is not clean stays at the broker for good if its name is random.
#[test]
fn version_3_1_1_keeps_a_session_only_under_a_name() {
    let is_clean = |version: Version, options: &[(&str, &str)]| {
        let mut source = Source::of(version, "t", options);
        let first = source.subscriber.introduction().is_clean;
        source.connect(false);
        (first, source.subscriber.introduction().is_clean)
    };
    let named = [("client_id", "me")];
    assert_eq!(is_clean(Version::V3_1_1, &named), (false, false));
    assert_eq!(is_clean(Version::V3_1_1, &[]), (true, true));
    assert_eq!(is_clean(Version::V5, &named), (false, false));
    assert_eq!(is_clean(Version::V5, &[]), (true, false));
    let name = &broker_of(Version::V3_1_1).client_id;
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    assert!(name.len() <= 23 && is_plain, "{name}");
}

#[test]
fn a_broker_that_promises_less_than_the_option_is_refused() {
    for version in [Version::V3_1_1, Version::V5] {
        let mut source = Source::of(version, "t", &[("qos", "2")]);
        let error = grant(&mut source, 1).unwrap_err();
        assert!(
            error.contains("grants QoS 1 for 't'") && error.contains("'qos' = '1'"),
            "{error}"
        );
        let error = grant(&mut source, 0x80).unwrap_err();
        assert!(error.contains("rejects the subscription to 't'"), "{error}");
        assert_eq!(grant(&mut source, 2), Ok(()));
    }
}

/// Such a broker doesn't say how many messages it takes, and keeps no session of a sink.
#[test]
fn version_3_1_1_sends_a_hundred_messages_at_a_time() {
    let mut sink = Sink::of(Version::V3_1_1, Qos::AtLeastOnce);
    sink.publisher.begin(&ack(false), &mut sink.out).unwrap();
    let mut outgoing = Outgoing::default();
    for _ in 0..150 {
        outgoing.bytes.extend_from_slice(b"tx");
        let end = outgoing.bytes.len();
        outgoing.ends.push((end - 1, end));
    }
    sink.writing.put(&mut outgoing);
    sink.publisher.speak(&mut sink.out).unwrap();
    let said = said_in(Version::V3_1_1, &mut sink.out);
    assert_eq!(said.len(), 100);
    assert_eq!((&*said[0], &*said[99]), ("t=x #1", "t=x #100"));
    assert!(sink.publisher.introduction().is_clean);
}
