//! Tests of aggregation in two phases against aggregation in one.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::operator::Stateless;

/// The rows through the first phase, in chunks of `chunk_rows`; the second half with it switched on.
fn combined(rows: &[Row], spec: &AggregateSpec, chunk_rows: usize) -> Vec<Chunk> {
    let is_on = Arc::new(AtomicBool::new(false));
    let mut combine = Combine::new(spec.clone(), &input_schema(), is_on.clone()).unwrap();
    let mut output = Output::new(1000);
    for (number, part) in rows.chunks(chunk_rows).enumerate() {
        is_on.store(number % 2 == 1, std::sync::atomic::Ordering::Relaxed);
        combine.process(chunk(part), &mut output).unwrap();
    }
    output.take_chunks()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn two_phases_give_what_one_gives(
        rows in random_rows(120),
        keys in key_sets(),
        window in prop::option::of(any::<bool>()),
        chunk_rows in 1usize..40,
    ) {
        let mut operator = aggregate(window, &keys, Emit::Changes);
        let mut output = Output::new(1000);
        for chunk in combined(&rows, &operator.spec.clone(), chunk_rows) {
            operator.process(0, chunk, &mut output).unwrap();
        }
        advance(&mut operator, MAX_WATERMARK, &mut output);
        let chunks = output.take_chunks();
        if window.is_some() {
            let mut printed = printed(&chunks);
            printed.sort();
            prop_assert_eq!(printed, windowed_answer(&rows, &keys, i64::MIN, i64::MAX));
            return Ok(());
        }
        // The last row of each key.
        let mut last = BTreeMap::new();
        for cells in printed(&chunks) {
            last.insert(cells[..keys.len()].to_vec(), cells);
        }
        let mut groups = BTreeMap::<Cells, Vec<&Row>>::new();
        for row in &rows {
            groups.entry(key(row, &keys)).or_default().push(row);
        }
        for (key, rows) in groups {
            prop_assert_eq!(&last[&key], &cells(key.clone(), &rows));
        }
    }
}

/// Twenty rows of one key and one window.
fn same() -> Vec<Row> {
    let row = |position| Row {
        text: Some(1),
        number: Some(2),
        value: Some(3),
        keep: Some(true),
        time: 5,
        position,
    };
    (0..20).map(row).collect()
}

#[test]
fn a_hot_key_is_one_row_a_chunk_and_late_rows_are_all_counted() {
    let mut operator = aggregate(Some(false), &[TEXT], Emit::Changes);
    let chunks = combined(&same(), &operator.spec.clone(), 10);
    let rows = chunks.iter().map(Chunk::rows);
    assert_eq!(rows.collect::<Vec<usize>>(), [10, 1]);
    let mut output = Output::new(1000);
    operator.advance(100_000, &mut output).unwrap();
    for chunk in chunks {
        operator.process(0, chunk, &mut output).unwrap();
    }
    assert_eq!(output.rows_late(), 20);
}

#[test]
fn a_chunk_of_many_groups_is_sent_as_it_is() {
    let mut rows = same();
    for (number, row) in rows.iter_mut().enumerate() {
        row.number = Some(number as i64);
    }
    let operator = aggregate(None, &[NUMBER], Emit::Changes);
    let chunks = combined(&rows, &operator.spec, 10);
    assert!(chunks.iter().all(|chunk| chunk.rows() == 10));
    let columns = input_schema().fields().len();
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk.batch.num_columns() == columns)
    );
}
