//! Blocks of bytes that are read into and then shared with the rows that point into them.
//!
//! Strings are not copied out of what was read: a string column's views point into the block. So a block is
//! filled by one reader, sealed into an Arrow buffer, and returns to its pool when the last array that uses
//! it is dropped. Recycling matters more than it looks: a fresh block of 512 KiB costs 128 page faults, which
//! is more than parsing the lines in it.

use std::sync::{Arc, Mutex};

use arrow_buffer::Buffer;

/// Bytes of a block of a file: about 2,600 lines of 200 bytes, and half of a usual second-level cache, so
/// that the bytes that `read` has copied are still cached when they are parsed.
pub(crate) const FILE_BLOCK_BYTES: usize = 512 * 1024;

/// Bytes of a block of a socket or pipe: a chunk that waits downstream holds its block, and
/// lingering chunks are small.
pub(crate) const STREAM_BLOCK_BYTES: usize = 128 * 1024;

/// Blocks that a pool keeps for reuse: one is filled while one is parsed and a full link of chunks
/// holds the others. At most 32 × 512 KiB = 16 MiB per source instance.
const BLOCKS_KEPT_MAX: usize = 32;

/// Recycles blocks of one size.
#[derive(Debug)]
pub(crate) struct BlockPool {
    block_bytes: usize,
    kept: Mutex<Vec<Vec<u8>>>,
}

impl BlockPool {
    pub(crate) fn new(block_bytes: usize) -> Arc<BlockPool> {
        Arc::new(BlockPool {
            block_bytes,
            kept: Mutex::new(Vec::with_capacity(BLOCKS_KEPT_MAX)),
        })
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// A block of at least `bytes_min` bytes, all of them initialized.
    pub(crate) fn take(&self, bytes_min: usize) -> Vec<u8> {
        if bytes_min <= self.block_bytes {
            // The block given back last is the one most likely still in the cache.
            if let Some(block) = self.lock().pop() {
                return block;
            }
            return vec![0; self.block_bytes];
        }
        vec![0; bytes_min]
    }

    /// Takes a block back; oversized ones, and more than [`BLOCKS_KEPT_MAX`], are freed.
    pub(crate) fn give_back(&self, block: Vec<u8>) {
        if block.len() != self.block_bytes {
            return;
        }
        let mut kept = self.lock();
        if kept.len() < BLOCKS_KEPT_MAX {
            kept.push(block);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        // A panic elsewhere can't leave the list half-changed: push and pop are all that happens.
        self.kept
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.lock().len()
    }
}

/// A filled block that arrays will share; it returns to its pool when dropped.
struct Filled {
    block: Vec<u8>,
    filled: usize,
    pool: Arc<BlockPool>,
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        &self.block[..self.filled]
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.block));
    }
}

/// Makes the first `filled` bytes of a block an Arrow buffer without copying them.
pub(crate) fn seal(block: Vec<u8>, filled: usize, pool: &Arc<BlockPool>) -> Buffer {
    assert!(filled <= block.len());
    let filled = Filled {
        block,
        filled,
        pool: Arc::clone(pool),
    };
    Buffer::from(bytes::Bytes::from_owner(filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_returns_when_its_last_user_goes() {
        let pool = BlockPool::new(64);
        let mut block = pool.take(10);
        let address = block.as_ptr();
        block[..5].copy_from_slice(b"hello");
        let buffer = seal(block, 5, &pool);
        let slice = buffer.slice_with_length(1, 3);
        drop(buffer);
        assert_eq!(pool.kept(), 0, "a slice still points into it");
        assert_eq!(slice.as_slice(), b"ell");
        drop(slice);
        assert_eq!(pool.kept(), 1);
        let again = pool.take(1);
        assert_eq!(again.as_ptr(), address);
    }

    #[test]
    fn the_pool_is_bounded_and_keeps_only_its_size() {
        let pool = BlockPool::new(16);
        let big = pool.take(100);
        assert_eq!(big.len(), 100);
        pool.give_back(big);
        assert_eq!(pool.kept(), 0);
        for _ in 0..BLOCKS_KEPT_MAX + 5 {
            pool.give_back(vec![0; 16]);
        }
        assert_eq!(pool.kept(), BLOCKS_KEPT_MAX);
    }
}
