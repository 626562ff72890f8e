//! Tests of snapshots that an instance takes in slices.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::Int64Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::DataType;
use slackwater_link::{Sender, Waiter, channel};

use super::*;
use crate::accumulator::AggregateFunction;
use crate::barrier::{Barrier, Purpose};
use crate::checkpoint::Snapshot;
use crate::chunk::{Chunk, Message};
use crate::counters::InstanceCounters;
use crate::exchange::LinkReceiver;
use crate::instance::{Head, InstanceInput, Notice, Stepped};
use crate::operator::aggregate::{Aggregate, AggregateCall, AggregateSpec, Emit};
use crate::ports::{Port, Ports};
use crate::testing::{Letters, batch, schema};
use crate::time::Laps;

/// So many that they can't be copied at the barrier.
const KEYS: i64 = 300_000;

/// An instance that counts the rows of each key, with one row for each of [`KEYS`] keys.
fn counting() -> (Instance, Sender<Message>) {
    let waiter = Waiter::new().unwrap();
    let (sender, receiver) = channel(16, waiter.waker(), waiter.waker());
    let ports = Ports::new(vec![Port {
        links: vec![(LinkReceiver::Local(receiver), None)],
        acknowledges: false,
        in_step: false,
        first: false,
    }]);
    let spec = AggregateSpec {
        window: None,
        keys: vec![0],
        calls: vec![AggregateCall {
            function: AggregateFunction::Count,
            arguments: vec![],
            filter: None,
        }],
        time_column: None,
        emit: Emit::Changes,
        refires: None,
        takes_back: false,
        starts_empty: false,
        emits_before: false,
        retention_us: None,
        schema: schema(&[("k", DataType::Int64), ("n", DataType::Int64)]),
    };
    let operator = Aggregate::new(spec, &schema(&[("k", DataType::Int64)])).unwrap();
    let head = Head::new(Box::new(operator), 7, Arc::new(Letters::default()));
    let counters = Arc::new(InstanceCounters::new(1, &[], &[]));
    let input = InstanceInput::Head(ports, head);
    let mut instance = Instance::new("test".into(), 0, input, vec![], vec![], 10, counters);
    instance.take_part(0);
    let mut sender = sender;
    sender.send(rows(0, KEYS)).unwrap();
    instance.step(&mut Laps::now()).unwrap();
    (instance, sender)
}

fn rows(from: i64, to: i64) -> Message {
    let keys = Int64Array::from_iter_values(from..to);
    Message::Chunk(Chunk::new(batch(vec![("k", Arc::new(keys))]), 3))
}

fn barrier(number: u64) -> Message {
    Message::Barrier(Barrier {
        number,
        purpose: Purpose::Checkpoint {
            since: None,
            bases: Vec::new().into(),
            stops: false,
        },
    })
}

fn snapshot(instance: &mut Instance) -> Snapshot {
    let mut notices = instance.take_notices();
    assert_eq!(notices.len(), 1);
    match notices.remove(0) {
        Notice::Snapshot(snapshot) => *snapshot,
        other => panic!("{other:?}"),
    }
}

/// Adds the counts of batches to those known; no key comes twice.
fn add(counts: &mut BTreeMap<i64, i64>, batches: &[RecordBatch]) {
    for batch in batches {
        let column = |index: usize| batch.column(index).as_primitive::<Int64Type>().values();
        for (&key, &count) in column(1).iter().zip(column(2)) {
            assert_eq!(counts.insert(key, count), None, "key {key}");
        }
    }
}

#[test]
fn slices_follow_the_snapshot_and_hold_what_was_there_at_the_barrier() {
    let (mut instance, mut sender) = counting();
    sender.send(barrier(1)).unwrap();
    instance.step(&mut Laps::now()).unwrap();
    let state = snapshot(&mut instance).state.unwrap();
    let slices = state.slices.expect("there is too much for the barrier");
    let mut counts = BTreeMap::new();
    add(&mut counts, &state.batches);
    assert!((counts.len() as i64) < KEYS);
    let (mut from, mut is_complete) = (0, false);
    while !is_complete {
        // Changes of keys that were copied, of some that were not, and new keys.
        sender.send(rows(from, from + 9)).unwrap();
        sender.send(rows(KEYS - from - 9, KEYS - from)).unwrap();
        sender.send(rows(KEYS + from, KEYS + from + 9)).unwrap();
        from += 9;
        // What was written leaves between two slices.
        assert_eq!(instance.step(&mut Laps::now()).unwrap(), Stepped::Copied);
        while let Ok(slice) = slices.try_recv() {
            match slice {
                Slice::Rows(batches) => add(&mut counts, &batches),
                Slice::End { .. } => is_complete = true,
            }
        }
    }
    assert_eq!(counts.len() as i64, KEYS);
    assert!(counts.iter().all(|(key, count)| *key < KEYS && *count == 1));
    assert!(!instance.has_open_snapshot());
}

#[test]
fn a_slow_store_gets_a_few_slices_and_the_instance_goes_on() {
    let (mut instance, mut sender) = counting();
    sender.send(barrier(1)).unwrap();
    instance.step(&mut Laps::now()).unwrap();
    let slices = snapshot(&mut instance).state.unwrap().slices.unwrap();
    for key in 0..100 {
        sender.send(rows(key, key + 1)).unwrap();
        let stepped = instance.step(&mut Laps::now()).unwrap();
        assert!(matches!(stepped, Stepped::Worked | Stepped::Copied));
    }
    // Nothing came: it waits, but not for ever, because nothing else tells it that there is room.
    assert!(matches!(
        instance.step(&mut Laps::now()).unwrap(),
        Stepped::Waits {
            until_ns: Some(_),
            ..
        }
    ));
    let waiting = std::iter::from_fn(|| slices.try_recv().ok()).count();
    assert_eq!(waiting, SLICES_MAX);
    // The next barrier gives the snapshot up: without its end it is incomplete.
    sender.send(barrier(2)).unwrap();
    instance.step(&mut Laps::now()).unwrap();
    assert!(snapshot(&mut instance).state.unwrap().slices.is_some());
    let rest = std::iter::from_fn(|| slices.recv().ok()).collect::<Vec<Slice>>();
    assert!(rest.iter().all(|slice| matches!(slice, Slice::Rows(_))));
    // Nobody takes the second one, whose receiver is gone.
    for key in 0..3 {
        sender.send(rows(key, key + 1)).unwrap();
        instance.step(&mut Laps::now()).unwrap();
    }
    assert!(!instance.has_open_snapshot());
}

#[test]
fn an_instance_that_ends_hands_all_slices_over_first() {
    for stopped in [false, true] {
        let (mut instance, mut sender) = counting();
        sender.send(barrier(1)).unwrap();
        let end = Message::EndOfStream {
            ingest_ns: 1,
            stopped,
        };
        sender.send(end).unwrap();
        instance.step(&mut Laps::now()).unwrap();
        let state = snapshot(&mut instance).state.unwrap();
        let slices = state.slices.unwrap();
        let mut counts = BTreeMap::new();
        add(&mut counts, &state.batches);
        let mut is_complete = false;
        for _ in 0..10_000 {
            let stepped = instance.step(&mut Laps::now()).unwrap();
            match slices.try_recv() {
                Ok(Slice::Rows(batches)) => add(&mut counts, &batches),
                Ok(Slice::End { .. }) => is_complete = true,
                Err(_) if stepped == Stepped::Ended => break,
                Err(_) => {}
            }
        }
        assert!(is_complete);
        assert_eq!(counts.len() as i64, KEYS);
        assert_eq!(instance.step(&mut Laps::now()).unwrap(), Stepped::Ended);
    }
}
