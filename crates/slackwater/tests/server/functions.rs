//! Functions in Python that a server is allowed to take, and those that it refuses.

use super::{Server, table, write_input};

const TWICE: &str = "CREATE FUNCTION Twice(n BIGINT) RETURNS BIGINT LANGUAGE python AS $$
import os
def twice(n):
    return 2 * n; # one statement
$$";

const TOTAL: &str = "CREATE AGGREGATE FUNCTION Total(n BIGINT) RETURNS BIGINT LANGUAGE python AS $$
class total:
    sum = 0
    def accumulate(self, n): self.sum += n
    def merge(self, other): self.sum += other.sum
    def finish(self): return self.sum; # one statement
$$";

fn allowing(folder: &std::path::Path) -> Server {
    match Server::try_start(folder, &["--allow-functions"]) {
        Ok(server) => server,
        Err(log) => panic!("the server has not started: {log}"),
    }
}

#[test]
fn a_function_is_kept_and_called_by_jobs() {
    let folder = tempfile::tempdir().unwrap();
    write_input(folder.path(), 10);
    let server = allowing(folder.path());
    server.run(&[
        &table(folder.path(), ""),
        TWICE,
        TOTAL,
        "CREATE MATERIALIZED VIEW a AS SELECT k, TOTAL(2 * v) AS s FROM numbers GROUP BY k",
        "CREATE MATERIALIZED VIEW v AS SELECT k, SUM(TWICE(v)) AS s FROM numbers GROUP BY k",
        "CREATE MATERIALIZED VIEW w AS SELECT k, SUM(2 * v) AS s FROM numbers GROUP BY k",
    ]);
    for name in ["twice", "total"] {
        assert!(server.rows("SHOW FUNCTIONS").contains(&name.to_string()));
    }
    let finished = ["a|finished", "v|finished", "w|finished"];
    server.wait_for("SHOW MATERIALIZED VIEWS", &finished);
    let wanted = server.rows("SELECT * FROM w");
    assert_eq!(
        (server.rows("SELECT * FROM v"), wanted.len()),
        (wanted.clone(), 7)
    );
    assert_eq!(server.rows("SELECT * FROM a"), wanted);
    let error = server.error(TWICE);
    assert!(error.contains("already a function 'twice'"), "{error}");
    let error = server.error("DROP FUNCTION twice");
    assert!(error.starts_with("2BP01"), "{error}");
    drop(server);
    // The next server has it, and one that takes no functions does not run it.
    let server = allowing(folder.path());
    server.wait_for("SHOW MATERIALIZED VIEWS", &finished);
    assert_eq!(server.rows("SELECT * FROM v"), wanted);
    drop(server);
    let server = Server::start(folder.path());
    let error = server.error("CREATE MATERIALIZED VIEW x AS SELECT twice(v) FROM numbers");
    assert!(error.contains("takes no functions"), "{error}");
    let error = server.error("CREATE MATERIALIZED VIEW x AS SELECT total(v) FROM numbers");
    assert!(error.contains("takes no functions"), "{error}");
    server.run(&["DROP FUNCTION total CASCADE"]);
    assert!(!server.rows("SHOW FUNCTIONS").contains(&"total".to_string()));
    server.run(&["DROP FUNCTION Twice CASCADE"]);
    assert!(!server.rows("SHOW FUNCTIONS").contains(&"twice".to_string()));
}

#[test]
fn a_server_refuses_functions_unless_they_are_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    for function in [TWICE, TOTAL] {
        let error = server.error(function);
        assert!(error.starts_with("42501"), "{error}");
        assert!(error.contains("--allow-functions"), "{error}");
    }
}

#[test]
fn a_function_is_loaded_before_it_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let server = allowing(folder.path());
    let error = server.error(
        "CREATE FUNCTION f(n INT) RETURNS INT LANGUAGE python AS $$\nimport surely_not_there\n$$",
    );
    assert!(
        error.contains("No module named 'surely_not_there'"),
        "{error}"
    );
    let error = server.error("CREATE FUNCTION f(n INT) RETURNS INT LANGUAGE python USING 'f.py'");
    assert!(error.contains("AS $$"), "{error}");
    assert!(!server.rows("SHOW FUNCTIONS").contains(&"f".to_string()));
}
