//! Short frames as records, one after the other in blocks of memory.
//!
//! Frames are taken and let go in order, so a block is free when its last frame is gone. A link with little
//! traffic uses one block again and again, which stays in the cache.

use std::collections::VecDeque;
use std::ops::Deref;

use crate::tcp::record::HEADER_BYTES;

/// Frames up to this size are packed: copying one takes less time than keeping its pieces until the reader
/// has it. Below the longest record of the smallest window (896 bytes), so a frame is one record.
pub(super) const PACKED_BYTES_MAX: usize = 512;

/// Bytes of a block: some 300 records of 200 bytes, and one write.
const BLOCK_BYTES: usize = 64 << 10;

/// Blocks that are kept for later, at most. A writer has at most a window in blocks at once.
const SPARE_MAX: usize = 4;

/// Where the record of a frame begins.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The block's number, counted from the first one.
    pub(super) block: u64,
    /// The index of the record's first byte.
    pub(super) start: usize,
}

#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    /// The frames in it that are not let go.
    frames: usize,
}

/// The blocks.
#[derive(Default)]
pub(super) struct Packed {
    blocks: VecDeque<Block>,
    /// The number of the first block.
    first: u64,
    spare: Vec<Vec<u8>>,
}

impl Packed {
    /// Copies a frame of `length` bytes behind its header.
    pub(super) fn add<P: Deref<Target = [u8]>>(
        &mut self,
        header: &[u8; HEADER_BYTES],
        pieces: &[P],
        length: usize,
    ) -> Place {
        let needed = HEADER_BYTES + length;
        let has_room = |block: &Block| block.bytes.len() + needed <= BLOCK_BYTES;
        if !self.blocks.back().is_some_and(has_room) {
            let bytes = self.spare.pop();
            self.blocks.push_back(Block {
                bytes: bytes.unwrap_or_else(|| Vec::with_capacity(BLOCK_BYTES)),
                frames: 0,
            });
        }
        let number = self.first + self.blocks.len() as u64 - 1;
        let block = self.blocks.back_mut().expect("one was added");
        let start = block.bytes.len();
        block.bytes.extend_from_slice(header);
        for piece in pieces {
            block.bytes.extend_from_slice(piece);
        }
        block.frames += 1;
        Place {
            block: number,
            start,
        }
    }

    /// The bytes of a block that has frames.
    pub(super) fn block(&self, number: u64) -> &[u8] {
        &self.blocks[(number - self.first) as usize].bytes
    }

    /// Lets the oldest frame go.
    pub(super) fn let_go(&mut self, place: Place) {
        let block = &mut self.blocks[(place.block - self.first) as usize];
        block.frames -= 1;
        if block.frames > 0 {
            return;
        }
        block.bytes.clear();
        // The last block takes the next frames, from its beginning.
        while self.blocks.len() > 1 && self.blocks[0].frames == 0 {
            let block = self.blocks.pop_front().unwrap_or_default();
            self.first += 1;
            if self.spare.len() < SPARE_MAX {
                self.spare.push(block.bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_used_again_and_frames_stay_until_they_are_let_go() {
        let mut packed = Packed::default();
        let mut places = VecDeque::new();
        let mut taken = 0u32;
        for round in 0..2_000u32 {
            // More frames at a time than a block holds, now and then none.
            for _ in 0..(round % 5) * 60 {
                let payload = taken.to_le_bytes().repeat(100);
                let place =
                    packed.add(&[7; HEADER_BYTES], &[&payload[..200], &payload[200..]], 400);
                places.push_back((place, taken));
                taken += 1;
            }
            let keep = (round as usize % 3) * 100;
            while places.len() > keep {
                let (place, number) = places.pop_front().unwrap();
                let record = &packed.block(place.block)[place.start..][..HEADER_BYTES + 400];
                assert_eq!(record[..HEADER_BYTES], [7; HEADER_BYTES]);
                assert_eq!(record[HEADER_BYTES..], number.to_le_bytes().repeat(100));
                packed.let_go(place);
            }
            assert!(packed.blocks.len() <= 6 && packed.spare.len() <= SPARE_MAX);
        }
        assert!(packed.first > 100, "{} blocks were used", packed.first);
    }
}
