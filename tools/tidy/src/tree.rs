//! The files of the source tree: what git tracks, and what it would.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The text of every file by its path from the root; files that are not UTF-8 are left out.
#[derive(Default)]
pub struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the repository in `root`.
    pub fn read(root: &Path) -> Result<Self, String> {
        let output = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(root)
            .output()
            .map_err(|error| format!("git ls-files: {error}"))?;
        if !output.status.success() {
            return Err(format!(
                "git ls-files: {}",
                String::from_utf8_lossy(&output.stderr)
            ));
        }
        let paths = String::from_utf8_lossy(&output.stdout).into_owned();
        let files = paths.split_terminator('\0').filter_map(|path| {
            // A file that was removed and not committed yet is listed, too.
            let bytes = std::fs::read(root.join(path)).ok()?;
            Some((path.to_owned(), String::from_utf8(bytes).ok()?))
        });
        Ok(Self {
            files: files.collect(),
        })
    }

    /// A tree of the given files, for the tests of checks.
    pub fn of<const N: usize>(files: [(&str, &str); N]) -> Self {
        Self {
            files: files
                .map(|(path, text)| (path.to_owned(), text.to_owned()))
                .into(),
        }
    }

    /// Adds files.
    pub fn extend<const N: usize>(&mut self, files: [(&str, &str); N]) {
        self.files
            .extend(files.map(|(path, text)| (path.to_owned(), text.to_owned())));
    }

    /// All files, in the order of their paths.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text of a file.
    pub fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether there is such a file, or a folder with files.
    pub fn exists(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.get(path).is_some()
            || self
                .files
                .range(folder.clone()..)
                .next()
                .is_some_and(|(path, _)| path.starts_with(&folder))
    }
}

/// The root of this repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The ending of a path after its last dot, or the file name where it has none.
pub fn kind(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit('.').next().unwrap_or(name)
}

/// The folder of a path, without a slash at its end.
pub fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// A path relative to a folder, with `.` and `..` resolved.
pub fn join(folder: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(relative.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined() {
        assert_eq!(join("docs/internals", "../sql.md"), "docs/sql.md");
        assert_eq!(join("", "./README.md"), "README.md");
        assert_eq!(
            (
                folder("a/b.rs"),
                folder("b.rs"),
                kind("a/b.rs"),
                kind("Makefile")
            ),
            ("a", "", "rs", "Makefile")
        );
    }

    #[test]
    fn a_folder_exists_when_it_has_files() {
        let tree = Tree::of([("docs/a.md", "")]);
        assert!(tree.exists("docs") && tree.exists("docs/") && tree.exists("docs/a.md"));
        assert!(!tree.exists("doc") && !tree.exists("docs/b.md"));
    }
}
