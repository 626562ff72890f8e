//! `EXECUTE STATEMENT SET BEGIN … END`: INSERTs that run together, as all INSERTs of a file do anyway.

use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use super::{Statement, is_space};
use crate::error::{Result, SqlError};

/// The open set while a file is read.
#[derive(Default)]
pub(super) struct Sets {
    /// The place of its start, and whether it is only explained.
    open: Option<(Span, bool)>,
}

/// Words that open a set; its first statement may follow.
const OPENING: [&[&str]; 4] = [
    &["EXECUTE", "STATEMENT", "SET", "BEGIN"],
    &["EXPLAIN", "STATEMENT", "SET", "BEGIN"],
    &["STATEMENT", "SET", "BEGIN"],
    &["BEGIN", "STATEMENT", "SET"],
];

/// The number of words at the start of a statement that open a set, if they do.
pub fn opening(words: &[&str]) -> Option<usize> {
    let starts = |opening: &[&str]| {
        words.len() >= opening.len()
            && opening
                .iter()
                .zip(words)
                .all(|(wanted, word)| word.eq_ignore_ascii_case(wanted))
    };
    let found = OPENING.iter().find(|opening| starts(opening));
    found.map(|opening| opening.len())
}

/// Whether a statement with these words closes a set.
pub fn closing(words: &[&str]) -> bool {
    matches!(words, [end] if end.eq_ignore_ascii_case("END"))
}

fn words(tokens: &[TokenWithSpan]) -> Vec<(usize, &str)> {
    let solid = tokens.iter().enumerate();
    let solid = solid.filter(|(_, token)| !is_space(token)).take(5);
    let word = |(at, token)| match token {
        &TokenWithSpan {
            token: Token::Word(ref word),
            ..
        } if word.quote_style.is_none() => (at, word.value.as_str()),
        _ => (at, ""),
    };
    solid.map(word).collect()
}

impl Sets {
    /// The statement without the words that open or close a set; `None` if nothing else remains.
    pub fn inner<'t>(
        &mut self,
        tokens: &'t [TokenWithSpan],
    ) -> Result<Option<&'t [TokenWithSpan]>> {
        let words = words(tokens);
        let Some(&(first, _)) = words.first() else {
            return Ok(None);
        };
        let span = tokens[first].span;
        let names = words.iter().map(|(_, word)| *word).collect::<Vec<_>>();
        if let Some(count) = opening(&names) {
            if self.open.is_some() {
                return Err(SqlError::new("a STATEMENT SET can't contain another one")
                    .at(span)
                    .hint("close the first one with END"));
            }
            self.open = Some((span, names[0].eq_ignore_ascii_case("EXPLAIN")));
            let rest = &tokens[words[count - 1].0 + 1..];
            return Ok((!rest.iter().all(is_space)).then_some(rest));
        }
        if closing(&names) {
            return match self.open.take() {
                Some(_) => Ok(None),
                None => Err(SqlError::new("END has no STATEMENT SET")
                    .at(span)
                    .hint("EXECUTE STATEMENT SET BEGIN INSERT INTO …; INSERT INTO …; END")),
            };
        }
        // EXECUTE INSERT INTO … is an ordinary INSERT.
        let executes = names[0].eq_ignore_ascii_case("EXECUTE");
        let what = names.get(1).map(|word| word.to_uppercase());
        match what.as_deref() {
            Some("INSERT" | "SELECT") if executes => Ok(Some(&tokens[first + 1..])),
            _ => Ok(Some(tokens)),
        }
    }

    /// The statement after the checks of its set; `first` is its place.
    pub fn checked(&self, statement: Statement, first: Span) -> Result<Statement> {
        match (self.open, statement) {
            (None, statement) => Ok(statement),
            (Some((_, explains)), insert @ Statement::Insert { .. }) => Ok(match explains {
                true => Statement::Explain(Box::new(insert)),
                false => insert,
            }),
            (Some(_), _) => Err(SqlError::new("a STATEMENT SET can only contain INSERTs")
                .at(first)
                .hint("move the statement before the set, or close the set with END")),
        }
    }

    /// Checks the set at the end of the file.
    pub fn end(&self) -> Result<()> {
        match self.open {
            None => Ok(()),
            Some((span, _)) => Err(SqlError::new("the STATEMENT SET has no END")
                .at(span)
                .hint("close it with END;")),
        }
    }
}
