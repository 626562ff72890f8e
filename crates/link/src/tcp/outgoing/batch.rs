//! The parts of one write.

use std::ops::Deref;

use super::packed::Place;
use super::{Content, Held};
use crate::tcp::record::HEADER_BYTES;

/// The most slices gathered into one write. The kernel takes 1,024; 64 slices of 1 KiB and more are a
/// write of at least 64 KiB, whose copy costs far more than the call, and 64 × 16 bytes fit on the stack.
pub(super) const SLICES_MAX: usize = 64;

/// The most bytes copied next to their headers for one write: 64 KiB are some 800 records of 64 bytes.
const STAGE_BYTES_MAX: usize = 64 << 10;

/// Pieces up to this size are copied: below it a slice of their own costs more than the copy.
const COPIED_PIECE_BYTES_MAX: usize = 1 << 10;

/// A part of one write.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Stage {
        start: usize,
        end: usize,
    },
    Piece {
        frame: usize,
        piece: usize,
        start: usize,
        end: usize,
    },
    Block {
        block: u64,
        start: usize,
        end: usize,
    },
}

/// The parts of one write.
pub(super) struct Batch {
    pub(super) parts: [Part; SLICES_MAX],
    pub(super) count: usize,
    pub(super) bytes: usize,
}

impl Batch {
    /// A write of nothing.
    pub(super) fn new() -> Batch {
        Batch {
            parts: [Part::Stage { start: 0, end: 0 }; SLICES_MAX],
            count: 0,
            bytes: 0,
        }
    }

    /// Copies bytes to the stage. Returns false, and does nothing, if there is no room.
    pub(super) fn copy(&mut self, stage: &mut Vec<u8>, bytes: &[u8]) -> bool {
        let start = stage.len();
        if start + bytes.len() > STAGE_BYTES_MAX {
            return false;
        }
        let end = start + bytes.len();
        // Bytes on the stage that follow each other are one slice. The index is in bounds: it is below
        // the count.
        let joins = self.count > 0
            && matches!(self.parts[self.count - 1], Part::Stage { end, .. } if end == start);
        let part = if joins {
            let Part::Stage { start, .. } = self.parts[self.count - 1] else {
                unreachable!("matched above");
            };
            self.count -= 1;
            Part::Stage { start, end }
        } else {
            Part::Stage { start, end }
        };
        if !self.add(part, bytes.len()) {
            return false;
        }
        if stage.capacity() == 0 {
            stage.reserve_exact(STAGE_BYTES_MAX);
        }
        stage.extend_from_slice(bytes);
        true
    }

    fn add(&mut self, part: Part, bytes: usize) -> bool {
        if self.count == SLICES_MAX {
            return false;
        }
        self.parts[self.count] = part;
        self.count += 1;
        self.bytes += bytes;
        true
    }

    /// Adds the record of a packed frame, from its byte `within` on. Returns false if there was no room.
    pub(super) fn add_packed(&mut self, place: &Place, within: usize, length: usize) -> bool {
        let (from, to) = (place.start + within, place.start + HEADER_BYTES + length);
        if let Some(Part::Block { block, end, .. }) = self.parts[..self.count].last_mut()
            && (*block, *end) == (place.block, from)
        {
            *end = to;
            self.bytes += to - from;
            return true;
        }
        let part = Part::Block {
            block: place.block,
            start: from,
            end: to,
        };
        self.add(part, to - from)
    }

    /// Adds the bytes `from..to` of a frame. Returns false if not all of them found room.
    pub(super) fn add_payload<P: Deref<Target = [u8]>>(
        &mut self,
        stage: &mut Vec<u8>,
        frame: usize,
        held: &Held<P>,
        from: usize,
        to: usize,
    ) -> bool {
        let Content::Pieces(pieces) = &held.content else {
            unreachable!("a packed frame is added whole");
        };
        let mut piece_start = 0;
        for (index, piece) in pieces.iter().enumerate() {
            let piece_end = piece_start + piece.len();
            let start = from.max(piece_start);
            let end = to.min(piece_end);
            if start < end {
                let (start, end) = (start - piece_start, end - piece_start);
                let taken = if end - start <= COPIED_PIECE_BYTES_MAX {
                    self.copy(stage, &piece[start..end])
                } else {
                    self.add(
                        Part::Piece {
                            frame,
                            piece: index,
                            start,
                            end,
                        },
                        end - start,
                    )
                };
                if !taken {
                    return false;
                }
            }
            piece_start = piece_end;
            if piece_start >= to {
                break;
            }
        }
        true
    }
}
