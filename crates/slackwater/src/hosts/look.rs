//! Questions to a host before a query runs there: whether it has the same files, and the same folders.
//!
//! A folder is the same on two hosts if what one has written there the other can read.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use slackwater_connect::{Files, find_files};

/// What a host is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The folder in which relative paths begin.
    pub folder: PathBuf,
    /// Files.
    pub files: Vec<PathBuf>,
    /// Paths and patterns of files that the host may have, and others not.
    pub patterns: Vec<String>,
    /// Files with a line that another host has written.
    pub marks: Vec<(PathBuf, String)>,
}

/// What it answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The length of each file, or why it can't be read.
    pub files: Vec<Result<u64, String>>,
    /// The files that each pattern names, or why there are none.
    pub matches: Vec<Result<Files, NotFound>>,
    /// Whether each line is there.
    pub marks: Vec<bool>,
}

/// Why files were not found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotFound {
    /// The reason.
    pub reason: String,
    /// How to fix it.
    pub hint: String,
}

impl Ask {
    /// What this host has.
    pub fn look(&self) -> Found {
        let here = |path: &Path| self.folder.join(path);
        let length = |path: &PathBuf| match here(path).metadata() {
            Ok(metadata) if metadata.is_file() => Ok(metadata.len()),
            Ok(_) => Err("is not a file".to_string()),
            Err(error) => Err(error.to_string()),
        };
        let is_there = |(path, mark): &(PathBuf, String)| {
            let text = std::fs::read_to_string(here(path));
            text.is_ok_and(|text| text == *mark)
        };
        let matches = |pattern: &String| {
            let found = find_files(pattern, &self.folder).map_err(|error| NotFound {
                reason: error.reason,
                hint: error.hint,
            })?;
            match found.iter().find(|(path, _)| path.to_str().is_none()) {
                None => Ok(found),
                Some((path, _)) => Err(NotFound {
                    reason: format!("the name of the file {} is not UTF-8", path.display()),
                    hint: "rename it".to_string(),
                }),
            }
        };
        Found {
            files: self.files.iter().map(length).collect(),
            matches: self.patterns.iter().map(matches).collect(),
            marks: self.marks.iter().map(is_there).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_marks_are_looked_for_where_relative_paths_begin() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.csv"), "1,2\n").unwrap();
        std::fs::create_dir(folder.path().join("b")).unwrap();
        let whole = folder.path().join("a.csv");
        let here = folder.path().join("*.csv").display().to_string();
        let ask = Ask {
            folder: folder.path().to_path_buf(),
            files: ["a.csv", "b", "c"].map(PathBuf::from).to_vec(),
            patterns: ["*.csv", "*.json", "c", &*here]
                .map(str::to_string)
                .to_vec(),
            marks: ["1,2\n", "1,3\n"]
                .map(|mark| (PathBuf::from("a.csv"), mark.to_string()))
                .to_vec(),
        };
        let found = ask.look();
        assert_eq!(found.files[0], Ok(4));
        assert_eq!(found.files[1], Err("is not a file".to_string()));
        assert!(
            found.files[2]
                .as_ref()
                .unwrap_err()
                .contains("No such file")
        );
        assert_eq!(found.marks, [true, false]);
        assert_eq!(found.matches[0], Ok(vec![(PathBuf::from("a.csv"), 4)]));
        assert_eq!(found.matches[1], Ok(Vec::new()));
        assert_eq!(found.matches[3], Ok(vec![(whole, 4)]));
        let NotFound { reason, hint } = found.matches[2].clone().unwrap_err();
        assert!(reason.contains("can't find c"), "{reason}");
        assert!(hint.contains(&*folder.path().to_string_lossy()), "{hint}");
    }
}
