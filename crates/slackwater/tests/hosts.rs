//! Several hosts on the loopback address: agents that join, are killed, are refused; hosts that differ. In
//! namespaces, with cuts, delays and clocks of their own: `make test-hosts`.

mod fast;

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::process::{Finished, Folder, PATIENCE, Running};

mod wanted;

/// Rows of each file, and files.
pub const ROWS: usize = 4_000;
pub const FILES: usize = 3;

/// Counts by key over several files, so that each process sends to each other.
pub fn query(rate: Option<usize>) -> String {
    let rate = rate.map_or_else(String::new, |rate| format!(", 'replay_rate' = '{rate}/s'"));
    sums("in-*.csv", &rate)
}

/// Sums by key and minute of the [`rows`] of files, with these options of their table.
pub fn sums(path: &str, options: &str) -> String {
    format!(
        "CREATE TABLE t (k BIGINT, n BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
         WITH ('connector' = 'file', 'path' = '{path}'{options});
         CREATE TABLE o (start TIMESTAMP(3), k BIGINT, s BIGINT)
         WITH ('connector' = 'file', 'path' = 'out', 'format' = 'csv');
         INSERT INTO o SELECT window_start, k, SUM(n)
         FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
         GROUP BY window_start, window_end, k;"
    )
}

/// A file of so many rows, with other keys at other times than the next file's.
pub fn rows(file: usize, rows: usize) -> String {
    let rows = (0..rows).map(|row| {
        let (hour, minute, second) = (row / 3600, row / 60 % 60, row % 60);
        let key = (row * 7 + file) % 23;
        format!("{key},{row},2026-01-01 {hour:02}:{minute:02}:{second:02}\n")
    });
    rows.collect()
}

/// A folder with the input and a key.
pub fn folder() -> Folder {
    let folder = Folder::new();
    for file in 0..FILES {
        folder.write(&format!("in-{file}.csv"), rows(file, ROWS).as_bytes());
    }
    key(&folder, "cluster.key");
    folder
}

/// Writes a new key to a file.
pub fn key(folder: &Folder, name: &str) {
    let made = folder.slackwater(&["key"]).ok();
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = file.open(folder.path(name)).unwrap();
    file.write_all(made.out.as_bytes()).unwrap();
}

/// The rows of the output's parts, sorted.
pub fn output(folder: &Folder) -> Vec<String> {
    let parts = std::fs::read_dir(folder.path("out")).unwrap().flatten();
    let names = parts.map(|part| part.file_name().into_string().unwrap());
    let parts = names.filter(|name| !name.starts_with('.'));
    let mut rows = parts
        .flat_map(|name| folder.sorted(&format!("out/{name}")))
        .collect::<Vec<String>>();
    rows.sort();
    rows
}

/// The same query on one host.
pub fn expected() -> Vec<String> {
    let folder = folder();
    folder.run(&query(None), &[]).ok();
    output(&folder)
}

/// An address that nobody listens at.
pub fn address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

pub fn agent(folder: &Folder, address: &str, name: &str) -> Running {
    let arguments = [
        "worker",
        "--join",
        address,
        "--secret",
        "cluster.key",
        "--name",
        name,
    ];
    Running::start_unread(folder.command(&arguments))
}

pub fn start(folder: &Folder, text: &str, address: &str, more: &[&str]) -> Running {
    let own = [
        "--listen",
        address,
        "--secret",
        "cluster.key",
        "--name",
        "h1",
    ];
    folder.start(text, &[&own[..], more].concat())
}

/// Waits until something is so.
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn kill(running: &Running, signal: Signal) {
    kill_process(Pid::from_raw(running.id() as i32).unwrap(), signal).unwrap();
}

/// Waits for checkpoints, so that there is something to resume from.
pub fn wait_for_checkpoints(folder: &Folder, number: usize) {
    wait_until("no checkpoint is stored", || {
        let stored = std::fs::read_dir(folder.path("state/checkpoints"));
        stored.is_ok_and(|stored| stored.count() > number)
    });
}

#[test]
fn three_hosts_give_the_answer_of_one() {
    let expected = expected();
    for link in ["auto", "tcp"] {
        let (folder, address) = (folder(), address());
        let agents = ["h2", "h3"].map(|name| agent(&folder, &address, name));
        let more = [
            "--hosts",
            "3",
            "--here",
            "--processes",
            "2",
            "--parallelism",
            "6",
        ];
        let more = [&more[..], &["--link", link]].concat();
        start(&folder, &query(None), &address, &more)
            .finish(PATIENCE)
            .ok();
        assert_eq!(output(&folder), expected, "{link}");
        // The query is over, and so are they.
        for agent in agents {
            agent.finish(PATIENCE).ok();
        }
        let report = folder.json("report.json");
        let hosts = report["hosts"].as_array().unwrap();
        let names = hosts.iter().map(|host| host["name"].as_str().unwrap());
        assert_eq!(names.collect::<Vec<_>>(), ["h1", "h2", "h3"]);
        let processes = hosts
            .iter()
            .map(|host| host["processes"].as_array().unwrap().len());
        assert_eq!(processes.collect::<Vec<_>>(), [2, 2, 2]);
        let kinds = report["plan"]["remote_links"].as_array().unwrap().iter();
        let kinds = kinds.map(|link| link["kind"].as_str().unwrap());
        let kinds = kinds.collect::<std::collections::BTreeSet<&str>>();
        let expected = if link == "tcp" {
            vec!["tcp"]
        } else {
            vec!["shm", "tcp"]
        };
        assert_eq!(kinds.into_iter().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn home_runs_what_is_bound_to_it_and_directs_the_rest() {
    let (folder, address) = (folder(), address());
    let agent = agent(&folder, &address, "h2");
    let text = query(None).replace("INSERT INTO o SELECT", "SELECT");
    let finished = start(&folder, &text, &address, &["--hosts", "1"])
        .finish(PATIENCE)
        .ok();
    agent.finish(PATIENCE).ok();
    // Rows of a SELECT go to the terminal of home.
    let rows = finished.out.lines().skip(1);
    assert_eq!(rows.count(), expected().len());
    let report = folder.json("report.json");
    assert_eq!(report["hosts"][0]["processes"].as_array().unwrap().len(), 1);
    assert_eq!(report["hosts"][1]["processes"].as_array().unwrap().len(), 1);
}

#[test]
fn a_host_whose_agent_is_killed_is_replaced() {
    let (folder, address) = (folder(), address());
    let mut agents = vec![
        agent(&folder, &address, "h2"),
        agent(&folder, &address, "h3"),
    ];
    let more = [
        "--hosts",
        "3",
        "--here",
        "--parallelism",
        "3",
        "--state",
        "state",
    ];
    let more = [&more[..], &["--set", "checkpoint_interval=50 ms"]].concat();
    let running = start(&folder, &query(Some(4_000)), &address, &more);
    wait_for_checkpoints(&folder, 3);
    kill(&agents[1], Signal::KILL);
    agents.push(agent(&folder, &address, "h4"));
    let finished = running.finish(PATIENCE).ok();
    assert!(
        finished.err.contains("was lost with its host h3"),
        "{}",
        finished.err
    );
    assert_eq!(output(&folder), expected());
    assert!(folder.json("report.json")["restarts"].as_u64().unwrap() > 0);
}

#[test]
fn a_query_goes_on_without_a_host_if_enough_are_left() {
    let (folder, address) = (folder(), address());
    let agents = ["h2", "h3"].map(|name| agent(&folder, &address, name));
    let more = ["--hosts", "1..2", "--parallelism", "2", "--state", "state"];
    let more = [&more[..], &["--set", "checkpoint_interval=50 ms"]].concat();
    let running = start(&folder, &query(Some(4_000)), &address, &more);
    wait_for_checkpoints(&folder, 3);
    kill(&agents[1], Signal::KILL);
    let finished = running.finish(PATIENCE).ok();
    assert!(
        !finished.err.contains("waiting for 2 hosts"),
        "{}",
        finished.err
    );
    assert_eq!(output(&folder), expected());
    let report = folder.json("report.json");
    let used = report["hosts"].as_array().unwrap().iter();
    let used = used.map(|host| host["name"].as_str().unwrap());
    assert_eq!(used.collect::<Vec<_>>(), ["h1", "h2"]);
}

#[test]
fn a_worker_process_that_is_killed_on_another_host_is_named_and_replaced() {
    let (folder, address) = (folder(), address());
    let agents = ["h2", "h3"].map(|name| agent(&folder, &address, name));
    let more = ["--hosts", "2", "--parallelism", "2", "--state", "state"];
    let more = [&more[..], &["--set", "checkpoint_interval=50 ms"]].concat();
    let running = start(&folder, &query(Some(4_000)), &address, &more);
    wait_for_checkpoints(&folder, 3);
    let workers = crate::processes::children(agents[1].id());
    kill_process(workers[0], Signal::KILL).unwrap();
    let finished = running.finish(PATIENCE).ok();
    let pid = workers[0].as_raw_nonzero();
    assert!(
        finished
            .err
            .contains(&format!("(pid {pid}) on h3: was killed")),
        "{}",
        finished.err
    );
    assert_eq!(output(&folder), expected());
}

#[test]
fn an_agent_that_is_told_to_stop_leaves_when_the_query_goes_on_elsewhere() {
    let (folder, address) = (folder(), address());
    let [h2, h3] = ["h2", "h3"].map(|name| agent(&folder, &address, name));
    let more = ["--hosts", "1..2", "--parallelism", "2", "--state", "state"];
    let more = [&more[..], &["--set", "checkpoint_interval=50 ms"]].concat();
    let running = start(&folder, &query(Some(4_000)), &address, &more);
    wait_for_checkpoints(&folder, 3);
    kill(&h3, Signal::TERM);
    h3.finish(PATIENCE).ok();
    let finished = running.finish(PATIENCE).ok();
    h2.finish(PATIENCE).ok();
    assert!(!finished.err.contains("resumes from"), "{}", finished.err);
    assert_eq!(output(&folder), expected());
    let report = folder.json("report.json");
    assert_eq!(
        (&report["rescales"], &report["restarts"]),
        (&1.into(), &0.into())
    );
    // Nothing was read twice.
    assert_eq!(report["rows_in"], ROWS * FILES);
}

#[test]
fn the_last_host_can_not_leave_without_harm() {
    let (folder, address) = (folder(), address());
    let agent = agent(&folder, &address, "h2");
    let more = [
        "--hosts",
        "1",
        "--state",
        "state",
        "--set",
        "checkpoint_interval=50 ms",
    ];
    let more = [&more[..], &["--set", "host_patience=1 s"]].concat();
    let running = start(&folder, &query(Some(2_000)), &address, &more);
    wait_for_checkpoints(&folder, 3);
    kill(&agent, Signal::TERM);
    let told = agent.finish(PATIENCE).ok();
    assert!(
        told.err.contains("the query needs --hosts 1"),
        "{}",
        told.err
    );
    running
        .finish(PATIENCE)
        .fails(1, &["--hosts 1: none has joined"]);
}

#[test]
fn without_state_a_lost_host_ends_the_query() {
    let (folder, address) = (folder(), address());
    let agents = ["h2", "h3"].map(|name| agent(&folder, &address, name));
    let running = start(
        &folder,
        &query(Some(1_000)),
        &address,
        &["--hosts", "2", "--parallelism", "2"],
    );
    wait_until("no worker process has been started", || {
        !crate::processes::children(agents[1].id()).is_empty()
    });
    // A moment for them to run.
    std::thread::sleep(Duration::from_millis(300));
    kill(&agents[1], Signal::KILL);
    running
        .finish(PATIENCE)
        .fails(1, &["was lost with its host h3"]);
}

#[test]
fn an_agent_that_is_stopped_ends_with_its_processes() {
    let (folder, address) = (folder(), address());
    let agent = agent(&folder, &address, "h2");
    let running = start(&folder, &query(Some(1_000)), &address, &["--hosts", "1"]);
    wait_until("no worker process has been started", || {
        !crate::processes::children(agent.id()).is_empty()
    });
    let workers = crate::processes::children(agent.id());
    kill(&agent, Signal::TERM);
    agent.finish(PATIENCE).ok();
    running.finish(PATIENCE).fails(1, &["h2"]);
    for worker in workers {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", worker.as_raw_nonzero()));
        assert!(stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z ")));
    }
}

/// Runs a query that can't start on hosts.
fn refused(folder: &Folder, text: &str, more: &[&str]) -> Finished {
    let address = address();
    let agent = agent(folder, &address, "h2");
    let more = [&["--hosts", "2", "--here"], more].concat();
    let finished = start(folder, text, &address, &more).finish(PATIENCE);
    // It ends with the query.
    agent.finish(PATIENCE).ok();
    finished
}

#[test]
fn a_host_that_is_not_there_is_named_with_those_that_are() {
    let text = query(None).replace("'path' = 'out'", "'path' = 'out', 'host' = 'h9'");
    let parts = [
        "table 'o', option 'host': there is no host 'h9'",
        "the hosts are: h1, h2",
    ];
    refused(&folder(), &text, &[]).fails(2, &parts);
}

#[test]
fn a_table_is_read_and_written_on_the_host_that_it_names() {
    let folder = folder();
    let text = query(None).replace("'path' = 'out'", "'path' = 'out', 'host' = 'h2'");
    refused(&folder, &text, &["--parallelism", "2"]).ok();
    assert_eq!(output(&folder), expected());
    let operators = folder.json("report.json")["hosts"].clone();
    assert_eq!(operators[1]["name"], "h2");
}

#[test]
fn too_few_hosts_are_an_error_that_names_those_that_came() {
    let (folder, address) = (folder(), address());
    let _agent = agent(&folder, &address, "h2");
    let more = ["--hosts", "4", "--here", "--set", "host_patience=500 ms"];
    let finished = start(&folder, &query(None), &address, &more).finish(PATIENCE);
    finished.fails(
        1,
        &[
            "--hosts 4: only h2 joined within 0.5 s",
            "slackwater worker --join",
        ],
    );
}

#[test]
fn nothing_listens_or_joins_beyond_loopback_without_a_secret() {
    let folder = folder();
    let text = query(None);
    let parts = [
        "anybody who reaches this address could run SQL",
        "slackwater key > cluster.key",
    ];
    let open = ["--listen", "0.0.0.0:7070", "--hosts", "2"];
    folder.run(&text, &open).fails(2, &parts);
    let join = folder.slackwater(&["worker", "--join", "10.99.0.1:7070"]);
    join.fails(
        2,
        &["--join 10.99.0.1:7070", "slackwater key > cluster.key"],
    );
}

#[test]
fn an_agent_with_another_secret_is_not_let_in() {
    let (folder, address) = (folder(), address());
    key(&folder, "other.key");
    let more = ["--hosts", "2", "--here", "--set", "host_patience=2 s"];
    let running = start(&folder, &query(None), &address, &more);
    wait_until("nobody listens", || {
        std::net::TcpStream::connect(&address).is_ok()
    });
    let join = ["worker", "--join", &address, "--secret", "other.key"];
    folder.slackwater(&join).fails(1, &["has another secret"]);
    running.finish(PATIENCE).fails(1, &["none has joined"]);
}

#[test]
fn a_secret_is_a_file_that_only_its_owner_can_read() {
    let folder = folder();
    let listen = ["--listen", "127.0.0.1:0", "--hosts", "2", "--secret"];
    let key = folder.read("cluster.key");
    folder.write("open.key", key.as_bytes());
    folder.write("short.key", b"1234\n");
    for (file, part) in [
        ("open.key", "chmod 600 open.key"),
        ("short.key", "others can read"),
        ("none.key", "slackwater key > cluster.key"),
        (key.trim(), "everybody can see"),
    ] {
        let run = folder.run(&query(None), &[&listen[..], &[file]].concat());
        let run = run.fails(2, &[part]);
        assert!(!run.err.contains(key.trim()), "{}", run.err);
    }
}

#[test]
fn a_name_is_taken_until_its_host_has_left() {
    let (folder, address) = (folder(), address());
    let more = ["--hosts", "3", "--here", "--set", "host_patience=3 s"];
    let running = start(&folder, &query(None), &address, &more);
    let first = agent(&folder, &address, "h2");
    let second = agent(&folder, &address, "h2");
    let finished = running.finish(PATIENCE).fails(1, &["only h2 joined"]);
    assert_eq!(
        finished.err.matches("has joined").count(),
        1,
        "{}",
        finished.err
    );
    let [first, second] = [first, second].map(|agent| {
        kill(&agent, Signal::TERM);
        agent.finish(PATIENCE).ok().err
    });
    let is_told = |err: &str| err.contains("has a host 'h2'");
    assert!(is_told(&first) != is_told(&second), "{first}{second}");
}
