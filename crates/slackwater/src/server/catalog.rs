//! The catalog of a server: what was declared, in the order in which it was, in SQLite.
//!
//! A statement is kept as it was written, with the settings that applied to it. What a job runs is compiled
//! from these statements each time it starts, so a newer version of the program reads what an older one has
//! kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};

/// The version of the tables below.
const VERSION: i64 = 1;

const TABLES: &str = "
CREATE TABLE objects (
  ordinal INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  text TEXT NOT NULL,
  settings TEXT NOT NULL,
  is_wanted INTEGER NOT NULL,
  ended TEXT,
  state TEXT NOT NULL
);
CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL);
";

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A table.
    Table,
    /// A view.
    View,
    /// A materialized view: a job of its own.
    MaterializedView,
    /// A job that writes to a table that only it knows (`CREATE SINK`).
    Sink,
    /// A job that writes to a declared table (`INSERT INTO`).
    Insert,
    /// A function. Its name is in lower case: calls are not sensitive to it.
    Function,
}

impl Kind {
    const ALL: [(Kind, &str); 6] = [
        (Kind::Table, "table"),
        (Kind::View, "view"),
        (Kind::MaterializedView, "materialized view"),
        (Kind::Sink, "sink"),
        (Kind::Insert, "insert"),
        (Kind::Function, "function"),
    ];

    /// The words for it, which are stored.
    pub fn name(self) -> &'static str {
        let (_, name) = Kind::ALL
            .iter()
            .find(|(kind, _)| *kind == self)
            .expect("all are there");
        name
    }

    fn of(name: &str) -> Option<Kind> {
        let found = Kind::ALL.iter().find(|(_, known)| *known == name);
        found.map(|(kind, _)| *kind)
    }

    /// Whether it is a job.
    pub fn is_job(self) -> bool {
        matches!(self, Kind::MaterializedView | Kind::Sink | Kind::Insert)
    }
}

/// Something that was declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The place in the order of declarations.
    pub ordinal: i64,
    /// The name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The statement, without a semicolon.
    pub text: String,
    /// The settings that applied, as pairs.
    pub settings: Vec<(String, String)>,
    /// Whether a job is to run.
    pub is_wanted: bool,
    /// Why a job has ended without being told to: empty for the end of its inputs, else why it failed.
    pub ended: Option<String>,
    /// The folder of a job's state, below that of the server.
    pub state: String,
}

/// The catalog.
pub struct Catalog {
    connection: Connection,
    folder: PathBuf,
}

impl Catalog {
    /// Opens the catalog of a folder, and makes both if they are not there. Nobody else can open it until it
    /// is dropped.
    ///
    /// # Errors
    ///
    /// If the folder can't be made or written, another server has it, or a newer version has made it.
    pub fn open(folder: &Path) -> Result<Catalog, String> {
        let shown = folder.display();
        fs::create_dir_all(folder).map_err(|error| format!("{shown}: can't be made: {error}"))?;
        let file = folder.join("catalog.db");
        let failed = |error: rusqlite::Error| format!("{}: {}", file.display(), said(&error));
        let connection = Connection::open(&file).map_err(failed)?;
        // Another server that is about to end keeps the file a moment longer.
        connection
            .busy_timeout(Duration::from_secs(2))
            .map_err(failed)?;
        connection
            .pragma_update(None, "locking_mode", "EXCLUSIVE")
            .map_err(failed)?;
        connection
            .pragma_update(None, "synchronous", "FULL")
            .map_err(failed)?;
        connection
            .execute_batch("BEGIN EXCLUSIVE")
            .map_err(failed)?;
        let version = connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0));
        match version.map_err(failed)? {
            0 => {
                connection.execute_batch(TABLES).map_err(failed)?;
                connection
                    .pragma_update(None, "user_version", VERSION)
                    .map_err(failed)?;
            }
            VERSION => {}
            newer => {
                return Err(format!(
                    "{}: a newer version of slackwater has made it (format {newer}, not {VERSION})",
                    file.display()
                ));
            }
        }
        connection.execute_batch("COMMIT").map_err(failed)?;
        Ok(Catalog {
            connection,
            folder: folder.to_owned(),
        })
    }

    /// Everything that was declared, in that order.
    ///
    /// # Errors
    ///
    /// If the file can't be read.
    pub fn objects(&self) -> Result<Vec<Object>, String> {
        let mut statement = self
            .connection
            .prepare("SELECT * FROM objects ORDER BY ordinal")
            .map_err(|error| self.failed(&error))?;
        let rows = statement
            .query_map([], object)
            .map_err(|error| self.failed(&error))?;
        let rows = rows.collect::<Result<Vec<Object>, _>>();
        rows.map_err(|error| self.failed(&error))
    }

    /// What has this name.
    ///
    /// # Errors
    ///
    /// If the file can't be read.
    pub fn object(&self, name: &str) -> Result<Option<Object>, String> {
        let found =
            self.connection
                .query_row("SELECT * FROM objects WHERE name = ?1", [name], object);
        found.optional().map_err(|error| self.failed(&error))
    }

    /// Keeps a declaration; returns it with its place.
    ///
    /// # Errors
    ///
    /// If the name is taken, or the file can't be written.
    pub fn add(
        &mut self,
        name: &str,
        kind: Kind,
        text: &str,
        settings: &[(String, String)],
    ) -> Result<Object, String> {
        let settings_text = serde_json::to_string(settings).map_err(|error| error.to_string())?;
        let added = self.connection.execute(
            "INSERT INTO objects (name, kind, text, settings, is_wanted, ended, state)
             SELECT ?1, ?2, ?3, ?4, ?5, NULL,
               'state/' || (SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'objects')",
            params![name, kind.name(), text, settings_text, kind.is_job()],
        );
        added.map_err(|error| self.failed(&error))?;
        let object = self.object(name)?;
        object.ok_or_else(|| format!("{}: '{name}' was not kept", self.folder.display()))
    }

    /// Forgets declarations, all or none.
    ///
    /// # Errors
    ///
    /// If the file can't be written.
    pub fn remove(&mut self, names: &[&str]) -> Result<(), String> {
        self.change(|connection| {
            for name in names {
                connection.execute("DELETE FROM objects WHERE name = ?1", [name])?;
            }
            Ok(())
        })
    }

    /// Replaces the text and settings of a declaration.
    ///
    /// # Errors
    ///
    /// If the file can't be written.
    pub fn replace(
        &mut self,
        name: &str,
        text: &str,
        settings: &[(String, String)],
    ) -> Result<(), String> {
        let settings = serde_json::to_string(settings).map_err(|error| error.to_string())?;
        self.change(|connection| {
            let change =
                "UPDATE objects SET text = ?2, settings = ?3, ended = NULL WHERE name = ?1";
            connection.execute(change, params![name, text, settings])?;
            Ok(())
        })
    }

    /// Notes whether a job is to run, and forgets why it had ended.
    ///
    /// # Errors
    ///
    /// If the file can't be written.
    pub fn want(&mut self, name: &str, is_wanted: bool) -> Result<(), String> {
        self.change(|connection| {
            let change = "UPDATE objects SET is_wanted = ?2, ended = NULL WHERE name = ?1";
            connection.execute(change, params![name, is_wanted])?;
            Ok(())
        })
    }

    /// Notes why a job has ended without being told to.
    ///
    /// # Errors
    ///
    /// If the file can't be written.
    pub fn ended(&mut self, name: &str, why: &str) -> Result<(), String> {
        self.change(|connection| {
            let change = "UPDATE objects SET ended = ?2 WHERE name = ?1";
            connection.execute(change, params![name, why])?;
            Ok(())
        })
    }

    /// The settings of new sessions.
    ///
    /// # Errors
    ///
    /// If the file can't be read.
    pub fn settings(&self) -> Result<Vec<(String, String)>, String> {
        let mut statement = self
            .connection
            .prepare("SELECT key, value FROM settings ORDER BY key")
            .map_err(|error| self.failed(&error))?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        let rows = rows.map_err(|error| self.failed(&error))?;
        let rows = rows.collect::<Result<Vec<(String, String)>, _>>();
        rows.map_err(|error| self.failed(&error))
    }

    /// Changes a setting of new sessions; `None` for its default.
    ///
    /// # Errors
    ///
    /// If the file can't be written.
    pub fn set(&mut self, key: &str, value: Option<&str>) -> Result<(), String> {
        self.change(|connection| {
            match value {
                Some(value) => {
                    let change = "INSERT OR REPLACE INTO settings (key, value) VALUES (?1, ?2)";
                    connection.execute(change, params![key, value])?
                }
                None => connection.execute("DELETE FROM settings WHERE key = ?1", [key])?,
            };
            Ok(())
        })
    }

    fn change(
        &mut self,
        change: impl FnOnce(&Connection) -> rusqlite::Result<()>,
    ) -> Result<(), String> {
        let folder = self.folder.clone();
        let failed = |error| format!("{}: {}", folder.join("catalog.db").display(), said(&error));
        let open = self.connection.transaction().map_err(failed)?;
        change(&open).map_err(failed)?;
        open.commit().map_err(failed)
    }

    fn failed(&self, error: &rusqlite::Error) -> String {
        format!(
            "{}: {}",
            self.folder.join("catalog.db").display(),
            said(error)
        )
    }
}

fn object(row: &Row<'_>) -> rusqlite::Result<Object> {
    let wrong = |column: usize, what: String| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, what.into())
    };
    let kind = row.get::<_, String>(2)?;
    let settings = row.get::<_, String>(4)?;
    Ok(Object {
        ordinal: row.get(0)?,
        name: row.get(1)?,
        kind: Kind::of(&kind).ok_or_else(|| wrong(2, format!("'{kind}' is not a kind")))?,
        text: row.get(3)?,
        settings: serde_json::from_str(&settings).map_err(|error| wrong(4, error.to_string()))?,
        is_wanted: row.get(5)?,
        ended: row.get(6)?,
        state: row.get(7)?,
    })
}

/// SQLite's error in words that say what to do.
fn said(error: &rusqlite::Error) -> String {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another server uses it; stop that one, or use another --dir".to_owned()
        }
        Some(ErrorCode::DiskFull) => "the disk is full; nothing was changed".to_owned(),
        Some(ErrorCode::ReadOnly) => "can't be written; nothing was changed".to_owned(),
        Some(ErrorCode::CannotOpen) => "can't be opened or made".to_owned(),
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            format!("is damaged: {error}; restore it from a copy")
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(catalog: &Catalog) -> Vec<(String, String)> {
        let objects = catalog.objects().unwrap().into_iter();
        objects.map(|object| (object.name, object.text)).collect()
    }

    #[test]
    fn declarations_are_there_again_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let settings = [("latency_target".to_owned(), "20 ms".to_owned())];
        let made = {
            let mut catalog = Catalog::open(folder.path()).unwrap();
            catalog
                .add("t", Kind::Table, "CREATE TABLE t (a INT)", &[])
                .unwrap();
            let made = catalog.add("a", Kind::Sink, "CREATE SINK a AS SELECT 1", &settings);
            catalog.ended("a", "it broke").unwrap();
            made.unwrap()
        };
        assert!(made.is_wanted && made.ended.is_none());
        assert_eq!(made.settings, settings);
        let mut catalog = Catalog::open(folder.path()).unwrap();
        let names = strings(&catalog).into_iter().map(|(name, _)| name);
        assert_eq!(names.collect::<Vec<_>>(), ["t", "a"]);
        let again = catalog.object("a").unwrap().unwrap();
        assert_eq!(again.ended.as_deref(), Some("it broke"));
        catalog.want("a", false).unwrap();
        let stopped = catalog.object("a").unwrap().unwrap();
        assert!(!stopped.is_wanted && stopped.ended.is_none());
    }

    #[test]
    fn a_state_folder_is_never_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut catalog = Catalog::open(folder.path()).unwrap();
        let first = catalog.add("a", Kind::Sink, "x", &[]).unwrap().state;
        catalog.remove(&["a"]).unwrap();
        let second = catalog.add("a", Kind::Sink, "x", &[]).unwrap().state;
        assert_ne!(first, second);
    }

    #[test]
    fn a_name_is_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut catalog = Catalog::open(folder.path()).unwrap();
        catalog.add("a", Kind::Table, "first", &[]).unwrap();
        assert!(catalog.add("a", Kind::View, "second", &[]).is_err());
        assert_eq!(strings(&catalog), [("a".to_owned(), "first".to_owned())]);
    }

    #[test]
    fn only_one_server_has_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let _first = Catalog::open(folder.path()).unwrap();
        let error = Catalog::open(folder.path()).err().unwrap();
        assert!(error.contains("another server uses it"), "{error}");
    }

    #[test]
    fn what_is_not_a_catalog_is_said() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("catalog.db"), "x".repeat(5_000)).unwrap();
        let error = Catalog::open(folder.path()).err().unwrap();
        assert!(error.contains("is damaged"), "{error}");
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Catalog::open(&file).err().unwrap();
        assert!(error.contains("can't be made"), "{error}");
    }
}
