//! From a program and a machine to a plan: how many instances, workers and processes, and where.

use std::collections::BTreeSet;

use slackwater_control::cluster::Cluster;
use slackwater_control::copies::instances;
use slackwater_control::place::{Places, Strategy};
use slackwater_engine::runtime::WaitMode;
use slackwater_sql::SqlError;
use slackwater_sql::program::Program;
use slackwater_sql::settings::{Balancer, Parallelism, Processes};

use crate::bound::Bound;
use crate::broadcast;
use crate::copies;
use crate::costs::{Learned, query_costs};
use crate::machine::Machine;
use crate::messages;
use crate::parallel::{Chosen, Parsing, Why, choose};
use crate::plan::{Plan, PlanRequest, has_target, plan};

/// Plans a program for a machine, with the costs that earlier runs have measured. The same program, machine
/// and costs give the same plan, which worker processes rely on.
///
/// # Errors
///
/// If there are more processes than workers, or if a process for each node is wanted and threads can't be
/// bound to nodes.
pub fn plan_on(program: &Program, machine: &Machine, learned: &Learned) -> Result<Plan, SqlError> {
    plan_bound(program, machine, &Bound::none(program), learned)
}

/// Like [`plan_on`], with what is bound to hosts.
///
/// # Errors
///
/// As there.
pub fn plan_bound(
    program: &Program,
    machine: &Machine,
    bound: &Bound,
    learned: &Learned,
) -> Result<Plan, SqlError> {
    let settings = &program.settings;
    let cores = machine.topology.allowed().len();
    let cores_max = machine.cores_max();
    let costs = query_costs(program, learned);
    let mut chosen = choose(program, &costs, cores_max);
    for (node, source) in program.sources() {
        // Each host that has files of its own reads them.
        let spread = source.connector.describe().spread;
        let (least, most) = spread.bounds();
        if !spread.is_empty() {
            chosen.of_node[node] = chosen.of_node[node].clamp(least, most);
        }
    }
    let copies = Copying::new(program, machine, cores_max)?;
    copies.divide(&mut chosen);
    let processes = processes(machine, settings.processes);
    // With a target, workers are created to distribute instances over; an idle one costs nothing.
    let elastic = has_target(program)
        && processes == Processes::Count(1)
        && machine.hosts.is_none()
        && copies.wanted.is_none();
    let wanted = if elastic { cores_max } else { chosen.most };
    // On each host there is at least one.
    let hosts = machine.hosts.as_ref().map_or(1, hosts_used);
    let processes_min = match processes {
        Processes::Count(processes) => processes * hosts,
        Processes::Nodes => hosts,
    };
    let workers = settings
        .workers
        .unwrap_or(copies.workers(wanted.min(cores_max), processes_min));
    check(processes, processes_min, workers, cores, settings.placement)?;
    let parsers = chosen.parsers.iter().map(|&wanted| match settings.parsers {
        Some(threads) => Parsing {
            threads,
            why: Why::Set,
        },
        None => Parsing {
            threads: wanted.threads.min(settings.workers.unwrap_or(cores_max)),
            ..wanted
        },
    });
    let parsers = parsers.collect::<Vec<Parsing>>();
    let planned = |copies: Option<(Places, usize)>| {
        plan(&PlanRequest {
            program,
            parallelism: &chosen.of_node,
            parsers: &parsers,
            most: chosen.most,
            costs: &costs,
            workers,
            processes,
            elastic,
            copies,
            places: settings.copies,
            strategy: settings.placement,
            machine,
            bound,
        })
    };
    let mut plan = planned(copies.wanted);
    if let Some(copied) = &mut plan.copies {
        copied.bytes_without = planned(None).bytes_between;
    }
    plan.notes.extend(copies.notes(&plan));
    broadcast::decide(program, &mut plan);
    messages::decide(program, &mut plan, &costs);
    plan.notes.extend(machine.notes.iter().cloned());
    plan.notes.extend(chosen.notes);
    let subqueries = plan.subqueries.subqueries.iter();
    let most = subqueries.map(|part| part.instances).max().unwrap_or(1);
    if workers > cores {
        plan.notes.push(format!(
            "{workers} workers share {cores} cores: threads are not pinned, and sleep when they find \
             nothing to do"
        ));
    } else if most > workers {
        plan.notes.push(format!(
            "{most} instances of a subquery share {workers} worker{}",
            if workers == 1 { "" } else { "s" }
        ));
    }
    let in_one = broadcast::in_one_instance(program, &plan);
    if in_one.is_empty() && most < chosen.most && most < workers.max(2) {
        let s = if most == 1 { "" } else { "s" };
        let hint = match settings.balancer {
            Balancer::Auto if !settings.keep_order => {
                ", unless SET 'balancer' = 'demand' divides what sources read"
            }
            _ => "",
        };
        plan.notes.push(format!(
            "parallelism {} has no effect: no subquery can be run by more than {most} instance{s}{hint}",
            chosen.most
        ));
    }
    plan.notes.extend(in_one);
    plan.wait = settings.wait_mode();
    if workers > cores && spins(plan.wait) {
        plan.notes.push(format!(
            "'wait' = '{}' would keep other workers from the cores: workers wait to be woken instead",
            plan.wait
        ));
        plan.wait = WaitMode::Interrupt;
    }
    Ok(plan)
}

/// Copies of a query, as far as the machine decides it.
struct Copying {
    wanted: Option<(Places, usize)>,
    /// The cores of the smallest place.
    cores: usize,
    note: Option<String>,
}

impl Copying {
    fn new(program: &Program, machine: &Machine, cores_max: usize) -> Result<Copying, SqlError> {
        let settings = &program.settings;
        let none = |note| Copying {
            wanted: None,
            cores: 0,
            note,
        };
        let Some(places) = settings.copies else {
            return Ok(none(None));
        };
        let wanted = copies::wanted(machine, places, settings.workers, cores_max)?;
        Ok(match wanted {
            Err(why) => none(Some(why)),
            Ok((number, cores)) => Copying {
                wanted: Some((places, number)),
                cores,
                note: None,
            },
        })
    }

    /// Gives every copy as many instances.
    fn divide(&self, chosen: &mut Chosen) {
        if let Some((_, number)) = self.wanted {
            for wanted in chosen.of_node.iter_mut().chain([&mut chosen.most]) {
                *wanted = instances(*wanted, number);
            }
        }
    }

    /// As many workers in each place, if there are cores for them; at least `least` in all.
    fn workers(&self, wanted: usize, least: usize) -> usize {
        match self.wanted {
            Some((_, number)) => {
                let of_place = (wanted / number).max(least.div_ceil(number));
                of_place.clamp(1, self.cores) * number
            }
            None => wanted.max(least),
        }
    }

    fn notes(&self, plan: &Plan) -> Option<String> {
        let unused = "'copies' has no effect: no source has more than one partition";
        match self.wanted {
            None => self.note.clone(),
            Some(_) if plan.copies.is_none() => Some(unused.to_string()),
            Some(_) if plan.placement.strategy == Strategy::Os => {
                Some("threads are not pinned: the kernel decides where each copy runs".to_string())
            }
            Some(_) => None,
        }
    }
}

/// The number of hosts on which a query may use cores.
fn hosts_used(cluster: &Cluster) -> usize {
    let cores = cluster.topology.allowed().into_iter();
    let hosts = cores.map(|core| cluster.core(core).0);
    hosts.collect::<BTreeSet<usize>>().len()
}

/// Whether the query uses costs of earlier runs and saves new ones.
pub fn learns(program: &Program) -> bool {
    let mut outputs = program.outputs.iter();
    outputs.any(|output| !matches!(output.parallelism, Some(Parallelism::Fixed(_))))
}

/// Whether a worker that waits like this occupies its core.
fn spins(wait: WaitMode) -> bool {
    matches!(wait, WaitMode::Poll | WaitMode::SpinThenPark { .. })
}

/// The planned processes: on a machine with one node, a process per node is one process.
fn processes(machine: &Machine, wanted: Processes) -> Processes {
    let topology = &machine.topology;
    let allowed = topology.allowed().into_iter();
    let mut nodes = allowed.map(|core| topology.node_of(core));
    let first = nodes.next();
    match wanted {
        Processes::Nodes if nodes.all(|node| Some(node) == first) => Processes::Count(1),
        wanted => wanted,
    }
}

fn check(
    processes: Processes,
    processes_min: usize,
    workers: usize,
    cores: usize,
    strategy: Option<Strategy>,
) -> Result<(), SqlError> {
    if processes_min > workers {
        return Err(SqlError::new(format!(
            "{processes_min} processes need more than {workers} worker threads"
        ))
        .hint(format!(
            "each process runs at least one worker: --workers {processes_min}"
        )));
    }
    if processes != Processes::Nodes {
        return Ok(());
    }
    if strategy == Some(Strategy::Os) {
        let error = "'processes' = 'nodes' needs workers that are bound to nodes";
        return Err(SqlError::new(error).hint("'placement' = 'os' binds none: use 'numa'"));
    }
    if workers > cores {
        return Err(SqlError::new(format!(
            "'processes' = 'nodes': {workers} workers on {cores} cores can't be bound to nodes"
        ))
        .hint(format!(
            "use --workers {cores}, or give --processes a number"
        )));
    }
    Ok(())
}
