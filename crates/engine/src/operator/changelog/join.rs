//! Join of two streams without windows: each row is joined with all rows of the other side, earlier and
//! later ones (Flink's regular join).
//!
//! Both sides are kept, by key. In an outer join each row also has a count of its partners: when it gets
//! its first one, the row padded with NULL is retracted, and when it loses its last one, the padded row
//! is emitted again. A pair for which the condition fails is rejected, and counts as a partner: nothing
//! is padded that a corrected condition might have joined.
//!
//! The output has `+I` and `−D`: the operator doesn't know which old pair a new one replaces.
//!
//! Semi and anti joins, which emit only rows of the left side, have their own rules (`existence`).

mod candidates;
mod existence;
mod state;

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, Int8Array, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array,
};
use arrow_schema::SchemaRef;

use self::candidates::{Candidates, Verdict};
use super::rows::{Encoded, KeyedRows, Touch};
use super::{Retention, retractions};
use crate::chunk::{Chunk, RowKind};
use crate::error::Result;
use crate::expression::Expression;
use crate::operator::join::JoinKind;
use crate::operator::{Facts, Output, Progress, Stateful, Timer};
use crate::state::{Clock, KeyedState};
use crate::time::EventTime;

/// What a join of two streams computes.
#[derive(Debug, Clone)]
pub struct ChangelogJoinSpec {
    /// The left side, then the right one.
    pub sides: [ChangelogJoinSide; 2],
    /// Which rows are emitted.
    pub kind: JoinKind,
    /// A condition on a pair's columns, in addition to equal keys.
    pub condition: Option<Arc<dyn Expression>>,
    /// How long rows are kept, in microseconds of event time; `None` for ever.
    pub retention_us: Option<i64>,
    /// The columns of a pair: left columns, then right columns.
    pub schema: SchemaRef,
}

/// One side of a join of two streams.
#[derive(Debug, Clone)]
pub struct ChangelogJoinSide {
    /// The columns that must equal those of the other side, of the same types. A row with a NULL among
    /// them has no partner.
    pub keys: Vec<usize>,
    /// The columns of the side.
    pub schema: SchemaRef,
    /// Whether the side retracts rows.
    pub takes_back: bool,
}

/// Join of two streams.
pub struct ChangelogJoin {
    spec: ChangelogJoinSpec,
    sides: [KeyedRows; 2],
    retention: Retention,
    clock: Clock,
    /// A chunk of which some rows have not been joined yet.
    pending: Option<Pending>,
}

struct Pending {
    side: usize,
    chunk: Chunk,
    encoded: Encoded,
    retracts: Option<Vec<bool>>,
    /// The next row.
    next: usize,
}

impl Pending {
    /// Whether row `row` is retracted.
    fn retracts(&self, row: usize) -> bool {
        self.retracts.as_ref().is_some_and(|of| of[row])
    }
}

/// Rows to emit: the row of the chunk, and the pair whose partner it is; `None` for a side that is padded
/// with NULL.
#[derive(Default)]
struct Joined {
    own: Vec<Option<u32>>,
    other: Vec<Option<u32>>,
    kinds: Vec<i8>,
}

impl Joined {
    fn push(&mut self, own: Option<usize>, other: Option<usize>, retracts: bool, times: u32) {
        let kind = match retracts {
            true => RowKind::Delete,
            false => RowKind::Insert,
        };
        for _ in 0..times {
            self.own.push(own.map(|row| row as u32));
            self.other.push(other.map(|row| row as u32));
            self.kinds.push(kind as i8);
        }
    }
}

impl ChangelogJoin {
    /// A join that has seen nothing.
    pub fn new(spec: ChangelogJoinSpec) -> Result<ChangelogJoin> {
        let side =
            |side: &ChangelogJoinSide| KeyedRows::unordered(side.schema.clone(), side.keys.clone());
        Ok(ChangelogJoin {
            sides: [side(&spec.sides[0])?, side(&spec.sides[1])?],
            retention: Retention::new(spec.retention_us),
            clock: Clock::default(),
            pending: None,
            spec,
        })
    }

    /// The mark and time that changes get now.
    fn touch(&self) -> Touch {
        Touch {
            mark: self.clock.mark(),
            at: self.retention.now(),
        }
    }

    /// Called before the watermark moves.
    fn begin_retention(&mut self, watermark: EventTime) {
        if self.retention.begins(watermark) {
            let mark = self.clock.mark();
            let now = Touch {
                mark,
                at: watermark,
            };
            self.sides.iter_mut().for_each(|side| side.stamp(now));
        }
    }

    /// Whether it emits rows that retract others.
    fn makes_updates(&self) -> bool {
        self.spec.makes_updates()
    }

    /// Joins rows of the chunk until there is about a chunk of pairs. One row's pairs are emitted
    /// together.
    fn step(&mut self, output: &mut Output) -> Result<Progress> {
        let Some(mut pending) = self.pending.take() else {
            return Ok(Progress::Done);
        };
        let first = pending.next;
        let candidates = self.candidates(&mut pending, output)?;
        let joined = match self.spec.kind.is_of_left() {
            true => self.apply_existence(&pending, first, &candidates)?,
            false => self.apply(&pending, first, &candidates),
        };
        self.emit(&pending, &candidates, joined, output)?;
        if pending.next < pending.chunk.rows() {
            self.pending = Some(pending);
            return Ok(Progress::More);
        }
        Ok(Progress::Done)
    }

    /// Applies the rows from `first` on, one after the other; they are kept, or retracted.
    fn apply(&mut self, pending: &Pending, first: usize, candidates: &Candidates) -> Joined {
        let side = pending.side;
        let keeps = [side, 1 - side].map(|side| self.spec.kind.keeps(side));
        let now = self.touch();
        let mut joined = Joined::default();
        let mut at = 0;
        for (row, &number) in (first..).zip(&candidates.of_row) {
            let retracts = pending.retracts.as_ref().is_some_and(|of| of[row]);
            let range = at..at + number;
            at += number;
            let counted = range
                .clone()
                .filter(|&i| candidates.verdicts[i] != Verdict::Apart);
            let partners = counted.map(|i| candidates.counts[i]).sum::<u32>();
            let encoded = &pending.encoded;
            let (key, bytes) = (encoded.key(row), encoded.row(row));
            if encoded.has_null(row) {
                if keeps[0] {
                    joined.push(Some(row), None, retracts, 1);
                }
                continue;
            }
            let partners = if retracts {
                match self.sides[side].remove(key, bytes, now) {
                    // For a side that is not padded, partners are not counted.
                    Some(before) if keeps[0] => before.partners,
                    Some(_) => partners,
                    // The row was forgotten, and its output with it.
                    None => continue,
                }
            } else {
                self.sides[side].add(key, bytes, partners, now);
                partners
            };
            if partners == 0 {
                if keeps[0] {
                    joined.push(Some(row), None, retracts, 1);
                }
                continue;
            }
            let padded = match keeps[1] {
                true => self.count_partner(pending, row, candidates, &range, retracts),
                false => Vec::new(),
            };
            let pad = |joined: &mut Joined| {
                let padded = padded.iter();
                padded.for_each(|&i| joined.push(None, Some(i), !retracts, candidates.counts[i]));
            };
            if !retracts {
                pad(&mut joined);
            }
            for i in range.filter(|&i| candidates.verdicts[i] == Verdict::Joined) {
                joined.push(Some(row), Some(i), retracts, candidates.counts[i]);
            }
            if retracts {
                pad(&mut joined);
            }
        }
        joined
    }

    /// Adds or removes one partner of each partner row. Returns those that had none, or have none now.
    fn count_partner(
        &mut self,
        pending: &Pending,
        row: usize,
        candidates: &Candidates,
        range: &std::ops::Range<usize>,
        retracts: bool,
    ) -> Vec<usize> {
        let retention = self.retention;
        let mark = self.clock.mark();
        let other = &mut self.sides[1 - pending.side];
        let key = pending.encoded.key(row);
        let mut padded = Vec::new();
        let Some(of_key) = other.of_key_mut(key, mark) else {
            return padded;
        };
        // The same rows in the same order as when they were looked up.
        let mut indices = range.clone();
        of_key.for_each_live_mut(retention, |kept| {
            let Some(i) = indices.next() else { return };
            if candidates.verdicts[i] == Verdict::Apart {
                return;
            }
            let partners = match retracts {
                true => kept.partners.saturating_sub(1),
                false => kept.partners + 1,
            };
            if partners + kept.partners == 1 {
                padded.push(i);
            }
            kept.set_partners(partners, mark);
        });
        padded
    }

    fn emit(
        &self,
        pending: &Pending,
        candidates: &Candidates,
        joined: Joined,
        output: &mut Output,
    ) -> Result<()> {
        let rows = joined.kinds.len();
        let mut from = 0;
        while from < rows {
            let to = (from + output.chunk_rows).min(rows);
            let own = || taken(&pending.chunk.batch, &joined.own[from..to]);
            let other = joined.other[from..to].iter();
            let other = other.map(|pair| pair.map(|pair| candidates.pairs[pair as usize].1));
            let other = other.collect::<Vec<Option<u32>>>();
            let other = || taken(&candidates.rows, &other);
            let columns = match (self.spec.kind.is_of_left(), pending.side) {
                (false, side) => in_order(side, own()?, other()?),
                (true, 0) => own()?,
                (true, _) => other()?,
            };
            let options = RecordBatchOptions::new().with_row_count(Some(to - from));
            let schema = self.spec.output().clone();
            let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
            let kinds = Int8Array::from(joined.kinds[from..to].to_vec());
            output.emit(Chunk {
                kinds: self.makes_updates().then_some(kinds),
                ..Chunk::new(batch, pending.chunk.ingest_ns)
            });
            from = to;
        }
        Ok(())
    }
}

impl ChangelogJoinSpec {
    /// Whether it emits rows that retract others: an outer join's padding, a row of an anti join that
    /// finds a partner, or a side's own.
    pub fn makes_updates(&self) -> bool {
        let stays = matches!(self.kind, JoinKind::Inner | JoinKind::Semi);
        !stays || self.sides.iter().any(|side| side.takes_back)
    }

    /// The columns of the output.
    pub fn output(&self) -> &SchemaRef {
        match self.kind.is_of_left() {
            true => &self.sides[0].schema,
            false => &self.schema,
        }
    }
}

/// Columns of the left side, then of the right one.
fn in_order(side: usize, own: Vec<ArrayRef>, other: Vec<ArrayRef>) -> Vec<ArrayRef> {
    let (left, right) = if side == 0 {
        (own, other)
    } else {
        (other, own)
    };
    left.into_iter().chain(right).collect()
}

fn taken(batch: &RecordBatch, rows: &[Option<u32>]) -> Result<Vec<ArrayRef>> {
    let rows = UInt32Array::from(rows.to_vec());
    let columns = batch.columns().iter().map(|column| match batch.num_rows() {
        0 => Ok(new_null_array(column.data_type(), rows.len())),
        _ => Ok(arrow_select::take::take(column, &rows, None)?),
    });
    columns.collect()
}

impl Stateful for ChangelogJoin {
    fn facts(&self) -> Facts {
        Facts {
            placed_by: self
                .spec
                .sides
                .iter()
                .map(|side| Some(side.keys.clone()))
                .collect(),
            is_replicated: false,
            first_input: None,
            delay_us: 0,
            shares_input: true,
        }
    }

    fn process(&mut self, input: usize, chunk: Chunk, output: &mut Output) -> Result<()> {
        debug_assert!(self.pending.is_none(), "the last chunk has been joined");
        if chunk.rows() == 0 {
            return Ok(());
        }
        let pending = Pending {
            side: input,
            encoded: self.sides[input].encode(&chunk)?,
            retracts: retractions(&chunk),
            chunk,
            next: 0,
        };
        self.pending = match self.spec.kind.is_of_left() && input == 1 {
            true => self.distinct(pending)?,
            false => Some(pending),
        };
        self.step(output).map(|_| ())
    }

    fn rest(&mut self, output: &mut Output) -> Result<Progress> {
        self.step(output)
    }

    fn advance(&mut self, watermark: EventTime, _output: &mut Output) -> Result<Progress> {
        self.begin_retention(watermark);
        if self.retention.advance(watermark) {
            let (retention, mark) = (self.retention, self.clock.mark());
            let is_old = |_: EventTime, row_at: EventTime| retention.is_over(row_at);
            let sides = self.sides.iter_mut();
            sides.for_each(|side| side.drop_old(mark, is_old));
        }
        Ok(Progress::Done)
    }

    fn timer(&mut self) -> Option<&mut dyn Timer> {
        None
    }

    fn end_unit(&mut self, _output: &mut Output) -> Result<()> {
        self.sides.iter_mut().for_each(KeyedRows::clear);
        self.retention.restart();
        self.clock.restart();
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn KeyedState> {
        Some(self)
    }

    fn bytes(&self) -> usize {
        self.sides.iter().map(|side| side.bytes()).sum()
    }
}

#[cfg(test)]
mod tests;
