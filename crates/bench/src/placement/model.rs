//! A model of a query's throughput on a machine of many NUMA nodes.
//!
//! A row costs CPU time that does not depend on the location of anything, and cache lines that do: those
//! of rows that are sent over a link, read where they were written, and those of state.
//!
//! ```text
//! CPU time per row    = work × scale + lines × local latency × distance / 10
//! aware               every worker on its core; the busiest one decides:  1 / max over workers
//! unaware             the kernel moves threads, so no worker is busier than others; everything is
//!                     as far away as two nodes are on average:            workers / sum
//! ```
//!
//! The scale is set so that the unaware fixed window on one node gives UPM-CEP's 570 k events/s
//! (`papers.md` P5). Work per row is what the planner assumes before anything is measured, and placement
//! is the planner's: the model adds only cache lines and latency.

use serde::Serialize;
use slackwater_control::demand::{demand, rows_into, rows_left};
use slackwater_control::place::Places;
use slackwater_control::query::NodeKind;
use slackwater_control::topology::{BULLION_S16, DISTANCE_LOCAL, Topology};
use slackwater_sql::program::{Program, compile};

use super::terms::{LINE_BYTES, Terms};
use crate::hibench::workload::Workload;
use slackwater::catalog::BuiltIn;
use slackwater::costs::{Learned, query_costs};
use slackwater::machine::Machine;
use slackwater::plan::Plan;
use slackwater::planner::plan_on;

/// The parameters of the prediction.
#[derive(Debug, Clone, Serialize)]
pub struct Parameters {
    /// The machine's name.
    pub machine: &'static str,
    /// Workers on each node, one per core (P5).
    pub workers_per_node: usize,
    /// Throughput of the unaware fixed window on one node (P5).
    pub unaware_one_node_per_s: f64,
    /// Time to read a cache line of the same node (assumed).
    pub line_local_ns: f64,
    /// Cache lines of a row that is sent over a link (assumed: an object for each of the 11 columns of
    /// HiBench's record, and one for the row).
    pub lines_per_linked_row: f64,
    /// Cache lines of state that a row touches (assumed: bucket, group, accumulator).
    pub lines_of_state: f64,
    /// What a node can send and receive (assumed).
    pub node_bytes_per_s: f64,
    /// CPU time of a row for each nanosecond that the planner assumes; set by the calibration.
    pub scale: f64,
}

/// Events per second of P5's unaware fixed window on one node.
pub const UNAWARE_ONE_NODE_PER_S: f64 = 570e3;

const ASSUMED: Parameters = Parameters {
    machine: BULLION_S16,
    workers_per_node: 18,
    unaware_one_node_per_s: UNAWARE_ONE_NODE_PER_S,
    line_local_ns: 100.0,
    lines_per_linked_row: 12.0,
    lines_of_state: 3.0,
    node_bytes_per_s: 12.8e9,
    scale: 1.0,
};

/// The prediction for a workload on a number of nodes, in events per second.
#[derive(Debug, Clone, Serialize)]
pub struct Prediction {
    /// HiBench's name.
    pub workload: &'static str,
    /// Number of nodes whose cores have a worker each.
    pub nodes: usize,
    /// Throughput when placed by the planner.
    pub aware_per_s: f64,
    /// Throughput when the kernel may use the whole machine.
    pub unaware_per_s: f64,
    /// Throughput when the kernel is restricted to the same nodes.
    pub unaware_kept_per_s: f64,
    /// Average distance of a byte between instances when placed by the planner, 0 within a core.
    pub aware_distance: Option<f64>,
    /// The same distance when placed by the kernel.
    pub unaware_distance: f64,
    /// Cache lines over links per row with which the model would give the gain that P5 measured; `null`
    /// if P5 has none, or no number of lines gives it.
    pub lines_for_published_gain: Option<f64>,
}

impl Prediction {
    /// The gain of placement over the kernel on the whole machine.
    pub fn gain(&self) -> f64 {
        self.aware_per_s / self.unaware_per_s - 1.0
    }

    /// The gain of placement over the kernel on the same nodes.
    pub fn gain_over_kept(&self) -> f64 {
        self.aware_per_s / self.unaware_kept_per_s - 1.0
    }
}

/// P5's measurements of the fixed window: events per second, unaware and aware.
pub fn published(workload: &str, nodes: usize) -> Option<(f64, f64)> {
    match (workload, nodes) {
        ("fixwindow", 1) => Some((570e3, 670e3)),
        ("fixwindow", 4) => Some((2.63e6, 3.15e6)),
        ("fixwindow", 8) => Some((4.9e6, 6.17e6)),
        _ => None,
    }
}

/// Predicts all workloads on these numbers of nodes.
pub fn predict(nodes: &[usize]) -> Result<(Parameters, Vec<Prediction>), String> {
    let parameters = calibrated(ASSUMED, &Options::default())?;
    let mut predictions = Vec::new();
    for workload in Workload::ALL {
        for &nodes in nodes {
            let case = Case::new(workload, nodes, &Options::default())?;
            let mut prediction = case.predict(&parameters);
            if let Some((unaware, aware)) = published(workload.name(), nodes) {
                let gain = aware / unaware - 1.0;
                prediction.lines_for_published_gain = case.lines_for(gain, &Options::default())?;
            }
            predictions.push(prediction);
        }
    }
    Ok((parameters, predictions))
}

/// The parameters that give P5's fixed window on one node, unaware and aware: the lines over links are fitted
/// to the gain.
pub fn fitted(options: &Options) -> Result<Parameters, String> {
    let case = Case::new(Workload::FixWindow, 1, options)?;
    let (unaware, aware) = published(Workload::FixWindow.name(), 1).expect("P5 has measured it");
    let lines = case.lines_for(aware / unaware - 1.0, options)?;
    let lines = lines.ok_or("no number of cache lines gives P5's gain on one node")?;
    let parameters = Parameters {
        lines_per_linked_row: lines,
        ..ASSUMED
    };
    calibrated(parameters, options)
}

/// The parameters with the scale that gives P5's unaware fixed window on one node.
fn calibrated(parameters: Parameters, options: &Options) -> Result<Parameters, String> {
    let case = Case::new(Workload::FixWindow, 1, options)?;
    let (work_ns, memory_ns) = case.unaware_ns(&parameters, &case.topology);
    let per_row_ns = case.workers as f64 * 1e9 / parameters.unaware_one_node_per_s;
    let scale = (per_row_ns - memory_ns) / work_ns * parameters.scale;
    if scale <= 0.0 {
        return Err(format!(
            "a row takes {per_row_ns:.0} ns in total, but {memory_ns:.0} ns for memory alone"
        ));
    }
    Ok(Parameters {
        scale,
        ..parameters
    })
}

/// How a case differs from the query as the planner would run it.
#[derive(Default)]
pub struct Options {
    /// Whether each node has a copy of the query.
    pub copies: bool,
    /// The number of results per row of an aggregation, instead of the assumed one.
    pub results_per_row: Option<f64>,
}

/// A workload on some nodes of the machine, placed by the planner.
pub struct Case {
    workload: Workload,
    nodes: usize,
    workers: usize,
    /// The whole machine.
    topology: Topology,
    plan: Plan,
    /// Rows of state that each instance accesses for each row that all sources read together.
    state_rows: Vec<f64>,
    /// CPU time of each instance for such a row in nanoseconds, as the planner assumes.
    work_ns: Vec<f64>,
    /// Rows on each link for such a row.
    linked: Vec<f64>,
}

impl Case {
    /// Plans a workload for so many nodes.
    pub fn new(workload: Workload, nodes: usize, options: &Options) -> Result<Case, String> {
        let topology = Topology::bullion_s16();
        let workers = nodes * ASSUMED.workers_per_node;
        let mut allowed = topology.clone();
        allowed.allow_only(&(0..workers).collect::<Vec<usize>>());
        let mut program = program(workload)?;
        // As many generators as workers: one file would be one partition.
        for node in &mut program.graph.nodes {
            if node.kind == NodeKind::Source {
                node.instances_max = usize::MAX;
            }
        }
        let settings = &mut program.settings;
        settings.workers = Some(workers);
        settings.copies = (options.copies && nodes > 1).then_some(Places::Nodes);
        for output in &mut program.outputs {
            output.parallelism = Some(slackwater_sql::settings::Parallelism::Fixed(workers));
        }
        let machine = Machine {
            topology: allowed,
            quota_cores: None,
            binds_memory: true,
            notes: Vec::new(),
            hosts: None,
        };
        let learned = Learned::default();
        let plan = plan_on(&program, &machine, &learned).map_err(|error| error.to_string())?;
        let mut costs = query_costs(&program, &learned).of_node;
        let (graph, split, execution) = (&program.graph, &plan.subqueries, &plan.execution);
        for (cost, node) in costs.iter_mut().zip(&graph.nodes) {
            if let (NodeKind::Stateful, Some(results)) = (node.kind, options.results_per_row) {
                cost.rows_out = results;
            }
        }
        let sources = program.graph.nodes.iter();
        let sources = sources.filter(|node| node.kind == NodeKind::Source).count();
        let rates = vec![1.0 / sources as f64; program.graph.nodes.len()];
        let copies = plan.copies.as_ref().map(|copied| &copied.copies);
        let demand = demand(graph, split, execution, copies, &costs, &rates);
        let links = execution.links.iter().zip(&demand.bytes_per_s);
        let linked = links.map(|(link, bytes)| bytes / costs[link.from_node].row_bytes.max(1e-9));
        let rows = rows_into(graph, &costs, &rates);
        let mut state_rows = vec![0.0; execution.instances.len()];
        for (node, found) in graph.nodes.iter().enumerate() {
            if found.kind != NodeKind::Stateful {
                continue;
            }
            let mut access = |part: usize, rows: f64| {
                for (own, instance) in state_rows.iter_mut().zip(&execution.instances) {
                    if instance.subquery == part {
                        *own += rows / instance.instances as f64;
                    }
                }
            };
            let is_first = copies.is_some_and(|copies| copies.first_phase[node]);
            let left = match is_first {
                true => rows_left(graph, split, &costs, node),
                false => 1.0,
            };
            access(split.of_node[node], rows[node] * left);
            if is_first {
                access(split.of_node[found.inputs[0].from], rows[node]);
            }
        }
        Ok(Case {
            linked: linked.collect(),
            state_rows,
            work_ns: demand.cores.iter().map(|cores| cores * 1e9).collect(),
            workload,
            nodes,
            workers,
            topology,
            plan,
        })
    }

    fn predict(&self, parameters: &Parameters) -> Prediction {
        let mut kept = self.topology.clone();
        kept.nodes.truncate(self.nodes);
        Prediction {
            workload: self.workload.name(),
            nodes: self.nodes,
            aware_per_s: self.aware_per_s(parameters),
            unaware_per_s: self.unaware_per_s(parameters, &self.topology),
            unaware_kept_per_s: self.unaware_per_s(parameters, &kept),
            aware_distance: self.plan.placement.distance_mean,
            unaware_distance: distance_mean(&self.topology),
            lines_for_published_gain: None,
        }
    }

    /// Throughput as placed: limited by the busiest worker, or by a node's outgoing bandwidth.
    fn aware_per_s(&self, parameters: &Parameters) -> f64 {
        let placement = &self.plan.placement;
        let node_of = |instance: usize| {
            let core = placement.cores[placement.worker_of[instance]];
            self.topology.node_of(core.unwrap_or(0))
        };
        let mut busy_ns = vec![0.0; placement.cores.len()];
        for number in 0..self.plan.execution.instances.len() {
            let state = self.state_rows[number] * parameters.lines_of_state;
            busy_ns[placement.worker_of[number]] +=
                self.work_ns[number] * parameters.scale + state * parameters.line_local_ns;
        }
        let mut sent = vec![0.0; self.topology.nodes.len()];
        for (link, rows) in self.plan.execution.links.iter().zip(&self.linked) {
            let (from, to) = (placement.worker_of[link.from], placement.worker_of[link.to]);
            if from == to {
                continue;
            }
            let (here, there) = (node_of(link.from), node_of(link.to));
            let lines = rows * parameters.lines_per_linked_row;
            busy_ns[to] += lines * latency_ns(parameters, self.topology.distance(here, there));
            if here != there {
                sent[here] += lines * LINE_BYTES;
            }
        }
        let busiest_ns = busy_ns.into_iter().fold(0.0, f64::max);
        let fullest = sent.into_iter().fold(0.0, f64::max);
        bounded(1e9 / busiest_ns, parameters, fullest)
    }

    /// Throughput if the kernel moves threads over the nodes of a machine.
    fn unaware_per_s(&self, parameters: &Parameters, machine: &Topology) -> f64 {
        let (work_ns, memory_ns) = self.unaware_ns(parameters, machine);
        let nodes = machine.nodes.len() as f64;
        // Bytes per row that each node sends to others, if senders and receivers are on random nodes.
        let linked = self.linked.iter().sum::<f64>() * parameters.lines_per_linked_row;
        let sent = linked * LINE_BYTES * (1.0 - 1.0 / nodes) / nodes;
        let by_cpu = self.workers as f64 * 1e9 / (work_ns + memory_ns);
        bounded(by_cpu, parameters, sent)
    }

    /// CPU time of a row for work and for memory, over all workers, if everything is as far away as two
    /// nodes of a machine are on average.
    fn unaware_ns(&self, parameters: &Parameters, machine: &Topology) -> (f64, f64) {
        let work_ns = self.work_ns.iter().sum::<f64>() * parameters.scale;
        let lines = self.state_rows.iter().sum::<f64>() * parameters.lines_of_state
            + self.linked.iter().sum::<f64>() * parameters.lines_per_linked_row;
        let memory_ns = lines * latency_ns(parameters, distance_mean(machine));
        (work_ns, memory_ns)
    }

    /// What a row costs, over all workers, and how far its lines travel as placed.
    pub fn terms(&self, parameters: &Parameters) -> Terms {
        let placement = &self.plan.placement;
        let place = |instance: usize| {
            let worker = placement.worker_of[instance];
            let core = placement.cores[worker].unwrap_or(0);
            (worker, self.topology.node_of(core))
        };
        let mut terms = Terms {
            work_ns: self.work_ns.iter().sum::<f64>() * parameters.scale,
            state_lines: self.state_rows.iter().sum::<f64>() * parameters.lines_of_state,
            link_lines: self.linked.iter().sum::<f64>() * parameters.lines_per_linked_row,
            distance: 0.0,
            crossing: 0.0,
            unaware_distance: distance_mean(&self.topology),
            workers: self.workers,
            busiest: 1.0,
        };
        let rows = self.linked.iter().sum::<f64>();
        for (link, linked) in self.plan.execution.links.iter().zip(&self.linked) {
            let ((from, here), (to, there)) = (place(link.from), place(link.to));
            if from != to {
                terms.distance += linked / rows * self.topology.distance(here, there);
            }
            if here != there {
                terms.crossing += linked / rows;
            }
        }
        let even = self.workers as f64 * 1e9 / terms.aware_ns(parameters.line_local_ns);
        terms.busiest = even / self.aware_per_s(parameters);
        terms
    }

    /// Cache lines over links with which the model gives a gain, found by bisection; everything else as
    /// assumed, with a new calibration.
    fn lines_for(&self, gain: f64, options: &Options) -> Result<Option<f64>, String> {
        let gain_with = |lines_per_linked_row: f64| {
            let parameters = Parameters {
                lines_per_linked_row,
                ..ASSUMED
            };
            let parameters = calibrated(parameters, options);
            Some(self.predict(&parameters.ok()?).gain())
        };
        let (mut low, mut high) = (0.0, LINES_MAX);
        while gain_with(high).is_none() {
            high /= 2.0;
        }
        if gain_with(low).is_none_or(|least| least > gain)
            || gain_with(high).is_none_or(|most| most < gain)
        {
            return Ok(None);
        }
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            match gain_with(middle) {
                Some(found) if found < gain => low = middle,
                _ => high = middle,
            }
        }
        Ok(Some(high))
    }
}

/// The largest number of lines that is tried; a row does not have more.
const LINES_MAX: f64 = 256.0;

/// Steps of the bisection: gives a hundredth of a line.
const HALVINGS: usize = 16;

/// A throughput, limited by a node's outgoing bandwidth: it sends this many bytes for each row.
fn bounded(per_s: f64, parameters: &Parameters, sent_bytes: f64) -> f64 {
    match sent_bytes > 0.0 {
        true => per_s.min(parameters.node_bytes_per_s / sent_bytes),
        false => per_s,
    }
}

fn latency_ns(parameters: &Parameters, distance: f64) -> f64 {
    parameters.line_local_ns * distance / f64::from(DISTANCE_LOCAL)
}

/// The mean distance between two nodes chosen at random, which may be the same.
fn distance_mean(machine: &Topology) -> f64 {
    let nodes = machine.nodes.len();
    let pairs = (0..nodes).flat_map(|one| (0..nodes).map(move |other| (one, other)));
    let sum = pairs
        .map(|(one, other)| machine.distance(one, other))
        .sum::<f64>();
    sum / (nodes * nodes) as f64
}

fn program(workload: Workload) -> Result<Program, String> {
    // Compiling checks that the file exists, and does not read it: any file will do.
    let file = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let text = workload.sql(&file);
    let compiled = compile(&text, &[], &BuiltIn);
    Ok(compiled.map_err(|error| error.to_string())?.run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calibration_gives_the_published_rate_on_one_node() {
        let (parameters, predictions) = predict(&[1]).unwrap();
        assert!(parameters.scale > 1.0, "{parameters:?}");
        let window = predictions.iter().find(|p| p.workload == "fixwindow");
        let window = window.unwrap();
        assert!(
            (window.unaware_per_s / 570e3 - 1.0).abs() < 1e-9,
            "{window:?}"
        );
        // On a single node everything is near, and placement only moves neighbors together.
        assert!(window.gain_over_kept() < 0.05, "{window:?}");
        assert!(window.gain() > 0.0, "{window:?}");
        let lines = window.lines_for_published_gain.unwrap();
        assert!(lines > 0.0 && lines < LINES_MAX, "{lines}");
    }

    #[test]
    fn without_links_and_state_nothing_is_gained() {
        let (_, predictions) = predict(&[2]).unwrap();
        let identity = predictions.iter().find(|p| p.workload == "identity");
        assert!(identity.unwrap().gain().abs() < 1e-9, "{identity:?}");
    }

    #[test]
    fn two_nodes_at_random_are_mostly_far_apart() {
        let mean = distance_mean(&Topology::bullion_s16());
        // One in sixteen nodes is the same, one is the partner, fourteen are far.
        assert!(
            (mean - (10.0 + 15.0 + 14.0 * 40.0) / 16.0).abs() < 1e-9,
            "{mean}"
        );
    }
}
