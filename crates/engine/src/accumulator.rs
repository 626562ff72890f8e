//! Accumulators: the value of one aggregate function for many groups at once.
//!
//! Unlike those of a batch engine they can be read at any time and go on: a running aggregate
//! emits after each chunk, and a snapshot must not disturb. Integer sums are kept in 128 bits, so
//! that whether a sum overflows does not depend on the order of its rows (I1): only its final
//! value counts.

mod count;
mod distinct;
mod extreme;
mod first_last;
mod quantile;
mod retract;
mod sum;

use std::fmt;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, SortOptions};

use crate::error::{Error, Result};
use crate::state::snapshot::wrong;
use crate::time::EventTime;

/// Where a row stands among the rows of its group, for functions that see order: event time, then
/// partition, then position in the partition (I1).
pub type OrderKey = (EventTime, u32, u64);

/// The values of one aggregate function for groups 0, 1, 2, ….
pub trait Accumulator: Send {
    /// From now on there are so many groups: new ones are empty, and those above are forgotten. The memory
    /// stays.
    fn resize(&mut self, groups: usize);

    /// Adds rows: row `i` belongs to group `groups[i]`. `order` has an entry per row when
    /// [`AggregateFunction::needs_order`], else none.
    fn update(&mut self, groups: &[u32], arguments: &[ArrayRef], order: &[OrderKey]) -> Result<()>;

    /// The present value of each of `groups`.
    fn evaluate(&mut self, groups: &[u32]) -> Result<Values>;

    /// The state of each of `groups`, as columns that [`Accumulator::merge`] takes; changes nothing.
    fn state(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>>;

    /// Adds states: state `i` belongs to group `groups[i]`.
    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<()>;

    /// About how many bytes it holds.
    fn bytes(&self) -> usize;

    /// Adds rows one after the other and returns the value of each row's group after that row.
    fn scan(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        order: &[OrderKey],
    ) -> Result<Values> {
        let mut values = Vec::with_capacity(groups.len());
        let mut failed = Vec::new();
        for row in 0..groups.len() {
            let arguments = arguments
                .iter()
                .map(|a| a.slice(row, 1))
                .collect::<Vec<_>>();
            let order = if order.is_empty() {
                order
            } else {
                &order[row..=row]
            };
            self.update(&groups[row..=row], &arguments, order)?;
            let value = self.evaluate(&groups[row..=row])?;
            failed.extend(value.failed.into_iter().map(|(_, reason)| (row, reason)));
            values.push(value.column);
        }
        let slices = values
            .iter()
            .map(|value| value.as_ref())
            .collect::<Vec<_>>();
        Ok(Values {
            column: arrow_select::concat::concat(&slices)?,
            failed,
        })
    }
}

/// An accumulator that can take rows back.
pub trait Retract: Accumulator {
    /// Takes rows back that were added before.
    fn retract(&mut self, groups: &[u32], arguments: &[ArrayRef]) -> Result<()>;
}

/// The states of `groups` in several accumulators, as columns one after the other.
pub fn states<'a>(
    accumulators: impl Iterator<Item = &'a mut (dyn Accumulator + 'static)>,
    groups: &[u32],
) -> Result<Vec<ArrayRef>> {
    let mut states = Vec::new();
    for accumulator in accumulators {
        states.extend(accumulator.state(groups)?);
    }
    Ok(states)
}

/// Adds states as [`states`] gives them, out of a snapshot: state `i` belongs to group `groups[i]`.
///
/// # Errors
///
/// When they are not the states of such accumulators.
pub fn merge_states<'a>(
    accumulators: impl Iterator<Item = &'a mut (dyn Accumulator + 'static)>,
    groups: &[u32],
    mut states: &[ArrayRef],
) -> Result<()> {
    let of = "an aggregation";
    for accumulator in accumulators {
        let layout = accumulator.state(&[])?;
        let split = states.split_at_checked(layout.len());
        let (own, rest) = split.ok_or_else(|| wrong(of, "it has too few columns"))?;
        let types = own.iter().map(|state| state.data_type());
        if !types.eq(layout.iter().map(|state| state.data_type())) {
            return Err(wrong(of, "its states are of other types"));
        }
        accumulator.merge(groups, own)?;
        states = rest;
    }
    match states {
        [] => Ok(()),
        _ => Err(wrong(of, "it has too many columns")),
    }
}

/// Values of groups, and which could not be given.
pub struct Values {
    /// A value per group asked for; NULL where it failed.
    pub column: ArrayRef,
    /// Index into the groups asked for and the reason: a sum that does not fit its type.
    pub failed: Vec<(usize, String)>,
}

impl Values {
    /// Values none of which failed.
    pub fn all(column: ArrayRef) -> Values {
        Values {
            column,
            failed: Vec::new(),
        }
    }
}

/// An aggregate function with the types of its arguments.
#[derive(Debug, Clone)]
pub enum AggregateFunction {
    /// COUNT of rows where every argument is not NULL (all rows without arguments).
    Count,
    /// SUM of integers (to `Int64` or `UInt64`), decimals or doubles.
    Sum {
        /// Type of the result.
        to: DataType,
    },
    /// AVG of integers or doubles, as a double.
    Average,
    /// MIN or MAX of any type that can be ordered.
    Extreme {
        /// MAX, else MIN.
        largest: bool,
        /// Type of the argument and of the result.
        of: DataType,
    },
    /// FIRST_VALUE or LAST_VALUE by event time, partition and position.
    FirstLast {
        /// LAST_VALUE, else FIRST_VALUE.
        last: bool,
        /// IGNORE NULLS.
        ignore_nulls: bool,
        /// Type of the argument and of the result.
        of: DataType,
    },
    /// PERCENTILE_CONT or MEDIAN of `Float32` or `Float64` values; keeps all of them.
    Quantile {
        /// Between 0 and 1.
        fraction: f64,
        /// Type of the argument and of the result.
        of: DataType,
    },
    /// `function(DISTINCT …)`.
    Distinct {
        /// The function over distinct rows.
        function: Box<AggregateFunction>,
        /// Types of the arguments.
        arguments: Vec<DataType>,
    },
    /// A function of an outside library.
    Other(Arc<dyn AccumulatorFactory>),
}

impl AggregateFunction {
    /// Whether an outside library's accumulators are behind it.
    pub fn is_foreign(&self) -> bool {
        match self {
            AggregateFunction::Other(_) => true,
            AggregateFunction::Distinct { function, .. } => function.is_foreign(),
            _ => false,
        }
    }
}

/// What the states of a function's accumulators mean.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Signature {
    /// The name that it is called by.
    pub name: String,
    /// Types of the arguments; empty where the function says them itself.
    pub arguments: Vec<DataType>,
    /// Arguments that are constants, as SQL.
    pub constants: Vec<String>,
    /// What its values are ordered by: WITHIN GROUP (ORDER BY …).
    pub order: Vec<SortOptions>,
    /// IGNORE NULLS.
    pub ignore_nulls: bool,
}

/// Makes accumulators of a function that the engine does not know.
pub trait AccumulatorFactory: Send + Sync + fmt::Debug {
    /// An accumulator without groups.
    fn accumulator(&self) -> Result<Box<dyn Accumulator>>;

    /// Type of the result.
    fn data_type(&self) -> DataType;

    /// What its states mean. Checkpoints hold it: a query resumes where it is the same.
    fn signature(&self) -> Signature;

    /// An accumulator without groups that can take rows back. `None` if the function has none: then all
    /// values of each group are kept where rows are taken back, and added again to a new accumulator.
    fn retractable(&self) -> Result<Option<Box<dyn Retract>>> {
        Ok(None)
    }

    /// Whether its accumulators keep every value, so that a group grows as long as rows come.
    fn keeps_values(&self) -> bool {
        false
    }
}

impl AggregateFunction {
    /// An accumulator without groups.
    pub fn accumulator(&self) -> Result<Box<dyn Accumulator>> {
        Ok(match self {
            AggregateFunction::Count => Box::new(count::Count::default()),
            AggregateFunction::Sum { to } => sum::sum(to)?,
            AggregateFunction::Average => Box::new(sum::Average::default()),
            AggregateFunction::Extreme { largest, of } => extreme::extreme(*largest, of)?,
            AggregateFunction::FirstLast {
                last,
                ignore_nulls,
                of,
            } => Box::new(first_last::FirstLast::new(*last, *ignore_nulls, of)?),
            AggregateFunction::Quantile { fraction, of } => {
                Box::new(quantile::Quantile::new(*fraction, of)?)
            }
            // The first of the distinct values is the first of all.
            AggregateFunction::Distinct { function, .. } if function.needs_order() => {
                function.accumulator()?
            }
            AggregateFunction::Distinct {
                function,
                arguments,
            } => Box::new(distinct::Distinct::new(function.accumulator()?, arguments)?),
            AggregateFunction::Other(factory) => factory.accumulator()?,
        })
    }

    /// An accumulator without groups that can take rows back; its states are of another form.
    /// `arguments` are the types that it is called with.
    pub fn retractable(&self, arguments: &[DataType]) -> Result<Box<dyn Retract>> {
        retract::retractable(self, arguments)
    }

    /// Whether [`Accumulator::update`] wants order keys.
    pub fn needs_order(&self) -> bool {
        match self {
            AggregateFunction::FirstLast { .. } => true,
            AggregateFunction::Distinct { function, .. } => function.needs_order(),
            _ => false,
        }
    }

    /// Type of the result.
    pub fn data_type(&self) -> DataType {
        match self {
            AggregateFunction::Count => DataType::Int64,
            AggregateFunction::Sum { to } => to.clone(),
            AggregateFunction::Average => DataType::Float64,
            AggregateFunction::Extreme { of, .. } => of.clone(),
            AggregateFunction::FirstLast { of, .. } => of.clone(),
            AggregateFunction::Quantile { of, .. } => of.clone(),
            AggregateFunction::Distinct { function, .. } => function.data_type(),
            AggregateFunction::Other(factory) => factory.data_type(),
        }
    }
}

/// What an accumulator answers when it is made for a type that it has no rule for.
fn unsupported(function: &str, data_type: &DataType) -> Error {
    Error::new(function, format!("no rule for type {data_type}"))
}

#[cfg(test)]
mod tests;
