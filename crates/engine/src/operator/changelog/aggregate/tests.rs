//! Tests of updating aggregations against a naive one over the remaining rows; of snapshots; of
//! retention.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::accumulator::AggregateFunction;
use crate::operator::aggregate::{AggregateCall, output_types};
use crate::operator::changelog::tests::{
    Change, KEY, NUMBER, Row, TEXT, Table as Shown, chunk, halves, only_additions, part,
    random_changes, remaining, row_schema, shown,
};
use crate::state::BucketSet;
use crate::testing::{rows, schema};

const FLOAT: usize = 3;

fn calls() -> Vec<AggregateCall> {
    let distinct = AggregateFunction::Distinct {
        function: Box::new(AggregateFunction::Count),
        arguments: vec![DataType::Utf8View],
    };
    let extreme = |largest| AggregateFunction::Extreme {
        largest,
        of: DataType::Int64,
    };
    let int64 = || AggregateFunction::Sum {
        to: DataType::Int64,
    };
    let float = || AggregateFunction::Sum {
        to: DataType::Float64,
    };
    let all: Vec<(AggregateFunction, Vec<usize>)> = vec![
        (AggregateFunction::Count, vec![]),
        (AggregateFunction::Count, vec![NUMBER]),
        (int64(), vec![NUMBER]),
        (float(), vec![FLOAT]),
        (AggregateFunction::Average, vec![NUMBER]),
        (extreme(false), vec![NUMBER]),
        (extreme(true), vec![NUMBER]),
        (distinct, vec![TEXT]),
    ];
    let call = |(function, arguments)| AggregateCall {
        function,
        arguments,
        filter: None,
    };
    all.into_iter().map(call).collect()
}

/// A form of the [`UpdatingAggregate`] under test.
#[derive(Debug, Clone, Copy)]
struct Form {
    keyed: bool,
    takes_back: bool,
    emits_before: bool,
    every_row: bool,
}

fn forms() -> impl Strategy<Value = Form> {
    any::<[bool; 4]>().prop_map(|[keyed, takes_back, emits_before, every_row]| Form {
        keyed,
        takes_back,
        emits_before,
        every_row,
    })
}

fn aggregate(form: Form, retention_us: Option<i64>) -> UpdatingAggregate {
    let keys = if form.keyed { vec![KEY] } else { vec![] };
    let key_types = keys.iter().map(|_| DataType::Int64).collect::<Vec<_>>();
    let types = output_types(None, &key_types, &calls());
    let names = [
        "key", "n", "numbers", "sum", "float", "average", "lowest", "highest", "strings",
    ];
    let fields = names[usize::from(!form.keyed)..].iter().copied().zip(types);
    let spec = AggregateSpec {
        window: None,
        keys,
        calls: calls(),
        time_column: None,
        emit: if form.every_row {
            Emit::EveryRow
        } else {
            Emit::Changes
        },
        takes_back: form.takes_back,
        starts_empty: form.takes_back && !form.keyed,
        emits_before: form.emits_before,
        retention_us,
        refires: None,
        schema: schema(&fields.collect::<Vec<_>>()),
    };
    UpdatingAggregate::new(spec, &row_schema()).unwrap()
}

/// The aggregation of the existing rows, as strings.
fn naive(rows: &[Row], keyed: bool) -> Shown {
    let mut groups = BTreeMap::<Option<u8>, Vec<&Row>>::new();
    for row in rows {
        groups
            .entry(row.key.filter(|_| keyed))
            .or_default()
            .push(row);
    }
    let text = |(key, rows): (Option<u8>, Vec<&Row>)| {
        let numbers = rows
            .iter()
            .filter_map(|row| row.number)
            .collect::<Vec<i64>>();
        let strings = rows
            .iter()
            .filter_map(|row| row.text)
            .collect::<BTreeSet<u8>>();
        let sum = (!numbers.is_empty()).then(|| numbers.iter().sum::<i64>());
        let key = if keyed {
            format!("key={}, ", shown(key))
        } else {
            String::new()
        };
        let double = |value: f64| format!("{value:?}");
        format!(
            "{key}n={}, numbers={}, sum={}, float={}, average={}, lowest={}, highest={}, strings={}",
            rows.len(),
            numbers.len(),
            shown(sum),
            shown(sum.map(|sum| double(sum as f64 / 2.0))),
            shown(sum.map(|sum| double(sum as f64 / numbers.len() as f64))),
            shown(numbers.iter().min()),
            shown(numbers.iter().max()),
            strings.len(),
        )
    };
    Shown::of(groups.into_iter().map(text))
}

fn feed(
    operator: &mut UpdatingAggregate,
    changes: &[Change],
    size: usize,
    buckets: &BucketSet,
) -> Vec<Chunk> {
    let mut output = Output::new(1000);
    for changes in changes.chunks(size) {
        let keys = operator.spec.keys.clone();
        let rows = part(&chunk(changes), &keys, buckets);
        operator.process(0, rows, &mut output).unwrap();
    }
    assert!(output.rejected().is_empty());
    output.take_chunks()
}

fn applied(table: &mut Shown, form: Form, chunks: &[Chunk]) {
    match form.emits_before {
        true => table.apply(chunks),
        // Without keys the only row replaces itself: there is no key to find it by.
        false if !form.keyed => {
            for chunk in chunks {
                let last = chunk.slice(chunk.rows() - 1, 1);
                *table = Shown::default();
                table.apply(&[Chunk {
                    kinds: None,
                    ..last
                }]);
            }
        }
        false => table.apply_by_key(1, chunks),
    }
}

fn changes_of(form: Form, changes: &[Change]) -> Vec<Change> {
    match form.takes_back {
        true => changes.to_vec(),
        false => only_additions(changes),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_changelog_stands_for_the_aggregation_of_what_remains(
        changes in random_changes(60),
        form in forms(),
        size in 1usize..20,
    ) {
        let changes = changes_of(form, &changes);
        let mut operator = aggregate(form, None);
        let chunks = feed(&mut operator, &changes, size, &BucketSet::all());
        let mut table = Shown::default();
        applied(&mut table, form, &chunks);
        let rows = remaining(&changes);
        let expected = match (form.keyed, rows.is_empty(), changes.is_empty()) {
            // Without keys the row stays when all others are gone.
            (false, true, false) => Shown::of(["n=0, numbers=0, sum=NULL, float=NULL, average=NULL, \
                lowest=NULL, highest=NULL, strings=0".to_string()]),
            _ => naive(&rows, form.keyed),
        };
        prop_assert_eq!(table, expected);
    }

    #[test]
    fn it_goes_on_from_snapshots_one_upon_the_other_in_two_halves(
        changes in random_changes(80),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 3),
        form in forms(),
        seed in any::<u64>(),
    ) {
        let form = Form { keyed: true, ..form };
        let changes = changes_of(form, &changes);
        let mut cuts = cuts.iter().map(|cut| cut.index(changes.len() + 1)).collect::<Vec<_>>();
        cuts.sort();
        let all = BucketSet::all();
        let mut one = aggregate(form, None);
        let mut table = Shown::default();
        let (mut batches, mut since, mut from) = (Vec::new(), Mark::default(), 0);
        for cut in cuts {
            let chunks = feed(&mut one, &changes[from..cut], 7, &all);
            applied(&mut table, form, &chunks);
            let mark = one.clock().end_interval();
            batches.extend(one.snapshot(&all, since).unwrap());
            (since, from) = (mark, cut);
        }
        let after = &changes[from..];
        for half in halves(seed) {
            let mut other = aggregate(form, None);
            for batch in &batches {
                other.restore(batch).unwrap();
            }
            let [gone] = [BucketSet::of(|bucket| !half.contains(bucket))];
            other.discard(&gone).unwrap();
            let chunks = feed(&mut other, after, 5, &half);
            applied(&mut table, form, &chunks);
        }
        prop_assert_eq!(table, naive(&remaining(&changes), true));
    }
}

fn change(key: u8, retracts: bool) -> Change {
    let row = Row {
        key: Some(key),
        number: Some(1),
        text: None,
    };
    Change { row, retracts }
}

const PLAIN: Form = Form {
    keyed: true,
    takes_back: false,
    emits_before: false,
    every_row: false,
};

#[test]
fn a_group_that_nothing_touches_is_forgotten() {
    let mut operator = aggregate(PLAIN, Some(100));
    let mut output = Output::new(100);
    let all = BucketSet::all();
    feed(
        &mut operator,
        &[change(1, false), change(2, false)],
        2,
        &all,
    );
    operator.advance(1_000, &mut output).unwrap();
    feed(&mut operator, &[change(2, false)], 1, &all);
    operator.advance(1_050, &mut output).unwrap();
    feed(&mut operator, &[change(2, false)], 1, &all);
    operator.advance(1_100, &mut output).unwrap();
    let mut table = Shown::default();
    // The first group is new again; the second one continues.
    let chunks = feed(
        &mut operator,
        &[change(1, false), change(2, false)],
        2,
        &all,
    );
    let kinds = chunks[0].kinds.as_ref().unwrap().values().to_vec();
    assert_eq!(kinds, [RowKind::Insert as i8, RowKind::Update as i8]);
    table.apply(&[Chunk {
        kinds: None,
        ..chunks[0].clone()
    }]);
    let counts = table
        .0
        .keys()
        .map(|row| row.split(", numbers").next().unwrap().to_string());
    assert_eq!(counts.collect::<Vec<_>>(), ["key=1, n=1", "key=2, n=4"]);
}

#[test]
fn what_is_forgotten_is_gone_from_the_next_snapshot_too() {
    let mut one = aggregate(PLAIN, Some(100));
    let mut output = Output::new(100);
    let all = BucketSet::all();
    feed(&mut one, &[change(1, false)], 1, &all);
    one.advance(1_000, &mut output).unwrap();
    let mark = one.clock().end_interval();
    let mut batches = one.snapshot(&all, Mark::default()).unwrap();
    one.advance(1_100, &mut output).unwrap();
    one.clock().end_interval();
    batches.extend(one.snapshot(&all, mark).unwrap());
    let mut other = aggregate(PLAIN, Some(100));
    batches
        .iter()
        .for_each(|batch| other.restore(batch).unwrap());
    assert_eq!(other.snapshot(&all, Mark::default()).unwrap().len(), 0);
    let chunks = feed(&mut other, &[change(1, false)], 1, &all);
    assert_eq!(
        chunks[0].kinds.as_ref().unwrap().values(),
        &[RowKind::Insert as i8]
    );
}

#[test]
fn groups_without_rows_make_room() {
    let form = Form {
        takes_back: true,
        ..PLAIN
    };
    let mut operator = aggregate(form, None);
    let all = BucketSet::all();
    let row = |key: i64| Change {
        row: Row {
            key: Some((key % 250) as u8),
            number: Some(key),
            text: None,
        },
        retracts: false,
    };
    let mut changes = (0..250).map(row).collect::<Vec<_>>();
    let gone = changes.iter().map(|change| Change {
        retracts: true,
        ..change.clone()
    });
    let gone = gone.collect::<Vec<_>>();
    changes.extend(gone);
    for _ in 0..3 {
        feed(&mut operator, &changes, 64, &all);
    }
    assert_eq!(operator.table.empty, operator.table.of_group.len());
    // So few groups are kept for their memory; more would be dropped.
    assert_eq!(operator.table.keys.len(), 250);
    operator.rebuild(|_| true).unwrap();
    assert_eq!((operator.table.keys.len(), operator.table.empty), (0, 0));
}

#[test]
fn an_overflowing_sum_goes_and_comes_back() {
    let form = Form {
        takes_back: true,
        emits_before: true,
        ..PLAIN
    };
    let mut operator = aggregate(form, None);
    let row = |number: i64, retracts: bool| Change {
        row: Row {
            key: Some(1),
            number: Some(number),
            text: None,
        },
        retracts,
    };
    let mut output = Output::new(100);
    for changes in [
        vec![row(i64::MAX, false)],
        vec![row(1, false)],
        vec![row(1, true)],
    ] {
        operator.process(0, chunk(&changes), &mut output).unwrap();
    }
    assert_eq!(output.rejected().len(), 1);
    assert!(output.rejected()[0].reason.contains("SUM overflows"));
    let kinds = output
        .take_chunks()
        .into_iter()
        .flat_map(|chunk| chunk.kinds.unwrap().values().to_vec());
    let (insert, delete) = (RowKind::Insert as i8, RowKind::Delete as i8);
    assert_eq!(kinds.collect::<Vec<i8>>(), [insert, delete, insert]);
}

#[test]
fn a_total_over_rows_that_may_go_is_there_from_the_start() {
    let form = Form {
        keyed: false,
        takes_back: true,
        emits_before: true,
        ..PLAIN
    };
    let all = BucketSet::all();
    let mut operator = aggregate(form, None);
    let mut output = Output::new(100);
    assert_eq!(operator.due_ns(), Some(0));
    operator.on_time(&mut output).unwrap();
    assert_eq!(operator.due_ns(), None, "once");
    let first = output.take_chunks();
    assert!(rows(&first)[0].starts_with("n=0, numbers=0, sum=NULL"));
    // A row that comes and goes between two chunks leaves the table unchanged.
    let mut table = Shown::default();
    table.apply(&first);
    let before = table.0.clone();
    table.apply(&feed(
        &mut operator,
        &[change(1, false), change(1, true)],
        1,
        &all,
    ));
    assert_eq!(table.0, before);
    // A restored operator has emitted it already, and one that ends has nothing to add.
    let mut restored = aggregate(form, None);
    let snapshot = operator.snapshot(&all, Mark::default()).unwrap();
    snapshot
        .iter()
        .for_each(|batch| restored.restore(batch).unwrap());
    assert_eq!(restored.due_ns(), None);
    restored.end_unit(&mut output).unwrap();
    assert!(output.take_chunks().is_empty());
}

#[test]
fn every_empty_unit_of_work_has_a_total_of_its_own() {
    for takes_back in [false, true] {
        let form = Form {
            keyed: false,
            takes_back,
            ..PLAIN
        };
        let mut operator = aggregate(form, None);
        for _ in 0..3 {
            let mut output = Output::new(100);
            operator.end_unit(&mut output).unwrap();
            let total = rows(&output.take_chunks());
            assert_eq!(total.len(), 1, "takes rows back: {takes_back}");
            assert!(total[0].starts_with("n=0, numbers=0, sum=NULL"));
        }
    }
}

#[test]
fn the_total_of_a_later_unit_of_work_goes_out_before_its_first_row() {
    let form = Form {
        keyed: false,
        takes_back: true,
        emits_before: true,
        ..PLAIN
    };
    let mut operator = aggregate(form, None);
    let mut output = Output::new(100);
    operator.end_unit(&mut output).unwrap();
    assert_eq!(output.take_chunks().len(), 1);
    assert_eq!(operator.due_ns(), None, "no other unit may begin");
    // A row that comes and goes in one chunk leaves the table as it is without rows.
    let changes = [change(1, false), change(1, true)];
    let chunks = feed(&mut operator, &changes, 2, &BucketSet::all());
    assert_eq!(rows(&chunks).len(), 1);
    assert!(rows(&chunks)[0].starts_with("n=0, numbers=0, sum=NULL"));
    operator.end_unit(&mut output).unwrap();
    assert!(output.take_chunks().is_empty());
}

#[test]
fn a_total_of_no_rows_goes_out_at_the_end() {
    let form = Form {
        keyed: false,
        ..PLAIN
    };
    let mut output = Output::new(100);
    let mut operator = aggregate(form, None);
    assert_eq!(operator.due_ns(), None, "no row can go, so none is missing");
    operator.end_unit(&mut output).unwrap();
    assert_eq!(output.take_chunks().len(), 1);
    let mut keyed = aggregate(PLAIN, None);
    keyed.end_unit(&mut output).unwrap();
    assert!(output.take_chunks().is_empty());
}
