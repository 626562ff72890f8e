//! Accumulators: the value of one aggregate function for many groups at once.
//!
//! Unlike those of a batch engine, accumulators can be read at any time and continue: a running aggregate
//! emits after each chunk, and a snapshot must not change anything. Integer sums are kept in 128 bits, so
//! that whether a sum overflows doesn't depend on the order of its rows (I1): only its final value
//! counts.

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

/// The position of a row among the rows of its group, for functions that depend on order: event time,
/// then partition, then position in the partition (I1).
pub type OrderKey = (EventTime, u32, u64);

/// What an accumulator could not compute: an index into the rows or groups that it was given, and the
/// reason.
pub type Failures = Vec<(usize, String)>;

/// The values of one aggregate function for groups 0, 1, 2, ….
pub trait Accumulator: Send {
    /// Sets the number of groups: new ones are empty, and those above it are forgotten. The memory stays.
    fn resize(&mut self, groups: usize);

    /// Forgets the values of `groups`: they are empty, as new ones are.
    fn reset(&mut self, groups: &[u32]);

    /// Adds rows: row `i` belongs to group `groups[i]`. `order` has an entry per row if
    /// [`AggregateFunction::needs_order`], else none. Returns the rows that it could not add, which change
    /// nothing; the others were added.
    fn update(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        order: &[OrderKey],
    ) -> Result<Failures>;

    /// The current value of each of `groups`.
    fn evaluate(&mut self, groups: &[u32]) -> Result<Values>;

    /// The state of each of `groups`, as columns that [`Accumulator::merge`] takes; changes nothing.
    fn state(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>>;

    /// Adds states: state `i` belongs to group `groups[i]`.
    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<()>;

    /// About how many bytes it holds.
    fn bytes(&self) -> usize;

    /// Adds rows one after the other, and returns the value of each row's group after that row. A row that
    /// could not be added is among the failures; the value is that of its group without it.
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
            let added = self.update(&groups[row..=row], &arguments, order)?;
            let value = self.evaluate(&groups[row..=row])?;
            let of_row = added.into_iter().chain(value.failed);
            failed.extend(of_row.map(|(_, reason)| (row, reason)));
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

/// An accumulator that can retract rows.
pub trait Retract: Accumulator {
    /// Retracts rows that were added before.
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

/// Merges states in the form of [`states`], from a snapshot: state `i` belongs to group `groups[i]`.
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
    #[cfg(test)]
    crate::state::work::note(groups.len());
    for accumulator in accumulators {
        let layout = accumulator.state(&[])?;
        let split = states.split_at_checked(layout.len());
        let (own, rest) = split.ok_or_else(|| wrong(of, "it has too few columns"))?;
        let own = own.iter().zip(&layout);
        let own = own.map(|(state, layout)| sum::as_stored_now(state, layout.data_type()));
        let own = own.collect::<Option<Vec<ArrayRef>>>();
        let own = own.ok_or_else(|| wrong(of, "its states are of other types"))?;
        accumulator.merge(groups, &own)?;
        states = rest;
    }
    match states {
        [] => Ok(()),
        _ => Err(wrong(of, "it has too many columns")),
    }
}

/// Values of groups, and which groups have none.
pub struct Values {
    /// A value per requested group; NULL if it failed.
    pub column: ArrayRef,
    /// The failures: an index into the requested groups and the reason, such as a sum that does not fit
    /// its type.
    pub failed: Failures,
}

impl Values {
    /// Values without failures.
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
        /// The type of the result.
        to: DataType,
    },
    /// AVG of integers or doubles, as a double.
    Average,
    /// MIN or MAX of any type that can be ordered.
    Extreme {
        /// Whether the function is MAX; otherwise it is MIN.
        largest: bool,
        /// The type of the argument and of the result.
        of: DataType,
    },
    /// FIRST_VALUE or LAST_VALUE by event time, partition and position.
    FirstLast {
        /// Whether the function is LAST_VALUE; otherwise it is FIRST_VALUE.
        last: bool,
        /// Whether it has IGNORE NULLS.
        ignore_nulls: bool,
        /// The type of the argument and of the result.
        of: DataType,
    },
    /// PERCENTILE_CONT or MEDIAN of `Float32` or `Float64` values; keeps all of them.
    Quantile {
        /// The fraction, between 0 and 1.
        fraction: f64,
        /// The type of the argument and of the result.
        of: DataType,
    },
    /// `function(DISTINCT …)`.
    Distinct {
        /// The function over distinct rows.
        function: Box<AggregateFunction>,
        /// The types of the arguments.
        arguments: Vec<DataType>,
    },
    /// A function of an outside library.
    Other(Arc<dyn AccumulatorFactory>),
}

impl AggregateFunction {
    /// Whether its accumulators come from an outside library.
    pub fn is_foreign(&self) -> bool {
        match self {
            AggregateFunction::Other(_) => true,
            AggregateFunction::Distinct { function, .. } => function.is_foreign(),
            _ => false,
        }
    }
}

/// The meaning of a function's accumulator states.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Signature {
    /// The function's name.
    pub name: String,
    /// The types of the arguments; empty if the function itself defines them.
    pub arguments: Vec<DataType>,
    /// Arguments that are constants, as SQL.
    pub constants: Vec<String>,
    /// The order of its values: WITHIN GROUP (ORDER BY …).
    pub order: Vec<SortOptions>,
    /// Whether it has IGNORE NULLS.
    pub ignore_nulls: bool,
}

/// Makes accumulators of a function that the engine does not know.
pub trait AccumulatorFactory: Send + Sync + fmt::Debug {
    /// An accumulator without groups.
    fn accumulator(&self) -> Result<Box<dyn Accumulator>>;

    /// The type of the result.
    fn data_type(&self) -> DataType;

    /// The meaning of its states. Checkpoints store it: a query resumes only if it is unchanged.
    fn signature(&self) -> Signature;

    /// An accumulator without groups that can retract rows. `None` if the function has none: then, if the
    /// input retracts rows, all values of each group are kept and added again to a new accumulator.
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
            // The first of the distinct values is also the first of all values.
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

    /// An accumulator without groups that can retract rows; its states have another format. `arguments`
    /// are the types that the function is called with.
    pub fn retractable(&self, arguments: &[DataType]) -> Result<Box<dyn Retract>> {
        retract::retractable(self, arguments)
    }

    /// Whether [`Accumulator::update`] needs order keys.
    pub fn needs_order(&self) -> bool {
        match self {
            AggregateFunction::FirstLast { .. } => true,
            AggregateFunction::Distinct { function, .. } => function.needs_order(),
            _ => false,
        }
    }

    /// The type of the result.
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

/// The error for a function and a type that it doesn't support.
fn unsupported(function: &str, data_type: &DataType) -> Error {
    Error::new(function, format!("type {data_type} is not supported"))
}

#[cfg(test)]
mod tests;
