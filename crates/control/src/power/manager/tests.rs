use super::*;
use crate::power::{Busy, Obstacle, Policy, ReplicaLink};

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

const LIMITS: Limits = Limits {
    lag_ns: Some(20 * MS),
    policy: Policy::Saturation,
    floor_khz: None,
    read_delay_ns: None,
    settle_ns: 10 * S,
};

/// The paper's processor, as it would be with a clock for each core, or for pairs.
fn cores(count: Cpu, are_pairs: bool) -> Vec<Core> {
    let core = |cpu: Cpu| Core {
        cpu,
        khz: Some((1_000_000, 2_200_000)),
        steps_khz: (0..7).map(|step| 1_000_000 + step * 200_000).collect(),
        domain: match are_pairs {
            true => [cpu & !1, cpu | 1].into(),
            false => [cpu].into(),
        },
        node: 0,
    };
    (0..count).map(core).collect()
}

/// A master, 1, with replicas 2 and 3, that write 1 MB a second.
struct World {
    manager: Manager,
    now_ns: u64,
    seen: Vec<Seen>,
    /// What a byte costs the replica at 2.2 GHz, in nanoseconds; the master's costs 76.
    cost_ns: f64,
    orders: Vec<Order>,
}

impl World {
    fn new(limits: Limits, cores: Vec<Core>) -> World {
        let replica = Role::Replica {
            master: Some(1),
            link: ReplicaLink::Up,
            master_offset: Some(0),
        };
        let seen = |instance, role| Seen {
            instance,
            role,
            busy: None,
            cpu_ns: 0,
            offset: 0,
            reads: 0,
            mean_khz: None,
        };
        World {
            manager: Manager::new(limits, cores, Lists::default()).expect("a manager"),
            now_ns: S,
            seen: vec![seen(1, Role::Master), seen(2, replica), seen(3, replica)],
            cost_ns: 10.0,
            orders: Vec::new(),
        }
    }

    fn tick(&mut self, count: u64) {
        for _ in 0..count {
            self.now_ns += S / 10;
            for seen in &mut self.seen {
                seen.offset += 100_000;
                let order = self.manager.setting(seen.instance);
                let khz = order.and_then(|order| order.khz).unwrap_or(2_200_000);
                let cost_ns = match &mut seen.role {
                    Role::Replica { master_offset, .. } => {
                        *master_offset = Some(seen.offset);
                        self.cost_ns * 2_200_000.0 / f64::from(khz)
                    }
                    Role::Master | Role::Unknown => 76.0,
                };
                seen.cpu_ns += (cost_ns * 1e5) as u64;
            }
            let orders = self.manager.tick(&Observation {
                now_ns: self.now_ns,
                oversleep_p99_ns: MS / 10,
                instances: self.seen.clone(),
            });
            self.orders.extend(orders);
        }
    }

    fn setting(&self, instance: InstanceId) -> Order {
        *self.manager.setting(instance).expect("a setting")
    }

    fn khz(&self, instance: InstanceId) -> Option<u32> {
        self.setting(instance).khz
    }
}

#[test]
fn replicas_go_down_step_by_step_and_are_batched() {
    let mut world = World::new(LIMITS, cores(4, false));
    world.tick(1);
    assert_eq!(world.orders.len(), 3);
    assert!(
        world
            .orders
            .iter()
            .all(|order| order.khz.is_none() && order.cpu.is_some())
    );
    world.tick(99);
    assert_eq!(world.orders.len(), 3);
    world.tick(1);
    assert_eq!((world.khz(2), world.orders.len()), (Some(2_000_000), 5));
    world.tick(600);
    assert_eq!(
        [1, 2, 3].map(|id| world.khz(id)),
        [None, Some(1_000_000), Some(1_000_000)]
    );
    assert_eq!(world.setting(3).reason, Reason::Follows);
    let beat_ns = world.setting(3).beat_ns.expect("a beat");
    assert!((15 * MS..19 * MS).contains(&beat_ns), "{beat_ns}");
    // Nothing changes any more, and nothing is said.
    let before = world.orders.len();
    world.tick(1_000);
    assert_eq!(world.orders.len(), before);
    let share = world.manager.cost_at_top(2, 1_000_000).expect("costs");
    assert!((share - 1.0 / 2.2).abs() < 0.02, "{share}");
}

#[test]
fn a_replica_that_does_all_of_the_master_s_work_again_stays_fast() {
    let mut world = World::new(LIMITS, cores(4, false));
    world.cost_ns = 70.0;
    world.tick(700);
    assert_eq!(
        (world.khz(2), world.setting(2).reason),
        (None, Reason::NeedsSpeed)
    );
    // By the load that there is, a slower core would do.
    let mut world = World::new(
        Limits {
            policy: Policy::Load,
            floor_khz: Some(1_150_000),
            ..LIMITS
        },
        cores(4, false),
    );
    world.cost_ns = 70.0;
    world.tick(1_000);
    assert_eq!(world.khz(2), Some(1_200_000));
}

#[test]
fn a_lost_master_raises_at_once_whoever_says_so() {
    let mut world = World::new(LIMITS, cores(4, false));
    world.tick(700);
    let now_ns = world.now_ns;
    let orders = world.manager.master_lost(1, now_ns + MS);
    assert_eq!(orders.len(), 2);
    for order in orders {
        let set = (order.khz, order.beat_ns, order.reason);
        assert_eq!(set, (None, None, Reason::MasterLost));
    }
    assert_eq!(world.manager.master_lost(1, now_ns + 2 * MS), []);
    world.tick(400);
    assert_ne!(world.khz(2), None);
    world.seen[0].role = Role::Unknown;
    world.tick(1);
    assert_eq!([2, 3].map(|id| world.khz(id)), [None, None]);
}

#[test]
fn a_promoted_instance_raises_its_clock_domain_and_cores_are_changed() {
    let mut world = World::new(LIMITS, cores(4, true));
    world.tick(700);
    assert_eq!(
        [1, 2, 3].map(|id| world.setting(id).cpu),
        [Some(0), Some(2), Some(3)]
    );
    let orders = world.manager.promote(2, world.now_ns);
    assert_eq!(orders.len(), 2);
    assert_eq!([2, 3].map(|id| world.khz(id)), [None, None]);
    let shares = Obstacle::SharesClock {
        cpu: 3,
        with: 2,
        fast: 2,
    };
    assert_eq!(world.setting(3).reason, Reason::NotSlowed(shares));
    // The old master follows the new one.
    world.seen[1].role = Role::Master;
    world.seen[1].offset += 1;
    for at in [0, 2] {
        world.seen[at].role = Role::Replica {
            master: Some(2),
            link: ReplicaLink::Up,
            master_offset: Some(0),
        };
    }
    world.tick(1_500);
    assert_eq!(
        [1, 2, 3].map(|id| world.setting(id).cpu),
        [Some(2), Some(1), Some(3)]
    );
    assert_eq!(
        [1, 2, 3].map(|id| world.khz(id)),
        [Some(1_000_000), None, Some(1_000_000)]
    );
}

#[test]
fn without_a_lag_nothing_is_batched_and_without_a_clock_it_is_all_that_is_done() {
    let mut world = World::new(
        Limits {
            lag_ns: None,
            ..LIMITS
        },
        cores(4, false),
    );
    world.tick(700);
    assert_eq!(
        (world.khz(2), world.setting(2).beat_ns),
        (Some(1_000_000), None)
    );
    let mut unset = cores(4, false);
    for core in &mut unset {
        core.khz = None;
    }
    let mut world = World::new(LIMITS, unset);
    world.tick(700);
    let setting = world.setting(2);
    assert_eq!((setting.khz, setting.cpu), (None, None));
    assert!(setting.beat_ns.is_some());
    assert_eq!(setting.reason, Reason::NotSlowed(Obstacle::NoCore));
}

#[test]
fn who_waits_for_a_replica_waits_for_no_beat() {
    let mut world = World::new(LIMITS, cores(4, false));
    world.tick(700);
    world.seen[1].busy = Some(Busy::IsWaitedFor);
    world.tick(1);
    let setting = world.setting(2);
    assert_eq!((setting.khz, setting.beat_ns), (None, None));
    assert_eq!(setting.reason, Reason::Busy(Busy::IsWaitedFor));
    assert_ne!(world.khz(3), None);
}

#[test]
fn an_instance_that_is_gone_is_forgotten_with_a_last_order() {
    let mut world = World::new(LIMITS, cores(4, false));
    world.tick(700);
    world.seen.remove(1);
    let before = world.orders.len();
    world.tick(1);
    let gone = world.orders[before];
    assert_eq!((gone.instance, gone.khz, gone.cpu), (2, None, None));
    assert_eq!(gone.reason, Reason::Gone);
    assert_eq!(world.manager.setting(2), None);
    assert_eq!(world.manager.ones.len(), 2);
}

#[test]
fn a_master_without_a_core_keeps_every_core_fast() {
    let mut world = World::new(LIMITS, cores(2, false));
    let master = Seen {
        instance: 9,
        ..world.seen[0].clone()
    };
    world.seen.truncate(2);
    world.tick(700);
    assert_ne!(world.khz(2), None);
    world.seen.push(Seen {
        role: Role::Unknown,
        instance: 8,
        ..master.clone()
    });
    world.seen.push(master);
    world.tick(1);
    assert_eq!(world.khz(2), None);
}

#[test]
fn an_instance_that_was_given_twice_is_unknown_and_too_many_are_left_out() {
    let mut world = World::new(LIMITS, cores(4, false));
    world.tick(700);
    world.seen.push(world.seen[1].clone());
    world.tick(1);
    assert_eq!(world.setting(2).reason, Reason::Unknown);
    let one = world.seen[0].clone();
    let many = (0..INSTANCES_MAX as u64 + 10).map(|instance| Seen {
        instance,
        ..one.clone()
    });
    let many = many.collect::<Vec<Seen>>();
    assert_eq!(by_number(&many).len(), INSTANCES_MAX);
}

#[test]
fn a_clock_that_jumps_neither_panics_nor_slows_a_fresh_role() {
    let mut world = World::new(LIMITS, cores(4, false));
    world.tick(5);
    for now_ns in [u64::MAX, 0, 3_600 * S, 1_800 * S] {
        world.now_ns = now_ns.min(u64::MAX - S);
        world.tick(1);
    }
    world.tick(600);
    assert_ne!(world.khz(2), None);
}

#[test]
fn a_replica_whose_slow_core_slows_the_master_is_made_fast_again() {
    for disturbs in [true, false] {
        let mut world = World::new(LIMITS, cores(4, false));
        for _ in 0..600 {
            let is_slow = disturbs
                && world
                    .manager
                    .setting(2)
                    .is_some_and(|order| order.khz.is_some());
            world.seen[0].mean_khz = Some(if is_slow { 2_100_000 } else { 2_200_000 });
            world.tick(1);
        }
        let slows = |order: Order| match order.reason {
            Reason::NotSlowed(Obstacle::SlowsMaster { cpu, master }) => {
                order.cpu == Some(cpu) && master == 1
            }
            _ => false,
        };
        assert_eq!(slows(world.setting(2)), disturbs);
        assert_eq!(world.khz(2).is_none(), disturbs);
        // It is batched all the same.
        assert!(world.setting(2).beat_ns.is_some());
    }
}

#[test]
fn cores_that_go_and_come_are_given_anew_and_slowed_step_by_step() {
    let mut world = World::new(LIMITS, cores(4, false));
    world.tick(700);
    let gone = world.setting(2).cpu.expect("a core");
    let mut left = cores(4, false);
    left.retain(|core| core.cpu != gone);
    let orders = world.manager.set_cores(left, world.now_ns).expect("cores");
    assert!(
        orders
            .iter()
            .all(|order| order.khz.is_none() && order.cpu != Some(gone))
    );
    assert_ne!(world.setting(2).cpu, Some(gone));
    world.tick(700);
    assert_eq!(world.khz(2), Some(1_000_000));
    let back = cores(4, false);
    world.manager.set_cores(back, world.now_ns).expect("cores");
    assert_eq!([1, 2, 3].map(|id| world.khz(id)), [None; 3]);
    // Of cores that make no sense nothing is taken.
    let twice = [cores(1, false), cores(1, false)].concat();
    assert!(world.manager.set_cores(twice, world.now_ns).is_err());
    world.tick(700);
    assert_eq!(world.khz(3), Some(1_000_000));
}
