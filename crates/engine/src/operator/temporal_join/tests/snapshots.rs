//! Tests of temporal joins that resume from snapshots, in any number of instances.

use super::*;
use crate::checkpoint::{Chain, restore};
use crate::hash::BUCKETS;
use crate::state::{BucketSet, expire};

/// The next step: rows of the stream or the table, a watermark, a snapshot, or a restart from the
/// snapshots with a number of instances.
#[derive(Debug, Clone, Copy)]
enum Act {
    Stream(usize),
    Table(usize),
    Watermark(usize),
    Snapshot,
    Restart(usize),
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (1usize..9).prop_map(Act::Stream),
        3 => (1usize..9).prop_map(Act::Table),
        3 => (0usize..3).prop_map(Act::Watermark),
        2 => Just(Act::Snapshot),
        1 => (1usize..4).prop_map(Act::Restart),
    ]
}

/// An instance, with its stored snapshots.
struct Instance {
    join: TemporalJoin,
    output: Output,
    watermark: EventTime,
    since: Mark,
    stored: Vec<RecordBatch>,
}

impl Instance {
    fn new(spec: (bool, bool)) -> Instance {
        Instance {
            join: join(spec.0, spec.1),
            output: Output::new(7),
            watermark: EventTime::MIN,
            since: Mark::default(),
            stored: Vec::new(),
        }
    }

    fn snapshot(&mut self) {
        let snapshot = self.join.snapshot(&BucketSet::all(), self.since).unwrap();
        self.stored.extend(snapshot);
        self.since = self.join.clock().end_interval();
    }
}

struct Run {
    spec: (bool, bool),
    has_origin: bool,
    stream: Vec<Row>,
    table: Vec<Row>,
    streamed: usize,
    versioned: usize,
    instances: Vec<Instance>,
    found: Vec<(i64, Option<i64>)>,
}

impl Run {
    fn chunk(&self, rows: &[Row]) -> Chunk {
        let mut chunk = chunk(rows);
        if !self.has_origin {
            chunk.origin = None;
        }
        chunk
    }

    /// Feeds rows of the stream to the instances in turn, those of the table to all.
    fn feed(&mut self, input: usize, count: usize) {
        let (rows, next) = match input {
            STREAM => (&self.stream, &mut self.streamed),
            _ => (&self.table, &mut self.versioned),
        };
        let to = (*next + count).min(rows.len());
        let rows = rows[*next..to].to_vec();
        *next = to;
        let instances = self.instances.len();
        for index in 0..instances {
            let is_mine = |row: &&Row| input == TABLE || row.number as usize % instances == index;
            // One by one, as positions within a chunk have no gaps here.
            for row in rows.iter().filter(is_mine) {
                let chunk = self.chunk(&[*row]);
                let Instance { join, output, .. } = &mut self.instances[index];
                join.process(input, chunk, output).unwrap();
            }
        }
    }

    /// Moves the watermark of an instance as far as the rows to come allow. A row of the stream may come
    /// nearly a millisecond after it.
    fn watermark(&mut self, index: usize) {
        let instances = self.instances.len();
        let index = index % instances;
        let rest = self.stream[self.streamed..].iter();
        let mine = rest.filter(|row| row.number as usize % instances == index);
        let rows = mine.map(|row| row.time + 900);
        let versions = self.table[self.versioned..].iter().map(|row| row.time);
        let earliest = rows.chain(versions).min().unwrap_or(60_000);
        let instance = &mut self.instances[index];
        // The watermark moves, or is not sent.
        if earliest > instance.watermark {
            instance.watermark = earliest;
            advance(&mut instance.join, earliest, &mut instance.output);
        }
        self.found.extend(numbers(&instance.output.take_chunks()));
    }

    fn restart(&mut self, count: usize) {
        for instance in &mut self.instances {
            instance.snapshot();
        }
        let new = (0..count).map(|index| {
            let mut new = Instance::new(self.spec);
            // The first bucket has the rows without a key.
            let own = BucketSet::of(|bucket| bucket * count / BUCKETS == index);
            let chains = self.instances.iter().map(|old| Chain {
                // The last increment may have been empty.
                snapshots: vec![old.stored.clone(), Vec::new()],
                watermark: Some(old.watermark),
                is_shared: true,
            });
            let make = || Ok(Box::new(Instance::new(self.spec).join) as Box<dyn Stateful>);
            let least = restore(&mut new.join, &make, chains.collect(), &own);
            new.watermark = least.unwrap().unwrap();
            new
        });
        self.instances = new.collect();
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Stream(count) => self.feed(STREAM, count),
            Act::Table(count) => self.feed(TABLE, count),
            Act::Watermark(index) => self.watermark(index),
            Act::Snapshot => self.instances.iter_mut().for_each(Instance::snapshot),
            Act::Restart(count) => self.restart(count),
        }
    }

    fn end(&mut self) {
        self.feed(STREAM, usize::MAX / 2);
        self.feed(TABLE, usize::MAX / 2);
        for instance in &mut self.instances {
            advance(&mut instance.join, MAX_WATERMARK, &mut instance.output);
            assert_eq!(instance.output.rows_late(), 0);
            self.found.extend(numbers(&instance.output.take_chunks()));
        }
        self.found.sort();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn instances_go_on_from_snapshots_of_others(
        stream in any_rows(60),
        table in any_rows(40),
        spec in any::<(bool, bool)>(),
        has_origin: bool,
        instances in 1usize..4,
        acts in prop::collection::vec(any_act(), 0..60),
    ) {
        let mut run = Run {
            spec,
            has_origin,
            stream: stream.clone(),
            table: table.clone(),
            streamed: 0,
            versioned: 0,
            instances: (0..instances).map(|_| Instance::new(spec)).collect(),
            found: Vec::new(),
        };
        for act in acts {
            run.act(act);
        }
        run.end();
        prop_assert_eq!(run.found, naive(&stream, &table, spec.0, spec.1));
    }
}

/// A chunk's data other than its rows.
fn beside(chunk: &Chunk) -> String {
    let rows = (0..chunk.rows()).map(|row| {
        let origin = chunk.origin.as_ref().map(|origin| {
            let watermark = origin.watermarks.as_ref().map(|w| w.value(row));
            (
                origin.partitions.at(row),
                origin.positions.at(row),
                watermark,
            )
        });
        (origin, chunk.kinds.as_ref().map(|kinds| kinds.value(row)))
    });
    format!("{:?}", rows.collect::<Vec<_>>())
}

#[test]
fn origins_and_kinds_outlive_a_restart() {
    let rows = |first: i64| {
        let row = |number: i64| Row {
            key: (number != first).then_some(number % 3),
            time: 10 + number,
            number,
        };
        (first..first + 5).map(row).collect::<Vec<Row>>()
    };
    let plain = chunk(&rows(0));
    let mut listed = chunk(&rows(10));
    if let Some(origin) = &mut listed.origin {
        origin.partitions = Partitions::One(4);
        origin.positions = Positions::List(vec![2, 3, 5, 7, 11].into());
        origin.watermarks = Some(vec![0, 1, 2, 3, 4].into());
    }
    let mut made = chunk(&rows(20));
    made.origin = None;
    made.kinds = Some(vec![0, 1, 2, 1, 0].into());
    let chunks = [plain, listed, made];

    let mut one = join(true, false);
    let mut output = Output::new(100);
    for chunk in &chunks {
        one.process(STREAM, chunk.clone(), &mut output).unwrap();
    }
    assert!(one.bytes() > 0);
    let mut other = join(true, false);
    for batch in one.snapshot(&BucketSet::all(), Mark::default()).unwrap() {
        other.restore(&batch).unwrap();
    }
    expire(&mut other, 5).unwrap();
    advance(&mut other, MAX_WATERMARK, &mut output);
    let found = output.take_chunks();
    assert_eq!(found.len(), chunks.len());
    for (found, expected) in found.iter().zip(&chunks) {
        assert_eq!(beside(found), beside(expected));
        let own = found.batch.columns()[..3].iter();
        assert!(own.eq(expected.batch.columns()));
    }
}

#[test]
fn what_is_no_snapshot_of_a_temporal_join_is_refused() {
    let mut one = join(false, false);
    let mut output = Output::new(100);
    let row = Row {
        key: Some(1),
        time: 5,
        number: 1,
    };
    one.process(STREAM, chunk(&[row]), &mut output).unwrap();
    one.process(TABLE, chunk(&[row]), &mut output).unwrap();
    let snapshot = one.snapshot(&BucketSet::all(), Mark::default()).unwrap();
    assert_eq!(snapshot.len(), 2);
    for batch in &snapshot {
        for column in 0..batch.num_columns() {
            let all = (0..batch.num_columns()).collect::<Vec<usize>>();
            let without = [&all[..column], &all[column + 1..]].concat();
            let without = batch.project(&without).unwrap();
            assert!(join(false, false).restore(&without).is_err(), "{column}");
        }
    }
    let strange = batch(vec![(
        "side",
        Arc::new(Int64Array::from(vec![7])) as ArrayRef,
    )]);
    assert!(one.restore(&strange).is_err());
}
