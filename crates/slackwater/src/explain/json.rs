//! The three graphs and the placement as JSON. Field names are fixed, because scripts read them;
//! `docs/sql.md` lists them.

use serde::Serialize;
use slackwater_control::query::NodeKind;
use slackwater_sql::program::Program;

use crate::explain::{exchange, shared_sources};
use crate::plan::{Plan, instance_name};
use crate::report::CopiesReport;
use crate::tuner::plan_paths;

/// A plan, to be written as JSON.
#[derive(Serialize)]
pub struct Explained {
    query: Vec<Node>,
    subqueries: Vec<Subquery>,
    instances: Vec<Instance>,
    links: Vec<Link>,
    workers: Vec<Worker>,
    parsers: Vec<Parsers>,
    placement: Placement,
    /// The copies of the query; `null` if there is one.
    copies: Option<CopiesReport>,
    targets: Vec<Target>,
    notes: Vec<String>,
}

/// A node of the query graph.
#[derive(Serialize)]
struct Node {
    node: usize,
    name: String,
    detail: String,
    kind: &'static str,
    inputs: Vec<Input>,
}

/// An input of a node.
#[derive(Serialize)]
struct Input {
    from: usize,
    /// How rows are distributed over instances, as in the text output; empty if they stay together.
    exchange: String,
    /// The kinds of rows: `+I`, `+I -U +U`, …
    changes: String,
}

/// A subquery.
#[derive(Serialize)]
struct Subquery {
    subquery: usize,
    nodes: Vec<usize>,
    instances: usize,
}

/// An instance of a subquery.
#[derive(Serialize)]
struct Instance {
    instance: usize,
    name: String,
    subquery: usize,
    index: usize,
    #[serde(rename = "of")]
    instances: usize,
    worker: usize,
}

/// A link between instances.
#[derive(Serialize)]
struct Link {
    from: usize,
    to: usize,
    from_node: usize,
    to_node: usize,
    input: usize,
    /// The bytes of a message at most; `null` inside a process, and for chunks that are sent whole.
    message_bytes: Option<usize>,
    /// Why, as in the text output; `null` inside a process.
    message_reason: Option<String>,
}

/// A worker thread.
#[derive(Serialize)]
struct Worker {
    worker: usize,
    process: usize,
    /// The host's number, home's being 0; `null` on one host.
    host: Option<usize>,
    core: Option<usize>,
    node: Option<usize>,
}

/// The threads that parse the input of a source.
#[derive(Serialize)]
struct Parsers {
    node: usize,
    threads: usize,
    reason: &'static str,
}

/// How instances were placed.
#[derive(Serialize)]
struct Placement {
    strategy: &'static str,
    distance_mean: Option<f64>,
    processes: usize,
    elastic: bool,
}

/// How the plan meets a latency target.
#[derive(Serialize)]
struct Target {
    sink: usize,
    target_ms: f64,
    predicted_p99_ms: f64,
    predicted_cpu_percent: f64,
    meets_target: bool,
}

/// A plan as JSON.
pub fn json(program: &Program, plan: &Plan) -> Result<String, String> {
    let explained = Explained::of(program, plan);
    let text = serde_json::to_string_pretty(&explained).map_err(|error| error.to_string())?;
    Ok(text + "\n")
}

impl Explained {
    /// The plan of a program.
    pub fn of(program: &Program, plan: &Plan) -> Explained {
        let graph = &program.graph;
        let nodes = graph.nodes.iter().enumerate().map(|(number, node)| Node {
            node: number,
            name: node.name.clone(),
            detail: node.detail.clone(),
            kind: match node.kind {
                NodeKind::Source => "source",
                NodeKind::Stateless => "stateless",
                NodeKind::Stateful => "stateful",
                NodeKind::Sink => "sink",
            },
            inputs: node
                .inputs
                .iter()
                .map(|edge| Input {
                    from: edge.from,
                    exchange: exchange(program, plan, edge, number),
                    changes: program.modes[edge.from].to_string(),
                })
                .collect(),
        });
        let subqueries = plan.subqueries.subqueries.iter().enumerate();
        let subqueries = subqueries.map(|(number, part)| Subquery {
            subquery: number,
            nodes: part.nodes.clone(),
            instances: part.instances,
        });
        let instances = plan.execution.instances.iter().enumerate();
        let instances = instances.map(|(number, instance)| Instance {
            instance: number,
            name: instance_name(graph, plan, number),
            subquery: instance.subquery,
            index: instance.index,
            instances: instance.instances,
            worker: plan.placement.worker_of[number],
        });
        let links = plan.execution.links.iter().enumerate();
        let links = links.map(|(number, link)| Link {
            from: link.from,
            to: link.to,
            from_node: link.from_node,
            to_node: link.to_node,
            input: link.input,
            message_bytes: plan
                .messages_of(number)
                .and_then(|messages| messages.size.bytes()),
            message_reason: plan.messages_of(number).map(crate::messages::describe),
        });
        let placement = &plan.placement;
        let workers = (0..placement.cores.len()).map(|worker| Worker {
            worker,
            process: plan.process_of[worker],
            host: super::hosts::host_of(plan, worker),
            core: placement.cores[worker],
            node: placement.nodes[worker],
        });
        let parsers = shared_sources(program, plan).map(|(node, parsing)| Parsers {
            node,
            threads: parsing.threads,
            reason: parsing.why.text(),
        });
        let targets = plan_paths(program, plan, crate::calibrate::costs());
        let targets = targets.iter().map(|path| Target {
            sink: path.path.sink,
            target_ms: path.path.target_ns as f64 / 1e6,
            predicted_p99_ms: path.planned.chosen.prediction.p99_ns / 1e6,
            predicted_cpu_percent: path.planned.chosen.prediction.cores * 100.0,
            meets_target: path.planned.meets_target,
        });
        Explained {
            query: nodes.collect(),
            subqueries: subqueries.collect(),
            instances: instances.collect(),
            links: links.collect(),
            workers: workers.collect(),
            parsers: parsers.collect(),
            copies: plan.copies_report(),
            placement: Placement {
                strategy: placement.strategy.name(),
                distance_mean: placement.distance_mean,
                processes: plan.processes,
                elastic: plan.elastic,
            },
            targets: targets.collect(),
            notes: plan
                .notes
                .iter()
                .chain(&program.warnings)
                .cloned()
                .collect(),
        }
    }
}
