//! Finding the records and fields of CSV, 64 bytes at a time.
//!
//! Three comparisons turn 64 bytes into bit masks of delimiters, line ends and quotes. Fields that are not
//! read cost a population count; only the delimiters next to fields that are read are located. A record with
//! a quote in it is handled by the slow path ([`super::csv_quoted`]); the scan continues after it. The
//! technique is that of simdjson and simdcsv (Langdale and Lemire, "Parsing Gigabytes of JSON per Second",
//! 2019), without their second pass.

use super::cells::Span;
use super::csv::CsvOptions;
use super::progress::{Progress, RECORD_BYTES_MAX, Stop, without_return};

/// How a record with a quote in it ended.
pub(super) enum QuotedEnd {
    /// The next record begins here.
    Next(usize),
    /// The block ends within the record.
    Incomplete,
    /// The record is longer than [`RECORD_BYTES_MAX`].
    TooLong,
}

/// Finds records, for one set of columns.
#[derive(Debug)]
pub(crate) struct CsvScanner {
    pub(super) delimiter: u8,
    pub(super) comment: Option<u8>,
    /// The header is still to come.
    pub(super) header_pending: bool,
    /// Number of declared columns.
    pub(super) fields: usize,
    /// Declared columns that are read, increasing.
    pub(super) projection: Vec<usize>,
    /// Ordinals of the delimiters to be located in a record, increasing, then a sentinel.
    wanted: Vec<u32>,
    /// The places of those delimiters in the current record; after them two slots for the record's own
    /// bounds, so that the first and the last field need no case of their own.
    cuts: Vec<u32>,
    /// For each column that is read, the slots of `cuts` before and after it.
    sides: Vec<(u32, u32)>,
}

/// Bits of the 64 bytes of a window.
struct Masks {
    delimiters: u64,
    newlines: u64,
    quotes: u64,
}

/// The state of the current record.
struct Cursor {
    /// Delimiters passed.
    seen: u32,
    /// The next of the wanted delimiters.
    next: usize,
}

impl CsvScanner {
    pub(crate) fn new(options: &CsvOptions, fields: usize, projection: &[usize]) -> CsvScanner {
        let mut wanted: Vec<u32> = vec![];
        let mut sides = vec![];
        for &field in projection {
            // Delimiter n stands between field n and field n + 1.
            if field > 0 && wanted.last() != Some(&(field as u32 - 1)) {
                wanted.push(field as u32 - 1);
            }
            let before = if field == 0 {
                None
            } else {
                Some(wanted.len() as u32 - 1)
            };
            let behind = if field + 1 == fields {
                None
            } else {
                wanted.push(field as u32);
                Some(wanted.len() as u32 - 1)
            };
            sides.push((before, behind));
        }
        let slots = wanted.len() as u32;
        let sides = sides
            .into_iter()
            .map(|(before, behind)| (before.unwrap_or(slots), behind.unwrap_or(slots + 1)))
            .collect();
        wanted.push(u32::MAX);
        CsvScanner {
            delimiter: options.delimiter,
            comment: options.comment,
            header_pending: options.header,
            fields,
            projection: projection.to_vec(),
            cuts: vec![0; slots as usize + 2],
            wanted,
            sides,
        }
    }

    /// Finds records in `block[from..]`; returns where it stopped and why.
    pub(crate) fn scan(
        &mut self,
        block: &[u8],
        from: usize,
        last: bool,
        progress: &mut Progress,
    ) -> (usize, Stop) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("popcnt")
        {
            // SAFETY: the features that the function is compiled for were just detected.
            return unsafe { self.scan_with_avx2(block, from, last, progress) };
        }
        let delimiter = self.delimiter;
        self.scan_with(
            |window| window_masks(window, delimiter),
            block,
            from,
            last,
            progress,
        )
    }

    /// The same code with comparisons of 32 bytes and the population count of the processor.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,popcnt")]
    fn scan_with_avx2(
        &mut self,
        block: &[u8],
        from: usize,
        last: bool,
        progress: &mut Progress,
    ) -> (usize, Stop) {
        let delimiter = self.delimiter;
        self.scan_with(
            |window| window_masks_avx2(window, delimiter),
            block,
            from,
            last,
            progress,
        )
    }

    #[inline(always)]
    fn scan_with(
        &mut self,
        window_masks: impl Fn(&[u8; 64]) -> Masks,
        block: &[u8],
        from: usize,
        last: bool,
        progress: &mut Progress,
    ) -> (usize, Stop) {
        let mut start = from;
        let mut base = from;
        let mut cursor = Cursor { seen: 0, next: 0 };
        while base < block.len() {
            let Masks {
                mut delimiters,
                mut newlines,
                quotes,
            } = masks(block, base, &window_masks);
            if quotes != 0 {
                newlines &= below_lowest(quotes);
            }
            while newlines != 0 {
                let below = below_lowest(newlines);
                let newline = base + newlines.trailing_zeros() as usize;
                newlines &= newlines - 1;
                self.locate(delimiters & below, base, &mut cursor);
                delimiters &= !below;
                if newline - start > RECORD_BYTES_MAX {
                    return (start, Stop::TooLong);
                }
                self.record(block, start, newline, cursor.seen, progress);
                start = newline + 1;
                cursor = Cursor { seen: 0, next: 0 };
                if progress.is_full() {
                    return (start, Stop::Full);
                }
            }
            if quotes != 0 {
                match self.quoted_record(block, start, last, progress) {
                    QuotedEnd::Next(next) => start = next,
                    QuotedEnd::TooLong => return (start, Stop::TooLong),
                    QuotedEnd::Incomplete => return (start, incomplete(block, start)),
                }
                if progress.is_full() {
                    return (start, Stop::Full);
                }
                base = start;
                cursor = Cursor { seen: 0, next: 0 };
                continue;
            }
            self.locate(delimiters, base, &mut cursor);
            base += 64;
        }
        if last && start < block.len() && block.len() - start <= RECORD_BYTES_MAX {
            self.record(block, start, block.len(), cursor.seen, progress);
            start = block.len();
        }
        (start, incomplete(block, start))
    }

    /// Passes the delimiters of a window, recording the places of the wanted ones.
    #[inline(always)]
    fn locate(&mut self, mut delimiters: u64, base: usize, cursor: &mut Cursor) {
        let passed = cursor.seen + delimiters.count_ones();
        // The sentinel ends the loop.
        while self.wanted[cursor.next] < passed {
            for _ in cursor.seen..self.wanted[cursor.next] {
                delimiters &= delimiters - 1;
            }
            self.cuts[cursor.next] = base as u32 + delimiters.trailing_zeros();
            delimiters &= delimiters - 1;
            cursor.seen = self.wanted[cursor.next] + 1;
            cursor.next += 1;
        }
        cursor.seen = passed;
    }

    /// Takes the record at `start..newline` with its `delimiters`.
    #[inline(always)]
    fn record(
        &mut self,
        block: &[u8],
        start: usize,
        newline: usize,
        delimiters: u32,
        progress: &mut Progress,
    ) {
        let end = without_return(block, start, newline);
        if end == start || self.comment == Some(block[start]) {
            progress.line += 1;
            return;
        }
        if delimiters as usize + 1 != self.fields || self.header_pending {
            self.no_row(&block[start..end], delimiters as usize + 1, progress);
            progress.line += 1;
            return;
        }
        let slots = self.cuts.len();
        // One byte before the record, as if it were a delimiter; the block may begin with it.
        self.cuts[slots - 2] = (start as u32).wrapping_sub(1);
        self.cuts[slots - 1] = end as u32;
        for &(before, behind) in &self.sides {
            let start = self.cuts[before as usize].wrapping_add(1) as usize;
            let span = Span::new(start, self.cuts[behind as usize] as usize);
            progress.records.spans.push(span);
        }
        progress.accept(start, end);
        progress.line += 1;
    }

    /// A record that is not a row: the header, or a record with the wrong number of fields.
    #[cold]
    pub(super) fn no_row(&mut self, record: &[u8], fields: usize, progress: &mut Progress) {
        if std::mem::take(&mut self.header_pending) {
            progress.header = Some(record.to_vec());
            return;
        }
        let are = if fields == 1 { "field" } else { "fields" };
        let declared = self.fields;
        let reason = format!("{fields} {are} where {declared} are declared");
        progress.reject(record, reason);
    }
}

#[inline(always)]
fn below_lowest(mask: u64) -> u64 {
    (mask & mask.wrapping_neg()) - 1
}

fn incomplete(block: &[u8], start: usize) -> Stop {
    if block.len() - start > RECORD_BYTES_MAX {
        Stop::TooLong
    } else {
        Stop::Incomplete
    }
}

/// The masks of the 64 bytes from `base`; bytes after the block count as nothing.
#[inline(always)]
fn masks(block: &[u8], base: usize, window_masks: &impl Fn(&[u8; 64]) -> Masks) -> Masks {
    if let Some(window) = block.get(base..base + 64) {
        return window_masks(window.try_into().expect("the slice has 64 bytes"));
    }
    let rest = &block[base..];
    let mut window = [0; 64];
    window[..rest.len()].copy_from_slice(rest);
    let masks = window_masks(&window);
    let valid = (1u64 << rest.len()) - 1;
    Masks {
        delimiters: masks.delimiters & valid,
        newlines: masks.newlines & valid,
        quotes: masks.quotes & valid,
    }
}

#[inline(always)]
fn window_masks(window: &[u8; 64], delimiter: u8) -> Masks {
    use wide::u8x16;
    let mut masks = Masks {
        delimiters: 0,
        newlines: 0,
        quotes: 0,
    };
    let (delimiter, newline, quote) = (
        u8x16::splat(delimiter),
        u8x16::splat(b'\n'),
        u8x16::splat(b'"'),
    );
    for part in 0..4 {
        let bytes: [u8; 16] = window[part * 16..part * 16 + 16]
            .try_into()
            .expect("a window has four parts of 16");
        let bytes = u8x16::from(bytes);
        let bits = |wanted: u8x16| u64::from(bytes.simd_eq(wanted).to_bitmask()) << (part * 16);
        masks.delimiters |= bits(delimiter);
        masks.newlines |= bits(newline);
        masks.quotes |= bits(quote);
    }
    masks
}

/// The same with registers of 32 bytes, which the compiler does not generate automatically.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
fn window_masks_avx2(window: &[u8; 64], delimiter: u8) -> Masks {
    use std::arch::x86_64::{
        _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_set1_epi8,
    };
    let halves = window.as_ptr();
    // SAFETY: both loads lie within the 64 bytes of the window, and need no alignment.
    let (low, high) = unsafe {
        (
            _mm256_loadu_si256(halves.cast()),
            _mm256_loadu_si256(halves.add(32).cast()),
        )
    };
    let equal = |wanted: u8| {
        let wanted = _mm256_set1_epi8(wanted as i8);
        let low = _mm256_movemask_epi8(_mm256_cmpeq_epi8(low, wanted)) as u32;
        let high = _mm256_movemask_epi8(_mm256_cmpeq_epi8(high, wanted)) as u32;
        u64::from(low) | u64::from(high) << 32
    };
    Masks {
        delimiters: equal(delimiter),
        newlines: equal(b'\n'),
        quotes: equal(b'"'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn obvious(window: &[u8], wanted: u8) -> u64 {
        let bits = window.iter().enumerate();
        bits.map(|(bit, byte)| u64::from(*byte == wanted) << bit)
            .sum()
    }

    proptest! {
        #[test]
        fn all_ways_to_compare_agree(
            window in proptest::array::uniform32(prop_oneof![
                Just(b','), Just(b'\n'), Just(b'"'), any::<u8>(),
            ]),
            delimiter in prop_oneof![Just(b','), any::<u8>()],
        ) {
            let mut whole = [0; 64];
            whole[..32].copy_from_slice(&window);
            whole[32..].copy_from_slice(&window);
            whole[32..].reverse();
            let expected = [delimiter, b'\n', b'"'].map(|wanted| obvious(&whole, wanted));
            let bits = |masks: Masks| [masks.delimiters, masks.newlines, masks.quotes];
            prop_assert_eq!(bits(window_masks(&whole, delimiter)), expected);
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the feature was just detected.
                let masks = unsafe { window_masks_avx2(&whole, delimiter) };
                prop_assert_eq!(bits(masks), expected);
            }
        }
    }
}
