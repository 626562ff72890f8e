use super::*;

fn core(cpu: Cpu, domain: &[Cpu], node: u32) -> Core {
    Core {
        cpu,
        khz: Some((1_000_000, 2_200_000)),
        steps_khz: Vec::new(),
        domain: domain.iter().copied().collect(),
        node,
    }
}

/// Four domains of two cores, on two nodes.
fn machine() -> Vec<Core> {
    let pair = |cpu: Cpu| [cpu & !1, cpu | 1];
    (0..8).map(|cpu| core(cpu, &pair(cpu), cpu / 4)).collect()
}

fn lists(fast: &[Cpu], slow: &[Cpu]) -> Lists {
    Lists {
        fast: fast.iter().copied().collect(),
        slow: slow.iter().copied().collect(),
    }
}

fn needs(instance: InstanceId, kind: Kind, cpu: Option<Cpu>) -> Needs {
    Needs {
        instance,
        kind,
        node: None,
        cpu,
    }
}

fn assigned(domains: &Domains, instances: &[Needs]) -> Vec<(InstanceId, Cpu)> {
    domains.assign(instances).into_iter().collect()
}

#[test]
fn masters_are_packed_and_replicas_get_whole_other_domains() {
    let domains = Domains::new(machine(), Lists::default()).expect("domains");
    let instances = [
        needs(1, Kind::Follows, None),
        needs(2, Kind::Leads, None),
        needs(3, Kind::Follows, None),
        needs(4, Kind::Leads, None),
    ];
    assert_eq!(
        assigned(&domains, &instances),
        [(1, 2), (2, 0), (3, 3), (4, 1)]
    );
}

#[test]
fn after_a_failover_two_instances_change_places() {
    let domains = Domains::new(machine(), Lists::default()).expect("domains");
    // 1 and 2 were masters; 3, a replica, was promoted in 1's place.
    let instances = [
        needs(1, Kind::Follows, Some(0)),
        needs(2, Kind::Leads, Some(1)),
        needs(3, Kind::Leads, Some(2)),
        needs(4, Kind::Follows, Some(3)),
    ];
    assert_eq!(
        assigned(&domains, &instances),
        [(1, 2), (2, 1), (3, 0), (4, 3)]
    );
    // Where each core has its own clock, nobody moves.
    let own = (0..8).map(|cpu| core(cpu, &[cpu], 0)).collect();
    let domains = Domains::new(own, Lists::default()).expect("domains");
    assert_eq!(
        assigned(&domains, &instances),
        [(1, 0), (2, 1), (3, 2), (4, 3)]
    );
}

#[test]
fn the_node_of_an_instance_comes_first() {
    let domains = Domains::new(machine(), Lists::default()).expect("domains");
    let at = |needs: Needs, node| Needs {
        node: Some(node),
        ..needs
    };
    let instances = [
        at(needs(1, Kind::Leads, None), 1),
        at(needs(2, Kind::Leads, Some(1)), 0),
        at(needs(3, Kind::Follows, None), 1),
        at(needs(4, Kind::Follows, None), 0),
    ];
    assert_eq!(
        assigned(&domains, &instances),
        [(1, 4), (2, 1), (3, 6), (4, 2)]
    );
}

#[test]
fn lists_are_kept() {
    let domains = Domains::new(machine(), lists(&[6], &[1])).expect("domains");
    let instances = [
        needs(1, Kind::Leads, Some(0)),
        needs(2, Kind::Leads, Some(1)),
        needs(3, Kind::Follows, Some(2)),
        needs(4, Kind::Follows, None),
    ];
    assert_eq!(assigned(&domains, &instances), [(1, 6), (3, 1)]);
    // With one list, the other kind gets what isn't in it.
    let domains = Domains::new(machine(), lists(&[], &[0, 1])).expect("domains");
    assert_eq!(
        assigned(&domains, &instances),
        [(1, 2), (2, 3), (3, 0), (4, 1)]
    );
    let domains = Domains::new(machine(), lists(&[0, 1], &[])).expect("domains");
    assert_eq!(
        assigned(&domains, &instances),
        [(1, 0), (2, 1), (3, 2), (4, 3)]
    );
}

#[test]
fn replicas_are_not_pinned_next_to_fast_ones_and_nobody_where_nothing_can_be_set() {
    let mut cores = machine();
    cores.truncate(2);
    let domains = Domains::new(cores.clone(), Lists::default()).expect("domains");
    let instances = [needs(1, Kind::Leads, None), needs(2, Kind::Follows, None)];
    assert_eq!(assigned(&domains, &instances), [(1, 0)]);
    for core in &mut cores {
        core.khz = None;
    }
    let domains = Domains::new(cores, Lists::default()).expect("domains");
    assert_eq!(assigned(&domains, &instances), []);
    assert_eq!(domains.top_khz(), None);
}

#[test]
fn a_clock_that_is_shared_with_a_fast_instance_is_an_obstacle() {
    let domains = Domains::new(machine(), lists(&[6], &[])).expect("domains");
    let owners = [(1, 0, true), (2, 1, false), (3, 2, false), (4, 3, false)];
    let obstacle = |cpu| domains.obstacle(cpu, &owners, None);
    let shares = Obstacle::SharesClock {
        cpu: 1,
        with: 0,
        fast: 1,
    };
    assert_eq!(obstacle(1), Some(shares));
    assert_eq!(
        shares.to_string(),
        "cpu1 shares its clock with cpu0 of instance 1, which has to be fast"
    );
    assert_eq!(obstacle(2), None);
    assert_eq!(obstacle(7), Some(Obstacle::ListedFast { cpu: 7, with: 6 }));
    assert_eq!(obstacle(9), Some(Obstacle::NotSettable { cpu: 9 }));
    let roams = domains.obstacle(2, &owners, Some(9));
    assert_eq!(roams, Some(Obstacle::Roams { fast: 9 }));
}

#[test]
fn a_domain_that_is_named_in_one_direction_is_one() {
    let cores = vec![
        core(0, &[0], 0),
        core(1, &[1, 2], 0),
        core(2, &[], 0),
        core(3, &[2, 0], 0),
    ];
    let domains = Domains::new(cores, Lists::default()).expect("domains");
    assert_eq!([0, 1, 2, 3].map(|cpu| domains.domain(cpu)), [0, 0, 0, 0]);
    // A core that must not be used joins two that may be.
    let cores = vec![core(0, &[0, 9], 0), core(1, &[1, 9], 0)];
    let domains = Domains::new(cores, Lists::default()).expect("domains");
    assert_eq!(domains.domain(0), domains.domain(1));
}

#[test]
fn cores_and_lists_that_make_no_sense_are_refused() {
    let wrong = |cores, lists| Domains::new(cores, lists).expect_err("wrong");
    assert_eq!(wrong(machine(), lists(&[1, 2], &[2])), Wrong::Both(2));
    assert_eq!(wrong(machine(), lists(&[1], &[8])), Wrong::Missing(8));
    assert_eq!(
        wrong(vec![core(1, &[], 0), core(1, &[], 0)], lists(&[], &[])),
        Wrong::Twice(1)
    );
    let khz = |khz, steps: &[u32]| Core {
        khz: Some(khz),
        steps_khz: steps.to_vec(),
        ..core(3, &[3], 0)
    };
    for core in [
        khz((0, 5), &[]),
        khz((6, 5), &[]),
        khz((1, 5), &[3, 2]),
        khz((1, 5), &[6]),
    ] {
        assert_eq!(wrong(vec![core], lists(&[], &[])), Wrong::Frequencies(3));
    }
    assert_eq!(
        Wrong::Both(2).to_string(),
        "cpu2 is listed as fast and as slow"
    );
}

#[test]
fn cores_that_were_given_are_given_again() {
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..2_000 {
        let domains = Domains::new(machine(), Lists::default()).expect("domains");
        let instances = (0..random.u64(1..10)).map(|instance| Needs {
            node: random.bool().then(|| random.u32(0..2)),
            cpu: None,
            ..needs(
                instance,
                [Kind::Leads, Kind::Follows][random.usize(0..2)],
                None,
            )
        });
        let mut instances = instances.collect::<Vec<Needs>>();
        for instance in &mut instances {
            instance.cpu = random.bool().then(|| random.u32(0..8));
        }
        let first = domains.assign(&instances);
        for instance in &mut instances {
            instance.cpu = first.get(&instance.instance).copied();
        }
        assert_eq!(domains.assign(&instances), first, "{round}");
    }
}
