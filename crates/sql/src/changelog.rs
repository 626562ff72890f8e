//! What travels between the nodes of a query: rows that are only added, or changes; in which form
//! whoever makes changes is to send them; and what they make grow without bound.
//!
//! Who needs whole rows (an aggregation that subtracts, a join, a condition that a row may cease to meet)
//! wants to hear what a row was before its update; who replaces by key does not. So the wish travels from
//! the sinks up, and the answer from the sources down.

use std::fmt;

use slackwater_control::query::QueryGraph;

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

/// Tells whoever makes changes in which form they are wanted; what each node emits then.
pub fn settle(graph: &QueryGraph, nodes: &mut [NodeSpec]) -> Vec<ChangelogMode> {
    let mut wanted = vec![false; nodes.len()];
    // Consumers have larger numbers.
    for node in (0..nodes.len()).rev() {
        let wants = wanted[node];
        match &mut nodes[node] {
            NodeSpec::Aggregate { spec, .. } if spec.window.is_none() || spec.refires.is_some() => {
                spec.emits_before = wants;
            }
            NodeSpec::TopN(spec) => spec.emits_before = wants && spec.window.is_none(),
            NodeSpec::ByPrimaryKey(spec) => spec.emits_before = wants,
            _ => {}
        }
        for (input, edge) in graph.nodes[node].inputs.iter().enumerate() {
            wanted[edge.from] |= match &nodes[node] {
                NodeSpec::Sink(sink) => sink.wants_before,
                NodeSpec::Aggregate { spec, .. } => spec.takes_back,
                NodeSpec::TopN(spec) | NodeSpec::ByPrimaryKey(spec) => spec.takes_back,
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

/// What keeps state for ever though its input does not end: one warning each, with the clause.
pub fn unbounded(graph: &QueryGraph, nodes: &[NodeSpec]) -> Vec<String> {
    let ends = |node: usize| match &nodes[node] {
        NodeSpec::Source(source) => source.connector.describe().bounded,
        _ => true,
    };
    let mut warnings = Vec::new();
    for (node, spec) in nodes.iter().enumerate() {
        if graph.upstream(node).into_iter().all(ends) {
            continue;
        }
        let detail = &graph.nodes[node].detail;
        let names = |columns: &[usize], of: &arrow_schema::Schema| {
            let names = columns
                .iter()
                .map(|&column| of.field(column).name().as_str());
            let names = names.map(crate::explain::readable);
            names.collect::<Vec<_>>().join(", ")
        };
        let grows = match spec {
            NodeSpec::Aggregate { spec, input } => {
                let is_kept = spec.window.is_none() && spec.retention_us.is_none();
                if !is_kept || spec.keys.is_empty() {
                    continue;
                }
                let clause = if spec.calls.is_empty() {
                    "DISTINCT"
                } else {
                    "GROUP BY"
                };
                let names = names(&spec.keys, input);
                format!("{clause} {names} keeps every key for ever")
            }
            NodeSpec::TopN(spec) if spec.window.is_none() && spec.retention_us.is_none() => {
                let names = names(&spec.partition, &spec.input);
                match (spec.takes_back, spec.partition.is_empty()) {
                    (false, true) => continue,
                    (false, false) => format!("PARTITION BY {names} keeps every key for ever"),
                    (true, _) => format!(
                        "ROW_NUMBER() over rows that are taken back keeps all of them for ever ({detail})"
                    ),
                }
            }
            NodeSpec::ByPrimaryKey(spec) if spec.retention_us.is_none() => {
                let names = names(&spec.partition, &spec.input);
                format!(
                    "PRIMARY KEY ({names}) is not what the query's rows are replaced by, so all of them are kept for ever"
                )
            }
            NodeSpec::ChangelogJoin(spec)
                if spec.retention_us.is_none() && spec.kind.is_of_left() =>
            {
                let kept = match spec.settles() {
                    true => {
                        "rows that have no partner yet, and all different rows of the right side,"
                    }
                    false => "all rows of both sides",
                };
                format!(
                    "IN, EXISTS, a semi or anti join without a window keeps {kept} for ever ({detail})"
                )
            }
            NodeSpec::ChangelogJoin(spec) if spec.retention_us.is_none() => {
                format!("JOIN without a window keeps all rows of both sides for ever ({detail})")
            }
            _ => continue,
        };
        warnings.push(format!(
            "{grows}: SET 'state_ttl' = '1 d' forgets what nothing touches for so long"
        ));
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
