//! A file that is written through a buffer, compressed or not, and folders that are synced.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use slackwater_engine::error::{Error, Result};

use crate::packing::{Member, Packing};

/// Bytes collected before they are written: large enough that the system call is cheap compared with encoding
/// them.
const BUFFER_BYTES: usize = 256 * 1024;

/// An error of the file system, with a hint.
pub(super) fn failed(place: &Path, what: &str, error: &std::io::Error) -> Error {
    let hint = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room on the disk",
        ErrorKind::PermissionDenied => "check the permissions of the file and its folder",
        ErrorKind::ReadOnlyFilesystem => "name a path on a disk that can be written",
        ErrorKind::FileTooLarge => "raise the limit of file sizes (ulimit -f)",
        ErrorKind::NotFound => "has somebody removed it, or its folder?",
        _ => "is the disk full?",
    };
    Error::new(
        place.display().to_string(),
        format!("can't {what}: {error}"),
    )
    .hint(hint)
}

/// The folder that a path is in.
pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| failed(folder, "sync the folder", &error))
}

/// Removes a file if it exists.
pub(super) fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(path, "remove", &error)),
        _ => Ok(()),
    }
}

/// A file that is written through a buffer.
pub(super) struct Output {
    path: PathBuf,
    file: File,
    /// Bytes in the file.
    length: u64,
    packing: Option<Packing>,
    /// The compressed member that was begun.
    member: Option<Member>,
    /// The bytes that are written next.
    pub(super) buffer: Vec<u8>,
}

impl Output {
    /// Continues after the `length` bytes of `file`. Errors name `path`.
    pub(super) fn new(file: File, length: u64, path: &Path, packing: Option<Packing>) -> Output {
        Output {
            path: path.to_path_buf(),
            file,
            length,
            packing,
            member: None,
            buffer: Vec::with_capacity(BUFFER_BYTES * 2),
        }
    }

    /// Writes the buffer if it is full.
    pub(super) fn write_full(&mut self) -> Result<()> {
        if self.buffer.len() >= BUFFER_BYTES {
            self.write_out()
        } else {
            Ok(())
        }
    }

    /// Writes what is in the buffer.
    pub(super) fn write_out(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let mut bytes = std::mem::take(&mut self.buffer);
        let written = self.pack(&bytes).and_then(|packed| match packed {
            Some(packed) => self.put(&packed),
            None => self.put(&bytes),
        });
        bytes.clear();
        self.buffer = bytes;
        written.map_err(|error| failed(&self.path, "write", &error))
    }

    /// Compresses the bytes if the file is compressed.
    fn pack(&mut self, bytes: &[u8]) -> std::io::Result<Option<Vec<u8>>> {
        let Some(packing) = self.packing else {
            return Ok(None);
        };
        let member = match self.member.take() {
            Some(member) => member,
            None => packing.begin()?,
        };
        self.member.insert(member).pack(bytes).map(Some)
    }

    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Writes the buffer, and ends the member so that the file is complete. A compressed file without rows
    /// has a member, too.
    pub(super) fn end(&mut self) -> Result<()> {
        self.write_out()?;
        let failed = |error| failed(&self.path, "write", &error);
        if self.length == 0 && self.member.is_none() {
            let member = self.packing.map(Packing::begin).transpose();
            self.member = member.map_err(failed)?;
        }
        let Some(member) = self.member.take() else {
            return Ok(());
        };
        let rest = member.finish().map_err(failed)?;
        self.put(&rest)
            .map_err(|error| self::failed(&self.path, "write", &error))
    }

    /// Bytes in the file.
    pub(super) fn length(&self) -> u64 {
        self.length
    }
}

/// Makes the written bytes durable.
pub(super) fn sync_file(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|error| failed(path, "sync", &error))
}
