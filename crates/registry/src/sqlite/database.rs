//! The database: how it is opened and checked, its transactions, and what its errors mean.

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{
    Connection, ErrorCode, OpenFlags, Row, Transaction, TransactionBehavior, config::DbConfig,
    params,
};
use rustix::fs::stat;

use super::pipe::{self, Pipe};
use super::place;
use crate::error::{Error, Kind, Result};
use crate::write::too_many;

/// The database's application id, "SlWr": what `file` shows, and what no other program's database has.
const APPLICATION_ID: i64 = 0x536c_5772;
/// The version of the tables.
const VERSION: i64 = 1;
/// How long a writer is waited for, in looks of [`BUSY_PAUSE`]: a write takes some milliseconds, and seconds
/// on a disk that others keep busy. In 10 s there is time for hundreds, so the writer is most likely stopped.
const BUSY_LOOKS_MAX: i32 = 10_000;
const BUSY_PAUSE: Duration = Duration::from_millis(1);
/// The most sessions and candidates at a time; a watch has a descriptor for each that it depends on.
pub const SESSIONS_MAX: usize = 256;

const MADE_BY: &str = "the registry is made by the first orchestrator: is it this path?";

const TABLES: &str = "
CREATE TABLE numbers (name TEXT PRIMARY KEY, number INTEGER NOT NULL);
INSERT INTO numbers VALUES ('last write', 0);
CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, session TEXT);
CREATE TABLE candidates (place INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL UNIQUE,
  value BLOB NOT NULL);
";

/// A database that is open.
pub struct Database {
    path: PathBuf,
    place: String,
    /// Devices and inodes of the database and of its file of changes: whether they are still those at the
    /// paths.
    identity: [(u64, u64); 2],
    changes: File,
    writer: Mutex<Connection>,
    /// A connection of its own, so that nobody who looks waits for somebody who waits to write.
    reader: Mutex<Connection>,
}

impl Database {
    /// Opens the database at `path`, and makes it if it is not there and `may_make`.
    pub fn open(path: &Path, may_make: bool) -> Result<Database> {
        let shown = path.display().to_string();
        let unavailable = |what: &str, error: &dyn std::fmt::Display| {
            Error::new(Kind::Unavailable, shown.clone(), format!("{what}: {error}"))
        };
        let path =
            std::path::absolute(path).map_err(|error| unavailable("can't be used", &error))?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        place::check(&path, folder)?;
        if !may_make && !path.exists() {
            return Err(unavailable("can't be opened", &"there is no such file").hint(MADE_BY));
        }
        if may_make {
            // SQLite would let others read it. Nobody has a new one open, so closing it releases no lock.
            let _ = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let flags = match may_make {
            true => flags | OpenFlags::SQLITE_OPEN_CREATE,
            false => flags,
        };
        let of = |error| of_sqlite(&shown, &error);
        let mut writer = connect(&path, flags).map_err(of)?;
        set_up(&mut writer, &shown, may_make)?;
        let reader = connect(&path, flags).map_err(of)?;
        reader.pragma_update(None, "query_only", true).map_err(of)?;
        let changes = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(beside(&path, "-changes"))
            .map_err(|error| unavailable("can't open its file of changes", &error))?;
        let sessions = beside(&path, "-sessions");
        match std::fs::DirBuilder::new().mode(0o700).create(&sessions) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(unavailable("can't make its folder of sessions", &error));
            }
            _ => {}
        }
        let database = Database {
            identity: identities(&path, &shown)?,
            path,
            place: shown,
            changes,
            writer: Mutex::new(writer),
            reader: Mutex::new(reader),
        };
        database.remove_left_pipes()?;
        Ok(database)
    }

    /// The path as the user wrote it.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The database's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file that each write changes.
    pub fn changes_path(&self) -> PathBuf {
        beside(&self.path, "-changes")
    }

    /// Reads as of one moment.
    pub fn read<T>(&self, read: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        let mut connection = self.connection(&self.reader)?;
        let tx = connection
            .transaction()
            .map_err(|error| self.error(error))?;
        read(&tx)
    }

    /// Writes, all or nothing, what `write` does; it gets the write's number. What sessions leave that have
    /// ended is removed before.
    pub fn write<T>(&self, write: impl FnOnce(&Transaction<'_>, u64) -> Result<T>) -> Result<T> {
        let mut connection = self.connection(&self.writer)?;
        let tx = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| self.error(error))?;
        self.sweep(&tx)?;
        let sql =
            "UPDATE numbers SET number = number + 1 WHERE name = 'last write' RETURNING number";
        let version = tx
            .query_row(sql, [], |row| number(row, 0))
            .map_err(|error| self.error(error))?;
        let written = write(&tx, version)?;
        // Before the commit, so that no change is missed when this process is killed behind it: who is woken
        // waits for the lock, which is held until the commit.
        self.changes.write_all_at(b".", 0).map_err(|error| {
            let reason = format!("can't write its file of changes: {error}");
            Error::new(Kind::Unavailable, self.place.clone(), reason)
        })?;
        tx.commit().map_err(|error| self.error(error))?;
        Ok(written)
    }

    /// Waits until the write that is in progress is over. Returns false if it is not after the time that a
    /// writer is waited for.
    pub fn settle(&self) -> Result<bool> {
        let mut connection = self.connection(&self.writer)?;
        match connection.transaction_with_behavior(TransactionBehavior::Immediate) {
            Ok(tx) => {
                drop(tx);
                Ok(true)
            }
            Err(error) => match self.error(error) {
                error if error.kind == Kind::Busy => Ok(false),
                error => Err(error),
            },
        }
    }

    /// Puts an entry into its place.
    pub fn set(
        &self,
        tx: &Transaction<'_>,
        key: &str,
        value: &[u8],
        version: u64,
        session: Option<&str>,
    ) -> Result<()> {
        let sql = "INSERT OR REPLACE INTO entries VALUES (?1, ?2, ?3, ?4)";
        tx.execute(sql, params![key, value, version.cast_signed(), session])
            .map(|_| ())
            .map_err(|error| self.error_at(key, error))
    }

    /// Begins a session, in a transaction that writes.
    pub fn begin_session(&self, tx: &Transaction<'_>) -> Result<Pipe> {
        if self.sessions(tx)?.len() >= SESSIONS_MAX {
            return Err(too_many(&self.place, "sessions", SESSIONS_MAX));
        }
        Pipe::make(&self.sessions_folder()).map_err(|error| {
            let reason = format!("can't make a named pipe in its folder of sessions: {error}");
            Error::new(Kind::Unavailable, self.place.clone(), reason)
                .hint("choose a folder on a disk of this host, and one that is writable")
        })
    }

    /// Ends a session, with its entries and its candidacy.
    pub fn end_session(&self, pipe: Pipe) {
        // Whoever writes next does the same if this fails.
        let _ = self.write(|tx, _| self.forget(tx, pipe.name()));
    }

    /// Whether an entry lives: it is kept, or its session's owner is there.
    pub fn is_alive(&self, session: Option<&str>) -> Result<bool> {
        match session {
            None => Ok(true),
            Some(session) => Ok(self.look(session)?.is_some()),
        }
    }

    /// What reports a session's end; none if it has ended.
    pub fn look(&self, session: &str) -> Result<Option<OwnedFd>> {
        pipe::look(&self.sessions_folder(), session).map_err(|error| {
            let reason = format!("can't look at a session: {error}");
            Error::new(Kind::Unavailable, self.place.clone(), reason)
        })
    }

    /// Fails if the file is no longer the one at its path: another process would write into another.
    pub fn check_identity(&self) -> Result<()> {
        let now = identities(&self.path, &self.place)?;
        match now == self.identity {
            true => Ok(()),
            false => Err(gone(&self.place, "was replaced by another file")),
        }
    }

    /// What an error of SQLite means.
    pub fn error(&self, error: rusqlite::Error) -> Error {
        of_sqlite(&self.place, &error)
    }

    /// What an error of SQLite means, at a key.
    pub fn error_at(&self, key: &str, error: rusqlite::Error) -> Error {
        of_sqlite(&format!("{}: {key}", self.place), &error)
    }

    fn connection<'a>(&self, one: &'a Mutex<Connection>) -> Result<MutexGuard<'a, Connection>> {
        self.check_identity()?;
        Ok(one.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn sessions_folder(&self) -> PathBuf {
        beside(&self.path, "-sessions")
    }

    /// The names of the sessions that have entries or stand for leader.
    fn sessions(&self, tx: &Transaction<'_>) -> Result<Vec<String>> {
        let names = || {
            let mut names = tx.prepare(
                "SELECT session FROM entries WHERE session IS NOT NULL UNION SELECT session FROM candidates",
            )?;
            names
                .query_map([], |row| row.get(0))?
                .collect::<rusqlite::Result<Vec<String>>>()
        };
        names().map_err(|error| self.error(error))
    }

    /// Removes what sessions have left that have ended.
    fn sweep(&self, tx: &Transaction<'_>) -> Result<()> {
        for session in self.sessions(tx)? {
            if self.look(&session)?.is_none() {
                self.forget(tx, &session)?;
            }
        }
        Ok(())
    }

    fn forget(&self, tx: &Transaction<'_>, session: &str) -> Result<()> {
        for sql in [
            "DELETE FROM entries WHERE session = ?1",
            "DELETE FROM candidates WHERE session = ?1",
        ] {
            tx.execute(sql, [session])
                .map_err(|error| self.error(error))?;
        }
        Ok(())
    }

    /// Removes the pipes of killed processes.
    fn remove_left_pipes(&self) -> Result<()> {
        let folder = self.sessions_folder();
        let names = || -> std::io::Result<Vec<String>> {
            let mut names = Vec::new();
            for file in std::fs::read_dir(&folder)? {
                names.extend(file?.file_name().into_string());
            }
            Ok(names)
        };
        let names = names().map_err(|error| {
            let reason = format!("can't read its folder of sessions: {error}");
            Error::new(Kind::Unavailable, self.place.clone(), reason)
        })?;
        let mut left = Vec::new();
        for name in names {
            if self.look(&name)?.is_none() {
                left.push(name);
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        // Under the lock, so that none is taken for left that is just being made.
        self.write(|_, _| {
            for name in left {
                if self.look(&name)?.is_none() {
                    let _ = std::fs::remove_file(folder.join(name));
                }
            }
            Ok(())
        })
    }
}

fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_handler(Some(|looks| {
        std::thread::sleep(BUSY_PAUSE);
        looks < BUSY_LOOKS_MAX
    }))?;
    Ok(connection)
}

/// Settings of the connection; the tables, if there are none; and whether they are ours.
fn set_up(connection: &mut Connection, place: &str, may_make: bool) -> Result<()> {
    let mut made = || -> rusqlite::Result<(i64, i64, i64)> {
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        if may_make && about(connection)? == (0, 0, 0) {
            connection.pragma_update(None, "journal_mode", "wal")?;
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            // Another process may have been faster.
            if about(&tx)? == (0, 0, 0) {
                tx.execute_batch(TABLES)?;
                tx.pragma_update(None, "application_id", APPLICATION_ID)?;
                tx.pragma_update(None, "user_version", VERSION)?;
            }
            tx.commit()?;
        }
        let about = about(connection)?;
        if about.0 == APPLICATION_ID && about.1 == VERSION {
            connection.pragma_update(None, "journal_mode", "wal")?;
            connection.pragma_update(None, "synchronous", "full")?;
        }
        Ok(about)
    };
    let (application, version, tables) = made().map_err(|error| of_sqlite(place, &error))?;
    if (application, tables) == (0, 0) {
        return Err(Error::new(Kind::Unavailable, place, "is empty").hint(MADE_BY));
    }
    if application != APPLICATION_ID {
        let reason = "is a database of another program";
        return Err(Error::new(Kind::Damaged, place, reason).hint("choose another path"));
    }
    if version != VERSION {
        let reason =
            format!("is a registry of version {version}, and this program knows {VERSION}");
        let hint = "use the later program, or another path";
        return Err(Error::new(Kind::Later, place, reason).hint(hint));
    }
    // Damage is found at start, and not when somebody takes over.
    let is_whole: rusqlite::Result<String> =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
    match is_whole.map_err(|error| of_sqlite(place, &error))? {
        ok if ok == "ok" => Ok(()),
        what => Err(damaged(place, &what)),
    }
}

/// A number that is never below 0.
pub fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

/// The application id, the version, and the number of tables.
fn about(connection: &Connection) -> rusqlite::Result<(i64, i64, i64)> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let tables = "SELECT count(*) FROM sqlite_schema";
    let tables = connection.query_row(tables, [], |row| row.get(0))?;
    Ok((pragma("application_id")?, pragma("user_version")?, tables))
}

fn identities(path: &Path, place: &str) -> Result<[(u64, u64); 2]> {
    // Not by opening them: closing the database again would release SQLite's locks.
    let identity = |path: &Path| match stat(path) {
        Ok(stat) => Ok((stat.st_dev, stat.st_ino)),
        Err(error) => {
            let what = format!("{} can't be found any longer: {error}", path.display());
            Err(gone(place, &what))
        }
    };
    Ok([identity(path)?, identity(&beside(path, "-changes"))?])
}

fn gone(place: &str, what: &str) -> Error {
    Error::new(Kind::Removed, place, what).hint("start the orchestrators of this registry again")
}

fn damaged(place: &str, what: &str) -> Error {
    Error::new(Kind::Damaged, place, format!("is damaged: {what}")).hint(
        "it holds who leads and which hosts are there, and no results: if no orchestrator runs, remove it",
    )
}

fn of_sqlite(place: &str, error: &rusqlite::Error) -> Error {
    let text = error.to_string();
    let of = |kind, reason: &str| Error::new(kind, place, format!("{reason}: {text}"));
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => damaged(place, &text),
        Some(ErrorCode::DiskFull) => of(Kind::Full, "can't be written").hint("the disk is full"),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            let waited = BUSY_PAUSE * BUSY_LOOKS_MAX.unsigned_abs();
            of(Kind::Busy, "is locked by another process").hint(format!(
                "it was waited for {} s; is one stopped? fuser shows who has it open",
                waited.as_secs()
            ))
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            of(Kind::Unavailable, "can't be opened")
                .hint("it has to be writable, and its folder too")
        }
        Some(_) => of(Kind::Unavailable, "can't be used"),
        // A column of another type, say.
        None => damaged(place, &text),
    }
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}
