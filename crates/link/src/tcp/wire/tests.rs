use std::os::unix::net::UnixStream;

use super::*;
use crate::tcp::testing::rough_guard;

/// Two wires whose handshake is over.
pub(crate) fn sealed_pair() -> (Wire, Wire) {
    let guard = rough_guard(1);
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    ours.set_nonblocking(true).expect("a socket");
    theirs.set_nonblocking(true).expect("a socket");
    let mut ours = Wire::new(ours.into(), Some(guard.connecting().expect("a seal")));
    let mut theirs = Wire::new(theirs.into(), Some(guard.accepting().expect("a seal")));
    for _ in 0..100 {
        let are_ready = [ours.shake(), theirs.shake()].map(|ready| ready.expect("a handshake"));
        if are_ready == [true, true] {
            return (ours, theirs);
        }
    }
    panic!("the handshake does not end");
}

fn refusal(moved: io::Result<Moved>) -> io::ErrorKind {
    moved.expect_err("an error").kind()
}

#[test]
fn a_stream_comes_through_whole() {
    let (mut ours, mut theirs) = sealed_pair();
    let bytes: Vec<u8> = (0..300_000u32).map(|number| (number % 251) as u8).collect();
    let (mut sent, mut received) = (0, Vec::<u8>::new());
    let mut room = [0; 3_000];
    while received.len() < bytes.len() {
        ours.pay().expect("a socket");
        if let Moved::Bytes(count) = ours.send(&bytes[sent..]).expect("a socket")
            && sent < bytes.len()
        {
            sent += count;
        }
        if let Moved::Bytes(count) = theirs.receive(&mut room).expect("a socket") {
            received.extend(&room[..count]);
        }
    }
    assert!(received == bytes);
}

#[test]
fn regression_what_is_left_in_a_seal_needs_no_event() {
    let (mut ours, mut theirs) = sealed_pair();
    for count in 1..200 {
        let sent = ours.send(&vec![7; 97 * count]).expect("a socket");
        assert_eq!(sent, Moved::Bytes(97 * count));
        // From here on the socket has no event: every byte must be found as long as there may be more.
        let (mut received, mut room) = (0, [0; 4_096]);
        loop {
            match theirs.receive(&mut room).expect("a socket") {
                Moved::Bytes(count) => received += count,
                moved => assert_eq!(moved, Moved::WouldBlock),
            }
            if !theirs.has_more() {
                break;
            }
        }
        assert_eq!(received, 97 * count);
    }
}

/// The window is checked against what is unread: a peer that keeps to it is not dropped for its seal.
#[test]
fn regression_ciphertext_that_is_unread_counts_as_its_plaintext() {
    let (mut ours, mut theirs) = sealed_pair();
    let mut sent = 0;
    for round in 0..3 {
        for _ in 0..10 {
            assert_eq!(
                ours.send(&[7; 4_096]).expect("a socket"),
                Moved::Bytes(4_096)
            );
            sent += 4_096;
        }
        let unread = theirs.unread_bytes();
        assert!(unread <= sent, "{unread} of {sent} in round {round}");
        assert!(unread > sent / 2, "{unread} of {sent} in round {round}");
        // A part of it goes into the seal.
        assert_eq!(theirs.receive(&mut [0; 1]).expect("bytes"), Moved::Bytes(1));
        sent -= 1;
    }
}

#[test]
fn regression_the_end_is_said_before_the_socket_ends() {
    let (mut ours, mut theirs) = sealed_pair();
    ours.send(b"the last words").expect("a socket");
    ours.finish();
    let mut room = [0; 64];
    assert_eq!(theirs.receive(&mut room).expect("bytes"), Moved::Bytes(14));
    assert!(
        theirs.has_more(),
        "an end that came with the bytes has no event"
    );
    assert_eq!(theirs.receive(&mut room).expect("an end"), Moved::End);

    // What was cut off is not an end.
    let (mut ours, mut theirs) = sealed_pair();
    ours.send(b"the last words").expect("a socket");
    drop(ours);
    assert_eq!(theirs.receive(&mut room).expect("bytes"), Moved::Bytes(14));
    assert_eq!(
        refusal(theirs.receive(&mut room)),
        io::ErrorKind::UnexpectedEof
    );
}

/// The end has one event, which the bytes before it used up: whoever is told to wait would wait for ever.
#[test]
fn regression_a_cut_inside_a_record_is_found_without_an_event() {
    for length in (1..3_000).step_by(13) {
        let (mut ours, mut theirs) = sealed_pair();
        ours.send(&vec![7; length]).expect("a socket");
        let mut sealed = vec![0; 8_192];
        let Ok(Moved::Bytes(count)) = socket::receive(&theirs.base.socket, &mut sealed) else {
            panic!("no ciphertext");
        };
        socket::send(&ours.base.socket, &sealed[..count - 1]).expect("a socket");
        drop(ours);
        assert_eq!(
            refusal(theirs.receive(&mut [0; 64])),
            io::ErrorKind::UnexpectedEof,
            "{length} bytes"
        );
    }
}

#[test]
fn changed_bytes_are_found() {
    let (ours, mut theirs) = sealed_pair();
    let socket = ours.base.socket;
    socket::send(&socket, &[3; 500]).expect("a socket");
    assert_eq!(
        refusal(theirs.receive(&mut [0; 64])),
        io::ErrorKind::InvalidData
    );
}
