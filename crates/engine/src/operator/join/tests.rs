//! Tests of window joins against a naive nested loop: every kind, NULL keys, conditions, pieces,
//! snapshots.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, BooleanArray, Int64Array, StringViewArray, TimestampMillisecondArray};
use arrow_schema::{DataType, TimeUnit};
use proptest::prelude::*;

use super::*;
use crate::error::Error;
use crate::hash::hash_rows;
use crate::state::BucketSet;
use crate::testing::{advance, batch, schema, sorted_rows};
use crate::time::MAX_WATERMARK;

const SIZE: i64 = 10;
const MS: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);
const KINDS: [JoinKind; 6] = [
    JoinKind::Inner,
    JoinKind::Left,
    JoinKind::Right,
    JoinKind::Full,
    JoinKind::Semi,
    JoinKind::Anti,
];

/// A row of either side. `number` identifies rows, and conditions use it.
#[derive(Debug, Clone)]
struct Row {
    key: Option<u8>,
    key_two: Option<u8>,
    number: i64,
    end: i64,
}

fn random_rows(most: usize) -> impl Strategy<Value = Vec<Row>> {
    let row = (
        prop::option::weighted(0.8, 0u8..3),
        prop::option::weighted(0.8, 0u8..2),
        1i64..4,
    );
    prop::collection::vec(row, 0..most).prop_map(|rows| {
        let row = |(index, (key, key_two, window))| Row {
            key,
            key_two,
            number: index as i64,
            end: window * SIZE,
        };
        rows.into_iter().enumerate().map(row).collect()
    })
}

/// Left: string, number, window start, second key. Right: window start, second key, string, number.
fn chunk(side: usize, rows: &[Row]) -> Chunk {
    let text: ArrayRef = Arc::new(
        rows.iter()
            .map(|row| {
                row.key
                    .map(|key| format!("a key of more than twelve bytes {key}"))
            })
            .collect::<StringViewArray>(),
    );
    let two: ArrayRef = Arc::new(
        rows.iter()
            .map(|row| row.key_two.map(i64::from))
            .collect::<Int64Array>(),
    );
    let number: ArrayRef = Arc::new(Int64Array::from_iter_values(
        rows.iter().map(|row| row.number),
    ));
    let window: ArrayRef = Arc::new(TimestampMillisecondArray::from_iter_values(
        rows.iter().map(|row| row.end - SIZE),
    ));
    let batch = match side {
        0 => batch(vec![
            ("k", text),
            ("n", number),
            ("ws", window),
            ("k2", two),
        ]),
        _ => batch(vec![
            ("ws", window),
            ("k2", two),
            ("k", text),
            ("n", number),
        ]),
    };
    Chunk::new(batch, 0)
}

const LEFT_NUMBER: usize = 1;
const RIGHT_NUMBER: usize = 7;

/// A join of the sides by this many keys.
fn join(kind: JoinKind, keys: usize, condition: Option<Arc<dyn Expression>>) -> WindowJoin {
    let sides = [0, 1].map(|side| JoinSide {
        window_column: [2, 0][side],
        keys: [[0, 3], [2, 1]][side][..keys].to_vec(),
        schema: chunk(side, &[]).batch.schema(),
    });
    let both = [
        ("k", DataType::Utf8View),
        ("n", DataType::Int64),
        ("ws", MS),
        ("k2", DataType::Int64),
        ("r.ws", MS),
        ("r.k2", DataType::Int64),
        ("r.k", DataType::Utf8View),
        ("r.n", DataType::Int64),
    ];
    WindowJoin::new(JoinSpec {
        sides,
        windows: Windows::new(SIZE, SIZE, TimeUnit::Millisecond).unwrap(),
        is_start: true,
        kind,
        condition,
        schema: schema(&both),
    })
}

/// The condition `left.n + right.n` is even; fails for a pair with `left.n == fails_at`.
#[derive(Debug)]
struct EvenSum {
    fails_at: i64,
}

impl Expression for EvenSum {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let column = |index: usize| batch.column(index).as_primitive::<Int64Type>().clone();
        let (left, right) = (column(LEFT_NUMBER), column(RIGHT_NUMBER));
        if left.values().contains(&self.fails_at) {
            return Err(Error::new("condition", "division by zero"));
        }
        let pairs = left.values().iter().zip(right.values());
        Ok(Arc::new(
            pairs
                .map(|(l, r)| Some((l + r) % 2 == 0))
                .collect::<BooleanArray>(),
        ))
    }
    fn data_type(&self) -> DataType {
        DataType::Boolean
    }
}

/// The join as a nested loop: pairs of indices, `None` for the padded side.
fn nested_loop(
    sides: [&[Row]; 2],
    kind: JoinKind,
    keys: usize,
    holds: impl Fn(&Row, &Row) -> bool,
) -> Vec<(Option<usize>, Option<usize>)> {
    let mut pairs = Vec::new();
    let mut matched = [vec![false; sides[0].len()], vec![false; sides[1].len()]];
    for (l, left) in sides[0].iter().enumerate() {
        for (r, right) in sides[1].iter().enumerate() {
            let equal = left.end == right.end
                && (keys < 1 || (left.key.is_some() && left.key == right.key))
                && (keys < 2 || (left.key_two.is_some() && left.key_two == right.key_two));
            if equal && holds(left, right) {
                (matched[0][l], matched[1][r]) = (true, true);
                pairs.push((Some(l), Some(r)));
            }
        }
    }
    if kind.is_of_left() {
        pairs = (0..sides[0].len())
            .filter(|&row| matched[0][row] == (kind == JoinKind::Semi))
            .map(|row| (Some(row), None))
            .collect();
        return pairs;
    }
    for side in 0..2 {
        let singles = (0..sides[side].len()).filter(|&row| kind.keeps(side) && !matched[side][row]);
        pairs.extend(singles.map(|row| {
            if side == 0 {
                (Some(row), None)
            } else {
                (None, Some(row))
            }
        }));
    }
    pairs
}

/// The rows of a nested loop's pairs as the join prints them, sorted.
fn expected(
    kind: JoinKind,
    sides: [&[Row]; 2],
    pairs: &[(Option<usize>, Option<usize>)],
) -> Vec<String> {
    let cell = |column: &ArrayRef, row: Option<usize>| match row.filter(|&row| column.is_valid(row))
    {
        Some(row) => arrow_cast::display::array_value_to_string(column, row).unwrap(),
        None => "NULL".to_string(),
    };
    let [left, right] = [0, 1].map(|side| chunk(side, sides[side]).batch);
    let names = ["k", "n", "ws", "k2", "r.ws", "r.k2", "r.k", "r.n"];
    let mut rows = pairs
        .iter()
        .map(|(l, r)| {
            let left = left.columns().iter().map(|column| cell(column, *l));
            let right = right.columns().iter().map(|column| cell(column, *r));
            let cells = names.iter().zip(left.chain(right));
            let cells = cells.take(if kind.is_of_left() { 4 } else { 8 });
            let cells = cells.map(|(name, cell)| format!("{name}={cell}"));
            cells.collect::<Vec<_>>().join(", ")
        })
        .collect::<Vec<String>>();
    rows.sort();
    rows
}

fn add(join: &mut WindowJoin, side: usize, rows: &[Row], chunk_rows: usize) {
    let mut output = Output::new(chunk_rows);
    for rows in rows.chunks(chunk_rows) {
        join.process(side, chunk(side, rows), &mut output).unwrap();
    }
    assert_eq!((output.rows_late(), output.take_chunks().len()), (0, 0));
}

fn end(join: &mut WindowJoin, chunk_rows: usize) -> Vec<String> {
    let mut output = Output::new(chunk_rows);
    advance(join, MAX_WATERMARK, &mut output);
    let chunks = output.take_chunks();
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk.rows() <= chunk_rows && chunk.origin.is_none())
    );
    sorted_rows(&chunks)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_kind_equals_a_nested_loop(
        left in random_rows(30),
        right in random_rows(30),
        keys in 0usize..=2,
        with_condition in any::<bool>(),
        chunk_rows in 1usize..12,
    ) {
        for kind in KINDS {
            let condition = with_condition.then(|| Arc::new(EvenSum { fails_at: -1 }) as Arc<dyn Expression>);
            let mut join = join(kind, keys, condition);
            add(&mut join, 1, &right, chunk_rows);
            add(&mut join, 0, &left, chunk_rows + 1);
            let sides = [left.as_slice(), right.as_slice()];
            let pairs = nested_loop(sides, kind, keys, |l, r| !with_condition || (l.number + r.number) % 2 == 0);
            prop_assert_eq!(end(&mut join, chunk_rows), expected(kind, sides, &pairs), "{:?}", kind);
            prop_assert_eq!(join.snapshot(&BucketSet::all(), Mark::default()).unwrap().len(), 0);
        }
    }

    #[test]
    fn two_joins_with_half_the_buckets_each_go_on_like_one(
        left in random_rows(30),
        right in random_rows(30),
        cut in any::<prop::sample::Index>(),
        seed in any::<u64>(),
        // Without keys rows are spread by their windows.
        of_keys in 0usize..=2,
    ) {
        for kind in KINDS {
            let (before, after) = left.split_at(cut.index(left.len() + 1));
            let mut one = join(kind, of_keys, None);
            add(&mut one, 0, before, 4);
            add(&mut one, 1, &right, 4);
            let first = move |bucket: usize| (bucket as u64 ^ seed).wrapping_mul(0x9E37_79B9) >> 13 & 1 == 1;
            let halves = [BucketSet::of(first), BucketSet::of(move |bucket| !first(bucket))];
            let mut together = Vec::new();
            for half in &halves {
                let mut other = join(kind, of_keys, None);
                for batch in one.snapshot(half, Mark::default()).unwrap() {
                    other.restore(&batch).unwrap();
                }
                let rest = chunk(0, after);
                let mut hashes = Vec::new();
                let keys = other.spec.sides[0].placed_by().iter();
                let keys = keys.map(|&key| rest.batch.column(key).clone()).collect::<Vec<_>>();
                hash_rows(&keys, rest.rows(), &mut hashes).unwrap();
                let keep = hashes.iter().map(|&hash| Some(half.contains_hash(hash)));
                let mut output = Output::new(100);
                other.process(0, rest.filter(&keep.collect()).unwrap(), &mut output).unwrap();
                together.extend(end(&mut other, 5));
            }
            together.sort();
            // Discarded rows are gone; the join continues with the rest.
            let mut kept = join(kind, of_keys, None);
            for batch in one.snapshot(&BucketSet::all(), Mark::default()).unwrap() {
                kept.restore(&batch).unwrap();
            }
            kept.discard(&halves[0]).unwrap();
            prop_assert_eq!(kept.snapshot(&halves[0], Mark::default()).unwrap().len(), 0);
            let mut other = join(kind, of_keys, None);
            for batch in one.snapshot(&halves[1], Mark::default()).unwrap() {
                other.restore(&batch).unwrap();
            }
            prop_assert_eq!(end(&mut kept, 5), end(&mut other, 5));
            // The join that the snapshots were taken of continues as if there had been none.
            add(&mut one, 0, after, 4);
            let sides = [left.as_slice(), right.as_slice()];
            let expected = expected(kind, sides, &nested_loop(sides, kind, of_keys, |_, _| true));
            prop_assert_eq!(end(&mut one, 5), expected.clone());
            prop_assert_eq!(together, expected);
        }
    }

    #[test]
    fn regression_rows_of_an_earlier_increment_are_in_no_later_one(
        left in random_rows(400),
        right in random_rows(40),
        intervals in 1usize..5,
    ) {
        // One row a chunk, so that kept batches are merged.
        let mut one = join(JoinKind::Full, 1, None);
        let mut layered = join(JoinKind::Full, 1, None);
        let mut since = Mark::default();
        add(&mut one, 1, &right, 1);
        let mut entries = 0;
        for interval in 0..intervals {
            let from = left.len() * interval / intervals;
            add(&mut one, 0, &left[from..left.len() * (interval + 1) / intervals], 1);
            let mark = one.clock().end_interval();
            for batch in one.snapshot(&BucketSet::all(), since).unwrap() {
                entries += batch.num_rows();
                layered.restore(&batch).unwrap();
            }
            since = mark;
        }
        prop_assert_eq!(entries, left.len() + right.len());
        prop_assert_eq!(end(&mut layered, 100), end(&mut one, 100));
    }
}

#[test]
fn a_pair_for_which_the_condition_fails_is_refused_and_its_rows_are_not_padded() {
    let row = |number: i64| Row {
        key: Some(0),
        key_two: None,
        number,
        end: SIZE,
    };
    let (left, right) = ([row(1), row(2)], [row(2), row(3)]);
    let mut join = join(JoinKind::Full, 1, Some(Arc::new(EvenSum { fails_at: 1 })));
    add(&mut join, 0, &left, 4);
    add(&mut join, 1, &right, 4);
    let mut output = Output::new(100);
    advance(&mut join, MAX_WATERMARK, &mut output);
    assert_eq!(output.rejected().len(), 2);
    let rejected = &output.rejected()[0];
    assert_eq!((rejected.partition, rejected.position), (None, None));
    assert!(rejected.reason.contains("division by zero"), "{rejected:?}");
    let pairs = [(Some(1), Some(0))];
    assert_eq!(
        sorted_rows(&output.take_chunks()),
        expected(JoinKind::Full, [&left, &right], &pairs)
    );
}

#[test]
fn windows_are_joined_when_the_watermark_reaches_their_end_and_later_rows_are_late() {
    let row = |number: i64, end: i64| Row {
        key: Some(0),
        key_two: None,
        number,
        end,
    };
    let mut join = join(JoinKind::Inner, 1, None);
    add(&mut join, 0, &[row(1, SIZE), row(2, 2 * SIZE)], 4);
    add(&mut join, 1, &[row(3, SIZE), row(4, 2 * SIZE)], 4);
    let mut output = Output::new(100);
    advance(&mut join, SIZE * 1000 - 1, &mut output);
    assert_eq!(output.take_chunks().len(), 0);
    output.ingest_ns = 77;
    advance(&mut join, SIZE * 1000, &mut output);
    let chunks = output.take_chunks();
    assert_eq!((sorted_rows(&chunks).len(), chunks[0].ingest_ns), (1, 77));
    let late = chunk(1, &[row(5, SIZE), row(6, 2 * SIZE)]);
    join.process(1, late, &mut output).unwrap();
    assert_eq!(output.rows_late(), 1);
    assert_eq!(end(&mut join, 100).len(), 2);
}

#[test]
fn a_row_whose_window_is_null_is_in_no_window() {
    let row = Row {
        key: Some(0),
        key_two: None,
        number: 1,
        end: SIZE,
    };
    let input = chunk(0, &[row]);
    let mut columns = input.batch.columns().to_vec();
    columns[2] = arrow_array::new_null_array(&MS, 1);
    let input = input.with_columns(input.batch.schema(), columns).unwrap();
    let mut join = join(JoinKind::Full, 1, None);
    let mut output = Output::new(100);
    join.process(0, input, &mut output).unwrap();
    assert_eq!(end(&mut join, 100), Vec::<String>::new());
    assert_eq!(output.rows_late(), 0);
}

#[test]
fn the_next_unit_of_work_knows_nothing_of_the_last() {
    let row = Row {
        key: Some(0),
        key_two: None,
        number: 1,
        end: SIZE,
    };
    let mut join = join(JoinKind::Full, 1, None);
    for _ in 0..2 {
        add(&mut join, 0, std::slice::from_ref(&row), 4);
        assert_eq!(end(&mut join, 100).len(), 1);
        join.end_unit(&mut Output::new(100)).unwrap();
    }
}

#[test]
fn regression_rows_that_come_one_by_one_are_merged_and_copied_a_few_times_only() {
    let mut join = join(JoinKind::Inner, 1, None);
    let rows = (0..20_000).map(|number| Row {
        key: Some(0),
        key_two: None,
        number,
        end: SIZE,
    });
    add(&mut join, 0, &rows.collect::<Vec<_>>(), 1);
    let sizes = join.windows[&SIZE][0]
        .batches
        .iter()
        .map(|(_, batch)| batch.num_rows());
    let sizes = sizes.collect::<Vec<_>>();
    assert_eq!(sizes.iter().sum::<usize>(), 20_000);
    assert!(sizes.len() <= 20, "{sizes:?}");
    assert!(
        sizes.iter().all(|&rows| rows <= MERGED_ROWS_MAX),
        "{sizes:?}"
    );
}

#[test]
fn a_snapshot_of_something_else_is_an_error() {
    let mut join = join(JoinKind::Inner, 1, None);
    let rows = [Row {
        key: Some(0),
        key_two: None,
        number: 1,
        end: SIZE,
    }];
    add(&mut join, 0, &rows, 4);
    let batch = join
        .snapshot(&BucketSet::all(), Mark::default())
        .unwrap()
        .remove(0);
    for columns in 0..batch.num_columns() {
        let cut = batch.project(&(0..columns).collect::<Vec<_>>()).unwrap();
        join.restore(&cut).unwrap_err();
    }
    let mut columns = batch.columns().to_vec();
    columns[1] = Arc::new(arrow_array::Int8Array::from(vec![2]));
    let wrong = RecordBatch::try_new(batch.schema(), columns).unwrap();
    join.restore(&wrong).unwrap_err();
}
