//! The buffers of a call, which the program has given as addresses and lengths.

use libc::{iovec, size_t};

/// Buffers one after the other, and how far they were used.
#[derive(Clone, Copy)]
pub(crate) struct Buffers {
    vectors: *const iovec,
    count: usize,
    /// The bytes of the first buffer that were used.
    used: usize,
}

impl Buffers {
    pub(crate) fn new(vectors: *const iovec, count: usize) -> Self {
        Self {
            vectors,
            count,
            used: 0,
        }
    }

    fn first(&self) -> Option<iovec> {
        // SAFETY: the program says that there are so many.
        (self.count > 0).then(|| unsafe { *self.vectors })
    }

    fn skip_first(&mut self) {
        self.vectors = self.vectors.wrapping_add(1);
        self.count -= 1;
        self.used = 0;
    }

    /// The bytes that are left.
    pub(crate) fn left(&self) -> usize {
        let mut rest = *self;
        let mut left = 0_usize;
        while let Some(first) = rest.first() {
            left = left.saturating_add(first.iov_len - rest.used);
            rest.skip_first();
        }
        left
    }

    /// The next piece: an address and its bytes, at least one.
    pub(crate) fn piece(&mut self) -> Option<(*mut u8, usize)> {
        while let Some(first) = self.first() {
            if self.used < first.iov_len {
                return Some((
                    first.iov_base.cast::<u8>().wrapping_add(self.used),
                    first.iov_len - self.used,
                ));
            }
            self.skip_first();
        }
        None
    }

    /// What is left as vectors of its own.
    pub(crate) fn vectors(&self) -> Vec<iovec> {
        let (mut rest, mut vectors) = (*self, Vec::with_capacity(self.count));
        while let Some((start, bytes)) = rest.piece() {
            vectors.push(vector(start.cast(), bytes));
            rest.skip_first();
        }
        vectors
    }

    /// So many bytes of the piece were used.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.used += bytes;
    }

    /// Copies to the buffers.
    pub(crate) fn copy_in(&mut self, from: *const u8, bytes: usize) {
        let mut done = 0;
        while done < bytes
            && let Some((to, room)) = self.piece()
        {
            let some = room.min(bytes - done);
            // SAFETY: the program's buffer has `room` bytes, and the caller has `bytes` at `from`.
            unsafe { std::ptr::copy_nonoverlapping(from.wrapping_add(done), to, some) };
            self.advance(some);
            done += some;
        }
    }

    /// Copies from the buffers.
    pub(crate) fn copy_out(&mut self, to: *mut u8, bytes: usize) -> usize {
        let mut done = 0;
        while done < bytes
            && let Some((from, there)) = self.piece()
        {
            let some = there.min(bytes - done);
            // SAFETY: as above, the other way.
            unsafe {
                std::ptr::copy_nonoverlapping(from.cast_const(), to.wrapping_add(done), some)
            };
            self.advance(some);
            done += some;
        }
        done
    }
}

/// One buffer as a vector.
pub(crate) fn vector(buffer: *const libc::c_void, bytes: size_t) -> iovec {
    iovec {
        iov_base: buffer.cast_mut(),
        iov_len: bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_each_other_and_empty_ones_are_skipped() {
        let mut places = [[0_u8; 3], [0; 3]];
        let [one, two] = &mut places;
        let vectors = [
            vector(one.as_ptr().cast(), 3),
            vector(std::ptr::null(), 0),
            vector(two.as_mut_ptr().cast(), 2),
        ];
        let mut buffers = Buffers::new(vectors.as_ptr(), 3);
        assert_eq!(buffers.left(), 5);
        buffers.copy_in(b"ab".as_ptr(), 2);
        buffers.copy_in(b"cde".as_ptr(), 3);
        assert_eq!(buffers.left(), 0);
        assert!(buffers.piece().is_none());
        assert_eq!(places, [*b"abc", *b"de\0"]);
        let mut out = [0_u8; 5];
        assert_eq!(
            Buffers::new(vectors.as_ptr(), 3).copy_out(out.as_mut_ptr(), 5),
            5
        );
        assert_eq!(&out, b"abcde");
    }
}
