use proptest::prelude::*;

use super::*;

fn point(size_bytes: usize, gb_per_s: f64) -> LinkPoint {
    LinkPoint {
        size_bytes,
        latency_ns: size_bytes as f64,
        bytes_per_s: gb_per_s * 1e9,
    }
}

fn demand(gb_per_s: f64) -> Demand {
    Demand {
        bytes_per_s: gb_per_s * 1e9,
        reserve: 0.0,
        chunk_cost_ns: 0.0,
        floor_bytes: LINE_BYTES,
        ceiling_bytes: 1 << 20,
    }
}

/// 100 ns a message and 0.1 ns a byte: half of 10 GB/s with messages of 1,000 bytes.
fn link(fixed_ns: f64) -> Vec<LinkPoint> {
    let sizes = [64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20];
    let point = |size_bytes: usize| {
        let time_ns = fixed_ns + 0.1 * size_bytes as f64;
        LinkPoint {
            size_bytes,
            latency_ns: time_ns,
            bytes_per_s: size_bytes as f64 / time_ns * 1e9,
        }
    };
    sizes.map(point).to_vec()
}

#[test]
fn half_of_the_bandwidth_needs_chunks_whose_bytes_cost_as_much_as_the_chunk() {
    let plan = plan_chunk(&link(100.0), &demand(5.0)).unwrap();
    assert_eq!((plan.size_bytes, plan.reaches), (1024, true));
    assert!((5e9..5.2e9).contains(&plan.bytes_per_s));
    assert!((plan.latency_ns - 202.4).abs() < 0.1);
    // A link of ten times the fixed cost needs ten times the chunk.
    let plan = plan_chunk(&link(1_000.0), &demand(5.0)).unwrap();
    assert_eq!(plan.size_bytes, 10_048);
}

#[test]
fn a_reserve_and_the_cost_of_a_chunk_make_chunks_larger() {
    let reserved = Demand {
        reserve: 0.5,
        ..demand(2.5)
    };
    let plan = plan_chunk(&link(100.0), &reserved).unwrap();
    assert_eq!(plan.size_bytes, 1024);
    let costly = Demand {
        chunk_cost_ns: 900.0,
        ..demand(5.0)
    };
    let plan = plan_chunk(&link(100.0), &costly).unwrap();
    assert_eq!(plan.size_bytes, 10_048);
    assert!((5e9..5.1e9).contains(&plan.bytes_per_s));
}

#[test]
fn an_unreachable_bandwidth_gets_the_smallest_chunk_that_comes_close() {
    let plan = plan_chunk(&link(100.0), &demand(20.0)).unwrap();
    assert!(!plan.reaches);
    // 95 % of 9.99 GB/s.
    assert!((18_000..20_000).contains(&plan.size_bytes), "{plan:?}");
    assert!(plan.bytes_per_s < 20e9);
}

#[test]
fn floor_and_ceiling_are_kept_and_the_floor_is_the_stronger() {
    let floor = Demand {
        floor_bytes: 100,
        ..demand(0.001)
    };
    assert_eq!(plan_chunk(&link(100.0), &floor).unwrap().size_bytes, 128);
    let ceiling = Demand {
        ceiling_bytes: 1000,
        ..demand(5.0)
    };
    let plan = plan_chunk(&link(100.0), &ceiling).unwrap();
    assert!(plan.size_bytes <= 960 && !plan.reaches);
    let both = Demand {
        floor_bytes: 4096,
        ceiling_bytes: 64,
        ..demand(5.0)
    };
    assert_eq!(plan_chunk(&link(100.0), &both).unwrap().size_bytes, 4096);
}

#[test]
fn a_link_that_gets_slower_with_large_messages_is_not_sent_them() {
    let points = [
        point(4 << 10, 8.0),
        point(64 << 10, 10.0),
        point(1 << 20, 2.0),
    ];
    let plan = plan_chunk(&points, &demand(9.0)).unwrap();
    assert!((4 << 10..64 << 10).contains(&plan.size_bytes) && plan.reaches);
    let plan = plan_chunk(&points, &demand(11.0)).unwrap();
    assert!(plan.size_bytes <= 64 << 10 && !plan.reaches);
}

#[test]
fn invalid_points_are_ignored() {
    let nothing = [
        point(0, 1.0),
        point(64, 0.0),
        point(64, f64::NAN),
        point(64, -1.0),
        point(64, f64::INFINITY),
    ];
    assert_eq!(plan_chunk(&nothing, &demand(1.0)), None);
    assert_eq!(plan_chunk(&[], &demand(1.0)), None);
    let mut points = nothing.to_vec();
    points.extend(link(100.0));
    assert_eq!(
        plan_chunk(&points, &demand(5.0)),
        plan_chunk(&link(100.0), &demand(5.0))
    );
}

#[test]
fn the_floor_is_where_a_smaller_chunk_keeps_the_link_busy_for_longer_than_it_saves() {
    // 100 ns and 0.1 ns a byte: latency by bandwidth is (100 + 0.1 B)² / B, least at 1,000 bytes.
    assert_eq!(latency_floor(&link(100.0)), Some(1024));
    // Ten times the fixed time, ten times the floor: 4 KiB are a fifth from the least, 64 KiB more.
    assert_eq!(latency_floor(&link(1_000.0)), Some(4 << 10));
    assert_eq!(latency_floor(&[]), None);
    assert_eq!(latency_floor(&[point(64, 0.0), point(64, f64::NAN)]), None);
}

fn points() -> impl Strategy<Value = Vec<LinkPoint>> {
    let point = (1..4_000_000usize, 1.0..1e6f64, 0.01..100.0f64);
    let point = point.prop_map(|(size_bytes, latency_ns, gb_per_s)| LinkPoint {
        size_bytes,
        latency_ns,
        bytes_per_s: gb_per_s * 1e9,
    });
    prop::collection::vec(point, 1..10)
}

fn demands() -> impl Strategy<Value = Demand> {
    let numbers = (0.0..150.0f64, 0.0..0.9f64, 0.0..1e5f64);
    (numbers, 0..20_000usize, 0..(4usize << 20)).prop_map(
        |((gb_per_s, reserve, chunk_cost_ns), floor_bytes, ceiling_bytes)| Demand {
            bytes_per_s: gb_per_s * 1e9,
            reserve,
            chunk_cost_ns,
            floor_bytes,
            ceiling_bytes,
        },
    )
}

/// The bandwidth from the same points, computed in another way: bytes by time, time by straight lines.
fn bandwidth(points: &[LinkPoint], demand: &Demand, size_bytes: usize) -> f64 {
    let mut times = std::collections::BTreeMap::<usize, f64>::new();
    for point in points {
        let time_ns = point.size_bytes as f64 / point.bytes_per_s * 1e9;
        let slowest = times.entry(point.size_bytes).or_default();
        *slowest = slowest.max(time_ns);
    }
    let below = times.range(..=size_bytes).next_back();
    let above = times.range(size_bytes..).next();
    let time_ns = match (below, above) {
        (Some((&low, &low_ns)), Some((&high, &high_ns))) if low < high => {
            let share = (size_bytes - low) as f64 / (high - low) as f64;
            low_ns * (1.0 - share) + high_ns * share
        }
        (_, Some((_, &time_ns))) => time_ns,
        (Some((&low, &low_ns)), None) => low_ns / low as f64 * size_bytes as f64,
        (None, None) => unreachable!("there are points"),
    };
    size_bytes as f64 / (time_ns + demand.chunk_cost_ns) * 1e9
}

proptest! {
    #[test]
    fn the_plan_is_the_smallest_line_that_reaches_what_is_needed(
        points in points(),
        demand in demands(),
    ) {
        let plan = plan_chunk(&points, &demand).unwrap();
        let floor = demand.floor_bytes.max(1).next_multiple_of(LINE_BYTES);
        let ceiling = (demand.ceiling_bytes / LINE_BYTES * LINE_BYTES).max(floor);
        prop_assert_eq!(plan.size_bytes % LINE_BYTES, 0);
        prop_assert!((floor..=ceiling).contains(&plan.size_bytes));
        let expected = bandwidth(&points, &demand, plan.size_bytes);
        prop_assert!((plan.bytes_per_s / expected - 1.0).abs() < 1e-6);
        let needed = demand.bytes_per_s / (1.0 - demand.reserve);
        if plan.reaches {
            prop_assert!(plan.bytes_per_s >= needed * (1.0 - 1e-6));
        }
        // All lines below it, or about a hundred of them.
        let end = if plan.reaches { plan.size_bytes } else { ceiling + LINE_BYTES };
        let lines = (end - floor) / LINE_BYTES;
        let step = (lines / 300).max(1) * LINE_BYTES;
        for size_bytes in (floor..end).step_by(step) {
            let reached = bandwidth(&points, &demand, size_bytes);
            prop_assert!(reached < needed * (1.0 + 1e-6), "{} reaches it", size_bytes);
        }
    }

    #[test]
    fn more_bandwidth_gives_no_smaller_chunk(
        points in points(),
        demand in demands(),
        more in 1.0..10.0f64,
    ) {
        let less = plan_chunk(&points, &demand).unwrap();
        let bytes_per_s = demand.bytes_per_s * more;
        let more = plan_chunk(&points, &Demand { bytes_per_s, ..demand }).unwrap();
        prop_assert!(more.size_bytes >= less.size_bytes || !more.reaches);
    }

    #[test]
    fn a_faster_link_gets_no_larger_chunk(
        points in points(),
        demand in demands(),
        faster in 1.0..10.0f64,
    ) {
        let slow = plan_chunk(&points, &demand).unwrap();
        let faster = points.iter().map(|point| LinkPoint {
            bytes_per_s: point.bytes_per_s * faster,
            ..*point
        });
        let fast = plan_chunk(&faster.collect::<Vec<_>>(), &demand).unwrap();
        if slow.reaches {
            prop_assert!(fast.reaches && fast.size_bytes <= slow.size_bytes);
        }
    }

    #[test]
    fn any_numbers_at_all_give_a_size_within_the_bounds_or_none(
        raw in prop::collection::vec((any::<usize>(), any::<f64>(), any::<f64>()), 0..6),
        numbers in (any::<f64>(), any::<f64>(), any::<f64>()),
        floor_bytes in any::<usize>(),
        ceiling_bytes in any::<usize>(),
    ) {
        let points = raw.into_iter().map(|(size_bytes, latency_ns, bytes_per_s)| LinkPoint {
            size_bytes,
            latency_ns,
            bytes_per_s,
        });
        let (bytes_per_s, reserve, chunk_cost_ns) = numbers;
        let demand = Demand { bytes_per_s, reserve, chunk_cost_ns, floor_bytes, ceiling_bytes };
        let points = points.collect::<Vec<_>>();
        let floor = latency_floor(&points);
        prop_assert!(floor.is_none_or(|floor| points.iter().any(|p| p.size_bytes == floor)));
        if let Some(plan) = plan_chunk(&points, &demand) {
            prop_assert_eq!(plan.size_bytes % LINE_BYTES, 0);
            prop_assert!(plan.size_bytes >= floor_bytes.clamp(1, 1 << 52));
            prop_assert!(!plan.bytes_per_s.is_nan() && !plan.latency_ns.is_nan());
        }
    }
}
