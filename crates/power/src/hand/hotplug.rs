//! Cores that come and go while the manager runs.
//!
//! The files of a policy answer EBUSY while none of its cores is online, or are gone with the driver. The
//! kernel keeps the limit, which is in force again when a core comes back. So all that was slowed is
//! restored, and everything is opened again; whoever is to be slow is slowed anew.

use std::path::Path;

use slackwater_control::power::Cpu;

use super::Hand;
use super::clocks::Clocks;
use crate::cores::{self, Cores};
use crate::journal::Journal;
use crate::message::Report;
use crate::value::ValueFile;

impl Hand {
    /// Reads the cores again if some have come or gone, and tells the head.
    pub(super) fn look_at_cores(&mut self) {
        let online = cores::online(&self.sysfs);
        // Without an answer nothing has changed.
        if online.is_empty() || online == self.online {
            return;
        }
        self.online = online;
        if !self.is_dry {
            let cpus = self.cores.cores.iter().map(|described| described.core.cpu);
            for cpu in cpus.collect::<Vec<Cpu>>() {
                // What is gone can't be restored, and stays in the journal until it is back.
                self.clocks.cap(&mut self.journal, cpu, None);
            }
            restore_returned(&mut self.journal);
            self.clocks.settle();
        }
        self.cores = Cores::read(&self.sysfs);
        let may_set = (self.may_set)(&self.cores, &self.lists);
        self.clocks = Clocks::open(&self.cores, &may_set);
        self.report(&Report::Cores);
    }
}

/// Restores files that were gone when they had to be restored, and are back.
fn restore_returned(journal: &mut Journal) {
    for (path, changed) in journal.entries().files.clone() {
        let Ok(file) = ValueFile::open(Path::new(&path)) else {
            continue;
        };
        let is_ours = match file.read() {
            Ok(now) => now == changed.set || !changed.sure,
            // The files of a policy outlast its cores, and answer EBUSY until one of them is back.
            Err(_) => continue,
        };
        let is_restored = || {
            let written = file.write(&changed.found);
            written.and_then(|()| file.read_settled(&changed.found))
        };
        if !is_ours || is_restored().is_ok() {
            // Retried when cores come or go again, or at the end.
            let _ = journal.update(|entries| {
                entries.files.remove(&path);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Changed;

    #[test]
    fn what_comes_back_is_restored_and_what_is_gone_stays_in_the_journal() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(&folder.path().join("journal")).unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
        let changed = Changed {
            found: "2200000".to_string(),
            set: "1000000".to_string(),
            sure: true,
        };
        let written = journal.update(|entries| {
            for name in ["back", "gone", "silent", "theirs"] {
                entries.files.insert(path(name), changed.clone());
            }
        });
        written.unwrap();
        std::fs::write(path("back"), "1000000\n").unwrap();
        std::fs::write(path("theirs"), "1400000\n").unwrap();
        // A file that is there and can't be read, as of a policy without cores.
        std::fs::write(path("silent"), [0xFF]).unwrap();
        restore_returned(&mut journal);
        let now = |name: &str| std::fs::read_to_string(path(name)).unwrap();
        assert_eq!(
            (now("back"), now("theirs")),
            ("2200000\n".into(), "1400000\n".into())
        );
        let left = journal.entries().files.keys().cloned();
        assert_eq!(
            left.collect::<Vec<String>>(),
            [path("gone"), path("silent")]
        );
    }
}
