//! Operators that take and emit rows that change: they give what SQL's own operators give over the same
//! changelog, however the query runs, and what they get wrong is said.

use std::sync::Arc;
use std::time::Duration;

use slackwater::functions::Functions;
use slackwater::functions::Time;
use slackwater::functions::operator::{Call, KeyedOperator, Operator, Out, Row};
use slackwater::views::Views;

use crate::answers::many_instances;
use crate::operators::install;
use crate::process::Folder;
use crate::support::{Seeded, every_case, left_of, run_read, run_slowly, run_text};

#[path = "../examples/custom_operators/updates.rs"]
pub(crate) mod added;

const ROWS: u64 = 1_500;

/// Rows with a NULL among the keys and the values.
fn folder() -> Folder {
    let mut seeded = Seeded(91);
    let rows = (0..ROWS).map(|_| {
        let (id, value) = (seeded.below(300), seeded.below(90));
        let id = if id == 0 {
            String::new()
        } else {
            id.to_string()
        };
        let value = if value == 0 {
            String::new()
        } else {
            value.to_string()
        };
        format!("{id},{value}\n")
    });
    Folder::with(&[("in.csv", &rows.collect::<String>())])
}

/// Each id's number of rows changes with every row, and with it the key of the id's sum.
const CHANGES: &str = "
CREATE TABLE t (id INT, v BIGINT) WITH ('connector' = 'file', 'path' = '${IN}/in.csv', 'csv.null' = '');
CREATE VIEW c AS SELECT id, COUNT(*) % 7 AS k, SUM(v) AS s FROM t GROUP BY id;
";

/// The totals of the example, in Python.
pub(crate) const TOTALS_IN_PYTHON: &str = "
CREATE FUNCTION py_totals(t TABLE (s BIGINT)) RETURNS TABLE (n BIGINT, total BIGINT)
STATE (lines BIGINT, n BIGINT, total BIGINT) LANGUAGE python
WITH ('updates' = 'true', 'emits_updates' = 'true', 'forgets' = 'true') AS $$
class py_totals:
    def on_new_key(self, state):
        state.lines = state.n = state.total = 0

    def on_row(self, state, row, out):
        old = self.of(state)
        sign = -1 if out.change == 'delete' else 1
        state.lines += sign
        if row.s is not None:
            state.n, state.total = state.n + sign, state.total + sign * row.s
        new = self.of(state)
        if old != new:
            if old:
                out.retract(*old)
            if new:
                out.emit(*new)
        if not new:
            out.forget()

    def of(self, state):
        return (state.n, state.total if state.n else None) if state.lines else None
$$;
";

/// What an operator of the example gives, and what SQL gives: columns, and two queries.
const PAIRS: &[(&str, &str, &str)] = &[
    (
        "k BIGINT, n BIGINT, total BIGINT",
        "SELECT * FROM totals(TABLE c PARTITION BY k, DESCRIPTOR(s))",
        "SELECT k, COUNT(s), SUM(s) FROM c GROUP BY k",
    ),
    (
        "k BIGINT, n BIGINT, total BIGINT",
        "SELECT * FROM py_totals(TABLE c PARTITION BY k)",
        "SELECT k, COUNT(s), SUM(s) FROM c GROUP BY k",
    ),
    (
        "n BIGINT, total BIGINT",
        "SELECT * FROM totals(TABLE c, DESCRIPTOR(s))",
        "SELECT n, total FROM (SELECT COUNT(s) AS n, SUM(s) AS total, COUNT(*) AS c FROM c) WHERE c > 0",
    ),
    (
        "m BIGINT, c BIGINT",
        "SELECT n % 5 AS m, COUNT(*) FROM totals(TABLE c PARTITION BY k, DESCRIPTOR(s)) GROUP BY n % 5",
        "SELECT n % 5 AS m, COUNT(*) FROM (SELECT k, COUNT(s) AS n FROM c GROUP BY k) GROUP BY n % 5",
    ),
    (
        "id INT, n BIGINT",
        "SELECT t.id, o.n FROM t JOIN totals(TABLE c PARTITION BY k, DESCRIPTOR(s)) AS o ON t.v = o.n",
        "SELECT t.id, o.n FROM t JOIN (SELECT COUNT(s) AS n FROM c GROUP BY k) AS o ON t.v = o.n",
    ),
    (
        "k BIGINT, largest DOUBLE",
        "SELECT * FROM largest(TABLE c PARTITION BY k, DESCRIPTOR(s), 3)",
        "SELECT k, CAST(s AS DOUBLE) FROM (SELECT k, s, ROW_NUMBER() OVER (PARTITION BY k ORDER BY s DESC)
         AS r FROM c WHERE s IS NOT NULL) WHERE r <= 3",
    ),
];

/// Both queries of a pair, each with a changelog of its own.
fn text(folder: &Folder, (columns, own, built_in): (&str, &str, &str)) -> String {
    let sink = |name: &str, query: &str| {
        format!(
            "CREATE TABLE {name} ({columns}) WITH ('connector' = 'file', 'path' = '${{IN}}/{name}.csv', \
             'overwrite' = 'true', 'changelog' = 'op');\nINSERT INTO {name} {query};\n"
        )
    };
    let text = [
        CHANGES.to_string(),
        TOTALS_IN_PYTHON.to_string(),
        sink("own", own),
        sink("built_in", built_in),
    ]
    .concat();
    text.replace("${IN}", &folder.path("").display().to_string())
}

#[test]
fn operators_over_changelogs_give_what_sql_gives_however_they_run() {
    install();
    let folder = folder();
    for &pair in PAIRS {
        let text = text(&folder, pair);
        let mut first = None;
        let mut run = |settings: &[(&str, &str)], slow: Option<u64>| {
            let report =
                run_slowly(&text, settings, slow).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((report.rows_late, report.rows_bad), (0, 0));
            let left = |name: &str| left_of(&folder.sorted(name), ',');
            let (own, built_in) = (left("own.csv"), left("built_in.csv"));
            assert!(
                own == built_in,
                "{settings:?}, {}:\n{own:?}\n{built_in:?}",
                pair.1
            );
            assert!(!own.is_empty(), "{}", pair.1);
            assert!(
                *first.get_or_insert(own.clone()) == own,
                "{settings:?}, {}",
                pair.1
            );
            report
        };
        run(&[("parallelism", "1"), ("chunk_rows", "1")], None);
        run(&[("parallelism", "3"), ("chunk_rows", "60")], None);
        let mut seeded = Seeded(pair.1.len() as u64);
        for _ in 0..if every_case() { 12 } else { 1 } {
            // Worker processes of the plain program don't have the operators of a build.
            let settings = many_instances(&mut seeded, false);
            let settings = settings.iter().filter(|(key, _)| *key != "processes");
            let settings = settings.map(|(key, value)| (*key, value.as_str()));
            let settings = settings.collect::<Vec<(&str, &str)>>();
            run(&settings, Some(seeded.below(1 << 40)));
        }
    }
}

#[test]
fn a_view_keeps_what_an_operator_emits() {
    install();
    let folder = folder();
    let [own, built_in] = ["own", "built_in"].map(|name| {
        let (_, own, built_in) = PAIRS[0];
        let query = if name == "own" { own } else { built_in };
        let text = format!("{CHANGES}CREATE MATERIALIZED VIEW kept AS {query};");
        let text = text.replace("${IN}", &folder.path("").display().to_string());
        let views = Arc::new(Views::default());
        run_read(&text, &[("parallelism", "2")], &views).unwrap_or_else(|error| panic!("{error}"));
        let cut = views.cut("kept", Duration::ZERO, Duration::from_secs(1));
        let cut = cut.unwrap_or_else(|error| panic!("{error}"));
        let batches = cut.batches(1000).map(Result::unwrap);
        let rows = batches.flat_map(|batch| {
            let row = |row| slackwater_engine::expression::row_text(&batch, row);
            (0..batch.num_rows()).map(row).collect::<Vec<String>>()
        });
        let mut rows = rows.collect::<Vec<String>>();
        rows.sort();
        rows
    });
    assert_eq!(own.len(), 7);
    assert!(own[0].starts_with("k=0, n="), "{own:?}");
    let values = |rows: &[String]| {
        let value = |part: &str| part.split_once('=').map(|(_, value)| value.to_string());
        let row = |row: &String| row.split(", ").filter_map(value).collect::<Vec<String>>();
        rows.iter().map(row).collect::<Vec<_>>()
    };
    assert_eq!(values(&own), values(&built_in));
}

/// The message and hint of a query over the changelog.
fn error(select: &str) -> String {
    install();
    let folder = folder();
    let text = format!("{CHANGES}{select};");
    let text = text.replace("${IN}", &folder.path("").display().to_string());
    run_text(&text, &[]).unwrap_err()
}

#[test]
fn what_is_wrong_with_updates_is_said() {
    let windows = "SELECT COUNT(*) FROM TUMBLE(TABLE (SELECT * FROM totals(TABLE (SELECT *, \
                   TO_TIMESTAMP_LTZ(v, 3) AS ts FROM t) PARTITION BY id, DESCRIPTOR(v))), DESCRIPTOR(n), \
                   INTERVAL '1' SECOND) GROUP BY window_start, window_end";
    for (select, wanted) in [
        (
            "CREATE TABLE o (k BIGINT, n BIGINT, total BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH \
             ('connector' = 'file', 'path' = '${IN}/o.csv');
             INSERT INTO o SELECT * FROM totals(TABLE c PARTITION BY k, DESCRIPTOR(s))",
            "'o' has a PRIMARY KEY, but its connector can only add rows",
        ),
        (
            "SELECT * FROM changes(TABLE c PARTITION BY k, DESCRIPTOR(s))",
            "or declare it with 'updates' = 'true', or takes_updates() in Rust",
        ),
        (
            "SELECT * FROM changes(TABLE (SELECT * FROM totals(TABLE t PARTITION BY id, DESCRIPTOR(v))) \
             PARTITION BY id, DESCRIPTOR(n))",
            "changes needs rows that never change, and these are updated or retracted",
        ),
        (windows, "'n' is"),
        (
            "SELECT * FROM mistaken(TABLE t PARTITION BY id, DESCRIPTOR(v))",
            "operator 'mistaken': it retracts a row that does not stand: id=",
        ),
        (
            "SELECT * FROM undeclared(TABLE t PARTITION BY id, DESCRIPTOR(v))",
            "declare that it emits updates: 'emits_updates' = 'true', or emits_updates()",
        ),
        (
            "SELECT * FROM contradictory(TABLE t PARTITION BY id, DESCRIPTOR(v))",
            "is declared wrongly: rows that are updated have no order",
        ),
    ] {
        let shown = error(select);
        assert!(
            shown.contains(wanted),
            "{select}:\n{shown}\nand not: {wanted}"
        );
    }
}

#[test]
fn rows_that_change_have_no_order() {
    install();
    // Of the rows of this table the event time is a column of the key.
    let folder = Folder::with(&[("in.csv", "1000,1\n2000,2\n")]);
    let text = "CREATE TABLE t (ms BIGINT, v BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
        WITH ('connector' = 'file', 'path' = '${IN}/in.csv');
        SELECT * FROM totals(TABLE (SELECT ts, v, COUNT(*) AS n FROM t GROUP BY ts, v)
          PARTITION BY v ORDER BY ts, DESCRIPTOR(n));";
    let text = text.replace("${IN}", &folder.path("").display().to_string());
    let shown = run_text(&text, &[]).unwrap_err();
    assert!(
        shown.contains("totals can't order rows that are updated or retracted"),
        "{shown}"
    );
    assert!(shown.contains("leave out ORDER BY"), "{shown}");
    assert!(shown.starts_with("test.sql:4:"), "{shown}");
}

#[test]
fn rows_of_an_operator_with_an_order_that_retracts_have_no_event_time() {
    install();
    let folder = Folder::with(&[("in.csv", "3000,1\n1000,1\n2000,2\n")]);
    let text = "CREATE TABLE t (ms BIGINT, v BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts -
        INTERVAL '5' SECOND) WITH ('connector' = 'file', 'path' = '${IN}/in.csv');
        CREATE TABLE o (v BIGINT, n BIGINT, total BIGINT) WITH ('connector' = 'file', 'path' = \
        '${IN}/o.csv', 'changelog' = 'op');
        INSERT INTO o SELECT * FROM totals(TABLE t PARTITION BY v ORDER BY ts, DESCRIPTOR(ms));";
    let text = text.replace("${IN}", &folder.path("").display().to_string());
    run_text(&text, &[]).unwrap_or_else(|error| panic!("{error}"));
    let expected = ["+I,1,1,1000", "+I,1,2,4000", "+I,2,1,2000", "-D,1,1,1000"];
    assert_eq!(folder.sorted("o.csv"), expected);
}

/// Operators that are wrong.
pub(crate) fn add_wrong(functions: &mut Functions) {
    let operator = |call: &Call| {
        call.input()?.column::<i64>(call.column("value")?)?;
        Ok::<Operator, String>(Operator::keyed(Mistaken, &["n"]))
    };
    functions
        .operator("mistaken", &["value"], move |call| {
            Ok(operator(call)?.emits_updates())
        })
        .operator("undeclared", &["value"], operator)
        .operator("contradictory", &["value"], move |call| {
            Ok(operator(call)?.takes_updates().needs_order())
        });
}

/// Retracts a row that it has not emitted.
struct Mistaken;

impl KeyedOperator for Mistaken {
    type State = i64;
    type Saved = i64;
    type Row = i64;

    fn on_row(&self, n: &mut i64, _: &Row<'_>, out: &mut Out<'_, '_, i64>) -> Result<(), String> {
        *n += 1;
        out.emit(*n);
        out.retract(*n - 1);
        Ok(())
    }

    fn on_time(&self, _: &mut i64, _: Time, _: &mut Out<'_, '_, i64>) -> Result<(), String> {
        Ok(())
    }

    fn save(&self, n: &i64) -> i64 {
        *n
    }

    fn load(&self, saved: i64) -> i64 {
        saved
    }
}
