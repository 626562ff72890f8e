//! Moves buckets of keys between instances while a query runs, and pre-aggregates the rows of a key that is
//! too hot for one instance.
//!
//! ```text
//! counters: rows by bucket, time by instance ─► control/balance.rs ─► a barrier with the moves
//! hosts hand the state to its new instance;  WorkerEvent::Moved by all ─► the next may follow
//! ```
//!
//! Invariants:
//! - One barrier at a time, and none while an instance changes workers: state is sent to the worker
//!   that runs its new instance.
//! - No timer runs while nothing happens (I7).
//! - A subquery is left alone from the end of one of its instances on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use slackwater_control::balance::Load;
use slackwater_engine::balancer::{BalancerPlan, first_owners};
use slackwater_engine::barrier::{Barrier, BucketMove, Purpose};
use slackwater_engine::counters::InstanceCounters;
use slackwater_engine::deploy::{Deployment, InputPlan, StepKind};
use slackwater_engine::hash::BUCKETS;
use slackwater_engine::protocol::Command;
use slackwater_engine::time::now_ns;
use slackwater_sql::program::Program;
use slackwater_sql::settings::{Rebalance, TwoPhase};

use crate::hosts::{Execution, HostCommand};

/// The interval between two looks at the counters: a slow instance is relieved after two looks.
const EVERY: Duration = Duration::from_millis(200);

/// The number of looks in a row for which the load must be uneven: by chance it may be uneven for one.
const UNEVEN_LOOKS: u32 = 2;

/// The number of looks after a move that are ignored: counts from before the move say nothing about after it.
const REST_LOOKS: u32 = 3;

/// An instance that is busy for a smaller share of the time is not overloaded.
const BUSY_MIN: f64 = 0.5;

/// The weight of the last look in the rates and costs.
const WEIGHT: f64 = 0.5;

/// The number of buckets per move if they move at random.
const SHUFFLED: u64 = 64;

/// One subquery whose input is split by key.
struct Stage {
    node: usize,
    /// The instances of the subquery, by index.
    instances: Vec<usize>,
    /// The instances and steps that count rows by bucket.
    counted: Vec<(usize, usize)>,
    owners: Vec<u16>,
    /// Counts at the last look.
    last_rows: Vec<u64>,
    last_work: Vec<(u64, u64)>,
    /// The rows of each bucket per look, and the nanoseconds per row of each instance.
    rows: Vec<f64>,
    cost: Vec<f64>,
    /// The largest busy share of an instance.
    busy: f64,
    uneven_looks: u32,
    rest: u32,
    /// Whether rows can be pre-aggregated.
    may_combine: bool,
    /// Whether rows are pre-aggregated.
    is_combined: bool,
    is_over: bool,
}

/// A move that is under way.
struct Moving {
    barrier: Barrier,
    stage: usize,
    /// The number of instances that have not reported the move yet.
    missing: usize,
}

/// Rebalances a query.
pub struct Rebalancer<'a> {
    host: &'a Execution,
    stages: Vec<Stage>,
    is_random: bool,
    may_combine: bool,
    moving: Option<Moving>,
    barriers: u64,
    moved: u64,
    /// The node whose buckets have started to move since the last query.
    begun: Option<usize>,
    /// Whether a random move waits for a checkpoint.
    is_waiting: bool,
    looked_ns: u64,
    is_silent: bool,
}

/// The number of moves, for the report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rebalanced {
    /// The number of barriers.
    pub times: u64,
    /// The number of buckets that moved.
    pub buckets: u64,
    /// The number of aggregations with pre-aggregation.
    pub combined: usize,
}

impl<'a> Rebalancer<'a> {
    /// A rebalancer for the query; `None` if nothing can or may move.
    pub fn new(
        program: &Program,
        deployment: &Deployment,
        host: &'a Execution,
    ) -> Option<Rebalancer<'a>> {
        let settings = &program.settings;
        let stages = stages(program, deployment);
        if settings.rebalance == Rebalance::Off || stages.is_empty() || has_units(program) {
            return None;
        }
        Some(Rebalancer {
            host,
            stages,
            is_random: settings.rebalance == Rebalance::Shuffle,
            may_combine: settings.two_phase == TwoPhase::Auto,
            moving: None,
            barriers: 0,
            moved: 0,
            begun: None,
            is_waiting: false,
            looked_ns: now_ns(),
            is_silent: false,
        })
    }

    /// The time until the next look; `None` while the query is idle or a move is in progress.
    pub fn next(&self) -> Option<Duration> {
        let due_ns = self.looked_ns + EVERY.as_nanos() as u64;
        let sleeps = self.is_silent || self.is_random || self.moving.is_some();
        (!sleeps).then(|| Duration::from_nanos(due_ns.saturating_sub(now_ns())))
    }

    /// The query is no longer idle.
    pub fn wake(&mut self) {
        if std::mem::take(&mut self.is_silent) {
            self.looked_ns = now_ns();
            self.host.count_steps();
        }
    }

    /// Whether no move is in progress, so instances may change workers.
    pub fn is_settled(&self) -> bool {
        self.moving.is_none()
    }

    /// Starts; if buckets move at random, they move from the first row on.
    pub fn begin(&mut self) {
        if self.is_random {
            self.shuffle();
        } else {
            self.host.count_steps();
        }
    }

    /// Looks at the counters and moves buckets if necessary; `may_move` says whether no instance is changing
    /// its worker.
    pub fn tick(&mut self, may_move: bool) {
        let now_ns = now_ns();
        let seconds = now_ns.saturating_sub(self.looked_ns) as f64 / 1e9;
        if seconds < EVERY.as_secs_f64() / 2.0 {
            return;
        }
        self.looked_ns = now_ns;
        let counters = self.host.counters();
        let seen = self.stages.iter_mut();
        let rows = seen.map(|stage| stage.look(counters, seconds)).sum::<u64>();
        if rows == 0 {
            self.is_silent = true;
            self.host
                .tell(HostCommand::Workers(Command::ReportActivity));
            return;
        }
        self.host.count_steps();
        if may_move && self.moving.is_none() {
            self.relieve();
        }
    }

    fn relieve(&mut self) {
        for number in 0..self.stages.len() {
            let stage = &mut self.stages[number];
            let load = Load {
                rows: &stage.rows,
                owners: &stage.owners,
                cost: &stage.cost,
            };
            let relief = load.relieve();
            let is_uneven = !relief.moves.is_empty() || relief.is_hot;
            if !is_uneven || stage.busy < BUSY_MIN || stage.rest > 0 || stage.is_over {
                stage.uneven_looks = 0;
                continue;
            }
            stage.uneven_looks += 1;
            if stage.uneven_looks < UNEVEN_LOOKS {
                continue;
            }
            stage.uneven_looks = 0;
            stage.rest = REST_LOOKS;
            if relief.is_hot && self.may_combine && stage.may_combine {
                let node = stage.node;
                stage.is_combined = true;
                self.host.tell(HostCommand::Combine { node });
            }
            let moves = relief
                .moves
                .into_iter()
                .map(|(bucket, from, to)| BucketMove {
                    bucket: bucket as u16,
                    from: from as u16,
                    to: to as u16,
                });
            let moves = moves.collect::<Vec<BucketMove>>();
            if !moves.is_empty() {
                self.start(number, moves);
                return;
            }
        }
    }

    fn start(&mut self, number: usize, moves: Vec<BucketMove>) {
        self.barriers += 1;
        self.moved += moves.len() as u64;
        let stage = &mut self.stages[number];
        for step in &moves {
            stage.owners[usize::from(step.bucket)] = step.to;
        }
        self.begun = Some(stage.node);
        let barrier = Barrier {
            number: self.barriers,
            purpose: Purpose::Move {
                node: stage.node,
                moves: moves.into(),
            },
        };
        let command = Command::Barrier(barrier.clone());
        self.host.tell(HostCommand::Workers(command));
        self.moving = Some(Moving {
            barrier,
            stage: number,
            missing: self.stages[number].instances.len(),
        });
    }

    /// Moves a few buckets at random, the same in every run.
    fn shuffle(&mut self) {
        let open = (0..self.stages.len()).filter(|&stage| !self.stages[stage].is_over);
        let open = open.collect::<Vec<usize>>();
        if open.is_empty() {
            return;
        }
        let number = open[self.barriers as usize % open.len()];
        let stage = &self.stages[number];
        let count = stage.instances.len() as u64;
        let mut moves = Vec::new();
        for place in 0..SHUFFLED {
            let random = mix(self.barriers * SHUFFLED + place);
            // Consecutive buckets, so that none is chosen twice.
            let bucket = (mix(self.barriers) + place) % BUCKETS as u64;
            let from = stage.owners[bucket as usize];
            let to = ((u64::from(from) + 1 + random % (count - 1)) % count) as u16;
            moves.push(BucketMove {
                bucket: bucket as u16,
                from,
                to,
            });
        }
        self.start(number, moves);
    }

    /// The node whose buckets have started to move since the last call.
    pub fn take_moved(&mut self) -> Option<usize> {
        self.begun.take()
    }

    /// Continues with a random move that waited for a checkpoint.
    pub fn go_on(&mut self) {
        if std::mem::take(&mut self.is_waiting) {
            self.shuffle();
        }
    }

    /// An instance has taken part in the move; `may_move` says whether the next move may start.
    pub fn moved(&mut self, barrier: u64, may_move: bool) {
        let Some(moving) = &mut self.moving else {
            return;
        };
        if moving.barrier.number != barrier {
            return;
        }
        moving.missing -= 1;
        if moving.missing == 0 {
            self.moving = None;
            match self.is_random {
                true if may_move => self.shuffle(),
                is_random => self.is_waiting = is_random,
            }
        }
    }

    /// An instance has ended.
    pub fn ended(&mut self, instance: usize) {
        for (number, stage) in self.stages.iter_mut().enumerate() {
            if stage.instances.contains(&instance) {
                stage.is_over = true;
                if self.moving.as_ref().is_some_and(|m| m.stage == number) {
                    self.moving = None;
                }
            }
        }
    }

    /// The number of moves so far.
    pub fn rebalanced(&self) -> Rebalanced {
        let stages = self.stages.iter();
        let combined = stages.filter(|stage| stage.may_combine && stage.is_combined);
        Rebalanced {
            times: self.barriers,
            buckets: self.moved,
            combined: combined.count(),
        }
    }
}

impl Stage {
    /// Updates rates and costs from the counters; returns the number of rows.
    fn look(&mut self, counters: &[Arc<InstanceCounters>], seconds: f64) -> u64 {
        let mut now = vec![0; BUCKETS];
        for &(instance, step) in &self.counted {
            let buckets = counters[instance].steps[step].buckets.iter().flatten();
            for (sum, slot) in now.iter_mut().zip(buckets) {
                *sum += slot.load(Ordering::Relaxed);
            }
        }
        let mut all = 0;
        for (bucket, count) in now.into_iter().enumerate() {
            let rows = count - std::mem::replace(&mut self.last_rows[bucket], count);
            self.rows[bucket] += WEIGHT * (rows as f64 - self.rows[bucket]);
            all += rows;
        }
        self.busy = 0.0;
        for (index, &instance) in self.instances.iter().enumerate() {
            let head = &counters[instance].steps[0];
            let read = InstanceCounters::read;
            let now = (read(&head.busy_ns), read(&head.rows));
            let last = std::mem::replace(&mut self.last_work[index], now);
            let (busy_ns, rows) = ((now.0 - last.0) as f64, (now.1 - last.1) as f64);
            self.busy = self.busy.max(busy_ns / 1e9 / seconds);
            if rows > 0.0 {
                let cost = (busy_ns / rows).max(1.0);
                let old = self.cost[index];
                self.cost[index] = if old > 0.0 {
                    old + WEIGHT * (cost - old)
                } else {
                    cost
                };
            }
        }
        // An instance without rows so far is assumed to be like the others.
        let known = self.cost.iter().filter(|cost| **cost > 0.0);
        let mean = known.clone().sum::<f64>() / known.count().max(1) as f64;
        for cost in &mut self.cost {
            if *cost <= 0.0 {
                *cost = mean.max(1.0);
            }
        }
        self.rest = self.rest.saturating_sub(1);
        all
    }
}

/// The subqueries whose rows are split by key.
fn stages(program: &Program, deployment: &Deployment) -> Vec<Stage> {
    let mut stages: Vec<Stage> = Vec::new();
    for (number, instance) in deployment.instances.iter().enumerate() {
        for (step, plan) in instance.steps.iter().enumerate() {
            let StepKind::Route {
                balancer: BalancerPlan::Keyed { to, .. },
                links,
            } = &plan.kind
            else {
                continue;
            };
            if links.len() < 2 {
                continue;
            }
            if let Some(stage) = stages.iter_mut().find(|stage| stage.node == *to) {
                stage.counted.push((number, step));
                continue;
            }
            let instances = links.iter().map(|&link| deployment.links[link].to);
            stages.push(Stage::new(*to, instances.collect(), (number, step)));
        }
    }
    for stage in &mut stages {
        let steps = deployment
            .instances
            .iter()
            .flat_map(|instance| &instance.steps);
        let mut steps = steps.filter(|step| matches!(step.kind, StepKind::Combine));
        stage.may_combine = steps.any(|step| step.node == stage.node);
        stage.is_combined = program.settings.two_phase == TwoPhase::On;
    }
    // Operators that can't hand over their state are left alone.
    stages.retain(|stage| {
        let has_state = program.nodes[stage.node].state().is_some();
        has_state
            && stage
                .instances
                .iter()
                .all(|&instance| is_linked(deployment, instance))
    });
    stages
}

fn is_linked(deployment: &Deployment, instance: usize) -> bool {
    matches!(deployment.instances[instance].input, InputPlan::Ports(_))
}

impl Stage {
    fn new(node: usize, instances: Vec<usize>, counted: (usize, usize)) -> Stage {
        let count = instances.len();
        Stage {
            node,
            counted: vec![counted],
            owners: first_owners(count),
            last_rows: vec![0; BUCKETS],
            last_work: vec![(0, 0); count],
            rows: vec![0.0; BUCKETS],
            cost: vec![0.0; count],
            busy: 0.0,
            uneven_looks: 0,
            rest: 0,
            may_combine: false,
            is_combined: false,
            is_over: false,
            instances,
        }
    }
}

/// Whether a source has units of work: a barrier could then fall into different units of two sources.
fn has_units(program: &Program) -> bool {
    let mut sources = program.sources();
    sources.any(|(_, source)| source.table.options.contains_key("unit_of_work"))
}

/// SplitMix64: pseudo-random numbers that are the same everywhere.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
