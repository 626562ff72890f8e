//! Processes are killed at any moment, and all is as it was found.

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::fake::Fake;
use crate::manager::{Manager, Place, eventually, signal};

/// The latest moment of a kill after the start: by then replicas are slowed and batched.
const LATEST_MS: u64 = 3_000;

#[test]
fn whoever_is_killed_all_is_restored() {
    rounds(20, 1);
}

#[test]
#[ignore = "takes minutes"]
fn whoever_is_killed_all_is_restored_100_rounds() {
    rounds(100, 2);
}

fn rounds(count: u32, seed: u64) {
    let place = Place::new();
    let master = Fake::master();
    let replicas = [Fake::replica(master.address), Fake::replica(master.address)];
    let mut random = fastrand::Rng::with_seed(seed);
    let mut changed = 0;
    for round in 0..count {
        let mut manager = place.manage(master.address, &["--lag", "20ms"]);
        eventually("the head starts", || manager.head().is_some());
        thread::sleep(Duration::from_millis(random.u64(0..LATEST_MS)));
        changed += u32::from(place.journal().exists());
        let head = manager.head().unwrap();
        let what = match random.u8(0..3) {
            0 => {
                Manager::kill(head);
                "head"
            }
            1 => {
                Manager::kill(manager.hand);
                "hand"
            }
            _ => {
                Manager::kill(manager.hand);
                Manager::kill(head);
                "both"
            }
        };
        let code = manager.wait();
        if what == "both" {
            let output = place.run(&["restore"]);
            assert!(output.status.success(), "round {round}: {output:?}");
        } else {
            assert_ne!(code, Some(0), "round {round}, {what}");
        }
        assert!(
            place.is_as_found(),
            "round {round}, {what}: {}",
            manager.log()
        );
        for replica in &replicas {
            eventually("the mark is as it was found", || replica.mark() == 1);
        }
        if what != "hand" {
            assert!(!place.journal().exists(), "round {round}, {what}");
        }
    }
    assert!(
        changed > count / 4,
        "only {changed} of {count} rounds had changed anything"
    );
}

#[test]
fn the_next_start_undoes_what_was_left() {
    let place = Place::new();
    let master = Fake::master();
    let replica = Fake::replica(master.address);
    let mut manager = place.manage(master.address, &[]);
    eventually("something is slow", || !place.is_as_found());
    let head = manager.head().unwrap();
    // Else it may restore before it is killed as well.
    signal(head, Signal::STOP);
    Manager::kill(manager.hand);
    Manager::kill(head);
    manager.wait();
    assert!(!place.is_as_found());
    drop((master, replica));
    // Nobody is there to be managed, so the next one only undoes.
    let other = Fake::master();
    let mut manager = place.manage(other.address, &[]);
    eventually("all is as it was found", || place.is_as_found());
    assert_eq!(manager.stop(), Some(0));
}

#[test]
fn a_journal_that_is_torn_or_of_another_boot_is_kept_and_not_applied() {
    let place = Place::new();
    let folder = place.journal().parent().unwrap().to_path_buf();
    fs::create_dir_all(&folder).unwrap();
    let cap = crate::tree::cap(&place.sys(), 1);
    let mut entries = slackwater_power::journal::Entries::default();
    let changed = slackwater_power::journal::Changed {
        found: "2200000".to_string(),
        set: "1000000".to_string(),
        sure: true,
    };
    entries
        .files
        .insert(cap.to_str().unwrap().to_string(), changed);
    fs::write(&cap, "1000000\n").unwrap();
    let whole = entries.encode("another boot");
    for (text, what) in [
        (&whole[..], "another boot"),
        (&whole[..whole.len() / 2], "torn"),
    ] {
        fs::write(place.journal(), text).unwrap();
        let output = place.run(&["restore"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains(what), "{said}");
        assert_eq!(fs::read_to_string(&cap).unwrap(), "1000000\n");
        let mut kept = place.journal().into_os_string();
        kept.push(".unusable");
        assert_eq!(fs::read_to_string(kept).unwrap(), text);
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    fs::write(place.journal(), entries.encode(boot.trim())).unwrap();
    assert!(place.run(&["restore"]).status.success());
    assert_eq!(fs::read_to_string(&cap).unwrap(), "2200000\n");
    assert!(place.run(&["restore"]).status.success());
}
