//! The rows of one key: those that wait, those that frames may still reach, and the running values.

use std::collections::{BTreeMap, VecDeque};

use crate::state::Mark;
use crate::time::EventTime;

/// A row, and its place among those of its key.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub time: EventTime,
    /// [`crate::chunk::Partitions::NONE`] for a row without an origin; its position is 0.
    pub partition: u32,
    pub position: u64,
    /// The encoded values, which have an order of their own.
    pub values: Box<[u8]>,
    pub number: u64,
}

impl Place {
    /// About how many bytes it takes, including its part of the collection.
    pub fn bytes(&self) -> usize {
        self.values.len() + size_of::<Kept>() + 8
    }
}

/// A row that is done, with its mark.
pub struct Kept {
    pub place: Place,
    pub mark: Mark,
}

/// How far frames look back: a number of rows, and of microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reach {
    rows: usize,
    us: Option<EventTime>,
}

impl Reach {
    /// A reach of this many rows.
    pub fn rows(rows: u64) -> Reach {
        Reach {
            rows: usize::try_from(rows).unwrap_or(usize::MAX),
            us: None,
        }
    }

    /// A reach of this many microseconds.
    pub fn us(us: EventTime) -> Reach {
        Reach {
            rows: 0,
            us: Some(us),
        }
    }

    /// Whether rows are kept by their number, however old they are.
    pub fn keeps_rows(self) -> bool {
        self.rows > 0
    }

    /// The longer of two reaches.
    pub fn longer(self, other: Reach) -> Reach {
        Reach {
            rows: self.rows.max(other.rows),
            us: self.us.max(other.us),
        }
    }

    /// The last time of a row that has this one in its frame; `None` if there is none.
    fn last(&self, time: EventTime) -> Option<EventTime> {
        self.us.map(|us| time.saturating_add(us))
    }
}

/// The running counts of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of rows so far.
    pub rows: u64,
    /// The rank of the last row's time: one more than the number of rows before that time.
    pub rank: u64,
    /// The number of different times so far.
    pub times: u64,
    /// The last time.
    pub last: Option<EventTime>,
}

/// The running values of a key.
#[derive(Debug, Clone, Copy)]
pub struct RunsOn {
    pub counts: Counts,
    /// The key's group in the accumulators.
    pub group: u32,
    /// The mark of the last change.
    pub mark: Mark,
}

/// The rows of one key.
#[derive(Default)]
pub struct KeyRows {
    /// The rows that wait, with their marks.
    pub waiting: BTreeMap<Place, Mark>,
    /// The rows that are done, in order.
    pub done: VecDeque<Kept>,
    pub running: Option<RunsOn>,
}

impl KeyRows {
    /// When the key is due: a row is complete, or the first one can be forgotten.
    pub fn due(&self, reach: &Reach) -> Option<EventTime> {
        let waits = self.waiting.first_key_value();
        let waits = waits.map(|(place, _)| place.time);
        let first = self.done.front().filter(|_| self.done.len() > reach.rows);
        let gone = first.and_then(|row| reach.last(row.place.time));
        waits.into_iter().chain(gone).min()
    }

    /// Adds a row to those that are done: after them, unless it comes from a snapshot.
    pub fn insert_done(&mut self, row: Kept) {
        if self.done.back().is_none_or(|last| last.place < row.place) {
            self.done.push_back(row);
            return;
        }
        let before = |other: &Kept| other.place < row.place;
        let at = self.done.partition_point(before);
        self.done.insert(at, row);
    }

    /// Notes that the waiting rows up to a time are done: they were emitted before they were stored.
    pub fn note_done(&mut self, complete: EventTime) {
        while let Some(first) = self.waiting.first_entry()
            && first.key().time <= complete
        {
            let (place, mark) = first.remove_entry();
            self.insert_done(Kept { place, mark });
        }
    }

    /// Forgets what no frame of a row to come reaches; returns about how many bytes that freed.
    pub fn forget(&mut self, reach: &Reach, complete: EventTime) -> usize {
        let waits = self.waiting.first_key_value();
        // No row to come is earlier.
        let next = waits.map_or(complete.saturating_add(1), |(place, _)| {
            place.time.min(complete.saturating_add(1))
        });
        let is_over = next == EventTime::MAX;
        let mut bytes = 0;
        while self.done.len() > reach.rows
            && let Some(first) = self.done.front()
        {
            let is_reached = reach
                .last(first.place.time)
                .is_some_and(|last| last >= next);
            if is_reached && !is_over {
                break;
            }
            bytes += first.place.bytes();
            self.done.pop_front();
        }
        bytes
    }

    /// About how many bytes its rows take.
    pub fn bytes(&self) -> usize {
        let waiting = self.waiting.keys();
        let places = waiting.chain(self.done.iter().map(|row| &row.place));
        places.map(Place::bytes).sum()
    }
}
