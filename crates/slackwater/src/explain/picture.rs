//! The three graphs as boxes and arrows, for `dot.rs` and `svg.rs`.

use slackwater_control::query::Edge;
use slackwater_sql::program::Program;

use crate::explain::{exchange, worker_name};
use crate::plan::{Plan, instance_name};

/// A graph to draw.
pub struct Picture {
    /// The graph's name, without spaces.
    pub name: &'static str,
    /// The title above the graph.
    pub title: String,
    /// The graph's boxes.
    pub boxes: Vec<Tile>,
    /// The labels of groups of boxes.
    pub groups: Vec<String>,
    /// The graph's arrows.
    pub arrows: Vec<Arrow>,
}

/// A box of a graph.
pub struct Tile {
    /// The lines of text in the box.
    pub lines: Vec<String>,
    /// The group that the box belongs to.
    pub group: Option<usize>,
}

/// An arrow between two boxes.
pub struct Arrow {
    /// The box where the arrow starts.
    pub from: usize,
    /// The box where the arrow ends, always a later one.
    pub to: usize,
    /// The arrow's label, often empty.
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

/// Every edge of the query graph, with the node that it leads to.
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
