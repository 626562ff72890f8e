//! Statements: simple and extended, with all types, errors, and transactions.

use std::time::Duration;

use postgres::types::Type;
use postgres::{NoTls, SimpleQueryMessage};

use super::{client, code, config, door, rows};
use slackwater_serve::postgres::Limits;

#[test]
fn a_text_of_several_statements_is_answered_in_order() {
    let (_door, mut client) = client();
    let found = rows(
        &mut client,
        "SELECT * FROM numbers LIMIT 2; SHOW server_encoding; ; SELECT version()",
    );
    assert_eq!(
        found[..3],
        [vec!["0", "-"], vec!["1", "number 1"], vec!["UTF8"]]
    );
    assert!(
        found[3][0].starts_with("PostgreSQL 15.0 (Slackwater "),
        "{found:?}"
    );
}

#[test]
fn empty_statements_are_answered() {
    let (_door, mut client) = client();
    for text in ["", " ; ", "-- ping", "/* nothing */;"] {
        assert_eq!(rows(&mut client, text), [[""; 0]; 0]);
    }
    let prepared = client.prepare("").unwrap();
    assert!(client.query(&prepared, &[]).unwrap().is_empty());
}

#[test]
fn every_type_has_a_text() {
    let (_door, mut client) = client();
    let found = rows(&mut client, "SELECT * FROM types");
    assert_eq!(
        found[0],
        [
            "t",
            "-8",
            "-16",
            "32",
            "9223372036854775807",
            "1.5",
            "1e300",
            "-1234567890123456789012345678.9012345678",
            "12.50",
            "größe, \"x\"",
            "\\x00ff",
            "2024-02-29",
            "12:34:56.789",
            "2024-02-29 12:34:56.789",
            "2024-02-29 12:34:56.789+00",
            "1 year 2 mons 3 days 04:05:06.5",
            "{1,NULL,3}",
            "{\"a b\",\"\\\"c\\\"\",\"NULL\",NULL}",
            "{\"x\":7,\"y \\\"z\\\"\":\"q\\n\"}",
        ]
    );
    assert_eq!(found[1].iter().filter(|value| *value == "-").count(), 18);
}

#[test]
fn prepared_statements_take_parameters_and_return_binary_values() {
    let (_door, mut client) = client();
    let prepared = client
        .prepare("SELECT n, name FROM numbers WHERE n = $1")
        .unwrap();
    assert_eq!(prepared.params(), [Type::INT8]);
    let columns: Vec<_> = prepared
        .columns()
        .iter()
        .map(|column| (column.name(), column.type_().clone()))
        .collect();
    assert_eq!(columns, [("n", Type::INT8), ("name", Type::TEXT)]);
    for n in [0_i64, 4, 1 << 40] {
        let row = client.query_one(&prepared, &[&n]).unwrap();
        let name = (n % 3 != 0).then(|| format!("number {n}"));
        assert_eq!(
            (row.get::<_, i64>(0), row.get::<_, Option<String>>(1)),
            (n, name)
        );
    }
    assert_eq!(code(client.query("SELECT * from nothing", &[])), "42P01");
}

#[test]
fn binary_values_are_those_of_the_types() {
    let (_door, mut client) = client();
    let found = client.query("SELECT * FROM types", &[]).unwrap();
    let row = &found[0];
    assert_eq!(
        (
            row.get::<_, bool>(0),
            row.get::<_, i16>(1),
            row.get::<_, i32>(3)
        ),
        (true, -8, 32)
    );
    assert_eq!(
        (
            row.get::<_, i64>(4),
            row.get::<_, f32>(5),
            row.get::<_, f64>(6)
        ),
        (i64::MAX, 1.5, 1e300)
    );
    assert_eq!(
        (row.get::<_, &str>(9), row.get::<_, &[u8]>(10)),
        ("größe, \"x\"", &[0, 255][..])
    );
    assert_eq!(row.get::<_, Vec<Option<i32>>>(16), [Some(1), None, Some(3)]);
    assert_eq!(
        row.get::<_, Vec<Option<&str>>>(17),
        [Some("a b"), Some("\"c\""), Some("NULL"), None]
    );
    assert_eq!(*row.columns()[14].type_(), Type::TIMESTAMPTZ);
    assert_eq!(*row.columns()[18].type_(), Type::JSON);
    assert_eq!(found[1].get::<_, Option<f64>>(6), None);
}

#[test]
fn errors_have_a_code_a_hint_and_a_place() {
    let (_door, mut client) = client();
    let error = client
        .batch_execute("SHOW TimeZone;\n größe SELEC 1")
        .unwrap_err();
    let report = error.as_db_error().unwrap();
    assert_eq!(report.code().code(), "42601");
    assert_eq!(report.hint(), Some("did you mean SELECT?"));
    assert_eq!(
        report.position(),
        Some(&postgres::error::ErrorPosition::Original(23))
    );
    assert_eq!(code(client.prepare("SELEC 1")), "42601");
    assert_eq!(
        code(client.query("SELECT fails FROM numbers", &[])),
        "55000"
    );
    assert_eq!(
        code(client.query("SELECT n FROM numbers WHERE n = 1; SELECT 2", &[])),
        "42601"
    );
    assert_eq!(
        code(client.query("SELECT panic FROM numbers", &[])),
        "XX000"
    );
    assert_eq!(rows(&mut client, "SELECT * FROM numbers LIMIT 1").len(), 1);
}

#[test]
fn what_the_catalog_does_not_know_is_the_sessions() {
    let (_door, mut client) = client();
    for text in [
        "SELECT DATE '2024-01-01'",
        "SELECT n",
        "SELECT '2024-01-01'::date",
        "SELECT now()",
        "SELECT 1 + 1",
        // They have errors and values that the catalog's engine does not know.
        "SELECT 1/0",
        "SELECT 3000000000",
        "SELECT 1e10",
        "SELECT cast('7' as int)",
        "SELECT '12abc'::int",
        "SELECT cast('x' as boolean)",
    ] {
        // The fake session answers every query with its numbers.
        assert_eq!(rows(&mut client, text).len(), 10_000, "{text}");
    }
    assert_eq!(
        rows(
            &mut client,
            "SELECT 1 AS \"x y\", 'a'::text, NULL, true, cast('7' as varchar)"
        )
        .len(),
        1
    );
}

#[test]
fn transactions_fail_and_end() {
    let (_door, mut client) = client();
    client
        .batch_execute("BEGIN; SELECT n FROM numbers LIMIT 1")
        .unwrap();
    assert_eq!(code(client.batch_execute("SELEC 1")), "42601");
    assert_eq!(code(client.batch_execute("SHOW TimeZone")), "25P02");
    assert_eq!(code(client.prepare("SHOW TimeZone")), "25P02");
    let ended = client.simple_query("COMMIT").unwrap();
    assert!(matches!(
        ended[..],
        [SimpleQueryMessage::CommandComplete(0)]
    ));
    assert_eq!(rows(&mut client, "SHOW TimeZone"), [["UTC"]]);
    let mut transaction = client.transaction().unwrap();
    let mut inner = transaction.savepoint("here").unwrap();
    assert_eq!(code(inner.batch_execute("SELEC 1")), "42601");
    inner.rollback().unwrap();
    assert_eq!(
        transaction
            .query("SELECT * FROM numbers LIMIT 3", &[])
            .unwrap()
            .len(),
        3
    );
    transaction.commit().unwrap();
}

#[test]
fn what_is_created_stays_and_the_client_is_told() {
    let door = door(None, Limits::default());
    let (tell, told) = std::sync::mpsc::channel();
    let mut config = config(&door);
    config.notice_callback(move |notice| tell.send(notice.message().to_owned()).unwrap());
    let mut client = config.connect(NoTls).unwrap();
    client
        .batch_execute("BEGIN; CREATE TABLE made; ROLLBACK")
        .unwrap();
    assert_eq!(told.recv().unwrap(), "made is done");
    assert!(told.recv().unwrap().contains("is not undone"));
    assert_eq!(code(client.batch_execute("CREATE TABLE made")), "42P07");
}

#[test]
fn settings_are_kept_and_checked() {
    let (_door, mut client) = client();
    client
        .batch_execute("SET statement_timeout = '2 min'; SET application_name TO \"tests\"")
        .unwrap();
    assert_eq!(
        rows(&mut client, "SHOW statement_timeout; SHOW application_name"),
        [["120000"], ["tests"]]
    );
    assert_eq!(
        rows(&mut client, "SELECT current_setting('application_name')"),
        [["tests"]]
    );
    client.batch_execute("RESET ALL").unwrap();
    assert_eq!(rows(&mut client, "SHOW statement_timeout"), [["0"]]);
    assert_eq!(
        code(client.batch_execute("SET client_encoding = 'LATIN1'")),
        "22023"
    );
}

#[test]
fn a_statement_is_cancelled_by_its_client_and_by_its_time() {
    let (_door, mut client) = client();
    let token = client.cancel_token();
    let cancels = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        token.cancel_query(NoTls).unwrap();
    });
    assert_eq!(
        code(client.batch_execute("SELECT sleep FROM numbers")),
        "57014"
    );
    cancels.join().unwrap();
    client
        .batch_execute("SET statement_timeout = '50ms'")
        .unwrap();
    assert_eq!(
        code(client.query("SELECT sleep FROM numbers", &[])),
        "57014"
    );
    // The time is that of the whole statement, not of a piece of its rows.
    assert_eq!(
        code(client.batch_execute("SELECT endless FROM numbers LIMIT 9000000000")),
        "57014"
    );
}

#[test]
fn prepared_statements_are_bounded() {
    let (_door, mut client) = client();
    let mut kept = vec![];
    let refused = loop {
        match client.prepare("SELECT n FROM numbers WHERE n = $1") {
            Ok(statement) => kept.push(statement),
            Err(error) => break error,
        }
        assert!(kept.len() <= 1_000);
    };
    assert_eq!(code(Err::<(), _>(refused)), "54000");
    kept.clear();
    assert_eq!(
        client
            .query("SELECT n FROM numbers WHERE n = $1", &[&3_i64])
            .unwrap()
            .len(),
        1
    );
}
