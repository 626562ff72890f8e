//! Targets that change while a query runs.

use super::*;
use crate::latency::model::tests::COSTS;

const MS: u64 = 1_000_000;

/// A controller of a target, with the first delay as planned.
fn controller(target_ms: u64, delay_ms: u64) -> Controller {
    let goal = Goal {
        target_ns: target_ms * MS,
        costs: COSTS,
    };
    let setting = Setting {
        delay_ns: delay_ms * MS,
        chunk_rows: 1_024,
    };
    Controller::new(goal, setting)
}

/// Half a second in which rows left at all times up to the delay.
fn correct(controller: &mut Controller) -> u64 {
    correct_with(controller, 0)
}

/// The same, with latencies that may be wrong.
fn correct_with(controller: &mut Controller, error_ns: u64) -> u64 {
    let delay_ns = controller.setting().delay_ns;
    let latencies = (1..=100).map(|part| (delay_ns * part / 100 + 50_000, 10));
    let latencies = latencies.collect::<Vec<(u64, u64)>>();
    let setting = controller.correct(&Observation {
        interval_ns: 500 * MS,
        latencies: &latencies,
        rows: 1_000,
        utilisation: 0.01,
        per_row_ns: 1_000.0,
        slept: delay_ns > 0,
        sleeps: 1.0,
        error_ns,
        fill: 0.0,
        lost: Lost::default(),
    });
    setting.delay_ns
}

#[test]
fn a_changed_target_takes_one_correction() {
    let mut controller = controller(5, 4);
    for _ in 0..20 {
        correct(&mut controller);
    }
    for target_ms in [500, 5, 10_000, 2, 50, 5] {
        let target_ns = target_ms * MS;
        controller.retarget(target_ns);
        let at_once = controller.setting().delay_ns;
        assert!(at_once < target_ns, "{target_ms}: {at_once}");
        let delay_ns = correct(&mut controller);
        let wanted = target_ns / 2..target_ns;
        assert!(wanted.contains(&delay_ns), "{target_ms}: {delay_ns}");
        // From then on as with any other target: longer delays take steps.
        for _ in 0..20 {
            let next_ns = correct(&mut controller);
            assert!(wanted.contains(&next_ns), "{target_ms}: {next_ns}");
        }
    }
}

#[test]
fn a_target_below_the_shortest_delay_is_met_by_interrupts_at_once() {
    let mut controller = controller(500, 400);
    correct(&mut controller);
    controller.retarget(DELAY_MIN_NS / 2);
    assert_eq!(controller.setting().delay_ns, 0);
    assert_eq!(correct(&mut controller), 0);
}

/// What clocks of several hosts don't know leaves less of the target, and nothing has to be forgotten.
#[test]
fn the_error_of_clocks_shortens_the_delay_for_as_long_as_it_lasts() {
    let mut controller = controller(20, 16);
    for _ in 0..20 {
        correct(&mut controller);
    }
    let before_ns = correct(&mut controller);
    assert!(before_ns > 16 * MS, "{before_ns}");
    let late_before = controller.late().rows;
    let delay_ns = correct_with(&mut controller, 6 * MS);
    assert!(
        (11 * MS..14 * MS * 9 / 10).contains(&delay_ns),
        "{delay_ns}"
    );
    // Of rows that took up to 17 ms, those are late that took more than 14.
    let late = controller.late().rows - late_before;
    assert!((150..=250).contains(&late), "{late}");
    for _ in 0..3 {
        correct(&mut controller);
    }
    let after_ns = correct(&mut controller);
    assert!(after_ns.abs_diff(before_ns) < MS / 10, "{after_ns}");
    // More than the target: nothing is certainly in time, and no sleep is added to that.
    let mut delay_ns = correct_with(&mut controller, 30 * MS);
    for _ in 0..5 {
        delay_ns = correct_with(&mut controller, 30 * MS);
    }
    assert!(delay_ns < MS, "{delay_ns}");
}
