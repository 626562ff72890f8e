//! The shell's commands: lines that start with a backslash.

use std::path::Path;
use std::process::Command;

use slackwater_sql::SqlError;
use slackwater_sql::program::declared;

use super::{Shell, Stop};
use super::{keys, listing};
use crate::catalog::BuiltIn;
use crate::split::Piece;
use crate::terminal::{aligned, print, say};

/// The commands: name, argument and description.
pub const COMMANDS: &[(&str, &str, &str)] = &[
    ("?", "", "lists the commands"),
    ("d", "[name]", "lists tables and views, or describes one"),
    ("df", "[prefix]", "lists functions"),
    ("drop", "name", "forgets a table or view"),
    (
        "e",
        "",
        "opens the statement being typed, or the last one, in $VISUAL or $EDITOR, and runs what is saved",
    ),
    ("i", "file", "runs the statements of a file"),
    ("set", "", "lists what SET has set"),
    (
        "timing",
        "",
        "turns the display of each query's duration on or off",
    ),
    (
        "why",
        "[job]",
        "while a query runs, or of a server's job: says which partition holds the others back, and why rows \
         are late",
    ),
    ("q", "", "leaves the shell"),
];

/// The width of the list of functions in columns.
const LIST_WIDTH: usize = 80;

impl Shell {
    /// Executes a command.
    pub(super) fn command(&mut self, line: &str) -> Result<(), Stop> {
        let line = line.trim().trim_end_matches(';');
        let (name, argument) = line[1..]
            .split_once(char::is_whitespace)
            .unwrap_or((&line[1..], ""));
        let argument = argument.trim().trim_matches('"');
        if let Some(done) = self.command_of_server(name, argument) {
            return done;
        }
        match (name, argument) {
            ("?" | "h" | "help", _) => print(&help()),
            ("q" | "quit", _) => return Err(Stop::Quit),
            ("d", "") => print(&listing::list(&self.session()?)),
            ("d", name) => match listing::describe(&self.session()?, name) {
                Some(text) => print(&text),
                None => {
                    return self.wrong(&format!(
                        "there is no table or view '{name}'\n  = \\d lists them"
                    ));
                }
            },
            ("df", prefix) => self.list_functions(prefix),
            ("drop", "") => return self.wrong("\\drop needs a name"),
            ("drop", name) => return self.forget(name),
            ("e", _) => return self.edit(),
            ("i", "") => return self.wrong("\\i needs a file"),
            ("i", file) => return self.include(Path::new(file)),
            ("set", _) => self.list_settings(),
            ("timing", _) => {
                self.timing = !self.timing;
                print(if self.timing {
                    "timing is on\n"
                } else {
                    "timing is off\n"
                });
            }
            ("why", _) => print(keys::NOTHING_RUNS),
            (other, _) => {
                return self.wrong(&format!(
                    "there is no command '\\{other}'\n  = \\? lists them"
                ));
            }
        }
        Ok(())
    }

    /// Executes a command about the server, if there is one and the command is about it.
    fn command_of_server(&mut self, name: &str, argument: &str) -> Option<Result<(), Stop>> {
        let remote = self.remote.as_ref()?;
        let said = match (name, argument) {
            ("d", "") => remote.list(),
            ("why", job) => remote.why(job),
            ("d", name) => {
                return Some(self.send_command(&format!("DESCRIBE {}", quoted(name))));
            }
            ("drop", name) if !name.is_empty() => match remote.kind(name) {
                Ok(Some(kind)) => {
                    let kind = kind.to_uppercase();
                    return Some(self.send_command(&format!("DROP {kind} {}", quoted(name))));
                }
                Ok(None) => {
                    let error = format!("there is no table or view '{name}'\n  = \\d lists them");
                    return Some(self.wrong(&error));
                }
                Err(failed) => Err(failed),
            },
            _ => return None,
        };
        Some(self.say_of_server(said))
    }

    /// Runs the statement that a command stands for.
    fn send_command(&mut self, statement: &str) -> Result<(), Stop> {
        let piece = Piece {
            placed: statement.to_string(),
            ended: true,
        };
        self.send("\\", &piece).map(drop)
    }

    fn list_functions(&self, prefix: &str) {
        let words = self.words();
        let mut line = String::new();
        for name in words.functions(prefix) {
            if line.len() + name.len() + 2 > LIST_WIDTH {
                print(&format!("  {}\n", line.trim_end()));
                line.clear();
            }
            line.push_str(name);
            line.push_str("  ");
        }
        print(&format!("  {}\n", line.trim_end()));
    }

    fn list_settings(&self) {
        let set = self
            .declared
            .iter()
            .filter(|declared| declared.name.is_none());
        let mut any = false;
        for declared in set {
            print(&format!("  {}\n", declared.text.trim()));
            any = true;
        }
        let remote = self.remote.iter().flat_map(|remote| remote.settings());
        for (key, value) in remote {
            print(&format!("  '{key}' = '{value}'\n"));
            any = true;
        }
        for (key, value) in &self.settings {
            print(&format!("  '{key}' = '{value}' (command line)\n"));
            any = true;
        }
        if !any {
            print("  nothing is set: docs/settings.md lists the settings\n");
        }
    }

    /// Removes a declaration, unless another one needs it.
    pub(super) fn forget(&mut self, name: &str) -> Result<(), Stop> {
        let named = |declared: &super::Declared| declared.name.as_deref() == Some(name);
        let Some(at) = self.declared.iter().position(named) else {
            return self.wrong(&format!(
                "there is no table or view '{name}'\n  = \\d lists them"
            ));
        };
        let removed = self.declared.remove(at);
        let script = self.script();
        if let Err(error) = declared(script.text(), &self.settings, &BuiltIn) {
            let by = script.part_of(&error);
            let by = by.and_then(|part| self.declared.get(part));
            let error = match by {
                Some(super::Declared {
                    name: Some(other), ..
                }) => format!("'{name}' is needed by '{other}'\n  = \\drop {other} first"),
                Some(set) => format!("'{name}' is needed by {}", set.text.trim()),
                None => format!("'{name}' is needed: {}", script.render(&error)),
            };
            self.declared.insert(at, removed);
            return self.wrong(&error);
        }
        self.refresh()
    }

    /// Runs the statements of a file.
    pub(super) fn include(&mut self, file: &Path) -> Result<(), Stop> {
        match std::fs::read_to_string(file) {
            Ok(text) => self.run_text(&file.display().to_string(), &text),
            Err(error) => self.wrong(&format!("{}: {error}", file.display())),
        }
    }

    /// Opens the unfinished statement, or the last one, in an editor. It is run only if it is saved.
    fn edit(&mut self) -> Result<(), Stop> {
        let folder = super::state_folder().unwrap_or_else(std::env::temp_dir);
        let path = folder.join(format!("statement-{}.sql", std::process::id()));
        let text = match self.unfinished.is_empty() {
            true => &self.last,
            false => &self.unfinished,
        };
        let edited = std::fs::create_dir_all(&folder)
            .map_err(|error| format!("{}: {error}", folder.display()))
            .and_then(|()| edited(&path, text));
        // The file exists only for the editor.
        let _ = std::fs::remove_file(&path);
        match edited {
            Err(error) => self.wrong(&error),
            Ok(None) => {
                print("not saved: nothing is run\n");
                Ok(())
            }
            Ok(Some(text)) => {
                self.unfinished.clear();
                if text.trim().is_empty() {
                    return Ok(());
                }
                print(&text);
                if !text.ends_with('\n') {
                    print("\n");
                }
                self.last = text.clone();
                self.run_text("editor", &text)
            }
        }
    }
}

/// Edits a text in the user's editor; `None` if it was not saved.
fn edited(path: &Path, text: &str) -> Result<Option<String>, String> {
    let editor = ["VISUAL", "EDITOR"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok());
    let editor = editor
        .filter(|editor| !editor.trim().is_empty())
        .unwrap_or("vi".to_string());
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    std::fs::write(path, text).map_err(failed)?;
    // So that a save right away has a newer time, however coarse the file system's clock is.
    let earlier = std::time::SystemTime::now() - std::time::Duration::from_secs(10);
    let file = std::fs::File::options().write(true).open(path);
    file.and_then(|file| file.set_modified(earlier))
        .map_err(failed)?;
    let modified = || std::fs::metadata(path).and_then(|metadata| metadata.modified());
    let before = modified().map_err(failed)?;
    let mut words = editor.split_whitespace();
    let program = words.next().unwrap_or("vi");
    match Command::new(program).args(words).arg(path).status() {
        Ok(status) if !status.success() => return Err(format!("{program}: {status}")),
        Ok(_) => {}
        Err(error) => return Err(format!("{program}: {error}\n  = set $EDITOR")),
    }
    match modified().map_err(failed)? == before {
        true => Ok(None),
        false => std::fs::read_to_string(path).map(Some).map_err(failed),
    }
}

/// A name as SQL writes it.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// The command that corresponds to a statement of another shell, by its first words.
pub fn meant(words: &[String]) -> Option<String> {
    let upper = words.iter().map(|word| word.to_uppercase());
    let upper = upper.collect::<Vec<String>>();
    let upper = upper.iter().map(String::as_str).collect::<Vec<&str>>();
    // In its original case, without quotes.
    let named = |at: usize| words[at].trim_matches(['"', '`', ';']).to_string();
    match upper.as_slice() {
        ["SHOW", "TABLES" | "VIEWS"] => Some("\\d".to_string()),
        ["SHOW", "FUNCTIONS"] => Some("\\df".to_string()),
        ["SHOW", "CREATE", "TABLE" | "VIEW", _] => Some(format!("\\d {}", named(3))),
        ["DESCRIBE" | "DESC", _] => Some(format!("\\d {}", named(1))),
        ["DESCRIBE" | "DESC", "TABLE" | "VIEW", _] => Some(format!("\\d {}", named(2))),
        ["SET"] => Some("\\set".to_string()),
        _ => None,
    }
}

/// Adds a hint to the error for a statement for which the shell has a command.
pub fn instead(error: SqlError, statement: &str) -> SqlError {
    let first = statement.split_whitespace().next().unwrap_or_default();
    let hint = match first.to_uppercase().as_str() {
        "SHOW" => "\\d lists tables and views, \\df functions, \\set settings",
        "DESCRIBE" | "DESC" => "\\d name describes a table or view",
        "DROP" => "\\drop name forgets a table or view",
        "ALTER" => "\\drop name forgets a table or view; then CREATE TABLE declares it again",
        _ => return error,
    };
    error.hint(hint)
}

fn help() -> String {
    let rows = COMMANDS.iter().map(|(name, argument, what)| {
        vec![
            format!("\\{name} {argument}").trim_end().to_string(),
            what.to_string(),
        ]
    });
    let mut text = aligned(&["command", ""], &rows.collect::<Vec<_>>());
    text.push_str(
        "  Statements end with ';' and may have several lines. Tab completes, Ctrl-R searches the \
                   history,\n",
    );
    text.push_str(
        "  Ctrl-C ends a query or drops a statement, Ctrl-D leaves (so do exit and quit).\n",
    );
    text
}

impl Shell {
    /// Prints an error; without an interactive user, the shell ends.
    pub(super) fn wrong(&mut self, error: &str) -> Result<(), Stop> {
        say(&format!("error: {error}\n"));
        match self.is_interactive {
            true => Ok(()),
            false => Err(Stop::Failed(crate::terminal::USAGE)),
        }
    }
}
