//! Standbys (`run --standby`, `promote`): they hold the state, go on when the active is gone, and store its
//! checkpoints.

pub(crate) mod crash;
mod reads;

use std::path::Path;
use std::time::{Duration, Instant};

use crate::process::{Finished, Folder, PATIENCE, Running, eventually, free_address};
use crate::redis::Redis;

/// Rows, keys, and rows per second.
const ROWS: u64 = 60_000;
const KEYS: u64 = 9_973;
const RATE: u64 = 20_000;

fn input() -> String {
    let row = |row: u64| format!("{},{},{}\n", row * 10, row * row % KEYS, row % 89);
    (0..ROWS).map(row).collect()
}

/// Counts of ten seconds, and of all; both are written exactly once.
fn query(options: &str) -> String {
    format!(
        "CREATE TABLE src (ms BIGINT, k BIGINT, v BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), \
         WATERMARK FOR ts AS ts) WITH ('connector' = 'file', 'path' = 'in.csv'{options});
         CREATE TABLE windows (k BIGINT, ms BIGINT, n BIGINT, s BIGINT) WITH ('connector' = 'file', \
         'path' = 'windows');
         CREATE TABLE totals (k BIGINT, n BIGINT, s BIGINT) WITH ('connector' = 'file', 'path' = 'totals');
         SET 'emit' = 'final';
         INSERT INTO windows SELECT k, CAST(window_start AS BIGINT), COUNT(*), SUM(v)
         FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end, k;
         INSERT INTO totals SELECT k, COUNT(*), SUM(v) FROM src GROUP BY k;"
    )
}

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("in.csv", input().as_bytes());
    folder.write(
        "query.sql",
        query(&format!(", 'replay_rate' = '{RATE}'")).as_bytes(),
    );
    folder.write("whole.sql", query("").as_bytes());
    folder
}

fn start(folder: &Folder, arguments: &[&str]) -> Running {
    let run = [
        "run",
        "query.sql",
        "--state",
        "state",
        "--set=standby_lag=100 ms",
    ];
    Running::start(folder.command(&[&run, arguments].concat()))
}

/// Waits until something has happened.
#[track_caller]
fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_there() {
        assert!(Instant::now() < until, "{what} never came");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// How many bases a standby has made: their parts have larger numbers than those of an active.
fn bases_of_standbys(folder: &Folder) -> usize {
    let parts = names(&folder.path("state/parts"));
    parts
        .iter()
        .filter(|name| name.ends_with("-1000.arrow"))
        .count()
}

fn rows(folder: &Folder, table: &str) -> Vec<String> {
    let mut rows = Vec::new();
    for name in names(&folder.path(table)) {
        if name.starts_with("part-") {
            let text = folder.read(&format!("{table}/{name}"));
            rows.extend(text.lines().map(str::to_string));
        }
    }
    rows.sort();
    rows
}

/// Fails unless the rows are those of a run that nobody disturbed.
#[track_caller]
fn is_whole(folder: &Folder) {
    let found = ["windows", "totals"].map(|table| rows(folder, table));
    let whole = Folder::new();
    whole.write("in.csv", input().as_bytes());
    whole.run(&query(""), &[]).ok();
    for (table, found) in ["windows", "totals"].into_iter().zip(found) {
        let expected = rows(&whole, table);
        assert!(expected.len() > 1000, "{table}: {}", expected.len());
        let differs = found
            .iter()
            .zip(&expected)
            .find(|(one, other)| one != other);
        assert!(
            found == expected,
            "{table}: {} rows, {differs:?}",
            found.len()
        );
    }
}

fn has_said(running: &Running, text: &str) -> bool {
    running.said().contains(text)
}

#[test]
fn a_standby_goes_on_with_the_state_that_it_holds() {
    let folder = folder();
    let active = start(&folder, &[]);
    wait_for("the first checkpoint", || {
        folder.path("state/active.sock").exists()
    });
    let standby = start(&folder, &["--standby", "--report", "report.json"]);
    wait_for("a base of the standby", || bases_of_standbys(&folder) > 0);
    active.kill();
    let finished = standby.finish(PATIENCE).ok();
    assert!(finished.err.contains("which it holds"), "{}", finished.err);
    let report = folder.json("report.json");
    let read = report["rows_in"].as_u64().unwrap();
    assert!(read < ROWS, "some were read before: {read}");
    is_whole(&folder);
    assert_eq!(names(&folder.path("state")).len(), 3, "no sockets are left");
}

#[test]
fn a_switch_reads_nothing_twice() {
    let folder = folder();
    let active = start(&folder, &["--report", "first.json"]);
    wait_for("the door", || folder.path("state/active.sock").exists());
    let standby = start(&folder, &["--standby", "--report", "second.json"]);
    wait_for("the standby", || has_said(&standby, "follows process"));
    std::thread::sleep(Duration::from_millis(500));
    let promoted = folder.slackwater(&["promote", "state"]).ok();
    assert!(
        promoted.out.contains("has taken over from process"),
        "{}",
        promoted.out
    );
    active.finish(PATIENCE).ok();
    let finished = standby.finish(PATIENCE).ok();
    assert!(finished.err.contains("which it holds"), "{}", finished.err);
    let read = ["first.json", "second.json"].map(|name| folder.json(name)["rows_in"].as_u64());
    assert_eq!(read.into_iter().flatten().sum::<u64>(), ROWS);
    is_whole(&folder);
}

#[test]
fn a_query_goes_on_without_its_standby_and_with_the_next_one() {
    let folder = folder();
    let active = start(&folder, &[]);
    wait_for("the door", || folder.path("state/active.sock").exists());
    let first = start(&folder, &["--standby"]);
    wait_for("the first standby", || has_said(&first, "follows process"));
    std::thread::sleep(Duration::from_millis(300));
    first.kill();
    wait_for("its end", || has_said(&active, "the standby has gone"));
    let second = start(&folder, &["--standby"]);
    wait_for("the second standby", || {
        has_said(&second, "follows process")
    });
    let third = start(&folder, &["--standby"]).finish(PATIENCE);
    third.fails(2, &["--standby", "another standby is there already"]);
    let finished = active.finish(PATIENCE).ok();
    assert!(!finished.err.contains("warning"), "{}", finished.err);
    // It learns from the last checkpoint that there is nothing left to do.
    let finished: Finished = second.finish(PATIENCE).ok();
    assert!(
        finished.err.contains("nothing left to do"),
        "{}",
        finished.err
    );
    is_whole(&folder);
}

#[test]
fn a_standby_that_is_stopped_delays_nothing_for_ever() {
    let folder = folder();
    let active = start(&folder, &[]);
    wait_for("the door", || folder.path("state/active.sock").exists());
    let standby = start(&folder, &["--standby"]);
    wait_for("a base of the standby", || bases_of_standbys(&folder) > 0);
    standby.signal(rustix::process::Signal::STOP);
    active.finish(PATIENCE).ok();
    standby.signal(rustix::process::Signal::CONT);
    standby.finish(PATIENCE).ok();
    is_whole(&folder);
}

#[test]
fn a_standby_waits_for_an_active_or_for_its_promotion() {
    let folder = folder();
    let nobody = folder.slackwater(&["promote", "state"]);
    nobody.fails(2, &["promote state", "there is no such directory"]);
    let standby = start(&folder, &["--standby"]);
    wait_for("its message", || has_said(&standby, "waiting for one"));
    assert_eq!(
        names(&folder.path("state")),
        ["standby.sock"],
        "it has claimed nothing"
    );
    folder.slackwater(&["promote", "state"]).ok();
    standby.finish(PATIENCE).ok();
    is_whole(&folder);
    let nobody = folder.slackwater(&["promote", "state"]);
    nobody.fails(1, &["nobody runs a query there", "slackwater run"]);
    let late = start(&folder, &["--standby"]).finish(PATIENCE).ok();
    assert!(late.err.contains("nothing left to do"), "{}", late.err);
}

#[test]
fn a_standby_that_is_ended_leaves_the_query_alone() {
    let folder = folder();
    let active = start(&folder, &[]);
    wait_for("the door", || folder.path("state/active.sock").exists());
    let alone = folder.slackwater(&["promote", "state"]);
    alone.fails(1, &["no standby follows", "--standby"]);
    let standby = start(&folder, &["--standby"]);
    wait_for("the standby", || has_said(&standby, "follows process"));
    standby.signal(rustix::process::Signal::INT);
    standby.finish(PATIENCE).ok();
    active.finish(PATIENCE).ok();
    is_whole(&folder);
}

#[test]
fn a_standby_of_another_query_is_refused() {
    let folder = folder();
    let active = start(&folder, &["--set=checkpoint_interval=20 ms"]);
    wait_for("a checkpoint", || {
        names(&folder.path("state/checkpoints")).len() > 1
    });
    let other = query("").replace("SUM(v)", "MIN(v)");
    folder.write("other.sql", other.as_bytes());
    let standby = folder.slackwater(&["run", "other.sql", "--state", "state", "--standby"]);
    standby.fails(2, &["other.sql", "windows"]);
    active.kill();
}

#[test]
fn impossible_standbys_are_refused_at_once() {
    let folder = folder();
    let run = |arguments: &[&str]| folder.slackwater(&[&["run", "query.sql"], arguments].concat());
    run(&["--standby"]).fails(2, &["--state"]);
    run(&["--standby", "--state", "s3://bucket/folder"])
        .fails(2, &["--standby", "not a folder", "--standby-at"]);
    run(&[
        "--standby",
        "--state",
        "state",
        "--parallelism",
        "2",
        "--processes",
        "2",
    ])
    .fails(2, &["--standby", "--processes 1"]);
    run(&["--standby", "--state", "state", "--set=standby_lag=1 ms"])
        .fails(2, &["standby_lag", "20 ms"]);
}

fn new_key(folder: &Folder, name: &str) {
    let key = folder.slackwater(&["key"]).ok().out;
    folder.write(name, key.as_bytes());
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(folder.path(name), mode).unwrap();
}

/// As on two hosts that share the folder.
fn remote_pair(folder: &Folder) -> (Running, Running, String) {
    new_key(folder, "cluster.key");
    let address = free_address();
    let at = [
        "--standby-at",
        &address,
        "--secret",
        "cluster.key",
        "--report",
        "first.json",
    ];
    let active = start(folder, &at);
    wait_for("the door", || folder.path("state/active.sock").exists());
    let join = [
        "--standby",
        "--join",
        &address,
        "--secret",
        "cluster.key",
        "--report",
        "second.json",
    ];
    let standby = start(folder, &join);
    wait_for("the standby", || has_said(&standby, "follows process"));
    (active, standby, address)
}

#[test]
fn a_standby_on_another_host_goes_on_when_the_active_is_killed() {
    let folder = folder();
    let (active, standby, _) = remote_pair(&folder);
    std::thread::sleep(Duration::from_millis(600));
    assert!(
        !folder.path("state/standby.sock").exists(),
        "it stores nothing"
    );
    active.kill();
    let finished = standby.finish(PATIENCE).ok();
    assert!(finished.err.contains("is gone"), "{}", finished.err);
    assert!(finished.err.contains("which it holds"), "{}", finished.err);
    is_whole(&folder);
}

#[test]
fn a_switch_to_another_host_reads_nothing_twice_and_strangers_can_not_order_it() {
    let folder = folder();
    let (active, standby, address) = remote_pair(&folder);
    std::thread::sleep(Duration::from_millis(600));
    new_key(&folder, "other.key");
    let stranger = folder.slackwater(&["promote", &address, "--secret", "other.key"]);
    assert_eq!(stranger.code, Some(1), "{}", stranger.err);
    let stranger = folder.slackwater(&["promote", &address]);
    assert_eq!(stranger.code, Some(1), "{}", stranger.err);
    let join = ["--standby", "--join", &address, "--secret", "other.key"];
    start(&folder, &join)
        .finish(PATIENCE)
        .fails(2, &["--standby", &address]);
    assert!(has_said(&active, "was turned away"), "{}", active.said());
    let promoted = folder
        .slackwater(&["promote", &address, "--secret", "cluster.key"])
        .ok();
    assert!(promoted.out.contains("continues"), "{}", promoted.out);
    active.finish(PATIENCE).ok();
    standby.finish(PATIENCE).ok();
    let read = ["first.json", "second.json"].map(|name| folder.json(name)["rows_in"].as_u64());
    assert_eq!(read.into_iter().flatten().sum::<u64>(), ROWS);
    is_whole(&folder);
}

#[test]
fn addresses_beyond_this_host_need_a_secret() {
    let folder = folder();
    let run = |arguments: &[&str]| folder.slackwater(&[&["run", "query.sql"], arguments].concat());
    run(&["--state", "state", "--standby-at", "0.0.0.0:7071"]).fails(
        2,
        &[
            "--standby-at 0.0.0.0:7071",
            "without a secret",
            "slackwater key",
        ],
    );
    run(&["--state", "state", "--standby", "--join", "192.0.2.1:7071"])
        .fails(2, &["--join 192.0.2.1:7071", "without a secret"]);
    run(&["--state", "state", "--secret", "cluster.key"]).fails(2, &["--secret", "--standby-at"]);
    run(&["--state", "state", "--standby-at", "nowhere"]).fails(2, &["--standby-at", "host:port"]);
    run(&["--state", "state", "--set=standby_timeout=1 s"]).fails(2, &["standby_timeout", "3 s"]);
    folder
        .slackwater(&["promote", "192.0.2.1:7071"])
        .fails(2, &["promote", "without a secret"]);
}

#[test]
fn a_view_is_read_at_the_same_address_after_the_active_is_killed() {
    let folder = folder();
    let address = free_address();
    let text = format!(
        "SET 'serve' = 'redis://{address}';
         CREATE TABLE src (ms BIGINT, k BIGINT, v BIGINT) WITH ('connector' = 'file', 'path' = 'in.csv', \
         'replay_rate' = '{RATE}');
         CREATE MATERIALIZED VIEW totals AS SELECT k, COUNT(*) AS n FROM src GROUP BY k;"
    );
    folder.write("query.sql", text.as_bytes());
    let active = start(&folder, &[]);
    wait_for("the door", || folder.path("state/active.sock").exists());
    let standby = start(&folder, &["--standby"]);
    let mut client = Redis::connect(&address);
    wait_for("some rows", || client.ask("GET totals:0") == "3");
    // More than the lag that is allowed.
    std::thread::sleep(Duration::from_millis(400));
    active.kill();
    wait_for("the view", || has_said(&standby, "resumes from"));
    let count = eventually("the rows", || {
        let answer = Redis::connect(&address).ask("GET totals:0");
        answer.parse::<u64>().ok()
    });
    assert!(count >= 3, "{count}");
    standby.finish(PATIENCE).ok();
}

#[test]
fn regression_a_standby_with_another_state_is_refused() {
    let folder = folder();
    let address = free_address();
    let active = start(&folder, &["--standby-at", &address]);
    wait_for("the door", || folder.path("state/active.sock").exists());
    let other = [
        "run",
        "query.sql",
        "--state",
        "elsewhere",
        "--standby",
        "--join",
        &address,
    ];
    let refused = folder.slackwater(&other);
    refused.fails(
        2,
        &["elsewhere is not the state of the run", "is not there"],
    );
    active.kill();
}

#[test]
fn regression_another_query_is_refused_at_the_first_checkpoint() {
    let folder = folder();
    let active = start(
        &folder,
        &["--set=checkpoint_interval=800 ms", "--set=standby_lag=2 s"],
    );
    wait_for("the door", || folder.path("state/active.sock").exists());
    folder.write(
        "other.sql",
        query("").replace("SUM(v)", "MIN(v)").as_bytes(),
    );
    let standby = folder.slackwater(&["run", "other.sql", "--state", "state", "--standby"]);
    standby.fails(2, &["other.sql"]);
    active.finish(PATIENCE).ok();
    is_whole(&folder);
}

#[test]
fn regression_a_stopped_standby_is_not_promoted() {
    let folder = folder();
    let active = start(&folder, &[]);
    wait_for("the door", || folder.path("state/active.sock").exists());
    let standby = start(&folder, &["--standby"]);
    wait_for("a base of the standby", || bases_of_standbys(&folder) > 0);
    standby.signal(rustix::process::Signal::STOP);
    let promoted = folder.slackwater(&["promote", "state"]);
    promoted.fails(1, &["does not answer", "the query goes on"]);
    standby.signal(rustix::process::Signal::CONT);
    active.finish(PATIENCE).ok();
    standby.finish(PATIENCE).ok();
    is_whole(&folder);
}

#[test]
fn regression_a_listener_that_can_not_be_opened_does_not_end_a_take_over() {
    let folder = folder();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let active = start(&folder, &[]);
    wait_for("the door", || folder.path("state/active.sock").exists());
    let standby = start(&folder, &["--standby", "--metrics", &address]);
    wait_for("a base of the standby", || bases_of_standbys(&folder) > 0);
    active.kill();
    let finished = standby.finish(PATIENCE).ok();
    assert!(finished.err.contains("runs without it"), "{}", finished.err);
    is_whole(&folder);
    let busy = folder.slackwater(&[
        "run",
        "query.sql",
        "--state",
        "new",
        "--standby-at",
        &address,
    ]);
    busy.fails(2, &["--standby-at", "in use"]);
}

#[test]
fn units_that_are_started_alike_run_the_query_once() {
    let folder = folder();
    let arguments = ["--standby", "--or-run"];
    let one = start(&folder, &arguments);
    wait_for("the first", || folder.path("state/standby.sock").exists());
    wait_for("a run", || folder.path("state/active.sock").exists());
    let other = start(&folder, &arguments);
    wait_for("the other one", || has_said(&other, "follows process"));
    one.kill();
    other.finish(PATIENCE).ok();
    is_whole(&folder);
}
