//! Removes rows that are too late for OVER, interval joins, joins with versions and count windows.

use arrow_schema::SchemaRef;
use datafusion_expr::{Expr, LogicalPlan};
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::drop_late::{DropLate, Late};
use slackwater_engine::operator::late_rows::Lateness;

use super::facts::{Behind, Changelog, Cost, Emission, Facts, Growth, Node, Order, Sorted, State};
use super::stream::{Role, Stream};
use super::translator::{Needs, Translation, Translator};
use crate::error::{Result, SqlError};
use crate::expression::column_index;
use crate::prune::InTimeNode;

/// Late rows of an OVER whose results are never read.
pub const TRANSLATION: Translation = Translation {
    needs: |plan| Needs {
        late_at_watermark: in_time(plan).is_some(),
        ..Needs::NOTHING
    },
    translate,
};

/// Removes late rows.
pub struct DropLateNode {
    /// The index of the event-time column.
    pub time_column: usize,
    /// Which rows are late.
    pub late: Late,
    /// The columns of the rows.
    pub schema: SchemaRef,
}

impl Node for DropLateNode {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn exchange(&self, _: usize) -> Exchange {
        Exchange::Forward
    }

    fn state(&self) -> Option<State> {
        None
    }

    fn changelog(&self, _: bool) -> Changelog {
        Changelog::appends()
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
            may_be_dealt: false,
            first_input: None,
            behind: Behind::AsInput,
            rejects_input_rows: true,
            emission: Emission::OnInput,
            judges: Some(match self.late {
                Late::Before => Lateness::Time,
                Late::At => Lateness::AtTime,
            }),
            assigns: None,
            retention_us: None,
            combines: None,
            cost: Cost::of(500.0, 0.0, 1.0),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        Ok(Operator::stateless(DropLate::new(
            self.time_column,
            self.late,
        )))
    }
}

fn in_time(plan: &LogicalPlan) -> Option<&InTimeNode> {
    match plan {
        LogicalPlan::Extension(extension) => InTimeNode::of(extension),
        _ => None,
    }
}

fn translate(translator: &mut Translator<'_>, plan: &LogicalPlan) -> Result<Option<Stream>> {
    let Some(node) = in_time(plan) else {
        return Ok(None);
    };
    let plan = &node.input;
    let mut stream = translator.translate(plan)?;
    let index = plan.schema().index_of_column(&node.time)?;
    // Only an order by event time makes rows late.
    let time = Expr::Column(node.time.clone());
    if stream.updates || translator.role(&time, &stream, plan)? != Role::Time {
        return Ok(Some(stream));
    }
    if column_index(&stream.columns[index]).is_none() {
        stream = translator.settle(stream, plan)?;
    }
    let place = column_index(&stream.columns[index]);
    let place =
        place.ok_or_else(|| SqlError::new(format!("'{}' is not computed yet", node.time.name)))?;
    stream.node = translator.drop_late(stream.node, place, Late::At);
    Ok(Some(stream))
}

impl Translator<'_> {
    /// Adds a node that removes the late rows of `node`.
    pub(super) fn drop_late(&mut self, node: usize, time_column: usize, late: Late) -> usize {
        let schema = self.schema(node);
        let detail = format!("by {}", schema.field(time_column).name());
        let key = format!("drop late {time_column} {late:?}");
        let drop_late = DropLateNode {
            time_column,
            late,
            schema,
        };
        self.operator("drop late", detail, &[node], drop_late, &key)
    }
}
