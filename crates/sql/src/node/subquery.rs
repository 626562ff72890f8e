//! Where the hint SUBQUERY begins a subquery: rows pass unchanged, and change to another instance.

use arrow_schema::SchemaRef;
use datafusion_expr::logical_plan::Filter;
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{Expr, LogicalPlan};
use slackwater_control::query::Exchange;
use slackwater_engine::chunk::Chunk;
use slackwater_engine::operator::{Operator, Output, Stateless};

use super::facts::{Behind, Changelog, Cost, Emission, Facts, Growth, Node, Order, Sorted, State};
use super::stream::Stream;
use super::top_n;
use super::translator::{Needs, Translation, Translator};
use crate::error::Result;
use crate::names::SUBQUERY_MARK;

/// The mark of the hint.
pub const TRANSLATION: Translation = Translation {
    needs: |_| Needs::NOTHING,
    translate,
};

/// The head of a subquery that a hint begins.
pub struct SubqueryNode {
    /// The columns of the rows.
    pub schema: SchemaRef,
}

impl Node for SubqueryNode {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn exchange(&self, _: usize) -> Exchange {
        Exchange::Apart
    }

    fn state(&self) -> Option<State> {
        None
    }

    fn changelog(&self, _: bool) -> Changelog {
        Changelog::as_input()
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
            rejects_input_rows: false,
            emission: Emission::OnInput,
            judges: None,
            assigns: None,
            retention_us: None,
            combines: None,
            cost: Cost::of(500.0, 1.0, 1.0),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        Ok(Operator::stateless(Pass))
    }
}

/// Passes chunks on.
struct Pass;

impl Stateless for Pass {
    fn process(&mut self, chunk: Chunk, output: &mut Output) -> slackwater_engine::Result<()> {
        output.emit(chunk);
        Ok(())
    }
}

/// The name of the subquery that a condition marks.
fn marked(condition: &Expr) -> Option<&str> {
    let Expr::ScalarFunction(call) = condition else {
        return None;
    };
    match call.args.as_slice() {
        [Expr::Literal(name, _)] if call.name() == SUBQUERY_MARK => name.try_as_str().flatten(),
        _ => None,
    }
}

fn translate(translator: &mut Translator<'_>, plan: &LogicalPlan) -> Result<Option<Stream>> {
    let LogicalPlan::Filter(filter) = plan else {
        return Ok(None);
    };
    let conditions = split_conjunction(&filter.predicate);
    let mut marks = conditions.iter().copied().filter_map(marked);
    let Some(name) = marks.next() else {
        return Ok(None);
    };
    // Other conditions have been moved here from the SELECT with the hint: they belong to its subquery.
    let others = conditions.iter().filter(|other| marked(other).is_none());
    let Some(condition) = conjunction(others.map(|other| (*other).clone())) else {
        let input = translator.translate(&filter.input)?;
        return Ok(Some(translator.begin_subquery(input, name)));
    };
    // A condition on ROW_NUMBER() is one operator with what is below it.
    let rest = LogicalPlan::Filter(Filter::try_new(condition.clone(), filter.input.clone())?);
    if let Some(first) = (top_n::TRANSLATION.translate)(translator, &rest)? {
        return Ok(Some(translator.begin_subquery(first, name)));
    }
    let input = translator.translate(&filter.input)?;
    let input = translator.begin_subquery(input, name);
    translator
        .filter(input, &condition, &filter.input)
        .map(Some)
}

impl Translator<'_> {
    /// The stream of `input` in a subquery of its own.
    fn begin_subquery(&mut self, input: Stream, name: &str) -> Stream {
        let schema = self.schema(input.node);
        let key = format!("subquery {name:?}");
        let detail = name.to_string();
        let node = self.operator(
            "subquery",
            detail,
            &[input.node],
            SubqueryNode { schema },
            &key,
        );
        Stream { node, ..input }
    }
}
