//! Several processes, killed and stopped.

use std::sync::mpsc::channel;

use rustix::process::Signal;
use slackwater_registry::{Expect, LEADER, Life};

use super::child::Child;
use super::{Candidate, QUIET, TOO_LONG, get, put, registry};

pub fn processes_count_by_compare_and_set(url: &str) {
    let mut children: Vec<Child> = (0..3).map(|_| Child::start(url)).collect();
    for child in &mut children {
        child.send("count count 10");
    }
    for child in &children {
        assert_eq!(child.line(), "counted");
    }
    assert_eq!(get(&*registry(url), "count").as_deref(), Some("30"));
}

pub fn entries_of_a_session_vanish_with_its_process(url: &str) {
    let ours = registry(url);
    let mut child = Child::start(url);
    assert_eq!(child.ask("session hosts/h2 here"), "done");
    assert_eq!(child.ask("put hosts/h3 kept"), "done");
    let (changed, changes) = channel();
    let watch = ours.watch(
        "hosts/",
        Box::new(move || {
            let _ = changed.send(());
        }),
    );
    assert_eq!(get(&*ours, "hosts/h2").as_deref(), Some("here"));
    child.kill();
    changes.recv_timeout(TOO_LONG).expect("a change");
    assert_eq!(get(&*ours, "hosts/h2"), None);
    assert_eq!(ours.list("hosts/").expect("entries").len(), 1);
    ours.put("hosts/h2", Some(b"v"), Expect::Absent, None, Life::Kept)
        .expect("a write");
    drop(watch);
}

pub fn the_next_one_leads_when_the_leader_is_killed(url: &str) {
    let ours = registry(url);
    let mut last = 0;
    let mut leads = Child::start(url);
    let elected = |child: &Child| -> u64 {
        let line = child.line();
        let number = line
            .strip_prefix("elected ")
            .unwrap_or_else(|| panic!("{line}"));
        number.parse().expect("a number")
    };
    leads.send("elect 0");
    for round in 1..4 {
        let term = elected(&leads);
        assert!(term > last);
        last = term;
        assert_eq!(get(&*ours, LEADER), Some((round - 1).to_string()));
        let mut next = Child::start(url);
        next.send(&format!("elect {round}"));
        assert_eq!(leads.ask("guarded job leads"), "done");
        leads.kill();
        leads = next;
    }
    assert!(elected(&leads) > last);
}

/// Somebody in the middle of the line is killed, then the leader.
pub fn a_gap_in_the_line_is_closed(url: &str) {
    let ours = registry(url);
    let mut leads = Child::start(url);
    assert!(leads.ask("elect first").starts_with("elected "));
    let mut waits = Child::start(url);
    waits.send("elect second");
    // Its place is taken when the next command is read.
    assert_eq!(waits.ask("put job v"), "done");
    let last = Candidate::stand(&*ours, "third");
    waits.kill();
    assert!(last.is_told_nothing());
    assert_eq!(get(&*ours, LEADER).as_deref(), Some("first"));
    leads.kill();
    last.elected();
    assert_eq!(get(&*ours, LEADER).as_deref(), Some("third"));
}

/// What a process does that was stopped while another took over: nothing.
pub fn a_stopped_leader_can_be_removed(url: &str) {
    let ours = registry(url);
    let mut child = Child::start(url);
    assert!(child.ask("elect old").starts_with("elected "));
    let standby = Candidate::stand(&*ours, "new");
    child.signal(Signal::STOP);
    let leader = ours.get(LEADER).expect("an entry").expect("a leader");
    let removed = ours.put(
        LEADER,
        None,
        Expect::Version(leader.version),
        None,
        Life::Kept,
    );
    removed.unwrap_or_else(|error| panic!("{error}"));
    let term = standby.elected();
    ours.put("job", Some(b"new"), Expect::Any, Some(&term), Life::Kept)
        .expect("a guarded write");
    child.send("guarded job old");
    child.signal(Signal::CONT);
    // In either order: it is told, and its write is refused.
    let mut answers = [child.line(), child.line()];
    answers.sort();
    let is_over = ["over Expired", "over Fenced"].contains(&answers[1].as_str());
    assert!(answers[0] == "Fenced" && is_over, "{answers:?}");
    assert_eq!(get(&*ours, "job").as_deref(), Some("new"));
    assert!(standby.is_told_nothing());
}

/// Whatever is killed while it writes: what it was told is written, and nothing is written twice.
pub fn writers_are_killed_at_any_moment(url: &str) {
    let ours = registry(url);
    let mut random = fastrand::Rng::with_seed(3);
    put(&*ours, "count", "0");
    let number = || -> u64 {
        get(&*ours, "count")
            .expect("a count")
            .parse()
            .expect("a number")
    };
    for _ in 0..5 {
        let before = number();
        let mut child = Child::start(url);
        child.send("count count 1000000");
        std::thread::sleep(QUIET / 4 + QUIET.mul_f64(random.f64()));
        child.kill();
        let after = number();
        assert!(after > before, "nothing was written after {before}");
        // It can be written at once.
        super::child::count(&*ours, "count", 1);
        assert_eq!(number(), after + 1);
    }
}
