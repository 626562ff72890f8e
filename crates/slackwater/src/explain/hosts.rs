//! What crosses the wire between hosts.

use std::collections::BTreeMap;

use slackwater_control::query::Exchange;
use slackwater_sql::program::Program;

use crate::plan::Plan;

/// The name of a host in a plan: hosts that a query is planned for have no other.
pub fn host_name(host: usize) -> String {
    format!("h{}", host + 1)
}

/// The names of so many hosts, home's first.
pub fn host_names(hosts: usize) -> Vec<String> {
    (0..hosts).map(host_name).collect()
}

/// The host that a worker runs on; `None` on one host.
pub fn host_of(plan: &Plan, worker: usize) -> Option<usize> {
    plan.host_of.get(plan.process_of[worker]).copied()
}

/// The links of an edge of the query graph.
#[derive(Default)]
struct Edge {
    links: usize,
    crossing: usize,
    is_broadcast: bool,
}

/// A line for each edge of the query graph some of whose links lead to another host. Empty on one host.
pub fn between_hosts(program: &Program, plan: &Plan) -> String {
    if plan.host_of.is_empty() {
        return String::new();
    }
    let host = |instance: usize| host_of(plan, plan.placement.worker_of[instance]);
    let mut edges = BTreeMap::<(usize, usize, usize), Edge>::new();
    for link in &plan.execution.links {
        let edge = (link.from_node, link.to_node, link.input);
        let edge = edges.entry(edge).or_default();
        edge.links += 1;
        edge.crossing += usize::from(host(link.from) != host(link.to));
        let input = &program.graph.nodes[link.to_node].inputs[link.input];
        edge.is_broadcast = input.exchange == Exchange::Broadcast;
    }
    let crossing = edges.iter().filter(|(_, edge)| edge.crossing > 0);
    let lines = crossing.map(|(&(from, to, _), edge)| {
        let links = format!(
            "  #{from} -> #{to}: {} of {} links",
            edge.crossing, edge.links
        );
        match edge.is_broadcast {
            // Each carries all rows.
            true => format!("{links}: each row crosses as often as there are such links\n"),
            false => {
                let percent = 100.0 * edge.crossing as f64 / edge.links as f64;
                format!("{links}, about {percent:.0} % of the rows\n")
            }
        }
    });
    let lines = lines.collect::<String>();
    match lines.is_empty() {
        true => "\nBetween hosts: no rows\n".to_string(),
        false => format!("\nBetween hosts (tcp)\n{lines}"),
    }
}
