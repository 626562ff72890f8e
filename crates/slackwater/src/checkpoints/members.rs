//! Who takes part in checkpoints, and what their state is called and means.

use std::collections::{BTreeSet, HashMap};

use arrow_schema::{Schema, SchemaRef};
use slackwater_checkpoint::compatible::Wanted;
use slackwater_checkpoint::manifest::{Identity, NodeKind};
use slackwater_engine::deploy::{Deployment, StepKind};
use slackwater_engine::operator::aggregate::AggregateSpec;
use slackwater_engine::operator::changelog::top_n::TopNSpec;
use slackwater_sql::program::Program;
use slackwater_sql::specs::NodeSpec;

/// The nodes and instances of a query that have positions, state or commits.
pub struct Members {
    /// What they are.
    pub nodes: Vec<Identity>,
    /// Their nodes in the query graph.
    pub graph_nodes: Vec<usize>,
    /// Of each whether its partitions are connections, none of which is found again.
    pub transient: Vec<bool>,
    /// The instances: index into `nodes`, and number among the node's instances.
    pub members: Vec<(usize, u32)>,
    /// The number of each member's instance in the deployment.
    pub instances: Vec<usize>,
    index: HashMap<(usize, u32), usize>,
}

/// For each node of the query graph whether it takes part: all but tables, which are read again.
pub fn takes_part(program: &Program) -> Vec<bool> {
    let nodes = program.nodes.len();
    let mut takes_part = vec![false; nodes];
    // A node's consumers have larger numbers.
    for node in (0..nodes).rev() {
        let mut consumers = program.graph.consumers(node).into_iter();
        takes_part[node] = matches!(program.nodes[node], NodeSpec::Sink(_))
            || consumers.any(|(to, input)| {
                let is_table = matches!(program.nodes[to], NodeSpec::TableJoin(_))
                    && input == slackwater_engine::operator::table_join::TABLE;
                takes_part[to] && !is_table
            });
    }
    takes_part
}

impl Members {
    /// The members of a query as it is deployed.
    pub fn new(program: &Program, deployment: &Deployment) -> Members {
        let keys = keys(program);
        let takes_part = takes_part(program);
        let mut members = Members {
            nodes: Vec::new(),
            graph_nodes: Vec::new(),
            transient: Vec::new(),
            members: Vec::new(),
            instances: Vec::new(),
            index: HashMap::new(),
        };
        for (node, spec) in program.nodes.iter().enumerate() {
            let Some(identity) = identity(spec, keys.get(&node)) else {
                continue;
            };
            if takes_part[node] {
                members.nodes.push(identity);
                members.graph_nodes.push(node);
                members.transient.push(match spec {
                    NodeSpec::Source(source) => source.connector.describe().transient_partitions,
                    _ => false,
                });
            }
        }
        for (number, instance) in deployment.instances.iter().enumerate() {
            if let Some(node) = instance.source() {
                members.add(node, instance.index, number);
            }
            for step in &instance.steps {
                if matches!(step.kind, StepKind::Operator | StepKind::Sink { .. }) {
                    members.add(step.node, instance.index, number);
                }
            }
        }
        members
    }

    fn add(&mut self, graph_node: usize, instance: usize, number: usize) {
        let Some(node) = self.graph_nodes.iter().position(|&of| of == graph_node) else {
            return;
        };
        let member = (node, instance as u32);
        self.index
            .insert((graph_node, member.1), self.members.len());
        self.members.push(member);
        self.instances.push(number);
    }

    /// The member that is an instance of a node of the query graph.
    pub fn find(&self, graph_node: usize, instance: usize) -> Option<usize> {
        self.index.get(&(graph_node, instance as u32)).copied()
    }

    /// The key of a node of the query graph.
    pub fn key(&self, graph_node: usize) -> Option<&str> {
        let node = self.graph_nodes.iter().position(|&of| of == graph_node)?;
        Some(&self.nodes[node].key)
    }

    /// The keys, by node of the query graph.
    pub fn keys(&self) -> HashMap<usize, String> {
        let nodes = self.graph_nodes.iter().zip(&self.nodes);
        nodes
            .map(|(&node, identity)| (node, identity.key.clone()))
            .collect()
    }

    /// What the query wants of a checkpoint.
    pub fn wanted(&self, program: &Program) -> Vec<Wanted> {
        let nodes = self.nodes.iter().zip(&self.graph_nodes);
        let wanted = nodes.map(|(identity, &node)| {
            let upstream = program.graph.upstream(node);
            let sources = upstream
                .into_iter()
                .filter(|&of| of != node && matches!(program.nodes[of], NodeSpec::Source(_)));
            Wanted {
                identity: identity.clone(),
                sources: sources
                    .filter_map(|of| self.key(of).map(str::to_string))
                    .collect(),
                may_begin_empty: false,
            }
        });
        wanted.collect()
    }
}

/// Names by which nodes are found again: tables that are read and written have their own, and what lies
/// between them is counted from the sink on that it leads to.
fn keys(program: &Program) -> HashMap<usize, String> {
    let mut keys = HashMap::new();
    let mut used = BTreeSet::new();
    let mut name = |wish: String| {
        let mut numbers = 2..;
        let mut name = wish.clone();
        while !used.insert(name.clone()) {
            name = format!("{wish} {}", numbers.next().unwrap_or(0));
        }
        name
    };
    for (node, spec) in program.nodes.iter().enumerate() {
        let wish = match spec {
            NodeSpec::Source(source) => format!("source {}", source.table.name),
            NodeSpec::Sink(sink) => match &sink.table {
                Some(table) => format!("sink {}", table.name),
                None => "terminal".to_string(),
            },
            _ => continue,
        };
        keys.insert(node, name(wish));
    }
    for (node, spec) in program.nodes.iter().enumerate() {
        if !matches!(spec, NodeSpec::Sink(_)) {
            continue;
        }
        let sink = keys[&node].clone();
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            let inputs = &program.graph.nodes[node].inputs;
            for from in inputs.iter().rev().map(|edge| edge.from) {
                if let Some(saved) = program.nodes[from].saved()
                    && !keys.contains_key(&from)
                {
                    keys.insert(from, name(format!("{} of {sink}", saved.word())));
                }
                open.push(from);
            }
        }
    }
    keys
}

fn identity(spec: &NodeSpec, key: Option<&String>) -> Option<Identity> {
    let aspect = |name: &str, value: String| (name.to_string(), value);
    let (kind, aspects) = match spec {
        NodeSpec::Source(source) => {
            let connector = source.connector.describe().connector;
            (NodeKind::Source, vec![aspect("connector", connector)])
        }
        NodeSpec::Sink(sink) => {
            let place = sink.connector.describe();
            (NodeKind::Sink, vec![aspect("output", place)])
        }
        NodeSpec::Aggregate { spec, input } => (NodeKind::Stateful, of_aggregate(spec, input)),
        NodeSpec::Sessions { spec, input, .. } => {
            let mut aspects = of_aggregate(spec, input);
            aspects.push(aspect("form", "merges sessions".to_string()));
            (NodeKind::Stateful, aspects)
        }
        NodeSpec::SessionRows {
            sessions, input, ..
        } => {
            let aspects = vec![
                aspect("rows", columns(input)),
                aspect("keys", format!("{:?}", sessions.keys)),
                aspect("windows", format!("{:?}", sessions.windows)),
            ];
            (NodeKind::Stateful, aspects)
        }
        NodeSpec::CountWindow(spec) => {
            let aspects = vec![
                aspect("rows", columns(&spec.input)),
                aspect("keys", format!("{:?}", spec.keys)),
                aspect("windows", format!("{:?}", spec.windows)),
            ];
            (NodeKind::Stateful, aspects)
        }
        NodeSpec::Join(join) => {
            let sides = join
                .sides
                .iter()
                .map(|side| format!("{} by {:?}", columns(&side.schema), side.keys));
            let sides = sides.collect::<Vec<_>>().join("; ");
            let windows = format!("{:?}", join.windows);
            let aspects = vec![aspect("rows", sides), aspect("windows", windows)];
            (NodeKind::Stateful, aspects)
        }
        NodeSpec::IntervalJoin(join) => {
            let sides = join.sides.iter().map(|side| {
                let rows = columns(&side.schema);
                format!("{rows} by {:?} at {}", side.keys, side.time_column)
            });
            let sides = sides.collect::<Vec<_>>().join("; ");
            let interval = format!("{:?} {:?}", join.kind, join.bounds);
            let aspects = vec![aspect("rows", sides), aspect("interval", interval)];
            (NodeKind::Stateful, aspects)
        }
        NodeSpec::Over(spec) => {
            let rows = columns(&spec.input);
            let order = format!("{rows} by {:?} at {}", spec.keys, spec.time_column);
            let functions = format!("{:?}", spec.calls);
            let aspects = vec![aspect("rows", order), aspect("functions", functions)];
            (NodeKind::Stateful, aspects)
        }
        NodeSpec::ChangelogJoin(join) => {
            let sides = join.sides.iter();
            let sides = sides.map(|side| format!("{} by {:?}", columns(&side.schema), side.keys));
            let mut kind = format!("{:?}", join.kind);
            if join.settles() {
                kind.push_str(", forgets rows that have a partner");
            }
            let aspects = vec![
                aspect("rows", sides.collect::<Vec<_>>().join("; ")),
                // Only outer, semi and anti joins count partners.
                aspect("kind", kind),
            ];
            (NodeKind::Stateful, aspects)
        }
        NodeSpec::TopN(spec) | NodeSpec::ByPrimaryKey(spec) => (NodeKind::Stateful, of_top_n(spec)),
        NodeSpec::Final(spec) => {
            let kept = spec.kept_max();
            let kept = kept.map_or("all".to_string(), |most| most.to_string());
            let aspects = vec![
                aspect("rows", columns(&spec.schema)),
                aspect("order", format!("{:?}", spec.order)),
                aspect("kept", kept),
            ];
            (NodeKind::Stateful, aspects)
        }
        NodeSpec::TemporalJoin(spec) => {
            let keys = format!("{:?}", spec.join.keys);
            let table = columns(&spec.join.table);
            let aspects = vec![
                aspect("keys", keys),
                aspect("table", table),
                aspect("columns", columns(&spec.join.schema)),
            ];
            (NodeKind::Stateful, aspects)
        }
        other => {
            assert!(other.saved().is_none(), "what its state means is not said");
            return None;
        }
    };
    Some(Identity {
        key: key?.clone(),
        kind,
        aspects,
    })
}

fn of_aggregate(spec: &AggregateSpec, input: &SchemaRef) -> Vec<(String, String)> {
    let field = |column: &usize| {
        let field = input.field(*column);
        // Without the table that it comes from: that may be called otherwise.
        let name = field.name();
        let is_column = name
            .chars()
            .all(|c| c.is_alphanumeric() || "._".contains(c));
        let name = match name.rsplit_once('.') {
            Some((_, column)) if is_column => column,
            _ => name,
        };
        format!("{name} {}", field.data_type())
    };
    let list = |columns: &[usize]| columns.iter().map(field).collect::<Vec<_>>().join(", ");
    let calls = spec.calls.iter().map(|call| {
        let filter = call.filter.map(|_| " FILTER").unwrap_or_default();
        format!("{:?}({}){filter}", call.function, list(&call.arguments))
    });
    let windows = spec.window.map(|window| format!("{:?}", window.windows));
    let mut aspects = [
        ("keys", list(&spec.keys)),
        ("aggregates", calls.collect::<Vec<_>>().join(", ")),
        ("windows", windows.unwrap_or_else(|| "none".to_string())),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .to_vec();
    if spec.refires.is_some() {
        let form = match spec.emits_before {
            true => "emitted more than once, says what was before",
            false => "emitted more than once",
        };
        aspects.push(("form".to_string(), form.to_string()));
    }
    if spec.is_updating() {
        let form = if spec.takes_back {
            "takes rows back"
        } else {
            "says what was before"
        };
        aspects.push(("form".to_string(), form.to_string()));
    }
    aspects
}

fn of_top_n(spec: &TopNSpec) -> Vec<(String, String)> {
    let windows = spec.window.map(|window| format!("{:?}", window.windows));
    // Of rows that only come no more than the first are kept.
    let kept = match spec.takes_back {
        true => "all".to_string(),
        false => spec.limit.to_string(),
    };
    [
        ("rows", columns(&spec.input)),
        ("keys", format!("{:?}", spec.partition)),
        ("order", format!("{:?}", spec.order)),
        ("kept", kept),
        ("windows", windows.unwrap_or_else(|| "none".to_string())),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .to_vec()
}

fn columns(schema: &Schema) -> String {
    let fields = schema.fields().iter();
    let fields = fields.map(|field| format!("{} {}", field.name(), field.data_type()));
    fields.collect::<Vec<_>>().join(", ")
}
