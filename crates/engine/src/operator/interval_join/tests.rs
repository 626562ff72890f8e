//! Tests of interval joins against a nested loop, whatever comes first, and through snapshots.

mod everywhere;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, BooleanArray, Int64Array, StringViewArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, TimeUnit};
use proptest::prelude::*;

use super::*;
use crate::error::Error;
use crate::hash::hash_rows;
use crate::state::{BucketSet, Mark};
use crate::testing::instances::{Instance, Instances};
use crate::testing::{advance, batch, schema};
use crate::time::MAX_WATERMARK;

const US: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
const KINDS: [JoinKind; 6] = [
    JoinKind::Inner,
    JoinKind::Left,
    JoinKind::Right,
    JoinKind::Full,
    JoinKind::Semi,
    JoinKind::Anti,
];

/// A row of either side.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Row {
    key: Option<i64>,
    time: EventTime,
    number: i64,
}

fn random_rows(most: usize) -> impl Strategy<Value = Vec<Row>> {
    let row = (prop::option::weighted(0.9, 0i64..4), 0i64..60);
    prop::collection::vec(row, 0..most).prop_map(|rows| {
        let rows = rows.into_iter().enumerate();
        let row = |(number, (key, time))| Row {
            key,
            time,
            number: number as i64,
        };
        rows.map(row).collect()
    })
}

fn chunk(rows: &[Row]) -> Chunk {
    let keys: ArrayRef = Arc::new(rows.iter().map(|row| row.key).collect::<Int64Array>());
    let times = TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.time));
    let numbers = Int64Array::from_iter_values(rows.iter().map(|row| row.number));
    let strings = rows
        .iter()
        .map(|row| format!("a text of row {}", row.number));
    let strings = StringViewArray::from_iter_values(strings);
    Chunk::new(
        batch(vec![
            ("k", keys),
            ("ts", Arc::new(times)),
            ("n", Arc::new(numbers)),
            ("t", Arc::new(strings)),
        ]),
        3,
    )
}

/// The left number is not three times the right one; fails if the left number is this.
#[derive(Debug)]
struct Condition(i64);

impl Expression for Condition {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let [left, right] = [2, 6].map(|column| batch.column(column).as_primitive::<Int64Type>());
        if left.values().contains(&self.0) {
            return Err(Error::new("condition", "division by zero"));
        }
        let pairs = left.values().iter().zip(right.values());
        let holds = pairs.map(|(left, right)| Some(*left != 3 * right));
        Ok(Arc::new(holds.collect::<BooleanArray>()))
    }
    fn data_type(&self) -> DataType {
        DataType::Boolean
    }
}

/// A join under test.
#[derive(Debug, Clone, Copy)]
struct Tried {
    kind: JoinKind,
    bounds: [EventTime; 2],
    has_key: bool,
    has_condition: bool,
    behind_us: EventTime,
    broadcast: Option<usize>,
}

impl Tried {
    fn join(&self) -> IntervalJoin {
        let side = [
            ("k", DataType::Int64),
            ("ts", US),
            ("n", DataType::Int64),
            ("t", DataType::Utf8View),
        ];
        let sides = [0, 1].map(|_| IntervalSide {
            time_column: 1,
            keys: if self.has_key { vec![0] } else { Vec::new() },
            schema: schema(&side),
        });
        let condition = self.has_condition.then(|| Arc::new(Condition(-1)) as _);
        IntervalJoin::new(IntervalJoinSpec {
            sides,
            bounds: self.bounds,
            kind: self.kind,
            broadcast: self.broadcast,
            condition,
            behind_us: self.behind_us,
            schema: schema(&[side.clone(), side].concat()),
        })
        .unwrap()
    }

    fn is_pair(&self, left: &Row, right: &Row) -> bool {
        let between = right.time - left.time;
        let equal = !self.has_key || (left.key.is_some() && left.key == right.key);
        let holds = !self.has_condition || left.number != 3 * right.number;
        equal && holds && (self.bounds[0]..=self.bounds[1]).contains(&between)
    }

    /// The numbers of all pairs, and of the rows that are padded.
    fn nested_loop(&self, sides: [&[Row]; 2]) -> Vec<[Option<i64>; 2]> {
        let [left, right] = sides;
        let mut found = Vec::new();
        if self.kind.is_of_left() {
            let has_partner = |l: &&Row| right.iter().any(|r| self.is_pair(l, r));
            let wanted = self.kind == JoinKind::Semi;
            let alone = left.iter().filter(|l| has_partner(l) == wanted);
            found.extend(alone.map(|l| [Some(l.number), None]));
            found.sort();
            return found;
        }
        for l in left {
            let partners = right.iter().filter(|r| self.is_pair(l, r));
            let before = found.len();
            found.extend(partners.map(|r| [Some(l.number), Some(r.number)]));
            if found.len() == before && self.kind.keeps(0) {
                found.push([Some(l.number), None]);
            }
        }
        let alone = right
            .iter()
            .filter(|r| !left.iter().any(|l| self.is_pair(l, r)));
        if self.kind.keeps(1) {
            found.extend(alone.map(|r| [None, Some(r.number)]));
        }
        found.sort();
        found
    }
}

fn any_tried() -> impl Strategy<Value = Tried> {
    let kind = (0usize..6).prop_map(|kind| KINDS[kind]);
    let bounds = (-25i64..25, -25i64..25);
    let flags = (any::<bool>(), any::<bool>(), 0i64..8);
    (kind, bounds, flags).prop_map(|(kind, (one, other), flags)| Tried {
        kind,
        // Sometimes reversed: no pair can be in it.
        bounds: match one + other {
            sum if sum % 8 == 0 => [one, other],
            _ => [one.min(other), one.max(other)],
        },
        has_key: flags.0,
        has_condition: flags.1,
        behind_us: flags.2,
        broadcast: None,
    })
}

/// The next step: rows of a side, a watermark, a snapshot, a restart with a number of instances, or a
/// move of buckets between them.
#[derive(Debug, Clone, Copy)]
enum Act {
    Feed(usize, usize),
    Watermark,
    Snapshot,
    Restart(usize),
    Move(usize),
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0usize..2, 1usize..9).prop_map(|(side, count)| Act::Feed(side, count)),
        4 => Just(Act::Watermark),
        2 => Just(Act::Snapshot),
        1 => (1usize..4).prop_map(Act::Restart),
        1 => any::<usize>().prop_map(Act::Move),
    ]
}

fn process(join: &mut IntervalJoin, side: usize, chunk: Chunk, output: &mut Output) {
    join.process(side, chunk, output).unwrap();
    while join.rest(output).unwrap() == Progress::More {}
}

struct Run {
    tried: Tried,
    rows: [Vec<Row>; 2],
    next: [usize; 2],
    instances: Instances<IntervalJoin>,
    chunk_rows: usize,
    watermark: EventTime,
    found: Vec<[Option<i64>; 2]>,
}

impl Run {
    fn new(tried: Tried, rows: [Vec<Row>; 2], chunk_rows: usize) -> Run {
        Run {
            tried,
            rows,
            next: [0, 0],
            instances: Instances::one(chunk_rows, move || tried.join()),
            chunk_rows,
            watermark: EventTime::MIN,
            found: Vec::new(),
        }
    }

    /// The rows of a side that an instance gets: those whose keys have a bucket of its own; with a side that
    /// every instance has, all of that side, and any part of the other.
    fn of_instance(&self, side: usize, rows: &[Row], index: usize) -> Vec<Row> {
        if let Some(everywhere) = self.tried.broadcast {
            let count = self.instances.all.len();
            let is_mine =
                |number: usize| side == everywhere || (number + rows.len()) % count == index;
            let mine = rows.iter().enumerate();
            return mine
                .filter(|(number, _)| is_mine(*number))
                .map(|(_, row)| *row)
                .collect();
        }
        let all = chunk(rows);
        let keys = match self.tried.has_key {
            true => vec![all.batch.column(0).clone()],
            false => Vec::new(),
        };
        let mut hashes = Vec::new();
        hash_rows(&keys, rows.len(), &mut hashes).unwrap();
        let is_mine = |hash: u64| self.instances.is_of(hash, index);
        let mine = rows.iter().zip(hashes).filter(|(_, hash)| is_mine(*hash));
        mine.map(|(row, _)| *row).collect()
    }

    fn feed(&mut self, side: usize, count: usize) {
        let from = self.next[side];
        let to = (from + count).min(self.rows[side].len());
        self.next[side] = to;
        let rows = self.rows[side][from..to].to_vec();
        for index in 0..self.instances.all.len() {
            let mine = self.of_instance(side, &rows, index);
            let Instance {
                operator: join,
                output,
                ..
            } = &mut self.instances.all[index];
            process(join, side, chunk(&mine), output);
        }
        self.take();
    }

    /// Moves the watermark as far as the rows to come allow.
    fn watermark(&mut self) {
        let rest = [0, 1].map(|side| &self.rows[side][self.next[side]..]);
        let times = rest.into_iter().flatten().map(|row| row.time);
        let next = times.min().unwrap_or(200);
        let watermark = next - 1 + self.tried.behind_us;
        for instance in &mut self.instances.all {
            advance(&mut instance.operator, watermark, &mut instance.output);
        }
        // Rows that the watermark completes come before the watermark is passed on.
        self.take();
        self.watermark = self.watermark.max(watermark);
    }

    fn take(&mut self) {
        for instance in &mut self.instances.all {
            assert_eq!(instance.output.rows_late(), 0);
            let told = self
                .watermark
                .saturating_sub(instance.operator.facts().delay_us);
            for chunk in instance.output.take_chunks() {
                assert!(chunk.rows() <= self.chunk_rows && chunk.origin.is_none());
                let number = |column: usize, row: usize| {
                    if column >= chunk.batch.num_columns() {
                        return None;
                    }
                    let column = chunk.batch.column(column).as_primitive::<Int64Type>();
                    column.is_valid(row).then(|| column.value(row))
                };
                let rows = 0..chunk.rows();
                self.found
                    .extend(rows.map(|row| [number(2, row), number(6, row)]));
                let kind = self.tried.kind;
                let has_time = |side: usize| match kind.is_of_left() {
                    true => side == 0,
                    false => !kind.keeps(1 - side),
                };
                for side in (0..2).filter(|&side| has_time(side)) {
                    let times = chunk.batch.column(1 + 4 * side);
                    let times = times.as_primitive::<TimestampMicrosecondType>();
                    assert!(times.values().iter().all(|&time| time > told));
                }
            }
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Feed(side, count) => self.feed(side, count),
            Act::Watermark => self.watermark(),
            Act::Snapshot => self.instances.snapshot(),
            Act::Restart(count) => self.instances.restart(count, self.watermark),
            Act::Move(seed) => self.instances.move_buckets(seed),
        }
    }

    fn end(&mut self) -> Vec<[Option<i64>; 2]> {
        self.feed(0, usize::MAX / 2);
        self.feed(1, usize::MAX / 2);
        for instance in &mut self.instances.all {
            advance(&mut instance.operator, MAX_WATERMARK, &mut instance.output);
            let left = instance
                .operator
                .snapshot(&BucketSet::all(), Mark::default());
            assert_eq!(left.unwrap().len(), 0);
        }
        self.take();
        self.found.sort();
        std::mem::take(&mut self.found)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_kind_equals_a_nested_loop_through_watermarks_snapshots_and_restarts(
        tried in any_tried(),
        left in random_rows(40),
        right in random_rows(40),
        acts in prop::collection::vec(any_act(), 0..40),
        chunk_rows in 1usize..12,
    ) {
        let expected = tried.nested_loop([&left, &right]);
        let mut run = Run::new(tried, [left, right], chunk_rows);
        acts.into_iter().for_each(|act| run.act(act));
        prop_assert_eq!(run.end(), expected);
    }
}

fn tried(kind: JoinKind, bounds: [EventTime; 2]) -> Tried {
    Tried {
        kind,
        bounds,
        has_key: true,
        has_condition: false,
        behind_us: 0,
        broadcast: None,
    }
}

fn row(number: i64, time: EventTime) -> Row {
    Row {
        key: Some(0),
        time,
        number,
    }
}

#[test]
fn pairs_go_out_at_once_and_rows_without_partner_when_none_can_come() {
    let tried = tried(JoinKind::Left, [-10, 5]);
    let mut run = Run::new(tried, [vec![row(1, 20), row(2, 21)], vec![row(3, 25)]], 100);
    run.feed(0, 2);
    run.feed(1, 1);
    assert_eq!(
        std::mem::take(&mut run.found),
        [[Some(1), Some(3)], [Some(2), Some(3)]]
    );
    let mut join = tried.join();
    let mut output = Output::new(100);
    process(&mut join, 0, chunk(&[row(1, 20)]), &mut output);
    advance(&mut join, 24, &mut output);
    assert_eq!(output.take_chunks().len(), 0);
    output.ingest_ns = 77;
    advance(&mut join, 25, &mut output);
    let chunks = output.take_chunks();
    assert_eq!(
        (chunks.len(), chunks[0].rows(), chunks[0].ingest_ns),
        (1, 1, 77)
    );
    assert_eq!(join.sides[0].bytes(), join.sides[0].keys.bytes());
}

#[test]
fn rows_are_forgotten_when_no_partner_can_come() {
    let mut join = tried(JoinKind::Inner, [-10, 5]).join();
    let mut output = Output::new(100);
    let empty = [0, 1].map(|side: usize| join.sides[side].bytes());
    process(&mut join, 0, chunk(&[row(1, 20)]), &mut output);
    process(&mut join, 1, chunk(&[row(2, 40)]), &mut output);
    advance(&mut join, 25, &mut output);
    assert!(join.sides[0].keys.iter().next().is_none());
    advance(&mut join, 49, &mut output);
    assert!(join.sides[1].keys.iter().next().is_some());
    advance(&mut join, 50, &mut output);
    assert!(join.sides[1].keys.iter().next().is_none());
    assert!(empty.iter().all(|&bytes| bytes == 0));
    // A row whose partners have all come is not kept at all.
    let mut join = tried(JoinKind::Inner, [-20, -10]).join();
    advance(&mut join, 25, &mut output);
    process(&mut join, 0, chunk(&[row(1, 30)]), &mut output);
    assert!(join.sides[0].keys.iter().next().is_none());
}

#[test]
fn a_row_at_the_watermark_is_late() {
    let mut join = tried(JoinKind::Full, [-10, 5]).join();
    let mut output = Output::new(100);
    advance(&mut join, 25, &mut output);
    process(&mut join, 0, chunk(&[row(1, 25), row(2, 26)]), &mut output);
    assert_eq!(output.rows_late(), 1);
    advance(&mut join, MAX_WATERMARK, &mut output);
    assert_eq!(output.take_chunks()[0].rows(), 1);
}

#[test]
fn a_pair_for_which_the_condition_fails_is_refused_and_its_rows_are_not_padded() {
    let mut join = tried(JoinKind::Full, [-10, 5]).join();
    join.spec.condition = Some(Arc::new(Condition(1)));
    let mut output = Output::new(100);
    process(&mut join, 0, chunk(&[row(1, 20), row(2, 21)]), &mut output);
    process(&mut join, 1, chunk(&[row(3, 20), row(4, 21)]), &mut output);
    assert_eq!(output.rejected().len(), 2);
    assert!(output.rejected()[0].reason.contains("division by zero"));
    advance(&mut join, MAX_WATERMARK, &mut output);
    let rows = output.take_chunks().iter().map(Chunk::rows).sum::<usize>();
    assert_eq!(rows, 2);
}

#[test]
fn the_watermark_is_delayed_by_what_may_still_use_event_time() {
    let delay = |kind, bounds| tried(kind, bounds).join().facts().delay_us;
    assert_eq!(delay(JoinKind::Inner, [-10, 5]), 10);
    assert_eq!(delay(JoinKind::Inner, [3, 5]), 5);
    assert_eq!(delay(JoinKind::Left, [-10, 5]), 5);
    assert_eq!(delay(JoinKind::Right, [-10, 5]), 10);
    assert_eq!(delay(JoinKind::Full, [-10, 5]), 0);
}

#[test]
fn the_next_unit_of_work_knows_nothing_of_the_last() {
    let mut join = tried(JoinKind::Left, [-10, 5]).join();
    for _ in 0..2 {
        let mut output = Output::new(100);
        process(&mut join, 0, chunk(&[row(1, 20)]), &mut output);
        advance(&mut join, MAX_WATERMARK, &mut output);
        join.end_unit(&mut output).unwrap();
        assert_eq!(output.take_chunks()[0].rows(), 1);
    }
}

#[test]
fn a_snapshot_of_something_else_is_an_error() {
    let mut join = tried(JoinKind::Inner, [-10, 5]).join();
    process(&mut join, 0, chunk(&[row(1, 20)]), &mut Output::new(100));
    let snapshot = join.snapshot(&BucketSet::all(), Mark::default()).unwrap();
    let batch = &snapshot[0];
    for columns in 0..batch.num_columns() {
        let cut = batch.project(&(0..columns).collect::<Vec<_>>()).unwrap();
        join.restore(&cut).unwrap_err();
    }
}
