//! Snapshots of an interval join: a batch of rows for each side, with these columns before those of the
//! side:
//!
//! ```text
//! side | number | matched | columns…
//! ```
//!
//! `side` is 0 for the left and 1 for the right one. A row is identified among those of its key by its
//! time and its number; it is in the snapshot of the interval in which it came, and again in that of the
//! interval in which it found its first partner, if the join pads rows that find none.
//!
//! With a side that every instance has, an instance is restored from the snapshots of all. They hold the same
//! rows of that side, except that some have forgotten more than others; `number` is then how many equal rows
//! of that time come before the row, so that each counts once. A row of the other side is in the snapshots of
//! one instance only. Instances begin to number such rows at random, in 63 bits, so that no two of one key
//! and time get the same number.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, UInt64Type};
use arrow_array::{ArrayRef, BooleanArray, Int8Array, RecordBatch, UInt64Array};

use super::IntervalJoin;
use super::kept::Kept;
use crate::error::{Error, Result};
use crate::key::Key;
use crate::state::{BucketSet, Clock, KeyedState, Mark, Sliced, snapshot};
use crate::time::EventTime;

fn wrong() -> Error {
    snapshot::wrong("an interval join", "its columns are not those of a side")
}

impl IntervalJoin {
    fn side_snapshot(
        &mut self,
        side: usize,
        buckets: &BucketSet,
        since: Mark,
    ) -> Result<RecordBatch> {
        let is_everywhere = self.spec.broadcast == Some(side);
        let changed = match is_everywhere {
            true => self.sides[side].keys.changed(&BucketSet::all(), since),
            false => self.sides[side].keys.changed(buckets, since),
        };
        let (mut numbers, mut matched, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for key in changed {
            let of_side = &self.sides[side];
            for (place, row) in of_side.keys.get(key) {
                if row.mark <= since {
                    continue;
                }
                numbers.push(match is_everywhere {
                    true => of_side.equal_before(key, *place, &row.values),
                    false => place.1,
                });
                matched.push(row.matched);
                values.push(&*row.values);
            }
        }
        let sides: ArrayRef = Arc::new(Int8Array::from(vec![side as i8; values.len()]));
        let numbers: ArrayRef = Arc::new(UInt64Array::from(numbers));
        let matched: ArrayRef = Arc::new(BooleanArray::from(matched));
        let columns = self.sides[side].decode(values.into_iter())?;
        let rows = RecordBatch::try_new(self.spec.sides[side].schema.clone(), columns)?;
        let own = [
            ("side", sides, false),
            ("number", numbers, false),
            ("matched", matched, false),
        ];
        snapshot::with_own(own, &rows)
    }
}

impl IntervalJoin {
    /// Restores a row of a side that every instance has: `number` equal ones come before it. Snapshots of
    /// several instances come one after the other, so it may be there already.
    fn restore_everywhere(
        &mut self,
        side: usize,
        key: Key<'_>,
        time: EventTime,
        values: &[u8],
        number: u64,
    ) {
        let here = self.sides[side].equal(key, time, values);
        for _ in here..=number {
            let kept = Kept {
                matched: false,
                mark: self.clock.mark(),
                values: values.into(),
            };
            let place = self.sides[side].place_by_values(key, time, values);
            self.sides[side].insert(key, place, kept);
        }
        self.look_again(side, key);
    }
}

impl KeyedState for IntervalJoin {
    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn snapshot(&mut self, buckets: &BucketSet, since: Mark) -> Result<Vec<RecordBatch>> {
        snapshot::assert_between_inputs(self.pending.is_some());
        let mut snapshot = Vec::new();
        for side in 0..2 {
            let rows = self.side_snapshot(side, buckets, since)?;
            if rows.num_rows() > 0 {
                snapshot.push(rows);
            }
        }
        Ok(snapshot)
    }

    fn sliced(&mut self) -> Option<&mut dyn Sliced> {
        None
    }

    fn restore(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let [side, numbers, matched, columns @ ..] = batch.columns() else {
            return Err(wrong());
        };
        let side = side.as_primitive_opt::<Int8Type>().ok_or_else(wrong)?;
        let side = match side.value(0) {
            0 => 0,
            1 => 1,
            _ => return Err(wrong()),
        };
        let numbers = numbers.as_primitive_opt::<UInt64Type>().ok_or_else(wrong)?;
        let matched = matched.as_boolean_opt().ok_or_else(wrong)?;
        let schema = self.spec.sides[side].schema.clone();
        let rows = RecordBatch::try_new(schema, columns.to_vec()).map_err(|_| wrong())?;
        let times = self.times(side, &rows)?;
        let keys = self.keys(side, &rows)?;
        let encoded = self.sides[side].encode(&rows)?;
        let is_everywhere = self.spec.broadcast == Some(side);
        for (row, &time) in times.iter().enumerate() {
            let number = numbers.value(row);
            if is_everywhere {
                let values = encoded.row(row).data();
                self.restore_everywhere(side, keys.key(row), time, values, number);
                continue;
            }
            // No two rows of one key have the same number, whichever instance had them before.
            if self.spec.broadcast.is_none() {
                self.next = self.next.max(number.saturating_add(1));
            }
            let kept = Kept {
                matched: matched.value(row),
                mark: self.clock.mark(),
                values: encoded.row(row).data().into(),
            };
            self.sides[side].insert(keys.key(row), (time, number), kept);
            self.look_again(side, keys.key(row));
        }
        Ok(())
    }

    fn discard(&mut self, buckets: &BucketSet) -> Result<()> {
        for (number, side) in self.sides.iter_mut().enumerate() {
            // Every instance needs all rows of such a side.
            if self.spec.broadcast == Some(number) {
                continue;
            }
            for key in side.keys.numbers(|hash| buckets.contains_hash(hash)) {
                side.remove(key);
            }
        }
        Ok(())
    }

    fn drop_emitted(&mut self, _watermark: EventTime) -> Result<()> {
        for side in 0..2 {
            // Rows that have found no partner by now were padded before the snapshot was taken.
            self.forget(side, usize::MAX);
        }
        Ok(())
    }

    fn publish(&mut self, _cut: u64) -> bool {
        false
    }
}
