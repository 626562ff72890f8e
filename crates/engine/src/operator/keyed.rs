//! State by key, and which key is due next.
//!
//! A key is found by its hash and its encoded columns, and has a number while it is kept. Each key may be
//! *due* at a time; due keys are returned in the order of their times, so that a watermark touches only
//! the keys that it concerns.

use std::collections::BTreeSet;

use hashbrown::HashTable;

use crate::key::Key;
use crate::state::{BucketSet, Mark, Touched};
use crate::time::EventTime;

/// Values by key.
pub struct Keyed<T> {
    by_key: HashTable<u32>,
    entries: Vec<Option<Entry<T>>>,
    /// Numbers that no key uses.
    free: Vec<u32>,
    due: BTreeSet<(EventTime, u32)>,
    /// When the value of each number last changed.
    touched: Touched,
}

struct Entry<T> {
    hash: u64,
    key: Box<[u8]>,
    due: Option<EventTime>,
    value: T,
}

impl<T> Default for Keyed<T> {
    fn default() -> Keyed<T> {
        Keyed {
            by_key: HashTable::new(),
            entries: Vec::new(),
            free: Vec::new(),
            due: BTreeSet::new(),
            touched: Touched::default(),
        }
    }
}

impl<T> Keyed<T> {
    fn entry(&self, number: u32) -> &Entry<T> {
        let entry = self.entries[number as usize].as_ref();
        entry.expect("the number of a key that is kept")
    }

    fn entry_mut(&mut self, number: u32) -> &mut Entry<T> {
        let entry = self.entries[number as usize].as_mut();
        entry.expect("the number of a key that is kept")
    }

    /// The number of a key, if it is kept.
    pub fn find(&self, key: Key<'_>) -> Option<u32> {
        let same = |&number: &u32| *self.entry(number).key == *key.bytes();
        self.by_key.find(key.hash(), same).copied()
    }

    /// The number of a key, which is inserted if it is new.
    pub fn find_or_insert(&mut self, key: Key<'_>, value: impl FnOnce() -> T) -> u32 {
        if let Some(number) = self.find(key) {
            return number;
        }
        let hash = key.hash();
        let entry = Entry {
            hash,
            key: key.bytes().into(),
            due: None,
            value: value(),
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.entries[number as usize] = Some(entry);
                number
            }
            None => {
                self.entries.push(Some(entry));
                self.touched.grow(self.entries.len());
                self.entries.len() as u32 - 1
            }
        };
        let entries = &self.entries;
        let hash_of = |&other: &u32| {
            let entry = entries[other as usize].as_ref();
            entry.map_or(hash, |entry| entry.hash)
        };
        self.by_key.insert_unique(hash, number, hash_of);
        number
    }

    /// The encoded columns of a key.
    pub fn key(&self, number: u32) -> &[u8] {
        &self.entry(number).key
    }

    /// Whether a key with this number is kept.
    pub fn contains(&self, number: u32) -> bool {
        let entry = self.entries.get(number as usize);
        entry.is_some_and(Option::is_some)
    }

    /// The value of a key.
    pub fn get(&self, number: u32) -> &T {
        &self.entry(number).value
    }

    /// The value of a key, mutable.
    pub fn get_mut(&mut self, number: u32) -> &mut T {
        &mut self.entry_mut(number).value
    }

    /// Notes that the value of a key changes.
    pub fn touch(&mut self, number: u32, mark: Mark) {
        self.touched.touch(number, mark);
    }

    /// The keys of `buckets` whose values changed since `since`.
    pub fn changed(&mut self, buckets: &BucketSet, since: Mark) -> Vec<u32> {
        let mut numbers = self.touched.since(since);
        numbers.retain(|&number| {
            let entry = self.entries[number as usize].as_ref();
            entry.is_some_and(|entry| buckets.contains_hash(entry.hash))
        });
        numbers
    }

    /// Sets when a key is due.
    pub fn set_due(&mut self, number: u32, due: Option<EventTime>) {
        let before = std::mem::replace(&mut self.entry_mut(number).due, due);
        if before == due {
            return;
        }
        if let Some(before) = before {
            self.due.remove(&(before, number));
        }
        if let Some(due) = due {
            self.due.insert((due, number));
        }
    }

    /// The key that is due first, if it is due by `time`.
    pub fn first_due(&self, time: EventTime) -> Option<u32> {
        let (due, number) = self.due.first()?;
        (*due <= time).then_some(*number)
    }

    /// Forgets a key.
    pub fn remove(&mut self, number: u32) -> T {
        self.set_due(number, None);
        let entry = self.entries[number as usize].take();
        let entry = entry.expect("the number of a key that is kept");
        if let Ok(found) = self.by_key.find_entry(entry.hash, |&other| other == number) {
            found.remove();
        }
        self.free.push(number);
        entry.value
    }

    /// All keys: number, hash and value.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64, &T)> {
        let entries = self.entries.iter().enumerate();
        entries.filter_map(|(number, entry)| {
            let entry = entry.as_ref()?;
            Some((number as u32, entry.hash, &entry.value))
        })
    }

    /// The numbers of the keys for whose hash `of_hash` is true.
    pub fn numbers(&self, of_hash: impl Fn(u64) -> bool) -> Vec<u32> {
        let wanted = self.iter().filter(|(_, hash, _)| of_hash(*hash));
        wanted.map(|(number, ..)| number).collect()
    }

    /// Forgets all keys.
    pub fn clear(&mut self) {
        *self = Keyed::default();
    }

    /// About how many bytes the keys take, without their values' own memory.
    pub fn bytes(&self) -> usize {
        self.by_key.allocation_size()
            + self.entries.capacity() * size_of::<Option<Entry<T>>>()
            + self.due.len() * size_of::<(EventTime, u32)>()
            + self.touched.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_one_hash_are_told_apart_and_numbers_are_used_again() {
        let mut keyed = Keyed::default();
        let a = keyed.find_or_insert(Key::stored(7, b"a"), || 1);
        let b = keyed.find_or_insert(Key::stored(7, b"b"), || 2);
        assert_eq!(keyed.find_or_insert(Key::stored(7, b"a"), || 3), a);
        *keyed.get_mut(a) += 10;
        assert_eq!((*keyed.get(a), *keyed.get(b)), (11, 2));
        assert_eq!(keyed.remove(a), 11);
        assert_eq!(keyed.find(Key::stored(7, b"a")), None);
        assert_eq!(keyed.find(Key::stored(7, b"b")), Some(b));
        assert_eq!(keyed.find_or_insert(Key::stored(9, b"c"), || 4), a);
        assert_eq!(keyed.numbers(|hash| hash == 7), [b]);
    }

    #[test]
    fn keys_come_out_when_they_are_due() {
        let mut keyed = Keyed::default();
        let a = keyed.find_or_insert(Key::stored(1, b"a"), || ());
        let b = keyed.find_or_insert(Key::stored(2, b"b"), || ());
        keyed.set_due(a, Some(20));
        keyed.set_due(b, Some(10));
        assert_eq!(keyed.first_due(9), None);
        assert_eq!(keyed.first_due(30), Some(b));
        keyed.set_due(b, Some(30));
        assert_eq!(keyed.first_due(30), Some(a));
        keyed.remove(a);
        assert_eq!((keyed.first_due(29), keyed.first_due(30)), (None, Some(b)));
        keyed.set_due(b, None);
        assert_eq!(keyed.first_due(30), None);
    }
}
