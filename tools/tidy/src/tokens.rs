//! Rust as a tree of tokens, without comments, and on request without what only tests see.
//!
//! Tokens and not a syntax tree: paths inside of macros count as any others, and the lexer alone compiles in
//! a third of the time of a parser.

use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A token with the line on which it starts.
#[derive(Clone, Debug)]
pub struct Token {
    pub line: usize,
    pub kind: Kind,
}

/// What a token is.
#[derive(Clone, Debug)]
pub enum Kind {
    Word(String),
    Sign(char),
    Literal(String),
    Group(Delimiter, Vec<Token>),
}

impl Token {
    /// The identifier or keyword, if it is one.
    pub fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }

    /// Whether it is this sign.
    pub fn is(&self, sign: char) -> bool {
        matches!(self.kind, Kind::Sign(found) if found == sign)
    }

    /// What the brackets of this kind hold, if it is such a group.
    pub fn group(&self, delimiter: Delimiter) -> Option<&[Token]> {
        match &self.kind {
            Kind::Group(found, tokens) if *found == delimiter => Some(tokens),
            _ => None,
        }
    }
}

/// The tokens of a file.
pub fn tokens(file: &str, text: &str) -> Result<Vec<Token>, String> {
    let stream = TokenStream::from_str(text)
        .map_err(|error| format!("{file}:{}: {error}", error.span().start().line))?;
    Ok(convert(stream))
}

fn convert(stream: TokenStream) -> Vec<Token> {
    let convert_one = |tree: TokenTree| {
        let line = tree.span().start().line;
        let kind = match tree {
            TokenTree::Ident(word) => Kind::Word(word.to_string()),
            TokenTree::Punct(sign) => Kind::Sign(sign.as_char()),
            TokenTree::Literal(literal) => Kind::Literal(literal.to_string()),
            TokenTree::Group(group) => Kind::Group(group.delimiter(), convert(group.stream())),
        };
        Token { line, kind }
    };
    stream.into_iter().map(convert_one).collect()
}

/// Removes every item with an attribute that only tests satisfy, together with its attributes.
pub fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let item = skip_attributes(tokens, at);
        if item > at && tokens[at..item].iter().any(only_tests) {
            at = item_end(tokens, item);
            continue;
        }
        let mut token = tokens[at].clone();
        if let Kind::Group(_, inner) = &mut token.kind {
            *inner = without_tests(inner);
        }
        kept.push(token);
        at += 1;
    }
    kept
}

/// Whether it is what stands in the brackets of `#[test]`, `#[cfg(test)]` or `#[cfg(all(test, …))]`.
fn only_tests(token: &Token) -> bool {
    let Some(attribute) = token.group(Delimiter::Bracket) else {
        return false;
    };
    match (attribute.first().and_then(Token::word), attribute.get(1)) {
        (Some("test"), None) => true,
        (Some("cfg"), Some(condition)) => condition
            .group(Delimiter::Parenthesis)
            .is_some_and(needs_test),
        _ => false,
    }
}

fn needs_test(condition: &[Token]) -> bool {
    let of_all = |token: &Token| token.group(Delimiter::Parenthesis).is_some_and(needs_test);
    condition
        .iter()
        .enumerate()
        .any(|(at, token)| match token.word() {
            Some("test") => true,
            Some("all") => condition.get(at + 1).is_some_and(of_all),
            _ => false,
        })
}

/// The position after the attributes at `at`.
fn skip_attributes(tokens: &[Token], mut at: usize) -> usize {
    while tokens.get(at).is_some_and(|token| token.is('#'))
        && tokens
            .get(at + 1)
            .is_some_and(|token| token.group(Delimiter::Bracket).is_some())
    {
        at += 2;
    }
    at
}

/// The position after the item at `at`: a field, variant or arm ends with a comma, others with `;` or braces.
fn item_end(tokens: &[Token], at: usize) -> usize {
    const ITEMS: [&str; 15] = [
        "mod",
        "use",
        "fn",
        "struct",
        "enum",
        "impl",
        "trait",
        "const",
        "static",
        "type",
        "macro_rules",
        "extern",
        "unsafe",
        "async",
        "let",
    ];
    let words = tokens[at..].iter().take(3).filter_map(Token::word);
    let is_item = words.into_iter().any(|word| ITEMS.contains(&word));
    let ends = |token: &Token| {
        token.is(';') || token.group(Delimiter::Brace).is_some() || !is_item && token.is(',')
    };
    tokens[at..]
        .iter()
        .position(ends)
        .map_or(tokens.len(), |length| at + length + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(tokens: &[Token]) -> String {
        let mut all = Vec::new();
        for token in tokens {
            match &token.kind {
                Kind::Word(word) => all.push(word.clone()),
                Kind::Group(_, inner) => all.push(words(inner)),
                _ => {}
            }
        }
        all.retain(|word| !word.is_empty());
        all.join(" ")
    }

    fn kept(text: &str) -> String {
        words(&without_tests(&tokens("a.rs", text).unwrap()))
    }

    #[test]
    fn what_only_tests_see_is_left_out() {
        assert_eq!(kept("a; #[cfg(test)] mod tests { b } c"), "a c");
        assert_eq!(
            kept("#[cfg(all(test, unix))] pub(crate) mod tests; #[test] fn a<A, B>() {} c"),
            "c"
        );
        assert_eq!(
            kept("struct A { #[cfg(test)] b: u8, c: u8 }"),
            "struct A c u8"
        );
        assert_eq!(kept("x! { #[cfg(test)] use a::{b, c}; d }"), "x d");
    }

    #[test]
    fn other_conditions_stay() {
        assert_eq!(kept("#[cfg(not(test))] use a;"), "cfg not test use a");
        assert_eq!(
            kept("#[cfg(any(test, fuzz))] use a;"),
            "cfg any test fuzz use a"
        );
    }

    #[test]
    fn a_text_that_is_not_rust_is_an_error_with_its_line() {
        assert!(
            tokens("a.rs", "\n\nfn a() {")
                .unwrap_err()
                .starts_with("a.rs:")
        );
    }
}
