use super::*;

const SECOND: u64 = 1_000_000_000;

fn failed(epoch: u64) -> Input {
    Input::Failed {
        epoch,
        reason: "process 2 was killed by signal 9".to_string(),
    }
}

fn claimed(epoch: u64, restore: Option<u64>) -> Input {
    Input::Claimed {
        epoch,
        restore,
        finished: false,
    }
}

/// A recovery that runs epoch 5 from checkpoint 4.
fn running(now_ns: u64) -> Recovery {
    let mut recovery = Recovery::new(Limits::default());
    assert_eq!(
        recovery.handle(now_ns, Input::Start),
        [Output::Claim { before: None }]
    );
    start(&mut recovery, now_ns, 5);
    recovery
}

fn start(recovery: &mut Recovery, now_ns: u64, epoch: u64) {
    let checkpoint = 4;
    assert_eq!(
        recovery.handle(now_ns, claimed(epoch, Some(checkpoint))),
        [Output::Restore {
            epoch,
            checkpoint: Some(checkpoint)
        }]
    );
    assert_eq!(
        recovery.handle(now_ns, Input::Restored { epoch }),
        [Output::Recommit { epoch, checkpoint }]
    );
    assert_eq!(
        recovery.handle(now_ns, Input::Recommitted { epoch }),
        [Output::Run { epoch }]
    );
    assert_eq!(recovery.next_ns(), None, "nothing to wait for");
}

#[test]
fn a_failed_incarnation_stops_before_the_next_begins() {
    let mut recovery = running(0);
    assert_eq!(recovery.handle(10, failed(4)), [], "of an earlier one");
    assert_eq!(recovery.handle(10, failed(5)), [Output::Stop { epoch: 5 }]);
    assert_eq!(recovery.handle(11, failed(5)), [], "it is known");
    assert_eq!(recovery.handle(20, Input::Stopped { epoch: 5 }), []);
    let at = recovery.next_ns().unwrap();
    assert_eq!(at, 20 + Limits::default().wait_min_ns);
    assert_eq!(recovery.handle(at - 1, Input::Tick), []);
    assert_eq!(
        recovery.handle(at, Input::Tick),
        [Output::Claim { before: None }]
    );
    start(&mut recovery, at, 7);
    assert_eq!(recovery.restarts(), 1);
    let end = recovery.handle(at, Input::Finished { epoch: 7 });
    assert_eq!(end, [Output::End]);
}

#[test]
fn what_yields_goes_on_at_once_and_is_no_failure() {
    let mut recovery = running(0);
    // Far more often than it may fail.
    for epoch in 5..100 {
        let outdated = Input::Yielded { epoch: epoch - 1 };
        assert_eq!(recovery.handle(10, outdated), [], "of an earlier one");
        let stopped = recovery.handle(10, Input::Yielded { epoch });
        assert_eq!(stopped, [Output::Stop { epoch }]);
        let claims = recovery.handle(10, Input::Stopped { epoch });
        assert_eq!(claims, [Output::Claim { before: None }]);
        start(&mut recovery, 10, epoch + 1);
    }
}

#[test]
fn a_process_that_does_not_stop_is_killed_and_a_silent_one_is_fenced() {
    let mut recovery = running(0);
    recovery.handle(0, failed(5));
    let at = recovery.next_ns().unwrap();
    assert_eq!(
        recovery.handle(at, Input::Tick),
        [Output::Kill { epoch: 5 }]
    );
    let at = recovery.next_ns().unwrap();
    assert_eq!(recovery.handle(at, Input::Tick), []);
    let at = recovery.next_ns().unwrap();
    assert_eq!(
        recovery.handle(at, Input::Tick),
        [Output::Claim { before: None }]
    );
}

#[test]
fn a_crash_loop_ends_with_its_cause() {
    let mut recovery = running(0);
    let mut now_ns = 0;
    let mut waits = Vec::new();
    for epoch in 5.. {
        let outputs = recovery.handle(now_ns, failed(epoch));
        if let [Output::Stop { .. }, Output::GiveUp { reason }] = &outputs[..] {
            assert_eq!(epoch, 15, "the eleventh failure");
            let text =
                "it failed 11 times within 600 s; the last: process 2 was killed by signal 9";
            assert_eq!(reason, text);
            break;
        }
        recovery.handle(now_ns, Input::Stopped { epoch });
        let at = recovery.next_ns().unwrap();
        waits.push((at - now_ns) as f64 / 1e9);
        now_ns = at;
        recovery.handle(now_ns, Input::Tick);
        start(&mut recovery, now_ns, epoch + 1);
    }
    assert_eq!(waits, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0]);
    assert_eq!(recovery.handle(now_ns, Input::Start), [], "it is over");
}

#[test]
fn failures_that_are_far_apart_are_forgotten() {
    let mut recovery = running(0);
    let mut now_ns = 0;
    for epoch in 5..105 {
        now_ns += 61 * SECOND;
        assert_eq!(
            recovery.handle(now_ns, failed(epoch)),
            [Output::Stop { epoch }]
        );
        recovery.handle(now_ns, Input::Stopped { epoch });
        now_ns = recovery.next_ns().unwrap();
        recovery.handle(now_ns, Input::Tick);
        start(&mut recovery, now_ns, epoch + 1);
    }
    assert_eq!(recovery.restarts(), 100);
}

#[test]
fn a_corrupt_checkpoint_leads_to_the_one_before_and_never_to_none() {
    let mut recovery = Recovery::new(Limits::default());
    recovery.handle(0, Input::Start);
    recovery.handle(0, claimed(9, Some(8)));
    let corrupt = |epoch| Input::Corrupt {
        epoch,
        reason: "parts/x: its checksum is wrong".to_string(),
    };
    assert_eq!(recovery.handle(0, corrupt(9)), [Output::Stop { epoch: 9 }]);
    let outputs = recovery.handle(0, Input::Stopped { epoch: 9 });
    assert_eq!(outputs, [Output::Claim { before: Some(8) }], "at once");
    recovery.handle(0, claimed(10, Some(6)));
    recovery.handle(0, corrupt(10));
    let outputs = recovery.handle(0, Input::Stopped { epoch: 10 });
    assert_eq!(outputs, [Output::Claim { before: Some(6) }]);
    let outputs = recovery.handle(0, claimed(11, None));
    assert!(
        matches!(&outputs[..], [Output::GiveUp { .. }]),
        "{outputs:?}"
    );
}

#[test]
fn the_first_start_fails_at_once_and_later_ones_are_retried() {
    let failed_claim = || Input::ClaimFailed {
        reason: "s3://x: no such bucket".to_string(),
        is_fatal: false,
    };
    let mut recovery = Recovery::new(Limits::default());
    recovery.handle(0, Input::Start);
    let outputs = recovery.handle(0, failed_claim());
    assert!(
        matches!(&outputs[..], [Output::GiveUp { .. }]),
        "{outputs:?}"
    );
    let mut recovery = running(0);
    recovery.handle(0, failed(5));
    recovery.handle(0, Input::Stopped { epoch: 5 });
    let at = recovery.next_ns().unwrap();
    recovery.handle(at, Input::Tick);
    assert_eq!(recovery.handle(at, failed_claim()), []);
    let at = recovery.next_ns().unwrap();
    let outputs = recovery.handle(at, Input::Tick);
    assert_eq!(outputs, [Output::Claim { before: None }]);
    let reason = "incarnation 9 has taken over".to_string();
    let is_fatal = true;
    let outputs = recovery.handle(at, Input::ClaimFailed { reason, is_fatal });
    assert!(
        matches!(&outputs[..], [Output::GiveUp { .. }]),
        "{outputs:?}"
    );
}

#[test]
fn only_a_query_whose_first_rows_are_gone_starts_over() {
    for is_first in [true, false] {
        let mut recovery = Recovery::new(Limits::default());
        recovery.handle(0, Input::Start);
        recovery.handle(0, claimed(5, Some(4)));
        recovery.handle(0, Input::Restored { epoch: 5 });
        let outputs = recovery.handle(0, Input::Lost { epoch: 5, is_first });
        assert_eq!(outputs, [Output::Stop { epoch: 5 }]);
        let outputs = recovery.handle(0, Input::Stopped { epoch: 5 });
        assert_eq!(outputs, [Output::Claim { before: Some(4) }]);
        let outputs = recovery.handle(0, claimed(6, None));
        if !is_first {
            assert!(
                matches!(&outputs[..], [Output::GiveUp { .. }]),
                "{outputs:?}"
            );
            continue;
        }
        let restore = Output::Restore {
            epoch: 6,
            checkpoint: None,
        };
        assert_eq!(outputs, [restore]);
        let outputs = recovery.handle(0, Input::Restored { epoch: 6 });
        assert_eq!(outputs, [Output::Run { epoch: 6 }]);
    }
}

#[test]
fn a_query_that_had_ended_only_commits() {
    let mut recovery = Recovery::new(Limits::default());
    recovery.handle(0, Input::Start);
    let outputs = recovery.handle(
        0,
        Input::Claimed {
            epoch: 3,
            restore: Some(2),
            finished: true,
        },
    );
    let (epoch, checkpoint) = (3, 2);
    assert_eq!(outputs, [Output::Recommit { epoch, checkpoint }]);
    let outputs = recovery.handle(0, Input::Recommitted { epoch: 3 });
    assert_eq!(outputs, [Output::End]);
}

#[test]
fn an_error_that_no_restart_fixes_ends_the_query() {
    let mut recovery = running(0);
    let fatal = |epoch| Input::Fatal {
        epoch,
        reason: "incarnation 9 has taken over".to_string(),
    };
    assert_eq!(recovery.handle(0, fatal(4)), []);
    let outputs = recovery.handle(0, fatal(5));
    let reason = "incarnation 9 has taken over".to_string();
    assert_eq!(
        outputs,
        [Output::Stop { epoch: 5 }, Output::GiveUp { reason }]
    );
}

#[test]
fn jumps_of_the_clock_do_not_hold_it_up() {
    let mut recovery = running(1 << 50);
    recovery.handle(1 << 50, failed(5));
    recovery.handle(1 << 50, Input::Stopped { epoch: 5 });
    // The clock jumps back by years: the wait continues from there.
    assert_eq!(recovery.handle(7, Input::Tick), []);
    let at = recovery.next_ns().unwrap();
    assert!(at <= 7 + Limits::default().wait_min_ns);
    let outputs = recovery.handle(at, Input::Tick);
    assert_eq!(outputs, [Output::Claim { before: None }]);
}
