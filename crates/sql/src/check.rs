//! SQL that streams do not support, or not yet. It is rejected on the syntax tree, before the planner turns
//! it into something whose place in the text is no longer known.

pub mod clauses;
pub mod tables;

use std::ops::ControlFlow;

use sqlparser::ast::{
    BinaryOperator, DateTimeField, Distinct, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, GroupByExpr, JoinConstraint, JoinOperator, Query, Select, SelectItem,
    SetExpr, SetOperator, Spanned, TableFactor, UnaryOperator, Value, ValueWithSpan,
};

use crate::error::{Result, SqlError, nearest};
use crate::walk::{self, Look, Next, ON};

/// Checks a query; `is_aggregate` tells aggregates from other functions. A read may have parameters, VALUES
/// and no FROM.
pub fn query(query: &Query, is_read: bool, is_aggregate: &dyn Fn(&str) -> bool) -> Result<()> {
    let mut check = Check {
        is_read,
        ..Check::new(is_aggregate)
    };
    walk::look(query, &mut check)
}

/// Checks an expression of a CREATE TABLE, which is computed from a single row.
pub fn row_expression(expression: &Expr, is_aggregate: &dyn Fn(&str) -> bool) -> Result<()> {
    walk::look(expression, &mut Check::new(is_aggregate))?;
    walk::look(expression, &mut RowOnly { is_aggregate })
}

struct Check<'a> {
    is_aggregate: &'a dyn Fn(&str) -> bool,
    is_read: bool,
    /// How many of the next subqueries stand for tables: `TUMBLE((SELECT …), …)`.
    tables_ahead: usize,
    /// The next subqueries that are at a place where they are supported.
    subqueries: Vec<*const Expr>,
}

fn refuse(error: SqlError) -> Next {
    ControlFlow::Break(error)
}

/// Collects scalar subqueries.
struct Subqueries<'a>(&'a mut Vec<*const Expr>);

impl Look for Subqueries<'_> {
    fn expression(&mut self, expression: &Expr) -> Next {
        if matches!(expression, Expr::Subquery(_)) {
            self.0.push(expression);
        }
        ON
    }
}

impl Look for Check<'_> {
    fn enter_query(&mut self, query: &Query) -> Next {
        if query.with.as_ref().is_some_and(|with| with.recursive) {
            return refuse(SqlError::new("recursive queries are not supported").near("RECURSIVE"));
        }
        if let Some(error) = clauses::order(query) {
            return refuse(error);
        }
        if !query.locks.is_empty() || query.for_clause.is_some() {
            return refuse(SqlError::new("FOR … is not supported").near("FOR"));
        }
        if !query.pipe_operators.is_empty() {
            return refuse(SqlError::new("|> is not supported"));
        }
        if let Some(error) = clauses::query(query) {
            return refuse(error);
        }
        set_expression(&query.body, self.is_read)
    }

    fn select(&mut self, select: &Select) -> Next {
        self.allow_subqueries(select);
        let error = self.refused(select).or_else(|| clauses::select(select));
        error.map_or(ON, refuse)
    }

    fn table_factor(&mut self, factor: &TableFactor) -> Next {
        if let Some(error) = clauses::table(factor) {
            return refuse(error);
        }
        match factor {
            TableFactor::Derived { lateral: true, .. }
            | TableFactor::Function { lateral: true, .. } => refuse(
                SqlError::new("LATERAL is not supported")
                    .near("LATERAL")
                    .hint("join the two over the same window"),
            ),
            TableFactor::Table {
                args: Some(arguments),
                ..
            } => {
                let tables = arguments.args.iter().enumerate();
                let tables = tables.filter(|(place, argument)| tables::is_table(*place, argument));
                self.tables_ahead += tables.count();
                ON
            }
            TableFactor::UNNEST { .. } => refuse(
                SqlError::new(
                    "UNNEST is not supported: an array can only be read and written as a whole",
                )
                .near("UNNEST"),
            ),
            TableFactor::Pivot { .. } => {
                refuse(SqlError::new("PIVOT is not supported").near("PIVOT"))
            }
            TableFactor::MatchRecognize { .. } => {
                refuse(SqlError::new("MATCH_RECOGNIZE is not supported").near("MATCH_RECOGNIZE"))
            }
            _ => ON,
        }
    }

    fn expression(&mut self, expression: &Expr) -> Next {
        let error = match expression {
            // The arguments of a function are visited directly after it, so this is one of them.
            Expr::Subquery(_) if self.tables_ahead > 0 => {
                self.tables_ahead -= 1;
                None
            }
            Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. }
                if self
                    .subqueries
                    .iter()
                    .any(|&known| std::ptr::eq(known, expression)) =>
            {
                None
            }
            Expr::Subquery(_) => Some(subquery().at(expression.span())),
            Expr::InSubquery { .. } | Expr::Exists { .. } => {
                Some(misplaced().at(expression.span()))
            }
            Expr::AnyOp { right, .. } | Expr::AllOp { right, .. }
                if matches!(right.as_ref(), Expr::Subquery(_)) =>
            {
                let error = SqlError::new("ANY and ALL with a subquery are not supported");
                let error = error.at(expression.span());
                Some(
                    error
                        .hint("write x IN (SELECT …) for = ANY, or compare with (SELECT MAX(…) …)"),
                )
            }
            Expr::Function(function) => self.function(function),
            Expr::Identifier(name) if name.quote_style.is_none() && name.value.starts_with('@') => {
                Some(
                    SqlError::new(format!("'{}': variables are not supported", name.value))
                        .at(name.span),
                )
            }
            Expr::Extract {
                field: DateTimeField::Custom(part),
                ..
            } if !is_part(&part.value) => Some(no_part(&part.value).at(part.span)),
            Expr::Interval(interval) if interval.leading_field.is_none() => {
                unit_missing(&interval.value)
            }
            _ => None,
        };
        error.map_or(ON, refuse)
    }

    fn value(&mut self, value: &ValueWithSpan) -> Next {
        match &value.value {
            Value::Placeholder(name) if !self.is_read => refuse(
                SqlError::new(format!("'{name}': parameters are not supported")).at(value.span),
            ),
            _ => ON,
        }
    }
}

/// The error for IN or EXISTS as a part of another expression.
pub fn misplaced() -> SqlError {
    SqlError::new(
        "IN (SELECT …) and EXISTS are only supported in WHERE and HAVING, alone or combined with \
    AND",
    )
    .hint("instead of OR, write a query for each of its sides, and combine them with UNION")
}

/// The error for a scalar subquery at a place where it is not supported.
pub fn subquery() -> SqlError {
    SqlError::new("a subquery is not supported at this place")
        .hint("use it in SELECT, WHERE or HAVING, or write a join")
}

/// The conditions that AND combines, without parentheses.
fn conjuncts<'e>(condition: &'e Expr, parts: &mut Vec<&'e Expr>) {
    match condition {
        Expr::Nested(inner) => conjuncts(inner, parts),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } => {
            conjuncts(left, parts);
            conjuncts(right, parts);
        }
        other => parts.push(other),
    }
}

/// The condition that NOT negates.
fn negated(condition: &Expr) -> &Expr {
    match condition {
        Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr,
        } => match expr.as_ref() {
            Expr::Nested(inner) => inner,
            inner => inner,
        },
        other => other,
    }
}

fn set_expression(body: &SetExpr, is_read: bool) -> Next {
    match body {
        SetExpr::SetOperation {
            op, left, right, ..
        } => {
            if !matches!(op, SetOperator::Union) {
                let word = op.to_string();
                return refuse(
                    SqlError::new(format!(
                        "{word} is not supported: it needs the end of the stream"
                    ))
                    .near(word)
                    .hint("use UNION ALL, or compare the two streams in a window join"),
                );
            }
            set_expression(left, is_read)?;
            set_expression(right, is_read)
        }
        SetExpr::Values(_) if !is_read => refuse(
            SqlError::new("VALUES is not a stream")
                .near("VALUES")
                .hint("use SELECT … FROM table"),
        ),
        _ => ON,
    }
}

impl<'a> Check<'a> {
    fn new(is_aggregate: &'a dyn Fn(&str) -> bool) -> Check<'a> {
        Check {
            is_aggregate,
            is_read: false,
            tables_ahead: 0,
            subqueries: Vec::new(),
        }
    }

    /// Notes where a query may have subqueries: IN and EXISTS as whole conditions in WHERE and HAVING, scalar
    /// subqueries there and in SELECT.
    fn allow_subqueries(&mut self, select: &Select) {
        let conditions = || [&select.selection, &select.having].into_iter().flatten();
        let mut parts = Vec::new();
        conditions().for_each(|condition| conjuncts(condition, &mut parts));
        for part in parts.into_iter().map(negated) {
            if matches!(part, Expr::InSubquery { .. } | Expr::Exists { .. }) {
                self.subqueries.push(part);
            }
        }
        let values = select.projection.iter().filter_map(|item| match item {
            SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. } => {
                Some(value)
            }
            _ => None,
        });
        for value in conditions().chain(values) {
            // The visitor never stops early.
            let _ = walk::look(value, &mut Subqueries(&mut self.subqueries));
        }
    }

    fn refused(&self, select: &Select) -> Option<SqlError> {
        if let Some(Distinct::On(_)) = &select.distinct {
            return Some(
                SqlError::new("DISTINCT ON is not supported")
                    .near("ON")
                    .hint("FIRST_VALUE or LAST_VALUE in a window returns one row for each key"),
            );
        }
        if select.projection.is_empty() {
            return Some(
                SqlError::new("SELECT has no columns")
                    .at(select.select_token.0.span)
                    .hint("use SELECT * for all columns"),
            );
        }
        if select.from.is_empty() && !self.is_read {
            return Some(
                SqlError::new("the query has no FROM")
                    .at(select.select_token.0.span)
                    .hint("add the table to read: … FROM table"),
            );
        }
        let joins = select.from.iter().flat_map(|from| &from.joins);
        for join in joins {
            use JoinOperator::{FullOuter, Left, LeftOuter, Right, RightOuter};
            let (Left(on) | LeftOuter(on) | Right(on) | RightOuter(on) | FullOuter(on)) =
                &join.join_operator
            else {
                continue;
            };
            let word = match on {
                JoinConstraint::Using(_) => "USING",
                JoinConstraint::Natural => "NATURAL",
                JoinConstraint::On(_) | JoinConstraint::None => continue,
            };
            let error = format!(
                "{word} is not supported in an outer join, because it does not say which side's key is \
                selected"
            );
            return Some(
                SqlError::new(error)
                    .near(word)
                    .hint("use ON l.k = r.k, and select l.k, or COALESCE(l.k, r.k), instead of k"),
            );
        }
        let unknown = [
            ("TOP", select.top.is_some()),
            ("INTO", select.into.is_some()),
            ("PREWHERE", select.prewhere.is_some()),
            ("CONNECT", !select.connect_by.is_empty()),
            ("CLUSTER", !select.cluster_by.is_empty()),
            ("DISTRIBUTE", !select.distribute_by.is_empty()),
            ("SORT", !select.sort_by.is_empty()),
            ("LATERAL", !select.lateral_views.is_empty()),
        ];
        if let Some((word, _)) = unknown.iter().find(|(_, is_there)| *is_there) {
            return Some(SqlError::new(format!("{word} is not supported")).near(*word));
        }
        if let GroupByExpr::Expressions(_, modifiers) = &select.group_by
            && !modifiers.is_empty()
        {
            return Some(
                SqlError::new("GROUP BY … WITH … is not supported")
                    .near("GROUP")
                    .hint("use GROUP BY ROLLUP (a, b), CUBE (a, b) or GROUPING SETS ((a, b), (a), ())"),
            );
        }
        let joins = select.from.iter().flat_map(|from| &from.joins);
        joins.map(|join| &join.join_operator).find_map(join)
    }

    fn function(&self, function: &Function) -> Option<SqlError> {
        let name = function.name.to_string();
        let place = function.name.span();
        let FunctionArguments::List(list) = &function.args else {
            return None;
        };
        let is_aggregate = (self.is_aggregate)(&name);
        let star = list
            .args
            .iter()
            .any(|argument| matches!(argument, FunctionArg::Unnamed(FunctionArgExpr::Wildcard)));
        if star && !name.eq_ignore_ascii_case("count") {
            return Some(
                SqlError::new(format!("'{name}' does not accept *: only COUNT does")).at(place),
            );
        }
        let distinct = list.duplicate_treatment.is_some();
        if (distinct || function.filter.is_some()) && !is_aggregate {
            let what = if distinct { "DISTINCT" } else { "FILTER" };
            return Some(
                SqlError::new(format!(
                    "{what} is only supported for aggregates, and '{name}' is not an aggregate"
                ))
                .at(place),
            );
        }
        match is_aggregate {
            true => None,
            false => clauses::scalar(function),
        }
    }
}

fn join(operator: &JoinOperator) -> Option<SqlError> {
    use JoinOperator::*;
    let (Join(on) | Inner(on) | Left(on) | LeftOuter(on) | Right(on) | RightOuter(on)
    | FullOuter(on) | LeftSemi(on) | RightSemi(on) | LeftAnti(on) | RightAnti(on)) = operator
    else {
        return other_join(operator);
    };
    matches!(on, JoinConstraint::None).then(|| {
        SqlError::new("a JOIN needs a condition")
            .near("JOIN")
            .hint("use JOIN … ON l.k = r.k, or CROSS JOIN for all pairs")
    })
}

/// The error for kinds of joins that are not supported.
fn other_join(operator: &JoinOperator) -> Option<SqlError> {
    use JoinOperator::*;
    let word = match operator {
        Join(_) | Inner(_) | Left(_) | LeftOuter(_) | Right(_) | RightOuter(_) | FullOuter(_)
        | CrossJoin(_) => return None,
        LeftSemi(_) | RightSemi(_) | LeftAnti(_) | RightAnti(_) => return None,
        Semi(_) => "SEMI",
        Anti(_) => "ANTI",
        CrossApply | OuterApply => "APPLY",
        AsOf { .. } => "ASOF",
        StraightJoin(_) => "STRAIGHT_JOIN",
        ArrayJoin | LeftArrayJoin | InnerArrayJoin => "ARRAY",
    };
    Some(
        SqlError::new(format!("{word} joins are not supported"))
            .near(word)
            .hint("INNER, LEFT, RIGHT, FULL, LEFT SEMI and LEFT ANTI joins are supported"),
    )
}

/// The fields that EXTRACT accepts in addition to those that are keywords.
const PARTS: &[&str] = &[
    "year",
    "quarter",
    "month",
    "week",
    "day",
    "doy",
    "dow",
    "isodow",
    "hour",
    "minute",
    "second",
    "millisecond",
    "microsecond",
    "nanosecond",
    "epoch",
];

fn is_part(part: &str) -> bool {
    PARTS.iter().any(|known| known.eq_ignore_ascii_case(part))
}

fn no_part(part: &str) -> SqlError {
    let names = PARTS
        .iter()
        .map(|name| name.to_uppercase())
        .collect::<Vec<_>>();
    let error = SqlError::new(format!("'{part}' is not a field of a date or time"));
    match nearest(part, &names) {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => error.hint(format!("the fields are: {}", names.join(", "))),
    }
}

/// Rejects `INTERVAL '1'`, which means one second in other systems. With a misspelled unit after it, which is
/// then read as a name, the answer would be wrong.
fn unit_missing(value: &Expr) -> Option<SqlError> {
    let Expr::Value(ValueWithSpan { value, span }) = value else {
        return None;
    };
    let text = match value {
        Value::SingleQuotedString(text) => text.clone(),
        Value::Number(number, _) => number.to_string(),
        _ => return None,
    };
    let number = text.trim().parse::<f64>().ok()?;
    Some(
        SqlError::new(format!("INTERVAL '{text}' has no valid unit"))
            .at(*span)
            .hint(format!(
                "write INTERVAL '{number}' SECOND, MINUTE, HOUR or DAY"
            )),
    )
}

struct RowOnly<'a> {
    is_aggregate: &'a dyn Fn(&str) -> bool,
}

impl Look for RowOnly<'_> {
    fn expression(&mut self, expression: &Expr) -> Next {
        match expression {
            Expr::Function(function) if (self.is_aggregate)(&function.name.to_string()) => refuse(
                SqlError::new(format!(
                    "'{}' is an aggregate, and a computed column is computed from a single row",
                    function.name
                ))
                .at(function.name.span())
                .hint("use the aggregate in a query"),
            ),
            _ => ON,
        }
    }
}
