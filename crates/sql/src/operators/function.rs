//! Plans calls of operators and of SPLIT.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::{DataType, Schema, SchemaRef};
use datafusion_common::{Column, DFSchema, ExprSchema, Result};
use datafusion_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion_expr::{Expr, Extension, LogicalPlan};
use sqlparser::ast::{Expr as AstExpr, FunctionArg, Ident, Spanned, TableFactor};
use sqlparser::tokenizer::Span;

use super::arguments::{Arguments, TableArgument, expression, failed};
use super::split::{no_output, split};
use super::{DeclaredOperators, OperatorInput, OperatorNode};
use crate::check::tables::arguments_of;
use crate::error::{SqlError, nearest};
use crate::expression::constant;
use crate::functions::operator::{Call, Given, Input, Kind, Operator, OperatorFunction, Wanted};
use crate::names::SPLIT;
use crate::simplify::computable;
use crate::types::sql_name;

/// Plans calls of operators and of SPLIT.
#[derive(Debug)]
pub struct Operators {
    /// The operators that the program declares.
    pub declared: Arc<DeclaredOperators>,
}

impl RelationPlanner for Operators {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let TableFactor::Table {
            name,
            alias,
            args: Some(given),
            ..
        } = &relation
        else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let (span, called) = (name.span(), name.to_string());
        let plan = if called.eq_ignore_ascii_case(SPLIT) {
            let arguments = Arguments::new(SPLIT, span, &given.args)?;
            split(span, arguments, context)?
        } else {
            let called = called.to_lowercase();
            let Some(function) = self.declared.find(&called) else {
                return Ok(RelationPlanning::Original(Box::new(relation)));
            };
            let planner = Planner {
                name: called,
                span,
                function,
            };
            planner.plan(&given.args, context)?
        };
        let planned = PlannedRelation::new(plan, alias.clone());
        Ok(RelationPlanning::Planned(Box::new(planned)))
    }
}

/// The hint for a column after PARTITION BY, which may also be meant as an argument.
const SEVERAL_KEYS: &str = "several columns of PARTITION BY are written in parentheses: PARTITION BY (a, b); \
                            a column as an argument is DESCRIPTOR(a)";

struct Planner {
    name: String,
    span: Span,
    function: Arc<OperatorFunction>,
}

/// A table of the call, planned.
struct Planned {
    plan: LogicalPlan,
    keys: Option<Vec<Column>>,
    time: Option<Column>,
}

impl Planner {
    /// An error at the call; `call` if the operator was asked for it.
    fn wrong<T>(&self, what: &str, call: Option<&Call>) -> Result<T> {
        let error = SqlError::new(format!("{} {what}", self.name));
        failed(error.at(self.span).hint(self.form(call)))
    }

    fn form(&self, call: Option<&Call>) -> String {
        format!("the form is {}", self.function.form(call))
    }

    fn plan(
        &self,
        given: &[FunctionArg],
        context: &mut dyn RelationPlannerContext,
    ) -> Result<LogicalPlan> {
        let arguments = Arguments::new(&self.name, self.span, given)?;
        if arguments.tables.is_empty() {
            return self.wrong("needs a table: TABLE t", None);
        }
        let tables = arguments
            .tables
            .iter()
            .map(|table| self.table(table, context));
        let tables = tables.collect::<Result<Vec<Planned>>>()?;
        let values = self.values(&arguments, context)?;
        let inputs = tables.iter().map(|table| {
            let keys = table.keys.as_ref().map(Vec::len);
            Input::new(columns_of(&table.plan), keys, table.time.is_some())
        });
        let call = Call::new(values.clone(), inputs.collect());
        let operator = match self.function.operator(&call) {
            Ok(operator) => operator,
            Err(reason) => return self.wrong(&reason, Some(&call)),
        };
        self.check(&operator, &tables, &call)?;
        let output = self.output(&operator, arguments.output.as_ref())?;
        let mut inputs = Vec::new();
        for (table, input) in tables.into_iter().zip(call.inputs()) {
            let wanted = input.wanted().into_iter();
            let wanted = wanted.map(|wanted| self.wanted(&table.plan, wanted));
            inputs.push(OperatorInput {
                wanted: wanted.collect::<Result<_>>()?,
                plan: table.plan,
                keys: table.keys.unwrap_or_default(),
                time: table.time,
            });
        }
        let name = self.function.name.clone();
        let node = OperatorNode::new(name, values, operator, inputs, output);
        let node = Arc::new(node.map_err(|error| located(error, self.span))?);
        Ok(LogicalPlan::Extension(Extension { node }))
    }

    fn table(
        &self,
        table: &TableArgument,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<Planned> {
        let plan = table.plan(context)?;
        let mut column =
            |ast: &AstExpr, clause: &str| match context.sql_to_expr(ast.clone(), plan.schema())? {
                Expr::Column(column) => Ok(column),
                _ => failed(
                    SqlError::new(format!(
                        "{clause} needs columns, and '{ast}' is an expression"
                    ))
                    .at(ast.span())
                    .hint("compute it in a subquery: TABLE (SELECT …, a + b AS k FROM t)"),
                ),
            };
        let keys = table.partition_by.as_ref().map(|keys| {
            let keys = keys.iter().map(|key| column(key, "PARTITION BY"));
            keys.collect::<Result<Vec<Column>>>()
        });
        let keys = keys.transpose()?;
        let named = table
            .partition_by
            .iter()
            .flatten()
            .zip(keys.iter().flatten());
        let mut seen = HashSet::new();
        for (ast, key) in named {
            if !seen.insert(key) {
                let error = format!("PARTITION BY names '{}' twice", key.name);
                return failed(SqlError::new(error).at(ast.span()).hint("name it once"));
            }
        }
        let time = table.order_by.as_ref();
        let time = time.map(|time| column(time, "ORDER BY")).transpose()?;
        if let Some(time) = &time {
            let data_type = plan.schema().field_from_column(time)?.data_type().clone();
            if !matches!(data_type, DataType::Timestamp(_, None)) {
                let is = sql_name(&data_type);
                let error = format!("'{}' is {is}, not an event time", time.name);
                let at = table.order_by.as_ref().map_or(self.span, Spanned::span);
                let hint = "ORDER BY needs the column of WATERMARK FOR";
                return failed(SqlError::new(error).at(at).hint(hint));
            }
        }
        Ok(Planned { plan, keys, time })
    }

    /// The arguments by their parameters.
    fn values(
        &self,
        arguments: &Arguments,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<Vec<(String, Option<Given>)>> {
        let given = &arguments.values;
        let parameters = &self.function.parameters;
        let values = parameters.iter().map(|name| (name.clone(), None));
        let mut values = values.collect::<Vec<_>>();
        for (place, (name, ast)) in given.iter().enumerate() {
            let place = match name {
                None if place < values.len() => place,
                None => {
                    let (most, is) = (values.len(), given.len());
                    let noun = if most == 1 { "argument" } else { "arguments" };
                    let what = format!("takes {most} {noun} after its tables, not {is}");
                    if place == 0 && has_name(ast) && arguments.may_be_key(ast) {
                        let error = SqlError::new(format!("{} {what}", self.name));
                        return failed(error.at(ast.span()).hint(SEVERAL_KEYS));
                    }
                    return self.wrong(&what, None);
                }
                Some(name) => {
                    let wanted = parameters.iter().position(|known| *known == name.value);
                    let Some(place) = wanted else {
                        let error = format!("{} has no parameter '{}'", self.name, name.value);
                        let error = SqlError::new(error).at(name.span);
                        return failed(match nearest(&name.value, parameters) {
                            Some(near) => error.hint(format!("did you mean '{near}'?")),
                            None => error.hint(self.form(None)),
                        });
                    };
                    place
                }
            };
            let may_be_key = place == 0 && name.is_none() && arguments.may_be_key(ast);
            let value = self.value(&parameters[place], ast, may_be_key, context)?;
            if values[place].1.replace(value).is_some() {
                return self.wrong(&format!("gets '{}' twice", parameters[place]), None);
            }
        }
        Ok(values)
    }

    fn value(
        &self,
        parameter: &str,
        ast: &AstExpr,
        may_be_key: bool,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<Given> {
        let wrong = || {
            let error = format!(
                "'{ast}', the argument '{parameter}' of {}, is neither a constant nor DESCRIPTOR(column)",
                self.name
            );
            SqlError::new(error).at(ast.span()).hint(match may_be_key {
                true => SEVERAL_KEYS,
                false => "arguments are constants; columns are given by DESCRIPTOR(a)",
            })
        };
        if let Some(columns) = arguments_of(ast, "DESCRIPTOR") {
            let columns = columns.iter().map(|column| match expression(column) {
                Some(AstExpr::Identifier(name)) => Some(name.value),
                _ => None,
            });
            return match columns.collect::<Option<Vec<String>>>() {
                Some(columns) if !columns.is_empty() => Ok(Given::Columns(columns)),
                _ => failed(wrong()),
            };
        }
        let empty = DFSchema::empty();
        let value = match context.sql_to_expr(ast.clone(), &empty) {
            Ok(value) => value,
            Err(_) if has_name(ast) => return failed(wrong()),
            Err(error) => return Err(error),
        };
        if value.any_column_refs() {
            return failed(wrong());
        }
        match computable(&value, &empty) {
            Ok(value) => Ok(Given::Constant(constant(&value)?)),
            Err(error) => failed(error.at(ast.span())),
        }
    }

    /// Checks that the call has what the operator needs.
    fn check(&self, operator: &Operator, tables: &[Planned], call: &Call) -> Result<()> {
        let wrong = |what: &str| self.wrong(what, Some(call));
        let has_clause = tables
            .iter()
            .any(|table| table.keys.is_some() || table.time.is_some());
        let ordered = tables.iter().filter(|table| table.time.is_some()).count();
        match operator.kind() {
            Kind::Rows(_) if tables.len() > 1 => {
                wrong("keeps no state and takes one table: combine several with UNION ALL")
            }
            Kind::Rows(_) if has_clause => {
                wrong("looks at each row alone, and has no PARTITION BY and ORDER BY")
            }
            Kind::Rows(_) => Ok(()),
            Kind::Keyed { .. } if operator.is_order_needed() && ordered < tables.len() => {
                wrong("needs an order: TABLE t PARTITION BY k ORDER BY ts, with the event time")
            }
            Kind::Keyed { .. } if ordered != 0 && ordered != tables.len() => {
                wrong("needs ORDER BY for all of its tables, or for none")
            }
            Kind::Keyed { .. } => self.check_keys(tables, call),
        }
    }

    /// Checks that the keys of all tables have the same types.
    fn check_keys(&self, tables: &[Planned], call: &Call) -> Result<()> {
        let types = |table: &Planned| {
            let keys = table.keys.iter().flatten();
            let types = keys.map(|key| {
                Ok(table
                    .plan
                    .schema()
                    .field_from_column(key)?
                    .data_type()
                    .clone())
            });
            types.collect::<Result<Vec<DataType>>>()
        };
        let first = types(&tables[0])?;
        for table in &tables[1..] {
            let other = types(table)?;
            if other != first {
                let list = |types: &[DataType]| {
                    let names = types.iter().map(sql_name).collect::<Vec<_>>();
                    names.join(", ")
                };
                let (first, other) = (list(&first), list(&other));
                let what = format!(
                    "needs keys of the same types in all tables, and they are ({first}) and ({other})"
                );
                return self.wrong(&what, Some(call));
            }
        }
        Ok(())
    }

    /// The number of the output that is read.
    fn output(&self, operator: &Operator, output: Option<&Ident>) -> Result<Option<usize>> {
        let names = operator.output_names();
        match (names, output) {
            ([], None) => Ok(None),
            ([], Some(output)) => failed(
                SqlError::new(format!("{} has one output", self.name))
                    .at(output.span)
                    .hint("remove OUTPUT"),
            ),
            ([first, ..], None) => failed(
                SqlError::new(format!(
                    "{} has several outputs: {}",
                    self.name,
                    names.join(", ")
                ))
                .at(self.span)
                .hint(format!(
                    "say which one is read: {}(…) OUTPUT {first}",
                    self.name
                )),
            ),
            (names, Some(output)) => match names.iter().position(|name| *name == output.value) {
                Some(found) => Ok(Some(found)),
                None => failed(no_output(&self.name, &output.value, names).at(output.span)),
            },
        }
    }

    fn wanted(&self, plan: &LogicalPlan, wanted: Wanted) -> Result<(Column, DataType)> {
        let columns = plan.schema().columns_with_unqualified_name(&wanted.name);
        match columns.as_slice() {
            [column] => Ok((column.clone(), wanted.data_type)),
            _ => {
                let what = format!("can't tell which column '{}' is", wanted.name);
                self.wrong(&what, None)
            }
        }
    }
}

/// The error at a place, unless it has one.
fn located(
    error: datafusion_common::DataFusionError,
    span: Span,
) -> datafusion_common::DataFusionError {
    let error = SqlError::from(error).at(span);
    datafusion_common::DataFusionError::External(Box::new(error))
}

/// The columns of a plan.
fn columns_of(plan: &LogicalPlan) -> SchemaRef {
    let fields = plan.schema().fields().iter().cloned();
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Whether an expression may name a column.
fn has_name(ast: &AstExpr) -> bool {
    matches!(ast, AstExpr::Identifier(_) | AstExpr::CompoundIdentifier(_))
}
