//! What is left of partitions that have ended: connections, units of work.

use super::*;

#[test]
fn of_ended_connections_only_the_watermark_and_the_counts_are_kept() {
    let spec = IntakeSpec {
        forgets_ended: true,
        ..spec()
    };
    let mut says = vec![];
    for peer in 0..1_000 {
        says.push(started(peer));
        says.push(times(peer, 1, &[100 + i64::from(peer)]));
        says.push(SourcePoll::ConnectionLost);
        says.push(SourcePoll::PartitionEnded { partition: peer });
    }
    // The largest watermark counts, though another partition was forgotten last.
    says.extend([started(1_000), SourcePoll::Pending]);
    let (mut intake, _) = intake(spec, 0, says);
    drain(&mut intake);
    assert_eq!(intake.partitions.len(), 1);
    assert_eq!(intake.partitions[&1_000].floor, 1_094_000);
    assert_eq!(intake.take_counts().unwrap().connections_lost, 1_000);
    assert_eq!(intake.partition_states().len(), 1);
    let seen = intake.examine();
    let rows = seen.iter().map(|seen| (seen.partition, seen.counted.rows));
    // One of the rows is bad.
    assert_eq!(rows.collect::<Vec<_>>(), [(Some(1_000), 0), (None, 999)]);
}

#[test]
fn a_unit_of_work_starts_from_nothing_and_is_not_held_back_by_the_next() {
    let spec = IntakeSpec {
        unit_per_partition: true,
        ..spec()
    };
    let ended = |partition| SourcePoll::PartitionEnded { partition };
    let says = vec![
        times(0, 1, &[100]),
        ended(0),
        SourcePoll::EndOfWork,
        SourcePoll::Pending,
        times(1, 1, &[20, 30]),
        ended(1),
        SourcePoll::EndOfWork,
        SourcePoll::End,
    ];
    let (mut intake, _) = intake(spec, 2, says);
    let mut inputs = drain(&mut intake);
    inputs.extend(drain(&mut intake));
    assert_eq!(late(&inputs), []);
    let seen = intake.examine();
    assert_eq!((seen.len(), seen[0].counted.rows), (1, 3));
    assert_eq!(seen[0].state, State::Ended);
    let expected = [
        "watermark 95",
        "end of work",
        "watermark 25",
        "end of work",
        "end false",
    ];
    assert_eq!(control(&inputs), expected);
}
