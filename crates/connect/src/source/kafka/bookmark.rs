//! Where a partition resumes after the query was restored: `next..end`, either of which may be missing.
//!
//! A row's position is not enough. A partition that was read from the end of the log has an offset before it
//! has a row, and a bounded one ends where it would have ended before.

use std::fmt;

use slackwater_engine::error::{Error, Result};
use slackwater_engine::source::Resume;

use crate::kafka::partitions::{Goal, Planned};

/// The data that a checkpoint keeps about a partition besides the position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bookmark {
    /// The offset after all rows that were passed on; `None`: the partition's beginning.
    pub(super) next: Option<u64>,
    /// After the last offset that is read; `None`: no end.
    pub(super) end: Option<u64>,
}

impl fmt::Display for Bookmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(next) = self.next {
            write!(f, "{next}")?;
        }
        f.write_str("..")?;
        match self.end {
            Some(end) => write!(f, "{end}"),
            None => Ok(()),
        }
    }
}

impl Bookmark {
    fn parse(text: &str) -> Option<Bookmark> {
        // The range of offsets in the protocol.
        let offset = |text: &str| match text {
            "" => Some(None),
            text => Some(Some(text.parse::<u64>().ok().filter(is_offset)?)),
        };
        let (next, end) = text.split_once("..")?;
        Some(Bookmark {
            next: offset(next)?,
            end: offset(end)?,
        })
    }
}

fn is_offset(number: &u64) -> bool {
    i64::try_from(*number).is_ok()
}

impl Goal {
    /// Where the checkpoint says.
    pub(super) fn of(resume: &Resume) -> Result<Goal> {
        let broken = || {
            let reason = format!("the checkpoint's position is not an offset: {resume:?}");
            Error::new(resume.name.clone(), reason).hint("resume from an earlier checkpoint")
        };
        let none = Bookmark {
            next: None,
            end: None,
        };
        let bookmark = match &resume.bookmark {
            None => none,
            Some(text) => Bookmark::parse(text).ok_or_else(broken)?,
        };
        // After the last row there may be messages without a row; before the first row the position
        // is not an offset.
        let row = Some(resume.position).filter(|position| *position > 0);
        let next = bookmark.next.max(row);
        if !next.iter().all(is_offset) {
            return Err(broken());
        }
        let end = if resume.ended {
            Some(next.unwrap_or(0))
        } else {
            bookmark.end
        };
        Ok(Goal { next, end })
    }

    /// A partition that is not in the checkpoint is new. All of it is read, unless the source is bounded.
    pub(super) fn later(bounded: bool) -> Goal {
        Goal {
            next: None,
            end: bounded.then_some(0),
        }
    }
}

/// Rejects a checkpoint with partitions that no longer exist. Partitions of topics that the table no longer
/// names don't matter.
pub(super) fn check_known(planned: &Planned, resume: &[Resume]) -> Result<()> {
    for resume in resume.iter().filter(|resume| !resume.ended) {
        let partition = resume.name.strip_suffix(']');
        let Some((topic, partition)) = partition.and_then(|name| name.rsplit_once('[')) else {
            continue;
        };
        let Some(found) = planned.topics.iter().find(|found| found.name == topic) else {
            continue;
        };
        if partition
            .parse::<u32>()
            .is_ok_and(|partition| partition >= found.partitions)
        {
            let count = found.partitions;
            let reason = format!(
                "the checkpoint resumes at offset {}, but topic '{topic}' has {count} partitions, \
                 from 0",
                resume.position
            );
            return Err(Error::new(resume.name.clone(), reason)
                .hint("the topic was created again with fewer partitions: start over"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::partitions::Topic;

    fn resume(position: u64, bookmark: Option<&str>) -> Resume {
        Resume {
            name: "orders[3]".into(),
            position,
            bookmark: bookmark.map(str::to_string),
            ended: false,
        }
    }

    fn goal(position: u64, bookmark: Option<&str>) -> (Option<u64>, Option<u64>) {
        let goal = Goal::of(&resume(position, bookmark)).unwrap();
        (goal.next, goal.end)
    }

    #[test]
    fn a_partition_resumes_after_its_last_row_and_messages_without_rows() {
        assert_eq!(goal(0, None), (None, None));
        assert_eq!(goal(7, None), (Some(7), None));
        assert_eq!(goal(0, Some("..")), (None, None));
        assert_eq!(goal(0, Some("500..")), (Some(500), None));
        assert_eq!(goal(7, Some("9..")), (Some(9), None));
        assert_eq!(goal(7, Some("7..12")), (Some(7), Some(12)));
        assert_eq!(goal(0, Some("..12")), (None, Some(12)));
    }

    #[test]
    fn a_partition_that_was_read_to_its_end_is_not_read_again() {
        let ended = Resume {
            ended: true,
            ..resume(12, Some("12..12"))
        };
        let goal = Goal::of(&ended).unwrap();
        assert_eq!((goal.next, goal.end), (Some(12), Some(12)));
    }

    #[test]
    fn bookmarks_come_back() {
        for text in ["..", "7..", "..9", "7..9"] {
            assert_eq!(Bookmark::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_an_error() {
        for text in [
            "",
            "7",
            "a..",
            "..b",
            "-1..",
            "18446744073709551615..",
            "1..2..3",
        ] {
            let error = Goal::of(&resume(0, Some(text))).unwrap_err().to_string();
            assert!(error.contains("orders[3]"), "{error}");
        }
        Goal::of(&resume(u64::MAX, None)).unwrap_err();
    }

    #[test]
    fn a_missing_partition_is_an_error() {
        let planned = Planned {
            topics: vec![Topic {
                name: "orders".into(),
                partitions: 3,
            }],
        };
        let error = check_known(&planned, &[resume(7, None)]).unwrap_err();
        assert!(error.to_string().contains("has 3 partitions"), "{error}");
        let other = Resume {
            name: "returns[3]".into(),
            ..resume(7, None)
        };
        check_known(&planned, &[other]).unwrap();
    }
}
