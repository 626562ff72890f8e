//! SQL tests in files: splits `NAME.sql` into cases, and `NAME.out` into their expected outcomes.
//!
//! `crates/slackwater/tests/sql_files.rs`, which uses this module too, describes the files.

use std::path::{Path, PathBuf};

/// The command that rewrites the expected outcomes: of SQL that does not compile, and of queries that run.
pub const UPDATE_COMMAND: &str = "UPDATE_EXPECTED=1 cargo test -p slackwater-sql -p slackwater \
                                  --test main -- errors_of sql_files";

/// Whether the tests rewrite the expected outcomes.
pub fn is_update() -> bool {
    std::env::var_os("UPDATE_EXPECTED").is_some()
}

/// The end of the outcome of a case that does not compile.
pub const WRONG_TEXT: &str = "exit code 2\n";

/// The folder with the files.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../slackwater/tests/sql")
}

/// A query, or several that run together.
pub struct Case {
    /// The title after `---`.
    pub title: String,
    /// The file with all other cases replaced by empty lines.
    pub text: String,
    /// The number of first columns that are a key: only the last row of each key is compared.
    pub last_per: Option<usize>,
    /// Whether retracted rows are removed before comparing.
    pub table: bool,
    /// Whether the order of rows is compared.
    pub in_order: bool,
    /// Whether the output of EXPLAIN is compared.
    pub explain: bool,
}

/// The cases of a file, each with all others replaced by empty lines.
pub fn cases(text: &str) -> Vec<Case> {
    let lines = text.lines().collect::<Vec<_>>();
    let titled = |line: &str| line.strip_prefix("--- ").map(str::to_string);
    let mut starts = (0..lines.len())
        .filter(|&line| titled(lines[line]).is_some())
        .collect::<Vec<_>>();
    let common = starts.first().copied().unwrap_or(0);
    starts.push(lines.len());
    let case = |range: &[usize]| {
        let (start, end) = (range[0], range[1]);
        let shown = (0..end).map(|line| {
            if line < common || line >= start {
                lines[line]
            } else {
                ""
            }
        });
        let own = &lines[start..end];
        let last_per = own
            .iter()
            .find_map(|line| line.strip_prefix("-- last per "));
        Case {
            title: titled(lines[start]).expect("a case starts with its title"),
            text: shown.map(|line| format!("{line}\n")).collect(),
            last_per: last_per.map(|columns| columns.parse().expect("a number of columns")),
            table: own.contains(&"-- table"),
            in_order: own.contains(&"-- in order"),
            explain: own.contains(&"-- explain"),
        }
    };
    starts.windows(2).map(case).collect()
}

/// The expected outcomes of a file's cases.
pub struct Expected {
    path: PathBuf,
    outcomes: Vec<(String, String)>,
    /// Whether the file differs from what it should hold.
    is_changed: bool,
}

/// An outcome without blank lines at its end.
fn trimmed(outcome: &str) -> String {
    match outcome.trim_end() {
        "" => String::new(),
        outcome => format!("{outcome}\n"),
    }
}

impl Expected {
    /// Reads `NAME.out`.
    pub fn of(name: &str) -> Expected {
        let path = folder().join(format!("{name}.out"));
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let blocks = text.strip_prefix("--- ").unwrap_or("");
        let blocks = blocks.split("\n--- ").filter(|block| !block.is_empty());
        let outcomes = blocks.map(|block| {
            let (title, outcome) = block.split_once('\n').expect("a title is a line");
            (title.to_string(), trimmed(outcome))
        });
        let outcomes = outcomes.collect();
        Expected {
            path,
            outcomes,
            is_changed: false,
        }
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        let blocks = self.outcomes.iter();
        blocks
            .map(|(title, outcome)| format!("--- {title}\n{outcome}\n"))
            .collect()
    }

    /// The expected outcome of a case.
    pub fn outcome(&self, title: &str) -> Option<&str> {
        let mut outcomes = self.outcomes.iter();
        let found = outcomes.find(|(known, _)| known == title);
        found.map(|(_, outcome)| outcome.as_str())
    }

    /// Compares the outcome of case number `nth`, or stores it if expected outcomes are rewritten.
    pub fn compare(&mut self, nth: usize, title: &str, found: &str) -> Result<(), String> {
        if self.outcome(title) == Some(&trimmed(found)) {
            return Ok(());
        }
        if !is_update() {
            let expected = self
                .outcome(title)
                .unwrap_or("(no outcome in the file yet)\n");
            let name = self.path.display();
            return Err(format!(
                "{name}, {title}\nexpected:\n{expected}found:\n{found}to accept it: {UPDATE_COMMAND}\n"
            ));
        }
        self.is_changed = true;
        let block = (title.to_string(), trimmed(found));
        match self.outcomes.iter().position(|(known, _)| known == title) {
            Some(at) => self.outcomes[at] = block,
            None => self.outcomes.insert(nth.min(self.outcomes.len()), block),
        }
        Ok(())
    }

    /// Finishes the comparison of a file with these cases: writes stored outcomes, and rejects those of
    /// unknown cases.
    pub fn finish(mut self, cases: &[Case]) -> Result<(), String> {
        let is_case = |title: &String| cases.iter().any(|case| case.title == *title);
        if is_update() {
            let stored = self.outcomes.len();
            self.outcomes.retain(|(title, _)| is_case(title));
            if self.is_changed || self.outcomes.len() < stored {
                std::fs::write(&self.path, self.text()).expect("the folder of the tests");
            }
            return Ok(());
        }
        match self.outcomes.iter().find(|(title, _)| !is_case(title)) {
            Some((title, _)) => Err(format!(
                "{}: there is no case '{title}'",
                self.path.display()
            )),
            None => Ok(()),
        }
    }
}
