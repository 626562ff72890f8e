//! By how much the latencies of each sink may be wrong, on several hosts.
//!
//! A latency is the difference of two stamps: of the host where the row was read and of the host where it
//! left. Each is of the deployment's clock, as well as its host knows that. So what two hosts don't know adds
//! up, and nothing is wrong between instances of one host.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use slackwater_engine::deploy::{Deployment, StepKind};
use slackwater_sql::program::Program;

use super::paths::{parts, path};
use crate::hosts::{Execution, Host};
use crate::plan::Plan;

/// Where a query runs.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// Its threads or processes.
    pub execution: &'a Execution,
    /// The hosts of its worker processes.
    pub hosts: &'a [Arc<dyn Host>],
}

/// The clocks of hosts, and between which of these the rows of each sink travel.
#[derive(Debug)]
pub struct Clocks<'a> {
    hosts: &'a [Arc<dyn Host>],
    /// Pairs of a source's and the sink's host, by the sink's node; without pairs of the same host.
    pairs: BTreeMap<usize, BTreeSet<(usize, usize)>>,
}

impl<'a> Clocks<'a> {
    /// The sinks of a deployment on these hosts.
    pub fn new(
        program: &Program,
        plan: &Plan,
        deployment: &Deployment,
        hosts: &'a [Arc<dyn Host>],
    ) -> Clocks<'a> {
        let host = |instance: usize| {
            let process = deployment.process(instance);
            plan.host_of.get(process).copied().unwrap_or(0)
        };
        let pairs = program.sinks().map(|(node, _)| {
            let path = path(program, plan, node, 0);
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
            hosts,
            pairs: pairs.collect(),
        }
    }

    /// By how much a latency of the sink at `node` may be wrong.
    pub fn error_ns(&self, node: usize) -> u64 {
        let errors_ns = self.hosts.iter().map(|host| host.clock_error_ns());
        error_ns(self.pairs.get(&node), &errors_ns.collect::<Vec<u64>>())
    }

    /// The sinks whose latencies may be wrong, each with the error.
    pub fn errors_ns(&self) -> Vec<(usize, u64)> {
        let sinks = self.pairs.keys();
        let errors = sinks.map(|&node| (node, self.error_ns(node)));
        errors.filter(|(_, error_ns)| *error_ns > 0).collect()
    }
}

/// By how much a latency between one of these pairs of hosts may be wrong, if each host's clock is known to
/// within `errors_ns`.
fn error_ns(pairs: Option<&BTreeSet<(usize, usize)>>, errors_ns: &[u64]) -> u64 {
    let error_ns = |host: usize| errors_ns.get(host).copied().unwrap_or(0);
    let pairs = pairs.into_iter().flatten();
    let errors = pairs.map(|&(one, other)| error_ns(one).saturating_add(error_ns(other)));
    errors.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_hosts_do_not_know_adds_up_and_one_host_is_never_wrong() {
        let errors_ns = [0, 700, 90];
        let pairs = BTreeSet::from([(0, 1), (2, 1)]);
        assert_eq!(error_ns(Some(&pairs), &errors_ns), 790);
        assert_eq!(error_ns(Some(&BTreeSet::from([(2, 0)])), &errors_ns), 90);
        assert_eq!(error_ns(Some(&BTreeSet::new()), &errors_ns), 0);
        // A sink that isn't there, and hosts of which nothing is known.
        assert_eq!(error_ns(None, &errors_ns), 0);
        assert_eq!(error_ns(Some(&pairs), &[]), 0);
    }
}
