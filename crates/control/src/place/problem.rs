//! Placement as an optimization problem: a core for each instance, so that little data travels far and no
//! core is overloaded.

/// A placement problem.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The demand of each instance, in any unit.
    pub demands: Vec<f64>,
    /// The traffic between instances.
    pub traffic: Vec<Traffic>,
    /// The node of each core, as a place in `distances`.
    pub node_of_core: Vec<usize>,
    /// Distances between nodes, the same in both directions.
    pub distances: Vec<Vec<f64>>,
    /// Cores that may be used, as many as there are workers.
    pub cores_used_max: usize,
    /// What each instance costs on each node besides its traffic; empty if that is nothing.
    pub node_costs: Vec<Vec<f64>>,
    /// The capacity of a core that several instances share, in the unit of the demands. A single instance
    /// on a core may need any amount: no other instance could take a part of it.
    pub capacity: f64,
}

/// The traffic between two instances.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Traffic {
    /// One instance.
    pub from: usize,
    /// Another.
    pub to: usize,
    /// The amount, in any unit.
    pub weight: f64,
}

/// Sums of demands that differ by less are equal: they were added in another order.
const ROUNDING: f64 = 1e-9;

impl Problem {
    /// The cost of a placement (a core for each instance): the sum of traffic times distance, and what
    /// instances cost on their nodes. Between instances on one core nothing travels: rows stay in its caches.
    pub fn cost(&self, placed: &[usize]) -> f64 {
        let nodes = placed.iter().enumerate();
        let nodes =
            nodes.map(|(instance, &core)| self.node_cost(instance, self.node_of_core[core]));
        let nodes = nodes.sum::<f64>();
        let costs = self.traffic.iter().map(|traffic| {
            traffic.weight * self.distance(placed[traffic.from], placed[traffic.to])
        });
        nodes + costs.sum::<f64>()
    }

    /// What an instance costs on a node besides its traffic.
    pub fn node_cost(&self, instance: usize, node: usize) -> f64 {
        let costs = self.node_costs.get(instance);
        costs.map_or(0.0, |costs| costs[node])
    }

    /// The distance that rows travel between two cores.
    pub fn distance(&self, one: usize, other: usize) -> f64 {
        if one == other {
            return 0.0;
        }
        self.distances[self.node_of_core[one]][self.node_of_core[other]]
    }

    /// Whether no core is overloaded, and no more cores are used than there are workers.
    pub fn is_feasible(&self, placed: &[usize]) -> bool {
        let mut loads = vec![(0.0, 0); self.node_of_core.len()];
        for (&core, demand) in placed.iter().zip(&self.demands) {
            loads[core].0 += demand;
            loads[core].1 += 1;
        }
        let used = loads.iter().filter(|(_, members)| *members > 0).count();
        let mut loads = loads.into_iter();
        used <= self.cores_used_max && loads.all(|(load, members)| self.fits(load, members))
    }

    /// Whether a core can take the load of this many instances.
    pub fn fits(&self, load: f64, members: usize) -> bool {
        members <= 1 || load <= self.capacity * (1.0 + ROUNDING)
    }
}

/// A core for each instance, from `cores`, so that the busiest has little to do; and the load of the
/// busiest core that several instances share.
///
/// An instance that needs a fair share or more gets a core of its own. The others are assigned in
/// descending order of demand, each to the core with the least load so far (Graham 1969: at most 4/3 of
/// the best balance).
pub fn balance(demands: &[f64], cores: &[usize]) -> (Vec<usize>, f64) {
    let mut order = (0..demands.len()).collect::<Vec<usize>>();
    order.sort_by(|&one, &other| {
        demands[other]
            .total_cmp(&demands[one])
            .then(one.cmp(&other))
    });
    let mut placed = vec![0; demands.len()];
    let (mut free, mut rest) = (cores, order.as_slice());
    let mut sum = demands.iter().sum::<f64>();
    while let ([instance, smaller @ ..], [core, others @ ..]) = (rest, free) {
        // The last core is for all that are left.
        if others.is_empty() || demands[*instance] * (free.len() as f64) < sum {
            break;
        }
        placed[*instance] = *core;
        sum -= demands[*instance];
        (rest, free) = (smaller, others);
    }
    let mut loads = vec![0.0f64; free.len()];
    for &instance in rest {
        let least = (0..loads.len()).min_by(|&one, &other| loads[one].total_cmp(&loads[other]));
        let least = least.expect("there is a core at least");
        loads[least] += demands[instance];
        placed[instance] = free[least];
    }
    (placed, loads.into_iter().fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_goes_first_and_to_the_emptiest_core() {
        let (placed, share) = balance(&[1.0, 4.0, 3.0, 2.0], &[7, 9]);
        assert_eq!(placed, [7, 7, 9, 9]);
        assert_eq!(share, 5.0);
    }

    #[test]
    fn an_instance_that_needs_more_than_a_share_gets_its_own_core() {
        let (placed, share) = balance(&[1.0, 9.0, 1.0, 1.0, 2.0], &[4, 5, 6]);
        assert_eq!(placed, [6, 4, 6, 5, 5]);
        assert_eq!(share, 3.0);
        // As many cores as instances: each has its own, and the last one counts as shared.
        let (placed, share) = balance(&[2.0, 2.0], &[0, 1]);
        assert_eq!((placed, share), (vec![0, 1], 2.0));
    }

    #[test]
    fn a_core_more_than_there_are_workers_is_not_feasible() {
        let problem = Problem {
            demands: vec![1.0, 1.0],
            traffic: vec![Traffic {
                from: 0,
                to: 1,
                weight: 2.0,
            }],
            node_of_core: vec![0, 0, 1],
            distances: vec![vec![10.0, 20.0], vec![20.0, 10.0]],
            cores_used_max: 1,
            node_costs: Vec::new(),
            capacity: 2.0,
        };
        assert!(problem.is_feasible(&[2, 2]) && !problem.is_feasible(&[0, 1]));
        let costs = [[0, 0], [0, 1], [1, 2]].map(|placed| problem.cost(&placed));
        assert_eq!(costs, [0.0, 20.0, 40.0]);
        let tight = Problem {
            cores_used_max: 2,
            capacity: 1.0,
            ..problem
        };
        assert!(!tight.is_feasible(&[2, 2]) && tight.is_feasible(&[0, 1]));
        let large = Problem {
            capacity: 0.5,
            ..tight
        };
        assert!(large.is_feasible(&[0, 1]), "nobody shares a core");
    }
}
