//! Calls of table functions, as they are parsed.

use sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments};

use crate::names::TABLE_OF;

/// Whether an argument of a table function is a subquery that stands for a table: the first one, and those
/// after TABLE.
pub fn is_table(place: usize, argument: &FunctionArg) -> bool {
    let (FunctionArg::Unnamed(FunctionArgExpr::Expr(value))
    | FunctionArg::Named {
        arg: FunctionArgExpr::Expr(value),
        ..
    }
    | FunctionArg::ExprNamed {
        arg: FunctionArgExpr::Expr(value),
        ..
    }) = argument
    else {
        return false;
    };
    match (value, arguments_of(value, TABLE_OF)) {
        (Expr::Subquery(_), _) => place == 0,
        (_, Some([FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Subquery(_)))])) => true,
        _ => false,
    }
}

/// The arguments of a call, if the expression is a call of `function`.
pub fn arguments_of<'a>(value: &'a Expr, function: &str) -> Option<&'a [FunctionArg]> {
    let Expr::Function(Function { name, args, .. }) = value else {
        return None;
    };
    if !name.to_string().eq_ignore_ascii_case(function) {
        return None;
    }
    match args {
        FunctionArguments::List(list) => Some(&list.args),
        _ => Some(&[]),
    }
}
