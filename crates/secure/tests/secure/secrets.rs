//! Tests of who is let in.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

/// A secret of these keys, the first of which is shown.
fn secret_of(keys: &[&Secret]) -> Secret {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cluster.key");
    let text: String = keys.iter().map(|key| key.text()).collect();
    fs::write(&path, text).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
    Secret::read(&path).expect("a secret")
}

fn are_let_in(connecting: &Secret, accepting: &Secret) -> bool {
    let (door, streams) = door(Some(accepting));
    let connected = connect(&door, Some(connecting));
    let Ok(stream) = connected else {
        return false;
    };
    // The connecting side is done first: only a byte says that the other one agrees.
    let word = (&stream)
        .write_all(b"!")
        .and_then(|()| match streams.recv_timeout(TOO_LONG) {
            Ok(theirs) => (&theirs).read_exact(&mut [0]),
            Err(_) => Err(ErrorKind::TimedOut.into()),
        });
    word.is_ok()
}

#[test]
fn a_key_is_changed_host_by_host_without_a_pause() {
    let [old, new] = [secret(), secret()];
    let stages = [
        secret_of(&[&old]),
        secret_of(&[&old, &new]),
        secret_of(&[&new, &old]),
        secret_of(&[&new]),
    ];
    for (one, other) in [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 3), (3, 3)] {
        assert!(are_let_in(&stages[one], &stages[other]), "{one}, {other}");
        assert!(are_let_in(&stages[other], &stages[one]), "{other}, {one}");
    }
}

#[test]
fn another_secret_is_refused_by_both_sides() {
    let (door, streams) = door(Some(&secret()));
    let error = connect(&door, Some(&secret())).err().expect("an error");
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    let expected = format!("{} has another secret", door.local_address());
    assert_eq!(error.to_string(), expected);
    expect_refusal(&door, "has another secret");
    assert!(streams.try_recv().is_err(), "let in");
}

/// Only the connecting side shows a key of its own: the acceptor must look at it.
#[test]
fn the_one_who_connects_must_know_the_secret_too() {
    let [ours, theirs] = [secret(), secret()];
    // Accepts the door's key, and shows another one.
    let spy = secret_of(&[&theirs, &ours]);
    let (door, streams) = door(Some(&ours));
    // For the connecting side the handshake may be over before it is refused.
    if let Ok(stream) = connect(&door, Some(&spy)) {
        let mut byte = [0];
        assert!((&stream).read_exact(&mut byte).is_err(), "let in");
    }
    expect_refusal(&door, "has another secret");
    assert!(streams.try_recv().is_err(), "let in");
}

#[test]
fn clear_and_sealed_do_not_mix() {
    let ours = secret();
    let (sealed, streams) = door(Some(&ours));
    let stream = connect(&sealed, None).expect("a connection");
    (&stream).write_all(b"hello").expect("a write");
    assert!(all_of(&stream).len() <= 7, "more than an alert");
    expect_refusal(&sealed, "does not use this protocol");
    assert!(streams.try_recv().is_err(), "let in");

    // A door in clear, where an echo answers.
    let (clear, streams) = door(None);
    let echo = std::thread::spawn(move || {
        let stream = streams.recv_timeout(TOO_LONG).expect("a stream");
        let mut room = [0; 4_096];
        let count = (&stream).read(&mut room).expect("a message");
        (&stream).write_all(&room[..count]).expect("a write");
    });
    let error = connect(&clear, Some(&ours)).err().expect("an error");
    assert!(
        error.to_string().contains("does not use this protocol"),
        "{error}"
    );
    echo.join().expect("the echo");
}

/// A data link's seal shows another key than a control session.
#[test]
fn a_data_link_is_no_session() {
    let ours = secret();
    let (door, streams) = door(Some(&ours));
    let mut socket = stranger(&door);
    let mut seal = ours.guard().connecting().expect("a seal");
    let error = loop {
        if let Err(error) = seal.open(&mut []) {
            break error;
        }
        seal.pay(&mut socket).expect("a write");
        assert!(!seal.is_ready(), "let in");
        assert!(seal.take(&mut socket).expect("a read") > 0);
    };
    assert!(error.to_string().contains("has another secret"), "{error}");
    assert!(streams.try_recv().is_err(), "let in");
}
