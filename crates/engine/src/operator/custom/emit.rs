//! What a custom operator emits, and which of its rows stand: those that it has emitted and not retracted.
//!
//! Operators that read a changelog rely on it: a row that is retracted was emitted before. Whoever writes a
//! function may get that wrong, and an aggregate would then subtract what it never added. So an operator that
//! retracts rows remembers the hashes of those that stand.

use arrow_array::{ArrayRef, Int8Array, RecordBatch, RecordBatchOptions};

use super::rows::STANDING_BYTES;
use super::{Custom, Emitted};
use crate::chunk::{Chunk, RowKind};
use crate::error::{Error, Result};
use crate::expression::row_text;
use crate::hash::hash_rows;
use crate::operator::Output;
use crate::operator::window::{timestamp_column, timestamp_unit, us_to_ticks};

impl Custom {
    /// Emits the rows that the function has for the output.
    pub(super) fn emit(&mut self, own: Emitted, output: &mut Output) -> Result<()> {
        if self.emitted.is_empty() {
            return Ok(());
        }
        let rows = self.emitted.len();
        let keys = self.emitted.iter().map(|(key, _)| self.keys.key(*key));
        let mut columns = self.key_encoder.decode(keys)?;
        if self.is_ordered() && !self.spec.emits_updates {
            let data_type = self.spec.schema.field(columns.len()).data_type();
            let unit = timestamp_unit(data_type).expect("an event time");
            let times = self
                .emitted
                .iter()
                .map(|(_, time)| us_to_ticks(*time, unit));
            columns.push(timestamp_column(times.collect(), unit));
        }
        let own_from = columns.len();
        columns.extend(own.columns);
        columns.truncate(self.spec.schema.fields().len());
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = self.spec.schema.clone();
        let batch = RecordBatch::try_new_with_options(schema, columns, &options);
        let batch = batch.map_err(|error| {
            let place = format!("operator '{}'", self.spec.name);
            Error::new(place, error.to_string())
        })?;
        let kinds = self.kinds(&batch, own_from, &own.retracted)?;
        self.emitted.clear();
        let mut chunk = Chunk::new(batch, output.ingest_ns);
        chunk.kinds = kinds;
        for from in (0..rows).step_by(output.chunk_rows.max(1)) {
            output.emit(chunk.slice(from, output.chunk_rows.min(rows - from)));
        }
        Ok(())
    }

    /// The kinds of the rows in a batch; `None` if none of them retracts another. Notes which rows stand now.
    fn kinds(
        &mut self,
        batch: &RecordBatch,
        own_from: usize,
        retracted: &[usize],
    ) -> Result<Option<Int8Array>> {
        if !self.spec.emits_updates {
            return match retracted.first() {
                None => Ok(None),
                Some(_) => Err(self
                    .wrong("it retracts a row, and is declared as one that only adds rows")
                    .hint(
                        "declare that it emits updates: 'emits_updates' = 'true', or emits_updates() in Rust",
                    )),
            };
        }
        let mut hashes = Vec::new();
        let own: &[ArrayRef] = &batch.columns()[own_from..];
        hash_rows(own, batch.num_rows(), &mut hashes)?;
        let mut retracted = retracted.iter().copied().peekable();
        let mut kinds = vec![RowKind::Insert as i8; batch.num_rows()];
        let emitted = std::mem::take(&mut self.emitted);
        for (row, ((key, _), hash)) in emitted.into_iter().zip(hashes).enumerate() {
            let of_key = self.keys.get_mut(key);
            if retracted.next_if_eq(&row).is_none() {
                let known = of_key.standing.len();
                *of_key.standing.entry(hash).or_default() += 1;
                self.bytes += (of_key.standing.len() - known) * STANDING_BYTES;
                continue;
            }
            kinds[row] = RowKind::Delete as i8;
            let Some(standing) = of_key.standing.get_mut(&hash) else {
                let row = row_text(batch, row);
                return Err(self
                    .wrong(format!("it retracts a row that does not stand: {row}"))
                    .hint(
                        "an operator may retract only what it has emitted and not yet retracted, with the \
                         same values in every column",
                    ));
            };
            *standing -= 1;
            if *standing == 0 {
                of_key.standing.remove(&hash);
                self.bytes -= STANDING_BYTES;
                if of_key.standing.is_empty() {
                    self.emptied.push(key);
                }
            }
        }
        let has_retracted = kinds.contains(&(RowKind::Delete as i8));
        Ok(has_retracted.then(|| Int8Array::from(kinds)))
    }

    /// Called when a piece is done: keys whose last row was retracted may have nothing left.
    pub(super) fn end_of_emptied(&mut self) {
        for key in std::mem::take(&mut self.emptied) {
            if self.keys.contains(key) {
                self.end_of_rows(key);
            }
        }
    }

    /// An error of the function's author, which a restart does not change.
    fn wrong(&self, error: impl Into<String>) -> Error {
        Error::new(format!("operator '{}'", self.spec.name), error).final_one()
    }
}
