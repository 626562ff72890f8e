//! What is kept for one key, beside the function's state: the rows that wait, and the timers.

use std::collections::{BTreeMap, BTreeSet};

use crate::state::Mark;
use crate::time::EventTime;

/// A row that waits, and its place among those of its key.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub time: EventTime,
    pub input: u32,
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
        self.values.len() + size_of::<(Place, Mark)>() + 8
    }
}

/// About how many bytes a row that stands takes: a tree has room for half as many again.
pub const STANDING_BYTES: usize = size_of::<(u64, u32)>() * 3 / 2;

/// What is kept for one key.
#[derive(Default)]
pub struct KeyRows {
    /// The rows that wait, with the marks of their arrival.
    pub waiting: BTreeMap<Place, Mark>,
    /// The timers that have not fired.
    pub timers: BTreeSet<EventTime>,
    /// The hashes of the rows that were emitted and not retracted, with how many there are of each; only of
    /// operators that retract rows.
    pub standing: BTreeMap<u64, u32>,
    /// Whether the function keeps a state for the key.
    pub has_state: bool,
    /// How many timers have fired since the input ended, or since event time last moved on.
    pub fired: u32,
    /// When the key was last found to have nothing left, if it is listed for that.
    pub gone: Mark,
    /// Whether it is listed among the keys that have nothing left.
    pub is_listed: bool,
}

impl KeyRows {
    /// When the first row or timer is due.
    pub fn due(&self) -> Option<EventTime> {
        let row = self.waiting.first_key_value().map(|(place, _)| place.time);
        let timer = self.timers.first().copied();
        row.into_iter().chain(timer).min()
    }

    /// The first timer, if it is before `until`.
    pub fn first_timer(&self, until: EventTime) -> Option<EventTime> {
        self.timers.first().copied().filter(|&at| at < until)
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
            && self.timers.is_empty()
            && self.standing.is_empty()
            && !self.has_state
    }

    /// About how many bytes the rows that wait and those that stand take.
    pub fn bytes(&self) -> usize {
        let waiting = self.waiting.keys().map(Place::bytes).sum::<usize>();
        waiting + self.standing.len() * STANDING_BYTES
    }
}

/// The timers of the key whose row or timer is processed.
pub struct Timers<'t> {
    timers: Option<&'t mut BTreeSet<EventTime>>,
    now: EventTime,
}

impl<'t> Timers<'t> {
    /// The timers of a key at an event time; `None` if rows come in the order of arrival.
    pub fn new(timers: Option<&'t mut BTreeSet<EventTime>>, now: EventTime) -> Timers<'t> {
        Timers { timers, now }
    }

    /// Sets a timer: it fires once all rows up to `at` were processed. An earlier time than that of the
    /// present row or timer counts as that one. Returns whether there are timers.
    pub fn set(&mut self, at: EventTime) -> bool {
        let at = at.max(self.now);
        let timers = self.timers.as_mut();
        timers.map(|timers| timers.insert(at)).is_some()
    }

    /// Removes all timers that have not fired.
    pub fn clear(&mut self) {
        if let Some(timers) = &mut self.timers {
            timers.clear();
        }
    }
}
