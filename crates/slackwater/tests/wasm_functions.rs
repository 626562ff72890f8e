//! Functions in WebAssembly in queries. What they compute is tested in the crate `udf`.

use crate::process::Folder;

const DIVISOR: &str =
    "CREATE FUNCTION common_divisor(a BIGINT, b BIGINT) RETURNS BIGINT LANGUAGE wasm AS $$
(module
  (func (export \"common_divisor\") (param $a i64) (param $b i64) (result i64)
    (local $rest i64)
    (loop $again
      (if (i64.ne (local.get $b) (i64.const 0))
        (then
          (local.set $rest (i64.rem_s (local.get $a) (local.get $b)))
          (local.set $a (local.get $b))
          (local.set $b (local.get $rest))
          (br $again))))
    (local.get $a)))
$$;
CREATE TABLE t (a BIGINT, b BIGINT) WITH ('connector' = 'file', 'path' = 'in.csv');
";

/// Doubles a number, and traps for 7.
const TWICE: &[u8] =
    b"\0asm\x01\0\0\0\x01\x06\x01\x60\x01\x7e\x01\x7e\x03\x02\x01\x00\x07\x09\x01\x05twice\x00\x00\
\x0a\x12\x01\x10\x00\x20\x00\x42\x07\x51\x04\x40\x00\x0b\x20\x00\x20\x00\x7c\x0b";

fn folder() -> Folder {
    let rows = (0..600).map(|n| format!("{},{}\n", n * 6, n % 35));
    Folder::with(&[("in.csv", rows.collect::<String>().as_str())])
}

#[test]
fn a_function_is_called_however_the_query_runs() {
    let query = |f: &str| {
        format!(
            "SELECT {f}(a, b) AS d, COUNT(*) AS n FROM t WHERE {f}(a, b) > 1 GROUP BY {f}(a, b)"
        )
    };
    let plain =
        "CREATE TABLE t (a BIGINT, b BIGINT) WITH ('connector' = 'file', 'path' = 'in.csv');";
    let plain = format!("{plain}{}", query("gcd"));
    let ours = format!("{DIVISOR}{}", query("common_divisor"));
    let run = |text: &str, settings: &str| {
        let folder = folder();
        let emit = "SET 'emit' = 'final';";
        let finished = folder.run(&format!("{emit}{settings}{text}"), &["--quiet"]);
        assert_eq!(finished.code, Some(0), "{}", finished.err);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut lines = finished.out.lines().map(words).collect::<Vec<_>>();
        lines.sort();
        lines
    };
    let wanted = run(&plain, "");
    assert!(wanted.len() > 10, "{wanted:?}");
    for settings in [
        "",
        "SET 'parallelism' = '3';",
        "SET 'processes' = '2';",
        "SET 'chunk_rows' = '1';",
    ] {
        assert_eq!(run(&ours, settings), wanted, "{settings}");
    }
}

#[test]
fn a_file_travels_with_the_query_and_rows_that_trap_are_kept() {
    let folder = folder();
    folder.write("twice.wasm", TWICE);
    folder.write("in.csv", b"3,0\n7,0\n,0\n5,0\n");
    let text = "CREATE FUNCTION twice(n BIGINT) RETURNS BIGINT LANGUAGE wasm USING 'twice.wasm';
        SET 'processes' = '2';
        CREATE TABLE t (a BIGINT, b BIGINT) WITH ('connector' = 'file', 'path' = 'in.csv');
        SELECT a, twice(a) AS m FROM t";
    let finished = folder.run(text, &[]);
    assert_eq!(finished.code, Some(0), "{}", finished.err);
    for row in ["3,6", "5,10"] {
        let row = row.replace(',', " ");
        let has = |line: &str| {
            line.split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .contains(&row)
        };
        assert!(finished.out.lines().any(has), "{}", finished.out);
    }
    assert_eq!(folder.json("report.json")["rows_bad"], 1);
    let letters = folder.read("slackwater-dead-letter/t.jsonl");
    assert!(
        letters.contains("it has panicked (unreachable)"),
        "{letters}"
    );
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let types = "(a INT) RETURNS INT";
    for (kind, types, rest, said) in [
        (
            "",
            types,
            "AS '(module)'",
            "the module exports no function 'f'",
        ),
        ("", types, "USING 'none.wasm'", "none.wasm: No such file"),
        (
            "",
            "(a DECIMAL(9, 2)) RETURNS INT",
            "AS '(module)'",
            "values of DECIMAL(9, 2) can't be passed",
        ),
        (
            "",
            types,
            "WITH ('fule' = '1') AS '(module)'",
            "did you mean 'fuel'?",
        ),
        (
            "AGGREGATE",
            types,
            "AS '(module)'",
            "aggregate functions in WebAssembly are not supported",
        ),
    ] {
        let table = "CREATE TABLE t (a INT) WITH ('connector' = 'file', 'path' = 'in.csv');";
        let function = format!("CREATE {kind} FUNCTION f{types} LANGUAGE wasm {rest};");
        let text = format!("{table}\n{function} SELECT f(a) FROM t");
        let finished = folder().run(&text, &[]);
        assert_eq!(finished.code, Some(2), "{}", finished.err);
        let is_said = finished.err.contains(said) && finished.err.contains(":2:");
        assert!(is_said, "{}", finished.err);
    }
}
