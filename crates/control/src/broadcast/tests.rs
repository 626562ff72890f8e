use fastrand::Rng;

use super::*;

/// Processes on up to three hosts, and receivers on them in any order.
fn places(random: &mut Rng) -> (Place, Vec<Place>) {
    let hosts = 1 + random.usize(..3);
    let processes = 1 + random.usize(..9);
    let mut place = || {
        let process = random.usize(..processes);
        Place {
            host: process % hosts,
            process,
        }
    };
    let origin = place();
    let mut receivers = vec![place()];
    receivers.extend(std::iter::repeat_with(place).take(20));
    receivers.truncate(1 + random.usize(..20));
    (origin, receivers)
}

/// The number of processes with receivers, without the origin's.
fn others(origin: Place, receivers: &[Place]) -> usize {
    let mut processes = receivers.to_vec();
    processes.sort();
    processes.dedup();
    processes.retain(|&place| place != origin);
    processes.len()
}

#[test]
fn every_receiver_gets_each_message_exactly_once() {
    let mut random = Rng::with_seed(1);
    for _ in 0..2_000 {
        let (origin, receivers) = places(&mut random);
        for algorithm in Algorithm::ALL {
            let tree = Tree::new(algorithm, origin, &receivers);
            let mut got = vec![0; receivers.len()];
            let mut on_its_way = tree.roots.clone();
            while let Some(receiver) = on_its_way.pop() {
                got[receiver] += 1;
                on_its_way.extend(&tree.children[receiver]);
                assert!(on_its_way.len() <= receivers.len(), "it goes in circles");
            }
            assert!(
                got.iter().all(|&times| times == 1),
                "{algorithm:?}: {got:?}"
            );
        }
    }
}

/// For every algorithm but the serial one: as many messages enter processes as there are processes, and
/// one message enters each other host.
#[test]
fn a_message_enters_a_process_and_a_host_once() {
    let mut random = Rng::with_seed(2);
    for _ in 0..2_000 {
        let (origin, receivers) = places(&mut random);
        for algorithm in &Algorithm::ALL[1..] {
            let tree = Tree::new(*algorithm, origin, &receivers);
            let from_origin = tree.roots.iter().map(|&to| (origin, receivers[to]));
            let relayed = tree.children.iter().enumerate().flat_map(|(from, below)| {
                let from = receivers[from];
                below.iter().map(move |&to| (from, to))
            });
            let relayed = relayed.map(|(from, to)| (from, receivers[to]));
            let hops = from_origin.chain(relayed).collect::<Vec<_>>();
            let crossing = hops.iter().filter(|(from, to)| from != to);
            assert_eq!(crossing.count(), others(origin, &receivers));
            let mut hosts = receivers.iter().map(|place| place.host).collect::<Vec<_>>();
            hosts.sort();
            hosts.dedup();
            hosts.retain(|&host| host != origin.host);
            let crossing = hops.iter().filter(|(from, to)| from.host != to.host);
            assert_eq!(crossing.count(), hosts.len(), "{algorithm:?}");
        }
    }
}

#[test]
fn depth_and_fan_out_are_as_stated() {
    let mut random = Rng::with_seed(3);
    for _ in 0..2_000 {
        let (origin, mut receivers) = places(&mut random);
        // On one host, one receiver per process, none in the origin's.
        receivers.sort();
        receivers.dedup();
        receivers.retain(|&place| place != origin);
        for place in &mut receivers {
            place.host = origin.host;
        }
        let count = receivers.len();
        if count == 0 {
            continue;
        }
        let tree = |algorithm| Tree::new(algorithm, origin, &receivers);
        let fan_out = |tree: &Tree| {
            let below = tree.children.iter().map(Vec::len);
            below.chain([tree.roots.len()]).max().unwrap()
        };
        let serial = tree(Algorithm::Serial);
        assert_eq!((serial.depth(), fan_out(&serial)), (1, count));
        let flat = tree(Algorithm::FlatTree);
        assert_eq!((flat.depth(), fan_out(&flat)), (1, count));
        let binary = tree(Algorithm::BinaryTree);
        // A heap of `count + 1` with the origin on top.
        assert_eq!(binary.depth(), (count + 1).ilog2() as usize);
        assert!(fan_out(&binary) <= 2);
        let ring = tree(Algorithm::Ring);
        assert_eq!(ring.depth(), count.div_ceil(2));
        assert!(fan_out(&ring) <= 2 && ring.children.iter().all(|below| below.len() <= 1));
    }
}

/// Of three hosts with four processes each: what is sent on the wire, and how many senders a message passes.
#[test]
fn hosts_are_reached_as_processes_are() {
    let place = |process: usize| Place {
        host: process / 4,
        process,
    };
    let receivers = (0..12).map(place).collect::<Vec<Place>>();
    let of = |algorithm| {
        let tree = Tree::new(algorithm, receivers[0], &receivers);
        let edges = tree.children.iter().enumerate();
        let edges = edges.flat_map(|(from, below)| below.iter().map(move |&to| (from, to)));
        let edges = edges.chain(tree.roots.iter().map(|&to| (0, to)));
        let crosses = |&(from, to): &(usize, usize)| place(from).host != place(to).host;
        (edges.filter(crosses).count(), tree.depth())
    };
    assert_eq!(of(Algorithm::Serial), (8, 1));
    assert_eq!(of(Algorithm::FlatTree), (2, 2));
    assert_eq!(of(Algorithm::BinaryTree), (2, 3));
    assert_eq!(of(Algorithm::Ring), (2, 3));
}

#[test]
fn names_are_read_as_they_are_written() {
    for algorithm in Algorithm::ALL {
        assert_eq!(Algorithm::named(algorithm.name()), Some(algorithm));
    }
    assert_eq!(Algorithm::named("tree"), None);
}
