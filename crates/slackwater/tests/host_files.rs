//! Files of several hosts: those that each has for itself, those that one has, and those that have grown on
//! one of them. A host here is a process with mounts of its own (`unshare`): where the kernel allows none,
//! these tests say so and end. `make test-hosts` has the same with networks of their own.

use std::process::Command;

use rustix::process::Signal;

use crate::hosts::{address, agent, key, kill, output, rows, start, sums, wait_for_checkpoints};
use crate::process::{Folder, PATIENCE, Running};

/// Rows of each host.
const ROWS: usize = 3_000;

/// The hosts, home first.
const HOSTS: [&str; 3] = ["h1", "h2", "h3"];

/// Whether processes can have mounts of their own; says it if not.
fn can_mount() -> bool {
    let tried = Command::new("unshare").args(["-Urm", "true"]).output();
    let can = tried.is_ok_and(|tried| tried.status.success());
    if !can {
        eprintln!("skipped: unshare -Urm is not allowed here, see make test-hosts");
    }
    can
}

const PER_HOST: &str = ", 'files' = 'per_host'";

/// A folder in which `own` is another folder on each host: `own` itself at home, `h2` and `h3` on these.
fn folder() -> Folder {
    let folder = Folder::new();
    for name in ["own", "h2", "h3"] {
        std::fs::create_dir(folder.path(name)).unwrap();
    }
    key(&folder, "cluster.key");
    folder
}

/// The same, with a file of the same name on each host, and a second one on the last.
fn folder_of_files() -> Folder {
    let folder = folder();
    for (host, name) in ["own", "h2", "h3"].into_iter().enumerate() {
        folder.write(&format!("{name}/a.csv"), rows(host, ROWS).as_bytes());
    }
    folder.write("h3/b.csv", rows(3, ROWS / 2).as_bytes());
    folder
}

/// All rows of [`folder_of_files`], computed by one host.
fn expected() -> Vec<String> {
    let folder = Folder::new();
    for (host, count) in [ROWS, ROWS, ROWS, ROWS / 2].into_iter().enumerate() {
        folder.write(&format!("{host}.csv"), rows(host, count).as_bytes());
    }
    folder.run(&sums("?.csv", ""), &[]).ok();
    output(&folder)
}

/// An agent that sees the folder `own_folder` as `own`.
fn agent_with(folder: &Folder, address: &str, name: &str, own_folder: &str) -> Running {
    let mount = format!("mount --bind {own_folder} own && exec \"$@\"");
    let program = env!("CARGO_BIN_EXE_slackwater");
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", &mount, "sh", program, "worker"]);
    command.args(["--join", address, "--secret", "cluster.key", "--name", name]);
    command
        .current_dir(folder.path(""))
        .env_remove("RUST_BACKTRACE");
    command.stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::piped());
    Running::start_unread(command)
}

fn agents(folder: &Folder, address: &str) -> Vec<Running> {
    let agents = HOSTS[1..].iter();
    let agents = agents.map(|name| agent_with(folder, address, name, name));
    agents.collect()
}

fn partitions(folder: &Folder) -> Vec<String> {
    let report = folder.json("report.json");
    let partitions = report["sources"][0]["partitions"]
        .as_array()
        .unwrap()
        .iter();
    let names = partitions.map(|partition| partition["name"].as_str().unwrap().to_string());
    names.collect()
}

const STATE: [&str; 4] = ["--state", "state", "--set", "checkpoint_interval=50 ms"];

#[test]
fn each_host_reads_its_own_files() {
    if !can_mount() {
        return;
    }
    let expected = expected();
    // As many instances as hosts, more than there are files, and fewer than hosts.
    for parallelism in ["3", "6", "1"] {
        let (folder, address) = (folder_of_files(), address());
        let agents = agents(&folder, &address);
        let more = ["--hosts", "3", "--here", "--parallelism", parallelism];
        let finished = start(&folder, &sums("own/*.csv", PER_HOST), &address, &more);
        finished.finish(PATIENCE).ok();
        for agent in agents {
            agent.finish(PATIENCE).ok();
        }
        assert_eq!(output(&folder), expected, "{parallelism}");
        let report = folder.json("report.json");
        assert_eq!(report["rows_in"], 3 * ROWS + ROWS / 2);
        let names = [
            "h1:own/a.csv",
            "h2:own/a.csv",
            "h3:own/a.csv",
            "h3:own/b.csv",
        ];
        assert_eq!(partitions(&folder), names);
    }
}

#[test]
fn files_per_host_on_one_host_are_like_others() {
    let folder = Folder::new();
    folder.write("a.csv", rows(0, 100).as_bytes());
    folder.run(&sums("a.csv", PER_HOST), &[]).ok();
    let per_host = output(&folder);
    std::fs::remove_dir_all(folder.path("out")).unwrap();
    folder.run(&sums("a.csv", ""), &[]).ok();
    assert_eq!(per_host, output(&folder));
}

#[test]
fn a_host_reads_on_where_it_was_when_it_has_joined_again() {
    if !can_mount() {
        return;
    }
    let (folder, address) = (folder_of_files(), address());
    let mut agents = agents(&folder, &address);
    let more = [
        &["--hosts", "2..3", "--here", "--parallelism", "3"],
        &STATE[..],
    ]
    .concat();
    let text = sums(
        "own/*.csv",
        &format!("{PER_HOST}, 'replay_rate' = '4000/s'"),
    );
    let running = start(&folder, &text, &address, &more);
    wait_for_checkpoints(&folder, 3);
    kill(&agents[1], Signal::KILL);
    // Two hosts would be enough, but not for the files of the third.
    agents.push(agent_with(&folder, &address, "h3", "h3"));
    let finished = running.finish(PATIENCE).ok();
    assert!(
        finished.err.contains("was lost with its host h3"),
        "{}",
        finished.err
    );
    assert_eq!(output(&folder), expected());
}

#[test]
fn a_host_that_does_not_come_back_with_its_files_is_named() {
    if !can_mount() {
        return;
    }
    let (folder, address) = (folder_of_files(), address());
    let agents = agents(&folder, &address);
    let more = ["--hosts", "2..3", "--here", "--set", "host_patience=2 s"];
    let more = [&more[..], &STATE].concat();
    let text = sums(
        "own/*.csv",
        &format!("{PER_HOST}, 'replay_rate' = '1000/s'"),
    );
    let running = start(&folder, &text, &address, &more);
    wait_for_checkpoints(&folder, 3);
    kill(&agents[1], Signal::KILL);
    running.finish(PATIENCE).fails(
        1,
        &[
            "waiting for h3",
            "table 't' can't do without host h3",
            "--name h3",
            "SET 'host_patience'",
        ],
    );
    drop(agents);
    // A later run doesn't go on with other hosts, either.
    let address = self::address();
    let _agents = ["h2", "h4"].map(|name| agent_with(&folder, &address, name, "h2"));
    let more = [&["--hosts", "3", "--here"], &STATE[..]].concat();
    start(&folder, &text, &address, &more)
        .finish(PATIENCE)
        .fails(
            2,
            &[
                "table 't', h3:own/",
                "was read on host h3, and the query has no files of it now",
                "slackwater worker --name h3",
            ],
        );
    // Nor on one host.
    folder.run(&text, &STATE).fails(1, &["was read on host h"]);
    // What of it would be kept can be asked without the hosts.
    let check = ["check", "query.sql", "--state", "state"];
    folder.slackwater(&check).ok();
}

#[test]
fn a_host_with_files_of_its_own_can_not_leave() {
    if !can_mount() {
        return;
    }
    let (folder, address) = (folder_of_files(), address());
    let agents = agents(&folder, &address);
    let more = [&["--hosts", "1..3", "--here"], &STATE[..]].concat();
    let text = sums(
        "own/*.csv",
        &format!("{PER_HOST}, 'replay_rate' = '2000/s'"),
    );
    let running = start(&folder, &text, &address, &more);
    wait_for_checkpoints(&folder, 3);
    kill(&agents[1], Signal::TERM);
    let mut agents = agents.into_iter();
    let (_h2, h3) = (agents.next(), agents.next().unwrap());
    let told = h3.finish(PATIENCE).ok();
    assert!(
        told.err.contains("only it can read or write table 't'"),
        "{}",
        told.err
    );
    drop(running);
}

#[test]
fn hosts_without_a_file_are_named() {
    if !can_mount() {
        return;
    }
    let (folder, address) = (folder_of_files(), address());
    std::fs::remove_file(folder.path("h2/a.csv")).unwrap();
    let _agents = agents(&folder, &address);
    let more = ["--hosts", "3", "--here"];
    // A file that is named has to be there.
    let run = start(&folder, &sums("own/a.csv", PER_HOST), &address, &more);
    run.finish(PATIENCE)
        .fails(2, &["table 't', on h2: can't find own/a.csv"]);
    // A pattern may match nothing somewhere.
    let address = self::address();
    let _agents = agents(&folder, &address);
    let run = start(&folder, &sums("own/*.csv", PER_HOST), &address, &more);
    let finished = run.finish(PATIENCE).ok();
    assert!(
        finished.err.contains("no file matches 'own/*.csv' on h2"),
        "{}",
        finished.err
    );
    // But not everywhere.
    let address = self::address();
    let _agents = agents(&folder, &address);
    let run = start(&folder, &sums("own/*.json", PER_HOST), &address, &more);
    run.finish(PATIENCE)
        .fails(2, &["option 'path': no host has such a file"]);
}

#[test]
fn a_table_on_another_host_needs_no_file_at_home() {
    if !can_mount() {
        return;
    }
    let (folder, address) = (folder(), address());
    folder.write("h2/a.csv", rows(0, ROWS).as_bytes());
    let agents = agents(&folder, &address);
    let text = sums("own/a.csv", ", 'host' = 'h2'");
    // Its rows are printed at home, and not where they are read.
    let text = format!("{text} SELECT k, n FROM t WHERE n < 5;");
    let more = ["--hosts", "3", "--here", "--parallelism", "1"];
    let finished = start(&folder, &text, &address, &more).finish(PATIENCE).ok();
    assert_eq!(finished.out.lines().count(), 6, "{}", finished.out);
    for agent in agents {
        assert_eq!(agent.finish(PATIENCE).ok().out, "");
    }
    let alone = Folder::with(&[("a.csv", &rows(0, ROWS))]);
    alone.run(&sums("a.csv", ""), &[]).ok();
    assert_eq!(output(&folder), output(&alone));
    // Elsewhere there is none.
    let address = self::address();
    let _agents = self::agents(&folder, &address);
    let text = text.replace("'host' = 'h2'", "'host' = 'h3'");
    start(&folder, &text, &address, &more)
        .finish(PATIENCE)
        .fails(2, &["table 't', on h3: can't find own/a.csv"]);
}

#[test]
fn a_file_that_has_grown_on_one_host_is_read_as_it_was_at_home() {
    if !can_mount() {
        return;
    }
    let whole = rows(0, ROWS);
    // At home its last line is still being written.
    let at_home = &whole[..whole.len() / 2 + 7];
    let last = whole[at_home.len()..].find('\n').unwrap();
    let alone = Folder::with(&[("a.csv", &whole[..at_home.len() + last + 1])]);
    alone.run(&sums("a.csv", ""), &[]).ok();
    for parsers in ["1", "3"] {
        let (folder, address) = (folder(), address());
        folder.write("own/a.csv", at_home.as_bytes());
        folder.write("h2/a.csv", whole.as_bytes());
        let _agent = agent_with(&folder, &address, "h2", "h2");
        let more = ["--hosts", "1", "--set"];
        let parsers = format!("parsers={parsers}");
        let more = [&more[..], &[&parsers]].concat();
        let text = sums("own/a.csv", "");
        start(&folder, &text, &address, &more).finish(PATIENCE).ok();
        assert_eq!(output(&folder), output(&alone), "{parsers}");
    }
    // Shorter than at home: some rows are missing.
    let (folder, address) = (folder(), address());
    folder.write("own/a.csv", whole.as_bytes());
    folder.write("h2/a.csv", at_home.as_bytes());
    let _agent = agent_with(&folder, &address, "h2", "h2");
    start(&folder, &sums("own/a.csv", ""), &address, &["--hosts", "1"])
        .finish(PATIENCE)
        .fails(2, &["own/a.csv has", "on h2", "'files' = 'per_host'"]);
}

#[test]
fn a_replay_rate_is_that_of_all_hosts_together() {
    let (folder, address) = (Folder::new(), address());
    key(&folder, "cluster.key");
    for file in 0..3 {
        folder.write(&format!("{file}.csv"), rows(file, 1_000).as_bytes());
    }
    let _agents = ["h2", "h3"].map(|name| agent(&folder, &address, name));
    let more = ["--hosts", "3", "--here", "--parallelism", "3"];
    let text = sums("?.csv", ", 'replay_rate' = '1500/s'");
    start(&folder, &text, &address, &more).finish(PATIENCE).ok();
    let report = folder.json("report.json");
    let hosts = report["hosts"].as_array().unwrap().iter();
    let used = hosts.map(|host| host["processes"].as_array().unwrap().len());
    assert_eq!(used.collect::<Vec<_>>(), [1, 1, 1]);
    // A row is never early: 3,000 rows at 1,500 a second, and not at 1,500 for each host.
    let wall_s = report["wall_s"].as_f64().unwrap();
    assert!(wall_s > 1.9, "{wall_s} s for rows of 2 s");
}

#[test]
fn what_hosts_have_for_themselves_is_for_files_alone() {
    let folder = Folder::new();
    let text = sums("a.csv", PER_HOST);
    for (find, replace, part) in [
        ("'connector' = 'file'", "'connector' = 'tcp'", "'files'"),
        (
            "'per_host'",
            "'everywhere'",
            "'everywhere' is not a valid value",
        ),
        (
            "'per_host'",
            "'per_host', 'unit_of_work' = 'file'",
            "option 'files': hosts read their files at the same time",
        ),
        (
            "'per_host'",
            "'per_host', 'host' = 'h2'",
            "option 'files': each host would read its own files, and 'host' names one",
        ),
    ] {
        let text = text.replacen(find, replace, 1);
        folder.run(&text, &[]).fails(2, &[part]);
    }
    let sink = text.replace("'path' = 'out'", "'path' = 'out', 'files' = 'per_host'");
    folder.run(&sink, &[]).fails(2, &["'files'"]);
}

/// What a report counts in the end.
fn counted(folder: &Folder) -> Vec<serde_json::Value> {
    let report = folder.json("report.json");
    let totals = ["rows_in", "rows_out", "rows_late", "rows_bad"].map(|name| report[name].clone());
    let source = ["rows_in", "rows_late", "rows_bad"];
    let source = source.map(|name| report["sources"][0][name].clone());
    let sink = report["sinks"][0]["rows_out"].clone();
    totals.into_iter().chain(source).chain([sink]).collect()
}

#[test]
fn each_row_of_the_answer_is_counted_once_whatever_was_killed() {
    let files = |folder: &Folder| {
        for file in 0..3 {
            let mut text = rows(file, ROWS);
            // A bad row, and a late one.
            let middle = text[..text.len() / 2].rfind('\n').unwrap() + 1;
            text.insert_str(
                middle,
                "1,not a number,2026-01-01 00:30:00\n3,3,2026-01-01 00:00:01\n",
            );
            folder.write(&format!("{file}.csv"), text.as_bytes());
        }
    };
    let alone = Folder::new();
    files(&alone);
    alone.run(&sums("?.csv", ""), &["--parallelism", "3"]).ok();
    let expected = counted(&alone);
    let rows_in = 3 * (ROWS + 2);
    assert_eq!(expected[0], rows_in);
    assert_eq!(
        (&expected[2], &expected[3]),
        (&3.into(), &3.into()),
        "late and bad"
    );

    // A worker process is killed on another host, and one of several at home.
    let text = sums("?.csv", ", 'replay_rate' = '4000/s'");
    let (folder, address) = (Folder::new(), address());
    key(&folder, "cluster.key");
    files(&folder);
    let agents = ["h2", "h3"].map(|name| agent(&folder, &address, name));
    let more = [
        &["--hosts", "3", "--here", "--parallelism", "3"],
        &STATE[..],
    ]
    .concat();
    let running = start(&folder, &text, &address, &more);
    for checkpoints in [3, 6] {
        wait_for_checkpoints(&folder, checkpoints.min(3));
        std::thread::sleep(std::time::Duration::from_millis(checkpoints as u64 * 50));
        let workers = crate::processes::children(agents[1].id());
        if let Some(worker) = workers.first() {
            rustix::process::kill_process(*worker, Signal::KILL).unwrap();
        }
    }
    running.finish(PATIENCE).ok();
    assert!(folder.json("report.json")["restarts"].as_u64().unwrap() > 0);
    assert_eq!(counted(&folder), expected);
    assert_eq!(output(&folder), output(&alone));

    let folder = Folder::new();
    files(&folder);
    let more = [&["--processes", "3", "--parallelism", "3"], &STATE[..]].concat();
    let running = folder.start(&text, &more);
    wait_for_checkpoints(&folder, 3);
    let workers = crate::processes::children(running.id());
    rustix::process::kill_process(workers[1], Signal::KILL).unwrap();
    running.finish(PATIENCE).ok();
    assert!(folder.json("report.json")["restarts"].as_u64().unwrap() > 0);
    assert_eq!(counted(&folder), expected);
}
