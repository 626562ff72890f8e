//! Simulates a path through two processes: a source that sleeps in the first, a sink that is woken in the
//! second, and answers of both that may arrive one or more rounds late.

use proptest::prelude::*;
use slackwater_control::latency::model::HostCosts;

use super::*;
use crate::probe::{InstanceSeen, SinkSeen};

const TARGET_NS: u64 = 20_000_000;
const INTERVAL_NS: u64 = 500_000_000;
const ROUNDS: usize = 60;

/// The corrections that the controller may need: the delay falls at once, but the right amount is learned.
const SETTLED: usize = 20;

#[derive(Debug, Clone, Copy)]
struct World {
    seed: u64,
    rows_per_s: f64,
    /// The time that the sink's process needs for a batch, including the way to it.
    sink_ns: f64,
    hop_ns: f64,
    /// By how much latencies may be wrong.
    error_ns: u64,
    /// From a round on, another way and another error.
    later: Option<(usize, f64, u64)>,
    /// The share of rounds in which a process does not answer in time.
    unanswered: [f64; 2],
}

fn path() -> PathControl {
    let parts = PathParts {
        sources: [0].into(),
        source_instances: [0].into(),
        instances: [0, 1].into(),
        sink: 3,
        is_paced: false,
    };
    let goal = Goal {
        target_ns: TARGET_NS,
        costs: HostCosts {
            wake_ns: 30_000.0,
            wake_until_look_p99_ns: 70_000.0,
            sleep_ns: 22_000.0,
            oversleep_p50_ns: 27_000.0,
            oversleep_p99_ns: 53_000.0,
            activations: None,
        },
    };
    let setting = Setting {
        delay_ns: 17_500_000,
        chunk_rows: 8_192,
    };
    PathControl::new(parts, goal, setting)
}

/// The activity of a process since its last answer.
fn nothing(process: usize) -> Seen {
    Seen {
        process,
        workers: vec![WorkerSeen {
            worker: process,
            ..WorkerSeen::default()
        }],
        instances: vec![InstanceSeen {
            instance: process,
            ..InstanceSeen::default()
        }],
        sinks: vec![SinkSeen {
            node: 3,
            latencies: Vec::new(),
        }],
        ..Seen::default()
    }
}

/// Returns the setting of each round, and the share of its rows that was late.
fn run(world: &World) -> Vec<(Setting, f64)> {
    let mut random = fastrand::Rng::with_seed(world.seed);
    let mut path = path();
    let mut workers = [WorkerState::default(), WorkerState::default()];
    let mut pending = [nothing(0), nothing(1)];
    let mut rounds = Vec::new();
    let mut since_ns = 0;
    for round in 0..ROUNDS {
        let (hop_ns, error_ns) = match world.later {
            Some((from, hop_ns, error_ns)) if round >= from => (hop_ns, error_ns),
            _ => (world.hop_ns, world.error_ns),
        };
        let setting = path.setting();
        let (mut round_ns, mut late, mut rows_in) = (0, 0, 0);
        while round_ns < INTERVAL_NS {
            let wait_ns = match setting.delay_ns {
                0 => 1_000_000.0,
                delay_ns => delay_ns as f64 + 60_000.0 * random.f64(),
            };
            let rows = (world.rows_per_s * wait_ns / 1e9).ceil() as u64;
            let read_ns = 10_000.0 + 200.0 * rows as f64;
            let way_ns = hop_ns * (1.0 + random.f64());
            let sink_ns = world.sink_ns + 100.0 * rows as f64;
            let waited_ns = if setting.delay_ns == 0 {
                30_000.0
            } else {
                wait_ns
            };
            let latency_ns = (waited_ns + read_ns + way_ns + sink_ns) as u64;
            round_ns += (wait_ns + read_ns) as u64;
            let is_late = latency_ns + error_ns > TARGET_NS;
            late += if is_late { rows } else { 0 };
            rows_in += rows;
            pending[0].instances[0].rows_in += rows;
            for (seen, busy_ns) in pending.iter_mut().zip([read_ns, sink_ns]) {
                seen.instances[0].chunks += 1;
                seen.instances[0].rows_taken += rows;
                seen.instances[0].busy_ns += busy_ns as u64;
                seen.workers[0].activations += 1;
                seen.workers[0].busy_ns += busy_ns as u64;
            }
            pending[0].workers[0].sleeps += u64::from(setting.delay_ns > 0);
            pending[1].sinks[0].latencies.push((latency_ns, rows));
        }
        rounds.push((setting, late as f64 / rows_in as f64));
        let mut answers = Vec::new();
        for (process, pending) in pending.iter_mut().enumerate() {
            pending.interval_ns += round_ns;
            if random.f64() >= world.unanswered[process] {
                answers.push(std::mem::replace(pending, nothing(process)));
            }
        }
        since_ns += round_ns;
        if answers.is_empty() {
            continue;
        }
        for seen in &answers {
            let (worker, rows) = (&seen.workers[0], seen.instances[0].rows_taken);
            workers[worker.worker].see(worker, rows, seen.interval_ns, seen.stolen_ns);
        }
        let utilization = workers.iter().map(|worker| worker.utilization);
        let around = Around {
            interval_ns: std::mem::take(&mut since_ns),
            utilization: utilization.fold(0.0, f64::max),
            slept: workers[0].slept,
            sleeps: 1.0,
            error_ns,
            lost: Lost::default(),
        };
        path.correct(&answers, &around);
    }
    rounds
}

fn steady() -> World {
    World {
        seed: 1,
        rows_per_s: 1e4,
        sink_ns: 6e6,
        hop_ns: 100_000.0,
        error_ns: 0,
        later: None,
        unanswered: [0.0; 2],
    }
}

fn late(rounds: &[(Setting, f64)]) -> f64 {
    rounds.iter().map(|(_, late)| late).sum::<f64>() / rounds.len() as f64
}

#[test]
fn what_the_sinks_process_takes_shortens_the_sleep_in_the_sources() {
    let rounds = run(&steady());
    assert!(
        rounds[0].1 > 0.9,
        "the plan knows nothing of the sink: {rounds:?}"
    );
    assert!(late(&rounds[SETTLED..]) <= 0.01, "{rounds:?}");
    let (last, _) = rounds[ROUNDS - 1];
    assert!(
        (2_000_000..14_000_000).contains(&last.delay_ns),
        "no shorter than need be: {last:?}"
    );
}

/// Half a round trip of error, and of way: 1 ms, then 6 ms.
#[test]
fn a_network_that_becomes_slower_is_made_up_for_within_three_seconds() {
    const AT: usize = 30;
    const WITHIN: usize = (3_000_000_000 / INTERVAL_NS) as usize;
    for seed in 0..50 {
        let rounds = run(&World {
            seed,
            sink_ns: 200_000.0,
            hop_ns: 800_000.0,
            error_ns: 1_600_000,
            later: Some((AT, 5_500_000.0, 6_600_000)),
            ..steady()
        });
        assert!(late(&rounds[SETTLED..AT]) <= 0.01, "{seed}: {rounds:?}");
        assert!(rounds[AT].1 > 0.9, "{seed}: it is too slow now: {rounds:?}");
        assert!(late(&rounds[AT + WITHIN..]) <= 0.01, "{seed}: {rounds:?}");
        // Before, it has slept for as long as the error left room for.
        let (before, _) = rounds[AT - 1];
        assert!(before.delay_ns > 12_000_000, "{seed}: {before:?}");
    }
}

#[test]
fn nothing_is_known_of_a_sink_whose_process_never_answers() {
    let rounds = run(&World {
        unanswered: [0.0, 1.0],
        ..steady()
    });
    assert!(late(&rounds[SETTLED..]) > 0.9, "{rounds:?}");
}

proptest! {
    /// With the delay at its floor, half of the target is left.
    #[test]
    fn a_target_is_met_across_processes_though_answers_are_missed(
        seed: u64,
        rows_per_s in 1e3f64..1e5,
        sink_ns in 0.0f64..5e6,
        hop_ns in 10_000.0f64..1e6,
        unanswered in prop::array::uniform2(0.0f64..0.5),
    ) {
        let world = World { seed, rows_per_s, sink_ns, hop_ns, unanswered, ..steady() };
        let rounds = run(&world);
        let settled = &rounds[SETTLED..];
        prop_assert!(late(settled) <= 0.02, "{settled:?}");
        // A tenth of the 18 ms that rows are to keep, shared by a sleep and the work on what came during it,
        // which takes no longer.
        prop_assert!(settled.iter().all(|(setting, _)| setting.delay_ns >= 900_000), "{settled:?}");
    }

    /// The reports of several processes give the same result as that of one process.
    #[test]
    fn the_same_is_decided_wherever_it_was_seen(
        rows in 0u64..100_000,
        latencies in prop::collection::vec((0u64..60_000_000, 1u64..1_000), 0..20),
        busy_ns in prop::array::uniform2(0u64..400_000_000),
        fill in 0.0f64..1.0,
    ) {
        let half = latencies.len() / 2;
        let source = InstanceSeen { instance: 0, rows_in: rows, chunks: 10, rows_taken: rows, reads: true,
            busy_ns: busy_ns[0] };
        let sink = InstanceSeen { instance: 1, chunks: 10, rows_taken: rows, busy_ns: busy_ns[1],
            ..InstanceSeen::default() };
        let of_sink = |latencies: &[(u64, u64)]| SinkSeen { node: 3, latencies: latencies.to_vec() };
        let one = [Seen {
            instances: vec![source, sink],
            sinks: vec![of_sink(&latencies)],
            fills: vec![(0, fill)],
            ..Seen::default()
        }];
        let several = [
            Seen { instances: vec![source], fills: vec![(0, fill), (7, 1.0)], ..Seen::default() },
            Seen { process: 1, sinks: vec![of_sink(&latencies[..half])], ..Seen::default() },
            Seen { process: 2, instances: vec![sink], sinks: vec![of_sink(&latencies[half..])],
                ..Seen::default() },
        ];
        let around = Around { interval_ns: INTERVAL_NS, utilization: 0.3, slept: true, sleeps: 1.0,
            error_ns: 0, lost: Lost::default() };
        let (mut by_one, mut by_several) = (path(), path());
        prop_assert_eq!(by_one.correct(&one, &around), by_several.correct(&several, &around));
        prop_assert_eq!(by_one.setting(), by_several.setting());
    }
}

#[test]
fn a_report_crosses_a_socket_and_is_bounded() {
    let mut seen = nothing(1);
    let slots = slackwater_engine::latency::SLOTS;
    let latencies = (0..slots).map(|slot| (slackwater_engine::latency::upper_ns(slot), u64::MAX));
    seen.sinks[0].latencies = latencies.collect();
    seen.fills = vec![(0, 0.123)];
    let written = serde_json::to_string(&seen).unwrap();
    assert_eq!(serde_json::from_str::<Seen>(&written).unwrap(), seen);
    assert!(written.len() < 48 << 10, "{} bytes", written.len());
}
