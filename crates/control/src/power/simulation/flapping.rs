//! Two servers that change roles again and again.

use crate::power::assign::Lists;
use crate::power::manager::Manager;
use crate::power::roles::REMEMBERED_NS;
use crate::power::simulation::host::S;
use crate::power::{Core, Cpu, Limits, Observation, Policy, ReplicaLink, Role, Seen};

const SEEDS: u64 = 50;
const RUN_NS: u64 = 3_600 * S;
const TICK_NS: u64 = S / 2;

/// In ten minutes a server is slowed as often as its time to settle can be doubled, and once more.
fn slowed_max(settle_ns: u64) -> u64 {
    let doublings = u64::from((REMEMBERED_NS / settle_ns).ilog2()) + 1;
    (RUN_NS / REMEMBERED_NS + 1) * (doublings + 1)
}

fn cores() -> Vec<Core> {
    let core = |cpu: Cpu| Core {
        cpu,
        khz: Some((1_000_000, 2_200_000)),
        steps_khz: Vec::new(),
        domain: [cpu].into(),
        node: 0,
    };
    (0..2).map(core).collect()
}

#[test]
fn a_role_that_flaps_costs_few_changes() {
    let mut most = 0;
    for seed in 0..SEEDS {
        let mut random = fastrand::Rng::with_seed(seed);
        let limits = Limits {
            lag_ns: None,
            policy: Policy::Load,
            floor_khz: None,
            read_delay_ns: None,
            settle_ns: random.u64(2..20) * S,
        };
        let settle_ns = limits.settle_ns;
        let mut manager = Manager::new(limits, cores(), Lists::default()).expect("a manager");
        let (mut leads, mut change_ns, mut offset) = (0u64, 0u64, 0u64);
        let mut slowed = [0u64; 2];
        // Seeds with an odd number change as soon as somebody is slow.
        let is_mean = seed % 2 == 1;
        for tick in 0..RUN_NS / TICK_NS {
            let now_ns = tick * TICK_NS;
            offset += 10_000;
            let is_slow =
                (0..2).any(|id| manager.setting(id).is_some_and(|order| order.khz.is_some()));
            if now_ns >= change_ns && (is_slow || !is_mean) {
                leads = 1 - leads;
                change_ns = now_ns + random.u64(0..60) * S;
            }
            let seen = |instance| Seen {
                instance,
                role: match instance == leads {
                    true => Role::Master,
                    false => Role::Replica {
                        master: Some(leads),
                        link: ReplicaLink::Up,
                        master_offset: Some(offset),
                    },
                },
                busy: None,
                cpu_ns: offset * 10,
                offset,
                reads: 0,
                mean_khz: None,
            };
            let before = [0, 1].map(|id| manager.setting(id).and_then(|order| order.khz));
            let orders = manager.tick(&Observation {
                now_ns,
                oversleep_p99_ns: 0,
                instances: vec![seen(0), seen(1)],
            });
            for order in orders {
                let at = order.instance as usize;
                slowed[at] += u64::from(before[at].is_none() && order.khz.is_some());
            }
        }
        for slowed in slowed {
            assert!(
                slowed <= slowed_max(settle_ns),
                "seed {seed}: slowed {slowed} times"
            );
            most = most.max(slowed);
        }
    }
    assert!(most > 1, "nobody was slowed");
}
