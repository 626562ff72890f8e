//! The image, and how it is divided: into parts, and each part into blocks.

use std::ops::Range;

/// Bytes of a cache line. Block sizes are multiples of it, and each line of the image begins with its own
/// offset, by which the receiver of a block verifies that it is the right one.
pub const LINE: usize = 64;

/// The pixels of the image.
pub struct Image {
    bytes: Vec<u8>,
}

impl Image {
    /// An image of this many bytes, which must be a multiple of a line.
    pub fn new(bytes: usize) -> Image {
        let mut bytes = vec![0x5a; bytes];
        for (number, line) in bytes.chunks_exact_mut(LINE).enumerate() {
            let offset = (number * LINE) as u64;
            line[..8].copy_from_slice(&offset.to_le_bytes());
        }
        Image { bytes }
    }

    /// The bytes in a range.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }
}

/// Reads a byte of each line, and the offsets in the first and the last one; returns whether the pixels
/// are those from `offset` on.
pub fn check(pixels: &[u8], offset: usize) -> bool {
    let mut sum = 0u8;
    for line in pixels.chunks(LINE) {
        sum = sum.wrapping_add(line[LINE / 2 % line.len()]);
    }
    std::hint::black_box(sum);
    let stands_at = |start: usize| {
        let line = pixels.get(start..start + 8);
        line.is_some_and(|line| line == ((offset + start) as u64).to_le_bytes())
    };
    pixels.len().is_multiple_of(LINE) && stands_at(0) && stands_at(pixels.len() - LINE)
}

/// How an image is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    image_bytes: usize,
    part_bytes: usize,
    block_bytes: usize,
    blocks_per_part: usize,
}

impl Cut {
    /// Divides the image into `partitions` equal parts, and each part into blocks of at most
    /// `block_bytes`.
    pub fn new(image_bytes: usize, partitions: usize, block_bytes: usize) -> Result<Cut, String> {
        let fits = partitions > 0 && image_bytes.is_multiple_of(partitions * LINE);
        if !fits || image_bytes == 0 || block_bytes == 0 || !block_bytes.is_multiple_of(LINE) {
            return Err(format!(
                "an image of {image_bytes} bytes can't be cut into {partitions} parts and blocks of \
                 {block_bytes} bytes"
            ));
        }
        let part_bytes = image_bytes / partitions;
        let block_bytes = block_bytes.min(part_bytes);
        Ok(Cut {
            image_bytes,
            part_bytes,
            block_bytes,
            blocks_per_part: part_bytes.div_ceil(block_bytes),
        })
    }

    /// Number of blocks of the image.
    pub fn blocks(&self) -> usize {
        self.image_bytes / self.part_bytes * self.blocks_per_part
    }

    /// Number of parts of the image.
    pub fn parts(&self) -> usize {
        self.image_bytes / self.part_bytes
    }

    /// The blocks of a part.
    pub fn blocks_of_part(&self, part: usize) -> Range<usize> {
        part * self.blocks_per_part..(part + 1) * self.blocks_per_part
    }

    /// The blocks that contain some of these bytes.
    pub fn blocks_of_region(&self, region: Range<usize>) -> Range<usize> {
        let last = region.end.max(region.start + 1) - 1;
        self.block_at(region.start)..self.block_at(last) + 1
    }

    fn block_at(&self, byte: usize) -> usize {
        let byte = byte.min(self.image_bytes - 1);
        let (part, within) = (byte / self.part_bytes, byte % self.part_bytes);
        part * self.blocks_per_part + within / self.block_bytes
    }

    /// The bytes of a block.
    pub fn bytes_of(&self, block: usize) -> Range<usize> {
        let (part, within) = (block / self.blocks_per_part, block % self.blocks_per_part);
        let (start, end) = (part * self.part_bytes, (part + 1) * self.part_bytes);
        let from = start + within * self.block_bytes;
        from..(from + self.block_bytes).min(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_the_image_without_gaps_for_every_size() {
        for partitions in [1, 2, 8] {
            for block_bytes in [64, 192, 1024, 4096, 1 << 20] {
                let cut = Cut::new(8192, partitions, block_bytes).unwrap();
                let mut end = 0;
                for block in 0..cut.blocks() {
                    let bytes = cut.bytes_of(block);
                    assert_eq!(bytes.start, end);
                    assert!(bytes.len() <= block_bytes && bytes.len().is_multiple_of(LINE));
                    assert_eq!(cut.blocks_of_region(bytes.clone()), block..block + 1);
                    end = bytes.end;
                }
                assert_eq!(end, 8192);
                assert_eq!(cut.parts(), partitions);
                let last = cut.blocks_of_part(partitions - 1);
                assert_eq!(last.end, cut.blocks());
                assert_eq!(cut.bytes_of(last.start).start, 8192 - 8192 / partitions);
            }
        }
    }

    #[test]
    fn a_region_contains_every_block_that_it_touches() {
        let cut = Cut::new(1 << 20, 1, 4096).unwrap();
        assert_eq!(cut.blocks_of_region(4095..4097), 0..2);
        assert_eq!(cut.blocks_of_region(4096..8192), 1..2);
        assert_eq!(cut.blocks_of_region(100..100), 0..1);
        assert_eq!(cut.blocks_of_region(0..1 << 20), 0..256);
        // After the end there is only the last block.
        assert_eq!(cut.blocks_of_region((1 << 20)..(2 << 20)), 255..256);
    }

    #[test]
    fn sizes_that_do_not_divide_the_image_are_rejected() {
        for (image, parts, block) in [(0, 1, 64), (4096, 0, 64), (4096, 3, 64), (4096, 1, 100)] {
            assert!(Cut::new(image, parts, block).is_err());
        }
    }

    #[test]
    fn a_block_from_another_offset_is_detected() {
        let image = Image::new(4096);
        assert!(check(image.bytes(1024..2048), 1024));
        assert!(!check(image.bytes(1024..2048), 2048));
        assert!(!check(image.bytes(1024..2000), 1024));
        assert!(!check(&[], 0));
        let mut torn = image.bytes(0..256).to_vec();
        torn[192..200].copy_from_slice(&7u64.to_le_bytes());
        assert!(!check(&torn, 0));
    }
}
