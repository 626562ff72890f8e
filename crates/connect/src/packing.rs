//! Packed files: `.gz` and `.zst`, by the ending of the name.
//!
//! A packed file is a row of members (gzip) or frames (zstd), which are read as one. A sink ends one
//! with each checkpoint, so that what a checkpoint has is whole.

use std::io::{Read, Result, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

/// How a file is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Gzip,
    Zstd,
}

/// zstd's own default: about as fast as writing to a disk, and smaller than gzip.
const ZSTD_LEVEL: i32 = 3;

/// What a frame may ask of the reader's memory: 128 MiB, the most that `zstd` writes without `--long`.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

impl Packing {
    /// What the name says; `None` for a plain file.
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

    /// Unpacks all members of a file.
    pub(crate) fn unpack(self, packed: impl Read + Send + 'static) -> Result<Box<dyn Read + Send>> {
        Ok(match self {
            Packing::Gzip => Box::new(MultiGzDecoder::new(packed)),
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
    /// Packs bytes; returns what there is to write so far.
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

    /// Ends the member; returns the rest of it.
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
                // Whatever comes of these, it is no panic.
                let _ = unpack(packed[..cut.index(packed.len())].to_vec());
                let at = flip.index(packed.len());
                packed[at] ^= 1 << (at % 8);
                let _ = unpack(packed);
            }
        }
    }
}
