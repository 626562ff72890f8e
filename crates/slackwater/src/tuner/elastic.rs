//! Decides which worker each instance runs on when the load changes. Only within one process, since an
//! instance moves with its state and its ends of links.

use std::collections::{BTreeSet, HashMap};

use slackwater_control::latency::elastic::{Resident, moves};
use slackwater_engine::deploy::Deployment;

use crate::plan::Plan;
use crate::probe::Seen;

/// Instances gather on fewer workers only after the load was low for this long, because distributing them
/// again delays rows.
const GATHER_AFTER_NS: u64 = 3_000_000_000;

/// The weight of new measurements in the busy share of an instance, per second.
const WEIGHT_PER_S: f64 = 2.0;

pub struct Elastic {
    residents: Vec<Resident>,
    /// The moving instances and their new workers.
    moving: HashMap<usize, usize>,
    /// How long the load has been low enough to gather.
    low_ns: u64,
    moves: u64,
    used_max: usize,
}

impl Elastic {
    pub fn new(deployment: &Deployment, plan: &Plan) -> Elastic {
        let residents = deployment.instances.iter().map(|instance| Resident {
            busy: 0.0,
            worker: instance.worker,
            movable: instance.movable && plan.elastic,
        });
        let residents = residents.collect::<Vec<Resident>>();
        let mut elastic = Elastic {
            residents,
            moving: HashMap::new(),
            low_ns: 0,
            moves: 0,
            used_max: 0,
        };
        elastic.count_used();
        elastic
    }

    /// The workers that run something.
    pub fn workers_used(&self) -> BTreeSet<usize> {
        let workers = self.residents.iter().map(|resident| resident.worker);
        workers.collect()
    }

    fn used(&self) -> usize {
        self.workers_used().len()
    }

    fn count_used(&mut self) {
        self.used_max = self.used_max.max(self.used());
    }

    /// Decides by the activity which instance moves to which worker. `cores` is the CPU time of each worker
    /// per second. It is divided among the worker's instances by their busy times, which also include time in
    /// which another program has the core, and miss what a source does before it has rows.
    pub fn look(
        &mut self,
        seen: &[Seen],
        interval_ns: u64,
        cores: &[f64],
        may_move: bool,
    ) -> Vec<(usize, usize)> {
        let seconds = interval_ns as f64 / 1e9;
        let weight = (WEIGHT_PER_S * seconds).min(1.0);
        let mut spent = vec![0.0; self.residents.len()];
        let mut of_worker = vec![0.0; cores.len()];
        for instance in seen.iter().flat_map(|seen| &seen.instances) {
            let Some(resident) = self.residents.get(instance.instance) else {
                continue;
            };
            of_worker[resident.worker] += instance.busy_ns as f64;
            spent[instance.instance] = instance.busy_ns as f64;
        }
        for (resident, spent) in self.residents.iter_mut().zip(spent) {
            let share = spent / of_worker[resident.worker].max(1.0);
            let busy = (share * cores[resident.worker]).min(1.0);
            resident.busy += weight * (busy - resident.busy);
        }
        if !self.moving.is_empty() || !may_move {
            return Vec::new();
        }
        let moves = moves(&self.residents, cores.len());
        if moves.is_empty() {
            self.low_ns = 0;
            return Vec::new();
        }
        let mut after = self.residents.clone();
        for change in &moves {
            after[change.instance].worker = change.to;
        }
        let used = |residents: &[Resident]| {
            let workers = residents.iter().map(|resident| resident.worker);
            workers.collect::<BTreeSet<usize>>().len()
        };
        if used(&after) < self.used() {
            self.low_ns += interval_ns;
            if self.low_ns < GATHER_AFTER_NS {
                return Vec::new();
            }
        }
        self.low_ns = 0;
        let relocated = moves.into_iter().map(|change| {
            self.moving.insert(change.instance, change.to);
            (change.instance, change.to)
        });
        relocated.collect()
    }

    /// The input rows of each worker: from its sources or, without any, over links.
    pub fn rows_taken(&self, seen: &[Seen], workers: usize) -> Vec<u64> {
        let (mut read, mut linked) = (vec![0; workers], vec![0; workers]);
        for instance in seen.iter().flat_map(|seen| &seen.instances) {
            let taken = if instance.reads {
                &mut read
            } else {
                &mut linked
            };
            if let Some(resident) = self.residents.get(instance.instance) {
                taken[resident.worker] += instance.rows_taken;
            }
        }
        let both = read.into_iter().zip(linked);
        both.map(|(read, linked)| if read > 0 { read } else { linked })
            .collect()
    }

    /// An instance has arrived on its new worker.
    pub fn arrived(&mut self, number: usize) {
        if let Some(worker) = self.moving.remove(&number) {
            self.residents[number].worker = worker;
        }
        self.moves += 1;
        self.count_used();
    }

    /// An instance has ended and no longer moves.
    pub fn ended(&mut self, number: usize) {
        self.moving.remove(&number);
        self.residents[number].movable = false;
        self.residents[number].busy = 0.0;
    }

    /// Whether no instance is moving.
    pub fn is_settled(&self) -> bool {
        self.moving.is_empty()
    }

    /// The workers that run the subqueries of these nodes.
    pub fn workers_of(&self, nodes: &[usize], plan: &Plan) -> Vec<usize> {
        let instances = plan.execution.instances.iter().zip(&self.residents);
        let own = instances.filter(|(instance, _)| {
            let mut nodes = nodes.iter();
            nodes.any(|&node| plan.subqueries.of_node[node] == instance.subquery)
        });
        let workers = own.map(|(_, resident)| resident.worker);
        workers.collect::<BTreeSet<usize>>().into_iter().collect()
    }

    /// The number of sleeping workers that a row passes: the source's, and each further worker that hosts a
    /// source and receives the row from another worker.
    pub fn sleeps_in_a_row(&self, plan: &Plan) -> f64 {
        let sleeping = |worker: usize| {
            let instances = self.residents.iter().zip(&plan.execution.instances);
            let mut here = instances.filter(|(resident, _)| resident.worker == worker);
            here.any(|(_, instance)| plan.is_source(instance.subquery))
        };
        // Links lead from earlier instances to later ones.
        let mut sleeps = vec![1.0f64; self.residents.len()];
        for link in &plan.execution.links {
            let (from, to) = (
                self.residents[link.from].worker,
                self.residents[link.to].worker,
            );
            let entered = if from != to && sleeping(to) { 1.0 } else { 0.0 };
            sleeps[link.to] = sleeps[link.to].max(sleeps[link.from] + entered);
        }
        sleeps.into_iter().fold(1.0, f64::max)
    }

    /// The number of moves so far.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// The largest number of workers in use at once.
    pub fn workers_used_max(&self) -> usize {
        self.used_max
    }
}
