//! What the toy query reads, and what it must have computed of that.

use std::collections::BTreeMap;

use super::ledger::Entry;
use super::random::mix;

/// The number of keys of the query.
const KEYS: u64 = 40;

/// The sum of each key.
pub type Sums = BTreeMap<u64, u64>;

/// The input of the sources: rows of each partition.
#[derive(Debug, Clone)]
pub struct Data(pub Vec<u64>);

impl Data {
    pub fn key(partition: u32, position: u64) -> u64 {
        mix(u64::from(partition) << 32 | position) % KEYS
    }

    /// The entries that must be in the ledger at the end.
    pub fn wanted(&self) -> Vec<Entry> {
        let all = self.0.iter().enumerate();
        let all = all.map(|(partition, &rows)| (partition as u32, rows));
        let mut entries = Vec::new();
        for (partition, rows) in all.clone() {
            let row = |position| Entry::Row {
                partition,
                position,
            };
            entries.extend((0..rows).map(row));
        }
        let sums = Data::sums(all).into_iter();
        entries.extend(sums.map(|(key, sum)| Entry::Sum { key, sum }));
        entries
    }

    /// The sums of the rows before these positions, by partition.
    pub fn sums(positions: impl Iterator<Item = (u32, u64)>) -> Sums {
        let mut sums = Sums::new();
        for (partition, end) in positions {
            for position in 0..end {
                *sums.entry(Data::key(partition, position)).or_default() += position + 1;
            }
        }
        sums
    }
}
