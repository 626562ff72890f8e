//! Tables of PostgreSQL against a real server: `make test-postgres` starts one.

use std::fs;
use std::time::Duration;

use crate::sqlite::crash;
use crate::sqlite::queries::{self, Database, table};
use crate::support::run_text;
use server::{PASSWORD, Server, programs};

mod server;

#[test]
fn queries_against_a_server() {
    let Some(programs) = programs() else {
        return;
    };
    let server = Server::start(programs);
    queries::lookups_are_the_table_join_of_the_moment(&server);
    queries::what_is_written_is_there(&server);
    queries::a_key_that_is_not_the_query_s(&server);
    queries::what_is_wrong_is_said(&server);
    what_a_server_refuses(&server);
    every_type_there_and_back(&server);
    other_schemas_and_types(&server);
    slow_answers_are_waited_for(&server);
}

#[test]
fn no_row_is_lost_or_doubled_when_the_query_is_killed() {
    let Some(programs) = programs() else {
        return;
    };
    crash::no_row_is_lost_or_doubled(&Server::start(programs));
}

#[test]
fn a_server_that_goes_away() {
    let Some(programs) = programs() else {
        return;
    };
    let mut server = Server::start(programs);
    one_that_is_away_is_waited_for(&mut server);
    one_that_comes_back_is_asked_again(&mut server);
    one_that_stays_away_ends_the_query(&mut server);
    writing_goes_on_from_the_checkpoint(&mut server);
}

/// The rows of `out.csv`.
fn out(server: &Server) -> Vec<String> {
    let text = fs::read_to_string(server.folder().join("out.csv")).unwrap();
    text.lines().map(str::to_string).collect()
}

/// Two columns of numbers from a file, at so many rows a second, and where rows go.
fn numbers(server: &Server, rows: usize, rate: usize) -> String {
    let folder = server.folder().display();
    let lines = (0..rows).map(|n| format!("{n},{}\n", n % 10));
    fs::write(
        server.folder().join("numbers.csv"),
        lines.collect::<String>(),
    )
    .unwrap();
    let rate = match rate {
        0 => String::new(),
        rate => format!(", 'replay_rate' = '{rate}'"),
    };
    format!(
        "CREATE TABLE numbers (n BIGINT, key INT) WITH ('connector' = 'file', 'path' = \
         '{folder}/numbers.csv' {rate});
         CREATE TABLE out (n BIGINT, name STRING) WITH ('connector' = 'file', 'path' = '{folder}/out.csv', \
         'overwrite' = 'true');\n"
    )
}

const LOOKED_UP: &str = "INSERT INTO out SELECT n, name FROM numbers JOIN names FOR SYSTEM_TIME AS OF \
                         PROCTIME() \
                         ON numbers.key = names.id;";

fn names(server: &Server, options: &str) -> String {
    table(server, "names", "id INT, name STRING", options)
}

fn make_names(server: &Server) {
    server.run("CREATE TABLE names AS SELECT i::int AS id, 'name ' || i AS name FROM generate_series(0, 9) \
                AS s(i)");
}

fn what_a_server_refuses(server: &Server) {
    make_names(server);
    let numbers = numbers(server, 10, 0);
    let address = server.address();
    let fails = |names: &str| {
        let error = run_text(&format!("{numbers}{names}{LOOKED_UP}"), &[]).unwrap_err();
        assert!(
            !error.contains(PASSWORD) && !error.contains("secret"),
            "{error}"
        );
        error
    };
    let table_with = |options: &str| {
        format!(
            "CREATE TABLE names (id INT, name STRING) WITH ('connector' = 'postgres' {options});\n"
        )
    };
    let url = format!(", 'url' = 'postgresql://tester:secret@{address}/postgres'");
    let error = fails(&table_with(&url));
    let place = format!("postgres {address}/postgres, table names: ");
    assert!(error.contains(&place), "{error}");
    assert!(
        error.contains("password authentication failed for user \"tester\""),
        "{error}"
    );
    assert!(error.contains("PGPASSWORD"), "{error}");
    let url = format!(", 'url' = 'postgresql://tester@{address}/none', 'password' = '{PASSWORD}'");
    let error = fails(&table_with(&url));
    assert!(
        error.contains("database \"none\" does not exist"),
        "{error}"
    );
    let tls = format!(", 'url' = 'postgresql://tester:secret@{address}/postgres?sslmode=require'");
    assert!(fails(&table_with(&tls)).contains("asks for TLS, which is not supported yet"));
    let error = fails(&table_with(
        ", 'url' = 'postgresql://tester:secret@:no/port'",
    ));
    assert!(error.contains("option 'url': can't be read"), "{error}");
    let error = fails(&table_with(""));
    assert!(error.contains("option 'url': is missing"), "{error}");
    // Types that do not fit.
    let text = table(server, "names", "id STRING, name INT", "");
    let error = fails(&text.replace("id STRING", "id INT"));
    assert!(
        error.contains("column 'name' is declared INT, but is text in the database"),
        "{error}"
    );
    // No unique index for the primary key.
    let keyed = table(
        server,
        "names",
        "id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED",
        "",
    );
    let error = run_text(
        &format!("{numbers}{keyed}INSERT INTO names SELECT CAST(n AS INT), 'x' FROM numbers;"),
        &[],
    );
    let error = error.unwrap_err();
    assert!(
        error.contains("needs a unique index over the columns of PRIMARY KEY"),
        "{error}"
    );
}

fn every_type_there_and_back(server: &Server) {
    let columns = "i BIGINT, s SMALLINT, x DOUBLE, f FLOAT, b BOOLEAN, d DECIMAL(20, 2), day DATE, at \
                   TIMESTAMP(3), \
                   z TIMESTAMP(6), t STRING, v STRING";
    let types = "i bigint, s smallint, x double precision, f real, b boolean, d numeric(20, 2), day date, \
                 at timestamp, z timestamptz, t text, v varchar(5)";
    server.run(&format!(
        "CREATE TABLE types ({types}); CREATE TABLE again ({types});
         INSERT INTO types VALUES (-9223372036854775808, -32768, 0.1, 1e30, true, 123456789012345678.90, \
         '2024-02-29',
           '2024-02-29 12:34:56.789', '2024-02-29 12:34:56.789012+02', 'é''\"\\, {{}}', 'abcde'),
           (1, NULL, 'NaN', '-Infinity', false, -0.01, '0001-01-01', '1969-12-31 23:59:59.999', NULL, '', \
           NULL);"
    ));
    let text = table(server, "types", columns, "")
        + &table(server, "again", columns, "")
        + "INSERT INTO again SELECT * FROM types;";
    run_text(&text, &[]).unwrap();
    let both = "SELECT count(*) FROM types AS a JOIN again AS b ON a.i = b.i AND a.* IS NOT DISTINCT FROM \
                b.*";
    assert_eq!(server.rows(both), ["2"]);
    // A text that is too long is no value of the column, and is not cut off.
    let text = table(server, "types", columns, "")
        + &table(server, "again", "i BIGINT, v STRING", "")
        + "INSERT INTO again SELECT i, t || t || 'longer' FROM types;";
    let error = run_text(&text, &[]).unwrap_err();
    assert!(
        error.contains("value too long for type character varying(5)"),
        "{error}"
    );
}

/// Another schema, a key that is no number, numbers that a column can't hold, and a type that has no own.
fn other_schemas_and_types(server: &Server) {
    server.run(
        "CREATE SCHEMA s; CREATE TABLE s.\"Odd Names\" (id smallint PRIMARY KEY, code char(4), name uuid);
         INSERT INTO s.\"Odd Names\" VALUES (1, 'ab', '00000000-0000-0000-0000-000000000001'), (2, 'cd', \
         NULL);",
    );
    let path = server.folder().join("keys.csv");
    fs::write(&path, "1,ab\n2,x\n70000,cd\n,ab\n").unwrap();
    let text = format!(
        "CREATE TABLE keys (id BIGINT, code STRING) WITH ('connector' = 'file', 'path' = '{}');\n",
        path.display()
    ) + &numbers(server, 1, 0)
        + &table(
            server,
            "odd",
            "id INT, code STRING, name STRING",
            ", 'table-name' = 's.Odd Names'",
        );
    for (join, expected) in [
        (
            "k.id = o.id",
            &["1,00000000-0000-0000-0000-000000000001", "2,"][..],
        ),
        (
            "k.code = o.code AND o.name IS NOT NULL",
            &[
                "1,00000000-0000-0000-0000-000000000001",
                ",00000000-0000-0000-0000-000000000001",
            ],
        ),
        (
            "o.name = '00000000-0000-0000-0000-000000000001' AND k.id = o.id",
            &["1,00000000-0000-0000-0000-000000000001"],
        ),
        ("k.code || 'x' = o.name", &[]),
    ] {
        let insert = format!(
            "INSERT INTO out SELECT k.id, o.name FROM keys AS k JOIN odd FOR SYSTEM_TIME AS OF PROCTIME() \
             AS o ON {join};"
        );
        run_text(&format!("{text}{insert}"), &[]).unwrap();
        assert_eq!(out(server), expected, "{join}");
    }
}

fn slow_answers_are_waited_for(server: &Server) {
    server.run("CREATE VIEW slow AS SELECT id, name || pg_sleep(0.05)::text AS name FROM names");
    let text = numbers(server, 1_000, 0)
        + &names(
            server,
            ", 'table-name' = 'slow', 'lookup.cache.max_rows' = '100'",
        )
        + LOOKED_UP;
    run_text(&text, &[("parallelism", "2"), ("chunk_rows", "50")]).unwrap();
    assert_eq!(out(server).len(), 1_000);
}

/// Starts a query on a thread of its own.
fn begin(text: String, settings: &[(&str, &str)]) -> std::thread::JoinHandle<Result<(), String>> {
    let settings = settings
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()));
    let settings = settings.collect::<Vec<_>>();
    std::thread::spawn(move || {
        let settings = settings.iter().map(|(key, value)| (&key[..], &value[..]));
        run_text(&text, &settings.collect::<Vec<_>>()).map(|_| ())
    })
}

fn one_that_is_away_is_waited_for(server: &mut Server) {
    make_names(server);
    server.stop();
    let text = numbers(server, 1_000, 0) + &names(server, ", 'max-retries' = '20'") + LOOKED_UP;
    let query = begin(text, &[]);
    std::thread::sleep(Duration::from_millis(500));
    assert!(!server.is_up() && !query.is_finished(), "it waits");
    server.restart();
    query.join().unwrap().unwrap();
    assert_eq!(out(server).len(), 1_000);
}

fn one_that_comes_back_is_asked_again(server: &mut Server) {
    let text = numbers(server, 3_000, 2_000) + &names(server, ", 'max-retries' = '20'") + LOOKED_UP;
    let query = begin(text, &[("chunk_rows", "10")]);
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(400));
        server.kill();
        server.restart();
    }
    query.join().unwrap().unwrap();
    let rows = out(server);
    assert_eq!(rows.len(), 3_000);
    assert_eq!(rows[2_999], "2999,name 9");
}

fn one_that_stays_away_ends_the_query(server: &mut Server) {
    server.stop();
    let address = server.address();
    let numbers = numbers(server, 10, 0);
    let names = names(server, ", 'lookup.max_retries' = '1'");
    for query in [
        LOOKED_UP,
        "INSERT INTO out SELECT * FROM names;",
        "INSERT INTO names SELECT 1, 'x' FROM numbers;",
    ] {
        let error = run_text(&format!("{numbers}{names}{query}"), &[]).unwrap_err();
        let place = format!("postgres {address}/postgres, table names: ");
        assert!(
            error.contains(&place) && error.contains("(tried 2 times)"),
            "{error}"
        );
        assert!(!error.contains(PASSWORD), "{error}");
    }
    server.restart();
}

/// A server that is killed while a query writes to it with checkpoints: the query restarts automatically.
fn writing_goes_on_from_the_checkpoint(server: &mut Server) {
    server.run(
        "CREATE TABLE plain (n bigint, key integer); CREATE TABLE last (key integer PRIMARY KEY, n bigint)",
    );
    let text = numbers(server, 6_000, 3_000)
        + &table(server, "plain", "n BIGINT, key INT", "")
        + &table(
            server,
            "last",
            "key INT, n BIGINT, PRIMARY KEY (key) NOT ENFORCED",
            "",
        )
        + "INSERT INTO plain SELECT n, key FROM numbers; INSERT INTO last SELECT key, n FROM numbers;";
    let query = server.folder().join("query.sql");
    fs::write(&query, text).unwrap();
    let run = std::process::Command::new(env!("CARGO_BIN_EXE_slackwater"))
        .args([
            "run",
            "query.sql",
            "--quiet",
            "--state",
            "state",
            "--parallelism",
            "2",
        ])
        .args([
            "--set",
            "checkpoint_interval=50 ms",
            "--set",
            "chunk_rows=100",
        ])
        .current_dir(server.folder())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(600));
        server.kill();
        server.restart();
    }
    let done = run.wait_with_output().unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let plain = "SELECT count(*), count(DISTINCT n), sum(n) FROM plain";
    assert_eq!(server.rows(plain), ["6000,6000,17997000"]);
    let last = "SELECT count(*), min(n), max(n) FROM last";
    assert_eq!(server.rows(last), ["10,5990,5999"]);
}
