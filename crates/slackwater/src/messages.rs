//! The size of messages between processes: for each link the one that was set, or the one that its
//! calibrated cost, the width of its rows and the work of its ends suggest.
//!
//! The sender turns bytes into rows by the width that it measures. With a latency target, the size is planned
//! again from the measured width and rate (`tuner/messages.rs`).

use slackwater_control::demand::rows_into;
use slackwater_control::latency::message::{LinkLoad, Reason, plan_message};
use slackwater_control::query::Exchange;
use slackwater_sql::program::Program;
use slackwater_sql::settings::{LinkKind, MessageBytes};

use crate::broadcast::link_points;
use crate::costs::{QueryCosts, source_rates};
use crate::measure::Kind;
use crate::plan::{LinkMessages, Plan, Size};

/// The largest planned message: it travels in one piece, which a ring of 8 MiB and a TCP window of 4 MiB
/// allow for up to a quarter of their size.
const BYTES_MAX: usize = 1 << 20;

/// What a message costs both ends besides its rows and the link: to encode, decode and check it
/// (`docs/benchmarks/broadcast.md`).
const CODEC_NS: f64 = 1_000.0;

/// What both ends need for each byte, without the link: to gather and to check it.
const CODEC_PER_BYTE_NS: f64 = 0.1;

/// Decides the size of the messages of all links between processes, except for broadcasts, which have
/// segments of their own.
pub fn decide(program: &Program, plan: &mut Plan, costs: &QueryCosts) {
    let process = |plan: &Plan, instance: usize| {
        let worker = plan.placement.worker_of[instance];
        plan.process_of[worker]
    };
    let kind_of = |link: usize| {
        let link = &plan.execution.links[link];
        let hosts = [link.from, link.to].map(|end| plan.host_of.get(process(plan, end)));
        match program.settings.link {
            LinkKind::Auto | LinkKind::SharedMemory | LinkKind::Xdp if hosts[0] == hosts[1] => {
                Kind::ShmLent
            }
            // What frames cost is not measured; they are chosen by hand.
            _ => Kind::TcpLink,
        }
    };
    let links = plan.execution.links.iter().enumerate();
    let remote = links.filter(|(_, link)| {
        let edge = &program.graph.nodes[link.to_node].inputs[link.input];
        process(plan, link.from) != process(plan, link.to) && edge.exchange != Exchange::Broadcast
    });
    let remote = remote.map(|(number, _)| number).collect::<Vec<usize>>();
    if remote.is_empty() {
        return;
    }
    let points = [Kind::ShmLent, Kind::TcpLink].map(|kind| (kind, link_points(kind)));
    let loads = Loads::of(program, plan, costs);
    let decided = remote.into_iter().filter_map(|link| {
        let points = points.iter().find(|(kind, _)| *kind == kind_of(link));
        let load = LinkLoad {
            points: points.map_or_else(Vec::new, |(_, points)| points.clone()),
            ..loads.of_link(link)
        };
        let size = match program.settings.message_bytes {
            MessageBytes::Auto => Size::Planned(plan_message(&load)?),
            MessageBytes::Whole => Size::Set(None),
            MessageBytes::AtMost(bytes) => Size::Set(Some(bytes)),
        };
        Some(LinkMessages { link, load, size })
    });
    plan.messages = decided.collect();
}

/// What is known of the rows of all nodes.
struct Loads<'a> {
    program: &'a Program,
    plan: &'a Plan,
    costs: &'a QueryCosts,
    /// The rows per second into each node.
    rows: Vec<f64>,
}

impl<'a> Loads<'a> {
    fn of(program: &'a Program, plan: &'a Plan, costs: &'a QueryCosts) -> Loads<'a> {
        let subqueries = &plan.subqueries;
        let instances = |node: usize| subqueries.subqueries[subqueries.of_node[node]].instances;
        let rates = source_rates(program, costs, instances);
        Loads {
            rows: rows_into(&program.graph, &costs.of_node, &rates),
            program,
            plan,
            costs,
        }
    }

    /// The load of a link, without its calibrated cost.
    fn of_link(&self, link: usize) -> LinkLoad {
        let links = &self.plan.execution.links;
        let edge = &links[link];
        let same = links.iter().filter(|other| {
            (other.from_node, other.to_node, other.input)
                == (edge.from_node, edge.to_node, edge.input)
        });
        let from = &self.costs.of_node[edge.from_node];
        let of_edge = (self.rows[edge.from_node] * from.rows_out).max(1e-9);
        let graph = &self.program.graph;
        let mut sources = graph.upstream(edge.from_node).into_iter();
        let declares = |node: usize| {
            let source = self.program.nodes[node].as_source();
            source.is_none_or(|source| source.connector.describe().rows_per_s.is_some())
        };
        let sinks = self.program.sinks();
        let targets = sinks.filter_map(|(sink, spec)| {
            let target_ns = spec.latency_target_ns?;
            (graph.upstream(sink).contains(&edge.to_node)).then_some(target_ns as f64)
        });
        let ends = [edge.from_node, edge.to_node].map(|node| self.subquery(node));
        let per_row_ns = ends.iter().flat_map(|nodes| nodes.iter()).map(|&node| {
            let share = self.rows[node] / of_edge;
            share * self.costs.of_node[node].per_row_ns
        });
        let per_chunk_ns = ends[1].iter().map(|&node| {
            let facts = self.program.nodes[node].facts();
            facts.cost.work.per_chunk_ns
        });
        LinkLoad {
            points: Vec::new(),
            row_bytes: from.row_bytes,
            rows_per_s: sources
                .all(declares)
                .then(|| of_edge / same.count().max(1) as f64),
            per_message_ns: CODEC_NS + per_chunk_ns.sum::<f64>(),
            per_row_ns: per_row_ns.sum::<f64>() + CODEC_PER_BYTE_NS * from.row_bytes,
            target_ns: targets.reduce(f64::min),
            ceiling_bytes: BYTES_MAX,
        }
    }

    /// The nodes of a node's subquery.
    fn subquery(&self, node: usize) -> &'a [usize] {
        let subqueries = &self.plan.subqueries;
        &subqueries.subqueries[subqueries.of_node[node]].nodes
    }
}

/// The size of a link's messages as `explain` shows it: `at most 96.0 KiB (491 rows of 200 bytes): …`.
pub fn describe(messages: &LinkMessages) -> String {
    let row_bytes = messages.load.row_bytes;
    let plan = match &messages.size {
        Size::Set(None) => return "whole chunks, as 'message_bytes' says".to_string(),
        Size::Set(Some(bytes)) => {
            return format!("at most {}, as 'message_bytes' says", kib(*bytes));
        }
        Size::Planned(plan) => plan,
    };
    let why = match plan.reason {
        Reason::Bandwidth(bytes_per_s) => format!(
            "the smallest that carry {:.1} MB/s and leave 10 % of the link free",
            bytes_per_s / 1e6
        ),
        Reason::FixedTime(ns) => format!(
            "the fixed time of a message, {:.1} us, is 5 % of that for its rows",
            ns / 1e3
        ),
        Reason::Target(ns) => format!(
            "both ends work on one for a sixteenth of the target of {:.2} ms",
            ns / 1e6
        ),
        Reason::Ceiling => "the largest that travel in one piece".to_string(),
    };
    format!(
        "at most {} ({} rows of {row_bytes:.0} bytes): {why}",
        kib(plan.size_bytes),
        plan.rows(row_bytes)
    )
}

fn kib(bytes: usize) -> String {
    match bytes {
        ..10_240 => format!("{bytes} bytes"),
        _ => format!("{:.1} KiB", bytes as f64 / 1024.0),
    }
}
