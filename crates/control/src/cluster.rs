//! Several hosts as one machine, so that placement sees nodes, cores and distances as on one host.
//!
//! Cores and nodes are numbered host by host. Between nodes of different hosts every distance is the same,
//! and larger than within any host.

use crate::topology::{Cache, Core, NumaNode, Topology};

/// The distance between hosts where nothing was measured: a byte that goes over TCP costs some twelve times
/// the CPU time of a byte that goes through shared memory (64 KiB messages: 11,290 and 966 ns,
/// `docs/benchmarks/link.md`), in the unit in which a node's distance to itself is 10.
pub const DISTANCE_HOSTS: u32 = 120;

/// Several hosts as one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// The nodes and cores of all hosts.
    pub topology: Topology,
    /// The host of each core, and its number there.
    cores: Vec<(usize, usize)>,
    /// The host of each node, and its number there.
    nodes: Vec<(usize, usize)>,
    hosts: usize,
}

impl Cluster {
    /// The hosts, in order, with the distance between nodes of different hosts. On a host that is not `used`,
    /// no core may be used.
    pub fn of(hosts: &[(&Topology, bool)], distance_hosts: u32) -> Cluster {
        let mut cluster = Cluster {
            topology: Topology::default(),
            cores: Vec::new(),
            nodes: Vec::new(),
            hosts: hosts.len(),
        };
        let nodes = hosts.iter().map(|(host, _)| host.nodes.len().max(1));
        let nodes = nodes.collect::<Vec<usize>>();
        for (number, (host, used)) in hosts.iter().enumerate() {
            let first_node = nodes[..number].iter().sum::<usize>();
            let nodes = (first_node, nodes.iter().sum());
            cluster.add(number, host, *used, nodes, distance_hosts);
        }
        cluster
    }

    /// Adds a host with the place of its first node, and the number of all nodes.
    fn add(
        &mut self,
        number: usize,
        host: &Topology,
        used: bool,
        (first, nodes): (usize, usize),
        distance_hosts: u32,
    ) {
        let first_core = self.cores.len();
        let renumbered = |cores: &[usize]| {
            let known = cores.iter().filter_map(|&core| {
                let place = host.cores.iter().position(|known| known.id == core);
                place.map(|place| first_core + place)
            });
            known.collect::<Vec<usize>>()
        };
        // A machine that names no node is one.
        let all = host
            .cores
            .iter()
            .map(|core| core.id)
            .collect::<Vec<usize>>();
        let one = [NumaNode {
            id: 0,
            cores: all,
            distances: Vec::new(),
        }];
        let own = if host.nodes.is_empty() {
            &one[..]
        } else {
            &host.nodes
        };
        for (place, node) in own.iter().enumerate() {
            let distance = |other: usize| match other.checked_sub(first) {
                Some(other) if other < own.len() => host.distance(place, other) as u32,
                _ => distance_hosts,
            };
            self.topology.nodes.push(NumaNode {
                id: first + place,
                cores: renumbered(&node.cores),
                distances: (0..nodes).map(distance).collect(),
            });
            self.nodes.push((number, node.id));
        }
        for core in &host.cores {
            self.topology.cores.push(Core {
                id: self.cores.len(),
                allowed: core.allowed && used,
                siblings: renumbered(&core.siblings),
                ..core.clone()
            });
            self.cores.push((number, core.id));
        }
        self.topology
            .caches
            .extend(host.caches.iter().map(|cache| Cache {
                cores: renumbered(&cache.cores),
                ..cache.clone()
            }));
    }

    /// The host of each node, by the node's place in [`Cluster::topology`].
    pub fn host_of_nodes(&self) -> Vec<usize> {
        self.nodes.iter().map(|(host, _)| *host).collect()
    }

    /// The number of hosts.
    pub fn hosts(&self) -> usize {
        self.hosts
    }

    /// The host of a core of [`Cluster::topology`], and the core's number there.
    pub fn core(&self, core: usize) -> (usize, usize) {
        self.cores[core]
    }

    /// The node's number on its host.
    pub fn node(&self, node: usize) -> usize {
        self.nodes[node].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_become_one_machine() {
        let big = Topology::of_nodes(2, 2, |one, other| if one == other { 10 } else { 21 });
        let mut small = Topology::of_nodes(1, 3, |_, _| 10);
        small.allow_only(&[1, 2]);
        let unknown = Topology {
            nodes: Vec::new(),
            ..Topology::of_nodes(1, 1, |_, _| 10)
        };
        let cluster = Cluster::of(&[(&big, true), (&small, true), (&unknown, true)], 120);
        assert_eq!(cluster.topology.check(), Ok(()));
        assert_eq!(cluster.topology.allowed(), [0, 1, 2, 3, 5, 6, 7]);
        let cores = [0, 3, 4, 7].map(|core| cluster.core(core));
        assert_eq!(cores, [(0, 0), (0, 3), (1, 0), (2, 0)]);
        let nodes = (0..8).map(|core| cluster.topology.node_of(core));
        assert_eq!(nodes.collect::<Vec<_>>(), [0, 0, 1, 1, 2, 2, 2, 3]);
        assert_eq!([0, 1, 2, 3].map(|node| cluster.node(node)), [0, 1, 0, 0]);
        let distances = [(0, 0), (0, 1), (0, 2), (1, 3), (2, 2), (2, 3)];
        let distances = distances.map(|(one, other)| cluster.topology.distance(one, other));
        assert_eq!(cluster.host_of_nodes(), [0, 0, 1, 2]);
        assert_eq!(distances, [10.0, 21.0, 120.0, 120.0, 10.0, 120.0]);
    }

    #[test]
    fn a_host_that_only_watches_has_no_core_to_use() {
        let host = Topology::of_nodes(1, 2, |_, _| 10);
        let cluster = Cluster::of(&[(&host, false), (&host, true)], DISTANCE_HOSTS);
        assert_eq!(cluster.topology.allowed(), [2, 3]);
        assert_eq!(cluster.hosts(), 2);
    }
}
