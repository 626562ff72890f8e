//! A column compared with a constant, without DataFusion's machinery.
//!
//! DataFusion compares any two values of any two types, and looks at both types for each batch. That is paid
//! once for a thousand rows, and also once for one row: then it is 2,000 instructions in sixty functions. A
//! column of integers or times that is compared with a constant needs none of it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow_array::{Array, ArrayRef, BooleanArray, PrimitiveArray, RecordBatch};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{DataType, Schema, TimeUnit};
use datafusion_common::ScalarValue;
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{BinaryExpr, Literal};
use slackwater_engine::expression::Expression;

use super::{Physical, column_index};

/// How the values of a column of one type are compared with a constant.
type Compare = fn(&dyn Array, Operator, i64) -> Option<BooleanArray>;

/// A comparison of a column with a constant.
pub(super) struct Compared {
    /// The same as any other expression: what it is called, and for a column that is not as declared.
    whole: Arc<dyn Expression>,
    column: usize,
    operator: Operator,
    constant: i64,
    compare: Compare,
}

impl Compared {
    /// The expression, which has this physical form over `schema`, in a cheaper form if there is one.
    pub(super) fn instead(
        whole: Arc<dyn Expression>,
        physical: &Physical,
        schema: &Schema,
    ) -> Arc<dyn Expression> {
        match Compared::of(&whole, physical, schema) {
            Some(compared) => Arc::new(compared),
            None => whole,
        }
    }

    fn of(whole: &Arc<dyn Expression>, physical: &Physical, schema: &Schema) -> Option<Compared> {
        let binary = (physical.as_ref() as &dyn Any).downcast_ref::<BinaryExpr>()?;
        let (column, literal, operator) = match column_index(binary.left()) {
            Some(column) => (column, binary.right(), *binary.op()),
            None => (
                column_index(binary.right())?,
                binary.left(),
                binary.op().swap()?,
            ),
        };
        let is_comparison = matches!(
            operator,
            Operator::Lt
                | Operator::LtEq
                | Operator::Gt
                | Operator::GtEq
                | Operator::Eq
                | Operator::NotEq
        );
        let literal = (literal.as_ref() as &dyn Any).downcast_ref::<Literal>()?;
        let data_type = schema.fields().get(column)?.data_type();
        if !is_comparison || literal.value().data_type() != *data_type {
            return None;
        }
        Some(Compared {
            whole: Arc::clone(whole),
            column,
            operator,
            constant: number(literal.value())?,
            compare: compare_of(data_type)?,
        })
    }
}

/// A constant as a number; `None` for NULL, and for types that are not compared here.
fn number(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::Int8(value) => value.map(i64::from),
        ScalarValue::Int16(value) => value.map(i64::from),
        ScalarValue::Int32(value) | ScalarValue::Date32(value) => value.map(i64::from),
        ScalarValue::Int64(value)
        | ScalarValue::TimestampSecond(value, None)
        | ScalarValue::TimestampMillisecond(value, None)
        | ScalarValue::TimestampMicrosecond(value, None)
        | ScalarValue::TimestampNanosecond(value, None) => *value,
        _ => None,
    }
}

fn compare_of(data_type: &DataType) -> Option<Compare> {
    Some(match data_type {
        DataType::Int8 => compare::<Int8Type>,
        DataType::Int16 => compare::<Int16Type>,
        DataType::Int32 => compare::<Int32Type>,
        DataType::Int64 => compare::<Int64Type>,
        DataType::Date32 => compare::<Date32Type>,
        DataType::Timestamp(TimeUnit::Second, None) => compare::<TimestampSecondType>,
        DataType::Timestamp(TimeUnit::Millisecond, None) => compare::<TimestampMillisecondType>,
        DataType::Timestamp(TimeUnit::Microsecond, None) => compare::<TimestampMicrosecondType>,
        DataType::Timestamp(TimeUnit::Nanosecond, None) => compare::<TimestampNanosecondType>,
        _ => return None,
    })
}

/// Compares each value of a column; `None` if the column has another type, or the constant does not fit it.
fn compare<T>(column: &dyn Array, operator: Operator, constant: i64) -> Option<BooleanArray>
where
    T: ArrowPrimitiveType<Native: TryFrom<i64> + PartialOrd>,
{
    let column = column.as_any().downcast_ref::<PrimitiveArray<T>>()?;
    let constant = T::Native::try_from(constant).ok()?;
    let values = column.values();
    let bits = match operator {
        Operator::Lt => bits(values, |value| value < constant),
        Operator::LtEq => bits(values, |value| value <= constant),
        Operator::Gt => bits(values, |value| value > constant),
        Operator::GtEq => bits(values, |value| value >= constant),
        Operator::Eq => bits(values, |value| value == constant),
        Operator::NotEq => bits(values, |value| value != constant),
        _ => return None,
    };
    Some(BooleanArray::new(bits, column.nulls().cloned()))
}

/// A bit for each value. A function for each operator, so that the loop has no call.
#[inline]
fn bits<N: Copy>(values: &[N], is_true: impl Fn(N) -> bool) -> BooleanBuffer {
    BooleanBuffer::collect_bool(values.len(), |row| is_true(values[row]))
}

impl fmt::Debug for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.whole.fmt(f)
    }
}

impl Expression for Compared {
    fn evaluate(&self, batch: &RecordBatch) -> slackwater_engine::Result<ArrayRef> {
        let column = batch.columns().get(self.column);
        let compared =
            column.and_then(|column| (self.compare)(column, self.operator, self.constant));
        match compared {
            Some(compared) => Ok(Arc::new(compared)),
            None => self.whole.evaluate(batch),
        }
    }

    fn data_type(&self) -> DataType {
        DataType::Boolean
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::{PhysicalExpression, physical};
    use arrow_array::{Date32Array, Int8Array, Int64Array, TimestampMillisecondArray};
    use arrow_schema::{Field, SchemaRef};
    use datafusion_common::DFSchema;
    use datafusion_expr::{Expr, binary_expr, col, lit};

    const OPERATORS: [Operator; 6] = [
        Operator::Lt,
        Operator::LtEq,
        Operator::Gt,
        Operator::GtEq,
        Operator::Eq,
        Operator::NotEq,
    ];

    /// The columns that are compared, with small numbers so that some are equal.
    fn batch(numbers: &[Option<i8>]) -> RecordBatch {
        let wide = numbers.iter().map(|number| number.map(i64::from));
        let days = numbers.iter().map(|number| number.map(i32::from));
        let columns: [(&str, ArrayRef); 4] = [
            ("tiny", Arc::new(Int8Array::from(numbers.to_vec()))),
            ("wide", Arc::new(Int64Array::from_iter(wide.clone()))),
            ("day", Arc::new(Date32Array::from_iter(days))),
            ("time", Arc::new(TimestampMillisecondArray::from_iter(wide))),
        ];
        let fields = columns
            .iter()
            .map(|(name, column)| Field::new(*name, column.data_type().clone(), true));
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let columns = columns.map(|(_, column)| column);
        RecordBatch::try_new(schema, columns.to_vec()).unwrap()
    }

    /// The expression in DataFusion's form and in the cheaper one, if there is one.
    fn both(expression: &Expr, batch: &RecordBatch) -> (Physical, Option<Compared>) {
        let schema = DFSchema::try_from(batch.schema().as_ref().clone()).unwrap();
        let physical = physical(expression, &schema).unwrap();
        let whole = PhysicalExpression::over(physical.clone(), &batch.schema()).unwrap();
        let compared = Compared::of(&whole, &physical, &batch.schema());
        (physical, compared)
    }

    /// NULL stays NULL, and each type and operator compares as in DataFusion, on either side.
    #[test]
    fn it_compares_like_datafusion() {
        let all = (-3i8..4).map(Some).chain([None]);
        // More than a word of bits, then fewer, then none.
        let some = all.cycle().take(150).collect::<Vec<_>>();
        for (numbers, constant) in [&some[..], &some[3..10], &[]]
            .into_iter()
            .flat_map(|numbers| (-3i8..4).map(move |constant| (numbers, constant)))
        {
            let batch = batch(numbers);
            let wide = i64::from(constant);
            for (name, literal) in [
                ("tiny", lit(constant)),
                ("wide", lit(wide)),
                ("day", lit(ScalarValue::Date32(Some(i32::from(constant))))),
                (
                    "time",
                    lit(ScalarValue::TimestampMillisecond(Some(wide), None)),
                ),
            ] {
                for operator in OPERATORS {
                    let sides = [
                        binary_expr(literal.clone(), operator, col(name)),
                        binary_expr(col(name), operator, literal.clone()),
                    ];
                    for expression in sides {
                        let (physical, compared) = both(&expression, &batch);
                        let compared = compared.expect("it has a cheaper form");
                        let expected = physical.evaluate(&batch).unwrap();
                        let expected = expected.into_array(batch.num_rows()).unwrap();
                        let got = compared.evaluate(&batch).unwrap();
                        assert_eq!(&got, &expected, "{expression}");
                    }
                }
            }
        }
    }

    #[test]
    fn other_expressions_keep_their_form() {
        let batch = batch(&[Some(1)]);
        let null = lit(ScalarValue::Int64(None));
        for expression in [
            col("wide").lt(null),
            col("wide").lt(col("wide")),
            (col("wide") + lit(1i64)).lt(lit(2i64)),
            binary_expr(col("wide"), Operator::IsDistinctFrom, lit(1i64)),
            col("wide") + lit(1i64),
        ] {
            assert!(both(&expression, &batch).1.is_none(), "{expression}");
        }
    }

    #[test]
    fn it_is_called_what_it_was_called() {
        let batch = batch(&[Some(1)]);
        let (physical, compared) = both(&col("wide").lt(lit(2i64)), &batch);
        let whole = PhysicalExpression::over(physical, &batch.schema()).unwrap();
        let compared = compared.unwrap();
        assert_eq!(format!("{compared:?}"), format!("{whole:?}"));
        assert_eq!(format!("{compared:#?}"), format!("{whole:#?}"));
        assert_eq!(whole.data_type(), compared.data_type());
    }
}
