//! Topologies of machines as Linux describes them, read from files, and what is placed on them.
//!
//! A file in `topologies/` is a tree like `/sys/devices/system`: a line for each file, its path, a
//! colon and what is in it.

use std::path::Path;

use slackwater::costs::Learned;
use slackwater::machine::{Machine, read};
use slackwater::plan::Plan;
use slackwater::planner::plan_on;
use slackwater_control::topology::Topology;
use slackwater_sql::program::compile;

/// Reads a tree, of whose cores this process may use those that are `allowed`.
fn tree(text: &str, allowed: &[usize]) -> Topology {
    let folder = tempfile::tempdir().unwrap();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (path, content) = line.split_once(':').expect("a path and what is in it");
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{}\n", content.trim())).unwrap();
    }
    read(folder.path(), allowed)
}

/// All that is described in a file, with every core allowed.
fn described(name: &str) -> Topology {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/topologies");
    let text = std::fs::read_to_string(path.join(name)).unwrap();
    let topology = tree(&text, &(0..1024).collect::<Vec<usize>>());
    assert_eq!(topology.check(), Ok(()), "{name}");
    topology
}

/// A keyed count over as many sources as instances.
fn planned(topology: &Topology, parallelism: usize, strategy: &str) -> Plan {
    let text = "CREATE TABLE v (ts_ms BIGINT, ip STRING) WITH ('connector' = 'datagen',
          'generator' = 'uservisits');
        CREATE TABLE o (ip STRING, n BIGINT) WITH ('connector' = 'blackhole');
        INSERT INTO o SELECT ip, COUNT(*) FROM v GROUP BY ip;";
    let settings = [
        ("parallelism", parallelism.to_string()),
        ("placement", strategy.to_string()),
    ];
    let settings = settings.map(|(key, value)| (key.to_string(), value));
    let compiled = compile(text, &settings, &slackwater::catalog::BuiltIn);
    let mut program = compiled.unwrap_or_else(|error| panic!("{error}")).run;
    program.graph.nodes[0].instances_max = usize::MAX;
    let machine = Machine {
        topology: topology.clone(),
        quota_cores: None,
        binds_memory: true,
        notes: Vec::new(),
        hosts: None,
    };
    plan_on(&program, &machine, &Learned::default()).unwrap()
}

const MACHINES: [(&str, usize, usize); 7] = [
    ("nodes-1.txt", 1, 8),
    ("nodes-2.txt", 2, 56),
    ("nodes-3-asymmetric.txt", 3, 12),
    ("nodes-4.txt", 4, 32),
    ("nodes-8.txt", 8, 64),
    ("nodes-8-partly-connected-offline.txt", 8, 54),
    ("nodes-16.txt", 16, 288),
];

#[test]
fn every_machine_is_placed_on_with_less_distance_than_dealt_out() {
    for (name, nodes, cores) in MACHINES {
        let topology = described(name);
        assert_eq!(
            (topology.nodes.len(), topology.cores.len()),
            (nodes, cores),
            "{name}"
        );
        let allowed = topology.allowed();
        // A core alone, a few, half of them, and all.
        for workers in [1, 3, cores / 2, cores] {
            let [numa, spread] =
                ["numa", "spread"].map(|strategy| planned(&topology, workers, strategy).placement);
            for placement in [&numa, &spread] {
                let mut used = placement.cores.iter().flatten().copied();
                let mut used = used.by_ref().collect::<Vec<usize>>();
                used.sort_unstable();
                used.dedup();
                assert_eq!(
                    used.len(),
                    workers,
                    "{name}: every worker has a core of its own"
                );
                assert!(used.iter().all(|core| allowed.contains(core)), "{name}");
                for (core, node) in placement.cores.iter().zip(&placement.nodes) {
                    let place = topology.node_of(core.unwrap());
                    let expected = (nodes > 1).then(|| topology.nodes[place].id);
                    assert_eq!(*node, expected, "{name}");
                }
            }
            let (near, dealt) = (numa.distance_mean, spread.distance_mean);
            assert!(
                near.unwrap() <= dealt.unwrap() + 1e-9,
                "{name}, {workers} workers: {near:?} {dealt:?}"
            );
        }
    }
}

#[test]
fn half_of_a_machine_of_two_sides_is_one_side() {
    // 32 of 64 cores: a socket, at a distance of 12 and not of 32.
    let half = planned(&described("nodes-8.txt"), 32, "numa").placement;
    let sides = half.nodes.iter().flatten().map(|node| node / 4);
    let sides = sides.collect::<Vec<usize>>();
    assert!(sides.iter().all(|side| *side == sides[0]), "{sides:?}");
    let spread = planned(&described("nodes-8.txt"), 32, "spread").placement;
    assert!(half.distance_mean.unwrap() * 1.5 < spread.distance_mean.unwrap());
}

#[test]
fn a_process_for_each_node_has_the_workers_of_that_node() {
    let topology = described("nodes-3-asymmetric.txt");
    let text = "SET 'processes' = 'nodes'; SET 'parallelism' = '12';
        CREATE TABLE v (ip STRING) WITH ('connector' = 'datagen', 'generator' = 'uservisits');
        SELECT ip, COUNT(*) FROM v GROUP BY ip;";
    let program = compile(text, &[], &slackwater::catalog::BuiltIn);
    let program = program.unwrap_or_else(|error| panic!("{error}")).run;
    let machine = Machine {
        topology,
        quota_cores: None,
        binds_memory: true,
        notes: Vec::new(),
        hosts: None,
    };
    let plan = plan_on(&program, &machine, &Learned::default()).unwrap();
    assert_eq!(plan.processes, 2, "the node of memory only has no worker");
    let mut nodes = [None; 2];
    for (worker, node) in plan.placement.nodes.iter().enumerate() {
        let process = plan.process_of[worker];
        assert_eq!(nodes[process].get_or_insert(*node), node, "worker {worker}");
        assert_eq!(plan.memory_nodes[worker], *node);
    }
    nodes.sort_unstable();
    assert_eq!(nodes, [Some(Some(0)), Some(Some(2))]);
}

#[test]
fn caches_threads_and_packages_are_read() {
    let notebook = described("nodes-1.txt");
    assert_eq!(notebook.cores[5].siblings, [1, 5]);
    assert_eq!(notebook.cores[5].package, Some(0));
    assert_eq!(notebook.cores[5].frequency_max_khz, Some(4_200_000));
    let caches = notebook.caches.iter();
    let caches = caches.map(|cache| (cache.level, cache.size_bytes >> 10, cache.cores.len()));
    let mut caches = caches.collect::<Vec<_>>();
    caches.dedup();
    // Four of the first level and four of the second, one of the third; none for instructions.
    assert_eq!(caches, [(1, 48, 2), (2, 1280, 2), (3, 12288, 8)]);
    assert_eq!(notebook.caches.len(), 9);
    let sockets = described("nodes-2.txt");
    assert_eq!(sockets.cores[40].package, Some(0));
    assert_eq!((sockets.node_of(40), sockets.node_of(42)), (0, 1));
    assert_eq!(sockets.distance(0, 1), 21.0);
}

#[test]
fn a_machine_that_says_nothing_is_one_node_of_what_is_allowed() {
    let silent = tree("", &[2, 3]);
    assert_eq!(silent.check(), Ok(()));
    assert_eq!((silent.nodes.len(), silent.allowed()), (1, vec![2, 3]));
    // A kernel without NUMA has cores, and no nodes.
    let cores = tree("cpu/online: 0-3\n", &[1, 2]);
    assert_eq!((cores.cores.len(), cores.allowed()), (4, vec![1, 2]));
    assert_eq!(cores.nodes[0].cores, [0, 1, 2, 3]);
}

#[test]
fn the_named_machine_is_the_one_in_the_file() {
    let named = slackwater::machine::named("bullion-s16").unwrap();
    let file = described("nodes-16.txt");
    assert_eq!(named.nodes, file.nodes);
    assert_eq!(named.allowed(), file.allowed());
}
