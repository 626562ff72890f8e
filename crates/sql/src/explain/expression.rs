//! Expressions as SQL: without column numbers, with SQL's names of types and with SQL literals.

use std::any::Any;
use std::sync::Arc;

use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::DataType;
use datafusion_common::ScalarValue;
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr,
    Literal, NegativeExpr, NotExpr, TryCastExpr,
};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::readable;
use crate::types::sql_name;

/// A physical expression of DataFusion.
type Physical = Arc<dyn PhysicalExpr>;

/// An expression as SQL.
pub fn expression(expression: &Physical) -> String {
    // Chains of operators may be long: this recursion needs little stack.
    match as_binary(expression) {
        Some(binary) => binary_operation(binary),
        None => single(expression),
    }
}

fn as_binary(expression: &Physical) -> Option<&BinaryExpr> {
    let any = expression.as_ref() as &dyn Any;
    any.downcast_ref::<BinaryExpr>()
}

/// An expression other than a binary operation.
fn single(expression: &Physical) -> String {
    let any = expression.as_ref() as &dyn Any;
    let list = |all: &[Physical]| {
        let all = all.iter().map(self::expression);
        all.collect::<Vec<String>>().join(", ")
    };
    let not = |negated: bool| if negated { " NOT" } else { "" };
    if let Some(column) = any.downcast_ref::<Column>() {
        readable(column.name())
    } else if let Some(literal) = any.downcast_ref::<Literal>() {
        self::literal(literal.value())
    } else if let Some(cast) = any.downcast_ref::<CastExpr>() {
        let data_type = sql_name(cast.cast_type());
        format!("CAST({} AS {data_type})", self::expression(cast.expr()))
    } else if let Some(cast) = any.downcast_ref::<TryCastExpr>() {
        let data_type = sql_name(cast.cast_type());
        format!("TRY_CAST({} AS {data_type})", self::expression(cast.expr()))
    } else if let Some(is_null) = any.downcast_ref::<IsNullExpr>() {
        format!("{} IS NULL", operand(is_null.arg()))
    } else if let Some(is_not_null) = any.downcast_ref::<IsNotNullExpr>() {
        format!("{} IS NOT NULL", operand(is_not_null.arg()))
    } else if let Some(not) = any.downcast_ref::<NotExpr>() {
        format!("NOT {}", operand(not.arg()))
    } else if let Some(negative) = any.downcast_ref::<NegativeExpr>() {
        format!("-{}", operand(negative.arg()))
    } else if let Some(like) = any.downcast_ref::<LikeExpr>() {
        let word = match like.case_insensitive() {
            true => "ILIKE",
            false => "LIKE",
        };
        let (value, pattern) = (operand(like.expr()), operand(like.pattern()));
        format!("{value}{} {word} {pattern}", not(like.negated()))
    } else if let Some(within) = any.downcast_ref::<InListExpr>() {
        let (value, list) = (operand(within.expr()), list(within.list()));
        format!("{value}{} IN ({list})", not(within.negated()))
    } else if let Some(case) = any.downcast_ref::<CaseExpr>() {
        self::case(case)
    } else if let Some(function) = any.downcast_ref::<ScalarFunctionExpr>() {
        call(function.name(), function.args())
    } else {
        other(expression)
    }
}

/// An operand: in parentheses if it is itself an operation.
fn operand(expression: &Physical) -> String {
    let any = expression.as_ref() as &dyn Any;
    match any.is::<BinaryExpr>() || any.is::<NotExpr>() {
        true => format!("({})", self::expression(expression)),
        false => self::expression(expression),
    }
}

fn binary_operation(binary: &BinaryExpr) -> String {
    // From the outermost to the first operation of the left-associative chain a + b + c.
    let mut chain = vec![binary];
    while let Some(inner) = chain.last().and_then(|last| as_binary(last.left())) {
        chain.push(inner);
    }
    let first = chain.last().map_or(binary, |first| first);
    let mut shown = expression(first.left());
    let mut inner: Option<u8> = None;
    for operation in chain.into_iter().rev() {
        let precedence = operation.op().precedence();
        if inner.is_some_and(|inner| inner == 0 || inner < precedence) {
            shown = format!("({shown})");
        }
        shown.push_str(sign(operation.op()).as_str());
        shown.push_str(&right_side(operation));
        inner = Some(precedence);
    }
    shown
}

fn sign(operator: &Operator) -> String {
    match operator {
        Operator::NotEq => " <> ".to_string(),
        other => format!(" {other} "),
    }
}

fn right_side(operation: &BinaryExpr) -> String {
    let shown = expression(operation.right());
    let outer = operation.op();
    // a - (b - c) is not a - b - c; AND and OR are associative.
    let is_loose = matches!(outer, Operator::And | Operator::Or);
    let needs = as_binary(operation.right()).is_some_and(|inner| {
        let (own, around) = (inner.op().precedence(), outer.precedence());
        own == 0 || own < around || (own == around && !is_loose)
    });
    match needs {
        true => format!("({shown})"),
        false => shown,
    }
}

fn case(case: &CaseExpr) -> String {
    let mut shown = "CASE".to_string();
    if let Some(value) = case.expr() {
        shown.push_str(&format!(" {}", expression(value)));
    }
    for (when, then) in case.when_then_expr() {
        shown.push_str(&format!(
            " WHEN {} THEN {}",
            expression(when),
            expression(then)
        ));
    }
    if let Some(other) = case.else_expr() {
        shown.push_str(&format!(" ELSE {}", expression(other)));
    }
    shown + " END"
}

fn call(name: &str, arguments: &[Physical]) -> String {
    let text_of = |value: &Physical| {
        let literal = (value.as_ref() as &dyn Any).downcast_ref::<Literal>()?;
        literal.value().try_as_str().flatten().map(str::to_string)
    };
    let shown = arguments.iter().map(expression).collect::<Vec<String>>();
    match (name, shown.as_slice()) {
        // A field of a ROW, or an element of an ARRAY.
        ("get_field", [row, ..]) => {
            let fields = arguments[1..].iter().map(text_of);
            match fields.collect::<Option<Vec<String>>>() {
                Some(fields) => format!("{row}.{}", fields.join(".")),
                None => format!("get_field({})", shown.join(", ")),
            }
        }
        ("array_element", [array, index]) => format!("{array}[{index}]"),
        _ => format!("{name}({})", shown.join(", ")),
    }
}

/// An expression without SQL syntax of its own. One that only adds a check to another is shown as that one.
fn other(expression: &Physical) -> String {
    let text = expression.to_string();
    match expression.children().as_slice() {
        [inner] if inner.to_string() == text => self::expression(inner),
        _ => readable(&text),
    }
}

/// A constant as a SQL literal.
pub fn literal(value: &ScalarValue) -> String {
    if value.is_null() {
        return "NULL".to_string();
    }
    if let Some(Some(text)) = value.try_as_str() {
        return quoted(text);
    }
    match value {
        ScalarValue::Boolean(Some(true)) => "TRUE".to_string(),
        ScalarValue::Boolean(Some(false)) => "FALSE".to_string(),
        ScalarValue::IntervalMonthDayNano(Some(interval)) => {
            let (months, days) = (interval.months, interval.days);
            super::interval(months.into(), days.into(), interval.nanoseconds.into())
        }
        ScalarValue::DurationSecond(Some(n)) => {
            super::interval(0, 0, i128::from(*n) * 1_000_000_000)
        }
        ScalarValue::DurationMillisecond(Some(n)) => {
            super::interval(0, 0, i128::from(*n) * 1_000_000)
        }
        ScalarValue::DurationMicrosecond(Some(n)) => super::interval(0, 0, i128::from(*n) * 1_000),
        ScalarValue::DurationNanosecond(Some(n)) => super::interval(0, 0, (*n).into()),
        other => match other.data_type() {
            DataType::Timestamp(..) => format!("TIMESTAMP '{}'", in_text(other)),
            DataType::Date32 | DataType::Date64 => format!("DATE '{}'", in_text(other)),
            DataType::Time32(_) | DataType::Time64(_) => format!("TIME '{}'", in_text(other)),
            DataType::Binary | DataType::BinaryView | DataType::LargeBinary => {
                format!("X'{}'", in_text(other))
            }
            DataType::List(_) => format!("ARRAY{}", in_text(other)),
            _ => other.to_string(),
        },
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A value as the outputs write it.
fn in_text(value: &ScalarValue) -> String {
    let options = FormatOptions::new().with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"));
    let shown = || {
        let array = value.to_array().ok()?;
        let formatter = ArrayFormatter::try_new(&array, &options).ok()?;
        Some(formatter.value(0).to_string())
    };
    shown().unwrap_or_else(|| value.to_string())
}
