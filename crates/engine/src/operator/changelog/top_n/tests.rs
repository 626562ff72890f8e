//! Tests of top-N against sorting the remaining rows; in windows; of snapshots; of retention.

use std::collections::BTreeMap;

use arrow_array::{Int64Array, TimestampMillisecondArray};
use arrow_schema::{DataType, Field, Schema, SortOptions, TimeUnit};
use proptest::prelude::*;

use super::*;
use crate::operator::changelog::tests::{
    Change, KEY, NUMBER, Row, Table, chunk, halves, only_additions, part, random_changes,
    remaining, row_schema,
};
use crate::operator::window::Windows;
use crate::state::{BucketSet, Mark, expire};
use crate::testing::{advance, batch, rows, sorted_rows};
use crate::time::MAX_WATERMARK;

#[derive(Debug, Clone, Copy)]
struct Form {
    limit: usize,
    has_rank: bool,
    takes_back: bool,
    emits_before: bool,
    descending: bool,
}

fn forms() -> impl Strategy<Value = Form> {
    (1usize..4, any::<[bool; 4]>()).prop_map(
        |(limit, [has_rank, takes_back, emits_before, descending])| Form {
            limit,
            has_rank,
            takes_back,
            emits_before,
            descending,
        },
    )
}

fn top(form: Form, retention_us: Option<i64>) -> TopN {
    let mut fields = row_schema().fields().to_vec();
    if form.has_rank {
        fields.push(Arc::new(Field::new("rank", DataType::UInt64, true)));
    }
    let options = SortOptions {
        descending: form.descending,
        nulls_first: !form.descending,
    };
    TopN::new(TopNSpec {
        partition: vec![KEY],
        window: None,
        order: vec![(NUMBER, options)],
        limit: form.limit,
        has_rank: form.has_rank,
        takes_back: form.takes_back,
        emits_before: form.emits_before,
        retention_us,
        input: row_schema(),
        schema: Arc::new(Schema::new(fields)),
    })
    .unwrap()
}

/// The first rows of each key, as strings.
fn naive(input: &[Row], form: Form) -> Table {
    let mut groups = BTreeMap::<Option<u8>, Vec<&Row>>::new();
    input
        .iter()
        .for_each(|row| groups.entry(row.key).or_default().push(row));
    let mut first = Vec::new();
    for mut group in groups.into_values() {
        // NULL is less than all numbers; ties are ordered by the string.
        group.sort_by(|one, other| {
            let by_number = one.number.cmp(&other.number);
            let by_number = if form.descending {
                by_number.reverse()
            } else {
                by_number
            };
            by_number.then(one.text.cmp(&other.text))
        });
        for (rank, row) in group.into_iter().take(form.limit).enumerate() {
            let change = Change {
                row: row.clone(),
                retracts: false,
            };
            let text = rows(&[chunk(&[change])]).remove(0);
            first.push(match form.has_rank {
                true => format!("{text}, rank={}", rank + 1),
                false => text,
            });
        }
    }
    Table::of(first)
}

fn feed(operator: &mut TopN, changes: &[Change], size: usize, buckets: &BucketSet) -> Vec<Chunk> {
    let mut output = Output::new(4);
    for changes in changes.chunks(size) {
        let rows = part(&chunk(changes), &[KEY], buckets);
        operator.process(0, rows, &mut output).unwrap();
    }
    output.take_chunks()
}

/// Applies a changelog without befores in which one row replaces another.
fn applied(table: &mut Table, form: Form, chunks: &[Chunk]) {
    if form.emits_before || !(form.has_rank || form.limit == 1) {
        return table.apply(chunks);
    }
    for chunk in chunks {
        for row in 0..chunk.rows() {
            let text = rows(&[chunk.slice(row, 1)]).remove(0);
            let key = text.split(", ").next().unwrap().to_string();
            let rank = text.split("rank=").nth(1).map(str::to_string);
            let is_same = |other: &String| {
                other.starts_with(&format!("{key}, "))
                    && other.split("rank=").nth(1).map(str::to_string) == rank
            };
            let before = table.0.keys().find(|other| is_same(other)).cloned();
            let kind = chunk.kinds.as_ref().unwrap().value(row);
            assert_eq!(
                before.is_some(),
                kind != RowKind::Insert as i8,
                "{kind} {text}"
            );
            before.iter().for_each(|before| {
                table.0.remove(before);
            });
            if kind == RowKind::Delete as i8 {
                assert_eq!(before, Some(text));
            } else {
                table.0.insert(text, 1);
            }
        }
    }
}

fn changes_of(form: Form, changes: &[Change]) -> Vec<Change> {
    match form.takes_back {
        true => changes.to_vec(),
        false => only_additions(changes),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_changelog_stands_for_the_first_of_what_remains(
        changes in random_changes(60),
        form in forms(),
        size in 1usize..20,
    ) {
        let changes = changes_of(form, &changes);
        let mut operator = top(form, None);
        let chunks = feed(&mut operator, &changes, size, &BucketSet::all());
        let mut table = Table::default();
        applied(&mut table, form, &chunks);
        prop_assert_eq!(table, naive(&remaining(&changes), form));
        // If rows are never retracted, only the first are kept.
        if !form.takes_back {
            let kept = operator.rows.keys().map(|of| of.rows().map(|(_, kept)| kept.count as usize).sum());
            prop_assert!(kept.max().unwrap_or(0usize) <= form.limit);
        }
    }

    #[test]
    fn it_goes_on_from_snapshots_one_upon_the_other_in_two_halves(
        changes in random_changes(80),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 3),
        form in forms(),
        seed in any::<u64>(),
    ) {
        let changes = changes_of(form, &changes);
        let mut cuts = cuts.iter().map(|cut| cut.index(changes.len() + 1)).collect::<Vec<_>>();
        cuts.sort();
        let all = BucketSet::all();
        let mut one = top(form, None);
        let mut table = Table::default();
        let (mut batches, mut since, mut from) = (Vec::new(), Mark::default(), 0);
        for cut in cuts {
            applied(&mut table, form, &feed(&mut one, &changes[from..cut], 7, &all));
            let mark = one.clock().end_interval();
            batches.extend(one.snapshot(&all, since).unwrap());
            (since, from) = (mark, cut);
        }
        for half in halves(seed) {
            let mut other = top(form, None);
            batches.iter().for_each(|batch| other.restore(batch).unwrap());
            other.discard(&BucketSet::of(|bucket| !half.contains(bucket))).unwrap();
            applied(&mut table, form, &feed(&mut other, &changes[from..], 5, &half));
        }
        prop_assert_eq!(table, naive(&remaining(&changes), form));
    }

    #[test]
    fn in_windows_the_first_rows_come_once_the_window_closes(
        of in prop::collection::vec((1i64..4, 0i64..3, -5i64..5), 0..60),
        size in 1usize..20,
        cut in any::<prop::sample::Index>(),
        limit in 1usize..3,
    ) {
        let cut = cut.index(of.len() + 1);
        let mut output = Output::new(3);
        let mut one = window_top(limit);
        for part in of[..cut].chunks(size) {
            one.process(0, window_chunk(part), &mut output).unwrap();
        }
        let batches = one.snapshot(&BucketSet::all(), Mark::default()).unwrap();
        let mut other = window_top(limit);
        batches.iter().for_each(|batch| other.restore(batch).unwrap());
        for part in of[cut..].chunks(size) {
            other.process(0, window_chunk(part), &mut output).unwrap();
        }
        prop_assert!(output.take_chunks().is_empty());
        advance(&mut other, MAX_WATERMARK, &mut output);
        let mut groups = BTreeMap::<(i64, i64), Vec<i64>>::new();
        for (window, key, number) in of {
            groups.entry((window, key)).or_default().push(number);
        }
        let mut expected = Vec::new();
        for ((window, key), mut numbers) in groups {
            numbers.sort();
            for (rank, number) in numbers.into_iter().take(limit).enumerate() {
                let end = format!("1970-01-01T00:00:00.0{}", 10 * window);
                expected.push(format!("end={end}, key={key}, number={number}, rank={}", rank + 1));
            }
        }
        expected.sort();
        let chunks = output.take_chunks();
        prop_assert!(chunks.iter().all(|chunk| chunk.rows() <= 3 && chunk.kinds.is_none()));
        prop_assert_eq!(sorted_rows(&chunks), expected);
    }
}

fn window_chunk(input: &[(i64, i64, i64)]) -> Chunk {
    let ends = input.iter().map(|(window, ..)| 10 * window);
    let end: ArrayRef = Arc::new(TimestampMillisecondArray::from_iter_values(ends));
    let key: ArrayRef = Arc::new(Int64Array::from_iter_values(input.iter().map(|row| row.1)));
    let number: ArrayRef = Arc::new(Int64Array::from_iter_values(input.iter().map(|row| row.2)));
    Chunk::new(
        batch(vec![("end", end), ("key", key), ("number", number)]),
        0,
    )
}

fn window_top(limit: usize) -> WindowTopN {
    let input = window_chunk(&[]).batch.schema();
    let rank = Arc::new(Field::new("rank", DataType::UInt64, true));
    let fields = input.fields().iter().cloned().chain([rank]);
    let spec = TopNSpec {
        partition: vec![1, 0],
        window: Some(WindowKey {
            column: 0,
            is_start: false,
            windows: Windows::new(10, 10, TimeUnit::Millisecond).unwrap(),
        }),
        order: vec![(2, SortOptions::default())],
        limit,
        has_rank: true,
        takes_back: false,
        emits_before: false,
        retention_us: None,
        schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
        input,
    };
    WindowTopN::new(spec).unwrap()
}

#[test]
fn rows_of_a_closed_window_are_late() {
    let mut operator = window_top(1);
    let mut output = Output::new(10);
    operator
        .process(0, window_chunk(&[(1, 0, 1)]), &mut output)
        .unwrap();
    advance(&mut operator, 10_000, &mut output);
    assert_eq!(output.take_chunks().len(), 1);
    operator
        .process(0, window_chunk(&[(1, 0, 2), (2, 0, 3)]), &mut output)
        .unwrap();
    assert_eq!(output.rows_late(), 1);
    // Restored from before its window was emitted, it does not emit it again.
    let mut other = window_top(1);
    let mut before = window_top(1);
    before
        .process(0, window_chunk(&[(1, 0, 1), (2, 0, 3)]), &mut output)
        .unwrap();
    for batch in before.snapshot(&BucketSet::all(), Mark::default()).unwrap() {
        other.restore(&batch).unwrap();
    }
    expire(&mut other, 10_000).unwrap();
    advance(&mut other, MAX_WATERMARK, &mut output);
    assert_eq!(
        output.take_chunks().iter().map(Chunk::rows).sum::<usize>(),
        1
    );
}

#[test]
fn a_partition_that_nothing_touches_is_forgotten() {
    let form = Form {
        limit: 1,
        has_rank: false,
        takes_back: false,
        emits_before: false,
        descending: false,
    };
    let mut operator = top(form, Some(100));
    let mut output = Output::new(100);
    let row = |number: i64| Change {
        row: Row {
            key: Some(1),
            number: Some(number),
            text: None,
        },
        retracts: false,
    };
    let all = BucketSet::all();
    feed(&mut operator, &[row(1)], 1, &all);
    operator.advance(1_000, &mut output).unwrap();
    assert!(feed(&mut operator, &[row(2)], 1, &all).is_empty());
    operator.advance(1_100, &mut output).unwrap();
    let chunks = feed(&mut operator, &[row(2)], 1, &all);
    assert_eq!(
        chunks[0].kinds.as_ref().unwrap().values(),
        &[RowKind::Insert as i8]
    );
}
