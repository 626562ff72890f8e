use super::*;

/// The paper's processor: seven P-states.
const STEPS: [u32; 7] = [
    1_000_000, 1_200_000, 1_400_000, 1_600_000, 1_800_000, 2_000_000, 2_200_000,
];
const HIGH: u32 = 2_200_000;
/// What a write of 1 KB costs the paper's master, in nanoseconds.
const MASTER_NS: f64 = 77_690.0;

fn need(ratio: f64) -> Need {
    let master = Law::of(MASTER_NS, HIGH);
    let bytes = bytes(Policy::Saturation, Some(master), HIGH, 0.0);
    Need {
        per_byte: Law::of(MASTER_NS * ratio, HIGH),
        per_read: Law::default(),
        idle: Law::default(),
        bytes: bytes.expect("the master's cost is known"),
        reads: 0.0,
        read_delay_ns: None,
    }
}

fn wish(need: &Need) -> Option<u32> {
    need.wish(&STEPS, None).needed.khz()
}

/// A replica's write costs 10.98 µs, and its master's 77.69 (Concerto, figure 3): r = 0.141, so 0.39 GHz
/// would do, and the lowest P-state is 1.0 GHz. INCR and ZADD are up to r = 0.36 there, and so is the paper's
/// SET that spends 22.28 µs at 1.0 GHz.
#[test]
fn a_set_needs_the_lowest_frequency() {
    assert_eq!(wish(&need(10.98 / 77.69)), Some(1_000_000));
    let mut fitted = need(0.0);
    fitted.per_byte = Law {
        fixed_ns: 1_563.3,
        cycles: 20_716.7,
    };
    assert_eq!(wish(&fitted), Some(1_000_000));
    assert!((fitted.busy(1_000_000) - 22.28 / 77.69).abs() < 1e-4);
    for ratio in [0.2, 0.36] {
        assert_eq!(wish(&need(ratio)), Some(1_000_000), "INCR, ZADD: {ratio}");
    }
}

/// Each r lies in the middle of those that give the frequency that was found for the kind of command: f_H ·
/// r / 0.8 is above the P-state below, and at most this one.
#[test]
fn other_commands_need_what_their_ratio_says() {
    // HSET of ten fields: most of its time is spent in the hash, and both sides do that. (0.436, 0.509]
    assert_eq!(wish(&need(0.47)), Some(1_400_000));
    // SET in pipelines of 16: the master's system calls are shared by 16 commands. (0.582, 0.655]
    assert_eq!(wish(&need(0.62)), Some(1_800_000));
    // SET in pipelines of 32. (0.655, 0.727]
    assert_eq!(wish(&need(0.69)), Some(2_000_000));
    // ZUNIONSTORE: the replica does all of the master's work again.
    assert_eq!(wish(&need(0.95)), None);
}

#[test]
fn a_saturated_master_without_a_known_cost_is_not_borne() {
    assert_eq!(bytes(Policy::Saturation, None, HIGH, 1.0), None);
    assert_eq!(
        bytes(Policy::Saturation, Some(Law::default()), HIGH, 1.0),
        None
    );
    assert_eq!(bytes(Policy::Load, None, HIGH, 1.0), Some(LOAD_ROOM));
}

#[test]
fn by_load_it_is_half_as_much_again_as_was_there() {
    let mut need = need(0.95);
    // 2,000 writes a second: 0.148 busy, or 0.22 with room; at 1.0 GHz 0.49.
    need.bytes = bytes(Policy::Load, None, HIGH, 2e-6).expect("a rate");
    assert_eq!(wish(&need), Some(1_000_000));
    need.bytes = bytes(Policy::Load, None, HIGH, 5e-6).expect("a rate");
    assert_eq!(wish(&need), Some(1_600_000));
}

#[test]
fn reads_are_borne_and_their_delay_is_bounded() {
    let mut need = need(10.98 / 77.69);
    need.per_read = Law::of(50_000.0, HIGH);
    need.reads = 6e-6;
    // (0.141 + 0.3) · 2.2 / 0.8 = 1.21 GHz.
    assert_eq!(wish(&need), Some(1_400_000));
    need.reads = 0.0;
    // 50 µs · (2.2 / f − 1) <= 20 µs from 1.57 GHz on.
    need.read_delay_ns = Some(20_000);
    assert_eq!(wish(&need), Some(1_600_000));
    need.read_delay_ns = Some(0);
    assert_eq!(wish(&need), None);
}

#[test]
fn floors_are_kept() {
    let need = need(0.1);
    let at = |floor| need.wish(&STEPS, floor).needed.khz();
    assert_eq!(at(Some(1_200_000)), Some(1_200_000));
    assert_eq!(at(Some(1_300_000)), Some(1_400_000));
    assert_eq!(at(Some(2_100_000)), None);
    let mut floor = Floor::default();
    floor.raise(5, 1_000_000);
    assert_eq!(at(floor.khz(5, Some(900_000))), Some(1_200_000));
    assert_eq!(at(floor.khz(FLOOR_NS + 5, Some(900_000))), Some(1_000_000));
    floor.raise(6, 1_200_000);
    floor.raise(7, 1_000_000);
    assert_eq!(at(floor.khz(8, None)), Some(1_400_000));
}

#[test]
fn up_at_once_and_down_a_step_every_ten_seconds() {
    let mut pace = Pace::HIGHEST;
    let low = need(0.1).wish(&STEPS, None);
    let mut khz = |second: u64, wish| pace.next(second * 1_000_000_000, wish, &STEPS).khz();
    let steps = (0..=60).map(|second| khz(second, low));
    let steps = steps.collect::<Vec<Option<u32>>>();
    assert_eq!(steps[0], Some(2_000_000));
    assert_eq!(steps[9], Some(2_000_000));
    assert_eq!(steps[10], Some(1_800_000));
    assert_eq!(steps[49], Some(1_200_000));
    assert_eq!(steps[50], Some(1_000_000));
    assert_eq!(steps[60], Some(1_000_000));
    assert_eq!(khz(61, Wish::HIGHEST), None);
    assert_eq!(khz(62, low), None);
    assert_eq!(khz(71, low), Some(2_000_000));
    // It does not go below what is wished.
    let middle = need(0.5).wish(&STEPS, None);
    assert_eq!(khz(200, middle), Some(1_800_000));
    assert_eq!(khz(300, middle), Some(1_600_000));
    assert_eq!(khz(400, middle), Some(1_600_000));
    assert_eq!(khz(401, need(0.62).wish(&STEPS, None)), Some(1_800_000));
}

#[test]
fn a_core_of_any_frequency_has_steps_up_to_its_highest() {
    let mut core = Core {
        cpu: 0,
        khz: Some((800_000, 3_500_000)),
        steps_khz: Vec::new(),
        domain: [0].into(),
        node: 0,
    };
    let steps_found = steps(&core);
    assert_eq!(
        (steps_found.len(), steps_found[0], steps_found[13]),
        (15, 800_000, 3_400_000)
    );
    assert_eq!(steps_found.last(), Some(&3_500_000));
    core.khz = Some((1, u32::MAX));
    assert!(steps(&core).len() <= STEPS_MAX && steps(&core).last() == Some(&u32::MAX));
    core.khz = Some((5, 5));
    assert_eq!(steps(&core), [5]);
    assert_eq!(need(0.1).wish(&[5], None), Wish::HIGHEST);
    assert_eq!(need(0.1).wish(&[], None), Wish::HIGHEST);
    core.khz = None;
    assert!(steps(&core).is_empty());
}
