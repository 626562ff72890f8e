//! What is wrong with a database is said with its path, and what to do.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use slackwater_registry::{Error, Expect, KEYS_MAX, Kind, Life, Registry, open, open_existing};

use super::sqlite::fresh;
use super::{Candidate, TOO_LONG, get, put, registry};

fn path(url: &str) -> PathBuf {
    url.strip_prefix("sqlite:").expect("a URL of SQLite").into()
}

fn write(registry: &dyn Registry) -> Result<u64, Error> {
    registry.put("job", Some(b"v"), Expect::Any, None, Life::Kept)
}

/// The error of opening, which names the path and has a hint.
fn refused(url: &str) -> Error {
    let error = open(url).err().expect("refused");
    assert!(
        error
            .to_string()
            .contains(url.trim_start_matches("sqlite:")),
        "{error}"
    );
    assert!(!error.hint.is_empty(), "{error}");
    error
}

#[test]
fn what_is_no_database_is_refused() {
    let (_folder, url) = fresh();
    fs::write(
        path(&url),
        "not a database, and long enough to have a header of one hundred bytes.\n".repeat(9),
    )
    .expect("a file");
    assert_eq!(refused(&url).kind, Kind::Damaged);
    // It is left as it is.
    assert!(
        fs::read_to_string(path(&url))
            .expect("a file")
            .starts_with("not a database")
    );
}

#[test]
fn a_damaged_database_is_refused_at_start() {
    let mut random = fastrand::Rng::with_seed(11);
    let mut refusals = 0;
    for _ in 0..20 {
        let (_folder, url) = fresh();
        {
            let registry = registry(&url);
            for at in 0..20 {
                put(&*registry, &format!("hosts/{at}"), &"v".repeat(700));
            }
        }
        let mut bytes = fs::read(path(&url)).expect("a file");
        for _ in 0..40 {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        fs::write(path(&url), bytes).expect("a file");
        // Not every byte matters. Nothing panics, and nothing begins from nothing.
        let used = open(&url).and_then(|registry| {
            registry.list("hosts/")?;
            write(&*registry)
        });
        if let Err(error) = used {
            assert!(
                matches!(error.kind, Kind::Damaged | Kind::Later | Kind::Unavailable),
                "{error}"
            );
            refusals += 1;
        }
    }
    assert!(refusals > 0);
}

#[test]
fn values_of_another_type_are_damage() {
    let (_folder, url) = fresh();
    let registry = registry(&url);
    put(&*registry, "job", "v");
    let other = Connection::open(path(&url)).expect("a database");
    let set = |sql: &str| other.execute(sql, []).expect("a statement");
    set("UPDATE entries SET version = -1 WHERE key = 'job'");
    assert_eq!(registry.get("job").expect_err("damage").kind, Kind::Damaged);
    set("UPDATE entries SET version = 'x' WHERE key = 'job'");
    let error = registry.get("job").expect_err("damage");
    assert_eq!(error.kind, Kind::Damaged);
    assert!(error.to_string().contains("job"), "{error}");
    set("DELETE FROM entries");
    set("INSERT INTO entries VALUES ('term', x'ff00', 1, NULL)");
    let candidate = Candidate::stand(&*registry, "c");
    let error = candidate.over();
    assert_eq!(error.kind, Kind::Damaged);
    assert!(error.to_string().contains("term"), "{error}");
}

#[test]
fn databases_of_others_are_left_alone() {
    let (_folder, url) = fresh();
    Connection::open(path(&url))
        .and_then(|other| other.execute_batch("CREATE TABLE theirs (a)"))
        .expect("a database");
    let before = fs::read(path(&url)).expect("a file");
    assert!(refused(&url).reason.contains("another program"));
    assert_eq!(fs::read(path(&url)).expect("a file"), before);
}

#[test]
fn who_only_looks_leaves_an_empty_file_alone() {
    let (_folder, url) = fresh();
    fs::write(path(&url), "").expect("a file");
    let error = open_existing(&url).err().expect("refused");
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    assert_eq!(fs::read(path(&url)).expect("a file"), b"");
    write(&*registry(&url)).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_later_version_is_refused() {
    let (_folder, url) = fresh();
    drop(registry(&url));
    let other = Connection::open(path(&url)).expect("a database");
    other
        .pragma_update(None, "user_version", 2)
        .expect("a version");
    drop(other);
    let error = refused(&url);
    assert_eq!(error.kind, Kind::Later);
    assert!(error.reason.contains('2'), "{error}");
}

/// Or two would wait for changes of two files.
#[test]
fn a_removed_file_of_changes_is_noticed() {
    let (folder, url) = fresh();
    let ours = registry(&url);
    let candidate = Candidate::stand(&*ours, "c");
    candidate.elected();
    fs::remove_file(folder.path().join("registry.db-changes")).expect("a file");
    assert_eq!(candidate.over().kind, Kind::Removed);
    assert_eq!(write(&*ours).expect_err("removed").kind, Kind::Removed);
    drop((candidate, ours));
    write(&*registry(&url)).unwrap_or_else(|error| panic!("{error}"));
}

/// Whoever removes the pipes ends the sessions, and nothing worse.
#[test]
fn removed_pipes_end_sessions() {
    let (folder, url) = fresh();
    let (ours, theirs) = (registry(&url), registry(&url));
    let old = Candidate::stand(&*theirs, "old");
    let term = old.elected();
    let here = || theirs.put("here", Some(b"v"), Expect::Absent, None, Life::Session);
    here().unwrap_or_else(|error| panic!("{error}"));
    fs::remove_dir_all(folder.path().join("registry.db-sessions")).expect("a folder");
    fs::create_dir(folder.path().join("registry.db-sessions")).expect("a folder");
    let new = Candidate::stand(&*ours, "new");
    assert!(new.elected() > term);
    assert_eq!(old.over().kind, Kind::Fenced);
    let late = theirs.put("job", Some(b"v"), Expect::Any, Some(&term), Life::Kept);
    assert_eq!(late.expect_err("fenced").kind, Kind::Fenced);
    here().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(get(&*ours, "here").as_deref(), Some("v"));
}

#[test]
fn others_can_t_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, url) = fresh();
    let registry = registry(&url);
    let candidate = Candidate::stand(&*registry, "c");
    candidate.elected();
    let mut files = 0;
    for file in fs::read_dir(folder.path()).expect("a folder") {
        let file = file.expect("a file");
        let mode = file.metadata().expect("a file").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{:?} has mode {mode:o}", file.file_name());
        files += 1;
    }
    // With the log and its index, while it is open.
    assert_eq!(files, 5);
}

#[test]
fn a_removed_database_ends_what_relies_on_it() {
    let (_folder, url) = fresh();
    let registry = registry(&url);
    let candidate = Candidate::stand(&*registry, "c");
    candidate.elected();
    fs::remove_file(path(&url)).expect("a file");
    assert_eq!(candidate.over().kind, Kind::Removed);
    assert_eq!(write(&*registry).expect_err("removed").kind, Kind::Removed);
}

#[test]
fn a_replaced_database_isnt_written() {
    let (_folder, url) = fresh();
    let ours = registry(&url);
    let candidate = Candidate::stand(&*ours, "c");
    candidate.elected();
    fs::rename(path(&url), path(&url).with_extension("old")).expect("a file");
    assert_eq!(candidate.over().kind, Kind::Removed);
    for end in ["-wal", "-shm"] {
        let mut name = path(&url).into_os_string();
        name.push(end);
        let _ = fs::remove_file(name);
    }
    let theirs = registry(&url);
    put(&*theirs, "job", "theirs");
    assert_eq!(ours.get("job").expect_err("replaced").kind, Kind::Removed);
    assert_eq!(write(&*ours).expect_err("replaced").kind, Kind::Removed);
    drop(candidate);
    assert_eq!(get(&*theirs, "job").as_deref(), Some("theirs"));
}

#[test]
fn a_writer_is_waited_for_and_not_for_ever() {
    let (_folder, url) = fresh();
    let registry = registry(&url);
    let other = Connection::open(path(&url)).expect("a database");
    let lock = || other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    lock();
    std::thread::scope(|scope| {
        let written = scope.spawn(|| write(&*registry));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!written.is_finished());
        // Reading needs no lock.
        assert_eq!(get(&*registry, "job"), None);
        other.execute_batch("COMMIT").expect("the end");
        written
            .join()
            .expect("no panic")
            .unwrap_or_else(|error| panic!("{error}"));
    });
    lock();
    let start = Instant::now();
    let error = write(&*registry).expect_err("locked");
    assert_eq!(error.kind, Kind::Busy, "{error}");
    assert!(start.elapsed() < TOO_LONG);
    other.execute_batch("ROLLBACK").expect("the end");
    write(&*registry).unwrap_or_else(|error| panic!("{error}"));
}

/// What a writer commits that stood still in the middle, for longer than anybody waits to write.
#[test]
fn changes_of_a_writer_that_stood_still_are_seen() {
    let (folder, url) = fresh();
    let registry = registry(&url);
    put(&*registry, "job", "before");
    let (changed, changes) = std::sync::mpsc::channel();
    let watch = registry.watch(
        "job",
        Box::new(move || {
            let _ = changed.send(());
        }),
    );
    let other = Connection::open(path(&url)).expect("a database");
    let sql = "BEGIN IMMEDIATE; UPDATE entries SET value = x'61', version = version + 1 WHERE key = 'job'";
    other.execute_batch(sql).expect("a write");
    fs::write(folder.path().join("registry.db-changes"), ".").expect("a notice");
    assert!(changes.recv_timeout(Duration::from_millis(10_500)).is_err());
    other.execute_batch("COMMIT").expect("the end");
    changes.recv_timeout(TOO_LONG).expect("a change");
    assert_eq!(get(&*registry, "job").as_deref(), Some("a"));
    // A watch that waits for such a writer can be ended.
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    fs::write(folder.path().join("registry.db-changes"), ".").expect("a notice");
    drop(watch);
}

#[test]
fn a_registry_has_a_limit_of_keys() {
    let (_folder, url) = fresh();
    let registry = registry(&url);
    let sql = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {KEYS_MAX})
         INSERT INTO entries SELECT 'hosts/' || i, x'61', i, NULL FROM n"
    );
    let other = Connection::open(path(&url)).expect("a database");
    other.execute(&sql, []).expect("a write");
    let error = write(&*registry).expect_err("full");
    assert_eq!(error.kind, Kind::Full, "{error}");
    assert!(error.to_string().contains(&KEYS_MAX.to_string()), "{error}");
    // What is there can be written and removed.
    put(&*registry, "hosts/1", "v");
    let removed = registry.put("hosts/1", None, Expect::Any, None, Life::Kept);
    removed.unwrap_or_else(|error| panic!("{error}"));
    write(&*registry).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn folders_that_are_missing_are_named() {
    let error = refused("sqlite:/no/such/folder/registry.db");
    assert_eq!(error.kind, Kind::Unavailable);
    let error = refused("sqlite:/proc/registry.db");
    assert_eq!(error.kind, Kind::Unavailable);
}

/// A file system of one megabyte; needs root.
#[test]
fn a_full_disk_is_named_and_damages_nothing() {
    let (folder, _) = fresh();
    let _mounted = match Mounted::new(folder.path()) {
        Some(mounted) => mounted,
        None => {
            eprintln!(
                "note: a file system can't be mounted here (root?): full disks are not tested"
            );
            return;
        }
    };
    let url = format!("sqlite:{}", folder.path().join("registry.db").display());
    let registry = registry(&url);
    put(&*registry, "first", "v");
    let mut written = 0;
    let error = loop {
        let key = format!("hosts/{written}");
        match registry.put(&key, Some(&[7; 30_000]), Expect::Any, None, Life::Kept) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100, "the disk has no limit");
    };
    assert_eq!(error.kind, Kind::Full, "{error}");
    assert_eq!(registry.list("hosts/").expect("entries").len(), written);
    drop(registry);
    let registry = open(&url).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(get(&*registry, "first").as_deref(), Some("v"));
}

struct Mounted<'a>(&'a Path);

impl Mounted<'_> {
    fn new(folder: &Path) -> Option<Mounted<'_>> {
        let mut mount = std::process::Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=1m", "none"])
            .arg(folder);
        mount
            .status()
            .is_ok_and(|status| status.success())
            .then_some(Mounted(folder))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("--lazy")
            .arg(self.0)
            .status();
    }
}
