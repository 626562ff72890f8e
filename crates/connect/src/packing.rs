//! Compressed files: `.gz` and `.zst`, by the ending of the name.
//!
//! A compressed file is a row of members (gzip) or frames (zstd), which are read as one. A sink ends one with
//! each checkpoint, so that the part that a checkpoint covers is complete.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::path::Path;

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Gzip,
    Zstd,
}

/// zstd's own default: about as fast as writing to a disk, and smaller than gzip.
const ZSTD_LEVEL: i32 = 3;

/// The most memory that a frame may require of the reader: 128 MiB, the most that `zstd` writes without
/// `--long`.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// Compressed bytes that are read at once: far fewer system calls than with 8 KiB, and still within a core's
/// cache.
const GZIP_BUFFER_BYTES: usize = 32 * 1024;

/// The reader's error if something that is not compressed follows the members.
const BEHIND_THE_END: &str = "something that is no gzip data stands behind its end";

/// Whether reading failed because of what follows the compressed data, which is complete.
pub(crate) fn is_behind_the_end(error: &Error) -> bool {
    error.kind() == ErrorKind::InvalidData && error.to_string() == BEHIND_THE_END
}

/// The members of a file, one after the other. `flate2`'s own reader of several members mistakes what follows
/// them for a truncated member.
struct Gzip<R> {
    /// `None` after the last one.
    member: Option<GzDecoder<BufReader<R>>>,
}

impl<R: Read> Read for Gzip<R> {
    fn read(&mut self, room: &mut [u8]) -> Result<usize> {
        while let Some(member) = &mut self.member {
            let bytes = member.read(room)?;
            if bytes > 0 || room.is_empty() {
                return Ok(bytes);
            }
            let next = member.get_mut().fill_buf()?;
            if next.is_empty() {
                self.member = None;
            } else if b"\x1f\x8b"
                .iter()
                .zip(next)
                .any(|(one, other)| one != other)
            {
                return Err(Error::new(ErrorKind::InvalidData, BEHIND_THE_END));
            } else if let Some(member) = self.member.take() {
                self.member = Some(GzDecoder::new(member.into_inner()));
            }
        }
        Ok(0)
    }
}

impl Packing {
    /// The compression by the ending of the name; `None` for a plain file.
    pub(crate) fn of(path: &Path) -> Option<Packing> {
        let ending = path.extension()?;
        if ending.eq_ignore_ascii_case("gz") {
            Some(Packing::Gzip)
        } else if ending.eq_ignore_ascii_case("zst") {
            Some(Packing::Zstd)
        } else {
            None
        }
    }

    /// The format's name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Packing::Gzip => "gzip",
            Packing::Zstd => "zstd",
        }
    }

    /// Decompresses all members of a file.
    pub(crate) fn unpack(self, packed: impl Read + Send + 'static) -> Result<Box<dyn Read + Send>> {
        Ok(match self {
            Packing::Gzip => {
                let input = BufReader::with_capacity(GZIP_BUFFER_BYTES, packed);
                Box::new(Gzip {
                    member: Some(GzDecoder::new(input)),
                })
            }
            Packing::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(packed)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(decoder)
            }
        })
    }

    /// Begins a member.
    pub(crate) fn begin(self) -> Result<Member> {
        Ok(match self {
            Packing::Gzip => Member::Gzip(GzEncoder::new(vec![], Compression::default())),
            Packing::Zstd => Member::Zstd(zstd::stream::write::Encoder::new(vec![], ZSTD_LEVEL)?),
        })
    }
}

/// A member that is being written.
pub(crate) enum Member {
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Member {
    /// Compresses bytes; returns the output so far.
    pub(crate) fn pack(&mut self, bytes: &[u8]) -> Result<Vec<u8>> {
        Ok(match self {
            Member::Gzip(encoder) => {
                encoder.write_all(bytes)?;
                std::mem::take(encoder.get_mut())
            }
            Member::Zstd(encoder) => {
                encoder.write_all(bytes)?;
                std::mem::take(encoder.get_mut())
            }
        })
    }

    /// Ends the member; returns the rest of the output.
    pub(crate) fn finish(self) -> Result<Vec<u8>> {
        match self {
            Member::Gzip(encoder) => encoder.finish(),
            Member::Zstd(encoder) => encoder.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_name_says_it() {
        for (name, packing) in [
            ("a.csv", None),
            ("gz", None),
            ("a.csv.gz", Some(Packing::Gzip)),
            ("a.json.ZST", Some(Packing::Zstd)),
        ] {
            assert_eq!(Packing::of(Path::new(name)), packing, "{name}");
        }
    }

    #[test]
    fn data_after_the_members_is_distinguished_from_a_truncated_member() {
        let mut member = Packing::Gzip.begin().unwrap();
        let mut packed = member.pack(b"a\nb\n").unwrap();
        packed.extend(member.finish().unwrap());
        let unpack = |packed: Vec<u8>| {
            let mut text = vec![];
            let mut reader = Packing::Gzip.unpack(std::io::Cursor::new(packed)).unwrap();
            (reader.read_to_end(&mut text), text)
        };
        for rest in [
            &b"x"[..],
            b"garbage that is long enough for a header",
            &[0; 512],
        ] {
            let (read, text) = unpack([&packed[..], rest].concat());
            assert!(is_behind_the_end(&read.unwrap_err()));
            assert_eq!(text, b"a\nb\n");
        }
        let (read, _) = unpack(packed[..packed.len() - 3].to_vec());
        assert_eq!(read.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        let (read, text) = unpack([&packed[..], &packed[..5]].concat());
        assert_eq!(read.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!(text, b"a\nb\n");
    }

    proptest! {
        #[test]
        fn members_are_read_as_one(
            members in proptest::collection::vec(
                proptest::collection::vec(any::<Vec<u8>>(), 0..4), 1..5),
            is_zstd in any::<bool>(),
            cut in any::<prop::sample::Index>(),
            flip in any::<prop::sample::Index>(),
        ) {
            let packing = if is_zstd { Packing::Zstd } else { Packing::Gzip };
            let mut packed = vec![];
            for pieces in &members {
                let mut member = packing.begin().unwrap();
                for piece in pieces {
                    packed.extend(member.pack(piece).unwrap());
                }
                packed.extend(member.finish().unwrap());
            }
            let unpack = |packed: Vec<u8>| {
                let mut text = vec![];
                let mut reader = packing.unpack(std::io::Cursor::new(packed))?;
                reader.read_to_end(&mut text).map(|_| text)
            };
            prop_assert_eq!(unpack(packed.clone()).unwrap(), members.concat().concat());
            if !packed.is_empty() {
                // Whatever the result, there is no panic.
                let _ = unpack(packed[..cut.index(packed.len())].to_vec());
                let at = flip.index(packed.len());
                packed[at] ^= 1 << (at % 8);
                let _ = unpack(packed);
            }
        }
    }
}
