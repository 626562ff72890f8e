use serde_json::{Value, json};

use super::*;
use crate::manifest::Meaning;
use crate::part::PartName;

const SECOND: u64 = 1_000_000_000;

fn identity(key: &str, kind: NodeKind) -> Identity {
    Identity {
        key: key.to_string(),
        kind,
        meaning: Meaning::State(Value::Null),
    }
}

/// One source, two instances of a sum, one sink: members 0, 1 and 2, 3.
fn plan() -> Plan {
    Plan {
        buckets: 4_096,
        nodes: vec![
            identity("events", NodeKind::Source),
            identity("sums", NodeKind::Stateful),
            identity("out", NodeKind::Sink),
        ],
        members: vec![(0, 0), (1, 0), (1, 1), (2, 0)],
        restored: Vec::new(),
    }
}

fn coordinator() -> Coordinator {
    Coordinator::new(Settings::default(), plan())
}

fn report(parts: usize) -> Report {
    Report {
        parts,
        memory: 1_000_000,
        ..Report::default()
    }
}

fn part(barrier: u64, since: Option<u64>, instance: u32, bytes: u64) -> Part {
    let name = PartName { epoch: 1, barrier };
    Part {
        instance,
        barrier,
        since,
        buckets: (0, 4_095),
        owners: None,
        watermark: None,
        object: name.object("sums", instance, 0),
        bytes,
        rows: 1,
        checksum: String::new(),
    }
}

fn done(barrier: u64, member: usize, report: Report) -> Input {
    Input::Done {
        barrier,
        member,
        report,
    }
}

fn stored(barrier: u64, member: usize, part: Part) -> Input {
    Input::PartStored {
        barrier,
        member,
        part,
    }
}

/// Every member answers a barrier; returns the outputs of the last answer.
fn answer(
    coordinator: &mut Coordinator,
    now_ns: u64,
    barrier: u64,
    since: Option<u64>,
    bytes: u64,
) -> Vec<Output> {
    assert_eq!(coordinator.handle(now_ns, done(barrier, 0, report(0))), []);
    for member in [1, 2] {
        assert_eq!(
            coordinator.handle(now_ns, done(barrier, member, report(1))),
            []
        );
    }
    let sink = Report {
        pending: vec![json!({"transaction": barrier})],
        ..Report::default()
    };
    assert_eq!(coordinator.handle(now_ns, done(barrier, 3, sink)), []);
    let first = stored(barrier, 1, part(barrier, since, 0, bytes));
    assert_eq!(coordinator.handle(now_ns, first), []);
    coordinator.handle(now_ns, stored(barrier, 2, part(barrier, since, 1, bytes)))
}

fn due(coordinator: &mut Coordinator) -> (u64, Vec<Output>) {
    let at = coordinator.next_ns().expect("something is due");
    (at, coordinator.handle(at, Input::Tick))
}

fn complete(coordinator: &mut Coordinator, bytes: u64) -> (u64, Option<u64>, Vec<usize>, Manifest) {
    let (at, outputs) = due(coordinator);
    let [
        Output::Inject {
            barrier,
            since,
            bases,
            stops: false,
        },
    ] = &outputs[..]
    else {
        panic!("{outputs:?}");
    };
    let (barrier, since, bases) = (*barrier, *since, bases.clone());
    let wanted = since.filter(|_| bases.is_empty());
    let outputs = answer(coordinator, at, barrier, wanted, bytes);
    let [Output::Store(manifest)] = &outputs[..] else {
        panic!("{outputs:?}");
    };
    let manifest = Manifest::clone(manifest);
    let outputs = coordinator.handle(at, Input::ManifestStored { barrier });
    assert_eq!(outputs, [Output::Commit { barrier }, Output::Sweep]);
    (barrier, since, bases, manifest)
}

#[test]
fn without_a_change_there_is_no_checkpoint_and_no_timer() {
    let mut coordinator = coordinator();
    assert_eq!(coordinator.next_ns(), None);
    assert_eq!(coordinator.handle(3_600 * SECOND, Input::Tick), []);
    assert_eq!(coordinator.handle(3_600 * SECOND, Input::Changed), []);
    assert_eq!(coordinator.next_ns(), Some(3_610 * SECOND));
    complete(&mut coordinator, 10);
    assert_eq!(coordinator.next_ns(), None);
    assert_eq!(coordinator.costs().stored, 1);
}

#[test]
fn a_checkpoint_follows_the_first_change_by_an_interval_and_the_last_by_half() {
    let mut coordinator = coordinator();
    coordinator.handle(0, Input::Changed);
    coordinator.handle(4 * SECOND, Input::Changed);
    let (at, outputs) = due(&mut coordinator);
    assert_eq!(at, 10 * SECOND);
    assert_eq!(outputs.len(), 1);
    // Rows arrive while the checkpoint is taken, which lasts for 9 seconds.
    coordinator.handle(10 * SECOND, Input::Changed);
    answer(&mut coordinator, 19 * SECOND, 1, None, 10);
    coordinator.handle(19 * SECOND, Input::ManifestStored { barrier: 1 });
    assert_eq!(coordinator.next_ns(), Some(24 * SECOND));
    assert_eq!(coordinator.costs().align_ns, 9 * SECOND);
}

#[test]
fn nothing_is_committed_before_the_manifest_is_stored_and_nothing_of_other_barriers_counts() {
    let mut coordinator = coordinator();
    coordinator.handle(0, Input::Changed);
    let (at, _) = due(&mut coordinator);
    let early = coordinator.handle(at, Input::ManifestStored { barrier: 1 });
    assert_eq!(early, [], "it was not passed to the store yet");
    assert_eq!(coordinator.handle(at, done(7, 0, report(0))), []);
    assert_eq!(
        coordinator.handle(at, stored(0, 1, part(0, None, 0, 1))),
        []
    );
    let outputs = answer(&mut coordinator, at, 1, None, 10);
    assert!(matches!(&outputs[..], [Output::Store(_)]), "{outputs:?}");
    let late = Input::ManifestStored { barrier: 2 };
    assert_eq!(coordinator.handle(at, late), []);
    let outputs = coordinator.handle(at, Input::ManifestStored { barrier: 1 });
    assert_eq!(outputs[0], Output::Commit { barrier: 1 });
    assert_eq!(
        coordinator.handle(at, Input::ManifestStored { barrier: 1 }),
        []
    );
}

#[test]
fn increments_follow_a_base_until_another_base_pays_off() {
    let mut coordinator = coordinator();
    let mut kinds = Vec::new();
    for _ in 0..8 {
        let now = coordinator.next_ns().unwrap_or(0);
        coordinator.handle(now, Input::Changed);
        let is_base = kinds.is_empty() || kinds.len() == 5;
        let bytes = if is_base { 1_000_000 } else { 240_000 };
        let (barrier, since, bases, manifest) = complete(&mut coordinator, bytes);
        assert_eq!(
            bases,
            if is_base { vec![1, 2] } else { vec![] },
            "{barrier}"
        );
        assert_eq!(since, (barrier > 1).then_some(barrier - 1));
        let parts = manifest.node("sums").unwrap().parts.len();
        kinds.push(parts);
        assert_eq!(manifest.check(), Ok(()));
    }
    assert_eq!(kinds, [2, 4, 6, 8, 10, 2, 4, 6]);
}

#[test]
fn instances_that_get_other_buckets_write_a_base() {
    let mut coordinator = coordinator();
    coordinator.handle(0, Input::Changed);
    complete(&mut coordinator, 1_000_000);
    let moved = Input::Moved {
        node: "sums".to_string(),
    };
    coordinator.handle(20 * SECOND, moved);
    coordinator.handle(20 * SECOND, Input::Changed);
    let (at, outputs) = due(&mut coordinator);
    let inject = |barrier| Output::Inject {
        barrier,
        since: Some(1),
        bases: vec![1, 2],
        stops: false,
    };
    assert_eq!(outputs, [inject(2)]);
    // Also if the first attempt fails.
    let reason = "disk full".to_string();
    coordinator.handle(at, Input::Failed { barrier: 2, reason });
    let (_, outputs) = due(&mut coordinator);
    assert_eq!(outputs, [inject(3)]);
}

#[test]
fn a_part_that_was_not_requested_is_refused() {
    let mut coordinator = coordinator();
    coordinator.handle(0, Input::Changed);
    let (at, _) = due(&mut coordinator);
    let outputs = coordinator.handle(at, stored(1, 1, part(1, Some(0), 0, 5)));
    let [
        Output::Abort {
            barrier: 1,
            reason: Some(reason),
        },
    ] = &outputs[..]
    else {
        panic!("{outputs:?}");
    };
    assert!(reason.contains("is not the part that was requested"));
}

#[test]
fn a_barrier_that_does_not_pass_is_retried_and_then_the_query_ends() {
    let mut coordinator = coordinator();
    coordinator.handle(0, Input::Changed);
    let mut waits = Vec::new();
    for barrier in 1.. {
        let (begun_ns, outputs) = due(&mut coordinator);
        assert!(
            matches!(outputs[..], [Output::Inject { .. }]),
            "{outputs:?}"
        );
        coordinator.handle(begun_ns, done(barrier, 0, report(0)));
        let mut outputs = Vec::new();
        let mut at = begun_ns;
        while outputs.is_empty() {
            (at, outputs) = due(&mut coordinator);
        }
        assert_eq!(at - begun_ns, 600 * SECOND);
        let Output::Abort {
            reason: Some(reason),
            ..
        } = &outputs[0]
        else {
            panic!("{outputs:?}");
        };
        let text = "the barrier did not pass 'sums' #0, 'sums' #1, 'out' #0 within 600.0 s";
        assert_eq!(reason, text);
        if let Some(Output::Stop { reason }) = outputs.get(1) {
            assert!(
                reason.starts_with("6 checkpoints in a row failed"),
                "{reason}"
            );
            break;
        }
        waits.push((coordinator.next_ns().unwrap() - at) / SECOND);
    }
    assert_eq!(waits, [1, 2, 4, 8, 10]);
    assert_eq!(coordinator.next_ns(), None);
    assert_eq!(coordinator.costs().aborted, 6);
}

#[test]
fn a_success_resets_the_count_of_failures() {
    let mut coordinator = coordinator();
    for _ in 0..20 {
        let now = coordinator.next_ns().unwrap_or(0);
        coordinator.handle(now, Input::Changed);
        let (at, _) = due(&mut coordinator);
        let barrier = coordinator.in_flight().unwrap();
        let reason = "the store is away".to_string();
        coordinator.handle(at, Input::Failed { barrier, reason });
        complete(&mut coordinator, 10);
    }
    assert_eq!(coordinator.costs().aborted, 20);
    assert_eq!(coordinator.costs().stored, 20);
}

#[test]
fn a_jump_of_the_clock_aborts_no_barrier() {
    let mut coordinator = coordinator();
    coordinator.handle(1 << 60, Input::Changed);
    let (at, _) = due(&mut coordinator);
    assert_eq!(coordinator.in_flight(), Some(1));
    for now in [at + 3_600 * SECOND, 5, at * 4, 0] {
        assert_eq!(coordinator.handle(now, Input::Tick), []);
    }
    assert_eq!(coordinator.in_flight(), Some(1));
}

#[test]
fn an_end_answers_later_barriers_and_not_earlier_ones() {
    let mut coordinator = coordinator();
    coordinator.handle(0, Input::Changed);
    let (at, _) = due(&mut coordinator);
    let at_position = |position| Report {
        partitions: vec![Partition {
            name: "a".to_string(),
            position,
            extra: None,
            counted: None,
            watermark: None,
            ended: position == 9,
        }],
        ..Report::default()
    };
    // The source answered the barrier before it ended; its answer comes later.
    let ended = Input::Ended {
        member: 0,
        last_barrier: 1,
        report: at_position(9),
    };
    coordinator.handle(at, ended);
    for member in 1..4 {
        assert_eq!(coordinator.handle(at, done(1, member, report(0))), []);
    }
    let outputs = coordinator.handle(at, done(1, 0, at_position(4)));
    let [Output::Store(manifest)] = &outputs[..] else {
        panic!("{outputs:?}");
    };
    assert_eq!(manifest.node("events").unwrap().partitions[0].position, 4);
    coordinator.handle(at, Input::ManifestStored { barrier: 1 });
    // No member is left that would send a barrier: the rest comes when all have ended.
    coordinator.handle(at, Input::Changed);
    let (_, outputs) = due(&mut coordinator);
    assert_eq!(outputs, []);
    assert_eq!(coordinator.next_ns(), None);
}

#[test]
fn the_last_checkpoint_is_committed_before_the_query_is_finished() {
    let mut coordinator = coordinator();
    let ended = |member, pending: Vec<serde_json::Value>| Input::Ended {
        member,
        last_barrier: 0,
        report: Report {
            pending,
            ..Report::default()
        },
    };
    for member in 0..3 {
        assert_eq!(coordinator.handle(0, ended(member, vec![])), []);
    }
    let outputs = coordinator.handle(0, ended(3, vec![json!("last")]));
    let [Output::Store(manifest)] = &outputs[..] else {
        panic!("{outputs:?}");
    };
    assert!(manifest.finished);
    assert_eq!(
        manifest.node("out").unwrap().pending[0].commit,
        json!("last")
    );
    let barrier = manifest.barrier;
    // It fails once, and is repeated.
    let reason = "the store is away".to_string();
    coordinator.handle(0, Input::Failed { barrier, reason });
    let (at, outputs) = due(&mut coordinator);
    assert!(matches!(&outputs[..], [Output::Store(again)] if again.finished));
    let barrier = barrier + 1;
    let outputs = coordinator.handle(at, Input::ManifestStored { barrier });
    assert_eq!(outputs, [Output::Commit { barrier }, Output::Sweep]);
    let outputs = coordinator.handle(at, Input::Committed { barrier, member: 3 });
    assert_eq!(outputs, [Output::Finished]);
}

/// The rows of a view stay readable, so they are in all checkpoints after its end.
#[test]
fn state_that_a_member_stores_at_its_end_is_in_all_later_checkpoints() {
    let mut coordinator = coordinator();
    let ended = |member, parts| Input::Ended {
        member,
        last_barrier: 0,
        report: report(parts),
    };
    let last = |member, instance| stored(1, member, part(1, None, instance, 10));
    for input in [ended(1, 1), ended(2, 1), last(1, 0)] {
        assert_eq!(coordinator.handle(0, input), []);
    }
    coordinator.handle(0, Input::Changed);
    let (at, outputs) = due(&mut coordinator);
    assert!(matches!(&outputs[..], [Output::Inject { barrier: 1, .. }]));
    for member in [0, 3] {
        let outputs = coordinator.handle(at, done(1, member, report(0)));
        assert_eq!(outputs, [], "a part is missing");
    }
    let outputs = coordinator.handle(at, last(2, 1));
    let [Output::Store(manifest)] = &outputs[..] else {
        panic!("{outputs:?}");
    };
    let parts = manifest.node("sums").unwrap().parts.clone();
    assert_eq!(parts, [part(1, None, 0, 10), part(1, None, 1, 10)]);
    coordinator.handle(at, Input::ManifestStored { barrier: 1 });
    let ended = |member| Input::Ended {
        member,
        last_barrier: 1,
        report: report(0),
    };
    assert_eq!(coordinator.handle(at, ended(0)), []);
    let outputs = coordinator.handle(at, ended(3));
    let [Output::Store(manifest)] = &outputs[..] else {
        panic!("{outputs:?}");
    };
    assert!(manifest.finished);
    assert_eq!(manifest.node("sums").unwrap().parts, parts);
}

#[test]
fn an_incarnation_that_is_lost_or_fenced_reports_nothing_more() {
    let lost = Input::Lost {
        reason: "killed".to_string(),
    };
    let fenced = Input::Fenced {
        reason: "by 9".to_string(),
    };
    for (input, count) in [(lost, 1), (fenced, 1)] {
        let mut coordinator = coordinator();
        coordinator.handle(0, Input::Changed);
        let (at, _) = due(&mut coordinator);
        assert_eq!(coordinator.handle(at, input).len(), count);
        assert_eq!(coordinator.next_ns(), None);
        assert_eq!(coordinator.handle(at, done(1, 0, report(0))), []);
    }
}

#[test]
fn missing_partitions_keep_their_positions() {
    let away = Partition {
        name: "b.csv".to_string(),
        position: 7,
        extra: None,
        counted: None,
        watermark: Some(3),
        ended: false,
    };
    let mut plan = plan();
    plan.restored.push((0, away.clone()));
    let mut coordinator = Coordinator::new(Settings::default(), plan);
    coordinator.handle(0, Input::Changed);
    let (.., manifest) = complete(&mut coordinator, 10);
    assert_eq!(manifest.node("events").unwrap().partitions, [away]);
}

mod relayed;
mod stop;
