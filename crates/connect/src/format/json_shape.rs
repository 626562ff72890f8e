//! The order in which the fields of an object are expected.
//!
//! Most producers write the fields of an object in the same order and with the same spaces. So each row
//! remembers, for each field, the bytes up to the value that came after it last time: `,"price":`. If the
//! same bytes come again, one comparison replaces the search for the end of the key, its comparison with the
//! columns' names, and the checks of the marks around it. An optional field changes one expectation, not all.

use wide::u8x16;

/// Longer keys are not expected.
const KEY_BYTES_MAX: usize = 32;

/// Keys that a row remembers; others are read without expectations. The number bounds the search for a key
/// that was not expected.
const KEYS_MAX: usize = 64;

/// What was expected after what.
#[derive(Debug)]
pub(super) struct Shape {
    keys: Vec<Key>,
}

/// The place in an object: after which of the remembered keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct After(u32);

/// The index of a key that is not there.
const NONE: u32 = u32::MAX;

/// After a key that is not remembered.
const LOST: After = After(1);

/// The bytes before a value: a bracket or comma, the key, a colon, and spaces between them.
#[derive(Debug, Clone)]
struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    length: usize,
    /// The bits of the bytes that are compared.
    compared: u32,
    /// The field with this key; `None` if it is not read.
    field: Option<u32>,
    /// The index of the key that comes next.
    next: u32,
}

impl Default for Shape {
    fn default() -> Shape {
        // The place before the first key, and LOST.
        let none = Key::new(&[], None);
        Shape {
            keys: vec![none.clone(), none],
        }
    }
}

impl Key {
    fn new(bytes: &[u8], field: Option<usize>) -> Key {
        let mut key = Key {
            bytes: [0; KEY_BYTES_MAX],
            length: bytes.len(),
            compared: ((1u64 << bytes.len()) - 1) as u32,
            field: field.map(|field| field as u32),
            next: NONE,
        };
        key.bytes[..bytes.len()].copy_from_slice(bytes);
        key
    }
}

impl Shape {
    /// The place before the first key.
    pub(super) const START: After = After(0);

    /// If the bytes at `block[at..]` are the expected ones: the place after them, which field they name, and
    /// where they end.
    #[inline(always)]
    pub(super) fn expected(
        &self,
        after: After,
        block: &[u8],
        at: usize,
    ) -> Option<(After, Option<usize>, usize)> {
        let next = self.keys[after.0 as usize].next;
        let key = self.keys.get(next as usize)?;
        let window = block.get(at..at + KEY_BYTES_MAX)?;
        let equal = |part: usize| {
            let of = |bytes: &[u8]| {
                let bytes: [u8; 16] = bytes[part * 16..part * 16 + 16]
                    .try_into()
                    .expect("there are two parts of 16");
                u8x16::from(bytes)
            };
            let equal = of(window).simd_eq(of(&key.bytes)).to_bitmask();
            equal << (part * 16)
        };
        let is_equal = (equal(0) | equal(1)) & key.compared == key.compared;
        is_equal.then(|| {
            let field = key.field.map(|field| field as usize);
            (After(next), field, at + key.length)
        })
    }

    /// Remembers the bytes that came instead, and which field they name.
    #[inline(never)]
    pub(super) fn learn(&mut self, after: After, bytes: &[u8], field: Option<usize>) -> After {
        if bytes.len() > KEY_BYTES_MAX {
            return LOST;
        }
        let is_same = |key: &Key| &key.bytes[..key.length] == bytes;
        let known = self.keys.iter().position(is_same);
        let next = match known {
            Some(known) => known as u32,
            None if self.keys.len() == KEYS_MAX => return LOST,
            None => {
                self.keys.push(Key::new(bytes, field));
                self.keys.len() as u32 - 1
            }
        };
        self.keys[after.0 as usize].next = next;
        After(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> Vec<u8> {
        format!("{text}{}", " ".repeat(KEY_BYTES_MAX)).into_bytes()
    }

    #[test]
    fn what_came_last_is_expected() {
        let mut shape = Shape::default();
        assert_eq!(shape.expected(Shape::START, &block("{\"a\":"), 0), None);
        let a = shape.learn(Shape::START, b"{\"a\":", Some(0));
        let b = shape.learn(a, b",\"b\":", None);
        let c = shape.learn(b, b",\"c\":", Some(2));
        let text = block("{\"a\":1,\"b\":2");
        assert_eq!(
            shape.expected(Shape::START, &text, 0),
            Some((a, Some(0), 5))
        );
        assert_eq!(shape.expected(a, &text, 6), Some((b, None, 11)));
        assert_eq!(shape.expected(b, &text, 6), None, "c comes after b");
        assert_eq!(shape.expected(c, &text, 6), None, "nothing came after c");
        // Without b, c comes after a, and is the same key as before.
        assert_eq!(shape.learn(a, b",\"c\":", Some(2)), c);
        assert_eq!(shape.expected(a, &text, 6), None);
        assert_eq!(
            shape.expected(a, &block(",\"c\":"), 0),
            Some((c, Some(2), 5))
        );
        let near_the_end = &text[..text.len() - 1];
        assert_eq!(shape.expected(Shape::START, &near_the_end[..31], 0), None);
    }

    #[test]
    fn long_keys_and_more_keys_than_the_limit_are_not_remembered() {
        let mut shape = Shape::default();
        let long = format!("{{\"{}\":", "x".repeat(KEY_BYTES_MAX - 4));
        let longer = format!("{{\"{}\":", "x".repeat(KEY_BYTES_MAX - 3));
        assert_ne!(shape.learn(Shape::START, long.as_bytes(), Some(1)), LOST);
        assert!(shape.expected(Shape::START, long.as_bytes(), 0).is_some());
        assert_eq!(
            shape.expected(Shape::START, &longer.as_bytes()[..32], 0),
            None
        );
        assert_eq!(shape.learn(Shape::START, longer.as_bytes(), Some(2)), LOST);
        for key in 0..2 * KEYS_MAX {
            let key = format!(",\"{key}\":");
            let after = shape.learn(LOST, key.as_bytes(), None);
            let known = shape.expected(LOST, &block(&key), 0).is_some();
            assert_eq!(known, after != LOST);
        }
        assert_eq!(shape.keys.len(), KEYS_MAX);
    }
}
