//! Operators that take and emit changelogs: totals of each key against a naive reference, through restarts
//! and moves; and what is wrong is said.

use arrow_array::Int8Array;

use super::super::totals::Totals;
use super::*;
use crate::chunk::RowKind;
use crate::operator::changelog::tests::Table;

/// A change: a key, a number, and what it does.
type Change = (Option<i64>, i64, RowKind);

fn operator(emits_updates: bool, mistake: i64) -> Custom {
    let input = CustomInput {
        keys: vec![0],
        time_column: None,
        schema: schema(&[("k", DataType::Int64), ("n", DataType::Int64)]),
    };
    Custom::new(CustomSpec {
        name: "totals".to_string(),
        inputs: vec![input],
        behind_us: 0,
        schema: schema(&[
            ("k", DataType::Int64),
            ("n", DataType::Int64),
            ("sum", DataType::Int64),
        ]),
        emits_updates,
        factory: Arc::new(Totals { number: 1, mistake }),
    })
    .unwrap()
}

fn chunk(of: &[Change]) -> Chunk {
    let keys = of.iter().map(|(key, ..)| *key).collect::<Int64Array>();
    let numbers = Int64Array::from_iter_values(of.iter().map(|(_, number, _)| *number));
    let kinds = of.iter().map(|(.., kind)| *kind as i8);
    Chunk {
        kinds: Some(Int8Array::from_iter_values(kinds)),
        ..Chunk::new(
            batch(vec![("k", Arc::new(keys)), ("n", Arc::new(numbers))]),
            3,
        )
    }
}

/// Random changes: what is taken back was there.
fn any_changes(most: usize) -> impl Strategy<Value = Vec<Change>> {
    let change = (
        prop::option::weighted(0.9, 0i64..5),
        0i64..30,
        any::<bool>(),
        prop::option::weighted(0.45, any::<prop::sample::Index>()),
    );
    prop::collection::vec(change, 0..most).prop_map(|random| {
        let mut there = Vec::<(Option<i64>, i64)>::new();
        let change =
            |(key, number, is_update, taken): (_, _, bool, Option<prop::sample::Index>)| {
                let taken = taken.filter(|_| !there.is_empty());
                if let Some(taken) = taken {
                    let (key, number) = there.swap_remove(taken.index(there.len()));
                    let kinds = [RowKind::Delete, RowKind::UpdateBefore];
                    return (key, number, kinds[usize::from(is_update)]);
                }
                there.push((key, number));
                let kinds = [RowKind::Insert, RowKind::Update];
                (key, number, kinds[usize::from(is_update)])
            };
        random.into_iter().map(change).collect()
    })
}

/// The rows that stand after these changes, and how many changes are rejected.
fn expected(changes: &[Change]) -> (Table, usize) {
    let (mut totals, mut rejected) = (BTreeMap::<Option<i64>, (i64, i64)>::new(), 0);
    for &(key, number, kind) in changes {
        if number % 10 == 7 {
            rejected += 1;
            continue;
        }
        let sign = if RowKind::is_retraction(kind as i8) {
            -1
        } else {
            1
        };
        let total = totals.entry(key).or_default();
        *total = (total.0 + sign, total.1 + sign * number);
    }
    let rows = totals.iter().filter(|(_, total)| total.0 > 0);
    let rows = rows.map(|(key, (count, sum))| {
        let key = key.map_or("NULL".to_string(), |key| key.to_string());
        format!("k={key}, n={count}, sum={sum}")
    });
    (Table::of(rows), rejected)
}

struct Run {
    changes: Vec<Change>,
    next: usize,
    instances: Instances<Custom>,
    found: Table,
    rejected: usize,
}

impl Run {
    fn feed(&mut self, count: usize) {
        let to = (self.next + count).min(self.changes.len());
        let all = chunk(&self.changes[self.next..to]);
        self.next = to;
        let mut hashes = Vec::new();
        let keys = [all.batch.column(0).clone()];
        hash_rows(&keys, all.rows(), &mut hashes).unwrap();
        for index in 0..self.instances.all.len() {
            let rows = (0..all.rows() as u32).zip(&hashes);
            let rows = rows.filter(|(_, hash)| self.instances.is_of(**hash, index));
            let rows = rows.map(|(row, _)| row).collect::<Vec<u32>>();
            let mine = all.take(&rows.into()).unwrap();
            let instance = &mut self.instances.all[index];
            let (operator, output) = (&mut instance.operator, &mut instance.output);
            operator.process(0, mine, output).unwrap();
            while operator.rest(output).unwrap() == Progress::More {}
            self.rejected += output.rejected().len();
            self.found.apply(&output.take_chunks());
            *output = Output::new(output.chunk_rows);
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Feed(count) => self.feed(count),
            Act::Watermark => {}
            Act::Snapshot => self.instances.snapshot(),
            Act::Restart(count) => self.instances.restart(count, 0),
            Act::Move(seed) => self.instances.move_buckets(seed),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn totals_of_a_changelog_equal_a_naive_reference_through_snapshots_and_restarts(
        changes in any_changes(80),
        acts in prop::collection::vec(any_act(), 0..40),
        chunk_rows in 1usize..12,
    ) {
        let (expected, rejected) = expected(&changes);
        let mut run = Run {
            changes,
            next: 0,
            instances: Instances::one(chunk_rows, || operator(true, 0)),
            found: Table::default(),
            rejected: 0,
        };
        acts.into_iter().for_each(|act| run.act(act));
        run.feed(usize::MAX / 2);
        // Nothing is kept of a key without rows, once two snapshots have said so.
        run.instances.snapshot();
        run.instances.snapshot();
        let all = run.instances.all.iter();
        let keys = all.clone().map(|one| one.operator.keys.iter().count());
        prop_assert_eq!(keys.sum::<usize>(), expected.0.len());
        let bytes = all.map(|one| one.operator.bytes).sum::<usize>();
        prop_assert_eq!(bytes, expected.0.len() * super::super::rows::STANDING_BYTES);
        prop_assert_eq!((run.found, run.rejected), (expected, rejected));
    }
}

fn error_of(emits_updates: bool, mistake: i64, numbers: &[i64]) -> Error {
    let mut operator = operator(emits_updates, mistake);
    let mut output = Output::new(100);
    let rows = numbers.iter();
    let rows = rows.map(|number| (Some(1), *number, RowKind::Insert));
    let rows = rows.collect::<Vec<Change>>();
    let error = operator.process(0, chunk(&rows), &mut output).unwrap_err();
    assert!(output.take_chunks().is_empty());
    error
}

#[test]
fn a_row_that_does_not_stand_is_not_retracted() {
    let error = error_of(true, 1, &[5, 6]);
    assert!(error.is_final);
    assert_eq!(error.place, "operator 'totals'");
    assert_eq!(
        error.reason,
        "it retracts a row that does not stand: k=1, n=1, sum=6"
    );
    // Also if it stood before a restart.
    let mut first = operator(true, 0);
    let mut output = Output::new(100);
    let row = |number| chunk(&[(Some(1), number, RowKind::Insert)]);
    first.process(0, row(5), &mut output).unwrap();
    let mut second = operator(true, 1);
    for batch in first.snapshot(&BucketSet::all(), Mark::default()).unwrap() {
        second.restore(&batch).unwrap();
    }
    let error = second.process(0, row(6), &mut output).unwrap_err();
    assert!(error.reason.contains("does not stand"), "{error}");
}

#[test]
fn an_operator_that_is_declared_to_add_rows_does_not_retract_any() {
    let error = error_of(false, 0, &[5, 6]);
    assert!(error.is_final);
    assert!(error.hint.contains("emits_updates()"), "{error}");
}

#[test]
fn rows_have_no_event_time_because_those_that_retract_others_are_equal() {
    let mut spec = PLAIN.operator().spec;
    spec.emits_updates = true;
    spec.schema = schema(&[
        ("k", DataType::Int64),
        ("n", DataType::Int64),
        ("sum", DataType::Int64),
    ]);
    let mut operator = Custom::new(spec).unwrap();
    let mut output = Output::new(100);
    let of = [row(0, 10, 2)];
    let rows = super::chunk(&of, Some(0));
    operator.process(0, rows, &mut output).unwrap();
    advance(&mut operator, 10, &mut output);
    assert_eq!(sorted_rows(&output.take_chunks()), ["k=0, n=2, sum=2"]);
}
