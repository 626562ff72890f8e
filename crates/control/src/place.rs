//! Placement: which worker runs which instance.
//!
//! Instance `i` of every subquery goes to worker `i` modulo the workers, so that the parts of one
//! pipeline share a core's caches. Subqueries with one instance are dealt out: sources from the
//! first worker on, others from the last one backwards, so that a lone source and a lone sink do
//! not share a worker when there are two.

use crate::expand::ExecutionGraph;
use crate::query::{NodeKind, QueryGraph};
use crate::split::Subqueries;

/// The worker of each instance, and the core of each worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Worker of each instance of the execution graph.
    pub worker_of: Vec<usize>,
    /// Core that each worker is pinned to; `None` where there are more workers than cores.
    pub cores: Vec<Option<usize>>,
}

/// Places the instances on `workers` threads and those on the allowed `cores`.
pub fn place(
    graph: &QueryGraph,
    split: &Subqueries,
    execution: &ExecutionGraph,
    workers: usize,
    cores: &[usize],
) -> Placement {
    let workers = workers.max(1);
    let (mut next_source, mut next_other) = (0, 0);
    let mut lone_worker = vec![0; split.subqueries.len()];
    for (number, subquery) in split.subqueries.iter().enumerate() {
        if subquery.instances > 1 {
            continue;
        }
        if graph.nodes[subquery.nodes[0]].kind == NodeKind::Source {
            lone_worker[number] = next_source % workers;
            next_source += 1;
        } else {
            lone_worker[number] = workers - 1 - next_other % workers;
            next_other += 1;
        }
    }
    let worker_of = execution.instances.iter().map(|instance| {
        if instance.of == 1 {
            lone_worker[instance.subquery]
        } else {
            instance.index % workers
        }
    });
    // More threads than cores: the kernel moves them better than a fixed choice would.
    let pinned = workers <= cores.len();
    Placement {
        worker_of: worker_of.collect(),
        cores: (0..workers)
            .map(|worker| pinned.then(|| cores[worker]))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expand::expand;
    use crate::query::{Edge, Exchange, Node};
    use crate::split::split;

    #[test]
    fn a_lone_source_and_a_lone_sink_get_different_workers() {
        let node = |kind, inputs, instances_max| Node {
            name: String::new(),
            detail: String::new(),
            kind,
            inputs,
            instances_max,
        };
        let edge = |from, exchange| vec![Edge { from, exchange }];
        let mut graph = QueryGraph::default();
        graph.add(node(NodeKind::Source, vec![], 1));
        graph.add(node(
            NodeKind::Stateful,
            edge(0, Exchange::Key(vec![0])),
            usize::MAX,
        ));
        graph.add(node(NodeKind::Sink, edge(1, Exchange::Forward), 1));
        let split = split(&graph, 2);
        let execution = expand(&graph, &split);
        let placement = place(&graph, &split, &execution, 2, &[4, 6]);
        assert_eq!(placement.worker_of, [0, 0, 1, 1]);
        assert_eq!(placement.cores, [Some(4), Some(6)]);
        assert_eq!(
            place(&graph, &split, &execution, 2, &[4]).cores,
            [None, None]
        );
    }
}
