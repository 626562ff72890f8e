//! Tests of peers that break the rules: each is dropped and named, and the link continues.

use fastrand::Rng;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use slackwater_link::Waiter;
use slackwater_link::tcp::{Acceptor, Reader, SEALED_HANDSHAKES_MAX, Settings};

use crate::harness::*;

struct Target {
    acceptor: Acceptor,
    reader: Reader,
    waiter: Waiter,
    settings: Settings,
}

impl Target {
    fn new(settings: Settings) -> Target {
        let waiter = Waiter::new().expect("a waiter");
        let acceptor = bind(settings);
        let reader = acceptor.reader(LINK, "the writer", &waiter);
        Target {
            acceptor,
            reader,
            waiter,
            settings,
        }
    }

    fn stream(&self) -> Raw {
        stream(self.acceptor.local_address())
    }

    fn stranger(&self) -> TcpStream {
        plain(self.acceptor.local_address())
    }

    fn greeted(&self) -> Raw {
        let (answer, stream) = HELLO.greet(self.acceptor.local_address());
        assert_eq!(answer, 0, "the greeting is in order");
        stream
    }

    /// Waits until a refusal's text contains `text`, while the reader works.
    fn expect_refusal(&mut self, text: &str) {
        let end = Instant::now() + TOO_LONG;
        loop {
            assert!(self.reader.receive().expect("a link that waits").is_none());
            let refused = self.acceptor.refused();
            if let Some(error) = refused
                .last
                .iter()
                .find(|error| error.reason.contains(text))
            {
                assert!(error.peer.contains("127.0.0.1:"), "{error}");
                assert!(refused.last.len() <= 16);
                return;
            }
            assert!(Instant::now() < end, "not refused for {text}: {refused:?}");
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    /// A correct writer gets its frames through, and its end.
    fn expect_service(mut self) {
        let address = self.acceptor.local_address();
        let settings = self.settings;
        let writing = std::thread::spawn(move || {
            let waiter = Waiter::new().expect("a waiter");
            let mut writer = connect(address, &waiter, settings);
            let frames = (0..100).map(|number| pieces(number, 2_000));
            write_all(&mut writer, &waiter, frames, || {});
            assert_eq!(writer.error(), None);
        });
        let mut next = 0;
        let read = read_all(&mut self.reader, &self.waiter, |frame| {
            check(&frame, next, 2_000);
            next += 1;
        });
        read.expect("a sound link");
        assert_eq!(next, 100);
        writing.join().expect("the writing thread");
    }
}

/// A peer that greets correctly, sends `bytes`, and is dropped for `reason`.
fn breach(bytes: &[u8], reason: &str) {
    let mut target = Target::new(settings());
    let mut stream = target.greeted();
    // It may be cut off while it still writes.
    let _ = stream.write_all(bytes);
    target.expect_refusal(reason);
    drop(stream);
    target.expect_service();
}

#[test]
fn random_bytes() {
    let mut target = Target::new(settings());
    let mut random = Rng::with_seed(1);
    for _ in 0..50 {
        let mut stream = target.stranger();
        let bytes: Vec<u8> = (0..random.u64(..500)).map(|_| random.u8(..)).collect();
        let _ = stream.write_all(&bytes);
    }
    target.expect_refusal(crate::STRANGER);
    let mut web = target.stranger();
    web.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("a write");
    let answer = read_to_the_end(&mut web);
    assert!(crate::may_tell_a_stranger(&answer), "{answer:?}");
    target.expect_service();
}

#[test]
fn another_version() {
    let mut target = Target::new(settings());
    let hello = Hello {
        version: 2,
        ..HELLO
    };
    let (answer, _stream) = hello.greet(target.acceptor.local_address());
    assert_eq!(answer, 1);
    target.expect_refusal("uses version 2 of the protocol, but this process uses 1");
    target.expect_service();
}

#[test]
fn regression_a_peer_without_the_token_learns_nothing() {
    let mut target = Target::new(settings());
    for (version, epoch, reason) in [
        (1, IDENTITY.epoch, "token of another deployment"),
        (1, IDENTITY.epoch - 1, "token of another deployment"),
        (2, IDENTITY.epoch, "uses version 2"),
        (u32::MAX, 0, "uses version 4294967295"),
    ] {
        let hello = Hello {
            version,
            epoch,
            token: [1; 16],
            ..HELLO
        };
        let mut stream = target.stream();
        stream.write_all(&hello.bytes()).expect("a write");
        let answer = read_to_the_end(&mut stream);
        assert!(answer.is_empty(), "{reason}: answered {answer:?}");
        target.expect_refusal(reason);
    }
    target.expect_service();
}

#[test]
fn another_identity_or_place() {
    let mut target = Target::new(settings());
    let address = target.acceptor.local_address();
    for (hello, expected, reason) in [
        (Hello { epoch: 4, ..HELLO }, 3, "stale epoch 4"),
        (Hello { epoch: 6, ..HELLO }, 4, "newer epoch 6"),
        (
            Hello {
                link: 1 << 60,
                ..HELLO
            },
            5,
            "which has no reader",
        ),
        (
            Hello {
                oldest: 5,
                unsent: 9,
                ..HELLO
            },
            7,
            "frame 0 comes next",
        ),
        (
            Hello {
                window: 100,
                ..HELLO
            },
            9,
            "a window of 100 bytes",
        ),
    ] {
        let (answer, mut stream) = hello.greet(address);
        assert_eq!(answer, expected, "{reason}");
        assert!(read_to_the_end(&mut stream).is_empty());
        target.expect_refusal(reason);
    }
    target.expect_service();
}

#[test]
fn a_damaged_greeting() {
    let mut target = Target::new(settings());
    let mut bytes = HELLO.bytes();
    bytes[45] ^= 4;
    let mut stream = target.stream();
    stream.write_all(&bytes).expect("a write");
    assert!(read_to_the_end(&mut stream).is_empty());
    target.expect_refusal("a greeting with a wrong checksum");
    target.expect_service();
}

#[test]
fn a_greeting_that_never_ends() {
    let mut target = Target::new(Settings {
        handshake_timeout: Duration::from_millis(200),
        ..settings()
    });
    let mut silent = target.stranger();
    let mut slow = target.stream();
    for byte in &HELLO.bytes()[..20] {
        let _ = slow.write_all(&[*byte]);
        std::thread::sleep(Duration::from_millis(20));
    }
    target.expect_refusal("did not finish its greeting within 0.2 s");
    assert!(read_to_the_end(&mut silent).is_empty());
    assert!(read_to_the_end(&mut slow).is_empty());
    target.expect_service();
}

#[test]
fn a_thousand_silent_connections() {
    let mut target = Target::new(Settings {
        handshakes_max: 32,
        ..settings()
    });
    let silent: Vec<TcpStream> = (0..1_000).map(|_| target.stranger()).collect();
    target.expect_refusal("before too many others connected");
    let end = Instant::now() + TOO_LONG;
    while target.acceptor.refused().count < 1_000 - 32 {
        assert!(Instant::now() < end, "{:?}", target.acceptor.refused());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(target.acceptor.refused().last.len(), 16);
    target.expect_service();
    drop(silent);
}

/// A query's links come all at once, and may be more than greetings are allowed at a time.
#[test]
fn regression_links_of_one_query_don_t_displace_each_other() {
    let target = Target::new(Settings {
        handshakes_max: 4,
        ..settings()
    });
    let address = target.acceptor.local_address();
    let links = (0..60).map(|_| std::thread::spawn(move || HELLO.greet(address).0));
    let links = links.collect::<Vec<_>>();
    for link in links {
        assert_eq!(link.join().expect("an answer"), 0);
    }
    assert_eq!(target.acceptor.refused().count, 0);
}

/// Strangers that begin a handshake, and leave the acceptor with its state.
#[test]
fn regression_sealed_handshakes_are_limited() {
    let Some(guard) = crate::guard() else {
        return;
    };
    let target = Target::new(Settings {
        handshake_timeout: TOO_LONG * 3,
        ..settings()
    });
    let mut begun = Vec::new();
    for _ in 0..300 {
        let mut stranger = target.stranger();
        let mut seal = guard.connecting().expect("a seal");
        // A seal's first message. The second never comes.
        seal.open(&mut []).expect("a beginning");
        seal.pay(&mut stranger).expect("a write");
        stranger.set_nonblocking(true).expect("a socket");
        begun.push(stranger);
    }
    let end = Instant::now() + TOO_LONG;
    while target.acceptor.refused().count < 300 - SEALED_HANDSHAKES_MAX as u64 {
        assert!(Instant::now() < end, "{:?}", target.acceptor.refused());
        std::thread::sleep(Duration::from_millis(1));
    }
    let is_open = |stranger: &mut TcpStream| {
        let mut room = [0; 4_096];
        loop {
            match stranger.read(&mut room) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    };
    let open = begun
        .iter_mut()
        .filter_map(|one| is_open(one).then_some(()));
    assert_eq!(open.count(), SEALED_HANDSHAKES_MAX);
    target.expect_service();
}

#[test]
fn garbage_after_a_greeting() {
    breach(&[0xAB; 5_000], "a record with a wrong checksum");
    breach(&[0; 5_000], "of kind 0");
}

#[test]
fn a_record_that_only_readers_send() {
    breach(&header(CREDIT, 0, 1, 0), "only readers send");
}

#[test]
fn a_length_that_is_too_long() {
    breach(
        &header(DATA, FIRST | LAST, u32::MAX, 0),
        "a record of 4294967295 bytes",
    );
}

#[test]
fn frames_out_of_their_place() {
    breach(&data(1, b"too early"), "frame 1, but frame 0 comes next");
    breach(&data(u64::MAX, b"much too early"), "but frame 0 comes next");
    breach(&header(DATA, LAST, 10, 0), "a part of frame 0");
    let mut twice = header(DATA, FIRST, 1, 0);
    twice.push(1);
    twice.extend(header(DATA, FIRST, 1, 0));
    breach(&twice, "the beginning of frame 0");
}

#[test]
fn an_end_in_the_wrong_place() {
    breach(&header(3, 0, 0, 3), "ended after 3 frames");
    let mut half = header(DATA, FIRST, 1, 0);
    half.push(1);
    half.extend(header(3, 0, 0, 0));
    breach(&half, "ended after 0 frames");
}

#[test]
fn a_frame_that_is_longer_than_any() {
    // 256 MiB and more, in records of a megabyte, within its window.
    let mut target = Target::new(Settings {
        window_bytes: 512 << 20,
        ..settings()
    });
    let hello = Hello {
        window: 512 << 20,
        ..HELLO
    };
    let (answer, stream) = hello.greet(target.acceptor.local_address());
    assert_eq!(answer, 0);
    let writing = std::thread::spawn(move || {
        let mut stream = stream;
        let payload = vec![7; 1 << 20];
        for record in 0.. {
            let first = if record == 0 { FIRST } else { 0 };
            let sent = stream.write_all(&header(DATA, first, 1 << 20, 0));
            if sent.and_then(|()| stream.write_all(&payload)).is_err() {
                return record;
            }
        }
        0
    });
    target.expect_refusal("more than 268435456 bytes");
    assert!(writing.join().expect("the hostile thread") >= 256);
    target.expect_service();
}

#[test]
fn half_a_frame_and_then_silence() {
    let mut target = Target::new(Settings {
        peer_timeout: Duration::from_millis(300),
        ..settings()
    });
    for bytes in [
        data(0, &[1; 5_000])[..2_000].to_vec(),
        data(0, &[1; 30])[..7].to_vec(),
        [header(DATA, FIRST, 3, 0), vec![1; 3]].concat(),
    ] {
        let mut stream = target.greeted();
        stream.write_all(&bytes).expect("a write");
        let before = target.acceptor.refused().count;
        let end = Instant::now() + TOO_LONG;
        let mut was_due = false;
        while target.acceptor.refused().count == before {
            assert!(Instant::now() < end, "never dropped");
            assert!(
                target
                    .reader
                    .receive()
                    .expect("a link that waits")
                    .is_none()
            );
            was_due |= target.reader.due_ns().is_some();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(was_due, "no deadline for half a frame");
        target.expect_refusal("stopped in the middle of a frame");
    }
    target.expect_service();
}

#[test]
fn more_than_the_window_allows() {
    let mut target = Target::new(settings());
    let mut stream = target.greeted();
    // Asks for a window of 64 KiB, and sends twice that without waiting for credit, while the reader's
    // owner is elsewhere.
    let mut bytes = Vec::new();
    for number in 0..130 {
        bytes.extend(data(number, &[3; 1_000]));
    }
    stream.write_all(&bytes).expect("a write");
    std::thread::sleep(Duration::from_millis(100));
    let end = Instant::now() + TOO_LONG;
    let mut frames = 0;
    while target.acceptor.refused().count == 0 {
        assert!(Instant::now() < end, "never dropped");
        frames += usize::from(
            target
                .reader
                .receive()
                .expect("a link that waits")
                .is_some(),
        );
    }
    assert!(
        frames < 70,
        "{frames} frames beyond the window were handed out"
    );
    target.expect_refusal("exceeded its window of 65536 bytes");
}

#[test]
fn nothing_but_heartbeats() {
    let mut bytes = Vec::new();
    for _ in 0..1_000 {
        bytes.extend(header(HEARTBEAT, 0, 0, 0));
    }
    breach(&bytes, "only heartbeats");
}

#[test]
fn a_reader_that_breaks_the_rules() {
    // The writer's side: an acceptor that greets correctly and then lies.
    let forged = |number: u64| header(CREDIT, 0, 0, number);
    for (bytes, reason) in [
        (forged(5), "acknowledged 5 frames"),
        (header(CREDIT, 0, 1 << 20, 0), "credit that it had not used"),
        (header(6, 0, 0, 0), "an end that was not sent"),
        (data(0, b"a frame"), "only writers send"),
        (vec![0x55; 64], "with a wrong checksum"),
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listening socket");
        let address = listener.local_addr().expect("an address");
        let reply = accepting_reply();
        let liar = std::thread::spawn(move || {
            let mut seen = 0;
            // The writer gives up after the third.
            while seen < 3 {
                let (stream, _) = listener.accept().expect("a connection");
                let mut stream = Raw::accepted(stream);
                let mut hello = [0; 80];
                stream.read_exact(&mut hello).expect("a greeting");
                stream.write_all(&reply).expect("a write");
                let _ = stream.write_all(&bytes);
                seen += 1;
                read_to_the_end(&mut stream);
            }
        });
        let waiter = Waiter::new().expect("a waiter");
        let mut writer = connect(address, &waiter, settings());
        let end = Instant::now() + TOO_LONG;
        while !writer.is_closed() {
            assert!(Instant::now() < end, "never given up: {reason}");
            writer.push(false);
        }
        let error = writer.error().expect("an error");
        assert!(error.reason.contains(reason), "{error}, and not {reason}");
        assert!(error.peer.contains(&address.to_string()), "{error}");
        liar.join().expect("the hostile thread");
    }
}

/// An acceptor's answer that accepts a new writer.
fn accepting_reply() -> Vec<u8> {
    // From a real one, whose answer to the greeting holds nothing about the connection.
    let waiter = Waiter::new().expect("a waiter");
    let acceptor = bind(settings());
    let _reader = acceptor.reader(LINK, "", &waiter);
    let mut stream = stream(acceptor.local_address());
    stream.write_all(&HELLO.bytes()).expect("a write");
    let mut reply = vec![0; 48];
    stream.read_exact(&mut reply).expect("an answer");
    reply
}
