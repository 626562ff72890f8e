//! Questions to a host before a query runs there: whether it has the same files, and the same folders.
//!
//! A folder is the same on two hosts if what one has written there the other can read.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What a host is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The folder in which relative paths begin.
    pub folder: PathBuf,
    /// Files.
    pub files: Vec<PathBuf>,
    /// Files with a line that another host has written.
    pub marks: Vec<(PathBuf, String)>,
}

/// What it answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The length of each file, or why it can't be read.
    pub files: Vec<Result<u64, String>>,
    /// Whether each line is there.
    pub marks: Vec<bool>,
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
        Found {
            files: self.files.iter().map(length).collect(),
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
        let ask = Ask {
            folder: folder.path().to_path_buf(),
            files: ["a.csv", "b", "c"].map(PathBuf::from).to_vec(),
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
    }
}
