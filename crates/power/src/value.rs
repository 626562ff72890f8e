//! Files that hold one value, such as those of sysfs: read and written as a whole, through a descriptor.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The most bytes of a value.
const BYTES_MAX: usize = 64;
/// `SYSFS_MAGIC` of include/uapi/linux/magic.h.
const SYSFS: u64 = 0x6265_6572;

/// How long the kernel may take for a value that was written: limits of frequencies are in force a moment
/// later, and until then the file holds the old one (`schedule_work` in drivers/cpufreq/cpufreq.c).
pub const SETTLE: Duration = Duration::from_millis(20);
const SETTLE_STEP: Duration = Duration::from_micros(500);

/// A file with one value, open for reading and writing.
#[derive(Debug)]
pub struct ValueFile {
    file: File,
    /// Elsewhere than in sysfs, what a longer value has left has to be cut off.
    is_sysfs: bool,
}

impl ValueFile {
    /// Opens a file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self::of(file))
    }

    /// A file that is open.
    pub fn of(file: File) -> Self {
        let kind = rustix::fs::fstatfs(&file).map(|stat| stat.f_type as u64);
        Self {
            file,
            is_sysfs: kind == Ok(SYSFS),
        }
    }

    /// The value, without the newline.
    pub fn read(&self) -> io::Result<String> {
        let mut bytes = [0; BYTES_MAX];
        let read = self.file.read_at(&mut bytes, 0)?;
        let text = std::str::from_utf8(&bytes[..read]).map_err(io::Error::other)?;
        Ok(text.trim().to_string())
    }

    /// The value, once it is the one that was written, or after a while whatever it is.
    pub fn read_settled(&self, written: &str) -> io::Result<String> {
        self.read_until(written, Instant::now() + SETTLE)
    }

    /// The same, by a moment.
    pub fn read_until(&self, written: &str, until: Instant) -> io::Result<String> {
        loop {
            let now = self.read()?;
            if now == written || Instant::now() >= until {
                return Ok(now);
            }
            std::thread::sleep(SETTLE_STEP);
        }
    }

    /// Writes a value, in one call: the kernel takes each call for a whole value.
    pub fn write(&self, value: &str) -> io::Result<()> {
        let line = format!("{value}\n");
        let written = self.file.write_at(line.as_bytes(), 0)?;
        if written != line.len() {
            return Err(io::Error::other("only a part was written"));
        }
        if !self.is_sysfs && self.file.metadata()?.len() > line.len() as u64 {
            self.file.set_len(line.len() as u64)?;
        }
        Ok(())
    }
}

impl AsFd for ValueFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_value_leaves_nothing_of_a_longer_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scaling_max_freq");
        std::fs::write(&path, "2200000\n").unwrap();
        let file = ValueFile::open(&path).unwrap();
        assert_eq!(file.read().unwrap(), "2200000");
        file.write("800000").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "800000\n");
        assert_eq!(file.read().unwrap(), "800000");
        assert!(ValueFile::open(&folder.path().join("missing")).is_err());
    }
}
