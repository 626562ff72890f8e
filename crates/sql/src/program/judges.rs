//! Which operators decide whether the rows of a source are late.

use std::collections::BTreeSet;

use slackwater_control::query::NodeKind;
use slackwater_engine::operator::late_rows::Lateness;

use super::Program;

impl Program {
    /// When rows of the source at `node` are late, for the operators after it that drop late rows: each kind
    /// once. Rows that come out of an operator with state, or of one that has dropped late rows, are never
    /// late.
    pub fn judges(&self, node: usize) -> Vec<Lateness> {
        let mut judges = Vec::new();
        let mut open = vec![node];
        let mut seen = BTreeSet::new();
        while let Some(node) = open.pop() {
            for (consumer, _) in self.graph.consumers(node) {
                if !seen.insert(consumer) {
                    continue;
                }
                let spec = &self.nodes[consumer];
                match spec.facts().judges {
                    Some(lateness) => judges.push((consumer, lateness)),
                    None if spec.kind() == NodeKind::Stateless => open.push(consumer),
                    None => {}
                }
            }
        }
        // In the order of the query.
        judges.sort_by_key(|(node, _)| *node);
        let mut kinds: Vec<Lateness> = Vec::new();
        for (_, lateness) in judges {
            if !kinds.contains(&lateness) {
                kinds.push(lateness);
            }
        }
        kinds
    }
}
