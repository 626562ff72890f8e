//! A function for tests: it sums numbers, sets timers, rejects rows and forgets keys.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int32Array, Int64Array};

use super::{
    Batch, BatchFunction, Emitted, Event, Function, KeyLeft, KeyStates, KeyedFactory,
    KeyedFunction, Ran, Reaction, StepFailure, Timers,
};
use crate::error::{Error, Result};
use crate::time::EventTime;

/// Makes [`Tally`]s for rows whose column `number` is a number.
#[derive(Debug)]
pub struct Tallies {
    pub number: usize,
    pub has_timers: bool,
    /// The most rows and timers of a batch, if it is called for batches.
    pub events_max: Option<usize>,
}

/// What a row or a timer does to the sum of its key.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Done {
    /// The rows that are emitted: a number and the sum.
    pub rows: Vec<(i64, i64)>,
    pub timer: Option<EventTime>,
    pub is_rejected: bool,
}

/// The sums of keys.
pub struct Tally {
    of: Tallies,
    sums: Vec<Option<i64>>,
    rows: Vec<(i64, i64)>,
}

/// A row of input `input` with number `number`.
pub fn on_row(sum: &mut Option<i64>, input: usize, number: i64, time: EventTime) -> Done {
    if number.rem_euclid(5) == 4 {
        return Done {
            is_rejected: true,
            ..Done::default()
        };
    }
    // The order of rows shows.
    let now = (sum.unwrap_or(0) * 3 + number * (input as i64 + 1)) % 1_000_003;
    *sum = (number % 7 != 0).then_some(now);
    Done {
        rows: vec![(number, now); 1 + usize::from(number % 4 == 1)],
        timer: (number % 3 == 0).then_some(time + 7),
        is_rejected: false,
    }
}

/// A timer.
pub fn on_time(sum: &mut Option<i64>, at: EventTime) -> Done {
    let now = sum.unwrap_or(0);
    // Halved, so that timers that set timers end.
    *sum = sum.filter(|sum| sum % 2 == 0).map(|sum| sum / 2);
    Done {
        rows: vec![(-1, now)],
        timer: (now % 11 == 1).then_some(at + 3),
        is_rejected: false,
    }
}

impl KeyedFactory for Tallies {
    fn function(&self) -> Result<Function> {
        let tally = Tally {
            of: Tallies { ..*self },
            sums: Vec::new(),
            rows: Vec::new(),
        };
        Ok(match self.events_max {
            None => Function::Rows(Box::new(tally)),
            Some(_) => Function::Batches(Box::new(tally)),
        })
    }
}

impl Tally {
    fn sum(&mut self, key: u32) -> &mut Option<i64> {
        let key = key as usize;
        self.sums.resize(self.sums.len().max(key + 1), None);
        &mut self.sums[key]
    }
}

impl KeyedFunction for Tally {
    fn event(&mut self, key: u32, event: Event<'_>, timers: &mut Timers<'_>) -> Reaction {
        let column = self.of.number;
        let sum = self.sum(key);
        let done = match event {
            Event::Row {
                input,
                batch,
                row,
                time,
                ..
            } => {
                let number = batch.column(column).as_primitive::<Int64Type>().value(row);
                on_row(sum, input, number, time)
            }
            Event::Timer(at) => on_time(sum, at),
        };
        if let Some(at) = done.timer.filter(|_| self.of.has_timers) {
            assert!(timers.set(at), "the operator has timers");
        }
        let keeps_state = self.sum(key).is_some();
        self.rows.extend(&done.rows);
        Reaction {
            rows: done.rows.len(),
            keeps_state,
            failed: done.is_rejected.then(|| "it ends in 4 or 9".to_string()),
        }
    }

    fn emitted(&mut self) -> Result<Emitted> {
        let (numbers, sums): (Vec<i64>, Vec<i64>) =
            std::mem::take(&mut self.rows).into_iter().unzip();
        Ok(Emitted {
            columns: vec![
                Arc::new(Int64Array::from(numbers)),
                Arc::new(Int64Array::from(sums.clone())),
                Arc::new(Int32Array::from(vec![0; sums.len()])),
            ],
            retracted: Vec::new(),
        })
    }
}

impl BatchFunction for Tally {
    fn run(&mut self, batch: &Batch) -> Result<Ran> {
        let timers = batch.timers.iter().cloned().map(BTreeSet::from_iter);
        let mut timers = timers.collect::<Vec<BTreeSet<EventTime>>>();
        let mut ran = Ran {
            keys: vec![KeyLeft::default(); batch.keys.len()],
            ..Ran::default()
        };
        let mut left = self.of.events_max.unwrap_or(usize::MAX);
        'steps: for (number, step) in batch.steps.iter().enumerate() {
            loop {
                let at = timers[step.key].first().copied();
                let at = at.filter(|at| *at < step.time);
                let (event, time) = match (at, step.row) {
                    (Some(at), _) => (Event::Timer(at), at),
                    (None, Some((input, row))) => {
                        let (batch, time) = (&batch.inputs[input], step.time);
                        let row = Event::Row {
                            input,
                            batch,
                            row,
                            time,
                            retracts: step.retracts,
                        };
                        (row, time)
                    }
                    (None, None) => break,
                };
                if left == 0 {
                    break 'steps;
                }
                left -= 1;
                if let Some(at) = at {
                    timers[step.key].remove(&at);
                    ran.keys[step.key].fired += 1;
                }
                let of_key = &mut timers[step.key];
                let mut of_key = Timers::new(batch.is_ordered.then_some(of_key), time);
                let reaction = self.event(batch.keys[step.key], event, &mut of_key);
                ran.emitted
                    .extend(std::iter::repeat_n((step.key, time), reaction.rows));
                ran.failed.extend(reaction.failed.map(|reason| StepFailure {
                    step: number,
                    timer: at,
                    reason,
                }));
                if at.is_none() {
                    break;
                }
            }
            ran.steps += 1;
        }
        for ((key, left), timers) in batch.keys.iter().zip(&mut ran.keys).zip(timers) {
            left.keeps_state = self.sum(*key).is_some();
            left.timers = timers.into_iter().collect();
        }
        ran.rows = self.emitted()?;
        Ok(ran)
    }
}

impl KeyStates for Tally {
    fn save(&mut self, keys: &[u32]) -> Result<Vec<ArrayRef>> {
        let sums = keys.iter().map(|&key| self.sum(key).unwrap_or(0));
        Ok(vec![Arc::new(Int64Array::from_iter_values(
            sums.collect::<Vec<_>>(),
        ))])
    }

    fn load(&mut self, key: u32, states: &[ArrayRef], row: usize) -> Result<()> {
        let sums = states
            .first()
            .and_then(|sums| sums.as_primitive_opt::<Int64Type>());
        let sums = sums.ok_or_else(|| Error::new("snapshot", "no sums"))?;
        *self.sum(key) = Some(sums.value(row));
        Ok(())
    }

    fn forget(&mut self, key: u32) {
        *self.sum(key) = None;
    }

    fn bytes(&self) -> usize {
        self.sums.len() * 16
    }
}
