//! Tests of custom operators against a naive reference, whatever order rows come in, and through snapshots.

mod updates;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, TimestampMicrosecondArray, UInt64Array};
use arrow_schema::{DataType, TimeUnit};
use proptest::prelude::*;

use super::sample::{Done, Tallies, on_row, on_time};
use super::*;
use crate::chunk::{Origin, Partitions, Positions};
use crate::hash::hash_rows;
use crate::state::{BucketSet, Mark};
use crate::testing::instances::Instances;
use crate::testing::{advance, batch, schema, sorted_rows};
use crate::time::MAX_WATERMARK;

const US: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

#[derive(Debug, Clone, Copy)]
struct Row {
    key: Option<i64>,
    time: EventTime,
    number: i64,
    input: usize,
    /// The row's place in the input; odd ones are of another partition.
    position: i64,
}

fn random_rows(most: usize) -> impl Strategy<Value = Vec<Row>> {
    let row = (
        prop::option::weighted(0.9, 0i64..4),
        0i64..60,
        0i64..1000,
        0usize..2,
    );
    prop::collection::vec(row, 0..most).prop_map(|rows| {
        let rows = rows.into_iter().enumerate();
        let row = |(position, (key, time, number, input))| Row {
            key,
            time,
            number,
            input,
            position: position as i64,
        };
        rows.map(row).collect()
    })
}

/// Rows of one of two partitions; of none if a stateful operator has made them.
fn chunk(of: &[Row], partition: Option<u32>) -> Chunk {
    let times = TimestampMicrosecondArray::from_iter_values(of.iter().map(|row| row.time));
    let keys = of.iter().map(|row| row.key).collect::<Int64Array>();
    let numbers = Int64Array::from_iter_values(of.iter().map(|row| row.number));
    let mut chunk = Chunk::new(
        batch(vec![
            ("k", Arc::new(keys)),
            ("ts", Arc::new(times)),
            ("n", Arc::new(numbers)),
        ]),
        3,
    );
    let positions = of.iter().map(|row| row.position as u64);
    chunk.origin = partition.map(|partition| Origin {
        partitions: Partitions::One(partition),
        positions: Positions::List(UInt64Array::from_iter_values(positions)),
        watermarks: None,
    });
    chunk
}

#[derive(Debug, Clone, Copy)]
struct Tried {
    has_key: bool,
    has_origin: bool,
    behind_us: EventTime,
    /// The most rows and timers of a call, if the function is called for batches.
    events_max: Option<usize>,
}

impl Tried {
    fn operator(&self) -> Custom {
        let input = CustomInput {
            keys: if self.has_key { vec![0] } else { Vec::new() },
            time_column: Some(1),
            schema: schema(&[("k", DataType::Int64), ("ts", US), ("n", DataType::Int64)]),
        };
        let mut columns = vec![("ts", US), ("n", DataType::Int64), ("sum", DataType::Int64)];
        if self.has_key {
            columns.insert(0, ("k", DataType::Int64));
        }
        Custom::new(CustomSpec {
            name: "tally".to_string(),
            inputs: vec![input.clone(), input],
            behind_us: self.behind_us,
            schema: schema(&columns),
            emits_updates: false,
            factory: Arc::new(Tallies {
                number: 2,
                has_timers: true,
                events_max: self.events_max,
            }),
        })
        .unwrap()
    }

    /// The rows that come out, and how many are rejected.
    fn expected(&self, rows: &[Row]) -> (Vec<String>, usize) {
        let mut by_key = BTreeMap::<Option<i64>, Vec<Row>>::new();
        for row in rows {
            let key = row.key.filter(|_| self.has_key);
            by_key.entry(key).or_default().push(*row);
        }
        let (mut found, mut rejected) = (Vec::new(), 0);
        for (key, mut rows) in by_key {
            rows.sort_by_key(|row| {
                let place = match self.has_origin {
                    true => (row.position % 2, row.position),
                    false => (0, 0),
                };
                // Rows without a place are ordered by their values; a NULL comes first.
                (row.time, row.input, place, row.key, row.number)
            });
            let (mut sum, mut timers) = (None, std::collections::BTreeSet::new());
            let mut rows = rows.into_iter().peekable();
            loop {
                let next = rows.peek().map(|row| row.time);
                let timer = timers.first().copied();
                let (time, done): (EventTime, Done) = match (next, timer) {
                    (None, None) => break,
                    (next, Some(at)) if next.is_none_or(|time| at < time) => {
                        timers.remove(&at);
                        (at, on_time(&mut sum, at))
                    }
                    _ => {
                        let row = rows.next().unwrap();
                        (row.time, on_row(&mut sum, row.input, row.number, row.time))
                    }
                };
                timers.extend(done.timer);
                rejected += usize::from(done.is_rejected);
                for (number, sum) in done.rows {
                    found.push(self.text(key, time, number, sum));
                }
            }
        }
        found.sort();
        (found, rejected)
    }

    fn text(&self, key: Option<i64>, time: EventTime, number: i64, sum: i64) -> String {
        let time = TimestampMicrosecondArray::from(vec![time]);
        let time = arrow_cast::display::array_value_to_string(&time, 0).unwrap();
        let key = key.map_or("NULL".to_string(), |key| key.to_string());
        let key = match self.has_key {
            true => format!("k={key}, "),
            false => String::new(),
        };
        format!("{key}ts={time}, n={number}, sum={sum}")
    }
}

fn any_tried() -> impl Strategy<Value = Tried> {
    let events_max = prop::option::of(1usize..20);
    let all = (any::<bool>(), any::<bool>(), 0i64..6, events_max);
    all.prop_map(|(has_key, has_origin, behind_us, events_max)| Tried {
        has_key,
        has_origin,
        behind_us,
        events_max,
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
    instances: Instances<Custom>,
    watermark: EventTime,
    found: Vec<String>,
    rejected: usize,
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
            for (partition, input) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                let of = mine.iter();
                let of = of.filter(|row| row.position % 2 == partition && row.input == input);
                let of = of.copied().collect::<Vec<Row>>();
                let partition = self.tried.has_origin.then_some(partition as u32);
                let instance = &mut self.instances.all[index];
                let (operator, output) = (&mut instance.operator, &mut instance.output);
                operator
                    .process(input, chunk(&of, partition), output)
                    .unwrap();
            }
        }
    }

    fn advance(&mut self, watermark: EventTime) {
        for instance in &mut self.instances.all {
            let output = &mut instance.output;
            advance(&mut instance.operator, watermark, output);
            assert_eq!(output.rows_late(), 0);
            self.rejected += output.rejected().len();
            let chunks = output.take_chunks();
            let most = output.chunk_rows;
            assert!(chunks.iter().all(|chunk| chunk.rows() <= most));
            *output = Output::new(most);
            self.found.extend(sorted_rows(&chunks));
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
    fn rows_and_timers_equal_a_naive_reference_through_watermarks_snapshots_and_restarts(
        tried in any_tried(),
        rows in random_rows(60),
        acts in prop::collection::vec(any_act(), 0..40),
        chunk_rows in 1usize..12,
    ) {
        let (expected, rejected) = tried.expected(&rows);
        let mut run = Run {
            tried,
            rows,
            next: 0,
            instances: Instances::one(chunk_rows, move || tried.operator()),
            watermark: EventTime::MIN,
            found: Vec::new(),
            rejected: 0,
        };
        acts.into_iter().for_each(|act| run.act(act));
        run.feed(usize::MAX / 2);
        run.advance(MAX_WATERMARK);
        run.found.sort();
        prop_assert_eq!((run.found, run.rejected), (expected, rejected));
    }
}

const PLAIN: Tried = Tried {
    has_key: true,
    has_origin: true,
    behind_us: 0,
    events_max: None,
};

fn row(position: i64, time: EventTime, number: i64) -> Row {
    Row {
        key: Some(0),
        time,
        number,
        input: 0,
        position,
    }
}

#[test]
fn a_row_is_processed_when_the_watermark_is_at_it_and_later_ones_of_its_time_are_late() {
    let mut operator = PLAIN.operator();
    let mut output = Output::new(100);
    let of = [row(0, 10, 2), row(2, 11, 2)];
    operator
        .process(0, chunk(&of, Some(0)), &mut output)
        .unwrap();
    advance(&mut operator, 9, &mut output);
    assert_eq!(output.take_chunks().len(), 0);
    output.ingest_ns = 77;
    advance(&mut operator, 10, &mut output);
    let chunks = output.take_chunks();
    assert_eq!((chunks[0].rows(), chunks[0].ingest_ns), (1, 77));
    let of = [row(4, 10, 2)];
    operator
        .process(0, chunk(&of, Some(0)), &mut output)
        .unwrap();
    assert_eq!(output.rows_late(), 1);
    advance(&mut operator, MAX_WATERMARK, &mut output);
    assert_eq!(sorted_rows(&output.take_chunks()).len(), 1);
}

#[test]
fn a_key_that_has_nothing_left_is_forgotten_once_snapshots_know_it() {
    let mut operator = PLAIN.operator();
    let mut output = Output::new(100);
    // 7 forgets its key at once.
    let feed = |operator: &mut Custom, output: &mut Output, time| {
        let of = [row(time, time, 7)];
        operator.process(0, chunk(&of, Some(0)), output).unwrap();
        advance(operator, time, output);
    };
    feed(&mut operator, &mut output, 10);
    assert_eq!(operator.keys.iter().count(), 0);
    operator
        .snapshot(&BucketSet::all(), Mark::default())
        .unwrap();
    let since = operator.clock().end_interval();
    feed(&mut operator, &mut output, 20);
    assert_eq!(operator.keys.iter().count(), 1);
    let batches = operator.snapshot(&BucketSet::all(), since).unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
    let since = operator.clock().end_interval();
    assert!(
        operator
            .snapshot(&BucketSet::all(), since)
            .unwrap()
            .is_empty()
    );
    assert_eq!((operator.keys.iter().count(), operator.bytes), (0, 0));
}

#[test]
fn rows_as_they_come_are_processed_at_once_a_chunk_of_output_at_a_time() {
    let mut spec = PLAIN.operator().spec;
    spec.inputs
        .iter_mut()
        .for_each(|input| input.time_column = None);
    spec.schema = schema(&[
        ("k", DataType::Int64),
        ("n", DataType::Int64),
        ("sum", DataType::Int64),
    ]);
    spec.factory = Arc::new(Tallies {
        number: 2,
        has_timers: false,
        events_max: None,
    });
    let mut operator = Custom::new(spec).unwrap();
    let mut output = Output::new(4);
    let of = (0..10).map(|number| row(number, 100 - number, 1));
    let of = of.collect::<Vec<Row>>();
    operator
        .process(0, chunk(&of, Some(0)), &mut output)
        .unwrap();
    let mut calls = 1;
    while operator.rest(&mut output).unwrap() == Progress::More {
        calls += 1;
    }
    assert!(calls > 3, "{calls}");
    // Each row is emitted twice.
    let chunks = output.take_chunks();
    assert_eq!(chunks.iter().map(Chunk::rows).sum::<usize>(), 20);
    let mut sum = None;
    for number in 0..10 {
        on_row(&mut sum, 0, 1, number);
    }
    let last = sorted_rows(&chunks);
    assert!(last.contains(&format!("k=0, n=1, sum={}", sum.unwrap())));
}

/// Sets a timer at each timer, so much later.
#[derive(Debug)]
struct Endless(EventTime);

impl KeyedFactory for Endless {
    fn function(&self) -> Result<Function> {
        Ok(Function::Rows(Box::new(Endless(self.0))))
    }
}

impl KeyedFunction for Endless {
    fn event(&mut self, _: u32, event: Event<'_>, timers: &mut Timers<'_>) -> Reaction {
        match event {
            Event::Row { time, .. } => timers.set(time - 100),
            Event::Timer(at) => timers.set(at + self.0),
        };
        Reaction {
            rows: 0,
            keeps_state: false,
            failed: None,
        }
    }

    fn emitted(&mut self) -> Result<Emitted> {
        Ok(Emitted::default())
    }
}

impl KeyStates for Endless {
    fn save(&mut self, _: &[u32]) -> Result<Vec<ArrayRef>> {
        Ok(Vec::new())
    }

    fn load(&mut self, _: u32, _: &[ArrayRef], _: usize) -> Result<()> {
        Ok(())
    }

    fn forget(&mut self, _: u32) {}

    fn bytes(&self) -> usize {
        0
    }
}

#[test]
fn timers_that_never_end_end_the_query_with_a_hint() {
    // At the end, and at one event time before it.
    for (later, watermark) in [(1, MAX_WATERMARK), (0, MAX_WATERMARK - 1)] {
        let spec = CustomSpec {
            factory: Arc::new(Endless(later)),
            ..PLAIN.operator().spec
        };
        let mut operator = Custom::new(spec).unwrap();
        let mut output = Output::new(100);
        operator
            .process(0, chunk(&[row(0, 10, 1)], Some(0)), &mut output)
            .unwrap();
        let error = operator.advance(watermark, &mut output).unwrap_err();
        assert!(error.is_final);
        assert_eq!(error.place, "operator 'tally'");
        assert!(error.hint.contains("only while the key waits"), "{error}");
    }
}

#[test]
fn a_snapshot_of_something_else_is_an_error() {
    let mut operator = PLAIN.operator();
    let batch = chunk(&[row(0, 10, 2)], None).batch;
    let error = operator.restore(&batch).unwrap_err();
    assert!(
        error.to_string().contains("snapshot of a custom operator"),
        "{error}"
    );
}
