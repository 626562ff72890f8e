//! Hints: `/*+ OPTIONS('key' = 'value') */` behind the name of a table sets options of that table for this
//! use. Other hints say how to run a query, which other settings say here: they are refused, with what to
//! write. A comment without the `+` is a comment.

use std::collections::BTreeMap;

use sqlparser::ast::{Ident, Query, TableAlias, TableFactor};
use sqlparser::dialect::GenericDialect;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Tokenizer, Whitespace};

use crate::error::{Result, SqlError};
use crate::walk::{self, Change, Next, ON};

/// A table with options of its own, as a statement names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hinted {
    /// What stands for it in the statement: its name and the hint.
    pub name: String,
    /// The table.
    pub table: String,
    /// What is set.
    pub options: BTreeMap<String, String>,
    /// Where the hint stands.
    pub span: Span,
}

/// What stands between a table's name and its options in [`Hinted::name`].
pub const OPTIONS_OF: &str = " /*+ OPTIONS(";

/// Takes the hints out of a statement, and gives the tables that have some another name.
pub fn take(tokens: &[TokenWithSpan]) -> Result<(Vec<TokenWithSpan>, Vec<Hinted>)> {
    let mut rest = Vec::with_capacity(tokens.len());
    let mut hinted = Vec::new();
    for token in tokens {
        let Some(text) = hint(token) else {
            rest.push(token.clone());
            continue;
        };
        let solid = |token: &&mut TokenWithSpan| !matches!(token.token, Token::Whitespace(_));
        let before = rest.iter_mut().rev().find(solid);
        let after_select = before
            .as_ref()
            .is_some_and(|token| is_word(token, "SELECT"));
        let options = options(text, token.span, after_select)?;
        let Some(name) = before.filter(|token| is_name(token)) else {
            return Err(
                SqlError::new("the hint OPTIONS stands after the name of a table")
                    .at(token.span)
                    .hint("FROM t /*+ OPTIONS('key' = 'value') */"),
            );
        };
        let Token::Word(word) = &name.token else {
            continue;
        };
        let table = word.value.clone();
        let shown = options
            .iter()
            .map(|(key, value)| format!("'{key}'='{value}'"));
        let shown = shown.collect::<Vec<String>>().join(", ");
        let long = format!("{table}{OPTIONS_OF}{shown}) */");
        name.token = Token::make_word(&long, Some('"'));
        hinted.push(Hinted {
            name: long,
            table,
            options,
            span: token.span,
        });
    }
    Ok((rest, hinted))
}

/// A table with options keeps its name for the columns of the query: `FROM t /*+ … */ WHERE t.x > 1`.
pub fn keep_names(query: &mut Query) -> Result<()> {
    walk::change(query, &mut Names)
}

struct Names;

impl Change for Names {
    fn table_factor(&mut self, factor: &mut TableFactor) -> Next {
        if let TableFactor::Table {
            name,
            alias: alias @ None,
            ..
        } = factor
            && let Some(ident) = name.0.last().and_then(|part| part.as_ident())
            && let Some((table, _)) = ident.value.split_once(OPTIONS_OF)
        {
            let mut name = Ident::with_quote('"', table);
            name.span = ident.span;
            *alias = Some(TableAlias {
                explicit: true,
                name,
                columns: Vec::new(),
                at: None,
            });
        }
        ON
    }
}

/// What stands in a hint.
fn hint(token: &TokenWithSpan) -> Option<&str> {
    match &token.token {
        Token::Whitespace(Whitespace::MultiLineComment(text)) => text.strip_prefix('+'),
        _ => None,
    }
}

fn is_word(token: &TokenWithSpan, wanted: &str) -> bool {
    match &token.token {
        Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted),
        _ => false,
    }
}

fn is_name(token: &TokenWithSpan) -> bool {
    const NO_NAMES: [&str; 8] = [
        "SELECT", "FROM", "JOIN", "WHERE", "INTO", "TABLE", "ON", "BY",
    ];
    let is_word_only = NO_NAMES.iter().any(|word| is_word(token, word));
    matches!(token.token, Token::Word(_)) && !is_word_only
}

/// The options of a hint.
fn options(text: &str, span: Span, after_select: bool) -> Result<BTreeMap<String, String>> {
    let wrong = |message: String| {
        SqlError::new(message)
            .at(span)
            .hint("FROM t /*+ OPTIONS('key' = 'value', …) */")
    };
    let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize();
    let tokens = tokens.map_err(|_| wrong(format!("the hint '{}' can't be read", text.trim())))?;
    let mut tokens = tokens
        .into_iter()
        .filter(|token| !matches!(token, Token::Whitespace(_)));
    let name = match tokens.next() {
        Some(Token::Word(word)) => word.value.to_uppercase(),
        _ => return Err(wrong("a hint has a name".to_string())),
    };
    if name != "OPTIONS" {
        return Err(refused(&name).at(span));
    }
    if after_select {
        return Err(wrong(
            "the hint OPTIONS stands after the name of a table".to_string(),
        ));
    }
    let pairs = || wrong("OPTIONS takes pairs of strings: 'key' = 'value'".to_string());
    if tokens.next() != Some(Token::LParen) {
        return Err(pairs());
    }
    let mut options = BTreeMap::new();
    loop {
        let (key, equals, value) = (tokens.next(), tokens.next(), tokens.next());
        let (
            Some(Token::SingleQuotedString(key)),
            Some(Token::Eq),
            Some(Token::SingleQuotedString(value)),
        ) = (key, equals, value)
        else {
            return Err(pairs());
        };
        if options.contains_key(&key) {
            return Err(wrong(format!("the option '{key}' is given twice")));
        }
        options.insert(key, value);
        match tokens.next() {
            Some(Token::Comma) => {}
            Some(Token::RParen) => break,
            _ => return Err(pairs()),
        }
    }
    match tokens.next() {
        None => Ok(options),
        Some(Token::Word(word)) => Err(refused(&word.value.to_uppercase()).at(span)),
        Some(_) => Err(pairs()),
    }
}

/// A hint that is not obeyed, and what to write instead.
fn refused(name: &str) -> SqlError {
    let hint = match name {
        "STATE_TTL" => "SET 'state_ttl' = '1 d' before the query says it for all of its state",
        "BROADCAST" | "SHUFFLE_HASH" | "SHUFFLE_MERGE" | "NEST_LOOP" | "MULTI_JOIN" => {
            "leave it out: how a join runs follows from its conditions; EXPLAIN shows it"
        }
        "LOOKUP" => {
            "leave it out; 'lookup.cache.max_rows' and its like in the table's WITH, or in OPTIONS, say how rows are looked up"
        }
        _ => {
            "leave it out; the hint that is supported is OPTIONS('key' = 'value') after the name of a table"
        }
    };
    SqlError::new(format!("the hint {name} is not supported")).hint(hint)
}
