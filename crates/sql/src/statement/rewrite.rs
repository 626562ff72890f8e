//! Rewrites syntax that `sqlparser` does not support, on the tokens: every token keeps its line and column.

use super::distinct_from::bracket;
use crate::error::{Result, SqlError};
use crate::names::{PARTITION_BY, VERSION, WINDOW_FUNCTIONS};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

/// Rewrites window table functions to a form that `sqlparser` supports: `TABLE(TUMBLE(…))` loses its outer
/// call, `TABLE t` inside the call its keyword; the brackets of `ROW<…>>` are separated;
/// `t FOR SYSTEM_TIME AS OF s.ts` becomes `t(SYSTEM_TIME => s.ts)`.
pub fn rewrite(tokens: &[TokenWithSpan]) -> Result<Vec<TokenWithSpan>> {
    let tokens = &versions(&bracket(&without_local(tokens)))?;
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
    // For each open parenthesis: whether it is the outer call of TABLE(…), and whether it is a window
    // function's.
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
            if let [_, called, paren] = ahead[..]
                && matches!(tokens[called].token, Token::Word(_))
                && tokens[paren].token == Token::LParen
            {
                let error = "TABLE is followed by the name of a table or a view, or by a query";
                return Err(SqlError::new(error)
                    .at(tokens[called].span)
                    .hint("for example TABLE (SELECT * FROM clip(TABLE t, 1, 2))"));
            }
            index += 1;
            continue;
        }
        if let [_, by, _] = ahead[..]
            && inside_window
            && word(index, &["PARTITION"])
            && word(by, &["BY"])
        {
            let (argument, length) = partition_by(&tokens[index..])?;
            rewritten.extend(argument);
            index += length;
            continue;
        }
        match token.token {
            Token::LParen => {
                let mut before = rewritten
                    .iter()
                    .rev()
                    .filter(|token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_)));
                let mut is_one_of = |wanted: &[&str]| {
                    before.next().is_some_and(|token| match &token.token {
                        Token::Word(word) => wanted
                            .iter()
                            .any(|name| name.eq_ignore_ascii_case(&word.value)),
                        _ => false,
                    })
                };
                // CREATE FUNCTION of such a name is refused later, with the reason.
                let window = is_one_of(WINDOW_FUNCTIONS) && !is_one_of(&["FUNCTION"]);
                open.push((false, window));
            }
            Token::RParen if open.pop().is_some_and(|(outer, _)| outer) => {
                index += 1;
                continue;
            }
            _ => {}
        }
        let mut token = token.clone();
        if let Token::Word(word) = &mut token.token
            && rewritten.last().is_some_and(is_period)
        {
            // A column may be called `user`, which alone is a function.
            word.keyword = Keyword::NoKeyword;
        }
        rewritten.push(token);
        index += 1;
    }
    Ok(rewritten)
}

fn is_period(token: &TokenWithSpan) -> bool {
    token.token == Token::Period
}

/// `TIMESTAMP(3) WITH LOCAL TIME ZONE` without LOCAL, which `sqlparser` doesn't support: all times are in
/// UTC.
fn without_local(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let is_solid = |token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_));
    let is_local = |(at, token): &(usize, &TokenWithSpan)| {
        let mut before = tokens[..*at].iter().rev().filter(is_solid);
        let mut following = tokens[at + 1..].iter().filter(is_solid);
        is_word(token, "LOCAL")
            && before.next().is_some_and(|token| is_word(token, "WITH"))
            && following.next().is_some_and(|token| is_word(token, "TIME"))
            && following.next().is_some_and(|token| is_word(token, "ZONE"))
    };
    let kept = tokens.iter().enumerate().filter(|token| !is_local(token));
    kept.map(|(_, token)| token.clone()).collect()
}

/// The times after FOR SYSTEM_TIME AS OF, as arguments of the tables.
fn versions(tokens: &[TokenWithSpan]) -> Result<Vec<TokenWithSpan>> {
    let is_solid = |token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_));
    let mut rewritten = Vec::with_capacity(tokens.len());
    let mut rest = tokens;
    while let Some((token, others)) = rest.split_first() {
        let mut solid = rest.iter().filter(is_solid);
        let clause = ["FOR", VERSION, "AS", "OF"];
        let is_clause = is_solid(&token)
            && clause
                .iter()
                .all(|word| solid.next().is_some_and(|token| is_word(token, word)));
        if !is_clause {
            rewritten.push(token.clone());
            rest = others;
            continue;
        }
        let mut before = rewritten.iter().rev().filter(is_solid);
        let (table, as_word) = (before.next(), before.next());
        let is_name = table.is_some_and(|table| matches!(table.token, Token::Word(_)));
        if !is_name || as_word.is_some_and(|word| is_word(word, "AS")) {
            let error = "FOR SYSTEM_TIME AS OF must come directly after the name of a table";
            return Err(SqlError::new(error)
                .at(token.span)
                .hint("for example JOIN rates FOR SYSTEM_TIME AS OF s.ts AS r ON …"));
        }
        let with_span = |token_made: Token| TokenWithSpan::new(token_made, token.span);
        rewritten.push(with_span(Token::LParen));
        rewritten.push(with_span(Token::make_word(VERSION, None)));
        rewritten.push(with_span(Token::RArrow));
        let keyword = rest.iter().position(|token| is_word(token, "OF"));
        rest = &rest[keyword.map_or(0, |at| at + 1)..];
        let length = expression_length(rest);
        rewritten.extend_from_slice(&rest[..length]);
        rewritten.push(with_span(Token::RParen));
        // Separates a following name from the parenthesis.
        rewritten.push(with_span(Token::Whitespace(Whitespace::Space)));
        rest = &rest[length..];
    }
    Ok(rewritten)
}

/// The number of tokens of the expression at the start, before an alias or anything else that may follow a
/// table.
fn expression_length(tokens: &[TokenWithSpan]) -> usize {
    const FOLLOW: [&str; 16] = [
        "AS", "ON", "USING", "JOIN", "LEFT", "RIGHT", "INNER", "FULL", "CROSS", "NATURAL", "WHERE",
        "GROUP", "HAVING", "UNION", "ORDER", "LIMIT",
    ];
    let follows = |token: &TokenWithSpan| FOLLOW.iter().any(|word| is_word(token, word));
    let mut depth = 0;
    let mut after_a_value = false;
    for (index, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::Whitespace(_) => continue,
            Token::LParen => depth += 1,
            Token::RParen if depth > 0 => depth -= 1,
            Token::RParen | Token::Comma | Token::SemiColon if depth == 0 => return index,
            Token::Word(_) if depth == 0 && (after_a_value || follows(token)) => return index,
            _ => {}
        }
        after_a_value = matches!(token.token, Token::Word(_) | Token::RParen);
    }
    tokens.len()
}

fn is_word(token: &TokenWithSpan, wanted: &str) -> bool {
    match &token.token {
        Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted),
        _ => false,
    }
}

/// `PARTITION BY a, b` after the table of a window table function, as an argument `PARTITION_BY(a, b)`, and
/// the number of its tokens. It ends at the comma before DESCRIPTOR.
fn partition_by(tokens: &[TokenWithSpan]) -> Result<(Vec<TokenWithSpan>, usize)> {
    let is_solid = |token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_));
    let ends = |rest: &[TokenWithSpan]| {
        let mut following = rest.iter().filter(is_solid);
        let (first, second) = (following.next(), following.next());
        first.is_some_and(|token| is_word(token, "DESCRIPTOR"))
            || second.is_some_and(|token| token.token == Token::RArrow)
    };
    let span = tokens[0].span;
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 0 => break,
            Token::RParen => depth -= 1,
            Token::Comma if depth == 0 && ends(&tokens[index + 1..]) => {
                let with_span = |token_made: Token| TokenWithSpan::new(token_made, span);
                let by = tokens.iter().position(|token| is_word(token, "BY"));
                let mut argument = vec![
                    with_span(Token::Comma),
                    with_span(Token::make_word(PARTITION_BY, None)),
                    with_span(Token::LParen),
                ];
                argument.extend_from_slice(&tokens[by.map_or(0, |by| by + 1)..index]);
                argument.push(with_span(Token::RParen));
                return Ok((argument, index));
            }
            _ => {}
        }
    }
    Err(
        SqlError::new("PARTITION BY must come between the table and DESCRIPTOR")
            .at(span)
            .hint(
                "for example SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '30' MINUTE)",
            ),
    )
}

/// A `>>` that closes two types as two `>`: `ROW<a ROW<b INT>>`; and ROW inside of an ARRAY or a MAP as
/// STRUCT, which is how the parser knows it.
pub fn split_shift(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    const WITH_BRACKETS: [&str; 4] = ["ROW", "STRUCT", "ARRAY", "MAP"];
    // For each open bracket, whether it is inside of an ARRAY or a MAP.
    let mut open: Vec<bool> = Vec::new();
    // The place of the word before, if a bracket may follow it.
    let mut opener = None;
    let mut split: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    for token in tokens {
        match (&token.token, opener) {
            (Token::Lt, Some(place)) => {
                let is_inside = open.last().is_some_and(|is_inside| *is_inside);
                let word: &mut TokenWithSpan = &mut split[place];
                open.push(is_inside || is_word(word, "ARRAY") || is_word(word, "MAP"));
                if is_inside && is_word(word, "ROW") {
                    word.token = Token::make_word("STRUCT", None);
                }
            }
            (Token::Gt, _) => {
                open.pop();
            }
            (Token::ShiftRight, _) if !open.is_empty() => {
                open.truncate(open.len().saturating_sub(2));
                split.extend(vec![TokenWithSpan::new(Token::Gt, token.span); 2]);
                continue;
            }
            _ => {}
        }
        if !matches!(token.token, Token::Whitespace(_)) {
            let opens = WITH_BRACKETS.iter().any(|word| is_word(&token, word));
            opener = opens.then_some(split.len());
        }
        split.push(token);
    }
    split
}
