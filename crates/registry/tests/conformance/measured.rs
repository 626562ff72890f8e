//! Figures: printed, never asserted. `make test-zookeeper` and
//! `cargo test -p slackwater-registry --features sqlite measured -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use slackwater_registry::{Expect, LEADER, Life};

use super::child::Child;
use super::{Candidate, put, registry};

/// How long a standby takes to lead after `kill -9` of the leader, `rounds` times. With `suspects` the
/// standby removes the leader's entry at once, as one does that has seen its connection to the leader end.
pub fn takes_over(what: &str, url: &str, rounds: usize, suspects: bool) {
    let ours = registry(url);
    let mut times = Vec::new();
    for _ in 0..rounds {
        let mut child = Child::start(url);
        assert!(child.ask("elect leader").starts_with("elected "));
        let standby = Candidate::stand(&*ours, "standby");
        std::thread::sleep(Duration::from_millis(50));
        let leader = ours.get(LEADER).expect("an entry").expect("a leader");
        let start = Instant::now();
        child.kill();
        if suspects {
            let remove = ours.put(
                LEADER,
                None,
                Expect::Version(leader.version),
                None,
                Life::Kept,
            );
            remove.unwrap_or_else(|error| panic!("{error}"));
        }
        standby.elected();
        times.push(start.elapsed());
    }
    print(what, times);
}

/// How long writes take, one after the other: free ones, and those guarded by a term.
pub fn writes(what: &str, url: &str, count: usize) {
    let ours = registry(url);
    let leader = Candidate::stand(&*ours, "leader");
    let term = leader.elected();
    let (mut free, mut guarded, mut looks) = (Vec::new(), Vec::new(), Vec::new());
    for at in 0..count {
        let start = Instant::now();
        put(&*ours, "measured", &at.to_string());
        free.push(start.elapsed());
        let start = Instant::now();
        ours.put("measured", Some(b"v"), Expect::Any, Some(&term), Life::Kept)
            .expect("a write");
        guarded.push(start.elapsed());
        let start = Instant::now();
        ours.get("measured").expect("a look");
        looks.push(start.elapsed());
    }
    print(&format!("{what}: write"), free);
    print(&format!("{what}: guarded write"), guarded);
    print(&format!("{what}: get"), looks);
}

/// How often a process that stands and watches is woken while nothing happens.
pub fn idles(what: &str, url: &str) {
    let mut leader = Child::start(url);
    assert!(leader.ask("elect leader").starts_with("elected "));
    let mut waits = Child::start(url);
    waits.send("elect waits");
    assert_eq!(waits.ask("watch hosts/"), "watching");
    std::thread::sleep(Duration::from_secs(2));
    let sum = |child: &Child| child.switches().iter().map(|(_, count)| count).sum::<u64>();
    let (before, time) = (sum(&waits), Duration::from_secs(10));
    std::thread::sleep(time);
    let wakes = (sum(&waits) - before) as f64 / time.as_secs_f64();
    println!("measured: {what}: a candidate with a watch is woken {wakes:.1} times a second");
}

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "measured: {what}: p50 {:.2} ms, {:.2} to {:.2} ms, {} times",
        ms(times[times.len() / 2]),
        ms(times[0]),
        ms(times[times.len() - 1]),
        times.len()
    );
}

#[cfg(feature = "sqlite")]
#[test]
#[ignore = "prints figures"]
fn measured_sqlite() {
    let (_folder, url) = super::sqlite::fresh();
    takes_over("SQLite: kill -9 to elected", &url, 20, false);
    writes("SQLite", &url, 200);
    let (_folder, url) = super::sqlite::fresh();
    idles("SQLite", &url);
}
