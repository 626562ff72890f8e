//! The rows of one key in order, side by side in memory.
//!
//! Most keys have few rows, and separate memory for each row, a tree node and the key costs more than the
//! rows: a third of a join's CPU time went to `malloc` and `free`. Here a key and its rows are one
//! allocation until they outgrow a page; then the page is split in two, as a leaf of a B-tree is.

use super::Kept;
use super::head::{Head, row_at};

/// A page with more bytes is split, if it has two rows.
const PAGE_BYTES: usize = 1024;

/// A page that is emptier than this fraction, after rows were removed, is made smaller.
const UNUSED: usize = 4;

/// Records, each a [head](super::head) and a row, in order of the rows.
type Page = Vec<u8>;

/// A key, and its rows in order.
#[derive(Default)]
pub struct SortedRows {
    key_bytes: u32,
    /// The key, then records.
    first: Page,
    /// Further records; none of these pages is empty. Pages that have shrunk are not merged: rows of a
    /// key seldom come and go at random.
    more: Vec<Page>,
}

/// Where a row is, or belongs.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    page: usize,
    at: usize,
}

impl SortedRows {
    /// A key without rows.
    pub fn new(key: &[u8]) -> SortedRows {
        SortedRows {
            key_bytes: key.len() as u32,
            first: key.to_vec(),
            more: Vec::new(),
        }
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.first[..self.key_bytes as usize]
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.more.is_empty() && self.first.len() == self.key_bytes as usize
    }

    fn page(&self, page: usize) -> &Page {
        match page {
            0 => &self.first,
            _ => &self.more[page - 1],
        }
    }

    fn page_mut(&mut self, page: usize) -> &mut Page {
        match page {
            0 => &mut self.first,
            _ => &mut self.more[page - 1],
        }
    }

    fn start(&self, page: usize) -> usize {
        match page {
            0 => self.key_bytes as usize,
            _ => 0,
        }
    }

    /// The place of a row (`Ok`), or where it belongs.
    pub fn find(&self, row: &[u8]) -> Result<Place, Place> {
        let page = self.more.partition_point(|page| row_at(page, 0).0 <= row);
        let records = self.page(page);
        let mut at = self.start(page);
        while at < records.len() {
            let (there, next) = row_at(records, at);
            match there.cmp(row) {
                std::cmp::Ordering::Less => at = next,
                std::cmp::Ordering::Equal => return Ok(Place { page, at }),
                std::cmp::Ordering::Greater => break,
            }
        }
        Err(Place { page, at })
    }

    /// The entry of the row there.
    pub fn kept(&self, place: Place) -> Kept {
        Head::at(self.page(place.page), place.at).kept
    }

    /// Changes the entry of the row there.
    pub fn set(&mut self, place: Place, kept: Kept) {
        set_at(self.page_mut(place.page), place.at, kept);
    }

    /// Inserts a row where [`SortedRows::find`] says that it belongs.
    pub fn insert(&mut self, place: Place, row: &[u8], kept: Kept) {
        let start = self.start(place.page);
        let page = self.page_mut(place.page);
        let head = Head::new(kept, row.len());
        let head = head.bytes();
        let old_end = page.len();
        let bytes = head.len() + row.len();
        // No more than that: what is unused in pages that grow by a fraction is a fifth of all memory.
        page.reserve_exact(bytes);
        page.resize(old_end + bytes, 0);
        page.copy_within(place.at..old_end, place.at + bytes);
        let record = &mut page[place.at..place.at + bytes];
        record[..head.len()].copy_from_slice(&head);
        record[head.len()..].copy_from_slice(row);
        if page.len() - start > PAGE_BYTES {
            self.split(place.page);
        }
    }

    /// Moves the records after the middle of a page to a page of their own.
    fn split(&mut self, index: usize) {
        let start = self.start(index);
        let page = self.page_mut(index);
        let middle = start + (page.len() - start) / 2;
        let mut at = row_at(page, start).1;
        while at < middle {
            let next = row_at(page, at).1;
            if next > middle {
                break;
            }
            at = next;
        }
        if at < page.len() {
            let upper = page.split_off(at);
            fit(page);
            self.more.reserve_exact(1);
            self.more.insert(index, upper);
        }
    }

    /// Removes the row there.
    pub fn remove(&mut self, place: Place) {
        let page = self.page_mut(place.page);
        let next = row_at(page, place.at).1;
        page.drain(place.at..next);
        if page.capacity() - page.len() > page.capacity() / UNUSED {
            fit(page);
        }
        if place.page > 0 && page.is_empty() {
            self.more.remove(place.page - 1);
        }
    }

    /// The last row and its place.
    pub fn last(&self) -> Option<(&[u8], Place)> {
        // Only the first page may have no rows, and then it is the last one, or others have rows.
        let page = self.more.len();
        let records = self.page(page);
        let (mut at, mut last) = (self.start(page), None);
        while at < records.len() {
            let (row, next) = row_at(records, at);
            last = Some((row, Place { page, at }));
            at = next;
        }
        last
    }

    /// All rows in order, with their entries.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Kept)> {
        let pages = std::iter::once((&self.first, self.key_bytes as usize));
        let pages = pages.chain(self.more.iter().map(|page| (page, 0)));
        pages.flat_map(|(page, start)| Records { page, at: start })
    }

    /// Changes the entries of rows, in order.
    pub fn for_each_mut(&mut self, mut change: impl FnMut(&mut Kept)) {
        let start = self.key_bytes as usize;
        let pages = std::iter::once((&mut self.first, start));
        for (page, start) in pages.chain(self.more.iter_mut().map(|page| (page, 0))) {
            let mut at = start;
            while at < page.len() {
                let mut kept = Head::at(page, at).kept;
                change(&mut kept);
                set_at(page, at, kept);
                at = row_at(page, at).1;
            }
        }
    }

    /// Keeps the rows for which `stays` is true.
    pub fn retain(&mut self, mut stays: impl FnMut(&[u8], Kept) -> bool) {
        let start = self.key_bytes as usize;
        let pages = std::iter::once((&mut self.first, start));
        for (page, start) in pages.chain(self.more.iter_mut().map(|page| (page, 0))) {
            let (mut at, mut end) = (start, start);
            while at < page.len() {
                let (row, next) = row_at(page, at);
                if stays(row, Head::at(page, at).kept) {
                    page.copy_within(at..next, end);
                    end += next - at;
                }
                at = next;
            }
            page.truncate(end);
            fit(page);
        }
        self.more.retain(|page| !page.is_empty());
    }
}

/// Moves a page into memory of its size. (Made smaller in place, it could keep up to twice as much.)
fn fit(page: &mut Page) {
    *page = page.as_slice().to_vec();
}

/// Changes the entry of the record at `at`, whose head may get another length.
fn set_at(page: &mut Page, at: usize, kept: Kept) {
    let head = Head::at(page, at);
    let length = head.bytes().len();
    let changed = Head { kept, ..head };
    let bytes = changed.bytes();
    match bytes.len() == length {
        true => page[at..at + length].copy_from_slice(&bytes),
        false => {
            page.reserve_exact(bytes.len().saturating_sub(length));
            page.splice(at..at + length, bytes.iter().copied());
        }
    }
}

struct Records<'p> {
    page: &'p [u8],
    at: usize,
}

impl<'p> Iterator for Records<'p> {
    type Item = (&'p [u8], Kept);

    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.page.len() {
            return None;
        }
        let kept = Head::at(self.page, self.at).kept;
        let (row, next) = row_at(self.page, self.at);
        self.at = next;
        Some((row, kept))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::state::Mark;

    fn kept(count: u32) -> Kept {
        Kept {
            count,
            partners: count % 3,
            touched_at: -3,
            mark: Mark(count % 2),
        }
    }

    fn content(rows: &SortedRows) -> Vec<(Vec<u8>, u32)> {
        let all = rows.iter().map(|(row, kept)| (row.to_vec(), kept.count));
        all.collect()
    }

    proptest! {
        #[test]
        fn they_are_what_a_tree_of_them_is(
            key in prop::collection::vec(any::<u8>(), 0..20),
            steps in prop::collection::vec((0u32..60, 0usize..3, 0usize..700, any::<bool>()), 0..200),
        ) {
            let mut rows = SortedRows::new(&key);
            let mut tree = BTreeMap::<Vec<u8>, u32>::new();
            for (count, (number, letters, length, removes)) in steps.into_iter().enumerate() {
                // Rows of all lengths, also longer than a page, and some with a common prefix.
                let mut row = number.to_be_bytes().to_vec();
                row.extend(std::iter::repeat_n(b'x', letters * length));
                match (rows.find(&row), removes) {
                    (Ok(place), true) => {
                        prop_assert_eq!(tree.remove(&row), Some(rows.kept(place).count));
                        rows.remove(place);
                    }
                    (Ok(place), false) => {
                        rows.set(place, kept(count as u32));
                        *tree.get_mut(&row).unwrap() = count as u32;
                    }
                    (Err(_), true) => prop_assert!(!tree.contains_key(&row)),
                    (Err(place), false) => {
                        rows.insert(place, &row, kept(count as u32));
                        tree.insert(row, count as u32);
                    }
                }
                prop_assert_eq!(rows.is_empty(), tree.is_empty());
                prop_assert_eq!(rows.last().map(|(row, _)| row), tree.keys().last().map(|row| &row[..]));
            }
            prop_assert_eq!(rows.key(), &key[..]);
            prop_assert_eq!(content(&rows), tree.clone().into_iter().collect::<Vec<_>>());
            rows.for_each_mut(|kept| kept.count += 1);
            rows.retain(|_, kept| kept.count % 3 > 0);
            let rest = tree.into_iter().map(|(row, count)| (row, count + 1));
            let rest = rest.filter(|(_, count)| count % 3 > 0);
            prop_assert_eq!(content(&rows), rest.collect::<Vec<_>>());
        }
    }
}
