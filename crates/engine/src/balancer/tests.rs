//! Tests of what all balancers guarantee, whatever they do with rows; then of each balancer.

use std::sync::Arc;

use arrow_array::Int64Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use proptest::prelude::*;
use slackwater_link::{Receiver, Waiter, channel};

use super::*;
use crate::barrier::{Barrier, BucketMove};
use crate::testing::batch;

/// A route over `links` links of a capacity, and their other ends.
fn route(plan: BalancerPlan, links: usize, capacity: usize) -> (Route, Vec<Receiver<Message>>) {
    let waiter = Waiter::new().unwrap();
    let ends = (0..links).map(|_| channel(capacity, waiter.waker(), waiter.waker()));
    let (senders, receivers): (Vec<_>, Vec<_>) = ends.unzip();
    let senders = senders.into_iter().map(LinkSender::Local).collect();
    (Route::new(plan, senders), receivers)
}

fn keyed() -> BalancerPlan {
    BalancerPlan::Keyed {
        columns: vec![0],
        keep_origin: false,
        to: 5,
    }
}

/// All kinds of balancers, each with the number of links that it is tested with.
fn plans() -> Vec<(BalancerPlan, usize)> {
    vec![
        (BalancerPlan::PointToPoint, 1),
        (BalancerPlan::RoundRobin, 3),
        (BalancerPlan::Demand, 3),
        (keyed(), 3),
    ]
}

/// Rows `first..first + rows` with the keys `number % 7`.
fn chunk(first: i64, rows: i64) -> Chunk {
    let numbers = first..first + rows;
    let keys = Int64Array::from_iter_values(numbers.clone().map(|number| number % 7));
    let numbers = Int64Array::from_iter_values(numbers);
    Chunk::new(
        batch(vec![("key", Arc::new(keys)), ("n", Arc::new(numbers))]),
        0,
    )
}

fn numbers(chunk: &Chunk) -> Vec<i64> {
    let column = chunk.batch.column(1).as_primitive::<Int64Type>();
    column.values().to_vec()
}

fn watermark(time: i64) -> Message {
    Message::Watermark { time, ingest_ns: 0 }
}

/// One step of a test.
#[derive(Debug, Clone)]
enum Act {
    /// Sends a chunk of this many rows, if the route takes input.
    Chunk(i64),
    /// Sends a watermark, if the route takes input.
    Watermark,
    /// Ends a step of the instance.
    Settle,
    /// One receiver takes up to this many messages.
    Take(usize, usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        3 => (1i64..40).prop_map(Act::Chunk),
        1 => Just(Act::Watermark),
        1 => Just(Act::Settle),
        4 => (0usize..3, 1usize..6).prop_map(|(link, count)| Act::Take(link, count)),
    ];
    prop::collection::vec(act, 1..120)
}

/// What one receiver got.
#[derive(Default)]
struct Got {
    rows: Vec<i64>,
    /// Each watermark, and the number of rows before it.
    watermarks: Vec<(i64, usize)>,
}

impl Got {
    fn take(&mut self, message: Message) -> std::result::Result<(), TestCaseError> {
        match message {
            Message::Chunk(chunk) => self.rows.extend(numbers(&chunk)),
            Message::Watermark { time, .. } => self.watermarks.push((time, self.rows.len())),
            other => prop_assert!(false, "{other:?}"),
        }
        Ok(())
    }

    /// Watermark `n` was sent after the rows before `sent_before[n - 1]`. If it may be `skipped`, a later one
    /// takes its place.
    fn check(&self, sent_before: &[i64], skipped: bool) -> std::result::Result<(), TestCaseError> {
        let times = self.watermarks.iter().map(|&(time, _)| time);
        let times = times.collect::<Vec<i64>>();
        let all = (1..=sent_before.len() as i64).collect::<Vec<i64>>();
        match skipped {
            true => prop_assert!(times.is_sorted() && times.last() == all.last(), "{times:?}"),
            false => prop_assert_eq!(&times, &all),
        }
        for &(time, rows) in &self.watermarks {
            let (before, after) = self.rows.split_at(rows);
            let end = sent_before[time as usize - 1];
            prop_assert!(after.iter().all(|&row| row >= end), "it waits for its rows");
            prop_assert!(skipped || before.iter().all(|&row| row < end));
        }
        Ok(())
    }
}

/// Rows of the same key, each link's in the order in which they came.
fn by_key(rows: &[i64], key: i64) -> Vec<i64> {
    rows.iter().copied().filter(|row| row % 7 == key).collect()
}

fn check(
    plan: &BalancerPlan,
    links: usize,
    acts: &[Act],
    capacity: usize,
) -> std::result::Result<(), TestCaseError> {
    let (mut route, mut receivers) = route(plan.clone(), links, capacity);
    let mut got = (0..links).map(|_| Got::default()).collect::<Vec<Got>>();
    let counters = StepCounters::default();
    let (mut next, mut sent_before) = (0, Vec::new());
    for act in acts {
        route.flush().unwrap();
        match *act {
            Act::Chunk(rows) if !route.is_blocked() => {
                route.chunk(chunk(next, rows), &counters).unwrap();
                next += rows;
            }
            Act::Watermark if !route.is_blocked() => {
                sent_before.push(next);
                let watermark = watermark(sent_before.len() as i64);
                route.control(&watermark, &counters).unwrap();
            }
            Act::Settle if !route.is_blocked() => {
                route.settle(&counters).unwrap();
            }
            Act::Take(link, count) if link < links => {
                for _ in 0..count {
                    if let Some(message) = receivers[link].receive() {
                        got[link].take(message)?;
                    }
                }
            }
            _ => {}
        }
    }
    route.settle(&counters).unwrap();
    while !route.is_drained() || receivers.iter().any(|receiver| !receiver.is_empty()) {
        for (receiver, got) in receivers.iter_mut().zip(&mut got) {
            while let Some(message) = receiver.receive() {
                got.take(message)?;
            }
        }
        route.flush().unwrap();
    }
    let is_keyed = matches!(plan, BalancerPlan::Keyed { .. });
    let mut all = Vec::new();
    for got in &got {
        got.check(&sent_before, is_keyed)?;
        for key in 0..7 {
            let rows = by_key(&got.rows, key);
            prop_assert!(
                rows.is_sorted(),
                "one link keeps the order of what it carries"
            );
        }
        all.extend_from_slice(&got.rows);
    }
    all.sort_unstable();
    prop_assert_eq!(all, (0..next).collect::<Vec<i64>>());
    if is_keyed {
        for key in 0..7 {
            let holders = got.iter().filter(|got| !by_key(&got.rows, key).is_empty());
            prop_assert!(holders.count() <= 1, "a key has one instance");
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn every_row_arrives_once_and_watermarks_after_earlier_rows(
        acts in acts(),
        capacity in 1usize..8,
    ) {
        for (plan, links) in plans() {
            check(&plan, links, &acts, capacity)?;
        }
    }
}

#[test]
fn demand_limits_what_waits_at_a_receiver_and_keeps_the_rest() {
    let (mut route, mut receivers) = route(BalancerPlan::Demand, 2, 64);
    let counters = StepCounters::default();
    let mut sent = 0;
    while !route.is_blocked() {
        route.chunk(chunk(sent, 1), &counters).unwrap();
        sent += 1;
    }
    // The last chunk has no receiver yet.
    assert_eq!(sent as usize, 2 * UNACKNOWLEDGED_MAX + 1);
    let lengths = |receivers: &[Receiver<Message>]| {
        let lengths = receivers.iter().map(Receiver::len);
        lengths.collect::<Vec<usize>>()
    };
    assert_eq!(lengths(&receivers), [UNACKNOWLEDGED_MAX; 2]);
    // The receiver that takes a chunk gets the next one.
    assert!(receivers[1].receive().is_some());
    route.flush().unwrap();
    assert_eq!(lengths(&receivers), [UNACKNOWLEDGED_MAX; 2]);
    assert!(!route.is_blocked());
}

#[test]
fn demand_prefers_the_receiver_with_fewer_rows_waiting_not_fewer_chunks() {
    let (mut route, receivers) = route(BalancerPlan::Demand, 2, 64);
    let counters = StepCounters::default();
    route.chunk(chunk(0, 100), &counters).unwrap();
    route.chunk(chunk(100, 10), &counters).unwrap();
    route.chunk(chunk(110, 10), &counters).unwrap();
    assert_eq!(receivers[0].len(), 1);
    assert_eq!(receivers[1].len(), 2);
}

#[test]
fn a_direct_key_goes_to_the_instance_that_it_names() {
    let (mut route, mut receivers) = route(keyed(), 3, 64);
    let places = arrow_array::UInt16Array::from_iter_values((0..12).map(|place| place % 6));
    let rows = Int64Array::from_iter_values(0..12);
    let columns = vec![
        ("key", Arc::new(places) as arrow_array::ArrayRef),
        ("n", Arc::new(rows)),
    ];
    let counters = StepCounters::default();
    route
        .chunk(Chunk::new(batch(columns), 0), &counters)
        .unwrap();
    route.settle(&counters).unwrap();
    for (link, receiver) in receivers.iter_mut().enumerate() {
        let Some(Message::Chunk(chunk)) = receiver.receive() else {
            panic!("no rows for {link}");
        };
        let expected = (0..4).map(|row| row * 3 + link as i64);
        assert_eq!(numbers(&chunk), expected.collect::<Vec<i64>>());
    }
}

#[test]
fn rows_after_a_barrier_go_to_the_new_owners_of_their_buckets() {
    let (mut route, mut receivers) = route(keyed(), 2, 64);
    let counters = StepCounters::default();
    route.chunk(chunk(0, 70), &counters).unwrap();
    let owners = first_owners(2).into_iter().enumerate();
    let moves = owners.filter(|(_, owner)| *owner == 0);
    let moves = moves.map(|(bucket, _)| BucketMove {
        bucket: bucket as u16,
        from: 0,
        to: 1,
    });
    let moves = Arc::from(moves.collect::<Vec<BucketMove>>());
    let barrier = |node| {
        Message::Barrier(Barrier {
            number: 1,
            purpose: crate::barrier::Purpose::Move {
                node,
                moves: Arc::clone(&moves),
            },
        })
    };
    // A barrier for another subquery passes, and changes nothing.
    route.control(&barrier(4), &counters).unwrap();
    route.chunk(chunk(70, 70), &counters).unwrap();
    route.control(&barrier(5), &counters).unwrap();
    route.chunk(chunk(140, 70), &counters).unwrap();
    route.settle(&counters).unwrap();
    let mut parts = vec![Vec::new(); 2];
    for (receiver, parts) in receivers.iter_mut().zip(&mut parts) {
        let mut rows = 0;
        while let Some(message) = receiver.receive() {
            match message {
                Message::Chunk(chunk) => rows += chunk.rows(),
                _ => parts.push(std::mem::take(&mut rows)),
            }
        }
        parts.push(rows);
    }
    assert!(parts[0][0] > 0 && parts[1][0] > 0, "{parts:?}");
    assert_eq!(parts[0][1], parts[0][0]);
    assert_eq!((parts[0][2], parts[1][2]), (0, 70));
}

#[test]
fn chunks_of_one_step_are_split_together_up_to_a_limit() {
    let (mut route, mut receivers) = route(keyed(), 2, 64);
    let counters = StepCounters::default();
    let mut got = |route: &mut Route| {
        route.settle(&counters).unwrap();
        let mut got = Vec::new();
        while let Some(message) = receivers[0].receive() {
            got.push(match message {
                Message::Chunk(chunk) => chunk.rows() as i64,
                Message::Watermark { time, .. } => -time,
                other => panic!("{other:?}"),
            });
        }
        while receivers[1].receive().is_some() {}
        got
    };
    for first in 0..3 {
        route.chunk(chunk(first * 70, 70), &counters).unwrap();
        route.control(&watermark(first + 1), &counters).unwrap();
    }
    let one = got(&mut route);
    assert_eq!((one.len(), one[1]), (2, -3), "{one:?}");
    assert!(got(&mut route).is_empty(), "nothing is sent twice");
    for first in 0..3 {
        route.chunk(chunk(first * 7_000, 7_000), &counters).unwrap();
    }
    assert_eq!(got(&mut route).len(), 3);
    // Without rows there is nothing to wait for.
    route.control(&watermark(4), &counters).unwrap();
    assert_eq!(got(&mut route), [-4]);
}

#[test]
fn rows_are_counted_by_bucket_in_proportion() {
    let (mut route, receivers) = route(keyed(), 2, 64);
    let counters = StepCounters {
        buckets: Some((0..BUCKETS).map(|_| 0.into()).collect()),
        ..StepCounters::default()
    };
    for first in 0..COUNTED_CHUNKS as i64 {
        route.chunk(chunk(first * 7, 7), &counters).unwrap();
    }
    route.settle(&counters).unwrap();
    drop(receivers);
    let buckets = counters.buckets.unwrap();
    let counts = buckets
        .iter()
        .map(|slot| slot.load(std::sync::atomic::Ordering::Relaxed));
    let counts = counts.filter(|count| *count > 0).collect::<Vec<u64>>();
    assert_eq!(counts, [COUNTED_CHUNKS; 7]);
}
