//! Tests of sessions: streams and doors, among those that know the secret, and with those that don't.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use slackwater_secure::{Door, Secret, Stream};

#[path = "secure/doors.rs"]
mod doors;
#[path = "secure/secrets.rs"]
mod secrets;
#[path = "secure/streams.rs"]
mod streams;

/// Nothing in these tests takes this long on any machine.
const TOO_LONG: Duration = Duration::from_secs(20);

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

fn secret() -> Secret {
    Secret::generate().expect("randomness")
}

/// A door, and the streams that come through it.
fn door(secret: Option<&Secret>) -> (Door, Receiver<Stream>) {
    let (admitted, streams) = channel();
    let admit = move |stream: Stream, peer| {
        assert_eq!(stream.peer_address(), peer);
        // A test that is over takes no more.
        let _ = admitted.send(stream);
    };
    let door = Door::bind(any_port(), secret.cloned(), admit, |_| {});
    (door.expect("a port"), streams)
}

fn connect(door: &Door, secret: Option<&Secret>) -> std::io::Result<Stream> {
    Stream::connect(door.local_address(), secret, TOO_LONG)
}

/// Both ends of a stream.
fn pair(secret: Option<&Secret>) -> (Door, Stream, Stream) {
    let (door, streams) = door(secret);
    let ours = connect(&door, secret).expect("a stream");
    let theirs = streams.recv_timeout(TOO_LONG).expect("a stream");
    assert_eq!(ours.local_address(), theirs.peer_address());
    assert_eq!(ours.peer_address(), theirs.local_address());
    assert_eq!(ours.is_sealed(), secret.is_some());
    (door, ours, theirs)
}

/// Waits until the door has refused somebody for `reason`.
fn expect_refusal(door: &Door, reason: &str) {
    let end = Instant::now() + TOO_LONG;
    loop {
        let refused = door.refused();
        if let Some(error) = refused
            .last
            .iter()
            .find(|error| error.reason.contains(reason))
        {
            assert!(error.peer.starts_with("127.0.0.1:"), "{error}");
            return;
        }
        assert!(
            Instant::now() < end,
            "not refused for {reason}: {refused:?}"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A stranger's connection.
fn stranger(door: &Door) -> TcpStream {
    let stream = TcpStream::connect(door.local_address()).expect("a connection");
    stream.set_read_timeout(Some(TOO_LONG)).expect("a time-out");
    stream
}

/// What a peer sends until it closes or resets the connection.
fn all_of(mut stream: impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("not closed: {error}"),
    }
    all
}
