//! What was found before anything was set: on disk before each change, so that whoever comes next can undo
//! it.
//!
//! ```text
//! slackwater-power journal 1
//! boot 0f9c7a36-…                                          of /proc/sys/kernel/random/boot_id
//! file 2200000 1000000 sure /sys/…/scaling_max_freq        value found, value set, whether it was read back
//! thread 4711 88123 2 0-3                                  thread, its start, core set, cores found
//! socket 4700 88120 99123 1                                process, its start, socket's inode, mark found
//! end 5 9b1c20d4a3f0e671                                   lines before this one, FNV-1a of their bytes
//! ```
//!
//! Invariants: the file is replaced as a whole, by a rename, so a reader sees a complete one or the one
//! before. One that is torn all the same, or that another boot has written, is not applied. `NAME.lock` is
//! locked while somebody manages or undoes; it holds that process's number.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use slackwater_control::power::Cpu;

use crate::error::{Error, Result};
use crate::units;

const FIRST_LINE: &str = "slackwater-power journal 1";
/// The most bytes of a journal that are read: 64 servers with 1,000 threads of 64 bytes each.
const BYTES_MAX: u64 = 4 << 20;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A file that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// What it held.
    pub found: String,
    /// What was written.
    pub set: String,
    /// Whether `set` was read back. If not, the kernel may have rounded it.
    pub sure: bool,
}

/// A thread that was pinned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinned {
    /// When it started, in ticks since boot: a number is given to another thread later.
    pub started: u64,
    /// The core that was set.
    pub set: Cpu,
    /// The cores that were found.
    pub found: BTreeSet<Cpu>,
}

/// A socket whose low-water mark is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Socket {
    /// The process.
    pub pid: u32,
    /// When that started, in ticks since boot.
    pub started: u64,
    /// The socket's inode.
    pub inode: u64,
    /// The mark that was found.
    pub found: i32,
}

/// Everything that is changed at a time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entries {
    /// Files, by their paths.
    pub files: BTreeMap<String, Changed>,
    /// Threads, by their numbers.
    pub threads: BTreeMap<u32, Pinned>,
    /// Sockets.
    pub sockets: BTreeSet<Socket>,
}

impl Entries {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.threads.is_empty() && self.sockets.is_empty()
    }

    /// The journal's text.
    pub fn encode(&self, boot: &str) -> String {
        let mut text = format!("{FIRST_LINE}\nboot {boot}\n");
        for (path, file) in &self.files {
            let sure = if file.sure { "sure" } else { "unsure" };
            let _ = writeln!(text, "file {} {} {sure} {path}", file.found, file.set);
        }
        for (tid, thread) in &self.threads {
            let found = units::cpus_text(&thread.found);
            let _ = writeln!(
                text,
                "thread {tid} {} {} {found}",
                thread.started, thread.set
            );
        }
        for socket in &self.sockets {
            let Socket {
                pid,
                started,
                inode,
                found,
            } = socket;
            let _ = writeln!(text, "socket {pid} {started} {inode} {found}");
        }
        let lines = text.lines().count();
        let _ = writeln!(text, "end {lines} {:016x}", hash(text.as_bytes()));
        text
    }

    /// Reads a journal's text.
    pub fn decode(text: &str, boot: &str) -> std::result::Result<Self, Unusable> {
        let body = text.strip_suffix('\n').ok_or(Unusable::Torn)?;
        let end = body.rfind('\n').ok_or(Unusable::Torn)? + 1;
        let body = &text[..end];
        let expected = format!(
            "end {} {:016x}\n",
            body.lines().count(),
            hash(body.as_bytes())
        );
        if text[end..] != expected {
            return Err(Unusable::Torn);
        }
        let mut lines = body.lines();
        match lines.next() {
            Some(FIRST_LINE) => {}
            first => return Err(Unusable::Version(first.unwrap_or_default().to_string())),
        }
        let written = lines.next().and_then(|line| line.strip_prefix("boot "));
        if written.ok_or(Unusable::Torn)? != boot {
            return Err(Unusable::AnotherBoot);
        }
        let mut entries = Self::default();
        for line in lines {
            entries.take(line).ok_or(Unusable::Torn)?;
        }
        Ok(entries)
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        match kind {
            "file" => {
                let mut parts = rest.splitn(4, ' ');
                let (found, set) = (parts.next()?.to_string(), parts.next()?.to_string());
                let sure = match parts.next()? {
                    "sure" => true,
                    "unsure" => false,
                    _ => return None,
                };
                let path = parts.next()?.to_string();
                self.files.insert(path, Changed { found, set, sure });
            }
            "thread" => {
                let mut parts = rest.splitn(4, ' ');
                let tid = parts.next()?.parse().ok()?;
                let thread = Pinned {
                    started: parts.next()?.parse().ok()?,
                    set: parts.next()?.parse().ok()?,
                    found: units::cpus(parts.next()?).ok()?,
                };
                self.threads.insert(tid, thread);
            }
            "socket" => {
                let mut parts = rest.splitn(4, ' ');
                self.sockets.insert(Socket {
                    pid: parts.next()?.parse().ok()?,
                    started: parts.next()?.parse().ok()?,
                    inode: parts.next()?.parse().ok()?,
                    found: parts.next()?.parse().ok()?,
                });
            }
            _ => return None,
        }
        Some(())
    }
}

/// Why a journal is not applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    /// It is incomplete, or was changed by somebody else.
    Torn,
    /// Another version has written it.
    Version(String),
    /// It was written before the host booted: all that it describes is gone.
    AnotherBoot,
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Torn => write!(f, "is torn, and is not applied"),
            Self::Version(line) => write!(
                f,
                "is of another version ('{}'), and is not applied",
                line.chars().take(60).collect::<String>()
            ),
            Self::AnotherBoot => write!(
                f,
                "is of another boot, and is not applied: a reboot undoes everything"
            ),
        }
    }
}

/// FNV-1a: finds what is torn, not what somebody forges, who could write the values themselves.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The journal's file, locked.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    boot: String,
    /// What the file says.
    entries: Entries,
    /// Holds the lock.
    _lock: File,
}

impl Journal {
    /// Locks the journal at `path`, whose folder is created. What an earlier process has left there is
    /// returned along, or why it can't be used.
    pub fn open(path: &Path) -> Result<(Self, std::result::Result<Entries, Unusable>)> {
        let place = path.display();
        let failed = |error: io::Error| {
            Error::failed(place_of(path), error)
                .hint("--journal FILE puts it where this user may write; /run needs root")
        };
        if path.file_name().is_none() {
            return Err(Error::usage(
                "--journal",
                format!("'{place}' is not a file"),
            ));
        }
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let lock = lock(path)?;
        let boot = fs::read_to_string(BOOT_ID).unwrap_or_default();
        let mut journal = Self {
            path: path.to_path_buf(),
            boot: boot.trim().to_string(),
            entries: Entries::default(),
            _lock: lock,
        };
        let found = match File::open(path) {
            Ok(file) => {
                let mut text = String::new();
                match file.take(BYTES_MAX).read_to_string(&mut text) {
                    Ok(_) => Entries::decode(&text, &journal.boot),
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(Unusable::Torn),
                    Err(error) => return Err(failed(error)),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Entries::default()),
            Err(error) => return Err(failed(error)),
        };
        if let Ok(found) = &found {
            journal.entries = found.clone();
        }
        Ok((journal, found))
    }

    /// What the file says.
    pub fn entries(&self) -> &Entries {
        &self.entries
    }

    /// Writes what will be true; whoever changes something calls this before, and does not change it if this
    /// fails. Nothing is written if nothing is new.
    pub fn write(&mut self, entries: Entries) -> io::Result<()> {
        if self.entries == entries {
            return Ok(());
        }
        if entries.is_empty() {
            match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        } else {
            let mut name = self.path.clone().into_os_string();
            name.push(".new");
            let mut file = File::create(&name)?;
            file.write_all(entries.encode(&self.boot).as_bytes())?;
            file.sync_data()?;
            fs::rename(&name, &self.path)?;
        }
        self.entries = entries;
        Ok(())
    }

    /// Changes a copy of what the file says, and writes it.
    pub fn update(&mut self, change: impl FnOnce(&mut Entries)) -> io::Result<()> {
        let mut entries = self.entries.clone();
        change(&mut entries);
        self.write(entries)
    }

    /// Keeps a journal that can't be applied beside the next one, for people to look at.
    pub fn set_aside(&self) -> io::Result<PathBuf> {
        let mut name = self.path.clone().into_os_string();
        name.push(".unusable");
        fs::rename(&self.path, &name)?;
        Ok(name.into())
    }
}

fn place_of(path: &Path) -> String {
    format!("journal {}", path.display())
}

/// Takes the lock and writes this process's number there; else says who has it.
fn lock(path: &Path) -> Result<File> {
    let mut name = path.to_path_buf().into_os_string();
    name.push(".lock");
    let failed = |error: io::Error| {
        Error::failed(Path::new(&name).display(), error)
            .hint("--journal FILE puts it where this user may write; /run needs root")
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let mut file = options.open(&name).map_err(failed)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut holder = String::new();
        let _ = (&mut file).take(32).read_to_string(&mut holder);
        let what = format!("process {} manages already", holder.trim());
        return Err(Error::failed(place_of(path), what).hint(
            "stop it first, or give each manager cores, servers and a --journal of its own",
        ));
    }
    file.set_len(0).map_err(failed)?;
    file.rewind().map_err(failed)?;
    writeln!(file, "{}", std::process::id()).map_err(failed)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Entries {
        let mut entries = Entries::default();
        let changed = |set: &str, sure| Changed {
            found: "2200000".to_string(),
            set: set.to_string(),
            sure,
        };
        let path = |cpu| format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling max freq");
        entries.files.insert(path(2), changed("1000000", true));
        entries.files.insert(path(3), changed("1200000", false));
        let pinned = Pinned {
            started: 88_123,
            set: 2,
            found: BTreeSet::from([0, 1, 2, 3, 8]),
        };
        entries.threads.insert(4711, pinned);
        entries.sockets.insert(Socket {
            pid: 4700,
            started: 88_120,
            inode: 99_123,
            found: 1,
        });
        entries
    }

    #[test]
    fn the_format_stays() {
        let golden = include_str!("../tests/journal-1.txt");
        assert_eq!(entries().encode("0f9c7a36-1"), golden);
        assert_eq!(Entries::decode(golden, "0f9c7a36-1"), Ok(entries()));
    }

    #[test]
    fn whatever_is_torn_is_not_applied() {
        let text = entries().encode("b");
        for end in 0..text.len() {
            assert_eq!(
                Entries::decode(&text[..end], "b"),
                Err(Unusable::Torn),
                "{end}"
            );
        }
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let changed = String::from_utf8(bytes).unwrap();
            assert!(Entries::decode(&changed, "b").is_err(), "{at}");
        }
        let doubled = text.clone() + &text;
        assert_eq!(Entries::decode(&doubled, "b"), Err(Unusable::Torn));
        assert_eq!(Entries::decode(&text, "c"), Err(Unusable::AnotherBoot));
    }

    #[test]
    fn a_second_process_is_told_who_manages() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/power.journal");
        let (mut journal, found) = Journal::open(&path).unwrap();
        assert_eq!(found, Ok(Entries::default()));
        journal.write(entries()).unwrap();
        let error = Journal::open(&path).unwrap_err();
        let process = format!("process {} manages already", std::process::id());
        assert!(error.to_string().contains(&process), "{error}");
        drop(journal);
        let (mut journal, found) = Journal::open(&path).unwrap();
        assert_eq!(found, Ok(entries()));
        journal
            .update(|entries| *entries = Entries::default())
            .unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn an_unusable_journal_is_kept_for_people() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("power.journal");
        for text in [&b"half a journal"[..], b"\xff\xfe\n", b""] {
            fs::write(&path, text).unwrap();
            let (journal, found) = Journal::open(&path).unwrap();
            assert_eq!(found, Err(Unusable::Torn));
            let kept = journal.set_aside().unwrap();
            assert_eq!(fs::read(kept).unwrap(), text);
        }
    }
}
