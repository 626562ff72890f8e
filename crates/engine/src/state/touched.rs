//! Which entries of a state have changed, so that an incremental snapshot looks at these and not at all.
//!
//! Entries have numbers, from 0 on. Each carries the mark of its last change; the numbers of those that
//! changed after the last snapshot that was asked for are listed. A list that has become a notable part of
//! all entries is given up: then all marks are looked at, one after the other, which costs less than
//! sorting the list. So a snapshot looks at no more than [`ENTRIES_PER_LISTED`] times as many marks as
//! entries have changed, or at [`LISTED_MIN`] times that, however many entries there are.

use super::Mark;

/// A list is given up when it has more than one in this many entries. Looking at a mark costs 1 ns, sorting
/// a listed number about 16.
const ENTRIES_PER_LISTED: usize = 16;

/// A list of fewer entries is never given up (4 KiB).
const LISTED_MIN: usize = 1024;

/// The marks of entries, and a list of those that changed lately.
#[derive(Debug)]
pub struct Touched {
    entries: usize,
    /// The mark of each entry's last change. Entries without one changed before any interval ended: then
    /// only a snapshot of everything can follow, and a query without checkpoints keeps no marks at all.
    marks: Vec<Mark>,
    /// The entries with a mark after `since`, each once, in order of their first change; `None` if there
    /// are too many of them.
    listed: Option<Vec<u32>>,
    /// The latest mark that a snapshot was asked for. No later snapshot asks for changes since an earlier
    /// one, except for everything.
    since: Mark,
}

impl Default for Touched {
    fn default() -> Touched {
        Touched {
            entries: 0,
            marks: Vec::new(),
            listed: Some(Vec::new()),
            // The first snapshot of the first interval holds everything.
            since: Mark(1),
        }
    }
}

impl Touched {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Makes room for this many entries, if there are fewer.
    pub fn grow(&mut self, entries: usize) {
        self.entries = self.entries.max(entries);
    }

    /// The mark of an entry's last change.
    #[inline]
    pub fn mark(&self, entry: u32) -> Mark {
        let mark = self.marks.get(entry as usize);
        mark.copied().unwrap_or(Mark(1))
    }

    /// Notes that an entry changes now.
    #[inline]
    pub fn touch(&mut self, entry: u32, mark: Mark) {
        if mark > self.since {
            self.note(entry, mark);
        }
    }

    #[inline]
    fn note(&mut self, entry: u32, mark: Mark) {
        if entry as usize >= self.marks.len() {
            self.marks.resize(self.entries, Mark(1));
        }
        let before = std::mem::replace(&mut self.marks[entry as usize], mark);
        if before <= self.since {
            self.list(entry);
        }
    }

    fn list(&mut self, entry: u32) {
        let most = self.listed_max();
        match &mut self.listed {
            Some(listed) if listed.len() < most => listed.push(entry),
            Some(_) => self.listed = None,
            None => {}
        }
    }

    fn listed_max(&self) -> usize {
        (self.entries / ENTRIES_PER_LISTED).max(LISTED_MIN)
    }

    /// The entries that changed since `since`, in order of their numbers; all since [`Mark::default`].
    pub fn since(&mut self, since: Mark) -> Vec<u32> {
        if since < self.since {
            return self.scan(since);
        }
        self.since = since;
        let Some(listed) = &mut self.listed else {
            let chosen = self.scan(since);
            self.listed = (chosen.len() <= self.listed_max()).then(|| chosen.clone());
            return chosen;
        };
        #[cfg(test)]
        work::note(listed.len());
        listed.retain(|&entry| self.marks[entry as usize] > since);
        let mut chosen = listed.clone();
        chosen.sort_unstable();
        chosen
    }

    /// The entries that changed since `since` as of now, to be looked at piece by piece while others
    /// change.
    pub fn changes(&mut self, since: Mark) -> Changes {
        let is_listed = self.listed.is_some() && since >= self.since;
        Changes {
            since,
            next: 0,
            end: self.entries as u32,
            listed: is_listed.then(|| self.since(since)),
            found: 0,
        }
    }

    /// The next changed entries, of which at most `most` are looked at, and which have not changed again
    /// after the interval `until`. Empty at the end, and possibly before it ([`Changes::is_done`]).
    pub fn next(&mut self, changes: &mut Changes, until: Mark, most: usize) -> Vec<u32> {
        let since = changes.since;
        let is_wanted = |touched: &Touched, entry: u32| {
            let mark = touched.mark(entry);
            (mark > since || since == Mark::default()) && mark <= until
        };
        let begin = changes.next;
        let chosen = match &changes.listed {
            Some(listed) => {
                let from = listed.partition_point(|&entry| entry < begin);
                let to = from.saturating_add(most).min(listed.len());
                changes.next = listed.get(to).copied().unwrap_or(changes.end);
                let entries = listed[from..to].iter().copied();
                entries
                    .filter(|&entry| is_wanted(self, entry))
                    .collect::<Vec<u32>>()
            }
            None => {
                #[cfg(test)]
                work::note(most.min((changes.end - begin) as usize));
                changes.next = changes
                    .end
                    .min(begin.saturating_add(u32::try_from(most).unwrap_or(u32::MAX)));
                let entries = begin..changes.next;
                entries.filter(|&entry| is_wanted(self, entry)).collect()
            }
        };
        changes.found += chosen.len();
        if changes.is_done() && changes.listed.is_none() && changes.since >= self.since {
            // As in `since`: few have changed, so they are listed again.
            self.since = changes.since;
            if changes.found <= self.listed_max() {
                let listed = self.scan(changes.since);
                self.listed = (listed.len() <= self.listed_max()).then_some(listed);
            }
        }
        chosen
    }

    /// Those of `entries` that `changes` has not returned yet, and would, in order: they are about to
    /// change.
    pub fn wanted(&self, entries: &[u32], changes: &Changes, until: Mark) -> Vec<u32> {
        let wanted = entries.iter().copied();
        let wanted = wanted.filter(|&entry| self.is_wanted(entry, changes, until));
        let mut wanted = wanted.collect::<Vec<u32>>();
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }

    /// Whether `changes` has not returned an entry yet, and would.
    pub fn is_wanted(&self, entry: u32, changes: &Changes, until: Mark) -> bool {
        let mark = self.mark(entry);
        let has_changed = mark > changes.since || changes.since == Mark::default();
        has_changed && mark <= until && (changes.next..changes.end).contains(&entry)
    }

    fn scan(&mut self, since: Mark) -> Vec<u32> {
        if since == Mark::default() {
            #[cfg(test)]
            work::note(self.entries);
            return (0..self.entries as u32).collect();
        }
        #[cfg(test)]
        work::note(self.marks.len());
        let marks = self.marks.iter().enumerate();
        let changed = marks.filter(|(_, mark)| **mark > since);
        changed.map(|(entry, _)| entry as u32).collect()
    }

    /// Gives the entries new numbers: entry `i` is the one that was `before[i]`.
    pub fn renumber(&mut self, before: &[u32]) {
        let marks = before.iter().map(|&entry| self.mark(entry));
        let marks = marks.collect::<Vec<Mark>>();
        self.clear();
        self.grow(marks.len());
        for (entry, mark) in marks.into_iter().enumerate() {
            self.touch(entry as u32, mark);
        }
    }

    /// Forgets all entries, and keeps the memory.
    pub fn clear(&mut self) {
        self.entries = 0;
        self.marks.clear();
        self.listed.get_or_insert_default().clear();
    }

    /// About how many bytes it holds.
    pub fn bytes(&self) -> usize {
        let listed = self.listed.as_ref().map_or(0, Vec::capacity);
        self.marks.capacity() * size_of::<Mark>() + listed * size_of::<u32>()
    }
}

/// Entries that had changed at some time, and how many of them were looked at.
#[derive(Debug)]
pub struct Changes {
    since: Mark,
    /// All wanted entries before this one were returned.
    next: u32,
    /// Later entries did not exist.
    end: u32,
    /// The entries, in order; `None` if all are looked at.
    listed: Option<Vec<u32>>,
    found: usize,
}

impl Changes {
    /// Whether all were returned.
    pub fn is_done(&self) -> bool {
        self.next >= self.end
    }
}

/// How much work snapshots and restores have done, for tests that it depends on what has changed.
#[cfg(test)]
pub mod work {
    use std::cell::Cell;

    thread_local!(static DONE: Cell<usize> = const { Cell::new(0) });

    /// Counts entries that a snapshot looked at, or a restore wrote.
    pub fn note(entries: usize) {
        DONE.set(DONE.get() + entries);
    }

    /// The count of this thread since the last call.
    pub fn take() -> usize {
        DONE.replace(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_listed_is_what_has_changed(
            entries in 1u32..4000,
            intervals in prop::collection::vec(
                (prop::collection::vec(any::<u32>(), 0..3000), 0u32..6, any::<bool>()), 0..12),
        ) {
            let mut touched = Touched::default();
            let mut known = vec![Mark(1); entries as usize];
            touched.grow(entries as usize);
            let mut latest = Mark(1);
            for (number, (changes, back, renumbers)) in intervals.into_iter().enumerate() {
                let mark = Mark(number as u32 + 1);
                for entry in changes {
                    touched.touch(entry % entries, mark);
                    known[(entry % entries) as usize] = mark;
                }
                if renumbers {
                    let backwards = (0..entries).rev().collect::<Vec<u32>>();
                    touched.renumber(&backwards);
                    known.reverse();
                }
                // Since the last mark, since an earlier one because a checkpoint failed, or everything.
                let since = match back {
                    0 => Mark::default(),
                    back => Mark(mark.0.saturating_sub(back)).max(latest).min(mark),
                };
                latest = latest.max(since);
                let expected = (0..entries).filter(|&entry| known[entry as usize] > since);
                prop_assert_eq!(touched.since(since), expected.collect::<Vec<u32>>());
            }
        }
    }

    #[test]
    fn a_snapshot_looks_at_what_changed_and_not_at_all() {
        let mut touched = Touched::default();
        touched.grow(1_000_000);
        (0..1_000_000).for_each(|entry| touched.touch(entry, Mark(1)));
        assert_eq!(touched.since(Mark::default()).len(), 1_000_000);
        work::take();
        for mark in 2..10 {
            (0..500).for_each(|entry| touched.touch(entry * 7 * mark, Mark(mark)));
            assert_eq!(touched.since(Mark(mark - 1)).len(), 500);
            // Those of the interval before are still listed.
            assert!(work::take() <= 1_000);
        }
        assert!(touched.bytes() <= 4_000_000 + 8 * LISTED_MIN);
        let mut unsaved = Touched::default();
        unsaved.grow(1_000_000);
        (0..1_000_000).for_each(|entry| unsaved.touch(entry, Mark(1)));
        assert_eq!(unsaved.bytes(), 0, "no checkpoint has been taken");
    }

    #[test]
    fn a_list_of_too_many_is_given_up_and_kept_again_later() {
        let mut touched = Touched::default();
        touched.grow(100_000);
        (0..50_000).for_each(|entry| touched.touch(entry, Mark(2)));
        assert!(touched.listed.is_none());
        assert_eq!(touched.since(Mark(1)).len(), 50_000);
        touched.touch(9, Mark(3));
        assert_eq!(touched.since(Mark(2)), [9]);
        work::take();
        touched.touch(8, Mark(4));
        assert_eq!(touched.since(Mark(3)), [8]);
        assert_eq!(work::take(), 2);
    }
}
