//! Tests of windows that are emitted before and after their end: whatever is emitted in between, the last
//! row of each group equals that of an aggregation that waits for all rows, the first is an insert, and
//! all others are updates.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::state::{BucketSet, Mark, expire};
use crate::time::MIN_WATERMARK;

const LATENESS_US: i64 = 15_000;

fn refires(every: bool) -> Option<Refires> {
    Some(Refires {
        every_ns: every.then_some(1),
        lateness_us: LATENESS_US,
    })
}

/// The final content of a table keyed by window and keys; checks that row kinds are consistent, and that
/// old rows come before their updates, if requested.
#[derive(Default)]
struct Table {
    rows: BTreeMap<Vec<Option<String>>, String>,
    has_befores: bool,
}

impl Table {
    fn apply(&mut self, chunks: &[Chunk]) {
        for chunk in chunks {
            let kinds = chunk.kinds.as_ref().expect("they are updates");
            for row in 0..chunk.rows() {
                // Window and text.
                let key = (0..3).map(|column| shown(chunk.batch.column(column))[row].clone());
                let text = crate::expression::row_text(&chunk.batch, row);
                let key = key.collect::<Vec<_>>();
                if kinds.value(row) == RowKind::UpdateBefore as i8 {
                    assert_eq!(self.rows.remove(&key), Some(text));
                    assert_eq!(kinds.value(row + 1), RowKind::Update as i8);
                    continue;
                }
                let is_update = match self.rows.insert(key, text) {
                    None => row > 0 && kinds.value(row - 1) == RowKind::UpdateBefore as i8,
                    Some(_) => !self.has_befores,
                };
                let expected = if is_update {
                    RowKind::Update
                } else {
                    RowKind::Insert
                };
                assert_eq!(kinds.value(row), expected as i8);
            }
        }
    }
}

/// The result of an aggregation that waits for all rows.
fn reference(rows: &[Row]) -> Vec<String> {
    let mut all = aggregate(Some(false), &[TEXT], Emit::Changes);
    let mut output = Output::new(1000);
    all.process(0, chunk(rows), &mut output).unwrap();
    advance(&mut all, MAX_WATERMARK, &mut output);
    sorted_rows(&output.take_chunks())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_last_update_of_each_group_is_its_value(
        rows in random_rows(60),
        chunk_rows in 1usize..9,
        every in any::<bool>(),
        cut in any::<prop::sample::Index>(),
        asks in prop::collection::vec(any::<bool>(), 64),
        has_befores in any::<bool>(),
    ) {
        let new = || {
            let Aggregate { mut spec, .. } =
                refiring_aggregate(Some(false), &[TEXT], Emit::Changes, refires(every));
            spec.emits_before = has_befores;
            Aggregate::new(spec, &input_schema()).unwrap()
        };
        let mut one = new();
        let mut table = Table { has_befores, ..Table::default() };
        let mut output = Output::new(chunk_rows);
        // No row is later than allowed: the watermark follows the smallest time to come.
        let chunks = rows.chunks(chunk_rows).collect::<Vec<_>>();
        let cut = cut.index(chunks.len() + 1);
        let mut base: Option<Vec<RecordBatch>> = None;
        let mut watermark = MIN_WATERMARK;
        for (index, part) in chunks.iter().enumerate() {
            one.process(0, chunk(part), &mut output).unwrap();
            let rest = chunks[index + 1..].iter().copied().flatten();
            let least = rest.map(|row| start(row) + SIZE).min().unwrap_or(0);
            // The watermark never goes back.
            watermark = watermark.max(least * 1000 + LATENESS_US - 1);
            advance(&mut one, watermark, &mut output);
            prop_assert!(every || one.due_ns().is_none());
            if asks[index % asks.len()] {
                while one.on_time(&mut output).unwrap() == Progress::More {}
                prop_assert!(one.due_ns().is_none());
            }
            table.apply(&output.take_chunks());
            if index + 1 == cut {
                // Continues from a full snapshot and one of changes.
                let mut batches = base.take().unwrap_or_default();
                let since = match batches.is_empty() {
                    true => Mark::default(),
                    false => Mark(1),
                };
                batches.extend(one.snapshot(&BucketSet::all(), since).unwrap());
                one = new();
                batches.iter().for_each(|batch| one.restore(batch).unwrap());
                expire(&mut one, watermark).unwrap();
            } else if index == 0 {
                base = Some(one.snapshot(&BucketSet::all(), Mark::default()).unwrap());
                prop_assert_eq!(one.clock().end_interval(), Mark(1));
            }
        }
        prop_assert_eq!(output.rows_late(), 0);
        advance(&mut one, MAX_WATERMARK, &mut output);
        table.apply(&output.take_chunks());
        let mut found = table.rows.into_values().collect::<Vec<String>>();
        found.sort();
        prop_assert_eq!(found, reference(&rows));
        prop_assert!(one.snapshot(&BucketSet::all(), Mark::default()).unwrap().is_empty());
        prop_assert!(one.due_ns().is_none() || every);
    }
}

fn row(time: i64, position: u64) -> Row {
    Row {
        text: Some(1),
        number: None,
        value: Some(time),
        keep: Some(true),
        time,
        position,
    }
}

#[test]
fn a_late_row_updates_its_window_until_the_lateness_is_over() {
    let mut one = refiring_aggregate(Some(false), &[TEXT], Emit::Changes, refires(false));
    let mut output = Output::new(100);
    one.process(0, chunk(&[row(1, 0)]), &mut output).unwrap();
    assert_eq!(output.take_chunks().len(), 0);
    advance(&mut one, 10_000, &mut output);
    assert_eq!(output.take_chunks().len(), 1);
    // Nothing has changed, so nothing is emitted again.
    advance(&mut one, 20_000, &mut output);
    assert_eq!(output.take_chunks().len(), 0);
    one.process(0, chunk(&[row(2, 1)]), &mut output).unwrap();
    let chunks = output.take_chunks();
    assert_eq!(chunks[0].kinds.as_ref().unwrap().values(), &[1]);
    advance(&mut one, 10_000 + LATENESS_US, &mut output);
    one.process(0, chunk(&[row(3, 2)]), &mut output).unwrap();
    assert_eq!((output.take_chunks().len(), output.rows_late()), (0, 1));
}

#[test]
fn the_time_is_asked_for_once_something_has_changed() {
    let mut one = refiring_aggregate(Some(false), &[TEXT], Emit::Changes, refires(true));
    let mut output = Output::new(100);
    assert_eq!(one.due_ns(), None);
    one.process(0, chunk(&[row(1, 0)]), &mut output).unwrap();
    let due = one.due_ns();
    assert!(due.is_some());
    one.process(0, chunk(&[row(2, 1)]), &mut output).unwrap();
    assert_eq!(one.due_ns(), due, "the first change counts");
    assert_eq!(one.on_time(&mut output).unwrap(), Progress::More);
    assert_eq!(one.on_time(&mut output).unwrap(), Progress::Done);
    assert_eq!((one.due_ns(), output.take_chunks().len()), (None, 1));
}
