//! CREATE MATERIALIZED VIEW.

use std::collections::BTreeMap;

use sqlparser::ast::{Ident, Query};
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan};

use super::create::{comment, name, options, primary_key};
use super::server::place;
use super::{Placed, Statement, end, expect, is_space, is_word, parse, parsed, parser};
use crate::error::{Result, SqlError, shown};

/// `CREATE MATERIALIZED VIEW name (columns) WITH (options) AS query`.
#[derive(Debug, Clone)]
pub struct CreateMaterializedView {
    /// The name of the view.
    pub name: Ident,
    /// `IF NOT EXISTS`: no error if there is already a view with this name.
    pub if_not_exists: bool,
    /// The names of the view's columns; empty if they are not given.
    pub columns: Vec<Ident>,
    /// The columns of the PRIMARY KEY; empty if the query's own key is used.
    pub primary_key: Vec<Ident>,
    /// The options in WITH.
    pub options: BTreeMap<String, String>,
    /// The place of each option.
    pub option_places: BTreeMap<String, Span>,
    /// The query of the view.
    pub query: Box<Query>,
}

/// The view whose rows a CREATE MATERIALIZED VIEW keeps: the statement without the word MATERIALIZED. `None`
/// if its rows are not all rows of its query: it has a PRIMARY KEY or options.
///
/// # Errors
///
/// If it is not a CREATE MATERIALIZED VIEW.
pub fn plain_view(text: &str) -> Result<Option<String>> {
    let mut statements = parse(text)?;
    let Some(Placed {
        statement: Statement::CreateMaterializedView(view),
        tokens,
        ..
    }) = statements.pop()
    else {
        return Err(SqlError::new("expected CREATE MATERIALIZED VIEW"));
    };
    if !view.primary_key.is_empty() || !view.options.is_empty() {
        return Ok(None);
    }
    let word = tokens.iter().find(|token| is_word(token, "MATERIALIZED"));
    let begin = word.map_or(Location::empty(), |word| word.span.start);
    let begin = place(text, begin.line, begin.column);
    Ok(Some(format!(
        "{}{}",
        &text[..begin],
        &text[begin + "MATERIALIZED".len()..]
    )))
}

/// The byte at which the query of a CREATE … AS begins.
///
/// # Errors
///
/// If it has none.
pub fn query_of(text: &str) -> Result<usize> {
    let wrong = || SqlError::new("expected CREATE … AS");
    let placed = parse(text)?.pop().ok_or_else(wrong)?;
    let mut depth = 0;
    let mut tokens = placed.tokens.iter().skip_while(|token| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth > 0 || !is_word(token, "AS")
    });
    tokens.next();
    let mut tokens = tokens.filter(|token| !is_space(token));
    let first = tokens.next().ok_or_else(wrong)?.span.start;
    Ok(place(text, first.line, first.column))
}

pub(super) fn view(tokens: Vec<TokenWithSpan>) -> Result<Statement> {
    let mut parser = parser(tokens);
    // CREATE MATERIALIZED VIEW
    for _ in 0..3 {
        parser.next_token();
    }
    let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
    let name = name(&mut parser)?;
    let (mut names, mut key) = (Vec::new(), Vec::new());
    if parser.peek_token().token == Token::LParen {
        columns(&mut parser, &name, &mut names, &mut key)?;
    }
    // The comment of a view is not used.
    comment(&mut parser)?;
    let (mut given, mut places) = (BTreeMap::new(), BTreeMap::new());
    if parser.parse_keyword(Keyword::WITH) {
        options(&mut parser, &mut given, &mut places)?;
    }
    if !parser.parse_keyword(Keyword::AS) {
        return Err(SqlError::new("expected AS")
            .at_token(&parser.peek_token())
            .hint("use CREATE MATERIALIZED VIEW name AS SELECT …"));
    }
    let query = parsed(parser.parse_query())?;
    end(&mut parser)?;
    Ok(Statement::CreateMaterializedView(Box::new(
        CreateMaterializedView {
            name,
            if_not_exists,
            columns: names,
            primary_key: key,
            options: given,
            option_places: places,
            query,
        },
    )))
}

/// The names of the columns, and the PRIMARY KEY among them.
fn columns(
    parser: &mut Parser,
    view: &Ident,
    names: &mut Vec<Ident>,
    key: &mut Vec<Ident>,
) -> Result<()> {
    expect(parser, Token::LParen)?;
    loop {
        let start = parser.peek_token();
        if is_word(&start, "CONSTRAINT") && is_word(&parser.peek_nth_token(2), "PRIMARY") {
            // The name of a constraint is ignored.
            parser.next_token();
            parser.next_token();
        }
        let next = parser.peek_token();
        match is_word(&next, "PRIMARY") && is_word(&parser.peek_nth_token(1), "KEY") {
            true => primary_key(parser, key, None)?,
            false => names.push(parsed(parser.parse_identifier())?),
        }
        let next = parser.next_token();
        match next.token {
            Token::Comma => {}
            Token::RParen => return Ok(()),
            Token::EOF => {
                return Err(SqlError::new("the column list is not closed")
                    .at(view.span)
                    .hint("close it with ')'"));
            }
            ref token => {
                let error = format!("expected ',' or ')', found {}", shown(token));
                return Err(SqlError::new(error).at_token(&next).hint(
                    "list only the names of the columns, because the query defines their types: \
                    CREATE MATERIALIZED VIEW v (a, b, PRIMARY KEY (a) NOT ENFORCED) AS SELECT …",
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_that_is_not_kept() {
        let plain = |text: &str| plain_view(text).unwrap();
        let text = "-- é\nCREATE materialized VIEW v (a) AS SELECT 1";
        assert_eq!(plain(text).unwrap(), "-- é\nCREATE  VIEW v (a) AS SELECT 1");
        assert!(matches!(
            parse(&plain(text).unwrap()).unwrap()[0].statement,
            Statement::CreateView { .. }
        ));
        let keyed = "CREATE MATERIALIZED VIEW v (a, PRIMARY KEY (a) NOT ENFORCED) AS SELECT 1";
        assert_eq!(plain(keyed), None);
        let expiring = "CREATE MATERIALIZED VIEW v WITH ('retention' = '1 d') AS SELECT 1";
        assert_eq!(plain(expiring), None);
        assert!(plain_view("SELECT 1").is_err());
        let text = "CREATE MATERIALIZED VIEW \"AS\" (a) WITH ('x' = ')') AS -- é\n (SELECT 1 AS a)";
        assert_eq!(&text[query_of(text).unwrap()..], "(SELECT 1 AS a)");
    }
}
