//! The topology of a machine: NUMA nodes, their distances, cores and caches, as Linux describes them in
//! the files under `/sys/devices/system`. The caller reads the files; this module parses them, and knows
//! some machines by name.

/// A machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// The NUMA nodes; one if the machine doesn't say.
    pub nodes: Vec<NumaNode>,
    /// Online cores (hardware threads).
    pub cores: Vec<Core>,
    /// The data caches; none if the machine doesn't say.
    pub caches: Vec<Cache>,
}

/// A NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NumaNode {
    /// The node's number.
    pub id: usize,
    /// The node's cores, possibly with offline ones. A node of memory only has none.
    pub cores: Vec<usize>,
    /// Distance to each node, in the order of `Topology::nodes` (10 is local).
    pub distances: Vec<u32>,
}

/// A core (a hardware thread).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Core {
    /// The core's number.
    pub id: usize,
    /// Whether this process may run on it.
    pub allowed: bool,
    /// Hardware threads of the same physical core, itself included.
    pub siblings: Vec<usize>,
    /// The physical package (socket) that it is on, if the kernel says.
    pub package: Option<usize>,
    /// The highest frequency in kHz, if the kernel says.
    pub frequency_max_khz: Option<u64>,
}

/// A cache for data, or for data and instructions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cache {
    /// The cache's level: 1 is next to the core.
    pub level: u32,
    /// The cache's size in bytes.
    pub size_bytes: u64,
    /// The cores that share it.
    pub cores: Vec<usize>,
}

/// The distance of a node to itself, as firmware writes it (ACPI's SLIT).
pub const DISTANCE_LOCAL: u32 = 10;

/// The distance to another node if the machine doesn't say: the same default as in Linux.
pub const DISTANCE_REMOTE: u32 = 20;

/// The name of the machine that UPM-CEP was measured on.
pub const BULLION_S16: &str = "bullion-s16";

impl Topology {
    /// The machine of that name; `None` for any other name.
    pub fn named(name: &str) -> Option<Topology> {
        (name == BULLION_S16).then(Topology::bullion_s16)
    }

    /// The Bullion S16 (UPM-CEP, `papers.md` P5): 16 sockets of 18 cores, a node each. Nodes 2k and 2k +
    /// 1 share a module: distance 15 between them, 40 to any other.
    pub fn bullion_s16() -> Topology {
        Topology::of_nodes(16, 18, |one, other| match (one, other) {
            _ if one == other => DISTANCE_LOCAL,
            _ if one / 2 == other / 2 => 15,
            _ => 40,
        })
    }

    /// A machine of equal nodes, a package each, whose cores have one hardware thread and may all be
    /// used. Cores are numbered node by node.
    pub fn of_nodes(
        nodes: usize,
        cores_per_node: usize,
        distance: impl Fn(usize, usize) -> u32,
    ) -> Topology {
        let node = |id: usize| NumaNode {
            id,
            cores: (id * cores_per_node..(id + 1) * cores_per_node).collect(),
            distances: (0..nodes).map(|other| distance(id, other)).collect(),
        };
        let core = |id: usize| Core {
            id,
            allowed: true,
            siblings: vec![id],
            package: Some(id / cores_per_node),
            frequency_max_khz: None,
        };
        Topology {
            nodes: (0..nodes).map(node).collect(),
            cores: (0..nodes * cores_per_node).map(core).collect(),
            caches: Vec::new(),
        }
    }

    /// Online cores that this process may use, in ascending order.
    pub fn allowed(&self) -> Vec<usize> {
        let allowed = self.cores.iter().filter(|core| core.allowed);
        let mut allowed = allowed.map(|core| core.id).collect::<Vec<usize>>();
        allowed.sort_unstable();
        allowed
    }

    /// Restricts the allowed cores to these.
    pub fn allow_only(&mut self, cores: &[usize]) {
        for core in &mut self.cores {
            core.allowed &= cores.contains(&core.id);
        }
    }

    /// The index of a core's node in `nodes`; the first one for a core that no node names.
    pub fn node_of(&self, core: usize) -> usize {
        let mut nodes = self.nodes.iter();
        nodes
            .position(|node| node.cores.contains(&core))
            .unwrap_or(0)
    }

    /// The distance between two nodes, given by their index in `nodes`: the mean of both directions,
    /// since what one side writes the other reads.
    pub fn distance(&self, one: usize, other: usize) -> f64 {
        let way = |from: usize, to: usize| {
            let distances = self.nodes.get(from).map(|node| &node.distances);
            let said = distances.and_then(|distances| distances.get(to)).copied();
            let unsaid = if from == to {
                DISTANCE_LOCAL
            } else {
                DISTANCE_REMOTE
            };
            f64::from(said.unwrap_or(unsaid))
        };
        way(one, other).midpoint(way(other, one))
    }

    /// Checks a description that a user wrote.
    ///
    /// # Errors
    ///
    /// What is wrong, and how to fix it.
    pub fn check(&self) -> Result<(), String> {
        if self.allowed().is_empty() {
            return Err("no core may be used: set 'allowed' to true for a core".to_string());
        }
        for (place, core) in self.cores.iter().enumerate() {
            if core.id > CORES_MAX {
                let id = core.id;
                return Err(format!("core {id}: cores are numbered up to {CORES_MAX}"));
            }
            if self.cores[..place].iter().any(|other| other.id == core.id) {
                return Err(format!("core {} is described twice", core.id));
            }
            let nodes = self.nodes.iter();
            let holders = nodes.filter(|node| node.cores.contains(&core.id));
            if holders.count() > 1 {
                return Err(format!("core {} is in two nodes", core.id));
            }
        }
        for (place, node) in self.nodes.iter().enumerate() {
            if self.nodes[..place].iter().any(|other| other.id == node.id) {
                return Err(format!("node {} is described twice", node.id));
            }
            if node.distances.len() != self.nodes.len() {
                return Err(format!(
                    "node {} has {} distances, but needs one to each of the {} nodes, including itself",
                    node.id,
                    node.distances.len(),
                    self.nodes.len()
                ));
            }
            if node.distances.contains(&0) {
                return Err(format!(
                    "node {} has a distance of 0: {DISTANCE_LOCAL} is a node's own",
                    node.id
                ));
            }
        }
        Ok(())
    }
}

/// Parses a list of numbers and ranges in the kernel's format: `0-3,8,10-11`.
pub fn parse_list(text: &str) -> Result<Vec<usize>, String> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let number = |text: &str| {
            text.trim()
                .parse::<usize>()
                .map_err(|_| format!("'{text}' in '{}' is not a number", part))
        };
        match part.split_once('-') {
            None => numbers.push(number(part)?),
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                // No machine has more; a mistyped range must not fill memory.
                if last < first || last - first > CORES_MAX {
                    return Err(format!("'{part}' is not a range"));
                }
                numbers.extend(first..=last);
            }
        }
    }
    Ok(numbers)
}

/// Parses the size of a cache in the kernel's format: `32K`, `8192K`, `1M`. In bytes.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, factor) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(number) if text.ends_with('K') => (number, 1 << 10),
        Some(number) if text.ends_with('M') => (number, 1 << 20),
        Some(number) => (number, 1 << 30),
        None => (text, 1),
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// The cores of the largest machine that Linux supports (`NR_CPUS` is at most 8,192 on x86-64).
pub const CORES_MAX: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_as_the_kernel_writes_them() {
        assert_eq!(
            parse_list("0-3,8,10-11\n").unwrap(),
            [0, 1, 2, 3, 8, 10, 11]
        );
        assert_eq!(parse_list("\n").unwrap(), Vec::<usize>::new());
        assert!(parse_list("3-1").is_err());
        assert!(parse_list("0-99999999").is_err());
        assert!(parse_list("a").is_err());
    }

    #[test]
    fn sizes_as_the_kernel_writes_them() {
        let sizes = ["32K\n", "8192K", "1M", "64", "2G"].map(parse_size);
        let expected = [32 << 10, 8 << 20, 1 << 20, 64, 2 << 30].map(Some);
        assert_eq!(sizes, expected);
        assert_eq!(parse_size("many"), None);
        assert_eq!(parse_size("99999999999999999999K"), None);
    }

    #[test]
    fn the_bullion_has_its_published_distances() {
        let bullion = Topology::named("bullion-s16").unwrap();
        assert_eq!(bullion.check(), Ok(()));
        assert_eq!((bullion.nodes.len(), bullion.cores.len()), (16, 288));
        let distances = [(0, 0), (0, 1), (1, 0), (1, 2), (0, 15), (14, 15)];
        let distances = distances.map(|(one, other)| bullion.distance(one, other));
        assert_eq!(distances, [10.0, 15.0, 15.0, 40.0, 40.0, 15.0]);
        assert_eq!((bullion.node_of(17), bullion.node_of(18)), (0, 1));
        assert_eq!(Topology::named("a laptop"), None);
    }

    #[test]
    fn invalid_descriptions_are_refused_with_their_place() {
        let wrong = |change: &dyn Fn(&mut Topology), part: &str| {
            let mut topology = Topology::of_nodes(2, 2, |_, _| 10);
            assert_eq!(topology.check(), Ok(()));
            change(&mut topology);
            let error = topology.check().unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        wrong(&|topology| topology.allow_only(&[7]), "no core may be used");
        wrong(
            &|topology| topology.cores[1].id = 0,
            "core 0 is described twice",
        );
        wrong(&|topology| topology.cores[1].id = 9999, "up to 8192");
        wrong(&|topology| topology.nodes[1].id = 0, "node 0 is described");
        wrong(
            &|topology| topology.nodes[1].cores.push(0),
            "core 0 is in two",
        );
        wrong(
            &|topology| topology.nodes[1].distances[0] = 0,
            "node 1 has a",
        );
        wrong(
            &|topology| {
                topology.nodes[0].distances.pop();
            },
            "node 0 has 1 distances",
        );
    }

    #[test]
    fn distances_that_differ_by_direction_count_as_their_mean() {
        let mut topology = Topology::of_nodes(2, 1, |_, _| 10);
        topology.nodes[0].distances[1] = 20;
        topology.nodes[1].distances[0] = 30;
        assert_eq!(topology.distance(0, 1), 25.0);
        topology.nodes[0].distances.clear();
        topology.nodes[1].distances.clear();
        let unsaid = [(0, 0), (0, 1)].map(|(one, other)| topology.distance(one, other));
        assert_eq!(unsaid, [10.0, 20.0]);
    }
}
