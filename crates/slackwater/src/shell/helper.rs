//! What the line editor asks: completion.

use std::sync::{Arc, Mutex, PoisonError};

use rustyline::Context;
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;

use super::words::Words;

/// Answers the line editor.
pub struct Helper {
    /// What can be completed, kept up to date by the shell.
    pub words: Arc<Mutex<Words>>,
    /// Lines of the statement in front of the one that is typed.
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
        // What goes before matters to what can follow; a command stands alone.
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
