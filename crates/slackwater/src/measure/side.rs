//! What the loops need of one side of a connection.
//!
//! Invariants:
//! - No side blocks: the loop waits with [`Side::waiter`]. Only the reads and writes of plain programs block
//!   when they wait by interrupt, as plain programs' do.
//! - A message is a multiple of a cache line. Its first word is its number; the rest is filler.

use slackwater_link::Waiter;

use super::order::{Order, Waiting};

/// A cache line.
pub const LINE: usize = 64;

/// One side of a connection: it sends to the other one and receives from it.
pub trait Side {
    /// Checks that this kind supports the order; the error says why it doesn't.
    fn supports(&self, order: &Order) -> Result<(), String>;

    /// Gets ready for messages of this size, waiting and pattern.
    fn prepare(&mut self, order: &Order) -> Result<(), String>;

    /// Sends a message with this number, if the connection has room now.
    fn send(&mut self, number: u64) -> Result<bool, String>;

    /// Passes on what was sent, and tells the other side.
    fn push(&mut self) -> Result<(), String>;

    /// Receives a message if there is one, reads all its cache lines, and returns its number.
    fn receive(&mut self) -> Result<Option<u64>, String>;

    /// Whether the other side is known to be gone. Checked now and then while nothing arrives.
    fn has_left(&self) -> bool {
        false
    }

    /// What this side sleeps with until there is a message, or room. `None` for one that blocks in its reads
    /// and writes, or that only polls.
    fn waiter(&self) -> Option<&Waiter>;
}

/// Reads a byte of each cache line, and returns the number in the first word.
#[inline]
pub fn read_lines(message: &[u8]) -> Result<u64, String> {
    let mut sum = 0u8;
    for line in message.chunks(LINE) {
        sum = sum.wrapping_add(line[0]);
    }
    std::hint::black_box(sum);
    match message.first_chunk::<8>() {
        Some(number) => Ok(u64::from_le_bytes(*number)),
        None => Err(format!("a message of {} bytes arrived", message.len())),
    }
}

/// Bytes that begin at a cache line, as the buffers of the engine do.
pub struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// Allocates `length` bytes and writes each of them, so that its page exists.
    pub fn new(length: usize) -> Aligned {
        let bytes = vec![0x5a; length + LINE];
        let start = bytes.as_ptr().align_offset(LINE);
        Aligned {
            bytes,
            start,
            length,
        }
    }
}

impl std::ops::Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }
}

impl std::ops::DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

/// Why a kind without a bell can't wait by interrupt.
pub fn poll_only(order: &Order) -> Result<(), String> {
    match order.waiting {
        Waiting::Poll => Ok(()),
        Waiting::Interrupt => Err("it has no way to wake its reader".to_string()),
    }
}
