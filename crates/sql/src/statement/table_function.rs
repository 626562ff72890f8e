//! Rewrites calls of table functions that are not window functions to a form that `sqlparser` supports, on
//! the tokens: every token keeps its line and column.
//!
//! ```text
//! f(TABLE t PARTITION BY (a, b) ORDER BY ts, 1) OUTPUT x
//! f(TABLE_OF(t), PARTITION_BY(a, b), ORDER_BY(ts), 1, OUTPUT_OF(x))
//! ```

use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use super::{is_space, is_word};
use crate::error::{Result, SqlError};
use crate::names::{ORDER_BY, OUTPUT_OF, PARTITION_BY, SPLIT, TABLE_OF, WINDOW_FUNCTIONS};

/// Words that may follow a table, so that OUTPUT before them is an alias.
const FOLLOW: [&str; 15] = [
    "AS", "ON", "USING", "JOIN", "LEFT", "RIGHT", "INNER", "FULL", "CROSS", "NATURAL", "WHERE",
    "GROUP", "UNION", "ORDER", "LIMIT",
];

/// An open parenthesis.
struct Open {
    /// Whether it is that of a table function.
    is_call: bool,
    /// Whether another one closes with it.
    closes_two: bool,
}

/// Rewrites the calls of a statement.
pub fn rewrite(tokens: &[TokenWithSpan]) -> Result<Vec<TokenWithSpan>> {
    let mut rewriter = Rewriter {
        rest: tokens,
        made: Vec::with_capacity(tokens.len()),
        open: Vec::new(),
    };
    while let Some(token) = rewriter.rest.first() {
        rewriter.token(token)?;
    }
    Ok(rewriter.made)
}

struct Rewriter<'t> {
    rest: &'t [TokenWithSpan],
    made: Vec<TokenWithSpan>,
    open: Vec<Open>,
}

impl<'t> Rewriter<'t> {
    fn token(&mut self, token: &'t TokenWithSpan) -> Result<()> {
        let is_in_call = self.open.last().is_some_and(|open| open.is_call);
        match token.token {
            Token::LParen => {
                let is_call = self.begins_call();
                self.open.push(Open {
                    is_call,
                    closes_two: false,
                });
                self.copy();
            }
            Token::RParen => {
                self.skip();
                let open = self.open.pop();
                if open.as_ref().is_some_and(|open| open.is_call) {
                    self.output();
                }
                self.made.push(token.clone());
                if open.is_some_and(|open| open.closes_two) {
                    self.made.push(token.clone());
                }
            }
            Token::Word(_) if is_in_call && is_word(token, "TABLE") => self.table(token.span),
            Token::Word(_) if is_in_call && self.follow(&["PARTITION", "BY"]) => {
                self.columns(token.span, PARTITION_BY)?;
            }
            Token::Word(_) if is_in_call && self.follow(&["ORDER", "BY"]) => {
                self.columns(token.span, ORDER_BY)?;
                self.direction()?;
            }
            _ => self.copy(),
        }
        Ok(())
    }

    fn copy(&mut self) {
        if let Some((token, rest)) = self.rest.split_first() {
            self.made.push(token.clone());
            self.rest = rest;
        }
    }

    fn skip(&mut self) {
        self.rest = &self.rest[1..];
    }

    /// Goes on to the next token that is no space, and returns it.
    fn solid(&mut self) -> Option<&'t TokenWithSpan> {
        while self.rest.first().is_some_and(is_space) {
            self.skip();
        }
        self.rest.first()
    }

    /// Whether the next tokens are these words.
    fn follow(&self, words: &[&str]) -> bool {
        let mut solid = self.rest.iter().filter(|token| !is_space(token));
        let mut words = words.iter();
        words.all(|word| solid.next().is_some_and(|token| is_word(token, word)))
    }

    /// Whether the next parenthesis is that of a table function: `name(TABLE`, or `name(argument => TABLE`.
    fn begins_call(&self) -> bool {
        let mut before = self.made.iter().rev().filter(|token| !is_space(token));
        let (name, previous) = (before.next(), before.next());
        // What has this name is declared: a column may be called table.
        let declares = ["TABLE", "EXISTS", "FUNCTION"];
        if previous.is_some_and(|token| declares.iter().any(|word| is_word(token, word))) {
            return false;
        }
        let is_other = |word: &str| name.is_some_and(|name| is_word(name, word));
        let is_name = name.is_some_and(|name| matches!(name.token, Token::Word(_)));
        if !is_name || WINDOW_FUNCTIONS.iter().any(|word| is_other(word)) || is_other("TABLE") {
            return false;
        }
        let mut ahead = self.rest.iter().filter(|token| !is_space(token)).skip(1);
        let first = ahead.next();
        let is_table =
            |token: Option<&TokenWithSpan>| token.is_some_and(|token| is_word(token, "TABLE"));
        is_other(SPLIT)
            || is_table(first)
            || (ahead
                .next()
                .is_some_and(|token| token.token == Token::RArrow)
                && is_table(ahead.next()))
    }

    fn push(&mut self, token: Token, span: Span) {
        self.made.push(TokenWithSpan::new(token, span));
    }

    fn name(&mut self, name: &str, span: Span) {
        self.push(Token::make_word(name, None), span);
        self.push(Token::LParen, span);
    }

    /// `TABLE t` and `TABLE (SELECT …)`.
    fn table(&mut self, span: Span) {
        self.skip();
        self.name(TABLE_OF, span);
        if self
            .solid()
            .is_some_and(|token| token.token == Token::LParen)
        {
            self.copy();
            self.open.push(Open {
                is_call: false,
                closes_two: true,
            });
            return;
        }
        self.qualified();
        self.push(Token::RParen, span);
    }

    /// A name with dots.
    fn qualified(&mut self) {
        while self
            .solid()
            .is_some_and(|token| matches!(token.token, Token::Word(_)))
        {
            self.copy();
            if self
                .solid()
                .is_none_or(|token| token.token != Token::Period)
            {
                break;
            }
            self.copy();
        }
    }

    /// `PARTITION BY a`, `PARTITION BY (a, b)` and `ORDER BY a`.
    fn columns(&mut self, span: Span, argument: &str) -> Result<()> {
        // Both words.
        for _ in 0..2 {
            self.solid();
            self.skip();
        }
        self.push(Token::Comma, span);
        match self.solid().map(|token| &token.token) {
            Some(Token::LParen) => {
                self.push(Token::make_word(argument, None), span);
                self.copy();
                self.open.push(Open {
                    is_call: false,
                    closes_two: false,
                });
                Ok(())
            }
            Some(Token::Word(_)) => {
                self.name(argument, span);
                self.qualified();
                self.push(Token::RParen, span);
                Ok(())
            }
            _ => {
                let clause = argument.replace('_', " ");
                Err(SqlError::new(format!("{clause} needs a column"))
                    .at(span)
                    .hint("for example TABLE t PARTITION BY k ORDER BY ts, or PARTITION BY (a, b)"))
            }
        }
    }

    /// ASC or DESC after the column of ORDER BY.
    fn direction(&mut self) -> Result<()> {
        if self.follow(&["ASC"]) {
            self.solid();
            self.skip();
        }
        match self.follow(&["DESC"]) {
            false => Ok(()),
            true => {
                let span = self.solid().map_or(Span::empty(), |token| token.span);
                let error =
                    "rows can't be ordered in descending order, because a stream has no last row";
                Err(SqlError::new(error).at(span).hint("remove DESC"))
            }
        }
    }

    /// `OUTPUT name` after the parenthesis of a call, as its last argument.
    fn output(&mut self) {
        if !self.follow(&["OUTPUT"]) {
            return;
        }
        let mut ahead = self.rest.iter().filter(|token| !is_space(token));
        let span = ahead.next().map_or(Span::empty(), |token| token.span);
        let is_name = ahead.next().is_some_and(|token| {
            matches!(token.token, Token::Word(_)) && !FOLLOW.iter().any(|word| is_word(token, word))
        });
        if !is_name {
            return;
        }
        self.solid();
        self.skip();
        self.push(Token::Comma, span);
        self.name(OUTPUT_OF, span);
        self.solid();
        self.copy();
        self.push(Token::RParen, span);
    }
}
