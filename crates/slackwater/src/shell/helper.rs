//! Completion for the line editor.

use std::sync::{Arc, Mutex, PoisonError};

use rustyline::Context;
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;

use super::words::Words;

/// Completes words for the line editor.
pub struct Helper {
    /// The known words, updated by the shell.
    pub words: Arc<Mutex<Words>>,
    /// The earlier lines of the statement.
    pub before: String,
}

impl Completer for Helper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let typed = &line[..position];
        // Completion depends on the earlier lines, except for a command.
        let (start, found) = match self.before.is_empty() || typed.starts_with('\\') {
            true => words.complete(typed),
            false => {
                let (start, found) = words.complete(&format!("{}\n{typed}", self.before));
                (start.saturating_sub(self.before.len() + 1), found)
            }
        };
        let pair = |word: String| Pair {
            display: word.clone(),
            replacement: word,
        };
        Ok((start, found.into_iter().map(pair).collect()))
    }
}

impl Validator for Helper {}

impl Hinter for Helper {
    type Hint = String;
}

impl Highlighter for Helper {}

impl rustyline::Helper for Helper {}
