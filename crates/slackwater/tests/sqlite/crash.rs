//! Exactly once into tables of a database, whatever moment the query is killed at (I6).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::queries::{Database, table};
use crate::support::Seeded;

/// Rows of the input, and how long an undisturbed run takes.
const ROWS: usize = 6_000;
const RUN_S: f64 = 1.2;

const ROUNDS: u64 = 6;

/// Nothing takes longer, restarts included.
const PATIENCE: Duration = Duration::from_secs(90);

pub fn no_row_is_lost_or_doubled(database: &dyn Database) {
    let folder = database.folder().to_path_buf();
    let lines = (0..ROWS).map(|n| format!("{n},key {}\n", n * 31 % 97));
    fs::write(folder.join("numbers.csv"), lines.collect::<String>()).unwrap();
    let mut kills = 0;
    for seed in 0..ROUNDS {
        kills += round(database, &folder, seed);
    }
    assert!(kills > 0, "nothing was ever killed");
    println!("killed {kills} times");
}

/// How often the query was killed.
fn round(database: &dyn Database, folder: &Path, seed: u64) -> u64 {
    let mut seeded = Seeded(seed * 7919 + 1);
    database.run(
        "DROP TABLE IF EXISTS plain; CREATE TABLE plain (n BIGINT, key TEXT);
         DROP TABLE IF EXISTS totals; CREATE TABLE totals (key TEXT PRIMARY KEY, count BIGINT, sum BIGINT)",
    );
    let path = folder.join("numbers.csv");
    let rate = (ROWS as f64 / RUN_S) as u64;
    let text = format!(
        "CREATE TABLE numbers (n BIGINT, key STRING) WITH ('connector' = 'file', 'path' = '{}', \
         'replay_rate' = '{rate}');\n",
        path.display()
    ) + &table(database, "plain", "n BIGINT, key STRING", "")
        + &table(
            database,
            "totals",
            "key STRING, count BIGINT, sum BIGINT, PRIMARY KEY (key) NOT ENFORCED",
            "",
        )
        + "INSERT INTO plain SELECT n, key FROM numbers;
           INSERT INTO totals SELECT key, COUNT(*), SUM(n) FROM numbers GROUP BY key;";
    let query = folder.join("query.sql");
    fs::write(&query, text).unwrap();
    let state = folder.join(format!("state{seed}"));
    let begin = Instant::now();
    let mut killed = 0;
    loop {
        assert!(begin.elapsed() < PATIENCE, "seed {seed}: it does not end");
        let interval = ["20 ms", "60 ms", "200 ms"][seeded.below(3) as usize];
        let mut run = Command::new(env!("CARGO_BIN_EXE_slackwater"))
            .args(["run", "query.sql", "--quiet", "--state"])
            .arg(&state)
            .args(["--parallelism", &(1 + seeded.below(3)).to_string()])
            .args(["--processes", &(1 + seeded.below(2)).to_string()])
            .args(["--set", &format!("checkpoint_interval={interval}")])
            .args(["--set", &format!("chunk_rows={}", 1 + seeded.below(500))])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lives = Duration::from_millis(150 + seeded.below(1_200));
        let is_killed = killed < 3;
        let begun = Instant::now();
        while is_killed && begun.elapsed() < lives && run.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        if is_killed && run.try_wait().unwrap().is_none() {
            kill_process(Pid::from_child(&run), Signal::KILL).unwrap();
            run.wait().unwrap();
            killed += 1;
            // What is seen in between is never doubled.
            let doubled = "SELECT n FROM plain GROUP BY n HAVING count(*) > 1";
            assert_eq!(database.rows(doubled), Vec::<String>::new(), "seed {seed}");
            continue;
        }
        let done = run.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "seed {seed}: {said}");
        break;
    }
    let all = ROWS * (ROWS - 1) / 2;
    let plain =
        database.rows("SELECT count(*), count(DISTINCT n), CAST(sum(n) AS BIGINT) FROM plain");
    assert_eq!(plain, [format!("{ROWS},{ROWS},{all}")], "seed {seed}");
    let totals =
        "SELECT count(*), CAST(sum(count) AS BIGINT), CAST(sum(sum) AS BIGINT) FROM totals";
    assert_eq!(
        database.rows(totals),
        [format!("97,{ROWS},{all}")],
        "seed {seed}"
    );
    let left = "SELECT (SELECT count(*) FROM slackwater_staged)";
    assert_eq!(database.rows(left), ["0"], "seed {seed}");
    killed
}
