//! What a manager does while servers come, lead, follow and go.

use std::fs;

use rustix::process::Signal;

use crate::fake::Fake;
use crate::manager::{CPUS, Manager, Place, eventually, signal};
use crate::tree;

fn server(place: &Place, fake: &Fake) -> Option<slackwater_power::status::ServerStatus> {
    let status = place.status()?;
    status
        .servers
        .into_iter()
        .find(|server| server.address == fake.address.to_string())
}

fn is_slow(place: &Place, fake: &Fake) -> bool {
    server(place, fake).is_some_and(|server| server.set_khz.is_some())
}

#[test]
fn a_replica_is_slowed_and_the_end_of_its_master_raises_it() {
    let place = Place::new();
    let mut master = Fake::master();
    let replica = Fake::replica(master.address);
    let mut manager = place.manage(master.address, &[]);
    eventually("the replica is slowed", || is_slow(&place, &replica));
    assert!(tree::any_slow(&place.sys(), CPUS));
    assert!(server(&place, &master).unwrap().set_khz.is_none());
    assert!(place.journal().exists());
    master.kill();
    eventually("all is fast", || place.is_as_found());
    eventually("it is said", || {
        manager.log().contains("its master was lost")
    });
    assert_eq!(manager.stop(), Some(0));
    assert!(place.is_as_found());
    assert!(!place.journal().exists());
}

#[test]
fn a_master_that_stops_answering_is_lost() {
    let place = Place::new();
    let master = Fake::master();
    let replica = Fake::replica(master.address);
    let _manager = place.manage(master.address, &[]);
    eventually("the replica is slowed", || is_slow(&place, &replica));
    signal(master.pid(), Signal::STOP);
    eventually("all is fast", || place.is_as_found());
    signal(master.pid(), Signal::CONT);
    eventually("the replica is slowed again", || is_slow(&place, &replica));
}

#[test]
fn a_replica_that_is_promoted_is_raised_before() {
    let place = Place::new();
    let master = Fake::master();
    let replica = Fake::replica(master.address);
    let manager = place.manage(master.address, &[]);
    eventually("the replica is slowed", || is_slow(&place, &replica));
    let output = place.run(&["promote", &replica.address.to_string()]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("raised, and promoted"), "{text}{:?}", output);
    assert!(place.is_as_found(), "{}", manager.log());
    eventually("it leads", || {
        server(&place, &replica).is_some_and(|server| server.role == "master")
    });
    assert!(place.is_as_found());
}

#[test]
fn another_process_under_the_same_address_is_another_instance() {
    let place = Place::new();
    let master = Fake::master();
    let mut replica = Fake::replica(master.address);
    let mut manager = place.manage(master.address, &[]);
    eventually("the replica is slowed", || is_slow(&place, &replica));
    let (before, port) = (replica.pid(), replica.address.port());
    replica.kill();
    eventually("its core is restored", || place.is_as_found());
    let replica = Fake::start(port, Some(master.address));
    assert_ne!(replica.pid(), before);
    eventually("the new one is slowed", || {
        server(&place, &replica)
            .is_some_and(|server| server.pid == Some(replica.pid()) && server.set_khz.is_some())
    });
    assert_eq!(manager.stop(), Some(0));
    assert!(place.is_as_found());
}

#[test]
fn a_beat_hands_over_all_even_before_a_silence_and_is_undone() {
    let place = Place::new();
    let master = Fake::master();
    let replica = Fake::replica(master.address);
    let check = String::from_utf8(place.run(&["check", "--lag", "20ms"]).stdout).unwrap();
    if !check.contains("batch: possible") {
        println!("skipped: {check}");
        return;
    }
    let mut manager = place.manage(master.address, &["--lag", "500ms"]);
    eventually("a beat", || {
        server(&place, &replica).is_some_and(|server| server.beats > 3)
    });
    eventually("a high mark", || replica.mark() > 1_000);
    let status = server(&place, &replica).unwrap();
    assert!(status.classes.contains(&"batch".to_string()), "{status:?}");
    master.ask(&["SILENCE"]);
    eventually("all is applied", || replica.offset() == master.offset());
    eventually("the mark is down in silence", || replica.mark() == 1);
    master.ask(&["SPEAK"]);
    eventually("the beat is back", || replica.mark() > 1_000);
    // The master's connection is closed and made again: a new socket.
    signal(master.pid(), Signal::STOP);
    eventually("the mark is down", || replica.mark() == 1);
    signal(master.pid(), Signal::CONT);
    eventually("the beat is back", || replica.mark() > 1_000);
    assert_eq!(manager.stop(), Some(0));
    assert_eq!(replica.mark(), 1);
}

#[test]
fn a_second_manager_names_the_first() {
    let place = Place::new();
    let master = Fake::master();
    let mut manager = place.manage(master.address, &[]);
    eventually("it runs", || place.status().is_some());
    for command in [&["restore"][..], &[&format!("redis://{}", master.address)]] {
        let output = place.run(command);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(
            text.contains(&format!("process {} manages already", manager.hand)),
            "{text}"
        );
    }
    // Both are told to end, as by a terminal.
    let head = manager.head().unwrap();
    signal(manager.hand, Signal::INT);
    signal(head, Signal::INT);
    assert_eq!(manager.wait(), Some(0));
}

#[test]
fn somebody_who_insists_is_left_alone_and_named() {
    let place = Place::new();
    let master = Fake::master();
    let replica = Fake::replica(master.address);
    let mut manager = place.manage(master.address, &["--lag", "5s"]);
    eventually("the replica is slowed", || is_slow(&place, &replica));
    let slow = (0..CPUS).find(|cpu| {
        fs::read_to_string(tree::cap(&place.sys(), *cpu))
            .unwrap()
            .trim()
            != tree::HIGHEST
    });
    let cap = tree::cap(&place.sys(), slow.unwrap());
    eventually("a conflict", || {
        fs::write(&cap, "1600000\n").unwrap();
        place
            .status()
            .is_some_and(|status| status.cores.iter().any(|core| core.conflicts > 0))
    });
    assert!(
        manager.log().contains("look for tuned"),
        "{}",
        manager.log()
    );
    assert_eq!(manager.stop(), Some(0));
    assert_eq!(fs::read_to_string(&cap).unwrap(), "1600000\n");
}

#[test]
fn a_dry_run_changes_nothing_and_says_what_it_would() {
    let place = Place::new();
    let master = Fake::master();
    let replica = Fake::replica(master.address);
    let mut manager = place.manage(
        master.address,
        &["--dry-run", "--lag", "500ms", "--metrics", "127.0.0.1:0"],
    );
    eventually("it would slow", || is_slow(&place, &replica));
    assert!(place.is_as_found());
    assert_eq!(replica.mark(), 1);
    assert!(!place.journal().exists());
    assert!(place.status().unwrap().dry_run);
    assert_eq!(manager.stop(), Some(0));
    let plan = place.run(&["plan", &format!("redis://{}", master.address)]);
    let text = String::from_utf8_lossy(&plan.stdout).into_owned();
    assert!(
        text.contains("dry run") && text.contains(&replica.address.to_string()),
        "{text}"
    );
    assert!(place.is_as_found());
}

#[test]
fn a_manager_without_its_server_waits_for_it() {
    let place = Place::new();
    let mut master = Fake::master();
    let address = master.address;
    master.kill();
    let mut manager = place.manage(address, &[]);
    eventually("it says so", || {
        place
            .status()
            .is_some_and(|status| status.servers.iter().any(|server| server.trouble.is_some()))
    });
    let master = Fake::start(address.port(), None);
    eventually("it is found", || {
        server(&place, &master).is_some_and(|server| server.pid == Some(master.pid()))
    });
    Manager::kill(manager.head().unwrap());
    assert_eq!(manager.wait(), Some(1));
}

/// The processes of a unit, in the tree.
fn write_unit(place: &Place, unit: &str, pids: &[u32]) {
    let folder = place.sys().join("fs/cgroup/system.slice").join(unit);
    fs::create_dir_all(&folder).unwrap();
    let lines = pids.iter().map(|pid| format!("{pid}\n"));
    fs::write(folder.join("cgroup.procs"), lines.collect::<String>()).unwrap();
}

#[test]
fn a_process_that_the_configuration_names_is_verified_too() {
    let place = Place::new();
    let master = Fake::master();
    let replica = Fake::replica(master.address);
    // One of the unit's processes is the server; and a wrong number is not believed.
    write_unit(
        &place,
        "redis@1.service",
        &[std::process::id(), replica.pid()],
    );
    let config = format!(
        "[slow]\nsettle = \"100 ms\"\n\
         [[redis]]\nurl = \"redis://{}\"\nunit = \"redis@1.service\"\n\
         [[redis]]\nurl = \"redis://{}\"\npid = {}\n",
        replica.address,
        master.address,
        std::process::id()
    );
    fs::write(place.path().join("power.toml"), config).unwrap();
    let mut manager = place.manage_configured(&[]);
    eventually("the replica is found in its unit", || {
        server(&place, &replica).is_some_and(|server| server.pid == Some(replica.pid()))
    });
    eventually("the master is left alone", || {
        manager.log().contains("is left alone: the process")
    });
    assert!(server(&place, &master).unwrap().pid.is_none());
    // What runs in no unit is nobody's process.
    fs::remove_dir_all(place.sys().join("fs/cgroup")).unwrap();
    let port = replica.address.port();
    drop(replica);
    let replica = Fake::start(port, Some(master.address));
    eventually("it says so", || {
        manager
            .log()
            .contains("unit redis@1.service is not running")
    });
    assert!(server(&place, &replica).unwrap().pid.is_none());
    assert_eq!(manager.stop(), Some(0));
}

#[test]
fn a_core_that_goes_offline_and_comes_back_is_read_again() {
    let place = Place::new();
    let master = Fake::master();
    let replica = Fake::replica(master.address);
    let mut manager = place.manage(master.address, &[]);
    eventually("the replica is slowed", || is_slow(&place, &replica));
    let cpu = server(&place, &replica).unwrap().cpu.unwrap();
    let (online, cap) = (
        place.sys().join("devices/system/cpu/online"),
        tree::cap(&place.sys(), cpu),
    );
    let all = fs::read_to_string(&online).unwrap();
    let left = (0..CPUS).filter(|other| *other != cpu);
    let left = left.map(|cpu| cpu.to_string()).collect::<Vec<String>>();
    // As the kernel does it: the core's files are gone, and hold its limit when it is back.
    let (clock, aside) = (cap.parent().unwrap(), place.path().join("aside"));
    fs::rename(clock, &aside).unwrap();
    fs::write(&online, left.join(",")).unwrap();
    eventually("another core is slowed", || {
        let now = server(&place, &replica).unwrap();
        now.set_khz.is_some() && now.cpu != Some(cpu)
    });
    fs::rename(&aside, clock).unwrap();
    fs::write(&online, all).unwrap();
    eventually("all cores are known again", || {
        place
            .status()
            .is_some_and(|status| status.cores.len() == CPUS as usize)
    });
    assert_eq!(manager.stop(), Some(0));
    assert!(place.is_as_found());
}
