//! Rows of several chunks as one.

use arrow_array::{Int8Array, UInt32Array};
use arrow_select::interleave::interleave_record_batch;

use super::{Chunk, taken_kinds};
use crate::error::Result;

impl Chunk {
    /// Whether rows of both can be in one chunk by [`Chunk::gather`].
    pub fn is_like(&self, other: &Chunk) -> bool {
        let has_origin = self.origin.is_some() || other.origin.is_some();
        !has_origin
            && self.kinds.is_some() == other.kinds.is_some()
            && self.batch.num_columns() > 0
            && self.batch.schema_ref() == other.batch.schema_ref()
    }

    /// Some rows of chunks that are alike: of each chunk those at the given indices, in that order.
    pub fn gather(chunks: &[Chunk], mut rows: Vec<Vec<u32>>) -> Result<Chunk> {
        debug_assert_eq!(chunks.len(), rows.len());
        let mut used = (0..rows.len()).filter(|&nth| !rows[nth].is_empty());
        if let (Some(only), None) = (used.next(), used.next()) {
            let rows = std::mem::take(&mut rows[only]);
            return chunks[only].take(&UInt32Array::from(rows));
        }
        let of_chunks = || chunks.iter().zip(&rows);
        let places = rows.iter().enumerate();
        let places =
            places.flat_map(|(nth, rows)| rows.iter().map(move |&row| (nth, row as usize)));
        let batches = chunks.iter().map(|chunk| &chunk.batch).collect::<Vec<_>>();
        let batch = interleave_record_batch(&batches, &places.collect::<Vec<_>>())?;
        let kinds = of_chunks().filter_map(|(chunk, rows)| {
            let kinds = chunk.kinds.as_ref()?;
            Some(taken_kinds(kinds, rows).values().to_vec())
        });
        let kinds = chunks[0].kinds.is_some().then(|| kinds.flatten());
        let used = of_chunks().filter(|(_, rows)| !rows.is_empty());
        let oldest_ns = used.map(|(chunk, _)| chunk.ingest_ns).min();
        Ok(Chunk {
            kinds: kinds.map(Int8Array::from_iter_values),
            ..Chunk::new(batch, oldest_ns.unwrap_or(chunks[0].ingest_ns))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{ArrayRef, Int64Array, StringViewArray};

    use super::super::RowKind;
    use super::*;
    use crate::testing::batch;

    fn chunk(first: i64, kinds: Option<&[RowKind]>, ingest_ns: u64) -> Chunk {
        let numbers = first..first + kinds.map_or(4, |kinds| kinds.len() as i64);
        let strings = numbers
            .clone()
            .map(|n| format!("a string that is long: {n}"));
        let strings: ArrayRef = Arc::new(StringViewArray::from_iter_values(strings));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
        let kinds = kinds.map(|kinds| kinds.iter().map(|&kind| kind as i8).collect::<Vec<i8>>());
        Chunk {
            kinds: kinds.map(Int8Array::from),
            ..Chunk::new(batch(vec![("n", numbers), ("s", strings)]), ingest_ns)
        }
    }

    fn numbers(chunk: &Chunk) -> Vec<i64> {
        let numbers = chunk.batch.column(0).as_primitive::<Int64Type>();
        let strings = chunk.batch.column(1).as_string_view();
        for (n, string) in numbers.values().iter().zip(strings.iter()) {
            assert_eq!(string, Some(&*format!("a string that is long: {n}")));
        }
        numbers.values().to_vec()
    }

    #[test]
    fn rows_of_several_chunks_keep_their_order_and_the_oldest_time() {
        let chunks = [chunk(0, None, 30), chunk(10, None, 20), chunk(20, None, 10)];
        let gathered = |rows: [&[u32]; 3]| {
            let rows = rows.iter().map(|rows| rows.to_vec()).collect();
            Chunk::gather(&chunks, rows).unwrap()
        };
        let some = gathered([&[1, 3], &[0], &[]]);
        assert_eq!((numbers(&some), some.ingest_ns), (vec![1, 3, 10], 20));
        assert!(some.kinds.is_none());
        let of_one = gathered([&[], &[], &[2]]);
        assert_eq!((numbers(&of_one), of_one.ingest_ns), (vec![22], 10));
    }

    #[test]
    fn both_values_of_an_update_stay_an_update_only_together() {
        use RowKind::{Delete, Insert, Update, UpdateBefore};
        let kinds = [UpdateBefore, Update, UpdateBefore, Update];
        let chunks = [chunk(0, Some(&kinds), 0), chunk(4, Some(&kinds), 0)];
        let gathered = Chunk::gather(&chunks, vec![vec![0, 1, 2], vec![1, 2, 3]]).unwrap();
        assert_eq!(numbers(&gathered), [0, 1, 2, 5, 6, 7]);
        let expected = [UpdateBefore, Update, Delete, Insert, UpdateBefore, Update];
        let expected = expected.map(|kind| kind as i8);
        assert_eq!(gathered.kinds.unwrap().values().to_vec(), expected);
    }

    #[test]
    fn only_chunks_of_the_same_columns_and_without_an_origin_are_alike() {
        let one = chunk(0, None, 0);
        assert!(one.is_like(&chunk(4, None, 9)));
        assert!(!one.is_like(&chunk(0, Some(&[RowKind::Insert]), 0)));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..4));
        assert!(!one.is_like(&Chunk::new(batch(vec![("n", numbers)]), 0)));
    }
}
