//! What travels between the nodes of a query: rows that are only added, or changes; in which form
//! whoever makes changes is to send them; and what they make grow without bound.
//!
//! Who needs whole rows (an aggregation that subtracts, a join, a condition that a row may cease to meet)
//! wants to hear what a row was before its update; who replaces by key does not. So the wish travels from
//! the sinks up, and the answer from the sources down.

use slackwater_control::query::QueryGraph;

use crate::node::NodeSpec;
use crate::settings::Settings;

pub use crate::node::ChangelogMode;

/// Tells whoever makes changes in which form they are wanted, and sinks which kinds of rows are not for them;
/// what each node emits then.
pub fn settle(graph: &QueryGraph, nodes: &mut [NodeSpec]) -> Vec<ChangelogMode> {
    let sinks = (0..nodes.len()).filter(|&node| nodes[node].is_sink());
    let heard = sinks.map(|node| {
        // Whoever reads the same rows may want to hear what they were. What goes to this sink is what it
        // would get without that reader.
        let upstream = graph.upstream(node);
        let wanted = wanted(graph, nodes, |other| upstream.contains(&other));
        let modes = modes(graph, nodes, &wanted);
        (node, modes[graph.nodes[node].inputs[0].from].befores)
    });
    let heard = heard.collect::<Vec<(usize, bool)>>();
    let wanted = wanted(graph, nodes, |_| true);
    let modes = modes(graph, nodes, &wanted);
    for (node, hears_before) in heard {
        if let NodeSpec::Sink(sink) = &mut nodes[node] {
            sink.hears_before = hears_before;
        }
    }
    for (node, wants_before) in nodes.iter_mut().zip(wanted) {
        if let NodeSpec::Operator(operator) = node {
            operator.settle(wants_before);
        }
    }
    modes
}

/// Of each node whether some of its readers, among the nodes that count, wants to hear what a row
/// was before its update.
fn wanted(graph: &QueryGraph, nodes: &[NodeSpec], counts: impl Fn(usize) -> bool) -> Vec<bool> {
    let mut wanted = vec![false; nodes.len()];
    // Consumers have larger numbers.
    for node in (0..nodes.len()).rev().filter(|&node| counts(node)) {
        let needs = nodes[node].changelog(wanted[node]).needs_before;
        for (input, edge) in graph.nodes[node].inputs.iter().enumerate() {
            wanted[edge.from] |= needs.of(input, wanted[node]);
        }
    }
    wanted
}

/// What each node emits, where its readers want this of it.
fn modes(graph: &QueryGraph, nodes: &[NodeSpec], wanted: &[bool]) -> Vec<ChangelogMode> {
    let mut modes = Vec::<ChangelogMode>::with_capacity(nodes.len());
    for (node, spec) in nodes.iter().enumerate() {
        let inputs = graph.nodes[node].inputs.iter().map(|edge| modes[edge.from]);
        let inputs = inputs.fold(ChangelogMode::default(), ChangelogMode::and);
        modes.push(spec.changelog(wanted[node]).emits.of(inputs));
    }
    modes
}

/// What keeps state for ever though its input does not end: one warning each, with the clause and what
/// would be bounded.
pub fn unbounded(graph: &QueryGraph, nodes: &[NodeSpec]) -> Vec<String> {
    let is_endless = |node: usize| {
        let upstream = graph.upstream(node).into_iter();
        let mut sources = upstream.filter_map(|node| nodes[node].as_source());
        sources.any(|source| !source.connector.describe().bounded)
    };
    let mut warnings = Vec::new();
    for (node, spec) in nodes.iter().enumerate() {
        let growth = spec.growth(&graph.nodes[node].detail).into_iter();
        let growth = growth.filter(|growth| {
            let inputs = &graph.nodes[node].inputs;
            is_endless(growth.input.map_or(node, |input| inputs[input].from))
        });
        warnings.extend(growth.map(|growth| growth.to_string()));
    }
    warnings
}

/// `state_ttl` counts event time, so it forgets nothing where no source has any.
pub fn without_clock(
    graph: &QueryGraph,
    nodes: &[NodeSpec],
    settings: &Settings,
) -> Option<String> {
    settings.state_ttl_us?;
    let forgets = |node: &usize| nodes[*node].facts().retention_us.is_some();
    let forgetful = (0..nodes.len()).filter(forgets);
    let mut upstream = forgetful.flat_map(|node| graph.upstream(node));
    let source = upstream.find_map(|node| {
        let source = nodes[node].as_source()?;
        source.event_time.is_none().then_some(source)
    })?;
    Some(format!(
        "'state_ttl' forgets nothing here: it counts event time, and table '{}' has no WATERMARK",
        source.table.name
    ))
}
