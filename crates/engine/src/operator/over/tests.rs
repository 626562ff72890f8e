//! Tests of OVER against a naive reference, whatever order rows come in, and through snapshots.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, TimestampMicrosecondArray, UInt64Array,
};
use arrow_schema::{Field, Schema, TimeUnit};
use proptest::prelude::*;

use super::*;
use crate::chunk::{Origin, Partitions, Positions};
use crate::hash::hash_rows;
use crate::state::{BucketSet, Mark};
use crate::testing::instances::{Instance, Instances};
use crate::testing::{advance, batch, rows, schema, sorted_rows};
use crate::time::MAX_WATERMARK;

const US: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

#[derive(Debug, Clone, Copy)]
struct Row {
    key: Option<i64>,
    time: EventTime,
    value: Option<i64>,
    number: i64,
}

impl Row {
    /// The row's columns as the engine prints them.
    fn text(&self) -> String {
        let text = |value: Option<i64>| value.map_or("NULL".to_string(), |value| value.to_string());
        let time = TimestampMicrosecondArray::from(vec![self.time]);
        let time = arrow_cast::display::array_value_to_string(&time, 0).unwrap();
        let (key, value) = (text(self.key), text(self.value));
        format!(
            "k={key}, ts={time}, v={value}, n={}, f={:?}, even={}",
            self.number,
            self.float(),
            self.is_even()
        )
    }

    /// A number whose sums depend on their order.
    fn float(&self) -> f64 {
        self.value.unwrap_or(1) as f64 * 0.1
    }

    fn is_even(&self) -> bool {
        self.number % 2 == 0
    }
}

fn random_rows(most: usize) -> impl Strategy<Value = Vec<Row>> {
    let row = (
        prop::option::weighted(0.9, 0i64..3),
        0i64..40,
        prop::option::weighted(0.8, -9i64..10),
    );
    prop::collection::vec(row, 0..most).prop_map(|rows| {
        let rows = rows.into_iter().enumerate();
        let row = |(number, (key, time, value))| Row {
            key,
            time,
            value,
            number: number as i64,
        };
        rows.map(row).collect()
    })
}

/// Rows of one of two partitions; of none if a stateful operator has made them.
fn chunk(of: &[Row], partition: Option<u32>) -> Chunk {
    let column = |of: Vec<Option<i64>>| Arc::new(Int64Array::from(of)) as ArrayRef;
    let times = TimestampMicrosecondArray::from_iter_values(of.iter().map(|row| row.time));
    let floats = Float64Array::from_iter_values(of.iter().map(Row::float));
    let even = of
        .iter()
        .map(|row| Some(row.is_even()))
        .collect::<BooleanArray>();
    let mut chunk = Chunk::new(
        batch(vec![
            ("k", column(of.iter().map(|row| row.key).collect())),
            ("ts", Arc::new(times)),
            ("v", column(of.iter().map(|row| row.value).collect())),
            ("n", column(of.iter().map(|row| Some(row.number)).collect())),
            ("f", Arc::new(floats)),
            ("even", Arc::new(even)),
        ]),
        3,
    );
    chunk.origin = partition.map(|partition| Origin {
        partitions: Partitions::One(partition),
        positions: Positions::List(UInt64Array::from_iter_values(
            of.iter().map(|row| row.number as u64),
        )),
        watermarks: None,
    });
    chunk
}

const SUM: AggregateFunction = AggregateFunction::Sum {
    to: DataType::Int64,
};

fn first_last(last: bool) -> AggregateFunction {
    AggregateFunction::FirstLast {
        last,
        ignore_nulls: false,
        of: DataType::Int64,
    }
}

fn call(function: OverFunction, arguments: &[usize]) -> OverCall {
    OverCall {
        function,
        arguments: arguments.to_vec(),
        filter: None,
    }
}

fn aggregate(function: AggregateFunction, frame: Frame, column: usize) -> OverCall {
    call(OverFunction::Aggregate { function, frame }, &[column])
}

/// The functions under test, in three sets: frames with rows, running ones, and both.
fn calls(set: usize) -> Vec<OverCall> {
    let sum_of_floats = AggregateFunction::Sum {
        to: DataType::Float64,
    };
    let framed = [
        aggregate(SUM, Frame::Rows(Some(2)), 2),
        OverCall {
            filter: Some(5),
            ..aggregate(AggregateFunction::Count, Frame::Range(Some(5)), 2)
        },
        aggregate(first_last(false), Frame::Rows(Some(3)), 3),
        aggregate(first_last(true), Frame::Range(Some(7)), 3),
        aggregate(sum_of_floats.clone(), Frame::Range(Some(9)), 4),
        call(
            OverFunction::Lag {
                offset: 2,
                of: DataType::Int64,
            },
            &[2, 3],
        ),
        call(
            OverFunction::Lag {
                offset: 1,
                of: DataType::Int64,
            },
            &[3],
        ),
    ];
    let running = [
        aggregate(SUM, Frame::Rows(None), 2),
        aggregate(SUM, Frame::Range(None), 2),
        OverCall {
            filter: Some(5),
            ..aggregate(AggregateFunction::Count, Frame::Rows(None), 2)
        },
        aggregate(first_last(false), Frame::Range(None), 3),
        aggregate(first_last(true), Frame::Rows(None), 3),
        aggregate(sum_of_floats, Frame::Range(None), 4),
        call(OverFunction::RowNumber, &[]),
        call(OverFunction::Rank, &[]),
        call(OverFunction::DenseRank, &[]),
    ];
    match set {
        0 => framed.to_vec(),
        1 => running.to_vec(),
        _ => framed.into_iter().chain(running).collect(),
    }
}

/// The value of a call for row `at` of one key's rows in order.
fn naive(call: &OverCall, rows: &[Row], at: usize) -> String {
    let time = rows[at].time;
    let text = |value: Option<i64>| value.map_or("NULL".to_string(), |value| value.to_string());
    let (function, frame) = match &call.function {
        OverFunction::Aggregate { function, frame } => (function, *frame),
        OverFunction::RowNumber => return (at + 1).to_string(),
        OverFunction::Rank => {
            let before = rows.iter().filter(|row| row.time < time);
            return (before.count() + 1).to_string();
        }
        OverFunction::DenseRank => {
            let times = rows.iter().map(|row| row.time).filter(|&of| of <= time);
            return times
                .collect::<std::collections::BTreeSet<_>>()
                .len()
                .to_string();
        }
        OverFunction::Lag { offset, .. } => {
            let of = |row: &Row, column: usize| match column {
                2 => row.value,
                _ => Some(row.number),
            };
            let value = match at.checked_sub(*offset as usize) {
                Some(before) => of(&rows[before], call.arguments[0]),
                None => call
                    .arguments
                    .get(1)
                    .and_then(|&column| of(&rows[at], column)),
            };
            return text(value);
        }
    };
    let is_in = |index: usize| match frame {
        Frame::Rows(count) => index <= at && count.is_none_or(|count| index + count as usize >= at),
        Frame::Range(us) => {
            let of = rows[index].time;
            of <= time && us.is_none_or(|us| of >= time - us)
        }
    };
    let frame = (0..rows.len())
        .filter(|&index| is_in(index))
        .map(|index| &rows[index]);
    let frame = frame.filter(|row| call.filter.is_none() || row.is_even());
    let mut frame = frame.collect::<Vec<&Row>>().into_iter();
    match function {
        AggregateFunction::Count => frame.filter(|row| row.value.is_some()).count().to_string(),
        AggregateFunction::Sum {
            to: DataType::Float64,
        } => {
            let sum = frame.fold(0.0, |sum, row| sum + row.float());
            let sum = Float64Array::from(vec![sum]);
            arrow_cast::display::array_value_to_string(&sum, 0).unwrap()
        }
        AggregateFunction::Sum { .. } => {
            let values = frame.filter_map(|row| row.value).collect::<Vec<i64>>();
            text((!values.is_empty()).then(|| values.iter().sum()))
        }
        AggregateFunction::FirstLast { last: false, .. } => {
            text(frame.next().map(|row| row.number))
        }
        AggregateFunction::FirstLast { .. } => text(frame.next_back().map(|row| row.number)),
        other => panic!("{other:?} is not tried"),
    }
}

/// An OVER under test.
#[derive(Debug, Clone, Copy)]
struct Tried {
    set: usize,
    has_key: bool,
    has_origin: bool,
    behind_us: EventTime,
}

impl Tried {
    fn over(&self) -> Over {
        let calls = calls(self.set);
        let input = [
            ("k", DataType::Int64),
            ("ts", US),
            ("v", DataType::Int64),
            ("n", DataType::Int64),
            ("f", DataType::Float64),
            ("even", DataType::Boolean),
        ];
        let input = schema(&input);
        let results = calls.iter().enumerate().map(|(number, call)| {
            Arc::new(Field::new(
                format!("c{number}"),
                call.function.data_type(),
                true,
            ))
        });
        let fields = input.fields().iter().cloned().chain(results);
        Over::new(OverSpec {
            keys: if self.has_key { vec![0] } else { Vec::new() },
            time_column: 1,
            calls: calls.clone(),
            behind_us: self.behind_us,
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            input,
        })
        .unwrap()
    }

    fn expected(&self, rows: &[Row]) -> Vec<String> {
        let mut rows = rows.to_vec();
        rows.sort_by_key(|row| {
            let place = match self.has_origin {
                true => (row.number % 2, row.number),
                false => (0, 0),
            };
            (row.time, place, row.key, row.value, row.number)
        });
        let mut expected = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            let is_of_key = |other: &Row| !self.has_key || other.key == row.key;
            let before = rows[..at].iter().filter(|other| is_of_key(other)).count();
            let of_key = rows.iter().filter(|other| is_of_key(other)).copied();
            let of_key = of_key.collect::<Vec<Row>>();
            let mut text = row.text();
            for (number, call) in calls(self.set).iter().enumerate() {
                text += &format!(", c{number}={}", naive(call, &of_key, before));
            }
            expected.push(text);
        }
        expected.sort();
        expected
    }
}

fn any_tried() -> impl Strategy<Value = Tried> {
    let all = (0usize..3, any::<bool>(), any::<bool>(), 0i64..6);
    all.prop_map(|(set, has_key, has_origin, behind_us)| Tried {
        set,
        has_key,
        has_origin,
        behind_us,
    })
}

/// The next step: rows, a watermark, a snapshot, a restart with a number of instances, or a move of
/// buckets between them.
#[derive(Debug, Clone, Copy)]
enum Act {
    Feed(usize),
    Watermark,
    Snapshot,
    Restart(usize),
    Move(usize),
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (1usize..9).prop_map(Act::Feed),
        4 => Just(Act::Watermark),
        2 => Just(Act::Snapshot),
        1 => (1usize..4).prop_map(Act::Restart),
        1 => any::<usize>().prop_map(Act::Move),
    ]
}

struct Run {
    tried: Tried,
    rows: Vec<Row>,
    next: usize,
    instances: Instances<Over>,
    watermark: EventTime,
    found: Vec<String>,
}

impl Run {
    /// The rows that belong to an instance, by the bucket of their key.
    fn of_instance(&self, rows: &[Row], index: usize) -> Vec<Row> {
        let keys = match self.tried.has_key {
            true => vec![chunk(rows, None).batch.column(0).clone()],
            false => Vec::new(),
        };
        let mut hashes = Vec::new();
        hash_rows(&keys, rows.len(), &mut hashes).unwrap();
        let is_mine = |hash: u64| self.instances.is_of(hash, index);
        let mine = rows.iter().zip(hashes).filter(|(_, hash)| is_mine(*hash));
        mine.map(|(row, _)| *row).collect()
    }

    fn feed(&mut self, count: usize) {
        let to = (self.next + count).min(self.rows.len());
        let rows = self.rows[self.next..to].to_vec();
        self.next = to;
        for index in 0..self.instances.all.len() {
            let mine = self.of_instance(&rows, index);
            for partition in 0..2 {
                let of = mine.iter().filter(|row| row.number % 2 == partition);
                let of = of.copied().collect::<Vec<Row>>();
                let partition = self.tried.has_origin.then_some(partition as u32);
                let Instance {
                    operator: over,
                    output,
                    ..
                } = &mut self.instances.all[index];
                over.process(0, chunk(&of, partition), output).unwrap();
            }
        }
    }

    fn advance(&mut self, watermark: EventTime) {
        let told = self.watermark.saturating_sub(self.tried.behind_us);
        let has_origin = self.tried.has_origin;
        for Instance {
            operator: over,
            output,
            ..
        } in &mut self.instances.all
        {
            advance(over, watermark, output);
            assert_eq!((output.rows_late(), output.rejected().len()), (0, 0));
            let chunks = output.take_chunks();
            for chunk in &chunks {
                let numbers = chunk.batch.column(3).as_primitive::<Int64Type>();
                for (row, &number) in numbers.values().iter().enumerate() {
                    let place = match has_origin {
                        true => ((number % 2) as u32, number as u64),
                        false => (Partitions::NONE, 0),
                    };
                    assert_eq!(chunk.place(row), place, "a row keeps its place");
                }
                assert!(
                    over.times(&chunk.batch)
                        .unwrap()
                        .iter()
                        .all(|&time| time > told)
                );
            }
            self.found.extend(rows(&chunks));
        }
        self.watermark = self.watermark.max(watermark);
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Feed(count) => self.feed(count),
            Act::Watermark => {
                let rest = self.rows[self.next..].iter().map(|row| row.time);
                let next = rest.min().unwrap_or(200);
                self.advance(next - 1 + self.tried.behind_us);
            }
            Act::Snapshot => self.instances.snapshot(),
            Act::Restart(count) => self.instances.restart(count, self.watermark),
            Act::Move(seed) => self.instances.move_buckets(seed),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn all_functions_equal_a_naive_reference_through_watermarks_snapshots_and_restarts(
        tried in any_tried(),
        rows in random_rows(60),
        acts in prop::collection::vec(any_act(), 0..40),
        chunk_rows in 1usize..12,
    ) {
        let expected = tried.expected(&rows);
        let mut run = Run {
            tried,
            rows,
            next: 0,
            instances: Instances::one(chunk_rows, move || tried.over()),
            watermark: EventTime::MIN,
            found: Vec::new(),
        };
        acts.into_iter().for_each(|act| run.act(act));
        run.feed(usize::MAX / 2);
        run.advance(MAX_WATERMARK);
        run.found.sort();
        prop_assert_eq!(run.found, expected);
    }
}

const PLAIN: Tried = Tried {
    set: 0,
    has_key: true,
    has_origin: true,
    behind_us: 0,
};

fn row(number: i64, time: EventTime) -> Row {
    Row {
        key: Some(0),
        time,
        value: Some(1),
        number,
    }
}

#[test]
fn a_row_goes_out_when_the_watermark_is_at_it_and_later_ones_of_its_time_are_late() {
    let mut over = PLAIN.over();
    let mut output = Output::new(100);
    let of = [row(2, 10), row(4, 11)];
    over.process(0, chunk(&of, Some(0)), &mut output).unwrap();
    advance(&mut over, 9, &mut output);
    assert_eq!(output.take_chunks().len(), 0);
    output.ingest_ns = 77;
    advance(&mut over, 10, &mut output);
    let chunks = output.take_chunks();
    assert_eq!((chunks[0].rows(), chunks[0].ingest_ns), (1, 77));
    over.process(0, chunk(&[row(6, 10)], Some(0)), &mut output)
        .unwrap();
    assert_eq!(output.rows_late(), 1);
    advance(&mut over, MAX_WATERMARK, &mut output);
    assert_eq!(sorted_rows(&output.take_chunks()).len(), 1);
}

#[test]
fn rows_and_keys_are_forgotten_when_no_frame_reaches_them() {
    let mut over = PLAIN.over();
    over.spec.calls.truncate(0);
    over.reach = Reach::us(5);
    over.spec.schema = over.spec.input.clone();
    let mut output = Output::new(100);
    let of = [row(2, 10), row(4, 12)];
    over.process(0, chunk(&of, Some(0)), &mut output).unwrap();
    advance(&mut over, 14, &mut output);
    assert_eq!(over.keys.get(0).done.len(), 2);
    advance(&mut over, 15, &mut output);
    assert_eq!(over.keys.get(0).done.len(), 1);
    advance(&mut over, 17, &mut output);
    assert!(over.keys.iter().next().is_none());
    assert_eq!(over.bytes, 0);
}

#[test]
fn rows_that_a_frame_counts_are_kept_and_no_more() {
    let mut over = PLAIN.over();
    let mut output = Output::new(7);
    let of = (0..100).map(|number| row(2 * number, 10 + number));
    let of = of.collect::<Vec<Row>>();
    over.process(0, chunk(&of, Some(0)), &mut output).unwrap();
    advance(&mut over, 200, &mut output);
    assert_eq!(over.keys.get(0).done.len(), 3);
    let chunks = output.take_chunks();
    assert!(chunks.iter().all(|chunk| chunk.rows() <= 7));
}

#[test]
fn a_sum_that_overflows_refuses_its_row_only() {
    let mut over = PLAIN.over();
    over.spec.calls.truncate(1);
    over.spec.schema = Arc::new(over.spec.schema.project(&[0, 1, 2, 3, 4, 5, 6]).unwrap());
    let large = |number: i64, time: EventTime, value: i64| Row {
        value: Some(value),
        ..row(number, time)
    };
    let of = [large(0, 1, i64::MAX), large(2, 2, 1), large(4, 3, -5)];
    let mut output = Output::new(100);
    over.process(0, chunk(&of, Some(0)), &mut output).unwrap();
    advance(&mut over, MAX_WATERMARK, &mut output);
    assert_eq!(output.take_chunks()[0].rows(), 2);
    assert_eq!(output.rejected().len(), 1);
    assert!(output.rejected()[0].reason.contains("SUM overflows"));
}

#[test]
fn the_next_unit_of_work_knows_nothing_of_the_last() {
    let mut over = Tried { set: 2, ..PLAIN }.over();
    let mut before = None;
    for _ in 0..2 {
        let mut output = Output::new(100);
        let of = [row(2, 10), row(4, 11)];
        over.process(0, chunk(&of, Some(0)), &mut output).unwrap();
        advance(&mut over, MAX_WATERMARK, &mut output);
        over.end_unit(&mut output).unwrap();
        let found = rows(&output.take_chunks());
        assert_eq!(found.len(), 2);
        assert_eq!(*before.get_or_insert(found.clone()), found);
    }
}

#[test]
fn a_snapshot_of_something_else_is_an_error() {
    let mut over = Tried { set: 2, ..PLAIN }.over();
    let mut output = Output::new(100);
    let of = [row(2, 10), row(4, 11)];
    over.process(0, chunk(&of, Some(0)), &mut output).unwrap();
    advance(&mut over, 10, &mut output);
    let snapshot = over.snapshot(&BucketSet::all(), Mark::default()).unwrap();
    assert_eq!(snapshot.len(), 2);
    for batch in snapshot {
        for columns in 0..batch.num_columns() {
            let cut = batch.project(&(0..columns).collect::<Vec<_>>()).unwrap();
            over.restore(&cut).unwrap_err();
        }
    }
}
