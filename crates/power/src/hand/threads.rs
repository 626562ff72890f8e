//! Threads of instances: pinned to a core, or kept away from the cores of others.

use std::collections::BTreeSet;

use slackwater_control::power::Cpu;

use crate::journal::{Journal, Pinned};
use crate::message::Answer;
use crate::process;
use crate::system;

/// How often the cores of an instance are set again within a minute, if somebody else changes them.
const AGAIN_MAX: u32 = 3;
const AGAIN_NS: u64 = 60_000_000_000;

/// Where the threads of a process run.
#[derive(Debug)]
pub struct Threads {
    pid: u32,
    /// The cores of the main thread when the process was adopted. Threads that begin later inherit what was
    /// set, so these are the ones that they are given back.
    home: BTreeSet<Cpu>,
    /// The cores that are set; none is none.
    pub set: Option<BTreeSet<Cpu>>,
    again: (u64, u32),
}

impl Threads {
    /// Looks at a process.
    pub fn of(pid: u32) -> std::io::Result<Self> {
        Ok(Self {
            pid,
            home: system::affinity(pid)?.into_iter().collect(),
            set: None,
            again: (0, 0),
        })
    }

    /// The cores on which the process ran when it was found.
    pub fn home(&self) -> &BTreeSet<Cpu> {
        &self.home
    }

    /// Lets all threads run on these cores only. No cores, or those that were found, is what was found.
    pub fn set(&mut self, journal: &mut Journal, cpus: BTreeSet<Cpu>) -> Answer {
        if cpus.is_empty() || cpus == self.home {
            return self.restore(journal);
        }
        let before = self.set.replace(cpus);
        self.apply(journal, before.as_ref()).0
    }

    /// Pins threads that are new, and those that somebody else has moved.
    pub fn look(&mut self, journal: &mut Journal, now_ns: u64) {
        if self.set.is_none() {
            return;
        }
        let (since, count) = self.again;
        if now_ns.saturating_sub(since) > AGAIN_NS {
            self.again = (now_ns, 0);
        } else if count >= AGAIN_MAX {
            return;
        }
        if self.apply(journal, self.set.clone().as_ref()).1 {
            self.again.1 += 1;
        }
    }

    /// Sets all threads that are not so; also whether there were any. Threads that run on the cores that were
    /// set `before`, and that the journal does not have, have inherited them.
    fn apply(&mut self, journal: &mut Journal, before: Option<&BTreeSet<Cpu>>) -> (Answer, bool) {
        let Some(set) = &self.set else {
            return (Answer::DONE, false);
        };
        let cpus = set.iter().copied().collect::<Vec<Cpu>>();
        let (mut new, mut moved) = (Vec::new(), Vec::new());
        for tid in process::threads(self.pid) {
            let (Ok(now), Some(started)) = (system::affinity(tid), process::started(tid)) else {
                continue;
            };
            let written = journal.entries().threads.get(&tid);
            let written = written.filter(|pinned| pinned.started == started);
            if now != cpus {
                moved.push((tid, started));
            }
            if written.is_none_or(|pinned| pinned.set != cpus[0]) {
                let now = now.into_iter().collect::<BTreeSet<Cpu>>();
                let found = match (written, before) {
                    (Some(pinned), _) => pinned.found.clone(),
                    (None, Some(before)) if now == *before => self.home.clone(),
                    (None, _) => now,
                };
                let pinned = Pinned {
                    started,
                    set: cpus[0],
                    found,
                };
                new.push((tid, pinned));
            }
        }
        if !new.is_empty() {
            let written = journal.update(|entries| entries.threads.extend(new));
            if let Err(error) = written {
                return (Answer::refused(&error), true);
            }
        }
        let mut answer = Answer::value(moved.len() as u64);
        let any = !moved.is_empty();
        for (tid, started) in moved {
            match system::set_affinity(tid, &cpus) {
                Err(error) if process::started(tid) == Some(started) => {
                    answer = Answer::refused(&error);
                }
                _ => {}
            }
        }
        (answer, any)
    }

    /// Gives all threads back the cores that were found.
    pub fn restore(&mut self, journal: &mut Journal) -> Answer {
        let mut answer = Answer::DONE;
        if self.set.take().is_none() {
            return answer;
        }
        let mut done = Vec::new();
        // The journal's threads are of all instances; those of this one are asked of the kernel.
        for tid in process::threads(self.pid) {
            let Some(pinned) = journal.entries().threads.get(&tid) else {
                continue;
            };
            if process::started(tid) == Some(pinned.started) {
                let found = pinned.found.iter().copied().collect::<Vec<Cpu>>();
                if let Err(error) = system::set_affinity(tid, &found) {
                    answer = Answer::refused(&error);
                    continue;
                }
            }
            done.push(tid);
        }
        let written = journal.update(|entries| {
            for tid in done {
                entries.threads.remove(&tid);
            }
        });
        match written {
            Err(error) => Answer::refused(&error),
            Ok(()) => answer,
        }
    }
}

/// Removes threads that have ended from the journal: else it would grow as long as servers start threads.
pub fn forget_ended(journal: &mut Journal) -> std::io::Result<()> {
    let threads = journal.entries().threads.iter();
    let ended = threads
        .filter(|(tid, pinned)| process::started(**tid) != Some(pinned.started))
        .map(|(tid, _)| *tid)
        .collect::<Vec<u32>>();
    if ended.is_empty() {
        return Ok(());
    }
    journal.update(|entries| {
        for tid in ended {
            entries.threads.remove(&tid);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// A process that does nothing, ended with the test.
    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Self {
            Self(Command::new("sleep").arg("600").spawn().unwrap())
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_is_pinned_and_let_go() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(&folder.path().join("journal")).unwrap();
        let sleeper = Sleeper::start();
        let pid = sleeper.0.id();
        let found = system::affinity(pid).unwrap();
        let mut threads = Threads::of(pid).unwrap();
        let first = found[0];
        let answer = threads.set(&mut journal, BTreeSet::from([first]));
        let moved = u64::from(found.len() > 1);
        assert_eq!(answer, Answer::value(moved));
        assert_eq!(system::affinity(pid).unwrap(), [first]);
        // Somebody else moves it: it is pinned again, a few times.
        for round in 0..AGAIN_MAX + 2 {
            system::set_affinity(pid, &found).unwrap();
            threads.look(&mut journal, AGAIN_NS + 1 + u64::from(round));
        }
        assert_eq!(system::affinity(pid).unwrap(), found);
        threads.restore(&mut journal);
        assert_eq!(system::affinity(pid).unwrap(), found);
        assert!(journal.entries().is_empty());
        threads.set(&mut journal, BTreeSet::from([first]));
        drop(sleeper);
        forget_ended(&mut journal).unwrap();
        assert!(journal.entries().is_empty());
    }
}
