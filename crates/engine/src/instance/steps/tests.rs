//! Tests of steps that hold rows back: nothing that may overtake them does.

use std::sync::Arc;

use arrow_array::{Int64Array, TimestampMillisecondArray};
use arrow_schema::{DataType, TimeUnit};
use slackwater_link::{Receiver, Sender, Waiter, channel};

use super::*;
use crate::accumulator::AggregateFunction;
use crate::balancer::{BalancerPlan, Route};
use crate::barrier::{Barrier, Purpose};
use crate::chunk::Message;
use crate::exchange::{LinkReceiver, LinkSender};
use crate::instance::{PlacedStep, STEP_NS_MAX};
use crate::operator::aggregate::{AggregateCall, AggregateSpec, Emit, FirstPhase, WindowKey};
use crate::operator::window::Windows;
use crate::ports::{Port, Ports};
use crate::testing::{batch, schema};
use crate::time::{Laps, now_ns};

const MS: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);

/// COUNT(*) by key and window of 10 ms; the columns are the key and the window's end.
fn first_phase() -> FirstPhase {
    let spec = AggregateSpec {
        window: Some(WindowKey {
            column: 1,
            is_start: false,
            windows: Windows::new(10, 10, TimeUnit::Millisecond).unwrap(),
        }),
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
        schema: schema(&[("k", DataType::Int64), ("we", MS), ("n", DataType::Int64)]),
    };
    let input = schema(&[("k", DataType::Int64), ("we", MS)]);
    FirstPhase::new(spec, &input).unwrap()
}

/// An instance that passes rows through the first phase to a link.
fn instance(chunk_rows: usize, room: usize) -> (Instance, Sender<Message>, Receiver<Message>) {
    let waiter = Waiter::new().unwrap();
    let (input, receiver) = channel(16, waiter.waker(), waiter.waker());
    let (sender, output) = channel(room, waiter.waker(), waiter.waker());
    let ports = Ports::new(vec![Port {
        links: vec![(LinkReceiver::Local(receiver), None)],
        acknowledges: false,
        in_step: false,
        first: false,
    }]);
    let route = Route::new(BalancerPlan::PointToPoint, vec![LinkSender::Local(sender)]);
    let steps = [
        Step::FirstPhase(Box::new(first_phase())),
        Step::Route(route),
    ];
    let steps = steps
        .into_iter()
        .enumerate()
        .map(|(number, step)| PlacedStep {
            step,
            node: number,
            number,
            next: if number == 0 { vec![1] } else { vec![] },
        });
    let counters = Arc::new(InstanceCounters::new(2, &[], &[]));
    let links = InstanceInput::Links(ports);
    let steps = steps.collect();
    let instance = Instance::new(
        "test".into(),
        0,
        links,
        steps,
        vec![0],
        chunk_rows,
        counters,
    );
    (instance, input, output)
}

/// Rows of different keys in the window that ends at `end` ms.
fn rows(count: i64, end: i64) -> Message {
    let keys = Int64Array::from_iter_values((0..2 * count).map(|row| row % count));
    let ends = TimestampMillisecondArray::from_value(end, 2 * count as usize);
    let columns: Vec<(&str, arrow_array::ArrayRef)> =
        vec![("k", Arc::new(keys)), ("we", Arc::new(ends))];
    Message::Chunk(Chunk::new(batch(columns), 5))
}

fn kind(message: &Message) -> String {
    match message {
        Message::Chunk(chunk) => format!("{} rows", chunk.rows()),
        Message::Watermark { time, .. } => format!("watermark {time}"),
        Message::EndOfWork { .. } => "end of work".to_string(),
        Message::Idle => "idle".to_string(),
        Message::Active => "active".to_string(),
        Message::Barrier(barrier) => format!("barrier {}", barrier.number),
        Message::EndOfStream { stopped, .. } => format!("end, stopped: {stopped}"),
    }
}

/// What an instance sends for these messages.
fn sent(messages: Vec<Message>, chunk_rows: usize, room: usize) -> Vec<String> {
    let (mut instance, mut input, mut output) = instance(chunk_rows, room);
    let mut found = Vec::new();
    for message in messages {
        input.send(message).unwrap();
    }
    for _ in 0..100 {
        instance.step(&mut Laps::now()).unwrap();
        found.extend(output.receive().iter().map(kind));
    }
    while let Some(message) = output.receive() {
        found.push(kind(&message));
    }
    found
}

#[test]
fn a_step_that_has_worked_for_long_takes_one_input() {
    let (mut instance, mut input, _output) = instance(100, 16);
    for _ in 0..4 {
        input.send(rows(3, 10)).unwrap();
    }
    let chunks = |instance: &Instance| InstanceCounters::read(&instance.counters.chunks);
    let long_ago = now_ns() - 2 * STEP_NS_MAX;
    instance.step(&mut Laps::at(long_ago)).unwrap();
    assert_eq!(chunks(&instance), 1);
    instance
        .step(&mut Laps::at(now_ns() + STEP_NS_MAX))
        .unwrap();
    assert_eq!(chunks(&instance), 4);
}

#[test]
fn groups_leave_before_what_may_not_overtake_them() {
    let watermark = |time| Message::Watermark { time, ingest_ns: 1 };
    let sent_after = |last: Message| {
        let messages = vec![rows(3, 10), rows(2, 20), watermark(9_000), last];
        sent(messages, 100, 16)
    };
    let closes = sent_after(watermark(10_000));
    assert_eq!(closes, ["watermark 9000", "3 rows", "watermark 10000"]);
    let barrier = Message::Barrier(Barrier {
        number: 7,
        purpose: Purpose::Publish,
    });
    for (last, said) in [
        (Message::Idle, "idle"),
        (barrier, "barrier 7"),
        (Message::EndOfWork { ingest_ns: 1 }, "end of work"),
        (
            Message::EndOfStream {
                ingest_ns: 1,
                stopped: false,
            },
            "end, stopped: false",
        ),
        (
            Message::EndOfStream {
                ingest_ns: 1,
                stopped: true,
            },
            "end, stopped: true",
        ),
    ] {
        assert_eq!(
            sent_after(last),
            ["watermark 9000", "3 rows", "2 rows", said]
        );
    }
}

#[test]
fn groups_leave_in_chunks_as_the_link_has_room() {
    let watermark = Message::Watermark {
        time: 10_000,
        ingest_ns: 1,
    };
    let found = sent(vec![rows(9, 10), watermark], 2, 1);
    let expected = [
        "2 rows",
        "2 rows",
        "2 rows",
        "2 rows",
        "1 rows",
        "watermark 10000",
    ];
    assert_eq!(found, expected);
}
