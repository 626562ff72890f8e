//! Statements and parts of CREATE that other dialects have, and what to write instead.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::is_space;
use crate::error::{Result, SqlError, nearest};

/// Statements of others: their first word, what is said of it, and what to do.
const STATEMENTS: &[(&str, &str, &str)] = &[
    (
        "SHOW",
        "SHOW is for the shell",
        "a file says itself what there is; in slackwater sql \\d lists tables and views, \\df functions, \\set settings",
    ),
    (
        "DESCRIBE",
        "DESCRIBE is for the shell",
        "slackwater sql FILE, then \\d name describes a table or view",
    ),
    (
        "DESC",
        "DESC is for the shell",
        "slackwater sql FILE, then \\d name describes a table or view",
    ),
    ("USE", NO_CATALOGS, LEAVE_CATALOGS),
    (
        "ADD",
        "ADD is not supported: there are no JARs",
        "leave it out: connectors and formats are part of the program, functions are added by a build \
         (docs/functions.md)",
    ),
    (
        "REMOVE",
        "REMOVE is not supported: there are no JARs",
        "leave it out",
    ),
    (
        "LOAD",
        "LOAD MODULE is not supported",
        "leave it out: docs/functions.md lists the functions that there are",
    ),
    (
        "UNLOAD",
        "UNLOAD MODULE is not supported",
        "leave it out: docs/functions.md lists the functions that there are",
    ),
    (
        "DROP",
        "DROP is not supported: nothing outlives a run",
        "leave it out: a text says what there is",
    ),
    (
        "ALTER",
        "ALTER is not supported: nothing outlives a run",
        "change the CREATE TABLE itself",
    ),
    ("DELETE", NO_CHANGES, CHANGES),
    ("UPDATE", NO_CHANGES, CHANGES),
    ("MERGE", NO_CHANGES, CHANGES),
    ("TRUNCATE", NO_CHANGES, CHANGES),
    (
        "ANALYZE",
        "ANALYZE is not supported",
        "leave it out: plans don't depend on statistics of tables",
    ),
    (
        "COMPILE",
        "COMPILE PLAN is not supported",
        "leave it out: a saved query (run --state DIR) is restored from its text",
    ),
    (
        "EXECUTE",
        "EXECUTE is for INSERT, SELECT and STATEMENT SET",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO …; INSERT INTO …; END",
    ),
    (
        "BEGIN",
        "there are no transactions",
        "leave it out; BEGIN STATEMENT SET begins a set of INSERTs",
    ),
    (
        "STATEMENT",
        "STATEMENT is followed by SET BEGIN",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO …; INSERT INTO …; END",
    ),
    (
        "START",
        "there are no transactions",
        "leave it out: sinks write exactly once with run --state DIR",
    ),
    (
        "COMMIT",
        "there are no transactions",
        "leave it out: sinks write exactly once with run --state DIR",
    ),
    (
        "ROLLBACK",
        "there are no transactions",
        "leave it out: sinks write exactly once with run --state DIR",
    ),
    (
        "CALL",
        "CALL is not supported: there are no procedures",
        "leave it out",
    ),
    (
        "STOP",
        "STOP is not supported: there is no server with jobs",
        "Ctrl-C ends a query, and saves it with run --state DIR",
    ),
    (
        "QUIT",
        "QUIT is for the shell",
        "leave it out: a file ends by itself",
    ),
    (
        "EXIT",
        "EXIT is for the shell",
        "leave it out: a file ends by itself",
    ),
    ("CLEAR", "CLEAR is for a shell", "leave it out"),
    ("HELP", "HELP is for the shell", "slackwater sql, then \\?"),
];

const NO_CATALOGS: &str = "there are no catalogs and databases";
const LEAVE_CATALOGS: &str =
    "leave it out: a text declares the tables that it uses, and their names have one part";
const NO_CHANGES: &str = "rows that are there can't be changed by a statement";
const CHANGES: &str =
    "WHERE in a query leaves rows out; a sink with a PRIMARY KEY follows the changes of its query";

/// A statement that begins with these words.
pub(super) fn statement(words: &[&str]) -> SqlError {
    let first = words.first().copied().unwrap_or_default();
    if let Some((_, error, hint)) = STATEMENTS.iter().find(|(word, ..)| *word == first) {
        return SqlError::new(*error).hint(*hint);
    }
    let known = [
        "CREATE", "INSERT", "SELECT", "SET", "RESET", "EXPLAIN", "WITH",
    ]
    .map(String::from);
    let error = SqlError::new(format!("'{first}' begins no statement that is known here"));
    match nearest(first, &known) {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => error.hint("the statements are CREATE TABLE, CREATE VIEW, INSERT INTO, SELECT, SET, RESET and EXPLAIN"),
    }
}

/// What others create.
const CREATED: &[(&str, &str, &str)] = &[
    ("CATALOG", NO_CATALOGS, LEAVE_CATALOGS),
    ("DATABASE", NO_CATALOGS, LEAVE_CATALOGS),
    ("SCHEMA", NO_CATALOGS, LEAVE_CATALOGS),
    (
        "MATERIALIZED",
        "CREATE MATERIALIZED is not supported: no result is kept to be queried",
        "CREATE VIEW names a query; CREATE TABLE … WITH ('connector' = …) AS SELECT … writes its rows",
    ),
    (
        "SOURCE",
        "CREATE SOURCE is not supported",
        "CREATE TABLE … (…) WITH ('connector' = 'file', 'path' = 'in.csv')",
    ),
    (
        "STREAM",
        "CREATE STREAM is not supported",
        "CREATE TABLE … (…) WITH ('connector' = 'file', 'path' = 'in.csv')",
    ),
    (
        "SINK",
        "CREATE SINK is not supported",
        "CREATE TABLE … WITH ('connector' = 'file', 'path' = 'out.csv') AS SELECT …, or CREATE TABLE and INSERT INTO",
    ),
    (
        "INDEX",
        "CREATE INDEX is not supported",
        "leave it out: state is kept by key by itself",
    ),
];

/// `CREATE` of what is neither a table nor a view.
pub(super) fn create(tokens: &[TokenWithSpan]) -> SqlError {
    let mut solid = tokens.iter().filter(|token| !is_space(token)).skip(1);
    let Some(first) = solid.next() else {
        return SqlError::new("CREATE needs to say what").hint("CREATE TABLE and CREATE VIEW are");
    };
    if word(first) == "OR" {
        return SqlError::new("CREATE OR REPLACE is not known here").at(first.span).hint(
            "leave OR REPLACE out: a name is declared once in a text; \\drop name forgets it in the shell",
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
    let error = SqlError::new(format!("CREATE {name} is not known here")).at(what.span);
    if word(what) == "FUNCTION" {
        let hint = "functions are written in Rust and added by a build: docs/functions.md";
        return error.hint(hint);
    }
    match nearest(&name, &["TABLE", "VIEW"].map(String::from)) {
        Some(near) => error.hint(format!("did you mean CREATE {near}?")),
        None => error.hint("CREATE TABLE and CREATE VIEW are"),
    }
}

/// What may follow a column's type elsewhere.
pub(super) fn behind_column(token: &TokenWithSpan) -> Result<()> {
    let hint = match word(token).as_str() {
        "DEFAULT" => "leave it out; COALESCE(column, value) in the query gives a value for NULL",
        "CHECK" | "UNIQUE" | "REFERENCES" | "CONSTRAINT" => {
            "leave it out: rows are not checked; WHERE in the query leaves rows out"
        }
        "GENERATED" => "write a computed column: name AS expression",
        _ => return Ok(()),
    };
    Err(not_known(token).hint(hint))
}

/// What may follow the list of columns elsewhere.
pub(super) fn behind_columns(token: &TokenWithSpan) -> Result<()> {
    let hint = match word(token).as_str() {
        "PARTITIONED" => {
            "leave it out: sources read all files that a path with * names, sinks write one folder"
        }
        "DISTRIBUTED" => "leave it out: 'parallelism' says how many instances read and write",
        _ => return Ok(()),
    };
    Err(not_known(token).hint(hint))
}

fn not_known(token: &TokenWithSpan) -> SqlError {
    SqlError::new(format!("{} is not known here", word(token))).at(token.span)
}

fn word(token: &TokenWithSpan) -> String {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_uppercase(),
        _ => String::new(),
    }
}
