//! Hints: `/*+ OPTIONS('key' = 'value') */` after the name of a table sets options of that table for this
//! use. `/*+ SUBQUERY */` after SELECT begins a subquery ([`super::subquery_hint`]). Other hints choose how
//! to run a query, which settings do here: they are rejected, with a hint what to write instead. A comment
//! without the `+` is an ordinary comment.

use std::collections::BTreeMap;

use sqlparser::ast::{Ident, Query, TableAlias, TableFactor};
use sqlparser::dialect::GenericDialect;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Tokenizer, Whitespace};

use super::subquery_hint::{self, Begins};
use crate::error::{Result, SqlError};
use crate::walk::{self, Change, Next, ON};

/// A use of a table with options of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hinted {
    /// The name in the statement: that of the table, with the hint.
    pub name: String,
    /// The name of the table.
    pub table: String,
    /// The options of the hint.
    pub options: BTreeMap<String, String>,
    /// The place of the hint.
    pub span: Span,
}

/// The text between the name of the table and its options in [`Hinted::name`].
pub const OPTIONS_OF: &str = " /*+ OPTIONS(";

/// What hints are taken from: the rest of a statement, the tables that have some, and the SELECTs.
type Taken = (Vec<TokenWithSpan>, Vec<Hinted>, Vec<Begins>);

/// Removes the hints from a statement, and renames the tables that have some.
pub fn take(tokens: &[TokenWithSpan]) -> Result<Taken> {
    let mut rest = Vec::with_capacity(tokens.len());
    let mut hinted = Vec::new();
    let mut begins = Vec::new();
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
        if let Some(inside) = subquery(text) {
            let select = before.filter(|_| after_select);
            let select = select.ok_or_else(|| subquery_hint::misplaced(token.span))?;
            begins.push(Begins {
                select: select.span,
                name: subquery_hint::name(&inside, token.span)?,
                span: token.span,
            });
            continue;
        }
        let options = options(text, token.span, after_select)?;
        let Some(name) = before.filter(|token| is_name(token)) else {
            return Err(SqlError::new(
                "the hint OPTIONS is only allowed after the name of a table",
            )
            .at(token.span)
            .hint("use FROM t /*+ OPTIONS('key' = 'value') */"));
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
    Ok((rest, hinted, begins))
}

/// Lets the query use the table's own name for its columns: `FROM t /*+ … */ WHERE t.x > 1`.
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

/// The text of a hint.
fn hint(token: &TokenWithSpan) -> Option<&str> {
    match &token.token {
        Token::Whitespace(Whitespace::MultiLineComment(text)) => text.strip_prefix('+'),
        _ => None,
    }
}

/// What follows SUBQUERY in a hint; `None` if it is another one.
fn subquery(text: &str) -> Option<Vec<Token>> {
    let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize().ok()?;
    let mut tokens = tokens
        .into_iter()
        .filter(|token| !matches!(token, Token::Whitespace(_)));
    match tokens.next() {
        Some(Token::Word(word)) if word.value.eq_ignore_ascii_case("SUBQUERY") => {
            Some(tokens.collect())
        }
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

/// The options in a hint.
fn options(text: &str, span: Span, after_select: bool) -> Result<BTreeMap<String, String>> {
    let wrong = |message: String| {
        SqlError::new(message)
            .at(span)
            .hint("use FROM t /*+ OPTIONS('key' = 'value', …) */")
    };
    let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize();
    let tokens = tokens.map_err(|_| wrong(format!("the hint '{}' is not valid", text.trim())))?;
    let mut tokens = tokens
        .into_iter()
        .filter(|token| !matches!(token, Token::Whitespace(_)));
    let name = match tokens.next() {
        Some(Token::Word(word)) => word.value.to_uppercase(),
        _ => return Err(wrong("the hint has no name".to_string())),
    };
    if name != "OPTIONS" {
        return Err(refused(&name).at(span));
    }
    if after_select {
        return Err(wrong(
            "the hint OPTIONS is only allowed after the name of a table".to_string(),
        ));
    }
    let pairs = || wrong("OPTIONS needs pairs of strings: 'key' = 'value'".to_string());
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
            return Err(wrong(format!("option '{key}' is set twice")));
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

/// The error for a hint that is not supported, with what to write instead.
fn refused(name: &str) -> SqlError {
    let hint = match name {
        "STATE_TTL" => {
            "use SET 'state_ttl' = '1 d' before the query, which applies to all of its state"
        }
        "SHUFFLE_HASH" | "SHUFFLE_MERGE" | "NEST_LOOP" | "MULTI_JOIN" => {
            "remove it: the conditions of a join decide how it runs, and EXPLAIN shows it"
        }
        "LOOKUP" => {
            "remove it; use options such as 'lookup.cache.max_rows', in the table's WITH or in OPTIONS"
        }
        _ => {
            "remove it; the supported hints are OPTIONS('key' = 'value') after the name of a table, and \
             SUBQUERY and BROADCAST(t) after SELECT"
        }
    };
    SqlError::new(format!("the hint {name} is not supported")).hint(hint)
}
