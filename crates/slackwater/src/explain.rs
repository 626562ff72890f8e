//! `explain`: the query graph, its subqueries, their instances and where they run, as text.

use slackwater_control::query::Exchange;
use slackwater_sql::program::Program;

use crate::broadcast;
use crate::plan::{Plan, instance_name, output_schema};

mod latency;

pub use latency::analysed;

/// The three graphs, the placement, and how latency targets are to be kept.
pub fn explain(program: &Program, plan: &Plan) -> String {
    let graph = &program.graph;
    let mut text = String::from("Query graph\n");
    for (number, node) in graph.nodes.iter().enumerate() {
        let inputs = node.inputs.iter().enumerate().map(|(input, edge)| {
            let columns = |columns: &[usize]| {
                let schema = output_names(program, edge.from);
                let names = columns
                    .iter()
                    .map(|&c| schema.get(c).cloned().unwrap_or_default());
                names.collect::<Vec<_>>().join(", ")
            };
            match &edge.exchange {
                Exchange::Forward => format!("#{}", edge.from),
                Exchange::Key(keys) => format!("#{} by {}", edge.from, columns(keys)),
                Exchange::Single => format!("#{} to one instance", edge.from),
                Exchange::RoundRobin => format!("#{} in turn", edge.from),
                Exchange::Broadcast => {
                    let how = plan.decided(number, input);
                    let how = how.map(|decided| broadcast::describe(&decided.choice));
                    let how = how.map_or(String::new(), |how| format!(", {how}"));
                    format!("#{} to every instance{how}", edge.from)
                }
            }
        });
        let inputs = inputs.collect::<Vec<_>>();
        let from = if inputs.is_empty() {
            String::new()
        } else {
            format!("  <- {}", inputs.join(" and "))
        };
        text.push_str(&format!(
            "  #{number:<3} {:<10} {}{from}\n",
            node.name, node.detail
        ));
    }
    text.push_str("\nSubqueries (operators that run as plain calls)\n");
    for (number, subquery) in plan.subqueries.subqueries.iter().enumerate() {
        let nodes = subquery
            .nodes
            .iter()
            .map(|&n| format!("{} #{n}", graph.nodes[n].name));
        let nodes = nodes.collect::<Vec<_>>().join(" -> ");
        let many = if subquery.instances == 1 {
            "instance"
        } else {
            "instances"
        };
        text.push_str(&format!(
            "  {number:<4} {nodes}  ({} {many})\n",
            subquery.instances
        ));
    }
    text.push_str(&format!(
        "\nInstances on {} worker{} ({} link{})\n",
        plan.placement.cores.len(),
        if plan.placement.cores.len() == 1 {
            ""
        } else {
            "s"
        },
        plan.execution.links.len(),
        if plan.execution.links.len() == 1 {
            ""
        } else {
            "s"
        },
    ));
    for (worker, core) in plan.placement.cores.iter().enumerate() {
        let on = core.map_or("not pinned".to_string(), |core| format!("core {core}"));
        let instances = (0..plan.execution.instances.len())
            .filter(|&instance| plan.placement.worker_of[instance] == worker)
            .map(|instance| instance_name(graph, plan, instance));
        let instances = instances.collect::<Vec<_>>().join(", ");
        let process = match plan.process_of.last() {
            Some(0) | None => String::new(),
            Some(_) => format!("process {}, ", plan.process_of[worker]),
        };
        let instances = match instances.as_str() {
            "" => "nothing until the load needs it",
            some => some,
        };
        text.push_str(&format!("  worker {worker} ({process}{on}): {instances}\n"));
    }
    text.push_str(&latency::targets(program, plan));
    text
}

fn output_names(program: &Program, node: usize) -> Vec<String> {
    let fields = output_schema(program, node).fields().iter();
    fields.map(|field| field.name().clone()).collect()
}
