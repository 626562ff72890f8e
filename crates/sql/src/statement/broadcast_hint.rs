//! The hint `/*+ BROADCAST(t) */` after SELECT: every instance of the join of `t` gets all of its rows, so
//! the other side doesn't move ([`crate::broadcast`]).
//!
//! It is carried to the plan as a condition of the join, over the columns that the other conditions name.

use sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, Join, JoinConstraint, JoinOperator, ObjectName, Query, Select,
    TableFactor, Value,
};
use sqlparser::dialect::GenericDialect;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Tokenizer, Whitespace};

use super::is_word;
use crate::error::{Result, SqlError};
use crate::names::BROADCAST_MARK;
use crate::walk::{self, Change, Look, Next, ON};

/// The hint's use, for messages.
const USE: &str = "use SELECT /*+ BROADCAST(b) */ … FROM a JOIN b ON …";

/// A hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broadcast {
    /// The SELECT with the joins.
    select: Span,
    /// The names of tables in that SELECT.
    names: Vec<String>,
    /// The place of the hint.
    span: Span,
}

impl Broadcast {
    /// The error for a hint that belongs to no SELECT of a query.
    pub fn misplaced(&self) -> SqlError {
        misplaced(self.span)
    }
}

fn misplaced(span: Span) -> SqlError {
    let message = "the hint BROADCAST is only allowed after SELECT";
    SqlError::new(message).at(span).hint(USE)
}

/// Removes these hints from a statement.
pub fn take(tokens: &[TokenWithSpan]) -> Result<(Vec<TokenWithSpan>, Vec<Broadcast>)> {
    let mut rest = Vec::with_capacity(tokens.len());
    let mut found = Vec::new();
    for token in tokens {
        let Some(names) = names(token)? else {
            rest.push(token.clone());
            continue;
        };
        let solid = |token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_));
        let before = rest.iter().rev().find(solid);
        let Some(select) = before.filter(|token| is_word(token, "SELECT")) else {
            return Err(misplaced(token.span));
        };
        found.push(Broadcast {
            select: select.span,
            names,
            span: token.span,
        });
    }
    Ok((rest, found))
}

/// The names in the hint; `None` for other tokens and other hints.
fn names(token: &TokenWithSpan) -> Result<Option<Vec<String>>> {
    let Token::Whitespace(Whitespace::MultiLineComment(text)) = &token.token else {
        return Ok(None);
    };
    let Some(Ok(tokens)) = text
        .strip_prefix('+')
        .map(|text| Tokenizer::new(&GenericDialect {}, text).tokenize())
    else {
        return Ok(None);
    };
    let solid = tokens.into_iter();
    let solid = solid.filter(|token| !matches!(token, Token::Whitespace(_)));
    let solid = solid.collect::<Vec<Token>>();
    let [Token::Word(first), rest @ ..] = solid.as_slice() else {
        return Ok(None);
    };
    if !first.value.eq_ignore_ascii_case("BROADCAST") {
        return Ok(None);
    }
    let wrong = || {
        SqlError::new(
            "BROADCAST takes names of tables in parentheses, and stands alone in its comment",
        )
        .at(token.span)
        .hint(USE)
    };
    let [Token::LParen, inside @ .., Token::RParen] = rest else {
        return Err(wrong());
    };
    let names = inside.split(|token| *token == Token::Comma);
    let names = names.map(|name| match name {
        [Token::Word(name)] => Ok(name.value.clone()),
        [Token::SingleQuotedString(name)] => Ok(name.clone()),
        _ => Err(wrong()),
    });
    names.collect::<Result<Vec<String>>>().map(Some)
}

/// Adds the hints to the conditions of joins in a query, and removes them from `hints`.
pub fn mark(query: &mut Query, hints: &mut Vec<Broadcast>) -> Result<()> {
    walk::change(query, &mut Marks(hints))
}

struct Marks<'a>(&'a mut Vec<Broadcast>);

impl Change for Marks<'_> {
    fn select(&mut self, select: &mut Select) -> Next {
        let place = select.select_token.0.span.start;
        let (own, others) = std::mem::take(self.0)
            .into_iter()
            .partition::<Vec<Broadcast>, _>(|hint| hint.select.start == place);
        *self.0 = others;
        for hint in own {
            for name in &hint.names {
                if let Err(error) = add(select, name, hint.span) {
                    return Next::Break(error);
                }
            }
        }
        ON
    }
}

/// Adds the hint of the table `name` to the join that it is a side of.
fn add(select: &mut Select, name: &str, span: Span) -> Result<()> {
    let wrong = |message: String| SqlError::new(message).at(span).hint(USE);
    let mut is_known = false;
    for from in &mut select.from {
        let side = from
            .joins
            .iter()
            .position(|join| is_named(&join.relation, name));
        let is_first = is_named(&from.relation, name);
        is_known |= is_first || side.is_some();
        let join = match side {
            Some(side) => from.joins.get_mut(side),
            None if is_first => from.joins.first_mut(),
            None => None,
        };
        if let Some(join) = join {
            return add_to(join, name, span);
        }
    }
    Err(match is_known {
        true => wrong(format!("'{name}' has no JOIN, so BROADCAST has no effect")),
        false => wrong(format!("there is no table '{name}' in FROM to broadcast")).hint(
            "use the name by which the SELECT with the hint calls it: its alias, if it has one",
        ),
    })
}

fn is_named(relation: &TableFactor, name: &str) -> bool {
    let own = match relation {
        TableFactor::Table {
            alias: Some(alias), ..
        }
        | TableFactor::Derived {
            alias: Some(alias), ..
        }
        | TableFactor::Function {
            alias: Some(alias), ..
        }
        | TableFactor::TableFunction {
            alias: Some(alias), ..
        } => Some(&alias.name),
        TableFactor::Table { name, .. } => name.0.last().and_then(|part| part.as_ident()),
        _ => None,
    };
    own.is_some_and(|own| own.value == name)
}

fn add_to(join: &mut Join, name: &str, span: Span) -> Result<()> {
    let (JoinOperator::Join(JoinConstraint::On(on))
    | JoinOperator::Inner(JoinConstraint::On(on))
    | JoinOperator::Left(JoinConstraint::On(on))
    | JoinOperator::LeftOuter(JoinConstraint::On(on))
    | JoinOperator::Right(JoinConstraint::On(on))
    | JoinOperator::RightOuter(JoinConstraint::On(on))
    | JoinOperator::FullOuter(JoinConstraint::On(on))
    | JoinOperator::LeftSemi(JoinConstraint::On(on))
    | JoinOperator::RightSemi(JoinConstraint::On(on))
    | JoinOperator::LeftAnti(JoinConstraint::On(on))
    | JoinOperator::RightAnti(JoinConstraint::On(on))) = &mut join.join_operator
    else {
        let message = format!("the join of '{name}' has no ON, which BROADCAST needs");
        return Err(SqlError::new(message).at(span).hint(USE));
    };
    let mut columns = Columns::default();
    walk::look(on, &mut columns)?;
    let place = [span.start, span.end];
    let place = place.map(|place| format!("{}:{}", place.line, place.column));
    let text = |text: String| Expr::Value(Value::SingleQuotedString(text).into());
    let arguments = [text(name.to_string()), text(place.join(" "))].into_iter();
    let marked = call(arguments.chain(columns.found));
    let condition = std::mem::replace(on, marked.clone());
    *on = Expr::BinaryOp {
        left: Box::new(Expr::Nested(Box::new(condition))),
        op: BinaryOperator::And,
        right: Box::new(marked),
    };
    Ok(())
}

/// Collects the columns of a condition, without those of subqueries in it.
#[derive(Default)]
struct Columns {
    found: Vec<Expr>,
    depth: usize,
}

impl Look for Columns {
    fn enter_query(&mut self, _: &Query) -> Next {
        self.depth += 1;
        ON
    }

    fn leave_query(&mut self, _: &Query) -> Next {
        self.depth -= 1;
        ON
    }

    fn expression(&mut self, expression: &Expr) -> Next {
        let is_column = matches!(
            expression,
            Expr::Identifier(_) | Expr::CompoundIdentifier(_)
        );
        if is_column && self.depth == 0 && !self.found.contains(expression) {
            self.found.push(expression.clone());
        }
        ON
    }
}

fn call(arguments: impl Iterator<Item = Expr>) -> Expr {
    let argument = |expression| FunctionArg::Unnamed(FunctionArgExpr::Expr(expression));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(BROADCAST_MARK)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.map(argument).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}
