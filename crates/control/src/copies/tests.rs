//! Tests of what is copied, what is linked, and what that costs.

use super::*;
use crate::demand::{NodeCost, bytes_between, demand, rows_left};
use crate::expand::{expand, expand_copies};
use crate::query::{Node, NodeKind};
use crate::split::split;

/// A node: its kind, its inputs, the most instances.
type Given<'a> = (NodeKind, &'a [(usize, Exchange)], usize);

fn graph(nodes: &[Given<'_>]) -> QueryGraph {
    let mut graph = QueryGraph::default();
    for (kind, inputs, instances_max) in nodes {
        let inputs = inputs.iter().map(|(from, exchange)| Edge {
            from: *from,
            exchange: exchange.clone(),
        });
        graph.add(Node {
            name: String::new(),
            detail: String::new(),
            kind: *kind,
            inputs: inputs.collect(),
            instances_max: *instances_max,
        });
    }
    graph
}

const MANY: usize = usize::MAX;

fn by_key() -> Exchange {
    Exchange::Key(vec![0])
}

/// A source, a map that rows are dealt to, an aggregation by key, a file.
fn dealt(exchange: Exchange) -> QueryGraph {
    use NodeKind::{Sink, Source, Stateful, Stateless};
    graph(&[
        (Source, &[], MANY),
        (Stateless, &[(0, exchange)], MANY),
        (Stateful, &[(1, by_key())], MANY),
        (Sink, &[(2, Exchange::Forward)], 1),
    ])
}

fn links(
    graph: &QueryGraph,
    copies: &Copies,
    split: &Subqueries,
    to: usize,
) -> Vec<(usize, usize)> {
    let execution = expand_copies(graph, split, Some(copies));
    let ends = |instance: usize| execution.instances[instance].index;
    let links = execution.links.iter().filter(|link| link.to_node == to);
    links.map(|link| (ends(link.from), ends(link.to))).collect()
}

#[test]
fn rows_are_dealt_out_within_their_copy_and_meet_in_the_second_phase() {
    let graph = dealt(Exchange::RoundRobin);
    let split = split(&graph, 4);
    let copies = Copies::of(&graph, &split, 2, &[false, false, true, false]);
    assert_eq!(copies.copied, [true, true, false, false]);
    assert_eq!(copies.first_phase, [false, false, true, false]);
    assert_eq!(
        [0, 1, 2, 3].map(|index| copies.of_instance(1, index)),
        [0, 1, 0, 1].map(Some)
    );
    assert_eq!(copies.of_instance(2, 1), None);
    let within = [
        (0, 0),
        (0, 2),
        (1, 1),
        (1, 3),
        (2, 0),
        (2, 2),
        (3, 1),
        (3, 3),
    ];
    assert_eq!(links(&graph, &copies, &split, 1), within);
    // All with all: 16.
    assert_eq!(links(&graph, &copies, &split, 2).len(), 16);
}

#[test]
fn no_copy_is_left_without_anybody_to_send_to() {
    // Three copies; the map can only have two instances, and the source three.
    let mut graph = dealt(Exchange::RoundRobin);
    graph.nodes[1].instances_max = 2;
    let split = split(&graph, 3);
    let copies = Copies::of(&graph, &split, 3, &[false; 4]);
    let all = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)];
    assert_eq!(links(&graph, &copies, &split, 1), all);
    // A source with fewer partitions than copies.
    let mut graph = dealt(Exchange::RoundRobin);
    graph.nodes[0].instances_max = 2;
    let split = super::super::split::split(&graph, 4);
    let copies = Copies::of(&graph, &split, 4, &[false; 4]);
    assert_eq!(links(&graph, &copies, &split, 1).len(), 8);
    // One partition is not a copy.
    graph.nodes[0].instances_max = 1;
    let split = super::super::split::split(&graph, 4);
    assert!(!Copies::of(&graph, &split, 4, &[false; 4]).is_used());
}

#[test]
fn what_comes_from_state_is_one_for_all() {
    use NodeKind::{Sink, Source, Stateful, Stateless};
    // A join of two sources, an aggregation of it; a second statement that only filters.
    let graph = graph(&[
        (Source, &[], MANY),
        (Source, &[], MANY),
        (Stateful, &[(0, by_key()), (1, by_key())], MANY),
        (Stateful, &[(2, by_key())], MANY),
        (Sink, &[(3, Exchange::Forward)], MANY),
        (Stateless, &[(0, Exchange::Forward)], MANY),
        (Sink, &[(5, Exchange::Forward)], MANY),
        (Stateless, &[(0, Exchange::Broadcast)], MANY),
    ]);
    let split = split(&graph, 2);
    let copies = Copies::of(&graph, &split, 2, &[true; 8]);
    let of_node = |node: usize| copies.copied[split.of_node[node]];
    let copied = (0..8).filter(|&node| of_node(node)).collect::<Vec<usize>>();
    assert_eq!(copied, [0, 1, 5, 6]);
    // The aggregation is fed by the join, which is one for all: it has no first phase in copies.
    assert!(!copies.first_phase[3]);
    // The join itself would, if it were one.
    assert!(copies.first_phase[2]);
}

#[test]
fn behind_an_operator_with_state_nothing_is_held_back() {
    use NodeKind::{Source, Stateful};
    let graph = graph(&[
        (Source, &[], MANY),
        (Stateful, &[(0, Exchange::Forward)], MANY),
        (Stateful, &[(1, by_key())], MANY),
    ]);
    let split = split(&graph, 2);
    let copies = Copies::of(&graph, &split, 2, &[false, true, true]);
    assert_eq!(copies.copied, [true, true, false]);
    assert_eq!(copies.first_phase, [false; 3]);
}

#[test]
fn the_first_phase_moves_work_to_the_senders_and_takes_bytes_from_the_links() {
    let graph = dealt(Exchange::Forward);
    let split = split(&graph, 2);
    let copies = Copies::of(&graph, &split, 2, &[false, false, true, false]);
    let cost = |per_row_ns, rows_out| NodeCost {
        per_row_ns,
        rows_out,
        row_bytes: 100.0,
    };
    let costs = [
        cost(50.0, 1.0),
        cost(10.0, 1.0),
        cost(40.0, 0.05),
        cost(0.0, 1.0),
    ];
    let rates = [1e6, 0.0, 0.0, 0.0];
    let execution = expand_copies(&graph, &split, Some(&copies));
    let [with, without] = [Some(&copies), None]
        .map(|copies| demand(&graph, &split, &execution, copies, &costs, &rates));
    // Each of two senders has at most all groups, a twentieth of the rows.
    assert_eq!(rows_left(&graph, &split, &costs, 2), 0.1);
    let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-9, "{found} {wanted}");
    // Half a million rows a second each, of 60 ns; then of 100.
    near(without.cores[0], 0.03);
    near(with.cores[0], 0.05);
    near(without.cores[2], 0.02);
    near(with.cores[2], 0.002);
    // Of four links by key two cross: half of 100 MB/s, then of 10.
    let places = execution
        .instances
        .iter()
        .map(|instance| instance.index % 2);
    let places = places.collect::<Vec<usize>>();
    near(bytes_between(&execution, &without, &places), 50e6 + 2.5e6);
    near(bytes_between(&execution, &with, &places), 5e6 + 2.5e6);
}

#[test]
fn without_copies_nothing_changes() {
    let graph = dealt(Exchange::Demand);
    let split = split(&graph, 4);
    assert_eq!(expand_copies(&graph, &split, None), expand(&graph, &split));
    assert_eq!(
        [(1, 2), (3, 2), (4, 2), (5, 1)].map(|(wanted, n)| instances(wanted, n)),
        [2, 4, 4, 5]
    );
}
