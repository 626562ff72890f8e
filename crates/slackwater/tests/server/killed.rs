//! Servers and jobs that are killed, and folders that can't be used.

use std::time::Duration;

use super::{Server, table, write_input};

/// The processes of the jobs.
fn processes(server: &Server) -> Vec<i32> {
    let jobs = server.rows("SHOW JOBS");
    let numbers = jobs
        .iter()
        .filter_map(|row| row.split('|').nth(3)?.parse().ok());
    numbers.collect()
}

fn kill(process: i32) {
    let pid = rustix::process::Pid::from_raw(process).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

fn ids(path: &std::path::Path) -> Vec<u64> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut ids = text
        .lines()
        .map(|line| line.parse().unwrap())
        .collect::<Vec<u64>>();
    ids.sort_unstable();
    ids
}

#[test]
fn a_server_resumes_its_jobs() {
    let folder = tempfile::tempdir().unwrap();
    write_input(folder.path(), 4_000);
    let mut server = Server::start(folder.path());
    server.run(&[
        "SET 'checkpoint_interval' = '50 ms'",
        &table(folder.path(), "2000/s"),
    ]);
    let mut client = server.client();
    for statement in [
        "SET 'checkpoint_interval' = '50 ms'",
        "CREATE SINK one AS SELECT id FROM numbers WITH ('connector' = 'file', 'path' = 'one.csv')",
        "CREATE SINK two AS SELECT id FROM numbers WHERE k = 3
         WITH ('connector' = 'file', 'path' = 'two.csv')",
    ] {
        client.batch_execute(statement).unwrap();
    }
    drop(client);
    for round in 0..6 {
        std::thread::sleep(Duration::from_millis(200));
        match round % 3 {
            0 => {
                assert_eq!(server.stop(), Some(0));
                server = Server::start(folder.path());
            }
            1 => {
                server.kill();
                server = Server::start(folder.path());
            }
            _ => processes(&server).into_iter().for_each(kill),
        }
    }
    server.wait_for("SHOW SINKS", &["one|file|finished", "two|file|finished"]);
    assert!(ids(&folder.path().join("one.csv")).into_iter().eq(0..4_000));
    let third = (0..4_000).filter(|id| id % 7 == 3);
    assert!(ids(&folder.path().join("two.csv")).into_iter().eq(third));
    // A finished job is not run again.
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(folder.path());
    let jobs = server.rows("SHOW JOBS");
    assert_eq!(
        jobs,
        [
            "one|sink|finished|NULL|0|NULL|'checkpoint_interval' = '50 ms'|state/2",
            "two|sink|finished|NULL|0|NULL|'checkpoint_interval' = '50 ms'|state/3"
        ]
    );
}

#[test]
fn a_job_that_fails_again_and_again_does_not_harm_the_others() {
    let folder = tempfile::tempdir().unwrap();
    write_input(folder.path(), 3_000);
    let server = Server::start(folder.path());
    server.run(&[
        &table(folder.path(), "2000/s"),
        "CREATE SINK good AS SELECT id FROM numbers WITH ('connector' = 'file', 'path' = 'good.csv')",
        "CREATE SINK bad AS SELECT id FROM numbers WITH ('connector' = 'file', 'path' = 'bad.csv')",
    ]);
    let of_bad = || {
        let jobs = server.rows("SHOW JOBS");
        let bad = jobs
            .iter()
            .find(|row| row.starts_with("bad|"))
            .unwrap()
            .clone();
        bad.split('|').nth(3).unwrap().parse::<i32>().ok()
    };
    for _ in 0..5 {
        server.wait_for_log("job=bad");
        if let Some(process) = of_bad() {
            kill(process);
        }
    }
    server.wait_for("SHOW SINKS", &["bad|file|finished", "good|file|finished"]);
    assert!(
        ids(&folder.path().join("good.csv"))
            .into_iter()
            .eq(0..3_000)
    );
    assert!(ids(&folder.path().join("bad.csv")).into_iter().eq(0..3_000));
}

#[test]
fn a_folder_that_can_not_be_used_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let _server = Server::start(folder.path());
    let log = Server::try_start(folder.path(), &[])
        .err()
        .expect("two servers of a folder");
    assert!(log.contains("another server uses it"), "{log}");
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("data"), "a file").unwrap();
    let log = Server::try_start(other.path(), &[])
        .err()
        .expect("a file is no folder");
    assert!(log.contains("can't be made"), "{log}");
    let log = Server::try_start(folder.path(), &["--passwords", "none.txt"])
        .err()
        .unwrap();
    assert!(log.contains("none.txt"), "{log}");
}

/// The queries of five jobs. Each value of `id` and of `k` is fixed, so every way to run gives the same rows.
const JOBS: [(&str, &str); 5] = [
    ("all_rows", "SELECT id, k, v FROM numbers"),
    ("some_rows", "SELECT id, v * 2 AS twice FROM numbers WHERE k < 3"),
    (
        "windows",
        "SELECT window_start, k, COUNT(*) AS n, SUM(v) AS total
         FROM TUMBLE(TABLE numbers, DESCRIPTOR(ts), INTERVAL '1' SECOND)
         GROUP BY window_start, window_end, k",
    ),
    (
        "pairs",
        "SELECT a.id, b.id AS other FROM numbers a JOIN numbers b ON a.id = b.id + 7
         AND b.ts BETWEEN a.ts - INTERVAL '1' SECOND AND a.ts",
    ),
    (
        "largest",
        "SELECT window_start, id, v FROM (
           SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY v DESC, id) AS place
           FROM TUMBLE(TABLE numbers, DESCRIPTOR(ts), INTERVAL '1' SECOND)) WHERE place <= 3",
    ),
];

const RATE: u64 = 2_000;

fn timed_table(folder: &std::path::Path, replay: &str) -> String {
    format!(
        "CREATE TABLE numbers (id BIGINT, k BIGINT, v BIGINT, ts AS TO_TIMESTAMP_LTZ(id, 3),
           WATERMARK FOR ts AS ts) WITH ('connector' = 'file', 'path' = '{}'{replay})",
        folder.join("in.csv").display()
    )
}

/// Kills servers and jobs at random times until all jobs have finished, and compares what they wrote with
/// runs that nothing disturbs.
fn kill_at_random(rounds: u64, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    // As long as the rounds take, and the pauses between two processes of a job.
    let rows = RATE * (rounds + 2);
    write_input(folder.path(), rows);
    let mut random = crate::support::Seeded(seed);
    let mut server = Server::start(folder.path());
    let mut client = server.client();
    let table = timed_table(folder.path(), &format!(", 'replay_rate' = '{RATE}/s'"));
    for statement in [&table, "SET 'checkpoint_interval' = '100 ms'"] {
        client.batch_execute(statement).unwrap();
    }
    for (name, query) in JOBS {
        let statement = format!(
            "CREATE SINK {name} AS {query} WITH ('connector' = 'file', 'path' = '{name}.csv')"
        );
        client.batch_execute(&statement).unwrap();
    }
    drop(client);
    for _ in 0..rounds {
        std::thread::sleep(Duration::from_millis(100 + random.below(700)));
        match random.below(3) {
            0 => {
                let processes = processes(&server);
                let victim = random.below(processes.len().max(1) as u64) as usize;
                processes.get(victim).copied().into_iter().for_each(kill);
            }
            _ => {
                server.kill();
                server = Server::start(folder.path());
            }
        }
    }
    let finished = JOBS.map(|(name, _)| format!("{name}|file|finished"));
    let mut finished = finished.iter().map(String::as_str).collect::<Vec<&str>>();
    finished.sort_unstable();
    server.wait_for("SHOW SINKS", &finished);
    for (name, query) in JOBS {
        let undisturbed = folder.path().join(format!("{name}_undisturbed.csv"));
        let text = format!(
            "{};\nCREATE TABLE o WITH ('connector' = 'file', 'path' = '{}') AS {query};",
            timed_table(folder.path(), ""),
            undisturbed.display()
        );
        crate::support::run_text(&text, &[]).unwrap();
        let sorted = |path: &std::path::Path| {
            let text = std::fs::read_to_string(path).unwrap();
            let mut lines = text.lines().map(str::to_string).collect::<Vec<String>>();
            lines.sort();
            lines
        };
        let expected = sorted(&undisturbed);
        let written = sorted(&folder.path().join(format!("{name}.csv")));
        assert!(!expected.is_empty());
        assert!(
            written == expected,
            "seed {seed}: {name} has {} rows instead of {}",
            written.len(),
            expected.len()
        );
    }
}

#[test]
fn killed_servers_lose_and_double_no_row() {
    kill_at_random(4, 7);
}

#[test]
#[ignore = "takes a minute: make test-crash"]
fn killed_servers_lose_and_double_no_row_in_many_rounds() {
    kill_at_random(50, 1);
}
