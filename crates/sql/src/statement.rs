//! From SQL text to statements.
//!
//! `sqlparser` reads expressions, types and queries. Syntax that it does not support (WATERMARK, computed
//! columns without a type, ROW types, window table functions over `TABLE t`) is read here, or rewritten on
//! the tokens, so that every error keeps its line and column.

use std::sync::Arc;

use sqlparser::ast::{Ident, Query, Spanned, Statement as AstStatement};
use sqlparser::dialect::GenericDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::error::{Result, SqlError, shown};
use crate::rewording::{from_parser, from_tokenizer, misspelt};
use rewrite::{rewrite, split_shift};
use sets::Sets;

pub use declaration::{ColumnDefinition, ColumnKind, CreateTable, Like};
pub use function::{
    Body, Constants, CreateFunction, FunctionOptions, Language, NamedType, TableFunction,
};
pub use hints::{Hinted, OPTIONS_OF};
pub use materialized::{CreateMaterializedView, plain_view, query_of};
pub use sets::{closing, opening};

mod broadcast_hint;
mod create;
mod declaration;
mod distinct_from;
mod forms;
mod function;
mod hints;
mod like;
mod limits;
mod materialized;
mod refused;
mod rewrite;
pub mod server;
mod sets;
mod sink;
mod subquery_hint;
mod table_function;

/// One statement.
#[derive(Debug, Clone)]
pub enum Statement {
    /// `CREATE TABLE`.
    CreateTable(Box<CreateTable>),
    /// `CREATE VIEW name AS query`.
    CreateView {
        /// The name of the view.
        name: Ident,
        /// `IF NOT EXISTS`: no error if there is already a view with this name.
        if_not_exists: bool,
        /// The names of the view's columns; empty if they are not given.
        columns: Vec<Ident>,
        /// The query of the view.
        query: Box<Query>,
    },
    /// `CREATE MATERIALIZED VIEW`.
    CreateMaterializedView(Box<CreateMaterializedView>),
    /// `CREATE FUNCTION`.
    CreateFunction(Box<CreateFunction>),
    /// `INSERT INTO table query`.
    Insert {
        /// The table.
        table: Ident,
        /// The columns that are written; empty if they are not given.
        columns: Vec<Ident>,
        /// The query whose rows are written.
        query: Box<Query>,
    },
    /// A query whose rows are printed.
    Select(Box<Query>),
    /// `SET 'key' = 'value'`.
    Set {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// `RESET 'key'`, or `RESET` of all settings.
    Reset(Option<String>),
    /// `DROP TABLE name`, `DROP [MATERIALIZED] VIEW name`, `DROP FUNCTION name`: an error, unless `IF EXISTS`
    /// is given and the name is unknown.
    Drop {
        /// The name of the table, view or function.
        name: Ident,
        /// Whether it is a function.
        is_function: bool,
        /// `IF EXISTS`: no error if there is none with this name.
        if_exists: bool,
    },
    /// `EXPLAIN statement`.
    Explain(Box<Statement>),
}

/// A statement, and what it was read from.
#[derive(Debug, Clone)]
pub struct Placed {
    /// The statement.
    pub statement: Statement,
    /// The tables that the statement uses with other options.
    pub hinted: Vec<Hinted>,
    /// The statement's tokens, for errors that know their place only by a name.
    pub tokens: Arc<[TokenWithSpan]>,
}

/// Parses statements separated by `;`.
pub fn parse(text: &str) -> Result<Vec<Placed>> {
    let tokens = Tokenizer::new(&DIALECT, text)
        .tokenize_with_location()
        .map_err(|error| from_tokenizer(&error, text))?;
    let mut statements = Vec::new();
    let mut sets = Sets::default();
    for tokens in tokens.split(|token| token.token == Token::SemiColon) {
        if tokens.iter().all(is_space) {
            continue;
        }
        limits::check(tokens)?;
        limits::check_numbers(tokens)?;
        let Some(inner) = sets.inner(tokens)? else {
            continue;
        };
        let first = inner.iter().find(|token| !is_space(token));
        let first = first.map_or(tokens[0].span, |token| token.span);
        let (unhinted, mut broadcasts) =
            broadcast_hint::take(inner).map_err(|error| error.among(inner))?;
        let statement = hints::take(&unhinted).and_then(|(rest, hinted, begins)| {
            let statement = forms::rewrite(&rest)
                .and_then(|tokens| table_function::rewrite(&tokens))
                .and_then(|tokens| rewrite(&tokens))
                .and_then(parse_one)
                .and_then(|statement| sets.checked(statement, first))?;
            Ok((statement, hinted, begins))
        });
        let statement = statement.map_err(|error| misspelt(error.among(inner), inner))?;
        let (mut statement, hinted, mut begins) = statement;
        if !hinted.is_empty() {
            change(&mut statement, &mut hints::keep_names)?;
        }
        if !broadcasts.is_empty() {
            change(&mut statement, &mut |query| {
                broadcast_hint::mark(query, &mut broadcasts)
            })
            .map_err(|error| error.among(inner))?;
        }
        if let Some(left) = broadcasts.first() {
            return Err(left.misplaced().among(inner));
        }
        if !begins.is_empty() {
            change(&mut statement, &mut |query| {
                subquery_hint::mark(query, &mut begins)
            })
            .map_err(|error| error.among(inner))?;
        }
        if let Some(left) = begins.first() {
            return Err(subquery_hint::misplaced(left.span).among(inner));
        }
        statements.push(Placed {
            statement,
            hinted,
            tokens: inner.into(),
        });
    }
    sets.end()?;
    Ok(statements)
}

/// Whether a statement with these tokens is CREATE SINK, which is read as CREATE TABLE … AS.
pub fn is_sink(tokens: &[TokenWithSpan]) -> bool {
    let mut solid = tokens.iter().filter(|token| !is_space(token));
    solid.nth(1).is_some_and(|token| is_word(token, "SINK"))
}

/// Changes the query of a statement.
fn change(
    statement: &mut Statement,
    of_query: &mut dyn FnMut(&mut Query) -> Result<()>,
) -> Result<()> {
    match statement {
        Statement::CreateView { query, .. }
        | Statement::Insert { query, .. }
        | Statement::Select(query) => of_query(query),
        Statement::CreateMaterializedView(view) => of_query(&mut view.query),
        Statement::Explain(inner) => change(inner, of_query),
        Statement::CreateTable(table) => match &mut table.query {
            Some(query) => of_query(query),
            None => Ok(()),
        },
        Statement::CreateFunction(_)
        | Statement::Set { .. }
        | Statement::Reset(_)
        | Statement::Drop { .. } => Ok(()),
    }
}

static DIALECT: GenericDialect = GenericDialect {};

fn is_space(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

fn parse_one(tokens: Vec<TokenWithSpan>) -> Result<Statement> {
    let keywords = tokens.iter().filter_map(|token| match &token.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_uppercase()),
        Token::Whitespace(_) => None,
        _ => Some(String::new()),
    });
    let keywords = keywords.take(5).collect::<Vec<String>>();
    let keywords = keywords.iter().map(String::as_str).collect::<Vec<&str>>();
    match keywords.as_slice() {
        ["CREATE", "TEMPORARY", "TABLE", ..] | ["CREATE", "TABLE", ..] => {
            create::table(split_shift(tokens))
        }
        ["CREATE", "VIEW", ..] | ["CREATE", "TEMPORARY", "VIEW", ..] => create::view(tokens),
        ["CREATE", "MATERIALIZED", "VIEW", ..] => materialized::view(tokens),
        ["CREATE", "SINK", ..] => create::table(split_shift(sink::as_table(tokens)?)),
        words if function::begins(words) => function::function(split_shift(tokens)),
        ["CREATE", ..] => Err(refused::create(&tokens)),
        ["INSERT", "INTO", ..] => insert(tokens),
        ["INSERT", "OVERWRITE", ..] => Err(SqlError::new("INSERT OVERWRITE is not supported")
            .hint("use INSERT INTO, and 'overwrite' = 'true' in the options of the table")),
        ["INSERT", ..] => Err(SqlError::new("INSERT must be followed by INTO and a table")
            .hint("use INSERT INTO t SELECT …")),
        ["RESET", ..] => reset(tokens),
        ["DROP", "TABLE" | "VIEW" | "FUNCTION", ..]
        | ["DROP", "TEMPORARY", "TABLE" | "VIEW" | "FUNCTION", ..]
        | ["DROP", "MATERIALIZED", "VIEW", ..] => drop(tokens),
        ["SET", ..] => set(tokens),
        ["EXPLAIN", ..] => {
            let rest = explained(&tokens);
            if rest.iter().all(is_space) {
                return Err(SqlError::new("EXPLAIN needs a statement"));
            }
            Ok(Statement::Explain(Box::new(parse_one(rest.to_vec())?)))
        }
        ["SELECT", ..] | ["WITH", ..] | ["VALUES", ..] | ["", ..] => {
            let mut parser = parser(tokens);
            let query = parser.parse_query().map_err(|error| from_parser(&error))?;
            end(&mut parser)?;
            Ok(Statement::Select(query))
        }
        words => Err(refused::statement(words)),
    }
}

/// The statement after EXPLAIN, and after options that other systems support.
fn explained(tokens: &[TokenWithSpan]) -> &[TokenWithSpan] {
    const DETAILS: [&str; 7] = [
        "EXPLAIN",
        "PLAN",
        "FOR",
        "ESTIMATED_COST",
        "CHANGELOG_MODE",
        "PLAN_ADVICE",
        "JSON_EXECUTION_PLAN",
    ];
    let is_detail = |token: &TokenWithSpan| {
        is_space(token)
            || token.token == Token::Comma
            || DETAILS.iter().any(|word| is_word(token, word))
    };
    let first = tokens.iter().position(|token| !is_detail(token));
    &tokens[first.unwrap_or(tokens.len())..]
}

fn is_word(token: &TokenWithSpan, wanted: &str) -> bool {
    match &token.token {
        Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted),
        _ => false,
    }
}

fn parser(tokens: Vec<TokenWithSpan>) -> Parser<'static> {
    Parser::new(&DIALECT)
        .with_recursion_limit(limits::NESTING_MAX)
        .with_tokens_with_locations(tokens)
}

fn end(parser: &mut Parser) -> Result<()> {
    let next = parser.peek_token();
    match next.token {
        Token::EOF => Ok(()),
        ref token => Err(SqlError::new(format!("unexpected {}", shown(token)))
            .at_token(&next)
            .hint("statements end with ';'")),
    }
}

fn parsed<T>(result: std::result::Result<T, sqlparser::parser::ParserError>) -> Result<T> {
    result.map_err(|error| from_parser(&error))
}

fn expect(parser: &mut Parser, wanted: Token) -> Result<()> {
    let next = parser.next_token();
    if next.token == wanted {
        return Ok(());
    }
    let found = shown(&next.token);
    Err(SqlError::new(format!("expected '{wanted}', found {found}")).at_token(&next))
}

/// A string in quotes, or a single word or number.
fn text(parser: &mut Parser, what: &str) -> Result<String> {
    let next = parser.next_token();
    Ok(match next.token {
        Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) => text,
        Token::Word(word) => word.value,
        Token::Number(number, _) => number,
        ref token => {
            return Err(
                SqlError::new(format!("expected {what}, found {}", shown(token)))
                    .at_token(&next)
                    .hint("write it in single quotes"),
            );
        }
    })
}

fn set(tokens: Vec<TokenWithSpan>) -> Result<Statement> {
    let mut parser = parser(tokens);
    parser.next_token();
    if parser.peek_token().token == Token::EOF {
        return Err(SqlError::new("SET needs a setting and its value")
            .hint("use SET 'key' = 'value'; in the shell, \\set lists all settings"));
    }
    let key = setting(&mut parser)?;
    let next = parser.next_token();
    let is_to = matches!(&next.token, Token::Word(word) if word.value.eq_ignore_ascii_case("TO"));
    if next.token != Token::Eq && !is_to {
        return Err(SqlError::new("expected '='")
            .at_token(&next)
            .hint("use SET 'key' = 'value'"));
    }
    let value = text(&mut parser, "the value of a setting")?;
    end(&mut parser)?;
    Ok(Statement::Set { key, value })
}

/// The name of a setting: in quotes, or words separated by dots.
fn setting(parser: &mut Parser) -> Result<String> {
    let mut key = text(parser, "the name of a setting")?;
    while matches!(parser.peek_token().token, Token::Period | Token::Minus) {
        key.push_str(&parser.next_token().token.to_string());
        key.push_str(&text(parser, "the name of a setting")?);
    }
    Ok(key)
}

fn reset(tokens: Vec<TokenWithSpan>) -> Result<Statement> {
    let mut parser = parser(tokens);
    parser.next_token();
    let key = match parser.peek_token().token {
        Token::EOF => None,
        _ => Some(setting(&mut parser)?),
    };
    end(&mut parser)?;
    Ok(Statement::Reset(key))
}

fn drop(tokens: Vec<TokenWithSpan>) -> Result<Statement> {
    let mut parser = parser(tokens);
    parser.next_token();
    let _ = parser.parse_one_of_keywords(&[Keyword::TEMPORARY, Keyword::MATERIALIZED]);
    let is_function = is_word(&parser.next_token(), "FUNCTION");
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let name = create::name(&mut parser)?;
    end(&mut parser)?;
    Ok(Statement::Drop {
        name,
        is_function,
        if_exists,
    })
}

fn insert(tokens: Vec<TokenWithSpan>) -> Result<Statement> {
    let mut parser = parser(tokens);
    let insert_token = parser.next_token();
    let parsed_insert = parsed(parser.parse_insert(insert_token.clone()))?;
    end(&mut parser)?;
    let AstStatement::Insert(insert) = parsed_insert else {
        return Err(SqlError::new("this form of INSERT is not supported"));
    };
    crate::check::clauses::insert(&insert)?;
    let sqlparser::ast::TableObject::TableName(name) = &insert.table else {
        return Err(SqlError::new("INSERT INTO needs the name of a table").at(insert_token.span));
    };
    let [sqlparser::ast::ObjectNamePart::Identifier(table)] = name.0.as_slice() else {
        return Err(SqlError::new(format!(
            "'{name}' is not a table: qualified names are not supported"
        ))
        .at(name.span()));
    };
    let query = insert.source.ok_or_else(|| {
        SqlError::new("INSERT INTO needs a query")
            .at(insert_token.span)
            .hint("use INSERT INTO t SELECT …")
    })?;
    let columns = insert
        .columns
        .iter()
        .map(|name| match name.0.as_slice() {
            [sqlparser::ast::ObjectNamePart::Identifier(column)] => Ok(column.clone()),
            _ => Err(SqlError::new(format!("'{name}' is not a column"))),
        })
        .collect::<Result<Vec<Ident>>>()?;
    Ok(Statement::Insert {
        table: table.clone(),
        columns,
        query,
    })
}

#[cfg(test)]
mod tests;
