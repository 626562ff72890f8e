//! The words that STYLE.md tells to avoid: the second column of the table in its section "Words".

use crate::Finding;
use crate::tree::{Tree, folder, kind};

const CHECK: &str = "words";
const FIX: &str = "STYLE.md, section Words, says what to write";
const STYLE: &str = "STYLE.md";
const SECTION: &str = "## Words";
/// What is prose, or has prose in comments and messages. Expected outputs follow from these.
const PROSE: [&str; 10] = [
    "rs", "md", "py", "sql", "toml", "sh", "yml", "yaml", "Makefile", "java",
];

/// Every place with a word to avoid, counted by area and word.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let avoided = avoided(tree.get(STYLE).unwrap_or_default());
    let mut found = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| PROSE.contains(&kind(path))) {
        let (flat, starts) = flat(text);
        let section = if path == STYLE { section(text) } else { 0..0 };
        for phrase in &avoided {
            for (at, _) in flat.match_indices(&phrase.to_lowercase()) {
                // The words' beginnings count, and not their ends: "walk" is "walked", but not "sidewalk".
                let inside = flat[..at].ends_with(|before: char| before.is_alphabetic());
                let line = starts.partition_point(|start| *start <= at);
                if inside || section.contains(&line) {
                    continue;
                }
                found.push(Finding {
                    check: CHECK,
                    place: format!("{} {phrase}", area(path)),
                    at: format!("{path}:{line}"),
                    what: format!("{phrase:?}"),
                    fix: FIX,
                    amount: 1,
                });
            }
        }
    }
    found
}

/// The text in small letters without the marks of comments, so that a phrase is found across the end of a
/// line, and where each line starts in it.
fn flat(text: &str) -> (String, Vec<usize>) {
    let (mut flat, mut starts) = (String::with_capacity(text.len()), Vec::new());
    for line in text.lines() {
        starts.push(flat.len());
        let words = line
            .trim_start()
            .trim_start_matches(['/', '!', '#', '*', '>', '-'])
            .trim();
        flat.extend(words.chars().flat_map(char::to_lowercase));
        flat.push(' ');
    }
    (flat, starts)
}

/// The lines of the section in STYLE.md, which names what it forbids.
fn section(style: &str) -> std::ops::Range<usize> {
    let mut headings = style
        .lines()
        .enumerate()
        .filter(|(_, line)| line.starts_with("## "));
    let start = headings
        .find(|(_, line)| line.trim() == SECTION)
        .map_or(0, |(at, _)| at + 1);
    let end = headings.next().map_or(usize::MAX, |(at, _)| at + 1);
    if start == 0 { 0..0 } else { start..end }
}

/// The phrases in the column "not" of the section's table; a cell has several, with commas between them.
fn avoided(style: &str) -> Vec<String> {
    let lines = section(style);
    let rows = style
        .lines()
        .skip(lines.start)
        .take(lines.len())
        .filter(|line| line.starts_with('|'));
    let cells =
        |row: &str| -> Vec<String> { row.split('|').map(|cell| cell.trim().to_owned()).collect() };
    let mut rows = rows.map(cells);
    let Some(column) = rows
        .next()
        .and_then(|row| row.iter().position(|cell| cell == "not"))
    else {
        return Vec::new();
    };
    let cells = rows.filter_map(|row| row.get(column).cloned());
    let phrases = cells.flat_map(|cell| {
        cell.split(',')
            .map(|phrase| phrase.trim().to_owned())
            .collect::<Vec<_>>()
    });
    phrases
        .filter(|phrase| phrase.contains(char::is_alphabetic))
        .collect()
}

/// What exceptions are counted by: a crate, a folder of tests, or a folder at the top.
fn area(path: &str) -> String {
    let folders: Vec<&str> = folder(path).split('/').collect();
    match folders[..] {
        [""] => path.to_owned(),
        [top @ ("crates" | "tests" | "tools" | "bench"), inner, ..] => format!("{top}/{inner}"),
        [top, ..] => top.to_owned(),
        [] => unreachable!("splitting gives one part at least"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "# Style\n\n## Words\n\n| write | not |\n|---|---|\n| go | walk |\n\
                         | generated | spun up, spun-up |\n\n## After\nwalk\n";

    fn found(path: &str, text: &str) -> Vec<(String, String)> {
        let found = check(&Tree::of([(STYLE, WORDS), (path, text)]));
        found
            .into_iter()
            .map(|finding| (finding.place, finding.at))
            .collect()
    }

    #[test]
    fn words_are_read_from_the_section() {
        assert_eq!(avoided(WORDS), ["walk", "spun up", "spun-up"]);
        assert_eq!(
            avoided("# Style\n| write | not |\n|---|---|\n| go | walk |\n"),
            [""; 0]
        );
        let in_style = ("STYLE.md walk".to_owned(), "STYLE.md:11".to_owned());
        assert_eq!(found("a.out", "walk"), [in_style]);
    }

    #[test]
    fn words_are_found_in_prose_and_names() {
        let text = "/// Walked.\nfn the_walk() {}\n//! They are spun\n//! up.\n// sidewalk\n";
        let mut found = found("crates/sql/src/a.rs", text);
        found.retain(|(place, _)| place.starts_with("crates/sql "));
        let at = |word: &str, line| {
            (
                format!("crates/sql {word}"),
                format!("crates/sql/src/a.rs:{line}"),
            )
        };
        assert_eq!(found, [at("walk", 1), at("walk", 2), at("spun up", 3)]);
    }

    #[test]
    fn areas_are_crates_and_folders() {
        let areas = [
            "crates/sql/src/a.rs",
            "docs/b/c.md",
            "README.md",
            "tests/chaos/a.py",
        ]
        .map(area);
        assert_eq!(areas, ["crates/sql", "docs", "README.md", "tests/chaos"]);
    }
}
