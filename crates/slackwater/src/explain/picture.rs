//! The three graphs as boxes and arrows, for whatever draws them.

use slackwater_control::query::Edge;
use slackwater_sql::program::Program;

use crate::explain::{exchange, worker_name};
use crate::plan::{Plan, instance_name};

/// A graph to be drawn.
pub struct Picture {
    /// A name without spaces.
    pub name: &'static str,
    /// Above it.
    pub title: String,
    /// Its boxes.
    pub boxes: Vec<Tile>,
    /// What boxes lie in, where they do.
    pub groups: Vec<String>,
    /// Its arrows.
    pub arrows: Vec<Arrow>,
}

/// A box.
pub struct Tile {
    /// What it says, line by line.
    pub lines: Vec<String>,
    /// What it lies in.
    pub group: Option<usize>,
}

/// An arrow between two boxes.
pub struct Arrow {
    /// Where it begins.
    pub from: usize,
    /// Where it ends, always at a later box.
    pub to: usize,
    /// What it says; often nothing.
    pub label: String,
}

/// The query graph, the subqueries, and the instances on their workers.
pub fn pictures(program: &Program, plan: &Plan) -> [Picture; 3] {
    [
        query(program, plan),
        subqueries(program, plan),
        instances(program, plan),
    ]
}

/// Every edge of the query graph, with the node that it goes to.
fn edges(program: &Program) -> impl Iterator<Item = (usize, &Edge)> {
    let nodes = program.graph.nodes.iter().enumerate();
    nodes.flat_map(|(to, node)| node.inputs.iter().map(move |edge| (to, edge)))
}

fn query(program: &Program, plan: &Plan) -> Picture {
    let nodes = program.graph.nodes.iter().enumerate();
    let boxes = nodes.map(|(number, node)| Tile {
        lines: vec![format!("{} #{number}", node.name), node.detail.clone()],
        group: None,
    });
    let arrows = edges(program).map(|(to, edge)| Arrow {
        from: edge.from,
        to,
        label: exchange(program, plan, edge, to),
    });
    Picture {
        name: "query",
        title: "Query graph".to_string(),
        boxes: boxes.collect(),
        groups: Vec::new(),
        arrows: arrows.collect(),
    }
}

fn subqueries(program: &Program, plan: &Plan) -> Picture {
    let parts = plan.subqueries.subqueries.iter().enumerate();
    let boxes = parts.map(|(number, part)| {
        let nodes = part.nodes.iter();
        let mut lines = vec![format!("subquery {number}, {} x", part.instances)];
        lines.extend(nodes.map(|&node| format!("{} #{node}", program.graph.nodes[node].name)));
        Tile { lines, group: None }
    });
    let of_node = &plan.subqueries.of_node;
    let between = edges(program).filter(|(to, edge)| of_node[*to] != of_node[edge.from]);
    let arrows = between.map(|(to, edge)| Arrow {
        from: of_node[edge.from],
        to: of_node[to],
        label: exchange(program, plan, edge, to),
    });
    Picture {
        name: "subqueries",
        title: "Subqueries".to_string(),
        boxes: boxes.collect(),
        groups: Vec::new(),
        arrows: arrows.collect(),
    }
}

fn instances(program: &Program, plan: &Plan) -> Picture {
    let workers = 0..plan.placement.cores.len();
    let boxes = (0..plan.execution.instances.len()).map(|instance| Tile {
        lines: vec![instance_name(&program.graph, plan, instance)],
        group: Some(plan.placement.worker_of[instance]),
    });
    let links = plan.execution.links.iter();
    let arrows = links.map(|link| Arrow {
        from: link.from,
        to: link.to,
        label: String::new(),
    });
    Picture {
        name: "instances",
        title: "Instances".to_string(),
        boxes: boxes.collect(),
        groups: workers.map(|worker| worker_name(plan, worker)).collect(),
        arrows: arrows.collect(),
    }
}
