//! Interval join: two streams, equal keys, and event times within a given distance of each other.
//!
//! A row of the left stream at `l` and one of the right at `r` are a pair when `r - l` is within the
//! [`IntervalJoinSpec::bounds`]. Pairs are emitted as soon as both rows have come. A row is kept until
//! the watermark says that no partner of it can come any more; if it has found none by then, it is padded
//! in an outer join. So the result doesn't depend on which side came first.
//!
//! The output may be behind the watermark, by as much as the interval is long: the operators after it get
//! the watermark minus that ([`Operator::delay_us`]).
//!
//! One side may be in every instance by broadcast ([`IntervalJoinSpec::broadcast`]); rows of the other one
//! then stay where they are, so keys are not needed to bring partners together. A pair is found once, where
//! the row of that other side is.
//!
//! Late rows of either side are dropped before ([`super::drop_late`]). Rows are kept encoded, in memory
//! of their own: they hold neither a link's frame nor a source's block.

mod existence;
mod kept;
mod state;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use arrow_array::{ArrayRef, RecordBatch, UInt32Array, new_null_array};
use arrow_row::Rows;
use arrow_schema::SchemaRef;

use super::event_times::{event_times, only_in_time};
use super::join::JoinKind;
use super::table_join::holding;
use super::{Facts, Output, Progress, Stateful, Timer};
use crate::chunk::Chunk;
use crate::error::Result;
use crate::expression::Expression;
use crate::key::{EncodedKeys, Key, KeyColumns, KeyEncoder};
use crate::state::{Clock, KeyedState};
use crate::time::EventTime;
use kept::{Kept, Place, Side};

/// What an interval join does.
#[derive(Debug, Clone)]
pub struct IntervalJoinSpec {
    /// The left and the right input.
    pub sides: [IntervalSide; 2],
    /// The lower and upper limit of the right row's event time minus the left one's, in microseconds.
    pub bounds: [EventTime; 2],
    /// Which rows are emitted.
    pub kind: JoinKind,
    /// The side whose rows every instance gets, if there is one: not one that may be padded, or of which
    /// only the existence of a partner matters ([`IntervalJoinSpec::may_broadcast`]).
    pub broadcast: Option<usize>,
    /// A further condition over the columns of both sides (left, then right).
    pub condition: Option<std::sync::Arc<dyn Expression>>,
    /// How far behind the watermark rows may come and still be in time, in microseconds: rows made by a
    /// window have event times before its end, and come when the watermark reaches the end.
    pub behind_us: EventTime,
    /// The columns of a pair: all of the left input, then all of the right one.
    pub schema: SchemaRef,
}

/// One input of an interval join.
#[derive(Debug, Clone)]
pub struct IntervalSide {
    /// The event-time column.
    pub time_column: usize,
    /// Key columns, in the same order and of the same types on both sides.
    pub keys: Vec<usize>,
    /// The columns of the input.
    pub schema: SchemaRef,
}

impl IntervalJoinSpec {
    /// Whether every instance may get the rows of `side`. No instance knows whether such a row has a partner
    /// in another one, so the join must not depend on that.
    pub fn may_broadcast(kind: JoinKind, side: usize) -> bool {
        !kind.keeps(side) && (side == 1 || !kind.is_of_left())
    }

    /// The columns of the output.
    pub fn output(&self) -> &SchemaRef {
        match self.kind.is_of_left() {
            true => &self.sides[0].schema,
            false => &self.schema,
        }
    }

    /// The last event time of the other side that a row of `side` at `time` can be joined with.
    fn last_partner(&self, side: usize, time: EventTime) -> EventTime {
        match side {
            0 => time.saturating_add(self.bounds[1]),
            _ => time.saturating_sub(self.bounds[0]),
        }
    }

    /// The first event time of the other side that a row of `side` at `time` can be joined with.
    fn first_partner(&self, side: usize, time: EventTime) -> EventTime {
        match side {
            0 => time.saturating_add(self.bounds[0]),
            _ => time.saturating_sub(self.bounds[1]),
        }
    }
}

/// Interval join.
pub struct IntervalJoin {
    spec: IntervalJoinSpec,
    key_encoder: KeyEncoder,
    sides: [Side; 2],
    pending: Option<Pending>,
    clock: Clock,
    /// The number of the next row. It begins at random if one side is in every instance.
    next: u64,
}

/// Rows of one input that are being joined. They are kept once all of their pairs have been found.
struct Pending {
    side: usize,
    times: Vec<EventTime>,
    keys: EncodedKeys,
    rows: Rows,
    /// The rows that have found a partner, or failed with one.
    matched: Vec<bool>,
    /// The next row, and its last partner so far.
    row: usize,
    last: Option<Place>,
}

/// Pairs of pending rows and rows of the other side: the row, the partner's key and place.
type Pairs = Vec<(u32, u32, Place)>;

impl IntervalJoin {
    /// A join without rows.
    pub fn new(spec: IntervalJoinSpec) -> Result<IntervalJoin> {
        let may_broadcast = |side| IntervalJoinSpec::may_broadcast(spec.kind, side);
        assert!(
            spec.broadcast.is_none_or(may_broadcast),
            "{:?} may depend on partners in other instances",
            spec.kind
        );
        let side = |side: usize| Side::new(&spec.sides[side].schema);
        Ok(IntervalJoin {
            key_encoder: KeyEncoder::of_schema(&spec.sides[0].schema, &spec.sides[0].keys)?,
            sides: [side(0)?, side(1)?],
            pending: None,
            clock: Clock::default(),
            next: match spec.broadcast {
                // Rows of one key are numbered by several instances, and may be restored into one.
                Some(_) => RandomState::new().build_hasher().finish() >> 1,
                None => 0,
            },
            spec,
        })
    }

    /// The time up to which all rows have come.
    fn complete(&self) -> EventTime {
        self.clock.complete(self.spec.behind_us)
    }

    fn times(&self, side: usize, batch: &RecordBatch) -> Result<Vec<EventTime>> {
        let column = batch.column(self.spec.sides[side].time_column);
        event_times(column, "interval join")
    }

    fn keys(&self, side: usize, batch: &RecordBatch) -> Result<EncodedKeys> {
        let keys = KeyColumns::of_batch(batch, &self.spec.sides[side].keys)?;
        self.key_encoder.encode(keys)
    }

    /// The next pairs, at most `limit`, and whether there are more.
    fn pairs(&self, pending: &mut Pending, limit: usize) -> Pairs {
        let mut pairs = Vec::new();
        let other = &self.sides[1 - pending.side];
        while pending.row < pending.times.len() && pairs.len() < limit {
            let (row, time) = (pending.row, pending.times[pending.row]);
            let key = other.keys.find(pending.keys.key(row));
            // NULL equals nothing, so such a row has no partner.
            if let Some(key) = key.filter(|_| !pending.keys.is_null(row)) {
                let from = self.spec.first_partner(pending.side, time);
                let to = self.spec.last_partner(pending.side, time);
                for place in other.between(key, from, to, pending.last) {
                    if pairs.len() == limit {
                        return pairs;
                    }
                    pairs.push((row as u32, key, place));
                    pending.last = Some(place);
                }
            }
            (pending.row, pending.last) = (row + 1, None);
        }
        pairs
    }

    /// Emits the pairs for which the condition holds.
    fn emit_pairs(
        &mut self,
        pending: &mut Pending,
        pairs: Pairs,
        output: &mut Output,
    ) -> Result<()> {
        if self.spec.kind.is_of_left() && self.spec.condition.is_none() {
            return self.note_partners(pending, pairs, output);
        }
        let other = 1 - pending.side;
        let own_rows = pairs.iter().map(|pair| pending.rows.row(pair.0 as usize));
        let own = self.sides[pending.side].converter.convert_rows(own_rows)?;
        let partners = pairs.iter().map(|(_, key, place)| (*key, *place));
        let partners = self.sides[other].columns(partners)?;
        let columns = match pending.side {
            0 => own.into_iter().chain(partners),
            _ => partners.into_iter().chain(own),
        };
        let columns = columns.collect::<Vec<ArrayRef>>();
        let batch = RecordBatch::try_new(self.spec.schema.clone(), columns)?;
        let all = Chunk::new(batch, output.ingest_ns);
        let Some(condition) = &self.spec.condition else {
            self.note_matched(pending, pairs.into_iter());
            output.emit(all);
            return Ok(());
        };
        let numbers = (0..pairs.len() as u32).collect::<Vec<u32>>();
        let (kept, failed) = holding(condition, all.clone(), &all, &numbers, output)?;
        // Rows for which a condition failed are rejected: they are not padded.
        let matched = kept.iter().map(|&pair| pairs[pair]);
        let failed = failed.iter().map(|&pair| pairs[pair as usize]);
        match self.spec.kind {
            // A rejected pair is no reason to emit its row.
            JoinKind::Semi => return self.note_partners(pending, matched.collect(), output),
            JoinKind::Anti => {
                let known = matched.chain(failed).collect();
                return self.note_partners(pending, known, output);
            }
            _ => {}
        }
        self.note_matched(pending, matched.chain(failed));
        match kept.len() == pairs.len() {
            true => output.emit(all),
            false => {
                let kept = kept.into_iter().map(|pair| pair as u32);
                output.emit(all.take(&UInt32Array::from_iter_values(kept))?);
            }
        }
        Ok(())
    }

    fn note_matched(
        &mut self,
        pending: &mut Pending,
        pairs: impl Iterator<Item = (u32, u32, Place)>,
    ) {
        let other = 1 - pending.side;
        let is_kept = self.spec.kind.keeps(other);
        for (row, key, place) in pairs {
            pending.matched[row as usize] = true;
            if is_kept {
                self.sides[other].note_matched(key, place, self.clock.mark());
            }
        }
    }

    /// Keeps the rows for partners to come; rows that can have none any more are padded at once.
    fn keep(&mut self, pending: Pending, output: &mut Output) -> Result<()> {
        let side = pending.side;
        let complete = self.complete();
        let mut singles = Vec::new();
        for (row, &time) in pending.times.iter().enumerate() {
            let is_padded = self.spec.kind.keeps(side) && !pending.matched[row];
            let last = self.spec.last_partner(side, time);
            let values = pending.rows.row(row);
            if last <= complete {
                if is_padded {
                    singles.push(values.data().into());
                }
                continue;
            }
            // A NULL key equals nothing: the row is kept only to be padded.
            if pending.keys.is_null(row) && !is_padded {
                continue;
            }
            // A row that needs only one partner. With a condition the others are tried, too: which pairs
            // fail must not depend on which side came first.
            let is_settled = self.spec.kind.is_of_left() && self.spec.condition.is_none();
            if side == 0 && is_settled && pending.matched[row] {
                continue;
            }
            let kept = Kept {
                matched: pending.matched[row],
                mark: self.clock.mark(),
                values: values.data().into(),
            };
            let key = pending.keys.key(row);
            let place = self.next_place(side, key, time, &kept);
            self.sides[side].insert(key, place, kept);
            self.look_again(side, key);
        }
        let pieces = singles.chunks(output.chunk_rows);
        pieces
            .into_iter()
            .try_for_each(|piece| self.emit_singles(side, piece, output))
    }

    /// The place of a new row.
    fn next_place(&mut self, side: usize, key: Key<'_>, time: EventTime, row: &Kept) -> Place {
        if self.spec.broadcast == Some(side) {
            return self.sides[side].place_by_values(key, time, &row.values);
        }
        self.next += 1;
        (time, self.next - 1)
    }

    /// Notes when the first row of a key has no partner left to wait for.
    fn look_again(&mut self, side: usize, key: Key<'_>) {
        if let Some(key) = self.sides[side].keys.find(key) {
            let first = self.sides[side].first_time(key);
            let due = first.map(|time| self.spec.last_partner(side, time));
            self.sides[side].keys.set_due(key, due);
        }
    }

    fn emit_singles(
        &mut self,
        side: usize,
        singles: &[Box<[u8]>],
        output: &mut Output,
    ) -> Result<()> {
        if singles.is_empty() {
            return Ok(());
        }
        let own = self.sides[side].decode(singles.iter().map(|values| &**values))?;
        if self.spec.kind.is_of_left() {
            output.emit_batch(RecordBatch::try_new(self.spec.output().clone(), own)?);
            return Ok(());
        }
        let other = self.spec.sides[1 - side].schema.fields().iter();
        let nulls = other.map(|field| new_null_array(field.data_type(), singles.len()));
        let nulls = nulls.collect::<Vec<ArrayRef>>();
        let columns = match side {
            0 => own.into_iter().chain(nulls),
            _ => nulls.into_iter().chain(own),
        };
        let columns = columns.collect::<Vec<ArrayRef>>();
        output.emit_batch(RecordBatch::try_new(self.spec.schema.clone(), columns)?);
        Ok(())
    }

    /// Forgets rows of a side whose partners have all come, until `limit` of them are to be padded.
    fn forget(&mut self, side: usize, limit: usize) -> Vec<Box<[u8]>> {
        let complete = self.complete();
        let is_kept = self.spec.kind.keeps(side);
        let mut singles = Vec::new();
        while let Some(key) = self.sides[side].keys.first_due(complete) {
            while let Some(time) = self.sides[side].first_time(key) {
                let last = self.spec.last_partner(side, time);
                if last > complete || singles.len() == limit {
                    self.sides[side].keys.set_due(key, Some(last));
                    break;
                }
                let gone = self.sides[side].pop_first(key);
                singles.extend(
                    gone.filter(|row| is_kept && !row.matched)
                        .map(|row| row.values),
                );
            }
            self.sides[side].forget_empty(key);
            if singles.len() == limit {
                break;
            }
        }
        singles
    }
}

impl Stateful for IntervalJoin {
    fn facts(&self) -> Facts {
        Facts {
            placed_by: self
                .spec
                .sides
                .iter()
                .map(|side| Some(side.keys.clone()).filter(|_| self.spec.broadcast.is_none()))
                .collect(),
            is_replicated: self.spec.broadcast.is_some(),
            first_input: None,
            // A side that may be padded has no event time for the operators after this one, nor has a
            // side that isn't emitted.
            delay_us: {
                let [least, most] = self.spec.bounds;
                let left = match self.spec.kind.keeps(1) {
                    true => 0,
                    false => most.max(0),
                };
                let right = match self.spec.kind.keeps(0) || self.spec.kind.is_of_left() {
                    true => 0,
                    false => least.saturating_neg().max(0),
                };
                left.max(right).saturating_add(self.spec.behind_us)
            },
            // The rows that it keeps and emits are encoded in between.
            shares_input: false,
        }
    }

    fn process(&mut self, input: usize, chunk: Chunk, output: &mut Output) -> Result<()> {
        let times = self.times(input, &chunk.batch)?;
        let complete = self.complete();
        let (chunk, times) = only_in_time(chunk, times, output, |time| time > complete)?;
        let batch = chunk.batch;
        self.pending = Some(Pending {
            side: input,
            keys: self.keys(input, &batch)?,
            rows: self.sides[input].encode(&batch)?,
            matched: vec![false; times.len()],
            times,
            row: 0,
            last: None,
        });
        Ok(())
    }

    /// Emits further pairs. A row may have as many partners as the interval has rows: a chunk of them at
    /// a time.
    fn rest(&mut self, output: &mut Output) -> Result<Progress> {
        let Some(mut pending) = self.pending.take() else {
            return Ok(Progress::Done);
        };
        let pairs = self.pairs(&mut pending, output.chunk_rows);
        if !pairs.is_empty() {
            self.emit_pairs(&mut pending, pairs, output)?;
        }
        if pending.row < pending.times.len() {
            self.pending = Some(pending);
            return Ok(Progress::More);
        }
        self.keep(pending, output)?;
        Ok(Progress::Done)
    }

    fn advance(&mut self, watermark: EventTime, output: &mut Output) -> Result<Progress> {
        self.clock.advance(watermark);
        for side in 0..2 {
            let singles = self.forget(side, output.chunk_rows);
            self.emit_singles(side, &singles, output)?;
            if self.sides[side].keys.first_due(self.complete()).is_some() {
                return Ok(Progress::More);
            }
        }
        Ok(Progress::Done)
    }

    fn timer(&mut self) -> Option<&mut dyn Timer> {
        None
    }

    fn end_unit(&mut self, _output: &mut Output) -> Result<()> {
        self.sides.iter_mut().for_each(Side::clear);
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
