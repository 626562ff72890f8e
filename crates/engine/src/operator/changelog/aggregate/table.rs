//! The groups of an updating aggregation.

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, SchemaRef};

use crate::accumulator::{Accumulator, Retract};
use crate::error::{Error, Result};
use crate::operator::aggregate::{AggregateSpec, Keys};
use crate::state::Touched;
use crate::time::EventTime;

/// All groups. A group without rows counts as gone; its place is reused when it returns.
pub struct Table {
    pub keys: Keys,
    pub accumulators: Vec<Values>,
    pub of_group: Vec<Group>,
    /// When each group last changed.
    pub touched: Touched,
    /// The number of groups without rows.
    pub empty: usize,
}

/// The values of one call.
pub enum Values {
    /// The accumulator of an input that only adds rows.
    Growing(Box<dyn Accumulator>),
    /// The accumulator of an input that retracts rows.
    Retractable(Box<dyn Retract>),
}

impl Values {
    /// The accumulator, which adds rows and returns the values.
    pub fn accumulator(&mut self) -> &mut (dyn Accumulator + 'static) {
        match self {
            Values::Growing(values) => values.as_mut(),
            Values::Retractable(values) => values.as_mut(),
        }
    }

    /// Retracts rows that were added before.
    pub fn retract(&mut self, groups: &[u32], arguments: &[ArrayRef]) -> Result<()> {
        match self {
            Values::Growing(_) => Err(Error::new("aggregate", "it can't retract rows")),
            Values::Retractable(values) => values.retract(groups, arguments),
        }
    }

    /// About how many bytes they take.
    pub fn bytes(&self) -> usize {
        match self {
            Values::Growing(values) => values.bytes(),
            Values::Retractable(values) => values.bytes(),
        }
    }
}

/// The metadata of a group.
#[derive(Debug, Clone, Copy, Default)]
pub struct Group {
    /// The number of its rows.
    pub rows: i64,
    /// The watermark when it last changed.
    pub touched_at: EventTime,
}

impl Table {
    /// A table without groups.
    pub fn new(
        spec: &AggregateSpec,
        keys: &[DataType],
        arguments: &[Vec<DataType>],
    ) -> Result<Table> {
        let calls = spec.calls.iter().zip(arguments);
        let accumulators = calls.map(|(call, arguments)| match spec.takes_back {
            true => call
                .function
                .retractable(arguments)
                .map(Values::Retractable),
            false => call.function.accumulator().map(Values::Growing),
        });
        Ok(Table {
            keys: Keys::new(keys)?,
            accumulators: accumulators.collect::<Result<Vec<_>>>()?,
            of_group: Vec::new(),
            touched: Touched::default(),
            empty: 0,
        })
    }

    /// Makes room for the groups that the keys have.
    pub fn resize(&mut self) {
        let groups = self.keys.len();
        self.empty += groups - self.of_group.len();
        self.of_group.resize(groups, Group::default());
        self.touched.grow(groups);
        self.accumulators
            .iter_mut()
            .for_each(|values| values.accumulator().resize(groups));
    }

    /// The keys and values of groups, and why groups have no value.
    pub fn result(
        &mut self,
        groups: &[u32],
        schema: &SchemaRef,
    ) -> Result<(RecordBatch, Vec<Option<String>>)> {
        let mut columns = self.keys.columns(groups)?;
        let mut failed = vec![None; groups.len()];
        for accumulator in &mut self.accumulators {
            let values = accumulator.accumulator().evaluate(groups)?;
            columns.push(values.column);
            for (row, reason) in values.failed {
                failed[row].get_or_insert(reason);
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(groups.len()));
        let batch = RecordBatch::try_new_with_options(schema.clone(), columns, &options)?;
        Ok((batch, failed))
    }
}
