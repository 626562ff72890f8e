//! Checks that must hold for any bytes: the body of the fuzz target `message`, placed here so that an
//! ordinary test runs the corpus too.

use arrow_buffer::{Buffer, MutableBuffer};

use super::{ALIGNMENT_BYTES, Decoder, Encoder, kind};
use crate::chunk::{Chunk, Message, Origin, Partitions, Positions};

/// In the input of [`fuzz_decode`], this bit of a frame's length says that the frame starts one byte
/// after an aligned place.
pub const MISALIGNED: u32 = 1 << 31;

/// ... and this bit that the length in the frame's own header is to be corrected, so that a mutation that
/// adds or removes bytes passes the first check.
pub const CORRECTED: u32 = 1 << 30;

/// Reads `bytes` as frames, each after its length in 32 bits, with one decoder. Checks that nothing
/// panics, and that decoded messages are the same after they are encoded and decoded again.
pub fn fuzz_decode(mut bytes: &[u8]) {
    let mut decoder = Decoder::new();
    let mut again = (Encoder::new(), Decoder::new());
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let word = u32::from_le_bytes(*length);
        let length = ((word & !(MISALIGNED | CORRECTED)) as usize).min(rest.len());
        let (frame, rest) = rest.split_at(length);
        bytes = rest;
        let mut frame = frame.to_vec();
        if word & CORRECTED != 0 {
            fix_length(&mut frame);
        }
        let frame = place(&[&frame], usize::from(word & MISALIGNED != 0));
        let Ok(Some(message)) = decoder.decode(frame) else {
            continue;
        };
        let mut frames = Vec::new();
        again
            .0
            .encode(&message, &mut frames)
            .expect("what was decoded can be sent");
        let mut copy = None;
        for frame in frames {
            let pieces: Vec<&[u8]> = frame.iter().map(Buffer::as_slice).collect();
            copy = again
                .1
                .decode(place(&pieces, 0))
                .expect("what was sent can be decoded");
        }
        let copy = copy.expect("the last frame is the message's");
        assert!(same(&message, &copy), "{message:?} became {copy:?}");
        assert_eq!(again.1.copies(), 0);
    }
}

fn fix_length(frame: &mut [u8]) {
    let length = frame.len() as u32;
    let at = match frame.get(1) {
        Some(&kind::SCHEMA) => 8,
        Some(&kind::CHUNK) => 16,
        _ => return,
    };
    if let Some(bytes) = frame.get_mut(at..at + 4) {
        bytes.copy_from_slice(&length.to_le_bytes());
    }
}

/// The pieces as one buffer, `shift` bytes after an aligned place.
pub fn place(pieces: &[&[u8]], shift: usize) -> Buffer {
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    // Room to find an aligned place, whatever the allocator's alignment is.
    let mut bytes = MutableBuffer::new(length + 2 * ALIGNMENT_BYTES);
    let front = bytes.as_ptr().align_offset(ALIGNMENT_BYTES) + shift;
    bytes.resize(front, 0);
    pieces
        .iter()
        .for_each(|piece| bytes.extend_from_slice(piece));
    Buffer::from(bytes).slice_with_length(front, length)
}

/// Whether two messages are the same.
pub fn same(one: &Message, other: &Message) -> bool {
    match (one, other) {
        (Message::Chunk(one), Message::Chunk(other)) => same_chunk(one, other),
        (Message::Chunk(_), _) | (_, Message::Chunk(_)) => false,
        (one, other) => format!("{one:?}") == format!("{other:?}"),
    }
}

fn same_chunk(one: &Chunk, other: &Chunk) -> bool {
    let same_origin = match (&one.origin, &other.origin) {
        (Some(one), Some(other)) => same_origin(one, other),
        (one, other) => one.is_none() && other.is_none(),
    };
    one.ingest_ns == other.ingest_ns
        && one.batch == other.batch
        && one.kinds == other.kinds
        && same_origin
}

fn same_origin(one: &Origin, other: &Origin) -> bool {
    let same_positions = match (&one.positions, &other.positions) {
        (Positions::Run { first: one }, Positions::Run { first: other }) => one == other,
        (Positions::List(one), Positions::List(other)) => one == other,
        _ => false,
    };
    let same_partitions = match (&one.partitions, &other.partitions) {
        (Partitions::One(one), Partitions::One(other)) => one == other,
        (Partitions::Each(one), Partitions::Each(other)) => one == other,
        _ => false,
    };
    same_partitions && one.watermarks == other.watermarks && same_positions
}
