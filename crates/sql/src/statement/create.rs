//! CREATE TABLE and CREATE VIEW.

use std::collections::BTreeMap;

use sqlparser::ast::{Expr, Ident};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{IsOptional, Parser};
use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use super::declaration::{ColumnDefinition, ColumnKind, CreateTable};
use super::like;
use super::{Statement, end, expect, is_word, parsed, parser, refused, text};
use crate::error::{Result, SqlError, shown};
use crate::types::SqlType;

pub(super) fn table(tokens: Vec<TokenWithSpan>) -> Result<Statement> {
    let mut parser = parser(tokens);
    parser.next_token();
    let _ = parser.parse_keyword(Keyword::TEMPORARY);
    parser.next_token();
    let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
    let mut table = CreateTable {
        name: name(&mut parser)?,
        if_not_exists,
        columns: Vec::new(),
        watermark: None,
        primary_key: Vec::new(),
        comment: None,
        options: BTreeMap::new(),
        option_places: BTreeMap::new(),
        like: None,
        query: None,
    };
    let next = parser.peek_token();
    let without_columns = ["WITH", "AS", "LIKE", "COMMENT"];
    let has_columns = !without_columns.iter().any(|word| is_word(&next, word));
    if has_columns {
        columns(&mut parser, &mut table)?;
    }
    table.comment = comment(&mut parser)?;
    refused::after_columns(&parser.peek_token())?;
    if parser.parse_keyword(Keyword::WITH) {
        options(&mut parser, &mut table.options, &mut table.option_places)?;
    }
    let keyword = parser.peek_token();
    if parser.parse_keyword(Keyword::LIKE) {
        table.like = Some(like::parse(&mut parser)?);
    } else if parser.parse_keyword(Keyword::AS) {
        // A list of nothing but the key.
        let is_declared = !table.columns.is_empty() || table.watermark.is_some();
        if is_declared {
            return Err(SqlError::new(
                "CREATE TABLE … AS can't have a column list, because the query defines the columns",
            )
            .at(keyword.span)
            .hint("remove the list, or use CREATE TABLE and INSERT INTO … SELECT …"));
        }
        table.query = Some(parsed(parser.parse_query())?);
    } else if !has_columns {
        let error = format!("expected '(', found {}", shown(&next.token));
        return Err(SqlError::new(error).at_token(&next));
    }
    refused::after_columns(&parser.peek_token())?;
    end(&mut parser)?;
    Ok(Statement::CreateTable(Box::new(table)))
}

fn columns(parser: &mut Parser, table: &mut CreateTable) -> Result<()> {
    expect(parser, Token::LParen)?;
    loop {
        column(parser, table)?;
        let next = parser.next_token();
        match next.token {
            Token::Comma => {}
            Token::RParen => return Ok(()),
            Token::EOF => {
                return Err(SqlError::new("the column list is not closed")
                    .at(table.name.span)
                    .hint("close it with ')'"));
            }
            ref token => {
                refused::after_column(&next)?;
                return Err(
                    SqlError::new(format!("expected ',' or ')', found {}", shown(token)))
                        .at_token(&next)
                        .hint("write a column as name TYPE, or name AS expression"),
                );
            }
        }
    }
}

/// The name of a table or view. It is not qualified, since there are no catalogs.
pub(super) fn name(parser: &mut Parser) -> Result<Ident> {
    let name = parsed(parser.parse_identifier())?;
    let next = parser.peek_token();
    if next.token == Token::Period {
        return Err(SqlError::new("qualified names of tables are not supported")
            .at_token(&next)
            .hint(format!(
                "remove '{}': there are no catalogs or databases",
                name.value
            )));
    }
    Ok(name)
}

/// `COMMENT 'text'`, if it comes next.
pub(super) fn comment(parser: &mut Parser) -> Result<Option<String>> {
    if !is_word(&parser.peek_token(), "COMMENT") {
        return Ok(None);
    }
    parser.next_token();
    let next = parser.next_token();
    match next.token {
        Token::SingleQuotedString(text) => Ok(Some(text)),
        ref token => Err(
            SqlError::new(format!("COMMENT needs a string, not {}", shown(token)))
                .at_token(&next)
                .hint("for example COMMENT 'daily totals'"),
        ),
    }
}

fn column(parser: &mut Parser, table: &mut CreateTable) -> Result<()> {
    let start = parser.peek_token();
    if is_word(&start, "WATERMARK") && is_word(&parser.peek_nth_token(1), "FOR") {
        return watermark(parser, table);
    }
    if is_word(&start, "CONSTRAINT") && is_word(&parser.peek_nth_token(2), "PRIMARY") {
        // The name of a constraint is ignored.
        parser.next_token();
        parser.next_token();
        return primary_key(parser, &mut table.primary_key, None);
    }
    if is_word(&start, "PRIMARY") {
        return primary_key(parser, &mut table.primary_key, None);
    }
    let name = parsed(parser.parse_identifier())?;
    let mut not_null = false;
    let kind = if parser.parse_keyword(Keyword::AS) {
        let expression = parsed(parser.parse_expr())?;
        if let Some(place) = ends_with_not_null(parser, &expression) {
            return Err(SqlError::new(
                "NOT NULL is not supported for computed columns and METADATA",
            )
            .at(place)
            .hint("remove it; COALESCE(…, value) replaces NULL by a value"));
        }
        ColumnKind::Computed(Box::new(expression))
    } else {
        let sql_type = sql_type(parser)?;
        not_null = is_not_null(parser);
        metadata(parser, &name, sql_type)?
    };
    not_null |= is_not_null(parser);
    let _ = parser.parse_keyword(Keyword::NULL);
    if is_word(&parser.peek_token(), "PRIMARY") {
        primary_key(parser, &mut table.primary_key, Some(&name))?;
    }
    let comment = comment(parser)?;
    if table
        .columns
        .iter()
        .any(|column| column.name.value == name.value)
    {
        return Err(
            SqlError::new(format!("column '{}' is declared twice", name.value)).at(name.span),
        );
    }
    table.columns.push(ColumnDefinition {
        name,
        kind,
        not_null,
        comment,
    });
    Ok(())
}

/// The place of a NOT NULL after an expression, which the parser reads as IS NOT NULL.
fn ends_with_not_null(parser: &mut Parser, expression: &Expr) -> Option<Span> {
    if !matches!(expression, Expr::IsNotNull(_)) {
        return None;
    }
    for _ in 0..3 {
        parser.prev_token();
    }
    let before = parser.next_token();
    let not = parser.next_token();
    parser.next_token();
    (!is_word(&before, "IS")).then_some(not.span)
}

fn is_not_null(parser: &mut Parser) -> bool {
    // NOT ENFORCED may follow instead.
    parser.parse_keywords(&[Keyword::NOT, Keyword::NULL])
}

fn watermark(parser: &mut Parser, table: &mut CreateTable) -> Result<()> {
    let start = parser.next_token();
    parser.next_token();
    let name = parsed(parser.parse_identifier())?;
    if !parser.parse_keyword(Keyword::AS) {
        return Err(SqlError::new("expected AS")
            .at_token(&parser.peek_token())
            .hint("for example WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"));
    }
    let expression = parsed(parser.parse_expr())?;
    if table.watermark.replace((name, expression)).is_some() {
        return Err(SqlError::new("a table can have only one WATERMARK").at(start.span));
    }
    Ok(())
}

/// The kind of a column with a type: physical, or METADATA.
fn metadata(parser: &mut Parser, name: &Ident, sql_type: SqlType) -> Result<ColumnKind> {
    if !is_word(&parser.peek_token(), "METADATA") {
        return Ok(ColumnKind::Physical(sql_type));
    }
    parser.next_token();
    let key = match parser.parse_keyword(Keyword::FROM) {
        true => text(parser, "the source's name of the column")?,
        false => name.value.clone(),
    };
    // In Flink, VIRTUAL columns are not written. Here metadata is never written.
    if is_word(&parser.peek_token(), "VIRTUAL") {
        parser.next_token();
    }
    Ok(ColumnKind::Metadata(sql_type, key))
}

/// `PRIMARY KEY (a, b) NOT ENFORCED`; after a column, without the list.
pub(super) fn primary_key(
    parser: &mut Parser,
    key: &mut Vec<Ident>,
    column: Option<&Ident>,
) -> Result<()> {
    let start = parser.next_token();
    if !parser.parse_keyword(Keyword::KEY) {
        return Err(SqlError::new("expected KEY")
            .at_token(&parser.peek_token())
            .hint("use PRIMARY KEY (id) NOT ENFORCED"));
    }
    let columns = match column {
        Some(column) => vec![column.clone()],
        None => parsed(parser.parse_parenthesized_column_list(IsOptional::Mandatory, false))?,
    };
    if !parser.parse_keywords(&[Keyword::NOT, Keyword::ENFORCED]) {
        return Err(
            SqlError::new("a PRIMARY KEY needs NOT ENFORCED, because it is not checked")
                .at(start.span)
                .hint("use PRIMARY KEY (id) NOT ENFORCED"),
        );
    }
    if !std::mem::replace(key, columns).is_empty() {
        return Err(SqlError::new("a table can have only one PRIMARY KEY").at(start.span));
    }
    Ok(())
}

/// A type; ROW and STRUCT are read here, all others by `sqlparser`.
pub(super) fn sql_type(parser: &mut Parser) -> Result<SqlType> {
    let start = parser.peek_token();
    if !is_word(&start, "ROW") && !is_word(&start, "STRUCT") {
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
                .hint("for example ROW<name STRING, price BIGINT>"));
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
        if is_word(&next, "NOT") {
            return Err(
                SqlError::new("NOT NULL is not supported for the fields of a ROW")
                    .at(next.span)
                    .hint("remove it, or declare the whole column NOT NULL"),
            );
        }
        if next.token != Token::Comma {
            return Err(SqlError::new(format!("expected ',' or '{close}'")).at_token(&next));
        }
    }
}

/// `('key' = 'value', …)`: the options, and the place of each.
pub(super) fn options(
    parser: &mut Parser,
    options: &mut BTreeMap<String, String>,
    places: &mut BTreeMap<String, Span>,
) -> Result<()> {
    expect(parser, Token::LParen)?;
    if parser.consume_token(&Token::RParen) {
        return Ok(());
    }
    loop {
        let start = parser.peek_token();
        let key = text(parser, "the name of an option")?;
        expect(parser, Token::Eq)?;
        let value = text(parser, "the value of an option")?;
        if options.insert(key.clone(), value).is_some() {
            return Err(SqlError::new(format!("option '{key}' is set twice")).at(start.span));
        }
        places.insert(key, start.span);
        let next = parser.next_token();
        match next.token {
            Token::Comma => {}
            Token::RParen => return Ok(()),
            ref token => {
                return Err(
                    SqlError::new(format!("expected ',' or ')', found {}", shown(token)))
                        .at_token(&next)
                        .hint("for example WITH ('connector' = 'file', 'path' = 'in.csv')"),
                );
            }
        }
    }
}

pub(super) fn view(tokens: Vec<TokenWithSpan>) -> Result<Statement> {
    let mut parser = parser(tokens);
    parser.next_token();
    let _ = parser.parse_keyword(Keyword::TEMPORARY);
    parser.next_token();
    let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
    let name = name(&mut parser)?;
    let columns = if parser.peek_token().token == Token::LParen {
        parsed(parser.parse_parenthesized_column_list(IsOptional::Optional, false))?
    } else {
        Vec::new()
    };
    // The comment of a view is not used.
    comment(&mut parser)?;
    if !parser.parse_keyword(Keyword::AS) {
        return Err(SqlError::new("expected AS")
            .at_token(&parser.peek_token())
            .hint("use CREATE VIEW name AS SELECT …"));
    }
    let query = parsed(parser.parse_query())?;
    end(&mut parser)?;
    Ok(Statement::CreateView {
        name,
        if_not_exists,
        columns,
        query,
    })
}
