//! DataFusion's physical expressions as expressions of the engine.

mod checked;
mod choice;
mod compared;
mod floats;
mod identity;
mod not_null;

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::CastOptions;
use arrow_cast::display::FormatOptions;
use arrow_schema::{DataType, Schema, SchemaRef};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, DataFusionError, ScalarValue};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::{Expr, Operator};
use datafusion_physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, Literal, NegativeExpr, TryCastExpr, lit,
};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr, create_physical_expr};
use slackwater_engine::Error;
use slackwater_engine::expression::Expression;

use crate::error::{Result, SqlError};
use crate::explain;
use crate::functions::Failure;
use crate::types::{INTERVAL, with_sql_types};

use compared::Compared;
pub use not_null::NotNull;

/// The expression without casts that keep different values different.
pub fn uncast<'e>(expression: &'e Physical, schema: &Schema) -> &'e Physical {
    let any = expression.as_ref() as &dyn Any;
    let Some(cast) = any.downcast_ref::<CastExpr>() else {
        return expression;
    };
    let (inner, to) = (cast.expr(), cast.cast_type());
    let Ok(from) = inner.data_type(schema) else {
        return expression;
    };
    let is_wider = from.is_integer()
        && to.is_signed_integer()
        && to.primitive_width() >= from.primitive_width();
    match is_wider || (from.is_integer() && is_text(to)) || (is_text(&from) && is_text(to)) {
        true => inner,
        false => expression,
    }
}

/// A physical expression of DataFusion.
pub type Physical = Arc<dyn PhysicalExpr>;

/// Times are cast to strings as the outputs write them: `2024-02-29 12:34:56.789`.
const TIME_AS_TEXT: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: FormatOptions::new()
        .with_display_error(true)
        .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f")),
};

fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8
    )
}

fn is_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(_, None))
}

/// The physical form of an expression over `schema`. The expression is simplified first: some functions can
/// only be computed after they are rewritten. Arithmetic fails on overflow instead of wrapping.
pub fn physical(expression: &Expr, schema: &DFSchema) -> Result<Physical> {
    let properties = ExecutionProps::new();
    let context = PhysicalPlanningContext::default();
    let made = create_physical_expr(expression, schema, &properties, &context)?;
    let checked = made.transform_up(|part| match floats::compared(&part, schema.as_arrow())? {
        Some(compared) => {
            let checked = checked(compared, schema.as_arrow())?;
            Ok(Transformed::yes(checked.data))
        }
        None => checked(part, schema.as_arrow()),
    })?;
    Ok(checked.data)
}

/// The expression, or its replacement where DataFusion does not compute what SQL says. Its parts are checked.
fn checked(part: Physical, schema: &Schema) -> datafusion_common::Result<Transformed<Physical>> {
    let any = part.as_ref() as &dyn Any;
    if let Some(cast) = any.downcast_ref::<CastExpr>() {
        return cast_checked(&part, cast.expr(), cast.cast_type(), schema);
    }
    if let Some(cast) = any.downcast_ref::<TryCastExpr>() {
        // Rounding down never fails.
        let floor = checked::floor(cast.expr(), cast.cast_type(), schema)?;
        return Ok(floor.map_or(Transformed::no(part), Transformed::yes));
    }
    if let Some(literal) = any.downcast_ref::<Literal>() {
        let interval = checked::interval_value(literal.value()).map(lit);
        return Ok(interval.map_or(Transformed::no(part), Transformed::yes));
    }
    if any.is::<ScalarFunctionExpr>() {
        let declared = checked::of_declared_type(part, schema)?;
        let is_interval = declared.data_type(schema)? == INTERVAL;
        return Ok(Transformed::yes(match is_interval {
            true => checked::interval(declared),
            false => declared,
        }));
    }
    let binary = match (
        any.downcast_ref::<BinaryExpr>(),
        any.downcast_ref::<NegativeExpr>(),
    ) {
        (Some(binary), _) => binary.clone(),
        // DataFusion's negation always wraps; 0 - x can be checked.
        (_, Some(negative)) => {
            let data_type = negative.arg().data_type(schema)?;
            if data_type == INTERVAL {
                return Ok(Transformed::yes(checked::interval(part)));
            }
            if !data_type.is_signed_integer() {
                return Ok(Transformed::no(part));
            }
            let zero = lit(ScalarValue::new_zero(&data_type)?);
            BinaryExpr::new(zero, Operator::Minus, negative.arg().clone())
        }
        _ => return Ok(Transformed::no(part)),
    };
    let is_exact = matches!(
        binary.op(),
        Operator::Plus | Operator::Minus | Operator::Multiply
    );
    let binary = Arc::new(binary.with_fail_on_overflow(true)) as Physical;
    let is_interval = binary.data_type(schema)? == INTERVAL;
    Ok(Transformed::yes(match is_exact {
        _ if is_interval => checked::interval(binary),
        true => checked::within_digits(binary, schema)?,
        false => binary,
    }))
}

fn cast_checked(
    part: &Physical,
    inner: &Physical,
    to: &DataType,
    schema: &Schema,
) -> datafusion_common::Result<Transformed<Physical>> {
    let from = inner.data_type(schema)?;
    if is_text(to) && is_time(&from) {
        let cast = CastExpr::new(inner.clone(), to.clone(), Some(TIME_AS_TEXT));
        return Ok(Transformed::yes(Arc::new(cast) as Physical));
    }
    if *to == INTERVAL {
        let inner = match from {
            DataType::Duration(_) => inner.clone(),
            _ => part.clone(),
        };
        return Ok(Transformed::yes(checked::interval(inner)));
    }
    let floor = checked::floor(inner, to, schema)?;
    Ok(floor.map_or(Transformed::no(part.clone()), Transformed::yes))
}

/// The value of an expression of constants, computed as for a row.
pub fn constant(expression: &Expr) -> datafusion_common::Result<ScalarValue> {
    let computed = physical(expression, &DFSchema::empty());
    let computed = computed.map_err(|error| DataFusionError::Plan(error.message))?;
    let one_row = RecordBatchOptions::new().with_row_count(Some(1));
    let no_columns = Arc::new(Schema::empty());
    let row = RecordBatch::try_new_with_options(no_columns, vec![], &one_row)?;
    let compute = || ScalarValue::try_from_array(&computed.evaluate(&row)?.into_array(1)?, 0);
    catch_unwind(AssertUnwindSafe(compute)).unwrap_or_else(|panic| {
        let text = slackwater_engine::error::panic_text(panic.as_ref());
        let reason = format!("{computed} can't be computed: {text}");
        Err(DataFusionError::Execution(reason))
    })
}

/// The expression with each column `i` replaced by `columns[i]`.
pub fn replace_columns(expression: &Physical, columns: &[Physical]) -> Result<Physical> {
    let replaced = expression.clone().transform_down(|part| {
        match column_index(&part) {
            // The replacement refers to other columns, so its parts must not be replaced.
            Some(index) => Ok(Transformed::new(
                columns[index].clone(),
                true,
                datafusion_common::tree_node::TreeNodeRecursion::Jump,
            )),
            None => Ok(Transformed::no(part)),
        }
    })?;
    Ok(replaced.data)
}

/// The index of the column, if the expression is one.
pub fn column_index(expression: &Physical) -> Option<usize> {
    (expression.as_ref() as &dyn Any)
        .downcast_ref::<Column>()
        .map(|column| column.index())
}

/// The expression for column `index` of `schema`.
pub fn column(index: usize, schema: &Schema) -> Physical {
    Arc::new(Column::new(schema.field(index).name(), index))
}

/// A physical expression over batches of a given schema, as an expression of the engine.
pub struct PhysicalExpression {
    expression: Physical,
    /// The same in the form in which it is evaluated.
    evaluated: Physical,
    data_type: DataType,
}

impl PhysicalExpression {
    /// The expression over batches of `schema`.
    pub fn over(expression: Physical, schema: &SchemaRef) -> Result<Arc<dyn Expression>> {
        let data_type = expression.data_type(schema)?;
        let whole = Arc::new(PhysicalExpression {
            evaluated: choice::chosen(&expression, schema)?,
            expression: expression.clone(),
            data_type,
        });
        Ok(Compared::instead(whole, &expression, schema))
    }
}

// The whole tree: equal nodes are found by this text. As SQL, without types and quotes, `s = 'a AND t = b'`
// and `s = 'a' AND t = 'b'` would look the same. `{:#?}` prints SQL for the user.
impl fmt::Debug for PhysicalExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match f.alternate() {
            true => f.write_str(&explain::expression(&self.expression)),
            false => f.write_str(&identity::of(&self.expression)),
        }
    }
}

impl Expression for PhysicalExpression {
    fn evaluate(&self, batch: &RecordBatch) -> slackwater_engine::Result<ArrayRef> {
        let compute = || {
            let value = self.evaluated.evaluate(batch)?;
            value.into_array(batch.num_rows())
        };
        let place = || explain::expression(&self.expression);
        // A panic in a function rejects its row, like an error; expressions keep no state between batches
        // that could be left inconsistent.
        match catch_unwind(AssertUnwindSafe(compute)) {
            Ok(Ok(column)) => Ok(column),
            Ok(Err(error)) => Err(match Failure::of(&error).cloned() {
                Some(failure) => failed(place(), failure),
                None => Error::new(place(), reason(error)),
            }),
            Err(panic) => {
                let text = slackwater_engine::error::panic_text(panic.as_ref());
                Err(Error::new(place(), format!("can't be computed: {text}")))
            }
        }
    }

    fn data_type(&self) -> DataType {
        self.data_type.clone()
    }

    fn column(&self) -> Option<usize> {
        column_index(&self.expression)
    }
}

/// The error for a declared function that has failed.
fn failed(place: String, failure: Failure) -> Error {
    let error = Error::new(place, failure.reason);
    let error = match failure.row {
        Some(row) => error.row(row),
        None => error,
    };
    match failure.is_final {
        true => error.final_one(),
        false => error,
    }
}

/// The cause of an error, without DataFusion's and Arrow's names of errors and types.
pub fn reason(error: DataFusionError) -> String {
    const KINDS: [&str; 6] = [
        "Arithmetic overflow: ",
        "Cast error: ",
        "Compute error: ",
        "Execution error: ",
        "Invalid argument error: ",
        "Parser error: ",
    ];
    let message = SqlError::from(error).message;
    let mut plain = message.as_str();
    while let Some(rest) = KINDS.iter().find_map(|kind| plain.strip_prefix(kind)) {
        plain = rest;
    }
    with_sql_types(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::Field;
    use datafusion_expr::{col, lit};

    fn columns() -> DFSchema {
        let fields = ["s", "t"].map(|name| Field::new(name, DataType::Utf8, true));
        DFSchema::try_from(Schema::new(fields.to_vec())).unwrap()
    }

    fn over_strings(expression: &Expr) -> Arc<dyn Expression> {
        let schema: SchemaRef = Arc::new(columns().as_arrow().clone());
        PhysicalExpression::over(physical(expression, &columns()).unwrap(), &schema).unwrap()
    }

    #[test]
    fn different_expressions_that_print_the_same_stay_different() {
        let two = col("s").eq(lit("a")).and(col("t").eq(lit("b")));
        let one = col("s").eq(lit("a AND t@1 = b"));
        let shown = |expression: &Expr| {
            let shown = physical(expression, &columns()).unwrap().to_string();
            shown.replace("@0", "").replace("@1", "")
        };
        assert_eq!(shown(&two), shown(&one).replace("@1", ""));
        assert_ne!(
            format!("{:?}", over_strings(&two)),
            format!("{:?}", over_strings(&one))
        );
        assert_eq!(
            format!("{:?}", over_strings(&two)),
            format!("{:?}", over_strings(&two.clone()))
        );
    }
}
