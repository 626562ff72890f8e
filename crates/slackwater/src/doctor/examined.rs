//! Collects what intakes have seen, and examines it.

use std::collections::{BTreeMap, BTreeSet};

use slackwater_engine::deploy::Deployment;
use slackwater_engine::intake::PartitionSeen;
use slackwater_engine::time::now_ns;
use slackwater_sql::program::Program;

use super::sentences;
use super::sources::{Examined, Now, Source};

/// What is known of the partitions of all source instances, by the number of the instance.
#[derive(Debug, Default)]
pub struct Examiner {
    seen: BTreeMap<usize, Vec<PartitionSeen>>,
    /// When one of them was heard last.
    heard_ns: u64,
}

/// What is known of all sources of a query.
#[derive(Debug, Clone, Default)]
pub struct Examination {
    /// The sources, with their nodes, in order.
    pub sources: Vec<(usize, Examined)>,
    /// What it means, in sentences.
    pub diagnosis: Vec<String>,
}

impl Examiner {
    /// Takes what an instance has seen.
    pub fn hear(&mut self, instance: usize, partitions: Vec<PartitionSeen>) {
        self.seen.insert(instance, partitions);
        self.heard_ns = now_ns();
    }

    /// What is known now.
    pub fn examine(&self, program: &Program, deployment: &Deployment) -> Examination {
        let sources = program.sources().map(|(node, spec)| {
            let own = self.seen.iter().filter(|(instance, _)| {
                let plan = deployment.instances.get(**instance);
                plan.and_then(|plan| plan.source()) == Some(node)
            });
            let own = own.map(|(_, partitions)| partitions).collect::<Vec<_>>();
            let has_begun = !own.is_empty();
            let mut seen = own.into_iter().flatten().collect::<Vec<_>>();
            seen.sort_by_key(|partition| (partition.partition.is_none(), partition.partition));
            Source {
                node,
                spec,
                seen,
                has_begun,
            }
        });
        let sources = sources.collect::<Vec<Source<'_>>>();
        let now = Now::read().of_what_was_heard(self.heard_ns);
        let mut examined = sources
            .iter()
            .map(|source| (source.node, source.examined(program, &now)));
        let mut examined = examined.by_ref().collect::<Vec<(usize, Examined)>>();
        let mut diagnosis = Vec::new();
        for group in groups(program, &sources) {
            let standing = sentences::Standing::of(&sources, &group, now.ns);
            if let Some((source, partition)) = standing.holder() {
                examined[source].1.partitions[partition].holds_back = true;
            }
            diagnosis.extend(standing.sentence());
        }
        for (_, source) in &examined {
            diagnosis.extend(sentences::of_late_rows(source));
        }
        Examination {
            sources: examined,
            diagnosis,
        }
    }
}

/// Sources whose watermarks some operator or sink takes the minimum of, as numbers among `sources`.
fn groups(program: &Program, sources: &[Source<'_>]) -> Vec<BTreeSet<usize>> {
    let mut groups: Vec<BTreeSet<usize>> = Vec::new();
    for (sink, _) in program.sinks() {
        let upstream = program.graph.upstream(sink);
        let own = sources.iter().enumerate();
        let own = own.filter(|(_, source)| upstream.contains(&source.node));
        let mut own = own.map(|(number, _)| number).collect::<BTreeSet<usize>>();
        let (same, others) = groups
            .into_iter()
            .partition(|group| !group.is_disjoint(&own));
        groups = others;
        let same: Vec<BTreeSet<usize>> = same;
        same.into_iter().for_each(|group| own.extend(group));
        groups.push(own);
    }
    groups.sort();
    groups
}
