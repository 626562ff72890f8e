//! `a IS [NOT] DISTINCT FROM b AND c`: `sqlparser` (0.62) takes `b AND c` as the right operand. Here the
//! comparison is put in parentheses if a weaker operator follows, so that it is read as in SQL:
//! `(a IS DISTINCT FROM b) AND c`.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::is_space;

/// Words that end an operand, besides AND, OR and IS; some of them come before the left operand.
const BOUNDS: &[&str] = &[
    "NOT",
    "SELECT",
    "DISTINCT",
    "ALL",
    "WHERE",
    "HAVING",
    "QUALIFY",
    "ON",
    "WHEN",
    "THEN",
    "ELSE",
    "BY",
    "AS",
    "FROM",
    "GROUP",
    "ORDER",
    "LIMIT",
    "OFFSET",
    "FETCH",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "JOIN",
    "INNER",
    "LEFT",
    "RIGHT",
    "FULL",
    "CROSS",
    "WINDOW",
    "ASC",
    "DESC",
    "NULLS",
];

/// Puts such comparisons in parentheses.
pub fn bracket(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let mut tokens = tokens.to_vec();
    let mut from = 0;
    while let Some((is, operand)) = next(&tokens, from) {
        from = is + 1;
        let Some(end) = end_of(&tokens, operand) else {
            continue;
        };
        let binds_less = ["AND", "OR", "IS"]
            .iter()
            .any(|word| is_word(&tokens[end], word));
        if !binds_less {
            continue;
        }
        let start = start_of(&tokens, is);
        let place = |at: usize| tokens[at].span;
        let (open, close) = (place(start), place(end));
        let bracket = |token, span| TokenWithSpan { token, span };
        tokens.insert(end, bracket(Token::RParen, close));
        tokens.insert(start, bracket(Token::LParen, open));
        from = end + 1;
    }
    tokens
}

/// The next comparison from `from` on: the index of its IS, and of the first token of its right operand.
fn next(tokens: &[TokenWithSpan], from: usize) -> Option<(usize, usize)> {
    let solid = (from..tokens.len()).filter(|&at| !is_space(&tokens[at]));
    let solid = solid.collect::<Vec<usize>>();
    solid.iter().enumerate().find_map(|(nth, &is)| {
        if !is_word(&tokens[is], "IS") {
            return None;
        }
        let mut rest = solid[nth + 1..].iter().copied().peekable();
        rest.next_if(|&at| is_word(&tokens[at], "NOT"));
        let distinct = rest.next().filter(|&at| is_word(&tokens[at], "DISTINCT"));
        let from = rest.next().filter(|&at| is_word(&tokens[at], "FROM"));
        distinct.and(from)?;
        Some((is, rest.next()?))
    })
}

/// The index of the first token after the operand that starts at `begin`.
fn end_of(tokens: &[TokenWithSpan], start: usize) -> Option<usize> {
    let (mut depth, mut betweens) = (0, 0);
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token.token {
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            Token::RParen | Token::RBracket | Token::RBrace if depth == 0 => return Some(at),
            Token::RParen | Token::RBracket | Token::RBrace => depth -= 1,
            Token::Comma | Token::SemiColon if depth == 0 => return Some(at),
            _ if is_word(token, "CASE") => depth += 1,
            _ if is_word(token, "END") && depth == 0 => return Some(at),
            _ if is_word(token, "END") => depth -= 1,
            _ if depth > 0 => {}
            _ if is_word(token, "BETWEEN") => betweens += 1,
            _ if is_word(token, "AND") && betweens > 0 => betweens -= 1,
            _ if ["AND", "OR", "IS"].iter().any(|word| is_word(token, word)) => return Some(at),
            // NOT LIKE, NOT IN and NOT BETWEEN continue the operand.
            _ if is_word(token, "NOT") => {}
            _ if at > start && BOUNDS.iter().any(|word| is_word(token, word)) => return Some(at),
            _ => {}
        }
    }
    None
}

/// The index of the first token of the operand that ends before `end`.
fn start_of(tokens: &[TokenWithSpan], end: usize) -> usize {
    let (mut depth, mut start) = (0, end);
    for at in (0..end).rev() {
        let token = &tokens[at];
        if is_space(token) {
            continue;
        }
        match token.token {
            Token::RParen | Token::RBracket | Token::RBrace => depth += 1,
            Token::LParen | Token::LBracket | Token::LBrace if depth == 0 => return start,
            Token::LParen | Token::LBracket | Token::LBrace => depth -= 1,
            Token::Comma | Token::SemiColon if depth == 0 => return start,
            _ if is_word(token, "END") => depth += 1,
            _ if is_word(token, "CASE") && depth == 0 => return start,
            _ if is_word(token, "CASE") => depth -= 1,
            _ if depth > 0 => {}
            _ if ["AND", "OR"].iter().any(|word| is_word(token, word)) => return start,
            _ if BOUNDS.iter().any(|word| is_word(token, word)) => return start,
            _ => {}
        }
        start = at;
    }
    start
}

fn is_word(token: &TokenWithSpan, wanted: &str) -> bool {
    match &token.token {
        Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use sqlparser::dialect::GenericDialect;
    use sqlparser::tokenizer::Tokenizer;

    use super::*;

    fn bracketed(text: &str) -> String {
        let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location();
        let tokens = bracket(&tokens.unwrap());
        tokens.iter().map(|token| token.token.to_string()).collect()
    }

    #[test]
    fn operators_after_the_comparison_are_not_part_of_it() {
        for (text, wanted) in [
            (
                "WHERE a IS DISTINCT FROM b AND c",
                "WHERE (a IS DISTINCT FROM b )AND c",
            ),
            (
                "x AND a + 1 IS NOT DISTINCT FROM f(b, c) * 2 OR d",
                "x AND (a + 1 IS NOT DISTINCT FROM f(b, c) * 2 )OR d",
            ),
            (
                "a IS DISTINCT FROM b AND c IS DISTINCT FROM d OR e",
                "(a IS DISTINCT FROM b )AND (c IS DISTINCT FROM d )OR e",
            ),
            (
                "CASE WHEN a IS DISTINCT FROM CASE WHEN b AND c THEN 1 END AND d THEN 2 END",
                "CASE WHEN (a IS DISTINCT FROM CASE WHEN b AND c THEN 1 END )AND d THEN 2 END",
            ),
            (
                "(a IS DISTINCT FROM b AND c), (NOT a IS DISTINCT FROM NULL OR d)",
                "((a IS DISTINCT FROM b )AND c), (NOT (a IS DISTINCT FROM NULL )OR d)",
            ),
            (
                "a IS DISTINCT FROM b IS NULL",
                "(a IS DISTINCT FROM b )IS NULL",
            ),
        ] {
            assert_eq!(bracketed(text), wanted);
        }
        for text in [
            "SELECT a IS DISTINCT FROM b x, c FROM t WHERE d AND e",
            "a IS DISTINCT FROM (b AND c)",
            "WHERE a IS DISTINCT FROM b GROUP BY c HAVING d AND e",
            "SELECT DISTINCT a FROM t WHERE a IS NULL AND b",
        ] {
            assert_eq!(bracketed(text), text);
        }
    }
}
