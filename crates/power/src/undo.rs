//! Undoes what a journal describes.
//!
//! A value that is no longer the one that was set belongs to somebody else, and is left alone; so are threads
//! and sockets of processes that have ended. Undoing twice does nothing the second time.

use std::path::Path;

use crate::error::Error;
use crate::journal::{Changed, Entries, Journal, Pinned, Socket};
use crate::process;
use crate::system;
use crate::value::ValueFile;

/// What undoing did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// What was restored, one line each.
    pub restored: Vec<String>,
    /// What belongs to somebody else now, or is gone.
    pub left: Vec<String>,
    /// What could not be restored, with the reason.
    pub failed: Vec<String>,
}

/// What became of one entry.
enum Outcome {
    Restored,
    Left(&'static str),
    Failed(std::io::Error),
}

impl Undone {
    fn take(&mut self, what: String, outcome: Outcome) {
        match outcome {
            Outcome::Restored => self.restored.push(what),
            Outcome::Left(why) => self.left.push(format!("{what}: {why}")),
            Outcome::Failed(error) => self.failed.push(format!("{what}: {error}")),
        }
    }

    /// An error if anything is still as it was set.
    pub fn checked(&self, journal: &Path) -> crate::error::Result<()> {
        match self.failed.first() {
            None => Ok(()),
            Some(first) => {
                let more = match self.failed.len() {
                    1 => String::new(),
                    count => format!(" (and {} more)", count - 1),
                };
                Err(
                    Error::failed(first, format!("was not restored{more}")).hint(format!(
                        "run slackwater-power restore --journal {} as root",
                        journal.display()
                    )),
                )
            }
        }
    }
}

/// Undoes all entries. Those that fail stay in the journal, so that it can be tried again.
pub fn undo(journal: &mut Journal, entries: Entries) -> Undone {
    let mut undone = Undone::default();
    let mut stay = Entries::default();
    for (path, changed) in entries.files {
        let outcome = file(Path::new(&path), &changed);
        let failed = matches!(outcome, Outcome::Failed(_));
        undone.take(format!("{path} to {}", changed.found), outcome);
        if failed {
            stay.files.insert(path, changed);
        }
    }
    for socket in entries.sockets {
        let outcome = mark(&socket);
        let failed = matches!(outcome, Outcome::Failed(_));
        let what = format!(
            "low-water mark of process {} to {}",
            socket.pid, socket.found
        );
        undone.take(what, outcome);
        if failed {
            stay.sockets.insert(socket);
        }
    }
    for (tid, pinned) in entries.threads {
        let outcome = thread(tid, &pinned);
        let failed = matches!(outcome, Outcome::Failed(_));
        let cores = crate::units::cpus_text(&pinned.found);
        undone.take(format!("thread {tid} to cores {cores}"), outcome);
        if failed {
            stay.threads.insert(tid, pinned);
        }
    }
    if let Err(error) = journal.write(stay) {
        undone.failed.push(format!("the journal: {error}"));
    }
    undone
}

fn file(path: &Path, changed: &Changed) -> Outcome {
    let file = match ValueFile::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Outcome::Left("the file is gone");
        }
        Err(error) => return Outcome::Failed(error),
    };
    match file.read() {
        // The kernel may have rounded what was written last, and it may be in force only a moment later: so
        // what was found is written even if it seems to be there. Whoever reads it next has to find it.
        Ok(value) if [&changed.found, &changed.set].contains(&&value) || !changed.sure => {
            let written = file.write(&changed.found);
            match written.and_then(|()| file.read_settled(&changed.found)) {
                Ok(_) => Outcome::Restored,
                Err(error) => Outcome::Failed(error),
            }
        }
        Ok(_) => Outcome::Left("somebody else has changed it since"),
        Err(error) => Outcome::Failed(error),
    }
}

/// Restores the cores of a thread.
fn thread(tid: u32, pinned: &Pinned) -> Outcome {
    if process::started(tid) != Some(pinned.started) {
        return Outcome::Left("it has ended");
    }
    match system::affinity(tid) {
        Ok(cpus) if cpus == [pinned.set] => {}
        Ok(cpus) if pinned.found.iter().eq(&cpus) => return Outcome::Restored,
        // Kept away from cores instead of pinned: the set is not in the journal.
        Ok(cpus) if cpus.iter().all(|cpu| pinned.found.contains(cpu)) => {}
        Ok(_) => return Outcome::Left("somebody else has changed it since"),
        Err(error) => return Outcome::Failed(error),
    }
    let found = pinned.found.iter().copied().collect::<Vec<u32>>();
    match system::set_affinity(tid, &found) {
        Ok(()) => Outcome::Restored,
        Err(error) => Outcome::Failed(error),
    }
}

/// Restores the mark of a socket that another process holds.
fn mark(socket: &Socket) -> Outcome {
    let handle = process::handle(socket.pid);
    // The handle comes first: what is compared afterwards is of the process that it means.
    let (Some(handle), true) = (handle, process::started(socket.pid) == Some(socket.started))
    else {
        return Outcome::Left("it has ended");
    };
    let Some((descriptor, _)) = process::descriptor_of(socket.pid, &[socket.inode]) else {
        return Outcome::Left("the connection is closed");
    };
    let restored = process::duplicate(&handle, descriptor).and_then(|copy| {
        use std::os::fd::AsFd;
        system::set_low_water_mark(copy.as_fd(), socket.found)
    });
    match restored {
        Ok(()) => Outcome::Restored,
        Err(error) => Outcome::Failed(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn what_was_set_is_restored_and_what_others_set_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(&folder.path().join("journal")).unwrap();
        let mut entries = Entries::default();
        let mut add = |name: &str, now: Option<&str>, sure| {
            let path = folder.path().join(name);
            if let Some(now) = now {
                fs::write(&path, now).unwrap();
            }
            let changed = Changed {
                found: "2200000".to_string(),
                set: "1000000".to_string(),
                sure,
            };
            entries
                .files
                .insert(path.to_str().unwrap().to_string(), changed);
        };
        add("ours", Some("1000000\n"), true);
        add("rounded", Some("1100000\n"), false);
        add("theirs", Some("1400000\n"), true);
        add("gone", None, true);
        add("undone", Some("2200000\n"), true);
        journal.write(entries.clone()).unwrap();
        let undone = undo(&mut journal, entries);
        assert_eq!(undone.restored.len(), 3, "{undone:?}");
        assert_eq!(undone.left.len(), 2, "{undone:?}");
        assert!(undone.checked(Path::new("j")).is_ok());
        let now = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(now("ours"), "2200000\n");
        assert_eq!(now("rounded"), "2200000\n");
        assert_eq!(now("theirs"), "1400000\n");
        assert!(!folder.path().join("journal").exists());
    }

    #[test]
    fn what_fails_stays_in_the_journal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = Journal::open(&path).unwrap();
        let mut entries = Entries::default();
        let changed = Changed {
            found: "1".to_string(),
            set: "2".to_string(),
            sure: true,
        };
        // A folder can't be opened for writing.
        let place = folder.path().to_str().unwrap().to_string();
        entries.files.insert(place, changed);
        let undone = undo(&mut journal, entries.clone());
        let error = undone.checked(&path).unwrap_err();
        assert!(
            error.to_string().contains("slackwater-power restore"),
            "{error}"
        );
        drop(journal);
        assert_eq!(Journal::open(&path).unwrap().1, Ok(entries));
    }

    #[test]
    fn sockets_and_threads_are_restored_if_they_are_still_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(&folder.path().join("journal")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let pid = std::process::id();
        let started = process::started(pid).unwrap();
        let address = listener.local_addr().unwrap();
        let (_, inode) = process::connection_to(pid, address).unwrap();
        system::set_low_water_mark(stream.as_fd(), 262_144).unwrap();
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let found = system::affinity(tid).unwrap();
        system::set_affinity(tid, &found[..1]).unwrap();
        let socket = |started, inode| Socket {
            pid,
            started,
            inode,
            found: 1,
        };
        let pinned = |started| Pinned {
            started,
            set: found[0],
            found: found.iter().copied().collect::<BTreeSet<u32>>(),
        };
        let mut entries = Entries::default();
        entries.sockets.insert(socket(started + 1, inode));
        entries.sockets.insert(socket(started, inode + 1_000_000));
        entries.threads.insert(tid, pinned(u64::MAX));
        let undone = undo(&mut journal, entries);
        assert_eq!(
            (undone.restored.len(), undone.left.len()),
            (0, 3),
            "{undone:?}"
        );
        let mut entries = Entries::default();
        entries.sockets.insert(socket(started, inode));
        entries
            .threads
            .insert(tid, pinned(process::started(tid).unwrap()));
        let undone = undo(&mut journal, entries);
        assert_eq!(undone.restored.len(), 2, "{undone:?}");
        assert_eq!(system::low_water_mark(stream.as_fd()).unwrap(), 1);
        assert_eq!(system::affinity(tid).unwrap(), found);
    }
}
