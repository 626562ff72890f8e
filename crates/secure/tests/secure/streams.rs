//! Tests of open streams: two directions at once, ends, cuts, and silence.

use std::sync::Arc;

use super::*;

/// What one side writes.
fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes
}

fn both(test: impl Fn(Option<&Secret>)) {
    test(None);
    test(Some(&secret()));
}

#[test]
fn both_directions_at_once_in_portions_of_all_sizes() {
    both(|secret| {
        const BYTES: usize = 8 << 20;
        let (_door, ours, theirs) = pair(secret);
        std::thread::scope(|scope| {
            for (seed, from, to) in [(1, &ours, &theirs), (2, &theirs, &ours)] {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let bytes = content(seed, BYTES);
                    let (mut stream, mut rest) = (from, &bytes[..]);
                    while !rest.is_empty() {
                        let most = [1, 100, 5_000, 300_000][random.usize(..4)];
                        let portion = random.usize(1..=most).min(rest.len());
                        stream.write_all(&rest[..portion]).expect("a write");
                        rest = &rest[portion..];
                    }
                });
                scope.spawn(move || {
                    let mut stream = to;
                    let mut bytes = vec![0; BYTES];
                    stream.read_exact(&mut bytes).expect("all bytes");
                    assert!(bytes == content(seed, BYTES), "changed, or out of order");
                });
            }
        });
        ours.shutdown();
        let mut theirs = &theirs;
        assert_eq!(theirs.read(&mut [0; 10]).expect("an end"), 0);
    });
}

/// Writes until the peer, which reads nothing, stops it. Returns when nothing was written for a while.
fn until_blocked(written: &Receiver<()>) {
    let quiet = Duration::from_millis(300);
    while written.recv_timeout(quiet).is_ok() {}
}

#[test]
fn a_blocked_write_does_not_block_the_reader_and_a_shutdown_ends_both() {
    both(|secret| {
        let (_door, ours, theirs) = pair(secret);
        let ours = Arc::new(ours);
        let (progress, written) = channel();
        let writer = Arc::clone(&ours);
        let writing = std::thread::spawn(move || {
            let bytes = content(3, 64 << 10);
            loop {
                if let Err(error) = (&*writer).write_all(&bytes) {
                    return error;
                }
                let _ = progress.send(());
            }
        });
        until_blocked(&written);
        // What comes is read nevertheless.
        for number in 0..100 {
            let bytes = content(number, 1_000);
            (&theirs).write_all(&bytes).expect("a write");
            let mut room = vec![0; 1_000];
            (&*ours).read_exact(&mut room).expect("a message");
            assert!(room == bytes);
        }
        let reader = Arc::clone(&ours);
        let reading = std::thread::spawn(move || (&*reader).read(&mut [0; 10]));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!writing.is_finished() && !reading.is_finished());
        ours.shutdown();
        writing.join().expect("the writing thread");
        let read = reading.join().expect("the reading thread");
        assert!(!matches!(read, Ok(1..)), "{read:?}");
    });
}

/// A relay in the middle that hands on at most `most` bytes to the door, changes one if it is told so, and
/// then cuts. Returns its address.
fn relay(door: SocketAddr, most: usize, changes: bool) -> SocketAddr {
    let listener = TcpListener::bind(any_port()).expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let (ours, _) = listener.accept().expect("a connection");
        let theirs = TcpStream::connect(door).expect("a connection");
        let (mut back, mut back_to) = (&theirs, ours.try_clone().expect("a handle"));
        std::thread::scope(|scope| {
            scope.spawn(move || std::io::copy(&mut back, &mut back_to));
            let mut handed_on = 0;
            let mut byte = [0];
            while handed_on < most && matches!((&ours).read(&mut byte), Ok(1)) {
                handed_on += 1;
                byte[0] ^= u8::from(changes && handed_on == most) << 3;
                if (&theirs).write_all(&byte).is_err() {
                    break;
                }
            }
            if !changes {
                let _ = theirs.shutdown(Shutdown::Both);
            }
            // Hands on the rest until somebody ends it.
            let _ = std::io::copy(&mut &ours, &mut &theirs);
            let _ = theirs.shutdown(Shutdown::Both);
            let _ = ours.shutdown(Shutdown::Both);
        });
    });
    address
}

/// Far into the first message, long after the handshake.
const MESSAGE: usize = 20_000;
const PLACE: usize = 10_000;

fn error_through(changes: bool) -> std::io::Error {
    let ours = secret();
    let (door, streams) = door(Some(&ours));
    let address = relay(door.local_address(), PLACE, changes);
    let stream = Stream::connect(address, Some(&ours), TOO_LONG).expect("a stream");
    let theirs = streams.recv_timeout(TOO_LONG).expect("a stream");
    let _ = (&stream).write_all(&content(4, MESSAGE));
    let mut all = Vec::new();
    let error = (&theirs).read_to_end(&mut all).expect_err("an error");
    assert!(all.len() < PLACE, "more came than was handed on unchanged");
    error
}

#[test]
fn a_stream_that_was_cut_off_is_an_error() {
    assert_eq!(error_through(false).kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn a_byte_that_was_changed_on_its_way_is_an_error() {
    let error = error_through(true);
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(
        error.to_string().contains("changed on their way"),
        "{error}"
    );
}

#[test]
fn a_stream_that_is_dropped_has_an_end() {
    let (_door, ours, theirs) = pair(Some(&secret()));
    (&ours).write_all(b"the last words").expect("a write");
    drop(ours);
    let mut all = Vec::new();
    (&theirs).read_to_end(&mut all).expect("an end");
    assert_eq!(all, b"the last words");
}

#[test]
fn nobody_answers() {
    let secret = secret();
    let listener = TcpListener::bind(any_port()).expect("a port");
    let address = listener.local_addr().expect("an address");
    let timeout = Duration::from_millis(200);
    // The kernel accepts, and nobody makes the handshake.
    let error = Stream::connect(address, Some(&secret), timeout)
        .err()
        .expect("an error");
    let expected = format!("{address}: no answer within 0.2 s");
    assert_eq!(error.to_string(), expected);
    drop(listener);
    let error = Stream::connect(address, Some(&secret), timeout)
        .err()
        .expect("an error");
    assert!(
        error
            .to_string()
            .starts_with(&format!("{address}: can't connect")),
        "{error}"
    );
}

/// How often the threads of this process named `name` went to sleep voluntarily.
fn sleeps_of(name: &str) -> Vec<u64> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads");
    let counts = tasks.filter_map(|task| {
        let folder = task.expect("a thread").path();
        let comm = std::fs::read_to_string(folder.join("comm")).ok()?;
        let status = std::fs::read_to_string(folder.join("status")).ok()?;
        let line = status
            .lines()
            .find(|line| line.starts_with("voluntary_ctxt"))?;
        let count = line.rsplit('\t').next()?.parse().ok()?;
        (comm.trim() == name).then_some(count)
    });
    counts.collect()
}

#[test]
fn an_idle_stream_wakes_nobody() {
    let (_door, ours, theirs) = pair(Some(&secret()));
    for stream in [&ours, &theirs] {
        let second = Duration::from_secs(1);
        stream
            .keep_alive(second, second, 3)
            .expect("the kernel's keepalive");
    }
    std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().name("idle-reader".to_owned());
        let reading = reader
            .spawn_scoped(scope, || (&theirs).read(&mut [0; 10]))
            .expect("a thread");
        std::thread::sleep(Duration::from_millis(200));
        let before = sleeps_of("idle-reader");
        assert_eq!(before.len(), 1);
        // Longer than the kernel's keepalive waits.
        std::thread::sleep(Duration::from_millis(2_500));
        assert_eq!(sleeps_of("idle-reader"), before);
        (&ours).write_all(b"news").expect("a write");
        assert_eq!(reading.join().expect("a thread").expect("news"), 4);
    });
}
