//! The rows of one key.

use super::{Kept, OfKey};
use crate::key::Key;
use crate::operator::changelog::Retention;
use crate::state::Mark;

impl OfKey {
    /// Whether it has this key.
    pub(super) fn is(&self, key: Key<'_>) -> bool {
        self.hash == key.hash() && self.rows.key() == key.bytes()
    }

    /// The number of rows, counting each copy.
    pub(super) fn count(&self) -> usize {
        self.rows.iter().map(|(_, kept)| kept.count as usize).sum()
    }

    /// Whether there are `limit` rows, none of which comes after this one.
    pub fn is_behind(&self, row: &[u8], limit: usize) -> bool {
        let last = self.rows.last();
        last.is_some_and(|(last, _)| row >= last) && self.count() >= limit
    }

    /// Whether there are `limit` rows, all of which come before any row that begins like this.
    pub fn is_beyond(&self, beginning: &[u8], limit: usize) -> bool {
        let is_after = |(last, _): (&[u8], _)| {
            let length = beginning.len().min(last.len());
            *beginning > last[..length]
        };
        self.rows.last().is_some_and(is_after) && self.count() >= limit
    }

    /// The rows in order, with their entries.
    pub fn rows(&self) -> impl Iterator<Item = (&[u8], Kept)> {
        self.rows.iter()
    }

    /// The rows that are not forgotten, with their entries.
    pub fn live<'o>(
        &'o self,
        retention: &'o Retention,
    ) -> impl Iterator<Item = (&'o [u8], Kept)> + 'o {
        let rows = self.rows.iter();
        rows.filter(|(_, kept)| !retention.is_over(kept.touched_at))
    }

    /// Changes the entries of the rows of [`OfKey::live`], in the same order.
    pub fn for_each_live_mut(&mut self, retention: Retention, mut change: impl FnMut(&mut Kept)) {
        self.rows.for_each_mut(|kept| {
            if !retention.is_over(kept.touched_at) {
                change(kept);
            }
        });
    }
}

impl Kept {
    /// Sets the number of partners.
    pub fn set_partners(&mut self, partners: u32, mark: Mark) {
        (self.partners, self.mark) = (partners, mark);
    }
}
