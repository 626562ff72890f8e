//! Records: what travels after the greeting. A header of 16 bytes, and for DATA its payload.
//!
//! Little-endian: kind (1 byte), flags (1), check (2), length (4), number (8). The check is a
//! multiplicative hash of the other fields: it detects a stream that is out of step, not a forgery.

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 16;

const DATA: u8 = 1;
const HEARTBEAT: u8 = 2;
const END: u8 = 3;
const GONE: u8 = 4;
const CREDIT: u8 = 5;
const END_TAKEN: u8 = 6;

const FIRST: u8 = 1;
const LAST: u8 = 2;

/// 2^64 divided by the golden ratio, as in Knuth's multiplicative hashing.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// One record, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// Writer to reader: a frame or a part of it, `length` bytes of payload after the header.
    Data(Fragment),
    /// Writer to reader: answer with a credit, even an empty one.
    Heartbeat,
    /// Writer to reader: no frames follow the first `frames`.
    End { frames: u64 },
    /// Either way: the sender leaves before its end.
    Gone,
    /// Reader to writer: `frames` frames have been received since the link began, and `cost` more
    /// of the window is free on this connection.
    Credit { frames: u64, cost: u32 },
    /// Reader to writer: the end has been received.
    EndTaken { frames: u64 },
}

/// A frame or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    /// The number of its frame, counted from the beginning of the link.
    pub(super) number: u64,
    pub(super) length: u32,
    pub(super) first: bool,
    pub(super) last: bool,
}

impl Record {
    pub(super) fn encode(self) -> [u8; HEADER_BYTES] {
        let (kind, flags, length, number) = match self {
            Record::Data(fragment) => {
                let first = if fragment.first { FIRST } else { 0 };
                let last = if fragment.last { LAST } else { 0 };
                (DATA, first | last, fragment.length, fragment.number)
            }
            Record::Heartbeat => (HEARTBEAT, 0, 0, 0),
            Record::End { frames } => (END, 0, 0, frames),
            Record::Gone => (GONE, 0, 0, 0),
            Record::Credit { frames, cost } => (CREDIT, 0, cost, frames),
            Record::EndTaken { frames } => (END_TAKEN, 0, 0, frames),
        };
        let mut front = u64::from(kind) | u64::from(flags) << 8 | u64::from(length) << 32;
        front |= u64::from(check(front, number)) << 16;
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&front.to_le_bytes());
        bytes[8..].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    /// # Errors
    ///
    /// What is wrong with it, as the end of a sentence about the peer.
    pub(super) fn decode(bytes: [u8; HEADER_BYTES]) -> Result<Record, String> {
        let whole = u128::from_le_bytes(bytes);
        let (front, number) = (whole as u64, (whole >> 64) as u64);
        let found = (front >> 16) as u16;
        if found != check(front & !(0xFFFF << 16), number) {
            return Err("sent a record with a wrong checksum".to_owned());
        }
        let (kind, flags, length) = (front as u8, (front >> 8) as u8, (front >> 32) as u32);
        let plain = flags == 0 && length == 0;
        match kind {
            DATA if flags & !(FIRST | LAST) == 0 && length > 0 => Ok(Record::Data(Fragment {
                number,
                length,
                first: flags & FIRST != 0,
                last: flags & LAST != 0,
            })),
            HEARTBEAT if plain && number == 0 => Ok(Record::Heartbeat),
            END if plain => Ok(Record::End { frames: number }),
            GONE if plain && number == 0 => Ok(Record::Gone),
            CREDIT if flags == 0 => Ok(Record::Credit {
                frames: number,
                cost: length,
            }),
            END_TAKEN if plain => Ok(Record::EndTaken { frames: number }),
            _ => Err(format!(
                "sent a record of kind {kind} with flags {flags} and length {length}, which does \
                 not exist"
            )),
        }
    }
}

/// The check of a header. `front` is the first eight bytes of the header, with zeros for the check.
fn check(front: u64, number: u64) -> u16 {
    let mixed = (front ^ number.rotate_left(29)).wrapping_mul(MULTIPLIER);
    (mixed >> 48) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Record> {
        let data = |number, length, first, last| {
            Record::Data(Fragment {
                number,
                length,
                first,
                last,
            })
        };
        vec![
            data(0, 1, true, true),
            data(u64::MAX, u32::MAX, false, false),
            data(1 << 40, 1 << 20, true, false),
            data(7, 48, false, true),
            Record::Heartbeat,
            Record::End { frames: 12 },
            Record::Gone,
            Record::Credit {
                frames: 1 << 50,
                cost: 4 << 20,
            },
            Record::Credit { frames: 0, cost: 0 },
            Record::EndTaken { frames: 12 },
        ]
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for record in samples() {
            assert_eq!(Record::decode(record.encode()), Ok(record));
        }
    }

    #[test]
    fn a_header_has_the_documented_layout() {
        let bytes = Record::Data(Fragment {
            number: 0x0102,
            length: 0x0304,
            first: true,
            last: true,
        })
        .encode();
        assert_eq!(bytes[..2], [1, 3]);
        assert_eq!(bytes[4..8], [4, 3, 0, 0]);
        assert_eq!(bytes[8..], [2, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_flipped_bit_is_found() {
        for record in samples() {
            for bit in 0..HEADER_BYTES * 8 {
                let mut bytes = record.encode();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let read = Record::decode(bytes);
                assert!(read.is_err(), "{record:?} became {read:?} by bit {bit}");
            }
        }
    }

    #[test]
    fn no_bytes_panic() {
        let mut state = 1u64;
        let mut taken = 0;
        for _ in 0..100_000 {
            let mut bytes = [0; HEADER_BYTES];
            for byte in &mut bytes {
                state = state.wrapping_mul(MULTIPLIER).wrapping_add(1);
                *byte = (state >> 56) as u8;
            }
            taken += u32::from(Record::decode(bytes).is_ok());
        }
        assert!(taken < 10, "random bytes passed {taken} times");
        assert!(Record::decode([0; HEADER_BYTES]).is_err());
        assert!(Record::decode([255; HEADER_BYTES]).is_err());
    }
}
