//! Tests of doors in front of strangers.

use super::*;

/// A host that knows the secret is let in.
fn expect_service(door: &Door, streams: &Receiver<Stream>, secret: &Secret) {
    let ours = connect(door, Some(secret)).expect("a stream");
    let theirs = streams.recv_timeout(TOO_LONG).expect("a stream");
    (&ours).write_all(b"a word").expect("a write");
    let mut word = [0; 6];
    (&theirs).read_exact(&mut word).expect("a word");
    assert_eq!(&word, b"a word");
}

#[test]
fn strangers_get_an_alert_or_nothing() {
    let secret = secret();
    let (door, streams) = door(Some(&secret));
    let mut random = fastrand::Rng::with_seed(1);
    let mut messages = vec![
        b"GET / HTTP/1.1\r\nHost: cluster\r\n\r\n".to_vec(),
        b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
        b"slackTCP\x01\0\0\0\0\0\0\0".to_vec(),
        // A record of TLS with a greeting that is none.
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00".to_vec(),
        // Four records of nothing, and of a kind that doesn't exist.
        b"\x17\x03\x03\x00\x00\x17\x03\x03\x00\x00".to_vec(),
    ];
    messages.extend((0..50).map(|_| {
        let length = random.usize(1..2_000);
        (0..length).map(|_| random.u8(..)).collect()
    }));
    let count = messages.len() as u64;
    for message in messages {
        let mut stranger = stranger(&door);
        let _ = stranger.write_all(&message);
        let _ = stranger.shutdown(Shutdown::Write);
        let answer = all_of(&stranger);
        // An alert: its kind, two bytes of version, two of length, level and description.
        assert!(
            answer.is_empty() || (answer.len() == 7 && answer[0] == 21),
            "{answer:?}"
        );
    }
    expect_refusal(&door, "does not use this protocol");
    let refused = door.refused();
    assert_eq!((refused.count, refused.last.len()), (count, 16));
    expect_service(&door, &streams, &secret);
}

#[test]
fn a_crowd_that_begins_handshakes_keeps_nobody_out() {
    let secret = secret();
    let (door, streams) = door(Some(&secret));
    let mut silent = Vec::new();
    for number in 0..400 {
        let mut stranger = stranger(&door);
        if number % 2 == 0 {
            let mut seal = self::secret().guard().connecting().expect("a seal");
            seal.pay(&mut stranger).expect("a write");
        }
        silent.push(stranger);
        if number % 100 == 50 {
            expect_service(&door, &streams, &secret);
        }
    }
    let end = Instant::now() + TOO_LONG;
    while door.refused().count < 400 - slackwater_secure::HANDSHAKES_MAX as u64 {
        assert!(Instant::now() < end, "{:?}", door.refused());
        std::thread::sleep(Duration::from_millis(1));
    }
    expect_refusal(&door, "before too many others connected");
    expect_service(&door, &streams, &secret);
    drop(silent);
}

#[test]
fn a_silent_stranger_is_sent_away() {
    let secret = secret();
    let (door, streams) = door(Some(&secret));
    let stranger = stranger(&door);
    assert!(all_of(&stranger).is_empty(), "a banner");
    expect_refusal(&door, "did not finish its handshake within 5 s");
    expect_service(&door, &streams, &secret);
}

#[test]
fn in_clear_only_this_host_is_served() {
    for address in ["0.0.0.0:0", "[::]:0", "10.1.2.3:0", "[::ffff:10.1.2.3]:0"] {
        let address: SocketAddr = address.parse().expect("an address");
        let error = Door::bind(address, None, |_, _| {}, |_| {})
            .err()
            .expect("an error");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(
            error.to_string().starts_with(&address.to_string()),
            "{error}"
        );
        assert!(
            error.to_string().ends_with("slackwater key > cluster.key"),
            "{error}"
        );
    }
    Door::bind(any_port(), None, |_, _| {}, |_| {}).expect("a port");
    // With a secret, anybody may knock.
    let everywhere = "0.0.0.0:0".parse().expect("an address");
    Door::bind(everywhere, Some(secret()), |_, _| {}, |_| {}).expect("a port");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let (door, _streams) = door(None);
    let error = Door::bind(door.local_address(), None, |_, _| {}, |_| {})
        .err()
        .expect("an error");
    let expected = format!("can't listen at {}", door.local_address());
    assert!(error.to_string().starts_with(&expected), "{error}");
}

#[test]
fn a_door_that_is_dropped_is_closed_and_its_streams_stay_open() {
    let secret = secret();
    let (door, ours, theirs) = pair(Some(&secret));
    let address = door.local_address();
    let halfway = stranger(&door);
    drop(door);
    assert!(all_of(&halfway).is_empty());
    assert!(TcpStream::connect(address).is_err(), "it still listens");
    (&ours).write_all(b"still").expect("a write");
    (&theirs).read_exact(&mut [0; 5]).expect("a word");
}
