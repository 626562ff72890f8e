//! What is sent between the nodes of a query: only new rows, or also changes; in which form changes are sent;
//! and which state grows without bound because of them.
//!
//! A reader that needs whole rows (an aggregation that subtracts, a join, a condition that a row may no
//! longer meet) needs the previous row of each update; a reader that replaces rows by key does not. So the
//! request travels from the sinks upstream, and the answer from the sources downstream.

use slackwater_control::query::QueryGraph;

use crate::node::NodeSpec;
use crate::settings::Settings;

pub use crate::node::ChangelogMode;

/// Tells each node in which form its readers need changes, and each sink which kinds of rows it doesn't get.
/// Returns what each node emits.
pub fn settle(graph: &QueryGraph, nodes: &mut [NodeSpec]) -> Vec<ChangelogMode> {
    let sinks = (0..nodes.len()).filter(|&node| nodes[node].is_sink());
    let heard = sinks.map(|node| {
        // Other readers of the same rows may request previous rows. This sink gets only what it would get
        // without them.
        let upstream = graph.upstream(node);
        let wanted = wanted(graph, nodes, |other| upstream.contains(&other));
        let modes = modes(graph, nodes, &wanted);
        (node, modes[graph.nodes[node].inputs[0].from].befores)
    });
    let heard = heard.collect::<Vec<(usize, bool)>>();
    let wanted = wanted(graph, nodes, |_| true);
    let modes = modes(graph, nodes, &wanted);
    for (node, gets_before) in heard {
        if let NodeSpec::Sink(sink) = &mut nodes[node] {
            sink.gets_before = gets_before;
        }
    }
    for (node, wants_before) in nodes.iter_mut().zip(wanted) {
        if let NodeSpec::Operator(operator) = node {
            operator.settle(wants_before);
        }
    }
    modes
}

/// For each node, whether one of its readers among the nodes that `counts` selects needs the previous row of
/// an update.
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

/// What each node emits if its readers want previous rows as in `wanted`.
fn modes(graph: &QueryGraph, nodes: &[NodeSpec], wanted: &[bool]) -> Vec<ChangelogMode> {
    let mut modes = Vec::<ChangelogMode>::with_capacity(nodes.len());
    for (node, spec) in nodes.iter().enumerate() {
        let inputs = graph.nodes[node].inputs.iter().map(|edge| modes[edge.from]);
        let inputs = inputs.fold(ChangelogMode::default(), ChangelogMode::and);
        modes.push(spec.changelog(wanted[node]).emits.of(inputs));
    }
    modes
}

/// A warning for each node that keeps state forever while its input does not end: it names the clause and
/// what would bound it.
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

/// Rejects a `state_ttl` that never discards anything: it counts event time, and no source has any.
pub fn ttl_without_event_time(
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
        "'state_ttl' has no effect: it counts event time, and table '{}' has no WATERMARK",
        source.table.name
    ))
}
