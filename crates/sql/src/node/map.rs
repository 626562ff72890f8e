//! Projections. A projection needs no operator of its own: its expressions are evaluated where their values
//! are used. Only values that are used more than once, or must be columns, are computed before.

use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::logical_plan::Projection;
use datafusion_expr::{Expr, LogicalPlan};
use slackwater_control::query::Exchange;
use slackwater_engine::expression::Expression;
use slackwater_engine::operator::{Operator, map};

use super::facts::{Behind, Changelog, Cost, Emission, Facts, Growth, Node, Order, Sorted, State};
use super::stream::Stream;
use super::translator::{Needs, Translation, Translator};
use crate::as_of;
use crate::error::Result;
use crate::explain;
use crate::expression::{Physical, PhysicalExpression, column, column_index, uncast};

/// Projections and aliases.
pub const TRANSLATION: Translation = Translation {
    needs: |_| Needs::NOTHING,
    translate,
};

/// A projection.
pub struct MapNode {
    /// The expression of each column.
    pub expressions: Vec<Arc<dyn Expression>>,
    /// The columns of the output.
    pub schema: SchemaRef,
}

impl Node for MapNode {
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
        Changelog::as_input()
    }

    fn settle(&mut self, _: bool) {}

    fn growth(&self, _: &str) -> Vec<Growth> {
        Vec::new()
    }

    fn facts(&self) -> Facts<'_> {
        let columns = self.expressions.iter();
        Facts {
            order: Order::AsOutput,
            sorted: Sorted::Moved(columns.map(|expression| expression.column()).collect()),
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
            cost: Cost::of(2_000.0, 5.0, 1.0),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        let map = map::Map::new(self.expressions.clone(), self.schema.clone());
        Ok(Operator::stateless(map))
    }
}

fn translate(translator: &mut Translator<'_>, plan: &LogicalPlan) -> Result<Option<Stream>> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => translator.translate(&alias.input).map(Some),
        LogicalPlan::Extension(extension) if as_of::VersionsNode::is(extension) => {
            translator.translate(extension.node.inputs()[0]).map(Some)
        }
        LogicalPlan::Projection(projection) => {
            let input = translator.translate(&projection.input)?;
            translator.projection(input, projection, plan).map(Some)
        }
        _ => Ok(None),
    }
}

impl Translator<'_> {
    /// The stream of a projection; `plan` is the projection itself.
    pub(super) fn projection(
        &mut self,
        input: Stream,
        projection: &Projection,
        plan: &LogicalPlan,
    ) -> Result<Stream> {
        let stream = self.project(input, &projection.expr, &projection.input)?;
        // A volatile expression is computed once, however often its value is used.
        match projection.expr.iter().any(Expr::is_volatile) {
            true => self.settle(stream, plan),
            false => Ok(stream),
        }
    }

    /// The values of expressions over a plan. A computed column that is used more than once is computed by a
    /// node below.
    pub(super) fn project(
        &mut self,
        mut input: Stream,
        expressions: &[Expr],
        plan: &LogicalPlan,
    ) -> Result<Stream> {
        let mut uses = vec![0; input.columns.len()];
        for expression in expressions {
            expression.apply(|part| {
                if let Expr::Column(column) = part {
                    uses[plan.schema().index_of_column(column)?] += 1;
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        let mut used = uses.iter().zip(&input.columns);
        if used.any(|(&uses, column)| uses > 1 && column_index(column).is_none()) {
            input = self.settle(input, plan)?;
        }
        let mut columns = Vec::new();
        let mut roles = Vec::new();
        for expression in expressions {
            columns.push(self.bind(expression, &input, plan)?);
            roles.push(self.role(expression, &input, plan)?);
        }
        // A key that is cast to a wider type is still a key.
        let projected = |key: &Vec<Physical>| {
            let places = key.iter().map(|of_key| {
                let mut columns = columns.iter();
                let schema = self.specs[input.node].schema();
                columns.find(|column| uncast(column, schema) == of_key)
            });
            places.map(|column| column.cloned()).collect()
        };
        let key = input.key.as_ref().and_then(projected);
        let unique = input.unique.iter().filter_map(projected).collect();
        Ok(Stream {
            columns,
            roles,
            key,
            unique,
            ..input
        })
    }

    /// The stream with every column computed by a node, and without any other column.
    pub(super) fn settle(&mut self, stream: Stream, plan: &LogicalPlan) -> Result<Stream> {
        let names = plan.schema().fields().iter();
        let names = names.map(|field| field.name().clone()).collect::<Vec<_>>();
        let time = stream.time.as_ref().filter(|_| self.needs.event_time);
        let time_index =
            time.and_then(|time| stream.columns.iter().position(|column| column == time));
        let extra = time.filter(|_| time_index.is_none());
        let node = self.materialise(&stream, &stream.columns, &names, extra)?;
        let schema = self.schema(node);
        let time = time.map(|_| column(time_index.unwrap_or(names.len()), &schema));
        let settled = |key: &Vec<Physical>| {
            let places = key.iter();
            let places = places.map(|of_key| stream.columns.iter().position(|c| c == of_key));
            places.map(|at| Some(column(at?, &schema))).collect()
        };
        let key = stream.key.as_ref().and_then(settled);
        let unique = stream.unique.iter().filter_map(settled).collect();
        let columns = (0..names.len())
            .map(|index| column(index, &schema))
            .collect();
        Ok(Stream {
            node,
            columns,
            time,
            key,
            unique,
            ..stream
        })
    }

    /// Adds a node whose columns are the given expressions over the stream, followed by `extra`.
    pub(super) fn materialise(
        &mut self,
        stream: &Stream,
        columns: &[Physical],
        names: &[String],
        extra: Option<&Physical>,
    ) -> Result<usize> {
        let input = self.schema(stream.node);
        let mut fields = Vec::new();
        let mut expressions = Vec::new();
        let named = columns.iter().zip(names.iter().map(String::as_str));
        for (expression, name) in named.chain(extra.map(|extra| (extra, "event_time"))) {
            fields.push(Field::new(name, expression.data_type(&input)?, true));
            expressions.push(expression.clone());
        }
        if is_identical(&expressions, &fields, &input) {
            return Ok(stream.node);
        }
        let detail = detail(&expressions, &fields);
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let expressions = expressions
            .into_iter()
            .map(|expression| PhysicalExpression::over(expression, &input))
            .collect::<Result<Vec<Arc<dyn Expression>>>>()?;
        let key = format!("map {expressions:?} {:?}", schema.fields());
        let map = MapNode {
            expressions,
            schema,
        };
        Ok(self.operator("map", detail, &[stream.node], map, &key))
    }
}

/// Whether the expressions are exactly the columns of the input.
fn is_identical(expressions: &[Physical], fields: &[Field], input: &Schema) -> bool {
    let mut columns = expressions.iter().enumerate();
    let mut names = fields.iter().zip(input.fields());
    fields.len() == input.fields().len()
        && columns.all(|(index, expression)| column_index(expression) == Some(index))
        && names.all(|(field, before)| field.name() == before.name())
}

/// The node's description in EXPLAIN.
fn detail(expressions: &[Physical], fields: &[Field]) -> String {
    let shown = expressions.iter().zip(fields).map(|(expression, field)| {
        let (shown, name) = (
            explain::expression(expression),
            explain::readable(field.name()),
        );
        if name.ends_with(&shown) {
            name
        } else {
            format!("{shown} AS {name}")
        }
    });
    shown.collect::<Vec<_>>().join(", ")
}
