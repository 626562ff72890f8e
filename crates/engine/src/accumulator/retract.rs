//! Accumulators that can retract rows: COUNT, SUM and AVG subtract; the others keep their values, each
//! with a count.

mod distinct;
mod multiset;
mod sums;

use arrow_schema::DataType;

use super::{AggregateFunction, Retract};
use crate::error::{Error, Result};

pub fn retractable(
    function: &AggregateFunction,
    arguments: &[DataType],
) -> Result<Box<dyn Retract>> {
    if let AggregateFunction::Other(factory) = function
        && let Some(accumulator) = factory.retractable()?
    {
        return Ok(accumulator);
    }
    Ok(match function {
        AggregateFunction::Count => Box::new(super::count::Count::default()),
        AggregateFunction::Sum { to } => Box::new(sums::Sums::sum(to)?),
        AggregateFunction::Average => Box::new(sums::Sums::average()),
        AggregateFunction::Extreme { .. }
        | AggregateFunction::Quantile { .. }
        | AggregateFunction::Other(_) => {
            Box::new(multiset::Multiset::new(function.clone(), arguments)?)
        }
        AggregateFunction::Distinct {
            function,
            arguments,
        } => match **function {
            // The extremes of the distinct values are those of all values.
            AggregateFunction::Extreme { .. } => retractable(function, arguments)?,
            // A sum of doubles depends on everything that was ever added and retracted.
            AggregateFunction::Sum { .. } | AggregateFunction::Average
                if arguments.iter().any(DataType::is_floating) =>
            {
                let function = function.as_ref().clone();
                Box::new(multiset::Multiset::distinct(function, arguments)?)
            }
            _ => {
                let inner = retractable(function, arguments)?;
                Box::new(distinct::Distinct::new(inner, arguments)?)
            }
        },
        AggregateFunction::FirstLast { .. } => {
            return Err(Error::new(
                "FIRST_VALUE or LAST_VALUE",
                "it can't retract rows: the order of earlier rows is not kept",
            ));
        }
    })
}
