//! Tests of how lanes merge: watermarks, idleness, units of work, ends and losses.

use slackwater_link::{Sender, Waiter, channel};

use super::*;
use crate::testing::batch;

/// One port per entry, with that many lanes; returns the senders in order.
fn ports(lanes: &[usize]) -> (Ports, Vec<Sender<Message>>) {
    ports_of(lanes, false)
}

/// As [`ports`]; `in_step` says whether the lanes of a port receive from the same sources.
fn ports_of(lanes: &[usize], in_step: bool) -> (Ports, Vec<Sender<Message>>) {
    let waiter = Waiter::new().unwrap();
    let mut senders = Vec::new();
    let mut lane = || {
        let (sender, receiver) = channel(64, waiter.waker(), waiter.waker());
        senders.push(sender);
        LinkReceiver::Local(receiver)
    };
    let ports = lanes.iter().map(|&lanes| Port {
        links: (0..lanes).map(|_| (lane(), None)).collect(),
        acknowledges: false,
        in_step,
        first: false,
    });
    let ports = Ports::new(ports.collect());
    (ports, senders)
}

fn watermark(time: EventTime) -> Message {
    Message::Watermark {
        time,
        ingest_ns: time as u64,
    }
}

fn chunk() -> Message {
    let column = std::sync::Arc::new(arrow_array::Int64Array::from(vec![1]));
    Message::Chunk(Chunk::new(batch(vec![("n", column)]), 0))
}

fn end(stopped: bool) -> Message {
    Message::EndOfStream {
        ingest_ns: 0,
        stopped,
    }
}

fn barrier(number: u64) -> Message {
    Message::Barrier(Barrier {
        number,
        purpose: crate::barrier::Purpose::Move {
            node: 0,
            moves: std::sync::Arc::new([]),
        },
    })
}

const END_OF_WORK: Message = Message::EndOfWork { ingest_ns: 5 };

/// The inputs until the ports have none, in short form.
fn drain(ports: &mut Ports) -> Vec<String> {
    let mut said = Vec::new();
    while let Some(input) = ports.next_input().unwrap() {
        said.push(match input {
            Input::Chunk { port, .. } => format!("chunk {port}"),
            Input::Watermark { time, .. } => format!("watermark {time}"),
            Input::Idle => "idle".to_string(),
            Input::Active => "active".to_string(),
            Input::Barrier(barrier) => format!("barrier {}", barrier.number),
            Input::EndOfWork { .. } => "end of work".to_string(),
            Input::End { stopped, .. } => format!("end {stopped}"),
            Input::Lost => "lost".to_string(),
        });
    }
    said
}

#[test]
fn the_watermark_is_the_minimum_of_the_lanes_and_never_goes_back() {
    let (mut ports, mut lanes) = ports(&[1, 2]);
    lanes[0].send(watermark(10)).unwrap();
    lanes[1].send(watermark(20)).unwrap();
    assert!(drain(&mut ports).is_empty(), "a lane has said nothing");
    lanes[2].send(watermark(5)).unwrap();
    assert_eq!(drain(&mut ports), ["watermark 5"]);
    lanes[2].send(watermark(30)).unwrap();
    assert_eq!(drain(&mut ports), ["watermark 10"]);
    lanes[0].send(watermark(7)).unwrap();
    lanes[0].send(watermark(10)).unwrap();
    assert!(drain(&mut ports).is_empty());
    lanes[0].send(watermark(25)).unwrap();
    let said = ports.next_input().unwrap().unwrap();
    assert!(
        matches!(
            said,
            Input::Watermark {
                time: 20,
                ingest_ns: 30
            }
        ),
        "the newest input moved it: {said:?}"
    );
}

#[test]
fn chunks_come_with_their_port_and_in_order_with_watermarks() {
    let (mut ports, mut lanes) = ports(&[1, 1]);
    lanes[1].send(watermark(9)).unwrap();
    lanes[0].send(chunk()).unwrap();
    lanes[0].send(watermark(4)).unwrap();
    lanes[0].send(chunk()).unwrap();
    lanes[1].send(chunk()).unwrap();
    let said = drain(&mut ports);
    let of_lane_0 = said.iter().filter(|said| *said != "chunk 1");
    assert_eq!(
        of_lane_0.collect::<Vec<_>>(),
        ["chunk 0", "watermark 4", "chunk 0"]
    );
    assert_eq!(said.len(), 4);
}

#[test]
fn idle_and_ended_lanes_hold_nothing_back() {
    let (mut ports, mut lanes) = ports(&[3]);
    lanes[0].send(watermark(10)).unwrap();
    lanes[1].send(Message::Idle).unwrap();
    assert!(drain(&mut ports).is_empty());
    lanes[2].send(end(false)).unwrap();
    assert_eq!(drain(&mut ports), ["watermark 10"]);
    // When it is active again it holds back again, but the watermark stays where it was.
    lanes[1].send(watermark(3)).unwrap();
    assert!(drain(&mut ports).is_empty());
    lanes[0].send(watermark(20)).unwrap();
    assert!(drain(&mut ports).is_empty());
    lanes[1].send(watermark(15)).unwrap();
    assert_eq!(drain(&mut ports), ["watermark 15"]);
}

#[test]
fn regression_if_all_lanes_are_silent_the_largest_watermark_counts() {
    // In any order of falling silent, and whether it has ended or is idle.
    for order in [[0, 1], [1, 0]] {
        for last in [Message::Idle, end(false)] {
            let (mut ports, mut lanes) = ports(&[1, 1]);
            lanes[0].send(watermark(10)).unwrap();
            lanes[1].send(watermark(20)).unwrap();
            assert_eq!(drain(&mut ports), ["watermark 10"]);
            lanes[order[0]].send(last).unwrap();
            lanes[order[1]].send(Message::Idle).unwrap();
            assert_eq!(drain(&mut ports), ["watermark 20", "idle"]);
        }
    }
    // After a stop windows stay open.
    let (mut ports, mut lanes) = ports(&[1, 1]);
    lanes[0].send(watermark(10)).unwrap();
    lanes[1].send(watermark(20)).unwrap();
    lanes[0].send(end(true)).unwrap();
    lanes[1].send(Message::Idle).unwrap();
    assert_eq!(drain(&mut ports), ["watermark 10"]);
}

#[test]
fn idleness_is_reported_once_and_a_chunk_ends_it() {
    let (mut ports, mut lanes) = ports(&[2]);
    lanes[0].send(Message::Idle).unwrap();
    assert!(drain(&mut ports).is_empty());
    lanes[1].send(Message::Idle).unwrap();
    lanes[0].send(Message::Idle).unwrap();
    assert_eq!(drain(&mut ports), ["idle"]);
    lanes[0].send(chunk()).unwrap();
    lanes[0].send(Message::Idle).unwrap();
    assert_eq!(drain(&mut ports), ["chunk 0", "idle"]);
}

#[test]
fn regression_a_lane_that_is_active_again_is_waited_for_before_its_first_row() {
    let (mut ports, mut lanes) = ports(&[1, 1]);
    lanes[1].send(Message::Idle).unwrap();
    lanes[0].send(watermark(10)).unwrap();
    assert_eq!(drain(&mut ports), ["watermark 10"]);
    lanes[1].send(Message::Active).unwrap();
    assert!(drain(&mut ports).is_empty());
    lanes[0].send(watermark(20)).unwrap();
    assert!(drain(&mut ports).is_empty(), "a peer is there, and silent");
    lanes[1].send(watermark(15)).unwrap();
    assert_eq!(drain(&mut ports), ["watermark 15"]);
}

#[test]
fn regression_the_end_of_a_silence_is_forwarded_once() {
    // After it, too, the others are not waited for while all of this port is silent.
    let (mut ports, mut lanes) = ports(&[2]);
    for lane in &mut lanes {
        lane.send(watermark(10)).unwrap();
        lane.send(Message::Idle).unwrap();
    }
    assert_eq!(drain(&mut ports), ["watermark 10", "idle"]);
    lanes[0].send(Message::Active).unwrap();
    lanes[1].send(Message::Active).unwrap();
    assert_eq!(drain(&mut ports), ["active"]);
    // A watermark that moves nothing ends a silence as well.
    for lane in &mut lanes {
        lane.send(Message::Idle).unwrap();
    }
    assert_eq!(drain(&mut ports), ["idle"]);
    lanes[0].send(watermark(10)).unwrap();
    assert_eq!(drain(&mut ports), ["active"]);
}

#[test]
fn the_end_of_work_is_aligned_and_resets_the_watermark() {
    let (mut ports, mut lanes) = ports(&[1, 1]);
    for lane in &mut lanes {
        lane.send(watermark(100)).unwrap();
    }
    assert_eq!(drain(&mut ports), ["watermark 100"]);
    lanes[0].send(END_OF_WORK).unwrap();
    lanes[0].send(chunk()).unwrap();
    lanes[0].send(watermark(7)).unwrap();
    assert!(drain(&mut ports).is_empty(), "the next unit waits");
    lanes[1].send(chunk()).unwrap();
    assert_eq!(drain(&mut ports), ["chunk 1"]);
    lanes[1].send(END_OF_WORK).unwrap();
    assert_eq!(drain(&mut ports), ["end of work", "chunk 0"]);
    lanes[1].send(watermark(8)).unwrap();
    assert_eq!(drain(&mut ports), ["watermark 7"]);
    // A lane without a further unit must not hold the last unit of the other open.
    lanes[0].send(end(false)).unwrap();
    lanes[1].send(END_OF_WORK).unwrap();
    assert_eq!(drain(&mut ports), ["watermark 8", "end of work"]);
    lanes[1].send(end(false)).unwrap();
    assert_eq!(drain(&mut ports), ["end false"]);
}

#[test]
fn regression_an_idle_unit_of_work_after_an_idle_one_is_reported() {
    let (mut ports, mut lanes) = ports(&[1]);
    for _ in 0..2 {
        lanes[0].send(Message::Idle).unwrap();
        lanes[0].send(END_OF_WORK).unwrap();
        assert_eq!(drain(&mut ports), ["idle", "end of work"]);
    }
}

#[test]
fn the_end_is_reported_once() {
    let (mut ports, mut lanes) = ports(&[1, 1]);
    lanes[0].send(chunk()).unwrap();
    lanes[0].send(end(false)).unwrap();
    assert_eq!(drain(&mut ports), ["chunk 0"]);
    lanes[1].send(end(false)).unwrap();
    assert_eq!(drain(&mut ports), ["end false"]);
    drop(lanes);
    assert!(drain(&mut ports).is_empty());
}

#[test]
fn a_stopped_lane_stops_the_watermark_where_it_is() {
    let (mut ports, mut lanes) = ports(&[2]);
    for lane in &mut lanes {
        lane.send(watermark(1)).unwrap();
    }
    assert_eq!(drain(&mut ports), ["watermark 1"]);
    lanes[0].send(end(true)).unwrap();
    lanes[1].send(watermark(2)).unwrap();
    lanes[1].send(chunk()).unwrap();
    assert_eq!(drain(&mut ports), ["chunk 0"], "rows still come through");
    lanes[1].send(end(false)).unwrap();
    assert_eq!(drain(&mut ports), ["end true"]);
}

#[test]
fn regression_a_stop_closes_what_all_lanes_have_reached() {
    // Otherwise timing would decide which windows of one result are still emitted.
    let (mut ports, mut lanes) = ports(&[2]);
    lanes[0].send(watermark(9)).unwrap();
    lanes[0].send(end(true)).unwrap();
    lanes[1].send(watermark(5)).unwrap();
    assert_eq!(drain(&mut ports), ["watermark 5"]);
    lanes[1].send(watermark(20)).unwrap();
    lanes[1].send(end(true)).unwrap();
    assert_eq!(drain(&mut ports), ["watermark 9", "end true"]);
}

#[test]
fn regression_a_stop_in_the_middle_of_a_unit_of_work_does_not_end_the_unit() {
    for stopped_first in [false, true] {
        let (mut ports, mut lanes) = ports(&[2]);
        let (held, stopped) = (0, 1);
        lanes[held].send(END_OF_WORK).unwrap();
        lanes[held].send(chunk()).unwrap();
        if !stopped_first {
            assert!(drain(&mut ports).is_empty());
        }
        lanes[stopped].send(end(true)).unwrap();
        assert_eq!(drain(&mut ports), ["end true"]);
    }
}

#[test]
fn regression_a_sender_that_goes_without_an_end_is_a_loss() {
    let (mut ports, mut lanes) = ports(&[2]);
    let mut gone = lanes.pop().unwrap();
    gone.send(chunk()).unwrap();
    drop(gone);
    assert_eq!(drain(&mut ports), ["chunk 0", "lost"]);
    lanes[0].send(end(false)).unwrap();
    assert!(drain(&mut ports).is_empty());
}

#[test]
fn a_lane_is_not_read_after_a_barrier_until_all_lanes_have_reached_it() {
    let (mut ports, mut lanes) = ports(&[1, 2]);
    lanes[0].send(barrier(1)).unwrap();
    lanes[0].send(watermark(50)).unwrap();
    lanes[0].send(chunk()).unwrap();
    lanes[1].send(watermark(20)).unwrap();
    lanes[1].send(chunk()).unwrap();
    lanes[1].send(barrier(1)).unwrap();
    assert_eq!(drain(&mut ports), ["chunk 1"]);
    lanes[2].send(chunk()).unwrap();
    lanes[2].send(watermark(30)).unwrap();
    assert_eq!(drain(&mut ports), ["chunk 1"]);
    lanes[2].send(barrier(1)).unwrap();
    assert_eq!(drain(&mut ports), ["barrier 1", "watermark 20", "chunk 0"]);
}

#[test]
fn a_lane_that_ends_before_a_barrier_is_not_waited_for() {
    for stopped in [false, true] {
        let (mut ports, mut lanes) = ports(&[2]);
        lanes[0].send(barrier(1)).unwrap();
        lanes[0].send(chunk()).unwrap();
        assert!(drain(&mut ports).is_empty());
        lanes[1].send(end(stopped)).unwrap();
        assert_eq!(drain(&mut ports), ["barrier 1", "chunk 0"]);
        lanes[0].send(end(stopped)).unwrap();
        assert_eq!(drain(&mut ports), [format!("end {stopped}")]);
    }
}

#[test]
fn regression_an_idle_lane_of_an_active_source_holds_the_watermark_back() {
    let (mut ports, mut lanes) = ports_of(&[2], true);
    for lane in &mut lanes {
        lane.send(watermark(10)).unwrap();
        lane.send(Message::Idle).unwrap();
    }
    assert_eq!(drain(&mut ports), ["watermark 10", "idle"]);
    // The rows are on their way through the other instance.
    lanes[1].send(watermark(30)).unwrap();
    lanes[1].send(Message::Idle).unwrap();
    lanes[0].send(chunk()).unwrap();
    lanes[0].send(watermark(30)).unwrap();
    let said = drain(&mut ports);
    let place = |what: &str| said.iter().position(|said| said == what);
    assert!(place("chunk 0") < place("watermark 30"), "{said:?}");
    lanes[0].send(Message::Idle).unwrap();
    assert_eq!(drain(&mut ports), ["idle"]);
}

/// A stream with two lanes, and a table with two that comes first.
fn with_a_table() -> (Ports, Vec<Sender<Message>>) {
    let waiter = Waiter::new().unwrap();
    let mut senders = Vec::new();
    let ports = [false, true].map(|first| Port {
        links: (0..2)
            .map(|_| {
                let (sender, receiver) = channel(64, waiter.waker(), waiter.waker());
                senders.push(sender);
                (LinkReceiver::Local(receiver), None)
            })
            .collect(),
        acknowledges: false,
        in_step: false,
        first,
    });
    (Ports::new(ports.into()), senders)
}

#[test]
fn a_table_is_read_to_its_end_before_the_stream() {
    let (mut ports, mut lanes) = with_a_table();
    lanes[0].send(chunk()).unwrap();
    lanes[0].send(watermark(9)).unwrap();
    lanes[1].send(barrier(1)).unwrap();
    assert!(drain(&mut ports).is_empty());
    for message in [chunk(), watermark(3), barrier(1), Message::Idle] {
        lanes[2].send(message).unwrap();
    }
    lanes[2].send(END_OF_WORK).unwrap();
    lanes[2].send(chunk()).unwrap();
    lanes[2].send(end(false)).unwrap();
    assert_eq!(drain(&mut ports), ["chunk 1", "chunk 1"]);
    lanes[3].send(chunk()).unwrap();
    assert_eq!(drain(&mut ports), ["chunk 1"], "a lane has not ended");
    lanes[3].send(end(false)).unwrap();
    assert_eq!(drain(&mut ports), ["chunk 0"]);
    // The table doesn't count in watermarks, barriers and ends.
    lanes[0].send(barrier(1)).unwrap();
    lanes[1].send(watermark(12)).unwrap();
    assert_eq!(drain(&mut ports), ["barrier 1", "watermark 9"]);
    lanes[0].send(end(false)).unwrap();
    lanes[1].send(end(false)).unwrap();
    assert_eq!(drain(&mut ports), ["watermark 12", "end false"]);
}

#[test]
fn an_incomplete_table_is_not_joined() {
    let (mut ports, mut lanes) = with_a_table();
    lanes[0].send(chunk()).unwrap();
    lanes[2].send(chunk()).unwrap();
    lanes[2].send(end(true)).unwrap();
    lanes[3].send(chunk()).unwrap();
    let said = drain(&mut ports);
    assert_eq!(said.last().unwrap(), "end true");
    assert!(!said.contains(&"chunk 0".to_string()), "{said:?}");
    let (mut ports, lanes) = with_a_table();
    drop(lanes);
    assert_eq!(drain(&mut ports), ["lost"]);
}
