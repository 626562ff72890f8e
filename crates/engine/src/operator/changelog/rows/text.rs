//! Strings in few bits: five for each character, six or seven, if all of its characters are among few.
//!
//! Most of the bytes of kept rows are strings, and most strings need no eight bits for a character: names,
//! URLs, identifiers in lowercase and numbers need five or six. Eight characters are packed at a time, by
//! shifts in one word, which takes about as long as copying them. The number of bits follows from the string
//! alone, so equal strings, and no others, have equal bytes.

use super::number::{push_number, take_number};

/// Characters in one word.
const WORD: usize = 8;

/// A word whose bytes are all this one.
const fn all(byte: u8) -> u64 {
    u64::from_le_bytes([byte; WORD])
}

/// How a string's characters are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    /// As they are, in UTF-8.
    Bytes,
    /// 0x60 to 0x7F: mostly lowercase letters.
    Five,
    /// 0x20 to 0x3F as well: digits, spaces, and most punctuation.
    Six,
    /// ASCII.
    Seven,
}

use Packing::{Bytes, Five, Seven, Six};

impl Packing {
    const ALL: [Packing; 4] = [Bytes, Five, Six, Seven];

    /// The bits of a character.
    fn bits(self) -> usize {
        match self {
            Bytes => 8,
            Five => 5,
            Six => 6,
            Seven => 7,
        }
    }

    /// The packing with the fewest bits that has all characters.
    fn of(text: &[u8]) -> Packing {
        let (mut other_than_five, mut other_than_six, mut high) = (0, 0, 0);
        words(text).for_each(|word| {
            other_than_five |= (word ^ all(0x60)) & all(0xE0);
            other_than_six |= (word ^ all(0x20)) & all(0xA0);
            high |= word & all(0x80);
        });
        match (other_than_five, other_than_six, high) {
            (0, _, _) => Five,
            (_, 0, _) => Six,
            (_, _, 0) => Seven,
            _ => Bytes,
        }
    }

    /// The bits of eight characters, the first ones lowest.
    #[inline(always)]
    fn squeezed(self, word: u64) -> u64 {
        match self {
            Bytes => word,
            Five => squeeze::<5>(word & all(0x1F)),
            Six => squeeze::<6>(word & all(0x1F) | (word & all(0x40)) >> 1),
            Seven => squeeze::<7>(word),
        }
    }

    /// The characters of [`Packing::squeezed`].
    #[inline(always)]
    fn spread(self, bits: u64) -> u64 {
        match self {
            Bytes => bits,
            Five => all(0x60) | spread::<5>(bits),
            Six => {
                let word = spread::<6>(bits);
                all(0x20) | word & all(0x1F) | (word & all(0x20)) << 1
            }
            Seven => spread::<7>(bits),
        }
    }
}

/// Exchanges `_`, which is frequent, with 0x7F, which is not, but has a neighborhood of letters.
#[inline(always)]
fn exchanged(word: u64) -> u64 {
    let differing = word & !all(0x20) ^ all(0x5F);
    // The high bit of each byte that is zero.
    let zero = !((differing & all(0x7F)).wrapping_add(all(0x7F)) | differing | all(0x7F));
    word ^ zero >> 2
}

/// Joins the lowest `BITS` bits of the bytes; their other bits are zero.
#[inline(always)]
fn squeeze<const BITS: u32>(word: u64) -> u64 {
    let (pair, four) = (2 * BITS, 4 * BITS);
    let low = |bits: u32| (1u64 << bits) - 1;
    let pairs = 0x0001_0001_0001_0001 * low(BITS);
    let word = word & pairs | (word >> 8 & pairs) << BITS;
    let fours = 0x0000_0001_0000_0001 * low(pair);
    let word = word & fours | (word >> 16 & fours) << pair;
    word & low(four) | (word >> 32) << four
}

/// The bytes that [`squeeze`] joined; higher bits are left out.
#[inline(always)]
fn spread<const BITS: u32>(bits: u64) -> u64 {
    let (pair, four) = (2 * BITS, 4 * BITS);
    let low = |bits: u32| (1u64 << bits) - 1;
    let word = bits & low(four) | (bits >> four & low(four)) << 32;
    let fours = 0x0000_0001_0000_0001 * low(pair);
    let word = word & fours | (word >> pair & fours) << 16;
    let pairs = 0x0001_0001_0001_0001 * low(BITS);
    word & pairs | (word >> BITS & pairs) << 8
}

/// The characters, eight at a time and exchanged; the last word is filled up with characters that all
/// packings have.
#[inline(always)]
fn words(text: &[u8]) -> impl Iterator<Item = u64> {
    let (full, rest) = text.as_chunks::<WORD>();
    let full = full.iter().map(|&word| u64::from_le_bytes(word));
    let last = (!rest.is_empty()).then(|| {
        let characters = match text.last_chunk::<WORD>() {
            // Those of the word before are shifted out.
            Some(&last) => u64::from_le_bytes(last) >> (8 * (WORD - rest.len())),
            None => number(rest),
        };
        characters | all(0x60) << (8 * rest.len())
    });
    full.chain(last).map(exchanged)
}

/// Appends a string.
pub fn push(bytes: &mut Vec<u8>, text: &str) {
    let text = text.as_bytes();
    let packing = Packing::of(text);
    push_number(bytes, (text.len() as u64) << 2 | packing as u64);
    // Each arm is compiled with its own shifts.
    match packing {
        Bytes => bytes.extend_from_slice(text),
        Five => pack(Five, bytes, text),
        Six => pack(Six, bytes, text),
        Seven => pack(Seven, bytes, text),
    }
}

#[inline(always)]
fn pack(packing: Packing, bytes: &mut Vec<u8>, text: &[u8]) {
    let bits = packing.bits();
    let mut at = bytes.len();
    let end = at + (text.len() * bits).div_ceil(8);
    bytes.resize(end + 2 * WORD, 0);
    words(text).for_each(|word| {
        // The next word overwrites what follows the bits.
        bytes[at..at + WORD].copy_from_slice(&packing.squeezed(word).to_le_bytes());
        // Eight characters have as many bytes as one has bits.
        at += bits;
    });
    bytes.truncate(end);
}

/// Takes a string from the beginning of `bytes`, and appends it to `text`.
pub fn take(bytes: &mut &[u8], text: &mut Vec<u8>) {
    let head = take_number(bytes);
    let (length, packing) = ((head >> 2) as usize, Packing::ALL[head as usize % 4]);
    match packing {
        Bytes => text.extend_from_slice(&bytes[..length]),
        Five => unpack(Five, bytes, length, text),
        Six => unpack(Six, bytes, length, text),
        Seven => unpack(Seven, bytes, length, text),
    }
    *bytes = &bytes[(length * packing.bits()).div_ceil(8)..];
}

#[inline(always)]
fn unpack(packing: Packing, bytes: &[u8], length: usize, text: &mut Vec<u8>) {
    let start = text.len();
    text.resize(start + length.next_multiple_of(WORD), 0);
    let (words, _) = text[start..].as_chunks_mut::<WORD>();
    let mut at = 0;
    for word in words {
        let bits = match bytes.get(at..at + WORD) {
            Some(bits) => u64::from_le_bytes(bits.try_into().expect("a slice of 8 bytes")),
            None => number(&bytes[at..]),
        };
        *word = exchanged(packing.spread(bits)).to_le_bytes();
        at += packing.bits();
    }
    text.truncate(start + length);
}

/// The number whose bytes, of which the first is the lowest, are these, fewer than eight.
fn number(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |word, &byte| word << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packed(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        push(&mut bytes, text);
        bytes
    }

    proptest! {
        #[test]
        fn strings_come_back_and_different_ones_have_different_bytes(
            strings in prop::collection::vec(
                "[a-z]{0,40}|[a-z0-9_/:. -]{0,300}|[ -~\x7f_]{0,40}|[\x00-\x7f]{0,20}|.{0,20}|[a_\x7f]{0,3}",
                0..20,
            ),
        ) {
            // Side by side, as in a row.
            let all = strings.iter().flat_map(|text| packed(text)).collect::<Vec<u8>>();
            let (mut rest, mut back) = (&all[..], b"before".to_vec());
            for text in &strings {
                take(&mut rest, &mut back);
                prop_assert!(back.ends_with(text.as_bytes()));
            }
            prop_assert!(rest.is_empty());
            let all = strings.concat();
            prop_assert_eq!(&back[6..], all.as_bytes());
            for one in &strings {
                for other in &strings {
                    prop_assert_eq!(packed(one) == packed(other), one == other);
                }
            }
        }
    }

    #[test]
    fn few_characters_take_few_bits() {
        let bits = |text: &str| (packed(text).len() - 1) * 8 / text.len();
        assert_eq!(bits("abcdefgh"), 5);
        assert_eq!(bits("https://a.b/c_d?e=12&f=1"), 6);
        assert_eq!(bits("7a3f91c2-08be-11"), 6);
        assert_eq!(bits("ABCDefgh"), 7);
        assert_eq!(bits("aäüaäü"), 8);
        assert_eq!(bits("\u{7f}bcdefgh"), 7, "the one that _ is exchanged with");
        assert_eq!(packed(""), [1 << 0]);
    }
}
