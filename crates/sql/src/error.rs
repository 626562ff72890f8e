//! Errors of SQL text: the place, with a caret under it, the message and a hint.
//!
//! Not every error knows its place: the planner reports many by name only. Such an error says which word of
//! the statement is wrong ([`SqlError::near`], or the names that it quotes), and [`SqlError::among`] finds
//! that word among the statement's tokens.

mod secrets;

use std::fmt;

use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan};
use unicode_width::UnicodeWidthChar;

/// An error in a SQL text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError {
    /// What is wrong.
    pub message: String,
    /// How to fix it; empty if there is nothing to add to the message.
    pub hint: String,
    /// The line and column, both from 1, and the number of wrong characters; `None` if the error concerns the
    /// text as a whole.
    pub place: Option<Place>,
    near: Option<Near>,
    unknown: Option<Unknown>,
}

/// A name that does not exist. The similar names that a hint suggests are not yet looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unknown {
    Function,
    Field,
}

/// What the error is about, while its place is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Near {
    Word(String),
    End,
}

/// A place in a SQL text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The number of characters, at least 1.
    pub length: usize,
}

/// The result of reading SQL.
pub type Result<T> = std::result::Result<T, SqlError>;

impl SqlError {
    /// An error about the text as a whole.
    pub fn new(message: impl Into<String>) -> SqlError {
        SqlError {
            message: message.into(),
            hint: String::new(),
            place: None,
            near: None,
            unknown: None,
        }
    }

    /// The same error with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> SqlError {
        self.hint = hint.into();
        self
    }

    /// The same error at a place, unless it already has one.
    #[must_use]
    pub fn at(mut self, span: Span) -> SqlError {
        if self.place.is_none() && span.start.line > 0 {
            let Location { line, column } = span.start;
            let length = if span.end.line == line {
                span.end.column.saturating_sub(column)
            } else {
                1
            };
            self.place = Some(Place {
                line: line as usize,
                column: column as usize,
                length: length.max(1) as usize,
            });
        }
        self
    }

    /// The same error about a word of the statement, for errors without a place.
    #[must_use]
    pub fn near(mut self, word: impl Into<String>) -> SqlError {
        self.near = Some(Near::Word(word.into()));
        self
    }

    /// The same error about an unknown name, the first that the message quotes.
    #[must_use]
    pub(crate) fn unknown(mut self, what: Unknown) -> SqlError {
        self.unknown = Some(what);
        self
    }

    /// The kind of the unknown name, and the name.
    pub(crate) fn unknown_name(&self) -> Option<(Unknown, &str)> {
        Some((self.unknown?, quoted(&self.message).into_iter().next()?))
    }

    /// The same error within a range of places; the word that it is about is more exact than the whole query.
    #[must_use]
    pub(crate) fn at_unless_near(self, span: Span) -> SqlError {
        match self.near {
            Some(_) => self,
            None => self.at(span),
        }
    }

    /// The same error about `word`, unless it already says what it is about.
    #[must_use]
    pub fn or_near(self, word: &str) -> SqlError {
        if self.near.is_some() || !quoted(&self.message).is_empty() {
            return self;
        }
        self.near(word)
    }

    /// The same error at a token, which may be the end of the text.
    #[must_use]
    pub fn at_token(self, token: &TokenWithSpan) -> SqlError {
        match token.token {
            Token::EOF => self.near_end(),
            _ => self.at(token.span),
        }
    }

    /// The same error at the end of the statement.
    #[must_use]
    pub(crate) fn near_end(mut self) -> SqlError {
        self.near = Some(Near::End);
        self
    }

    /// The same error at the token that it is about: the word given by [`SqlError::near`], else a name that
    /// the message quotes, else the first token of the statement.
    #[must_use]
    pub fn among(self, tokens: &[TokenWithSpan]) -> SqlError {
        let mut solid = tokens
            .iter()
            .filter(|token| !matches!(token.token, Token::Whitespace(_)));
        let (Some(first), last) = (solid.clone().next(), solid.next_back()) else {
            return self;
        };
        let found = match &self.near {
            Some(Near::End) => last.or(Some(first)),
            Some(Near::Word(word)) => find(tokens, word),
            None => None,
        };
        let quoted = || {
            quoted(&self.message)
                .into_iter()
                .find_map(|name| find(tokens, name))
        };
        let span = found.or_else(quoted).unwrap_or(first).span;
        self.at(span).or_string(tokens)
    }

    /// The same error; for an unknown column in double quotes with a hint that strings need single quotes.
    fn or_string(mut self, tokens: &[TokenWithSpan]) -> SqlError {
        const HINT: &str = "for a string";
        if !self.message.starts_with("there is no column '") || self.hint.starts_with(HINT) {
            return self;
        }
        let is_meant = |token: &&TokenWithSpan| {
            let start = token.span.start;
            self.place.is_some_and(|place| {
                (place.line, place.column) == (start.line as usize, start.column as usize)
            })
        };
        if let Some(Token::Word(word)) = tokens.iter().find(is_meant).map(|found| &found.token)
            && word.quote_style == Some('"')
        {
            let text = word.value.replace('\'', "''");
            let string = format!("{HINT} use single quotes: '{text}'");
            self.hint = match self.hint.is_empty() {
                true => string,
                false => format!("{string}; for a column: {}", self.hint),
            };
        }
        self
    }

    /// The same error at the token that its message quotes, if there is one: for errors of other libraries.
    #[must_use]
    pub fn among_if_found(self, tokens: &[TokenWithSpan]) -> SqlError {
        let quoted = quoted(&self.message);
        match quoted.into_iter().rev().find_map(|name| find(tokens, name)) {
            Some(token) => {
                let span = token.span;
                self.at(span)
            }
            None => self,
        }
    }

    /// The error as the user sees it, with the line of `text` and a caret.
    pub fn render(&self, file: &str, text: &str) -> String {
        let mut shown = match self.place {
            Some(Place { line, column, .. }) => format!("{file}:{line}:{column}: {}", self.message),
            None => format!("{file}: {}", self.message),
        };
        if let Some(Place {
            line,
            column,
            length,
        }) = self.place
            && let Some(source) = text.lines().nth(line - 1)
        {
            let source = &secrets::masked(source);
            let number = line.to_string();
            let margin = " ".repeat(number.len());
            // Tabs are kept, so that the caret stands under the wrong characters.
            let lead = source.chars().take(column - 1);
            let lead = lead
                .map(|c| match c.width() {
                    None if c == '\t' => "\t",
                    None | Some(1) => " ",
                    Some(0) => "",
                    Some(_) => "  ",
                })
                .collect::<String>();
            let marked = source.chars().skip(column - 1).take(length);
            let marked = marked.map(|c| c.width().unwrap_or(1)).sum::<usize>();
            let carets = "^".repeat(marked.max(1));
            shown.push_str(&format!(
                "\n{margin} |\n{number} | {source}\n{margin} | {lead}{carets}"
            ));
        }
        if !self.hint.is_empty() {
            shown.push_str(&format!("\n  = {}", self.hint));
        }
        shown
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Place { line, column, .. }) = self.place {
            write!(f, "line {line}, column {column}: ")?;
        }
        f.write_str(&self.message)?;
        if !self.hint.is_empty() {
            write!(f, " ({})", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for SqlError {}

/// The token that is `word`: a word, or a string in quotes.
pub(crate) fn find<'a>(tokens: &'a [TokenWithSpan], word: &str) -> Option<&'a TokenWithSpan> {
    // A qualified column is several tokens; the last one is the column.
    let last = word.rsplit('.').next().unwrap_or(word);
    let says = |token: &&TokenWithSpan, wanted: &str, exact: bool| match &token.token {
        Token::Word(word) if exact => word.value == wanted,
        // The planner writes the names of functions in lower case.
        Token::Word(word) => word.value.eq_ignore_ascii_case(wanted),
        Token::SingleQuotedString(text) | Token::UnicodeStringLiteral(text) => text == wanted,
        Token::Number(number, _) => number == wanted,
        _ => false,
    };
    let tries = [(word, true), (last, true), (word, false), (last, false)];
    tries
        .into_iter()
        .find_map(|(wanted, exact)| tokens.iter().find(|token| says(token, wanted, exact)))
}

/// A span of DataFusion as one of the tokenizer.
pub(crate) fn to_span(span: datafusion_common::Span) -> Span {
    Span::new(
        Location::new(span.start.line, span.start.column),
        Location::new(span.end.line, span.end.column),
    )
}

/// A token as a message shows it.
pub fn shown(token: &Token) -> String {
    match token {
        Token::EOF => "the end".to_string(),
        token => in_quotes(&short(token.to_string())),
    }
}

/// The beginning of a text that has several lines or is long: of a function's.
fn short(text: String) -> String {
    const SHOWN_MAX: usize = 60;
    let line = text.lines().next().unwrap_or_default().trim_end();
    let end = line.char_indices().nth(SHOWN_MAX);
    let begun = end.map_or(line, |(end, _)| &line[..end]);
    let quote = text.starts_with('\'').then_some('\'');
    match begun.len() < text.len() {
        true => format!("{begun} …{}", quote.map_or(String::new(), String::from)),
        false => text,
    }
}

/// SQL text in a message: in quotes, unless it already has them.
pub(crate) fn in_quotes(text: &str) -> String {
    if text.starts_with(['\'', '"']) {
        text.to_string()
    } else {
        format!("'{text}'")
    }
}

/// The strings in single quotes in a message. An apostrophe inside a word is not a quote.
fn quoted(message: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut open: Option<usize> = None;
    let mut before = ' ';
    for (at, character) in message.char_indices() {
        if character == '\'' {
            match open {
                None if !before.is_alphanumeric() => open = Some(at + 1),
                None => {}
                Some(start) => {
                    found.push(&message[start..at]);
                    open = None;
                }
            }
        }
        before = character;
    }
    found
}

impl From<slackwater_engine::Error> for SqlError {
    fn from(error: slackwater_engine::Error) -> SqlError {
        SqlError::new(error.to_string())
    }
}

/// The name among `known` of which `name` is most likely a misspelling.
pub fn nearest(name: &str, known: &[String]) -> Option<String> {
    let name = name.to_lowercase();
    known
        .iter()
        .map(|candidate| {
            (
                strsim::jaro_winkler(&name, &candidate.to_lowercase()),
                candidate,
            )
        })
        // Short names are similar to many names with the same first letters.
        .filter(|(likeness, candidate)| *likeness > 0.8 && candidate.len() * 2 >= name.len())
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, candidate)| candidate.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_under_the_wrong_characters() {
        let span = Span::new(Location::new(2, 9), Location::new(2, 12));
        let error = SqlError::new("there is no column 'ips'")
            .at(span)
            .hint("did you mean 'ip'?");
        assert_eq!(
            error.render("q.sql", "SELECT 1;\n\tSELECT ips FROM t"),
            "q.sql:2:9: there is no column 'ips'\n  |\n2 | \tSELECT ips FROM t\n  | \t       ^^^\n  \
             = did you mean 'ip'?"
        );
    }

    #[test]
    fn the_caret_stands_under_the_wrong_characters_after_wide_ones() {
        let span = Span::new(Location::new(1, 14), Location::new(1, 17));
        let shown = SqlError::new("no")
            .at(span)
            .render("q.sql", "SELECT '東京', ips FROM t");
        assert!(shown.ends_with("\n  |                ^^^"), "{shown}");
    }

    #[test]
    fn an_error_without_a_place_finds_the_word_it_is_about() {
        let text = "SELECT Uper(b.x) FROM b\nWHERE b.x > 'abc'";
        let dialect = sqlparser::dialect::GenericDialect {};
        let mut tokens = sqlparser::tokenizer::Tokenizer::new(&dialect, text);
        let tokens = tokens.tokenize_with_location().unwrap();
        let place = |error: SqlError| {
            let place = error.among(&tokens).place.unwrap();
            (place.line, place.column, place.length)
        };
        assert_eq!(
            place(SqlError::new("there is no function 'uper'")),
            (1, 8, 4)
        );
        assert_eq!(place(SqlError::new("can't read 'b.x' here")), (1, 15, 1));
        assert_eq!(
            place(SqlError::new("'abc' is not a valid DOUBLE")),
            (2, 13, 5)
        );
        assert_eq!(place(SqlError::new("no").near("where")), (2, 1, 5));
        assert_eq!(place(SqlError::new("no").near_end()), (2, 13, 5));
        assert_eq!(place(SqlError::new("it's 'elsewhere'")), (1, 1, 6));
    }

    #[test]
    fn a_name_unlike_all_others_has_no_nearest() {
        let known = ["price".to_string(), "auction".to_string()];
        assert_eq!(nearest("pirce", &known), Some("price".to_string()));
        assert_eq!(nearest("xyz", &known), None);
        assert_eq!(nearest("convert_tz", &["cot".to_string()]), None);
    }
}
