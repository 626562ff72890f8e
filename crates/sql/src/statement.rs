//! From SQL text to statements.
//!
//! `sqlparser` reads expressions, types and queries. What it does not know (WATERMARK, untyped
//! computed columns, ROW types, window table functions over `TABLE t`) is read or rewritten here, on
//! its tokens, so that every error keeps its line and column.

use std::collections::BTreeMap;

use sqlparser::ast::{Expr, Ident, Query, Statement as AstStatement};
use sqlparser::dialect::GenericDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer};

use crate::error::{Result, SqlError, from_parser, nearest};
use crate::types::SqlType;

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
    /// Its columns in order.
    pub columns: Vec<ColumnDefinition>,
    /// `WATERMARK FOR column AS expression`.
    pub watermark: Option<(Ident, Expr)>,
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
    /// Computed from other columns.
    Computed(Box<Expr>),
}

/// A statement and where it begins.
#[derive(Debug, Clone)]
pub struct Placed {
    /// The statement.
    pub statement: Statement,
    /// Its first token.
    pub span: Span,
}

/// Expressions nested deeper than this are refused: each level costs stack in every pass.
const NESTING_MAX: usize = 64;

/// Reads a text of statements separated by `;`.
pub fn parse(text: &str) -> Result<Vec<Placed>> {
    let tokens = Tokenizer::new(&DIALECT, text)
        .tokenize_with_location()
        .map_err(|error| {
            let at = Span::new(
                error.location,
                Location::new(error.location.line, error.location.column + 1),
            );
            SqlError::new(error.message).at(at)
        })?;
    let mut statements = Vec::new();
    let significant = |token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_));
    for tokens in tokens.split(|token| token.token == Token::SemiColon) {
        let Some(first) = tokens.iter().find(significant) else {
            continue;
        };
        let span = first.span;
        let statement = parse_one(rewrite(tokens)).map_err(|error| error.at(span))?;
        statements.push(Placed { statement, span });
    }
    Ok(statements)
}

static DIALECT: GenericDialect = GenericDialect {};

/// Brings window table functions into a form that `sqlparser` reads: `TABLE(TUMBLE(…))` loses its
/// outer call, `TABLE t` inside the call its keyword; `ROW<…>>` gets its brackets one by one.
fn rewrite(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let solid = |from: usize| -> Vec<usize> {
        (from..tokens.len())
            .filter(|&i| !matches!(tokens[i].token, Token::Whitespace(_)))
            .take(3)
            .collect()
    };
    let word = |index: usize, wanted: &[&str]| match &tokens[index].token {
        Token::Word(word) => {
            word.quote_style.is_none() && wanted.iter().any(|w| w.eq_ignore_ascii_case(&word.value))
        }
        _ => false,
    };
    let mut rewritten = Vec::with_capacity(tokens.len());
    // For each open parenthesis: is it the outer call of TABLE(…), is it a window function's.
    let mut open: Vec<(bool, bool)> = Vec::new();
    let mut index = 0;
    while index < tokens.len() {
        let token = &tokens[index];
        let ahead = solid(index);
        if let [_, paren, function] = ahead[..]
            && word(index, &["TABLE"])
            && tokens[paren].token == Token::LParen
            && word(function, WINDOW_FUNCTIONS)
        {
            open.push((true, false));
            index = paren + 1;
            continue;
        }
        let inside_window = open.last().is_some_and(|(_, window)| *window);
        if inside_window && word(index, &["TABLE"]) {
            index += 1;
            continue;
        }
        match token.token {
            Token::LParen => {
                let before = rewritten
                    .iter()
                    .rev()
                    .find(|token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_)));
                let window = before.is_some_and(|token| match &token.token {
                    Token::Word(word) => WINDOW_FUNCTIONS
                        .iter()
                        .any(|name| name.eq_ignore_ascii_case(&word.value)),
                    _ => false,
                });
                open.push((false, window));
            }
            Token::RParen if open.pop().is_some_and(|(outer, _)| outer) => {
                index += 1;
                continue;
            }
            _ => {}
        }
        rewritten.push(token.clone());
        index += 1;
    }
    rewritten
}

/// Table functions that assign windows.
pub const WINDOW_FUNCTIONS: &[&str] = &["TUMBLE", "HOP", "SESSION", "CUMULATE"];

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
        ["INSERT", ..] => insert(tokens),
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
        .with_recursion_limit(NESTING_MAX)
        .with_tokens_with_locations(tokens)
}

fn end(parser: &mut Parser) -> Result<()> {
    let next = parser.peek_token();
    match next.token {
        Token::EOF => Ok(()),
        token => Err(SqlError::new(format!("'{token}' is not expected here"))
            .at(next.span)
            .mend("statements end with ';'")),
    }
}

fn parsed<T>(result: std::result::Result<T, sqlparser::parser::ParserError>) -> Result<T> {
    result.map_err(|error| from_parser(&error))
}

/// `>>` as two `>`, for nested ROW types.
fn split_shift(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    tokens
        .into_iter()
        .flat_map(|token| match token.token {
            Token::ShiftRight => vec![TokenWithSpan::new(Token::Gt, token.span); 2],
            _ => vec![token],
        })
        .collect()
}

fn expect(parser: &mut Parser, wanted: Token) -> Result<()> {
    let next = parser.next_token();
    if next.token == wanted {
        return Ok(());
    }
    let found = if next.token == Token::EOF {
        "the end".to_string()
    } else {
        format!("'{}'", next.token)
    };
    Err(SqlError::new(format!("'{wanted}' is expected here, not {found}")).at(next.span))
}

fn create_table(tokens: Vec<TokenWithSpan>) -> Result<Statement> {
    let mut parser = parser(tokens);
    parser.next_token();
    let _ = parser.parse_keyword(Keyword::TEMPORARY);
    parser.next_token();
    let _ = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
    let mut table = CreateTable {
        name: parsed(parser.parse_identifier())?,
        columns: Vec::new(),
        watermark: None,
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
            token => {
                return Err(
                    SqlError::new(format!("',' or ')' is expected here, not '{token}'"))
                        .at(next.span),
                );
            }
        }
    }
    if parser.parse_keyword(Keyword::WITH) {
        options(&mut parser, &mut table)?;
    }
    end(&mut parser)?;
    Ok(Statement::CreateTable(Box::new(table)))
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
                .at(parser.peek_token().span)
                .mend("WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"));
        }
        let expression = parsed(parser.parse_expr())?;
        if table.watermark.replace((name, expression)).is_some() {
            return Err(SqlError::new("a table has one WATERMARK").at(start.span));
        }
        return Ok(());
    }
    if is_word(&start, "PRIMARY") {
        return Err(
            SqlError::new("PRIMARY KEY is not known here: there are no upsert sinks yet")
                .at(start.span)
                .mend("leave it out"),
        );
    }
    let name = parsed(parser.parse_identifier())?;
    let kind = if parser.parse_keyword(Keyword::AS) {
        ColumnKind::Computed(Box::new(parsed(parser.parse_expr())?))
    } else {
        ColumnKind::Physical(sql_type(parser)?)
    };
    if parser.parse_keywords(&[Keyword::NOT, Keyword::NULL]) {
        return Err(
            SqlError::new("NOT NULL is not checked, so it can't be declared")
                .at(start.span)
                .mend("leave it out; a condition such as WHERE column IS NOT NULL does it"),
        );
    }
    let _ = parser.parse_keyword(Keyword::NULL);
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
            return Err(SqlError::new(format!("',' or '{close}' is expected here")).at(next.span));
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
            token => {
                return Err(
                    SqlError::new(format!("',' or ')' is expected here, not '{token}'"))
                        .at(next.span)
                        .mend("WITH ('connector' = 'file', 'path' = 'in.csv')"),
                );
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
        token => {
            return Err(
                SqlError::new(format!("{what} is expected here, not '{token}'"))
                    .at(next.span)
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
            .at(next.span)
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
    let name = parsed(parser.parse_identifier())?;
    let columns = if parser.peek_token().token == Token::LParen {
        parsed(
            parser.parse_parenthesized_column_list(sqlparser::parser::IsOptional::Optional, false),
        )?
    } else {
        Vec::new()
    };
    if !parser.parse_keyword(Keyword::AS) {
        return Err(SqlError::new("AS is expected here")
            .at(parser.peek_token().span)
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
    let sqlparser::ast::TableObject::TableName(name) = &insert.table else {
        return Err(SqlError::new("INSERT INTO needs a table's name").at(insert_token.span));
    };
    let [sqlparser::ast::ObjectNamePart::Identifier(table)] = name.0.as_slice() else {
        return Err(
            SqlError::new(format!("'{name}' is no table: names have one part here"))
                .at(insert_token.span),
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
