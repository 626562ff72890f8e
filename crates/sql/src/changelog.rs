//! What travels between the nodes of a query: rows that are only added, or changes; in which form
//! whoever makes changes is to send them; and what they make grow without bound.
//!
//! Who needs whole rows (an aggregation that subtracts, a join, a condition that a row may cease to meet)
//! wants to hear what a row was before its update; who replaces by key does not. So the wish travels from
//! the sinks up, and the answer from the sources down.

use std::fmt;

use arrow_schema::Schema;
use slackwater_control::query::QueryGraph;
use slackwater_engine::accumulator::AggregateFunction;
use slackwater_engine::operator::over::{OverFunction, OverSpec};
use slackwater_engine::operator::table_join::TABLE;

use crate::explain::readable;
use crate::settings::Settings;
use crate::specs::NodeSpec;

/// The kinds of rows that a node emits (Flink's changelog mode).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChangelogMode {
    /// `+U`.
    pub updates: bool,
    /// `-U` in front of each `+U`.
    pub befores: bool,
    /// `-D`.
    pub deletes: bool,
}

impl ChangelogMode {
    /// Only `+I`: rows stay as they are.
    pub fn is_append(self) -> bool {
        self == ChangelogMode::default()
    }

    fn and(self, other: ChangelogMode) -> ChangelogMode {
        ChangelogMode {
            updates: self.updates || other.updates,
            befores: self.befores || other.befores,
            deletes: self.deletes || other.deletes,
        }
    }
}

impl fmt::Display for ChangelogMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("+I")?;
        for (is_there, symbol) in [
            (self.befores && self.updates, " -U"),
            (self.updates, " +U"),
            (self.deletes, " -D"),
        ] {
            if is_there {
                f.write_str(symbol)?;
            }
        }
        Ok(())
    }
}

/// Tells whoever makes changes in which form they are wanted, and sinks which kinds of rows are not for them;
/// what each node emits then.
pub fn settle(graph: &QueryGraph, nodes: &mut [NodeSpec]) -> Vec<ChangelogMode> {
    for node in 0..nodes.len() {
        if !matches!(nodes[node], NodeSpec::Sink(_)) {
            continue;
        }
        // Whoever reads the same rows may want to hear what they were. What goes to this sink is what it
        // would get without that reader.
        let upstream = graph.upstream(node);
        let alone = settle_among(graph, &mut nodes.to_vec(), |other| {
            upstream.contains(&other)
        });
        let mode = alone[graph.nodes[node].inputs[0].from];
        if let NodeSpec::Sink(sink) = &mut nodes[node] {
            sink.hears_before = mode.befores;
        }
    }
    settle_among(graph, nodes, |_| true)
}

/// The same of some nodes and all that they read.
fn settle_among(
    graph: &QueryGraph,
    nodes: &mut [NodeSpec],
    is_among: impl Fn(usize) -> bool,
) -> Vec<ChangelogMode> {
    let mut wanted = vec![false; nodes.len()];
    // Consumers have larger numbers.
    for node in (0..nodes.len()).rev().filter(|&node| is_among(node)) {
        let wants = wanted[node];
        match &mut nodes[node] {
            NodeSpec::Aggregate { spec, .. } if !spec.is_final() => spec.emits_before = wants,
            NodeSpec::TopN(spec) => spec.emits_before = wants && spec.window.is_none(),
            NodeSpec::ByPrimaryKey(spec) => spec.emits_before = wants,
            _ => {}
        }
        for (input, edge) in graph.nodes[node].inputs.iter().enumerate() {
            wanted[edge.from] |= match &nodes[node] {
                NodeSpec::Sink(sink) => sink.wants_before,
                NodeSpec::Aggregate { spec, .. } => spec.takes_back,
                NodeSpec::TopN(spec) | NodeSpec::ByPrimaryKey(spec) => spec.takes_back,
                NodeSpec::Final(spec) => spec.takes_back,
                NodeSpec::ChangelogJoin(spec) => spec.sides[input].takes_back,
                NodeSpec::Filter { .. } | NodeSpec::ToRows { .. } => true,
                // As a filter: a row may lose its partner.
                NodeSpec::TableJoin(spec) if spec.only.is_some() => true,
                _ => wants,
            };
        }
    }
    let mut modes = Vec::<ChangelogMode>::with_capacity(nodes.len());
    for (node, spec) in nodes.iter().enumerate() {
        let inputs = graph.nodes[node].inputs.iter().map(|edge| modes[edge.from]);
        let inputs = inputs.fold(ChangelogMode::default(), ChangelogMode::and);
        modes.push(match spec {
            NodeSpec::Aggregate { spec, .. } if spec.is_final() => ChangelogMode::default(),
            NodeSpec::Aggregate { spec, .. } if spec.window.is_none() => ChangelogMode {
                // Of a DISTINCT there is nothing to be replaced.
                updates: !spec.calls.is_empty(),
                befores: spec.emits_before,
                deletes: spec.takes_back && !spec.keys.is_empty(),
            },
            NodeSpec::Aggregate { spec, .. } if spec.refires.is_some() => ChangelogMode {
                updates: true,
                befores: spec.emits_before,
                deletes: false,
            },
            NodeSpec::TopN(spec) | NodeSpec::ByPrimaryKey(spec) if spec.window.is_none() => {
                ChangelogMode {
                    updates: spec.is_by_key(),
                    befores: spec.emits_before,
                    deletes: spec.deletes(),
                }
            }
            NodeSpec::ChangelogJoin(spec) => ChangelogMode {
                deletes: spec.makes_updates(),
                ..ChangelogMode::default()
            },
            NodeSpec::TableJoin(spec) if spec.only.is_some() => ChangelogMode {
                deletes: inputs.deletes || inputs.updates,
                ..inputs
            },
            NodeSpec::Filter { .. } => ChangelogMode {
                deletes: inputs.deletes || inputs.updates,
                ..inputs
            },
            NodeSpec::Map { .. } | NodeSpec::Union { .. } | NodeSpec::TableJoin(_) => inputs,
            _ => ChangelogMode::default(),
        });
    }
    modes
}

/// What keeps state for ever though its input does not end: one warning each, with the clause and what
/// would be bounded.
pub fn unbounded(graph: &QueryGraph, nodes: &[NodeSpec]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (node, spec) in nodes.iter().enumerate() {
        let from = match spec {
            // Rows of the stream wait for the watermark; it is the versions that are kept.
            NodeSpec::TemporalJoin(_) => graph.nodes[node].inputs[TABLE].from,
            _ => node,
        };
        let upstream = graph.upstream(from);
        let is_endless = upstream.into_iter().any(|node| match &nodes[node] {
            NodeSpec::Source(source) => !source.connector.describe().bounded,
            _ => false,
        });
        if is_endless {
            grows(spec, &graph.nodes[node].detail, &mut warnings);
        }
    }
    warnings
}

/// The names of columns, as a reader of SQL would write them.
fn names(columns: &[usize], of: &Schema) -> String {
    let names = columns
        .iter()
        .map(|&column| readable(of.field(column).name()));
    names.collect::<Vec<String>>().join(", ")
}

/// What a node keeps for ever.
fn grows(spec: &NodeSpec, detail: &str, warnings: &mut Vec<String>) {
    let forgets = |grows: String| {
        format!("{grows}: SET 'state_ttl' = '1 d' forgets what nothing touches for so long")
    };
    match spec {
        NodeSpec::Aggregate { spec, input } if spec.window.is_none() => {
            if spec.retention_us.is_none() && !spec.keys.is_empty() {
                let clause = match spec.calls.is_empty() {
                    true => "DISTINCT",
                    false => "GROUP BY",
                };
                let names = names(&spec.keys, input);
                warnings.push(forgets(format!("{clause} {names} keeps every key for ever")));
            }
            // Values that are taken back are as many as what there is of the keys before.
            let values = spec.calls.iter().enumerate();
            let values = values.filter(|(_, call)| !spec.takes_back && keeps_values(&call.function));
            let first = spec.schema.fields().len() - spec.calls.len();
            warnings.extend(values.map(|(number, _)| {
                let call = readable(spec.schema.field(first + number).name());
                format!(
                    "{call} keeps every value for ever: 'state_ttl' forgets whole groups only; aggregate in \
                     windows, or take approx_distinct or approx_percentile_cont"
                )
            }));
        }
        NodeSpec::TopN(spec) if spec.window.is_none() && spec.retention_us.is_none() => {
            let names = names(&spec.partition, &spec.input);
            let grows = match (spec.takes_back, spec.partition.is_empty()) {
                (false, true) => return,
                (false, false) => format!("PARTITION BY {names} keeps every key for ever"),
                (true, _) => format!(
                    "ROW_NUMBER() over rows that are taken back keeps all of them for ever ({detail})"
                ),
            };
            warnings.push(forgets(grows));
        }
        NodeSpec::ByPrimaryKey(spec) if spec.retention_us.is_none() => {
            let names = names(&spec.partition, &spec.input);
            warnings.push(forgets(format!(
                "PRIMARY KEY ({names}) is not what the query's rows are replaced by, so all of them are kept for ever"
            )));
        }
        NodeSpec::ChangelogJoin(spec) if spec.retention_us.is_none() => {
            let (clause, kept) = match (spec.kind.is_of_left(), spec.settles()) {
                (false, _) => ("JOIN", "all rows of both sides"),
                (true, false) => ("IN, EXISTS, a semi or anti join", "all rows of both sides"),
                (true, true) => (
                    "IN, EXISTS, a semi or anti join",
                    "rows that have no partner yet, and all different rows of the right side,",
                ),
            };
            let grows = format!("{clause} without a window keeps {kept} for ever ({detail})");
            warnings.push(forgets(grows));
        }
        NodeSpec::TemporalJoin(_) => warnings.push(format!(
            "FOR SYSTEM_TIME AS OF keeps the last version of every key for ever ({detail}): it is valid until \
             the next one comes, so 'state_ttl' does not count here"
        )),
        NodeSpec::Over(spec) => warnings.extend(over_grows(spec, detail)),
        NodeSpec::CountWindow(spec) if !spec.keys.is_empty() => warnings.push(format!(
            "COUNT_WINDOW with PARTITION BY {} keeps for ever how many rows every key has had, and the rows of its \
             last windows: 'state_ttl' does not count here; windows of time (TUMBLE, SESSION) are forgotten",
            names(&spec.keys, &spec.input)
        )),
        _ => {}
    }
}

/// What an OVER keeps of each key, also of those that are never seen again.
fn over_grows(spec: &OverSpec, detail: &str) -> Option<String> {
    const MEND: &str = "'state_ttl' does not count here; RANGE BETWEEN INTERVAL … PRECEDING AND CURRENT ROW keeps \
                        rows of that time alone";
    let of = |keeps: fn(&OverFunction) -> bool| spec.calls.iter().any(|call| keeps(&call.function));
    let values = of(|function| {
        matches!(function, OverFunction::Aggregate { function: of, .. }
            if function.runs_on() && keeps_values(of))
    });
    let what = match (
        values,
        of(OverFunction::runs_on),
        of(OverFunction::keeps_rows),
    ) {
        (true, ..) => "every value",
        (_, true, true) => "a value and the last rows",
        (_, true, false) => "a value",
        (_, false, true) => "the last rows",
        (_, false, false) => return None,
    };
    match (spec.keys.is_empty(), values) {
        (true, true) => Some(format!("OVER keeps {what} for ever ({detail}): {MEND}")),
        (true, false) => None,
        (false, _) => {
            let keys = names(&spec.keys, &spec.input);
            Some(format!(
                "OVER (PARTITION BY {keys}) keeps {what} of every key for ever ({detail}): {MEND}"
            ))
        }
    }
}

/// Whether a function keeps all values that it has seen (or all that are different).
fn keeps_values(function: &AggregateFunction) -> bool {
    match function {
        AggregateFunction::Distinct { function, .. } => !function.needs_order(),
        AggregateFunction::Quantile { .. } => true,
        AggregateFunction::Other(factory) => factory.keeps_values(),
        _ => false,
    }
}

/// `state_ttl` counts event time, so it forgets nothing where no source has any.
pub fn without_clock(
    graph: &QueryGraph,
    nodes: &[NodeSpec],
    settings: &Settings,
) -> Option<String> {
    settings.state_ttl_us?;
    let is_still = |node: usize| match &nodes[node] {
        NodeSpec::Source(source) => source.event_time.is_none(),
        _ => false,
    };
    let keeps = nodes.iter().enumerate().filter(|(_, spec)| match spec {
        NodeSpec::Aggregate { spec, .. } => spec.retention_us.is_some(),
        NodeSpec::TopN(spec) => spec.window.is_none(),
        NodeSpec::ChangelogJoin(_) | NodeSpec::ByPrimaryKey(_) => true,
        _ => false,
    });
    let mut sources = keeps.flat_map(|(node, _)| graph.upstream(node));
    let source = sources.find(|&node| is_still(node))?;
    let NodeSpec::Source(source) = &nodes[source] else {
        return None;
    };
    Some(format!(
        "'state_ttl' forgets nothing here: it counts event time, and table '{}' has no WATERMARK",
        source.table.name
    ))
}
