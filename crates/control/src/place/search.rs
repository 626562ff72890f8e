//! Placement by local search: from a few starts, instances move and are exchanged, alone or with all
//! others on their core, as long as that reduces the cost. Deterministic.
//!
//! The problem is a graph partition with unequal distances between the parts, which is hard in general;
//! moves and exchanges of two are those of Kernighan and Lin ("An Efficient Heuristic Procedure for
//! Partitioning Graphs", 1970), without their look-ahead. The tests compare it with the optimum of
//! `exact.rs`.

use super::problem::{Problem, balance};

/// The most rounds over all instances; a start converges after three or four.
const ROUNDS_MAX: usize = 24;

/// The number of further starts, from the best placement with random changes and from random ones: small
/// problems have many local optima, large ones converge slowly and gain little.
const SHAKEN_SMALL: usize = 100;
const SHAKEN_LARGE: usize = 2;
const SMALL: usize = 64;

/// The most pairs that are tried in a round. All pairs of up to 2,800 instances; for more, the first
/// ones, so that a query of thousands is planned within seconds.
const PAIRS_MAX: usize = 4_000_000;

/// A change that gains less than this is rounding.
const GAIN_MIN: f64 = 1e-9;

/// A good placement. `first` is the one to start with; the result costs no more if `first` is feasible.
///
/// # Panics
///
/// When there is no core, or demands do not fit even balanced over `cores_used_max` cores: the capacity
/// is at least that of [`balance`].
pub fn search(problem: &Problem, first: &[usize]) -> Vec<usize> {
    let near = near_cores(problem);
    let (balanced, _) = balance(&problem.demands, &near);
    assert!(
        problem.is_feasible(&balanced),
        "the capacity bears a balanced load"
    );
    let starts = [first.to_vec(), grow(problem, &near), balanced];
    let starts = starts
        .into_iter()
        .filter(|start| problem.is_feasible(start));
    let settled = starts.map(|start| settle(problem, start));
    let mut best = settled
        .min_by(|one, other| one.1.total_cmp(&other.1))
        .expect("one start is feasible");
    let shaken = match problem.demands.len() {
        ..=SMALL => SHAKEN_SMALL,
        _ => SHAKEN_LARGE,
    };
    let mut seed = 1;
    for number in 0..shaken {
        // Every other start is random: not every optimum can be reached through feasible placements.
        let start = match number % 2 {
            0 => shake(problem, &best.0, &mut seed),
            _ => scatter(problem, &mut seed),
        };
        let other = settle(problem, start);
        if other.1 < best.1 * (1.0 - GAIN_MIN) {
            best = other;
        }
    }
    best.0
}

/// As many cores as may be used, near each other: those on the nodes nearest to a first node, for the
/// best first node.
pub fn near_cores(problem: &Problem) -> Vec<usize> {
    let nodes = 0..problem.distances.len();
    let candidates = nodes.map(|seed| {
        let mut order = (0..problem.distances.len()).collect::<Vec<usize>>();
        let distance = |node: usize| problem.distances[seed][node];
        order.sort_by(|&one, &other| {
            let by_distance = distance(one).total_cmp(&distance(other));
            by_distance.then(one.cmp(&other))
        });
        let cores = order.into_iter().flat_map(|node| {
            let cores = problem.node_of_core.iter().enumerate();
            cores.filter_map(move |(core, &node_here)| (node_here == node).then_some(core))
        });
        let cores = cores.take(problem.cores_used_max).collect::<Vec<usize>>();
        (spread(problem, &cores), cores)
    });
    let nearest = candidates.min_by(|one, other| one.0.total_cmp(&other.0));
    nearest.expect("there is a node at least").1
}

/// The sum of distances between all pairs of these cores, by the number of cores on each node.
fn spread(problem: &Problem, cores: &[usize]) -> f64 {
    let mut on_node = vec![0.0; problem.distances.len()];
    for &core in cores {
        on_node[problem.node_of_core[core]] += 1.0;
    }
    let mut sum = 0.0;
    for (one, distances) in problem.distances.iter().enumerate() {
        for (other, distance) in distances.iter().enumerate() {
            sum += on_node[one] * on_node[other] * distance;
        }
    }
    sum
}

/// Places one instance after the other, always the one with the most traffic to those placed, where it
/// adds the least cost. The result may be infeasible.
fn grow(problem: &Problem, cores: &[usize]) -> Vec<usize> {
    let neighbours = Neighbours::of(problem);
    let count = problem.demands.len();
    let mut placed: Vec<Option<usize>> = vec![None; count];
    let mut pull = vec![0.0f64; count];
    let mut loads = vec![0.0; problem.node_of_core.len()];
    let mut members = vec![0; loads.len()];
    for _ in 0..count {
        let waiting = (0..count).filter(|&instance| placed[instance].is_none());
        let next = waiting.max_by(|&one, &other| {
            let key = |instance: usize| {
                (
                    pull[instance],
                    neighbours.total[instance],
                    problem.demands[instance],
                )
            };
            let (one_key, other_key) = (key(one), key(other));
            let by_pull = one_key.0.total_cmp(&other_key.0);
            let by_total = by_pull.then(one_key.1.total_cmp(&other_key.1));
            let by_demand = by_total.then(one_key.2.total_cmp(&other_key.2));
            by_demand.then(other.cmp(&one))
        });
        let next = next.expect("one is waiting");
        let nodes = 0..problem.distances.len();
        let at_node = nodes.map(|node| problem.node_cost(next, node));
        let mut at_node = at_node.collect::<Vec<f64>>();
        let mut on_core = vec![0.0; loads.len()];
        for &(other, weight) in &neighbours.by_instance[next] {
            if let Some(core) = placed[other] {
                on_core[core] += weight;
                let node = problem.node_of_core[core];
                for (at, distances) in at_node.iter_mut().zip(&problem.distances) {
                    *at += weight * distances[node];
                }
            }
        }
        let added = |core: usize| {
            let node = problem.node_of_core[core];
            at_node[node] - on_core[core] * problem.distances[node][node]
        };
        let load_then = |core: usize| loads[core] + problem.demands[next];
        let core = cores.iter().copied().min_by(|&one, &other| {
            let over = |core: usize| !problem.fits(load_then(core), members[core] + 1);
            let by_room = over(one).cmp(&over(other));
            let by_cost = by_room.then(added(one).total_cmp(&added(other)));
            by_cost.then(loads[one].total_cmp(&loads[other]))
        });
        let core = core.expect("there is a core at least");
        loads[core] += problem.demands[next];
        members[core] += 1;
        placed[next] = Some(core);
        for &(other, weight) in &neighbours.by_instance[next] {
            pull[other] += weight;
        }
    }
    placed.into_iter().flatten().collect()
}

/// Exchanges some pairs and moves some instances at random, if that is feasible.
fn shake(problem: &Problem, placed: &[usize], seed: &mut u64) -> Vec<usize> {
    let count = placed.len();
    let mut shaken = placed.to_vec();
    if count == 0 {
        return shaken;
    }
    // A few changes find a better neighbor, many another region.
    for _ in 0..1 + below(seed, 3 * count) {
        let mut other = shaken.clone();
        let instance = below(seed, count);
        if below(seed, 2) == 0 {
            other.swap(instance, below(seed, count));
        } else {
            other[instance] = below(seed, problem.node_of_core.len());
        }
        if problem.is_feasible(&other) {
            shaken = other;
        }
    }
    shaken
}

/// Places instances at random where there is room; if an instance finds no room, balanced on cores chosen
/// at random.
fn scatter(problem: &Problem, seed: &mut u64) -> Vec<usize> {
    let mut cores = (0..problem.node_of_core.len()).collect::<Vec<usize>>();
    let mut order = (0..problem.demands.len()).collect::<Vec<usize>>();
    for list in [&mut cores, &mut order] {
        for place in 1..list.len() {
            list.swap(place, below(seed, place + 1));
        }
    }
    cores.truncate(problem.cores_used_max);
    let mut placed = vec![0; order.len()];
    let mut loads = vec![(0.0, 0); problem.node_of_core.len()];
    for instance in order {
        let demand = problem.demands[instance];
        let first = below(seed, cores.len());
        let mut turned = cores[first..].iter().chain(&cores[..first]);
        let room = turned.find(|&&core| {
            let (load, members) = loads[core];
            problem.fits(load + demand, members + 1)
        });
        let Some(&core) = room else {
            return balance(&problem.demands, &cores).0;
        };
        loads[core].0 += demand;
        loads[core].1 += 1;
        placed[instance] = core;
    }
    placed
}

/// A number below `bound`, the same in every run (splitmix64).
fn below(seed: &mut u64, bound: usize) -> usize {
    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *seed;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((mixed ^ (mixed >> 31)) % bound as u64) as usize
}

/// Moves and exchanges instances until no change gains anything; returns the cost as well.
fn settle(problem: &Problem, start: Vec<usize>) -> (Vec<usize>, f64) {
    let mut state = State::new(problem, start);
    for _ in 0..ROUNDS_MAX {
        let moved = state.move_all();
        let exchanged = state.exchange_all();
        let carried = state.exchange_cores();
        if !moved && !exchanged && !carried {
            break;
        }
    }
    let cost = problem.cost(&state.placed);
    (state.placed, cost)
}

/// The traffic of each instance with others.
pub struct Neighbours {
    /// For each instance, the others by number, each once, with the amount.
    pub by_instance: Vec<Vec<(usize, f64)>>,
    /// The sum for each instance.
    pub total: Vec<f64>,
}

impl Neighbours {
    /// The neighbours of all instances.
    pub fn of(problem: &Problem) -> Neighbours {
        let mut by_instance = vec![Vec::new(); problem.demands.len()];
        for traffic in &problem.traffic {
            if traffic.from != traffic.to {
                by_instance[traffic.from].push((traffic.to, traffic.weight));
                by_instance[traffic.to].push((traffic.from, traffic.weight));
            }
        }
        for list in &mut by_instance {
            list.sort_by_key(|&(other, _)| other);
            list.dedup_by(|later, earlier| {
                let same = later.0 == earlier.0;
                if same {
                    earlier.1 += later.1;
                }
                same
            });
        }
        let total = by_instance
            .iter()
            .map(|list| list.iter().map(|(_, w)| w).sum());
        Neighbours {
            total: total.collect(),
            by_instance,
        }
    }

    /// The traffic between two instances.
    fn between(&self, one: usize, other: usize) -> f64 {
        let list = &self.by_instance[one];
        match list.binary_search_by_key(&other, |&(number, _)| number) {
            Ok(place) => list[place].1,
            Err(_) => 0.0,
        }
    }
}

/// A placement, with what is needed to compute quickly how much a change would gain.
struct State<'a> {
    problem: &'a Problem,
    neighbours: Neighbours,
    placed: Vec<usize>,
    loads: Vec<f64>,
    members: Vec<Vec<usize>>,
    used: usize,
    /// The cost of an instance on a node while all others stay; as if those on its core were on another
    /// core of their node. By instance, then node.
    at_node: Vec<f64>,
}

impl<'a> State<'a> {
    fn new(problem: &'a Problem, placed: Vec<usize>) -> State<'a> {
        let neighbours = Neighbours::of(problem);
        let nodes = problem.distances.len();
        let mut loads = vec![0.0; problem.node_of_core.len()];
        let mut members = vec![Vec::new(); loads.len()];
        for (instance, &core) in placed.iter().enumerate() {
            loads[core] += problem.demands[instance];
            members[core].push(instance);
        }
        let mut at_node = vec![0.0; placed.len() * nodes];
        for (instance, at) in at_node.chunks_mut(nodes).enumerate() {
            for (node, at) in at.iter_mut().enumerate() {
                *at = problem.node_cost(instance, node);
            }
            for &(other, weight) in &neighbours.by_instance[instance] {
                let there = problem.node_of_core[placed[other]];
                for (at, distances) in at.iter_mut().zip(&problem.distances) {
                    *at += weight * distances[there];
                }
            }
        }
        State {
            used: members.iter().filter(|members| !members.is_empty()).count(),
            problem,
            neighbours,
            placed,
            loads,
            members,
            at_node,
        }
    }

    /// The cost of an instance on a core, without its traffic with `without`.
    fn cost(&self, instance: usize, core: usize, without: usize) -> f64 {
        let node = self.problem.node_of_core[core];
        let distances = &self.problem.distances[node];
        let mut cost = self.at_node[instance * self.problem.distances.len() + node];
        if without != instance {
            let there = self.problem.node_of_core[self.placed[without]];
            cost -= self.neighbours.between(instance, without) * distances[there];
        }
        for &member in &self.members[core] {
            if member != instance && member != without {
                cost -= self.neighbours.between(instance, member) * distances[node];
            }
        }
        cost
    }

    fn put(&mut self, instance: usize, core: usize) {
        let from = std::mem::replace(&mut self.placed[instance], core);
        let demand = self.problem.demands[instance];
        self.loads[from] -= demand;
        self.loads[core] += demand;
        self.members[from].retain(|&member| member != instance);
        self.used -= usize::from(self.members[from].is_empty());
        self.used += usize::from(self.members[core].is_empty());
        self.members[core].push(instance);
        let (before, after) = (
            self.problem.node_of_core[from],
            self.problem.node_of_core[core],
        );
        if before == after {
            return;
        }
        let nodes = self.problem.distances.len();
        for &(other, weight) in &self.neighbours.by_instance[instance] {
            let at = &mut self.at_node[other * nodes..][..nodes];
            for (at, distances) in at.iter_mut().zip(&self.problem.distances) {
                *at += weight * (distances[after] - distances[before]);
            }
        }
    }

    /// Moves each instance to the core where it costs least; returns whether one gained something.
    fn move_all(&mut self) -> bool {
        let mut gained = false;
        for instance in 0..self.placed.len() {
            let from = self.placed[instance];
            let now = self.cost(instance, from, instance);
            let demand = self.problem.demands[instance];
            let leaves_empty = self.members[from].len() == 1;
            let mut best = (now - GAIN_MIN * (1.0 + now.abs()), from);
            for core in 0..self.loads.len() {
                let opens = self.members[core].is_empty();
                let allowed = !opens || leaves_empty || self.used < self.problem.cores_used_max;
                let members = self.members[core].len() + 1;
                let fits = self.problem.fits(self.loads[core] + demand, members);
                if core == from || !allowed || !fits {
                    continue;
                }
                let then = self.cost(instance, core, instance);
                if then < best.0 {
                    best = (then, core);
                }
            }
            if best.1 != from {
                self.put(instance, best.1);
                gained = true;
            }
        }
        gained
    }

    /// Exchanges pairs if that gains something; returns whether any did.
    fn exchange_all(&mut self) -> bool {
        let mut gained = false;
        let mut looked_at = 0;
        for one in 0..self.placed.len() {
            for other in one + 1..self.placed.len() {
                looked_at += 1;
                if looked_at > PAIRS_MAX {
                    return gained;
                }
                if self.exchange_gains(one, other) {
                    let (here, there) = (self.placed[one], self.placed[other]);
                    self.put(one, there);
                    self.put(other, here);
                    gained = true;
                }
            }
        }
        gained
    }

    fn exchange_gains(&self, one: usize, other: usize) -> bool {
        let (here, there) = (self.placed[one], self.placed[other]);
        let more = self.problem.demands[other] - self.problem.demands[one];
        if here == there
            || !self
                .problem
                .fits(self.loads[here] + more, self.members[here].len())
            || !self
                .problem
                .fits(self.loads[there] - more, self.members[there].len())
        {
            return false;
        }
        // The traffic between the two is the same before and after.
        let before = self.cost(one, here, other) + self.cost(other, there, one);
        let after = self.cost(one, there, other) + self.cost(other, here, one);
        after < before - GAIN_MIN * (1.0 + before.abs())
    }

    /// Exchanges everything on two cores of different nodes, one of which may be empty, if that gains
    /// something; returns whether any did.
    fn exchange_cores(&mut self) -> bool {
        let mut gained = false;
        for one in 0..self.members.len() {
            for other in one + 1..self.members.len() {
                if self.exchange_of_cores_gains(one, other) {
                    let (here, there) = (self.members[one].clone(), self.members[other].clone());
                    here.into_iter().for_each(|member| self.put(member, other));
                    there.into_iter().for_each(|member| self.put(member, one));
                    gained = true;
                }
            }
        }
        gained
    }

    fn exchange_of_cores_gains(&self, one: usize, other: usize) -> bool {
        let node_of = &self.problem.node_of_core;
        let (here, there) = (node_of[one], node_of[other]);
        if here == there {
            return false;
        }
        // The traffic between the two, and within each, is the same before and after.
        let outside = |member: usize, node: usize| {
            let distances = &self.problem.distances[node];
            let mut cost = self.at_node[member * self.problem.distances.len() + node];
            for (core, at) in [(one, here), (other, there)] {
                for &neighbour in &self.members[core] {
                    cost -= self.neighbours.between(member, neighbour) * distances[at];
                }
            }
            cost
        };
        let (mut before, mut after) = (0.0, 0.0);
        for &member in &self.members[one] {
            before += outside(member, here);
            after += outside(member, there);
        }
        for &member in &self.members[other] {
            before += outside(member, there);
            after += outside(member, here);
        }
        after < before - GAIN_MIN * (1.0 + before.abs())
    }
}
