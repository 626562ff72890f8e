//! What reads of a materialized view cost, in CPU time of the reader's thread:
//! `cargo run --release -p slackwater --example reads [TIMES]`

use std::sync::Arc;
use std::time::Duration;

use slackwater::machine::own_cpu_ns;
use slackwater::reads::{Limits, Local, Prepared, Reads};
use slackwater::run::{Outcome, RunOptions, run};
use slackwater::views::Views;

#[global_allocator]
static ALLOCATOR: slackwater::Allocator = slackwater::Allocator;

/// How often each read is done, unless the command line says otherwise; as many as a tenth come before.
const TIMES: u32 = 1_000;

fn main() {
    let times = std::env::args().nth(1);
    let times = times.map_or(TIMES, |times| times.parse().expect("a number of times"));
    for keys in [100, 100_000] {
        measure(keys, times);
    }
}

/// Measures reads of a view with so many rows.
fn measure(keys: u64, most: u32) {
    let folder = std::env::temp_dir().join(format!("slackwater-reads-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let path = folder.join("in.csv");
    let rows = (0..keys).map(|key| format!("{key},{},name{}\n", key * 7 % 1000, key % 50));
    std::fs::write(&path, rows.collect::<String>()).expect("a temporary file");
    let text = format!(
        "CREATE TABLE t (k BIGINT, v BIGINT, name STRING) WITH ('connector' = 'file', 'path' = '{}');
         CREATE MATERIALIZED VIEW sums AS SELECT k, SUM(v) AS total, MAX(name) AS name FROM t GROUP BY k;",
        path.display()
    );
    let views = Arc::new(Views::default());
    let options = RunOptions {
        views: Some(Arc::clone(&views)),
        ..RunOptions::default()
    };
    match run("reads", &text, &options) {
        Ok(Outcome::Finished(_)) => {}
        _ => panic!("the query runs"),
    }
    std::fs::remove_dir_all(&folder).expect("the folder is there");
    let local = Local::new(views, Duration::from_secs(1));
    let begun = own_cpu_ns();
    let reads = Reads::new(local.readable()).expect("views have different names");
    let made_us = (own_cpu_ns() - begun) / 1_000;
    println!("\n{keys} rows; to know the views: {made_us} µs once");
    for (what, query, value) in [
        ("no FROM", "SELECT 1 AS n", None),
        ("by key", "SELECT total, name FROM sums WHERE k = 17", None),
        (
            "by key, $1",
            "SELECT total, name FROM sums WHERE k = $1",
            Some("17"),
        ),
        (
            "first rows",
            "SELECT * FROM sums ORDER BY total DESC LIMIT 10",
            None,
        ),
        (
            "groups",
            "SELECT name, SUM(total) AS s FROM sums GROUP BY name ORDER BY s",
            None,
        ),
        (
            "join",
            "SELECT a.k, b.total FROM sums a JOIN sums b ON a.k = b.k WHERE a.total > 990 ORDER BY a.k",
            None,
        ),
    ] {
        let times = if keys > 1_000 && !what.starts_with("by key") {
            (most / 50).max(1)
        } else {
            most
        };
        let values = value.map(|value: &str| Some(value.to_string()));
        let values = values.into_iter().collect::<Vec<_>>();
        let once = |prepared: &Prepared| {
            let read = reads.run(prepared, &values, &local, &Limits::default());
            let rows = read
                .expect("it runs")
                .map(|batch| batch.expect("rows").num_rows());
            rows.sum::<usize>()
        };
        let (mut prepared_ns, mut run_ns, mut rows) = (0, 0, 0);
        for time in 0..times + times / 10 {
            let begun = own_cpu_ns();
            let prepared = reads.prepare(query).expect("the query is right");
            let planned = own_cpu_ns();
            rows = once(&prepared);
            if time >= times / 10 {
                prepared_ns += planned - begun;
                run_ns += own_cpu_ns() - planned;
            }
        }
        let mean_us = |ns: u64| ns as f64 / f64::from(times) / 1e3;
        let (prepare_us, run_us) = (mean_us(prepared_ns), mean_us(run_ns));
        println!("{what:<12} {rows:>6} rows   prepare {prepare_us:>8.1} µs   run {run_us:>9.1} µs");
    }
}
