//! Frames that are whole in the buffer: those of one read share memory, if they are short.

use std::sync::Arc;

use super::Incoming;
use crate::frame::{AlignedBytes, FRAME_ALIGNMENT, Frame, INLINE_BYTES_MAX};
use crate::tcp::record::{HEADER_BYTES, Record};

/// Longer frames get memory of their own: for them it costs less than the copy.
const SHARED_BYTES_MAX: usize = 1 << 10;

/// Short frames that are whole in the buffer, copied together, and where the next one begins.
pub(super) struct Shared {
    bytes: Arc<AlignedBytes>,
    start: usize,
}

impl Incoming {
    /// The frame whose `length` bytes of payload are next in the buffer.
    pub(super) fn whole_frame(&mut self, length: usize) -> Frame {
        let payload = &self.buffer[self.start..self.start + length];
        if length <= INLINE_BYTES_MAX {
            return Frame::inline(payload);
        }
        if length > SHARED_BYTES_MAX || !self.shares {
            let mut bytes = AlignedBytes::with_capacity(length);
            bytes.extend(payload);
            return Frame::owned(bytes);
        }
        let Shared { bytes, start } = match self.shared.take() {
            Some(shared) => shared,
            None => {
                let mut bytes = self.copy_short(length);
                if bytes.len() == length.next_multiple_of(FRAME_ALIGNMENT) {
                    bytes.truncate(length);
                    return Frame::owned(bytes);
                }
                Shared {
                    bytes: Arc::new(bytes),
                    start: 0,
                }
            }
        };
        let next = start + length.next_multiple_of(FRAME_ALIGNMENT);
        if next < bytes.len() {
            self.shared = Some(Shared {
                bytes: Arc::clone(&bytes),
                start: next,
            });
        }
        Frame::part(bytes, start, length)
    }

    /// Copies the payload of `length` bytes that is next in the buffer, and those of all short frames after
    /// it that are whole there, each to a multiple of [`FRAME_ALIGNMENT`].
    fn copy_short(&self, length: usize) -> AlignedBytes {
        let mut rest = &self.buffer[self.start..self.end];
        // A short record takes half as much again with its padding, at most.
        let mut bytes = AlignedBytes::with_capacity(rest.len() + rest.len() / 2);
        let mut next = Some(length);
        while let Some(length) = next.filter(|&length| length <= rest.len()) {
            let (payload, after) = rest.split_at(length);
            if length > INLINE_BYTES_MAX {
                bytes.extend(payload);
                bytes.pad();
            }
            rest = after;
            next = None;
            // What is wrong with a record, if anything, is found when it is its turn.
            if let Some((header, after)) = rest.split_first_chunk::<HEADER_BYTES>()
                && let Ok(Record::Data(fragment)) = Record::decode(*header)
                && (fragment.first && fragment.last)
                && fragment.length as usize <= SHARED_BYTES_MAX
            {
                rest = after;
                next = Some(fragment.length as usize);
            }
        }
        bytes
    }
}
