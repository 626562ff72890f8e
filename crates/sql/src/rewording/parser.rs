//! Errors of the tokenizer and of `sqlparser`, in our own words and at the right place.

use sqlparser::keywords::Keyword;
use sqlparser::parser::ParserError;
use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, TokenizerError};

use crate::error::{SqlError, in_quotes, nearest};
use crate::names::TABLE_FUNCTIONS;

/// An error of the tokenizer about `text`: a string, a name or a comment that is not closed.
pub fn from_tokenizer(error: &TokenizerError, text: &str) -> SqlError {
    let at = |location: Location, length: u64| {
        let end = Location::new(location.line, location.column + length);
        Span::new(location, end)
    };
    let says = |part: &str| error.message.contains(part);
    if says("multi-line comment") {
        // The tokenizer's place is the end of the text; the start of the comment is more helpful.
        let before = &text[..text.rfind("/*").unwrap_or(0)];
        let line = before.matches('\n').count() as u64 + 1;
        let column = before.chars().rev().take_while(|&c| c != '\n').count() as u64 + 1;
        return SqlError::new("the comment is not closed")
            .at(at(Location::new(line, column), 2))
            .hint("close it with */");
    }
    let (message, hint) = if says("Unterminated string literal") {
        ("the string is not closed", "close it with '")
    } else if says("Expected close delimiter") {
        (
            "the quoted name is not closed",
            "close it with \"; strings need single quotes",
        )
    } else {
        (error.message.as_str(), "")
    };
    SqlError::new(message).at(at(error.location, 1)).hint(hint)
}

/// An error of the parser, which has its place only in its text: `… at Line: 3, Column: 14`.
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
        "literal int" => "an integer".to_string(),
        after_is if after_is.ends_with("after IS") => {
            "[NOT] NULL, TRUE, FALSE or DISTINCT FROM".to_string()
        }
        query if query.starts_with("SELECT, VALUES") => "a query".to_string(),
        sign if !sign.starts_with(char::is_alphabetic) => format!("'{sign}'"),
        other => other.to_string(),
    };
    match place {
        Some(start) => SqlError::new(format!("expected {wanted}, found {}", in_quotes(found)))
            .at(span(start, found.chars().count() as u64)),
        None => {
            SqlError::new(format!("expected {wanted}, found the end of the statement")).near_end()
        }
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

/// Keywords of statements.
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

/// The likely cause of a syntax error: a misspelled keyword at or directly before its place, or a CASE
/// without END.
pub fn misspelt(error: SqlError, tokens: &[TokenWithSpan]) -> SqlError {
    if !error.message.contains("expected") {
        return error;
    }
    let solid = tokens
        .iter()
        .filter(|token| !matches!(token.token, Token::Whitespace(_)))
        .collect::<Vec<_>>();
    let count = |wanted| {
        solid
            .iter()
            .filter(|token| is_keyword(token, wanted))
            .count()
    };
    if count(Keyword::CASE) > count(Keyword::END)
        && let Some(case) = solid.iter().find(|token| is_keyword(token, Keyword::CASE))
    {
        return SqlError::new("CASE has no END")
            .at(case.span)
            .hint("use CASE WHEN condition THEN value ELSE value END");
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
            return SqlError::new(format!("syntax error at '{}'", word.value))
                .at(token.span)
                .hint(format!("did you mean {keyword}?"));
        }
    }
    error
}

/// The error for an unknown function in FROM; `added` are the names of those that a build has added.
pub fn no_table_function(name: &str, added: impl Iterator<Item = String>) -> SqlError {
    let known = TABLE_FUNCTIONS.iter().map(|name| name.to_string());
    let known = known.chain(added).collect::<Vec<String>>();
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
    // Short words are similar to too many others.
    let near = |keyword: &&&str| {
        keyword.len() > 3
            && word.len() > 2
            && strsim::damerau_levenshtein(&word, keyword) <= keyword.len() / 4
    };
    KEYWORDS.iter().find(near).copied()
}
