//! The toy query: sources that count, sums by key, a transactional sink.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field, Schema};

use super::data::{Data, Sums};
use super::ledger::{Entry, Ledger, Transaction};
use super::random::mix;
use crate::coordinator::Report;
use crate::manifest::Partition;

/// The number of buckets that keys fall into.
pub const BUCKETS: u32 = 4_096;

pub fn bucket(key: u64) -> u32 {
    (mix(key) >> 52) as u32
}

/// A barrier in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Barrier {
    pub number: u64,
    pub since: Option<u64>,
    pub bases: Vec<usize>,
    /// Whether sources end after it.
    pub stops: bool,
}

#[derive(Debug, Clone)]
pub enum Message {
    Entry(Entry),
    Barrier(Rc<Barrier>),
    End,
    /// Whether the sender was stopped, so that rows are missing.
    Stopped,
}

/// The destination of a link: a member, and the number of its input.
pub type Target = (usize, usize);

/// A message of a member.
pub enum Said {
    Changed,
    Done(u64, Report, Vec<Snapshot>),
    Ended(u64, Report),
    Sent(Target, Message),
}

/// A part to store.
pub struct Snapshot {
    pub since: Option<u64>,
    pub buckets: (u32, u32),
    pub rows: RecordBatch,
}

enum Role {
    Source {
        /// Partition, next position, rows.
        partitions: Vec<(u32, u64, u64)>,
        has_changed: bool,
    },
    Sum {
        /// The sum, and the barrier after which it changed last.
        sums: BTreeMap<u64, (u64, u64)>,
    },
    Sink {
        open: Vec<Entry>,
        pending: Vec<Transaction>,
    },
}

/// One instance.
pub struct Member {
    pub index: usize,
    pub instance: u32,
    pub process: usize,
    pub alive: bool,
    pub scheduled: bool,
    epoch: u64,
    role: Role,
    /// The messages of each input, the barrier at which it waits, and whether it has ended.
    inputs: Vec<(VecDeque<Message>, u64, bool)>,
    outputs: Vec<Target>,
    last_barrier: u64,
    /// A barrier that some inputs have reached.
    waiting: Option<Rc<Barrier>>,
    /// Whether an input was stopped.
    stopped: bool,
    ended: bool,
}

impl Member {
    fn new(index: usize, instance: u32, epoch: u64, role: Role, inputs: usize) -> Member {
        Member {
            index,
            instance,
            process: 0,
            alive: true,
            scheduled: false,
            epoch,
            role,
            inputs: vec![(VecDeque::new(), 0, false); inputs],
            outputs: Vec::new(),
            last_barrier: 0,
            waiting: None,
            stopped: false,
            ended: false,
        }
    }

    /// Takes a message from a link.
    pub fn receive(&mut self, input: usize, message: Message) {
        self.inputs[input].0.push_back(message);
    }

    /// Takes a barrier from the coordinator.
    pub fn inject(&mut self, barrier: Barrier) -> Vec<Said> {
        // A barrier that was overtaken by a later one is ignored.
        if self.ended || barrier.number <= self.last_barrier {
            return Vec::new();
        }
        let stops = barrier.stops;
        let mut said = self.reach(&Rc::new(barrier), &mut Ledger::default());
        if stops {
            self.stopped = true;
            self.end(&mut Ledger::default(), &mut said);
        }
        said
    }

    /// Commits what was prepared up to a barrier.
    pub fn commit(&mut self, barrier: u64) -> Vec<Transaction> {
        let Role::Sink { pending, .. } = &mut self.role else {
            return Vec::new();
        };
        let (due, later) = pending.iter().partition(|one| one.barrier <= barrier);
        *pending = later;
        due
    }

    /// Does one step; returns false if there is nothing to do.
    pub fn step(&mut self, ledger: &mut Ledger, said: &mut Vec<Said>) -> bool {
        if self.ended {
            return false;
        }
        if let Role::Source {
            partitions,
            has_changed,
        } = &mut self.role
        {
            let next = partitions.iter_mut().find(|(_, at, rows)| at < rows);
            let Some((partition, at, _)) = next else {
                self.end(ledger, said);
                return false;
            };
            let entry = Entry::Row {
                partition: *partition,
                position: *at,
            };
            *at += 1;
            if !std::mem::replace(has_changed, true) {
                said.push(Said::Changed);
            }
            said.push(Said::Sent(self.route(&entry), Message::Entry(entry)));
            // The least position first, so that partitions advance together.
            if let Role::Source { partitions, .. } = &mut self.role {
                partitions.rotate_left(1);
            }
            return true;
        }
        let ready = |(queue, at, _): &(VecDeque<Message>, u64, bool)| {
            !queue.is_empty() && *at <= self.last_barrier
        };
        let Some(input) = self.inputs.iter().position(ready) else {
            return false;
        };
        match self.inputs[input].0.pop_front().expect("it is not empty") {
            Message::Entry(entry) => self.take(entry, said),
            Message::Barrier(barrier) => {
                self.inputs[input].1 = barrier.number;
                self.align(&barrier, ledger, said);
            }
            end @ (Message::End | Message::Stopped) => {
                self.stopped |= matches!(end, Message::Stopped);
                self.inputs[input].2 = true;
                match self.inputs.iter().all(|input| input.2) {
                    true => self.end(ledger, said),
                    false => self.align_waiting(ledger, said),
                }
            }
        }
        // It is the next input's turn.
        true
    }

    fn take(&mut self, entry: Entry, said: &mut Vec<Said>) {
        match (&mut self.role, entry) {
            (
                Role::Sum { sums },
                Entry::Row {
                    partition,
                    position,
                },
            ) => {
                let sum = sums.entry(Data::key(partition, position)).or_default();
                *sum = (sum.0 + position + 1, self.last_barrier);
                said.push(Said::Sent(self.route(&entry), Message::Entry(entry)));
            }
            (Role::Sink { open, .. }, entry) => open.push(entry),
            (Role::Source { .. } | Role::Sum { .. }, _) => unreachable!("{entry:?}"),
        }
    }

    /// An input has reached a barrier. A later barrier replaces an earlier one, which some source was never
    /// asked for.
    fn align(&mut self, barrier: &Rc<Barrier>, ledger: &mut Ledger, said: &mut Vec<Said>) {
        let waiting = self.waiting.as_ref().map_or(0, |waiting| waiting.number);
        let latest = waiting.max(barrier.number).max(self.last_barrier);
        for (_, at, _) in &mut self.inputs {
            if *at < latest {
                *at = self.last_barrier;
            }
        }
        if barrier.number < latest {
            return;
        }
        let has_come = |(_, at, ended): &(_, u64, bool)| *ended || *at == barrier.number;
        if self.inputs.iter().all(has_come) {
            said.extend(self.reach(barrier, ledger));
        } else {
            // An input that ends later may have been the last one missing.
            self.waiting = Some(Rc::clone(barrier));
        }
    }

    fn align_waiting(&mut self, ledger: &mut Ledger, said: &mut Vec<Said>) {
        let waiting = self.waiting.clone();
        if let Some(barrier) = waiting.filter(|barrier| barrier.number > self.last_barrier) {
            self.align(&barrier, ledger, said);
        }
    }

    fn route(&self, entry: &Entry) -> Target {
        let key = match *entry {
            Entry::Row {
                partition,
                position,
            } => Data::key(partition, position),
            Entry::Sum { key, .. } => key,
        };
        self.outputs[bucket(key) as usize % self.outputs.len()]
    }

    fn reach(&mut self, barrier: &Rc<Barrier>, ledger: &mut Ledger) -> Vec<Said> {
        let (snapshots, mut report) = match &mut self.role {
            Role::Sum { sums } => {
                let is_base = barrier.bases.contains(&self.index);
                let since = barrier.since.filter(|_| !is_base);
                (snapshots(sums, since), Report::default())
            }
            role => (Vec::new(), self::report(role)),
        };
        if let Role::Sink { open, pending } = &mut self.role {
            let transaction = Transaction {
                epoch: self.epoch,
                instance: u64::from(self.instance),
                barrier: barrier.number,
            };
            ledger.prepare(transaction, std::mem::take(open));
            pending.push(transaction);
            report = self::report(&self.role);
        }
        report.parts = snapshots.len();
        if let Role::Sum { sums } = &self.role {
            report.memory = sums.len() as u64 * 16;
        }
        if let Role::Source { has_changed, .. } = &mut self.role {
            *has_changed = false;
        }
        self.last_barrier = barrier.number;
        let mut said = vec![Said::Done(barrier.number, report, snapshots)];
        let outputs = self.outputs.iter();
        let passed = outputs.map(|&to| Said::Sent(to, Message::Barrier(Rc::clone(barrier))));
        said.extend(passed);
        said
    }

    fn end(&mut self, ledger: &mut Ledger, said: &mut Vec<Said>) {
        self.ended = true;
        if self.stopped {
            // Its state is in the checkpoint; it reports nothing more.
            let outputs = self.outputs.iter();
            said.extend(outputs.map(|&to| Said::Sent(to, Message::Stopped)));
            return;
        }
        if let Role::Sum { sums } = &self.role {
            for (&key, &(sum, _)) in sums {
                let entry = Entry::Sum { key, sum };
                said.push(Said::Sent(self.route(&entry), Message::Entry(entry)));
            }
        }
        if let Role::Sink { open, pending } = &mut self.role {
            let transaction = Transaction {
                epoch: self.epoch,
                instance: u64::from(self.instance),
                barrier: self.last_barrier + 1,
            };
            ledger.prepare(transaction, std::mem::take(open));
            pending.push(transaction);
        }
        let outputs = self.outputs.iter();
        said.extend(outputs.map(|&to| Said::Sent(to, Message::End)));
        said.push(Said::Ended(self.last_barrier, report(&self.role)));
    }
}

fn report(role: &Role) -> Report {
    let mut report = Report::default();
    match role {
        Role::Source { partitions, .. } => {
            let partition = |&(number, position, rows): &(u32, u64, u64)| Partition {
                name: number.to_string(),
                position,
                extra: None,
                counted: None,
                watermark: None,
                ended: position == rows,
            };
            report.partitions = partitions.iter().map(partition).collect();
        }
        Role::Sink { pending, .. } => {
            report.pending = pending.iter().map(|one| one.value()).collect();
        }
        Role::Sum { .. } => {}
    }
    report
}

/// What has changed since a barrier.
fn snapshots(sums: &BTreeMap<u64, (u64, u64)>, since: Option<u64>) -> Vec<Snapshot> {
    let changed = |touched: u64| since.is_none_or(|since| touched >= since);
    let rows = sums.iter().filter(|(_, (_, touched))| changed(*touched));
    let rows = rows.map(|(&key, &(sum, _))| (key, sum)).collect::<Sums>();
    let snapshot = |(buckets, rows)| Snapshot {
        since,
        buckets,
        rows,
    };
    pieces(&rows).into_iter().map(snapshot).collect()
}

/// One or two parts, by bucket.
pub fn pieces(sums: &Sums) -> Vec<((u32, u32), RecordBatch)> {
    let half = BUCKETS / 2;
    let ranges = match sums.len() % 2 {
        0 => vec![(0, BUCKETS - 1)],
        _ => vec![(0, half - 1), (half, BUCKETS - 1)],
    };
    let of = |buckets: (u32, u32)| {
        let own = sums.iter();
        let own = own.filter(|(key, _)| buckets.0 <= bucket(**key) && bucket(**key) <= buckets.1);
        let (keys, values) = own.unzip();
        (buckets, batch(keys, values))
    };
    let pieces = ranges.into_iter().map(of);
    pieces.filter(|(_, rows)| rows.num_rows() > 0).collect()
}

fn batch(keys: Vec<u64>, sums: Vec<u64>) -> RecordBatch {
    let field = |name| Field::new(name, DataType::UInt64, false);
    let schema = Arc::new(Schema::new(vec![field("key"), field("sum")]));
    let columns = [keys, sums].map(|values| Arc::new(UInt64Array::from(values)) as _);
    RecordBatch::try_new(schema, columns.to_vec()).expect("two columns")
}

/// The state that parts hold, read in their order.
pub fn sums(batches: &[RecordBatch]) -> Sums {
    let mut sums = Sums::new();
    for batch in batches {
        let keys = batch.column(0).as_primitive::<UInt64Type>().values();
        let values = batch.column(1).as_primitive::<UInt64Type>().values();
        sums.extend(keys.iter().copied().zip(values.iter().copied()));
    }
    sums
}

/// How many instances each node has.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub sources: usize,
    pub sums: usize,
    pub sinks: usize,
    pub processes: usize,
}

/// The members of an incarnation: sources, then sums, then sinks.
pub fn members(
    shape: Shape,
    epoch: u64,
    data: &Data,
    positions: &BTreeMap<u32, u64>,
    state: &Sums,
) -> Vec<Member> {
    let mut members = Vec::new();
    for instance in 0..shape.sources {
        let all = data.0.iter().enumerate();
        let own = all.filter(|(partition, _)| partition % shape.sources == instance);
        let partitions = own.map(|(partition, &rows)| {
            let partition = partition as u32;
            (
                partition,
                positions.get(&partition).copied().unwrap_or(0),
                rows,
            )
        });
        let role = Role::Source {
            partitions: partitions.collect(),
            has_changed: false,
        };
        members.push(Member::new(members.len(), instance as u32, epoch, role, 0));
    }
    for instance in 0..shape.sums {
        let own = state
            .iter()
            .filter(|(key, _)| bucket(**key) as usize % shape.sums == instance);
        let sums = own.map(|(&key, &sum)| (key, (sum, 0))).collect();
        let role = Role::Sum { sums };
        let index = members.len();
        members.push(Member::new(
            index,
            instance as u32,
            epoch,
            role,
            shape.sources,
        ));
    }
    for instance in 0..shape.sinks {
        let role = Role::Sink {
            open: Vec::new(),
            pending: Vec::new(),
        };
        let index = members.len();
        members.push(Member::new(index, instance as u32, epoch, role, shape.sums));
    }
    let (sums_at, sinks_at) = (shape.sources, shape.sources + shape.sums);
    for (index, member) in members.iter_mut().enumerate() {
        member.process = index % shape.processes;
        member.outputs = if index < sums_at {
            (0..shape.sums).map(|to| (sums_at + to, index)).collect()
        } else if index < sinks_at {
            let input = index - sums_at;
            (0..shape.sinks).map(|to| (sinks_at + to, input)).collect()
        } else {
            Vec::new()
        };
    }
    members
}
