//! A slab: entries don't move when it grows.

use super::OfKey;

const BLOCK: usize = 1024;

/// Entries by number. One without rows is free.
#[derive(Default)]
pub struct Slab {
    /// All blocks but the last are full: a single vector would copy all entries each time that it grows.
    blocks: Vec<Vec<OfKey>>,
    free: Vec<u32>,
}

impl Slab {
    /// Keeps an entry; returns its number.
    pub fn add(&mut self, of_key: OfKey) -> u32 {
        if let Some(place) = self.free.pop() {
            *self.get_mut(place) = of_key;
            return place;
        }
        if self.blocks.last().is_none_or(|last| last.len() == BLOCK) {
            self.blocks.push(Vec::with_capacity(BLOCK));
        }
        let before = (self.blocks.len() - 1) * BLOCK;
        let last = self.blocks.last_mut().expect("added just above");
        last.push(of_key);
        (before + last.len() - 1) as u32
    }

    /// The entry of a number.
    pub fn get(&self, place: u32) -> &OfKey {
        &self.blocks[place as usize / BLOCK][place as usize % BLOCK]
    }

    /// The entry of a number.
    pub fn get_mut(&mut self, place: u32) -> &mut OfKey {
        &mut self.blocks[place as usize / BLOCK][place as usize % BLOCK]
    }

    /// Frees an entry.
    pub fn remove(&mut self, place: u32) {
        *self.get_mut(place) = OfKey::default();
        self.free.push(place);
    }

    /// All entries that aren't free.
    pub fn iter(&self) -> impl Iterator<Item = &OfKey> {
        let all = self.blocks.iter().flatten();
        all.filter(|of_key| !of_key.rows.is_empty())
    }
}
