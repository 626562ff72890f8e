//! Counts the bytes of a session: what control costs.

use std::io::{self, Read};
use std::sync::{Mutex, MutexGuard};

/// The bytes of a session so far, before encryption.
#[derive(Debug, Default)]
pub struct Traffic(Mutex<Bytes>);

/// Bytes both ways.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Those that were sent.
    pub sent: u64,
    /// Those that were received.
    pub received: u64,
}

impl Traffic {
    /// So many were sent.
    pub fn sent(&self, bytes: usize) {
        self.lock().sent += bytes as u64;
    }

    /// The bytes so far.
    pub fn bytes(&self) -> Bytes {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Bytes> {
        self.0.lock().expect("no thread panics under it")
    }
}

/// A reader whose bytes are counted as received.
pub struct Counted<'a, R> {
    /// What is read.
    pub from: R,
    /// Where that is counted.
    pub traffic: &'a Traffic,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(bytes)?;
        self.traffic.lock().received += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_and_sent_is_counted() {
        let traffic = Traffic::default();
        let mut read = Vec::new();
        let mut counted = Counted {
            from: &[7; 10_000][..],
            traffic: &traffic,
        };
        counted.read_to_end(&mut read).unwrap();
        traffic.sent(3);
        traffic.sent(4);
        assert_eq!(read.len(), 10_000);
        let (sent, received) = (7, 10_000);
        assert_eq!(traffic.bytes(), Bytes { sent, received });
    }
}
