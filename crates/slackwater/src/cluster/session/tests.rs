use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::Duration;

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, memfd_create};
use slackwater_secure::Door;

use super::*;

/// Both ends of a session.
pub fn sessions() -> [Arc<Session>; 2] {
    let (sender, admitted) = mpsc::channel();
    let admit = move |stream, _| sender.send(stream).unwrap();
    let door = Door::bind("127.0.0.1:0".parse().unwrap(), None, admit, |_| {}).unwrap();
    let ours = Stream::connect(door.local_address(), None, Duration::from_secs(5)).unwrap();
    let theirs = admitted.recv().unwrap();
    [ours, theirs].map(|stream| Session::new(stream, "a test").unwrap())
}

fn pair() -> (Arc<Session>, Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let ours = Stream::connect(address, None, Duration::from_secs(5)).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    let session = Session::new(ours, "a test").unwrap();
    (session, Receiver::new(theirs))
}

fn file(bytes: &[u8]) -> OwnedFd {
    let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    let mut file = File::from(file);
    file.write_all(bytes).unwrap();
    file.into()
}

fn content(beside: Beside) -> Vec<u8> {
    match beside {
        Beside::Nothing => Vec::new(),
        Beside::Bytes(bytes) => bytes,
        Beside::File(file) => {
            let file = File::from(file);
            let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        }
    }
}

#[test]
fn messages_arrive_in_order_with_what_they_bring() {
    let (session, mut receiver) = pair();
    let long = (0..3 * PIECE_BYTES + 7).map(|n| n as u8);
    let long = long.collect::<Vec<u8>>();
    session.send(&"first", Beside::Nothing);
    session.send(&"state", Beside::File(file(&long)));
    session.send(&"no state", Beside::File(file(&[])));
    session.send(&"counts", Beside::Bytes(long.clone()));
    session.send(&"no counts", Beside::Bytes(Vec::new()));
    session.finish();
    let mut received = Vec::new();
    while let Some((message, beside)) = receiver.receive::<String>().unwrap() {
        received.push((message, content(beside)));
    }
    let expected = [
        ("first", vec![]),
        ("state", long.clone()),
        ("no state", vec![]),
        ("counts", long),
        ("no counts", vec![]),
    ];
    let expected = expected.map(|(message, bytes)| (message.to_string(), bytes));
    assert_eq!(received, expected);
}

#[test]
fn a_beat_does_not_wait_for_state() {
    let (session, mut receiver) = pair();
    // More than the sockets' buffers hold.
    let state = vec![7; 64 << 20];
    session.send(&"state", Beside::File(file(&state)));
    // Until the writer has begun with it.
    std::thread::sleep(Duration::from_millis(50));
    session.send_urgent(&"beat");
    let (first, _) = receiver.receive::<String>().unwrap().unwrap();
    let (second, beside) = receiver.receive::<String>().unwrap().unwrap();
    assert_eq!((&*first, &*second), ("beat", "state"));
    assert_eq!(content(beside).len(), state.len());
}

#[test]
fn a_session_that_is_not_read_ends_and_blocks_nobody() {
    let (session, mut receiver) = pair();
    let bytes = vec![0; 1 << 20];
    for _ in 0..200 {
        session.send(&"counts", Beside::Bytes(bytes.clone()));
    }
    let reason = session.ended().expect("it has ended");
    assert!(reason.contains("64 MiB"), "{reason}");
    // What had been sent is still read, then the connection ends.
    while let Ok(Some((message, _))) = receiver.receive::<String>() {
        assert_eq!(message, "counts");
    }
}

proptest! {
    #[test]
    fn bytes_of_any_kind_are_received_or_refused(bytes: Vec<u8>) {
        let mut receiver = Receiver::new(&bytes[..]);
        while let Ok(Some((_, beside))) = receiver.receive::<serde_json::Value>() {
            content(beside);
        }
    }

    #[test]
    fn what_is_cut_short_is_no_message(cut in 0..60usize) {
        let json = br#""a message of some length, which is cut short""#;
        let frame = frame(Kind::Message, json);
        let cut = cut.min(frame.len());
        let received = Receiver::new(&frame[..cut]).receive::<String>();
        match cut {
            0 => prop_assert!(received.unwrap().is_none()),
            whole if whole == frame.len() => prop_assert!(received.unwrap().is_some()),
            _ => prop_assert!(received.is_err()),
        }
    }
}
