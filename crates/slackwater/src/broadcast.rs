//! The broadcasts of a plan: each gets the algorithm that was set, or the cheapest one by this host's
//! calibration, and its links follow that algorithm. Between hosts links are always TCP.

use slackwater_control::broadcast::links::{broadcasts, by_origin, lay};
use slackwater_control::broadcast::model::{Aim, Choice, Costs, Wake, choose, with_segments};
use slackwater_control::broadcast::{Algorithm, Place};
use slackwater_control::cluster::DISTANCE_HOSTS;
use slackwater_control::latency::chunk::LinkPoint;
use slackwater_control::query::Exchange;
use slackwater_sql::names::INTERVAL_JOIN;
use slackwater_sql::program::Program;
use slackwater_sql::settings::LinkKind;

use crate::calibrate::{self, Calibration};
use crate::measure::Kind;
use crate::plan::{Decided, Plan, has_target};

/// Bytes assumed for a value without a fixed width: a short string.
const TEXT_BYTES: usize = 16;

/// Decides all broadcasts of a plan whose instances are placed, and creates their links.
pub fn decide(program: &Program, plan: &mut Plan) {
    for broadcast in broadcasts(&program.graph) {
        let kind = match program.settings.link {
            LinkKind::Auto | LinkKind::SharedMemory | LinkKind::Xdp => Kind::ShmLent,
            LinkKind::Tcp => Kind::TcpLink,
        };
        let costs = Costs {
            between_hosts: link_points(Kind::TcpLink),
            ..costs(kind, plan.placement.cores.len())
        };
        let aim = if has_target(program) {
            Aim::Latency
        } else {
            Aim::Throughput
        };
        let bytes = program.settings.chunk_rows * row_bytes(program, broadcast.from_node);
        let placement = plan.placement.clone();
        let (process_of, host_of) = (plan.process_of.clone(), plan.host_of.clone());
        let place_of = |instance: usize| {
            let process = process_of[placement.worker_of[instance]];
            Place {
                host: host_of.get(process).copied().unwrap_or(0),
                process,
            }
        };
        let Some((origin, links)) = by_origin(&plan.execution, broadcast).into_iter().next() else {
            continue;
        };
        // All origins have the same receivers, so the first one speaks for all.
        let receivers = links
            .iter()
            .map(|&link| place_of(plan.execution.links[link].to));
        let receivers = receivers.collect::<Vec<Place>>();
        let origin = place_of(origin);
        let choice = match program.settings.broadcast {
            Some(algorithm) => with_segments(&costs, algorithm, origin, &receivers, bytes, aim),
            None => choose(&costs, origin, &receivers, bytes, aim),
        };
        lay(&mut plan.execution, broadcast, choice.algorithm, &place_of);
        plan.broadcasts.push(Decided { broadcast, choice });
    }
}

/// The choice as `explain` shows it: `binary tree, in parts of 64 KiB`.
pub fn describe(choice: &Choice) -> String {
    let name = match choice.algorithm {
        Algorithm::Serial => "one after the other",
        Algorithm::FlatTree => "flat tree",
        Algorithm::BinaryTree => "binary tree",
        Algorithm::Ring => "ring",
    };
    match choice.segment_bytes {
        Some(bytes) => format!("{name}, in parts of {} KiB", bytes >> 10),
        None => name.to_string(),
    }
}

/// What the user should know of hints that gain nothing: the side that is not broadcast comes from one
/// instance, and keeps its order.
pub fn in_one_instance(program: &Program, plan: &Plan) -> Vec<String> {
    if !program.settings.keep_order || plan.parallelism < 2 {
        return Vec::new();
    }
    let nodes = program.graph.nodes.iter().enumerate();
    let joins = nodes.filter(|(number, node)| {
        let subquery = plan.subqueries.of_node[*number];
        node.name == INTERVAL_JOIN
            && node
                .inputs
                .iter()
                .any(|edge| edge.exchange == Exchange::Broadcast)
            && plan.subqueries.subqueries[subquery].instances == 1
    });
    let notes = joins.map(|(number, node)| {
        format!(
            "{} #{number} has one instance, as the side that is not broadcast: SET 'order' = 'none' divides \
             that side's chunks",
            node.name
        )
    });
    notes.collect()
}

/// The estimated bytes of a row, from its types.
fn row_bytes(program: &Program, node: usize) -> usize {
    let schema = program.nodes[node].schema();
    let widths = schema.fields().iter().map(|field| {
        let width = field.data_type().primitive_width();
        width.unwrap_or(TEXT_BYTES)
    });
    widths.sum::<usize>().max(1)
}

/// The latency and bandwidth of links of this kind between processes of this host: measured, else built in.
pub fn link_points(kind: Kind) -> Vec<LinkPoint> {
    costs(kind, 1).between_processes
}

/// The size of messages by which links are compared: what is planned for most of them.
const COMPARED_BYTES: usize = 64 << 10;

/// The CPU time of the busier side for a byte of a link that is encrypted, without the link
/// (`docs/internals/security.md`).
const SEAL_NS: f64 = 0.42;

/// The distance between hosts in the unit in which a node's distance to itself is 10: how much more CPU time
/// a byte costs over TCP than through shared memory, as this host has calibrated it.
pub fn distance_between_hosts(is_sealed: bool) -> u32 {
    let per_byte_ns = |kind| {
        let points = link_points(kind);
        let sizes = points.iter();
        let point = sizes.min_by_key(|point| point.size_bytes.abs_diff(COMPARED_BYTES));
        point.map(|point| 1e9 / point.bytes_per_s)
    };
    let seal_ns = if is_sealed { SEAL_NS } else { 0.0 };
    let both = per_byte_ns(Kind::ShmLent).zip(per_byte_ns(Kind::TcpLink));
    let distance = both.map(|(near_ns, far_ns)| 10.0 * (far_ns + seal_ns) / near_ns);
    match distance.filter(|distance| distance.is_finite()) {
        Some(distance) => distance.clamp(DISTANCE_MIN, DISTANCE_MAX) as u32,
        None => DISTANCE_HOSTS,
    }
}

/// The nearest and furthest that another host may seem: a disturbed calibration must not make it as near as a
/// node of the same host.
const DISTANCE_MIN: f64 = 50.0;
const DISTANCE_MAX: f64 = 5_000.0;

/// What a broadcast over links of this kind costs on this host: measured, else the built-in costs.
pub fn costs(kind: Kind, cores: usize) -> Costs {
    match calibrate::load() {
        Ok(calibration) => measured(&calibration, kind, cores),
        Err(_) => built_in(kind, cores),
    }
}

fn measured(calibration: &Calibration, kind: Kind, cores: usize) -> Costs {
    let cost_of = |kind| {
        calibration
            .links
            .iter()
            .filter(move |cost| cost.kind == kind)
    };
    let points = cost_of(kind).map(|cost| LinkPoint {
        size_bytes: cost.size_bytes,
        latency_ns: cost.latency_p50_ns,
        bytes_per_s: cost.messages_per_s * cost.size_bytes as f64,
    });
    let mut wakes = calibration.wakes.iter();
    let wake = wakes.find(|wake| wake.across_cores).map(|wake| Wake {
        ring_ns: wake.ringing_cpu_ns,
        work_ns: wake.ringing_cpu_ns + wake.woken_cpu_ns,
        until_look_ns: wake.until_look_p50_ns,
    });
    Costs {
        between_processes: points.collect(),
        wake: wake.unwrap_or(WAKE),
        ..built_in(kind, cores)
    }
}

/// A wake-up from another core, as measured in `docs/benchmarks/link.md`.
const WAKE: Wake = Wake {
    ring_ns: 12_000.0,
    work_ns: 29_700.0,
    until_look_ns: 41_700.0,
};

/// The engine's own work per message, without the link: from `slackwater bench broadcast` with messages of 64
/// bytes, whose CPU time grows with the number of processes and of receivers
/// (`docs/benchmarks/broadcast.md`).
const CODEC_NS: f64 = 500.0;
const HAND_OVER_NS: f64 = 220.0;

/// From the same page: bytes, nanoseconds one way, and messages per second.
const SHARED_MEMORY: [(usize, f64, f64); 4] = [
    (64, 170.0, 6.8e6),
    (1 << 10, 225.0, 9.1e6),
    (64 << 10, 1_587.0, 1.03e6),
    (1 << 20, 28_848.0, 58_500.0),
];
const TCP: [(usize, f64, f64); 4] = [
    (64, 6_220.0, 7.7e6),
    (1 << 10, 4_444.0, 2.5e6),
    (64 << 10, 9_415.0, 88_000.0),
    (1 << 20, 181_248.0, 7_000.0),
];

fn built_in(kind: Kind, cores: usize) -> Costs {
    let table = match kind {
        Kind::TcpLink => TCP,
        _ => SHARED_MEMORY,
    };
    let point = |(size_bytes, latency_ns, messages_per_s): (usize, f64, f64)| LinkPoint {
        size_bytes,
        latency_ns,
        bytes_per_s: messages_per_s * size_bytes as f64,
    };
    Costs {
        between_processes: table.map(point).to_vec(),
        between_hosts: TCP.map(point).to_vec(),
        codec_ns: CODEC_NS,
        hand_over_ns: HAND_OVER_NS,
        wake: WAKE,
        written_once: kind == Kind::ShmLent,
        cores,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slackwater_engine::balancer::BalancerPlan;
    use slackwater_engine::deploy::StepKind;
    use slackwater_sql::program::compile;

    use crate::catalog::BuiltIn;
    use crate::costs::Learned;
    use crate::explain::explain;
    use crate::machine::Machine;
    use crate::plan::deployment;
    use crate::planner::plan_on;

    /// A source whose rows all go to each of eight aggregations in four processes.
    fn program(set: &str) -> Program {
        let text = format!(
            "SET 'processes' = '4'; SET 'workers' = '8'; SET 'parallelism' = '8'; {set}
             CREATE TABLE v (ts_ms BIGINT, ip STRING, ts AS TO_TIMESTAMP_LTZ(ts_ms, 3),
               WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
             WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rows' = '10');
             SELECT ip, COUNT(*) AS n FROM v GROUP BY ip;"
        );
        let mut program = compile(&text, &[], &BuiltIn).expect("sound SQL").run;
        for node in &mut program.graph.nodes {
            for edge in &mut node.inputs {
                if let Exchange::Key(_) = edge.exchange {
                    edge.exchange = Exchange::Broadcast;
                }
            }
        }
        program
    }

    #[test]
    fn an_algorithm_that_was_told_is_laid_and_explained() {
        for (name, roots, text) in [
            ("serial", 8, "one after the other"),
            ("flat_tree", 5, "flat tree"),
            ("binary_tree", 4, "binary tree"),
            ("ring", 4, "ring"),
        ] {
            let program = program(&format!("SET 'broadcast' = '{name}';"));
            let plan = plan_on(&program, &Machine::this(), &Learned::default()).expect("a plan");
            let deployment = deployment(&program, &plan);
            let steps = deployment.instances.iter().flat_map(|plan| &plan.steps);
            let mut broadcasts = steps.filter_map(|step| match &step.kind {
                StepKind::Route {
                    balancer: BalancerPlan::Broadcast { .. },
                    links,
                } => Some(links.len()),
                _ => None,
            });
            // Two of the eight receivers are in the origin's process.
            assert_eq!(broadcasts.next(), Some(roots), "{name}");
            assert_eq!(deployment.relays.is_empty(), name == "serial");
            let explained = explain(&program, &plan);
            assert!(
                explained.contains(&format!("to every instance, {text}")),
                "{explained}"
            );
        }
    }

    #[test]
    fn a_hint_that_gains_nothing_is_noted() {
        let noted = |order: &str| {
            let text = format!(
                "SET 'order' = '{order}'; SET 'parallelism' = '2'; SET 'workers' = '2';
                 CREATE TABLE v (ts_ms BIGINT, ip STRING, ts AS TO_TIMESTAMP_LTZ(ts_ms, 3),
                   WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
                 WITH ('connector' = 'tcp', 'address' = '127.0.0.1:1');
                 SELECT /*+ BROADCAST(b) */ a.ip FROM v AS a JOIN v AS b
                 ON a.ts BETWEEN b.ts AND b.ts + INTERVAL '1' SECOND;"
            );
            let program = compile(&text, &[], &BuiltIn).expect("sound SQL").run;
            let plan = plan_on(&program, &Machine::this(), &Learned::default()).expect("a plan");
            let mut notes = plan.notes.iter();
            notes.any(|note| note.contains("SET 'order' = 'none' divides"))
        };
        assert!(noted("keep"));
        assert!(!noted("none"));
    }

    #[test]
    fn another_host_is_further_than_another_node_and_further_still_behind_a_seal() {
        let (clear, sealed) = (distance_between_hosts(false), distance_between_hosts(true));
        assert!(clear >= 50 && sealed > clear, "{clear}, {sealed}");
    }

    #[test]
    fn without_being_told_a_message_enters_each_process_once() {
        let program = program("SET 'link' = 'tcp';");
        let plan = plan_on(&program, &Machine::this(), &Learned::default()).expect("a plan");
        let deployment = deployment(&program, &plan);
        assert_ne!(plan.broadcasts[0].choice.algorithm, Algorithm::Serial);
        let broadcast = plan.broadcasts[0].broadcast;
        let remote = deployment.remote_links().filter(|(number, _)| {
            let link = &plan.execution.links[*number];
            (link.to_node, link.input) == (broadcast.to_node, broadcast.input)
        });
        assert_eq!(remote.count(), 3);
    }
}
