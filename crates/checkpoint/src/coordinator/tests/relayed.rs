//! A standby stores what changes, and makes the bases.

use super::*;
use crate::chain::CHAIN_MAX;

fn relayed() -> Coordinator {
    let mut coordinator = coordinator();
    coordinator.set_relayed(true);
    coordinator
}

/// A base that a standby has made of checkpoint `stored` while `barrier` was in flight.
fn behind(stored: u64, barrier: u64, instance: u32, bytes: u64) -> Part {
    let name = PartName { epoch: 1, barrier };
    Part {
        object: name.object("sums", instance, 1_000),
        ..part(stored, None, instance, bytes)
    }
}

/// Sends the next barrier; returns its time, its number and the members that write a base.
fn inject(coordinator: &mut Coordinator) -> (u64, u64, Vec<usize>) {
    if coordinator.next_ns().is_none() {
        coordinator.handle(0, Input::Changed);
    }
    let (at, outputs) = due(coordinator);
    let [Output::Inject { barrier, bases, .. }] = &outputs[..] else {
        panic!("{outputs:?}");
    };
    (at, *barrier, bases.clone())
}

/// All members answer the barrier in flight, the standby with a base for member 1, of checkpoint `base`.
fn answer_with_base(
    coordinator: &mut Coordinator,
    at: u64,
    barrier: u64,
    base: u64,
    bytes: (u64, u64),
) -> Vec<Output> {
    let since = Some(barrier - 1);
    for (member, parts) in [(0, 0), (1, 2), (2, 1), (3, 0)] {
        let input = done(barrier, member, report(parts));
        assert_eq!(coordinator.handle(at, input), []);
    }
    let other = stored(barrier, 2, part(barrier, since, 1, bytes.1));
    assert_eq!(coordinator.handle(at, other), []);
    // The increment may come before its base, although it is read after it.
    let increment = stored(barrier, 1, part(barrier, since, 0, bytes.1));
    assert_eq!(coordinator.handle(at, increment), []);
    let base = stored(barrier, 1, behind(base, barrier, 0, bytes.0));
    coordinator.handle(at, base)
}

fn manifest_of(outputs: &[Output]) -> Manifest {
    let [Output::Store(manifest)] = outputs else {
        panic!("{outputs:?}");
    };
    assert_eq!(manifest.check(), Ok(()));
    Manifest::clone(manifest)
}

fn parts_of(manifest: &Manifest, instance: u32) -> Vec<Part> {
    let parts = manifest.node("sums").unwrap().parts.iter();
    let own = parts.filter(|part| part.instance == instance);
    own.cloned().collect()
}

#[test]
fn a_base_of_the_last_checkpoint_replaces_what_was_before_it() {
    let mut coordinator = relayed();
    for _ in 0..3 {
        let now = coordinator.next_ns().unwrap_or(0);
        coordinator.handle(now, Input::Changed);
        complete(&mut coordinator, 1_000);
    }
    let (at, barrier, bases) = inject(&mut coordinator);
    assert_eq!((barrier, bases), (4, vec![]));
    let outputs = answer_with_base(&mut coordinator, at, 4, 3, (900, 70));
    let manifest = manifest_of(&outputs);
    let own = vec![behind(3, 4, 0, 900), part(4, Some(3), 0, 70)];
    assert_eq!(parts_of(&manifest, 0), own);
    assert_eq!(
        parts_of(&manifest, 1).len(),
        4,
        "the other one has its chain"
    );
    coordinator.handle(at, Input::ManifestStored { barrier });
    // Later ones build upon both.
    coordinator.handle(at, Input::Changed);
    let (_, since, bases, manifest) = complete(&mut coordinator, 60);
    assert_eq!((since, bases), (Some(4), vec![]));
    assert_eq!(manifest.check(), Ok(()));
    let chain = [own, vec![part(5, Some(4), 0, 60)]].concat();
    assert_eq!(parts_of(&manifest, 0), chain);
}

#[test]
fn a_base_that_was_offered_for_an_aborted_checkpoint_is_accepted_with_the_next() {
    let mut coordinator = relayed();
    coordinator.handle(0, Input::Changed);
    complete(&mut coordinator, 1_000);
    let (at, barrier, _) = inject(&mut coordinator);
    let reason = "disk full".to_string();
    coordinator.handle(at, Input::Failed { barrier, reason });
    let (at, outputs) = due(&mut coordinator);
    let increments = Output::Inject {
        barrier: 3,
        since: Some(1),
        bases: Vec::new(),
        stops: false,
    };
    assert_eq!(outputs, [increments]);
    for (member, parts) in [(0, 0), (1, 2), (2, 1), (3, 0)] {
        coordinator.handle(at, done(3, member, report(parts)));
    }
    // Its object has the name of the barrier that failed.
    coordinator.handle(at, stored(3, 1, behind(1, 2, 0, 900)));
    coordinator.handle(at, stored(3, 1, part(3, Some(1), 0, 70)));
    let outputs = coordinator.handle(at, stored(3, 2, part(3, Some(1), 1, 70)));
    let manifest = manifest_of(&outputs);
    let wanted = [behind(1, 2, 0, 900), part(3, Some(1), 0, 70)];
    assert_eq!(parts_of(&manifest, 0), wanted);
}

#[test]
fn any_other_base_behind_is_refused() {
    let base_since = |since| Part {
        since,
        ..behind(3, 4, 0, 900)
    };
    let wrong = [
        (behind(2, 4, 0, 900), "of an older checkpoint"),
        (behind(0, 4, 0, 900), "of none"),
        (behind(5, 4, 0, 900), "of one to come"),
        (behind(3, 4, 1, 900), "of another instance"),
        (base_since(Some(2)), "not a base"),
        (part(4, None, 0, 900), "a base that was not requested"),
    ];
    for (wrong, why) in wrong {
        let mut coordinator = relayed();
        for _ in 0..3 {
            let now = coordinator.next_ns().unwrap_or(0);
            coordinator.handle(now, Input::Changed);
            complete(&mut coordinator, 1_000);
        }
        let (at, barrier, _) = inject(&mut coordinator);
        let outputs = coordinator.handle(at, stored(barrier, 1, wrong));
        let [
            Output::Abort {
                barrier: 4,
                reason: Some(reason),
            },
        ] = &outputs[..]
        else {
            panic!("{why}: {outputs:?}");
        };
        assert!(reason.contains("is not the part that was requested"));
    }
}

#[test]
fn a_member_that_writes_a_base_gets_none_from_the_standby() {
    let mut coordinator = relayed();
    coordinator.handle(0, Input::Changed);
    complete(&mut coordinator, 1_000);
    let node = "sums".to_string();
    coordinator.handle(20 * SECOND, Input::Moved { node });
    let (at, barrier, bases) = inject(&mut coordinator);
    assert_eq!((barrier, bases), (2, vec![1, 2]));
    let outputs = coordinator.handle(at, stored(2, 1, behind(1, 2, 0, 900)));
    assert!(
        matches!(outputs[..], [Output::Abort { barrier: 2, .. }]),
        "{outputs:?}"
    );
}

#[test]
fn members_write_no_base_while_a_standby_makes_them() {
    let mut coordinator = relayed();
    let mut with_base = Vec::new();
    for number in 1..=2 * 4 * CHAIN_MAX {
        let (at, barrier, bases) = inject(&mut coordinator);
        if !bases.is_empty() {
            assert_eq!(bases, [1, 2]);
            with_base.push(number);
        }
        // As much changes as there is: by the usual rule each would be a base.
        let since = Some(barrier - 1).filter(|_| bases.is_empty());
        answer(&mut coordinator, at, barrier, since, 1_000_000);
        coordinator.handle(at, Input::ManifestStored { barrier });
    }
    let parts_max = 4 * CHAIN_MAX;
    assert_eq!(with_base, [1, 1 + parts_max]);
}

#[test]
fn members_write_bases_after_a_move_and_after_failures_also_with_a_standby() {
    let mut coordinator = relayed();
    coordinator.handle(0, Input::Changed);
    complete(&mut coordinator, 1_000);
    let node = "sums".to_string();
    coordinator.handle(20 * SECOND, Input::Moved { node });
    coordinator.handle(20 * SECOND, Input::Changed);
    let (.., bases, manifest) = complete(&mut coordinator, 1_000);
    assert_eq!(bases, [1, 2]);
    assert_eq!(manifest.check(), Ok(()));
    let mut asked = Vec::new();
    for _ in 0..3 {
        let (at, barrier, bases) = inject(&mut coordinator);
        asked.push(bases);
        let reason = "the standby has lost a part".to_string();
        coordinator.handle(at, Input::Failed { barrier, reason });
    }
    assert_eq!(asked, [vec![], vec![], vec![1, 2]]);
    let (.., bases, manifest) = complete(&mut coordinator, 1_000);
    assert_eq!((bases, manifest.check()), (vec![1, 2], Ok(())));
}

#[test]
fn the_usual_rule_resumes_with_the_sizes_of_the_standbys_bases() {
    let mut coordinator = relayed();
    coordinator.handle(0, Input::Changed);
    complete(&mut coordinator, 1_000_000);
    // Of member 1 the standby makes a base; member 2 goes on with increments.
    for barrier in 2..=4 {
        let (at, _, bases) = inject(&mut coordinator);
        assert!(bases.is_empty());
        let outputs = match barrier {
            4 => answer_with_base(&mut coordinator, at, 4, 3, (1_000_000, 400_000)),
            _ => answer(&mut coordinator, at, barrier, Some(barrier - 1), 400_000),
        };
        manifest_of(&outputs);
        coordinator.handle(at, Input::ManifestStored { barrier });
    }
    coordinator.set_relayed(false);
    // Member 2 has 2.2 of its 1.0 MB, and member 1 has 1.4: its base is due one checkpoint later.
    let (at, barrier, bases) = inject(&mut coordinator);
    assert_eq!((barrier, bases), (5, vec![2]));
    for (member, parts) in [(0, 0), (1, 1), (2, 1), (3, 0)] {
        coordinator.handle(at, done(5, member, report(parts)));
    }
    coordinator.handle(at, stored(5, 1, part(5, Some(4), 0, 400_000)));
    let outputs = coordinator.handle(at, stored(5, 2, part(5, None, 1, 1_000_000)));
    let manifest = manifest_of(&outputs);
    assert_eq!(parts_of(&manifest, 0).len(), 3);
    assert_eq!(parts_of(&manifest, 1), [part(5, None, 1, 1_000_000)]);
    coordinator.handle(at, Input::ManifestStored { barrier });
    let (.., bases) = inject(&mut coordinator);
    assert_eq!(bases, [1]);
}

#[test]
fn a_shorter_interval_counts_for_a_change_that_waits_already() {
    let mut coordinator = coordinator();
    coordinator.handle(0, Input::Changed);
    assert_eq!(coordinator.next_ns(), Some(10 * SECOND));
    coordinator.handle(SECOND, Input::Changed);
    coordinator.set_interval(2 * SECOND);
    assert_eq!(coordinator.next_ns(), Some(3 * SECOND));
    coordinator.set_interval(10 * SECOND);
    assert_eq!(
        coordinator.next_ns(),
        Some(3 * SECOND),
        "it was promised already"
    );
    assert_eq!(coordinator.handle(3 * SECOND - 1, Input::Tick), []);
    let outputs = coordinator.handle(3 * SECOND, Input::Tick);
    assert!(matches!(outputs[..], [Output::Inject { .. }]));
    answer(&mut coordinator, 3 * SECOND, 1, None, 10);
    coordinator.handle(3 * SECOND, Input::ManifestStored { barrier: 1 });
    assert_eq!(coordinator.next_ns(), None, "nothing waits");
    // The next change waits for the interval that holds now.
    coordinator.handle(20 * SECOND, Input::Changed);
    assert_eq!(coordinator.next_ns(), Some(30 * SECOND));
    coordinator.set_interval(SECOND);
    assert_eq!(coordinator.next_ns(), Some(21 * SECOND));
}
