//! One row for each value of a PRIMARY KEY, where the query replaces its rows by another key than that of the
//! table.

use arrow_schema::{SchemaRef, SortOptions};
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::changelog::top_n::{TopN, TopNSpec};

use super::facts::{
    Behind, Bound, Changelog, ChangelogMode, Cost, Emission, Emits, Facts, Growth, NeedsBefore,
    Node, Order, Sorted, State, by_key,
};
use super::identity;
use super::saved::Saved;
use super::translator::Translator;
use crate::explain::{names, readable};

/// The first row of each primary key, in an order.
pub struct ByPrimaryKeyNode {
    /// Which rows are kept, and their order.
    pub spec: TopNSpec,
}

impl Node for ByPrimaryKeyNode {
    fn schema(&self) -> &SchemaRef {
        &self.spec.schema
    }

    fn exchange(&self, _: usize) -> Exchange {
        by_key(&self.spec.partition)
    }

    fn state(&self) -> Option<State> {
        Some(State {
            kind: Saved::ByPrimaryKey,
            identity: identity::first_rows(&self.spec),
            is_read_whole: false,
        })
    }

    fn changelog(&self, wants_before: bool) -> Changelog {
        Changelog {
            needs_before: NeedsBefore::ByInput(vec![self.spec.takes_back]),
            emits: Emits::Changes(ChangelogMode {
                updates: self.spec.is_by_key(),
                befores: wants_before,
                deletes: self.spec.deletes(),
            }),
        }
    }

    fn settle(&mut self, wants_before: bool) {
        self.spec.emits_before = wants_before;
    }

    fn growth(&self, _: &str) -> Vec<Growth> {
        if self.spec.retention_us.is_some() {
            return Vec::new();
        }
        let names = names(&self.spec.partition, &self.spec.input);
        vec![Growth {
            input: None,
            keeps: format!(
                "the query replaces its rows by other columns than PRIMARY KEY ({names}), so all of them \
                are kept forever"
            ),
            bound: Bound::StateTtl,
        }]
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            order: Order::Seen,
            sorted: Sorted::No,
            orders_by_origin: false,
            may_be_dealt: false,
            first_input: None,
            behind: Behind::ByWindow,
            rejects_input_rows: false,
            emission: Emission::OnInput,
            judges: None,
            assigns: None,
            retention_us: self.spec.retention_us,
            combines: None,
            cost: Cost::of(10_000.0, 500.0, Cost::ROWS_OUT_STATE),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        Ok(Operator::stateful(TopN::new(self.spec.clone())?))
    }
}

impl Translator<'_> {
    /// Adds a node that keeps one row for each value of the columns `key`, which are not those by which the
    /// query replaces its rows.
    pub(super) fn by_primary_key(&mut self, node: usize, key: &[usize]) -> usize {
        let schema = self.schema(node);
        // In descending order, and NULL last.
        let greatest = SortOptions {
            descending: true,
            nulls_first: false,
        };
        let others = (0..schema.fields().len()).filter(|column| !key.contains(column));
        let spec = TopNSpec {
            partition: key.to_vec(),
            window: None,
            order: others.map(|column| (column, greatest)).collect(),
            limit: 1,
            has_rank: false,
            takes_back: true,
            emits_before: false,
            retention_us: self.session.settings.state_ttl_us,
            input: schema.clone(),
            schema,
        };
        let detail = detail(&spec);
        let key = format!("materialise {spec:?}");
        let by_primary_key = ByPrimaryKeyNode { spec };
        self.operator("by primary key", detail, &[node], by_primary_key, &key)
    }
}

/// The node's description in EXPLAIN.
fn detail(spec: &TopNSpec) -> String {
    let names = spec.partition.iter();
    let names = names.map(|&column| readable(spec.input.field(column).name()));
    let names = names.collect::<Vec<_>>().join(", ");
    format!("one row for each {names}: the greatest of several")
}
