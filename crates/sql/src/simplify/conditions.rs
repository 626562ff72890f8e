//! AND and OR. They are evaluated from left to right: if the left side decides, the right side is not
//! evaluated, and can't fail.

use datafusion_common::tree_node::Transformed;
use datafusion_common::{DFSchema, Result, ScalarValue};
use datafusion_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion_expr::{BinaryExpr, Expr, ExprSchemable, Operator};

use super::{binary, casts, is_comparison};

/// Removes TRUE from AND and FALSE from OR, and moves a condition that both sides of an OR start with in
/// front of it: `a.k = b.k AND x OR a.k = b.k AND y` becomes `a.k = b.k AND (x OR y)`, so that `k` can be a
/// join key.
pub fn simplify(condition: BinaryExpr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let BinaryExpr { left, op, right } = condition;
    let decides = op == Operator::Or;
    if known(&left) == Some(decides) || known(&right) == Some(!decides) {
        return Ok(Transformed::yes(*left));
    }
    if known(&left) == Some(!decides) {
        return Ok(Transformed::yes(*right));
    }
    if op == Operator::Or {
        let common = common(&left, &right, schema);
        if !common.is_empty() {
            return Ok(Transformed::yes(in_front(common, *left, *right)));
        }
    }
    Ok(Transformed::no(binary(*left, op, *right)))
}

fn known(condition: &Expr) -> Option<bool> {
    match condition {
        Expr::Literal(ScalarValue::Boolean(known), _) => *known,
        _ => None,
    }
}

/// Conditions that both sides of an OR contain, if nothing on either side can fail: the order of evaluation
/// changes.
fn common(left: &Expr, right: &Expr, schema: &DFSchema) -> Vec<Expr> {
    let of_right = split_conjunction(right);
    let mut common = Vec::new();
    for part in split_conjunction(left) {
        if of_right.contains(&part) && !common.contains(part) {
            common.push(part.clone());
        }
    }
    match common.is_empty() || !cannot_fail(left, schema) || !cannot_fail(right, schema) {
        true => Vec::new(),
        false => common,
    }
}

fn in_front(common: Vec<Expr>, left: Expr, right: Expr) -> Expr {
    let rest = |side: Expr| {
        let parts = split_conjunction_owned(side).into_iter();
        conjunction(parts.filter(|part| !common.contains(part)))
    };
    let rest = match (rest(left), rest(right)) {
        (Some(left), Some(right)) => Some(binary(left, Operator::Or, right)),
        // A side without other conditions is true when the common conditions are.
        _ => None,
    };
    conjunction(common.into_iter().chain(rest)).expect("there is a common condition")
}

/// Whether an expression never fails.
pub fn cannot_fail(expression: &Expr, schema: &DFSchema) -> bool {
    let all = |parts: &[&Expr]| parts.iter().all(|part| cannot_fail(part, schema));
    match expression {
        Expr::Column(_) | Expr::Literal(..) => true,
        Expr::Alias(alias) => all(&[&alias.expr]),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let is_condition = is_comparison(*op) || matches!(op, Operator::And | Operator::Or);
            is_condition && all(&[left, right])
        }
        Expr::Not(inner)
        | Expr::IsNull(inner)
        | Expr::IsNotNull(inner)
        | Expr::IsTrue(inner)
        | Expr::IsNotTrue(inner)
        | Expr::IsFalse(inner)
        | Expr::IsNotFalse(inner)
        | Expr::IsUnknown(inner)
        | Expr::IsNotUnknown(inner) => all(&[inner]),
        Expr::InList(list) => {
            let values = list.list.iter();
            all(&[&list.expr]) && all(&values.collect::<Vec<&Expr>>())
        }
        Expr::Cast(cast) => {
            let from = cast.expr.get_type(schema);
            let is_safe = from.is_ok_and(|from| casts::is_wider(&from, cast.field.data_type()));
            is_safe && all(&[&cast.expr])
        }
        _ => false,
    }
}
