//! What a standby holds, read over Redis' protocol.

use std::collections::HashMap;

use crate::process::{Folder, PATIENCE, Running, eventually, free_address};
use crate::redis::Redis;

/// Keys, rows, and rows per second.
const KEYS: u64 = 389;
const ROWS: u64 = 60_000;
const RATE: u64 = 4_000;

fn key_of(row: u64) -> u64 {
    row * row % KEYS
}

/// Counts by key in two views, which are equal at each cut.
fn folder() -> Folder {
    let folder = Folder::new();
    let lines = (0..ROWS).map(|row| format!("{}\n", key_of(row)));
    folder.write("in.csv", lines.collect::<String>().as_bytes());
    let query = format!(
        "CREATE TABLE src (k BIGINT) WITH ('connector' = 'file', 'path' = 'in.csv', \
         'replay_rate' = '{RATE}');
         CREATE MATERIALIZED VIEW counts AS SELECT k, COUNT(*) AS n FROM src GROUP BY k;
         CREATE MATERIALIZED VIEW doubles AS SELECT k, 2 * COUNT(*) AS n FROM src GROUP BY k;"
    );
    folder.write("query.sql", query.as_bytes());
    folder
}

fn start(folder: &Folder, address: &str, arguments: &[&str]) -> Running {
    let serve = format!("--set=serve=redis://{address}");
    let run = ["run", "query.sql", "--state", "state"];
    let more = ["--set=standby_lag=100 ms", &serve];
    Running::start(folder.command(&[&run[..], &more, arguments].concat()))
}

/// All counts by one command, and how many rows they are of; `None` if the rows are not there yet. Fails
/// unless both views have exactly the rows of a prefix of the input.
#[track_caller]
fn one_cut(client: &mut Redis) -> Option<u64> {
    let keys = |view: &str| {
        (0..KEYS)
            .map(|key| format!(" {view}:{key}"))
            .collect::<String>()
    };
    let said = client.ask(&format!("MGET{}{}", keys("counts"), keys("doubles")));
    if said.starts_with("-LOADING") {
        return None;
    }
    let values = said.trim_matches(['[', ']']).split(' ');
    let values = values.map(|value| value.parse().unwrap_or(0));
    let values = values.collect::<Vec<u64>>();
    let (counts, doubles) = values.split_at(KEYS as usize);
    let rows = counts.iter().sum();
    let mut expected = HashMap::<u64, u64>::new();
    for row in 0..rows {
        *expected.entry(key_of(row)).or_default() += 1;
    }
    for key in 0..KEYS {
        let expected = expected.get(&key).copied().unwrap_or(0);
        let found = (counts[key as usize], doubles[key as usize]);
        assert_eq!(
            found,
            (expected, 2 * expected),
            "key {key} after {rows} rows"
        );
    }
    Some(rows)
}

#[test]
fn what_a_standby_holds_is_read_at_one_cut_and_goes_on() {
    let folder = folder();
    let addresses = [free_address(), free_address()];
    let port = |address: &str| address.rsplit_once(':').unwrap().1.to_owned();
    let active = start(&folder, &addresses[0], &["--parallelism", "2"]);
    let mut of_active = Redis::connect(&addresses[0]);
    let standby = start(&folder, &addresses[1], &["--parallelism", "2", "--standby"]);
    let mut client = Redis::connect(&addresses[1]);
    let first = eventually("rows at the standby", || {
        one_cut(&mut client).filter(|&rows| rows > 0)
    });
    let mut cuts = vec![first];
    eventually("cuts", || {
        let rows = one_cut(&mut client).unwrap();
        assert!(rows >= cuts[cuts.len() - 1], "{rows} after {cuts:?}");
        if rows > cuts[cuts.len() - 1] {
            cuts.push(rows);
        }
        (cuts.len() > 5).then_some(())
    });
    let said = client.ask("ROLE");
    let master = format!("[slave 127.0.0.1 :{} connected :", port(&addresses[0]));
    assert!(said.starts_with(&master), "{said}");
    assert!(
        client
            .ask("INFO replication")
            .contains("master_link_status:up")
    );
    assert!(client.ask("DEL counts:1").starts_with("-READONLY"));
    let said = of_active.ask("ROLE");
    let replica = format!("[127.0.0.1 {} ", port(&addresses[1]));
    assert!(
        said.starts_with("[master :") && said.contains(&replica),
        "{said}"
    );
    // The same connection goes on.
    active.kill();
    eventually("its turn", || {
        client.ask("ROLE").starts_with("[master").then_some(())
    });
    let at_last = cuts[cuts.len() - 1];
    eventually("further rows", || {
        let rows = client.ask("GET counts:1").parse::<u64>().unwrap();
        let all = client.ask("DBSIZE");
        (rows * KEYS > 2 * at_last && all.len() > 2).then_some(())
    });
    standby.interrupt();
    standby.finish(PATIENCE).ok();
}

#[test]
fn an_address_that_the_active_has_is_taken_over() {
    let folder = folder();
    let address = free_address();
    let active = start(&folder, &address, &[]);
    let mut client = Redis::connect(&address);
    eventually("rows", || client.ask("GET counts:1").parse::<u64>().ok());
    let standby = start(&folder, &address, &["--standby"]);
    eventually("the standby", || {
        standby.said().contains("follows process").then_some(())
    });
    let said = standby.said();
    assert!(said.contains("can't be read until it continues"), "{said}");
    assert!(said.contains("--set serve=redis://"), "{said}");
    active.kill();
    eventually("its turn", || {
        standby.said().contains("is gone").then_some(())
    });
    let mut client = Redis::connect(&address);
    eventually("rows", || client.ask("GET counts:1").parse::<u64>().ok());
    standby.interrupt();
    standby.finish(PATIENCE).ok();
}

#[test]
fn a_standby_without_a_view_to_read_is_refused() {
    let folder = Folder::new();
    folder.write("in.csv", b"1\n");
    folder.write(
        "query.sql",
        b"CREATE TABLE src (k BIGINT) WITH ('connector' = 'file', 'path' = 'in.csv');
          SELECT k FROM src;",
    );
    let standby = start(&folder, &free_address(), &["--standby"]).finish(PATIENCE);
    standby.fails(2, &["'serve'", "CREATE MATERIALIZED VIEW"]);
}
