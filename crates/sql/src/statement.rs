//! From SQL text to statements.
//!
//! `sqlparser` reads expressions, types and queries. What it does not know (WATERMARK, untyped
//! computed columns, ROW types, window table functions over `TABLE t`) is read or rewritten here, on
//! its tokens, so that every error keeps its line and column.

use std::collections::BTreeMap;
use std::sync::Arc;

use sqlparser::ast::{Expr, Ident, Query, Spanned, Statement as AstStatement};
use sqlparser::dialect::GenericDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Tokenizer};

use crate::error::{Result, SqlError, from_parser, from_tokenizer, misspelt, nearest, shown};
use crate::types::SqlType;
use rewrite::{rewrite, split_shift};

pub use hints::{Hinted, OPTIONS_OF};
pub use rewrite::{PARTITION_BY, VERSION, WINDOW_FUNCTIONS};

mod forms;
mod hints;
mod limits;
mod refused;
mod rewrite;

/// One statement.
#[derive(Debug, Clone)]
pub enum Statement {
    /// `CREATE TABLE`.
    CreateTable(Box<CreateTable>),
    /// `CREATE VIEW name AS query`.
    CreateView {
        /// Its name.
        name: Ident,
        /// Names of its columns, where given.
        columns: Vec<Ident>,
        /// What it stands for.
        query: Box<Query>,
    },
    /// `INSERT INTO table query`.
    Insert {
        /// The table.
        table: Ident,
        /// The columns that are written, where given.
        columns: Vec<Ident>,
        /// The rows.
        query: Box<Query>,
    },
    /// A query that prints.
    Select(Box<Query>),
    /// `SET 'key' = 'value'`.
    Set {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// `EXPLAIN statement`.
    Explain(Box<Statement>),
}

/// `CREATE TABLE name (columns) WITH (options)`.
#[derive(Debug, Clone)]
pub struct CreateTable {
    /// Its name.
    pub name: Ident,
    /// `IF NOT EXISTS`: no error when there is a table of that name.
    pub unless_known: bool,
    /// Its columns in order.
    pub columns: Vec<ColumnDefinition>,
    /// `WATERMARK FOR column AS expression`.
    pub watermark: Option<(Ident, Expr)>,
    /// `PRIMARY KEY (columns) NOT ENFORCED`; empty for none.
    pub primary_key: Vec<Ident>,
    /// `WITH`, and where each option stands.
    pub options: BTreeMap<String, String>,
    /// Where each option stands.
    pub option_places: BTreeMap<String, Span>,
}

/// A column.
#[derive(Debug, Clone)]
pub struct ColumnDefinition {
    /// Its name.
    pub name: Ident,
    /// What it holds.
    pub kind: ColumnKind,
}

/// What a column holds.
#[derive(Debug, Clone)]
pub enum ColumnKind {
    /// Read from the source.
    Physical(SqlType),
    /// `METADATA FROM 'key'`: what the source knows of a row beside its columns.
    Metadata(SqlType, String),
    /// Computed from other columns.
    Computed(Box<Expr>),
}

/// A statement and what it was read from.
#[derive(Debug, Clone)]
pub struct Placed {
    /// The statement.
    pub statement: Statement,
    /// Tables that it uses with other options.
    pub hinted: Vec<Hinted>,
    /// Its tokens, for errors that know their place only by a name.
    pub tokens: Arc<[TokenWithSpan]>,
}

/// Reads a text of statements separated by `;`.
pub fn parse(text: &str) -> Result<Vec<Placed>> {
    let tokens = Tokenizer::new(&DIALECT, text)
        .tokenize_with_location()
        .map_err(|error| from_tokenizer(&error, text))?;
    let mut statements = Vec::new();
    for tokens in tokens.split(|token| token.token == Token::SemiColon) {
        if tokens.iter().all(is_space) {
            continue;
        }
        limits::check(tokens)?;
        limits::check_numbers(tokens)?;
        let statement = hints::take(tokens).and_then(|(rest, hinted)| {
            let statement = forms::rewrite(&rest)
                .and_then(|tokens| rewrite(&tokens))
                .and_then(parse_one)?;
            Ok((statement, hinted))
        });
        let statement = statement.map_err(|error| misspelt(error.among(tokens), tokens))?;
        let (mut statement, hinted) = statement;
        if !hinted.is_empty() {
            keep_names(&mut statement);
        }
        statements.push(Placed {
            statement,
            hinted,
            tokens: tokens.into(),
        });
    }
    Ok(statements)
}

fn keep_names(statement: &mut Statement) {
    match statement {
        Statement::CreateView { query, .. }
        | Statement::Insert { query, .. }
        | Statement::Select(query) => hints::keep_names(query),
        Statement::Explain(inner) => keep_names(inner),
        Statement::CreateTable(_) | Statement::Set { .. } => {}
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
    let keywords = keywords.take(4).collect::<Vec<String>>();
    let keywords = keywords.iter().map(String::as_str).collect::<Vec<&str>>();
    match keywords.as_slice() {
        ["CREATE", "TEMPORARY", "TABLE", ..] | ["CREATE", "TABLE", ..] => {
            create_table(split_shift(tokens))
        }
        ["CREATE", "VIEW", ..] | ["CREATE", "TEMPORARY", "VIEW", ..] => create_view(tokens),
        ["CREATE", ..] => {
            let what = tokens.iter().filter(|token| !is_space(token)).nth(1);
            if let (Some(&"OR"), Some(or)) = (keywords.get(1), what) {
                return Err(refused::or_replace(or));
            }
            let error = match what {
                Some(what) => {
                    SqlError::new(format!("CREATE {} is not known here", what.token)).at(what.span)
                }
                None => SqlError::new("CREATE needs to say what"),
            };
            if what.is_some_and(|what| what.token.to_string().eq_ignore_ascii_case("FUNCTION")) {
                let mend = "functions are written in Rust and added by a build: docs/functions.md";
                return Err(error.mend(mend));
            }
            let near = what.and_then(|what| {
                nearest(
                    &what.token.to_string(),
                    &["TABLE", "VIEW"].map(String::from),
                )
            });
            Err(match near {
                Some(near) => error.mend(format!("did you mean CREATE {near}?")),
                None => error.mend("CREATE TABLE and CREATE VIEW are"),
            })
        }
        ["INSERT", "INTO", ..] => insert(tokens),
        ["INSERT", ..] => {
            Err(SqlError::new("INSERT is followed by INTO and a table")
                .mend("INSERT INTO t SELECT …"))
        }
        ["SET", ..] => set(tokens),
        ["EXPLAIN", ..] => {
            let first = tokens
                .iter()
                .position(|token| !matches!(token.token, Token::Whitespace(_)));
            let rest = tokens[first.map_or(0, |first| first + 1)..].to_vec();
            if rest
                .iter()
                .all(|token| matches!(token.token, Token::Whitespace(_)))
            {
                return Err(SqlError::new("EXPLAIN needs a statement"));
            }
            Ok(Statement::Explain(Box::new(parse_one(rest)?)))
        }
        ["SELECT", ..] | ["WITH", ..] | ["VALUES", ..] | ["", ..] => {
            let mut parser = parser(tokens);
            let query = parser.parse_query().map_err(|error| from_parser(&error))?;
            end(&mut parser)?;
            Ok(Statement::Select(query))
        }
        [first, ..] => {
            let known = ["CREATE", "INSERT", "SELECT", "SET", "EXPLAIN", "WITH"].map(String::from);
            let error = SqlError::new(format!("'{first}' begins no statement that is known here"));
            Err(match nearest(first, &known) {
                Some(near) => error.mend(format!("did you mean {near}?")),
                None => error.mend("the statements are CREATE TABLE, CREATE VIEW, INSERT INTO, SELECT, SET and EXPLAIN"),
            })
        }
        [] => Err(SqlError::new("an empty statement")),
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
        ref token => Err(
            SqlError::new(format!("{} is not expected here", shown(token)))
                .at_token(&next)
                .mend("statements end with ';'"),
        ),
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
    Err(SqlError::new(format!("'{wanted}' is expected here, not {found}")).at_token(&next))
}

fn create_table(tokens: Vec<TokenWithSpan>) -> Result<Statement> {
    let mut parser = parser(tokens);
    parser.next_token();
    let _ = parser.parse_keyword(Keyword::TEMPORARY);
    parser.next_token();
    let unless_known = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
    let mut table = CreateTable {
        name: name(&mut parser)?,
        unless_known,
        columns: Vec::new(),
        watermark: None,
        primary_key: Vec::new(),
        options: BTreeMap::new(),
        option_places: BTreeMap::new(),
    };
    expect(&mut parser, Token::LParen)?;
    loop {
        column(&mut parser, &mut table)?;
        let next = parser.next_token();
        match next.token {
            Token::Comma => {}
            Token::RParen => break,
            Token::EOF => {
                return Err(SqlError::new("the list of columns does not end")
                    .at(table.name.span)
                    .mend("close it with ')'"));
            }
            ref token => {
                refused::behind_column(&next)?;
                return Err(SqlError::new(format!(
                    "',' or ')' is expected here, not {}",
                    shown(token)
                ))
                .at_token(&next)
                .mend("a column is: name TYPE, or name AS expression"));
            }
        }
    }
    refused::behind_columns(&parser.peek_token())?;
    if parser.parse_keyword(Keyword::WITH) {
        options(&mut parser, &mut table)?;
    }
    refused::behind_columns(&parser.peek_token())?;
    end(&mut parser)?;
    Ok(Statement::CreateTable(Box::new(table)))
}

/// A table's or view's name: one part, since there are no catalogs.
fn name(parser: &mut Parser) -> Result<Ident> {
    let name = parsed(parser.parse_identifier())?;
    let next = parser.peek_token();
    if next.token == Token::Period {
        return Err(SqlError::new("names of tables have one part here")
            .at_token(&next)
            .mend(format!("'{}' in front of the name can go", name.value)));
    }
    Ok(name)
}

fn column(parser: &mut Parser, table: &mut CreateTable) -> Result<()> {
    let start = parser.peek_token();
    let is_word = |token: &TokenWithSpan, wanted: &str| match &token.token {
        Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted),
        _ => false,
    };
    if is_word(&start, "WATERMARK") && is_word(&parser.peek_nth_token(1), "FOR") {
        parser.next_token();
        parser.next_token();
        let name = parsed(parser.parse_identifier())?;
        if !parser.parse_keyword(Keyword::AS) {
            return Err(SqlError::new("AS is expected here")
                .at_token(&parser.peek_token())
                .mend("WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"));
        }
        let expression = parsed(parser.parse_expr())?;
        if table.watermark.replace((name, expression)).is_some() {
            return Err(SqlError::new("a table has one WATERMARK").at(start.span));
        }
        return Ok(());
    }
    if is_word(&start, "PRIMARY") {
        return primary_key(parser, table, None);
    }
    let name = parsed(parser.parse_identifier())?;
    let kind = if parser.parse_keyword(Keyword::AS) {
        ColumnKind::Computed(Box::new(parsed(parser.parse_expr())?))
    } else {
        let sql_type = sql_type(parser)?;
        if is_word(&parser.peek_token(), "METADATA") {
            parser.next_token();
            let key = match parser.parse_keyword(Keyword::FROM) {
                true => text(parser, "what the source calls it")?,
                false => name.value.clone(),
            };
            // In Flink: not written. Here metadata is never written.
            if is_word(&parser.peek_token(), "VIRTUAL") {
                parser.next_token();
            }
            ColumnKind::Metadata(sql_type, key)
        } else {
            ColumnKind::Physical(sql_type)
        }
    };
    if parser.parse_keywords(&[Keyword::NOT, Keyword::NULL]) {
        return Err(
            SqlError::new("NOT NULL is not checked, so it can't be declared")
                .at(start.span)
                .mend("leave it out; a condition such as WHERE column IS NOT NULL does it"),
        );
    }
    let _ = parser.parse_keyword(Keyword::NULL);
    if is_word(&parser.peek_token(), "PRIMARY") {
        primary_key(parser, table, Some(&name))?;
    }
    if table
        .columns
        .iter()
        .any(|column| column.name.value == name.value)
    {
        return Err(
            SqlError::new(format!("column '{}' is declared twice", name.value)).at(name.span),
        );
    }
    table.columns.push(ColumnDefinition { name, kind });
    Ok(())
}

/// `PRIMARY KEY (a, b) NOT ENFORCED`, or behind a column without the list.
fn primary_key(parser: &mut Parser, table: &mut CreateTable, column: Option<&Ident>) -> Result<()> {
    let start = parser.next_token();
    if !parser.parse_keyword(Keyword::KEY) {
        return Err(SqlError::new("KEY is expected here")
            .at_token(&parser.peek_token())
            .mend("PRIMARY KEY (id) NOT ENFORCED"));
    }
    let columns = match column {
        Some(column) => vec![column.clone()],
        None => parsed(
            parser.parse_parenthesized_column_list(sqlparser::parser::IsOptional::Mandatory, false),
        )?,
    };
    if !parser.parse_keywords(&[Keyword::NOT, Keyword::ENFORCED]) {
        return Err(
            SqlError::new("a PRIMARY KEY is not checked, which has to be said")
                .at(start.span)
                .mend("PRIMARY KEY (id) NOT ENFORCED"),
        );
    }
    if !std::mem::replace(&mut table.primary_key, columns).is_empty() {
        return Err(SqlError::new("a table has one PRIMARY KEY").at(start.span));
    }
    Ok(())
}

/// A type; ROW and STRUCT are read here, all others by `sqlparser`.
fn sql_type(parser: &mut Parser) -> Result<SqlType> {
    let start = parser.peek_token();
    let is_row = match &start.token {
        Token::Word(word) => {
            word.value.eq_ignore_ascii_case("ROW") || word.value.eq_ignore_ascii_case("STRUCT")
        }
        _ => false,
    };
    if !is_row {
        let data_type = parsed(parser.parse_data_type())?;
        return Ok(SqlType::Simple(data_type, start.span));
    }
    parser.next_token();
    let close = match parser.next_token().token {
        Token::Lt => Token::Gt,
        Token::LParen => Token::RParen,
        _ => {
            return Err(SqlError::new("a ROW needs its fields")
                .at(start.span)
                .mend("ROW<name STRING, price BIGINT>"));
        }
    };
    let mut fields = Vec::new();
    loop {
        let name = parsed(parser.parse_identifier())?;
        fields.push((name.value, sql_type(parser)?));
        let next = parser.next_token();
        if next.token == close {
            return Ok(SqlType::Row(fields));
        }
        if next.token != Token::Comma {
            return Err(SqlError::new(format!("',' or '{close}' is expected here")).at_token(&next));
        }
    }
}

fn options(parser: &mut Parser, table: &mut CreateTable) -> Result<()> {
    expect(parser, Token::LParen)?;
    if parser.consume_token(&Token::RParen) {
        return Ok(());
    }
    loop {
        let start = parser.peek_token();
        let key = text(parser, "an option's name")?;
        expect(parser, Token::Eq)?;
        let value = text(parser, "an option's value")?;
        if table.options.insert(key.clone(), value).is_some() {
            return Err(SqlError::new(format!("option '{key}' is given twice")).at(start.span));
        }
        table.option_places.insert(key, start.span);
        let next = parser.next_token();
        match next.token {
            Token::Comma => {}
            Token::RParen => return Ok(()),
            ref token => {
                return Err(SqlError::new(format!(
                    "',' or ')' is expected here, not {}",
                    shown(token)
                ))
                .at_token(&next)
                .mend("WITH ('connector' = 'file', 'path' = 'in.csv')"));
            }
        }
    }
}

/// A quoted text, or a bare word or number.
fn text(parser: &mut Parser, what: &str) -> Result<String> {
    let next = parser.next_token();
    Ok(match next.token {
        Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) => text,
        Token::Word(word) => word.value,
        Token::Number(number, _) => number,
        ref token => {
            return Err(
                SqlError::new(format!("{what} is expected here, not {}", shown(token)))
                    .at_token(&next)
                    .mend("put it in single quotes"),
            );
        }
    })
}

fn set(tokens: Vec<TokenWithSpan>) -> Result<Statement> {
    let mut parser = parser(tokens);
    parser.next_token();
    let key = text(&mut parser, "a setting's name")?;
    let next = parser.next_token();
    let is_to = matches!(&next.token, Token::Word(word) if word.value.eq_ignore_ascii_case("TO"));
    if next.token != Token::Eq && !is_to {
        return Err(SqlError::new("'=' is expected here")
            .at_token(&next)
            .mend("SET 'key' = 'value'"));
    }
    let value = text(&mut parser, "a setting's value")?;
    end(&mut parser)?;
    Ok(Statement::Set { key, value })
}

fn create_view(tokens: Vec<TokenWithSpan>) -> Result<Statement> {
    let mut parser = parser(tokens);
    parser.next_token();
    let _ = parser.parse_keyword(Keyword::TEMPORARY);
    parser.next_token();
    refused::unless_known(&mut parser)?;
    let name = name(&mut parser)?;
    let columns = if parser.peek_token().token == Token::LParen {
        parsed(
            parser.parse_parenthesized_column_list(sqlparser::parser::IsOptional::Optional, false),
        )?
    } else {
        Vec::new()
    };
    if !parser.parse_keyword(Keyword::AS) {
        return Err(SqlError::new("AS is expected here")
            .at_token(&parser.peek_token())
            .mend("CREATE VIEW name AS SELECT …"));
    }
    let query = parsed(parser.parse_query())?;
    end(&mut parser)?;
    Ok(Statement::CreateView {
        name,
        columns,
        query,
    })
}

fn insert(tokens: Vec<TokenWithSpan>) -> Result<Statement> {
    let mut parser = parser(tokens);
    let insert_token = parser.next_token();
    let parsed_insert = parsed(parser.parse_insert(insert_token.clone()))?;
    end(&mut parser)?;
    let AstStatement::Insert(insert) = parsed_insert else {
        return Err(SqlError::new("this form of INSERT is not known here"));
    };
    crate::check::clauses::insert(&insert)?;
    let sqlparser::ast::TableObject::TableName(name) = &insert.table else {
        return Err(SqlError::new("INSERT INTO needs a table's name").at(insert_token.span));
    };
    let [sqlparser::ast::ObjectNamePart::Identifier(table)] = name.0.as_slice() else {
        return Err(
            SqlError::new(format!("'{name}' is no table: names have one part here"))
                .at(name.span()),
        );
    };
    let query = insert.source.ok_or_else(|| {
        SqlError::new("INSERT INTO needs a query")
            .at(insert_token.span)
            .mend("INSERT INTO t SELECT …")
    })?;
    let columns = insert
        .columns
        .iter()
        .map(|name| match name.0.as_slice() {
            [sqlparser::ast::ObjectNamePart::Identifier(column)] => Ok(column.clone()),
            _ => Err(SqlError::new(format!("'{name}' is no column"))),
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
