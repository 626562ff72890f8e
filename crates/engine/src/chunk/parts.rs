//! Parts of a chunk, for messages that are smaller than it.

use super::{Chunk, RowKind};

impl Chunk {
    /// The chunk in parts of at most `rows` rows, without copying. A `-U` and the `+U` after it stay
    /// together, for which a part may have one row more.
    pub fn parts(self, rows: usize) -> impl Iterator<Item = Chunk> {
        let mut start = 0;
        std::iter::from_fn(move || {
            if start >= self.rows() {
                return None;
            }
            let mut end = self.rows().min(start + rows.max(1));
            if end < self.rows() && self.is_before(end - 1) {
                end += 1;
            }
            let part = self.slice(start, end - start);
            start = end;
            Some(part)
        })
    }

    /// Whether row `row` is the old value of an update that follows.
    fn is_before(&self, row: usize) -> bool {
        let kinds = self.kinds.as_ref();
        kinds.is_some_and(|kinds| kinds.value(row) == RowKind::UpdateBefore as i8)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int8Array, Int64Array};

    use super::*;
    use crate::testing::batch;

    #[test]
    fn parts_are_the_chunk_and_keep_both_values_of_an_update() {
        use RowKind::{Delete, Insert, Update, UpdateBefore};
        let chunk = |of: &[RowKind]| {
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..of.len() as i64));
            let of = of.iter().map(|&kind| kind as i8);
            Chunk {
                kinds: Some(Int8Array::from_iter_values(of)),
                ..Chunk::new(batch(vec![("n", numbers)]), 0)
            }
        };
        let kinds = |chunk: &Chunk| {
            let kinds = chunk.kinds.as_ref().unwrap().values().iter();
            kinds.map(|&kind| RowKind::symbol(kind)).collect::<Vec<_>>()
        };
        let all = chunk(&[Insert, UpdateBefore, Update, Delete, UpdateBefore, Update]);
        let parts = |rows: usize| {
            let parts = all.clone().parts(rows);
            parts.map(|part| kinds(&part)).collect::<Vec<_>>()
        };
        for rows in 0..8 {
            assert_eq!(parts(rows).concat(), kinds(&all), "{rows}");
        }
        assert_eq!(parts(1)[1], ["-U", "+U"]);
        assert_eq!(parts(2)[0], ["+I", "-U", "+U"]);
        assert_eq!(parts(5)[0].len(), 6);
        assert_eq!(chunk(&[]).parts(3).count(), 0);
    }
}
