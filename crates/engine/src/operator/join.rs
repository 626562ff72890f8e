//! Window join: two inputs, equal keys, same window.
//!
//! The rows of both sides are kept per window and joined when the watermark closes it, so that the result
//! doesn't depend on which side came first. Rows are copied when they are kept: a view into a source's
//! read block would hold the whole block.

mod matching;
mod state;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;

use super::window::{Windows, ticks_to_us, timestamp_ticks};
use super::{Facts, Output, Progress, Stateful, Timer};
use crate::chunk::Chunk;
use crate::error::Result;
use crate::expression::Expression;
use crate::state::{Clock, KeyedState, Mark};
use crate::time::EventTime;
use matching::Matching;

/// What a window join does.
#[derive(Debug, Clone)]
pub struct JoinSpec {
    /// The left and the right input.
    pub sides: [JoinSide; 2],
    /// The windows of both sides.
    pub windows: Windows,
    /// Whether both sides identify a row's window by its start; otherwise by its end. Both use the same
    /// edge, since without keys it brings the rows of one window together.
    pub is_start: bool,
    /// Which rows are emitted.
    pub kind: JoinKind,
    /// A further condition over the columns of both sides (left, then right).
    pub condition: Option<Arc<dyn Expression>>,
    /// The columns of a pair: all of the left input, then all of the right one.
    pub schema: SchemaRef,
}

impl JoinSpec {
    /// The columns of the output.
    pub fn output(&self) -> &SchemaRef {
        match self.kind.is_of_left() {
            true => &self.sides[0].schema,
            false => &self.schema,
        }
    }
}

/// One input of a window join.
#[derive(Debug, Clone)]
pub struct JoinSide {
    /// The column with the windows' ends or starts ([`JoinSpec::is_start`]).
    pub window_column: usize,
    /// Key columns, in the same order and of the same types on both sides.
    pub keys: Vec<usize>,
    /// The columns of the input.
    pub schema: SchemaRef,
}

impl JoinSide {
    /// The columns that say where a row belongs: its key. Without a key the windows themselves are spread
    /// over the instances.
    pub fn placed_by(&self) -> &[usize] {
        match self.keys.is_empty() {
            true => std::slice::from_ref(&self.window_column),
            false => &self.keys,
        }
    }
}

/// Which rows are emitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    /// Pairs.
    Inner,
    /// Pairs, and rows of the left input without a partner.
    Left,
    /// Pairs, and rows of the right input without a partner.
    Right,
    /// Pairs, and rows of both without a partner.
    Full,
    /// Rows of the left input that have a partner, each once, without the columns of the right one.
    Semi,
    /// Rows of the left input that have no partner.
    Anti,
}

impl JoinKind {
    /// Whether rows of `side` (0 is the left one) without a partner are emitted.
    pub fn keeps(self, side: usize) -> bool {
        match self {
            JoinKind::Inner | JoinKind::Semi => false,
            JoinKind::Left | JoinKind::Anti => side == 0,
            JoinKind::Right => side == 1,
            JoinKind::Full => true,
        }
    }

    /// Whether only rows of the left input are emitted, so that it only matters whether a partner exists.
    pub fn is_of_left(self) -> bool {
        matches!(self, JoinKind::Semi | JoinKind::Anti)
    }
}

/// The kept rows of one side of one window, with their marks.
#[derive(Default)]
struct Kept {
    batches: Vec<(Mark, RecordBatch)>,
}

/// Window join.
pub struct WindowJoin {
    spec: Arc<JoinSpec>,
    windows: BTreeMap<i64, [Kept; 2]>,
    firing: Option<Matching>,
    clock: Clock,
}

impl WindowJoin {
    /// A join without rows.
    pub fn new(spec: JoinSpec) -> WindowJoin {
        WindowJoin {
            spec: Arc::new(spec),
            windows: BTreeMap::new(),
            firing: None,
            clock: Clock::default(),
        }
    }

    fn keep(&mut self, input: usize, end: i64, batch: RecordBatch) -> Result<()> {
        let batch = copy_views(batch)?;
        let kept = &mut self.windows.entry(end).or_default()[input];
        kept.batches.push((self.clock.mark(), batch));
        // Many small chunks would cost more than their rows: neighbors of about the same size are merged,
        // as in a binary counter. Rows of different marks stay apart; otherwise an incremental snapshot
        // would hold rows that an earlier one already has.
        while let [.., (mark_before, before), (mark, last)] = kept.batches.as_slice()
            && mark_before == mark
            && before.num_rows() < 2 * last.num_rows()
            && before.num_rows() + last.num_rows() <= MERGED_ROWS_MAX
        {
            let merged = arrow_select::concat::concat_batches(&before.schema(), [before, last])?;
            kept.batches.truncate(kept.batches.len() - 2);
            kept.batches.push((self.clock.mark(), merged));
        }
        Ok(())
    }
}

/// The most rows of kept batches that are merged: 8,192 is a chunk, which is never copied again, and a
/// row that came alone is copied at most log2(8,192) = 13 times.
const MERGED_ROWS_MAX: usize = 8192;

/// The batch with the bytes of its strings copied out of shared buffers.
pub(super) fn copy_views(batch: RecordBatch) -> Result<RecordBatch> {
    use arrow_array::cast::AsArray;
    let columns = batch
        .columns()
        .iter()
        .map(|column| match column.as_string_view_opt() {
            Some(strings) => Arc::new(strings.gc()) as arrow_array::ArrayRef,
            None => column.clone(),
        })
        .collect();
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        batch.schema(),
        columns,
        &options,
    )?)
}

impl Stateful for WindowJoin {
    fn facts(&self) -> Facts {
        Facts {
            placed_by: self
                .spec
                .sides
                .iter()
                .map(|side| Some(side.placed_by().to_vec()))
                .collect(),
            is_replicated: false,
            first_input: None,
            delay_us: 0,
            shares_input: true,
        }
    }

    fn process(&mut self, input: usize, chunk: Chunk, output: &mut Output) -> Result<()> {
        let side = &self.spec.sides[input];
        let column = chunk.batch.column(side.window_column).clone();
        let offset = if self.spec.is_start {
            self.spec.windows.size
        } else {
            0
        };
        let ends = timestamp_ticks(&column)?;
        let mut rows_of = BTreeMap::<i64, Vec<u32>>::new();
        for (row, &end) in ends.iter().enumerate() {
            // An outer join before this one pads window columns with NULL: such a row is in no window.
            if column.is_valid(row) {
                rows_of
                    .entry(end.saturating_add(offset))
                    .or_default()
                    .push(row as u32);
            }
        }
        for (end, rows) in rows_of {
            if ticks_to_us(end, self.spec.windows.unit) <= self.clock.watermark() {
                output.count_late(rows.len() as u64);
            } else {
                let part = chunk.take(&UInt32Array::from(rows))?;
                self.keep(input, end, part.batch)?;
            }
        }
        Ok(())
    }

    fn rest(&mut self, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    fn advance(&mut self, watermark: EventTime, output: &mut Output) -> Result<Progress> {
        self.clock.advance(watermark);
        if self.firing.is_none() {
            let unit = self.spec.windows.unit;
            match self.windows.first_key_value() {
                Some((&end, _)) if ticks_to_us(end, unit) <= watermark => {
                    let (_, sides) = self.windows.pop_first().expect("looked at just above");
                    self.firing = Some(Matching::new(self.spec.clone(), sides.map(|s| s.batches))?);
                }
                _ => return Ok(Progress::Done),
            }
        }
        if let Some(matching) = &mut self.firing
            && matching.emit(output)? == Progress::Done
        {
            self.firing = None;
        }
        Ok(Progress::More)
    }

    fn timer(&mut self) -> Option<&mut dyn Timer> {
        None
    }

    fn end_unit(&mut self, _output: &mut Output) -> Result<()> {
        self.windows.clear();
        self.clock.restart();
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn KeyedState> {
        Some(self)
    }

    fn bytes(&self) -> usize {
        let batches = self
            .windows
            .values()
            .flatten()
            .flat_map(|kept| &kept.batches);
        batches
            .map(|(_, batch)| batch.get_array_memory_size())
            .sum()
    }
}

#[cfg(test)]
mod tests;
