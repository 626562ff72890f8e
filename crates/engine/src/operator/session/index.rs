//! Which rows are one session: the edges of all open sessions, without the data of their rows.
//!
//! A row has a time and a *reach*: the larger of its time and its own partition's watermark when it came,
//! in ticks. Two rows of a key are **linked** when the reach of the later one is less than the gap after
//! the time of the earlier one. (So they are less than the gap apart, and the later one's partition had
//! not yet closed the session that the earlier one makes.) Sessions are sets of rows that are linked,
//! directly or through others. Therefore:
//!
//! - Sessions don't depend on the order in which rows come.
//! - Sessions follow each other: no row of one is between two rows of another. If `a < t < b` and a–b are
//!   linked, then so are t–b.
//! - A session whose end (last time plus gap) a watermark has reached is final. A row that isn't late has
//!   `time + gap` after its own watermark, which is not before the merged one; so it is after all rows of
//!   the session, and its reach is at least the end of the session.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Bound::{Excluded, Included};

/// The edges of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// The key's number.
    pub key: u32,
    /// The time of its first row.
    pub first: i64,
    /// The time of its last row.
    pub last: i64,
    /// The smallest reach of its rows.
    pub reach: i64,
}

/// Open sessions by number. Numbers are given out upwards; that of a session that is gone stays unused
/// until all are forgotten.
pub struct Sessions {
    gap: i64,
    /// The sessions; `Err` has the session that one has become part of, or itself if it has been closed.
    slots: Vec<Result<Session, u32>>,
    /// The numbers by key and first time.
    places: BTreeMap<(u32, i64), u32>,
    /// The numbers by end, which may have moved since.
    ends: BinaryHeap<Reverse<(i64, u32)>>,
    /// Which sessions have become part of which, since the last call of [`Sessions::take_merged`].
    merged: Vec<(u32, u32)>,
}

impl Sessions {
    /// No sessions yet.
    pub fn new(gap: i64) -> Sessions {
        Sessions {
            gap,
            slots: Vec::new(),
            places: BTreeMap::new(),
            ends: BinaryHeap::new(),
            merged: Vec::new(),
        }
    }

    /// The number of session numbers given out.
    pub fn numbers(&self) -> usize {
        self.slots.len()
    }

    /// The number of open sessions.
    pub fn open(&self) -> usize {
        self.places.len()
    }

    /// An open session.
    pub fn get(&self, number: u32) -> Option<Session> {
        self.slots.get(number as usize)?.ok()
    }

    /// All open sessions.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Session)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(number, slot)| slot.ok().map(|session| (number as u32, session)))
    }

    /// Adds a row of a key. Its session may later become part of another ([`Sessions::resolve`]).
    pub fn add(&mut self, key: u32, time: i64, reach: i64) -> u32 {
        self.join(Session {
            key,
            first: time,
            last: time,
            reach,
        })
    }

    /// Adds a session, and joins it with those that it is linked with.
    pub fn join(&mut self, session: Session) -> u32 {
        let mut joined = session;
        // The session that stays, and its place.
        let mut kept: Option<(u32, (u32, i64))> = None;
        while let Some((place, number)) = self.linked(&joined, kept.map(|(number, _)| number)) {
            let Ok(other) = self.slots[number as usize] else {
                unreachable!("only open sessions have a place")
            };
            joined = Session {
                key: joined.key,
                first: joined.first.min(other.first),
                last: joined.last.max(other.last),
                reach: joined.reach.min(other.reach),
            };
            match kept {
                None => kept = Some((number, place)),
                Some((kept, _)) => {
                    self.places.remove(&place);
                    self.slots[number as usize] = Err(kept);
                    self.merged.push((number, kept));
                }
            }
        }
        let place = (joined.key, joined.first);
        let number = match kept {
            Some((number, before)) => {
                if before != place {
                    self.places.remove(&before);
                    self.places.insert(place, number);
                }
                self.slots[number as usize] = Ok(joined);
                number
            }
            None => {
                let number = self.slots.len() as u32;
                self.ends
                    .push(Reverse((joined.last.saturating_add(self.gap), number)));
                self.slots.push(Ok(joined));
                self.places.insert(place, number);
                number
            }
        };
        debug_assert!(self.slots[number as usize].is_ok());
        number
    }

    /// A session that this one is linked with, other than `own`: a neighbor, since sessions follow each
    /// other.
    fn linked(&self, session: &Session, own: Option<u32>) -> Option<((u32, i64), u32)> {
        let is_other = |(_, number): &(&(u32, i64), &u32)| own != Some(**number);
        let key = session.key;
        let before = self.places.range((key, i64::MIN)..=(key, session.last));
        if let Some((&place, &number)) = before.rev().find(is_other) {
            let other = self.slots[number as usize].ok()?;
            if other.last >= session.first || self.are_linked(&other, session) {
                return Some((place, number));
            }
        }
        let behind = (Excluded((key, session.last)), Included((key, i64::MAX)));
        let (&place, &number) = self.places.range(behind).find(is_other)?;
        let other = self.slots[number as usize].ok()?;
        self.are_linked(session, &other).then_some((place, number))
    }

    /// Whether two sessions are linked, the first of which ends before the second begins.
    fn are_linked(&self, earlier: &Session, later: &Session) -> bool {
        later.reach < earlier.last.saturating_add(self.gap)
    }

    /// Removes the sessions between and at these times.
    pub fn remove_between(&mut self, key: u32, first: i64, last: i64) {
        let before = self.places.range((key, i64::MIN)..=(key, last));
        let overlapping = before.rev().take_while(|(_, number)| {
            self.slots[**number as usize].is_ok_and(|session| session.last >= first)
        });
        let overlapping = overlapping.map(|(&place, &number)| (place, number));
        for (place, number) in overlapping.collect::<Vec<_>>() {
            self.places.remove(&place);
            self.slots[number as usize] = Err(number);
        }
    }

    /// Which sessions have become part of which since the last call, in order.
    pub fn take_merged(&mut self) -> Vec<(u32, u32)> {
        std::mem::take(&mut self.merged)
    }

    /// The session that one has become part of, or itself.
    pub fn resolve(&self, mut number: u32) -> u32 {
        while let Err(next) = self.slots[number as usize]
            && next != number
        {
            number = next;
        }
        number
    }

    /// Closes a session whose end is `watermark` or before, if there is one.
    pub fn close(&mut self, watermark: i64) -> Option<(u32, Session)> {
        while let Some(&Reverse((end, number))) = self.ends.peek() {
            if end > watermark {
                return None;
            }
            self.ends.pop();
            let Ok(session) = self.slots[number as usize] else {
                continue;
            };
            let end_now = session.last.saturating_add(self.gap);
            if end_now > watermark {
                self.ends.push(Reverse((end_now, number)));
                continue;
            }
            self.places.remove(&(session.key, session.first));
            self.slots[number as usize] = Err(number);
            return Some((number, session));
        }
        None
    }

    /// About how many bytes it holds.
    pub fn bytes(&self) -> usize {
        // A place is 24 bytes in nodes that are two thirds full.
        self.slots.capacity() * size_of::<Result<Session, u32>>()
            + self.ends.capacity() * 16
            + self.places.len() * 36
    }
}
