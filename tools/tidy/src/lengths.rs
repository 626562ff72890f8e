//! Limits of lines and files: a line fits next to another file, and a file fits in the head.

use crate::Finding;
use crate::tree::{Tree, kind};

const LINES: &str = "wide-lines";
const LINES_FIX: &str = "break it";
/// The most columns of a line of code, comment or prose.
const COLUMNS_MAX: usize = 110;
/// The kinds of files that people write. The rest is generated, expected output or data.
const WRITTEN: [&str; 10] = [
    "rs", "md", "py", "sql", "toml", "sh", "yml", "yaml", "Makefile", "java",
];
/// Queries of tests: their messages name lines and columns.
const NOT_WRITTEN: [&str; 1] = ["crates/slackwater/tests/"];

const FILES: &str = "long-files";
const FILES_FIX: &str = "split it: a file has one purpose and at most 500 lines";
/// The most lines of a file of code.
const LINES_MAX: usize = 500;
const CODE: [&str; 2] = ["rs", "py"];

/// Lines and files over the limits.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.files() {
        let lines = text.lines().count();
        if CODE.contains(&kind(path)) && lines > LINES_MAX {
            found.push(Finding {
                check: FILES,
                place: path.to_owned(),
                at: path.to_owned(),
                what: format!("{lines} lines, {LINES_MAX} are the most"),
                fix: FILES_FIX,
                amount: lines,
            });
        }
        if is_written(path) {
            wide_lines(path, text, &mut found);
        }
    }
    found
}

fn is_written(path: &str) -> bool {
    let sql_of_tests =
        kind(path) == "sql" && NOT_WRITTEN.iter().any(|folder| path.starts_with(folder));
    WRITTEN.contains(&kind(path)) && !sql_of_tests
}

fn wide_lines(path: &str, text: &str, found: &mut Vec<Finding>) {
    let markdown = kind(path) == "md";
    let mut fenced = false;
    for (at, line) in text.lines().enumerate() {
        fenced ^= markdown && line.trim_start().starts_with("```");
        // Tables can't be broken, and what a program printed isn't.
        if markdown && (fenced || line.trim_start().starts_with('|')) {
            continue;
        }
        let columns = columns(line);
        if columns > COLUMNS_MAX {
            let what = format!("{columns} columns, {COLUMNS_MAX} are the most");
            found.push(Finding::in_line(LINES, path, at + 1, what, LINES_FIX));
        }
    }
}

/// The columns of a line, without those of URLs, which can't be broken.
fn columns(line: &str) -> usize {
    let urls = line
        .split(|c: char| c.is_whitespace() || "()<>\"'`".contains(c))
        .filter(|word| word.contains("://"));
    line.chars().count() - urls.map(|url| url.chars().count()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(&'static str, String, usize)> {
        let found = check(&Tree::of([(path, text)]));
        found
            .into_iter()
            .map(|finding| (finding.check, finding.at, finding.amount))
            .collect()
    }

    #[test]
    fn wide_lines_are_found() {
        let text = format!("{}\n{}\n", "ä".repeat(110), "x".repeat(111));
        for path in ["a.rs", "docs/a.md", "Makefile", "examples/a.sql"] {
            assert_eq!(found(path, &text), [(LINES, format!("{path}:2"), 1)]);
        }
        for path in ["a.out", "crates/slackwater/tests/sql/a.sql", "a.json"] {
            assert_eq!(found(path, &text), []);
        }
    }

    #[test]
    fn tables_fences_and_urls_may_be_wide() {
        let wide = "x".repeat(111);
        let text =
            format!("| {wide} |\n```\n{wide}\n```\nsee [there](https://x.org/{wide})\n{wide}");
        assert_eq!(found("a.md", &text), [(LINES, "a.md:6".to_owned(), 1)]);
        assert_eq!(
            found("a.rs", &format!("| {wide} |")),
            [(LINES, "a.rs:1".to_owned(), 1)]
        );
    }

    #[test]
    fn long_files_are_found_with_their_size() {
        assert_eq!(
            found("a.rs", &"\n".repeat(501)),
            [(FILES, "a.rs".to_owned(), 501)]
        );
        assert_eq!(found("a.py", &"\n".repeat(500)), []);
        assert_eq!(found("a.md", &"\n".repeat(501)), []);
    }
}
