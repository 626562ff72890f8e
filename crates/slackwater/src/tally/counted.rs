//! The counters of instances, added up by table and by operator.

use std::sync::Arc;

use slackwater_engine::balancer::BalancerPlan;
use slackwater_engine::counters::{InstanceCounters, StepCounters};
use slackwater_engine::deploy::{Deployment, InputPlan, InstancePlan, StepKind};
use slackwater_sql::program::Program;

use crate::report::OperatorReport;

/// Late and bad rows, in this order.
pub type Refused = [u64; 2];

/// The counters of a query.
pub struct Counted<'a> {
    /// The program.
    pub program: &'a Program,
    /// The engine's form of its plan.
    pub deployment: &'a Deployment,
    /// The counters of all instances.
    pub counters: &'a [Arc<InstanceCounters>],
}

impl<'a> Counted<'a> {
    /// The counters of the instances that read the source at `node`.
    pub fn of_source(&self, node: usize) -> impl Iterator<Item = &'a InstanceCounters> {
        let instances = self.deployment.instances.iter().zip(self.counters);
        let own = instances.filter(move |(instance, _)| instance.source() == Some(node));
        own.map(|(_, slots)| &**slots)
    }

    /// The counters of the steps that write to the sink at `node`.
    pub fn of_sink(&self, node: usize) -> impl Iterator<Item = &'a StepCounters> {
        let instances = self.deployment.instances.iter().zip(self.counters);
        let steps = instances.flat_map(|(instance, slots)| instance.steps.iter().zip(&slots.steps));
        let own = steps.filter(move |(step, _)| {
            step.node == node && matches!(step.kind, StepKind::Sink { .. })
        });
        own.map(|(_, slots)| slots)
    }

    /// The rows that the sink at `node` was given.
    pub fn rows_of_sink(&self, node: usize) -> u64 {
        let rows = self
            .of_sink(node)
            .map(|slots| InstanceCounters::read(&slots.rows));
        rows.sum()
    }

    /// The bytes that the operator of each node holds, as last measured.
    pub fn state_bytes(&self) -> Vec<u64> {
        let mut bytes = vec![0; self.program.graph.nodes.len()];
        for (instance, slots) in self.deployment.instances.iter().zip(self.counters) {
            if let (InputPlan::Ports(_), Some(head)) = (&instance.input, instance.steps.first()) {
                bytes[head.node] += InstanceCounters::read(&slots.state_bytes);
            }
        }
        bytes
    }

    /// The costs of each node. The work of a route belongs to the node whose rows it distributes.
    pub fn operators(&self) -> Vec<OperatorReport> {
        let graph = &self.program.graph;
        let mut reports = graph.nodes.iter().enumerate();
        let mut reports = reports
            .by_ref()
            .map(|(node, spec)| OperatorReport {
                node,
                name: spec.name.clone(),
                busy_s: 0.0,
                chunks: 0,
                rows: 0,
                state_bytes_max: 0,
            })
            .collect::<Vec<_>>();
        let read = InstanceCounters::read;
        for (instance, slots) in self.deployment.instances.iter().zip(self.counters) {
            if let Some(node) = instance.source() {
                let report = &mut reports[node];
                report.busy_s += read(&slots.source.busy_ns) as f64 / 1e9;
                report.chunks += read(&slots.source.chunks);
                report.rows += read(&slots.source.rows);
            }
            if let (InputPlan::Ports(_), Some(head)) = (&instance.input, instance.steps.first()) {
                reports[head.node].state_bytes_max += read(&slots.state_bytes_max);
            }
            for (step, slots) in instance.steps.iter().zip(&slots.steps) {
                let report = &mut reports[step.node];
                report.busy_s += read(&slots.busy_ns) as f64 / 1e9;
                let is_before = matches!(
                    step.kind,
                    StepKind::Route { .. } | StepKind::Combine | StepKind::FirstPhase
                );
                if !is_before {
                    report.chunks += read(&slots.chunks);
                    report.rows += read(&slots.rows);
                }
            }
        }
        reports
    }

    /// The rows that were sent to each node over links and that it has not taken; `None` for nodes without
    /// links.
    pub fn waiting(&self) -> Vec<Option<u64>> {
        let instances = &self.deployment.instances;
        let head_of = |instance: &InstancePlan| match &instance.input {
            InputPlan::Ports(_) => instance.steps.first().map(|step| step.node),
            InputPlan::Source { .. } => None,
        };
        let mut copies = vec![0; self.program.graph.nodes.len()];
        let heads = instances.iter().filter_map(head_of);
        heads.for_each(|head| copies[head] += 1);
        let (mut sent, mut taken) = (vec![0; copies.len()], vec![0; copies.len()]);
        for (instance, slots) in instances.iter().zip(self.counters) {
            for (number, (step, slots)) in instance.steps.iter().zip(&slots.steps).enumerate() {
                let rows = InstanceCounters::read(&slots.rows);
                if number == 0
                    && let Some(head) = head_of(instance)
                {
                    taken[head] += rows;
                }
                let StepKind::Route { balancer, links } = &step.kind else {
                    continue;
                };
                let to = links.first().map(|link| self.deployment.links[*link].to);
                if let Some(head) = to.and_then(|to| head_of(&instances[to])) {
                    let is_broadcast = matches!(balancer, BalancerPlan::Broadcast { .. });
                    sent[head] += rows * if is_broadcast { copies[head] } else { 1 };
                }
            }
        }
        let waiting = sent.iter().zip(taken).zip(copies);
        // Workers count on between the readings.
        let waiting =
            waiting.map(|((sent, taken), heads)| (heads > 0).then(|| sent.saturating_sub(taken)));
        waiting.collect()
    }

    /// The late and bad rows of each source, in order, and those that come from no single source. Rows that
    /// an instance can't attribute are counted for its source if it receives rows of only one.
    ///
    /// Workers may count meanwhile: a late row is counted for its source before it is counted for the
    /// instance, and they are read in the opposite order, so that it never seems to come from no source.
    pub fn refused(&self) -> (Vec<Refused>, Refused) {
        let read = InstanceCounters::read;
        let graph = &self.program.graph;
        let sources = self.program.sources().map(|(node, _)| node);
        let sources = sources.collect::<Vec<usize>>();
        let mut unknown = [0; 2];
        let mut refused = vec![[0; 2]; sources.len()];
        for (instance, slots) in self.deployment.instances.iter().zip(self.counters) {
            let mut late = read(&slots.rows_late);
            for (of_source, known) in refused.iter_mut().zip(&slots.late_by_source) {
                let known = read(known);
                of_source[0] += known;
                late = late.saturating_sub(known);
            }
            let bad = read(&slots.rows_bad);
            if late + bad == 0 {
                continue;
            }
            let head = instance.steps.first().map(|step| step.node);
            let node = instance.source().or(head);
            let heard = node.map(|node| graph.upstream(node));
            let heard = heard.into_iter().flatten();
            let mut heard = heard.filter_map(|node| sources.binary_search(&node).ok());
            let of = match (heard.next(), heard.next()) {
                (Some(only), None) => &mut refused[only],
                _ => &mut unknown,
            };
            of[0] += late;
            of[1] += bad;
        }
        (refused, unknown)
    }
}
