//! A flight recorder: what a source's rows are being worked on, where it can be read when the process has
//! died of them.
//!
//! A record that kills its process (a stack that overflows, a library that aborts) leaves no error that
//! would name it. So each source notes the rows that it has handed out and that its instance still works on,
//! in memory that somebody else holds, too. Who finds the process dead has the next one take these rows one
//! by one, and refuse the one that kills again.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes of a note: whether it counts, partition, first and last position.
const NOTE_BYTES: usize = 32;

/// Rows of one partition of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Suspect {
    /// The partition's number.
    pub partition: u32,
    /// Position of the first row.
    pub first: u64,
    /// Position of the last.
    pub last: u64,
}

/// Notes of the instances of a process.
#[derive(Debug, Clone)]
pub struct Recorder {
    memory: Arc<File>,
}

impl Recorder {
    /// A recorder in a memory file, to which others may hold descriptors.
    pub fn new(memory: File) -> Recorder {
        Recorder {
            memory: Arc::new(memory),
        }
    }

    /// Instance `instance` works on these rows; `None` for nothing.
    pub fn note(&self, instance: usize, work: Option<Suspect>) {
        let mut note = [0; NOTE_BYTES];
        if let Some(work) = work {
            note[..4].copy_from_slice(&1u32.to_le_bytes());
            note[4..8].copy_from_slice(&work.partition.to_le_bytes());
            note[8..16].copy_from_slice(&work.first.to_le_bytes());
            note[16..24].copy_from_slice(&work.last.to_le_bytes());
        }
        // A note less is a suspect less: the query is none the worse for it.
        let _ = self.memory.write_at(&note, (instance * NOTE_BYTES) as u64);
    }

    /// What the instances worked on last, with their numbers.
    pub fn read(&self) -> Vec<(usize, Suspect)> {
        let mut found = Vec::new();
        let mut note = [0; NOTE_BYTES];
        for instance in 0.. {
            let place = (instance * NOTE_BYTES) as u64;
            if self.memory.read_exact_at(&mut note, place).is_err() {
                break;
            }
            let long = |at: usize| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&note[at..at + 8]);
                u64::from_le_bytes(bytes)
            };
            let head = long(0);
            if head & 1 == 1 {
                let suspect = Suspect {
                    partition: (head >> 32) as u32,
                    first: long(8),
                    last: long(16),
                };
                found.push((instance, suspect));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_worked_on_last_is_read() {
        let memory = rustix::fs::memfd_create("notes", rustix::fs::MemfdFlags::CLOEXEC);
        let recorder = Recorder::new(memory.unwrap().into());
        assert_eq!(recorder.read(), []);
        let suspect = |partition, first, last| Suspect {
            partition,
            first,
            last,
        };
        recorder.note(3, Some(suspect(7, 1, u64::MAX)));
        recorder.note(1, Some(suspect(u32::MAX, 5, 5)));
        let all = [(1, suspect(u32::MAX, 5, 5)), (3, suspect(7, 1, u64::MAX))];
        assert_eq!(recorder.read(), all);
        recorder.note(3, None);
        assert_eq!(recorder.read(), all[..1]);
    }
}
