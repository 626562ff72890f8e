//! What a host has, what its configuration allows, and how much it is disturbed.

use crate::power::assign::Lists;
use crate::power::{Core, Cpu, Limits, Policy};

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000 * MS;

/// How much the world disturbs: the chance of each at a tick.
#[derive(Debug, Clone, Copy, Default)]
pub struct Trouble {
    pub lost: f64,
    pub late: f64,
    pub jumps: f64,
    pub flaps: f64,
    pub fails: f64,
    pub busy: f64,
}

pub fn trouble(random: &mut fastrand::Rng) -> Trouble {
    let share = |random: &mut fastrand::Rng, most: f64| match random.u8(0..3) {
        0 => random.f64() * most,
        _ => 0.0,
    };
    Trouble {
        lost: share(random, 0.05),
        late: share(random, 0.1),
        jumps: share(random, 0.02),
        flaps: share(random, 0.2),
        fails: share(random, 0.02),
        busy: share(random, 0.02),
    }
}

pub fn limits(random: &mut fastrand::Rng) -> Limits {
    let lag_ns = random.bool().then(|| random.u64(2..200) * MS);
    Limits {
        lag_ns,
        policy: if random.bool() {
            Policy::Load
        } else {
            Policy::Saturation
        },
        floor_khz: (random.u8(0..4) == 0).then(|| random.u32(800_000..2_500_000)),
        read_delay_ns: (random.u8(0..4) == 0).then(|| random.u64(0..50_000)),
        settle_ns: random.u64(1..8) * S,
    }
}

pub fn cores(random: &mut fastrand::Rng) -> Vec<Core> {
    let size = [1, 1, 2, 4][random.usize(0..4)];
    let count = random.u32(2..24);
    let has_steps = random.bool();
    let core = |cpu: Cpu| Core {
        cpu,
        khz: Some((1_000_000, 2_200_000)),
        steps_khz: match has_steps {
            true => (0..7).map(|step| 1_000_000 + step * 200_000).collect(),
            false => Vec::new(),
        },
        domain: (cpu / size * size..cpu / size * size + size).collect(),
        node: cpu / 8,
    };
    let mut cores = (0..count).map(core).collect::<Vec<Core>>();
    for core in &mut cores {
        if random.u8(0..30) == 0 {
            core.khz = None;
        }
    }
    cores
}

pub fn lists(random: &mut fastrand::Rng, cores: &[Core]) -> Lists {
    let mut lists = Lists::default();
    if random.u8(0..4) > 0 {
        return lists;
    }
    for core in cores {
        match random.u8(0..4) {
            0 => drop(lists.fast.insert(core.cpu)),
            1 => drop(lists.slow.insert(core.cpu)),
            _ => {}
        }
    }
    lists
}
