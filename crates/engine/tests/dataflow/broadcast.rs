//! Tests of broadcasts over random trees of relays, in one process and in several: every receiver sees
//! the same messages, in the same order.
//!
//! The "processes" are runtimes of this process, connected by the links that processes have.

use fastrand::Rng;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use slackwater_engine::balancer::BalancerPlan;
use slackwater_engine::chunk::{Chunk, Positions};
use slackwater_engine::deploy::{
    Catalog, Deployment, InputPlan, InstancePlan, LinkPlan, RelayPlan, RemoteEnds, SourcePart,
    SourceParts, StepKind, StepPlan,
};
use slackwater_engine::error::{Error, Result};
use slackwater_engine::expression::{Column, Expression};
use slackwater_engine::intake::{EventTimeSpec, IntakeSpec};
use slackwater_engine::link::shm::{Feed, Inbox, Outbox, Peer, Subscription};
use slackwater_engine::link::tcp::{Acceptor, Identity, Settings, Writer};
use slackwater_engine::link::{FrameReceiver, FrameSender, Waiter};
use slackwater_engine::operator::{Facts, Operator, Output, Progress, Stateful, Timer};
use slackwater_engine::protocol::{Attached, Command, EVENTS_MAX};
use slackwater_engine::runtime::{Runtime, RuntimeOptions};
use slackwater_engine::sink::Sink;
use slackwater_engine::source::{DeadLetters, Source, SourcePoll, SourceRows};
use slackwater_engine::state::KeyedState;
use slackwater_engine::time::{EventTime, MAX_WATERMARK, now_ns};

use crate::PATIENCE;
use crate::pipeline::{NoLetters, errors};

const US: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
const EPOCH: u64 = 1;

/// Small enough for the links to be full most of the time.
const LANE_BYTES: usize = 1 << 12;

/// What a receiver has seen, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// A row: its origin and its number there.
    Row(i64, i64),
    Watermark(EventTime),
    EndOfWork,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Link {
    SharedMemory,
    Tcp,
}

/// A broadcast from some origins to some receivers.
#[derive(Clone)]
struct Broadcast {
    origins: usize,
    receivers: usize,
    processes: usize,
    link: Link,
    /// The number of rows in each unit of work of an origin.
    units: Vec<i64>,
    chunk_rows: usize,
    segment_bytes: Option<usize>,
    /// Whether the sources stay silent after their rows.
    silent: bool,
    /// The number of a slow receiver.
    slow: Option<usize>,
    /// The number of a receiver that fails.
    fails: Option<usize>,
    seed: u64,
    seen: Vec<Arc<Mutex<Vec<Seen>>>>,
    passed: Arc<AtomicBool>,
}

impl Broadcast {
    fn new(origins: usize, receivers: usize, processes: usize, link: Link, seed: u64) -> Broadcast {
        Broadcast {
            origins,
            receivers,
            processes,
            link,
            units: vec![300, 0, 200],
            chunk_rows: 7,
            segment_bytes: None,
            silent: false,
            slow: None,
            fails: None,
            seed,
            seen: (0..receivers).map(|_| Arc::default()).collect(),
            passed: Arc::default(),
        }
    }

    /// Origins, then receivers. Each origin has a random tree of its own, in which a receiver's parent is
    /// the origin or one of the receivers before it.
    fn deployment(&self) -> Deployment {
        let mut random = Rng::with_seed(self.seed);
        let mut links = Vec::new();
        let mut relays = HashMap::<usize, Vec<usize>>::new();
        let mut routes = vec![Vec::new(); self.origins];
        let mut ports = vec![Vec::new(); self.receivers];
        for (origin, roots) in routes.iter_mut().enumerate() {
            let mut arrives_by = Vec::new();
            for (receiver, lanes) in ports.iter_mut().enumerate() {
                let parent = random.usize(..receiver + 1);
                let number = links.len();
                let from = match parent.checked_sub(1) {
                    None => {
                        roots.push(number);
                        origin
                    }
                    Some(parent) => {
                        let arrives: usize = arrives_by[parent];
                        relays.entry(arrives).or_default().push(number);
                        self.origins + parent
                    }
                };
                links.push(LinkPlan::new(from, self.origins + receiver));
                arrives_by.push(number);
                lanes.push(number);
            }
        }
        let instance = |name: &str, worker, index, instances, input, step| InstancePlan {
            name: format!("{name} {index}"),
            worker,
            movable: false,
            checkpointed: false,
            index,
            instances,
            input,
            steps: vec![step],
            roots: vec![0],
        };
        let origins = routes.into_iter().enumerate().map(|(index, links)| {
            let balancer = BalancerPlan::Broadcast {
                segment_bytes: self.segment_bytes,
            };
            let step = StepPlan {
                node: 0,
                kind: StepKind::Route { balancer, links },
                next: vec![],
            };
            let input = InputPlan::source(0);
            instance(
                "origin",
                index % self.processes,
                index,
                self.origins,
                input,
                step,
            )
        });
        let mut instances = origins.collect::<Vec<_>>();
        for (index, lanes) in ports.into_iter().enumerate() {
            // The node tells the catalog which receiver it is.
            let step = StepPlan {
                node: 1 + index,
                kind: StepKind::Operator,
                next: vec![],
            };
            let worker = random.usize(..self.processes);
            let input = InputPlan::Ports(vec![lanes]);
            instances.push(instance(
                "receiver",
                worker,
                index,
                self.receivers,
                input,
                step,
            ));
        }
        Deployment {
            instances,
            links,
            chunk_rows: self.chunk_rows,
            process_of: (0..self.processes).collect(),
            host_of: Vec::new(),
            relays: relays
                .into_iter()
                .map(|(link, links)| RelayPlan { link, links })
                .collect(),
        }
    }

    /// Runs the broadcast in runtimes of one worker.
    fn start(&self) -> (Vec<Runtime>, crate::Events, Vec<Acceptor>) {
        let (sender, events) = mpsc::sync_channel(EVENTS_MAX);
        let start = |_| Runtime::start(&RuntimeOptions::on(&[None]), sender.clone()).unwrap();
        let runtimes = (0..self.processes).map(start).collect::<Vec<Runtime>>();
        let deployment = self.deployment();
        let ends = (0..self.processes).map(|_| RemoteEnds::default());
        let mut ends = ends.collect::<Vec<RemoteEnds>>();
        let acceptors = match self.link {
            Link::SharedMemory => {
                shared_memory(&deployment, &runtimes, &mut ends);
                Vec::new()
            }
            Link::Tcp => tcp(&deployment, &runtimes, &mut ends),
        };
        for (process, (runtime, ends)) in runtimes.iter().zip(ends).enumerate() {
            runtime
                .deploy_part(&deployment, process, self, ends)
                .unwrap();
        }
        (runtimes, events, acceptors)
    }

    /// Runs the broadcast to its end; returns the errors of instances that failed.
    fn run(&self) -> Vec<Error> {
        let (_runtimes, events, _acceptors) = self.start();
        errors(&events, self.origins + self.receivers, PATIENCE)
    }

    fn seen(&self, receiver: usize) -> Vec<Seen> {
        self.seen[receiver].lock().unwrap().clone()
    }

    /// The rows of an origin that a receiver has seen, in order.
    fn rows(&self, receiver: usize, origin: i64) -> Vec<i64> {
        let seen = self.seen(receiver).into_iter();
        seen.filter_map(|seen| match seen {
            Seen::Row(row_origin, number) if row_origin == origin => Some(number),
            _ => None,
        })
        .collect()
    }
}

/// The ends of all links: feeds if a broadcast or relay leaves for several processes, else lanes.
fn shared_memory(deployment: &Deployment, runtimes: &[Runtime], ends: &mut [RemoteEnds]) {
    let peer = Peer::new("a process");
    let waker = |instance| runtimes[deployment.process(instance)].waiter(0).waker();
    let feeds = deployment.feeds();
    for links in &feeds {
        let feed = Feed::create(EPOCH, links.len(), LANE_BYTES).unwrap();
        let source = Subscription::open(feed.descriptor(), EPOCH, peer.clone()).unwrap();
        let from = deployment.links[links[0]].from;
        let mut readers = Vec::new();
        for (number, &link) in links.iter().enumerate() {
            let to = deployment.links[link].to;
            readers.push((waker(to), peer.clone()));
            let reader = source.reader(number, waker(from), waker(to));
            let receivers = &mut ends[deployment.process(to)].receivers;
            receivers.insert(link, FrameReceiver::Shm(reader));
        }
        let senders = &mut ends[deployment.process(from)].senders;
        senders.insert(links[0], FrameSender::Shm(feed.writer(readers)));
    }
    for (number, link) in deployment.remote_links() {
        if feeds.iter().any(|links| links.contains(&number)) {
            continue;
        }
        let inbox = Inbox::create(EPOCH, 1, LANE_BYTES).unwrap();
        let reader = inbox.reader(0, waker(link.from), waker(link.to), peer.clone());
        let outbox = Outbox::open(inbox.descriptor(), EPOCH, peer.clone()).unwrap();
        let writer = outbox.writer(0, waker(link.to));
        let senders = &mut ends[deployment.process(link.from)].senders;
        senders.insert(number, FrameSender::Shm(writer));
        let receivers = &mut ends[deployment.process(link.to)].receivers;
        receivers.insert(number, FrameReceiver::Shm(reader));
    }
}

fn tcp(deployment: &Deployment, runtimes: &[Runtime], ends: &mut [RemoteEnds]) -> Vec<Acceptor> {
    let identity = Identity {
        epoch: EPOCH,
        token: [0; 16],
    };
    // The window is full most of the time.
    let settings = Settings {
        window_bytes: 1 << 14,
        ..Settings::default()
    };
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let bind = |_| Acceptor::bind(any_port, identity, settings).unwrap();
    let acceptors = runtimes.iter().map(bind).collect::<Vec<Acceptor>>();
    for (number, link) in deployment.remote_links() {
        let [from, to] = [link.from, link.to].map(|end| deployment.process(end));
        let waiter = |process: usize| runtimes[process].waiter(0);
        let reader = acceptors[to].reader(number as u64, "the writer", waiter(to));
        let reader = FrameReceiver::Tcp(Box::new(reader));
        ends[to].receivers.insert(number, reader);
        let address = acceptors[to].local_address();
        let writer = Writer::connect(
            address,
            identity,
            number as u64,
            "the reader",
            waiter(from),
            settings,
        );
        let writer = FrameSender::Tcp(Box::new(writer));
        ends[from].senders.insert(number, writer);
    }
    acceptors
}

fn schema() -> SchemaRef {
    let fields = [
        ("origin", DataType::Int64),
        ("n", DataType::Int64),
        ("ts", US),
    ];
    let fields = fields.map(|(name, data_type)| Field::new(name, data_type, true));
    Arc::new(Schema::new(fields.to_vec()))
}

impl Catalog for Broadcast {
    fn source(&self, _: usize, part: SourcePart) -> Result<SourceParts> {
        let schema = schema();
        let columns = schema.fields().iter().enumerate().map(|(index, field)| {
            Arc::new(Column::new(index, field.data_type().clone())) as Arc<dyn Expression>
        });
        Ok(SourceParts {
            restored: Vec::new(),
            suspects: Vec::new(),
            recorder: None,
            notices: None,
            source: Box::new(Units {
                origin: part.instance as i64,
                left: self.units.iter().rev().copied().collect(),
                next: 0,
                in_unit: 0,
                chunk_rows: self.chunk_rows as i64,
                silent: self.silent,
                passed: self.passed.clone(),
            }),
            intake: IntakeSpec {
                columns: columns.collect(),
                schema: schema.clone(),
                event_time: Some(EventTimeSpec {
                    column: 2,
                    delay_us: 0,
                    marks_at_watermark: false,
                }),
                partition_base: part.instance as u32,
                idle_timeout_ns: None,
                unit_per_partition: true,
                forgets_ended: false,
                judged: Vec::new(),
            },
            dead_letters: Arc::new(NoLetters),
        })
    }

    fn operator(&self, node: usize) -> Result<Operator> {
        Ok(Operator::stateful(Notes {
            seen: self.seen[node - 1].clone(),
            slow: self.slow == Some(node - 1),
            fails: self.fails == Some(node - 1),
        }))
    }

    fn sink(&self, _: usize, _: usize, _: usize) -> Result<Box<dyn Sink>> {
        unreachable!("there is none")
    }

    fn dead_letters(&self, _: usize) -> Arc<dyn DeadLetters> {
        Arc::new(NoLetters)
    }
}

/// Units of work of consecutive numbers; number `n` has event time `n` µs.
struct Units {
    origin: i64,
    /// The number of rows in each unit to come, the next one last.
    left: Vec<i64>,
    next: i64,
    in_unit: i64,
    chunk_rows: i64,
    silent: bool,
    passed: Arc<AtomicBool>,
}

impl Source for Units {
    fn open(&mut self, _: &mut Waiter) -> Result<Vec<(u32, String)>> {
        Ok(vec![(0, "numbers".to_string())])
    }

    fn poll(&mut self) -> Result<SourcePoll> {
        let Some(&rows) = self.left.last() else {
            self.passed.store(true, Ordering::SeqCst);
            return Ok(if self.silent {
                SourcePoll::Pending
            } else {
                SourcePoll::End
            });
        };
        if self.in_unit == rows {
            self.left.pop();
            self.in_unit = 0;
            return Ok(SourcePoll::EndOfWork);
        }
        let count = self.chunk_rows.min(rows - self.in_unit);
        let numbers = (self.next..self.next + count).collect::<Vec<i64>>();
        let first = self.next as u64;
        self.next += count;
        self.in_unit += count;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![self.origin; count as usize])),
            Arc::new(Int64Array::from(numbers.clone())),
            Arc::new(TimestampMicrosecondArray::from(numbers)),
        ];
        Ok(SourcePoll::Rows(SourceRows {
            batch: RecordBatch::try_new(schema(), columns).unwrap(),
            partition: 0,
            positions: Positions::Run { first },
            ingest_ns: now_ns(),
            rejected: Vec::new(),
        }))
    }

    fn close(&mut self) {}
}

/// Records what it sees.
struct Notes {
    seen: Arc<Mutex<Vec<Seen>>>,
    slow: bool,
    fails: bool,
}

impl Stateful for Notes {
    fn facts(&self) -> Facts {
        Facts {
            placed_by: vec![None],
            is_replicated: false,
            first_input: None,
            delay_us: 0,
            shares_input: true,
        }
    }

    fn process(&mut self, _: usize, chunk: Chunk, _: &mut Output) -> Result<()> {
        if self.fails {
            return Err(Error::new("a receiver", "fails, as it was told"));
        }
        if self.slow {
            std::thread::sleep(Duration::from_millis(1));
        }
        let column = |at: usize| chunk.batch.column(at).as_primitive::<Int64Type>();
        let rows = column(0).values().iter().zip(column(1).values());
        let rows = rows.map(|(&origin, &number)| Seen::Row(origin, number));
        self.seen.lock().unwrap().extend(rows);
        Ok(())
    }

    fn rest(&mut self, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    fn advance(&mut self, watermark: EventTime, _: &mut Output) -> Result<Progress> {
        if watermark < MAX_WATERMARK {
            self.seen.lock().unwrap().push(Seen::Watermark(watermark));
        }
        Ok(Progress::Done)
    }

    fn timer(&mut self) -> Option<&mut dyn Timer> {
        None
    }

    fn end_unit(&mut self, _: &mut Output) -> Result<()> {
        self.seen.lock().unwrap().push(Seen::EndOfWork);
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn KeyedState> {
        None
    }

    fn bytes(&self) -> usize {
        0
    }
}

const LINKS: [Link; 2] = [Link::SharedMemory, Link::Tcp];

#[test]
fn every_receiver_sees_the_same_in_the_same_order() {
    let mut random = Rng::with_seed(7);
    for round in 0..24 {
        let link = LINKS[round % 2];
        let (receivers, processes) = (1 + random.usize(..12), 1 + random.usize(..4));
        let mut broadcast = Broadcast::new(1, receivers, processes, link, round as u64);
        broadcast.chunk_rows = [1, 7, 100][random.usize(..3)];
        broadcast.segment_bytes = [None, Some(64), Some(1000)][random.usize(..3)];
        broadcast.slow = (random.usize(..3) == 0).then(|| random.usize(..receivers));
        assert_eq!(broadcast.run(), []);
        assert_eq!(broadcast.rows(0, 0), (0..500).collect::<Vec<i64>>());
        let first = broadcast.seen(0);
        let ends = first.iter().filter(|&&seen| seen == Seen::EndOfWork);
        // One for each unit: the end of the stream, right after the last of them, ends none.
        assert_eq!(ends.count(), 3);
        assert!(first.contains(&Seen::Watermark(299)));
        for receiver in 1..receivers {
            assert!(
                broadcast.seen(receiver) == first,
                "receiver {receiver} of {receivers} in {processes} processes, {link:?}"
            );
        }
    }
}

#[test]
fn several_origins_keep_their_orders_and_units() {
    let mut random = Rng::with_seed(8);
    for round in 0..12 {
        let link = LINKS[round % 2];
        let (receivers, processes) = (1 + random.usize(..8), 1 + random.usize(..4));
        let broadcast = Broadcast::new(3, receivers, processes, link, 100 + round as u64);
        assert_eq!(broadcast.run(), []);
        for receiver in 0..receivers {
            for origin in 0..3 {
                let rows = broadcast.rows(receiver, origin);
                assert_eq!(rows, (0..500).collect::<Vec<i64>>(), "origin {origin}");
            }
            // No row of a unit comes before the end of the previous unit.
            let mut unit = 0;
            for seen in broadcast.seen(receiver) {
                match seen {
                    Seen::EndOfWork => unit += 1,
                    Seen::Row(_, number) => assert_eq!(unit, if number < 300 { 0 } else { 2 }),
                    Seen::Watermark(_) => {}
                }
            }
        }
    }
}

/// Every receiver forwards before it has processed what it has, but takes no more than its links hold.
#[test]
fn a_slow_receiver_holds_the_origin_back() {
    for link in LINKS {
        let mut broadcast = Broadcast::new(1, 6, 3, link, 3);
        broadcast.units = vec![20_000];
        broadcast.chunk_rows = 100;
        broadcast.slow = Some(5);
        let (runtimes, _events, _acceptors) = broadcast.start();
        // A chunk is about 2.5 kB. At a millisecond each, the slow receiver has some 50 of the 200.
        std::thread::sleep(Duration::from_millis(50));
        assert!(
            !broadcast.passed.load(Ordering::SeqCst),
            "{link:?}: the source is through though a receiver isn't"
        );
        drop(runtimes);
    }
}

#[test]
fn a_stop_in_the_middle_reaches_every_receiver() {
    for link in LINKS {
        let mut broadcast = Broadcast::new(2, 7, 3, link, 5);
        broadcast.units = vec![500];
        broadcast.silent = true;
        let (runtimes, events, _acceptors) = broadcast.start();
        // A unit ends after the last row of its slowest origin, so only its end says that it is complete.
        crate::wait_until("the unit's end at every receiver", || {
            (0..7).all(|receiver| broadcast.seen(receiver).contains(&Seen::EndOfWork))
        });
        for runtime in &runtimes {
            runtime.tell(Command::Stop, Attached::Nothing);
        }
        assert!(errors(&events, 9, PATIENCE).is_empty());
        // The unit had ended; the stop closed nothing.
        for receiver in 0..7 {
            assert_eq!(broadcast.rows(receiver, 1).len(), 500, "{link:?}");
            let seen = broadcast.seen(receiver);
            let ends = seen.iter().filter(|&&seen| seen == Seen::EndOfWork);
            assert_eq!(ends.count(), 1, "{link:?}");
        }
    }
}

/// Receivers after a relay that has failed end, and don't wait for messages that can't come.
#[test]
fn receivers_behind_a_relay_that_fails_end_too() {
    for link in LINKS {
        for receivers in [2, 5] {
            let mut broadcast = Broadcast::new(1, receivers, 2, link, 11);
            broadcast.fails = Some(0);
            let errors = broadcast.run();
            let told = errors.iter().filter(|error| !error.consequence);
            let reasons = told.map(|error| error.reason.as_str()).collect::<Vec<_>>();
            assert_eq!(reasons, ["fails, as it was told"], "{link:?}");
        }
    }
}
