//! Tests of an aggregation's snapshots: non-destructive, by bucket, incremental.

use super::*;
use crate::state::{BucketSet, Mark};

/// The rows of `chunk` whose keys belong to `buckets`.
fn part(chunk: &Chunk, keys: &[usize], buckets: &BucketSet) -> Chunk {
    let keys = KeyColumns::of_batch(&chunk.batch, keys).unwrap();
    let keep = keys
        .hashes()
        .iter()
        .map(|&hash| Some(buckets.contains_hash(hash)));
    chunk.filter(&keep.collect()).unwrap()
}

/// Two halves of the buckets, chosen by `seed`.
fn halves(seed: u64) -> [BucketSet; 2] {
    let first =
        move |bucket: usize| (bucket as u64 ^ seed).wrapping_mul(0x9E37_79B9) >> 13 & 1 == 1;
    [
        BucketSet::of(first),
        BucketSet::of(move |bucket| !first(bucket)),
    ]
}

/// Feeds `rows` in chunks of seven and ends the unit of work; returns the output, sorted.
fn feed(
    operator: &mut Aggregate,
    rows: &[Row],
    keys: &[usize],
    buckets: &BucketSet,
) -> Vec<String> {
    let mut output = Output::new(5);
    for rows in rows.chunks(7) {
        operator
            .process(0, part(&chunk(rows), keys, buckets), &mut output)
            .unwrap();
    }
    advance(operator, MAX_WATERMARK, &mut output);
    let chunks = output.take_chunks();
    let mut rows = Vec::new();
    for chunk in &chunks {
        let kinds = (0..chunk.rows()).map(|row| chunk.kinds.as_ref().map_or(0, |k| k.value(row)));
        let one = std::slice::from_ref(chunk);
        rows.extend(
            kinds
                .zip(printed(one))
                .map(|(kind, cells)| format!("{} {cells:?}", RowKind::symbol(kind))),
        );
    }
    rows.sort();
    rows
}

fn add(operator: &mut Aggregate, rows: &[Row]) {
    let mut output = Output::new(5);
    for rows in rows.chunks(7) {
        operator.process(0, chunk(rows), &mut output).unwrap();
    }
}

fn restore(operator: &mut Aggregate, batches: &[RecordBatch]) {
    for batch in batches {
        operator.restore(batch).unwrap();
    }
}

fn emits() -> impl Strategy<Value = Emit> {
    prop::sample::select(vec![Emit::Changes, Emit::EveryRow])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn two_operators_with_half_the_buckets_each_go_on_like_one(
        rows in random_rows(80),
        cut in any::<prop::sample::Index>(),
        window in prop::option::of(any::<bool>()),
        emit in emits(),
        keys in key_sets(),
        seed in any::<u64>(),
    ) {
        let (before, after) = rows.split_at(cut.index(rows.len() + 1));
        let mut one = aggregate(window, &keys, emit);
        add(&mut one, before);
        let mut together = Vec::new();
        for half in halves(seed) {
            let mut other = aggregate(window, &keys, emit);
            restore(&mut other, &one.snapshot(&half, Mark::default()).unwrap());
            together.extend(feed(&mut other, after, &keys, &half));
        }
        together.sort();
        // The operator that the snapshots were taken of continues as if there had been none.
        let mut untouched = aggregate(window, &keys, emit);
        add(&mut untouched, before);
        let all = BucketSet::all();
        let expected = feed(&mut untouched, after, &keys, &all);
        prop_assert_eq!(feed(&mut one, after, &keys, &all), expected.clone());
        prop_assert_eq!(together, expected);
    }

    #[test]
    fn what_is_discarded_is_gone_and_the_rest_goes_on(
        rows in random_rows(80),
        cut in any::<prop::sample::Index>(),
        window in prop::option::of(any::<bool>()),
        keys in key_sets(),
        seed in any::<u64>(),
    ) {
        let (before, after) = rows.split_at(cut.index(rows.len() + 1));
        let [gone, kept] = halves(seed);
        let mut one = aggregate(window, &keys, Emit::Changes);
        add(&mut one, before);
        let snapshot = one.snapshot(&kept, Mark::default()).unwrap();
        one.discard(&gone).unwrap();
        prop_assert_eq!(one.snapshot(&gone, Mark::default()).unwrap().len(), 0);
        let mut other = aggregate(window, &keys, Emit::Changes);
        restore(&mut other, &snapshot);
        prop_assert_eq!(feed(&mut one, after, &keys, &kept), feed(&mut other, after, &keys, &kept));
    }

    #[test]
    fn regression_incremental_snapshots_laid_over_each_other_equal_a_full_one(
        rows in random_rows(90),
        cuts in [any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<prop::sample::Index>()],
        window in prop::option::of(any::<bool>()),
        emit in emits(),
        keys in key_sets(),
    ) {
        let mut cuts = cuts.map(|cut| cut.index(rows.len() + 1));
        cuts.sort();
        let mut one = aggregate(window, &keys, emit);
        let mut layered = aggregate(window, &keys, emit);
        let all = BucketSet::all();
        let (mut from, mut since) = (0, Mark::default());
        for cut in cuts {
            add(&mut one, &rows[from..cut]);
            let mark = one.clock().end_interval();
            let increment = one.snapshot(&all, since).unwrap();
            // Only the keys that were touched.
            let entries = increment.iter().map(|batch| batch.num_rows()).sum::<usize>();
            let key = |row: &Row| (window.map(|_| start(row)), key(row, &keys));
            let touched = rows[from..cut].iter().map(key).collect::<std::collections::BTreeSet<_>>();
            prop_assert_eq!(entries, touched.len());
            restore(&mut layered, &increment);
            (from, since) = (cut, mark);
        }
        let mut full = aggregate(window, &keys, emit);
        restore(&mut full, &one.snapshot(&all, Mark::default()).unwrap());
        let expected = feed(&mut one, &rows[from..], &keys, &all);
        prop_assert_eq!(feed(&mut full, &rows[from..], &keys, &all), expected.clone());
        prop_assert_eq!(feed(&mut layered, &rows[from..], &keys, &all), expected);
    }
}

#[test]
fn a_snapshot_of_another_aggregation_is_an_error() {
    let row = Row {
        text: Some(1),
        number: Some(1),
        value: Some(1),
        keep: None,
        time: 0,
        position: 0,
    };
    let mut one = aggregate(None, &[TEXT], Emit::Changes);
    add(&mut one, &[row]);
    let batch = one
        .snapshot(&BucketSet::all(), Mark::default())
        .unwrap()
        .remove(0);
    for keys in [vec![NUMBER], vec![], vec![TEXT, NUMBER]] {
        let mut other = aggregate(None, &keys, Emit::Changes);
        let error = other.restore(&batch).unwrap_err();
        assert!(
            error.to_string().contains("snapshot of an aggregation"),
            "{error}"
        );
    }
    for columns in 0..batch.num_columns() {
        let cut = batch.project(&(0..columns).collect::<Vec<_>>()).unwrap();
        let mut other = aggregate(None, &[TEXT], Emit::Changes);
        other.restore(&cut).unwrap_err();
    }
}
