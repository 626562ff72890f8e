//! A file that is written piece by piece, past the page cache where the file system allows that.
//!
//! A part is written once and read after a failure, if ever. Copying it into the page cache costs more CPU
//! time than everything else that is done to store it, and displaces what other programs have cached.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// The bytes that are collected before they are written: a shorter file is written at once, through the
/// page cache.
pub(super) const BLOCK_BYTES: usize = 1 << 20;

/// Memory, offsets and lengths of direct writes are multiples of this: the largest logical block of disks.
const ALIGNMENT: usize = 4096;

/// A file that gets its name when it is complete. Dropping it before that removes it.
#[derive(Debug)]
pub(super) struct Staged {
    path: PathBuf,
    file: Option<File>,
    is_direct: bool,
    /// Collected bytes, from the first aligned one on.
    block: Vec<u8>,
    first: usize,
    filled: usize,
    /// The bytes that are in the file.
    written: u64,
}

impl Staged {
    /// A file that is created when the first bytes are written.
    pub(super) fn new(path: PathBuf) -> Staged {
        Staged {
            path,
            file: None,
            is_direct: false,
            block: Vec::new(),
            first: 0,
            filled: 0,
            written: 0,
        }
    }

    /// Where the file is until it gets its name.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn create(&mut self, is_direct: bool) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let direct = OFlags::DIRECT.bits().cast_signed();
        let open = |flags: i32| {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true);
            options.custom_flags(flags).open(&self.path)
        };
        // Not every file system has direct writes.
        let (file, is_direct) = match is_direct.then(|| open(direct)) {
            Some(Ok(file)) => (file, true),
            Some(Err(error)) if error.kind() != ErrorKind::InvalidInput => return Err(error),
            _ => (open(0)?, false),
        };
        (self.file, self.is_direct) = (Some(file), is_direct);
        Ok(())
    }

    /// Writes what was collected. The last block of a file is padded, and the file shortened afterwards.
    fn write_block(&mut self, is_last: bool) -> io::Result<()> {
        if self.file.is_none() {
            self.create(!is_last)?;
        }
        let mut bytes = self.filled;
        if self.is_direct {
            bytes = bytes.next_multiple_of(ALIGNMENT);
            self.block[self.first + self.filled..self.first + bytes].fill(0);
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let block = &self.block[self.first..self.first + bytes];
        match file.write_all(block) {
            // Opened with the flag, and refused all the same: nothing was written yet.
            Err(error) if error.kind() == ErrorKind::InvalidInput && self.written == 0 => {
                self.create(false)?;
                return self.write_block(is_last);
            }
            written => written?,
        }
        self.written += self.filled as u64;
        self.filled = 0;
        Ok(())
    }

    /// Completes the file, so that it survives a failure of the host.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        if self.filled > 0 || self.file.is_none() {
            self.write_block(true)?;
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        if self.is_direct {
            file.set_len(self.written)?;
        }
        file.sync_all()
    }
}

impl Write for Staged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.block.is_empty() {
            self.block = vec![0; BLOCK_BYTES + ALIGNMENT];
            let first = self.block.as_ptr().align_offset(ALIGNMENT);
            // Without an aligned place the first write fails, and the file is written without the flag.
            self.first = first.min(ALIGNMENT);
        }
        let taken = bytes.len().min(BLOCK_BYTES - self.filled);
        let at = self.first + self.filled;
        self.block[at..at + taken].copy_from_slice(&bytes[..taken]);
        self.filled += taken;
        if self.filled == BLOCK_BYTES {
            self.write_block(false)?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Staged {
    /// If removing fails, the next sweep removes the file.
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_exactly_what_was_written_whatever_its_length() {
        let folder = tempfile::tempdir().unwrap();
        let around = [
            0,
            ALIGNMENT,
            BLOCK_BYTES,
            2 * BLOCK_BYTES,
            3 * BLOCK_BYTES + ALIGNMENT,
        ];
        for length in around
            .iter()
            .flat_map(|&near| [near.saturating_sub(1), near, near + 1])
        {
            let expected = (0..length)
                .map(|at| (at * 7 + at / 4096) as u8)
                .collect::<Vec<u8>>();
            let mut staged = Staged::new(folder.path().join("new/part#1"));
            for piece in expected.chunks(100_003) {
                staged.write_all(piece).unwrap();
            }
            staged.finish().unwrap();
            assert_eq!(
                std::fs::read(staged.path()).unwrap(),
                expected,
                "{length} bytes"
            );
            let path = staged.path().to_path_buf();
            drop(staged);
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_file_system_without_direct_writes_gets_ordinary_ones() {
        let folder = tempfile::tempdir().unwrap();
        let mut staged = Staged::new(folder.path().join("part#1"));
        staged.create(false).unwrap();
        assert!(!staged.is_direct);
        staged.write_all(&vec![7; BLOCK_BYTES + 5]).unwrap();
        staged.finish().unwrap();
        assert_eq!(
            std::fs::read(staged.path()).unwrap(),
            vec![7; BLOCK_BYTES + 5]
        );
    }
}
