//! Reads that need no query: rows by all columns of their key, and constant rows; filtered and computed on.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use datafusion_common::ScalarValue;
use datafusion_common::tree_node::TreeNode;
use datafusion_expr::logical_plan::TableScan;
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use slackwater_engine::expression::Expression;

use super::constants::constant_of;
use crate::expression::{PhysicalExpression, physical};
use crate::table::TableHandle;

/// The keys of tables, by name.
pub type Keys = HashMap<String, Vec<usize>>;

/// A read that needs no query.
#[derive(Debug, Clone)]
pub struct Direct {
    from: From,
    steps: Vec<Step>,
    schema: SchemaRef,
}

/// Where its rows come from.
#[derive(Debug, Clone)]
pub enum From {
    /// Rows that stand in the statement, by number.
    Constant(usize),
    /// The rows of a table with a key.
    Key {
        /// The table.
        table: String,
        /// The values of the columns of the key, in the order of the key.
        values: Vec<Value>,
    },
}

/// The value of a column of the key.
#[derive(Debug, Clone)]
pub enum Value {
    /// A constant.
    Constant(ScalarValue),
    /// A parameter, counted from 0.
    Parameter(usize),
}

#[derive(Debug, Clone)]
enum Step {
    /// Only these columns.
    Columns(Vec<usize>),
    /// Only rows for which this is true.
    Filter(Arc<dyn Expression>),
    /// Computed columns.
    Project(Arc<[Arc<dyn Expression>]>, SchemaRef),
}

impl Direct {
    /// Where the rows come from.
    pub fn from(&self) -> &From {
        &self.from
    }

    /// The columns of the result.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The key that is looked up, a column for each of its parts; `None` if a part is NULL, which no row
    /// equals.
    ///
    /// # Errors
    ///
    /// If a column of the key can't be made.
    pub fn key(&self, values: &[ScalarValue]) -> slackwater_engine::Result<Option<Vec<ArrayRef>>> {
        let From::Key { values: key, .. } = &self.from else {
            return Ok(None);
        };
        let key = key.iter().map(|value| match value {
            Value::Constant(value) => value,
            Value::Parameter(at) => &values[*at],
        });
        let key = key.collect::<Vec<&ScalarValue>>();
        if key.iter().any(|value| value.is_null()) {
            return Ok(None);
        }
        let column = |value: &ScalarValue| {
            let column = value.to_array_of_size(1);
            column.map_err(|error| slackwater_engine::Error::new("key", error.to_string()))
        };
        let columns = key.into_iter().map(column);
        let columns = columns.collect::<slackwater_engine::Result<Vec<ArrayRef>>>();
        columns.map(Some)
    }

    /// The result, of the rows that were looked up.
    ///
    /// # Errors
    ///
    /// If an expression fails for one of them.
    pub fn rows(&self, mut batch: RecordBatch) -> slackwater_engine::Result<RecordBatch> {
        for step in &self.steps {
            batch = match step {
                Step::Columns(columns) => batch.project(columns)?,
                Step::Filter(condition) => {
                    let kept = condition.evaluate(&batch)?;
                    filter_record_batch(&batch, kept.as_boolean())?
                }
                Step::Project(columns, schema) => {
                    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                    let columns = columns.iter().map(|column| column.evaluate(&batch));
                    let columns = columns.collect::<slackwater_engine::Result<Vec<ArrayRef>>>()?;
                    RecordBatch::try_new_with_options(schema.clone(), columns, &rows)?
                }
            };
        }
        Ok(batch)
    }
}

/// The read without a query, if the optimized plan needs none.
pub fn of(plan: &LogicalPlan, keys: &Keys) -> Option<Direct> {
    match plan {
        LogicalPlan::TableScan(scan) => of_scan(scan, None, keys),
        LogicalPlan::SubqueryAlias(alias) => {
            let direct = of(&alias.input, keys)?;
            Some(Direct {
                schema: arrow(plan),
                ..direct
            })
        }
        LogicalPlan::Filter(filter) => match filter.input.as_ref() {
            LogicalPlan::TableScan(scan) => of_scan(scan, Some(&filter.predicate), keys),
            input => {
                let mut direct = of(input, keys)?;
                direct.steps.push(condition(&filter.predicate, input)?);
                Some(direct)
            }
        },
        LogicalPlan::Projection(projection) => {
            let mut direct = of(&projection.input, keys)?;
            let columns = projection.expr.iter();
            let columns = columns.map(|column| expression(column, &projection.input));
            direct.schema = arrow(plan);
            let columns = columns.collect::<Option<Vec<_>>>()?;
            let fields = direct.schema.fields().iter().zip(&columns);
            let fields = fields.map(|(field, column)| {
                let field = field.as_ref().clone().with_data_type(column.data_type());
                field.with_nullable(true)
            });
            direct.schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
            let step = Step::Project(columns.into(), direct.schema.clone());
            direct.steps.push(step);
            Some(direct)
        }
        _ => None,
    }
}

fn arrow(plan: &LogicalPlan) -> SchemaRef {
    Arc::new(plan.schema().as_arrow().clone())
}

/// An expression over the rows of a plan, without parameters.
fn expression(expression: &Expr, input: &LogicalPlan) -> Option<Arc<dyn Expression>> {
    let is_open = expression.exists(|part| Ok(matches!(part, Expr::Placeholder(_))));
    if is_open.ok()? {
        return None;
    }
    let computed = physical(expression, input.schema()).ok()?;
    PhysicalExpression::over(computed, &arrow(input)).ok()
}

fn condition(predicate: &Expr, input: &LogicalPlan) -> Option<Step> {
    expression(predicate, input).map(Step::Filter)
}

fn of_scan(scan: &TableScan, predicate: Option<&Expr>, keys: &Keys) -> Option<Direct> {
    let handle = scan.source.downcast_ref::<TableHandle>()?;
    let table = &handle.0;
    let conditions = predicate.map_or(Vec::new(), split_conjunction);
    let (from, rest) = match constant_of(table) {
        Some(number) => (From::Constant(number), conditions),
        None => by_key(scan, conditions, keys.get(&table.name)?)?,
    };
    let mut steps = Vec::new();
    if let Some(projection) = &scan.projection {
        steps.push(Step::Columns(projection.clone()));
    }
    let input = LogicalPlan::TableScan(scan.clone());
    if let Some(rest) = conjunction(rest.into_iter().cloned()) {
        steps.push(condition(&rest, &input)?);
    }
    Some(Direct {
        from,
        steps,
        schema: arrow(&input),
    })
}

/// The values of all columns of the key, and the other conditions.
fn by_key<'e>(
    scan: &TableScan,
    conditions: Vec<&'e Expr>,
    key: &[usize],
) -> Option<(From, Vec<&'e Expr>)> {
    let schema = scan.source.schema();
    let mut values = vec![None; key.len()];
    let mut rest = Vec::new();
    for condition in conditions {
        let place = equality(condition).and_then(|(name, value)| {
            let column = schema.index_of(name).ok()?;
            let place = key.iter().position(|of_key| *of_key == column)?;
            Some((place, value_of(value, schema.field(column).data_type())?))
        });
        match place {
            Some((place, value)) if values[place].is_none() => values[place] = Some(value),
            _ => rest.push(condition),
        }
    }
    let values = values.into_iter().collect::<Option<Vec<Value>>>()?;
    let table = scan.table_name.table().to_string();
    Some((From::Key { table, values }, rest))
}

/// The column and the value of `column = value`.
fn equality(condition: &Expr) -> Option<(&str, &Expr)> {
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::Eq,
        right,
    }) = condition
    else {
        return None;
    };
    match (left.as_ref(), right.as_ref()) {
        (Expr::Column(column), value) | (value, Expr::Column(column)) => {
            Some((&column.name, value))
        }
        _ => None,
    }
}

/// The value of a column of the key. Floating-point numbers are left to a query: 0 = -0, though their bits
/// differ.
fn value_of(value: &Expr, data_type: &DataType) -> Option<Value> {
    let is_text = |data_type: &DataType| {
        matches!(
            data_type,
            DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8
        )
    };
    if data_type.is_floating() || data_type.is_nested() {
        return None;
    }
    match value {
        Expr::Literal(value, _) => {
            let own = value.data_type();
            let is_same = own == *data_type || (is_text(&own) && is_text(data_type));
            let value = is_same.then(|| value.cast_to(data_type).ok())??;
            Some(Value::Constant(value))
        }
        Expr::Placeholder(parameter) => {
            let own = parameter.field.as_ref()?.data_type();
            let number = parameter.id.strip_prefix('$')?.parse::<usize>().ok()?;
            (own == data_type).then(|| Value::Parameter(number - 1))
        }
        _ => None,
    }
}
