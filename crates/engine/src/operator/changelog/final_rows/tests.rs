//! Tests of the remaining rows at the end against sorting; of snapshots; and that nothing is emitted
//! twice.

use arrow_schema::SortOptions;
use proptest::prelude::*;

use super::*;
use crate::operator::changelog::tests::{
    Change, NUMBER, Row, chunk, only_additions, random_changes, remaining, row_schema,
};
use crate::state::expire;
use crate::testing::{advance, rows};

#[derive(Debug, Clone, Copy)]
struct Form {
    skip: usize,
    limit: Option<usize>,
    takes_back: bool,
    descending: bool,
}

fn forms() -> impl Strategy<Value = Form> {
    let limit = prop::option::of(0usize..8);
    (0usize..4, limit, any::<bool>(), any::<bool>()).prop_map(
        |(skip, limit, takes_back, descending)| Form {
            skip,
            limit,
            takes_back,
            descending,
        },
    )
}

fn operator(form: Form) -> FinalRows {
    let options = SortOptions {
        descending: form.descending,
        nulls_first: !form.descending,
    };
    FinalRows::new(FinalSpec {
        order: vec![(NUMBER, options)],
        skip: form.skip,
        limit: form.limit,
        takes_back: form.takes_back,
        schema: row_schema(),
    })
    .unwrap()
}

/// The rows as strings: NULL is less than all numbers, ties are ordered by all columns.
fn naive(mut of: Vec<Row>, form: Form) -> Vec<String> {
    of.sort_by(|one, other| {
        let by_number = one.number.cmp(&other.number);
        let by_number = match form.descending {
            true => by_number.reverse(),
            false => by_number,
        };
        by_number
            .then(one.key.cmp(&other.key))
            .then(one.text.cmp(&other.text))
    });
    let first = of.into_iter().skip(form.skip);
    let first = first.take(form.limit.unwrap_or(usize::MAX));
    let text = |row| {
        let change = Change {
            row,
            retracts: false,
        };
        rows(&[chunk(&[change])]).remove(0)
    };
    first.map(text).collect()
}

fn feed(operator: &mut FinalRows, changes: &[Change], size: usize) {
    let mut output = Output::new(4);
    for changes in changes.chunks(size) {
        operator.process(0, chunk(changes), &mut output).unwrap();
        advance(operator, 1_000, &mut output);
    }
    assert!(output.take_chunks().is_empty(), "rows before the end");
}

fn last_rows(operator: &mut FinalRows, chunk_rows: usize) -> Vec<String> {
    let mut output = Output::new(chunk_rows);
    advance(operator, MAX_WATERMARK, &mut output);
    let chunks = output.take_chunks();
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk.rows() <= chunk_rows && chunk.kinds.is_none())
    );
    rows(&chunks)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_remains_comes_out_once_in_order_also_after_snapshots(
        changes in random_changes(60),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 3),
        form in forms(),
        sizes in (1usize..20, 1usize..5),
    ) {
        let changes = match form.takes_back {
            true => changes,
            false => only_additions(&changes),
        };
        let mut cuts = cuts.iter().map(|cut| cut.index(changes.len() + 1)).collect::<Vec<_>>();
        cuts.sort();
        let (mut one, all) = (operator(form), BucketSet::all());
        let (mut batches, mut since, mut from) = (Vec::new(), Mark::default(), 0);
        for cut in cuts {
            feed(&mut one, &changes[from..cut], sizes.0);
            let mark = one.clock().end_interval();
            batches.extend(one.snapshot(&all, since).unwrap());
            (since, from) = (mark, cut);
        }
        let mut other = operator(form);
        batches.iter().for_each(|batch| other.restore(batch).unwrap());
        let expected = naive(remaining(&changes), form);
        for mut operator in [one, other] {
            feed(&mut operator, &changes[from..], sizes.0);
            prop_assert_eq!(&last_rows(&mut operator, sizes.1), &expected);
        }
        // Restored from before its end, though its input had ended, it emits nothing again.
        let mut ended = operator(form);
        batches.iter().for_each(|batch| ended.restore(batch).unwrap());
        expire(&mut ended, MAX_WATERMARK).unwrap();
        prop_assert_eq!(last_rows(&mut ended, 8), naive(Vec::new(), form));
    }
}

#[test]
fn only_the_first_rows_are_kept_of_rows_that_stay() {
    let form = Form {
        skip: 1,
        limit: Some(2),
        takes_back: false,
        descending: true,
    };
    let mut operator = operator(form);
    let row = |number: i64| Change {
        row: Row {
            key: Some(1),
            number: Some(number),
            text: None,
        },
        retracts: false,
    };
    let changes = (0..100).map(row).collect::<Vec<_>>();
    feed(&mut operator, &changes, 10);
    let kept = operator.rows.keys().flat_map(|of_key| of_key.rows());
    assert_eq!(kept.count(), 3);
}
