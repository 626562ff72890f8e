//! CASE between columns.
//!
//! A stream of several kinds of events often has `CASE WHEN kind = 0 THEN a.time WHEN kind = 1 THEN …`.
//! DataFusion evaluates each branch for its own rows only, because it may fail for the others, and copies
//! all columns of these rows for it, with all fields of a ROW. Columns, their fields and comparisons of them
//! can't fail: here they are evaluated for all rows, which copies nothing, and only the results are copied.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, new_null_array};
use arrow_schema::{DataType, Schema};
use arrow_select::interleave::interleave;
use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_expr::{ColumnarValue, Operator};
use datafusion_physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, IsNotNullExpr, IsNullExpr, Literal, NotExpr,
};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::Physical;
use super::checked::inner_of_declared_type;

/// The expression with a [`Choice`] for each CASE that can be one. For evaluating only: it is shown, and
/// compared with others, as it was.
pub fn chosen(expression: &Physical, schema: &Schema) -> Result<Physical> {
    let chosen = expression.clone().transform_up(|part| {
        let case = (part.as_ref() as &dyn Any).downcast_ref::<CaseExpr>();
        Ok(match case.is_some_and(|case| is_choice(case, schema)) {
            true => Transformed::yes(Arc::new(Choice { case: part }) as Physical),
            false => Transformed::no(part),
        })
    })?;
    Ok(chosen.data)
}

fn is_choice(case: &CaseExpr, schema: &Schema) -> bool {
    let mut whens = case.when_then_expr().iter();
    case.expr().is_none()
        && whens.all(|(when, then)| is_safe(when, schema) && is_value(then))
        && case.else_expr().is_none_or(is_value)
}

/// Whether it is a column, a field of one, or a constant, which costs nothing.
fn is_value(expression: &Physical) -> bool {
    let any = expression.as_ref() as &dyn Any;
    if let Some(inner) = inner_of_declared_type(expression) {
        return is_value(inner);
    }
    match any.downcast_ref::<ScalarFunctionExpr>() {
        Some(function) => function.name() == "get_field" && function.args().iter().all(is_value),
        None => any.is::<Column>() || any.is::<Literal>(),
    }
}

/// Whether it is a condition that can't fail.
fn is_safe(expression: &Physical, schema: &Schema) -> bool {
    let any = expression.as_ref() as &dyn Any;
    if let Some(binary) = any.downcast_ref::<BinaryExpr>() {
        let is_comparison = matches!(
            binary.op(),
            Operator::Eq
                | Operator::NotEq
                | Operator::Lt
                | Operator::LtEq
                | Operator::Gt
                | Operator::GtEq
                | Operator::And
                | Operator::Or
        );
        return is_comparison && is_safe(binary.left(), schema) && is_safe(binary.right(), schema);
    }
    if let Some(cast) = any.downcast_ref::<CastExpr>() {
        let from = cast.expr().data_type(schema);
        return from.is_ok_and(|from| is_wider(cast.cast_type(), &from)) && is_value(cast.expr());
    }
    match any.is::<IsNullExpr>() || any.is::<IsNotNullExpr>() || any.is::<NotExpr>() {
        true => expression.children().iter().all(|it| is_safe(it, schema)),
        false => is_value(expression),
    }
}

/// Whether a signed integer type holds every number of another type.
fn is_wider(to: &DataType, from: &DataType) -> bool {
    let of = |data_type: &DataType| data_type.primitive_width();
    to.is_signed_integer()
        && match from.is_signed_integer() {
            true => of(to) >= of(from),
            false => from.is_unsigned_integer() && of(to) > of(from),
        }
}

/// A CASE without operand whose parts can't fail.
#[derive(Debug, Eq)]
struct Choice {
    case: Physical,
}

impl PartialEq for Choice {
    fn eq(&self, other: &Choice) -> bool {
        self.case.eq(&other.case)
    }
}

impl Hash for Choice {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.case.hash(state);
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.case.fmt(f)
    }
}

impl Choice {
    /// For each row the number of its branch: of the first condition that is true, or the one after them.
    fn branches(whens: &[ArrayRef], rows: usize) -> Vec<usize> {
        let mut branches = vec![whens.len(); rows];
        for (branch, when) in whens.iter().enumerate().rev() {
            let when = when.as_boolean();
            let is_true = match when.nulls() {
                Some(nulls) => when.values() & nulls.inner(),
                None => when.values().clone(),
            };
            is_true.set_indices().for_each(|row| branches[row] = branch);
        }
        branches
    }
}

impl PhysicalExpr for Choice {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.case.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.case.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let rows = batch.num_rows();
        let case = (self.case.as_ref() as &dyn Any).downcast_ref::<CaseExpr>();
        let Some(case) = case.filter(|_| rows > 0) else {
            return self.case.evaluate(batch);
        };
        let (mut whens, mut values) = (Vec::new(), Vec::new());
        for (when, then) in case.when_then_expr() {
            whens.push(when.evaluate(batch)?.into_array(rows)?);
            values.push(then.evaluate(batch)?);
        }
        let data_type = self.case.data_type(batch.schema_ref())?;
        values.push(match case.else_expr() {
            Some(value) => value.evaluate(batch)?,
            None => ColumnarValue::Array(new_null_array(&data_type, rows)),
        });
        // A constant has one row.
        let is_constant = values.iter();
        let is_constant = is_constant.map(|value| matches!(value, ColumnarValue::Scalar(_)));
        let is_constant = is_constant.collect::<Vec<bool>>();
        let values = values.into_iter().map(|value| match value {
            ColumnarValue::Array(values) => Ok(values),
            ColumnarValue::Scalar(value) => value.to_array(),
        });
        let values = values.collect::<Result<Vec<ArrayRef>>>()?;
        if values.iter().any(|values| *values.data_type() != data_type) {
            return self.case.evaluate(batch);
        }
        let branches = Choice::branches(&whens, rows);
        let places = branches.into_iter().enumerate();
        let places = places.map(|(row, branch)| match is_constant[branch] {
            true => (branch, 0),
            false => (branch, row),
        });
        let values = values.iter().map(AsRef::as_ref).collect::<Vec<_>>();
        let chosen = interleave(&values, &places.collect::<Vec<_>>())?;
        Ok(ColumnarValue::Array(chosen))
    }

    fn children(&self) -> Vec<&Physical> {
        vec![&self.case]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Physical>) -> Result<Physical> {
        match children.pop() {
            Some(case) => Ok(Arc::new(Choice { case })),
            None => Ok(self),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.case.fmt_sql(f)
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int32Array, Int64Array, StringViewArray, StructArray};
    use arrow_schema::{Field, SchemaRef};
    use datafusion_common::{DFSchema, ScalarValue};
    use datafusion_expr::{Expr, cast, col, lit, when};
    use datafusion_functions::core::expr_fn::get_field;

    use super::super::physical;
    use super::*;

    fn batch(rows: &[(Option<i32>, Option<i64>, Option<String>)]) -> RecordBatch {
        let kinds = rows.iter().map(|row| row.0).collect::<Int32Array>();
        let numbers = rows.iter().map(|row| row.1).collect::<Int64Array>();
        let strings = rows.iter().map(|row| row.2.clone());
        let strings = strings.collect::<StringViewArray>();
        let inside = rows.iter().map(|row| row.1).collect::<Int64Array>();
        let fields = vec![Field::new("n", DataType::Int64, true)];
        let nulls = rows
            .iter()
            .map(|row| row.2.is_some())
            .collect::<Vec<bool>>();
        let row = StructArray::new(fields.into(), vec![Arc::new(inside)], Some(nulls.into()));
        let columns: [(&str, ArrayRef); 4] = [
            ("kind", Arc::new(kinds)),
            ("number", Arc::new(numbers)),
            ("text", Arc::new(strings)),
            ("row", Arc::new(row)),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
            .unwrap()
    }

    /// Evaluates a CASE as DataFusion does, and as a choice if it is one.
    fn both(case: Expr, batch: &RecordBatch) -> (ArrayRef, Option<ArrayRef>) {
        let schema: SchemaRef = batch.schema();
        let schema = DFSchema::try_from(schema.as_ref().clone()).unwrap();
        let expression = physical(&case, &schema).unwrap();
        let chosen = chosen(&expression, schema.as_arrow()).unwrap();
        let of = |expression: &Physical| {
            let value = expression.evaluate(batch).unwrap();
            value.into_array(batch.num_rows()).unwrap()
        };
        assert_eq!(chosen.to_string(), expression.to_string());
        let is_choice = (chosen.as_ref() as &dyn Any).is::<Choice>();
        (of(&expression), is_choice.then(|| of(&chosen)))
    }

    #[test]
    fn a_choice_has_the_values_of_its_case() {
        let kinds = [None, Some(0), Some(1), Some(2), Some(3)];
        let numbers = [None, Some(0), Some(-7)];
        let strings = [None, Some(""), Some("m"), Some("a string beside its view")];
        let mut rows = vec![];
        for kind in kinds {
            for number in numbers {
                rows.extend(strings.map(|text| (kind, number, text.map(String::from))));
            }
        }
        let kind = |number: i32| col("kind").eq(lit(number));
        let wide = |number: i64| cast(col("kind"), DataType::Int64).eq(lit(number));
        let field = || get_field(col("row"), "n");
        let string = |text: &str| lit(ScalarValue::Utf8View(Some(text.to_string())));
        let cases = [
            when(kind(0), col("number"))
                .when(kind(1), field())
                .otherwise(lit(7i64)),
            when(kind(2), col("text"))
                .when(col("number").is_null(), string("none"))
                .end(),
            when(kind(0).or(col("text").gt(string("m"))), field())
                .when(kind(0), lit(1i64))
                .end(),
            when(col("number").is_not_null().and(kind(3)), col("kind")).otherwise(col("kind")),
            // As in the computed columns of a table, where an INT is compared with a BIGINT.
            when(wide(1), field()).otherwise(col("number")),
        ];
        for case in cases.map(|case| case.unwrap()) {
            for rows in [&rows[..], &rows[..1], &rows[20..], &[]] {
                let (expected, chosen) = both(case.clone(), &batch(rows));
                let chosen = chosen.expect("its parts are columns and constants");
                assert_eq!(&chosen, &expected, "{case}");
            }
        }
    }

    #[test]
    fn what_may_fail_is_no_choice() {
        let batch = batch(&[(Some(0), Some(0), None), (Some(1), Some(2), None)]);
        let quotient = || lit(10i64) / col("number");
        let guarded = when(col("number").eq(lit(0i64)), lit(0i64)).otherwise(quotient());
        let (expected, chosen) = both(guarded.unwrap(), &batch);
        assert!(chosen.is_none());
        assert_eq!(
            expected.as_ref(),
            &Int64Array::from(vec![0, 5]) as &dyn Array
        );
        let late = when(col("number").eq(lit(0i64)), lit(true))
            .when(quotient().gt(lit(1i64)), lit(false))
            .end();
        assert!(both(late.unwrap(), &batch).1.is_none());
        let narrow = cast(col("number"), DataType::Int32).eq(lit(0i32));
        let narrow = when(narrow, lit(1i64)).otherwise(col("number"));
        assert!(both(narrow.unwrap(), &batch).1.is_none());
    }
}
