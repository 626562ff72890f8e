use proptest::prelude::*;

use super::*;

const S: u64 = 1_000_000_000;

const LIMITS: Limits = Limits {
    min: 1,
    max: 4,
    more_after_ns: 30 * S,
    fewer_after_ns: 300 * S,
};

fn load(hosts: usize, busy: f64) -> Load {
    Load {
        hosts,
        useful: usize::MAX,
        busy,
        is_late: false,
        backlog_s: 0.0,
    }
}

/// A rule that has begun on `hosts`, at 0 s.
fn begun(hosts: usize) -> Wanted {
    let mut wanted = Wanted::new(LIMITS);
    wanted.begin(0, hosts);
    wanted
}

/// Looks every second from `from` until before `until`; the second in which the number changed, if it did.
fn look(wanted: &mut Wanted, seconds: std::ops::Range<u64>, load: &Load) -> Option<u64> {
    let (before, _) = wanted.now();
    let mut changed = None;
    for second in seconds {
        if wanted.look(second * S, load) != before {
            changed = changed.or(Some(second));
        }
    }
    changed
}

#[test]
fn nothing_is_known_before_the_first_look() {
    assert_eq!(Wanted::new(LIMITS).now(), (1, Reason::Unknown));
    assert_eq!(begun(3).now(), (3, Reason::Unknown));
    assert_eq!(begun(9).now(), (4, Reason::Unknown), "at most MAX");
}

#[test]
fn busy_hosts_want_more_after_the_shorter_window_and_idle_ones_fewer_after_the_longer() {
    let mut wanted = begun(1);
    assert_eq!(look(&mut wanted, 1..100, &load(1, 0.95)), Some(30));
    assert_eq!(wanted.now(), (2, Reason::Busy));
    assert_eq!(look(&mut wanted, 100..500, &load(2, 0.2)), Some(399));
    assert_eq!(wanted.now(), (1, Reason::Idle));
}

#[test]
fn four_times_the_load_wants_three_hosts_and_the_load_as_before_wants_one() {
    let mut wanted = begun(1);
    let mut hosts = 1;
    let mut seen = Vec::new();
    for second in 1..1_000 {
        let demand = if (100..400).contains(&second) {
            2.0
        } else {
            0.5
        };
        let busy = (demand / hosts as f64).min(1.0);
        let next = wanted.look(second * S, &load(hosts, busy));
        if next != hosts {
            seen.push(next);
            wanted.begin(second * S, next);
        }
        hosts = next;
    }
    assert_eq!(seen, [2, 3, 1]);
}

#[test]
fn a_share_near_the_wished_one_changes_nothing() {
    for busy in [0.64, 0.7, 0.76] {
        let mut wanted = begun(2);
        assert_eq!(look(&mut wanted, 1..1_000, &load(2, busy)), None, "{busy}");
        assert_eq!(wanted.now(), (2, Reason::Fits));
    }
}

#[test]
fn a_burst_that_is_shorter_than_the_window_changes_nothing() {
    let mut wanted = begun(1);
    for round in 0..20 {
        let from = 1 + round * 60;
        assert_eq!(look(&mut wanted, from..from + 29, &load(1, 1.0)), None);
        assert_eq!(look(&mut wanted, from + 29..from + 60, &load(1, 0.6)), None);
    }
}

#[test]
fn a_missed_target_wants_one_more_where_that_helps_and_keeps_hosts_where_not() {
    let late = |hosts, busy| Load {
        is_late: true,
        ..load(hosts, busy)
    };
    let mut wanted = begun(2);
    look(&mut wanted, 1..40, &late(2, 0.5));
    assert_eq!(wanted.now(), (3, Reason::Late));
    let mut idle = begun(2);
    assert_eq!(look(&mut idle, 1..1_000, &late(2, 0.05)), None);
}

#[test]
fn rows_that_wait_ever_longer_want_one_more_and_a_queue_that_stays_as_it_is_does_not() {
    let waiting = |backlog_s| Load {
        backlog_s,
        ..load(1, 0.5)
    };
    let mut wanted = begun(1);
    for second in 1..40 {
        wanted.look(second * S, &waiting(second as f64));
    }
    assert_eq!(wanted.now(), (2, Reason::Backlog));
    let mut same = begun(1);
    assert_eq!(look(&mut same, 1..1_000, &waiting(20.0)), None);
}

#[test]
fn hosts_on_which_nothing_could_run_are_not_wanted() {
    let one = Load {
        useful: 1,
        ..load(1, 1.0)
    };
    assert_eq!(look(&mut begun(1), 1..100, &one), None);
}

#[test]
fn a_single_look_at_a_long_time_counts_and_one_at_a_short_time_does_not() {
    assert_eq!(begun(1).look(60 * S, &load(1, 1.0)), 2);
    assert_eq!(begun(1).look(10 * S, &load(1, 1.0)), 1);
}

#[test]
fn what_can_not_be_measured_is_no_reason_for_more_hosts() {
    for busy in [f64::NAN, f64::INFINITY, -1.0] {
        let mut wanted = begun(1);
        look(&mut wanted, 1..100, &load(1, busy));
        assert_eq!(wanted.now().0, 1, "{busy}");
    }
}

proptest! {
    #[test]
    fn the_number_stays_within_its_limits(
        min in 1usize..4,
        more in 0usize..6,
        looks in proptest::collection::vec(
            (0u64..200, 0usize..9, -0.5f64..3.0, any::<bool>(), 0.0f64..9.0, 0usize..9),
            1..200,
        ),
    ) {
        let limits = Limits { min, max: min + more, ..LIMITS };
        let mut wanted = Wanted::new(limits);
        let mut at_ns = 0;
        for (pause, hosts, busy, is_late, backlog_s, useful) in looks {
            at_ns += pause * S;
            let hosts = wanted.look(at_ns, &Load { hosts, useful, busy, is_late, backlog_s });
            prop_assert!((min..=min + more).contains(&hosts));
        }
    }

    #[test]
    fn the_same_work_settles_and_stays(demand in 0.0f64..3.0, from in 1usize..5) {
        let mut wanted = begun(from);
        let mut hosts = from;
        let mut last = 0;
        for second in (5..3_000u64).step_by(5) {
            let busy = (demand / hosts as f64).min(1.0);
            let next = wanted.look(second * S, &load(hosts, busy));
            if next != hosts {
                last = second;
                wanted.begin(second * S, next);
            }
            hosts = next;
        }
        prop_assert!(last < 1_500, "still changing after {last} s: {hosts}");
        let share = demand / hosts as f64;
        prop_assert!(hosts == 4 || share <= BUSY_WISHED * (1.0 + TOLERANCE) + 1e-9, "{share}");
    }

    #[test]
    fn between_two_opposite_changes_there_is_a_window(
        loads in proptest::collection::vec((1u64..30, 0.0f64..1.0), 1..300),
    ) {
        let mut wanted = begun(2);
        let (mut at, mut hosts, mut raised) = (0, 2, None);
        for (pause, busy) in loads {
            at += pause;
            let next = wanted.look(at * S, &load(hosts, busy));
            if next > hosts {
                raised = Some(at);
            }
            if let (true, Some(raised)) = (next < hosts, raised) {
                prop_assert!(at - raised >= 300, "given up {} s after they were wanted", at - raised);
            }
            if next != hosts {
                wanted.begin(at * S, next);
            }
            hosts = next;
        }
    }
}
