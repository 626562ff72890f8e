//! The process of each worker, and the host of each process.

use std::collections::BTreeSet;

use slackwater_control::cluster::Cluster;
use slackwater_control::expand::ExecutionGraph;
use slackwater_control::place::Placement;
use slackwater_control::split::Subqueries;
use slackwater_sql::settings::Processes;

use super::PlanRequest;

/// The process of each worker, on one host.
pub fn on_one_host(request: &PlanRequest<'_>, placement: &Placement) -> Vec<usize> {
    match request.processes {
        // Neighbors share a process, and the numbers of workers differ by at most one.
        Processes::Count(processes) => (0..request.workers)
            .map(|worker| worker * processes / request.workers)
            .collect(),
        Processes::Nodes => process_of_nodes(&placement.nodes),
    }
}

/// The process of each worker and the host of each process, on several hosts; the placement then names cores
/// and nodes as their host does. What is bound to a host runs on one of its workers, or on one that is added.
pub fn over_hosts(
    request: &PlanRequest<'_>,
    cluster: &Cluster,
    subqueries: &Subqueries,
    execution: &ExecutionGraph,
    placement: &mut Placement,
) -> (Vec<usize>, Vec<usize>) {
    let used = cluster.topology.allowed();
    let used = used.into_iter().map(|core| cluster.core(core).0);
    let used = used.collect::<BTreeSet<usize>>();
    let used = used.into_iter().collect::<Vec<usize>>();
    let hosts = placement.cores.iter().enumerate();
    let hosts = hosts.map(|(worker, core)| match core {
        Some(core) => cluster.core(*core).0,
        None => used[worker % used.len()],
    });
    let mut host_of_worker = hosts.collect::<Vec<usize>>();
    for (instance, node) in execution.instances.iter().enumerate() {
        let nodes = &subqueries.subqueries[node.subquery].nodes;
        let index = node.index;
        let bound = |&node: &usize| request.bound.of_instance(request.program, node, index);
        let Some(host) = nodes.iter().find_map(bound) else {
            continue;
        };
        if host_of_worker[placement.worker_of[instance]] == host {
            continue;
        }
        let workers = host_of_worker.iter().enumerate();
        let there = workers.filter(|(_, of_worker)| **of_worker == host);
        let load = |worker: usize| {
            let loaded = placement.worker_of.iter();
            loaded.filter(|&&other| other == worker).count()
        };
        let least = there.min_by_key(|(worker, _)| load(*worker));
        placement.worker_of[instance] = least.map(|(worker, _)| worker).unwrap_or_else(|| {
            placement.cores.push(None);
            placement.nodes.push(None);
            host_of_worker.push(host);
            host_of_worker.len() - 1
        });
    }
    for core in placement.cores.iter_mut().flatten() {
        *core = cluster.core(*core).1;
    }
    for node in placement.nodes.iter_mut().flatten() {
        *node = cluster.node(*node);
    }
    // Numbered host by host.
    let (mut process_of, mut host_of) = (vec![0; host_of_worker.len()], Vec::new());
    for host in 0..cluster.hosts() {
        let workers = host_of_worker.iter().enumerate();
        let own = workers.filter(|(_, of_worker)| **of_worker == host);
        let own = own.map(|(worker, _)| worker).collect::<Vec<usize>>();
        let of_own = match request.processes {
            Processes::Count(processes) => {
                let processes = processes.min(own.len());
                let numbers = 0..own.len();
                numbers
                    .map(|number| number * processes / own.len())
                    .collect()
            }
            Processes::Nodes => {
                let nodes = own.iter().map(|&worker| placement.nodes[worker]);
                process_of_nodes(&nodes.collect::<Vec<_>>())
            }
        };
        let first = host_of.len();
        for (worker, process) in own.iter().zip(&of_own) {
            process_of[*worker] = first + process;
            host_of.resize(host_of.len().max(first + process + 1), host);
        }
    }
    (process_of, host_of)
}

/// A process for each node, numbered in the order in which workers use them.
fn process_of_nodes(nodes: &[Option<usize>]) -> Vec<usize> {
    let mut known = Vec::new();
    let processes = nodes.iter().map(|node| {
        let place = known.iter().position(|known| known == node);
        place.unwrap_or_else(|| {
            known.push(*node);
            known.len() - 1
        })
    });
    processes.collect()
}
