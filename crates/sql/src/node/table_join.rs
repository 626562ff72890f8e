//! Joins of a stream with a table that ends and has no event time.

use arrow_schema::SchemaRef;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::LogicalPlan;
use datafusion_expr::logical_plan::Join;
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::join::JoinKind;
use slackwater_engine::operator::table_join::{STREAM, TABLE, TableJoin, TableJoinSpec};

use super::beside_table::{Sides, detail};
use super::facts::{
    Behind, Changelog, Cost, Emission, Emits, Facts, Growth, NeedsBefore, Node, Order, Sorted,
    State,
};
use super::pair::plans;
use super::semi_join;
use super::stream::Stream;
use super::translator::Translator;
use crate::error::Result;
use crate::table::TableHandle;

/// A join of a stream with a table that ends.
pub struct TableJoinNode {
    /// The keys and condition of the join.
    pub spec: TableJoinSpec,
    /// The columns of the output: only the stream's for semi and anti joins.
    pub schema: SchemaRef,
}

impl Node for TableJoinNode {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn exchange(&self, input: usize) -> Exchange {
        match input == STREAM {
            true => Exchange::Forward,
            false => Exchange::Broadcast,
        }
    }

    fn state(&self) -> Option<State> {
        // The table is read again.
        None
    }

    fn changelog(&self, _: bool) -> Changelog {
        match self.spec.only {
            None => Changelog::as_input(),
            // As for a filter: an updated row may lose its partner.
            Some(_) => Changelog {
                needs_before: NeedsBefore::Always,
                emits: Emits::Filtered,
            },
        }
    }

    fn settle(&mut self, _: bool) {}

    fn growth(&self, _: &str) -> Vec<Growth> {
        Vec::new()
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            order: Order::AsOutput,
            sorted: Sorted::No,
            orders_by_origin: false,
            may_be_dealt: true,
            first_input: Some(TABLE),
            behind: Behind::AsInput,
            rejects_input_rows: false,
            emission: Emission::OnInput,
            judges: None,
            assigns: None,
            retention_us: None,
            combines: None,
            cost: Cost::of(5_000.0, 60.0, 1.0),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        Ok(Operator::stateful(TableJoin::new(self.spec.clone())))
    }
}

/// The side of a join that is the table, 0 for the left one; `None` if the join would keep rows of the table,
/// which are never complete: such a join retracts padded rows.
pub fn table_side(kind: JoinKind, may_be_table: [bool; 2]) -> Option<usize> {
    match (kind, may_be_table) {
        (JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti, [_, true]) => Some(1),
        (JoinKind::Inner | JoinKind::Right, [true, _]) => Some(0),
        _ => None,
    }
}

impl Translator<'_> {
    /// The reason why a plan can't be the table of a join; `None` if it can.
    pub(super) fn no_table(&self, plan: &LogicalPlan) -> Result<Option<String>> {
        let mut tables = Vec::new();
        let mut is_aggregated = false;
        plan.apply(|part| {
            is_aggregated |= matches!(part, LogicalPlan::Aggregate(_) | LogicalPlan::Window(_));
            if let LogicalPlan::TableScan(scan) = part
                && let Some(handle) = scan.source.downcast_ref::<TableHandle>()
            {
                tables.push(handle.0.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        if is_aggregated {
            return Ok(Some("it is aggregated".to_string()));
        }
        for table in tables {
            let name = &table.name;
            if table.event_time.is_some() {
                return Ok(Some(format!("'{name}' has a WATERMARK")));
            }
            if !self.connectors.source(&table)?.describe().bounded {
                return Ok(Some(format!("'{name}' may never end")));
            }
        }
        Ok(None)
    }

    /// A join whose side `table_side` is read to its end first.
    pub(super) fn table_join(
        &mut self,
        join: &Join,
        kind: JoinKind,
        table_side: usize,
    ) -> Result<Stream> {
        let stream_side = 1 - table_side;
        let stream = self.translate(plans(join)[stream_side])?;
        self.depth += 1;
        let table = self.translate(plans(join)[table_side]);
        self.depth -= 1;
        let sides = Sides {
            join,
            stream_side,
            streams: [stream, table?],
        };
        let keeps_unmatched = matches!(kind, JoinKind::Left | JoinKind::Right);
        let only = semi_join::only(join, kind)?;
        let mut beside = self.beside(&sides, keeps_unmatched, join.filter.as_ref(), None)?;
        beside.spec.only = only;
        let spec = beside.spec.clone();
        let detail = detail(&spec, &beside.stream);
        let key = format!("table join {spec:?}");
        let schema = match only.is_some() {
            true => beside.stream.clone(),
            false => spec.schema.clone(),
        };
        let table_join = TableJoinNode { spec, schema };
        Ok(self.joined("table join", detail, table_join, &key, sides, beside))
    }
}
