//! The lines that are not committed yet: findings there are listed first.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Lines that differ from the last commit, as `file:line`; none where there is no git.
pub fn lines(root: &Path) -> BTreeSet<String> {
    let mut git = Command::new("git");
    git.args(["diff", "--unified=0", "--no-ext-diff", "--no-color", "HEAD"]);
    let output = git.current_dir(root).output();
    let text = output.map_or_else(|_| Vec::new(), |output| output.stdout);
    in_diff(&String::from_utf8_lossy(&text))
}

fn in_diff(diff: &str) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    let mut file = "";
    for line in diff.lines() {
        if let Some(name) = line.strip_prefix("+++ b/") {
            file = name;
        }
        // @@ -12,3 +14,2 @@: two lines from line 14.
        let Some(hunk) = line.strip_prefix("@@ ") else {
            continue;
        };
        let added = hunk.split(' ').find_map(|part| part.strip_prefix('+'));
        let (first, count) = match added.and_then(|added| added.split_once(',')) {
            Some((first, count)) => (first.parse(), count.parse()),
            None => (added.unwrap_or_default().parse(), Ok(1)),
        };
        if let (Ok(first), Ok(count)) = (first, count) {
            let first: usize = first;
            let count: usize = count;
            lines.extend((first..first + count).map(|line| format!("{file}:{line}")));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_lines_are_found() {
        let diff = "--- a/x.rs\n+++ b/x.rs\n@@ -1,0 +2,2 @@ fn a\n+b\n+c\n@@ -9 +11 @@\n-d\n+e\n\
                    --- a/y.md\n+++ b/y.md\n@@ -3,2 +2,0 @@\n-f\n-g\n";
        let found = in_diff(diff);
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(found, ["x.rs:11", "x.rs:2", "x.rs:3"]);
    }
}
