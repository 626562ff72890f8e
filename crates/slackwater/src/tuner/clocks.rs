//! By how much the latencies of each sink may be wrong, on several hosts. Pure.
//!
//! A latency is the difference of two stamps: of the host where the row was read and of the host where it
//! left. Each is of the deployment's clock, as well as its host knows that. So what two hosts don't know adds
//! up, and nothing is wrong between instances of one host.

use std::collections::{BTreeMap, BTreeSet};

use slackwater_engine::deploy::{Deployment, StepKind};

use super::paths::parts;
use crate::plan::Plan;
use slackwater_sql::program::Program;

/// The hosts between which the rows of each sink travel.
#[derive(Debug, Default)]
pub struct Clocks {
    /// Pairs of a source's and the sink's host, by the sink's node; without pairs of the same host.
    pairs: BTreeMap<usize, BTreeSet<(usize, usize)>>,
}

impl Clocks {
    /// The sinks of a deployment on several hosts.
    pub fn new(program: &Program, plan: &Plan, deployment: &Deployment) -> Clocks {
        let host = |instance: usize| {
            let process = deployment.process(instance);
            plan.host_of.get(process).copied().unwrap_or(0)
        };
        let pairs = program.sinks().map(|(node, _)| {
            let path = super::paths::path(program, plan, node, 0);
            let sources = parts(program, plan, &path).source_instances;
            let sources = sources.into_iter().map(host).collect::<BTreeSet<usize>>();
            let sinks = deployment.instances.iter().enumerate();
            let sinks = sinks.filter(|(_, instance)| {
                let mut steps = instance.steps.iter();
                steps.any(|step| step.node == node && matches!(step.kind, StepKind::Sink { .. }))
            });
            let sinks = sinks.map(|(number, _)| host(number));
            let pairs = sinks.flat_map(|sink| sources.iter().map(move |&source| (source, sink)));
            (node, pairs.filter(|(one, other)| one != other).collect())
        });
        Clocks {
            pairs: pairs.collect(),
        }
    }

    /// By how much a latency of the sink at `node` may be wrong, if each host's clock is known to within
    /// `errors_ns`.
    pub fn error_ns(&self, node: usize, errors_ns: &[u64]) -> u64 {
        let error_ns = |host: usize| errors_ns.get(host).copied().unwrap_or(0);
        let pairs = self.pairs.get(&node).into_iter().flatten();
        let errors = pairs.map(|&(one, other)| error_ns(one).saturating_add(error_ns(other)));
        errors.max().unwrap_or(0)
    }

    /// The sinks whose latencies may be wrong, each with the error.
    pub fn errors(&self, errors_ns: &[u64]) -> Vec<(usize, u64)> {
        let sinks = self.pairs.keys();
        let errors = sinks.map(|&node| (node, self.error_ns(node, errors_ns)));
        errors.filter(|(_, error_ns)| *error_ns > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_hosts_do_not_know_adds_up_and_one_host_is_never_wrong() {
        let clocks = Clocks {
            pairs: [
                (4, [(0, 1), (2, 1)].into()),
                (5, BTreeSet::new()),
                (6, [(1, 0)].into()),
            ]
            .into(),
        };
        let errors_ns = [0, 700, 90];
        assert_eq!(clocks.errors(&errors_ns), [(4, 790), (6, 700)]);
        assert_eq!(clocks.error_ns(5, &errors_ns), 0);
        // A sink that isn't there, and hosts of which nothing is known.
        assert_eq!(clocks.error_ns(9, &errors_ns), 0);
        assert_eq!(clocks.errors(&[]), []);
    }
}
