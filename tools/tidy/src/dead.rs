//! Files that nothing reaches: sources without a `mod`, pages without a link, examples that nothing runs; and
//! targets of the Makefile without a rule.

use std::collections::BTreeSet;

use crate::Finding;
use crate::modules::Package;
use crate::tree::{Tree, folder, join, kind};

const SOURCES: &str = "dead-sources";
const SOURCES_FIX: &str = "declare it with `mod` where it belongs, or delete it";
const PAGES: &str = "dead-pages";
const PAGES_FIX: &str = "link it from the page where a reader would look for it, or delete it";
const LINKS: &str = "broken-links";
const LINKS_FIX: &str = "link to where the page is now";
const EXAMPLES: &str = "dead-examples";
const EXAMPLES_FIX: &str = "run it in a test or the Makefile, so that it can't rot, or delete it";

const TARGETS: &str = "dead-targets";
const TARGETS_FIX: &str = "write its rule, or remove it from .PHONY";

/// Sources, pages and examples that nothing leads to, and links and targets that lead nowhere.
pub fn check(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let mut found = sources(tree, packages);
    pages(tree, &mut found);
    examples(tree, &mut found);
    targets(tree, &mut found);
    found
}

/// Targets that `.PHONY` names: make does nothing for one without a rule, and says so as if all was well.
fn targets(tree: &Tree, found: &mut Vec<Finding>) {
    let text = tree.get("Makefile").unwrap_or_default();
    for (nth, line) in text.lines().enumerate() {
        let Some(names) = line.strip_prefix(".PHONY:") else {
            continue;
        };
        let has_rule = |name: &str| {
            let mut lines = text.lines();
            lines.any(|line| {
                line.strip_prefix(name)
                    .is_some_and(|rest| rest.starts_with(':'))
            })
        };
        for name in names.split_whitespace().filter(|name| !has_rule(name)) {
            let what = format!("{name} has no rule");
            found.push(Finding::in_line(
                TARGETS,
                "Makefile",
                nth + 1,
                what,
                TARGETS_FIX,
            ));
        }
    }
}

fn file(check: &'static str, path: &str, what: &str, fix: &'static str) -> Finding {
    Finding {
        check,
        place: path.to_owned(),
        at: path.to_owned(),
        what: what.to_owned(),
        fix,
        amount: 1,
    }
}

fn sources(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let reached: BTreeSet<&String> = packages
        .iter()
        .flat_map(|package| &package.reached)
        .collect();
    let sources = tree
        .files()
        .map(|(path, _)| path.to_owned())
        .filter(|path| kind(path) == "rs");
    let dead = sources.filter(|path| !reached.contains(path));
    dead.map(|path| file(SOURCES, &path, "no `mod` leads to it", SOURCES_FIX))
        .collect()
}

fn pages(tree: &Tree, found: &mut Vec<Finding>) {
    let mut linked = BTreeSet::new();
    for (path, text) in tree.files().filter(|(path, _)| kind(path) == "md") {
        for (line, target) in links(text) {
            let target = join(folder(path), target);
            if !tree.exists(&target) {
                let what = format!("the link to {target} leads nowhere");
                found.push(Finding::in_line(LINKS, path, line, what, LINKS_FIX));
            }
            if target != path {
                linked.insert(target);
            }
        }
    }
    let pages = tree
        .files()
        .map(|(path, _)| path)
        .filter(|path| path.starts_with("docs/"));
    for page in pages.filter(|page| !linked.contains(*page)) {
        found.push(file(PAGES, page, "no page links to it", PAGES_FIX));
    }
}

/// The files that a page links to, with the lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    let mut fenced = false;
    for (at, line) in text.lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        let targets = line
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split([')', '#']).next());
        let local = targets.filter(|target| !target.is_empty() && !target.contains("://"));
        links.extend(local.map(|target| (at + 1, target)));
    }
    links
}

fn examples(tree: &Tree, found: &mut Vec<Finding>) {
    let names: BTreeSet<String> = tree.files().filter_map(|(path, _)| example(path)).collect();
    for name in names {
        let runs = |(path, text): (&str, &str)| {
            let runner =
                kind(path) == "Makefile" || path.starts_with(".ci/") || path.contains("/tests/");
            runner && !path.starts_with(&name) && mentions(text, &name)
        };
        if !tree.files().any(runs) {
            found.push(file(EXAMPLES, &name, "nothing runs it", EXAMPLES_FIX));
        }
    }
}

/// The example that a file is a part of: a file or a folder directly inside of a folder of examples.
fn example(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').collect();
    let at = match parts[..] {
        ["examples", ..] => 0,
        ["crates", _, "examples", ..] => 2,
        _ => return None,
    };
    Some(parts[..=at + 1].join("/"))
}

/// Whether a text names an example as it is run: by its path, or by its name as cargo has it.
fn mentions(text: &str, example: &str) -> bool {
    let name = example.rsplit('/').next().unwrap_or(example);
    match (
        example.starts_with("crates/"),
        name.strip_suffix(".rs").unwrap_or(name),
    ) {
        (true, name) => {
            let ways = [format!("--example {name}"), format!("/examples/{name} ")];
            ways.iter().any(|way| text.contains(way)) || text.contains(&format!("\"{name}\""))
        }
        (false, _) => text.contains(example),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<const N: usize>(files: [(&str, &str); N]) -> Vec<(&'static str, String)> {
        let tree = Tree::of(files);
        let found = check(&tree, &Package::all(&tree).unwrap());
        found
            .into_iter()
            .map(|finding| (finding.check, finding.at))
            .collect()
    }

    #[test]
    fn sources_without_a_mod_are_found() {
        let manifest = "[package]\nautotests = false\n[[test]]\npath = \"tests/main.rs\"\n";
        let files = [
            ("x/Cargo.toml", manifest),
            ("x/src/lib.rs", "mod a; #[cfg(test)] mod tests;"),
            (
                "x/src/a.rs",
                "#[path = \"c_tests.rs\"] mod c; include!(\"d.rs\");",
            ),
            ("x/src/c_tests.rs", ""),
            ("x/src/d.rs", ""),
            ("x/src/dead.rs", ""),
            ("x/src/tests.rs", "mod inner;"),
            ("x/src/tests/inner.rs", ""),
            ("x/tests/main.rs", "mod other;"),
            ("x/tests/other.rs", ""),
            ("x/tests/third.rs", ""),
        ];
        let dead = ["x/src/dead.rs", "x/tests/third.rs"].map(|path| (SOURCES, path.to_owned()));
        assert_eq!(found(files), dead);
    }

    #[test]
    fn pages_without_a_link_and_links_without_a_page_are_found() {
        let files = [
            (
                "README.md",
                "[a](docs/a.md#top), [b](docs/c.md)\n[far](https://x.org/docs/d.md) [here](#top)",
            ),
            (
                "docs/a.md",
                "![picture](p.svg)\n```\n[no](docs/link.md)\n```\n[up](../README.md)",
            ),
            ("docs/d.md", "[itself](d.md)"),
            ("docs/p.svg", ""),
        ];
        let broken = (LINKS, "README.md:1".to_owned());
        assert_eq!(found(files), [broken, (PAGES, "docs/d.md".to_owned())]);
    }

    #[test]
    fn examples_that_nothing_runs_are_found() {
        let files = [
            (
                "Makefile",
                "run examples/a.sql\ncargo run --example run_here\ntarget/debug/examples/built 1\n",
            ),
            ("README.md", "`examples/b.sql`"),
            ("crates/x/examples/run_here.rs", ""),
            ("crates/x/examples/built.rs", ""),
            ("crates/x/examples/tested/query.sql", "tested"),
            ("crates/x/examples/dead/query.sql", ""),
            ("crates/x/tests/main.sql", "join(\"tested\")"),
            ("examples/a.sql", ""),
            ("examples/b.sql", ""),
        ];
        let mut found = found(files);
        found.retain(|(check, _)| *check == EXAMPLES);
        let dead =
            ["crates/x/examples/dead", "examples/b.sql"].map(|path| (EXAMPLES, path.to_owned()));
        assert_eq!(found, dead);
    }
}
