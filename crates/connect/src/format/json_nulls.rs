//! The rows of a column under construction that have no value.

use arrow_buffer::{BooleanBufferBuilder, NullBuffer};

/// The rows that are NULL: ranges in increasing order.
#[derive(Debug, Default)]
pub(super) struct Nulls {
    ranges: Vec<(u32, u32)>,
}

impl Nulls {
    /// Adds rows that follow all others.
    pub(super) fn add(&mut self, from: usize, to: usize) {
        self.ranges.push((from as u32, to as u32));
    }

    pub(super) fn truncate(&mut self, rows: usize) {
        let rows = rows as u32;
        while let Some(last) = self.ranges.last_mut() {
            if last.0 < rows {
                last.1 = last.1.min(rows);
                return;
            }
            self.ranges.pop();
        }
    }

    /// The buffer for `rows` rows, if some are NULL.
    pub(super) fn take(&mut self, rows: usize) -> Option<NullBuffer> {
        if self.ranges.is_empty() {
            return None;
        }
        let mut valid = BooleanBufferBuilder::new(rows);
        for (from, to) in self.ranges.drain(..) {
            valid.append_n(from as usize - valid.len(), true);
            valid.append_n((to - from) as usize, false);
        }
        valid.append_n(rows - valid.len(), true);
        Some(NullBuffer::new(valid.finish()))
    }
}

/// Puts a value into row `row`; the rows before it that have none are NULL.
#[inline(always)]
pub(super) fn put<T: Clone + Default>(
    values: &mut Vec<T>,
    nulls: &mut Nulls,
    row: usize,
    value: T,
) {
    if values.len() < row {
        nulls.add(values.len(), row);
        values.resize(row, T::default());
    }
    values.push(value);
}

/// The values; room for as many remains, because the next block has about as many.
pub(super) fn take<T>(values: &mut Vec<T>) -> Vec<T> {
    let room = Vec::with_capacity(values.len());
    std::mem::replace(values, room)
}
