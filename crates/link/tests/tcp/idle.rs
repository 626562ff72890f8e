//! Tests that a link on which nothing happens costs nothing: no deadline, no wake-up, no packet.

use std::time::{Duration, Instant};

use slackwater_link::{Listen, Sources, Waiter, Woken};

use crate::harness::*;

/// How often a thread of this process went to sleep voluntarily.
fn voluntary_switches(thread: &str) -> u64 {
    let path = format!("/proc/self/task/{thread}/status");
    let status = std::fs::read_to_string(path).expect("a thread's status");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
        .expect("its context switches");
    line.trim().parse().expect("a number")
}

/// The acceptors' threads of this process, by their name.
fn acceptor_threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads");
    let ids = tasks.map(|task| task.expect("a thread").file_name().into_string());
    let ids = ids.map(|id| id.expect("a number"));
    ids.filter(|id| {
        let name = std::fs::read_to_string(format!("/proc/self/task/{id}/comm"));
        name.is_ok_and(|name| name.trim() == "link-acceptor")
    })
    .collect()
}

#[test]
fn an_idle_link_sleeps() {
    let settings = slackwater_link::tcp::Settings {
        heartbeat_after: Duration::from_millis(50),
        peer_timeout: Duration::from_millis(300),
        ..settings()
    };
    let mut pair = Pair::open(settings);
    assert!(pair.post(0, 1_000));
    check(&pair.receive(), 0, 1_000);
    pair.turn_until("an acknowledgement", |pair| pair.writer.is_drained());
    pair.be_quiet();
    assert_eq!((pair.writer.due_ns(), pair.reader.due_ns()), (None, None));

    // Both ends in one sleep, longer than every time-out of the link: no edge may end it.
    let quiet = Instant::now();
    let mut woken_early = 0;
    while quiet.elapsed() < Duration::from_secs(1) {
        pair.waiter.announce(Listen::Everything);
        pair.writer.push(false);
        assert!(pair.reader.receive().expect("a sound link").is_none());
        assert_eq!((pair.writer.due_ns(), pair.reader.due_ns()), (None, None));
        let left = Duration::from_secs(1).saturating_sub(quiet.elapsed());
        let woken = pair.waiter.wait(Some(left), Sources::All).expect("a wait");
        woken_early += usize::from(woken != Woken::TimedOut);
    }
    // Edges from before end one wait, and at most one more.
    assert!(
        woken_early <= 2,
        "woken {woken_early} times while nothing happened"
    );
    assert!(pair.post(1, 1_000));
    check(&pair.receive(), 1, 1_000);
}

#[test]
fn an_acceptor_without_greetings_sleeps() {
    let waiter = Waiter::new().expect("a waiter");
    let before = acceptor_threads();
    let acceptor = bind(settings());
    let _reader = acceptor.reader(LINK, "", &waiter);
    let end = Instant::now() + TOO_LONG;
    let ours = loop {
        assert!(Instant::now() < end, "no thread");
        let now = acceptor_threads();
        // Other tests have theirs, and start them at the same time: any that is new and quiet.
        let new: Vec<_> = now.into_iter().filter(|id| !before.contains(id)).collect();
        if !new.is_empty() {
            break new;
        }
    };
    std::thread::sleep(Duration::from_millis(100));
    let quiet = |id: &String| {
        let path = format!("/proc/self/task/{id}/status");
        std::fs::exists(path)
            .is_ok_and(|is_there| is_there)
            .then(|| voluntary_switches(id))
    };
    let first: Vec<_> = ours.iter().map(quiet).collect();
    std::thread::sleep(Duration::from_secs(1));
    let second: Vec<_> = ours.iter().map(quiet).collect();
    let slept_through = first
        .iter()
        .zip(&second)
        .any(|(first, second)| first.is_some() && first == second);
    assert!(slept_through, "an idle acceptor woke: {first:?} {second:?}");
    drop(acceptor);
}
