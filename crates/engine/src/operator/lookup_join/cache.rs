//! A cache of a table's answers.
//!
//! The cache has two generations: new and used entries go into the young one, and when that is full it
//! becomes the old one, and the rest of the old one is forgotten. So entries that are used often stay,
//! each step takes the same short time, and nothing has to be sorted.

use std::sync::Arc;

use hashbrown::HashTable;

use crate::key::Key;

/// The settings of a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheSettings {
    /// The most rows; a key without rows counts as one. 0: nothing is kept from one chunk to the next.
    pub rows_max: usize,
    /// The time, in nanoseconds, after which the table is asked again; `None` for never.
    pub ttl_ns: Option<u64>,
}

/// A table's answer for a key.
#[derive(Debug, Default)]
pub struct Entry {
    /// Its rows, encoded.
    pub rows: Vec<Box<[u8]>>,
    /// Why one of the rows can't be read.
    pub failure: Option<String>,
    /// When the table was asked.
    asked_ns: u64,
}

impl Entry {
    /// An answer without rows.
    pub fn new(asked_ns: u64) -> Entry {
        Entry {
            asked_ns,
            ..Entry::default()
        }
    }

    /// How many rows it counts for.
    fn weight(&self) -> usize {
        self.rows.len().max(1)
    }

    fn bytes(&self) -> usize {
        let rows = self.rows.iter();
        let rows = rows.map(|row| row.len() + std::mem::size_of::<Box<[u8]>>());
        rows.sum::<usize>() + std::mem::size_of::<Entry>()
    }
}

struct Slot {
    hash: u64,
    key: Box<[u8]>,
    entry: Arc<Entry>,
}

/// Entries by their keys.
pub struct Cache {
    settings: CacheSettings,
    young: HashTable<Slot>,
    young_rows: usize,
    young_bytes: usize,
    old: HashTable<Slot>,
    old_bytes: usize,
}

impl Cache {
    pub fn new(settings: CacheSettings) -> Cache {
        Cache {
            settings,
            young: HashTable::new(),
            young_rows: 0,
            young_bytes: 0,
            old: HashTable::new(),
            old_bytes: 0,
        }
    }

    /// The entry of a key, if it is not too old.
    pub fn get(&mut self, key: Key<'_>, now_ns: u64) -> Option<Arc<Entry>> {
        let ttl_ns = self.settings.ttl_ns.unwrap_or(u64::MAX);
        let is_fresh = |entry: &Entry| now_ns.saturating_sub(entry.asked_ns) < ttl_ns;
        let same = |slot: &Slot| *slot.key == *key.bytes();
        if let Some(slot) = self.young.find(key.hash(), same) {
            return is_fresh(&slot.entry).then(|| slot.entry.clone());
        }
        let slot = self.old.find_entry(key.hash(), same).ok()?.remove().0;
        self.old_bytes = self.old_bytes.saturating_sub(bytes(&slot));
        if !is_fresh(&slot.entry) {
            return None;
        }
        let entry = slot.entry.clone();
        self.add(slot);
        Some(entry)
    }

    /// Stores the entry of a key.
    pub fn insert(&mut self, key: Key<'_>, entry: Arc<Entry>) {
        if self.settings.rows_max == 0 {
            return;
        }
        // Replaces an entry that was too old.
        let same = |slot: &Slot| *slot.key == *key.bytes();
        if let Ok(found) = self.young.find_entry(key.hash(), same) {
            let slot = found.remove().0;
            self.young_rows -= slot.entry.weight();
            self.young_bytes -= bytes(&slot);
        }
        self.add(Slot {
            hash: key.hash(),
            key: key.bytes().into(),
            entry,
        });
    }

    fn add(&mut self, slot: Slot) {
        // Both generations together hold at most `rows_max`.
        let rows_max = (self.settings.rows_max / 2).max(1);
        let weight = slot.entry.weight();
        if weight > rows_max {
            return;
        }
        if self.young_rows + weight > rows_max {
            self.old = std::mem::take(&mut self.young);
            self.old_bytes = self.young_bytes;
            (self.young_rows, self.young_bytes) = (0, 0);
        }
        self.young_rows += weight;
        self.young_bytes += bytes(&slot);
        self.young.insert_unique(slot.hash, slot, |slot| slot.hash);
    }

    /// About how many bytes it holds.
    pub fn bytes(&self) -> usize {
        self.young_bytes + self.old_bytes
    }
}

fn bytes(slot: &Slot) -> usize {
    std::mem::size_of::<Slot>() + slot.key.len() + slot.entry.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: &[u8; 1]) -> Key<'_> {
        Key::stored(u64::from(bytes[0]), bytes)
    }

    fn entry(rows: usize, asked_ns: u64) -> Arc<Entry> {
        Arc::new(Entry {
            rows: vec![[1u8].into(); rows],
            failure: None,
            asked_ns,
        })
    }

    /// The keys in the cache, without marking them as used.
    fn keys(cache: &Cache) -> Vec<u8> {
        let slots = cache.young.iter().chain(&cache.old);
        let mut keys = slots.map(|slot| slot.key[0]).collect::<Vec<u8>>();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn what_is_used_stays_and_the_limit_holds() {
        let settings = CacheSettings {
            rows_max: 8,
            ttl_ns: None,
        };
        let mut cache = Cache::new(settings);
        for number in 0..100u8 {
            cache.insert(key(&[number]), entry(0, 0));
            assert!(cache.get(key(&[0]), 0).is_some(), "the hot key stays");
            assert!(keys(&cache).len() <= 8);
        }
        assert!(cache.get(key(&[98]), 0).is_some() && cache.get(key(&[5]), 0).is_none());
        // A key with many rows displaces others; a key with too many is not kept.
        cache.insert(key(&[200]), entry(4, 0));
        cache.insert(key(&[201]), entry(5, 0));
        assert!(cache.get(key(&[200]), 0).is_some() && cache.get(key(&[201]), 0).is_none());
        let weight = |slot: &Slot| slot.entry.weight();
        let slots = cache.young.iter().chain(&cache.old);
        assert!(slots.map(weight).sum::<usize>() <= 8);
        cache.young.clear();
        cache.old.clear();
        assert_eq!(keys(&cache), Vec::<u8>::new());
    }

    #[test]
    fn what_is_old_is_asked_for_again() {
        let settings = CacheSettings {
            rows_max: 10,
            ttl_ns: Some(100),
        };
        let mut cache = Cache::new(settings);
        cache.insert(key(&[1]), entry(1, 1_000));
        assert!(cache.get(key(&[1]), 1_099).is_some());
        assert!(cache.get(key(&[1]), 1_100).is_none());
        cache.insert(key(&[1]), entry(2, 1_100));
        assert_eq!(cache.get(key(&[1]), 1_150).unwrap().rows.len(), 2);
        let all = cache.young.iter().map(bytes).sum::<usize>();
        assert_eq!(cache.bytes(), all, "the old one is not counted any more");
    }

    #[test]
    fn without_room_nothing_is_kept() {
        let mut cache = Cache::new(CacheSettings::default());
        cache.insert(key(&[1]), entry(1, 0));
        assert!(cache.get(key(&[1]), 0).is_none());
        assert_eq!(cache.bytes(), 0);
    }
}
