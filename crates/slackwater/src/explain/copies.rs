//! What `explain` says of copies of a query.

use slackwater_control::query::NodeKind;
use slackwater_sql::program::Program;
use slackwater_sql::settings::TwoPhase;

use crate::copies::Copied;
use crate::plan::Plan;

/// The copies, what they do, and what is one for all.
pub fn copies(program: &Program, plan: &Plan) -> String {
    let Some(report) = plan.copies_report() else {
        return String::new();
    };
    let graph = &program.graph;
    let listed = |nodes: &mut dyn Iterator<Item = usize>| {
        let names = nodes.map(|node| format!("{} #{node}", graph.nodes[node].name));
        names.collect::<Vec<String>>().join(", ")
    };
    let place = match report.places {
        "hosts" => "host",
        _ => "NUMA node",
    };
    let mut text = format!(
        "\nCopies: {}, one on each {place}\n  each: {}\n",
        report.copies,
        listed(&mut report.copied.iter().copied())
    );
    for &node in &report.first_phases {
        let name = &graph.nodes[node].name;
        text.push_str(&format!("  each: the first phase of {name} #{node}\n"));
    }
    let mut others = (0..graph.nodes.len()).filter(|node| !report.copied.contains(node));
    let one = listed(&mut others);
    if !one.is_empty() {
        text.push_str(&format!("  one for all: {one}\n"));
    }
    for (node, why) in not_in_two_phases(program, plan) {
        let name = &graph.nodes[node].name;
        text.push_str(&format!("  note: {name} #{node} gets all rows: {why}\n"));
    }
    let bytes = |bytes: Option<f64>| bytes.map_or("?".to_string(), |bytes| format!("{bytes:.1}"));
    if report.bytes_between.is_some() {
        text.push_str(&format!(
            "  bytes between {}s for each row of the sources, predicted: {}, without copies {}\n",
            place,
            bytes(report.bytes_between),
            bytes(report.bytes_between_without)
        ));
    }
    let both = report.bytes_between.zip(report.bytes_between_without);
    if both.is_some_and(|(with, without)| with > without) {
        text.push_str(
            "  note: copies send more here than one query over all: SET 'copies' = 'none' leaves them out\n",
        );
    }
    text
}

/// What gets its rows from copies, keeps state, and has no first phase there; and why.
fn not_in_two_phases(program: &Program, plan: &Plan) -> Vec<(usize, &'static str)> {
    let Some(Copied { copies, .. }) = &plan.copies else {
        return Vec::new();
    };
    let of_node = &plan.subqueries.of_node;
    let nodes = program.graph.nodes.iter().enumerate();
    let left = nodes.filter(|(number, node)| {
        let from_copy = node
            .inputs
            .iter()
            .any(|edge| copies.copied[of_node[edge.from]]);
        node.kind == NodeKind::Stateful
            && from_copy
            && !copies.copied[of_node[*number]]
            && !copies.first_phase[*number]
    });
    let left = left.map(|(number, _)| {
        let why = match program.nodes[number].facts().combines {
            None => "it can't be done in two phases",
            Some(_) if program.settings.two_phase == TwoPhase::Off => "'two_phase' is 'off'",
            Some(combines) if !combines.spec.can_hold() => {
                "it emits before its input or window has ended"
            }
            Some(_) => {
                "its last digits would depend on which rows are added first, which SET 'two_phase' = 'on' \
                 permits"
            }
        };
        (number, why)
    });
    left.collect()
}
