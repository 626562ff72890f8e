//! Several orchestrators of one query, which agree by a registry in SQLite who leads; and what they are
//! asked. With ZooKeeper, and in namespaces: `make test-hosts`.

use rustix::process::Signal;
use slackwater_registry::{Expect, LEADER, Life, open};

use crate::hosts::{
    FILES, ROWS, address, agent, expected, folder, key, kill, output, query, wait_for_checkpoints,
    wait_until,
};
use crate::process::{Folder, PATIENCE, Running};

/// The options of all orchestrators of a test.
const ALL: [&str; 8] = [
    "--secret",
    "cluster.key",
    "--state",
    "state",
    "--registry",
    "sqlite:registry.db",
    "--set",
    "checkpoint_interval=50 ms",
];

/// An orchestrator, and where it listens.
struct Orchestrator {
    running: Running,
    address: String,
}

/// Starts an orchestrator of a query that takes a few seconds.
fn orchestrator(folder: &Folder, name: &str, hosts: &str) -> Orchestrator {
    let address = address();
    let report = format!("{name}.json");
    let own = ["--listen", &address, "--name", name, "--hosts", hosts];
    let more = ["--parallelism", "2", "--report", &report];
    let options = [&ALL[..], &own[..], &more[..]].concat();
    folder.write("query.sql", query(Some(1_500)).as_bytes());
    let command = [&["run", "query.sql"][..], &options[..]].concat();
    Orchestrator {
        running: Running::start_unread(folder.command(&command)),
        address,
    }
}

/// An orchestrator that leads, and one that stands by.
fn two(folder: &Folder, hosts: &str) -> [Orchestrator; 2] {
    let o1 = orchestrator(folder, "o1", hosts);
    wait_until("nobody leads", || status(folder, &o1).is_some());
    let o2 = orchestrator(folder, "o2", hosts);
    wait_until("nobody stands by", || {
        status(folder, &o1).is_some_and(|status| status["standbys"][0] == "o2")
    });
    [o1, o2]
}

/// What `slackwater status` says of an orchestrator, if that leads.
fn status(folder: &Folder, orchestrator: &Orchestrator) -> Option<serde_json::Value> {
    let whom = ["--join", &orchestrator.address, "--secret", "cluster.key"];
    let asked = folder.slackwater(&[&["status", "--json"], &whom[..]].concat());
    serde_json::from_str(&asked.out).ok()
}

fn agents(folder: &Folder, orchestrators: &[Orchestrator; 2]) -> [Running; 2] {
    let [o1, o2] = orchestrators;
    let join = format!("{},{}", o1.address, o2.address);
    ["h1", "h2"].map(|name| agent(folder, &join, name))
}

/// Removes the leader's entry, as a standby does that has lost its connection to it.
fn remove_leader(folder: &Folder) {
    let path = folder.path("registry.db");
    let registry = open(&format!("sqlite:{}", path.display())).unwrap();
    let leader = registry.get(LEADER).unwrap().expect("a leader");
    let expect = Expect::Version(leader.version);
    registry
        .put(LEADER, None, expect, None, Life::Kept)
        .unwrap();
}

#[test]
fn an_orchestrator_that_is_killed_is_replaced() {
    let folder = folder();
    let both = two(&folder, "2");
    let agents = agents(&folder, &both);
    let [o1, o2] = both;
    wait_for_checkpoints(&folder, 3);
    let before = status(&folder, &o1).unwrap();
    assert_eq!(
        (&before["name"], &before["term"]),
        (&"o1".into(), &1.into())
    );
    assert_eq!(before["hosts"].as_array().unwrap().len(), 2);
    assert_eq!(before["hosts"][0]["processes"], 1);
    kill(&o1.running, Signal::KILL);
    wait_until("the standby does not lead", || {
        status(&folder, &o2).is_some()
    });
    assert_eq!(status(&folder, &o2).unwrap()["term"], 2);
    let finished = o2.running.finish(PATIENCE).ok();
    assert!(finished.err.contains("o1 (127.0.0.1:"), "{}", finished.err);
    assert_eq!(output(&folder), expected());
    for agent in agents {
        let told = agent.finish(PATIENCE).ok();
        assert!(told.err.contains("joined o2"), "{}", told.err);
        // Once for each address and reason, not once for each attempt.
        let tries = told.err.matches("trying again").count();
        assert!(tries < 10, "{}", told.err);
    }
    assert!(folder.json("o2.json")["restored_from"].as_u64() > Some(0));
}

#[test]
fn an_orchestrator_that_is_stopped_hands_over_and_nothing_is_read_twice() {
    let folder = folder();
    let both = two(&folder, "2");
    let _agents = agents(&folder, &both);
    let [o1, o2] = both;
    wait_for_checkpoints(&folder, 3);
    kill(&o1.running, Signal::TERM);
    o1.running.finish(PATIENCE).ok();
    o2.running.finish(PATIENCE).ok();
    assert_eq!(output(&folder), expected());
    let rows =
        ["o1.json", "o2.json"].map(|report| folder.json(report)["rows_in"].as_u64().unwrap());
    assert!(rows[0] > 0);
    assert_eq!(rows[0] + rows[1], (ROWS * FILES) as u64);
}

#[test]
fn an_orchestrator_that_was_replaced_while_it_slept_stands_by() {
    let folder = folder();
    let both = two(&folder, "2");
    let _agents = agents(&folder, &both);
    let [o1, o2] = both;
    wait_for_checkpoints(&folder, 3);
    kill(&o1.running, Signal::STOP);
    remove_leader(&folder);
    wait_until("the standby does not lead", || {
        status(&folder, &o2).is_some()
    });
    kill(&o1.running, Signal::CONT);
    wait_until("the old leader does not stand by", || {
        status(&folder, &o2).is_some_and(|status| status["standbys"][0] == "o1")
    });
    // Now the other way around.
    kill(&o2.running, Signal::KILL);
    wait_until("it does not lead again", || {
        status(&folder, &o1).is_some_and(|status| status["term"] == 3)
    });
    o1.running.finish(PATIENCE).ok();
    assert_eq!(output(&folder), expected());
}

#[test]
fn who_stands_by_ends_with_the_query() {
    let folder = folder();
    let both = two(&folder, "2");
    let agents = agents(&folder, &both);
    let [o1, o2] = both;
    o1.running.finish(PATIENCE).ok();
    o2.running.finish(PATIENCE).ok();
    assert!(!folder.path("o2.json").exists(), "it has run nothing");
    for agent in agents {
        agent.finish(PATIENCE).ok();
    }
    // The same query may be run again: there is nothing left to do.
    let again = orchestrator(&folder, "o3", "2");
    let _agents = ["h1", "h2"].map(|name| agent(&folder, &again.address, name));
    let finished = again.running.finish(PATIENCE).ok();
    assert!(
        finished.err.contains("the query has finished"),
        "{}",
        finished.err
    );
    assert_eq!(output(&folder), expected());
}

#[test]
fn who_stands_by_fails_with_the_query() {
    let folder = folder();
    let both = two(&folder, "1");
    std::fs::remove_file(folder.path("in-1.csv")).unwrap();
    let [o1, o2] = &both;
    let join = format!("{},{}", o1.address, o2.address);
    let _agent = agent(&folder, &join, "h1");
    // A file is missing.
    let [o1, o2] = both;
    for orchestrator in [o1, o2] {
        let code = orchestrator.running.finish(PATIENCE);
        assert!(code.err.contains("in-1.csv"), "{}", code.err);
    }
}

#[test]
fn one_registry_is_for_one_query() {
    let folder = folder();
    let _o1 = orchestrator(&folder, "o1", "1");
    wait_until("nobody leads", || {
        let registry = [
            "--registry",
            "sqlite:registry.db",
            "--secret",
            "cluster.key",
        ];
        let asked = folder.slackwater(&[&["status"], &registry[..]].concat());
        asked.out.contains("query.sql: o1 (127.0.0.1:")
    });
    let other = address();
    let own = ["--listen", &other, "--name", "o2", "--hosts", "1"];
    let options = [&ALL[..], &own[..]].concat();
    folder.run(&query(Some(7)), &options).fails(
        2,
        &[
            "directs another query there, query.sql",
            "a registry of its own",
        ],
    );
}

#[test]
fn a_store_is_for_the_orchestrators_of_one_registry() {
    let folder = folder();
    let o1 = orchestrator(&folder, "o1", "1");
    let _h1 = agent(&folder, &o1.address, "h1");
    wait_for_checkpoints(&folder, 3);
    // As the same command does with another registry.
    let o2 = address();
    let other = [
        "--registry",
        "sqlite:other.db",
        "--listen",
        &o2,
        "--name",
        "o2",
    ];
    let options = [&ALL[..4], &ALL[6..], &other[..], &["--hosts", "1"]].concat();
    let command = [&["run", "query.sql"][..], &options[..]].concat();
    let second = Running::start_unread(folder.command(&command));
    let _h2 = agent(&folder, &o2, "h2");
    let first = o1.running.finish(PATIENCE);
    assert!(first.err.contains("has taken over"), "{}", first.err);
    assert_eq!(
        first.code,
        Some(1),
        "and does not take it back: {}",
        first.err
    );
    second.finish(PATIENCE).ok();
    assert_eq!(output(&folder), expected());
}

#[test]
fn a_drained_host_leaves_and_its_query_goes_on() {
    let folder = folder();
    let o1 = orchestrator(&folder, "o1", "1..2");
    let [h1, h2] = ["h1", "h2"].map(|name| agent(&folder, &o1.address, name));
    wait_for_checkpoints(&folder, 3);
    let whom = ["--join", &o1.address, "--secret", "cluster.key"];
    let drain = |host| folder.slackwater(&[&["drain", host], &whom[..]].concat());
    drain("h9").fails(1, &["'h9' has not joined", "there are h1, h2"]);
    drain("o1").fails(1, &["'o1' directs the query"]);
    let drained = drain("h2").ok();
    assert_eq!(drained.err, "h2 has left\n");
    let told = h2.finish(PATIENCE).ok();
    assert!(
        told.err.contains("the query goes on without it"),
        "{}",
        told.err
    );
    drain("h1").fails(1, &["'h1' can't leave: the query needs --hosts 1..2"]);
    o1.running.finish(PATIENCE).ok();
    h1.finish(PATIENCE).ok();
    assert_eq!(output(&folder), expected());
    let report = folder.json("o1.json");
    assert_eq!(report["rows_in"], ROWS * FILES, "nothing is read twice");
}

/// One that would take over, and then let no agent in.
#[test]
fn regression_a_standby_without_the_secret_is_refused() {
    let folder = folder();
    let _o1 = orchestrator(&folder, "o1", "1");
    wait_until("o1 leads", || {
        let asked = [
            "status",
            "--registry",
            "sqlite:registry.db",
            "--secret",
            "cluster.key",
        ];
        folder.slackwater(&asked).code == Some(0)
    });
    key(&folder, "other.key");
    let own = address();
    let own = ["--listen", &own, "--name", "o2", "--hosts", "1"];
    let own = [&own[..], &["--parallelism", "2"]].concat();
    let without = [&ALL[2..], &own[..]].concat();
    let another = [&["--secret", "other.key"], &without[..]].concat();
    for (options, reason) in [(without, "needs --secret"), (another, "has another secret")] {
        let refused = folder.run(&query(Some(1_500)), &options);
        refused.fails(2, &["does not let this one in", reason]);
    }
}

/// Something that accepts connections, and says nothing.
#[test]
fn regression_a_silent_peer_is_not_waited_for() {
    let folder = folder();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let join = silent.local_addr().unwrap().to_string();
    folder
        .slackwater(&["status", "--join", &join])
        .fails(1, &["no answer within 5 s"]);
    let agent = Running::start_unread(folder.command(&["worker", "--join", &join, "--name", "h1"]));
    // It tries again until it is told to stop.
    let connections = (0..3).map(|_| silent.accept().unwrap());
    let _open = connections.collect::<Vec<_>>();
    agent.interrupt();
    agent.finish(PATIENCE).ok();
}

#[test]
fn registries_have_a_kind() {
    let folder = folder();
    let registry = ["status", "--registry", "registry.db"];
    let kind = "does not say of which kind the registry is";
    folder
        .slackwater(&registry)
        .fails(1, &[kind, "sqlite:PATH"]);
    assert!(!folder.path("registry.db").exists());
}

#[test]
fn questions_need_an_orchestrator_and_its_key() {
    let folder = folder();
    let nobody = address();
    folder
        .slackwater(&["status", "--join", &nobody])
        .fails(1, &["no orchestrator answers", &nobody]);
    folder
        .slackwater(&["status", "--join", "10.99.0.1:7070"])
        .fails(2, &["--join 10.99.0.1:7070: without a secret"]);
    folder
        .slackwater(&["status", "--registry", "sqlite:none.db"])
        .fails(1, &["--registry", "none.db"]);
    folder.slackwater(&["drain", "h2"]).fails(2, &["--join"]);
    let open = ["--listen", "0.0.0.0:7070", "--hosts", "1"];
    folder
        .run(&query(None), &[&ALL[..], &open[..]].concat())
        .fails(
            2,
            &["--listen 0.0.0.0:7070: with --registry", "10.0.0.1:7070"],
        );
}
