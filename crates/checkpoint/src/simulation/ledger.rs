//! The destination of rows: an external system with transactions.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Value, json};

/// A row, or the sum of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Entry {
    Row { partition: u32, position: u64 },
    Sum { key: u64, sum: u64 },
}

/// The name of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Transaction {
    pub epoch: u64,
    pub instance: u64,
    pub barrier: u64,
}

impl Transaction {
    pub fn of(value: &Value) -> Transaction {
        let number = |name: &str| value[name].as_u64().expect("a number");
        Transaction {
            epoch: number("epoch"),
            instance: number("instance"),
            barrier: number("barrier"),
        }
    }

    pub fn value(self) -> Value {
        json!({"epoch": self.epoch, "instance": self.instance, "barrier": self.barrier})
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Prepared(Vec<Entry>),
    Committed,
    GivenUp,
}

#[derive(Debug, Default)]
pub struct Ledger {
    transactions: BTreeMap<Transaction, State>,
    entries: HashMap<Entry, u32>,
    /// Set once something is wrong.
    pub wrong: Option<String>,
}

impl Ledger {
    pub fn prepare(&mut self, transaction: Transaction, entries: Vec<Entry>) {
        let known = self
            .transactions
            .insert(transaction, State::Prepared(entries));
        if let Some(known) = known {
            self.complain(format!(
                "{transaction:?} is prepared twice, it was {known:?}"
            ));
        }
    }

    /// `durable` are the transactions that a valid manifest has named.
    pub fn commit(&mut self, transaction: Transaction, durable: &HashSet<Transaction>) {
        if !durable.contains(&transaction) {
            self.complain(format!("{transaction:?} is in no manifest"));
        }
        let state = self.transactions.insert(transaction, State::Committed);
        match state {
            Some(State::Prepared(entries)) => {
                for entry in entries {
                    *self.entries.entry(entry).or_default() += 1;
                }
            }
            Some(State::Committed) => {}
            other => self.complain(format!("{transaction:?} is committed, and was {other:?}")),
        }
    }

    /// Discards what earlier incarnations have prepared, except for `pending`.
    pub fn give_up(&mut self, epoch: u64, pending: &[Transaction]) {
        for (transaction, state) in &mut self.transactions {
            let is_old = transaction.epoch < epoch && !pending.contains(transaction);
            if is_old && matches!(state, State::Prepared(_)) {
                *state = State::GivenUp;
            }
        }
    }

    pub fn complain(&mut self, reason: String) {
        self.wrong.get_or_insert(reason);
    }

    /// Checks that the ledger has every wanted entry once, and nothing else.
    pub fn check(&self, wanted: &[Entry]) -> Result<(), String> {
        for entry in wanted {
            match self.entries.get(entry) {
                Some(1) => {}
                None => return Err(format!("{entry:?} is lost")),
                Some(times) => return Err(format!("{entry:?} is there {times} times")),
            }
        }
        let wanted = wanted.iter().collect::<HashSet<&Entry>>();
        match self.entries.keys().find(|entry| !wanted.contains(entry)) {
            Some(entry) => Err(format!("{entry:?} is wrong")),
            None => Ok(()),
        }
    }
}
