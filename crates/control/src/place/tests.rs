//! Tests of the placement of whole queries, and of the search compared with the optimum.

use super::exact::improve;
use super::search::{near_cores, search};
use super::*;
use crate::demand::{NodeCost, demand};
use crate::expand::expand;
use crate::query::{Edge, Exchange, Node};
use crate::split::split;
use fastrand::Rng;

/// A graph, split and expanded, with its demand.
struct Query {
    graph: QueryGraph,
    split: Subqueries,
    execution: ExecutionGraph,
    demand: Demand,
    /// The host that each node is bound to.
    bound: Vec<Option<usize>>,
}

impl Query {
    /// A source, then nodes that each read the previous one.
    fn chain(
        parallelism: usize,
        sources_max: usize,
        nodes: &[(NodeKind, Exchange, usize)],
    ) -> Query {
        let node = |kind, inputs, instances_max| Node {
            name: String::new(),
            detail: String::new(),
            kind,
            inputs,
            instances_max,
        };
        let mut graph = QueryGraph::default();
        graph.add(node(NodeKind::Source, vec![], sources_max));
        for (from, (kind, exchange, instances_max)) in nodes.iter().enumerate() {
            let exchange = exchange.clone();
            graph.add(node(*kind, vec![Edge { from, exchange }], *instances_max));
        }
        let split = split(&graph, parallelism);
        let execution = expand(&graph, &split);
        let costs = graph.nodes.iter().map(|_| NodeCost {
            per_row_ns: 100.0,
            rows_out: 1.0,
            row_bytes: 10.0,
        });
        let costs = costs.collect::<Vec<NodeCost>>();
        let rates = vec![1e6; graph.nodes.len()];
        Query {
            demand: demand(&graph, &split, &execution, None, &costs, &rates),
            bound: vec![None; graph.nodes.len()],
            graph,
            split,
            execution,
        }
    }

    /// One instance of a keyed stage after each source.
    fn keyed(parallelism: usize) -> Query {
        let by_key = Exchange::Key(vec![0]);
        let stage = (NodeKind::Stateful, by_key, usize::MAX);
        Query::chain(parallelism, usize::MAX, &[stage])
    }

    fn place(&self, workers: usize, topology: &Topology, strategy: Option<Strategy>) -> Placement {
        self.place_on(&[], workers, topology, strategy)
    }

    fn place_on(
        &self,
        host_of_nodes: &[usize],
        workers: usize,
        topology: &Topology,
        strategy: Option<Strategy>,
    ) -> Placement {
        place(&Question {
            graph: &self.graph,
            split: &self.split,
            execution: &self.execution,
            demand: &self.demand,
            workers,
            topology,
            host_of_nodes,
            bound: &self.bound,
            strategy,
            copies: None,
        })
    }
}

/// One node with these cores.
fn one_node(cores: &[usize]) -> Topology {
    let mut topology = Topology::of_nodes(1, 8, |_, _| 10);
    topology.allow_only(cores);
    topology
}

#[test]
fn a_lone_source_and_a_lone_sink_get_different_workers() {
    let by_key = (NodeKind::Stateful, Exchange::Key(vec![0]), usize::MAX);
    let sink = (NodeKind::Sink, Exchange::Forward, 1);
    let query = Query::chain(2, 1, &[by_key, sink]);
    for strategy in [None, Some(Strategy::Numa), Some(Strategy::Spread)] {
        let placement = query.place(2, &one_node(&[4, 6]), strategy);
        assert_eq!(placement.worker_of, [0, 0, 1, 1]);
        assert_eq!(placement.cores, [Some(4), Some(6)]);
        assert_eq!(placement.nodes, [None, None], "one node has all the memory");
    }
    // With more workers than cores no worker is pinned, whatever the setting.
    let crowded = query.place(2, &one_node(&[4]), Some(Strategy::Numa));
    assert_eq!(crowded.cores, [None, None]);
    assert_eq!(crowded.strategy, Strategy::Os);
}

/// A lone source and a lone operator after it would be dealt to different hosts, and all rows cross.
#[test]
fn on_several_hosts_all_work_and_rows_stay_where_they_can() {
    let lone = (NodeKind::Stateful, Exchange::Single, 1);
    let by_key = (NodeKind::Stateful, Exchange::Key(vec![0]), usize::MAX);
    let query = Query::chain(4, 1, &[lone, by_key]);
    let topology = Topology::of_nodes(2, 2, |one, other| if one == other { 10 } else { 120 });
    let place = |strategy| query.place_on(&[0, 1], 4, &topology, strategy);
    let host = |placement: &Placement, instance: usize| {
        placement.cores[placement.worker_of[instance]].map(|core| core / 2)
    };
    let spread = place(Some(Strategy::Spread));
    assert_ne!(host(&spread, 0), host(&spread, 1));
    let near = place(None);
    assert_eq!(near.strategy, Strategy::Numa);
    assert_eq!(host(&near, 0), host(&near, 1));
    assert_eq!(near.cores, [Some(0), Some(2), Some(1), Some(3)]);
    assert!(near.distance_mean < spread.distance_mean);
    // What feeds something that is bound to a host goes there, too.
    for bound in [0, 1] {
        let mut query = Query::chain(4, 1, &[(NodeKind::Stateful, Exchange::Single, 1)]);
        query.bound[1] = Some(bound);
        let placement = query.place_on(&[0, 1], 4, &topology, None);
        let hosts = [0, 1].map(|instance| host(&placement, instance));
        assert_eq!(hosts, [Some(bound); 2]);
    }
    // What crosses anyway stays as it was dealt.
    let keyed = Query::keyed(4).place_on(&[0, 1], 4, &topology, None);
    assert_eq!(keyed.worker_of, [0, 1, 2, 3, 0, 1, 2, 3]);
    // On one host of two nodes two workers keep together; on two hosts both work.
    let two = |hosts: &[usize]| Query::keyed(2).place_on(hosts, 2, &topology, None).nodes;
    assert_eq!(two(&[]), [Some(0), Some(0)]);
    assert_eq!(two(&[0, 1]), [Some(0), Some(1)]);
}

#[test]
fn spread_takes_every_node_in_turn_and_os_none() {
    let topology = Topology::of_nodes(2, 2, |one, other| if one == other { 10 } else { 20 });
    let query = Query::keyed(3);
    let spread = query.place(3, &topology, Some(Strategy::Spread));
    assert_eq!(spread.cores, [Some(0), Some(2), Some(1)]);
    assert_eq!(spread.nodes, [Some(0), Some(1), Some(0)]);
    let os = query.place(3, &topology, Some(Strategy::Os));
    assert_eq!((os.cores, os.nodes), (vec![None; 3], vec![None; 3]));
    assert_eq!(os.worker_of, spread.worker_of);
}

#[test]
fn physical_cores_come_before_their_second_threads() {
    let mut topology = Topology::of_nodes(1, 8, |_, _| 10);
    for core in &mut topology.cores {
        let first = core.id / 2 * 2;
        core.siblings = vec![first, first + 1];
    }
    topology.allow_only(&[1, 2, 3, 4, 5, 6]);
    let placement = Query::keyed(5).place(5, &topology, None);
    assert_eq!(placement.cores, [1, 2, 4, 6, 3].map(Some));
}

#[test]
fn few_workers_share_a_node_where_there_are_several() {
    let bullion = Topology::bullion_s16();
    let query = Query::keyed(18);
    let placement = query.place(18, &bullion, None);
    assert_eq!(placement.strategy, Strategy::Numa);
    assert!(
        placement
            .nodes
            .iter()
            .all(|&node| node == placement.nodes[0])
    );
    // Each source shares its core with one of the 18 that it sends to.
    let mean = placement.distance_mean.unwrap();
    assert!((mean - 10.0 * 17.0 / 18.0).abs() < 1e-9, "{mean}");
    let spread = query.place(18, &bullion, Some(Strategy::Spread));
    assert!(spread.distance_mean.unwrap() > 30.0);
    // 36 workers fill the two nodes of a module.
    let pair = Query::keyed(36).place(36, &bullion, None);
    let mut nodes = pair.nodes.iter().flatten().copied().collect::<Vec<usize>>();
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!(nodes, [0, 1]);
}

#[test]
fn a_pipeline_stays_together_on_every_node() {
    let topology = Topology::of_nodes(4, 2, |one, other| if one == other { 10 } else { 20 });
    // Every instance is as busy as the others, and two of a pipeline fill a core.
    let stage = (NodeKind::Stateful, Exchange::Forward, usize::MAX);
    let placement = Query::chain(8, usize::MAX, &[stage]).place(8, &topology, None);
    assert_eq!(placement.distance_mean, Some(0.0));
    let mut workers = placement.worker_of.clone();
    workers.sort_unstable();
    assert_eq!(workers, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]);
}

#[test]
fn nothing_is_placed_on_cores_that_are_offline_or_forbidden() {
    let mut topology = Topology::of_nodes(2, 4, |one, other| if one == other { 10 } else { 21 });
    // Core 5 is offline: its node names it, the machine does not have it.
    topology.cores.retain(|core| core.id != 5);
    topology.allow_only(&[1, 2, 3, 6, 7]);
    for strategy in [Strategy::Numa, Strategy::Spread] {
        let placement = Query::keyed(5).place(5, &topology, Some(strategy));
        let mut cores = placement
            .cores
            .into_iter()
            .flatten()
            .collect::<Vec<usize>>();
        cores.sort_unstable();
        assert_eq!(cores, [1, 2, 3, 6, 7]);
    }
}

/// The load per core when demands are balanced over this many cores.
fn share(demands: &[f64], cores: usize) -> f64 {
    balance(demands, &(0..cores).collect::<Vec<usize>>()).1
}

/// A small problem: up to eight instances and seven cores on up to four nodes at any distance.
fn small_problem(chance: &mut Rng) -> Problem {
    let instances = 3 + chance.usize(..6);
    let nodes = 1 + chance.usize(..4);
    let cores = nodes.max(2) + chance.usize(..4);
    let between = (0..nodes * nodes).map(|_| [12.0, 15.0, 20.0, 32.0, 40.0][chance.usize(..5)]);
    let between = between.collect::<Vec<f64>>();
    let distance = |one: usize, other: usize| match one == other {
        true => 10.0,
        false => between[one.min(other) * nodes + one.max(other)],
    };
    let distances = (0..nodes).map(|one| (0..nodes).map(|other| distance(one, other)).collect());
    let demands = (0..instances).map(|_| 1.0 + chance.usize(..5) as f64);
    let demands = demands.collect::<Vec<f64>>();
    let mut traffic = Vec::new();
    for to in 1..instances {
        for from in 0..to {
            if chance.usize(..2) == 0 {
                let weight = 1.0 + chance.usize(..9) as f64;
                traffic.push(Traffic { from, to, weight });
            }
        }
    }
    let cores_used_max = 1 + chance.usize(..cores);
    Problem {
        node_costs: Vec::new(),
        capacity: share(&demands, cores_used_max) * [1.0, 1.1, 1.5][chance.usize(..3)],
        demands,
        traffic,
        node_of_core: (0..cores).map(|core| core % nodes).collect(),
        distances: distances.collect(),
        cores_used_max,
    }
}

#[test]
fn the_search_finds_the_optimum_of_small_problems_or_comes_near() {
    let mut chance = Rng::with_seed(42);
    let (mut worst, mut sum, mut missed) = (1.0f64, 0.0, 0);
    const PROBLEMS: usize = 1_000;
    for number in 0..PROBLEMS {
        let problem = small_problem(&mut chance);
        let near = near_cores(&problem);
        let first = problem.demands.iter().enumerate();
        let first = first.map(|(instance, _)| near[instance % near.len()]);
        let found = search(&problem, &first.collect::<Vec<usize>>());
        assert!(problem.is_feasible(&found), "{number}: {problem:?}");
        let (best, complete) = improve(&problem, found.clone(), usize::MAX);
        assert!(complete && problem.is_feasible(&best), "{number}");
        let (found, best) = (problem.cost(&found), problem.cost(&best));
        assert!(best <= found + 1e-9, "{number}: {best} {found}");
        let factor = if found <= best + 1e-9 {
            1.0
        } else {
            missed += 1;
            found / best
        };
        worst = worst.max(factor);
        sum += factor;
    }
    let mean = sum / PROBLEMS as f64;
    eprintln!(
        "search against optimum, {PROBLEMS} problems: mean factor {mean:.4}, worst {worst:.3}, \
         {missed} not optimal"
    );
    assert!(mean < 1.005 && worst < 1.2, "mean {mean}, worst {worst}");
}

#[test]
fn the_exact_search_agrees_with_trying_everything() {
    let mut chance = Rng::with_seed(7);
    for number in 0..40 {
        let mut problem = small_problem(&mut chance);
        // 4 instances on at most 7 cores: 2,401 placements.
        problem.demands.truncate(4);
        problem.demands.resize(4, 1.0);
        problem
            .traffic
            .retain(|traffic| traffic.from < 4 && traffic.to < 4);
        problem.capacity = share(&problem.demands, problem.cores_used_max);
        let cores = problem.node_of_core.len();
        let all = (0..cores.pow(4)).map(|code| {
            let digits = (0..4).map(|digit| code / cores.pow(digit) % cores);
            digits.collect::<Vec<usize>>()
        });
        let feasible = all.filter(|placed| problem.is_feasible(placed));
        let least = feasible.map(|placed| problem.cost(&placed));
        let least = least.fold(f64::INFINITY, f64::min);
        let (balanced, _) = balance(&problem.demands, &near_cores(&problem));
        let (best, complete) = improve(&problem, balanced, usize::MAX);
        assert!(complete);
        let best = problem.cost(&best);
        assert!((best - least).abs() < 1e-9, "{number}: {best} {least}");
    }
}

#[test]
fn a_placement_is_the_same_every_time() {
    let bullion = Topology::bullion_s16();
    let query = Query::keyed(40);
    let one = query.place(40, &bullion, None);
    assert_eq!(one, query.place(40, &bullion, None));
}
