//! Errors of the tokenizer and of `sqlparser`, in our words and at the place that is meant.

use sqlparser::keywords::Keyword;
use sqlparser::parser::ParserError;
use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, TokenizerError};

use crate::error::{SqlError, in_quotes, nearest};
use crate::names::WINDOW_FUNCTIONS;

/// A tokenizer's error about `text`: something in quotes, or a comment, that does not end.
pub fn from_tokenizer(error: &TokenizerError, text: &str) -> SqlError {
    let at = |location: Location, length: u64| {
        let end = Location::new(location.line, location.column + length);
        Span::new(location, end)
    };
    let says = |part: &str| error.message.contains(part);
    if says("multi-line comment") {
        // The tokenizer names the end of the text; what is wrong is where the comment begins.
        let before = &text[..text.rfind("/*").unwrap_or(0)];
        let line = before.matches('\n').count() as u64 + 1;
        let column = before.chars().rev().take_while(|&c| c != '\n').count() as u64 + 1;
        return SqlError::new("this comment does not end")
            .at(at(Location::new(line, column), 2))
            .hint("close it with */");
    }
    let (message, hint) = if says("Unterminated string literal") {
        ("this text does not end", "close it with '")
    } else if says("Expected close delimiter") {
        (
            "this name does not end",
            "close it with \"; texts stand in single quotes",
        )
    } else {
        (error.message.as_str(), "")
    };
    SqlError::new(message).at(at(error.location, 1)).hint(hint)
}

/// A parser's error; it has its place only in its text: `… at Line: 3, Column: 14`.
pub fn from_parser(error: &ParserError) -> SqlError {
    let text = match error {
        ParserError::ParserError(text) | ParserError::TokenizerError(text) => text.as_str(),
        ParserError::RecursionLimitExceeded => {
            return SqlError::new("the statement is nested too deeply");
        }
    };
    let (text, place) = match text.rfind(" at Line: ") {
        Some(at) => (&text[..at], location(&text[at + " at Line: ".len()..])),
        None => (text, None),
    };
    if text.starts_with("No infix parser for token") {
        let error = SqlError::new("this operator is not supported");
        return match place {
            Some(start) => error.at(span(start, 1)),
            None => error,
        };
    }
    let expected = text.strip_prefix("Expected: ");
    let Some((wanted, found)) = expected.and_then(|text| text.rsplit_once(", found: ")) else {
        return match place {
            Some(start) => SqlError::new(text).at(span(start, 1)),
            None => SqlError::new(text),
        };
    };
    let wanted = match wanted {
        "identifier" => "a name".to_string(),
        "a data type name" => "a type".to_string(),
        "literal int" => "a whole number".to_string(),
        after_is if after_is.ends_with("after IS") => {
            "NULL, TRUE, FALSE or DISTINCT FROM, with or without NOT,".to_string()
        }
        query if query.starts_with("SELECT, VALUES") => "a query".to_string(),
        sign if !sign.starts_with(char::is_alphabetic) => format!("'{sign}'"),
        other => other.to_string(),
    };
    match place {
        Some(start) => SqlError::new(format!(
            "{wanted} is expected here, not {}",
            in_quotes(found)
        ))
        .at(span(start, found.chars().count() as u64)),
        None => SqlError::new(format!("{wanted} is expected, but the statement ends")).near_end(),
    }
}

fn location(numbers: &str) -> Option<Location> {
    let (line, column) = numbers.split_once(", Column: ")?;
    let number = |text: &str| text.trim().parse::<u64>().ok();
    Some(Location::new(number(line)?, number(column)?))
}

fn span(start: Location, length: u64) -> Span {
    Span::new(start, Location::new(start.line, start.column + length))
}

/// Keywords that statements are made of.
const KEYWORDS: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "HAVING",
    "JOIN",
    "LEFT",
    "RIGHT",
    "INNER",
    "OUTER",
    "UNION",
    "INSERT",
    "INTO",
    "CREATE",
    "TABLE",
    "VIEW",
    "WATERMARK",
    "WITH",
    "INTERVAL",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "BETWEEN",
    "DISTINCT",
    "FILTER",
    "DESCRIPTOR",
    "TUMBLE",
    "EXPLAIN",
    "USING",
];

/// What a syntax error more likely means: a misspelt keyword at or just before its place, a CASE
/// without END, or `name(TABLE t, …)` with a name that is no window function.
pub fn misspelt(error: SqlError, tokens: &[TokenWithSpan]) -> SqlError {
    if !error.message.contains("expected") {
        return error;
    }
    let solid = tokens
        .iter()
        .filter(|token| !matches!(token.token, Token::Whitespace(_)))
        .collect::<Vec<_>>();
    for part in solid.windows(4) {
        if let [before, function, paren, table] = part
            && (is_keyword(before, Keyword::FROM)
                || is_keyword(before, Keyword::JOIN)
                || before.token == Token::LParen)
            && let Token::Word(word) = &function.token
            && word.quote_style.is_none()
            && paren.token == Token::LParen
            && is_keyword(table, Keyword::TABLE)
            && !WINDOW_FUNCTIONS
                .iter()
                .any(|known| known.eq_ignore_ascii_case(&word.value))
        {
            return no_table_function(&word.value).at(function.span);
        }
    }
    let count = |wanted| {
        solid
            .iter()
            .filter(|token| is_keyword(token, wanted))
            .count()
    };
    if count(Keyword::CASE) > count(Keyword::END)
        && let Some(case) = solid.iter().find(|token| is_keyword(token, Keyword::CASE))
    {
        return SqlError::new("this CASE has no END")
            .at(case.span)
            .hint("CASE WHEN condition THEN value ELSE value END");
    }
    let Some(place) = error.place else {
        return error;
    };
    let at = solid.iter().position(|token| {
        let start = token.span.start;
        (start.line, start.column) == (place.line as u64, place.column as u64)
    });
    let at = at.unwrap_or(solid.len());
    for token in solid[at.saturating_sub(2)..solid.len().min(at + 1)]
        .iter()
        .rev()
    {
        if let Token::Word(word) = &token.token
            && word.quote_style.is_none()
            && word.keyword == Keyword::NoKeyword
            && let Some(keyword) = near_keyword(&word.value)
        {
            return SqlError::new(format!("'{}' is not expected here", word.value))
                .at(token.span)
                .hint(format!("did you mean {keyword}?"));
        }
    }
    error
}

/// There is no such function in FROM.
pub fn no_table_function(name: &str) -> SqlError {
    let known = WINDOW_FUNCTIONS.iter().map(|name| name.to_string());
    let known = known.collect::<Vec<String>>();
    let error = SqlError::new(format!("there is no table function '{name}'"));
    match nearest(name, &known) {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => error.hint(format!("the table functions are {}", known.join(", "))),
    }
}

fn is_keyword(token: &TokenWithSpan, wanted: Keyword) -> bool {
    matches!(&token.token, Token::Word(word) if word.quote_style.is_none() && word.keyword == wanted)
}

/// A keyword that differs from the word by one or two letters.
fn near_keyword(word: &str) -> Option<&'static str> {
    let word = word.to_uppercase();
    // Of three letters and less everything is near something.
    let near = |keyword: &&&str| {
        keyword.len() > 3
            && word.len() > 2
            && strsim::damerau_levenshtein(&word, keyword) <= keyword.len() / 4
    };
    KEYWORDS.iter().find(near).copied()
}
