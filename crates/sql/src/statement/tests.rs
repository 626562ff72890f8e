//! Tests of parsing and rewriting statements.

use super::*;
use crate::types::SqlType;

fn tokens(text: &str) -> Vec<TokenWithSpan> {
    let tokens = Tokenizer::new(&DIALECT, text).tokenize_with_location();
    tokens.unwrap()
}

/// The text after rewriting, as the parser sees it.
fn rewritten(text: &str) -> String {
    let shown = rewrite(&tokens(text)).unwrap().into_iter();
    let shown = shown.map(|token| token.token.to_string());
    let text = shown.collect::<String>();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn only(text: &str) -> Statement {
    let mut statements = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(statements.len(), 1, "{text}");
    statements.remove(0).statement
}

fn table(text: &str) -> CreateTable {
    match only(text) {
        Statement::CreateTable(table) => *table,
        other => panic!("{text}: {other:?}"),
    }
}

fn refused(text: &str) -> String {
    parse(text).expect_err(text).render("q", text)
}

#[test]
fn window_functions_are_rewritten_for_the_parser() {
    let plain = "SELECT * FROM TUMBLE( t, DESCRIPTOR(ts), INTERVAL '1' SECOND) AS w";
    for text in [
        "SELECT * FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND) AS w",
        "SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)) AS w",
        "SELECT * FROM TABLE ( TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)) AS w",
        "SELECT * FROM table /* outer */ (TUMBLE(table t, DESCRIPTOR(ts), INTERVAL '1' SECOND)) AS w",
    ] {
        let shown = rewritten(text);
        let without_space = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(without_space(&shown), without_space(plain), "{text}");
        only(text);
    }
}

#[test]
fn only_window_functions_are_rewritten() {
    for text in [
        "SELECT f(a, (b + c)) FROM t WHERE (a = 1)",
        "SELECT \"TABLE\" FROM \"TUMBLE\"",
        "SELECT 'TABLE(TUMBLE(TABLE t))' FROM t",
        "CREATE TABLE t (a INT) WITH ('x' = 'y')",
    ] {
        assert_eq!(rewritten(text), text);
    }
    // The parentheses inside a window function's arguments are its own.
    assert_eq!(
        rewritten("SELECT * FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), (a), (b)))"),
        "SELECT * FROM HOP( t, DESCRIPTOR(ts), (a), (b))"
    );
    // A window function over a subquery over a window function.
    assert_eq!(
        rewritten("FROM TABLE(TUMBLE((SELECT * FROM TABLE(HOP(TABLE t, x))), y))"),
        "FROM TUMBLE((SELECT * FROM HOP( t, x)), y)"
    );
}

#[test]
fn semicolons_inside_strings_and_comments_do_not_separate_statements() {
    let text = "-- first; not a statement\nSELECT ';' FROM a; /* ; */ SELECT \";\" FROM b;;\n ; ";
    let statements = parse(text).unwrap();
    assert_eq!(statements.len(), 2);
    let first = |placed: &Placed| {
        let word = placed.tokens.iter().find(|token| !is_space(token));
        word.map(|token| token.span.start.line)
    };
    assert_eq!(
        statements.iter().map(first).collect::<Vec<_>>(),
        [Some(2), Some(2)]
    );
    assert!(parse("").unwrap().is_empty());
    assert!(parse(" -- nothing\n;;").unwrap().is_empty());
}

#[test]
fn quotes_of_names_and_strings_are_kept_apart() {
    let table = table(
        "CREATE TABLE \"my table\" (\"a b\" INT, \"it\"\"s\" STRING, c AS 'it''s')
         WITH ('connector' = 'file', 'path' = 'a''b;c', format = csv, 'x' = 7)",
    );
    assert_eq!(table.name.value, "my table");
    let names = table
        .columns
        .iter()
        .map(|column| column.name.value.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["a b", "it\"s", "c"]);
    let option = |name: &str| table.options[name].as_str();
    assert_eq!(["path", "format", "x"].map(option), ["a'b;c", "csv", "7"]);
    assert_eq!(table.option_places["path"].start.line, 2);
}

#[test]
fn row_types_may_use_angle_brackets_or_parentheses() {
    fn shown(sql_type: &SqlType) -> String {
        match sql_type {
            SqlType::Simple(simple, _) => simple.to_string(),
            SqlType::Row(fields) => {
                let fields = fields
                    .iter()
                    .map(|(name, sql_type)| format!("{name}:{}", shown(sql_type)));
                format!("({})", fields.collect::<Vec<_>>().join(","))
            }
            SqlType::Given(data_type) => data_type.to_string(),
        }
    }
    for (written, expected) in [
        ("ROW<a INT, b ROW<c STRING>>", "(a:INT,b:(c:STRING))"),
        (
            "ROW(a INT, b STRUCT<c ROW<d BIGINT>>)",
            "(a:INT,b:(c:(d:BIGINT)))",
        ),
        (
            "ROW<a DECIMAL(10, 2), b ARRAY<INT>>",
            "(a:DECIMAL(10,2),b:ARRAY<INT>)",
        ),
        ("ROW<`a` INT>", "(a:INT)"),
    ] {
        let table = table(&format!("CREATE TABLE t (x {written}, y INT)"));
        assert_eq!(table.columns.len(), 2, "{written}");
        match &table.columns[0].kind {
            ColumnKind::Physical(sql_type) => assert_eq!(shown(sql_type), expected),
            other => panic!("{written} is {other:?}"),
        }
    }
    assert!(refused("CREATE TABLE t (x ROW)").contains("a ROW needs its fields"));
    assert!(refused("CREATE TABLE t (x ROW<a INT)").contains("expected ',' or '>'"));
}

#[test]
fn metadata_has_the_name_of_its_column_or_another() {
    let table = table(
        "CREATE TABLE t (a INT, at TIMESTAMP(3) METADATA FROM 'timestamp' VIRTUAL, \
         offset BIGINT METADATA, metadata STRING)",
    );
    let keys = table.columns.iter().map(|column| match &column.kind {
        ColumnKind::Metadata(_, key) => key.as_str(),
        _ => "",
    });
    assert_eq!(keys.collect::<Vec<_>>(), ["", "timestamp", "offset", ""]);
    assert!(refused("CREATE TABLE t (a INT METADATA FROM)").contains("the source's name"));
}

#[test]
fn a_watermark_is_not_a_column_but_a_column_may_have_its_name() {
    let table = table(
        "CREATE TABLE t (watermark INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)",
    );
    assert_eq!(table.columns.len(), 2);
    let (column, delay) = table.watermark.unwrap();
    assert_eq!(column.value, "ts");
    assert_eq!(delay.to_string(), "ts - INTERVAL '1' SECOND");
}

#[test]
fn set_accepts_strings_words_and_numbers() {
    for (text, expected) in [
        ("SET 'linger' = '10 ms'", ("linger", "10 ms")),
        ("SET parallelism = 2", ("parallelism", "2")),
        ("set \"emit\" TO every_row", ("emit", "every_row")),
    ] {
        match only(text) {
            Statement::Set { key, value } => {
                assert_eq!((key.as_str(), value.as_str()), expected);
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn errors_point_at_the_wrong_words() {
    for (text, place, hint) in [
        (
            "SELECT a FORM t",
            "q:1:10: syntax error at 'FORM'",
            "did you mean FROM?",
        ),
        (
            "SELECT a FROM t WERE a = 1",
            "q:1:17: syntax error at 'WERE'",
            "did you mean WHERE?",
        ),
        (
            "CREATE TABLE t (a INT, WATERMRK FOR a AS a)",
            "q:1:24: syntax error at 'WATERMRK'",
            "did you mean WATERMARK?",
        ),
        (
            "SELECT CASE WHEN a THEN b FROM t",
            "q:1:8: CASE has no END",
            "END",
        ),
        (
            "SELECT a\nFROM t WHERE",
            "q:2:8: expected an expression",
            "",
        ),
        (
            "SELECT a FROM t /* no end",
            "q:1:17: the comment is not closed",
            "*/",
        ),
        ("SELECT 'a", "q:1:8: the string is not closed", "'"),
        (
            "CREATE TABEL t (a INT)",
            "q:1:8: CREATE TABEL",
            "CREATE TABLE",
        ),
    ] {
        let shown = refused(text);
        assert!(shown.starts_with(place), "{shown}");
        assert!(shown.contains(hint), "{shown}");
    }
}

#[test]
fn a_column_named_table_is_not_a_misspelled_window_function() {
    let shown = refused("CREATE TABLE t (table STRING, a INT b)");
    assert!(shown.contains("expected ',' or ')', found 'b'"), "{shown}");
}

#[test]
fn a_statement_set_contains_its_inserts() {
    for text in [
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1 FROM t; INSERT INTO b SELECT 2 FROM t; END;",
        "BEGIN STATEMENT SET; INSERT INTO a SELECT 1 FROM t; INSERT INTO b SELECT 2 FROM t; END",
        "EXECUTE INSERT INTO a SELECT 1 FROM t; INSERT INTO b SELECT 2 FROM t",
    ] {
        let statements = parse(text).unwrap();
        let are_inserts = statements
            .iter()
            .all(|placed| matches!(placed.statement, Statement::Insert { .. }));
        assert!(are_inserts && statements.len() == 2, "{text}");
    }
    let explained = "EXPLAIN STATEMENT SET BEGIN INSERT INTO a SELECT 1 FROM t; END";
    assert!(matches!(only(explained), Statement::Explain(_)));
    assert!(refused("BEGIN STATEMENT SET; INSERT INTO a SELECT 1 FROM t").contains("has no END"));
    assert!(refused("SELECT 1 FROM t; END").contains("END has no"));
}

#[test]
fn names_of_settings_need_no_quotes() {
    for (text, expected) in [
        (
            "SET table.exec.mini-batch.enabled = true",
            "table.exec.mini-batch.enabled",
        ),
        ("SET 'a.b' = 'c'", "a.b"),
    ] {
        match only(text) {
            Statement::Set { key, .. } => assert_eq!(key, expected),
            other => panic!("{text}: {other:?}"),
        }
    }
    assert!(matches!(only("RESET"), Statement::Reset(None)));
    match only("RESET table.exec.state.ttl") {
        Statement::Reset(Some(key)) => assert_eq!(key, "table.exec.state.ttl"),
        other => panic!("{other:?}"),
    }
}
