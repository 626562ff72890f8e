use super::*;

/// A link that takes 10 µs of each side per message and 1 ns per byte, and 20 µs more to arrive.
fn costs(cores: usize, written_once: bool) -> Costs {
    let point = |size_bytes: usize| {
        let send_ns = 10_000.0 + size_bytes as f64;
        LinkPoint {
            size_bytes,
            latency_ns: send_ns + 20_000.0,
            bytes_per_s: size_bytes as f64 / send_ns * 1e9,
        }
    };
    Costs {
        between_processes: [64, 1 << 12, 1 << 16, 1 << 20].map(point).to_vec(),
        between_hosts: [64, 1 << 12, 1 << 16, 1 << 20].map(point).to_vec(),
        codec_ns: 0.0,
        hand_over_ns: 500.0,
        wake: Wake {
            ring_ns: 0.0,
            work_ns: 0.0,
            until_look_ns: 0.0,
        },
        written_once,
        cores,
    }
}

fn places(processes: usize, each: usize) -> (Place, Vec<Place>) {
    let place = |process| Place { host: 0, process };
    let receivers = (0..processes * each).map(|number| place(1 + number % processes));
    (place(0), receivers.collect())
}

fn estimate(costs: &Costs, algorithm: Algorithm, receivers: usize, bytes: usize) -> Estimate {
    let (origin, receivers) = places(receivers, 1);
    let tree = Tree::new(algorithm, origin, &receivers);
    passage(costs, &tree, origin, &receivers, bytes, bytes).estimate(1, costs)
}

#[test]
fn the_choice_is_the_cheapest_of_the_model() {
    for cores in [1, 2, 64] {
        for written_once in [false, true] {
            let costs = costs(cores, written_once);
            for (processes, each) in [(1, 1), (1, 4), (3, 1), (7, 4), (31, 1)] {
                let (origin, receivers) = places(processes, each);
                for bytes in [64, 5_000, 1 << 18, 1 << 20, 3 << 20] {
                    for aim in [Aim::Latency, Aim::Throughput] {
                        let choice = choose(&costs, origin, &receivers, bytes, aim);
                        for algorithm in Algorithm::ALL {
                            let other =
                                with_segments(&costs, algorithm, origin, &receivers, bytes, aim);
                            assert!(!is_cheaper(&other.estimate, &choice.estimate, aim));
                        }
                    }
                }
            }
        }
    }
}

/// With enough cores: 15 receivers one after the other, or through four levels of two.
#[test]
fn with_enough_cores_the_tree_has_the_best_latency_and_the_ring_the_best_throughput() {
    let costs = costs(64, false);
    let estimate_of = |algorithm| estimate(&costs, algorithm, 15, 64);
    let send_ns = 10_064.0;
    let serial = estimate_of(Algorithm::Serial);
    assert!((serial.latency_ns - (15.0 * send_ns + 20_000.0)).abs() < 1.0);
    assert!((serial.period_ns - 15.0 * send_ns).abs() < 1.0);
    // The tree's busiest receive one and send two, the ring's receive one and send one.
    let (tree, ring) = (
        estimate_of(Algorithm::BinaryTree),
        estimate_of(Algorithm::Ring),
    );
    assert!((tree.period_ns - 3.0 * send_ns).abs() < 1.0);
    assert!((ring.period_ns - 2.0 * send_ns).abs() < 1.0);
    assert!(tree.latency_ns < 0.9 * serial.latency_ns && tree.latency_ns < ring.latency_ns);
    let (origin, receivers) = places(15, 1);
    let choose = |aim| choose(&costs, origin, &receivers, 64, aim).algorithm;
    assert_eq!(choose(Aim::Latency), Algorithm::BinaryTree);
    assert_eq!(choose(Aim::Throughput), Algorithm::Ring);
}

#[test]
fn with_few_cores_the_least_work_wins() {
    // 7 processes of 4: the serial way sends 28 messages between processes, the others 7.
    let (origin, receivers) = places(7, 4);
    for aim in [Aim::Latency, Aim::Throughput] {
        let choice = choose(&costs(2, false), origin, &receivers, 1 << 16, aim);
        assert_ne!(choice.algorithm, Algorithm::Serial, "{aim:?}");
        // One copy that all read is less work than one copy for each.
        let shared = choose(&costs(2, true), origin, &receivers, 64, aim);
        assert_eq!(shared.algorithm, Algorithm::FlatTree, "{aim:?}");
        let apart = choose(&costs(2, false), origin, &receivers, 64, aim);
        assert!(shared.estimate.period_ns < apart.estimate.period_ns);
    }
}

#[test]
fn a_large_message_through_relays_is_cut() {
    let costs = costs(64, false);
    let (origin, receivers) = places(15, 1);
    let ring = |bytes| {
        with_segments(
            &costs,
            Algorithm::Ring,
            origin,
            &receivers,
            bytes,
            Aim::Latency,
        )
    };
    let large = ring(1 << 20);
    let uncut = estimate(&costs, Algorithm::Ring, 15, 1 << 20);
    assert!(large.segment_bytes.is_some_and(|bytes| bytes < 1 << 20));
    assert!(large.estimate.latency_ns < 0.5 * uncut.latency_ns);
    assert_eq!(ring(64).segment_bytes, None);
    // With one core, segments only cost, but a relay must not hold large messages.
    let alone = self::costs(1, false);
    let cut = |algorithm| {
        let aim = Aim::Throughput;
        with_segments(&alone, algorithm, origin, &receivers, 1 << 20, aim).segment_bytes
    };
    assert_eq!(cut(Algorithm::Ring), Some(RELAYED_BYTES_MAX));
    assert_eq!(cut(Algorithm::Serial), None);
}

/// Waking seven receivers one after the other is faster than through relays if a woken receiver needs
/// longer to look than the sender needs to wake it, and slower otherwise.
#[test]
fn wake_ups_decide_between_many_at_once_and_one_after_the_other() {
    let (origin, receivers) = places(7, 1);
    let choose = |ring_ns, until_look_ns| {
        let costs = Costs {
            wake: Wake {
                ring_ns,
                work_ns: 0.0,
                until_look_ns,
            },
            ..costs(64, true)
        };
        choose(&costs, origin, &receivers, 64, Aim::Latency).algorithm
    };
    assert_eq!(choose(1_000.0, 50_000.0), Algorithm::Serial);
    let deep = choose(50_000.0, 1_000.0);
    assert!(matches!(deep, Algorithm::BinaryTree | Algorithm::Ring));
}

#[test]
fn a_host_that_was_not_measured_gets_the_simplest_way() {
    let (origin, receivers) = places(3, 1);
    let unknown = Costs {
        between_processes: Vec::new(),
        between_hosts: Vec::new(),
        hand_over_ns: 0.0,
        ..costs(2, false)
    };
    let choice = choose(&unknown, origin, &receivers, 64, Aim::Latency);
    assert_eq!(choice.algorithm, Algorithm::Serial);
}

/// Between processes of one host a link costs nothing here, and between hosts as much as it does everywhere
/// else: then only what crosses counts, and a message that enters each host once is the cheapest.
#[test]
fn links_between_hosts_have_costs_of_their_own() {
    let free = LinkPoint {
        size_bytes: 64,
        latency_ns: 0.0,
        bytes_per_s: 1e18,
    };
    let costs = Costs {
        between_processes: vec![free],
        ..costs(64, true)
    };
    let place = |process: usize| Place {
        host: process / 4,
        process,
    };
    let receivers = (1..12).map(place).collect::<Vec<Place>>();
    let period_ns = |algorithm| {
        let tree = Tree::new(algorithm, place(0), &receivers);
        let one = passage(&costs, &tree, place(0), &receivers, 64, 64);
        (one.work_ns, one.estimate(1, &costs).period_ns)
    };
    let link_ns = 10_064.0;
    let near = |one: f64, other: f64| (one - other).abs() < 1.0;
    let (work_ns, busiest_ns) = period_ns(Algorithm::Serial);
    assert!(near(work_ns, 16.0 * link_ns) && near(busiest_ns, 8.0 * link_ns));
    let (work_ns, busiest_ns) = period_ns(Algorithm::FlatTree);
    assert!(near(work_ns, 4.0 * link_ns) && near(busiest_ns, 2.0 * link_ns));
    let choice = choose(&costs, place(0), &receivers, 64, Aim::Throughput);
    assert_ne!(choice.algorithm, Algorithm::Serial);
}
