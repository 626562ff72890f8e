//! Semi and anti joins: a row of the left side is emitted with its first partner, or when none can come.

use arrow_array::RecordBatch;

use super::{IntervalJoin, Pairs, Pending};
use crate::error::Result;
use crate::operator::Output;
use crate::operator::join::JoinKind;

impl IntervalJoin {
    /// Notes which rows of the left side have a partner now; a semi join emits them with their first.
    pub(super) fn note_partners(
        &mut self,
        pending: &mut Pending,
        pairs: Pairs,
        output: &mut Output,
    ) -> Result<()> {
        let is_semi = self.spec.kind == JoinKind::Semi;
        let columns = if pending.side == 0 {
            let mut first = Vec::new();
            for (row, ..) in pairs {
                if !std::mem::replace(&mut pending.matched[row as usize], true) {
                    first.push(pending.rows.row(row as usize));
                }
            }
            if !is_semi || first.is_empty() {
                return Ok(());
            }
            self.sides[0].converter.convert_rows(first)?
        } else {
            let (left, mark) = (&mut self.sides[0], self.clock.mark());
            let mut first = Vec::new();
            for (_, key, place) in pairs {
                if left.note_matched(key, place, mark) {
                    first.push((key, place));
                }
            }
            if !is_semi || first.is_empty() {
                return Ok(());
            }
            left.columns(first.into_iter())?
        };
        let batch = RecordBatch::try_new(self.spec.output().clone(), columns)?;
        output.emit_batch(batch);
        Ok(())
    }
}
