//! What a query has written into a folder of parts, observed from outside.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::query::row_number;

/// The end of a part: some thousand rows, more than a chunk can leave out of order.
const TAIL_BYTES: u64 = 512 * 1024;

/// Observes the parts in a folder.
pub struct Output {
    folder: PathBuf,
    known: HashSet<PathBuf>,
    /// The largest row number at the end of a committed part.
    last_row: Option<u64>,
}

/// The contents of a folder.
pub struct Seen {
    /// The number of the latest incarnation that has started a part.
    pub incarnation: Option<u64>,
    /// The largest row number in the committed parts.
    pub last_row: Option<u64>,
}

impl Output {
    /// Observes `folder`, which need not exist yet.
    pub fn new(folder: PathBuf) -> Output {
        Output {
            folder,
            known: HashSet::new(),
            last_row: None,
        }
    }

    /// Reads the folder's present contents.
    pub fn look(&mut self) -> Seen {
        let mut incarnation = None;
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten();
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let Some((is_committed, epoch)) = parse(&name) else {
                continue;
            };
            incarnation = incarnation.max(Some(epoch));
            if is_committed && self.known.insert(path.clone()) {
                self.last_row = self.last_row.max(last_row(&path));
            }
        }
        Seen {
            incarnation,
            last_row: self.last_row,
        }
    }
}

/// Whether a part is committed, and its incarnation. The file's name is
/// `part-<instance>-<incarnation>-<number>.csv`, and `.part-….csv.tmp` before the commit.
fn parse(name: &str) -> Option<(bool, u64)> {
    let (is_committed, part) = match name.strip_prefix('.') {
        Some(hidden) => (false, hidden.strip_suffix(".tmp")?),
        None => (true, name),
    };
    let numbers = part.strip_prefix("part-")?.strip_suffix(".csv")?;
    let incarnation = numbers.split('-').nth(1)?.parse().ok()?;
    Some((is_committed, incarnation))
}

/// The largest row number near the end of a part; `None` if it can't be read.
fn last_row(path: &Path) -> Option<u64> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let begin = length.saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(begin)).ok()?;
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    // The first line may be incomplete.
    let skipped = usize::from(begin > 0);
    text.lines().skip(skipped).filter_map(row_number).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts_contain_their_incarnation() {
        assert_eq!(parse("part-0001-00000012-000003.csv"), Some((true, 12)));
        assert_eq!(
            parse(".part-0001-00000012-000003.csv.tmp"),
            Some((false, 12))
        );
        for name in ["part-0.csv", ".hidden", "notes.csv", ".part-1-2-3.csv"] {
            assert_eq!(parse(name), None, "{name}");
        }
    }

    #[test]
    fn the_last_row_of_committed_parts_counts() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
        };
        let mut output = Output::new(folder.path().to_path_buf());
        assert_eq!(output.look().incarnation, None);
        write(
            "part-0-1-0.csv",
            "1000000000009,1,1,1\n1000000000007,2,1,1\n",
        );
        write(".part-0-2-0.csv.tmp", "1000000000010,1,1,1\n");
        let seen = output.look();
        assert_eq!((seen.incarnation, seen.last_row), (Some(2), Some(9)));
    }
}
