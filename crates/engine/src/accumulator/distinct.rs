//! `function(DISTINCT …)`: any function over the distinct rows of its arguments.

mod seen;

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, UInt32Array, make_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayDataBuilder;
use arrow_schema::DataType;

use self::seen::Seen;
use super::{Accumulator, Failures, OrderKey, Values};
use crate::error::{Error, Result};
use crate::key::{Comparable, KeyEncoder};

/// Passes on to another accumulator only rows that are new to their group. Rows with a NULL among the
/// arguments are not passed on (SQL's rule for all DISTINCT aggregates supported here).
pub struct Distinct {
    inner: Box<dyn Accumulator>,
    encoder: KeyEncoder,
    /// The type of the argument, if there is only one and its values fit into words.
    word: Option<DataType>,
    /// The distinct rows of each group, in order of arrival: when restored, they are passed on in the same
    /// order, so that a sum of doubles is the same to the last bit.
    seen: Seen,
}

impl Distinct {
    /// The function `inner` over distinct rows of the given argument types.
    pub fn new(inner: Box<dyn Accumulator>, arguments: &[DataType]) -> Result<Distinct> {
        let word = match arguments {
            [argument] if is_word(argument) => Some(argument.clone()),
            _ => None,
        };
        Ok(Distinct {
            inner,
            encoder: KeyEncoder::new(arguments.iter().cloned())?,
            word,
            seen: Seen::default(),
        })
    }
}

/// Whether values of the type are numbers of at most 64 bits.
fn is_word(data_type: &DataType) -> bool {
    data_type.primitive_width().is_some_and(|width| width <= 8)
}

/// Calls `each` with every value that is not NULL, as a word, and its row.
fn for_each_word(column: &ArrayRef, mut each: impl FnMut(usize, u64)) {
    let data = column.to_data();
    let mut each = |row: usize, word: u64| {
        if column.is_valid(row) {
            each(row, word);
        }
    };
    macro_rules! words {
        ($native:ty) => {{
            let values = &data.buffer::<$native>(0)[..data.len()];
            for (row, &value) in values.iter().enumerate() {
                each(row, u64::from(value));
            }
        }};
    }
    match column.data_type().primitive_width() {
        Some(1) => words!(u8),
        Some(2) => words!(u16),
        Some(4) => words!(u32),
        _ => words!(u64),
    }
}

/// The column of some words.
fn column_of(words: &[u64], data_type: &DataType) -> Result<ArrayRef> {
    let words_of = words.iter().copied();
    let values = match data_type.primitive_width() {
        Some(1) => Buffer::from_iter(words_of.map(|word| word as u8)),
        Some(2) => Buffer::from_iter(words_of.map(|word| word as u16)),
        Some(4) => Buffer::from_iter(words_of.map(|word| word as u32)),
        _ => Buffer::from_iter(words_of),
    };
    let data = ArrayDataBuilder::new(data_type.clone());
    Ok(make_array(
        data.len(words.len()).add_buffer(values).build()?,
    ))
}

impl Accumulator for Distinct {
    fn resize(&mut self, groups: usize) {
        self.seen.resize(groups);
        self.inner.resize(groups);
    }

    fn reset(&mut self, groups: &[u32]) {
        self.seen.reset(groups);
        self.inner.reset(groups);
    }

    /// A value that the function fails for is among the distinct values all the same: it is not tried again.
    fn update(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        _: &[OrderKey],
    ) -> Result<Failures> {
        let arguments = Comparable::new(arguments);
        let mut new_rows = Vec::new();
        let seen = &mut self.seen;
        if self.word.is_some() {
            for_each_word(&arguments.columns()[0], |row, word| {
                if seen.insert_word(groups[row], word) {
                    new_rows.push(row as u32);
                }
            });
        } else {
            let rows = self.encoder.rows(&arguments)?;
            for (row, &group) in groups.iter().enumerate() {
                if !arguments.has_null(row) && seen.insert_bytes(group, rows.row(row).data()) {
                    new_rows.push(row as u32);
                }
            }
        }
        if new_rows.is_empty() {
            return Ok(Failures::new());
        }
        let new_groups = new_rows.iter().map(|&row| groups[row as usize]);
        let new_groups = new_groups.collect::<Vec<u32>>();
        let new_rows = UInt32Array::from(new_rows);
        let arguments = arguments.columns().iter();
        let arguments = arguments
            .map(|argument| arrow_select::take::take(argument, &new_rows, None))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let mut failed = self.inner.update(&new_groups, &arguments, &[])?;
        for (row, _) in &mut failed {
            *row = new_rows.value(*row) as usize;
        }
        Ok(failed)
    }

    fn evaluate(&mut self, groups: &[u32]) -> Result<Values> {
        self.inner.evaluate(groups)
    }

    /// A list of the encoded values of each group, whatever they are here.
    fn state(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        let mut lists = ListBuilder::new(BinaryBuilder::new());
        for &group in groups {
            match &self.word {
                Some(data_type) => {
                    let column = column_of(&self.seen.words(group), data_type)?;
                    let rows = self.encoder.rows(&Comparable::new(&[column]))?;
                    for row in &rows {
                        lists.values().append_value(row.data());
                    }
                }
                None => {
                    for value in self.seen.values(group) {
                        lists.values().append_value(value);
                    }
                }
            }
            lists.append(true);
        }
        Ok(vec![Arc::new(lists.finish())])
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<()> {
        let lists = states[0].as_list::<i32>();
        let (mut values, mut of_groups) = (Vec::with_capacity(groups.len()), Vec::new());
        for (row, &group) in groups.iter().enumerate() {
            let list = lists.value(row);
            let list = list.as_binary_opt::<i32>().ok_or_else(|| {
                Error::new(
                    "snapshot of a DISTINCT aggregate",
                    "its values are not binary",
                )
            })?;
            of_groups.extend(std::iter::repeat_n(group, list.len()));
            values.push(list.clone());
        }
        // All of them at once: a function may have a cost for each call.
        let arguments = self.encoder.decode(values.iter().flatten().flatten())?;
        // The rows of values that fail were rejected when they came.
        self.update(&of_groups, &arguments, &[])?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.seen.size() + self.inner.bytes()
    }
}
