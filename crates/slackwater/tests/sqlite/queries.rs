//! Queries over tables of a database, whichever it is.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::run_text;

/// A database that a test has for itself.
pub trait Database {
    /// A folder for files.
    fn folder(&self) -> &Path;

    /// The options of every table there.
    fn options(&self) -> String;

    /// Runs statements.
    fn run(&self, statements: &str);

    /// The rows of a query, their values with commas between them.
    fn rows(&self, sql: &str) -> Vec<String>;
}

/// Every way to run a query that must not make a difference.
const SETTINGS: [(&str, &str); 4] = [("1", "8192"), ("1", "1"), ("3", "8192"), ("3", "7")];

fn file(database: &dyn Database, name: &str, columns: &str, options: &str) -> String {
    let path = database.folder().join(format!("{name}.csv"));
    format!(
        "CREATE TABLE {name} ({columns}) WITH ('connector' = 'file', 'path' = '{}' {options});\n",
        path.display()
    )
}

pub fn table(database: &dyn Database, name: &str, columns: &str, options: &str) -> String {
    let all = database.options();
    format!("CREATE TABLE {name} ({columns}) WITH ({all} {options});\n")
}

/// Runs an INSERT INTO out, and gives the rows, sorted.
fn result(
    database: &dyn Database,
    text: &str,
    columns: &str,
    settings: (&str, &str),
) -> Vec<String> {
    let out = file(database, "out", columns, ", 'overwrite' = 'true'");
    let settings = [("parallelism", settings.0), ("chunk_rows", settings.1)];
    run_text(&(out + text), &settings).unwrap();
    let text = fs::read_to_string(database.folder().join("out.csv")).unwrap();
    let mut rows = text.lines().map(str::to_string).collect::<Vec<_>>();
    rows.sort();
    rows
}

/// Orders of customers, some of whom nobody knows.
fn orders(database: &dyn Database) -> String {
    let orders = (0..300).map(|n| {
        let customer = if n % 11 == 0 {
            String::new()
        } else {
            (n * 7 % 40).to_string()
        };
        format!(
            "{n},{},{customer},{}\n",
            n * 100,
            ["gold", "iron", "tin"][n % 3]
        )
    });
    fs::write(
        database.folder().join("orders.csv"),
        orders.collect::<String>(),
    )
    .unwrap();
    file(
        database,
        "orders",
        "n BIGINT, ms BIGINT, customer BIGINT, metal STRING, ts AS TO_TIMESTAMP_LTZ(ms, 3), \
         WATERMARK FOR ts AS ts",
        "",
    )
}

/// While nothing changes, a lookup gives what a join with the whole table does.
pub fn lookups_are_the_table_join_of_the_moment(database: &dyn Database) {
    let rows = (0..30).map(|id| {
        let name = if id % 7 == 0 {
            "NULL".to_string()
        } else {
            format!("'it''s {id}'")
        };
        format!("({id}, {name}, '{}', {}.25)", ["gold", "iron"][id % 2], id)
    });
    let rows = rows.collect::<Vec<_>>().join(", ");
    database.run(&format!(
        "CREATE TABLE customers (id INTEGER PRIMARY KEY, name VARCHAR(40), metal TEXT, credit NUMERIC(10, 2));
         INSERT INTO customers VALUES {rows};
         CREATE TABLE visits (customer INTEGER, page TEXT);
         INSERT INTO visits SELECT id % 9, 'page ' || id FROM customers;"
    ));
    let orders = orders(database);
    let columns = "id INT, name STRING, metal STRING, credit DECIMAL(10, 2)";
    let cached = ", 'lookup.cache.max_rows' = '10', 'lookup.cache.ttl' = '1 min'";
    let now = "FOR SYSTEM_TIME AS OF PROCTIME()";
    for (join, written) in [
        (
            "SELECT o.n, c.name FROM orders o JOIN customers {now} AS c ON o.customer = c.id",
            "n BIGINT, name STRING",
        ),
        (
            "SELECT o.n, c.name, c.credit FROM orders o LEFT JOIN customers {now} AS c ON c.id = o.customer",
            "n BIGINT, name STRING, credit DECIMAL(10, 2)",
        ),
        (
            "SELECT o.n, c.id FROM orders o LEFT JOIN customers {now} AS c ON o.customer = c.id AND o.metal \
             = c.metal \
          AND c.credit > 3",
            "n BIGINT, id INT",
        ),
        (
            "SELECT o.n, c.id FROM orders o JOIN customers {now} AS c ON o.customer + 1 = c.id AND o.n > \
             c.credit \
          WHERE c.metal = 'gold' AND o.metal <> 'tin'",
            "n BIGINT, id INT",
        ),
        (
            "SELECT o.n, v.page FROM orders o LEFT JOIN visits {now} AS v ON o.customer = v.customer",
            "n BIGINT, page STRING",
        ),
        (
            "SELECT o.n, c.name, v.page FROM orders o JOIN customers {now} AS c ON o.customer = c.id \
          LEFT JOIN visits {now} AS v ON c.id = v.customer AND v.page LIKE '%1%'",
            "n BIGINT, name STRING, page STRING",
        ),
        (
            "SELECT window_start, c.metal, COUNT(*) AS n, FIRST_VALUE(o.n) AS f FROM \
          TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND) AS o JOIN customers {now} AS c \
          ON o.customer = c.id GROUP BY window_start, window_end, c.metal",
            "window_start TIMESTAMP(3), metal STRING, n BIGINT, f BIGINT",
        ),
        (
            "SELECT COUNT(*) AS n FROM TUMBLE((SELECT o.ts FROM orders o JOIN customers {now} AS c ON \
             o.customer = c.id), \
          DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end",
            "n BIGINT",
        ),
    ] {
        let run = |now: &str, options: &str, settings| {
            let text = table(database, "customers", columns, options)
                + &table(database, "visits", "customer BIGINT, page STRING", options)
                + &orders
                + "INSERT INTO out "
                + &join.replace("{now}", now)
                + ";";
            result(database, &text, written, settings)
        };
        let expected = run("", "", SETTINGS[0]);
        assert!(expected.len() > 2, "{join}: {expected:?}");
        for settings in SETTINGS {
            assert_eq!(run(now, "", settings), expected, "{join} {settings:?}");
        }
        assert_eq!(run(now, cached, SETTINGS[2]), expected, "{join}, cached");
    }
}

/// Rows, and the last of each key.
pub fn what_is_written_is_there(database: &dyn Database) {
    let orders = orders(database);
    for settings in SETTINGS {
        database.run(
            "DROP TABLE IF EXISTS written; CREATE TABLE written (n BIGINT, ts TIMESTAMP, metal TEXT);
             DROP TABLE IF EXISTS totals; CREATE TABLE totals (metal TEXT PRIMARY KEY, orders BIGINT, \
             latest BIGINT);
             INSERT INTO totals VALUES ('iron', -1, -1), ('lead', 7, 7);",
        );
        let columns =
            "metal STRING, orders BIGINT, latest BIGINT, PRIMARY KEY (metal) NOT ENFORCED";
        let text = orders.clone()
            + &table(
                database,
                "written",
                "n BIGINT, ts TIMESTAMP(3), metal STRING",
                "",
            )
            + &table(database, "t", columns, ", 'table-name' = 'totals'")
            + "INSERT INTO written SELECT n, ts, metal FROM orders WHERE customer IS NOT NULL;
               INSERT INTO t SELECT metal, COUNT(*), MAX(n) FROM orders GROUP BY metal;";
        let settings = [("parallelism", settings.0), ("chunk_rows", settings.1)];
        run_text(&text, &settings).unwrap();
        let count =
            database.rows("SELECT count(*), count(DISTINCT n), min(ts), max(metal) FROM written");
        assert_eq!(count.len(), 1);
        assert!(
            count[0].starts_with("272,272,1970-01-01 00:00:00.1"),
            "{count:?}"
        );
        let totals = database.rows("SELECT metal, orders, latest FROM totals ORDER BY metal");
        assert_eq!(
            totals,
            ["gold,100,297", "iron,100,298", "lead,7,7", "tin,100,299"]
        );
    }
}

/// Of several rows of a query that have the same PRIMARY KEY the greatest is there; and a row whose old and
/// new version come from different instances is there once.
pub fn a_key_that_is_not_the_query_s(database: &dyn Database) {
    let orders = orders(database);
    let all = || (0..300_i64).map(|n| (n, (n % 11 != 0).then_some(n * 7 % 40)));
    let mut of_customer = BTreeMap::<Option<i64>, (i64, i64)>::new();
    let mut of_seventh = BTreeMap::<i64, i64>::new();
    for (n, customer) in all() {
        let (count, most) = of_customer.entry(customer).or_default();
        (*count, *most) = (*count + 1, (*most).max(n % 7));
        *of_seventh.entry(n % 7).or_default() += 1;
    }
    let mut greatest = BTreeMap::<i64, Option<i64>>::new();
    for (customer, (count, _)) in &of_customer {
        let known = greatest.entry(*count).or_insert(*customer);
        *known = (*known).max(*customer);
    }
    let shown = |number: Option<i64>| number.map_or("NULL".to_string(), |n| n.to_string());
    let greatest = greatest.into_iter();
    let greatest = greatest.map(|(count, customer)| format!("{count},{}", shown(customer)));
    let greatest = greatest.collect::<Vec<_>>();
    let moved = of_customer.iter().filter_map(|(customer, (_, most))| {
        customer.map(|customer| format!("{customer},{most},{}", of_seventh[most]))
    });
    let moved = moved.collect::<Vec<_>>();
    for settings in SETTINGS {
        database.run(
            "DROP TABLE IF EXISTS greatest; CREATE TABLE greatest (n BIGINT PRIMARY KEY, customer BIGINT);
             DROP TABLE IF EXISTS moved; CREATE TABLE moved (customer BIGINT PRIMARY KEY, most BIGINT, \
             orders BIGINT);",
        );
        let columns = [
            "n BIGINT, customer BIGINT, PRIMARY KEY (n) NOT ENFORCED",
            "customer BIGINT, most BIGINT, orders BIGINT, PRIMARY KEY (customer) NOT ENFORCED",
        ];
        let text = orders.clone()
            + &table(database, "g", columns[0], ", 'table-name' = 'greatest'")
            + &table(database, "m", columns[1], ", 'table-name' = 'moved'")
            + "INSERT INTO g SELECT COUNT(*), customer FROM orders GROUP BY customer;
               INSERT INTO m SELECT c.customer, c.most, s.orders
               FROM (SELECT customer, MAX(n % 7) AS most FROM orders WHERE customer IS NOT NULL GROUP BY \
               customer) AS c
               JOIN (SELECT n % 7 AS seventh, COUNT(*) AS orders FROM orders GROUP BY n % 7) AS s ON c.most \
               = s.seventh;";
        let settings = [("parallelism", settings.0), ("chunk_rows", settings.1)];
        run_text(&text, &settings).unwrap();
        let there = database
            .rows("SELECT n, coalesce(cast(customer AS char(4)), 'NULL') FROM greatest ORDER BY n");
        let there = there.iter().map(|row| row.replace(' ', ""));
        assert_eq!(there.collect::<Vec<_>>(), greatest, "{settings:?}");
        let there = database.rows("SELECT customer, most, orders FROM moved ORDER BY customer");
        assert_eq!(there, moved, "{settings:?}");
    }
}

/// Messages name the place and a hint.
pub fn what_is_wrong_is_said(database: &dyn Database) {
    database.run("CREATE TABLE known (id INTEGER PRIMARY KEY, name TEXT NOT NULL)");
    let orders = orders(database);
    let known = table(database, "known", "id INT, name STRING", "");
    let fails = |text: &str| run_text(text, &[]).unwrap_err();
    let error_of = |declared: &str, join: &str| {
        fails(&format!(
            "{orders}{declared}SELECT * FROM orders AS o {join};"
        ))
    };
    let now = "FOR SYSTEM_TIME AS OF PROCTIME()";
    for (declared, join, message) in [
        (
            table(database, "known", "id INT, nam STRING", ""),
            format!("JOIN known {now} AS k ON o.customer = k.id"),
            "table known: it has no column 'nam' (its columns are: id, name)",
        ),
        (
            table(database, "knwn", "id INT", ""),
            format!("JOIN knwn {now} AS k ON o.customer = k.id"),
            "there is no table 'knwn' (did you mean 'known'? 'table-name' says which one it is)",
        ),
        (
            known.clone(),
            format!("JOIN known {now} AS k ON o.customer > k.id"),
            "FOR SYSTEM_TIME AS OF needs an equality between a key of the table",
        ),
        (
            known.clone(),
            format!("RIGHT JOIN known {now} AS k ON o.customer = k.id"),
            "FOR SYSTEM_TIME AS OF is only supported in INNER JOIN … ON and LEFT JOIN … ON",
        ),
        (
            known.clone(),
            "JOIN known FOR SYSTEM_TIME AS OF o.ts AS k ON o.customer = k.id".to_string(),
            "table 'known' has no event time, so it has no versions",
        ),
        (
            known.clone(),
            "JOIN known FOR SYSTEM_TIME AS OF o.ms AS k ON o.customer = k.id".to_string(),
            "'o.ms' is neither an event time nor PROCTIME()",
        ),
        (
            table(
                database,
                "known",
                "id INT, name STRING, big AS UPPER(name)",
                "",
            ),
            format!("JOIN known {now} AS k ON o.customer = k.id"),
            "column 'big' of 'known' is computed, so it can't be looked up",
        ),
    ] {
        let error = error_of(&declared, &join);
        assert!(error.contains(message), "{join}: {error}");
    }
    // What the database refuses ends the query, with its words.
    let text = format!("{orders}{known}INSERT INTO known SELECT n, NULL FROM orders;");
    let error = fails(&text).to_lowercase();
    assert!(
        error.contains("table known: ") && error.contains("name"),
        "{error}"
    );
    let twice = format!(
        "{orders}{known}INSERT INTO known SELECT n, metal FROM orders; INSERT INTO known SELECT n, metal \
         FROM orders;"
    );
    assert!(
        fails(&twice).contains("two queries write to table 'known'"),
        "{}",
        fails(&twice)
    );
    let updates = format!(
        "{orders}{known}INSERT INTO known SELECT n, metal FROM orders; SELECT k.name, s.c FROM \
        (SELECT customer, COUNT(*) AS c FROM orders GROUP BY customer) AS s JOIN known {now} AS k ON \
        s.customer = k.id;"
    );
    assert!(
        fails(&updates).contains("a second lookup of a row may return something else"),
        "{}",
        fails(&updates)
    );
    assert_eq!(database.rows("SELECT count(*) FROM known"), ["0"]);
}
