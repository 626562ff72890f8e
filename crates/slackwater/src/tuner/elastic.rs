//! Where instances run, and who goes where when the load changes: within one process, since an instance
//! moves with its state and its ends of links.

use std::collections::{BTreeSet, HashMap};

use slackwater_control::latency::elastic::{Resident, moves};
use slackwater_engine::deploy::Deployment;

use crate::plan::Plan;
use crate::probe::Seen;

/// Instances gather only after the load was low for so long: spreading again costs the rows that
/// come meanwhile.
const GATHER_AFTER_NS: u64 = 3_000_000_000;

/// A tick's weight in the busy share of an instance, per second.
const WEIGHT_PER_S: f64 = 2.0;

pub struct Elastic {
    residents: Vec<Resident>,
    /// Who is on the way, and where to.
    moving: HashMap<usize, usize>,
    /// For how long gathering has been the thing to do.
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

    /// Looks at what each instance did; which instance is to go to which worker. `cores` is the CPU
    /// time of each worker per second, which its instances share as the clock around their work
    /// says: that clock also runs while another program has the core, and misses what a source does
    /// before it has something.
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

    /// Rows that came to each worker: from its sources, or, where it has none, over links.
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

    /// An instance runs where it was sent.
    pub fn arrived(&mut self, number: usize) {
        if let Some(worker) = self.moving.remove(&number) {
            self.residents[number].worker = worker;
        }
        self.moves += 1;
        self.count_used();
    }

    /// An instance has ended; it goes nowhere.
    pub fn ended(&mut self, number: usize) {
        self.moving.remove(&number);
        self.residents[number].movable = false;
        self.residents[number].busy = 0.0;
    }

    /// Nobody is on the way.
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

    /// How many sleeping workers a row passes in a row: the source's, and again each that hosts a
    /// source and is entered from another.
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

    /// Moves so far.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// The most workers in use at once.
    pub fn workers_used_max(&self) -> usize {
        self.used_max
    }
}
