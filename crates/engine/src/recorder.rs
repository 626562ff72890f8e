//! A flight recorder: which rows of a source are being processed, readable after the process has died.
//!
//! A record that kills its process (a stack overflow, a library that aborts) leaves no error that names
//! it. So each source records the rows that it has handed out and that its instance still processes, in
//! memory that another process also holds. When a process has died, the next one processes these rows one
//! by one, and rejects the one that kills it again.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The bytes of a note: whether it is valid, partition, first and last position.
const NOTE_BYTES: usize = 32;

/// Rows of one partition that may have killed a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Suspect {
    /// The partition's number.
    pub partition: u32,
    /// The position of the first row.
    pub first: u64,
    /// The position of the last row.
    pub last: u64,
}

/// The notes of a process's instances.
#[derive(Debug, Clone)]
pub struct Recorder {
    memory: Arc<File>,
}

impl Recorder {
    /// A recorder in a memory file, to which other processes may hold descriptors.
    pub fn new(memory: File) -> Recorder {
        Recorder {
            memory: Arc::new(memory),
        }
    }

    /// Notes that instance `instance` processes these rows; `None` for no rows.
    pub fn note(&self, instance: usize, work: Option<Suspect>) {
        let mut note = [0; NOTE_BYTES];
        if let Some(work) = work {
            note[..4].copy_from_slice(&1u32.to_le_bytes());
            note[4..8].copy_from_slice(&work.partition.to_le_bytes());
            note[8..16].copy_from_slice(&work.first.to_le_bytes());
            note[16..24].copy_from_slice(&work.last.to_le_bytes());
        }
        // Without a note there is one suspect fewer; the query itself is unaffected.
        let _ = self.memory.write_at(&note, (instance * NOTE_BYTES) as u64);
    }

    /// The rows that instances last processed, with the instances' numbers.
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
    fn the_rows_processed_last_are_read() {
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
