//! Tables of SQLite in queries: looked up, read and written. What is the same for PostgreSQL is in
//! `sqlite/queries.rs` and `sqlite/crash.rs`, over any [`queries::Database`].

use std::path::Path;

use rusqlite::Connection;

use queries::Database;

pub(crate) mod crash;
pub(crate) mod queries;

/// A file in a folder.
struct Sqlite(tempfile::TempDir);

impl Sqlite {
    fn new() -> Sqlite {
        let made = Sqlite(tempfile::tempdir().unwrap());
        // Read and written at the same time; made here, because the program makes no files.
        made.run("PRAGMA journal_mode = WAL");
        made
    }

    fn connection(&self) -> Connection {
        let connection = Connection::open(self.0.path().join("shop.db")).unwrap();
        connection
            .busy_timeout(std::time::Duration::from_secs(10))
            .unwrap();
        connection
    }
}

impl Database for Sqlite {
    fn folder(&self) -> &Path {
        self.0.path()
    }

    fn options(&self) -> String {
        let path = self.0.path().join("shop.db");
        format!("'connector' = 'sqlite', 'path' = '{}'", path.display())
    }

    fn run(&self, statements: &str) {
        self.connection().execute_batch(statements).unwrap();
    }

    fn rows(&self, sql: &str) -> Vec<String> {
        let connection = self.connection();
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| {
            let values = (0..columns).map(|column| {
                Ok(match row.get_ref(column)? {
                    rusqlite::types::ValueRef::Null => "NULL".to_string(),
                    rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                    rusqlite::types::ValueRef::Real(number) => number.to_string(),
                    rusqlite::types::ValueRef::Text(text)
                    | rusqlite::types::ValueRef::Blob(text) => {
                        String::from_utf8_lossy(text).into_owned()
                    }
                })
            });
            Ok(values.collect::<rusqlite::Result<Vec<String>>>()?.join(","))
        });
        rows.unwrap().map(Result::unwrap).collect()
    }
}

#[test]
fn lookups_are_the_table_join_of_the_moment() {
    queries::lookups_are_the_table_join_of_the_moment(&Sqlite::new());
}

#[test]
fn what_is_written_is_there() {
    queries::what_is_written_is_there(&Sqlite::new());
}

#[test]
fn a_key_that_is_not_the_query_s() {
    queries::a_key_that_is_not_the_query_s(&Sqlite::new());
}

#[test]
fn what_is_wrong_is_said() {
    let database = Sqlite::new();
    queries::what_is_wrong_is_said(&database);
    let path = database.folder().join("none.db");
    let text = format!(
        "CREATE TABLE t (id INT) WITH ('connector' = 'sqlite', 'path' = '{}'); SELECT * FROM t;",
        path.display()
    );
    let error = crate::support::run_text(&text, &[]).unwrap_err();
    assert!(
        error.contains("none.db, table t: there is no such file"),
        "{error}"
    );
}

#[test]
fn no_row_is_lost_or_doubled_when_the_query_is_killed() {
    crash::no_row_is_lost_or_doubled(&Sqlite::new());
}
