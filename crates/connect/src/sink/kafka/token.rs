//! Names of prepared transactions.

use std::fmt;

use slackwater_engine::error::{Error, Result};

/// The name of a transaction. Later names are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Token {
    /// The incarnation that has written it.
    pub(super) epoch: u64,
    /// The transaction's number in the incarnation, from 1.
    pub(super) number: u64,
}

impl Token {
    /// The token before every transaction.
    pub(super) const NONE: Token = Token {
        epoch: 0,
        number: 0,
    };

    /// Reads what [`Token::fmt`] has written.
    pub(super) fn parse(text: &str) -> Result<Token> {
        let numbers = text.split_once('-').and_then(|(epoch, number)| {
            Some(Token {
                epoch: epoch.parse().ok()?,
                number: number.parse().ok()?,
            })
        });
        numbers.ok_or_else(|| {
            let reason = format!("'{text}' is not a transaction of a kafka sink");
            Error::new("checkpoint", reason).hint("resume the query that took it")
        })
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_and_later_ones_are_greater() {
        let strings = ["0-0", "3-1", "3-2", "3-10", "12-1"];
        let tokens = strings.map(|text| Token::parse(text).unwrap());
        assert_eq!(tokens.map(|token| token.to_string()), strings);
        assert!(tokens.is_sorted());
        for text in ["", "3", "3-", "-1", "a-1", "3-1-2"] {
            Token::parse(text).unwrap_err();
        }
    }
}
