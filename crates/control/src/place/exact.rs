//! The best placement of a small problem, by branch and bound.

use super::problem::Problem;
use super::search::Neighbours;

/// The best placement of a problem, starting from a feasible one, and whether it is proven to be the
/// best: after `steps_max` attempts to place an instance, the best one so far is returned.
pub fn improve(problem: &Problem, known: Vec<usize>, steps_max: usize) -> (Vec<usize>, bool) {
    let neighbours = Neighbours::of(problem);
    let mut order = (0..problem.demands.len()).collect::<Vec<usize>>();
    // Instances with much work first, so that costs show early.
    order.sort_by(|&one, &other| {
        let by_traffic = neighbours.total[other].total_cmp(&neighbours.total[one]);
        by_traffic.then(one.cmp(&other))
    });
    let mut tree = Tree {
        problem,
        neighbours,
        order,
        best_cost: problem.cost(&known),
        best: known,
        placed: vec![None; problem.demands.len()],
        loads: vec![0.0; problem.node_of_core.len()],
        members: vec![0; problem.node_of_core.len()],
        used: 0,
        steps_left: steps_max,
    };
    tree.descend(0, 0.0);
    (tree.best, tree.steps_left > 0)
}

struct Tree<'a> {
    problem: &'a Problem,
    neighbours: Neighbours,
    order: Vec<usize>,
    best: Vec<usize>,
    best_cost: f64,
    placed: Vec<Option<usize>>,
    loads: Vec<f64>,
    members: Vec<usize>,
    used: usize,
    steps_left: usize,
}

impl Tree<'_> {
    fn descend(&mut self, depth: usize, cost: f64) {
        let Some(&instance) = self.order.get(depth) else {
            if cost < self.best_cost {
                self.best_cost = cost;
                self.best = self.placed.iter().copied().flatten().collect();
            }
            return;
        };
        let demand = self.problem.demands[instance];
        // Empty cores of a node are equivalent: only one of them is tried.
        let mut tried_empty = vec![false; self.problem.distances.len()];
        for core in 0..self.loads.len() {
            let empty = self.members[core] == 0;
            if empty {
                let node = self.problem.node_of_core[core];
                let again = std::mem::replace(&mut tried_empty[node], true);
                if again || self.used == self.problem.cores_used_max {
                    continue;
                }
            }
            if !self
                .problem
                .fits(self.loads[core] + demand, self.members[core] + 1)
            {
                continue;
            }
            let added = self.neighbours.by_instance[instance].iter();
            let added = added.filter_map(|&(other, weight)| {
                Some(weight * self.problem.distance(core, self.placed[other]?))
            });
            let then = cost + added.sum::<f64>();
            if then >= self.best_cost || self.steps_left == 0 {
                continue;
            }
            self.steps_left -= 1;
            self.placed[instance] = Some(core);
            self.loads[core] += demand;
            self.members[core] += 1;
            self.used += usize::from(empty);
            self.descend(depth + 1, then);
            self.used -= usize::from(empty);
            self.members[core] -= 1;
            self.loads[core] -= demand;
            self.placed[instance] = None;
        }
    }
}
