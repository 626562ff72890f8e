//! Snapshots of keyed rows in slices: rows of a key that is about to change, and aren't copied yet, are
//! copied first.
//!
//! Removed rows come before all others, those that were copied first included: a row that was removed and
//! is back is mentioned twice, and what is restored last counts.

use arrow_array::RecordBatch;

use super::snapshots::OwnColumns;
use super::{Gone, KeyedRows, OfKey};
use crate::error::Result;
use crate::key::Key;
use crate::state::{Changes, Mark, Touched};

/// How many keys are looked at before their rows are counted: a key may have thousands.
const KEYS_AT_ONCE: usize = 64;

/// A snapshot of which some rows aren't copied yet.
pub struct Open {
    since: Mark,
    /// The last interval whose changes it has.
    until: Mark,
    /// The next of the removed rows; `None` if all are copied, or aren't wanted.
    gone: Option<usize>,
    left: Changes,
    /// Rows of keys that were about to change. With the slices it is no more than a snapshot at once would
    /// have.
    early: Copied,
}

/// Copies of rows, side by side.
#[derive(Default)]
struct Copied {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    own: OwnColumns,
}

impl Copied {
    fn rows(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let ranges = starts.zip(&self.ends);
        ranges.map(|(start, &end)| &self.bytes[start..end])
    }
}

impl Open {
    /// Whether the snapshot has a row that last changed in this interval.
    fn has(&self, mark: Mark) -> bool {
        mark > self.since && mark <= self.until
    }

    fn copy_early(&mut self, of_key: &OfKey) {
        for (row, kept) in of_key.rows.iter() {
            if self.has(kept.mark) {
                self.early.bytes.extend_from_slice(row);
                self.early.ends.push(self.early.bytes.len());
                self.early.own.push(kept);
            }
        }
    }
}

impl KeyedRows {
    /// Begins a snapshot of what changed since `since` until the end of the interval `until`, which ends
    /// now.
    pub fn begin_slices(&mut self, since: Mark, until: Mark) {
        self.open = Some(Open {
            since,
            until,
            gone: (since > Mark::default()).then_some(0),
            left: self.touched.changes(since),
            early: Copied::default(),
        });
    }

    /// The next slice, of about `entries` rows; it may be empty. `None` after the last one.
    pub fn next_slice(&mut self, entries: usize) -> Result<Option<Vec<RecordBatch>>> {
        let Some(mut open) = self.open.take() else {
            return Ok(None);
        };
        if let Some(next) = open.gone {
            let slice = self.gone_slice(&mut open, next, entries)?;
            self.open = Some(open);
            return Ok(Some(slice));
        }
        let early = std::mem::take(&mut open.early);
        let mut rows = early.rows().collect::<Vec<&[u8]>>();
        let mut own = early.own.clone();
        while rows.len() < entries && !open.left.is_done() {
            let most = (entries - rows.len()).min(KEYS_AT_ONCE);
            for place in self.touched.next(&mut open.left, open.until, most) {
                let of_key = self.slab.get(place).rows.iter();
                for (row, kept) in of_key.filter(|(_, kept)| open.has(kept.mark)) {
                    rows.push(row);
                    own.push(kept);
                }
            }
        }
        if rows.is_empty() {
            return Ok(None);
        }
        self.open = Some(open);
        Ok(Some(vec![self.batch(rows.into_iter(), own)?]))
    }

    /// The removed rows from `next` on, of which `entries` are looked at.
    fn gone_slice(
        &mut self,
        open: &mut Open,
        next: usize,
        entries: usize,
    ) -> Result<Vec<RecordBatch>> {
        // They are in order of their marks. A stored snapshot knows that the oldest ones are gone.
        let is_known = |gone: &Gone| gone.mark <= open.since;
        for _ in 0..entries {
            if self.gone.pop_front_if(|gone| is_known(gone)).is_none() {
                break;
            }
        }
        if self.gone.front().is_some_and(is_known) {
            return Ok(Vec::new());
        }
        let (mut rows, mut own) = (Vec::<&[u8]>::new(), OwnColumns::default());
        let of_cut = self.gone.iter().skip(next).take(entries);
        let mut looked = 0;
        for gone in of_cut.take_while(|gone| gone.mark <= open.until) {
            looked += 1;
            let of_key = self.of_key(Key::stored(gone.hash, &gone.key));
            let back = of_key.and_then(|of_key| {
                let there = of_key.rows.find(&gone.row).ok()?;
                Some(of_key.rows.kept(there))
            });
            // If it was back at the cut, and is still, it is among the others.
            if back.is_none_or(|kept| kept.mark > open.until) {
                rows.push(&gone.row);
                own.push_gone();
            }
        }
        open.gone = (looked == entries).then_some(next + looked);
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        Ok(vec![self.batch(rows.into_iter(), own)?])
    }

    /// Copies the rows of a key that is about to change, if an open snapshot wants them.
    #[inline]
    pub(super) fn copy_early(&mut self, place: u32) {
        if self.open.is_some() {
            copy_early(&mut self.open, &self.touched, self.slab.get(place), place);
        }
    }

    /// Gives an incomplete snapshot up.
    pub fn give_up_slices(&mut self) {
        self.open = None;
    }
}

/// Copies the rows of a key that is about to change, if an open snapshot wants them.
pub(super) fn copy_early(open: &mut Option<Open>, touched: &Touched, of_key: &OfKey, place: u32) {
    if let Some(open) = open
        && touched.is_wanted(place, &open.left, open.until)
    {
        open.copy_early(of_key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::Int64Array;
    use arrow_schema::DataType;

    use super::super::Touch;
    use super::*;
    use crate::chunk::Chunk;
    use crate::state::BucketSet;
    use crate::testing::{batch, schema};
    use crate::time::MIN_WATERMARK;

    const NOW: Touch = Touch {
        mark: Mark(1),
        at: MIN_WATERMARK,
    };

    fn change(rows: &mut KeyedRows, numbers: &[i64], mark: u32, retracts: bool) {
        let count = numbers.len();
        let numbers = Arc::new(Int64Array::from(numbers.to_vec()));
        let encoded = rows
            .encode(&Chunk::new(batch(vec![("n", numbers)]), 0))
            .unwrap();
        let (mark, at) = (Mark(mark), MIN_WATERMARK);
        for row in 0..count {
            let (key, bytes, now) = (encoded.key(row), encoded.row(row), Touch { mark, at });
            match retracts {
                true => assert!(rows.remove(key, bytes, now).is_some()),
                false => drop(rows.add(key, bytes, 0, now)),
            }
        }
    }

    #[test]
    fn a_removed_row_is_mentioned_if_it_comes_back_only_after_the_cut() {
        let make = || KeyedRows::unordered(schema(&[("n", DataType::Int64)]), vec![0]).unwrap();
        let (mut rows, mut standby) = (make(), make());
        let everything = |rows: &mut KeyedRows, mark: u32| {
            rows.begin_slices(Mark::default(), Mark(mark));
            let slices = std::iter::from_fn(|| rows.next_slice(2).unwrap());
            slices.flatten().collect::<Vec<RecordBatch>>()
        };
        change(&mut rows, &[1, 2, 3, 4], 1, false);
        for batch in everything(&mut rows, 1) {
            standby.restore(&batch, NOW).unwrap();
        }
        change(&mut rows, &[1, 2, 3], 2, true);
        change(&mut rows, &[2], 2, false);
        rows.begin_slices(Mark(1), Mark(2));
        let mut slices = rows.next_slice(1).unwrap().unwrap();
        // The slice that mentions it is still to come.
        change(&mut rows, &[3], 3, false);
        while let Some(slice) = rows.next_slice(1).unwrap() {
            slices.extend(slice);
        }
        for batch in &slices {
            standby.restore(batch, NOW).unwrap();
        }
        let all = standby
            .snapshot(&BucketSet::all(), Mark::default())
            .unwrap()
            .unwrap();
        let numbers = all.column(KeyedRows::OWN_COLUMNS).as_any();
        let mut numbers = numbers
            .downcast_ref::<Int64Array>()
            .unwrap()
            .values()
            .to_vec();
        numbers.sort_unstable();
        assert_eq!(numbers, [2, 4]);
        assert!(rows.gone.iter().all(|gone| gone.mark > Mark(1)));
    }
}
