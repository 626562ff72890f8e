//! The hint `/*+ SUBQUERY */` or `/*+ SUBQUERY('name') */` after SELECT: the operators of this SELECT are a
//! subquery of their own, which gets its rows over links, as those after an operator that keeps state.
//!
//! It is carried to the plan by a condition that only [`crate::node`] knows: `FROM t` becomes
//! `FROM (SELECT * FROM t WHERE mark('name')) AS t`. The mark counts as volatile, so no rule moves it.

use sqlparser::ast::{Query, Select, SetExpr, TableAlias, TableFactor};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Span, Token};

use super::DIALECT;
use crate::error::{Result, SqlError};
use crate::names::SUBQUERY_MARK;
use crate::walk::{self, Change, Next, ON};

/// The hint's use, for messages.
const USE: &str = "use SELECT /*+ SUBQUERY */ … FROM t, or SELECT /*+ SUBQUERY('name') */ … FROM t";

/// A subquery that a hint begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begins {
    /// The SELECT that it begins with.
    pub select: Span,
    /// The name of the subquery, or an empty string.
    pub name: String,
    /// The place of the hint.
    pub span: Span,
}

/// The name in the hint's parentheses; `rest` are the tokens after its own name.
pub fn name(rest: &[Token], span: Span) -> Result<String> {
    match rest {
        [] => Ok(String::new()),
        [
            Token::LParen,
            Token::SingleQuotedString(name),
            Token::RParen,
        ] => Ok(name.clone()),
        _ => Err(SqlError::new("SUBQUERY takes nothing or a name in quotes")
            .at(span)
            .hint(USE)),
    }
}

/// The error for a hint that is not after SELECT.
pub fn misplaced(span: Span) -> SqlError {
    let message = "the hint SUBQUERY is only allowed after SELECT";
    SqlError::new(message).at(span).hint(USE)
}

/// Marks the SELECTs of a query that have the hint, and removes them from `begins`.
pub fn mark(query: &mut Query, begins: &mut Vec<Begins>) -> Result<()> {
    walk::change(query, &mut Marks(begins))
}

struct Marks<'a>(&'a mut Vec<Begins>);

impl Change for Marks<'_> {
    fn select(&mut self, select: &mut Select) -> Next {
        let place = select.select_token.0.span.start;
        let found = self
            .0
            .iter()
            .position(|begins| begins.select.start == place);
        // A marked one is found no more: what it contains now may have the same place.
        match found.map(|found| self.0.remove(found)) {
            Some(begins) => match wrapped(select, &begins) {
                Ok(()) => ON,
                Err(error) => Next::Break(error),
            },
            None => ON,
        }
    }
}

/// Puts the mark between a SELECT and what it reads.
fn wrapped(select: &mut Select, begins: &Begins) -> Result<()> {
    let wrong = |message: &str, hint: &str| Err(SqlError::new(message).at(begins.span).hint(hint));
    let [from] = select.from.as_mut_slice() else {
        let message = "the hint SUBQUERY needs one table or query in FROM";
        return wrong(message, USE);
    };
    if !from.joins.is_empty() {
        let message = "the hint SUBQUERY has no effect on a join, which is a subquery of its own";
        return wrong(message, "put it after the SELECT whose rows are joined");
    }
    let alias = match &from.relation {
        TableFactor::Table { alias, name, .. } => {
            let own = name.0.last().and_then(|part| part.as_ident());
            alias.clone().or_else(|| {
                own.map(|own| TableAlias {
                    explicit: true,
                    name: own.clone(),
                    columns: Vec::new(),
                    at: None,
                })
            })
        }
        TableFactor::Derived { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::TableFunction { alias, .. } => alias.clone(),
        _ => {
            let message = "the hint SUBQUERY is not supported with this FROM";
            return wrong(message, "put it after a SELECT from a table or a query");
        }
    };
    let name = begins.name.replace('\'', "''");
    let text = format!("SELECT * FROM t WHERE \"{SUBQUERY_MARK}\"('{name}')");
    let parsed = Parser::new(&DIALECT)
        .try_with_sql(&text)
        .and_then(|mut parser| parser.parse_query());
    let mut marked = parsed.map_err(|error| SqlError::new(error.to_string()).at(begins.span))?;
    let SetExpr::Select(inner) = marked.body.as_mut() else {
        return wrong("the hint SUBQUERY is not supported here", USE);
    };
    let marking = inner.from.first_mut().expect("the text above has FROM");
    std::mem::swap(&mut marking.relation, &mut from.relation);
    from.relation = TableFactor::Derived {
        lateral: false,
        subquery: marked,
        alias,
        sample: None,
    };
    Ok(())
}
