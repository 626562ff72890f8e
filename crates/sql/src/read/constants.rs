//! VALUES and SELECT without FROM: rows that stand in the statement, as tables.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int8Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion_common::ScalarValue;
use datafusion_common::tree_node::Transformed;
use datafusion_expr::logical_plan::Values;
use datafusion_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, col};
use sqlparser::tokenizer::Span;

use super::CONNECTOR;
use crate::error::Result;
use crate::expression::constant;
use crate::table::{Table, TableColumn, TableHandle};

/// The connector of rows that stand in a statement.
const VALUES: &str = "values";

/// Which constant rows a table stands for, if it does.
pub fn constant_of(table: &Table) -> Option<usize> {
    let is_it = table.options.get(CONNECTOR)? == VALUES;
    is_it.then(|| table.options.get(VALUES)?.parse().ok())?
}

/// The plan with tables in place of VALUES and of the one row of a SELECT without FROM, and their rows.
pub fn taken_out(plan: LogicalPlan) -> Result<(LogicalPlan, Vec<RecordBatch>)> {
    let mut taken = Vec::new();
    let plan = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::EmptyRelation(empty) if empty.produce_one_row => {
            let field = Field::new("row", DataType::Int8, false);
            let row = Arc::new(Int8Array::from(vec![0])) as ArrayRef;
            let row = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![row])?;
            let scan = scan(row, &mut taken)?.build()?;
            Ok(Transformed::yes(scan))
        }
        LogicalPlan::Values(values) => {
            let rows = rows(&values)?;
            let names = rows.schema();
            let scan = scan(rows, &mut taken)?;
            let columns = names.fields().iter();
            let columns = columns.map(|field| col(field.name()).alias(field.name()));
            let named = scan.project(columns.collect::<Vec<Expr>>())?.build()?;
            Ok(Transformed::yes(named))
        }
        node => Ok(Transformed::no(node)),
    })?;
    Ok((plan.data, taken))
}

/// The rows of VALUES.
fn rows(values: &Values) -> datafusion_common::Result<RecordBatch> {
    let schema: SchemaRef = Arc::new(values.schema.as_arrow().clone());
    let column = |at: usize| {
        let data_type = schema.field(at).data_type();
        let of_rows = values.values.iter();
        let of_rows = of_rows.map(|row| constant(&cast(row[at].clone(), data_type.clone())));
        let of_rows = of_rows.collect::<datafusion_common::Result<Vec<_>>>()?;
        ScalarValue::iter_to_array(of_rows)
    };
    let columns = (0..schema.fields().len()).map(column);
    let columns = columns.collect::<datafusion_common::Result<Vec<ArrayRef>>>()?;
    Ok(RecordBatch::try_new(schema, columns)?)
}

fn scan(
    rows: RecordBatch,
    taken: &mut Vec<RecordBatch>,
) -> datafusion_common::Result<LogicalPlanBuilder> {
    let (number, schema) = (taken.len(), rows.schema());
    let options = [
        (CONNECTOR.to_string(), VALUES.to_string()),
        (VALUES.to_string(), number.to_string()),
    ];
    let table = Table {
        name: format!("VALUES {number}"),
        physical: schema.clone(),
        metadata: Default::default(),
        columns: (0..schema.fields().len())
            .map(TableColumn::Physical)
            .collect(),
        schema,
        event_time: None,
        primary_key: Vec::new(),
        not_null: Default::default(),
        comment: None,
        column_comments: Default::default(),
        options: options.into(),
        option_places: Default::default(),
        span: Span::empty(),
    };
    let name = table.name.clone();
    taken.push(rows);
    let source = Arc::new(TableHandle(Arc::new(table)));
    let reference = datafusion_common::TableReference::bare(name);
    LogicalPlanBuilder::scan(reference, source, None)
}
