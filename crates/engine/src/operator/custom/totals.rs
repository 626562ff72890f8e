//! A function for tests over changelogs: it counts and sums the numbers of each key, as GROUP BY does, and
//! retracts the row of a key before it emits the next one.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int32Array, Int64Array};

use super::{Emitted, Event, Function, KeyStates, KeyedFactory, KeyedFunction, Reaction, Timers};
use crate::error::{Error, Result};

/// Makes [`Total`]s of the column `number`.
#[derive(Debug)]
pub struct Totals {
    pub number: usize,
    /// What is added to the sum of a row that is retracted: something other than 0 is a mistake.
    pub mistake: i64,
}

/// How many numbers, and their sum.
type State = (i64, i64);

struct Total {
    of: Totals,
    states: BTreeMap<u32, State>,
    rows: Vec<State>,
    retracted: Vec<usize>,
}

impl KeyedFactory for Totals {
    fn function(&self) -> Result<Function> {
        Ok(Function::Rows(Box::new(Total {
            of: Totals { ..*self },
            states: BTreeMap::new(),
            rows: Vec::new(),
            retracted: Vec::new(),
        })))
    }
}

impl KeyedFunction for Total {
    fn event(&mut self, key: u32, event: Event<'_>, _: &mut Timers<'_>) -> Reaction {
        let before = self.rows.len();
        let (mut failed, mut total) = (None, self.states.remove(&key).unwrap_or_default());
        if let Event::Row {
            batch,
            row,
            retracts,
            ..
        } = event
        {
            let numbers = batch.column(self.of.number).as_primitive::<Int64Type>();
            let number = numbers.value(row);
            if number % 10 == 7 {
                failed = Some("it ends in 7".to_string());
            } else {
                if total.0 > 0 {
                    self.retracted.push(self.rows.len());
                    self.rows.push((total.0, total.1 + self.of.mistake));
                }
                let sign = if retracts { -1 } else { 1 };
                total = (total.0 + sign, total.1 + sign * number);
                if total.0 > 0 {
                    self.rows.push(total);
                }
            }
        }
        if total.0 > 0 {
            self.states.insert(key, total);
        }
        Reaction {
            rows: self.rows.len() - before,
            keeps_state: total.0 > 0,
            failed,
        }
    }

    fn emitted(&mut self) -> Result<Emitted> {
        let rows = std::mem::take(&mut self.rows);
        let counts = rows.iter().map(|(count, _)| *count);
        let sums = rows.iter().map(|(_, sum)| *sum);
        Ok(Emitted {
            columns: vec![
                Arc::new(Int64Array::from_iter_values(counts)),
                Arc::new(Int64Array::from_iter_values(sums)),
                Arc::new(Int32Array::from(vec![0; rows.len()])),
            ],
            retracted: std::mem::take(&mut self.retracted),
        })
    }
}

impl KeyStates for Total {
    fn save(&mut self, keys: &[u32]) -> Result<Vec<ArrayRef>> {
        let states = keys.iter();
        let states = states.map(|key| self.states.get(key).copied().unwrap_or_default());
        let (counts, sums): (Vec<i64>, Vec<i64>) = states.unzip();
        Ok(vec![
            Arc::new(Int64Array::from(counts)),
            Arc::new(Int64Array::from(sums)),
        ])
    }

    fn load(&mut self, key: u32, states: &[ArrayRef], row: usize) -> Result<()> {
        let [counts, sums] = states else {
            return Err(Error::new("snapshot", "no totals"));
        };
        let value = |column: &ArrayRef| column.as_primitive::<Int64Type>().value(row);
        self.states.insert(key, (value(counts), value(sums)));
        Ok(())
    }

    fn forget(&mut self, key: u32) {
        self.states.remove(&key);
    }

    fn bytes(&self) -> usize {
        self.states.len() * 32
    }
}
