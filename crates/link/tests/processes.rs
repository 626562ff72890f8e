//! Tests of shared memory between real processes, which are killed at random moments.
//!
//! The test binary starts itself again as the other process: it gets its role through the environment and
//! its socket as a descriptor that it inherits.

#![cfg(not(loom))]

use fastrand::Rng;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use slackwater_link::shm::{
    Feed, Inbox, Outbox, Peer, Subscription, Watch, Writer, handover, watch,
};
use slackwater_link::{Frame, Listen, SendError, Sources, Waiter, Waker};

const PART: &str = "SLACKWATER_TEST_PART";
const SOCKET: &str = "SLACKWATER_TEST_SOCKET";

const EPOCH: u64 = 7;
const LANE_BYTES: usize = 1 << 14;

/// When a death that is not noticed counts as never noticed; the watch takes microseconds.
const NOTICED_WITHIN: Duration = Duration::from_secs(60);

/// Held by tests that open descriptors or count them, since they share a process.
static DESCRIPTORS: Mutex<()> = Mutex::new(());

/// Frame `number`: its length and bytes follow from its number, so a reader can tell whether it is
/// whole. One in eight is larger than a piece of the lane.
fn frame(number: u64) -> Vec<u8> {
    let mut random = Rng::with_seed(number);
    let length = match random.u64(..8) {
        0 => 5_000 + random.u64(..20_000),
        1..4 => 8 + random.u64(..40),
        _ => 50 + random.u64(..2_000),
    };
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(length as usize, number as u8);
    bytes
}

/// Another process, with the socket between it and this one, and its doorbell.
struct Other {
    child: Child,
    socket: OwnedFd,
    peer: Peer,
}

impl Other {
    fn start(part: &str) -> Other {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("a pair of sockets");
        let inherited = rustix::io::dup(&theirs).expect("a descriptor");
        let child = Command::new(std::env::current_exe().expect("this test"))
            .args([
                "--exact",
                "other_process",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(PART, part)
            .env(SOCKET, inherited.as_raw_fd().to_string())
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        let peer = Peer::new(format!("process {}", child.id()));
        Other {
            child,
            socket: ours,
            peer,
        }
    }

    fn hand_over(&self, waiter: &Waiter, inbox: Option<&Inbox>) {
        send_ends(&self.socket, waiter, inbox);
    }

    fn kill(&mut self) {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("its end");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn send_ends(socket: &OwnedFd, waiter: &Waiter, inbox: Option<&Inbox>) {
    let waker = waiter.waker();
    let (flag, bell) = waker.export().expect("a shared waiter");
    let mut descriptors = vec![flag, bell];
    descriptors.extend(inbox.map(Inbox::descriptor));
    handover::send(socket, b"ends", &descriptors).expect("a socket");
}

/// The other side's waker and, if it reads, its inbox.
fn receive_ends(socket: &OwnedFd) -> (Waker, Option<OwnedFd>) {
    let mut note = [0; 16];
    let (length, descriptors) = handover::receive(socket, &mut note).expect("its ends");
    assert_eq!(&note[..length], b"ends");
    let mut descriptors = descriptors.into_iter();
    let (flag, bell) = (descriptors.next(), descriptors.next());
    let waker = Waker::import(flag.expect("a flag"), bell.expect("a bell"));
    (waker.expect("a page"), descriptors.next())
}

fn wait(waiter: &Waiter, look: impl FnOnce() -> bool) {
    waiter.announce(Listen::Everything);
    if look() {
        waiter.retract();
    } else {
        let woken = waiter.wait(Some(Duration::from_secs(20)), Sources::All);
        woken.expect("a wait");
    }
}

/// The role of the other process; in the process that runs the tests, nothing.
#[test]
fn other_process() {
    let Ok(part) = std::env::var(PART) else {
        return;
    };
    let number: RawFd = std::env::var(SOCKET)
        .expect("a socket")
        .parse()
        .expect("its number");
    // SAFETY: inherited for this process alone, and nothing else here uses it.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    let waiter = Waiter::shared().expect("a waiter");
    match part.as_str() {
        "writer" => write_for_ever(&socket, &waiter),
        "reader" => read_for_ever(&socket, &waiter),
        "subscriber 0" => subscribe(&socket, &waiter, 0),
        "subscriber 1" => subscribe(&socket, &waiter, 1),
        part => panic!("no part is called {part}"),
    }
}

fn write_for_ever(socket: &OwnedFd, waiter: &Waiter) {
    let (reader, inbox) = receive_ends(socket);
    send_ends(socket, waiter, None);
    let peer = Peer::new("the test");
    let inbox = inbox.expect("an inbox");
    let outbox = Outbox::open(inbox.as_fd(), EPOCH, peer).expect("an inbox");
    let mut writer: Writer<Vec<u8>> = outbox.writer(0, reader);
    for number in 0.. {
        let mut message = vec![frame(number)];
        loop {
            match writer.post(message) {
                Ok(()) => break,
                Err(SendError::Full(refused)) => message = refused,
                // The test is done with this one.
                Err(SendError::Closed(_)) => return,
            }
            wait(waiter, || {
                writer.push(false);
                writer.has_room() || writer.is_closed()
            });
        }
        writer.push(false);
    }
}

fn read_for_ever(socket: &OwnedFd, waiter: &Waiter) {
    let inbox = Inbox::create(EPOCH, 1, LANE_BYTES).expect("memory");
    send_ends(socket, waiter, Some(&inbox));
    let (writer, _) = receive_ends(socket);
    let mut reader = inbox.reader(0, writer, waiter.waker(), Peer::new("the test"));
    let mut kept = Vec::new();
    loop {
        let mut received = reader.receive().expect("a sound writer");
        if received.is_none() {
            wait(waiter, || {
                received = reader.receive().expect("a sound writer");
                received.is_some() || reader.is_closed()
            });
        }
        kept.extend(received);
        // A few frames are held while others come, so that a kill happens with frames lent.
        if kept.len() > 3 {
            kept.remove(0);
        }
        if reader.is_closed() {
            return;
        }
    }
}

/// Reads a feed to its end, and fails if a frame is wrong.
fn subscribe(socket: &OwnedFd, waiter: &Waiter, number: usize) {
    send_ends(socket, waiter, None);
    let (writer, feed) = receive_ends(socket);
    let feed = feed.expect("a feed");
    let feed = Subscription::open(feed.as_fd(), EPOCH, Peer::new("the test")).expect("a feed");
    let mut reader = feed.reader(number, writer, waiter.waker());
    let mut kept = Vec::new();
    let mut next = 0;
    while !reader.is_closed() {
        let mut received = reader.receive().expect("a sound writer");
        let keep = if received.is_some() { 3 } else { 0 };
        while kept.len() > keep {
            let (number, oldest): (u64, Frame) = kept.remove(0);
            assert!(*oldest == *frame(number), "a lent frame was written over");
        }
        if received.is_none() {
            // Nothing is held meanwhile: the ring can't move past a frame that is kept.
            wait(waiter, || {
                received = reader.receive().expect("a sound writer");
                received.is_some() || reader.is_closed()
            });
        }
        if let Some(received) = received {
            assert!(*received == *frame(next), "frame {next} is not whole");
            kept.push((next, received));
            next += 1;
        }
    }
}

/// One of two readers of a feed is killed; the other one gets everything.
fn kill_subscribers(kills: u64) {
    let mut random = Rng::with_seed(3);
    for _ in 0..kills {
        let waiter = Waiter::shared().expect("a waiter");
        let mut victim = Other::start("subscriber 0");
        let mut survivor = Other::start("subscriber 1");
        let feed = Feed::create(EPOCH, 2, LANE_BYTES).expect("memory");
        let mut readers = Vec::new();
        for other in [&victim, &survivor] {
            let (reader, _) = receive_ends(&other.socket);
            let waker = waiter.waker();
            let (flag, bell) = waker.export().expect("a shared waiter");
            let ends = [flag, bell, feed.descriptor()];
            handover::send(&other.socket, b"ends", &ends).expect("a socket");
            readers.push((reader, other.peer.clone()));
        }
        let watched = [&victim, &survivor].map(|other| {
            let socket = rustix::io::dup(&other.socket).expect("a descriptor");
            (socket, other.peer.clone())
        });
        let _watch = watch(watched.into(), vec![waiter.waker()]).expect("a thread");
        let mut writer: Writer<Vec<u8>> = feed.writer(readers);
        let die_at = Instant::now() + Duration::from_micros(random.u64(..3_000));
        let mut died: Option<Instant> = None;
        let (mut next, mut after) = (0, 0);
        let mut message = vec![frame(next)];
        while after < 500 {
            if died.is_none() && Instant::now() >= die_at {
                victim.kill();
                died = Some(Instant::now());
            }
            match writer.post(message) {
                Ok(()) => {
                    next += 1;
                    message = vec![frame(next)];
                    after += u64::from(writer.lost().is_some());
                }
                Err(SendError::Full(refused)) => {
                    message = refused;
                    std::thread::yield_now();
                }
                Err(SendError::Closed(_)) => panic!("one of the two lives"),
            }
            writer.push(false);
            let waited = died.map_or(Duration::ZERO, |died| died.elapsed());
            assert!(
                writer.lost().is_some() || waited < NOTICED_WITHIN,
                "its death was not noticed"
            );
        }
        let lost = writer.lost().expect("a death, not a goodbye");
        assert_eq!(lost.peer, victim.peer.name());
        while !writer.is_drained() {
            writer.push(false);
        }
        drop(writer);
        let status = survivor.child.wait().expect("its end");
        assert!(status.success(), "the survivor did not get everything");
    }
}

/// This process's open descriptors and mappings of shared memory.
fn left_overs() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("/proc").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
    let mappings = maps.lines().filter(|line| line.contains("slackwater-"));
    (descriptors, mappings.count())
}

fn kill_writers(kills: u64) {
    let mut random = Rng::with_seed(1);
    let waiter = Waiter::shared().expect("a waiter");
    let inbox_of = |other: &Other| {
        let inbox = Inbox::create(EPOCH, 1, LANE_BYTES).expect("memory");
        other.hand_over(&waiter, Some(&inbox));
        let (writer, _) = receive_ends(&other.socket);
        inbox.reader(0, writer, waiter.waker(), other.peer.clone())
    };
    let watch_over = |other: &Other| -> Watch {
        let socket = rustix::io::dup(&other.socket).expect("a descriptor");
        watch(vec![(socket, other.peer.clone())], vec![waiter.waker()]).expect("a thread")
    };
    // One that lives, beside all those that die.
    let survivor = Other::start("writer");
    let mut survivor_lane = inbox_of(&survivor);
    let _survivor_watch = watch_over(&survivor);
    let mut survivor_next = 0;
    let mut whole = 0;
    for _ in 0..kills {
        let mut victim = Other::start("writer");
        let mut lane = inbox_of(&victim);
        let _watch = watch_over(&victim);
        let die_at = Instant::now() + Duration::from_micros(random.u64(..3_000));
        let mut died = None;
        let mut next = 0;
        loop {
            if died.is_none() && Instant::now() >= die_at {
                victim.kill();
                died = Some(Instant::now());
            }
            let died_for = died.map_or(Duration::ZERO, |died: Instant| died.elapsed());
            assert!(died_for < NOTICED_WITHIN, "its death was not noticed");
            match lane.receive() {
                Ok(Some(received)) => {
                    assert!(*received == *frame(next), "frame {next} is not whole");
                    next += 1;
                }
                Ok(None) if lane.is_closed() => panic!("it died and didn't end"),
                Ok(None) => std::thread::yield_now(),
                Err(error) => {
                    assert!(died.is_some(), "nobody died: {error}");
                    assert_eq!(error.peer, victim.peer.name());
                    break;
                }
            }
            if let Some(received) = survivor_lane.receive().expect("it lives") {
                assert!(*received == *frame(survivor_next), "another's frame");
                survivor_next += 1;
            }
        }
        whole += next;
    }
    assert!(whole > kills, "the writers were killed before they wrote");
    assert!(survivor_next > kills, "the survivor was held up");
    println!(
        "{kills} writers killed after {whole} whole frames; the survivor sent {survivor_next}"
    );
}

fn kill_readers(kills: u64) {
    let mut random = Rng::with_seed(2);
    let waiter = Waiter::shared().expect("a waiter");
    let mut written = 0;
    for _ in 0..kills {
        let mut victim = Other::start("reader");
        let (reader, inbox) = receive_ends(&victim.socket);
        victim.hand_over(&waiter, None);
        let inbox = inbox.expect("an inbox");
        let outbox = Outbox::open(inbox.as_fd(), EPOCH, victim.peer.clone()).expect("an inbox");
        let mut writer: Writer<Vec<u8>> = outbox.writer(0, reader);
        let socket = rustix::io::dup(&victim.socket).expect("a descriptor");
        let _watch =
            watch(vec![(socket, victim.peer.clone())], vec![waiter.waker()]).expect("a thread");
        let die_at = Instant::now() + Duration::from_micros(random.u64(..3_000));
        let mut died = None;
        let mut next = 0;
        let mut message = vec![frame(next)];
        loop {
            if died.is_none() && Instant::now() >= die_at {
                victim.kill();
                died = Some(Instant::now());
            }
            let died_for = died.map_or(Duration::ZERO, |died: Instant| died.elapsed());
            assert!(died_for < NOTICED_WITHIN, "its death was not noticed");
            match writer.post(message) {
                Ok(()) => {
                    next += 1;
                    message = vec![frame(next)];
                }
                Err(SendError::Full(refused)) => {
                    message = refused;
                    writer.push(false);
                    std::thread::yield_now();
                    continue;
                }
                Err(SendError::Closed(_)) => {
                    assert!(died.is_some(), "nobody died");
                    let error = writer.error().expect("a death, not a goodbye");
                    assert_eq!(error.peer, victim.peer.name());
                    break;
                }
            }
            writer.push(false);
        }
        written += next;
    }
    assert!(written > kills, "the readers were killed before they read");
    println!("{kills} readers killed while {written} frames were written");
}

/// 200 processes are killed, half of them writers, half readers, each at a random moment of its work; the
/// other side sees whole frames in order, then one error that names the process, within a second; other
/// lanes continue; no descriptor and no memory is left.
#[test]
fn kills_leave_whole_frames_one_error_and_nothing_behind() {
    if std::env::var(PART).is_ok() {
        return;
    }
    let _alone = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    let before = left_overs();
    kill_writers(100);
    kill_readers(100);
    assert_eq!(left_overs(), before, "descriptors, mappings");
    let _ = std::io::stdout().flush();
}

/// An inbox of another epoch, or memory that is not an inbox, is refused by name (I9).
#[test]
fn inboxes_of_others_are_refused() {
    let _alone = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    let inbox = Inbox::create(6, 1, LANE_BYTES).expect("memory");
    let open = |descriptor, epoch| Outbox::open(descriptor, epoch, Peer::new("process 3"));
    assert!(open(inbox.descriptor(), 6).is_ok());
    let error = open(inbox.descriptor(), 7).err().expect("another epoch");
    assert_eq!(error.peer, "process 3");
    assert!(
        error.reason.contains("epoch 6") && !error.hint.is_empty(),
        "{error}"
    );
    let waiter = Waiter::shared().expect("a waiter");
    let waker = waiter.waker();
    let (page, bell) = waker.export().expect("a shared waiter");
    let error = open(page, 6).err().expect("no inbox");
    assert!(error.reason.contains("without a valid inbox"), "{error}");
    assert!(open(bell, 6).is_err(), "no memory at all");
    let file = tempfile();
    assert!(open(file.as_fd(), 6).is_err(), "a file");
}

fn tempfile() -> std::fs::File {
    std::fs::File::open("/proc/self/exe").expect("this program")
}

#[test]
fn a_reader_of_a_feed_that_is_killed_holds_nobody_up() {
    let _alone = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    kill_subscribers(10);
}
