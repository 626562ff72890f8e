//! Links of the documentation lead somewhere: to a file that is there, and to a heading that it has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All pages: those of the root, and of `docs` to its bottom.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                pages.push(path);
            }
        }
    }
    let of_root = fs::read_dir(root()).unwrap();
    pages.extend(of_root.map(|entry| entry.unwrap().path()));
    pages.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    pages
}

/// The lines of a page that are no code.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    page.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// What GitHub makes of a heading: small letters, digits, `_` and `-`, and `-` for each blank.
fn anchor(heading: &str) -> String {
    let mut shown = String::new();
    let mut rest = heading;
    // Of a link only its text is seen.
    while let Some((before, link)) = rest.split_once('[') {
        let Some((text, behind)) = link.split_once("](") else {
            break;
        };
        shown.push_str(before);
        shown.push_str(text);
        rest = behind.split_once(')').map_or("", |(_, rest)| rest);
    }
    shown.push_str(rest);
    let kept = shown.trim().to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || "_- ".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The anchors of a page; a heading that comes again gets a number.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut seen = BTreeMap::<String, usize>::new();
    let headings = prose(page).filter_map(|line| {
        let heading = line.trim_start_matches('#');
        (heading.len() < line.len()).then(|| heading.strip_prefix(' ').map(anchor))?
    });
    let numbered = headings.map(|anchor| {
        let times = seen.entry(anchor.clone()).or_default();
        *times += 1;
        match *times {
            1 => anchor,
            times => format!("{anchor}-{}", times - 1),
        }
    });
    numbered.collect()
}

/// Where the links of a page lead.
fn links(page: &str) -> Vec<String> {
    let lines = prose(page).map(|line| {
        // What stands between backticks is shown as it is.
        let parts = line.split('`').enumerate();
        let parts = parts.map(|(nth, part)| if nth % 2 == 0 { part } else { "" });
        parts.collect::<String>()
    });
    let mut found = Vec::new();
    for line in lines {
        for link in line.split("](").skip(1) {
            let target = link.split([')', ' ']).next().unwrap_or_default();
            found.push(target.to_string());
        }
    }
    found
}

#[test]
fn every_link_leads_somewhere() {
    let mut dead = Vec::new();
    for path in pages() {
        let page = fs::read_to_string(&path).unwrap();
        for link in links(&page) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => path.clone(),
                file => path.with_file_name(file),
            };
            let is_page = target.extension().is_some_and(|ending| ending == "md");
            let leads = match (target.exists(), anchor) {
                (false, _) => false,
                (true, "") => true,
                (true, _) if !is_page => true,
                (true, anchor) => anchors(&fs::read_to_string(&target).unwrap()).contains(anchor),
            };
            if !leads {
                dead.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}

#[test]
fn anchors_are_made_as_github_makes_them() {
    let page = "# A *page* of `code`\n```\n# no heading\n```\n## Is it? [Yes](x.md), it-is\n## Again\n## \
                Again\n";
    let wanted = ["a-page-of-code", "again", "again-1", "is-it-yes-it-is"];
    assert!(anchors(page).iter().eq(wanted));
}
