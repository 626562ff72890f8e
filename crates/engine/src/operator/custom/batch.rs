//! Functions that are called once for many rows and timers.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};

use super::piece::{Piece, Step};
use super::{Batch, BatchStep, Custom, Emitted, Function, Ran, StepFailure, TIMERS_MAX};
use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::expression::reject;
use crate::operator::Output;
use crate::time::{EventTime, MAX_WATERMARK};

impl Custom {
    /// Calls the function for the rest of a piece; returns its rows.
    pub(super) fn batch(&mut self, piece: &mut Piece, output: &mut Output) -> Result<Emitted> {
        if piece.is_done() {
            return Ok(Emitted::default());
        }
        let batch = self.batch_of(piece);
        let Function::Batches(function) = &mut self.function else {
            unreachable!("work() calls steps() for a function of rows");
        };
        let ran = function.run(&batch)?;
        let wrong = |what: &str| {
            let place = format!("operator '{}'", self.spec.name);
            Err(Error::new(place, format!("its function {what}")).final_one())
        };
        if ran.steps > batch.steps.len() || ran.keys.len() != batch.keys.len() {
            return wrong("has processed more than it was given");
        }
        let has_fired = ran.keys.iter().any(|key| key.fired > 0);
        if ran.steps == 0 && !has_fired {
            return wrong("has processed nothing");
        }
        self.take(&batch, &ran)?;
        for failure in ran.failed {
            self.reject_step(failure, &batch, piece, output)?;
        }
        let emitted = ran.emitted.iter();
        let emitted = emitted.map(|&(key, time)| (batch.keys[key], time));
        self.emitted.extend(emitted);
        let done = piece.rest()[..ran.steps].to_vec();
        for step in done {
            if let Step::End { key } = step {
                self.end_of_rows(key);
            }
        }
        piece.end_steps(ran.steps);
        Ok(ran.rows)
    }

    fn batch_of(&self, piece: &Piece) -> Batch {
        let (mut places, mut keys) = (HashMap::new(), Vec::new());
        let mut place_of = |key: u32| {
            *places.entry(key).or_insert_with(|| {
                keys.push(key);
                keys.len() - 1
            })
        };
        // The rows of an input that are left follow each other.
        let mut first = vec![None; self.spec.inputs.len()];
        let steps = piece.rest().iter().map(|&step| match step {
            Step::End { key } => BatchStep {
                key: place_of(key),
                row: None,
                time: self.end_of(key),
                retracts: false,
            },
            Step::Row {
                key,
                input,
                row,
                time,
            } => BatchStep {
                key: place_of(key),
                row: Some((input, row - *first[input].get_or_insert(row))),
                time,
                retracts: piece.retracts(input, row),
            },
        });
        let steps = steps.collect();
        let inputs = self.spec.inputs.iter().enumerate();
        let inputs = inputs.map(|(input, of)| match (first[input], piece.chunk(input)) {
            (Some(first), Ok(chunk)) => chunk.batch.slice(first, chunk.rows() - first),
            _ => RecordBatch::new_empty(of.schema.clone()),
        });
        let timers = keys.iter().map(|&key| {
            let timers = self.keys.get(key).timers.iter();
            timers.copied().collect()
        });
        Batch {
            timers: timers.collect(),
            steps,
            inputs: inputs.collect(),
            is_ordered: self.is_ordered(),
            keys,
        }
    }

    /// Keeps what is left of keys.
    fn take(&mut self, batch: &Batch, ran: &Ran) -> Result<()> {
        let mut has_row = vec![false; batch.keys.len()];
        for step in &batch.steps[..ran.steps] {
            has_row[step.key] |= step.row.is_some();
        }
        let mark = self.clock.mark();
        let before = batch.timers.iter().map(|timers| timers.first().copied());
        let keys = batch.keys.iter().zip(&ran.keys).zip(has_row).zip(before);
        for (((&key, left), has_row), first_timer) in keys {
            if !has_row && left.fired == 0 {
                continue;
            }
            self.keys.touch(key, mark);
            let rows = self.keys.get_mut(key);
            rows.has_state = left.keeps_state;
            rows.timers.clear();
            rows.timers.extend(&left.timers);
            self.count_fired(key, first_timer, left.fired)?;
        }
        Ok(())
    }

    fn reject_step(
        &mut self,
        failure: StepFailure,
        batch: &Batch,
        piece: &Piece,
        output: &mut Output,
    ) -> Result<()> {
        let (step, key) = match batch.steps.get(failure.step) {
            Some(step) => (piece.rest()[failure.step], batch.keys[step.key]),
            None => return Ok(()),
        };
        match (step, failure.timer) {
            (Step::Row { input, row, .. }, None) => {
                output.reject(reject(piece.chunk(input)?, row, failure.reason));
                Ok(())
            }
            _ => self.reject_timer(key, failure.reason, output),
        }
    }

    /// Rejects a timer of a key.
    pub(super) fn reject_timer(&self, key: u32, reason: String, output: &mut Output) -> Result<()> {
        let columns = self.key_encoder.decode([self.keys.key(key)].into_iter())?;
        let schema = self
            .spec
            .schema
            .project(&Vec::from_iter(0..columns.len()))?;
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let batch = RecordBatch::try_new_with_options(Arc::new(schema), columns, &options)?;
        output.reject(reject(&Chunk::new(batch, 0), 0, reason));
        Ok(())
    }

    /// Counts timers that have fired, `first` before the others, since the input has ended, or at one event
    /// time: an error if they seem to have no end.
    pub(super) fn count_fired(
        &mut self,
        key: u32,
        first: Option<EventTime>,
        fired: u32,
    ) -> Result<()> {
        let has_ended = self.clock.watermark() == MAX_WATERMARK;
        let rows = self.keys.get_mut(key);
        // The time of the first one again: it was set when that one fired.
        let is_repeated = first.is_some() && rows.timers.first().copied() == first;
        if !has_ended && !is_repeated {
            rows.fired = 0;
            return Ok(());
        }
        rows.fired = rows.fired.saturating_add(fired);
        if rows.fired <= TIMERS_MAX {
            return Ok(());
        }
        let error = "a key sets a timer at each timer, so its timers never end";
        Err(Error::new(format!("operator '{}'", self.spec.name), error)
            .hint("set a timer only while the key waits for something")
            .final_one())
    }
}
