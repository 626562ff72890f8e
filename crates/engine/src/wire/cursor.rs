//! Reads untrusted bytes: each step is checked, and an error says where it failed.

use super::error_at;
use crate::error::Result;

/// A place in a frame, and the end of what may be read.
pub struct Cursor<'a> {
    frame: &'a [u8],
    position: usize,
    end: usize,
}

impl<'a> Cursor<'a> {
    /// Reads `frame` from `position` to `end`, both of which lie within it.
    pub fn new(frame: &'a [u8], position: usize, end: usize) -> Cursor<'a> {
        assert!(position <= end && end <= frame.len());
        Cursor {
            frame,
            position,
            end,
        }
    }

    /// The offset of the next byte in the frame.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Whether nothing is left.
    pub fn is_at_end(&self) -> bool {
        self.position == self.end
    }

    /// The next `length` bytes.
    pub fn bytes(&mut self, length: usize, what: &str) -> Result<&'a [u8]> {
        let left = self.end - self.position;
        if length > left {
            return Err(error_at(
                self.position,
                format!("{what} of {length} bytes, but only {left} are left"),
            ));
        }
        let bytes = &self.frame[self.position..self.position + length];
        self.position += length;
        Ok(bytes)
    }

    /// The next byte.
    pub fn u8(&mut self, what: &str) -> Result<u8> {
        Ok(self.array::<1>(what)?[0])
    }

    /// The next number of 16 bits.
    pub fn u16(&mut self, what: &str) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    /// The next number of 32 bits.
    pub fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// The next number of 32 bits, as a length.
    pub fn length(&mut self, what: &str) -> Result<usize> {
        Ok(self.u32(what)? as usize)
    }

    /// The next number of 64 bits.
    pub fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// The next string: a length and that many bytes of UTF-8.
    pub fn text(&mut self, what: &str) -> Result<&'a str> {
        let length = self.length(what)?;
        let at = self.position;
        std::str::from_utf8(self.bytes(length, what)?)
            .map_err(|error| error_at(at, format!("{what} is not UTF-8: {error}")))
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let bytes = self.bytes(N, what)?;
        Ok(bytes.try_into().expect("as many bytes as were asked for"))
    }
}
