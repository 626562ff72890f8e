//! A query that is stopped: one barrier ends the sources, and no other one follows.

use super::*;

fn stops(outputs: &[Output], number: u64) -> bool {
    matches!(outputs, [Output::Inject { barrier, stops: true, .. }] if *barrier == number)
}

/// Runs until there is nothing to wait for; returns the outputs meanwhile.
fn wait(coordinator: &mut Coordinator) -> Vec<Output> {
    let mut said = Vec::new();
    for _ in 0..100 {
        if coordinator.next_ns().is_none() {
            return said;
        }
        said.extend(due(coordinator).1);
    }
    panic!("it is never at rest: {said:?}");
}

#[test]
fn no_barrier_follows_the_one_that_stops_the_sources() {
    let mut coordinator = coordinator();
    assert!(stops(&coordinator.handle(5, Input::Stop), 1));
    // A source had read rows when the barrier reached it: they are in this checkpoint.
    assert_eq!(coordinator.handle(6, Input::Changed), []);
    assert_eq!(coordinator.handle(7, Input::Stop), []);
    answer(&mut coordinator, 8, 1, None, 10);
    let outputs = coordinator.handle(9, Input::ManifestStored { barrier: 1 });
    assert_eq!(outputs, [Output::Commit { barrier: 1 }, Output::Sweep]);
    assert_eq!(wait(&mut coordinator), []);
    let late = coordinator.handle(3_600 * SECOND, Input::Changed);
    assert_eq!(late, []);
    assert_eq!(wait(&mut coordinator), []);
}

#[test]
fn a_stop_waits_for_the_barrier_in_flight() {
    let mut coordinator = coordinator();
    coordinator.handle(0, Input::Changed);
    let (at, outputs) = due(&mut coordinator);
    assert!(matches!(outputs[..], [Output::Inject { stops: false, .. }]));
    assert_eq!(coordinator.handle(at, Input::Stop), []);
    answer(&mut coordinator, at, 1, None, 10);
    let outputs = coordinator.handle(at, Input::ManifestStored { barrier: 1 });
    assert!(stops(&outputs[2..], 2), "{outputs:?}");
}

#[test]
fn a_stop_follows_a_barrier_that_failed() {
    let mut coordinator = coordinator();
    coordinator.handle(0, Input::Changed);
    let (at, _) = due(&mut coordinator);
    coordinator.handle(at, Input::Stop);
    let reason = "disk full".to_string();
    let outputs = coordinator.handle(at, Input::Failed { barrier: 1, reason });
    assert!(stops(&outputs[1..], 2), "{outputs:?}");
    // This one is not tried again: the sources have ended.
    let reason = "disk full".to_string();
    let outputs = coordinator.handle(at, Input::Failed { barrier: 2, reason });
    assert!(matches!(outputs[..], [Output::Abort { barrier: 2, .. }]));
    assert_eq!(wait(&mut coordinator), []);
}

#[test]
fn a_query_that_ends_while_it_is_stopped_has_its_last_checkpoint() {
    let mut coordinator = coordinator();
    assert!(stops(&coordinator.handle(5, Input::Stop), 1));
    // The last rows were read before the barrier came.
    let mut outputs = Vec::new();
    for member in [3, 2, 1, 0] {
        outputs = coordinator.handle(
            6,
            Input::Ended {
                member,
                last_barrier: 0,
                report: report(0),
            },
        );
    }
    assert!(matches!(&outputs[..], [Output::Store(manifest)] if !manifest.finished));
    let outputs = coordinator.handle(7, Input::ManifestStored { barrier: 1 });
    assert!(
        matches!(&outputs[2..], [Output::Store(manifest)] if manifest.finished),
        "{outputs:?}"
    );
    let outputs = coordinator.handle(8, Input::ManifestStored { barrier: 2 });
    assert_eq!(outputs.last(), Some(&Output::Finished));
}

#[test]
fn a_stop_waits_for_the_end_if_sources_have_ended() {
    let mut coordinator = coordinator();
    let ended = |member| Input::Ended {
        member,
        last_barrier: 0,
        report: report(0),
    };
    coordinator.handle(5, ended(0));
    assert_eq!(coordinator.handle(6, Input::Stop), []);
    assert_eq!(wait(&mut coordinator), []);
    coordinator.handle(7, ended(1));
    coordinator.handle(7, ended(2));
    let outputs = coordinator.handle(7, ended(3));
    assert!(
        matches!(&outputs[..], [Output::Store(manifest)] if manifest.finished),
        "{outputs:?}"
    );
}
