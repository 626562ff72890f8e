//! `explain`: the query graph, its subqueries, their instances and where they run. As text here, as drawings
//! in `picture.rs`, `dot.rs` and `svg.rs`, as JSON in `json.rs`.

use std::collections::BTreeSet;

use clap::ValueEnum;
use slackwater_control::query::{Edge, Exchange};
use slackwater_engine::hash::DIRECT;
use slackwater_sql::program::Program;

use crate::broadcast;
use crate::parallel::Parsing;
use crate::plan::{Plan, instance_name};

mod copies;
mod dot;
mod hosts;
mod json;
mod latency;
mod picture;
mod svg;
mod targets;

pub use hosts::host_names;
pub use json::Explained;
pub use latency::{Predicted, analysed, predicted, sink_name};
pub use targets::{Price, table};

/// The output formats of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text for people.
    Text,
    /// A graph for Graphviz.
    Dot,
    /// A drawing.
    Svg,
    /// JSON for scripts.
    Json,
}

/// Writes a plan in a format.
///
/// # Errors
///
/// If the plan can't be written as JSON, which is a bug.
pub fn write(program: &Program, plan: &Plan, format: Format) -> Result<String, String> {
    Ok(match format {
        Format::Text => explain(program, plan),
        Format::Dot => dot::dot(&picture::pictures(program, plan)),
        Format::Svg => svg::svg(&picture::pictures(program, plan)),
        Format::Json => json::json(program, plan)?,
    })
}

/// The nodes of a program and their inputs.
pub fn query_graph(program: &Program, plan: &Plan) -> String {
    let mut text = String::new();
    let graph = &program.graph;
    for (number, node) in graph.nodes.iter().enumerate() {
        let inputs = node.inputs.iter().map(|edge| {
            let how = exchange(program, plan, edge, number);
            let text = format!("#{} {how}", edge.from).trim_end().to_string();
            match program.modes[edge.from] {
                mode if mode.is_append() => text,
                mode => format!("{text} [{mode}]"),
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
    text
}

/// The three graphs, the placement, and how the plan meets latency targets.
pub fn explain(program: &Program, plan: &Plan) -> String {
    let graph = &program.graph;
    let mut text = format!("Query graph\n{}", query_graph(program, plan));
    if !program.functions.is_empty() {
        text.push_str("\nFunctions in processes of their own\n");
    }
    for (name, function) in &program.functions {
        text.push_str(&format!("  {name:<15} {}\n", function.describe()));
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
    let plural = |number: usize| if number == 1 { "" } else { "s" };
    let (workers, links) = (plan.placement.cores.len(), plan.execution.links.len());
    text.push_str(&format!(
        "\nInstances on {workers} worker{} ({links} link{}){}\n",
        plural(workers),
        plural(links),
        placed(plan)
    ));
    for worker in 0..workers {
        let instances = (0..plan.execution.instances.len())
            .filter(|&instance| plan.placement.worker_of[instance] == worker)
            .map(|instance| instance_name(graph, plan, instance));
        let instances = instances.collect::<Vec<_>>().join(", ");
        let instances = match instances.as_str() {
            "" => "idle until the load needs it",
            some => some,
        };
        text.push_str(&format!("  {}: {instances}\n", worker_name(plan, worker)));
    }
    text.push_str(&parsing(program, plan));
    for note in &plan.notes {
        text.push_str(&format!("  note: {note}\n"));
    }
    for warning in &program.warnings {
        text.push_str(&format!("  warning: {warning}\n"));
    }
    text.push_str(&copies::copies(program, plan));
    text.push_str(&hosts::between_hosts(program, plan));
    text.push_str(&messages(program, plan));
    text.push_str(&latency::targets(program, plan));
    text
}

/// The sources whose input several threads parse, with a line for each.
fn parsing(program: &Program, plan: &Plan) -> String {
    let lines = shared_sources(program, plan).map(|(node, parsing)| {
        let (name, why) = (&program.graph.nodes[node].detail, parsing.why.text());
        format!(
            "  parsers: up to {} threads parse for #{node} {name}: {why}\n",
            parsing.threads
        )
    });
    lines.collect()
}

/// The sources whose input several threads parse.
fn shared_sources<'a>(
    program: &'a Program,
    plan: &'a Plan,
) -> impl Iterator<Item = (usize, Parsing)> + 'a {
    let sources = program
        .sources()
        .map(|(node, _)| (node, plan.parsers[node]));
    sources.filter(|(node, parsing)| {
        let source = program.nodes[*node].as_source();
        let described = source.map(|source| source.connector.describe());
        parsing.threads > 1 && described.is_some_and(|described| described.parsers)
    })
}

/// How rows are distributed over the instances of the node that an edge leads to; empty if instance `i` sends
/// to instance `i`.
fn exchange(program: &Program, plan: &Plan, edge: &Edge, to: usize) -> String {
    match &edge.exchange {
        Exchange::Forward => String::new(),
        Exchange::Apart => "apart".to_string(),
        Exchange::Key(columns) => {
            let fields = program.nodes[edge.from].schema().fields();
            let fields = columns.iter().filter_map(|&column| fields.get(column));
            let direct = fields.clone().find(|field| *field.data_type() == DIRECT);
            let names = fields.map(|field| match direct {
                Some(direct) if direct.name() == field.name() => {
                    format!("{} (direct)", field.name())
                }
                _ => field.name().clone(),
            });
            format!("by {}", names.collect::<Vec<_>>().join(", "))
        }
        Exchange::Single => "to one instance".to_string(),
        Exchange::RoundRobin => "in turn".to_string(),
        Exchange::Broadcast => {
            let how = plan.decided(edge.from, to);
            let how = how.map(|decided| broadcast::describe(&decided.choice));
            how.map_or("to every instance".to_string(), |how| {
                format!("to every instance, {how}")
            })
        }
        Exchange::Spread if !plan.crosses(edge.from, to) => String::new(),
        Exchange::Demand | Exchange::Spread => "by demand".to_string(),
    }
}

/// The size of messages between processes: a line for each edge of the query graph, since its links differ in
/// nothing that decides it. Empty in one process.
fn messages(program: &Program, plan: &Plan) -> String {
    if plan.messages.is_empty() {
        return String::new();
    }
    let are_apart = |messages: &crate::plan::LinkMessages| {
        let link = &plan.execution.links[messages.link];
        let ends = [link.from, link.to].map(|end| plan.placement.worker_of[end]);
        hosts::host_of(plan, ends[0]) != hosts::host_of(plan, ends[1])
    };
    let apart = plan.messages.iter().filter(|one| are_apart(one)).count();
    let kind = match (apart, program.settings.link.used()) {
        (0, used) => used.to_string(),
        (apart, _) if apart == plan.messages.len() => "tcp".to_string(),
        (_, "tcp") => "tcp".to_string(),
        (_, used) => format!("{used} on a host, tcp between hosts"),
    };
    let cost = match crate::calibrate::load() {
        Ok(_) => "calibrated",
        Err(_) => "built-in",
    };
    let mut text = format!("\nMessages between processes ({kind}, {cost} cost)\n");
    let mut known = BTreeSet::new();
    for messages in &plan.messages {
        let link = &plan.execution.links[messages.link];
        if known.insert((link.from_node, link.to_node, link.input)) {
            let (from, to) = (link.from_node, link.to_node);
            let size = crate::messages::describe(messages).replacen(": ", ":\n      ", 1);
            text.push_str(&format!("  #{from} -> #{to}: {size}\n"));
        }
    }
    text
}

/// A worker with where it runs: `worker 0 (h2, process 1, core 3 of node 0)`.
fn worker_name(plan: &Plan, worker: usize) -> String {
    let process = match plan.processes {
        1 => String::new(),
        _ => format!("process {}, ", plan.process_of[worker]),
    };
    let core = plan.placement.cores[worker];
    let core = core.map_or("not pinned".to_string(), |core| format!("core {core}"));
    let node = plan.placement.nodes[worker];
    let node = node.map_or(String::new(), |node| format!(" of node {node}"));
    let host = hosts::host_of(plan, worker);
    let host = host.map_or(String::new(), |host| {
        format!("{}, ", hosts::host_name(host))
    });
    format!("worker {worker} ({host}{process}{core}{node})")
}

/// How instances were placed, if there was a choice.
fn placed(plan: &Plan) -> String {
    let placement = &plan.placement;
    if placement.nodes.iter().all(Option::is_none) {
        return String::new();
    }
    let distance = placement.distance_mean.map_or(String::new(), |distance| {
        format!(": a byte travels a mean distance of {distance:.1} (0 on a core, 10 on a node)")
    });
    format!(", placement '{}'{distance}", placement.strategy.name())
}
