//! The pairs of a chunk's rows and the rows of the other side with the same keys, and what the condition says
//! about them.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch, UInt32Array};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::super::rows::{Encoded, KeyedRows, OfKey};
use super::{ChangelogJoin, Pending, in_order};
use crate::chunk::Chunk;
use crate::error::Result;
use crate::expression::{Expression, evaluate};
use crate::operator::Output;
use crate::operator::join::JoinKind;

/// What the condition says about a pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Apart,
    Joined,
    /// The condition failed: the pair is rejected, and no reason to pad.
    Failed,
}

/// The partners of some rows of a chunk.
pub(super) struct Candidates {
    /// The number of partners of each row, from the first row on.
    pub(super) of_row: Vec<usize>,
    /// The row and its partner of each pair: the one's place in the chunk, the other's in `rows`.
    pub(super) pairs: Vec<(u32, u32)>,
    /// The number of copies of the partner of each pair; 1 if it only has to exist.
    pub(super) counts: Vec<u32>,
    /// For each pair.
    pub(super) verdicts: Vec<Verdict>,
    /// The columns of the partners, each of them once.
    pub(super) rows: RecordBatch,
}

impl Candidates {
    /// The partners' places in `rows`.
    pub(super) fn partners(&self, pairs: impl Iterator<Item = usize>) -> UInt32Array {
        UInt32Array::from_iter_values(pairs.map(|pair| self.pairs[pair].1))
    }
}

impl ChangelogJoin {
    /// The partners of the next rows of the chunk.
    pub(super) fn candidates(
        &self,
        pending: &mut Pending,
        output: &mut Output,
    ) -> Result<Candidates> {
        let other = &self.sides[1 - pending.side];
        let only_exists = self.spec.kind.is_of_left() && pending.side == 0;
        let (mut encodings, mut copies) = (Vec::<&[u8]>::new(), Vec::new());
        // Rows with the same key, of which a chunk may have many, have the same partners: each of them is
        // decoded once. A key is known by where its rows are.
        let mut of_keys = HashMap::<usize, Range<usize>, FixedState>::default();
        let (mut of_row, mut pairs, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        while pending.next < pending.chunk.rows() && pairs.len() < output.chunk_rows {
            let row = pending.next;
            let before = pairs.len();
            if let Some(of_key) = partners(other, &pending.encoded, row) {
                let range = of_keys.entry(std::ptr::from_ref(of_key).addr());
                let range = range.or_insert_with(|| {
                    let first = encodings.len();
                    for (encoding, kept) in of_key.live(&self.retention) {
                        encodings.push(encoding);
                        copies.push(if only_exists { 1 } else { kept.count });
                    }
                    first..encodings.len()
                });
                pairs.extend(range.clone().map(|partner| (row as u32, partner as u32)));
                counts.extend_from_slice(&copies[range.clone()]);
            }
            of_row.push(pairs.len() - before);
            pending.next += 1;
        }
        let rows = other.decode(encodings.into_iter())?;
        let mut candidates = Candidates {
            of_row,
            pairs,
            counts,
            verdicts: Vec::new(),
            rows,
        };
        candidates.verdicts = self.judge(pending, &candidates, output)?;
        if self.spec.kind == JoinKind::Semi {
            // A rejected pair is no reason to emit its row.
            let verdicts = candidates.verdicts.iter_mut();
            let failed = verdicts.filter(|it| **it == Verdict::Failed);
            failed.for_each(|verdict| *verdict = Verdict::Apart);
        }
        Ok(candidates)
    }

    /// What the condition says about each pair.
    fn judge(
        &self,
        pending: &Pending,
        candidates: &Candidates,
        output: &mut Output,
    ) -> Result<Vec<Verdict>> {
        let pairs = &candidates.pairs;
        let Some(condition) = &self.spec.condition else {
            return Ok(vec![Verdict::Joined; pairs.len()]);
        };
        if pairs.is_empty() {
            return Ok(Vec::new());
        }
        let own = UInt32Array::from_iter_values(pairs.iter().map(|pair| pair.0));
        let own = pending.chunk.take(&own)?;
        let others = candidates.partners(0..pairs.len());
        let others = Chunk::new(candidates.rows.clone(), 0).take(&others)?;
        let columns = in_order(
            pending.side,
            own.batch.columns().to_vec(),
            others.batch.columns().to_vec(),
        );
        let pairs = own.with_columns(self.spec.schema.clone(), columns)?;
        let pairs = Chunk::new(pairs.batch, pending.chunk.ingest_ns);
        let judged = evaluate(std::slice::from_ref(condition), pairs.clone())?;
        if !judged.rejected.is_empty() {
            return self.judge_each(condition, &pairs, &candidates.counts, output);
        }
        let holds = judged.columns[0].as_boolean();
        let verdict = |row: usize| match holds.is_valid(row) && holds.value(row) {
            true => Verdict::Joined,
            false => Verdict::Apart,
        };
        Ok((0..holds.len()).map(verdict).collect())
    }

    /// Evaluates one pair at a time, if some fail. `counts` has the number of copies of each.
    fn judge_each(
        &self,
        condition: &Arc<dyn Expression>,
        pairs: &Chunk,
        counts: &[u32],
        output: &mut Output,
    ) -> Result<Vec<Verdict>> {
        let conditions = std::slice::from_ref(condition);
        let mut verdicts = Vec::with_capacity(pairs.rows());
        for (row, &count) in counts.iter().enumerate() {
            let judged = evaluate(conditions, pairs.slice(row, 1))?;
            verdicts.push(match judged.columns[0].as_boolean() {
                holds if holds.is_empty() => Verdict::Failed,
                holds if holds.is_valid(0) && holds.value(0) => Verdict::Joined,
                _ => Verdict::Apart,
            });
            // As often as the pair exists: the count must not depend on which side came first.
            for rejected in judged.rejected {
                (0..count).for_each(|_| output.reject(rejected.clone()));
            }
        }
        Ok(verdicts)
    }
}

/// The rows of the other side that have the key of row `row`.
fn partners<'r>(other: &'r KeyedRows, encoded: &Encoded, row: usize) -> Option<&'r OfKey> {
    if encoded.has_null(row) {
        return None;
    }
    other.of_key(encoded.key(row))
}
