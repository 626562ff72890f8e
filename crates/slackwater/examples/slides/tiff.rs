//! The directories of a TIFF: their tags, of the classic format and of BigTIFF, in either order of bytes.
//!
//! The crate `tiff` reads more, but it switches on a feature of `half` that Arrow does without, and
//! everything that uses Arrow would be built a second time for it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The tags that are of interest.
const TAGS: [(&str, u16); 13] = [
    ("ImageWidth", 256),
    ("ImageLength", 257),
    ("BitsPerSample", 258),
    ("Compression", 259),
    ("PhotometricInterpretation", 262),
    ("SamplesPerPixel", 277),
    ("PlanarConfiguration", 284),
    ("TileWidth", 322),
    ("TileLength", 323),
    ("TileOffsets", 324),
    ("TileByteCounts", 325),
    ("SubIFDs", 330),
    ("JPEGTables", 347),
];

/// The most tags of a directory.
const TAGS_MAX: u64 = 4096;

/// The most bytes of a tag's values: a number of 8 bytes for each of 16 million tiles.
const VALUES_BYTES_MAX: u64 = 128 << 20;

/// A file.
pub struct Tiff<'f> {
    file: &'f File,
    bytes: u64,
    is_big_endian: bool,
    /// Whether offsets have 64 bits: BigTIFF.
    is_big: bool,
    /// The offset of the next directory; 0 after the last one.
    next: u64,
}

/// A directory.
pub struct Directory {
    tags: Vec<(u16, Values)>,
}

/// The values of a tag.
enum Values {
    Numbers(Vec<u64>),
    Bytes(Vec<u8>),
    /// Of a type that no tag of interest has.
    Other(u16),
}

impl<'f> Tiff<'f> {
    /// Reads the beginning of a file.
    ///
    /// # Errors
    ///
    /// When it is not a TIFF.
    pub fn open(file: &'f File) -> Result<Tiff<'f>, String> {
        let bytes = file.metadata().map_err(|error| error.to_string())?.len();
        let mut tiff = Tiff {
            file,
            bytes,
            is_big_endian: false,
            is_big: false,
            next: 0,
        };
        let mut head = [0; 4];
        let read = file.read_exact_at(&mut head, 0);
        read.map_err(|_| "not a valid TIFF: it is empty".to_string())?;
        (tiff.is_big_endian, tiff.is_big) = match &head {
            b"II*\0" => (false, false),
            b"MM\0*" => (true, false),
            b"II+\0" => (false, true),
            b"MM\0+" => (true, true),
            _ => return Err("not a valid TIFF: it does not begin with II or MM".to_string()),
        };
        tiff.next = match tiff.is_big {
            true => tiff.number(8, 8)?,
            false => tiff.number(4, 4)?,
        };
        Ok(tiff)
    }

    /// The next directory; `None` after the last one.
    ///
    /// # Errors
    ///
    /// When it is not valid.
    pub fn next(&mut self) -> Result<Option<Directory>, String> {
        if self.next == 0 {
            return Ok(None);
        }
        let (directory, next) = self.directory(self.next)?;
        self.next = next;
        Ok(Some(directory))
    }

    /// The directory at a position, and the position of the next one.
    ///
    /// # Errors
    ///
    /// When it is not valid.
    pub fn directory(&self, at: u64) -> Result<(Directory, u64), String> {
        let (of_count, of_entry, of_offset) = match self.is_big {
            true => (8, 20, 8),
            false => (2, 12, 4),
        };
        let count = self.number(at, of_count)?;
        if count > TAGS_MAX {
            return Err(format!(
                "not a valid TIFF: a directory at byte {at} with {count} tags"
            ));
        }
        let first = at + of_count;
        let mut tags = Vec::new();
        for entry in (0..count).map(|number| first + number * of_entry) {
            let tag = self.number(entry, 2)? as u16;
            if TAGS.iter().any(|known| known.1 == tag) {
                tags.push((tag, self.values(entry, of_offset)?));
            }
        }
        let next = self.number(first + count * of_entry, of_offset)?;
        Ok((Directory { tags }, next))
    }

    /// The values of the tag whose entry is at a position.
    fn values(&self, entry: u64, of_offset: u64) -> Result<Values, String> {
        let kind = self.number(entry + 2, 2)? as u16;
        let size = match kind {
            1 | 7 => 1,
            3 => 2,
            4 | 13 => 4,
            16 | 18 => 8,
            other => return Ok(Values::Other(other)),
        };
        let count = self.number(entry + 4, of_offset)?;
        let bytes = count
            .checked_mul(size)
            .filter(|bytes| *bytes <= VALUES_BYTES_MAX);
        let bytes = bytes
            .ok_or_else(|| format!("not a valid TIFF: {count} values of a tag at byte {entry}"))?;
        let inside = entry + 4 + of_offset;
        let at = match bytes <= of_offset {
            true => inside,
            false => self.number(inside, of_offset)?,
        };
        let values = self.read(at, bytes)?;
        Ok(match size {
            1 => Values::Bytes(values),
            size => Values::Numbers(
                values
                    .chunks(size as usize)
                    .map(|value| self.of_bytes(value))
                    .collect(),
            ),
        })
    }

    fn of_bytes(&self, bytes: &[u8]) -> u64 {
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        match self.is_big_endian {
            true => bytes.iter().fold(0, add),
            false => bytes.iter().rev().fold(0, add),
        }
    }

    /// The number of `bytes` bytes at a position.
    fn number(&self, at: u64, bytes: u64) -> Result<u64, String> {
        Ok(self.of_bytes(&self.read(at, bytes)?))
    }

    fn read(&self, at: u64, bytes: u64) -> Result<Vec<u8>, String> {
        // Before memory is reserved for what a damaged file says that it has.
        if at.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            let size = self.bytes;
            return Err(format!(
                "not a valid TIFF: it has {size} bytes and refers to byte {at} (was it cut off?)"
            ));
        }
        let mut read = vec![0; bytes as usize];
        let done = self.file.read_exact_at(&mut read, at);
        done.map_err(|error: io::Error| format!("can't read at byte {at}: {error}"))?;
        Ok(read)
    }
}

impl Directory {
    fn values(&self, name: &str) -> Option<&Values> {
        let tag = TAGS.iter().find(|known| known.0 == name)?.1;
        self.tags
            .iter()
            .find(|found| found.0 == tag)
            .map(|found| &found.1)
    }

    /// The numbers of a tag, at least one; `missing` if there is no such tag.
    ///
    /// # Errors
    ///
    /// When it is missing, or has other values.
    pub fn numbers(&self, name: &str, missing: Option<u64>) -> Result<Vec<u64>, String> {
        match (self.values(name), missing) {
            (Some(Values::Numbers(numbers)), _) if !numbers.is_empty() => Ok(numbers.clone()),
            (Some(Values::Other(kind)), _) => Err(format!("{name} has values of type {kind}")),
            (Some(_), _) => Err(format!("{name} has no numbers")),
            (None, Some(missing)) => Ok(vec![missing]),
            (None, None) => Err(format!("{name} is missing")),
        }
    }

    /// The bytes of a tag; none if there is no such tag.
    ///
    /// # Errors
    ///
    /// When it has other values.
    pub fn bytes(&self, name: &str) -> Result<Vec<u8>, String> {
        match self.values(name) {
            Some(Values::Bytes(bytes)) => Ok(bytes.clone()),
            Some(_) => Err(format!("{name} has no bytes")),
            None => Ok(Vec::new()),
        }
    }
}
