//! Filters.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use datafusion_common::ScalarValue;
use datafusion_expr::{Expr, LogicalPlan};
use slackwater_control::query::Exchange;
use slackwater_engine::expression::Expression;
use slackwater_engine::operator::{Operator, filter};

use super::facts::{
    Behind, Changelog, Cost, Emission, Emits, Facts, Growth, NeedsBefore, Node, Order, Sorted,
    State,
};
use super::stream::Stream;
use super::translator::{Needs, Translation, Translator};
use crate::error::Result;
use crate::explain;
use crate::expression::{Physical, PhysicalExpression};

/// WHERE and HAVING.
pub const TRANSLATION: Translation = Translation {
    needs: |_| Needs::NOTHING,
    translate,
};

/// The assumed fraction of rows that meet a condition, until it is measured.
const ROWS_OUT: f64 = 0.5;

/// A filter.
pub struct FilterNode {
    /// The condition that rows must meet.
    pub condition: Arc<dyn Expression>,
    /// The columns of the rows.
    pub schema: SchemaRef,
}

impl Node for FilterNode {
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
        Changelog {
            // An updated row that no longer meets the condition is deleted.
            needs_before: NeedsBefore::Always,
            emits: Emits::Filtered,
        }
    }

    fn settle(&mut self, _: bool) {}

    fn growth(&self, _: &str) -> Vec<Growth> {
        Vec::new()
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            order: Order::AsOutput,
            sorted: Sorted::AsInput,
            orders_by_origin: false,
            may_be_dealt: false,
            first_input: None,
            behind: Behind::AsInput,
            rejects_input_rows: true,
            emission: Emission::OnInput,
            judges: None,
            assigns: None,
            retention_us: None,
            combines: None,
            cost: Cost::of(2_000.0, 5.0, ROWS_OUT),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        Ok(Operator::stateless(filter::Filter::new(
            self.condition.clone(),
        )))
    }
}

fn translate(translator: &mut Translator<'_>, plan: &LogicalPlan) -> Result<Option<Stream>> {
    let LogicalPlan::Filter(filter) = plan else {
        return Ok(None);
    };
    let input = translator.translate(&filter.input)?;
    // An optimizer rule has removed the condition of a join.
    if is_true(&filter.predicate) {
        return Ok(Some(input));
    }
    let filtered = translator.filter(input, &filter.predicate, &filter.input)?;
    Ok(Some(filtered))
}

/// Whether a condition is always true.
pub fn is_true(condition: &Expr) -> bool {
    matches!(
        condition,
        Expr::Literal(ScalarValue::Boolean(Some(true)), _)
    )
}

impl Translator<'_> {
    /// The rows of `input`, the stream of `plan`, that meet a condition.
    pub(super) fn filter(
        &mut self,
        input: Stream,
        predicate: &Expr,
        plan: &LogicalPlan,
    ) -> Result<Stream> {
        let condition = self.bind(predicate, &input, plan)?;
        self.filter_by(input, condition)
    }

    /// The rows of `input` that meet a condition over its node.
    pub(super) fn filter_by(&mut self, input: Stream, condition: Physical) -> Result<Stream> {
        let schema = self.schema(input.node);
        let detail = explain::expression(&condition);
        let condition = PhysicalExpression::over(condition, &schema)?;
        let key = format!("filter {condition:?}");
        let filter = FilterNode { condition, schema };
        let node = self.operator("filter", detail, &[input.node], filter, &key);
        // An updated row that no longer meets the condition is deleted.
        let deletes = input.updates;
        Ok(Stream {
            node,
            deletes,
            ..input
        })
    }
}
