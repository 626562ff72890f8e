//! From `CREATE TABLE` to a table: its columns, the plans of computed ones, its event time and its key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion_common::{DFSchema, DataFusionError};
use datafusion_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableSource};
use sqlparser::ast::{BinaryOperator, Expr as AstExpr};

use super::Session;
use crate::error::{Result, SqlError, nearest};
use crate::statement::{ColumnKind, CreateTable};
use crate::table::{Table, TableColumn};
use crate::types::sql_name;
use crate::window::interval_ns;

/// The maximum delay of a watermark, 1,000 years: longer ones are mistakes, and would overflow event times.
const DELAY_MAX_US: i64 = 1000 * 366 * 86_400 * 1_000_000;

impl Session {
    /// The table that a statement declares.
    pub fn declared(&self, create: &CreateTable) -> Result<Table> {
        let mut physical = Vec::new();
        let mut metadata = BTreeMap::new();
        let mut not_null = BTreeSet::new();
        for column in &create.columns {
            if column.not_null {
                not_null.insert(physical.len());
            }
            if let ColumnKind::Metadata(_, key) = &column.kind {
                metadata.insert(physical.len(), key.clone());
            }
            if let ColumnKind::Physical(sql_type) | ColumnKind::Metadata(sql_type, _) = &column.kind
            {
                let data_type = sql_type
                    .to_arrow()
                    .map_err(|error| error.at(column.name.span))?;
                physical.push(Field::new(&column.name.value, data_type, true));
            }
        }
        let physical = Arc::new(Schema::new(physical));
        let mut fields = Vec::new();
        let mut columns: Vec<TableColumn> = Vec::new();
        for column in &create.columns {
            let name = &column.name.value;
            match &column.kind {
                ColumnKind::Physical(_) | ColumnKind::Metadata(..) => {
                    let index = physical
                        .index_of(name)
                        .map_err(|error| SqlError::new(error.to_string()))?;
                    fields.push(physical.field(index).clone());
                    columns.push(TableColumn::Physical(index));
                }
                ColumnKind::Computed(expression) => {
                    let known = Known {
                        physical: &physical,
                        fields: &fields,
                        columns: &columns,
                    };
                    let computed = known
                        .compute(self, name, expression)
                        .map_err(|error| error.or_near(name))?;
                    fields.push(Field::new(name, computed.1, true));
                    columns.push(TableColumn::Computed(computed.0));
                }
            }
        }
        let schema = Arc::new(Schema::new(fields));
        let event_time = match &create.watermark {
            None => None,
            Some((column, expression)) => {
                let index = schema.index_of(&column.value).map_err(|_| {
                    let names = schema.fields().iter().map(|field| field.name().clone());
                    let names = names.collect::<Vec<_>>();
                    let error = SqlError::new(format!("there is no column '{}'", column.value))
                        .at(column.span);
                    match nearest(&column.value, &names) {
                        Some(near) => error.hint(format!("did you mean '{near}'?")),
                        None => error.hint(format!("the columns are: {}", names.join(", "))),
                    }
                })?;
                let data_type = schema.field(index).data_type();
                if !matches!(data_type, DataType::Timestamp(_, None)) {
                    return Err(SqlError::new(format!(
                        "event time must be a TIMESTAMP, and '{}' is {}",
                        column.value,
                        sql_name(data_type)
                    ))
                    .at(column.span)
                    .hint(time_of(&column.value, data_type)));
                }
                let delay_us = watermark_delay_us(self, &column.value, expression)
                    .map_err(|error| error.at(column.span))?;
                Some((index, delay_us))
            }
        };
        let primary_key = primary_key(&physical, create)?;
        Ok(Table {
            name: create.name.value.clone(),
            physical,
            metadata,
            schema,
            columns,
            event_time,
            primary_key,
            not_null,
            comment: create.comment.clone(),
            column_comments: create
                .columns
                .iter()
                .enumerate()
                .filter_map(|(index, column)| Some((index, column.comment.clone()?)))
                .collect(),
            options: create.options.clone(),
            option_places: create.option_places.clone(),
            span: create.name.span,
        })
    }
}

/// The hint how to turn a column into a TIMESTAMP.
fn time_of(column: &str, data_type: &DataType) -> String {
    // A name that the table does not use.
    let name = if column == "ts" { "event_time" } else { "ts" };
    let made = match data_type {
        DataType::Utf8View => {
            return format!(
                "add a computed column: {name} AS TO_TIMESTAMP({column}), and use it: WATERMARK FOR {name} \
                AS {name} \
                - INTERVAL '5' SECOND; for other formats use TO_TIMESTAMP({column}, 'dd.MM.yyyy HH:mm:ss')"
            );
        }
        DataType::Date32 => format!("CAST({column} AS TIMESTAMP(3))"),
        other if other.is_integer() => format!("TO_TIMESTAMP_LTZ({column}, 3)"),
        _ => "TO_TIMESTAMP_LTZ(ms, 3)".to_string(),
    };
    let unit = match data_type.is_integer() {
        true => " (3 for milliseconds, 0 for seconds)",
        false => "",
    };
    format!(
        "add a computed column: {name} AS {made}{unit}, and use it: WATERMARK FOR {name} AS {name} - \
        INTERVAL '5' SECOND"
    )
}

/// The columns of a PRIMARY KEY.
fn primary_key(physical: &SchemaRef, create: &CreateTable) -> Result<Vec<usize>> {
    let mut key = Vec::new();
    for name in &create.primary_key {
        let index = physical.index_of(&name.value).map_err(|_| {
            let declared = create.columns.iter();
            let is_computed = declared
                .map(|column| &column.name.value)
                .any(|n| n == &name.value);
            let known = physical.fields().iter().map(|field| field.name().clone());
            let known = known.collect::<Vec<String>>();
            if is_computed {
                return SqlError::new(format!(
                    "'{}' is a computed column, which can't be part of a PRIMARY KEY",
                    name.value
                ))
                .at(name.span)
                .hint("use columns that are read or written");
            }
            let error = SqlError::new(format!("there is no column '{}'", name.value)).at(name.span);
            match nearest(&name.value, &known) {
                Some(near) => error.hint(format!("did you mean '{near}'?")),
                None => error.hint(format!("the columns are: {}", known.join(", "))),
            }
        })?;
        if key.contains(&index) {
            let error = format!("'{}' is named twice in the PRIMARY KEY", name.value);
            return Err(SqlError::new(error).at(name.span));
        }
        key.push(index);
    }
    Ok(key)
}

struct Known<'a> {
    physical: &'a SchemaRef,
    fields: &'a [Field],
    columns: &'a [TableColumn],
}

impl Known<'_> {
    /// The expression over physical columns, and its type. It may use computed columns that are declared
    /// before it.
    fn compute(&self, session: &Session, name: &str, ast: &AstExpr) -> Result<(Expr, DataType)> {
        use datafusion_common::tree_node::{Transformed, TreeNode};
        // Physical columns may be declared after it.
        let mut fields = self.fields.to_vec();
        for field in self.physical.fields() {
            if !fields.iter().any(|known| known.name() == field.name()) {
                fields.push(field.as_ref().clone());
            }
        }
        let schema = DFSchema::try_from(Schema::new(fields))?;
        session.check_row_expression(ast)?;
        let expression = session.expression(ast, &schema)?;
        let expression = expression
            .transform(|part| match &part {
                Expr::Column(column) => {
                    let index = self
                        .fields
                        .iter()
                        .position(|field| field.name() == &column.name);
                    match index.map(|index| &self.columns[index]) {
                        // Computing it again would give another value.
                        Some(TableColumn::Computed(computed)) if computed.is_volatile() => {
                            Err(changing(&column.name))
                        }
                        Some(TableColumn::Computed(computed)) => {
                            Ok(Transformed::yes(computed.clone()))
                        }
                        _ => Ok(Transformed::no(part)),
                    }
                }
                _ => Ok(Transformed::no(part)),
            })?
            .data;
        let source = Arc::new(Physical(self.physical.clone()));
        let scan = LogicalPlanBuilder::scan("source", source, None)?;
        let plan = scan.project(vec![expression.alias(name)])?.build()?;
        let plan = session.analyse(plan)?;
        let data_type = plan.schema().field(0).data_type().clone();
        match plan {
            LogicalPlan::Projection(projection) => {
                let expression = projection.expr[0].clone().unalias();
                Ok((unqualify(expression)?, data_type))
            }
            _ => Err(SqlError::new("the expression can't be computed")),
        }
    }
}

fn changing(column: &str) -> DataFusionError {
    let error = SqlError::new(format!(
        "'{column}' has another value each time it is computed, so other columns can't be computed \
        from it"
    ));
    let error = error.hint("compute the other column in a view");
    DataFusionError::External(Box::new(error))
}

/// The expression with columns that are not qualified by a table.
fn unqualify(expression: Expr) -> Result<Expr> {
    use datafusion_common::tree_node::{Transformed, TreeNode};
    let transformed = expression.transform(|part| match part {
        Expr::Column(column) => Ok(Transformed::yes(Expr::Column(
            datafusion_common::Column::new_unqualified(column.name),
        ))),
        part => Ok(Transformed::no(part)),
    })?;
    Ok(transformed.data)
}

fn watermark_delay_us(session: &Session, column: &str, expression: &AstExpr) -> Result<i64> {
    let is_column =
        |part: &AstExpr| matches!(part, AstExpr::Identifier(name) if name.value == column);
    let wrong = || {
        SqlError::new("a watermark must be the column, or the column minus an interval").hint(
            format!("WATERMARK FOR {column} AS {column} - INTERVAL '5' SECOND"),
        )
    };
    let mut expression = expression;
    while let AstExpr::Nested(inner) = expression {
        expression = inner;
    }
    match expression {
        part if is_column(part) => Ok(0),
        AstExpr::BinaryOp {
            left,
            op: BinaryOperator::Minus,
            right,
        } if is_column(left) => {
            session.check_row_expression(right)?;
            let delay = session.expression(right, &DFSchema::empty())?;
            let delay_ns = interval_ns(&delay).ok_or_else(wrong)?;
            let delay_us = delay_ns / 1000;
            if !(0..=i128::from(DELAY_MAX_US)).contains(&delay_us) {
                return Err(SqlError::new(
                    "a watermark's delay must be between 0 and 1,000 years",
                ));
            }
            Ok(delay_us as i64)
        }
        _ => Err(wrong()),
    }
}

struct Physical(SchemaRef);

impl TableSource for Physical {
    fn schema(&self) -> SchemaRef {
        self.0.clone()
    }
}
