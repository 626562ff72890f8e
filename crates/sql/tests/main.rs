//! SQL that does not compile: all such cases of `crates/slackwater/tests/sql`, compiled in this process.

#[expect(dead_code, reason = "only tests that run cases use all fields")]
mod cases;

#[path = "../../slackwater/src/catalog/aggregates.rs"]
mod aggregates;
#[path = "../../slackwater/src/catalog/keyed_operators.rs"]
mod keyed_operators;
#[path = "../../slackwater/src/catalog/operators.rs"]
mod operators;
#[path = "../../slackwater/src/catalog/tables.rs"]
mod tables;
#[path = "../../slackwater/src/catalog/wasm.rs"]
mod wasm;

use std::fs;
use std::sync::Once;

use cases::{Expected, WRONG_TEXT, cases, folder};
use slackwater_sql::compile;
use tables::BuiltIn;

/// The number of tests that share the files, so that they run in parallel.
const SHARES: usize = 4;

#[test]
fn errors_of_wrong_sql_1() {
    check(0);
}

#[test]
fn errors_of_wrong_sql_2() {
    check(1);
}

#[test]
fn errors_of_wrong_sql_3() {
    check(2);
}

#[test]
fn errors_of_wrong_sql_4() {
    check(3);
}

#[test]
fn a_file_that_is_rewritten_stays_as_it_is() {
    let files = fs::read_dir(folder()).unwrap().map(|file| file.unwrap());
    let files = files.map(|file| file.file_name().into_string().unwrap());
    for name in files.filter_map(|file| file.strip_suffix(".out").map(str::to_string)) {
        let text = fs::read_to_string(folder().join(format!("{name}.out"))).unwrap();
        assert!(
            Expected::of(&name).text() == text,
            "{name}.out has other blank lines"
        );
    }
}

fn check(share: usize) {
    // The SQL refers to its inputs as `data/…`.
    static MOVED: Once = Once::new();
    MOVED.call_once(|| std::env::set_current_dir(folder()).unwrap());
    let here = std::env::current_dir().unwrap().display().to_string();
    let files = fs::read_dir(folder()).unwrap().map(|file| file.unwrap());
    let files = files.map(|file| file.file_name().into_string().unwrap());
    let mut names =
        Vec::from_iter(files.filter_map(|file| file.strip_suffix(".sql").map(str::to_string)));
    names.sort();
    let mut wrong = 0;
    let mut failures = Vec::new();
    for name in names.iter().skip(share).step_by(SHARES) {
        let file = format!("{name}.sql");
        let cases = cases(&fs::read_to_string(&file).unwrap());
        let mut expected = Expected::of(name);
        for (nth, case) in cases.iter().enumerate() {
            // Cases that compile are run by the tests of the program.
            let Err(error) = compile(&case.text, &[], &BuiltIn) else {
                continue;
            };
            wrong += 1;
            let shown = error.render(&file, &case.text).replace(&here, "(folder)");
            let shown = format!("error: {shown}\n{WRONG_TEXT}");
            failures.extend(expected.compare(nth, &case.title, &shown).err());
        }
        failures.extend(expected.finish(&cases).err());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(wrong > 40, "{wrong} cases that do not compile");
}
