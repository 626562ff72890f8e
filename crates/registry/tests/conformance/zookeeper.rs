//! The suite with ZooKeeper, and what only ZooKeeper promises. Real servers, in one test each.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use slackwater_registry::{Error, Expect, Kind, LEADER, Life, Registry, SESSION_TIMEOUT, open};

use super::child::Child;
use super::servers::{Servers, jars};
use super::{
    Candidate, QUIET, TOO_LONG, cases, elections, get, measured, model, processes, put, registry,
};

type Case = (&'static str, fn(&str));

macro_rules! suite {
    ($($module:ident::$case:ident),* $(,)?) => {
        [$((stringify!($case), $module::$case)),*]
    };
}

const CASES: [Case; 18] = suite!(
    cases::writes_expect_what_is_there,
    cases::lists_have_what_starts_with_the_prefix,
    cases::odd_keys_and_long_values_are_refused,
    cases::threads_count_by_compare_and_set,
    cases::a_session_ends_with_its_registry,
    cases::watches_see_every_change,
    cases::a_watch_may_write_and_end_itself,
    cases::who_only_looks_makes_nothing,
    elections::one_of_twenty_leads_in_each_term,
    elections::candidates_lead_in_the_order_of_the_line,
    elections::the_leader_is_removed_by_version,
    elections::the_keys_of_the_leader_are_its_own,
    processes::processes_count_by_compare_and_set,
    processes::entries_of_a_session_vanish_with_its_process,
    processes::the_next_one_leads_when_the_leader_is_killed,
    processes::a_gap_in_the_line_is_closed,
    processes::a_stopped_leader_can_be_removed,
    processes::writers_are_killed_at_any_moment,
);

/// ZooKeeper's default.
const TICK_MS: u32 = 2_000;
/// Servers of a group notice sooner that others are away.
const GROUP_TICK_MS: u32 = 500;

#[test]
fn zookeeper_conforms() {
    let Some(jars) = jars() else {
        return;
    };
    let servers = Servers::start(&jars, 1, TICK_MS);
    for (name, case) in CASES {
        eprintln!("zookeeper: {name}");
        case(&servers.url(name));
    }
    model::a_client_sees_what_a_map_would_have(&servers.url("model"), 16);
    a_stopped_leader_loses_its_session(&servers);
    what_is_there_is_not_trusted(&servers);
}

#[test]
fn servers_of_nobody_are_named() {
    let started = Instant::now();
    let error = open("zk://127.0.0.1:1,127.0.0.1:2/slackwater/q")
        .err()
        .expect("an error");
    assert_eq!(error.kind, Kind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("127.0.0.1:1,127.0.0.1:2"), "{text}");
    assert!(started.elapsed() < TOO_LONG);
}

/// Another takes over when the session has ended, and what the old one does afterwards is refused.
fn a_stopped_leader_loses_its_session(servers: &Servers) {
    let url = servers.url("stopped");
    let ours = registry(&url);
    let mut child = Child::start(&url);
    assert_eq!(child.ask("elect old"), "elected 1");
    assert_eq!(child.ask("session hosts/old here"), "done");
    let standby = Candidate::stand(&*ours, "new");
    child.signal(Signal::STOP);
    let term = standby.elected();
    assert_eq!(term.number(), 2);
    assert_eq!(get(&*ours, "hosts/old"), None);
    child.send("guarded job old");
    child.signal(Signal::CONT);
    let mut answers = [child.line(), child.line()];
    answers.sort();
    assert_eq!(answers, ["Fenced", "over Expired"]);
    assert_eq!(get(&*ours, "job"), None);
    // It begins another session, and stands again.
    assert_eq!(child.ask("put job any"), "done");
    child.send("elect again");
    drop(standby);
    assert_eq!(child.line(), "elected 3");
    assert_eq!(child.ask("guarded job new"), "done");
}

/// Nodes that somebody else has written.
fn what_is_there_is_not_trusted(servers: &Servers) {
    let url = servers.url("strange");
    let registry = registry(&url);
    put(&*registry, "job", "v");
    let mut damage = Damage::new(&url);
    damage.set("keys/job", b"short");
    let error = registry.get("job").expect_err("damage");
    assert_eq!(error.kind, Kind::Damaged);
    assert!(error.to_string().contains("keys/job"), "{error}");
    damage.set("keys/job", b"12345678value");
    // What no key is called is no entry.
    damage.create("keys/a b", b"12345678value");
    assert_eq!(registry.list("").expect("entries").len(), 1);
    damage.create("keys/term", b"12345678nonsense");
    // Nor is what no candidate is called one.
    damage.create("line/a-candidate", b"");
    let candidate = Candidate::stand(&*registry, "c");
    let error = candidate.over();
    assert_eq!(error.kind, Kind::Damaged);
    assert!(error.to_string().contains("term"), "{error}");
    damage.set("writes", b"nonsense and more");
    assert_eq!(write(&*registry).expect_err("damage").kind, Kind::Damaged);
    damage.set("format", b"slackwater registry 2");
    assert_eq!(open(&url).err().expect("an error").kind, Kind::Later);
    damage.set("format", b"something else");
    assert_eq!(open(&url).err().expect("an error").kind, Kind::Damaged);
}

/// Writes nodes of a registry directly.
struct Damage {
    runtime: tokio::runtime::Runtime,
    client: zookeeper_client::Client,
    path: String,
}

impl Damage {
    fn new(url: &str) -> Damage {
        let rest = url.strip_prefix("zk://").expect("a URL of ZooKeeper");
        let (servers, path) = rest.split_once('/').expect("a path");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        let client = runtime.block_on(zookeeper_client::Client::connect(servers));
        Damage {
            client: client.expect("a session"),
            runtime,
            path: format!("/{path}"),
        }
    }

    fn set(&mut self, node: &str, data: &[u8]) {
        let node = format!("{}/{node}", self.path);
        let set = self.client.set_data(&node, data, None);
        self.runtime.block_on(set).expect("a write");
    }

    fn create(&mut self, node: &str, data: &[u8]) {
        let node = format!("{}/{node}", self.path);
        let options = zookeeper_client::CreateMode::Persistent
            .with_acls(zookeeper_client::Acls::anyone_all());
        let create = self.client.create(&node, data, &options);
        self.runtime.block_on(create).expect("a write");
    }
}

fn write(registry: &dyn Registry) -> Result<u64, Error> {
    registry.put("job", Some(b"v"), Expect::Any, None, Life::Kept)
}

#[test]
fn servers_of_a_group_may_be_killed() {
    let Some(jars) = jars() else {
        return;
    };
    let mut servers = Servers::start(&jars, 3, GROUP_TICK_MS);
    let url = servers.url("group");
    let ours = registry(&url);
    let theirs = registry(&url);
    let leader = Candidate::stand(&*theirs, "leader");
    let term = leader.elected();
    let standby = Candidate::stand(&*ours, "standby");
    let guarded = || theirs.put("job", Some(b"v"), Expect::Any, Some(&term), Life::Kept);

    // One after the other, each of the three: nothing happens, but that some operations wait.
    for at in 0..3 {
        servers.kill(at);
        for _ in 0..5 {
            guarded().unwrap_or_else(|error| panic!("server {at} is away: {error}"));
        }
        assert!(standby.is_told_nothing());
        assert!(leader.is_told_nothing());
        servers.restart(at);
        servers.wait();
    }

    // Two stand still, for longer than the third waits for them, and come back in time: the session has
    // survived, and what was asked is done.
    for at in [0, 1] {
        servers.signal(at, Signal::STOP);
    }
    std::thread::scope(|scope| {
        let written = scope.spawn(|| guarded().unwrap_or_else(|error| panic!("{error}")));
        std::thread::sleep(Duration::from_millis(5 * u64::from(GROUP_TICK_MS)));
        assert!(!written.is_finished());
        for at in [0, 1] {
            servers.signal(at, Signal::CONT);
        }
        written.join().expect("no panic");
    });
    assert!(standby.is_told_nothing());
    assert!(leader.is_told_nothing());
    guarded().unwrap_or_else(|error| panic!("{error}"));

    // Two are gone: operations fail, and name the servers.
    servers.kill(0);
    servers.kill(1);
    for result in [write(&*ours), ours.get("job").map(|_| 0)] {
        let error = result.expect_err("no majority");
        assert!(
            matches!(error.kind, Kind::Unavailable | Kind::Unknown),
            "{error}"
        );
        assert!(error.to_string().contains(&url), "{error}");
    }
    // It goes on when they are back, with somebody who leads.
    servers.restart(0);
    servers.restart(1);
    servers.wait();
    let end = Instant::now() + TOO_LONG;
    while write(&*ours).is_err() {
        assert!(Instant::now() < end);
    }
    drop((leader, standby));
    let again = Candidate::stand(&*ours, "again");
    assert!(again.elected() > term);
    assert_eq!(get(&*ours, LEADER).as_deref(), Some("again"));
}

/// A watch goes on in another session, and tells that something may have been missed.
#[test]
fn watches_survive_the_servers() {
    let Some(jars) = jars() else {
        return;
    };
    let mut servers = Servers::start(&jars, 1, TICK_MS);
    let url = servers.url("watches");
    let (ours, theirs) = (registry(&url), registry(&url));
    let (changed, changes) = std::sync::mpsc::channel();
    let watch = ours.watch(
        "hosts/",
        Box::new(move || {
            let _ = changed.send(());
        }),
    );
    put(&*theirs, "hosts/h1", "v");
    changes.recv_timeout(TOO_LONG).expect("a change");
    while changes.recv_timeout(QUIET).is_ok() {}
    servers.kill(0);
    // Longer than any session.
    std::thread::sleep(SESSION_TIMEOUT * 2);
    servers.restart(0);
    servers.wait();
    changes.recv_timeout(TOO_LONG).expect("a change");
    while changes.recv_timeout(Duration::from_secs(2)).is_ok() {}
    let end = Instant::now() + TOO_LONG;
    while theirs
        .put("hosts/h2", Some(b"v"), Expect::Any, None, Life::Kept)
        .is_err()
    {
        assert!(Instant::now() < end);
    }
    changes.recv_timeout(TOO_LONG).expect("a change");
    assert_eq!(ours.list("hosts/").expect("entries").len(), 2);
    drop(watch);
}

#[test]
#[ignore = "prints figures"]
fn measured_zookeeper() {
    let Some(jars) = jars() else {
        return;
    };
    let servers = Servers::start(&jars, 1, TICK_MS);
    measured::takes_over(
        "ZooKeeper: kill -9 to elected, by the session's time-out",
        &servers.url("killed"),
        10,
        false,
    );
    measured::takes_over(
        "ZooKeeper: kill -9 to elected, removed by the standby",
        &servers.url("removed"),
        10,
        true,
    );
    measured::writes("ZooKeeper, one server", &servers.url("writes"), 200);
    measured::idles("ZooKeeper", &servers.url("idle"));
    drop(servers);
    let servers = Servers::start(&jars, 3, TICK_MS);
    measured::writes("ZooKeeper, three servers", &servers.url("writes"), 200);
}
