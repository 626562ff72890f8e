//! What a module names: the paths that start at the crate or above it, its imports, and the items of its own.

use std::collections::BTreeSet;

use proc_macro2::Delimiter;

use crate::tokens::{Kind, Token};

/// A path that a module names.
pub struct Use {
    pub path: Vec<String>,
    /// The name that a `use` gives to it.
    pub name: Option<String>,
    pub glob: bool,
    pub line: usize,
}

/// The file in `include!("…")`, if the tokens start with one.
pub fn include(tokens: &[Token]) -> Option<&str> {
    let [name, sign, group, ..] = tokens else {
        return None;
    };
    let arguments = group.group(Delimiter::Parenthesis)?;
    match (
        name.word(),
        sign.is('!'),
        arguments.first().map(|token| &token.kind),
    ) {
        (Some("include"), true, Some(Kind::Literal(path))) => Some(path.trim_matches('"')),
        _ => None,
    }
}

/// The path in `#[path = "…"]`, if the tokens start with one.
pub fn path_attribute(tokens: &[Token]) -> Option<String> {
    let attribute = tokens.first()?.group(Delimiter::Bracket)?;
    match attribute {
        [
            name,
            sign,
            Token {
                kind: Kind::Literal(path),
                ..
            },
        ] if name.word() == Some("path") && sign.is('=') => Some(path.trim_matches('"').to_owned()),
        _ => None,
    }
}

/// The names of the items that a module defines itself.
pub fn items(tokens: &[Token]) -> BTreeSet<String> {
    const KEYWORDS: [&str; 9] = [
        "fn",
        "struct",
        "enum",
        "union",
        "trait",
        "type",
        "const",
        "static",
        "macro_rules",
    ];
    let mut items = BTreeSet::new();
    for (at, token) in tokens.iter().enumerate() {
        if token.word().is_some_and(|word| KEYWORDS.contains(&word)) {
            items.extend(
                tokens[at + 1..]
                    .iter()
                    .take(2)
                    .find_map(Token::word)
                    .map(str::to_owned),
            );
        }
    }
    items
}

/// All paths that start with `crate`, `super` or `self`, and all imports.
pub fn paths(tokens: &[Token], found: &mut Vec<Use>) {
    let mut at = 0;
    while at < tokens.len() {
        let line = tokens[at].line;
        match &tokens[at].kind {
            Kind::Word(word)
                if word == "use" && tokens.get(at + 1).is_some_and(|next| !next.is('<')) =>
            {
                let end = tokens[at..].iter().position(|token| token.is(';'));
                let end = end.map_or(tokens.len(), |length| at + length);
                imports(&tokens[at + 1..end], &[], found);
                at = end;
            }
            Kind::Word(word) if matches!(word.as_str(), "crate" | "super" | "self") => {
                let mut path = vec![word.clone()];
                while let Some(next) = path_continues(&tokens[at + 1..]) {
                    path.push(next.to_owned());
                    at += 3;
                }
                if path.len() > 1 {
                    found.push(Use {
                        path,
                        name: None,
                        glob: false,
                        line,
                    });
                }
            }
            Kind::Group(_, inner) => paths(inner, found),
            _ => {}
        }
        at += 1;
    }
}

fn path_continues(tokens: &[Token]) -> Option<&str> {
    match tokens {
        [first, second, name, ..] if first.is(':') && second.is(':') => name.word(),
        _ => None,
    }
}

/// The tree of a `use`, below a path.
fn imports(tokens: &[Token], above: &[String], found: &mut Vec<Use>) {
    for tree in tokens.split(|token| token.is(',')) {
        let mut path = above.to_vec();
        let mut name = None;
        let mut line = None;
        let mut rest = tree.iter();
        while let Some(token) = rest.next() {
            match &token.kind {
                Kind::Word(word) if word == "as" => {
                    name = rest.next().and_then(Token::word).map(str::to_owned);
                }
                Kind::Word(word) if word == "self" && !path.is_empty() => line = Some(token.line),
                Kind::Word(word) => {
                    path.push(word.clone());
                    line = Some(token.line);
                }
                Kind::Sign('*') => {
                    found.push(Use {
                        path: path.clone(),
                        name: None,
                        glob: true,
                        line: token.line,
                    });
                }
                Kind::Group(_, inner) => imports(inner, &path, found),
                _ => {}
            }
        }
        let ends_with_name = tree.last().is_some_and(|token| token.word().is_some());
        if let (Some(line), true) = (line, ends_with_name) {
            let name = name.or_else(|| path.last().cloned());
            found.push(Use {
                path,
                name,
                glob: false,
                line,
            });
        }
    }
}
