//! The files that cap cores: opened once, journaled before each write, read back after it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Instant;

use slackwater_control::power::Cpu;

use crate::cores::Cores;
use crate::journal::{Changed, Journal};
use crate::message::{Answer, Code, TEXT_MAX};
use crate::value::{SETTLE, ValueFile};

/// How often a value that somebody else has changed is set again within [`AGAIN_NS`].
pub const AGAIN_MAX: usize = 3;
/// The time in which it is set again so often: a minute.
const AGAIN_NS: u64 = 60_000_000_000;
/// The energy preference of a slow core.
const SLOW_PREFERENCE: &str = "power";

/// All files that cap the cores of a plan.
#[derive(Debug, Default)]
pub struct Clocks {
    files: Vec<Clock>,
    by_cpu: BTreeMap<Cpu, usize>,
    /// Why cores of the plan can't be set.
    pub refused: BTreeMap<Cpu, String>,
}

/// One file, of one or more cores.
#[derive(Debug)]
struct Clock {
    path: String,
    file: ValueFile,
    cpus: BTreeSet<Cpu>,
    found: String,
    khz: (u32, u32),
    /// The value that is set.
    set: Option<String>,
    /// What the file held before that, until the new value was read back.
    before: Option<String>,
    /// When it was set again lately.
    again: VecDeque<u64>,
    is_left_alone: bool,
    preference: Option<Preference>,
}

#[derive(Debug)]
struct Preference {
    path: String,
    file: ValueFile,
    found: String,
    is_set: bool,
    is_refused: bool,
}

/// A file by which the head undoes a change.
pub struct Undoable<'a> {
    /// The first of the file's cores.
    pub cpu: Cpu,
    /// The file.
    pub file: &'a ValueFile,
    /// What it held.
    pub found: &'a str,
}

/// A core that is left alone from now on.
#[derive(Debug, PartialEq, Eq)]
pub struct LeftAlone {
    /// The core.
    pub cpu: Cpu,
    /// What the file holds.
    pub khz: u32,
}

impl Clocks {
    /// Opens the files of the cores that may be set. Cores whose file can't be opened are refused.
    pub fn open(cores: &Cores, may_set: &BTreeSet<Cpu>) -> Self {
        let mut clocks = Self::default();
        let mut by_path = BTreeMap::<PathBuf, usize>::new();
        for &cpu in may_set {
            let Some(described) = cores.get(cpu) else {
                clocks
                    .refused
                    .insert(cpu, "is offline or missing".to_string());
                continue;
            };
            let (Some(path), Some(khz)) = (&described.cap, described.core.khz) else {
                let why = described.fixed.clone().unwrap_or_default();
                clocks.refused.insert(cpu, why);
                continue;
            };
            if let Some(&at) = by_path.get(path) {
                clocks.files[at].cpus.insert(cpu);
                clocks.by_cpu.insert(cpu, at);
                continue;
            }
            match open(path, cpu, khz, described.preference.as_ref()) {
                Ok(clock) => {
                    by_path.insert(path.clone(), clocks.files.len());
                    clocks.by_cpu.insert(cpu, clocks.files.len());
                    clocks.files.push(clock);
                }
                Err(error) => {
                    let what = format!("can't be slowed: {}: {error}", path.display());
                    clocks.refused.insert(cpu, what);
                }
            }
        }
        clocks
    }

    /// Everything that is needed to undo what may be set.
    pub fn undoable(&self) -> impl Iterator<Item = Undoable<'_>> {
        self.files.iter().flat_map(|clock| {
            let cpu = clock.cpus.first().copied().unwrap_or_default();
            let cap = Undoable {
                cpu,
                file: &clock.file,
                found: &clock.found,
            };
            let preference = clock.preference.as_ref().map(|preference| Undoable {
                cpu,
                file: &preference.file,
                found: &preference.found,
            });
            std::iter::once(cap).chain(preference)
        })
    }

    /// Caps a core, or restores what was found.
    pub fn cap(&mut self, journal: &mut Journal, cpu: Cpu, khz: Option<u32>) -> Answer {
        let clock = self.by_cpu.get(&cpu).and_then(|at| self.files.get_mut(*at));
        let Some(clock) = clock else {
            return Answer::of(Code::NotAllowed);
        };
        match khz {
            None => clock.restore(journal),
            Some(khz) if khz < clock.khz.0 || khz > clock.khz.1 => Answer::of(Code::NotAllowed),
            Some(_) if clock.is_left_alone => Answer::of(Code::Conflict),
            Some(khz) if khz == clock.khz.1 => clock.restore(journal),
            Some(khz) => clock.set(journal, khz.to_string()),
        }
    }

    /// Waits until what was restored can be read, so that it is not taken for a limit of somebody else.
    pub fn settle(&self) {
        // All of them at once: the head waits for an answer.
        let until = Instant::now() + SETTLE;
        for clock in self.files.iter().filter(|clock| clock.set.is_none()) {
            let _ = clock.file.read_until(&clock.found, until);
        }
    }

    /// Sets again what somebody else has changed, a few times; returns the cores that are left alone instead.
    pub fn look(&mut self, journal: &mut Journal, now_ns: u64) -> Vec<LeftAlone> {
        let clocks = self.files.iter_mut();
        clocks
            .filter_map(|clock| clock.look(journal, now_ns))
            .collect()
    }
}

fn open(
    path: &Path,
    cpu: Cpu,
    khz: (u32, u32),
    preference: Option<&PathBuf>,
) -> std::io::Result<Clock> {
    let file = ValueFile::open(path)?;
    let found = file.read()?;
    if found.parse::<u32>().is_err() {
        return Err(std::io::Error::other(format!(
            "'{found}' is not a frequency"
        )));
    }
    let preference = preference.and_then(|path| {
        let file = ValueFile::open(path).ok()?;
        let found = file.read().ok().filter(|found| is_word(found))?;
        Some(Preference {
            path: path.to_str()?.to_string(),
            file,
            found,
            is_set: false,
            is_refused: false,
        })
    });
    Ok(Clock {
        path: path
            .to_str()
            .map(str::to_string)
            .ok_or_else(|| std::io::Error::other("a path that is not UTF-8"))?,
        file,
        cpus: BTreeSet::from([cpu]),
        found,
        khz,
        set: None,
        before: None,
        again: VecDeque::new(),
        is_left_alone: false,
        preference,
    })
}

/// Whether the journal and messages can carry a value.
fn is_word(value: &str) -> bool {
    !value.is_empty() && value.len() <= TEXT_MAX && !value.contains(char::is_whitespace)
}

impl Clock {
    fn set(&mut self, journal: &mut Journal, value: String) -> Answer {
        let entry = |set: &str, sure| Changed {
            found: self.found.clone(),
            set: set.to_string(),
            sure,
        };
        let held = self.file.read().unwrap_or_default();
        // Before the write, and unsure until it is read back: whoever undoes it now restores what was found.
        let before = journal.update(|entries| {
            entries
                .files
                .insert(self.path.clone(), entry(&value, false));
        });
        if let Err(error) = before {
            return Answer::refused(&error);
        }
        let written = self.file.write(&value);
        let written = written.and_then(|()| self.file.read_settled(&value));
        let back = match written {
            Ok(back) => back,
            Err(error) => {
                // Some of it may have been written: what was found is written, which is never slower.
                let _ = self.restore(journal);
                return Answer::refused(&error);
            }
        };
        let khz = back.parse().unwrap_or_default();
        // It will be in force later, or another limit of the kernel is lower.
        if back == held && back != value {
            (self.set, self.before) = (Some(value), Some(held));
        } else {
            (self.set, self.before) = (Some(back), None);
            if let Err(error) = self.confirm(journal) {
                return Answer::refused(&error);
            }
        }
        self.prefer(journal);
        Answer::value(khz)
    }

    /// What is set was read back: from now on another value is somebody else's.
    fn confirm(&mut self, journal: &mut Journal) -> std::io::Result<()> {
        self.before = None;
        let set = self.set.clone().unwrap_or_default();
        journal.update(|entries| {
            if let Some(changed) = entries.files.get_mut(&self.path) {
                (changed.set, changed.sure) = (set, true);
            }
        })
    }

    /// Tells the hardware to save energy. Some drivers and governors refuse; the cap is enough.
    fn prefer(&mut self, journal: &mut Journal) {
        let Some(preference) = self.preference.as_mut() else {
            return;
        };
        if preference.is_set || preference.is_refused || preference.found == SLOW_PREFERENCE {
            return;
        }
        let changed = Changed {
            found: preference.found.clone(),
            set: SLOW_PREFERENCE.to_string(),
            sure: false,
        };
        let path = preference.path.clone();
        let before = journal.update(|entries| {
            entries.files.insert(path, changed);
        });
        if before.is_err() {
            return;
        }
        preference.is_set = true;
        if preference.file.write(SLOW_PREFERENCE).is_err() {
            preference.is_refused = true;
            let _ = preference.restore(journal);
        }
    }

    fn restore(&mut self, journal: &mut Journal) -> Answer {
        let kept = self
            .preference
            .as_mut()
            .map(|preference| preference.restore(journal));
        let theirs = match (&self.set, self.file.read()) {
            (Some(set), Ok(now)) => self.before.is_none() && now != *set,
            _ => false,
        };
        let is_in_journal = journal.entries().files.contains_key(&self.path);
        let written = match is_in_journal && !theirs {
            true => self.file.write(&self.found),
            false => Ok(()),
        };
        if let Err(error) = written {
            return Answer::refused(&error);
        }
        (self.set, self.before) = (None, None);
        let removed = journal.update(|entries| {
            entries.files.remove(&self.path);
        });
        match (removed, kept) {
            (Err(error), _) | (Ok(()), Some(Err(error))) => Answer::refused(&error),
            (Ok(()), _) => Answer::value(self.found.parse().unwrap_or_default()),
        }
    }

    fn look(&mut self, journal: &mut Journal, now_ns: u64) -> Option<LeftAlone> {
        let mut set = self.set.clone()?;
        let now = self.file.read().ok()?;
        // Empty is what a file of a tree is for a moment while somebody writes it.
        if now.is_empty() {
            return None;
        }
        // This is what has come of the last write.
        if self.before.as_ref().is_some_and(|before| *before != now) {
            set.clone_from(&now);
            self.set = Some(now.clone());
            // If that fails it is unsure in the journal, and is restored all the same.
            let _ = self.confirm(journal);
        }
        if now == set {
            return None;
        }
        while self
            .again
            .front()
            .is_some_and(|at| now_ns.saturating_sub(*at) > AGAIN_NS)
        {
            self.again.pop_front();
        }
        if self.again.len() < AGAIN_MAX {
            self.again.push_back(now_ns);
            if let Ok(khz) = set.parse::<u32>() {
                let _ = self.set(journal, khz.to_string());
            }
            return None;
        }
        self.is_left_alone = true;
        self.restore(journal);
        Some(LeftAlone {
            cpu: self.cpus.first().copied()?,
            khz: now.parse().unwrap_or_default(),
        })
    }
}

impl Preference {
    fn restore(&mut self, journal: &mut Journal) -> std::io::Result<()> {
        if !self.is_set {
            return Ok(());
        }
        let theirs = self.file.read().is_ok_and(|now| now != SLOW_PREFERENCE);
        if !theirs {
            self.file.write(&self.found)?;
        }
        self.is_set = false;
        journal.update(|entries| {
            entries.files.remove(&self.path);
        })
    }
}

#[cfg(test)]
mod tests;
