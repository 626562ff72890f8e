//! Joins the rows of one closed window, a bounded piece at a time.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_row::Rows;
use hashbrown::HashMap;

use super::{JoinKind, JoinSpec};
use crate::chunk::Chunk;
use crate::error::Result;
use crate::expression::evaluate;
use crate::key::{Comparable, KeyEncoder};
use crate::operator::{Output, Progress};
use crate::state::Mark;

/// Rows of one window whose pairs are not all emitted yet.
pub struct Matching {
    spec: Arc<JoinSpec>,
    sides: [RecordBatch; 2],
    /// Encoded keys of the left rows; `None` without key columns.
    left_keys: Option<Rows>,
    /// The right rows by their encoded key.
    right_rows: HashMap<Box<[u8]>, Vec<u32>, foldhash::fast::FixedState>,
    /// Which rows have found a partner, if that matters.
    matched: [Vec<bool>; 2],
    /// The next left row, and the next of its partners.
    next: (usize, usize),
    /// The next row that may be emitted alone: side and row.
    next_single: (usize, usize),
}

impl Matching {
    pub fn new(spec: Arc<JoinSpec>, sides: [Vec<(Mark, RecordBatch)>; 2]) -> Result<Matching> {
        let mut both = Vec::with_capacity(2);
        for (side, batches) in spec.sides.iter().zip(sides) {
            let batches = batches
                .into_iter()
                .map(|(_, batch)| batch)
                .collect::<Vec<_>>();
            both.push(arrow_select::concat::concat_batches(
                &side.schema,
                &batches,
            )?);
        }
        let right = both.pop().expect("two sides");
        let left = both.pop().expect("two sides");
        let keys = |side: usize, batch: &RecordBatch| -> Vec<ArrayRef> {
            spec.sides[side]
                .keys
                .iter()
                .map(|&key| batch.column(key).clone())
                .collect()
        };
        let encoder = KeyEncoder::of_schema(&spec.sides[0].schema, &spec.sides[0].keys)?;
        let mut right_rows = HashMap::<Box<[u8]>, Vec<u32>, _>::default();
        let right_keys = keys(1, &right);
        if right_keys.is_empty() {
            right_rows.insert(Box::default(), (0..right.num_rows() as u32).collect());
        } else {
            let encoded = encoder.rows(&Comparable::new(&right_keys))?;
            for (row, key) in encoded.iter().enumerate() {
                // NULL equals nothing, so such a row has no partner.
                if right_keys.iter().all(|key| key.is_valid(row)) {
                    let rows = right_rows
                        .entry(key.as_ref().into())
                        .or_insert_with(Vec::new);
                    rows.push(row as u32);
                }
            }
        }
        let left_keys = match spec.sides[0].keys.is_empty() {
            true => None,
            false => Some(encoder.rows(&Comparable::new(&keys(0, &left)))?),
        };
        let matched = [0, 1].map(|side| {
            let rows = if side == 0 {
                left.num_rows()
            } else {
                right.num_rows()
            };
            match spec.kind.keeps(side) || (side == 0 && spec.kind.is_of_left()) {
                true => vec![false; rows],
                false => Vec::new(),
            }
        });
        Ok(Matching {
            spec,
            sides: [left, right],
            left_keys,
            right_rows,
            matched,
            next: (0, 0),
            next_single: (0, 0),
        })
    }

    /// Emits about one chunk of pairs, then of single rows; `Done` when all have been emitted.
    pub fn emit(&mut self, output: &mut Output) -> Result<Progress> {
        let limit = output.chunk_rows;
        let (mut left, mut right) = (Vec::with_capacity(limit), Vec::with_capacity(limit));
        let rows = self.sides[0].num_rows();
        while self.next.0 < rows && left.len() < limit {
            let row = self.next.0;
            let partners = match &self.left_keys {
                None => self.right_rows.get(&[][..]),
                Some(_) if self.key_is_null(row) => None,
                Some(keys) => self.right_rows.get(keys.row(row).as_ref()),
            };
            let partners = partners.map_or(&[][..], |rows| &rows[self.next.1..]);
            if self.spec.kind.is_of_left() && self.spec.condition.is_none() {
                self.matched[0][row] = !partners.is_empty();
                self.next = (row + 1, 0);
                continue;
            }
            let taken = partners.len().min(limit - left.len());
            left.extend(std::iter::repeat_n(row as u32, taken));
            right.extend_from_slice(&partners[..taken]);
            self.next = if taken < partners.len() {
                (row, self.next.1 + taken)
            } else {
                (row + 1, 0)
            };
        }
        if !left.is_empty() {
            self.emit_pairs(left, right, output)?;
        }
        if self.next.0 < rows {
            Ok(Progress::More)
        } else {
            self.emit_singles(output)
        }
    }

    fn key_is_null(&self, row: usize) -> bool {
        self.spec.sides[0]
            .keys
            .iter()
            .any(|&key| self.sides[0].column(key).is_null(row))
    }

    fn emit_pairs(&mut self, left: Vec<u32>, right: Vec<u32>, output: &mut Output) -> Result<()> {
        let (left, right) = (UInt32Array::from(left), UInt32Array::from(right));
        let batch = self.rows(Some(&left), Some(&right))?;
        let mut chunk = Chunk::new(batch, output.ingest_ns);
        let mut holds = None;
        if let Some(condition) = &self.spec.condition {
            // A pair for which the condition fails is rejected; the other pairs are not.
            let pairs: ArrayRef = Arc::new(arrow_array::UInt64Array::from_iter_values(
                0..left.len() as u64,
            ));
            chunk.origin = Some(crate::chunk::Origin {
                partitions: crate::chunk::Partitions::One(0),
                positions: crate::chunk::Positions::List(pairs.as_primitive().clone()),
                watermarks: None,
            });
            let evaluated = evaluate(std::slice::from_ref(condition), chunk)?;
            // The rows of a rejected pair are neither padded nor emitted as rows without a partner.
            let counts_failed = self.spec.kind != JoinKind::Semi;
            for mut rejected in evaluated.rejected {
                let pair = rejected.position.unwrap_or(0) as usize;
                for (matched, rows) in self.matched.iter_mut().zip([&left, &right]) {
                    if let Some(matched) = matched.get_mut(rows.value(pair) as usize) {
                        *matched |= counts_failed;
                    }
                }
                (rejected.partition, rejected.position) = (None, None);
                output.reject(rejected);
            }
            let kept = evaluated.chunk.filter(evaluated.columns[0].as_boolean())?;
            let pairs = kept.origin.as_ref().map(|origin| {
                (0..kept.rows())
                    .map(|row| origin.positions.at(row) as u32)
                    .collect::<Vec<u32>>()
            });
            holds = pairs;
            chunk = Chunk {
                origin: None,
                ..kept
            };
        }
        for (side, rows) in [&left, &right].into_iter().enumerate() {
            if !self.matched[side].is_empty() {
                match &holds {
                    None => rows
                        .values()
                        .iter()
                        .for_each(|&r| self.matched[side][r as usize] = true),
                    Some(pairs) => pairs.iter().for_each(|&pair| {
                        self.matched[side][rows.value(pair as usize) as usize] = true;
                    }),
                }
            }
        }
        if !self.spec.kind.is_of_left() {
            output.emit(chunk);
        }
        Ok(())
    }

    fn emit_singles(&mut self, output: &mut Output) -> Result<Progress> {
        let mut emitted = 0;
        while self.next_single.0 < 2 && emitted < output.chunk_rows {
            let (side, first) = self.next_single;
            let matched = &self.matched[side];
            let until = (first + output.chunk_rows).min(matched.len());
            let wanted = self.spec.kind == JoinKind::Semi;
            let singles = (first..until)
                .filter(|&row| matched[row] == wanted)
                .map(|row| row as u32);
            let singles = UInt32Array::from_iter_values(singles);
            self.next_single = if until < matched.len() {
                (side, until)
            } else {
                (side + 1, 0)
            };
            if !singles.is_empty() {
                emitted += singles.len();
                let batch = if side == 0 {
                    self.rows(Some(&singles), None)?
                } else {
                    self.rows(None, Some(&singles))?
                };
                output.emit_batch(batch);
            }
        }
        Ok(if self.next_single.0 < 2 {
            Progress::More
        } else {
            Progress::Done
        })
    }

    /// Rows of both sides next to each other; NULL for a side that is not given. Only the left side if
    /// only its rows are emitted and no pair is evaluated.
    fn rows(&self, left: Option<&UInt32Array>, right: Option<&UInt32Array>) -> Result<RecordBatch> {
        let count = left.or(right).map_or(0, |rows| rows.len());
        let is_single = left.is_none() || right.is_none();
        let (sides, schema) = match is_single && self.spec.kind.is_of_left() {
            true => (1, self.spec.output()),
            false => (2, &self.spec.schema),
        };
        let mut columns = Vec::with_capacity(schema.fields().len());
        for (side, rows) in [left, right].into_iter().enumerate().take(sides) {
            for column in self.sides[side].columns() {
                columns.push(match rows {
                    Some(rows) => arrow_select::take::take(column, rows, None)?,
                    None => arrow_array::new_null_array(column.data_type(), count),
                });
            }
        }
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(
            schema.clone(),
            columns,
            &options,
        )?)
    }
}
