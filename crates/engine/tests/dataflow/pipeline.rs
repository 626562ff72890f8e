//! The pipeline of these tests: numbers 0, 1, 2, … by partition → keyed by `n % 7` → tumbling windows of
//! 10 µs → count and sum per key and window → a sink that records its rows.
//!
//! Number `n` has event time `n` µs; the partitions are interleaved, so that each is in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use slackwater_engine::accumulator::AggregateFunction;
use slackwater_engine::balancer::BalancerPlan;
use slackwater_engine::chunk::{Chunk, Positions};
use slackwater_engine::counters::InstanceCounters;
use slackwater_engine::deploy::{
    Catalog, Deployment, InputPlan, InstancePlan, LinkPlan, SourceParts, StepKind, StepPlan,
};
use slackwater_engine::error::{Error, Result};
use slackwater_engine::expression::{Column, Expression};
use slackwater_engine::intake::{EventTimeSpec, IntakeSpec};
use slackwater_engine::link::{Waiter, Waker};
use slackwater_engine::operator::aggregate::{
    Aggregate, AggregateCall, AggregateSpec, Emit, WindowKey,
};
use slackwater_engine::operator::window::{AssignWindows, Windows};
use slackwater_engine::operator::{Facts, Operator, Output, Progress, Stateful, Timer};
use slackwater_engine::protocol::{Attached, WorkerEvent};
use slackwater_engine::runtime::{Deployed, Runtime};
use slackwater_engine::sink::Sink;
use slackwater_engine::source::{DeadLetters, Rejected, Source, SourcePoll, SourceRows};
use slackwater_engine::state::KeyedState;
use slackwater_engine::time::{EventTime, now_ns};

const KEYS: i64 = 7;
const WINDOW_US: i64 = 10;
/// The number of source partitions; instances read several each.
const PARTITIONS: i64 = 4;
const US: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// What a source does after its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    End,
    Silence,
}

/// The numbers below `rows`.
#[derive(Debug, Clone, Copy)]
pub struct Numbers {
    pub rows: i64,
    pub chunk_rows: usize,
    pub after: After,
}

/// One deployment, and what a test wants to observe of it.
pub struct Pipeline {
    pub workers: usize,
    /// The number of instances of the source and of the aggregation.
    pub instances: usize,
    pub numbers: Numbers,
    /// Whether rows go from the source to the sink as they are.
    pub through: bool,
    /// Whether the aggregation panics.
    pub panics: bool,
    pub gate: Arc<Gate>,
    pub written: Arc<Mutex<Written>>,
    pub open_sources: Arc<AtomicUsize>,
}

/// What the sink has seen.
#[derive(Default)]
pub struct Written {
    /// Window, key, count and sum; or the rows that came through.
    pub rows: Vec<Vec<i64>>,
    /// Each `finish`, and whether it was complete.
    pub finished: Vec<bool>,
    /// Threads of the sources and of the sink.
    pub threads: BTreeSet<i32>,
}

impl Written {
    pub fn sorted(&self) -> Vec<Vec<i64>> {
        let mut rows = self.rows.clone();
        rows.sort();
        rows
    }
}

/// Makes the sink refuse chunks while the gate is closed.
#[derive(Default)]
pub struct Gate {
    closed: Mutex<bool>,
    waker: Mutex<Option<Waker>>,
}

impl Gate {
    pub fn close(&self) {
        *self.closed.lock().unwrap() = true;
    }
    pub fn open(&self) {
        *self.closed.lock().unwrap() = false;
        if let Some(waker) = self.waker.lock().unwrap().as_ref() {
            waker.wake();
        }
    }
}

/// The windows of the given numbers: start, key, count, sum; sorted.
pub fn naive(numbers: std::ops::Range<i64>) -> Vec<Vec<i64>> {
    let mut groups = BTreeMap::<(i64, i64), (i64, i64)>::new();
    for number in numbers {
        let window = number - number % WINDOW_US;
        let group = groups.entry((window, number % KEYS)).or_default();
        *group = (group.0 + 1, group.1 + number);
    }
    let rows = groups.into_iter();
    rows.map(|((window, key), (count, sum))| vec![window, key, count, sum])
        .collect()
}

/// What workers report, with the attachments.
pub type Events = mpsc::Receiver<(WorkerEvent, Attached)>;

/// Waits until `instances` instances have ended; returns the errors of those that failed.
pub fn errors(events: &Events, instances: usize, patience: Duration) -> Vec<Error> {
    let deadline = Instant::now() + patience;
    let (mut left, mut failed) = (instances, Vec::new());
    while left > 0 {
        let wait = deadline.saturating_duration_since(Instant::now());
        match events
            .recv_timeout(wait)
            .expect("all instances end in time")
            .0
        {
            WorkerEvent::Ended { .. } => left -= 1,
            WorkerEvent::Failed { error, .. } => {
                failed.push(error);
                left -= 1;
            }
            _ => {}
        }
    }
    failed
}

fn schema(fields: &[(&str, DataType)]) -> SchemaRef {
    let fields = fields
        .iter()
        .map(|(name, data_type)| Field::new(*name, data_type.clone(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn input() -> SchemaRef {
    schema(&[("key", DataType::Int64), ("n", DataType::Int64), ("ts", US)])
}

fn windowed() -> SchemaRef {
    let fields = [
        ("key", DataType::Int64),
        ("n", DataType::Int64),
        ("ts", US),
        ("ws", US),
        ("we", US),
    ];
    schema(&fields)
}

impl Pipeline {
    pub fn new(workers: usize, instances: usize) -> Pipeline {
        Pipeline {
            workers,
            instances,
            numbers: Numbers {
                rows: 0,
                chunk_rows: 10,
                after: After::End,
            },
            through: false,
            panics: false,
            gate: Arc::default(),
            written: Arc::default(),
            open_sources: Arc::default(),
        }
    }

    pub fn start(&self, runtime: &Runtime) -> Vec<Arc<InstanceCounters>> {
        self.deploy(runtime).counters
    }

    pub fn deploy(&self, runtime: &Runtime) -> Deployed {
        runtime.deploy(&self.plan(), self).unwrap()
    }

    /// The numbers of the instances that may move.
    pub fn movable(&self) -> Vec<usize> {
        let plan = self.plan();
        let instances = plan.instances.iter().enumerate();
        let movable = instances.filter(|(_, instance)| instance.movable);
        movable.map(|(number, _)| number).collect()
    }

    pub fn instance_count(&self) -> usize {
        self.plan().instances.len()
    }

    pub fn sources_closed(&self) -> bool {
        self.open_sources.load(Ordering::SeqCst) == 0
    }

    /// Sources first (with the windows), then the aggregations, one sink on the last worker.
    fn plan(&self) -> Deployment {
        let sources = self.instances;
        let aggregates = if self.through { 0 } else { self.instances };
        let sink = sources + aggregates;
        let mut links = Vec::new();
        let mut link = |from: usize, to: usize| {
            links.push(LinkPlan::new(from, to));
            links.len() - 1
        };
        let targets = if self.through {
            sink..sink + 1
        } else {
            sources..sink
        };
        let shuffle = (0..sources)
            .map(|from| targets.clone().map(|to| link(from, to)).collect::<Vec<_>>())
            .collect::<Vec<_>>();
        let gather = (sources..sink)
            .map(|from| link(from, sink))
            .collect::<Vec<_>>();
        let into = |target: usize| {
            shuffle
                .iter()
                .map(|links| links[target])
                .collect::<Vec<_>>()
        };
        let route = |links: &[usize], balancer| StepPlan {
            node: 9,
            kind: StepKind::Route {
                balancer,
                links: links.to_vec(),
            },
            next: vec![],
        };
        let operator = |node| StepPlan {
            node,
            kind: StepKind::Operator,
            next: vec![1],
        };
        let mut instances = Vec::new();
        let mut instance = |name: &str, index, parallelism, worker, input, steps| {
            instances.push(InstancePlan {
                checkpointed: false,
                movable: name == "aggregate",
                name: format!("{name} [{}/{parallelism}]", index + 1),
                worker,
                index,
                instances: parallelism,
                input,
                steps,
                roots: vec![0],
            });
        };
        for (index, links) in shuffle.iter().enumerate() {
            let keyed = BalancerPlan::Keyed {
                columns: vec![0],
                keep_origin: true,
                to: 2,
            };
            let input = InputPlan::source(0);
            let steps = vec![operator(1), route(links, keyed)];
            instance("source", index, sources, index % self.workers, input, steps);
        }
        for index in 0..aggregates {
            let steps = vec![
                operator(2),
                route(&gather[index..=index], BalancerPlan::PointToPoint),
            ];
            let worker = (index + 1) % self.workers;
            instance(
                "aggregate",
                index,
                aggregates,
                worker,
                InputPlan::Ports(vec![into(index)]),
                steps,
            );
        }
        let lanes = if self.through {
            into(0)
        } else {
            gather.clone()
        };
        let step = StepPlan {
            node: 3,
            kind: StepKind::Sink {
                latency_target_ns: None,
                leaves_out: Vec::new(),
            },
            next: vec![],
        };
        instance(
            "sink",
            0,
            1,
            self.workers - 1,
            InputPlan::Ports(vec![lanes]),
            vec![step],
        );
        Deployment {
            instances,
            links,
            chunk_rows: self.numbers.chunk_rows,
            ..Deployment::default()
        }
    }
}

impl Catalog for Pipeline {
    fn source(&self, _: usize, part: slackwater_engine::deploy::SourcePart) -> Result<SourceParts> {
        let schema = input();
        let columns = schema.fields().iter().enumerate().map(|(index, field)| {
            Arc::new(Column::new(index, field.data_type().clone())) as Arc<dyn Expression>
        });
        self.open_sources.fetch_add(1, Ordering::SeqCst);
        let mine = (0..PARTITIONS).skip(part.instance).step_by(part.instances);
        Ok(SourceParts {
            restored: Vec::new(),
            suspects: Vec::new(),
            recorder: None,
            notices: None,
            source: Box::new(NumberSource {
                numbers: self.numbers,
                partitions: mine.map(|p| (p, p)).collect(),
                turn: 0,
                written: self.written.clone(),
                open_sources: self.open_sources.clone(),
            }),
            intake: IntakeSpec {
                columns: columns.collect(),
                schema: schema.clone(),
                event_time: Some(EventTimeSpec {
                    column: 2,
                    delay_us: 0,
                    marks_at_watermark: false,
                }),
                partition_base: 0,
                idle_timeout_ns: None,
                unit_per_partition: false,
                forgets_ended: false,
                judged: Vec::new(),
            },
            dead_letters: Arc::new(NoLetters),
        })
    }

    fn operator(&self, node: usize) -> Result<Operator> {
        let windows = Windows::new(WINDOW_US, WINDOW_US, TimeUnit::Microsecond).unwrap();
        if node == 1 {
            let assign = AssignWindows::new(2, windows, windowed());
            return Ok(Operator::stateless(assign));
        }
        if self.panics {
            return Ok(Operator::stateful(Panics));
        }
        let sum = AggregateFunction::Sum {
            to: DataType::Int64,
        };
        let calls = [(AggregateFunction::Count, vec![]), (sum, vec![1])];
        let call = |(function, arguments)| AggregateCall {
            function,
            arguments,
            filter: None,
        };
        let spec = AggregateSpec {
            window: Some(WindowKey {
                column: 4,
                is_start: false,
                windows,
            }),
            keys: vec![0],
            calls: calls.into_iter().map(call).collect(),
            time_column: None,
            emit: Emit::Changes,
            refires: None,
            takes_back: false,
            starts_empty: false,
            emits_before: false,
            retention_us: None,
            schema: schema(&[
                ("ws", US),
                ("we", US),
                ("key", DataType::Int64),
                ("count", DataType::Int64),
                ("sum", DataType::Int64),
            ]),
        };
        Ok(Operator::stateful(Aggregate::new(spec, &windowed())?))
    }

    fn sink(&self, _node: usize, _instance: usize, _instances: usize) -> Result<Box<dyn Sink>> {
        Ok(Box::new(Memory {
            gate: self.gate.clone(),
            written: self.written.clone(),
        }))
    }

    fn dead_letters(&self, _node: usize) -> Arc<dyn DeadLetters> {
        Arc::new(NoLetters)
    }
}

/// Dead letters that expect no rejected row.
pub struct NoLetters;

impl DeadLetters for NoLetters {
    fn name_partition(&self, _: u32, _: &str) {}
    fn reject(&self, rejected: &Rejected) -> Result<()> {
        panic!("no row of these tests is bad: {rejected:?}")
    }
}

/// The numbers of some partitions, a chunk of each in turn.
struct NumberSource {
    numbers: Numbers,
    /// The partitions, with the next number of each.
    partitions: Vec<(i64, i64)>,
    turn: usize,
    written: Arc<Mutex<Written>>,
    pub open_sources: Arc<AtomicUsize>,
}

impl Source for NumberSource {
    fn open(&mut self, _: &mut Waiter) -> Result<Vec<(u32, String)>> {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.written.lock().unwrap().threads.insert(thread);
        let names = self.partitions.iter();
        Ok(names
            .map(|(partition, _)| (*partition as u32, format!("numbers {partition}")))
            .collect())
    }

    fn poll(&mut self) -> Result<SourcePoll> {
        for _ in 0..self.partitions.len() {
            self.turn += 1;
            let turn = self.turn % self.partitions.len();
            let (partition, next) = &mut self.partitions[turn];
            let numbers = (*next..self.numbers.rows).step_by(PARTITIONS as usize);
            let numbers = numbers.take(self.numbers.chunk_rows).collect::<Vec<i64>>();
            let Some(last) = numbers.last() else { continue };
            let first = *next as u64;
            *next = last + PARTITIONS;
            let keys = numbers.iter().map(|number| number % KEYS);
            let columns: Vec<ArrayRef> = vec![
                Arc::new(Int64Array::from_iter_values(keys)),
                Arc::new(Int64Array::from(numbers.clone())),
                Arc::new(TimestampMicrosecondArray::from(numbers)),
            ];
            return Ok(SourcePoll::Rows(SourceRows {
                batch: RecordBatch::try_new(input(), columns).unwrap(),
                partition: *partition as u32,
                positions: Positions::Run { first },
                ingest_ns: now_ns(),
                rejected: Vec::new(),
            }));
        }
        Ok(match self.numbers.after {
            After::End => SourcePoll::End,
            After::Silence => SourcePoll::Pending,
        })
    }

    fn close(&mut self) {
        self.open_sources.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Panics;

impl Stateful for Panics {
    fn facts(&self) -> Facts {
        Facts {
            placed_by: vec![None],
            is_replicated: false,
            first_input: None,
            delay_us: 0,
            shares_input: true,
        }
    }

    fn process(&mut self, _: usize, _: Chunk, _: &mut Output) -> Result<()> {
        panic!("seven is not my number")
    }

    fn rest(&mut self, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    fn advance(&mut self, _watermark: EventTime, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    fn timer(&mut self) -> Option<&mut dyn Timer> {
        None
    }

    fn end_unit(&mut self, _output: &mut Output) -> Result<()> {
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn KeyedState> {
        None
    }

    fn bytes(&self) -> usize {
        0
    }
}

struct Memory {
    gate: Arc<Gate>,
    written: Arc<Mutex<Written>>,
}

impl Sink for Memory {
    fn open(&mut self, waiter: &mut Waiter) -> Result<()> {
        *self.gate.waker.lock().unwrap() = Some(waiter.waker());
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.written.lock().unwrap().threads.insert(thread);
        Ok(())
    }

    fn ready(&mut self) -> Result<bool> {
        Ok(!*self.gate.closed.lock().unwrap())
    }

    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        let columns = chunk
            .batch
            .columns()
            .iter()
            .map(|column| match column.data_type() {
                DataType::Int64 => column.as_primitive::<Int64Type>().values().to_vec(),
                _ => column
                    .as_primitive::<TimestampMicrosecondType>()
                    .values()
                    .to_vec(),
            });
        let columns = columns.collect::<Vec<_>>();
        let mut written = self.written.lock().unwrap();
        for row in 0..chunk.rows() {
            let mut cells = columns
                .iter()
                .map(|column| column[row])
                .collect::<Vec<i64>>();
            if chunk.origin.is_none() {
                assert_eq!(cells[1] - cells[0], WINDOW_US);
                cells.remove(1);
            }
            written.rows.push(cells);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, complete: bool) -> Result<()> {
        self.written.lock().unwrap().finished.push(complete);
        Ok(())
    }
}
