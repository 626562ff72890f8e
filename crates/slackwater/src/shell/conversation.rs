//! Reads statements from a terminal line by line; the prompt shows whether a statement continues.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{CompletionType, Config, Editor};

use super::helper::Helper;
use super::{Shell, Stop, state_folder};
use crate::split::{ends_inside, is_complete};
use crate::terminal::{FAILED, say};

/// The number of statements in the history.
const HISTORY_MAX: usize = 10_000;

const PROMPT: &str = "sql> ";

/// The prompt for a statement's further lines.
const CONTINUES: &str = "  -> ";

type Lines = Editor<Helper, DefaultHistory>;

impl Shell {
    /// Reads and runs statements until the user leaves.
    pub(super) fn converse(&mut self) -> Result<(), Stop> {
        let mut editor = match self.editor() {
            Ok(editor) => editor,
            Err(error) => {
                say(&format!("error: this terminal can't be used: {error}\n"));
                return Err(Stop::Failed(FAILED));
            }
        };
        let history = state_folder().map(|folder| folder.join("history"));
        if let Some(history) = &history {
            // The file does not exist the first time.
            let _ = editor.load_history(history);
        }
        let at = self.remote.as_ref();
        let at = at.map(|remote| format!(", the server at {}", remote.address()));
        say(&format!(
            "Slackwater {}{}: \\? for help, \\q to leave\n",
            env!("CARGO_PKG_VERSION"),
            at.unwrap_or_default()
        ));
        loop {
            let prompt = match self.unfinished.is_empty() {
                true => PROMPT,
                false => CONTINUES,
            };
            if let Some(helper) = editor.helper_mut() {
                helper.before.clone_from(&self.unfinished);
            }
            let line = match self.typed.pop_front() {
                Some(line) => Ok(line),
                None if self.has_ended => Err(ReadlineError::Eof),
                None => {
                    self.is_waiting.store(true, Ordering::SeqCst);
                    let line = editor.readline(prompt);
                    self.is_waiting.store(false, Ordering::SeqCst);
                    line
                }
            };
            match line {
                Ok(line) => {
                    if let Some(entry) = self.take(&line)? {
                        keep(&mut editor, &entry, history.as_deref());
                        self.run_entry(&entry)?;
                    }
                }
                // The unfinished statement is dropped.
                Err(ReadlineError::Interrupted) => self.unfinished.clear(),
                Err(ReadlineError::Eof) => return Err(Stop::Quit),
                Err(ReadlineError::Signal(_)) => {}
                Err(error) => {
                    say(&format!("error: the terminal: {error}\n"));
                    return Err(Stop::Failed(FAILED));
                }
            }
            if self.is_terminated.load(Ordering::SeqCst) {
                return Err(Stop::Quit);
            }
        }
    }

    fn editor(&self) -> rustyline::Result<Lines> {
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .max_history_size(HISTORY_MAX)
            .and_then(|config| config.history_ignore_dups(true))
            .map(|config| config.history_ignore_space(true).build())?;
        let mut editor = Lines::with_config(config)?;
        editor.set_helper(Some(Helper {
            words: Arc::clone(&self.words),
            before: String::new(),
        }));
        Ok(editor)
    }

    /// Handles a line: runs a command, or returns the statements that are complete with this line.
    fn take(&mut self, line: &str) -> Result<Option<String>, Stop> {
        if self.unfinished.is_empty() {
            let is_text = !line.trim().is_empty() && !line.starts_with('\\');
            if !is_text || is_complete(line) || word(line).is_some() {
                return Ok((!line.trim().is_empty()).then(|| line.to_string()));
            }
            self.unfinished = line.to_string();
            return Ok(None);
        }
        if line.starts_with('\\') && !ends_inside(&self.unfinished) {
            // The command is executed now, and the statement continues.
            self.command(line)?;
            return Ok(None);
        }
        self.unfinished.push('\n');
        self.unfinished.push_str(line);
        match is_complete(&self.unfinished) {
            true => Ok(Some(std::mem::take(&mut self.unfinished))),
            false => Ok(None),
        }
    }

    fn run_entry(&mut self, entry: &str) -> Result<(), Stop> {
        if let Some(command) = word(entry) {
            return self.command(command);
        }
        if entry.starts_with('\\') {
            return self.command(entry);
        }
        self.last = entry.to_string();
        self.run_text("sql", entry)
    }
}

/// The command for a single word that starts no statement, such as `exit`.
fn word(line: &str) -> Option<&'static str> {
    let line = line.trim().trim_end_matches(';').trim_end();
    match line.to_lowercase().as_str() {
        "help" => Some("\\?"),
        "exit" | "quit" => Some("\\q"),
        _ => None,
    }
}

fn keep(editor: &mut Lines, entry: &str, history: Option<&Path>) {
    let is_new = editor.add_history_entry(entry).unwrap_or(false);
    let Some(history) = history.filter(|_| is_new) else {
        return;
    };
    let folder = history.parent().map_or(Ok(()), std::fs::create_dir_all);
    let kept = folder
        .map_err(ReadlineError::from)
        .and_then(|()| editor.append_history(history));
    if let Err(error) = kept {
        let history = history.display();
        say(&format!(
            "warning: the history is not kept: {history}: {error}\n"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_words_that_mean_commands() {
        assert_eq!(word("help"), Some("\\?"));
        assert_eq!(word(" EXIT ;"), Some("\\q"));
        assert_eq!(word("quit"), Some("\\q"));
        assert_eq!(word("help me"), None);
    }
}
