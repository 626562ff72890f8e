//! What the hosts of a query have used, for the rule that says how many it wants.

use slackwater_sql::program::Program;
use slackwater_sql::settings::Parallelism;

use super::Snapshot;
use crate::cluster::{HostsKnown, HostsReading, Orchestrator, Used};
use crate::hosts::Host;
use crate::plan::Plan;

/// A query that runs on the hosts of an orchestrator.
#[derive(Clone, Copy)]
pub struct Spread<'a> {
    /// Where its hosts join.
    pub orchestrator: &'a Orchestrator,
    /// Its hosts; home is the first.
    pub hosts: &'a [std::sync::Arc<dyn Host>],
    /// What runs where.
    pub plan: &'a Plan,
}

impl Spread<'_> {
    /// What it runs on: hosts with processes that count. `instances` has the process of each instance.
    pub fn used(&self, program: &Program, instances: impl Iterator<Item = usize>) -> Used {
        let counted = self.hosts.iter().enumerate();
        let counted = counted.filter(|(host, _)| {
            self.orchestrator.counts(*host) && self.plan.host_of.contains(host)
        });
        let cores = counted.map(|(_, host)| {
            let machine = host.facts().machine();
            let allowed = machine.topology.allowed().len() as f64;
            machine
                .quota_cores
                .map_or(allowed, |quota| quota.min(allowed))
        });
        let cores = cores.collect::<Vec<f64>>();
        let (hosts, sum) = (cores.len(), cores.iter().sum::<f64>());
        let is_fixed =
            |parallelism: Option<Parallelism>| matches!(parallelism, Some(Parallelism::Fixed(_)));
        let mut outputs = program.outputs.iter();
        let useful = match outputs.all(|output| is_fixed(output.parallelism)) {
            // On more hosts, there would be more of them.
            false => self.orchestrator.hosts_max(),
            true => {
                let instances = instances
                    .filter(|process| self.is_counted(*process))
                    .count();
                ((instances * hosts) as f64 / sum.max(0.1)).ceil() as usize
            }
        };
        Used {
            hosts,
            cores: sum,
            useful,
        }
    }

    /// The CPU time of processes that count; `used` has each process with its CPU time.
    pub fn cpu_s(&self, used: impl Iterator<Item = (usize, f64)>) -> f64 {
        let counted = used.filter(|(process, _)| self.is_counted(*process));
        counted.map(|(_, cpu_s)| cpu_s).sum()
    }

    /// Looks at what was counted, and returns how many hosts are wanted.
    pub fn look(&self, snapshot: &Snapshot, cpu_s: f64) -> HostsKnown {
        let links = snapshot.operators.iter();
        let links = links.filter_map(|operator| Some((operator.rows, operator.waiting?)));
        let (taken, waiting) = links.fold((0, 0), |(taken, waiting), (rows, wait)| {
            (taken + rows, waiting + wait)
        });
        let violated_ns = snapshot.sinks.values().map(|sink| sink.violated_ns).max();
        self.orchestrator.look(HostsReading {
            cpu_s,
            rows_out: snapshot.sinks.values().map(|sink| sink.rows).sum(),
            violated_ns: violated_ns.unwrap_or_default(),
            taken,
            waiting,
        })
    }

    fn is_counted(&self, process: usize) -> bool {
        let host = self.plan.host_of.get(process);
        host.is_some_and(|host| self.orchestrator.counts(*host))
    }
}
