//! Strings of JSON: finding where one ends, and columns of them.
//!
//! A string without escapes is not copied: its column points into the block that was read
//! (`docs/decisions/0004-text-as-views.md`). Strings that the slow path had to change are kept beside it.

use arrow_array::builder::make_view;
use arrow_array::{Array, StringViewArray};
use arrow_buffer::{Buffer, NullBuffer};
use wide::u8x16;

use super::cells::{INLINE_BYTES_MAX, place_view};
use super::json_nulls::{Nulls, put, take};

/// The values of a STRING column.
#[derive(Debug, Default)]
pub(super) struct Strings {
    /// Arrow's views: of buffer 0, the block, or of buffer 1, the strings beside it.
    pub(super) views: Vec<u128>,
    beside: Vec<u8>,
    /// Whether some view needs a buffer.
    has_long: bool,
}

impl Strings {
    /// Puts the string at `block[start..end]`, which is UTF-8.
    #[inline]
    pub(super) fn put(
        &mut self,
        nulls: &mut Nulls,
        row: usize,
        block: &[u8],
        (start, end): (usize, usize),
    ) {
        debug_assert!(std::str::from_utf8(&block[start..end]).is_ok());
        let view = place_view(block, start, end, 0);
        self.has_long |= view as u32 > INLINE_BYTES_MAX;
        put(&mut self.views, nulls, row, view);
    }

    /// Puts a string that is not in the block as it is.
    pub(super) fn put_beside(&mut self, nulls: &mut Nulls, row: usize, text: &str) {
        let view = make_view(text.as_bytes(), 1, self.beside.len() as u32);
        if view as u32 > INLINE_BYTES_MAX {
            self.beside.extend_from_slice(text.as_bytes());
            self.has_long = true;
        }
        put(&mut self.views, nulls, row, view);
    }

    /// The finished column; its strings were found in `block`.
    pub(super) fn finish(&mut self, block: &Buffer, nulls: Option<NullBuffer>) -> StringViewArray {
        let views = take(&mut self.views);
        let beside = Buffer::from(std::mem::take(&mut self.beside));
        // An array without long strings must not hold the block.
        let buffers = match std::mem::take(&mut self.has_long) {
            true => vec![block.clone(), beside],
            false => vec![],
        };
        // SAFETY: each view is zero (NULL), or made of bytes that were UTF-8: by `place_view` from the block
        // (buffer 0), or by `make_view` from a `str` whose bytes are in buffer 1 at the view's offset. Views
        // of up to 12 bytes have zeros after them; longer ones set `has_long`, also in lines that were
        // truncated later. The caller passes the block that was scanned. Checked again by Arrow, this costs a
        // tenth of reading JSON.
        let array = unsafe { StringViewArray::new_unchecked(views.into(), buffers, nulls) };
        debug_assert!(
            StringViewArray::try_new(
                array.views().clone(),
                array.data_buffers().to_vec(),
                array.nulls().cloned()
            )
            .is_ok()
        );
        array
    }
}

/// Where a string ends that has no escapes, or where that is no longer true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StringEnd {
    /// The place of the first quote, backslash or control character; the end of the block if there is none.
    pub(super) at: usize,
    /// Whether all bytes before it are ASCII.
    pub(super) is_ascii: bool,
}

/// The instructions by which ends are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Finder(Instructions);

/// What the processor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instructions {
    Any,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Finder {
    /// The best one for this processor.
    pub(super) fn new() -> Finder {
        Finder::all().pop().expect("there is always one")
    }

    /// The ones that this processor can use, the best one last.
    fn all() -> Vec<Finder> {
        let mut all = vec![Finder(Instructions::Any)];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                all.push(Finder(Instructions::Avx2));
            }
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
                all.push(Finder(Instructions::Avx512));
            }
        }
        all
    }

    /// The end of the string whose bytes begin at `from`.
    #[inline(always)]
    pub(super) fn end(self, block: &[u8], from: usize) -> StringEnd {
        // Most strings are short: no call for them.
        if let Some(window) = block.get(from..from + 16) {
            let (ends, high) = marks(window.try_into().expect("the slice has 16 bytes"));
            if ends != 0 {
                return found(from, true, ends.into(), high.into());
            }
        }
        self.far_end(block, from)
    }

    #[inline(always)]
    fn far_end(self, block: &[u8], from: usize) -> StringEnd {
        match self.0 {
            Instructions::Any => end_by_16(block, from),
            // SAFETY: this value is only made where the instructions were detected.
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => unsafe { end_by_32(block, from) },
            // SAFETY: this value is only made where the instructions were detected.
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => unsafe { end_by_64(block, from) },
        }
    }
}

/// The end of a string in the window at `at`: at the lowest bit of `ends`, which has one. `high` has a bit
/// for each byte that is not ASCII; `is_ascii` says whether those before the window are.
#[inline(always)]
fn found(at: usize, is_ascii: bool, ends: u64, high: u64) -> StringEnd {
    let length = ends.trailing_zeros();
    StringEnd {
        at: at + length as usize,
        is_ascii: is_ascii && high & ((1 << length) - 1) == 0,
    }
}

/// The bytes that end a string without escapes, and those that are not ASCII.
#[inline(always)]
fn marks(window: [u8; 16]) -> (u32, u32) {
    let bytes = u8x16::from(window);
    let control = bytes.min(u8x16::splat(0x1f)).simd_eq(bytes);
    let ends = bytes.simd_eq(u8x16::splat(b'"')) | bytes.simd_eq(u8x16::splat(b'\\')) | control;
    (ends.to_bitmask(), bytes.to_bitmask())
}

#[inline(never)]
fn end_by_16(block: &[u8], from: usize) -> StringEnd {
    let mut at = from;
    let mut is_ascii = true;
    while let Some(window) = block.get(at..at + 16) {
        let (ends, high) = marks(window.try_into().expect("the slice has 16 bytes"));
        if ends != 0 {
            return found(at, is_ascii, ends.into(), high.into());
        }
        is_ascii &= high == 0;
        at += 16;
    }
    let rest = &block[at..];
    let is_end = |&byte: &u8| byte == b'"' || byte == b'\\' || byte < 0x20;
    let length = rest.iter().position(is_end).unwrap_or(rest.len());
    is_ascii &= rest[..length].is_ascii();
    at += length;
    StringEnd { at, is_ascii }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn end_by_32(block: &[u8], from: usize) -> StringEnd {
    use std::arch::x86_64::{
        _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_min_epu8, _mm256_movemask_epi8,
        _mm256_or_si256, _mm256_set1_epi8,
    };
    let (quote, backslash) = (_mm256_set1_epi8(b'"' as i8), _mm256_set1_epi8(b'\\' as i8));
    let control = _mm256_set1_epi8(0x1f);
    let mut at = from;
    let mut is_ascii = true;
    while let Some(window) = block.get(at..at + 32) {
        // SAFETY: the window has 32 bytes, and the load needs no alignment.
        let bytes = unsafe { _mm256_loadu_si256(window.as_ptr().cast()) };
        let ends = _mm256_or_si256(
            _mm256_or_si256(
                _mm256_cmpeq_epi8(bytes, quote),
                _mm256_cmpeq_epi8(bytes, backslash),
            ),
            _mm256_cmpeq_epi8(_mm256_min_epu8(bytes, control), bytes),
        );
        let ends = _mm256_movemask_epi8(ends) as u32;
        let high = _mm256_movemask_epi8(bytes) as u32;
        if ends != 0 {
            return found(at, is_ascii, ends.into(), high.into());
        }
        is_ascii &= high == 0;
        at += 32;
    }
    let rest = end_by_16(block, at);
    StringEnd {
        is_ascii: is_ascii && rest.is_ascii,
        ..rest
    }
}

/// Looks at 128 bytes at a time: whether most strings are shorter than 64 bytes can't be predicted.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
fn end_by_64(block: &[u8], from: usize) -> StringEnd {
    let mut at = from;
    let mut is_ascii = true;
    loop {
        let (near, near_high) = marks_of_64(&block[at..]);
        let (far, far_high) = marks_of_64(block.get(at + 64..).unwrap_or_default());
        let (after, ends, high) = match near {
            0 => (64, far, far_high),
            _ => (0, near, near_high),
        };
        is_ascii &= after == 0 || near_high == 0;
        if ends != 0 {
            return found(at + after, is_ascii, ends, high);
        }
        is_ascii &= far_high == 0;
        at += 128;
    }
}

/// As [`marks`], of the first 64 bytes; what follows after the last byte ends a string.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn marks_of_64(bytes: &[u8]) -> (u64, u64) {
    use std::arch::x86_64::{
        _mm512_cmpeq_epi8_mask, _mm512_cmplt_epu8_mask, _mm512_maskz_loadu_epi8,
        _mm512_movepi8_mask, _mm512_set1_epi8,
    };
    let loaded = match bytes.len() {
        64.. => u64::MAX,
        few => (1 << few) - 1,
    };
    // SAFETY: only bytes of the slice are loaded: `loaded` has a bit for each of them, at most 64. The others
    // are zero, a control character.
    let bytes = unsafe { _mm512_maskz_loadu_epi8(loaded, bytes.as_ptr().cast()) };
    let ends = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(b'"' as i8))
        | _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(b'\\' as i8))
        | _mm512_cmplt_epu8_mask(bytes, _mm512_set1_epi8(b' ' as i8));
    (ends, _mm512_movepi8_mask(bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn obvious(block: &[u8], from: usize) -> StringEnd {
        let is_end = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
        let rest = &block[from..];
        let length = rest.iter().position(is_end).unwrap_or(rest.len());
        StringEnd {
            at: from + length,
            is_ascii: rest[..length].is_ascii(),
        }
    }

    proptest! {
        #[test]
        fn all_instructions_find_the_same_end(
            plain in prop::collection::vec(32u8..128, 0..300),
            marks in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![
                Just(b'"'), Just(b'\\'), Just(0x1f), Just(0x20), Just(0), Just(0x80), any::<u8>(),
            ]), 0..4),
            from in any::<prop::sample::Index>(),
        ) {
            let mut block = plain;
            for byte in &mut block {
                if matches!(byte, b'"' | b'\\') {
                    *byte = b'x';
                }
            }
            if !block.is_empty() {
                for (at, byte) in marks {
                    let at = at.index(block.len());
                    block[at] = byte;
                }
            }
            let from = from.index(block.len() + 1);
            let expected = obvious(&block, from);
            for finder in Finder::all() {
                prop_assert_eq!(finder.end(&block, from), expected, "{:?}", finder);
                prop_assert_eq!(finder.far_end(&block, from), expected, "{:?}", finder);
            }
        }
    }

    #[test]
    fn this_processor_has_the_instructions_that_are_tested() {
        assert_eq!(Finder::all().last(), Some(&Finder::new()));
    }
}
