//! Tests of the intake over a scripted source: lateness (I2), bad rows, idleness, units of work.

use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, TimestampMillisecondArray, cast::AsArray};
use arrow_schema::{DataType, TimeUnit};
use proptest::prelude::*;

use super::*;
use crate::chunk::Positions;
use crate::error::Error;
use crate::expression::Column;
use crate::operator::window::{EVENT_TIME_MAX_US, timestamp_ticks};
use crate::source::Rejected;
use crate::testing::{Letters, batch, schema};

/// A source that returns what it was given, one after the other, then nothing.
struct Script {
    partitions: Vec<(u32, String)>,
    says: VecDeque<SourcePoll>,
}

impl Source for Script {
    fn open(&mut self, _: &mut Waiter) -> Result<Vec<(u32, String)>> {
        Ok(self.partitions.clone())
    }
    fn poll(&mut self) -> Result<SourcePoll> {
        Ok(self.says.pop_front().unwrap_or(SourcePoll::Pending))
    }
    fn close(&mut self) {}
}

/// An expression that returns a column unchanged, except that values of 666 fail.
#[derive(Debug)]
struct Fallible;

impl Expression for Fallible {
    fn evaluate(&self, batch: &arrow_array::RecordBatch) -> Result<ArrayRef> {
        let column = arrow_cast::cast(batch.column(0), &DataType::Int64)?;
        if column.as_primitive::<Int64Type>().values().contains(&666) {
            return Err(Error::new("expression", "division by zero"));
        }
        Ok(batch.column(0).clone())
    }
    fn data_type(&self) -> DataType {
        MS
    }
}

const MS: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);
const DELAY_MS: i64 = 5;
/// The number added to partition numbers.
const BASE: u32 = 100;

fn spec() -> IntakeSpec {
    IntakeSpec {
        columns: vec![Arc::new(Fallible)],
        schema: schema(&[("ts", MS)]),
        event_time: Some(EventTimeSpec {
            column: 0,
            delay_us: DELAY_MS * 1000,
            marks_at_watermark: false,
        }),
        partition_base: BASE,
        idle_timeout_ns: None,
        unit_per_partition: false,
        forgets_ended: false,
        judged: Vec::new(),
    }
}

fn intake(spec: IntakeSpec, partitions: u32, says: Vec<SourcePoll>) -> (Intake, Arc<Letters>) {
    let script = Script {
        partitions: (0..partitions)
            .map(|p| (p, format!("partition {p}")))
            .collect(),
        says: says.into(),
    };
    let letters = Arc::new(Letters::default());
    let mut intake = Intake::new(Box::new(script), spec, letters.clone());
    intake.open(&mut Waiter::new().unwrap()).unwrap();
    (intake, letters)
}

fn rows(partition: u32, first: u64, times_ms: Vec<Option<i64>>) -> SourcePoll {
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(times_ms));
    SourcePoll::Rows(SourceRows {
        batch: batch(vec![("ts", times)]),
        partition,
        positions: Positions::Run { first },
        // Far ahead, so that only silent partitions are idle.
        ingest_ns: now_ns() + 1_000_000_000_000,
        rejected: Vec::new(),
    })
}

fn times(partition: u32, first: u64, times_ms: &[i64]) -> SourcePoll {
    rows(
        partition,
        first,
        times_ms.iter().copied().map(Some).collect(),
    )
}

/// The inputs until the intake waits or ends.
fn drain(intake: &mut Intake) -> Vec<Input> {
    let mut inputs = Vec::new();
    loop {
        match intake.next_input().unwrap() {
            Ok(input) => inputs.push(input),
            Err(Waiting::Until(0)) => {}
            Err(_) => return inputs,
        }
    }
}

/// The rows that are late for their tumbling window of 10 ms: partition and position.
fn late(inputs: &[Input]) -> Vec<(u32, u64)> {
    let mut late = Vec::new();
    for input in inputs {
        let Input::Chunk { chunk, .. } = input else {
            continue;
        };
        let origin = chunk.origin.as_ref().unwrap();
        let times = timestamp_ticks(chunk.batch.column(0)).unwrap();
        for (row, time) in times.iter().enumerate() {
            let end = time - time.rem_euclid(10) + 10;
            if end * 1000 <= origin.watermark(row) {
                late.push((origin.partitions.at(row) - BASE, origin.positions.at(row)));
            }
        }
    }
    late
}

/// Everything but the chunks, in short form; times in milliseconds.
fn control(inputs: &[Input]) -> Vec<String> {
    let said = inputs.iter().filter_map(|input| match input {
        Input::Chunk { .. } => None,
        Input::Watermark { time, .. } => Some(format!("watermark {}", *time as f64 / 1000.0)),
        Input::Idle => Some("idle".to_string()),
        Input::Active => Some("active".to_string()),
        Input::EndOfWork { .. } => Some("end of work".to_string()),
        Input::End { stopped, .. } => Some(format!("end {stopped}")),
        Input::Barrier(_) => Some("barrier".to_string()),
        Input::Lost => Some("lost".to_string()),
    });
    said.collect()
}

#[test]
fn a_row_is_late_by_the_largest_time_before_it() {
    // Own watermarks: none, -5, 15, 15, 15, 15, 15, 20.
    let disorder = [0, 20, 3, 14, 15, 9, 25, 10];
    let (mut intake, _) = intake(spec(), 1, vec![times(0, 1, &disorder)]);
    let inputs = drain(&mut intake);
    // 10 is late: its window ends at 20, which the watermark had just reached.
    assert_eq!(late(&inputs), [(0, 3), (0, 6), (0, 8)]);
    assert_eq!(control(&inputs), ["watermark 20"]);
    let Input::Chunk { chunk, .. } = &inputs[0] else {
        panic!("rows come before the watermark that they move")
    };
    let origin = chunk.origin.as_ref().unwrap();
    let own = (0..8).map(|row| origin.watermark(row)).collect::<Vec<_>>();
    let expected = [
        MIN_WATERMARK,
        -5000,
        15_000,
        15_000,
        15_000,
        15_000,
        15_000,
        20_000,
    ];
    assert_eq!(own, expected);
}

#[test]
fn a_chunk_without_rows_before_their_watermark_carries_no_watermarks() {
    let (mut intake, _) = intake(spec(), 1, vec![times(0, 1, &[0, 20, 15, 30])]);
    let Input::Chunk { chunk, .. } = &drain(&mut intake)[0] else {
        panic!("a chunk comes first")
    };
    assert!(chunk.origin.as_ref().unwrap().watermarks.is_none());
}

/// The event times of each partition.
fn disorder() -> impl Strategy<Value = Vec<Vec<i64>>> {
    let partition = prop::collection::vec(-10i64..10, 0..40);
    let partition = partition.prop_map(|jumps| {
        let times = jumps
            .iter()
            .enumerate()
            .map(|(row, jump)| 2 * row as i64 + jump);
        times.collect::<Vec<_>>()
    });
    prop::collection::vec(partition, 1..4)
}

/// Cuts partitions into chunks and interleaves those; `order` chooses whose turn it is.
fn mixed(partitions: &[Vec<i64>], chunk_rows: &[usize], order: &[usize]) -> Vec<SourcePoll> {
    let mut next = vec![0; partitions.len()];
    let mut says = Vec::new();
    for turn in 0.. {
        let left = |partition: &usize| next[*partition] < partitions[*partition].len();
        let open = (0..partitions.len()).filter(left).collect::<Vec<_>>();
        if open.is_empty() {
            break;
        }
        let partition = open[order[turn % order.len()] % open.len()];
        let from = next[partition];
        let to = (from + chunk_rows[turn % chunk_rows.len()]).min(partitions[partition].len());
        let part = &partitions[partition][from..to];
        says.push(times(partition as u32, from as u64, part));
        next[partition] = to;
    }
    says
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn lateness_does_not_depend_on_chunks_or_on_other_partitions(
        partitions in disorder(),
        chunk_rows in prop::collection::vec(1usize..20, 1..5),
        order in prop::collection::vec(0usize..3, 1..7),
    ) {
        let says = mixed(&partitions, &chunk_rows, &order);
        let (mut intake, _) = intake(spec(), partitions.len() as u32, says);
        let inputs = drain(&mut intake);
        let mut found = late(&inputs);
        found.sort();
        let mut expected = Vec::new();
        for (partition, times) in partitions.iter().enumerate() {
            for (row, time) in times.iter().enumerate() {
                let largest = times[..row].iter().max();
                let end = time - time.rem_euclid(10) + 10;
                if largest.is_some_and(|largest| end <= largest - DELAY_MS) {
                    expected.push((partition as u32, row as u64));
                }
            }
        }
        prop_assert_eq!(found, expected);
        // The watermark ends at the minimum over the partitions, and never went back.
        let moves = inputs.iter().filter_map(|input| match input {
            Input::Watermark { time, .. } => Some(*time),
            _ => None,
        });
        let moves = moves.collect::<Vec<_>>();
        prop_assert!(moves.is_sorted_by(|one, next| one < next));
        let largest = partitions.iter().map(|times| times.iter().max());
        let least = largest.collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().min());
        prop_assert_eq!(moves.last().copied(), least.map(|time| (time - DELAY_MS) * 1000));
    }
}

#[test]
fn rows_without_a_valid_event_time_are_rejected_and_move_no_watermark() {
    let far = EVENT_TIME_MAX_US / 1000 + 1;
    let says = vec![
        rows(
            0,
            1,
            vec![
                Some(10),
                None,
                Some(far),
                Some(-far),
                Some(3),
                Some(i64::MAX),
            ],
        ),
        rows(0, 7, vec![None]),
    ];
    let (mut intake, letters) = intake(spec(), 1, says);
    let inputs = drain(&mut intake);
    assert_eq!(control(&inputs), ["watermark 5"]);
    let Input::Chunk { chunk, .. } = &inputs[0] else {
        panic!("a chunk comes first")
    };
    assert_eq!(chunk.rows(), 2);
    assert_eq!(chunk.origin.as_ref().unwrap().positions.at(1), 5);
    let letters = letters.0.lock().unwrap();
    let refused = letters
        .iter()
        .map(|l| (l.position.unwrap(), l.reason.as_str()));
    assert_eq!(
        refused.collect::<Vec<_>>(),
        [
            (2, "event time ts is NULL"),
            (3, "event time ts is out of range"),
            (4, "event time ts is out of range"),
            (6, "event time ts is out of range"),
            (7, "event time ts is NULL"),
        ]
    );
    assert!(letters.iter().all(|l| l.partition == Some(BASE)));
    let counts = intake.take_counts().unwrap();
    assert_eq!((counts.rows_in, counts.rows_bad), (7, 5));
    assert!(intake.take_counts().is_none());
}

#[test]
fn bad_records_and_failing_expressions_are_counted_and_kept() {
    let SourcePoll::Rows(mut with_bad) = times(2, 1, &[10, 666, 20]) else {
        unreachable!()
    };
    with_bad.rejected.push(Rejected {
        partition: None,
        position: Some(9),
        reason: "3 fields instead of 1".to_string(),
        record: "a,b,c".to_string(),
    });
    let (mut intake, letters) = intake(spec(), 3, vec![SourcePoll::Rows(with_bad)]);
    let Input::Chunk { chunk, .. } = &drain(&mut intake)[0] else {
        panic!("a chunk comes first")
    };
    assert_eq!(
        (chunk.rows(), chunk.origin.as_ref().unwrap().positions.at(1)),
        (2, 3)
    );
    let letters = letters.0.lock().unwrap();
    let places = letters.iter().map(|l| (l.partition, l.position));
    let place = |position| (Some(BASE + 2), Some(position));
    assert_eq!(places.collect::<Vec<_>>(), [place(9), place(2)]);
    assert!(letters[1].reason.contains("division by zero"));
    let counts = intake.take_counts().unwrap();
    assert_eq!((counts.rows_in, counts.rows_bad), (4, 2));
}

#[test]
fn a_partition_that_was_idle_resumes_at_the_watermark_of_the_source() {
    let spec = IntakeSpec {
        idle_timeout_ns: Some(1_000_000),
        ..spec()
    };
    let (mut intake, _) = intake(spec, 2, vec![times(0, 1, &[100])]);
    // Once the silent partition is idle, it holds nothing back.
    let mut inputs = drain(&mut intake);
    std::thread::sleep(std::time::Duration::from_millis(3));
    inputs.extend(drain(&mut intake));
    assert_eq!(control(&inputs), ["watermark 95"]);
    intake.source = Box::new(Script {
        partitions: vec![],
        says: [times(1, 1, &[50, 95, 200, 130]), times(0, 2, &[150])].into(),
    });
    let inputs = drain(&mut intake);
    // 50 is behind the source's watermark of 95, 130 behind its own partition's of 195.
    assert_eq!(late(&inputs), [(1, 1), (1, 4)]);
    assert_eq!(control(&inputs), ["watermark 145"]);
}

#[test]
fn idleness_of_all_partitions_is_reported_once() {
    let spec = IntakeSpec {
        idle_timeout_ns: Some(20_000_000),
        ..spec()
    };
    let (mut intake, _) = intake(spec, 1, vec![]);
    let Err(Waiting::ForSource(Some(until_ns))) = intake.next_input().unwrap() else {
        panic!("the next idleness is a time to wake up at")
    };
    assert!(until_ns > now_ns() && until_ns < now_ns() + 20_000_000);
    std::thread::sleep(std::time::Duration::from_millis(25));
    assert_eq!(control(&drain(&mut intake)), ["idle"]);
    // Nothing is left to wait for.
    assert!(matches!(
        intake.next_input().unwrap(),
        Err(Waiting::ForSource(None))
    ));
}

#[test]
fn a_partition_that_appears_starts_at_the_watermark_and_an_ended_one_holds_nothing_back() {
    let started = SourcePoll::PartitionStarted {
        partition: 7,
        name: "late comer".to_string(),
    };
    let says = vec![
        times(0, 1, &[100]),
        started,
        times(7, 1, &[80, 96, 300]),
        times(0, 2, &[120]),
        SourcePoll::PartitionEnded { partition: 0 },
        SourcePoll::End,
    ];
    let (mut intake, _) = intake(spec(), 1, says);
    let inputs = drain(&mut intake);
    assert_eq!(late(&inputs), [(7, 1)]);
    let expected = [
        "watermark 95",
        "watermark 115",
        "watermark 295",
        "end false",
    ];
    assert_eq!(control(&inputs), expected);
    assert!(
        matches!(intake.next_input().unwrap(), Err(Waiting::ForSource(None))),
        "said once"
    );
}

#[test]
fn regression_if_all_partitions_are_silent_the_largest_watermark_counts() {
    for order in [[0, 1], [1, 0]] {
        let ended = |partition| SourcePoll::PartitionEnded { partition };
        let says = vec![
            times(0, 1, &[100]),
            times(1, 1, &[200]),
            ended(order[0]),
            ended(order[1]),
        ];
        let (mut intake, _) = intake(spec(), 2, says);
        let control = control(&drain(&mut intake));
        assert_eq!(control, ["watermark 95", "watermark 195", "idle"]);
    }
}

#[test]
fn regression_a_source_without_an_open_partition_holds_nobody_back() {
    // A listening socket that nobody has connected to, and one whose peers have all gone.
    let (mut listening, _) = intake(spec(), 0, vec![SourcePoll::Pending, SourcePoll::Pending]);
    assert_eq!(control(&drain(&mut listening)), ["idle"]);
    assert_eq!(control(&drain(&mut listening)), Vec::<String>::new());
    let says = vec![
        times(0, 1, &[100]),
        SourcePoll::PartitionEnded { partition: 0 },
    ];
    let (mut gone, _) = intake(spec(), 1, says);
    assert_eq!(control(&drain(&mut gone)), ["watermark 95", "idle"]);
}

fn started(partition: u32) -> SourcePoll {
    SourcePoll::PartitionStarted {
        partition,
        name: format!("peer {partition}"),
    }
}

#[test]
fn regression_a_connected_peer_that_is_silent_holds_the_others_back() {
    let (mut listening, _) = intake(spec(), 0, vec![SourcePoll::Pending]);
    assert_eq!(control(&drain(&mut listening)), ["idle"]);
    // Before its first row the source has no watermark.
    listening.source = Box::new(Script {
        partitions: vec![],
        says: [started(0), SourcePoll::Pending].into(),
    });
    assert_eq!(control(&drain(&mut listening)), ["active"]);
    assert_eq!(control(&drain(&mut listening)), Vec::<String>::new());
    // The partition ends without a row, and the next one behaves as it did.
    let ended = |partition| SourcePoll::PartitionEnded { partition };
    listening.source = Box::new(Script {
        partitions: vec![],
        says: [
            ended(0),
            SourcePoll::Pending,
            started(1),
            times(1, 1, &[100]),
            started(2),
            ended(1),
        ]
        .into(),
    });
    let mut said = drain(&mut listening);
    said.extend(drain(&mut listening));
    assert_eq!(control(&said), ["idle", "active", "watermark 95"]);
}

#[test]
fn regression_the_end_of_a_silence_is_reported_before_its_first_row() {
    // The row moves no watermark, and where rows are routed by key only one receiver gets it.
    let spec = IntakeSpec {
        idle_timeout_ns: Some(1),
        ..spec()
    };
    let (mut intake, _) = intake(spec, 1, vec![times(0, 1, &[100])]);
    intake.partitions.get_mut(&0).unwrap().last_row_ns = 0;
    drain(&mut intake);
    intake.partitions.get_mut(&0).unwrap().last_row_ns = 0;
    assert_eq!(control(&drain(&mut intake)), ["idle"]);
    intake.source = Box::new(Script {
        partitions: vec![],
        says: [times(0, 2, &[96])].into(),
    });
    let inputs = drain(&mut intake);
    assert!(matches!(inputs[0], Input::Active), "{:?}", control(&inputs));
    assert!(matches!(inputs[1], Input::Chunk { .. }));
}

#[test]
fn a_stopped_intake_hands_on_its_rows_and_stops_reading() {
    let (mut intake, _) = intake(spec(), 1, vec![times(0, 1, &[10]), times(0, 2, &[20])]);
    assert!(matches!(
        intake.next_input().unwrap(),
        Ok(Input::Chunk { .. })
    ));
    intake.stop();
    assert_eq!(control(&drain(&mut intake)), ["watermark 5", "end true"]);
}

#[test]
fn a_table_without_event_time_has_no_watermarks() {
    let spec = IntakeSpec {
        columns: vec![Arc::new(Column::new(0, MS))],
        event_time: None,
        ..spec()
    };
    let (mut intake, letters) = intake(
        spec,
        1,
        vec![rows(0, 1, vec![None, Some(3)]), SourcePoll::End],
    );
    let inputs = drain(&mut intake);
    assert_eq!(
        (inputs.len(), control(&inputs)),
        (2, vec!["end false".to_string()])
    );
    assert!(letters.0.lock().unwrap().is_empty());
}

/// Between the two, a join of this source with one that is further ahead would take its watermark from
/// the other one alone, and the windows that this source still emits would be late.
#[test]
fn regression_a_source_that_ends_does_not_fall_silent_before() {
    let ended = |partition| SourcePoll::PartitionEnded { partition };
    let says = vec![times(0, 1, &[100]), ended(0), SourcePoll::End];
    let (mut one, _) = intake(spec(), 1, says);
    assert_eq!(control(&drain(&mut one)), ["watermark 95", "end false"]);
    // A source that waits for its next partition is silent.
    let says = vec![
        times(0, 1, &[100]),
        ended(0),
        SourcePoll::Pending,
        SourcePoll::End,
    ];
    let (mut waiting, _) = intake(spec(), 1, says);
    let mut said = Vec::new();
    for _ in 0..2 {
        said.extend(drain(&mut waiting));
    }
    assert_eq!(control(&said), ["watermark 95", "idle", "end false"]);
}

/// The partition, position and own watermark of each row in the inputs.
fn with_watermarks(inputs: &[Input]) -> Vec<(u32, u64, EventTime)> {
    let mut found = Vec::new();
    for input in inputs {
        if let Input::Chunk { chunk, .. } = input {
            let origin = chunk.origin.as_ref().unwrap();
            for row in 0..chunk.rows() {
                let watermark = origin.watermark(row);
                found.push((
                    origin.partitions.at(row),
                    origin.positions.at(row),
                    watermark,
                ));
            }
        }
    }
    found
}

proptest! {
    /// A source that resumes from a checkpoint but is read again from its beginning hands on only what
    /// had not been read, and rows are late by the same watermarks.
    #[test]
    fn resuming_gives_the_same_rows_and_watermarks(
        parts in prop::collection::vec((0u32..3, prop::collection::vec(0i64..100, 1..6)), 1..12),
        cut in 0usize..30,
    ) {
        let script = || {
            let mut next = [0u64; 3];
            let says = parts.iter().map(|(partition, event_times)| {
                let first = next[*partition as usize];
                next[*partition as usize] += event_times.len() as u64;
                times(*partition, first, event_times)
            });
            says.collect::<Vec<SourcePoll>>()
        };
        let (mut whole, _) = intake(spec(), 3, script());
        let expected = with_watermarks(&drain(&mut whole));
        let (mut before, _) = intake(spec(), 3, script());
        let mut inputs = Vec::new();
        for _ in 0..cut {
            if let Ok(Ok(input)) = before.next_input().map_err(|_| ()) {
                inputs.push(input);
            }
        }
        let states = before.partition_states();
        let script = Script {
            partitions: (0..3).map(|p| (p, format!("partition {p}"))).collect(),
            says: script().into(),
        };
        let mut after = Intake::new(Box::new(script), spec(), Arc::new(Letters::default()));
        after.resume(states);
        after.open(&mut Waiter::new().unwrap()).unwrap();
        inputs.extend(drain(&mut after));
        let mut found = with_watermarks(&inputs);
        // A row that is not earlier than its own watermark need not carry it.
        let late = |rows: &[(u32, u64, EventTime)]| {
            let rows = rows.iter().map(|&(partition, position, _)| (partition, position));
            rows.collect::<Vec<_>>()
        };
        let mut all = expected.clone();
        found.sort_unstable();
        all.sort_unstable();
        prop_assert_eq!(late(&found), late(&all));
        prop_assert_eq!(whole.watermark(), after.watermark().max(before.watermark()));
    }
}

#[test]
fn suspect_rows_are_processed_one_by_one_and_a_single_one_is_rejected() {
    let memory = rustix::fs::memfd_create("notes", rustix::fs::MemfdFlags::CLOEXEC);
    let recorder = Recorder::new(memory.unwrap().into());
    let says = || vec![times(0, 0, &[1, 2, 3]), times(0, 3, &[4, 5, 6, 7])];
    let suspect = |first, last| Suspect {
        partition: 0,
        first,
        last,
    };
    let positions = |suspects: Vec<Suspect>| {
        let (mut intake, letters) = intake(spec(), 1, says());
        intake.watch_out(Some(recorder.clone()), 4, suspects);
        let mut chunks = Vec::new();
        loop {
            match intake.next_input().unwrap() {
                Ok(Input::Chunk { chunk, .. }) => {
                    let origin = chunk.origin.unwrap();
                    let (first, rows) = (origin.positions.at(0), chunk.batch.num_rows() as u64);
                    chunks.push((first, rows));
                    // The rows are being processed until the next input is asked for.
                    let last = first + rows - 1;
                    assert_eq!(recorder.read(), [(4, suspect(first, last))]);
                }
                Ok(_) | Err(Waiting::Until(0)) => {}
                Err(_) => break,
            }
        }
        assert_eq!(recorder.read(), [], "nothing is worked on");
        let refused = letters.0.lock().unwrap();
        let reasons = refused.iter().map(|refused| refused.reason.clone());
        (chunks, reasons.collect::<Vec<String>>())
    };
    assert_eq!(positions(vec![]), (vec![(0, 3), (3, 4)], vec![]));
    let (chunks, refused) = positions(vec![suspect(2, 4)]);
    assert_eq!(chunks, [(0, 2), (2, 1), (3, 1), (4, 1), (5, 2)]);
    assert!(refused.is_empty());
    let (chunks, refused) = positions(vec![suspect(2, 4), suspect(4, 4)]);
    assert_eq!(chunks, [(0, 2), (2, 1), (3, 1), (5, 2)]);
    let [reason] = &refused[..] else {
        panic!("{refused:?}");
    };
    assert!(reason.contains("twice"), "{reason}");
}

mod counted;
mod past;
