//! Nexmark's queries, as they stand in `examples/nexmark`, against DuckDB over the same events: generated
//! and out of order, from the generator and from a file of JSON, at several parallelisms and chunk sizes, in
//! several processes, and through kills. Over the reference data, too, where it stands beside the checkout.
//!
//! DuckDB is a Python package that `make test` puts into `target/duckdb`. Without it these tests are
//! skipped, with a line that says so.
//!
//! Files of JSON and the reference data are read at one parallelism, and with `EVERY_CASE=1` at two (`make
//! test-all`).
//!
//! Results that change are written as changelogs: what they add and have not taken back is compared.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use crate::crash::{Trial, compare, parts, start, unpacked};
use crate::support::{Seeded, data, every_case, left_of, run_text};

/// Generated events, and their generator.
const EVENTS: u64 = 100_000;

/// So that midnight lies between them.
const START_MS: u64 = 1_437_004_760_000;

/// How long an undisturbed run takes that is to be killed.
const RUN_S: f64 = 1.5;

/// A query of `examples/nexmark`.
struct Query {
    number: u32,
    text: &'static str,
    compared: Compared,
}

/// What of a query's rows is compared.
#[derive(Clone, Copy)]
enum Compared {
    /// All of them; none is taken back.
    Rows,
    /// What is left of a changelog.
    Changes,
    /// The same, of these columns.
    ChangesOf(&'static [usize]),
    /// The sum of the second column over all rows with the same first one.
    Sums,
}

/// Where events come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Events {
    /// Generated as they are read.
    Generated,
    /// The same, as JSON.
    File,
    /// The reference data.
    Shared,
}

impl Query {
    /// The text over these events, into this file or folder; `pace` are options of the source.
    fn over(&self, events: Events, out: &Path, pace: &str) -> String {
        let cut = self.text.find("CREATE TABLE nexmark_q");
        let (tables, query) = self.text.split_at(cut.expect("the query's sink"));
        let tables = match events {
            Events::Generated => with(tables, &format!("{}{pace}", generator())),
            Events::File => with(tables, &format!("{}{pace}", file(&events_file()))),
            Events::Shared => {
                let shared = data().expect("looked at before").join(SHARED);
                SHARED_TABLES.replace("${OPTIONS}", &format!("{}{pace}", file(&shared)))
            }
        };
        let side_input = examples().join("side_input.csv");
        let query = query.replace("examples/nexmark/side_input.csv", &shown(&side_input));
        let changelog = match self.compared {
            Compared::Rows | Compared::Sums => "",
            Compared::Changes | Compared::ChangesOf(_) => ", 'changelog' = 'op'",
        };
        let sink = format!(
            "'connector' = 'file', 'path' = '{}', 'csv.delimiter' = '|'{changelog}",
            shown(out)
        );
        assert!(query.contains("'connector' = 'print'"), "the query prints");
        tables + &query.replace("'connector' = 'print'", &sink)
    }

    /// What is compared of these rows.
    fn compared(&self, rows: Vec<String>) -> Vec<String> {
        match self.compared {
            Compared::Rows => rows,
            Compared::Changes => left_of(&rows, '|'),
            Compared::ChangesOf(columns) => {
                let picked = |row: &String| {
                    let cells = row.split('|').collect::<Vec<&str>>();
                    let picked = columns.iter().map(|&column| cells[column]);
                    picked.collect::<Vec<&str>>().join("|")
                };
                left_of(&rows, '|').iter().map(picked).collect()
            }
            Compared::Sums => {
                let mut sums = BTreeMap::<&str, i64>::new();
                for row in &rows {
                    let mut cells = row.split('|');
                    let (key, value) = (cells.next().unwrap(), cells.next().unwrap());
                    *sums.entry(key).or_default() += value.parse::<i64>().unwrap();
                }
                let sums = sums.iter().map(|(key, sum)| format!("{key}|{sum}"));
                sums.collect()
            }
        }
    }
}

/// The tables of an example with other options.
fn with(tables: &str, options: &str) -> String {
    let begin = tables.find(") WITH (").expect("the source's options") + ") WITH (".len();
    let end = begin + tables[begin..].find(')').expect("their end");
    format!("{}{options}{}", &tables[..begin], &tables[end..])
}

fn generator() -> String {
    format!(
        "'connector' = 'datagen', 'generator' = 'nexmark', 'rows' = '{EVENTS}', \
         'disorder' = '500 ms', 'start' = '{START_MS}'"
    )
}

fn file(path: &Path) -> String {
    format!(
        "'connector' = 'file', 'format' = 'json', 'path' = '{}'",
        shown(path)
    )
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/nexmark")
}

/// The reference data: events in another layout, shuffled in groups of 500.
const SHARED: &str = "nexmark_100k_1000ps_ooo500.jsonl.gz";

const SHARED_TABLES: &str = include_str!("nexmark/shared_tables.sql");

/// What all tests of this process share; it is removed by the next one's.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nexmark");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
});

/// The generated events as JSON.
fn events_file() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let path = FOLDER.join("events.jsonl");
        let declared = Q0.text.find("  dateTime AS").expect("the computed column");
        let begin = Q0.text.find("(\n").expect("the columns");
        let columns = Q0.text[begin..declared].trim_end().trim_end_matches(',');
        let text = format!(
            "CREATE TABLE nexmark {columns}) WITH ({});\nCREATE TABLE out {columns}) WITH ({});\n\
             INSERT INTO out SELECT * FROM nexmark;",
            generator(),
            file(&path)
        );
        let report = run_text(&text, &[]).unwrap();
        assert_eq!(report.rows_out, EVENTS);
        path
    });
    made.clone()
}

/// DuckDB's answers, or `None` where it is not there.
fn answers(events: Events) -> Option<&'static Path> {
    static MADE_UP: OnceLock<Option<PathBuf>> = OnceLock::new();
    static REFERENCE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let answers = match events {
        Events::Generated | Events::File => {
            MADE_UP.get_or_init(|| ask_duckdb(&events_file(), "answers"))
        }
        Events::Shared => REFERENCE.get_or_init(|| ask_duckdb(&data()?.join(SHARED), "shared")),
    };
    answers.as_deref()
}

fn ask_duckdb(events: &Path, name: &str) -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/duckdb/bin/python");
    let found = Command::new(&python).args(["-c", "import duckdb"]).output();
    if !found.is_ok_and(|found| found.status.success()) {
        eprintln!("skipped: no DuckDB in target/duckdb, where `make test` puts it");
        return None;
    }
    let out = FOLDER.join(name);
    // Packed files have other names to DuckDB.
    let plain = FOLDER.join(format!("{name}.jsonl"));
    std::fs::write(&plain, unpacked(events)).unwrap();
    std::fs::create_dir_all(&out).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nexmark/reference.py");
    let side_input = examples().join("side_input.csv");
    let arguments = [&script, &plain, &side_input, &out];
    let status = Command::new(python).args(arguments).status().unwrap();
    assert!(status.success(), "{}: {status}", script.display());
    std::fs::remove_file(&plain).unwrap();
    Some(out)
}

/// The answer to a query, sorted.
fn expected(query: &Query, events: Events) -> Option<Vec<String>> {
    let answers = answers(events)?;
    let path = answers.join(format!("q{}.csv", query.number));
    let text = std::fs::read_to_string(path).unwrap();
    let mut rows = text.lines().map(str::to_string).collect::<Vec<String>>();
    rows.sort();
    Some(rows)
}

/// Runs a query to its end.
fn check(query: &Query, events: Events, settings: &[(&str, &str)]) {
    let Some(expected) = expected(query, events) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.csv");
    let title = format!("q{} over {events:?}, {settings:?}", query.number);
    let report = run_text(&query.over(events, &out, ""), settings);
    let report = report.unwrap_or_else(|error| panic!("{title}: {error}"));
    assert_eq!((report.rows_late, report.rows_bad), (0, 0), "{title}");
    let text = std::fs::read_to_string(&out).unwrap();
    let rows = text.lines().map(str::to_string).collect();
    compare(&title, query.compared(rows), &expected, "");
}

/// Runs a query whose processes are killed, and which is started again, to its end.
fn check_killed(query: &Query) {
    let events = [Events::Generated, Events::File][query.number as usize % 2];
    let Some(expected) = expected(query, events) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let rate = EVENTS as f64 / RUN_S;
    let pace = match events {
        Events::Generated => format!(", 'rate' = '{rate:.0}/s'"),
        _ => format!(", 'replay_rate' = '{rate:.0}/s'"),
    };
    let text = folder.path().join("query.sql");
    std::fs::write(&text, query.over(events, &out, &pace)).unwrap();
    let trial = Trial {
        title: format!("q{}, killed", query.number),
        kills_max: 2,
        run_s: RUN_S,
        patience: Duration::from_secs(90),
    };
    let mut seeded = Seeded(u64::from(query.number) * 7919 + 1);
    let intervals = ["50 ms", "100 ms", "200 ms"];
    let again = |seeded: &mut Seeded| start(&text, folder.path(), &intervals, false, seeded);
    let ran = trial.run(&mut seeded, again, |_, _| None);
    let mut rows = Vec::new();
    for part in parts(&out) {
        let text = std::fs::read_to_string(&part).unwrap();
        rows.extend(text.lines().map(str::to_string));
    }
    compare(&trial.title, query.compared(rows), &expected, &ran.log);
}

macro_rules! queries {
    ($($(#[$gate:meta])* $test:ident $constant:ident: $number:literal, $compared:expr;)*) => {
        $(
            const $constant: Query = Query {
                number: $number,
                text: include_str!(concat!("../../../examples/nexmark/q", $number, ".sql")),
                compared: $compared,
            };

            mod $test {
                use super::{$constant, Events, check, check_killed, data, every_case};

                #[test]
                $(#[$gate])*
                fn generated() {
                    check(&$constant, Events::Generated, &[("parallelism", "1")]);
                    let settings = [("parallelism", "3"), ("chunk_rows", "1000")];
                    check(&$constant, Events::Generated, &settings);
                }

                #[test]
                $(#[$gate])*
                fn from_json() {
                    if every_case() {
                        check(&$constant, Events::File, &[("chunk_rows", "77")]);
                    }
                    let settings = [("parallelism", "3"), ("processes", "2"), ("chunk_rows", "3000")];
                    check(&$constant, Events::File, &settings);
                }

                #[test]
                $(#[$gate])*
                fn killed() {
                    check_killed(&$constant);
                }

                #[test]
                $(#[$gate])*
                fn over_the_reference_data() {
                    // A table by processing time has columns of its own.
                    if data().is_none() || $constant.number == 12 {
                        return;
                    }
                    if every_case() {
                        check(&$constant, Events::Shared, &[("parallelism", "1")]);
                    }
                    let settings = [("parallelism", "3"), ("chunk_rows", "500")];
                    check(&$constant, Events::Shared, &settings);
                }
            }
        )*
    };
}

queries! {
    q0 Q0: 0, Compared::Rows;
    q1 Q1: 1, Compared::Rows;
    q2 Q2: 2, Compared::Rows;
    q3 Q3: 3, Compared::Rows;
    q4 Q4: 4, Compared::Changes;
    q5 Q5: 5, Compared::Rows;
    q7 Q7: 7, Compared::Rows;
    q8 Q8: 8, Compared::Rows;
    q9 Q9: 9, Compared::Changes;
    q10 Q10: 10, Compared::Rows;
    q11 Q11: 11, Compared::Rows;
    q12 Q12: 12, Compared::Sums;
    q13 Q13: 13, Compared::Rows;
    q14 Q14: 14, Compared::Rows;
    q15 Q15: 15, Compared::Changes;
    q16 Q16: 16, Compared::Changes;
    q17 Q17: 17, Compared::Changes;
    q18 Q18: 18, Compared::Changes;
    // Which of several equal prices comes first, nobody can say.
    q19 Q19: 19, Compared::ChangesOf(&[0, 2, 7]);
    q20 Q20: 20, Compared::Rows;
    q21 Q21: 21, Compared::Rows;
    q22 Q22: 22, Compared::Rows;
}
