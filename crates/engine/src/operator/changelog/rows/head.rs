//! What precedes a row in its page: its entry and its length.
//!
//! Most rows exist once, have no partners that are counted, and came before the first checkpoint. So a byte
//! says what differs from that, and only that follows: the head of most rows takes two bytes instead of 24.

use std::ops::Deref;

use super::Kept;
use crate::state::Mark;
use crate::time::MIN_WATERMARK;

/// The row has 256 bytes or more: its length takes four bytes, not one.
const IS_LONG: u8 = 1;
/// The row exists more than once: four bytes.
const HAS_COUNT: u8 = 2;
/// The row has partners: four bytes.
const HAS_PARTNERS: u8 = 4;
/// The row has a time at which it was touched: eight bytes.
const HAS_TIME: u8 = 8;
/// The row was changed after the first mark: four bytes.
const HAS_MARK: u8 = 16;

/// The longest head.
const BYTES_MAX: usize = 1 + 4 + 4 + 4 + 8 + 4;

/// The mark of changes before the first checkpoint.
const FIRST: Mark = Mark(1);

/// The head of a row.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    /// The row's entry.
    pub kept: Kept,
    /// The length of the row.
    pub row_bytes: u32,
}

/// The bytes of a head.
pub struct HeadBytes {
    bytes: [u8; BYTES_MAX],
    length: usize,
}

impl Deref for HeadBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl HeadBytes {
    fn push<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes[self.length..self.length + N].copy_from_slice(&bytes);
        self.length += N;
    }
}

/// Takes a number of `N` bytes from the beginning.
fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (number, rest) = bytes.split_first_chunk().expect("a head is complete");
    *bytes = rest;
    *number
}

impl Head {
    /// The head of a row of so many bytes.
    pub fn new(kept: Kept, row_bytes: usize) -> Head {
        Head {
            kept,
            row_bytes: row_bytes as u32,
        }
    }

    /// The head's bytes.
    pub fn bytes(&self) -> HeadBytes {
        let mut head = HeadBytes {
            bytes: [0; BYTES_MAX],
            length: 1,
        };
        let mut flags = 0;
        match u8::try_from(self.row_bytes) {
            Ok(few) => head.push([few]),
            Err(_) => {
                flags |= IS_LONG;
                head.push(self.row_bytes.to_le_bytes());
            }
        }
        let Kept {
            count,
            partners,
            touched_at,
            mark,
        } = self.kept;
        if count != 1 {
            flags |= HAS_COUNT;
            head.push(count.to_le_bytes());
        }
        if partners != 0 {
            flags |= HAS_PARTNERS;
            head.push(partners.to_le_bytes());
        }
        if touched_at != MIN_WATERMARK {
            flags |= HAS_TIME;
            head.push(touched_at.to_le_bytes());
        }
        if mark != FIRST {
            flags |= HAS_MARK;
            head.push(mark.0.to_le_bytes());
        }
        head.bytes[0] = flags;
        head
    }

    /// The head at `page[at..]`.
    pub fn at(page: &[u8], at: usize) -> Head {
        let flags = page[at];
        let mut rest = &page[at + 1..];
        let has = |flag: u8| flags & flag != 0;
        let row_bytes = match has(IS_LONG) {
            true => u32::from_le_bytes(take(&mut rest)),
            false => u32::from(take::<1>(&mut rest)[0]),
        };
        let kept = Kept {
            count: match has(HAS_COUNT) {
                true => u32::from_le_bytes(take(&mut rest)),
                false => 1,
            },
            partners: match has(HAS_PARTNERS) {
                true => u32::from_le_bytes(take(&mut rest)),
                false => 0,
            },
            touched_at: match has(HAS_TIME) {
                true => i64::from_le_bytes(take(&mut rest)),
                false => MIN_WATERMARK,
            },
            mark: match has(HAS_MARK) {
                true => Mark(u32::from_le_bytes(take(&mut rest))),
                false => FIRST,
            },
        };
        Head { kept, row_bytes }
    }
}

/// The row of the record at `at`, and where the next record is.
#[inline]
pub fn row_at(page: &[u8], at: usize) -> (&[u8], usize) {
    let flags = page[at];
    let has = |flag: u8| usize::from(flags & flag != 0);
    let (row_bytes, length_bytes) = match flags & IS_LONG {
        0 => (usize::from(page[at + 1]), 1),
        _ => {
            let length = page[at + 1..at + 5].try_into().expect("a slice of 4 bytes");
            (u32::from_le_bytes(length) as usize, 4)
        }
    };
    let numbers = 4 * (has(HAS_COUNT) + has(HAS_PARTNERS) + has(HAS_MARK)) + 8 * has(HAS_TIME);
    let start = at + 1 + length_bytes + numbers;
    (&page[start..start + row_bytes], start + row_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn heads_come_back_and_say_where_the_row_is(
            count in prop_oneof![Just(1), any::<u32>()],
            partners in prop_oneof![Just(0), any::<u32>()],
            touched_at in prop_oneof![Just(MIN_WATERMARK), any::<i64>()],
            mark in prop_oneof![Just(FIRST), any::<u32>().prop_map(Mark)],
            row in prop_oneof![0usize..600, Just(70_000)],
            at in 0usize..3,
        ) {
            let kept = Kept { count, partners, touched_at, mark };
            let mut page = vec![9; at];
            page.extend_from_slice(&Head::new(kept, row).bytes());
            let start = page.len();
            page.extend(std::iter::repeat_n(7, row));
            page.push(9);
            let head = Head::at(&page, at);
            prop_assert_eq!(head.row_bytes as usize, row);
            let of = |kept: Kept| (kept.count, kept.partners, kept.touched_at, kept.mark);
            prop_assert_eq!(of(head.kept), of(kept));
            prop_assert_eq!(row_at(&page, at), (&page[start..start + row], start + row));
        }
    }

    #[test]
    fn most_rows_need_two_bytes() {
        let kept = Kept {
            count: 1,
            partners: 0,
            touched_at: MIN_WATERMARK,
            mark: FIRST,
        };
        assert_eq!(Head::new(kept, 255).bytes().len(), 2);
        assert_eq!(Head::new(kept, 256).bytes().len(), 5);
    }
}
