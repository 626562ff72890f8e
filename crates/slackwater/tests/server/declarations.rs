//! Statements that declare, list, change and drop.

use super::{Server, table, write_input};

#[test]
fn what_is_declared_is_listed_and_described() {
    let folder = tempfile::tempdir().unwrap();
    write_input(folder.path(), 100);
    let server = Server::start(folder.path());
    server.run(&[
        &table(folder.path(), ""),
        "CREATE VIEW large AS SELECT * FROM numbers WHERE v > 500",
        "CREATE MATERIALIZED VIEW sums AS SELECT k, COUNT(*) AS n, SUM(v) AS total FROM large GROUP BY k",
        "CREATE SINK written AS SELECT k, v FROM large WITH ('connector' = 'file', 'path' = 'out.csv')",
        "INSERT INTO nothing SELECT 1",
    ][..4]);
    assert_eq!(server.rows("SHOW TABLES"), ["numbers|file"]);
    assert_eq!(server.rows("SHOW VIEWS"), ["large"]);
    server.wait_for("SHOW MATERIALIZED VIEWS", &["sums|finished"]);
    server.wait_for("SHOW SINKS", &["written|file|finished"]);
    let jobs = server.rows("SHOW JOBS");
    assert!(
        jobs[0].starts_with("sums|materialized view|finished|"),
        "{jobs:?}"
    );
    assert_eq!(jobs[1], "written|sink|finished|NULL|1|NULL||state/4");
    assert!(server.rows("SHOW FUNCTIONS").contains(&"upper".to_string()));
    let columns = server.rows("DESCRIBE sums");
    assert_eq!(
        columns,
        ["k|BIGINT||PRIMARY KEY", "n|BIGINT||", "total|BIGINT||"]
    );
    let created = server.rows("SHOW CREATE VIEW large");
    assert_eq!(
        created,
        ["CREATE VIEW large AS SELECT * FROM numbers WHERE v > 500"]
    );
    let settings = server.rows("SHOW SETTINGS");
    assert!(
        settings
            .iter()
            .any(|line| line.starts_with("latency_target|")),
        "{settings:?}"
    );
    let plan = server.rows("EXPLAIN CREATE MATERIALIZED VIEW w AS SELECT k FROM numbers");
    assert!(plan.iter().any(|line| line.contains("numbers")), "{plan:?}");
    // The rows are in the file, and those of a finished view are still there.
    assert_eq!(
        std::fs::read_to_string(folder.path().join("out.csv"))
            .unwrap()
            .lines()
            .count(),
        48
    );
}

#[test]
fn columns_that_are_never_null_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    server.run(&[
        "CREATE TABLE t (a BIGINT NOT NULL, b AS a + 1, c STRING, d INT NOT NULL)
                  WITH ('connector' = 'blackhole')",
    ]);
    assert_eq!(
        server.rows("DESCRIBE t"),
        [
            "a|BIGINT|NOT NULL|",
            "b|BIGINT||",
            "c|STRING||",
            "d|INT|NOT NULL|"
        ]
    );
    let columns = "SELECT attname, attnotnull FROM pg_catalog.pg_attribute
                   WHERE attrelid = 't'::regclass AND attnum > 0";
    assert_eq!(server.rows(columns), ["a|t", "b|f", "c|f", "d|t"]);
}

#[test]
fn errors_name_the_place_and_the_fix() {
    let folder = tempfile::tempdir().unwrap();
    write_input(folder.path(), 10);
    let server = Server::start(folder.path());
    server.run(&[&table(folder.path(), "")]);
    let error = server.error("CREATE VIEW v AS SELECT kk FROM numbers");
    assert!(
        error.contains("Original(25)") && error.contains("'k'"),
        "{error}"
    );
    let error = server.error("CREATE MATERIALIZED VIEW v AS\nSELECT k FROM number");
    assert!(
        error.starts_with("42P01") && error.contains("did you mean 'numbers'"),
        "{error}"
    );
    let error =
        server.error("CREATE TABLE numbers (a INT) WITH ('connector' = 'file', 'path' = 'x')");
    assert!(
        error.starts_with("42P07") && error.contains("already a table"),
        "{error}"
    );
    let error = server.error("DROP VIEW numbers");
    assert!(error.contains("not a view, but a table"), "{error}");
    let error = server.error("STOP JOB v");
    assert!(error.contains("no job 'v'"), "{error}");
    let error = server.error("SHOW TABELS");
    assert!(error.contains("SHOW TABLES"), "{error}");
    let error = server.error("SET 'latency_target' = 'soon'");
    assert!(error.contains("not a valid value"), "{error}");
    // A job that can't start is not declared.
    let error = server.error(
        "CREATE SINK s AS SELECT k FROM numbers
         WITH ('connector' = 'file', 'path' = 'no/such/folder/out.csv')",
    );
    assert!(error.contains("no/such/folder"), "{error}");
    assert!(server.rows("SHOW JOBS").is_empty());
}

#[test]
fn what_others_depend_on_is_dropped_with_them() {
    let folder = tempfile::tempdir().unwrap();
    write_input(folder.path(), 10);
    let server = Server::start(folder.path());
    server.run(&[
        &table(folder.path(), ""),
        "CREATE VIEW a AS SELECT k FROM numbers",
        "CREATE MATERIALIZED VIEW b AS SELECT k, COUNT(*) AS numbers FROM a GROUP BY k",
        "CREATE MATERIALIZED VIEW c AS SELECT COUNT(*) AS n FROM b",
    ]);
    let error = server.error("DROP TABLE numbers");
    assert!(error.starts_with("2BP01"), "{error}");
    assert!(
        error.contains("view 'a', materialized view 'b', materialized view 'c'"),
        "{error}"
    );
    server.run(&[
        "DROP MATERIALIZED VIEW c",
        "DROP VIEW IF EXISTS nothing",
        "DROP TABLE numbers CASCADE",
    ]);
    assert!(server.rows("SHOW TABLES").is_empty());
    assert!(server.rows("SHOW VIEWS").is_empty());
    assert!(server.rows("SHOW JOBS").is_empty());
    let left = std::fs::read_dir(folder.path().join("data/state"));
    assert_eq!(left.map_or(0, Iterator::count), 0, "no state is left");
}

#[test]
fn jobs_are_stopped_started_and_changed() {
    let folder = tempfile::tempdir().unwrap();
    write_input(folder.path(), 2_000);
    let server = Server::start(folder.path());
    server.run(&[
        &table(folder.path(), "400/s"),
        "CREATE SINK written AS SELECT id FROM numbers WITH ('connector' = 'file', 'path' = 'out.csv')",
        "STOP JOB written",
    ]);
    assert_eq!(server.rows("SHOW SINKS"), ["written|file|stopped"]);
    server.run(&["STOP JOB 'written'", "START JOB written"]);
    server.run(&["ALTER JOB written SET ('parallelism' = '2')"]);
    assert_eq!(server.rows("SHOW SINKS"), ["written|file|running"]);
    let error = server.error("ALTER JOB written SET ('parallelism' = 'many')");
    assert!(error.contains("not a valid value"), "{error}");
    server.wait_for("SHOW SINKS", &["written|file|finished"]);
    let written = std::fs::read_to_string(folder.path().join("out.csv")).unwrap();
    let mut ids = written
        .lines()
        .map(|line| line.parse::<u64>().unwrap())
        .collect::<Vec<u64>>();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..2_000));
}

#[test]
fn tables_of_queries_and_inserts_are_jobs() {
    let folder = tempfile::tempdir().unwrap();
    write_input(folder.path(), 100);
    let server = Server::start(folder.path());
    let input = table(folder.path(), "");
    server.run(&[
        &input,
        "CREATE TABLE small WITH ('connector' = 'file', 'path' = 'small.csv')
         AS SELECT id, v FROM numbers WHERE v < 100",
        "CREATE TABLE a (id BIGINT) WITH ('connector' = 'file', 'path' = 'a.csv')",
        "CREATE TABLE b (id BIGINT) WITH ('connector' = 'file', 'path' = 'b.csv')",
        "BEGIN STATEMENT SET; INSERT INTO a SELECT id FROM numbers WHERE k = 1; \
         INSERT INTO b SELECT id FROM numbers WHERE k = 2; END",
    ]);
    let mut client = server.client();
    for statement in [
        "CREATE TABLE c (id BIGINT) WITH ('connector' = 'file', 'path' = 'c.csv')",
        "SET 'pipeline.name' = 'again'",
        "INSERT INTO c SELECT id FROM numbers",
    ] {
        client.batch_execute(statement).unwrap();
    }
    let names = || {
        let jobs = server.rows("SHOW JOBS");
        jobs.iter()
            .map(|row| row.split('|').take(3).collect::<Vec<&str>>().join("|"))
            .collect::<Vec<String>>()
    };
    while names()
        != [
            "again|insert|finished",
            "insert_into_a|insert|finished",
            "insert_into_small|insert|finished",
        ]
    {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let lines = |name: &str| {
        std::fs::read_to_string(folder.path().join(name))
            .unwrap()
            .lines()
            .count()
    };
    let of = |k: u64| (0..100).filter(|id| id % 7 == k).count();
    assert_eq!((lines("a.csv"), lines("b.csv")), (of(1), of(2)));
    assert_eq!(
        lines("small.csv"),
        (0..100).filter(|id| id * 31 % 1000 < 100).count()
    );
    assert_eq!(
        server.rows("SHOW TABLES"),
        ["a|file", "b|file", "c|file", "numbers|file", "small|file"]
    );
}

#[test]
fn a_changed_query_says_what_state_it_goes_on_with_or_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    write_input(folder.path(), 700);
    let server = Server::start(folder.path());
    server.run(&[
        &table(folder.path(), ""),
        "CREATE MATERIALIZED VIEW sums AS SELECT k, COUNT(*) AS n FROM numbers GROUP BY k",
    ]);
    let counted = (0..7).map(|k| format!("{k}|100")).collect::<Vec<_>>();
    server.wait_for(
        "SELECT k, n FROM sums",
        &counted.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    // All of it is in a checkpoint.
    server.wait_for("SHOW MATERIALIZED VIEWS", &["sums|finished"]);
    // The state of another aggregate is of no use.
    let other = "ALTER MATERIALIZED VIEW sums AS SELECT k, SUM(v) AS n FROM numbers GROUP BY k";
    let error = server.error(other);
    assert!(
        error.contains("'sums' stays as it is, because its state does not fit"),
        "{error}"
    );
    assert_eq!(server.rows("SELECT k, n FROM sums"), counted);
    // What comes after the aggregate has no state.
    let (sender, notices) = std::sync::mpsc::channel();
    let mut config = postgres::Config::new();
    config
        .host("127.0.0.1")
        .port(server.port)
        .user("me")
        .dbname("slackwater");
    config.notice_callback(move |notice| sender.send(notice.message().to_string()).unwrap());
    let mut client = config.connect(postgres::NoTls).unwrap();
    let other = "ALTER MATERIALIZED VIEW sums AS
                 SELECT k, COUNT(*) AS n FROM numbers GROUP BY k HAVING k > 4";
    client.batch_execute(other).unwrap();
    drop((client, config));
    let notices = notices.iter().collect::<Vec<_>>();
    assert!(
        notices
            .iter()
            .any(|notice| notice.contains("continues with 7 stored rows")),
        "{notices:?}"
    );
}

#[test]
fn a_hint_at_the_end_of_a_statement_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    write_input(folder.path(), 10);
    let server = Server::start(folder.path());
    server.run(&[&table(folder.path(), "")]);
    let create =
        "CREATE MATERIALIZED VIEW v AS SELECT k FROM numbers /*+ OPTIONS('on_error' = 'fail') */";
    server.run(&[&format!("{create} ; -- the end")]);
    assert_eq!(server.rows("SHOW CREATE MATERIALIZED VIEW v"), [create]);
    let error = server.error(&create.replace("on_error", "on_errr").replace(" v ", " w "));
    assert!(error.contains("on_errr"), "{error}");
}

/// psql sends what stands between semicolons, and so do drivers.
#[test]
fn a_statement_set_may_come_statement_by_statement() {
    let folder = tempfile::tempdir().unwrap();
    write_input(folder.path(), 10);
    let server = Server::start(folder.path());
    server.run(&[
        &table(folder.path(), ""),
        "CREATE TABLE a (id BIGINT) WITH ('connector' = 'file', 'path' = 'a.csv')",
        "CREATE TABLE b (id BIGINT) WITH ('connector' = 'file', 'path' = 'b.csv')",
    ]);
    let mut client = server.client();
    client.batch_execute("BEGIN STATEMENT SET").unwrap();
    client
        .batch_execute("INSERT INTO a SELECT id FROM numbers")
        .unwrap();
    let error = client.batch_execute("SHOW JOBS").unwrap_err();
    assert!(
        super::message(&error).contains("a STATEMENT SET is open"),
        "{error}"
    );
    client.batch_execute("ROLLBACK").unwrap();
    assert!(server.rows("SHOW JOBS").is_empty());
    // Prepared, too.
    client
        .execute(
            "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT id FROM numbers",
            &[],
        )
        .unwrap();
    client
        .execute("INSERT INTO b SELECT id FROM numbers", &[])
        .unwrap();
    client.execute("END", &[]).unwrap();
    let jobs = server.rows("SHOW JOBS");
    assert_eq!(jobs.len(), 1, "{jobs:?}");
}
