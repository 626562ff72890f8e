//! Statements and clauses of other SQL dialects, with what to write instead.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::is_space;
use crate::error::{Result, SqlError, nearest};

/// Statements of other dialects: their first words, the error, and the hint.
const STATEMENTS: &[(&str, &str, &str)] = &[
    (
        "SHOW",
        "SHOW is not supported",
        "in the shell, \\d lists tables and views, \\df functions, and \\set settings",
    ),
    (
        "DESCRIBE",
        "DESCRIBE is not supported",
        "in the shell (slackwater sql FILE), \\d name describes a table or view",
    ),
    (
        "DESC",
        "DESC is not supported",
        "in the shell (slackwater sql FILE), \\d name describes a table or view",
    ),
    ("USE", NO_CATALOGS, LEAVE_CATALOGS),
    (
        "ADD",
        "ADD is not supported: there are no JARs",
        "remove it: connectors and formats are part of the program, and functions are added to a build \
        (docs/functions.md)",
    ),
    (
        "REMOVE",
        "REMOVE is not supported: there are no JARs",
        "remove it",
    ),
    (
        "LOAD",
        "LOAD MODULE is not supported",
        "remove it: docs/functions.md lists the functions",
    ),
    (
        "UNLOAD",
        "UNLOAD MODULE is not supported",
        "remove it: docs/functions.md lists the functions",
    ),
    (
        "DROP",
        "DROP is not supported: tables and views only exist during a run",
        "remove it, and the declaration that it would drop",
    ),
    (
        "ALTER",
        "ALTER is not supported: tables and views only exist during a run",
        "change the CREATE TABLE statement itself",
    ),
    ("DELETE", NO_CHANGES, CHANGES),
    ("UPDATE", NO_CHANGES, CHANGES),
    ("MERGE", NO_CHANGES, CHANGES),
    ("TRUNCATE", NO_CHANGES, CHANGES),
    (
        "ANALYZE",
        "ANALYZE is not supported",
        "remove it: plans don't depend on statistics of tables",
    ),
    (
        "COMPILE",
        "COMPILE PLAN is not supported",
        "remove it: a query that is run with --state DIR is restored from its SQL",
    ),
    (
        "EXECUTE",
        "EXECUTE must be followed by INSERT, SELECT or STATEMENT SET",
        "for example EXECUTE STATEMENT SET BEGIN INSERT INTO …; INSERT INTO …; END",
    ),
    (
        "BEGIN",
        "transactions are not supported",
        "remove it; a set of INSERTs starts with BEGIN STATEMENT SET",
    ),
    (
        "STATEMENT",
        "STATEMENT must be followed by SET BEGIN",
        "for example EXECUTE STATEMENT SET BEGIN INSERT INTO …; INSERT INTO …; END",
    ),
    (
        "START",
        "transactions are not supported",
        "remove it: with run --state DIR, sinks write exactly once",
    ),
    (
        "COMMIT",
        "transactions are not supported",
        "remove it: with run --state DIR, sinks write exactly once",
    ),
    (
        "ROLLBACK",
        "transactions are not supported",
        "remove it: with run --state DIR, sinks write exactly once",
    ),
    (
        "CALL",
        "CALL is not supported: there are no procedures",
        "remove it",
    ),
    (
        "STOP",
        "STOP is not supported: there is no server with jobs",
        "press Ctrl-C to end a query; with run --state DIR its state is saved",
    ),
    (
        "QUIT",
        "QUIT is only supported in the shell",
        "remove it: the program ends after the last statement",
    ),
    (
        "EXIT",
        "EXIT is only supported in the shell",
        "remove it: the program ends after the last statement",
    ),
    ("CLEAR", "CLEAR is not supported", "remove it"),
    (
        "HELP",
        "HELP is only supported in the shell",
        "run slackwater sql, then \\?",
    ),
];

const NO_CATALOGS: &str = "catalogs and databases are not supported";
const LEAVE_CATALOGS: &str =
    "remove it: a file declares the tables that it uses, and names of tables are not qualified";
const NO_CHANGES: &str = "existing rows can't be changed by a statement";
const CHANGES: &str = "filter rows with WHERE; a sink with a PRIMARY KEY is updated by its query";

/// The error for a statement that starts with these words.
pub(super) fn statement(words: &[&str]) -> SqlError {
    let first = words.first().copied().unwrap_or_default();
    if let Some((_, error, hint)) = STATEMENTS.iter().find(|(word, ..)| *word == first) {
        return SqlError::new(*error).hint(*hint);
    }
    let known = [
        "CREATE", "INSERT", "SELECT", "SET", "RESET", "EXPLAIN", "WITH",
    ]
    .map(String::from);
    let error = SqlError::new(format!("'{first}' is not a supported statement"));
    match nearest(first, &known) {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => error.hint(
            "the statements are CREATE TABLE, CREATE [MATERIALIZED] VIEW, CREATE SINK, CREATE FUNCTION, \
            INSERT INTO, SELECT, SET, RESET and EXPLAIN; a server also knows SHOW, DESCRIBE, SUBSCRIBE, \
            DROP, ALTER, STOP JOB and START JOB",
        ),
    }
}

/// CREATE statements of other dialects.
const CREATED: &[(&str, &str, &str)] = &[
    ("CATALOG", NO_CATALOGS, LEAVE_CATALOGS),
    ("DATABASE", NO_CATALOGS, LEAVE_CATALOGS),
    ("SCHEMA", NO_CATALOGS, LEAVE_CATALOGS),
    (
        "MATERIALIZED",
        "CREATE MATERIALIZED must be followed by VIEW",
        "use CREATE MATERIALIZED VIEW name AS SELECT …, which keeps the rows of a query",
    ),
    (
        "SOURCE",
        "CREATE SOURCE is not supported",
        "use CREATE TABLE … (…) WITH ('connector' = 'file', 'path' = 'in.csv')",
    ),
    (
        "STREAM",
        "CREATE STREAM is not supported",
        "use CREATE TABLE … (…) WITH ('connector' = 'file', 'path' = 'in.csv')",
    ),
    (
        "INDEX",
        "CREATE INDEX is not supported",
        "remove it: state is always indexed by key",
    ),
];

/// The error for `CREATE` of something other than a table or view.
pub(super) fn create(tokens: &[TokenWithSpan]) -> SqlError {
    let mut solid = tokens.iter().filter(|token| !is_space(token)).skip(1);
    let Some(first) = solid.next() else {
        return SqlError::new("CREATE must be followed by TABLE or VIEW")
            .hint("use CREATE TABLE or CREATE VIEW");
    };
    if word(first) == "OR" {
        return SqlError::new("CREATE OR REPLACE is not supported").at(first.span).hint(
            "remove OR REPLACE: a name is declared once; DROP removes it from a server, and \\drop from the \
            shell; ALTER MATERIALIZED VIEW … AS changes a query",
        );
    }
    let is_before =
        |token: &&TokenWithSpan| ["TEMPORARY", "SYSTEM"].contains(&word(token).as_str());
    let what = std::iter::once(first)
        .chain(solid)
        .find(|token| !is_before(token));
    let what = what.unwrap_or(first);
    let name = what.token.to_string();
    if let Some((_, error, hint)) = CREATED.iter().find(|(created, ..)| *created == word(what)) {
        return SqlError::new(*error).at(what.span).hint(*hint);
    }
    let error = SqlError::new(format!("CREATE {name} is not supported")).at(what.span);
    match nearest(&name, &["TABLE", "VIEW"].map(String::from)) {
        Some(near) => error.hint(format!("did you mean CREATE {near}?")),
        None => error.hint("use CREATE TABLE or CREATE VIEW"),
    }
}

/// Rejects what other dialects allow after a column's type.
pub(super) fn after_column(token: &TokenWithSpan) -> Result<()> {
    let hint = match word(token).as_str() {
        "DEFAULT" => "remove it; in the query, COALESCE(column, value) replaces NULL by a value",
        "CHECK" | "UNIQUE" | "REFERENCES" | "CONSTRAINT" => {
            "remove it: constraints are not checked; filter rows with WHERE in the query"
        }
        "GENERATED" => "use a computed column: name AS expression",
        _ => return Ok(()),
    };
    Err(not_known(token).hint(hint))
}

/// Rejects what other dialects allow after the list of columns.
pub(super) fn after_columns(token: &TokenWithSpan) -> Result<()> {
    let hint = match word(token).as_str() {
        "PARTITIONED" => {
            "remove it: a path with * reads several files, and a sink writes one folder"
        }
        "DISTRIBUTED" => {
            "remove it: the setting 'parallelism' sets the number of instances that read and write"
        }
        _ => return Ok(()),
    };
    Err(not_known(token).hint(hint))
}

fn not_known(token: &TokenWithSpan) -> SqlError {
    SqlError::new(format!("{} is not supported", word(token))).at(token.span)
}

fn word(token: &TokenWithSpan) -> String {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_uppercase(),
        _ => String::new(),
    }
}
