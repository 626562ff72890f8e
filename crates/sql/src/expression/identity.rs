//! The identity of an expression: a text that is the same in every process. Equal nodes are found by it, and
//! worker processes compare their plans by it.

use std::sync::Arc;

use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{CaseExpr, Column};

use super::Physical;

/// What `CASE x WHEN` with constants prints: it contains a map, whose order is random.
const UNORDERED: &str = "LookupTable";

/// The identity of an expression.
pub fn of(expression: &Physical) -> String {
    let text = format!("{expression:?}");
    if !text.contains(UNORDERED) {
        return text;
    }
    let parts = expression.children().into_iter();
    let parts = parts.map(of).collect::<Vec<String>>();
    format!("{} of {parts:?}", shape(expression, parts.len()))
}

/// The expression without its parts, as a text.
fn shape(expression: &Physical, parts: usize) -> String {
    if let Some(case) = expression.downcast_ref::<CaseExpr>() {
        let (has_value, has_else) = (case.expr().is_some(), case.else_expr().is_some());
        return format!("CASE, of a value: {has_value}, with ELSE: {has_else}");
    }
    let holes = (0..parts).map(|at| Arc::new(Column::new("", at)) as Arc<dyn PhysicalExpr>);
    match Arc::clone(expression).with_new_children(holes.collect()) {
        Ok(shape) => format!("{shape:?}"),
        Err(_) => expression.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field, Schema};
    use datafusion_physical_expr::expressions::{CaseExpr, CastExpr, col, lit};

    use super::*;

    fn case(first: &str, as_type: &DataType) -> Physical {
        let schema = Schema::new(vec![Field::new("s", DataType::Utf8, true)]);
        let column = col("s", &schema).expect("a column");
        let whens = [first, "b", "c", "d", "e", "f", "g", "h"];
        let whens = whens.map(|when| (lit(when), lit(format!("{when}!"))));
        let case = CaseExpr::try_new(Some(column), whens.to_vec(), None).expect("a CASE");
        Arc::new(CastExpr::new(Arc::new(case), as_type.clone(), None))
    }

    #[test]
    fn equal_cases_over_constants_have_one_identity() {
        let (one, other) = (case("a", &DataType::Int32), case("a", &DataType::Int32));
        assert!(format!("{one:?}").contains(UNORDERED));
        assert_eq!(of(&one), of(&other));
        assert_ne!(of(&one), of(&case("x", &DataType::Int32)));
        assert_ne!(of(&one), of(&case("a", &DataType::Int64)));
    }
}
