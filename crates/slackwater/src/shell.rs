//! The shell, which runs statements one by one.
//!
//! Declarations (tables, views, settings) are kept as SQL, and each query runs as a separate program of these
//! declarations and the query: it is compiled and run exactly like a file.

mod commands;
mod conversation;
mod helper;
mod keys;
mod listing;
mod live_table;
mod remote;
mod screen;
mod words;

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Read};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use signal_hook::consts::SIGINT;
use slackwater_sql::program::declared;
use slackwater_sql::session::Session;
use slackwater_sql::statement::{Statement, parse};

use crate::catalog::{BuiltIn, connector_of};
use crate::report::count;
use crate::run::{Asker, Failure, Finished, Outcome, RunOptions, run_script};
use crate::script::Script;
use crate::split::{Piece, split};
use crate::terminal::{FAILED, USAGE, print, say};
use keys::Listening;
pub(crate) use remote::{Remote, why};
use words::Words;

use screen::End;
pub use screen::Screen;

/// Why the shell stops.
pub(crate) enum Stop {
    /// The user left the shell.
    Quit,
    /// A statement failed without an interactive user; the exit code.
    Failed(u8),
}

/// A declaration that later statements may use.
struct Declared {
    /// The table's or view's name; `None` for SET.
    name: Option<String>,
    /// The name of the file or input that it came from.
    part: String,
    /// The SQL, on its original lines.
    text: String,
}

/// A session of the shell.
pub(crate) struct Shell {
    declared: Vec<Declared>,
    settings: Vec<(String, String)>,
    words: Arc<Mutex<Words>>,
    /// Whether a user sits at a terminal.
    is_interactive: bool,
    timing: bool,
    /// The last statement, for the editor.
    last: String,
    /// Lines that were typed while a query ran, and whether Ctrl-D was typed after them.
    typed: VecDeque<String>,
    has_ended: bool,
    /// The lines of an unfinished statement.
    unfinished: String,
    /// The server that runs the statements; `None`: they run here.
    remote: Option<Remote>,
    /// Whether SIGTERM or SIGHUP has arrived.
    is_terminated: Arc<AtomicBool>,
    /// Whether the shell waits for a line, in which case these signals end it at once.
    is_waiting: Arc<AtomicBool>,
}

/// Runs a shell and returns its exit code.
pub(crate) fn run(
    files: &[PathBuf],
    settings: Vec<(String, String)>,
    remote: Option<Remote>,
) -> u8 {
    let mut shell = Shell {
        declared: Vec::new(),
        settings,
        words: Arc::default(),
        is_interactive: std::io::stdin().is_terminal(),
        timing: false,
        last: String::new(),
        typed: VecDeque::new(),
        has_ended: false,
        unfinished: String::new(),
        remote,
        is_terminated: Arc::default(),
        is_waiting: Arc::default(),
    };
    let stop = shell
        .watch_signals()
        .and_then(|()| shell.refresh())
        .and_then(|()| files.iter().try_for_each(|file| shell.include(file)))
        .and_then(|()| match shell.is_interactive {
            true => shell.converse(),
            false => shell.read_all(),
        });
    match stop {
        Ok(()) | Err(Stop::Quit) => 0,
        Err(Stop::Failed(code)) => code,
    }
}

/// What `make` makes of a stream that is readable after Ctrl-C, SIGTERM and SIGHUP.
fn with_signal_pipe<T>(make: impl FnOnce(UnixStream) -> io::Result<T>) -> io::Result<T> {
    let (interrupted, interrupt) = UnixStream::pair()?;
    for signal in crate::signals::ending() {
        signal_hook::low_level::pipe::register(signal, interrupt.try_clone()?)?;
    }
    make(interrupted)
}

/// The folder in which the history is stored.
fn state_folder() -> Option<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("slackwater"))
}

impl Shell {
    fn watch_signals(&mut self) -> Result<(), Stop> {
        // Ctrl-C ends queries and lines, never the shell. The flag itself is not read.
        let mut registered = signal_hook::flag::register(SIGINT, Arc::default());
        let ending = crate::signals::ending().into_iter();
        for signal in ending.filter(|signal| *signal != SIGINT) {
            let waiting = Arc::clone(&self.is_waiting);
            let ended = signal_hook::flag::register_conditional_default(signal, waiting);
            let terminated = Arc::clone(&self.is_terminated);
            let noted = signal_hook::flag::register(signal, terminated);
            registered = registered.and(ended).and(noted);
        }
        match registered {
            Ok(_) => Ok(()),
            Err(error) => {
                say(&format!("error: signals: {error}\n"));
                Err(Stop::Failed(FAILED))
            }
        }
    }

    /// Runs the statements of standard input.
    fn read_all(&mut self) -> Result<(), Stop> {
        let mut text = String::new();
        if let Err(error) = std::io::stdin().read_to_string(&mut text) {
            return self.wrong(&format!("standard input: {error}"));
        }
        self.run_text("-", &text)
    }

    /// Runs statements and the commands between them, each on its own line.
    fn run_text(&mut self, part: &str, text: &str) -> Result<(), Stop> {
        for mut piece in split(text) {
            while let Some((command, rest)) = leading_command(&piece.placed) {
                self.command(&command)?;
                piece.placed = rest;
            }
            if piece.is_empty() {
                continue;
            }
            if self.statement(part, &piece)? == Went::Stopped {
                // The following statements may depend on the query that was stopped.
                return Ok(());
            }
        }
        Ok(())
    }

    fn statement(&mut self, part: &str, piece: &Piece) -> Result<Went, Stop> {
        if self.remote.is_some() {
            return self.send(part, piece);
        }
        if let Some(command) = commands::meant(&piece.words()) {
            self.command(&command)?;
            return Ok(Went::On);
        }
        let parsed = parse(&piece.placed);
        let statement = match parsed.map(|mut statements| statements.pop()) {
            Ok(Some(placed)) => placed.statement,
            Ok(None) => return Ok(Went::On),
            Err(error) => {
                let error = commands::instead(error, &piece.placed);
                let alone = Script::new(part, &piece.placed);
                self.wrong(&alone.render(&error))?;
                return Ok(Went::Stopped);
            }
        };
        let name = match &statement {
            Statement::CreateTable(create) if create.query.is_some() => {
                let is_there = self.is_declared(&create.name.value);
                return match create.if_not_exists && is_there {
                    true => Ok(Went::On),
                    false => self.create_from_query(&create.name.value, part, piece),
                };
            }
            Statement::CreateTable(create) => Some(create.name.value.clone()),
            Statement::CreateView { name, .. } => Some(name.value.clone()),
            Statement::CreateFunction(create) => Some(create.name.value.clone()),
            Statement::Set { .. } | Statement::Reset(_) => None,
            Statement::Drop {
                name, if_exists, ..
            } => {
                if !if_exists || self.is_declared(&name.value) {
                    self.forget(&name.value)?;
                }
                return Ok(Went::On);
            }
            Statement::CreateMaterializedView(_) => {
                self.wrong(
                    "error: the shell doesn't keep materialized views\n  = use CREATE VIEW: the shell \
                    computes a view when a query reads it",
                )?;
                return Ok(Went::Stopped);
            }
            Statement::Select(_) => return self.query(part, piece, Kind::Select),
            Statement::Insert { .. } => return self.query(part, piece, Kind::Insert),
            Statement::Explain(_) => return self.query(part, piece, Kind::Explain),
        };
        self.declare(name, part, piece)
    }

    fn is_declared(&self, name: &str) -> bool {
        let mut declared = self.declared.iter();
        declared.any(|declared| declared.name.as_deref() == Some(name))
    }

    /// `CREATE TABLE … AS query`: the query runs once, and the table stays declared with its columns.
    fn create_from_query(&mut self, name: &str, part: &str, piece: &Piece) -> Result<Went, Stop> {
        let mut script = self.script();
        script.add(part, &piece.placed);
        let written = match declared(script.text(), &self.settings, &BuiltIn) {
            Ok(session) => session
                .tables
                .get(name)
                .map(|table| crate::catalog::written(table)),
            Err(error) => {
                self.wrong(&script.render(&error))?;
                return Ok(Went::Stopped);
            }
        };
        let went = self.query(part, piece, Kind::Insert)?;
        let declared = Piece {
            placed: written.unwrap_or_default(),
            ended: true,
        };
        self.declare(Some(name.to_string()), part, &declared)?;
        Ok(went)
    }

    fn declare(&mut self, name: Option<String>, part: &str, piece: &Piece) -> Result<Went, Stop> {
        let mut script = self.script();
        script.add(part, &piece.placed);
        if let Err(error) = self.check(&script) {
            self.wrong(&error)?;
            return Ok(Went::Stopped);
        }
        self.declared.push(Declared {
            name,
            part: part.to_string(),
            text: piece.placed.clone(),
        });
        self.refresh()?;
        Ok(Went::On)
    }

    /// All declarations.
    fn script(&self) -> Script {
        let mut script = Script::default();
        for declared in &self.declared {
            script.add(&declared.part, &declared.text);
        }
        script
    }

    /// Checks declarations.
    fn check(&self, script: &Script) -> Result<(), String> {
        let checked = declared(script.text(), &self.settings, &BuiltIn);
        checked.map(drop).map_err(|error| script.render(&error))
    }

    fn session(&mut self) -> Result<Session, Stop> {
        let script = self.script();
        match declared(script.text(), &self.settings, &BuiltIn) {
            Ok(session) => Ok(session),
            // Everything else was checked before, so only a setting of the command line can be wrong.
            Err(error) => {
                say(&format!("error: {}\n", script.render(&error)));
                Err(Stop::Failed(USAGE))
            }
        }
    }

    /// Updates completion after a declaration.
    fn refresh(&mut self) -> Result<(), Stop> {
        let mut words = Words::of(&self.session()?);
        if let Some(remote) = &self.remote {
            let known = remote.words(words);
            words = known.map_err(|failed| Shell::unreachable(&failed))?;
        }
        *self.words() = words;
        Ok(())
    }

    fn words(&self) -> MutexGuard<'_, Words> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn query(&mut self, part: &str, piece: &Piece, kind: Kind) -> Result<Went, Stop> {
        let mut script = self.script();
        script.add(part, &piece.placed);
        let is_shown =
            kind == Kind::Select && self.is_interactive && std::io::stdout().is_terminal();
        let screen = is_shown.then(|| Arc::new(Screen::default()));
        let options = RunOptions {
            settings: self.settings.clone(),
            asker: Asker::default(),
            progress: kind == Kind::Insert && self.is_interactive,
            signals: true,
            screen: screen
                .clone()
                .map(|screen| screen as Arc<dyn crate::run::Screen>),
            ..RunOptions::default()
        };
        let is_heard = self.is_interactive && !self.reads_standard_input()?;
        let listening = is_heard.then(|| Listening::start(&options.asker, screen.clone()));
        let outcome = run_script(&script, &options);
        if let Some(typed) = listening.map(Listening::end) {
            self.typed.extend(typed.lines);
            self.has_ended |= typed.is_end;
        }
        let end = match &outcome {
            Ok(Outcome::Finished(finished)) if finished.stopped => End::Stopped,
            Ok(_) => End::Whole,
            Err(_) => End::Failed,
        };
        let rows = screen.and_then(|screen| screen.finish(end));
        let (finished, error) = match outcome {
            Ok(Outcome::Explained(text)) => {
                print(&text);
                return Ok(Went::On);
            }
            Ok(Outcome::Finished(finished)) => (finished, None),
            Err(Failure::Usage(error)) => {
                self.wrong(&error)?;
                return Ok(Went::Stopped);
            }
            Err(Failure::Query(error, None)) => return self.failed(&error),
            Err(Failure::Query(error, Some(finished))) => (finished, Some(error)),
        };
        if error.is_none() || finished.report.has_moved_rows() {
            self.summary(&finished, kind, rows);
        }
        match error {
            Some(error) => self.failed(&error),
            None if finished.stopped => Ok(Went::Stopped),
            None => Ok(Went::On),
        }
    }

    /// Whether a table is read from standard input: then nobody else may read it.
    fn reads_standard_input(&mut self) -> Result<bool, Stop> {
        let session = self.session()?;
        let mut tables = session.tables.values();
        let reads_it = |table| connector_of(table).is_some_and(|kind| kind.reads_standard_input);
        Ok(tables.any(|table| reads_it(table)))
    }

    fn failed(&mut self, error: &str) -> Result<Went, Stop> {
        say(&format!("error: {error}\n"));
        match self.is_interactive {
            true => Ok(Went::Stopped),
            false => Err(Stop::Failed(FAILED)),
        }
    }

    /// Prints a query's costs: in full for INSERT, else one line for an interactive user.
    fn summary(&self, finished: &Finished, kind: Kind, rows_of_table: Option<usize>) {
        let report = &finished.report;
        if kind == Kind::Insert {
            say(&format!("\n{}", report.summary(&finished.dead_letters)));
        } else if self.is_interactive {
            let rows = rows_of_table.map_or(report.rows_out, |rows| rows as u64);
            let noun = if rows == 1 { "row" } else { "rows" };
            let mut line = format!("({} {noun}", count(rows));
            for (number, what) in [(report.rows_late, "late"), (report.rows_bad, "bad")] {
                if number > 0 {
                    line.push_str(&format!(", {} {what}", count(number)));
                }
            }
            if self.timing {
                line.push_str(&format!(", {:.3} s", report.wall_s));
            }
            let paths = finished
                .dead_letters
                .iter()
                .map(|file| format!(": {}", file.path));
            say(&format!("{line}{})\n", paths.collect::<String>()));
        }
        if finished.stopped {
            say("stopped before its inputs ended: open windows are not in the result\n");
        }
        if finished.abandoned {
            say("warning: a sink stopped accepting rows: the rows on their way to it are lost\n");
        }
    }
}

/// How a statement ended.
#[derive(PartialEq, Eq)]
enum Went {
    On,
    /// The statement failed or was stopped by Ctrl-C.
    Stopped,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Select,
    Insert,
    Explain,
}

/// The command on the first non-empty line, and the rest of the text.
fn leading_command(text: &str) -> Option<(String, String)> {
    let start = text.len() - text.trim_start().len();
    let line = text[start..].lines().next()?;
    if !line.starts_with('\\') {
        return None;
    }
    let blank = " ".repeat(line.chars().count());
    let rest = format!("{}{blank}{}", &text[..start], &text[start + line.len()..]);
    Some((line.to_string(), rest))
}
