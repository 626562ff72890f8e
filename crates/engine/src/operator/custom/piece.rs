//! A piece of work: rows of some keys, in the order in which the function gets them.

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_row::RowConverter;

use super::CustomInput;
use super::rows::Place;
use crate::chunk::{Chunk, Origin, RowKind};
use crate::error::{Error, Result};
use crate::time::{EventTime, MIN_WATERMARK};

/// Rows of some keys.
pub struct Piece {
    /// The rows of each input, and their event times; without times in the order of arrival.
    inputs: Vec<Option<(Chunk, Vec<EventTime>)>>,
    steps: Vec<Step>,
    next: usize,
}

/// A step of the work.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// A row.
    Row {
        key: u32,
        input: usize,
        row: usize,
        time: EventTime,
    },
    /// The end of the rows of a key.
    End { key: u32 },
}

impl Piece {
    /// The rows of a chunk in their order; `keys` are the numbers of their keys.
    pub fn of_chunk(input: usize, chunk: Chunk, keys: Vec<u32>, inputs: usize) -> Piece {
        let row = |(row, key): (usize, &u32)| Step::Row {
            key: *key,
            input,
            row,
            time: MIN_WATERMARK,
        };
        let mut steps = keys.iter().enumerate().map(row).collect::<Vec<Step>>();
        let mut of_rows = keys;
        of_rows.sort_unstable();
        of_rows.dedup();
        steps.extend(of_rows.into_iter().map(|key| Step::End { key }));
        let mut chunks = (0..inputs).map(|_| None).collect::<Vec<_>>();
        chunks[input] = Some((chunk, Vec::new()));
        Piece {
            inputs: chunks,
            steps,
            next: 0,
        }
    }

    /// Rows that were kept, each key's in order, and after them `None`.
    pub fn of_places(
        taken: Vec<(u32, Option<Place>)>,
        converters: &[RowConverter],
        inputs: &[CustomInput],
    ) -> Result<Piece> {
        let mut counts = vec![0; inputs.len()];
        let step = |(key, place): &(u32, Option<Place>)| match place {
            None => Step::End { key: *key },
            Some(place) => {
                let input = place.input as usize;
                counts[input] += 1;
                Step::Row {
                    key: *key,
                    input,
                    row: counts[input] - 1,
                    time: place.time,
                }
            }
        };
        let steps = taken.iter().map(step).collect();
        let of_input = |input: usize| {
            let places = taken.iter().filter_map(|(_, place)| place.as_ref());
            places.filter(move |place| place.input as usize == input)
        };
        let chunk =
            |(input, of): (usize, &CustomInput)| -> Result<Option<(Chunk, Vec<EventTime>)>> {
                if counts[input] == 0 {
                    return Ok(None);
                }
                let parser = converters[input].parser();
                let values = of_input(input).map(|place| parser.parse(&place.values));
                let columns = converters[input].convert_rows(values)?;
                let options = RecordBatchOptions::new().with_row_count(Some(counts[input]));
                let batch =
                    RecordBatch::try_new_with_options(of.schema.clone(), columns, &options)?;
                let mut chunk = Chunk::new(batch, 0);
                let places = of_input(input).map(|place| (place.partition, place.position));
                chunk.origin = Origin::of_places(places);
                let times = of_input(input).map(|place| place.time).collect();
                Ok(Some((chunk, times)))
            };
        let inputs = inputs.iter().enumerate().map(chunk);
        Ok(Piece {
            inputs: inputs.collect::<Result<Vec<_>>>()?,
            steps,
            next: 0,
        })
    }

    /// The present step; `None` at the end.
    pub fn step(&self) -> Option<Step> {
        self.steps.get(self.next).copied()
    }

    /// The steps that are left.
    pub fn rest(&self) -> &[Step] {
        &self.steps[self.next..]
    }

    /// Ends the present step.
    pub fn end_step(&mut self) {
        self.end_steps(1);
    }

    /// Ends this many steps.
    pub fn end_steps(&mut self, steps: usize) {
        self.next += steps;
    }

    /// Whether no step is left.
    pub fn is_done(&self) -> bool {
        self.next == self.steps.len()
    }

    /// The rows of an input.
    pub fn chunk(&self, input: usize) -> Result<&Chunk> {
        let chunk = self.inputs[input].as_ref();
        let chunk = chunk.map(|(chunk, _)| chunk);
        chunk.ok_or_else(|| Error::new("a custom operator", "a row without its batch"))
    }

    /// Whether a row retracts an earlier one.
    pub fn retracts(&self, input: usize, row: usize) -> bool {
        let chunk = self.inputs[input].as_ref();
        let kinds = chunk.and_then(|(chunk, _)| chunk.kinds.as_ref());
        kinds.is_some_and(|kinds| RowKind::is_retraction(kinds.value(row)))
    }

    /// The event time of a row.
    pub fn time(&self, input: usize, row: usize) -> EventTime {
        let times = self.inputs[input].as_ref().map(|(_, times)| times);
        let time = times.and_then(|times| times.get(row));
        time.copied().unwrap_or(MIN_WATERMARK)
    }
}
