//! Commands of the shell: lines that begin with a backslash.

use std::path::Path;
use std::process::Command;

use super::{Shell, Stop};
use crate::cli::{print, say};

/// The commands: name, argument, and what they do.
pub const COMMANDS: &[(&str, &str, &str)] = &[
    ("?", "", "lists the commands"),
    ("d", "[name]", "lists tables and views, or describes one"),
    ("df", "[prefix]", "lists functions"),
    ("drop", "name", "forgets a table or view"),
    (
        "e",
        "",
        "opens the last statement in $VISUAL or $EDITOR, and runs what is saved",
    ),
    ("i", "file", "runs the statements of a file"),
    ("set", "", "lists what SET has set"),
    ("timing", "", "says how long queries take, or no longer"),
    ("q", "", "leaves the shell"),
];

/// Columns of a list of functions.
const LIST_WIDTH: usize = 80;

impl Shell {
    /// Does what a command says.
    pub(super) fn command(&mut self, line: &str) -> Result<(), Stop> {
        let line = line.trim().trim_end_matches(';');
        let (name, argument) = line[1..]
            .split_once(char::is_whitespace)
            .unwrap_or((&line[1..], ""));
        let argument = argument.trim().trim_matches('"');
        match (name, argument) {
            ("?" | "h" | "help", _) => print(&help()),
            ("q" | "quit", _) => return Err(Stop::Quit),
            ("d", "") => print(&super::words::list(&self.session()?)),
            ("d", name) => match super::words::describe(&self.session()?, name) {
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
            (other, _) => {
                return self.wrong(&format!(
                    "there is no command '\\{other}'\n  = \\? lists them"
                ));
            }
        }
        Ok(())
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
        for (key, value) in &self.settings {
            print(&format!("  '{key}' = '{value}' (command line)\n"));
            any = true;
        }
        if !any {
            print("  nothing is set: docs/sql.md lists the settings\n");
        }
    }

    /// Forgets a declaration, unless another one needs it.
    fn forget(&mut self, name: &str) -> Result<(), Stop> {
        let named = |declared: &super::Declared| declared.name.as_deref() == Some(name);
        let Some(at) = self.declared.iter().position(named) else {
            return self.wrong(&format!(
                "there is no table or view '{name}'\n  = \\d lists them"
            ));
        };
        let removed = self.declared.remove(at);
        if let Err(error) = self.check(&self.script()) {
            self.declared.insert(at, removed);
            return self.wrong(&format!("'{name}' is needed by another one: {error}"));
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

    /// Opens the last statement in an editor.
    fn edit(&mut self) -> Result<(), Stop> {
        let editor = ["VISUAL", "EDITOR"]
            .into_iter()
            .find_map(|name| std::env::var(name).ok());
        let editor = editor
            .filter(|editor| !editor.trim().is_empty())
            .unwrap_or("vi".to_string());
        let folder = super::state_folder().unwrap_or_else(std::env::temp_dir);
        let path = folder.join(format!("statement-{}.sql", std::process::id()));
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let edited = std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&path, &self.last))
            .map_err(failed)
            .and_then(|()| {
                let mut words = editor.split_whitespace();
                let program = words.next().unwrap_or("vi");
                let ended = Command::new(program).args(words).arg(&path).status();
                match ended {
                    Ok(status) if status.success() => {
                        std::fs::read_to_string(&path).map_err(failed)
                    }
                    Ok(status) => Err(format!("{program}: {status}")),
                    Err(error) => Err(format!("{program}: {error}\n  = set $EDITOR")),
                }
            });
        // It is only there for the editor.
        let _ = std::fs::remove_file(&path);
        match edited {
            Err(error) => self.wrong(&error),
            Ok(text) => {
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

fn help() -> String {
    let rows = COMMANDS.iter().map(|(name, argument, what)| {
        vec![
            format!("\\{name} {argument}").trim_end().to_string(),
            what.to_string(),
        ]
    });
    let mut text = super::words::aligned(&["command", ""], &rows.collect::<Vec<_>>());
    text.push_str("  Statements end with ';' and may have several lines. Tab completes, Ctrl-R searches the history,\n");
    text.push_str("  Ctrl-C ends a query or drops a line, Ctrl-D leaves.\n");
    text
}

impl Shell {
    /// Says what is wrong; where nobody is there to mend it, that is the end.
    pub(super) fn wrong(&mut self, error: &str) -> Result<(), Stop> {
        say(&format!("error: {error}\n"));
        match self.is_interactive {
            true => Ok(()),
            false => Err(Stop::Failed(crate::cli::USAGE)),
        }
    }
}
