//! The distinct values of many groups, in one table.
//!
//! A table and boxed values for each group cost an allocation per value, and a few cache lines for each
//! look-up. Here a value that fits into 64 bits is part of its entry, entries stand in blocks in the order in
//! which they came, and a table holds their numbers. The entries of a group are a list, the last one first.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// Entries of a block: 64 KiB. Entries don't move when their number grows.
const BLOCK: usize = 4096;

/// The number of an entry that doesn't exist, and the group of one that was forgotten.
const NONE: u32 = u32::MAX;

/// The distinct values of groups.
#[derive(Default)]
pub struct Seen {
    /// The entries' numbers, by their hashes.
    table: HashTable<u32>,
    /// All blocks but the last are full.
    blocks: Vec<Vec<Entry>>,
    /// The last entry of each group.
    last: Vec<u32>,
    /// The bytes of values that don't fit into an entry, each after its length.
    bytes: Vec<u8>,
    /// Entries that were forgotten and are still in their blocks.
    forgotten: usize,
    hasher: FixedState,
}

#[derive(Clone, Copy)]
struct Entry {
    /// The value, or where its length and bytes are.
    word: u64,
    group: u32,
    /// The entry of the same group that came before.
    previous: u32,
}

impl Seen {
    /// Sets the number of groups; the values of those above it are forgotten.
    pub fn resize(&mut self, groups: usize) {
        if groups == 0 {
            self.table.clear();
            self.blocks.truncate(1);
            self.blocks.iter_mut().for_each(Vec::clear);
            self.bytes.clear();
            self.forgotten = 0;
        } else {
            let above = groups as u32..self.last.len() as u32;
            self.reset(&above.collect::<Vec<u32>>());
        }
        self.last.resize(groups, NONE);
    }

    /// Forgets the values of some groups.
    pub fn reset(&mut self, groups: &[u32]) {
        for &group in groups {
            let mut number = std::mem::replace(&mut self.last[group as usize], NONE);
            while number != NONE {
                let entry = *self.entry(number);
                let found = self
                    .table
                    .find_entry(self.hash_of(&entry), |&it| it == number);
                found.expect("every entry is in the table").remove();
                self.blocks[number as usize / BLOCK][number as usize % BLOCK].group = NONE;
                self.forgotten += 1;
                number = entry.previous;
            }
        }
        if self.forgotten > self.count() / 2 {
            self.compact();
        }
    }

    /// Frees the entries that were forgotten. The bytes of their values stay until all groups are forgotten.
    fn compact(&mut self) {
        let old = std::mem::take(&mut self.blocks);
        self.table.clear();
        self.last.fill(NONE);
        self.forgotten = 0;
        for entry in old.into_iter().flatten().filter(|it| it.group != NONE) {
            let hash = self.hash_of(&entry);
            self.push(hash, entry.group, entry.word);
        }
    }

    fn entry(&self, number: u32) -> &Entry {
        &self.blocks[number as usize / BLOCK][number as usize % BLOCK]
    }

    fn count(&self) -> usize {
        let full = self.blocks.len().saturating_sub(1) * BLOCK;
        full + self.blocks.last().map_or(0, Vec::len)
    }

    fn hash_word(&self, group: u32, word: u64) -> u64 {
        self.hasher.hash_one((word, group))
    }

    fn hash_bytes(&self, group: u32, value: &[u8]) -> u64 {
        self.hasher.hash_one((value, group))
    }

    /// The bytes at a place.
    fn bytes_at(&self, place: u64) -> &[u8] {
        let start = place as usize + 4;
        let length: [u8; 4] = self.bytes[place as usize..start]
            .try_into()
            .expect("a slice of 4 bytes");
        &self.bytes[start..start + u32::from_le_bytes(length) as usize]
    }

    fn hash_of(&self, entry: &Entry) -> u64 {
        // All values of an accumulator are of one kind.
        match self.bytes.is_empty() {
            true => self.hash_word(entry.group, entry.word),
            false => self.hash_bytes(entry.group, self.bytes_at(entry.word)),
        }
    }

    /// Adds a value that is a word; returns whether it is new to its group.
    #[inline]
    pub fn insert_word(&mut self, group: u32, word: u64) -> bool {
        let hash = self.hash_word(group, word);
        let is_it = |&number: &u32| {
            let entry = self.entry(number);
            (entry.word == word) & (entry.group == group)
        };
        let is_new = self.table.find(hash, is_it).is_none();
        if is_new {
            self.push(hash, group, word);
        }
        is_new
    }

    /// Adds a value of any length; returns whether it is new to its group.
    pub fn insert_bytes(&mut self, group: u32, value: &[u8]) -> bool {
        let hash = self.hash_bytes(group, value);
        let is_it = |&number: &u32| {
            let entry = self.entry(number);
            entry.group == group && self.bytes_at(entry.word) == value
        };
        let is_new = self.table.find(hash, is_it).is_none();
        if is_new {
            let place = self.bytes.len() as u64;
            let length = u32::try_from(value.len()).expect("a value has less than 4 GiB");
            self.bytes.extend_from_slice(&length.to_le_bytes());
            self.bytes.extend_from_slice(value);
            self.push(hash, group, place);
        }
        is_new
    }

    fn push(&mut self, hash: u64, group: u32, word: u64) {
        if self.table.len() == self.table.capacity() {
            self.grow();
        }
        let number = u32::try_from(self.count()).ok();
        let number = number.filter(|&number| number != NONE);
        let number = number.expect("fewer than 2^32 distinct values");
        let previous = std::mem::replace(&mut self.last[group as usize], number);
        if self.blocks.last().is_none_or(|last| last.len() == BLOCK) {
            // The first one grows: most windows have few values.
            let room = if self.blocks.is_empty() { 4 } else { BLOCK };
            self.blocks.push(Vec::with_capacity(room));
        }
        let block = self.blocks.last_mut().expect("added just above");
        block.push(Entry {
            word,
            group,
            previous,
        });
        self.table
            .insert_unique(hash, number, |_| unreachable!("the table has room"));
    }

    /// Makes a larger table. The entries are read in order; the table itself would read them at random.
    #[inline(never)]
    fn grow(&mut self) {
        let mut table = HashTable::with_capacity((self.table.len() * 2).max(4));
        let entries = (0u32..).zip(self.blocks.iter().flatten());
        for (number, entry) in entries.filter(|(_, it)| it.group != NONE) {
            table.insert_unique(self.hash_of(entry), number, |_| {
                unreachable!("the table has room")
            });
        }
        self.table = table;
    }

    /// The entries of a group, the last one first.
    fn entries(&self, group: u32) -> impl Iterator<Item = &Entry> {
        let of = |number: u32| (number != NONE).then(|| self.entry(number));
        std::iter::successors(of(self.last[group as usize]), move |entry| {
            of(entry.previous)
        })
    }

    /// The values of a group that are words, in the order in which they came.
    pub fn words(&self, group: u32) -> Vec<u64> {
        let mut words = self.entries(group).map(|it| it.word).collect::<Vec<u64>>();
        words.reverse();
        words
    }

    /// The values of a group that are bytes, in the order in which they came.
    pub fn values(&self, group: u32) -> Vec<&[u8]> {
        let values = self.entries(group).map(|it| self.bytes_at(it.word));
        let mut values = values.collect::<Vec<&[u8]>>();
        values.reverse();
        values
    }

    /// About how many bytes it holds.
    pub fn size(&self) -> usize {
        let entries = self.blocks.iter().map(Vec::capacity).sum::<usize>();
        entries * size_of::<Entry>()
            + self.table.allocation_size()
            + self.last.capacity() * 4
            + self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set_per_group(
            values in prop::collection::vec((0u32..5, 0u64..60), 0..400),
            is_bytes: bool,
            cut in 0usize..5,
        ) {
            let mut seen = Seen::default();
            seen.resize(5);
            let bytes_of = |word: u64| vec![word as u8; word as usize % 7];
            let mut sets = vec![HashSet::new(); 5];
            let mut lists = vec![vec![]; 5];
            let insert = |seen: &mut Seen,
                          sets: &mut Vec<HashSet<u64>>,
                          lists: &mut Vec<Vec<u64>>,
                          (group, word): (u32, u64)| {
                let (word, is_new) = match is_bytes {
                    // Values of no bytes are all the same.
                    true => (if word % 7 == 0 { 0 } else { word }, seen.insert_bytes(group, &bytes_of(word))),
                    false => (word, seen.insert_word(group, word)),
                };
                assert_eq!(is_new, sets[group as usize].insert(word));
                if is_new {
                    lists[group as usize].push(word);
                }
            };
            for &value in &values {
                insert(&mut seen, &mut sets, &mut lists, value);
            }
            // Some groups are forgotten; the others stay, and find their values again.
            let reset = (0..5u32).filter(|group| *group as usize % 2 == cut % 2);
            let reset = reset.collect::<Vec<u32>>();
            seen.reset(&reset);
            for &group in &reset {
                sets[group as usize].clear();
                lists[group as usize].clear();
            }
            seen.resize(cut);
            for &(group, word) in values.iter().filter(|(group, _)| (*group as usize) < cut) {
                insert(&mut seen, &mut sets, &mut lists, (group, word));
            }
            for group in 0..cut as u32 {
                let expected = &lists[group as usize];
                match is_bytes {
                    true => {
                        let expected = expected.iter().map(|&word| bytes_of(word));
                        prop_assert_eq!(seen.values(group), expected.collect::<Vec<_>>());
                    }
                    false => prop_assert_eq!(&seen.words(group), expected),
                }
            }
        }
    }

    #[test]
    fn there_may_be_more_values_than_a_block_has() {
        let mut seen = Seen::default();
        seen.resize(2);
        let count = 3 * BLOCK as u64 + 7;
        for word in 0..count {
            assert!(seen.insert_word(word as u32 % 2, word));
        }
        for word in 0..count {
            assert!(!seen.insert_word(word as u32 % 2, word));
        }
        assert_eq!(
            seen.words(1),
            (0..count).filter(|word| word % 2 == 1).collect::<Vec<_>>()
        );
        seen.resize(0);
        seen.resize(2);
        assert!(seen.insert_word(1, 1));
        assert_eq!(seen.words(1), [1]);
    }
}
