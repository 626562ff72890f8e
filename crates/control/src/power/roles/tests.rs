use super::*;
use crate::power::Busy;

const S: u64 = 1_000_000_000;
const ALLOWED: u64 = 100_000_000;

/// A master, 1, and its replicas, 2 and 3, asked once a second.
struct World {
    roles: Roles,
    now_s: u64,
    seen: BTreeMap<InstanceId, Seen>,
    lag_ns: Option<u64>,
}

impl World {
    fn new() -> World {
        let mut world = World {
            roles: Roles::new(10 * S),
            now_s: 0,
            seen: BTreeMap::new(),
            lag_ns: Some(0),
        };
        world.say(1, Role::Master);
        world.say(2, follows(1));
        world.say(3, follows(1));
        world
    }

    fn say(&mut self, instance: InstanceId, role: Role) {
        let seen = Seen {
            instance,
            role,
            busy: None,
            cpu_ns: 0,
            offset: 0,
            reads: 0,
            mean_khz: None,
        };
        self.seen.insert(instance, seen);
    }

    fn busy(&mut self, instance: InstanceId, busy: Option<Busy>) {
        self.seen.get_mut(&instance).expect("an instance").busy = busy;
    }

    fn tick(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now_s += 1;
            let lag = Lag {
                lag_ns: self.lag_ns,
                explained_ns: 0,
                allowed_ns: ALLOWED,
            };
            let lags = self.seen.keys().map(|id| (*id, lag)).collect();
            self.roles.tick(self.now_s * S, &self.seen, &lags);
        }
    }

    fn phase(&self, instance: InstanceId) -> (Phase, Reason) {
        self.roles.phase(instance)
    }

    /// For how many seconds it is fast from now on.
    fn settles(&mut self, instance: InstanceId) -> u64 {
        let begin_s = self.now_s;
        while self.phase(instance).0 != Phase::Slow {
            self.tick(1);
            assert!(self.now_s - begin_s < 2_000);
        }
        self.now_s - begin_s
    }
}

fn follows(master: InstanceId) -> Role {
    link(Some(master), ReplicaLink::Up)
}

fn link(master: Option<InstanceId>, link: ReplicaLink) -> Role {
    Role::Replica {
        master,
        link,
        master_offset: Some(0),
    }
}

const SLOW: (Phase, Reason) = (Phase::Slow, Reason::Follows);

#[test]
fn a_replica_is_slow_once_it_has_settled_and_a_master_never() {
    let mut world = World::new();
    assert_eq!(world.phase(2), (Phase::Unknown, Reason::Unknown));
    world.tick(10);
    assert_eq!(world.phase(2), (Phase::Fast, Reason::Settling));
    world.tick(1);
    assert_eq!(world.phase(2), SLOW);
    world.tick(100);
    assert_eq!(world.phase(1), (Phase::Fast, Reason::Master));
    assert_eq!(
        (world.roles.kind(1), world.roles.kind(2)),
        (Kind::Leads, Kind::Follows)
    );
    assert_eq!(world.roles.master(2), Some(1));
}

#[test]
fn when_the_master_is_lost_all_that_follow_it_are_raised_at_once() {
    for gone in [Some(Role::Unknown), Some(follows(3)), None] {
        let mut world = World::new();
        world.tick(11);
        match gone {
            Some(role) => world.say(1, role),
            None => drop(world.seen.remove(&1)),
        }
        world.tick(1);
        for replica in [2, 3] {
            assert_eq!(world.phase(replica), (Phase::Fast, Reason::MasterLost));
        }
    }
}

#[test]
fn a_lost_connection_raises_before_anybody_was_asked() {
    let mut world = World::new();
    world.say(4, follows(9));
    world.say(9, Role::Master);
    world.tick(11);
    assert_eq!(world.roles.master_lost(1, 11 * S), [2, 3]);
    assert_eq!(world.phase(3), (Phase::Fast, Reason::MasterLost));
    assert_eq!(world.phase(4), SLOW);
    // An answer that was sent before changes nothing: it settles again, for twice as long.
    world.tick(1);
    assert_eq!(world.phase(3), (Phase::Fast, Reason::Settling));
    assert_eq!(world.settles(3), 20);
    assert_eq!(world.roles.master_lost(7, 40 * S), []);
}

#[test]
fn a_replica_whose_master_can_t_be_asked_from_the_beginning_is_fast() {
    let mut world = World::new();
    world.say(1, Role::Unknown);
    world.tick(100);
    assert_eq!(world.phase(2), (Phase::Fast, Reason::MasterLost));
    // One of another host is known by its replica's link alone.
    world.say(2, link(None, ReplicaLink::Up));
    world.tick(1);
    assert_eq!(world.settles(2), 11);
}

#[test]
fn whoever_is_promoted_is_fast_until_it_has_settled_again() {
    let mut world = World::new();
    world.tick(11);
    assert!(world.roles.promote(2, 11 * S) && !world.roles.promote(8, 11 * S));
    assert_eq!(world.phase(2), (Phase::Fast, Reason::Promoted));
    world.say(2, Role::Master);
    world.tick(1);
    assert_eq!(world.phase(2), (Phase::Fast, Reason::Master));
    assert_eq!(world.roles.kind(2), Kind::Leads);
    world.say(2, follows(3));
    world.say(3, Role::Master);
    world.tick(1);
    assert_eq!(
        (world.phase(2).1, world.roles.kind(2)),
        (Reason::Settling, Kind::Leads)
    );
    world.settles(2);
    assert_eq!(world.roles.kind(2), Kind::Follows);
}

#[test]
fn who_is_not_following_or_busy_is_fast() {
    let mut world = World::new();
    for (role, busy, reason) in [
        (link(Some(1), ReplicaLink::Down), None, Reason::NotFollowing),
        (
            link(Some(1), ReplicaLink::Syncing),
            None,
            Reason::NotFollowing,
        ),
        (Role::Unknown, None, Reason::Unknown),
        (follows(1), Some(Busy::Saves), Reason::Busy(Busy::Saves)),
        (follows(1), Some(Busy::Loads), Reason::Busy(Busy::Loads)),
        (
            follows(1),
            Some(Busy::IsWaitedFor),
            Reason::Busy(Busy::IsWaitedFor),
        ),
    ] {
        world.settles(2);
        world.say(2, role);
        world.busy(2, busy);
        world.tick(1);
        assert_eq!(world.phase(2).1, reason);
        assert_ne!(world.phase(2).0, Phase::Slow);
        world.say(2, follows(1));
    }
}

#[test]
fn the_time_to_settle_doubles_with_each_change_and_is_forgotten() {
    let mut world = World::new();
    assert_eq!(world.settles(2), 11);
    let mut waits = Vec::new();
    for _ in 0..4 {
        world.say(2, link(Some(1), ReplicaLink::Down));
        world.tick(1);
        world.say(2, follows(1));
        world.tick(1);
        waits.push(world.settles(2));
    }
    assert_eq!(waits, [20, 40, 80, 160]);
    // Fast times between them are no changes, and being busy is none.
    world.tick(601);
    world.busy(2, Some(Busy::Saves));
    world.tick(1);
    world.busy(2, None);
    world.tick(1);
    assert_eq!(world.settles(2), 10);
}

#[test]
fn a_role_that_flaps_is_slow_once_in_ten_minutes_at_most() {
    let mut world = World::new();
    let mut began = 0;
    for second in 0..6_000u64 {
        let is_slow = world.phase(2).0 == Phase::Slow;
        // Its role changes as soon as it is slow, and at other times.
        let is_master = is_slow || second.is_multiple_of(97);
        world.say(2, if is_master { Role::Master } else { follows(1) });
        world.tick(1);
        began += u64::from(is_slow);
    }
    assert!(began <= 6_000 / 600 + 6, "{began}");
    assert!(world.roles.ones[&2].changes.len() <= CHANGES_MAX);
}

#[test]
fn a_lag_that_is_too_long_twice_or_grows_is_answered_with_a_boost() {
    for lags in [&[101, 102][..], &[30, 40, 50], &[30, 90, 99]] {
        let mut world = World::new();
        world.tick(11);
        world.lag_ns = Some(20_000_000);
        world.tick(1);
        for (count, lag_ms) in lags.iter().enumerate() {
            assert_eq!(world.phase(2), SLOW, "{lags:?} {count}");
            world.lag_ns = Some(lag_ms * 1_000_000);
            world.tick(1);
        }
        assert_eq!(world.phase(2), (Phase::Boost, Reason::Lag), "{lags:?}");
        world.tick(30);
        assert_eq!(world.phase(2).0, Phase::Boost);
        world.lag_ns = Some(0);
        world.tick(1);
        assert_eq!(world.phase(2), SLOW);
    }
}

#[test]
fn a_lag_that_wavers_is_no_reason() {
    let mut world = World::new();
    world.tick(11);
    for lag_ms in [101, 20, 90, 95, 40, 101, 30, 1, 2, 3, 4, 5] {
        world.lag_ns = Some(lag_ms * 1_000_000);
        world.tick(1);
        assert_eq!(world.phase(2), SLOW);
    }
}

#[test]
fn without_a_measured_lag_nobody_becomes_or_stays_slow() {
    let mut world = World::new();
    world.lag_ns = None;
    world.tick(50);
    assert_eq!(world.phase(2), (Phase::Fast, Reason::NotMeasured));
    world.lag_ns = Some(0);
    assert_eq!(world.settles(2), 11);
    world.lag_ns = None;
    world.tick(3);
    assert_eq!(world.phase(2), SLOW);
    world.tick(1);
    assert_eq!(world.phase(2), (Phase::Fast, Reason::NotMeasured));
}
