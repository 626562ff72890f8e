//! A session's named pipe: held open for reading by its owner, opened for writing by whoever wants to know
//! whether the owner lives.
//!
//! The pipe never has bytes in it. Opened for writing without a reader, the kernel answers `ENXIO`; with one,
//! the opened end reports an error to `poll` as soon as the last reader is gone.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, mkfifoat, open};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// A session that this process owns.
pub struct Pipe {
    name: String,
    path: PathBuf,
    /// Closing it ends the session.
    _reader: OwnedFd,
}

impl Pipe {
    /// Makes a pipe in `folder`. Until it is open, another process would find it without an owner: the caller
    /// holds the database's lock for writing, as whoever sweeps does.
    pub fn make(folder: &Path) -> Result<Pipe, Errno> {
        let mut random = [0; 16];
        let length = getrandom(&mut random, GetRandomFlags::empty())?;
        if length < random.len() {
            return Err(Errno::AGAIN);
        }
        let name = format!("{:032x}", u128::from_ne_bytes(random));
        let path = folder.join(&name);
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let reader = open(&path, flags, Mode::empty())?;
        Ok(Pipe {
            name,
            path,
            _reader: reader,
        })
    }

    /// The session's name, in the database and in the folder.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // What stays is removed by the next one who opens the database.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The end of a session's pipe that reports the session's end; none if it has ended.
pub fn look(folder: &Path, name: &str) -> Result<Option<OwnedFd>, Errno> {
    if name.len() != 32 || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(None);
    }
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match open(folder.join(name), flags, Mode::empty()) {
        Ok(end) => {
            // Something else was put there.
            let is_pipe = FileType::from_raw_mode(fstat(&end)?.st_mode) == FileType::Fifo;
            Ok(is_pipe.then_some(end))
        }
        Err(Errno::NXIO | Errno::NOENT | Errno::LOOP) => Ok(None),
        Err(error) => Err(error),
    }
}
