//! A master is killed, and a real Sentinel promotes a replica: by then all of them are fast.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use slackwater_power::facts;

use crate::manager::{CPUS, Manager, Place, eventually};
use crate::redis::{Connection, Server, group, sentinel, write};
use crate::tree;

const REPLICAS: usize = 2;

#[test]
fn all_replicas_are_fast_before_one_is_promoted() {
    rounds(2);
}

#[test]
#[ignore = "takes minutes; prints how long it takes"]
fn all_replicas_are_fast_before_one_is_promoted_20_rounds() {
    rounds(20);
}

fn rounds(count: usize) {
    let mut took = Vec::new();
    for _ in 0..count {
        let Some(one) = round() else {
            return;
        };
        took.push(one);
    }
    took.sort();
    let [p50, most] = [took[took.len() / 2], took[took.len() - 1]];
    println!(
        "raised after the end of the master's connection, {count} rounds: p50 {p50:?}, most {most:?}"
    );
}

/// How many cores are slowed.
fn slow(place: &Place) -> usize {
    let values = tree::values(&place.sys(), CPUS);
    let caps = values[..CPUS as usize].iter();
    caps.filter(|value| *value != tree::HIGHEST).count()
}

/// When a sentinel has begun to promote somebody.
fn promotion(sentinel: &Server) -> mpsc::Receiver<Instant> {
    let mut connection = Connection::to(sentinel.address());
    connection.ask(&["PSUBSCRIBE", "*"]);
    let (sender, promoted) = mpsc::channel();
    thread::spawn(move || {
        while let Some(message) = connection.reply() {
            let fields = message.array().unwrap_or_default();
            let channel = fields.get(2).and_then(|channel| channel.text());
            if channel == Some("+failover-state-send-slaveof-noone") {
                let _ = sender.send(Instant::now());
                return;
            }
        }
    });
    promoted
}

/// How long it took; none where there is no program.
fn round() -> Option<Duration> {
    let place = Place::new();
    let (mut master, _replicas) = group(&place, REPLICAS)?;
    let sentinel = sentinel(&place, &master, "");
    let promoted = promotion(&sentinel);
    let config = format!(
        "[[redis]]\nsentinel = [\"{}\"]\nname = \"mymaster\"\n[slow]\nsettle = \"100 ms\"\n",
        sentinel.address()
    );
    fs::write(place.path().join("power.toml"), config).unwrap();
    let goes_on = AtomicBool::new(true);
    let (ended, raised) = thread::scope(|scope| {
        scope.spawn(|| write(master.address(), &goes_on));
        // Without a lag nothing is batched, and nothing but frequencies is looked at.
        let manager = place.manage_configured(&[]);
        eventually("all replicas are slow", || slow(&place) == REPLICAS);
        eventually("the sentinel knows the replicas", || {
            let said = sentinel.ask(&["SENTINEL", "REPLICAS", "mymaster"]);
            said.array().map(<[_]>::len) == Some(REPLICAS)
        });
        // Its end is what the manager sees, too.
        let mut connection = Connection::to(master.address());
        let end = thread::spawn(move || {
            while connection.reply().is_some() {}
            Instant::now()
        });
        let raise = scope.spawn(|| {
            loop {
                if slow(&place) == 0 {
                    return Instant::now();
                }
                thread::sleep(Duration::from_micros(100));
            }
        });
        let role = master.ask(&["ROLE"]);
        assert!(matches!(
            facts::role(&role),
            Some(facts::RoleSaid::Master { .. })
        ));
        goes_on.store(false, Ordering::Relaxed);
        Manager::kill(master.pid());
        let times = (end.join().unwrap(), raise.join().unwrap());
        drop(manager);
        times
    });
    master.kill();
    let promoted = promoted.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(raised < promoted, "raised {:?} late", raised - promoted);
    Some(raised.saturating_duration_since(ended))
}
