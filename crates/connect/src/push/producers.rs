//! What producers have pushed: the newest sequence of each, and how far the next one was read.
//!
//! The *bookmark* is this as text, which checkpoints contain: a JSON array, from the producer that pushed
//! longest ago to the one that pushed last.
//!
//! ```text
//! [{"name":"a","done":6},{"name":"b","done":3,"begun":{"sequence":4,"line":1201}}]
//! ```
//!
//! `done` is the last sequence whose rows are all before the checkpoint. `begun` is one of which the lines
//! before `line` are: the push had several chunks, and the checkpoint's barrier came in between. When it is
//! pushed again, the rest of it is read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Producer;

/// The producers that are remembered, those that pushed last: 1,000 with names of 64 bytes make a bookmark of
/// at most 150 kB.
pub(super) const PRODUCERS_MAX: usize = 1_000;

/// What producers have pushed.
#[derive(Debug, Default)]
pub(super) struct Producers {
    known: BTreeMap<String, Known>,
    /// Counts pushes.
    clock: u64,
}

#[derive(Debug, Default)]
struct Known {
    done: Option<u64>,
    /// The position after the rows of `done`; 0 if they are in the checkpoint that was resumed from.
    end: u64,
    begun: Option<Begun>,
    /// When it pushed last.
    at: u64,
}

/// A push that was read in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Begun {
    sequence: u64,
    /// The first line that was not read.
    line: u64,
}

/// A producer in the bookmark.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    done: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    begun: Option<Begun>,
}

/// What is known of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// The lines before this one were read; 0 if none was.
    Until(u64),
    /// All of it was read, up to this position.
    Whole(u64),
}

impl Producers {
    /// The producers of a bookmark; `None` if it is not valid.
    pub(super) fn parse(bookmark: &str) -> Option<Producers> {
        let stored = serde_json::from_str::<Vec<Stored>>(bookmark).ok()?;
        if stored.len() > PRODUCERS_MAX {
            return None;
        }
        let known = stored.into_iter().zip(1..);
        let known = known.map(|(producer, at)| {
            let Stored { name, done, begun } = producer;
            let end = 0;
            (
                name,
                Known {
                    done,
                    end,
                    begun,
                    at,
                },
            )
        });
        let known = known.collect::<BTreeMap<_, _>>();
        Some(Producers {
            clock: known.len() as u64,
            known,
        })
    }

    /// The bookmark; `None` without producers.
    pub(super) fn bookmark(&self) -> Option<String> {
        if self.known.is_empty() {
            return None;
        }
        let mut known = self.known.iter().collect::<Vec<_>>();
        known.sort_by_key(|(_, known)| known.at);
        let stored = known.into_iter().map(|(name, known)| Stored {
            name: name.clone(),
            done: known.done,
            begun: known.begun,
        });
        let stored = stored.collect::<Vec<Stored>>();
        Some(serde_json::to_string(&stored).expect("strings and numbers"))
    }

    /// What is known of a push.
    pub(super) fn seen(&self, push: &Producer) -> Seen {
        let Some(known) = self.known.get(&push.name) else {
            return Seen::Until(0);
        };
        if known.done >= Some(push.sequence) {
            return Seen::Whole(known.end);
        }
        let begun = known.begun.filter(|begun| begun.sequence == push.sequence);
        Seen::Until(begun.map_or(0, |begun| begun.line))
    }

    /// Notes that the lines of a push before `line` were read.
    pub(super) fn read_until(&mut self, push: &Producer, line: u64) {
        let sequence = push.sequence;
        self.note(push).begun = Some(Begun { sequence, line });
    }

    /// Notes that all of a push was read, up to position `end`.
    pub(super) fn read_whole(&mut self, push: &Producer, end: u64) {
        let known = self.note(push);
        known.done = Some(push.sequence);
        known.end = end;
        known.begun = None;
    }

    fn note(&mut self, push: &Producer) -> &mut Known {
        if self.known.len() >= PRODUCERS_MAX && !self.known.contains_key(&push.name) {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.at);
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.and_then(|name| self.known.remove(&name));
        }
        self.clock += 1;
        let known = self.known.entry(push.name.clone()).or_default();
        known.at = self.clock;
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn producer(name: &str, sequence: u64) -> Producer {
        Producer {
            name: name.into(),
            sequence,
        }
    }

    #[test]
    fn a_bookmark_is_read_by_the_next_incarnation() {
        let mut producers = Producers::default();
        assert_eq!(producers.bookmark(), None);
        producers.read_whole(&producer("b", 3), 40);
        producers.read_whole(&producer("a", 6), 50);
        producers.read_until(&producer("b", 4), 1_201);
        let bookmark = producers.bookmark().unwrap();
        let golden = "[{\"name\":\"a\",\"done\":6},\
                      {\"name\":\"b\",\"done\":3,\"begun\":{\"sequence\":4,\"line\":1201}}]";
        assert_eq!(bookmark, golden);
        let mut next = Producers::parse(golden).unwrap();
        assert_eq!(next.bookmark().as_deref(), Some(golden));
        for old in [0, 5, 6] {
            assert_eq!(next.seen(&producer("a", old)), Seen::Whole(0));
        }
        assert_eq!(next.seen(&producer("a", 7)), Seen::Until(0));
        assert_eq!(next.seen(&producer("b", 3)), Seen::Whole(0));
        assert_eq!(next.seen(&producer("b", 4)), Seen::Until(1_201));
        assert_eq!(next.seen(&producer("b", 5)), Seen::Until(0));
        assert_eq!(next.seen(&producer("c", 0)), Seen::Until(0));
        next.read_whole(&producer("b", 4), 90);
        assert_eq!(next.seen(&producer("b", 4)), Seen::Whole(90));
        let golden = "[{\"name\":\"a\",\"done\":6},{\"name\":\"b\",\"done\":4}]";
        assert_eq!(next.bookmark().as_deref(), Some(golden));
    }

    #[test]
    fn the_producers_that_pushed_last_are_remembered() {
        let mut producers = Producers::default();
        for number in 0..PRODUCERS_MAX as u64 {
            producers.read_whole(&producer(&format!("p{number}"), 7), number);
        }
        producers.read_whole(&producer("p0", 8), 2_000);
        let mut next = Producers::parse(&producers.bookmark().unwrap()).unwrap();
        next.read_whole(&producer("another", 1), 3_000);
        assert_eq!(next.seen(&producer("p0", 8)), Seen::Whole(0));
        assert_eq!(next.seen(&producer("p1", 7)), Seen::Until(0));
        assert_eq!(next.seen(&producer("p2", 7)), Seen::Whole(0));
        assert_eq!(next.known.len(), PRODUCERS_MAX);
    }

    #[test]
    fn nonsense_is_not_a_bookmark() {
        for text in ["", "{}", "[{}]", "[{\"name\":\"a\",\"done\":-1}]", "7"] {
            assert!(Producers::parse(text).is_none(), "{text}");
        }
        let many = vec!["{\"name\":\"a\"}"; PRODUCERS_MAX + 1].join(",");
        assert!(Producers::parse(&format!("[{many}]")).is_none());
    }
}
