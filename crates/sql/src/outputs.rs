//! Names of a query's columns: as they are written, without duplicates.
//!
//! The planner names `COUNT(*)` "count(*)", `a + 1` "t.a + Int64(1)" and a field of a row "t.row[field]", and
//! rejects two columns with one name. Here an expression without AS is named after its text, a field has its
//! own name, and a name that is taken gets a number (`a`, `a0`, as in Flink; `a + 1`, `a + 1 (2)`).

use std::collections::HashSet;

use sqlparser::ast::{Expr, Ident, Query, Select, SelectItem, SetExpr, Spanned};
use sqlparser::tokenizer::Span;

/// Gives every column of the query a unique name.
pub fn name(query: &mut Query) {
    set_expression(&mut query.body);
}

fn set_expression(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => select_items(select),
        SetExpr::Query(query) => set_expression(&mut query.body),
        SetExpr::SetOperation { left, right, .. } => {
            set_expression(left);
            set_expression(right);
        }
        _ => {}
    }
}

fn select_items(select: &mut Select) {
    // The columns of a star are not known yet; the planner compares their names.
    let mut taken = HashSet::new();
    for item in &mut select.projection {
        match item {
            SelectItem::ExprWithAlias { alias, .. } => {
                taken.insert(alias.value.clone());
            }
            SelectItem::UnnamedExpr(expression) => {
                let wanted = match &*expression {
                    Expr::Identifier(name) => name.value.clone(),
                    Expr::CompoundIdentifier(parts) => parts
                        .last()
                        .map_or_else(String::new, |part| part.value.clone()),
                    other => other.to_string(),
                };
                let is_name = matches!(
                    expression,
                    Expr::Identifier(_) | Expr::CompoundIdentifier(_)
                );
                let mut name = wanted.clone();
                let mut number = 0;
                while !taken.insert(name.clone()) {
                    name = if is_name {
                        format!("{wanted}{number}")
                    } else {
                        format!("{wanted} ({})", number + 2)
                    };
                    number += 1;
                }
                // A plain column gets no alias, so that it can still be qualified by its table.
                if matches!(expression, Expr::Identifier(_)) && name == wanted {
                    continue;
                }
                let alias = Ident::with_quote('"', name);
                let expression = expression.clone();
                *item = SelectItem::ExprWithAlias {
                    expr: expression,
                    alias,
                };
            }
            _ => {}
        }
    }
}

/// The place of each column of the query; empty if the query has a star.
pub fn places(query: &Query) -> Vec<Span> {
    let mut body = &query.body;
    loop {
        match body.as_ref() {
            SetExpr::Query(query) => body = &query.body,
            SetExpr::SetOperation { left, .. } => body = left,
            SetExpr::Select(select) => {
                let spans = select.projection.iter().map(|item| match item {
                    SelectItem::UnnamedExpr(expression) => Some(expression.span()),
                    SelectItem::ExprWithAlias { expr, .. } => Some(expr.span()),
                    _ => None,
                });
                return spans.collect::<Option<Vec<Span>>>().unwrap_or_default();
            }
            _ => return Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use sqlparser::dialect::GenericDialect;
    use sqlparser::parser::Parser;

    use super::*;

    fn names(text: &str) -> Vec<String> {
        let mut parser = Parser::new(&GenericDialect {}).try_with_sql(text).unwrap();
        let mut query = parser.parse_query().unwrap();
        name(&mut query);
        let SetExpr::Select(select) = *query.body else {
            panic!("{text} is not a SELECT");
        };
        let names = select.projection.into_iter().map(|item| match item {
            SelectItem::ExprWithAlias { alias, .. } => alias.value,
            other => other.to_string(),
        });
        names.collect()
    }

    #[test]
    fn expressions_are_named_after_their_text_without_duplicates() {
        assert_eq!(
            names("SELECT a, COUNT(*), b.a, a + 1, a + 1, a + 1 AS x, e.x.y, a FROM b"),
            ["a", "COUNT(*)", "a0", "a + 1", "a + 1 (2)", "x", "y", "a1"]
        );
        assert_eq!(names("SELECT a, * FROM b"), ["a", "*"]);
    }
}
