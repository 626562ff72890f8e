//! Semi and anti joins: rows of the left side that have a partner, or that have none.
//!
//! Only the first partner of a row, and the loss of its last one, change anything. So among equal rows of
//! the right side, only the first that comes and the last that goes are joined at all: repeated rows of
//! the right side cost one table lookup each. Partners are counted as distinct rows for the same reason.
//!
//! If the right side retracts nothing and there is no condition, a row that has found its partner is
//! settled: no later row changes its result, so it is not kept. (With a condition it is kept: which pairs
//! fail, and how many are rejected, must not depend on which partner came first.)

use arrow_array::UInt32Array;

use super::{Candidates, ChangelogJoin, ChangelogJoinSpec, Joined, Pending, Verdict};
use crate::chunk::Chunk;
use crate::error::Result;
use crate::key::Key;
use crate::operator::join::JoinKind;

/// The side whose rows are emitted.
const LEFT: usize = 0;

/// The side whose rows are only looked up.
const RIGHT: usize = 1;

impl ChangelogJoinSpec {
    /// Whether a row of a semi or anti join that has found its partner is not kept.
    pub fn settles(&self) -> bool {
        self.kind.is_of_left() && !self.sides[RIGHT].takes_back && self.condition.is_none()
    }
}

impl ChangelogJoin {
    /// Adds the rows of a chunk of the right side, or retracts them. What remains of the chunk are the
    /// rows that did not exist before, or no longer exist.
    pub(super) fn distinct(&mut self, pending: Pending) -> Result<Option<Pending>> {
        let now = self.touch();
        let mut changing = Vec::new();
        for row in 0..pending.chunk.rows() {
            let encoded = &pending.encoded;
            if encoded.has_null(row) {
                continue;
            }
            let (key, bytes) = (encoded.key(row), encoded.row(row));
            let is_change = if pending.retracts(row) {
                let before = self.sides[RIGHT].remove(key, bytes, now);
                before.is_some_and(|before| before.count == 1)
            } else {
                let was_forgotten = self.is_over(key, bytes);
                let kept = self.sides[RIGHT].add(key, bytes, 0, now);
                kept.count == 1 || was_forgotten
            };
            if is_change {
                changing.push(row as u32);
            }
        }
        if changing.is_empty() || changing.len() == pending.chunk.rows() {
            return Ok((!changing.is_empty()).then_some(pending));
        }
        let retracts = changing.iter().map(|&row| pending.retracts(row as usize));
        let retracts = retracts.collect::<Vec<bool>>();
        let chunk = pending.chunk.take(&UInt32Array::from(changing))?;
        Ok(Some(Pending {
            encoded: self.sides[RIGHT].encode(&chunk)?,
            retracts: Some(retracts),
            chunk,
            ..pending
        }))
    }

    /// Whether a row exists that is forgotten, but not removed yet.
    fn is_over(&self, key: Key<'_>, row: &[u8]) -> bool {
        let of_key = self.spec.retention_us.and(self.sides[RIGHT].of_key(key));
        of_key.is_some_and(|of_key| of_key.live(&self.retention).all(|(live, _)| live != row))
    }

    /// Applies the rows from `first` on, one after the other; those of the left side are kept, or
    /// retracted.
    pub(super) fn apply_existence(
        &mut self,
        pending: &Pending,
        first: usize,
        candidates: &Candidates,
    ) -> Result<Joined> {
        let is_semi = self.spec.kind == JoinKind::Semi;
        let mut joined = Joined::default();
        let mut settled = Vec::new();
        let mut at = 0;
        for (row, &number) in (first..).zip(&candidates.of_row) {
            let range = at..at + number;
            at += number;
            let retracts = pending.retracts(row);
            if pending.side == RIGHT {
                let changed = self.count_partner(pending, row, candidates, &range, retracts);
                for &i in &changed {
                    let goes = retracts == is_semi;
                    joined.push(None, Some(i), goes, candidates.counts[i]);
                }
                settled.extend(changed);
                continue;
            }
            let found = range.filter(|&i| candidates.verdicts[i] != Verdict::Apart);
            let found = found.count() as u32;
            let Some(partners) = self.partners_of(pending, row, found) else {
                continue;
            };
            if (partners > 0) == is_semi {
                joined.push(Some(row), None, retracts, 1);
            }
        }
        if self.spec.settles() && !settled.is_empty() {
            self.forget_settled(candidates, settled)?;
        }
        Ok(joined)
    }

    /// Adds a row of the left side that finds this many partners, or retracts it; returns how many it
    /// has, or had. `None` if it was forgotten, and its output with it.
    fn partners_of(&mut self, pending: &Pending, row: usize, found: u32) -> Option<u32> {
        let encoded = &pending.encoded;
        if encoded.has_null(row) || (found > 0 && self.spec.settles()) {
            return Some(found);
        }
        let now = self.touch();
        let (key, bytes) = (encoded.key(row), encoded.row(row));
        if pending.retracts(row) {
            let before = self.sides[LEFT].remove(key, bytes, now)?;
            return Some(before.partners);
        }
        self.sides[LEFT].add(key, bytes, found, now);
        Some(found)
    }

    /// Removes rows that have found their partner. Called after all rows of the step have been applied,
    /// because they use the numbers of what they found.
    fn forget_settled(&mut self, candidates: &Candidates, settled: Vec<usize>) -> Result<()> {
        let now = self.touch();
        let rows = candidates.partners(settled.iter().copied());
        let rows = Chunk::new(candidates.rows.clone(), 0).take(&rows)?;
        let encoded = self.sides[LEFT].encode(&rows)?;
        for (row, &i) in settled.iter().enumerate() {
            let (key, bytes) = (encoded.key(row), encoded.row(row));
            for _ in 0..candidates.counts[i] {
                self.sides[LEFT].remove(key, bytes, now);
            }
        }
        Ok(())
    }
}
