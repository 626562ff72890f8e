//! Tests of the waiter against the kernel: wakers, edges, time-outs, signals, and doing nothing at all.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Instant;

use super::*;

/// Nothing here takes this long on any machine.
const NEVER: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(20);

fn sleep(waiter: &Waiter, timeout: Duration, sources: Sources) -> Woken {
    waiter.announce(Listen::Everything);
    waiter.wait(Some(timeout), sources).expect("a wait")
}

fn pair() -> (UnixStream, UnixStream) {
    let (near, far) = UnixStream::pair().expect("a socket pair");
    near.set_nonblocking(true).expect("a socket's flag");
    (near, far)
}

/// A waiter with one registered socket whose first edge (it is writable) has been taken.
fn with_socket() -> (Waiter, UnixStream, UnixStream) {
    let (waiter, near, far, _) = with_watch(Interest::Both);
    (waiter, near, far)
}

/// A waiter with a socket, after the watch's first look.
fn with_watch(interest: Interest) -> (Waiter, UnixStream, UnixStream, Watch) {
    let mut waiter = Waiter::new().expect("two descriptors");
    let (near, far) = pair();
    let mut watch = waiter.register(near.as_fd(), interest).expect("a socket");
    assert!(watch.is_named(), "the first look is the owner's");
    if interest != Interest::Read {
        assert_eq!(sleep(&waiter, NEVER, Sources::All), Woken::Descriptor);
        assert!(watch.is_named());
    }
    assert_eq!(sleep(&waiter, SHORT, Sources::All), Woken::TimedOut);
    assert!(!watch.is_named() && !watch.has_ended());
    (waiter, near, far, watch)
}

#[test]
fn a_waker_ends_either_kind_of_wait() {
    for sources in [Sources::All, Sources::Doorbell] {
        let waiter = Waiter::new().expect("two descriptors");
        let waker = waiter.waker();
        waiter.announce(Listen::Everything);
        let ringing = thread::spawn(move || {
            thread::sleep(SHORT);
            waker.wake();
        });
        assert_eq!(waiter.wait(None, sources).expect("a wait"), Woken::Waker);
        ringing.join().expect("the ringing thread");
        assert_eq!(sleep(&waiter, SHORT, Sources::All), Woken::TimedOut);
        assert_eq!(sleep(&waiter, SHORT, Sources::Doorbell), Woken::TimedOut);
    }
}

#[test]
fn a_wake_between_announcement_and_sleep_is_kept() {
    let waiter = Waiter::new().expect("two descriptors");
    waiter.announce(Listen::Everything);
    waiter.waker().wake();
    assert_eq!(
        waiter.wait(Some(NEVER), Sources::All).expect("a wait"),
        Woken::Waker
    );
}

#[test]
fn a_waiter_that_is_awake_is_not_woken() {
    let waiter = Waiter::new().expect("two descriptors");
    waiter.waker().wake();
    waiter.announce(Listen::Everything);
    waiter.retract();
    waiter.waker().wake();
    assert_eq!(
        sleep(&waiter, Duration::ZERO, Sources::All),
        Woken::TimedOut
    );
}

#[test]
fn one_announcement_costs_one_strike_however_many_wake() {
    let waiter = Waiter::new().expect("two descriptors");
    waiter.announce(Listen::Everything);
    for _ in 0..3 {
        waiter.waker().wake();
    }
    let mut strikes = [0; 8];
    let read = rustix::io::read(waiter.doorbell.bell.as_fd(), &mut strikes);
    assert_eq!(read, Ok(8));
    assert_eq!(u64::from_ne_bytes(strikes), 1);
}

#[test]
fn a_late_strike_is_reported_as_a_waker() {
    let waiter = Waiter::new().expect("two descriptors");
    waiter.announce(Listen::Everything);
    // The first thing that a waker does; it is preempted before it strikes.
    waiter.doorbell.retract();
    let woken = waiter.wait(Some(Duration::ZERO), Sources::All);
    assert_eq!(woken.expect("a wait"), Woken::Waker);
    waiter.doorbell.bell.strike();
    assert_eq!(sleep(&waiter, NEVER, Sources::All), Woken::Waker);
    assert_eq!(
        sleep(&waiter, Duration::ZERO, Sources::All),
        Woken::TimedOut
    );
}

#[test]
fn a_wake_for_a_retracted_announcement_ends_at_most_one_later_wait() {
    let waiter = Waiter::new().expect("two descriptors");
    waiter.announce(Listen::Everything);
    waiter.waker().wake();
    waiter.retract();
    assert_eq!(sleep(&waiter, NEVER, Sources::Doorbell), Woken::Waker);
    assert_eq!(
        sleep(&waiter, Duration::ZERO, Sources::All),
        Woken::TimedOut
    );
}

#[test]
#[should_panic(expected = "without an announcement")]
fn an_unannounced_wait_is_a_bug() {
    let waiter = Waiter::new().expect("two descriptors");
    assert_eq!(
        sleep(&waiter, Duration::ZERO, Sources::All),
        Woken::TimedOut
    );
    let _ = waiter.wait(Some(Duration::ZERO), Sources::All);
}

#[test]
fn data_ends_the_wait_once() {
    let (waiter, mut near, mut far) = with_socket();
    far.write_all(b"tide").expect("a write");
    assert_eq!(sleep(&waiter, NEVER, Sources::All), Woken::Descriptor);
    // Edge-triggered: unread data alone ends no second wait, more data does.
    assert_eq!(sleep(&waiter, SHORT, Sources::All), Woken::TimedOut);
    far.write_all(b"!").expect("a write");
    assert_eq!(sleep(&waiter, NEVER, Sources::All), Woken::Descriptor);
    let mut text = [0; 8];
    assert_eq!(near.read(&mut text).expect("a read"), 5);
    drop(far);
    assert_eq!(sleep(&waiter, NEVER, Sources::All), Woken::Descriptor);
    assert_eq!(near.read(&mut text).expect("the end"), 0);
}

#[test]
fn a_wait_for_the_doorbell_lasts_and_then_names_what_is_ready() {
    let (waiter, _near, mut far, mut watch) = with_watch(Interest::Read);
    far.write_all(b"tide").expect("a write");
    let start = Instant::now();
    assert_eq!(sleep(&waiter, SHORT, Sources::Doorbell), Woken::TimedOut);
    assert!(start.elapsed() >= SHORT);
    assert!(watch.is_named() && !watch.is_named());
    // The edge was taken.
    assert_eq!(sleep(&waiter, SHORT, Sources::All), Woken::TimedOut);
    assert!(!watch.is_named());
}

#[test]
fn a_look_and_a_wait_name_what_is_ready_and_nothing_else() {
    let (mut waiter, _near, mut far, mut watch) = with_watch(Interest::Read);
    let (other, _other_far) = pair();
    let mut other = waiter
        .register(other.as_fd(), Interest::Read)
        .expect("a socket");
    assert!(other.is_named() && !waiter.look());
    far.write_all(b"tide").expect("a write");
    assert!(waiter.look() && watch.is_named() && !other.is_named());
    assert!(!waiter.look() && !watch.is_named());
    far.write_all(b"tide").expect("a write");
    assert_eq!(sleep(&waiter, NEVER, Sources::All), Woken::Descriptor);
    assert!(watch.is_named() && !other.is_named());
    // A strike that is left doesn't hide the descriptor.
    waiter.announce(Listen::Everything);
    waiter.waker().wake();
    waiter.retract();
    far.write_all(b"tide").expect("a write");
    assert!(waiter.look() && watch.is_named());
}

#[test]
fn a_socket_that_is_read_ends_no_wait_because_it_is_writable() {
    let (waiter, mut near, mut far, mut watch) = with_watch(Interest::Read);
    far.write_all(b"tide").expect("a write");
    // Read before the kernel has named it.
    assert_eq!(near.read(&mut [0; 8]).expect("a read"), 4);
    assert_eq!(sleep(&waiter, SHORT, Sources::All), Woken::TimedOut);
    assert!(!watch.is_named());
}

#[test]
fn the_end_is_named_as_such() {
    for interest in [Interest::Read, Interest::Write, Interest::Both] {
        let (waiter, _near, far, mut watch) = with_watch(interest);
        drop(far);
        assert_eq!(sleep(&waiter, NEVER, Sources::All), Woken::Descriptor);
        assert!(watch.is_named() && watch.has_ended(), "{interest:?}");
    }
}

/// Registrations share slots then; each still hears of its own descriptor.
#[test]
fn more_registrations_than_slots_lose_no_event() {
    let mut waiter = Waiter::new().expect("two descriptors");
    let pairs: Vec<_> = (0..150).map(|_| pair()).collect();
    let register = |(near, _): &(UnixStream, UnixStream)| {
        let watch = waiter.register(near.as_fd(), Interest::Read);
        let mut watch = watch.expect("a socket");
        assert!(watch.is_named());
        watch
    };
    let mut watches = pairs.iter().map(register).collect::<Vec<_>>();
    for (nth, (_, far)) in pairs.iter().enumerate() {
        let mut far = far;
        far.write_all(b"tide").expect("a write");
        assert_eq!(sleep(&waiter, NEVER, Sources::All), Woken::Descriptor);
        let named = watches.iter_mut().map(Watch::is_named).collect::<Vec<_>>();
        assert!(named[nth]);
        assert!(named.iter().filter(|named| **named).count() <= 3);
    }
}

#[test]
fn a_waker_together_with_data_is_reported_as_a_waker() {
    let (waiter, _near, mut far) = with_socket();
    far.write_all(b"tide").expect("a write");
    waiter.announce(Listen::Everything);
    waiter.waker().wake();
    assert_eq!(
        waiter.wait(Some(NEVER), Sources::All).expect("a wait"),
        Woken::Waker
    );
}

#[test]
fn more_ready_descriptors_than_events_are_all_reported() {
    let mut waiter = Waiter::new().expect("two descriptors");
    let pairs: Vec<_> = (0..EVENTS_AT_ONCE + 1).map(|_| pair()).collect();
    for (near, _) in &pairs {
        let watch = waiter.register(near.as_fd(), Interest::Both);
        watch.expect("a socket");
    }
    // One wait takes them all.
    assert_eq!(sleep(&waiter, NEVER, Sources::All), Woken::Descriptor);
    assert_eq!(sleep(&waiter, SHORT, Sources::All), Woken::TimedOut);
}

#[test]
fn a_deregistered_descriptor_is_silent() {
    let (mut waiter, near, mut far) = with_socket();
    waiter.deregister(near.as_fd()).expect("registered");
    far.write_all(b"tide").expect("a write");
    assert_eq!(sleep(&waiter, SHORT, Sources::All), Woken::TimedOut);
}

#[test]
fn wrong_descriptors_are_errors_with_a_hint() {
    let mut waiter = Waiter::new().expect("two descriptors");
    let file = std::fs::File::open("/proc/self/exe").expect("this test's program");
    let error = waiter
        .register(file.as_fd(), Interest::Read)
        .expect_err("a regular file");
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("without waiting"), "{error}");

    let (near, _far) = pair();
    let error = waiter.deregister(near.as_fd()).expect_err("not registered");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    waiter
        .register(near.as_fd(), Interest::Read)
        .expect("a socket");
    let error = waiter
        .register(near.as_fd(), Interest::Read)
        .expect_err("registered twice");
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    let number = near.as_raw_fd().to_string();
    assert!(error.to_string().contains(&number), "{error}");
}

#[test]
fn time_outs_are_finer_than_a_millisecond() {
    // On its own thread, as the slack is the thread's. The best of many: this machine may be busy.
    let best = thread::spawn(|| {
        set_timer_slack_ns(1);
        let waiter = Waiter::new().expect("two descriptors");
        [Sources::All, Sources::Doorbell].map(|sources| {
            let wanted = Duration::from_micros(100);
            let slept = |_| {
                let start = Instant::now();
                assert_eq!(sleep(&waiter, wanted, sources), Woken::TimedOut);
                assert!(start.elapsed() >= wanted, "woken before its time");
                start.elapsed()
            };
            (0..200).map(slept).min()
        })
    })
    .join()
    .expect("the sleeping thread");
    for best in best {
        assert!(best < Some(Duration::from_micros(900)), "{best:?}");
    }
}

#[test]
fn extreme_time_outs_are_accepted() {
    let waiter = Waiter::new().expect("two descriptors");
    for sources in [Sources::All, Sources::Doorbell] {
        waiter.announce(Listen::Everything);
        waiter.waker().wake();
        let woken = waiter.wait(Some(Duration::MAX), sources).expect("a wait");
        assert_eq!(woken, Woken::Waker);
    }
}

#[test]
fn the_slack_is_set_and_restored() {
    thread::spawn(|| {
        let slack = || rustix::thread::current_timer_slack().expect("a thread has a slack");
        let before = slack();
        set_timer_slack_ns(1);
        assert_eq!(slack(), 1);
        set_timer_slack_ns(0);
        assert_eq!(slack(), before);
    })
    .join()
    .expect("the thread");
}

#[test]
fn wakers_may_outlive_their_waiter() {
    let waiter = Waiter::new().expect("two descriptors");
    let waker = waiter.waker();
    waiter.announce(Listen::Everything);
    drop(waiter);
    waker.wake();
    waker.clone().wake();
}

/// I7: silence costs nothing.
#[test]
fn a_silent_wait_never_wakes() {
    let (ready, when_ready) = std::sync::mpsc::channel();
    let (waiter, _near, _far) = with_socket();
    let waker = waiter.waker();
    let sleeping = thread::spawn(move || {
        ready
            .send(rustix::thread::gettid())
            .expect("the test waits");
        waiter.announce(Listen::Everything);
        waiter.wait(None, Sources::All).expect("a wait")
    });
    let thread_number = when_ready.recv().expect("the thread's number");
    let path = format!("/proc/self/task/{}/status", thread_number.as_raw_pid());
    let switches = || {
        let status = std::fs::read_to_string(&path).expect("a living thread");
        let line = status
            .lines()
            .find(|line| line.starts_with("voluntary_ctxt_switches"));
        line.expect("the kernel counts switches").to_owned()
    };
    thread::sleep(SHORT * 5);
    let before = switches();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(switches(), before);
    waker.wake();
    assert_eq!(sleeping.join().expect("the sleeper"), Woken::Waker);
}

/// A stopped and continued thread finds its wait ended, without a signal handler. That holds for all
/// threads of the process, so it is done to another process: this test, run again.
#[test]
fn a_signal_ends_the_wait_early() {
    const IN_CHILD: &str = "SLACKWATER_TEST_IS_INTERRUPTED";
    if std::env::var_os(IN_CHILD).is_some() {
        let waiter = Waiter::new().expect("two descriptors");
        assert_eq!(sleep(&waiter, NEVER, Sources::All), Woken::Interrupted);
        // An early return consumes the announcement too: no waker strikes any more.
        waiter.waker().wake();
        assert_eq!(
            sleep(&waiter, Duration::ZERO, Sources::All),
            Woken::TimedOut
        );
        return;
    }
    let mut child = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "waiter::tests::a_signal_ends_the_wait_early"])
        .env(IN_CHILD, "1")
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("this program once more");
    let process = rustix::process::Pid::from_child(&child);
    let outcome = loop {
        thread::sleep(SHORT);
        if let Some(outcome) = child.try_wait().expect("a child") {
            break outcome;
        }
        for signal in [rustix::process::Signal::STOP, rustix::process::Signal::CONT] {
            rustix::process::kill_process(process, signal).expect("a child not yet waited for");
        }
    };
    assert!(outcome.success(), "{outcome}");
}
