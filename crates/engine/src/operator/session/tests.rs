//! Tests of sessions against a naive computation over random rows of random partitions, in whatever order
//! they come, and through snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{Int64Array, StringViewArray, TimestampMillisecondArray, UInt64Array};
use arrow_schema::TimeUnit;
use proptest::prelude::*;

use super::*;
use crate::accumulator::AggregateFunction;
use crate::chunk::{Origin, Partitions, Positions};
use crate::operator::aggregate::{AggregateCall, AggregateSpec, Emit, WindowKey};
use crate::operator::window::AssignWindows;
use crate::operator::{Progress, Stateful, Stateless};
use crate::state::{BucketSet, KeyedState, Mark, expire};
use crate::testing::{batch, rows, schema};
use crate::time::MAX_WATERMARK;

const MS: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);
const GAP: i64 = 10;

/// A row: time, key, number.
type Row = (i64, u8, i64);

/// Partitions whose rows are out of order, and how far their watermarks stay behind.
fn partitions() -> impl Strategy<Value = (Vec<Vec<Row>>, i64)> {
    let row = (0i64..120, 0u8..3, 0i64..100);
    let partition = prop::collection::vec(row, 0..25).prop_flat_map(|rows| {
        // Nearly in order: sorted, then moved by a little.
        let moves = prop::collection::vec(-12i64..12, rows.len());
        (Just(rows), moves).prop_map(|(mut rows, moves)| {
            let mut keyed = rows.drain(..).zip(moves).collect::<Vec<_>>();
            keyed.sort_by_key(|((time, ..), by)| time + by);
            keyed.into_iter().map(|(row, _)| row).collect::<Vec<Row>>()
        })
    });
    (prop::collection::vec(partition, 1..4), 0i64..15)
}

/// A row that isn't late, with its partition's watermark when it came.
type Accepted = (i64, i64, u8, i64);

fn accepted(partitions: &[Vec<Row>], delay: i64) -> (Vec<Accepted>, u64) {
    let (mut kept, mut late) = (Vec::new(), 0);
    for partition in partitions {
        let mut watermark = i64::MIN;
        for &(time, key, number) in partition {
            match time + GAP <= watermark {
                true => late += 1,
                false => kept.push((time, watermark, key, number)),
            }
            watermark = watermark.max(time - delay);
        }
    }
    (kept, late)
}

/// Sessions by definition: two rows belong to one session when they are less than the gap apart, unless
/// the later one came when its partition had closed the session that the earlier one alone makes.
fn naive(rows: &[Accepted]) -> Vec<String> {
    let linked = |one: &Accepted, other: &Accepted| {
        let (earlier, later) = if one.0 <= other.0 {
            (one, other)
        } else {
            (other, one)
        };
        one.2 == other.2 && later.0 - earlier.0 < GAP && later.1 < earlier.0 + GAP
    };
    let mut session_of = (0..rows.len()).collect::<Vec<usize>>();
    for one in 0..rows.len() {
        for other in 0..one {
            if linked(&rows[one], &rows[other]) {
                let (from, into) = (session_of[one], session_of[other]);
                session_of
                    .iter_mut()
                    .filter(|of| **of == from)
                    .for_each(|of| *of = into);
            }
        }
    }
    let mut sessions = BTreeMap::<usize, Vec<&Accepted>>::new();
    for (row, &session) in rows.iter().zip(&session_of) {
        sessions.entry(session).or_default().push(row);
    }
    let text = |rows: &Vec<&Accepted>| {
        let times = rows.iter().map(|row| row.0);
        let (first, last) = (times.clone().min().unwrap(), times.max().unwrap());
        let sum = rows.iter().map(|row| row.3).sum::<i64>();
        let key = rows[0].2;
        format!(
            "{first}..{} key {key}: {} rows, {sum}",
            last + GAP,
            rows.len()
        )
    };
    let mut strings = sessions.values().map(text).collect::<Vec<String>>();
    strings.sort();
    strings
}

fn chunk(partition: usize, position: usize, rows: &[Row], watermarks: &[i64]) -> Chunk {
    let times = rows.iter().map(|row| row.0);
    let keys = rows
        .iter()
        .map(|row| Some(format!("a key of many bytes {}", row.1)));
    let numbers = rows.iter().map(|row| row.2);
    let batch = batch(vec![
        (
            "ts",
            Arc::new(TimestampMillisecondArray::from_iter_values(times)),
        ),
        ("k", Arc::new(keys.collect::<StringViewArray>())),
        ("n", Arc::new(Int64Array::from_iter_values(numbers))),
    ]);
    let positions = position as u64..(position + rows.len()) as u64;
    let watermarks = watermarks.iter().map(|&ms| ms.saturating_mul(1000));
    Chunk {
        origin: Some(Origin {
            partitions: Partitions::One(partition as u32),
            positions: Positions::List(UInt64Array::from_iter_values(positions)),
            watermarks: Some(Int64Array::from_iter_values(watermarks)),
        }),
        ..Chunk::new(batch, 0)
    }
}

fn windows() -> Windows {
    Windows::sessions(GAP, TimeUnit::Millisecond).unwrap()
}

fn input() -> SchemaRef {
    schema(&[
        ("ts", MS),
        ("k", DataType::Utf8View),
        ("n", DataType::Int64),
        ("reach", MS),
    ])
}

fn spec() -> SessionSpec {
    SessionSpec {
        keys: vec![1],
        time_column: 0,
        reach_column: 3,
        windows: windows(),
    }
}

fn aggregate() -> SessionAggregate {
    let call = |function, arguments: &[usize]| AggregateCall {
        function,
        arguments: arguments.to_vec(),
        filter: None,
    };
    let sum = AggregateFunction::Sum {
        to: DataType::Int64,
    };
    let spec_of_values = AggregateSpec {
        window: Some(WindowKey {
            column: 3,
            is_start: false,
            windows: windows(),
        }),
        keys: vec![1],
        calls: vec![call(AggregateFunction::Count, &[]), call(sum, &[2])],
        time_column: Some(0),
        emit: Emit::Changes,
        refires: None,
        takes_back: false,
        starts_empty: false,
        emits_before: false,
        retention_us: None,
        schema: schema(&[
            ("ws", MS),
            ("we", MS),
            ("k", DataType::Utf8View),
            ("count", DataType::Int64),
            ("sum", DataType::Int64),
        ]),
    };
    SessionAggregate::new(spec_of_values, spec(), &input()).unwrap()
}

fn row_operator() -> SessionRows {
    let out = schema(&[
        ("ts", MS),
        ("k", DataType::Utf8View),
        ("n", DataType::Int64),
        ("ws", MS),
        ("we", MS),
    ]);
    SessionRows::new(spec(), &input(), out).unwrap()
}

fn ticks(chunk: &Chunk, column: usize) -> Vec<i64> {
    timestamp_ticks(chunk.batch.column(column))
        .unwrap()
        .to_vec()
}

fn numbers(chunk: &Chunk, column: usize) -> Vec<i64> {
    let column = chunk
        .batch
        .column(column)
        .as_any()
        .downcast_ref::<Int64Array>();
    column.unwrap().values().to_vec()
}

fn key_of(chunk: &Chunk, column: usize, row: usize) -> String {
    let text = crate::testing::shown(chunk.batch.column(column))[row].clone();
    text.unwrap().split(' ').next_back().unwrap().to_string()
}

/// The aggregates as the naive computation prints them.
fn of_aggregates(chunks: &[Chunk]) -> Vec<String> {
    let mut strings = Vec::new();
    for chunk in chunks {
        let (starts, ends) = (ticks(chunk, 0), ticks(chunk, 1));
        let (counts, sums) = (numbers(chunk, 3), numbers(chunk, 4));
        for row in 0..chunk.rows() {
            let key = key_of(chunk, 2, row);
            let (count, sum) = (counts[row], sums[row]);
            strings.push(format!(
                "{}..{} key {key}: {count} rows, {sum}",
                starts[row], ends[row]
            ));
        }
    }
    strings.sort();
    strings
}

/// The rows, summed by their sessions' edges.
fn of_rows(chunks: &[Chunk]) -> Vec<String> {
    let mut sessions = BTreeMap::<(i64, i64, String), (usize, i64)>::new();
    for chunk in chunks {
        let (times, numbers) = (ticks(chunk, 0), numbers(chunk, 2));
        let (starts, ends) = (ticks(chunk, 3), ticks(chunk, 4));
        for row in 0..chunk.rows() {
            assert!((starts[row]..ends[row]).contains(&times[row]));
            let key = (starts[row], ends[row], key_of(chunk, 1, row));
            let (count, sum) = sessions.entry(key).or_default();
            (*count, *sum) = (*count + 1, *sum + numbers[row]);
        }
    }
    let text = |((start, end, key), (count, sum)): ((i64, i64, String), (usize, i64))| {
        format!("{start}..{end} key {key}: {count} rows, {sum}")
    };
    let mut strings = sessions.into_iter().map(text).collect::<Vec<String>>();
    strings.sort();
    strings
}

/// An instance that reads all partitions in a random order, in random pieces, with watermarks in between;
/// and restarts from snapshots now and then.
struct Run<'r> {
    partitions: &'r [Vec<Row>],
    delay: i64,
    steps: &'r [(prop::sample::Index, usize, u8)],
    chunk_rows: usize,
}

impl Run<'_> {
    fn run<O: Stateful + KeyedState>(&self, new: impl Fn() -> O) -> (Vec<Chunk>, u64) {
        let mut one = new();
        let mut assign = AssignWindows::new(0, windows(), input());
        let (mut assigned, mut output) =
            (Output::new(self.chunk_rows), Output::new(self.chunk_rows));
        let mut next = vec![0; self.partitions.len()];
        let mut own = vec![i64::MIN; self.partitions.len()];
        let (mut stored, mut since) = (Vec::<RecordBatch>::new(), Mark::default());
        let mut watermark = i64::MIN;
        let mut steps = self.steps.iter().cycle();
        loop {
            let open = (0..next.len()).filter(|&p| next[p] < self.partitions[p].len());
            let open = open.collect::<Vec<usize>>();
            let (Some((which, most, what)), false) = (steps.next(), open.is_empty()) else {
                break;
            };
            let partition = *which.get(&open);
            let from = next[partition];
            let rows = &self.partitions[partition][from..];
            let rows = &rows[..rows.len().min(*most)];
            let watermarks = rows.iter().map(|row| {
                let before = own[partition];
                own[partition] = before.max(row.0 - self.delay);
                before
            });
            let watermarks = watermarks.collect::<Vec<i64>>();
            let chunk = chunk(partition, from, rows, &watermarks);
            assign.process(chunk, &mut assigned).unwrap();
            for chunk in assigned.take_chunks() {
                one.process(0, chunk, &mut output).unwrap();
            }
            next[partition] += rows.len();
            // Partitions that have ended hold nobody back.
            let held = (0..next.len()).filter(|&p| next[p] < self.partitions[p].len());
            let least = held.map(|p| own[p]).min().unwrap_or(i64::MIN);
            if what % 2 == 0 && least > watermark {
                watermark = least;
                let time = watermark * 1000;
                while one.advance(time, &mut output).unwrap() == Progress::More {}
            }
            if what % 3 == 0 {
                stored.extend(one.snapshot(&BucketSet::all(), since).unwrap());
                since = one.clock().end_interval();
            }
            if what % 9 == 0 {
                let first = |bucket: usize| bucket.wrapping_mul(7919) >> 3 & 1 == 1;
                let half = BucketSet::of(first);
                one = new();
                stored.iter().for_each(|batch| one.restore(batch).unwrap());
                expire(&mut one, watermark.saturating_mul(1000)).unwrap();
                // Half of the state goes to another instance, and comes back.
                let moved = one.snapshot(&half, Mark::default()).unwrap();
                one.discard(&half).unwrap();
                assert!(one.snapshot(&half, Mark::default()).unwrap().is_empty());
                moved.iter().for_each(|batch| one.restore(batch).unwrap());
                stored = one.snapshot(&BucketSet::all(), Mark::default()).unwrap();
                since = one.clock().end_interval();
            }
        }
        while one.advance(MAX_WATERMARK, &mut output).unwrap() == Progress::More {}
        assert!(
            one.snapshot(&BucketSet::all(), Mark::default())
                .unwrap()
                .is_empty()
        );
        assert_eq!(output.rows_late(), 0, "lateness was judged before");
        let chunks = output.take_chunks();
        assert!(chunks.iter().all(|chunk| chunk.rows() <= self.chunk_rows));
        (chunks, assigned.rows_late())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn sessions_are_what_the_rule_says_however_rows_come(
        (partitions, delay) in partitions(),
        steps in prop::collection::vec((any::<prop::sample::Index>(), 1usize..8, any::<u8>()), 1..40),
        chunk_rows in 1usize..20,
    ) {
        let (rows, late) = accepted(&partitions, delay);
        let expected = naive(&rows);
        let run = Run { partitions: &partitions, delay, steps: &steps, chunk_rows };
        let (chunks, found_late) = run.run(aggregate);
        prop_assert_eq!(found_late, late);
        prop_assert_eq!(of_aggregates(&chunks), &*expected);
        let (chunks, _) = run.run(row_operator);
        prop_assert_eq!(of_rows(&chunks), expected);
    }
}

#[test]
fn a_row_between_two_sessions_makes_them_one() {
    let mut one = aggregate();
    let mut output = Output::new(100);
    let mut add = |time: i64| {
        let mut assigned = Output::new(100);
        let row = chunk(0, 0, &[(time, 1, time)], &[i64::MIN]);
        let mut assign = AssignWindows::new(0, windows(), input());
        assign.process(row, &mut assigned).unwrap();
        for chunk in assigned.take_chunks() {
            one.process(0, chunk, &mut output).unwrap();
        }
    };
    [0, 18, 9, 40, 50].into_iter().for_each(&mut add);
    while one.advance(28_000, &mut output).unwrap() == Progress::More {}
    assert_eq!(
        of_aggregates(&output.take_chunks()),
        ["0..28 key 1: 3 rows, 27"]
    );
    while one.advance(MAX_WATERMARK, &mut output).unwrap() == Progress::More {}
    let rest = ["40..50 key 1: 1 rows, 40", "50..60 key 1: 1 rows, 50"];
    assert_eq!(of_aggregates(&output.take_chunks()), rest);
}

#[test]
fn sessions_that_have_gone_leave_no_memory() {
    let mut one = aggregate();
    let mut output = Output::new(1000);
    let mut bytes = Vec::new();
    for round in 0..40i64 {
        let rows = (0..500).map(|of| (round * 1000 + of % 7, (of % 250) as u8, of));
        let rows = rows.collect::<Vec<Row>>();
        let mut assigned = Output::new(1000);
        let mut assign = AssignWindows::new(0, windows(), input());
        let chunk = chunk(0, 0, &rows, &vec![i64::MIN; rows.len()]);
        assign.process(chunk, &mut assigned).unwrap();
        for chunk in assigned.take_chunks() {
            one.process(0, chunk, &mut output).unwrap();
        }
        while one
            .advance((round * 1000 + 500) * 1000, &mut output)
            .unwrap()
            == Progress::More
        {}
        bytes.push(one.bytes());
    }
    assert_eq!(rows(&output.take_chunks()).len(), 40 * 250);
    let (early, late) = (bytes[..10].iter().max(), bytes[30..].iter().max());
    assert!(late <= early, "{bytes:?}");
}
