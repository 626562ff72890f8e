//! SQL tests as files: `tests/sql/NAME.sql` holds cases, `NAME.out` beside it what they give.
//!
//! A line `--- title` begins a case; what stands before the first one belongs to all of them. Each
//! case runs as the whole file with the other cases blanked, so that the line numbers of messages
//! are those of the file. It runs in a folder of its own, in which `data` is the folder of inputs
//! beside the files and `out` is empty.
//!
//! Every case that compiles runs at parallelism 1 and 3 and with chunks of 1 and 8192 rows, in a process of
//! its own, and must give the same each time (I1): the terminal's rows and those of each output file,
//! sorted; the numbers of late and bad rows where there are any; or the message, as the user sees
//! it. Some are also stopped and resumed from their checkpoint (`resume.rs`). What does not compile is
//! compared in `crates/sql/tests`, which needs no process for it. Comments in a case change what is compared:
//!
//! - `-- last per 2`: of the terminal's rows only the last one of each value of the first two
//!   columns, without the column that tells inserts from updates (the intermediate steps of a
//!   running aggregate depend on chunks);
//! - `-- table`: what is left of the terminal's rows when those that are taken back are gone (a changelog
//!   with `-U` or `-D`);
//! - `-- in order`: the terminal's rows in the order in which they are printed;
//! - `-- explain`: what EXPLAIN prints, without the part that depends on the machine, but with the warnings.
//!
//! An empty string is not shown: a case about it writes `… || '.'`. After a wanted change
//! `UPDATE_EXPECTED=1 cargo test -p slackwater-sql -p slackwater --test main -- errors_of sql_files`
//! rewrites the `.out` files; read the difference before you keep it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use slackwater::catalog::BuiltIn;
use slackwater_sql::program::compile;

#[path = "../../sql/tests/cases.rs"]
mod cases;
mod resume;

use cases::{Case, Expected, WRONG_TEXT, cases, folder};

const SETTINGS: [(&str, &str); 4] = [("1", "8192"), ("1", "1"), ("3", "8192"), ("3", "1")];

/// A folder in which a text runs.
fn folder_of_run(file: &str, text: &str) -> tempfile::TempDir {
    let work = tempfile::tempdir().unwrap();
    fs::create_dir(work.path().join("out")).unwrap();
    std::os::unix::fs::symlink(folder().join("data"), work.path().join("data")).unwrap();
    fs::write(work.path().join(file), text).unwrap();
    work
}

/// What a case gives, as the user sees it.
fn outcome(file: &str, case: &Case, parallelism: &str, chunk_rows: &str) -> String {
    let work = folder_of_run(file, &case.text);
    let out = work.path().join("out");
    let ran = Command::new(env!("CARGO_BIN_EXE_slackwater"))
        .args(["run", file, "--quiet", "--report", "report.json"])
        .args([
            "--parallelism",
            parallelism,
            "--set",
            &format!("chunk_rows={chunk_rows}"),
        ])
        .current_dir(work.path())
        .output()
        .unwrap();
    let mut shown = String::new();
    // A query that fails stops where it is: what it had done by then depends on chunks.
    if ran.status.success() {
        let printed = String::from_utf8_lossy(&ran.stdout);
        shown = terminal(&printed, case)
            + &written(&out)
            + &counts(report(&work.path().join("report.json")).as_slice());
    }
    let folder = work.path().display().to_string();
    let errors = String::from_utf8_lossy(&ran.stderr).replace(&folder, "(folder)");
    // The report has said it already.
    let is_count = |line: &&str| {
        let words = line.split(' ').take(3).collect::<Vec<&str>>();
        matches!(words[..], ["warning:", number, "bad" | "late"] if number.starts_with(|c: char| c.is_ascii_digit()))
    };
    let lines = errors.split_inclusive('\n');
    shown.extend(lines.filter(|line| !is_count(line)));
    match ran.status.code() {
        Some(0) => {}
        Some(code) => writeln!(shown, "exit code {code}").unwrap(),
        None => panic!("{file}, {}: killed", case.title),
    }
    shown
}

/// The rows of each file of the folder, sorted.
fn written(folder: &Path) -> String {
    let mut shown = String::new();
    let files = fs::read_dir(folder).unwrap();
    let mut paths = files.map(|file| file.unwrap().path()).collect::<Vec<_>>();
    paths.sort();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let mut rows = text.lines().collect::<Vec<_>>();
        rows.sort_unstable();
        let name = path.file_name().unwrap().to_string_lossy();
        writeln!(shown, "{name}:\n{}", rows.join("\n")).unwrap();
    }
    shown
}

/// The numbers of late and bad rows of one run, or of several after each other, where there are any.
fn counts(reports: &[serde_json::Value]) -> String {
    let mut shown = String::new();
    for (field, what) in [("rows_late", "late"), ("rows_bad", "bad")] {
        let rows = reports.iter().map(|report| report[field].as_u64().unwrap());
        let rows = rows.sum::<u64>();
        if rows > 0 {
            writeln!(shown, "{rows} {what}").unwrap();
        }
    }
    shown
}

/// The report of a run, if it came so far.
fn report(path: &Path) -> Option<serde_json::Value> {
    let text = fs::read_to_string(path).ok()?;
    Some(serde_json::from_str(&text).unwrap())
}

/// Standard output: its first line, then the rows sorted. How wide columns are printed depends on
/// what was printed before, so columns are told apart by ` | ` instead.
fn terminal(printed: &str, case: &Case) -> String {
    if case.explain {
        let end = printed.find("\nInstances on").unwrap_or(printed.len());
        let (plan, placed) = printed.split_at(end);
        let warnings = placed.lines();
        let warnings = warnings.filter(|line| line.starts_with("  warning: "));
        return plan.to_string() + &warnings.map(|line| format!("{line}\n")).collect::<String>();
    }
    let columns = |line: &str| {
        let columns = line
            .split("  ")
            .map(str::trim)
            .filter(|column| !column.is_empty());
        columns.map(str::to_string).collect::<Vec<_>>()
    };
    let mut rows = printed.lines().map(columns);
    let mut header = rows.next();
    let mut rows = match case.last_per {
        None if case.table => table(rows, &case.title),
        None => rows.collect::<Vec<_>>(),
        Some(columns) => rows
            .filter(|row| row[0] != "-U")
            .map(|row| (row[1..=columns].to_vec(), row))
            .collect::<BTreeMap<_, _>>()
            .into_values()
            .filter(|row| row[0] != "-D")
            .map(|row| row[1..].to_vec())
            .collect(),
    };
    if (case.last_per.is_some() || case.table)
        && let Some(header) = &mut header
    {
        assert_eq!(header.remove(0), "op", "{}: nothing is updated", case.title);
    }
    if !case.in_order {
        rows.sort();
    }
    header
        .into_iter()
        .chain(rows)
        .map(|row| row.join(" | ") + "\n")
        .collect()
}

/// The table that a changelog stands for.
fn table(rows: impl Iterator<Item = Vec<String>>, title: &str) -> Vec<Vec<String>> {
    let mut table = BTreeMap::<Vec<String>, i64>::new();
    for row in rows {
        let (op, row) = row.split_first().expect("a line has columns");
        let count = table.entry(row.to_vec()).or_default();
        *count += if op.starts_with('-') { -1 } else { 1 };
        assert!(*count >= 0, "{title}: {row:?} is taken back, and not there");
    }
    let rows = table.into_iter();
    rows.flat_map(|(row, count)| std::iter::repeat_n(row, count as usize))
        .collect()
}

fn check(name: &str) {
    let file = format!("{name}.sql");
    let text = fs::read_to_string(folder().join(&file)).unwrap();
    let cases = cases(&text);
    let mut expected = Expected::of(name);
    let mut has_shown_error = false;
    let mut resumed = 0;
    for (nth, case) in cases.iter().enumerate() {
        // The messages of SQL that doesn't compile are compared in `crates/sql`; that the program shows them
        // so is tried once for each file.
        if !compiles(&case.text) && std::mem::replace(&mut has_shown_error, true) {
            assert!(
                expected.outcome(&case.title).is_some() || cases::is_update(),
                "{file}, {}: does not compile, and has no expected error yet; to write it: {}",
                case.title,
                cases::UPDATE_COMMAND
            );
            continue;
        }
        let mut first: Option<String> = None;
        for (parallelism, chunk_rows) in SETTINGS {
            let outcome = outcome(&file, case, parallelism, chunk_rows);
            let first = first.get_or_insert_with(|| outcome.clone());
            assert!(
                *first == outcome,
                "{file}, {}: at parallelism {parallelism} with chunks of {chunk_rows}\n{outcome}\nbut at \
                 first\n{first}",
                case.title
            );
            if outcome.ends_with(WRONG_TEXT) || case.explain {
                // Nothing ran, so nothing can differ.
                break;
            }
        }
        let first = first.unwrap_or_default();
        if !case.explain && resume::is_due(nth) && !first.contains("\nexit code ") {
            resumed += usize::from(resume::check(&file, case, &first));
        }
        expected
            .compare(nth, &case.title, &first)
            .unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    println!("{file}: {resumed} cases were stopped and resumed");
    expected
        .finish(&cases)
        .unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// Whether a case is to be run, or refused before.
fn compiles(text: &str) -> bool {
    compile(&with_data(text), &[], &BuiltIn).is_ok()
}

/// A text with the inputs' whole paths: its own are relative to the folder in which it runs.
fn with_data(text: &str) -> String {
    let data = format!("'{}/", folder().join("data").display());
    text.replace("'data/", &data)
}

macro_rules! files {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

files! {
    tables
    windows
    windows_of_windows
    windows_cumulate
    sessions
    sessions_wrong
    count_windows
    direct
    early_firing
    late_rows
    formats
    joins
    table_joins
    interval_joins
    broadcast_joins
    semi_joins
    over
    split
    lookup_joins
    aggregates
    quantiles
    places
    grouping_sets
    running
    changelog
    streams_joined
    top_n
    growing_state
    statements
    expressions
    exact_expressions
    times_and_intervals
    hints
    final_results
    numbers_at_their_limits
    equal_keys
    functions
    python_aggregates
    python_functions
    python_functions_wrong
    python_operators
    wrong_changelogs
    wrong_expressions
    wrong_functions
    wrong_clauses
    wrong_queries
    wrong_statements
    wrong_tables
    wrong_values
    wrong_windows
    flink_names
    flink_names_wrong
    materialized_views
    materialized_views_wrong
    messages
    mixed_precisions
    names_like_types
}

/// What only a reader of the source understands: values as Rust shows them, types as Arrow calls them, names
/// of the planner's parts.
const LEAKS: &[&str] = &[
    "DataFusion",
    "sqlparser",
    "Some(",
    "None)",
    "None,",
    "Ok(",
    "Err(",
    "Utf8",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Float32",
    "Float64",
    "Date32",
    "Decimal128",
    "Timestamp(",
    "Time64(",
    "Duration(",
    "Interval(",
    "IntervalMonthDayNano",
    "Struct(",
    "List(",
    "DataType",
    "ScalarValue",
    "Windows {",
    "SortOptions",
    "Internal error",
    "Execution error",
    "Error during planning",
    "Arrow error",
    "Optimizer rule",
    "Expr",
    "Physical",
    "OneOf",
    "Ident",
    "Span(",
    "Location(",
    "coercion",
    "::",
    "{ ",
    "after IS'",
];

/// The first leak of a text, without what the user has written himself.
fn leak(text: &str) -> Option<&'static str> {
    LEAKS.iter().copied().find(|leak| text.contains(leak))
}

/// Every message and plan of the expected outcomes.
#[test]
fn no_message_shows_what_it_is_made_of() {
    for name in NAMES {
        let shown = fs::read_to_string(folder().join(format!("{name}.out"))).unwrap();
        // The line of the text that is meant is the user's; rows are data.
        let is_own = |line: &&str| {
            let said = ["error:", "warning:", "  = ", "  #", "  warning:"];
            said.iter().any(|start| line.starts_with(start))
        };
        for line in shown.lines().filter(is_own) {
            let found = leak(line).filter(|leak| !is_written(name, leak));
            assert_eq!(found, None, "{name}.out: {line}");
        }
    }
}

/// Whether a case has the text itself: a cast as `price::INT`.
fn is_written(name: &str, leak: &str) -> bool {
    let text = fs::read_to_string(folder().join(format!("{name}.sql"))).unwrap();
    text.contains(leak)
}

#[test]
fn no_file_is_forgotten() {
    let files = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|e| e == "sql" || e == "out"));
    for file in files {
        let name = file.file_stem().unwrap().to_string_lossy().to_string();
        assert!(
            NAMES.contains(&name.as_str()),
            "{} belongs to no test: add it to `files!` in tests/sql_files.rs",
            file.display()
        );
    }
}

/// Users write SQL that is nearly right: each word of each case is left out, and
/// exchanged with the next one.
#[test]
fn nearly_right_statements_never_panic_and_errors_have_places() {
    // Every one would take minutes. The step is no divisor of anything, so all kinds get their turn.
    let step = std::env::var("EVERY_TEXT").map_or(41, |_| 1);
    let mut nth = 0;
    for name in NAMES {
        let file = fs::read_to_string(folder().join(format!("{name}.sql"))).unwrap();
        for case in cases(&with_data(&file)) {
            let words = case
                .text
                .split_inclusive(char::is_whitespace)
                .collect::<Vec<_>>();
            let words = words.into_iter().filter(|word| !word.trim().is_empty());
            let words = words.collect::<Vec<_>>();
            for at in 0..words.len() {
                nth += 1;
                if nth % step != 0 {
                    continue;
                }
                let without = [&words[..at], &words[at + 1..]].concat();
                let mut exchanged = words.clone();
                exchanged.swap(at, (at + 1).min(words.len() - 1));
                for text in [without, exchanged].map(|words| words.join(" ")) {
                    let Err(error) = compile(&text, &[], &BuiltIn) else {
                        continue;
                    };
                    // A word that the user wrote may be shown.
                    let shown = error.message.replace("'::'", "");
                    let leak = leak(&shown).or_else(|| leak(&error.hint));
                    assert!(
                        error.place.is_some() && leak.is_none(),
                        "{name}, {}: {error}\n{text}",
                        case.title
                    );
                }
            }
        }
    }
}

/// The examples of the reference, each after the tables that it takes for granted.
#[test]
fn examples_of_the_reference_compile() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sql.md");
    let page = fs::read_to_string(page).unwrap();
    let windows = fs::read_to_string(folder().join("windows.sql")).unwrap();
    let tables = windows.split("CREATE VIEW").next().unwrap();
    let mut compiled = 0;
    for block in page.split("```sql\n").skip(1) {
        let block = block.split("```").next().unwrap();
        // What has no semicolon is a part of a statement.
        if !block.contains(';') {
            continue;
        }
        let before = if block.contains("TABLE bids (") {
            ""
        } else {
            tables
        };
        let data = format!("'{}/", folder().join("data").display());
        let text = format!("{before}{block}")
            .replace("'data/", &data)
            .replace("'bids.csv'", &format!("{data}bids.csv'"))
            .replace("'airports.csv'", &format!("{data}cities.csv'"))
            .replace("'rates.csv'", &format!("{data}rates.csv'"))
            .replace("'orders.jsonl'", &format!("{data}orders.jsonl'"));
        if let Err(error) = compile(&text, &[], &BuiltIn) {
            panic!("{}", error.render("docs/sql.md", &text));
        }
        compiled += 1;
    }
    assert!(compiled > 6, "{compiled} examples");
}
