//! SELECT and SUBSCRIBE over the views of a server.

use std::time::Duration;

use super::{LIMIT, Server, message, table, write_input};

const ROWS: u64 = 2_000;

fn started(folder: &std::path::Path, replay: &str) -> Server {
    write_input(folder, ROWS);
    let server = Server::start(folder);
    server.run(&[
        &table(folder, replay),
        "CREATE MATERIALIZED VIEW sums AS SELECT k, COUNT(*) AS n, SUM(v) AS total FROM numbers GROUP BY k",
        "CREATE MATERIALIZED VIEW names (k, name, PRIMARY KEY (k) NOT ENFORCED) AS
         SELECT k, CONCAT('key ', CAST(k AS STRING)) FROM numbers",
        "CREATE VIEW named AS SELECT s.k, s.n, s.total, m.name FROM sums s JOIN names m ON s.k = m.k",
    ]);
    server
}

/// The rows of `sums` at the end.
fn sums() -> Vec<(u64, u64, u64)> {
    let of = |k: u64| (0..ROWS).filter(move |id| id % 7 == k);
    let sums = (0..7).map(|k| {
        (
            k,
            of(k).count() as u64,
            of(k).map(|id| id * 31 % 1000).sum(),
        )
    });
    sums.collect()
}

#[test]
fn views_are_read_with_the_same_sql() {
    let folder = tempfile::tempdir().unwrap();
    let server = started(folder.path(), "");
    server.wait_for(
        "SHOW MATERIALIZED VIEWS",
        &["names|finished", "sums|finished"],
    );
    let rows = sums()
        .iter()
        .map(|(k, n, total)| format!("{k}|{n}|{total}"))
        .collect::<Vec<String>>();
    assert_eq!(server.rows("SELECT * FROM sums"), rows);
    assert_eq!(
        server.rows("SELECT n, total FROM sums WHERE k = 3"),
        [rows[3][2..].to_string()]
    );
    assert_eq!(
        server
            .rows("SELECT k FROM sums ORDER BY total DESC LIMIT 2 OFFSET 1")
            .len(),
        2
    );
    let all = format!("{}|{ROWS}", sums().len());
    assert_eq!(server.rows("SELECT COUNT(*), SUM(n) FROM sums"), [all]);
    let named = format!("key 3|{}", rows[3].split('|').nth(1).unwrap());
    assert_eq!(
        server.rows("SELECT name, n FROM named WHERE k = 3"),
        [named]
    );
    assert_eq!(server.rows("SELECT 1 + 1 AS two"), ["2"]);
    let plan = server.rows("EXPLAIN SELECT * FROM sums WHERE k = 3");
    assert!(!plan.is_empty());
    // Prepared, with parameters.
    let mut client = server.client();
    let found = client
        .query("SELECT total FROM sums WHERE k = $1", &[&4_i64])
        .unwrap();
    assert_eq!(found[0].get::<_, i64>(0) as u64, sums()[4].2);
    let none = client
        .query("SELECT total FROM sums WHERE k = $1", &[&99_i64])
        .unwrap();
    assert!(none.is_empty());
    // Both forms of the API.
    let (status, body) = server.http("GET", "/v1/views/sums?format=csv", "");
    assert_eq!((status, body.lines().count()), (200, 8), "{body}");
    // After a restart, the rows of finished views are still there.
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(folder.path());
    assert_eq!(server.rows("SELECT * FROM sums"), rows);
}

#[test]
fn reads_that_are_refused_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let server = started(folder.path(), "");
    let error = server.error("SELECT * FROM numbers");
    assert!(
        error.contains("are not kept") && error.contains("CREATE MATERIALIZED VIEW"),
        "{error}"
    );
    let error = server.error("SELECT nn FROM sums");
    assert!(
        error.starts_with("42703: ") && error.contains("Original(8)") && error.contains("'n'"),
        "{error}"
    );
    let error = server.error("SUBSCRIBE numbers");
    assert!(error.contains("not a materialized view"), "{error}");
    server.run(&["STOP JOB sums"]);
    let error = server.error("SELECT * FROM sums");
    assert!(
        error.contains("is stopped") && error.contains("START JOB sums"),
        "{error}"
    );
}

#[test]
fn a_subscriber_gets_the_rows_and_their_changes() {
    let folder = tempfile::tempdir().unwrap();
    let server = started(folder.path(), "1000/s");
    let mut client = server.client();
    client
        .batch_execute("BEGIN; DECLARE c CURSOR FOR SUBSCRIBE sums")
        .unwrap();
    let mut last = std::collections::BTreeMap::new();
    let until = std::time::Instant::now() + LIMIT;
    // Until the last change of the last row.
    while last.values().map(|(n, _)| n).sum::<u64>() < ROWS {
        assert!(std::time::Instant::now() < until, "{last:?}");
        let changes =
            super::read(&mut client, "FETCH 10 FROM c").unwrap_or_else(|error| panic!("{error}"));
        for change in changes {
            let fields = change.split('|').collect::<Vec<&str>>();
            let number = |at: usize| fields[at].parse::<u64>().unwrap();
            match fields[0] {
                "+I" | "+U" => drop(last.insert(number(1), (number(2), number(3)))),
                "-U" => {}
                other => panic!("{other}"),
            }
        }
    }
    let wanted = sums().into_iter().map(|(k, n, total)| (k, (n, total)));
    assert!(last.into_iter().eq(wanted));
    // Others read meanwhile, and a subscriber that leaves harms nobody.
    drop(client);
    assert_eq!(server.rows("SELECT COUNT(*) FROM sums"), ["7"]);
}

#[test]
fn a_subscription_is_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let server = started(folder.path(), "10/s");
    let mut client = server.client();
    let cancel = client.cancel_token();
    let cancelling = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        cancel.cancel_query(postgres::NoTls).unwrap();
    });
    let error = client.batch_execute("SUBSCRIBE sums").unwrap_err();
    assert!(message(&error).starts_with("57014"), "{}", message(&error));
    cancelling.join().unwrap();
    client.batch_execute("SHOW JOBS").unwrap();
}

/// Not those of the engine that answers queries of PostgreSQL's catalog, which knows no overflow.
#[test]
fn values_without_a_table_are_those_of_our_engine() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    for (query, value) in [
        ("SELECT 3000000000", "3000000000"),
        ("SELECT 9223372036854775807", "9223372036854775807"),
        ("SELECT 1, 'x'", "1|x"),
        ("SELECT CAST('7' AS INT)", "7"),
    ] {
        assert_eq!(server.rows(query), [value], "{query}");
    }
    for query in [
        "SELECT 1/0",
        "SELECT CAST('x' AS INT)",
        "SELECT ''::int",
        "SELECT '12abc'::int",
        "SELECT CAST('99999999999' AS INT)",
        "SELECT CAST('x' AS BOOLEAN)",
    ] {
        assert!(super::read(&mut server.client(), query).is_err(), "{query}");
    }
}
