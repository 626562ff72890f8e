//! Clauses that the parser accepts and the planner ignores: without an error, they would silently have no
//! effect.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, Function, FunctionArgumentClause, FunctionArguments, GroupByExpr, Insert, LimitClause,
    OrderByKind, Query, Select, Spanned, TableFactor,
};

use crate::error::{Result, SqlError, nearest};
use crate::walk::{self, Look, Next, ON};

fn unknown(word: &str) -> SqlError {
    SqlError::new(format!("{word} is not supported")).near(word)
}

fn first(clauses: &[(&str, bool)]) -> Option<SqlError> {
    let there = clauses.iter().find(|(_, is_there)| *is_there);
    there.map(|(word, _)| unknown(word))
}

/// Clauses of INSERT.
pub fn insert(insert: &Insert) -> Result<()> {
    let clauses = [
        ("OR", insert.or.is_some()),
        ("IGNORE", insert.ignore),
        ("OVERWRITE", insert.overwrite),
        (
            "AS",
            insert.table_alias.is_some() || insert.insert_alias.is_some(),
        ),
        ("SET", !insert.assignments.is_empty()),
        (
            "PARTITION",
            insert.partitioned.is_some() || !insert.after_columns.is_empty(),
        ),
        ("RETURNING", insert.returning.is_some()),
        ("OUTPUT", insert.output.is_some()),
        ("REPLACE", insert.replace_into),
        ("SETTINGS", insert.settings.is_some()),
        ("FORMAT", insert.format_clause.is_some()),
    ];
    if insert.on.is_some() {
        return Err(unknown("ON").hint(
            "a sink with PRIMARY KEY (…) NOT ENFORCED replaces the row with the same key; other sinks add \
            every row",
        ));
    }
    first(&clauses).map_or(Ok(()), Err)
}

/// Clauses of a table in FROM.
pub fn table(factor: &TableFactor) -> Option<SqlError> {
    match factor {
        TableFactor::Table {
            with_hints,
            with_ordinality,
            partitions,
            json_path,
            sample,
            index_hints,
            ..
        } => first(&[
            ("TABLESAMPLE", sample.is_some()),
            ("ORDINALITY", *with_ordinality),
            ("PARTITION", !partitions.is_empty()),
            ("WITH", !with_hints.is_empty()),
            ("INDEX", !index_hints.is_empty()),
            ("[", json_path.is_some()),
        ]),
        TableFactor::Derived { sample, .. } => first(&[("TABLESAMPLE", sample.is_some())]),
        _ => None,
    }
}

/// Clauses of ORDER BY, LIMIT and FETCH.
pub fn order(query: &Query) -> Option<SqlError> {
    let by = query.order_by.as_ref();
    let fills = by.is_some_and(|by| match &by.kind {
        OrderByKind::Expressions(expressions) => {
            expressions.iter().any(|by| by.with_fill.is_some())
        }
        OrderByKind::All(_) => false,
    });
    let limit_by = match &query.limit_clause {
        Some(LimitClause::LimitOffset { limit_by, .. }) => !limit_by.is_empty(),
        _ => false,
    };
    if limit_by {
        let error = SqlError::new("LIMIT … BY is not supported").near("LIMIT");
        return Some(
            error.hint(
                "use ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) <= n, which keeps the first n rows of \
                each partition",
            ),
        );
    }
    if let Some(fetch) = &query.fetch
        && (fetch.with_ties || fetch.percent)
    {
        let error = SqlError::new("FETCH needs a number of rows").near("FETCH");
        return Some(error.hint("FETCH FIRST 10 ROWS ONLY"));
    }
    let clauses = [
        ("WITH FILL", "WITH", fills),
        (
            "INTERPOLATE",
            "INTERPOLATE",
            by.is_some_and(|by| by.interpolate.is_some()),
        ),
    ];
    let there = clauses.iter().find(|(.., is_there)| *is_there);
    there.map(|(clause, word, _)| SqlError::new(format!("{clause} is not supported")).near(*word))
}

/// Clauses of a query.
pub fn query(query: &Query) -> Option<SqlError> {
    first(&[
        ("SETTINGS", query.settings.is_some()),
        ("FORMAT", query.format_clause.is_some()),
    ])
}

/// Clauses of SELECT, and window functions in clauses that are evaluated before them.
pub fn select(select: &Select) -> Option<SqlError> {
    let clauses = [
        ("EXCLUDE", select.exclude.is_some()),
        ("AS", select.value_table_mode.is_some()),
        ("SELECT", select.select_modifiers.is_some()),
    ];
    if let Some(error) = first(&clauses) {
        return Some(error);
    }
    let mut conditions = Vec::from_iter(&select.selection);
    conditions.extend(&select.having);
    if let GroupByExpr::Expressions(keys, _) = &select.group_by {
        conditions.extend(keys);
    }
    conditions
        .iter()
        .find_map(|condition| walk::look(*condition, &mut Windowed { depth: 0 }).err())
}

/// Finds function calls with OVER outside of subqueries.
struct Windowed {
    depth: usize,
}

impl Look for Windowed {
    fn enter_query(&mut self, _: &Query) -> Next {
        self.depth += 1;
        ON
    }

    fn leave_query(&mut self, _: &Query) -> Next {
        self.depth -= 1;
        ON
    }

    fn expression(&mut self, expression: &Expr) -> Next {
        match expression {
            Expr::Function(function) if function.over.is_some() && self.depth == 0 => {
                ControlFlow::Break(
                    SqlError::new(format!(
                        "'{}' with OVER is computed after WHERE, GROUP BY and HAVING",
                        function.name
                    ))
                    .at(function.name.span())
                    .hint("use QUALIFY … <= n, or filter an outer query: FROM (SELECT … OVER (…) AS n …) \
                    WHERE n = 1"),
                )
            }
            _ => ON,
        }
    }
}

/// Functions that need OVER and are not aggregates.
const OF_WINDOWS: &[&str] = &[
    "row_number",
    "rank",
    "dense_rank",
    "lag",
    "lead",
    "first_value",
    "last_value",
    "nth_value",
    "ntile",
    "percent_rank",
    "cume_dist",
];

/// Clauses of a function that is not an aggregate.
pub fn scalar(function: &Function) -> Option<SqlError> {
    let name = function.name.to_string();
    let place = function.name.span();
    let is_of_windows = OF_WINDOWS
        .iter()
        .any(|known| known.eq_ignore_ascii_case(&name));
    if is_of_windows {
        return None;
    }
    if function.over.is_some() {
        let names = OF_WINDOWS.iter().map(|name| name.to_uppercase());
        let names = names.collect::<Vec<_>>();
        let error = SqlError::new(format!(
            "OVER needs an aggregate or a window function, and '{name}' is neither"
        ));
        return Some(match nearest(&name, &names) {
            Some(near) => error.at(place).hint(format!("did you mean {near}?")),
            None => error.at(place),
        });
    }
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let nulls = list
        .clauses
        .iter()
        .any(|clause| matches!(clause, FunctionArgumentClause::IgnoreOrRespectNulls(_)));
    let order = list
        .clauses
        .iter()
        .any(|clause| matches!(clause, FunctionArgumentClause::OrderBy(_)));
    let clauses = [
        ("IGNORE NULLS", nulls || function.null_treatment.is_some()),
        ("ORDER BY", order),
        ("WITHIN GROUP", !function.within_group.is_empty()),
    ];
    let there = clauses.iter().find(|(_, is_there)| *is_there);
    there.map(|(what, _)| {
        SqlError::new(format!(
            "{what} is only supported for aggregates, and '{name}' is not an aggregate"
        ))
        .at(place)
    })
}
