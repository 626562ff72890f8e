//! Copies of a query on NUMA nodes or hosts (`SET 'copies'`): how many there are, and what they do.
//! The rules are in `control/src/copies.rs`.

use std::collections::BTreeSet;

use slackwater_control::copies::{self, Copies};
use slackwater_control::demand::{self, Demand};
use slackwater_control::expand::ExecutionGraph;
use slackwater_control::place::{Places, place_of_workers};
use slackwater_sql::SqlError;
use slackwater_sql::program::Program;
use slackwater_sql::settings::TwoPhase;

use crate::machine::Machine;
use crate::report::CopiesReport;

/// The copies of a planned query.
#[derive(Debug, Clone)]
pub struct Copied {
    /// What has a copy each.
    pub places: Places,
    /// What is copied.
    pub copies: Copies,
    /// The bytes for each row of the sources that would go from one place to another without copies, as the
    /// planner would then place the query.
    pub bytes_without: Option<f64>,
}

impl Copied {
    /// The report of copies; `of_node` is the subquery of each node.
    pub fn report(&self, of_node: &[usize], bytes_between: Option<f64>) -> CopiesReport {
        let Copied {
            places,
            copies,
            bytes_without,
        } = self;
        let of_node = of_node.iter().enumerate();
        let copied = of_node.filter(|(_, part)| copies.copied[**part]);
        let first = copies.first_phase.iter().enumerate();
        let first = first.filter(|(_, is_first)| **is_first);
        CopiesReport {
            copies: copies.number,
            places: name(*places),
            copied: copied.map(|(node, _)| node).collect(),
            first_phases: first.map(|(node, _)| node).collect(),
            bytes_between,
            bytes_between_without: *bytes_without,
        }
    }
}

/// The name of the places in the setting.
fn name(places: Places) -> &'static str {
    match places {
        Places::Nodes => "nodes",
        Places::Hosts => "hosts",
    }
}

/// The number of places on a machine, and of cores in the smallest of them.
fn places_of(machine: &Machine, places: Places) -> (usize, usize) {
    let topology = &machine.topology;
    let hosts = machine.hosts.as_ref().map(|hosts| hosts.host_of_nodes());
    let cores = topology.allowed().into_iter().map(Some);
    let cores = cores.collect::<Vec<Option<usize>>>();
    let hosts = hosts.unwrap_or_else(|| vec![0; topology.nodes.len().max(1)]);
    let place_of = place_of_workers(topology, &hosts, places, &cores);
    let found = place_of.iter().flatten().collect::<BTreeSet<_>>();
    let sizes = found.iter().map(|place| {
        let own = place_of.iter().flatten().filter(|other| *other == *place);
        own.count()
    });
    (found.len(), sizes.min().unwrap_or(0))
}

/// How many copies a machine has room for, and how many cores each has; or why there is one query.
///
/// # Errors
///
/// If the number of workers is set and can't be divided.
pub fn wanted(
    machine: &Machine,
    places: Places,
    workers: Option<usize>,
    cores_max: usize,
) -> Result<Result<(usize, usize), String>, SqlError> {
    let setting = name(places);
    let (number, cores) = places_of(machine, places);
    if number < 2 {
        let one = match places {
            Places::Nodes => "there is one NUMA node",
            Places::Hosts => "the query runs on one host",
        };
        return Ok(Err(format!("'copies' = '{setting}' has no effect: {one}")));
    }
    if let Some(workers) = workers
        && workers % number != 0
    {
        return Err(SqlError::new(format!(
            "'copies' = '{setting}': {workers} workers can't be divided among {number} {setting}"
        ))
        .hint(format!(
            "use a multiple, such as --workers {}",
            copies::instances(workers, number)
        )));
    }
    if cores_max < number {
        return Ok(Err(format!(
            "'copies' = '{setting}' has no effect: there are {number} {setting}, but only {cores_max} \
             core(s) may be used"
        )));
    }
    Ok(Ok((number, cores)))
}

/// By node, whether copies can do the first phase of its aggregation: they may hold its rows back, and its
/// result does not depend on which rows are aggregated first.
pub fn first_phases(program: &Program) -> Vec<bool> {
    let nodes = program.nodes.iter();
    let may = nodes.map(|node| {
        let combines = node.facts().combines;
        combines.is_some_and(|combines| {
            let may = match program.settings.two_phase {
                TwoPhase::On => true,
                TwoPhase::Auto => combines.is_exact,
                TwoPhase::Off => false,
            };
            may && combines.spec.can_hold()
        })
    });
    may.collect()
}

/// The bytes for each row of the sources that go from one place to another; `place_of` is that of each
/// worker.
pub fn bytes_between(
    execution: &ExecutionGraph,
    demand: &Demand,
    worker_of: &[usize],
    place_of: &[Option<usize>],
    source_rows_per_s: &[f64],
) -> Option<f64> {
    let places = worker_of.iter().map(|&worker| place_of[worker]);
    let places = places.collect::<Option<Vec<usize>>>()?;
    let rows = source_rows_per_s.iter().sum::<f64>();
    // Without the sign of a negative zero, which the sum of nothing has.
    (rows > 0.0).then(|| demand::bytes_between(execution, demand, &places) / rows + 0.0)
}
