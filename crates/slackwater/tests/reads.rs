//! Reads: SELECT over the rows of views at one cut, against a naive model and DuckDB; parameters, look-ups by
//! key, and limits.

mod kept;
mod model;

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use slackwater::reads::{Failed, Limits, Local, Reads, Rows};
use slackwater::views::Views;

use self::kept::{random_shop, shop, text};
use crate::support::{Seeded, run_read};

/// The rows of batches, values with `|` between them, in their order.
fn shown(batches: &[RecordBatch]) -> Vec<String> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let values = batch.columns().iter();
            let values = values.map(|column| text(column, row).unwrap_or("NULL".to_string()));
            rows.push(values.collect::<Vec<String>>().join("|"));
        }
    }
    rows
}

fn read_with(
    reads: &Reads,
    rows: &dyn Rows,
    query: &str,
    values: &[Option<&str>],
    limits: &Limits,
) -> Result<Vec<String>, Failed> {
    let prepared = reads.prepare(query)?;
    let values = values.iter().map(|value| value.map(str::to_string));
    let read = reads.run(&prepared, &values.collect::<Vec<_>>(), rows, limits)?;
    assert_eq!(*read.schema(), reads.columns(&prepared), "{query}");
    let schema = read.schema().clone();
    let batches = read.collect::<Result<Vec<RecordBatch>, Failed>>()?;
    for batch in &batches {
        assert_eq!(batch.schema(), schema, "{query}");
    }
    Ok(shown(&batches))
}

fn read(reads: &Reads, rows: &dyn Rows, query: &str) -> Vec<String> {
    let read = read_with(reads, rows, query, &[], &Limits::default());
    read.unwrap_or_else(|failed| panic!("{query}: {failed}"))
}

#[test]
fn rows_are_filtered_grouped_sorted_and_cut_off() {
    let kept = shop(
        &[
            (1, Some(1), 5),
            (2, Some(2), 7),
            (3, Some(1), 9),
            (4, None, 1),
        ],
        &[(1, "ann".to_string(), 0.5), (2, "bob".to_string(), 1.5)],
    );
    let reads = kept.reads();
    let check = |query: &str, expected: &[&str]| {
        assert_eq!(read(&reads, &kept, query), expected, "{query}");
    };
    check(
        "SELECT id, price FROM orders WHERE price > 4 ORDER BY price DESC LIMIT 2 OFFSET 1",
        &["2|7", "1|5"],
    );
    check(
        "SELECT customer, COUNT(*) AS n, SUM(price) AS total FROM orders GROUP BY customer ORDER BY customer",
        &["NULL|1|1", "1|2|14", "2|1|7"],
    );
    check(
        "SELECT c.name, SUM(o.price) AS total FROM orders o JOIN customers c ON o.customer = c.id \
         GROUP BY c.name HAVING COUNT(*) > 0 ORDER BY total DESC",
        &["ann|14", "bob|7"],
    );
    check(
        "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id AND c.name <> 'bob' \
         ORDER BY o.id",
        &["1|ann", "2|NULL", "3|ann", "4|NULL"],
    );
    check(
        "SELECT a.id, b.id AS other FROM orders a JOIN orders b ON a.customer = b.customer AND a.id < b.id",
        &["1|3"],
    );
    check(
        "SELECT COUNT(*), MAX(price) FROM orders WHERE price > 100",
        &["0|NULL"],
    );
    check(
        "SELECT DISTINCT customer FROM orders WHERE customer > 0 ORDER BY 1",
        &["1", "2"],
    );
    check(
        "SELECT id FROM orders WHERE price = (SELECT MAX(price) FROM orders)",
        &["3"],
    );
    check(
        "SELECT id FROM orders WHERE customer IN (SELECT id FROM customers WHERE score > 1.0)",
        &["2"],
    );
    check(
        "SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY customer ORDER BY price DESC) AS place \
         FROM orders) WHERE place = 1 ORDER BY id",
        &["2", "3", "4"],
    );
    check("SELECT 1 AS one, 'a' || 'b' AS word", &["1|ab"]);
    check("SELECT 1 AS one WHERE 1 > 2", &[]);
    check(
        "SELECT v.a + 1 AS a, v.b FROM (VALUES (1, 'x'), (2, 'y')) AS v (a, b) ORDER BY 1 DESC",
        &["3|y", "2|x"],
    );
    check(
        "SELECT o.id, v.b FROM orders o JOIN (VALUES (1, 'x'), (3, 'y')) AS v (a, b) ON o.id = v.a \
         ORDER BY 1",
        &["1|x", "3|y"],
    );
    check(
        "SELECT id FROM orders WHERE id < 2 UNION ALL SELECT 40 AS id ORDER BY 1",
        &["1", "40"],
    );
}

#[test]
fn views_that_are_not_materialized_are_read_by_their_queries() {
    let kept = random_shop(3, 50);
    let mut reads = kept.reads();
    let text = "CREATE VIEW dear (id, paid) AS SELECT id, price FROM orders WHERE price > 60;
        CREATE VIEW dearest AS SELECT MAX(paid) AS paid FROM dear";
    reads.define(text).unwrap();
    let rows = read(&reads, &kept, "SELECT paid FROM dearest");
    let direct = read(&reads, &kept, "SELECT MAX(price) FROM orders");
    assert_eq!(rows, direct);
    let wrong = reads.define("CREATE VIEW w AS SELECT 1 AS n FROM nothing");
    let wrong = wrong.unwrap_err().to_string();
    assert!(
        wrong.contains("there is no table or view 'nothing'"),
        "{wrong}"
    );
    assert!(reads.define("DROP VIEW dear").is_err());
}

/// A key that is named as a whole is looked up: nothing is scanned.
#[test]
fn a_key_is_looked_up_without_a_scan() {
    let kept = random_shop(5, 300);
    let reads = kept.reads();
    let count = |counter: &AtomicUsize| counter.swap(0, Ordering::Relaxed);
    let looked_up = [
        "SELECT * FROM orders WHERE id = 17",
        "SELECT price, id + 1 AS next FROM orders WHERE 17 = id",
        "SELECT o.id FROM orders AS o WHERE o.id = 17 AND o.price > -100",
        "SELECT id FROM orders WHERE id = 17 AND id = 18",
        "SELECT id FROM orders WHERE id = 1700",
    ];
    for query in looked_up {
        let found = read(&reads, &kept, query);
        assert_eq!((count(&kept.gets), count(&kept.scans)), (1, 0), "{query}");
        // The same rows as by a scan.
        let scanned = query.replace("WHERE ", "WHERE price * 0 = 0 AND (id < 0 OR id >= 0) AND ");
        let scanned = format!(
            "SELECT * FROM ({}) ORDER BY 1",
            scanned.replace("id = 1", "id + 0 = 1")
        );
        let scanned = scanned.replace("17 = id", "17 = id + 0");
        assert_eq!(found, read(&reads, &kept, &scanned), "{scanned}");
        assert_eq!((count(&kept.gets), count(&kept.scans)), (0, 1), "{scanned}");
    }
    let prepared = reads
        .prepare("SELECT price FROM orders WHERE id = $1")
        .unwrap();
    assert_eq!(prepared.parameters(), [DataType::Int64]);
    for (value, found) in [(Some("17"), 1), (Some("-1"), 0), (None, 0)] {
        let values = [value.map(str::to_string)];
        let read = reads.run(&prepared, &values, &kept, &Limits::default());
        let rows = read.unwrap().map(|batch| batch.unwrap().num_rows());
        assert_eq!(rows.sum::<usize>(), found, "{value:?}");
    }
    assert_eq!((count(&kept.gets), count(&kept.scans)), (2, 0));
    // Part of a key, and other conditions on it, need a scan.
    for query in [
        "SELECT id FROM orders WHERE id > 290",
        "SELECT id FROM orders WHERE price = 3",
    ] {
        read(&reads, &kept, query);
        assert_eq!((count(&kept.gets), count(&kept.scans)), (0, 1), "{query}");
    }
    let explained = read(
        &reads,
        &kept,
        "EXPLAIN SELECT price FROM orders WHERE id = 3",
    );
    assert_eq!(explained, ["orders: looks up a key"]);
    let explained = read(
        &reads,
        &kept,
        "EXPLAIN SELECT price FROM orders ORDER BY price LIMIT 3",
    );
    let explained = explained.join("\n");
    assert!(
        explained.contains("materialized view") && explained.contains("first 3"),
        "{explained}"
    );
    assert_eq!((count(&kept.gets), count(&kept.scans)), (0, 0));
}

#[test]
fn parameters_have_types_and_values() {
    let kept = random_shop(9, 100);
    let reads = kept.reads();
    let types = |query: &str| {
        let prepared = reads
            .prepare(query)
            .unwrap_or_else(|failed| panic!("{query}: {failed}"));
        let names = prepared.parameters().iter().map(ToString::to_string);
        names.collect::<Vec<String>>().join(" ")
    };
    let query = "SELECT id, price + $3 AS more FROM orders WHERE customer = $1 AND price BETWEEN $2 AND 50 \
        ORDER BY id LIMIT $4 OFFSET $5";
    assert_eq!(types(query), "Int64 Int64 Int64 Int64 Int64");
    assert_eq!(
        types("SELECT id FROM customers WHERE name = $1 AND score < $2"),
        "Utf8View Float64"
    );
    assert_eq!(
        types("SELECT CAST($1 AS BIGINT) + 1 AS n, $2 AS word"),
        "Int64 Utf8View"
    );
    let values = [Some("3"), Some("-5"), Some("1000"), Some("2"), Some("1")];
    let found = read_with(&reads, &kept, query, &values, &Limits::default()).unwrap();
    let plain = read(
        &reads,
        &kept,
        "SELECT id, price + 1000 AS more FROM orders WHERE customer = 3 AND price BETWEEN -5 AND 50 \
         ORDER BY id LIMIT 2 OFFSET 1",
    );
    assert_eq!(found, plain);
    let one = |query: &str, value: Option<&str>| {
        read_with(&reads, &kept, query, &[value], &Limits::default())
    };
    assert_eq!(
        one("SELECT $1 AS word", Some("it's")),
        Ok(vec!["it's".to_string()])
    );
    assert_eq!(one("SELECT $1 AS word", None), Ok(vec!["NULL".to_string()]));
    assert_eq!(
        one("SELECT id FROM orders WHERE customer = $1", None),
        Ok(vec![])
    );
    let wrong = one("SELECT id FROM orders WHERE id = $1", Some("x")).unwrap_err();
    assert_eq!(wrong.to_string(), "parameter $1: 'x' is not a valid BIGINT");
    let few = read_with(&reads, &kept, query, &values[..2], &Limits::default());
    assert!(
        few.unwrap_err()
            .to_string()
            .contains("5 parameters, and 2 values")
    );
}

#[test]
fn errors_name_their_place() {
    let kept = random_shop(9, 10);
    let reads = kept.reads();
    let place = |query: &str| match reads.prepare(query) {
        Err(Failed::Sql(error)) => {
            let place = error.place.unwrap_or_else(|| panic!("{query}: {error}"));
            format!("{}:{}: {}", place.line, place.column, error.message)
        }
        Err(failed) => panic!("{query}: {failed}"),
        Ok(_) => panic!("{query} is not wrong"),
    };
    assert_eq!(
        place("SELECT id,\n  prize FROM orders"),
        "2:3: there is no column 'prize'"
    );
    assert_eq!(
        place("SELECT id\nFROM order_"),
        "2:6: there is no table or view 'order_'"
    );
    assert_eq!(
        place("SELECT id FROM orders WHERE id = ?"),
        "1:34: '?' is not a parameter"
    );
    let only = place("CREATE VIEW v AS SELECT 1 AS n");
    assert!(only.ends_with("only SELECT reads views"), "{only}");
    assert!(place("SELECT FROM orders").starts_with("1:"));
}

#[test]
fn a_value_that_cannot_be_computed_fails_the_read() {
    let kept = random_shop(9, 1_000);
    let reads = kept.reads();
    let limits = Limits::default();
    for query in [
        "SELECT id / (id - 500) AS ratio FROM orders",
        "SELECT CAST(name AS BIGINT) AS n FROM customers",
        "SELECT CAST(name AS BIGINT) AS n FROM customers WHERE id = 1",
    ] {
        let failed = read_with(&reads, &kept, query, &[], &limits).unwrap_err();
        assert!(matches!(failed, Failed::Query(_)), "{query}: {failed:?}");
    }
}

#[test]
fn a_read_keeps_to_its_memory_and_time_and_can_be_cancelled() {
    let mut kept = random_shop(11, 200_000);
    kept.batch_rows = 1_000;
    let reads = kept.reads();
    let sort = "SELECT id, price FROM orders ORDER BY price, id";
    let memory = Limits::none().with_memory(1 << 20);
    let failed = read_with(&reads, &kept, sort, &[], &memory).unwrap_err();
    assert_eq!(failed, Failed::Memory(1 << 20));
    // The first rows need little.
    let first = read_with(&reads, &kept, &format!("{sort} LIMIT 3"), &[], &memory).unwrap();
    assert_eq!(first.len(), 3);
    kept.wait = Some(Duration::from_millis(1));
    let time = Duration::from_millis(20);
    let failed = read_with(&reads, &kept, sort, &[], &Limits::none().with_time(time));
    assert_eq!(failed.unwrap_err(), Failed::TimedOut(time));
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let cancel = Arc::clone(&is_cancelled);
    let limits = Limits::none().with_cancel(move || cancel.load(Ordering::Relaxed));
    let prepared = reads.prepare("SELECT id FROM orders").unwrap();
    let mut read = reads.run(&prepared, &[], &kept, &limits).unwrap();
    assert!(read.next().unwrap().is_ok());
    is_cancelled.store(true, Ordering::Relaxed);
    let last = read.find(Result::is_err).unwrap();
    assert_eq!(last.unwrap_err(), Failed::Cancelled);
    assert!(read.next().is_none());
    let failed = reads.run(&prepared, &[], &kept, &limits).err();
    assert_eq!(failed, Some(Failed::Cancelled));
}

/// A reader that stops takes no more rows from the views.
#[test]
fn rows_are_produced_as_they_are_taken() {
    let mut kept = random_shop(11, 200_000);
    kept.batch_rows = 1_000;
    let taken = Arc::new(Mutex::new(0));
    let counting = Arc::clone(&taken);
    let limits = Limits::none().with_cancel(move || {
        *counting.lock().unwrap() += 1;
        false
    });
    kept.wait = Some(Duration::ZERO);
    let reads = kept.reads();
    let prepared = reads
        .prepare("SELECT id, price FROM orders WHERE price > -20")
        .unwrap();
    let mut read = reads.run(&prepared, &[], &kept, &limits).unwrap();
    assert!(read.next().unwrap().is_ok());
    let looks = *taken.lock().unwrap();
    assert!(
        looks < 40,
        "{looks} looks at the limits for the first rows of 200 batches"
    );
    let rows = read.map(|batch| batch.unwrap().num_rows()).sum::<usize>();
    assert!((180_000..200_000).contains(&rows), "{rows}");
    assert!(*taken.lock().unwrap() > 150);
}

/// A running query's views, through the same interface.
#[test]
fn views_of_a_run_in_this_process_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.csv");
    let rows = (0..1_000).map(|id| format!("{},{id}\n", id % 7));
    std::fs::write(&path, rows.collect::<String>()).unwrap();
    let text = format!(
        "CREATE TABLE t (k BIGINT, v BIGINT) WITH ('connector' = 'file', 'path' = '{}');
         CREATE MATERIALIZED VIEW sums AS SELECT k, COUNT(*) AS n, SUM(v) AS total FROM t GROUP BY k;
         CREATE MATERIALIZED VIEW whole AS SELECT COUNT(*) AS n FROM t;",
        path.display()
    );
    let views = Arc::new(Views::default());
    run_read(&text, &[("parallelism", "2")], &views).unwrap();
    let local = Local::new(views, Duration::from_secs(1));
    let reads = Reads::new(local.readable()).unwrap();
    assert_eq!(
        read(&reads, &local, "SELECT n, k FROM sums WHERE k = 3"),
        ["143|3"]
    );
    assert_eq!(
        read(&reads, &local, "SELECT n + 1 AS more FROM whole"),
        ["1001"]
    );
    assert_eq!(
        read(
            &reads,
            &local,
            "SELECT SUM(s.n) AS n, MIN(w.n) AS w FROM sums s CROSS JOIN whole w"
        ),
        ["1000|1000"]
    );
    let sorted = read(
        &reads,
        &local,
        "SELECT k FROM sums ORDER BY total DESC LIMIT 2",
    );
    assert_eq!(sorted, ["5", "4"]);
}

/// Random reads equal a naive computation.
#[test]
fn reads_equal_a_naive_computation() {
    let mut seeded = Seeded(77);
    for case in 0..30 {
        let mut kept = random_shop(seeded.below(1 << 30), seeded.below(800));
        kept.batch_rows = 1 + seeded.below(300) as usize;
        let reads = kept.reads();
        for _ in 0..4 {
            let asked = model::Asked::random(&mut seeded);
            let query = asked.text();
            let found = read(&reads, &kept, &query);
            let orders = &kept.views["orders"].0;
            let column = |at: usize| {
                orders
                    .column(at)
                    .as_primitive::<arrow_array::types::Int64Type>()
            };
            let orders = (0..orders.num_rows()).map(|row| model::Order {
                id: column(0).value(row),
                customer: column(1).is_valid(row).then(|| column(1).value(row)),
                price: column(2).value(row),
            });
            let expected = asked.answer(&orders.collect::<Vec<_>>());
            assert_eq!(found, expected, "case {case}: {query}");
        }
    }
}

/// The same rows and queries in DuckDB, if it is there.
#[test]
fn reads_equal_duckdb() {
    let python =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/duckdb/bin/python");
    let found = Command::new(&python).args(["-c", "import duckdb"]).output();
    if !found.is_ok_and(|found| found.status.success()) {
        eprintln!("skipped: no DuckDB in target/duckdb, where `make test` puts it");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let kept = random_shop(21, 500);
    let reads = kept.reads();
    let mut seeded = Seeded(78);
    let queries = include_str!("reads/queries.sql")
        .lines()
        .map(str::to_string);
    let random = (0..60).map(|_| model::Asked::random(&mut seeded).text());
    let queries = queries.chain(random).collect::<Vec<String>>();
    for name in ["orders", "customers"] {
        let rows = shown(std::slice::from_ref(&kept.views[name].0));
        let names = kept.views[name].0.schema();
        let names = column_names(&names).join("|");
        let text = format!("{names}\n{}\n", rows.join("\n"));
        std::fs::write(folder.path().join(format!("{name}.csv")), text).unwrap();
    }
    std::fs::write(folder.path().join("queries.sql"), queries.join("\n")).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reads/reference.py");
    let output = Command::new(python)
        .arg(script)
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let answers = text.split("--\n").collect::<Vec<&str>>();
    assert_eq!(answers.len(), queries.len() + 1);
    for (query, answer) in queries.iter().zip(answers) {
        let expected = answer.lines().map(str::to_string).collect::<Vec<String>>();
        assert_eq!(read(&reads, &kept, query), expected, "{query}");
    }
}

fn column_names(schema: &SchemaRef) -> Vec<String> {
    schema
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect()
}
