//! Approximate percentiles, with DataFusion's t-digests.
//!
//! DataFusion's accumulators are not used, because they compress a digest again when it is merged into an
//! empty one: a query that is restored from a checkpoint would then give another value. Here an empty group
//! takes the digest over unchanged. The states have DataFusion's format, so that older checkpoints stay
//! readable.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, Float64Array};
use arrow_schema::DataType;
use datafusion_common::ScalarValue;
use datafusion_expr::Expr;
use datafusion_expr::expr::AggregateFunction as AggregateExpr;
use datafusion_functions_aggregate_common::tdigest::{Centroid, TDigest};
use slackwater_engine::accumulator::{Accumulator, Failures, OrderKey, Values};
use slackwater_engine::{Error, Result};

/// The parameters of [`Digests`].
#[derive(Debug, Clone)]
pub struct Percentile {
    /// The percentile, between 0 and 1.
    at: f64,
    /// Whether the second argument is the weight of the first.
    is_weighted: bool,
    /// The maximum number of centroids of a digest.
    size: usize,
    result: DataType,
}

/// The maximum number of centroids that DataFusion uses by default.
const SIZE: usize = 100;

impl Percentile {
    /// The parameters of a call of DataFusion's approximate percentiles; `None` for other functions.
    pub fn of(call: &AggregateExpr, result: &DataType) -> Option<Percentile> {
        let literal = |index: usize| match call.params.args.get(index) {
            Some(Expr::Literal(value, _)) => Some(value),
            _ => None,
        };
        let (is_weighted, place) = match call.func.name() {
            "approx_median" => (false, None),
            "approx_percentile_cont" => (false, Some(1)),
            "approx_percentile_cont_with_weight" => (true, Some(2)),
            _ => return None,
        };
        let at = match place {
            None => 0.5,
            Some(place) => match literal(place)?.cast_to(&DataType::Float64).ok()? {
                ScalarValue::Float64(at) => at?,
                _ => return None,
            },
        };
        let order = call.params.order_by.first();
        let size = match place.filter(|place| call.params.args.len() > place + 1) {
            None => SIZE,
            Some(place) => match literal(place + 1)?.cast_to(&DataType::UInt64).ok()? {
                ScalarValue::UInt64(size) => size? as usize,
                _ => return None,
            },
        };
        Some(Percentile {
            at: if order.is_some_and(|order| !order.asc) {
                1.0 - at
            } else {
                at
            },
            is_weighted,
            size,
            result: result.clone(),
        })
    }
}

/// One digest for each group.
pub struct Digests {
    percentile: Percentile,
    groups: Vec<TDigest>,
}

fn failed(error: impl ToString) -> Error {
    Error::new("approximate percentile", error.to_string())
}

fn doubles(column: &ArrayRef) -> Result<Float64Array> {
    let column = arrow_cast::cast(column, &DataType::Float64)?;
    Ok(column.as_primitive::<Float64Type>().clone())
}

impl Digests {
    /// Digests without any group.
    pub fn new(percentile: Percentile) -> Digests {
        Digests {
            percentile,
            groups: Vec::new(),
        }
    }

    fn add(&mut self, group: u32, mut values: Vec<(f64, f64)>) {
        let digest = &mut self.groups[group as usize];
        if self.percentile.is_weighted {
            let size = self.percentile.size;
            let single =
                |(value, weight)| TDigest::new_with_centroid(size, Centroid::new(value, weight));
            let singles = values.into_iter().map(single).collect::<Vec<TDigest>>();
            *digest = TDigest::merge_digests(singles.iter().chain([&*digest]));
            return;
        }
        values.sort_by(|one, other| one.0.total_cmp(&other.0));
        let values = values.into_iter().map(|(value, _)| value);
        *digest = digest.merge_sorted_f64(&values.collect::<Vec<f64>>());
    }

    /// The digest that is stored in a row of a state.
    fn digest(states: &[ArrayRef], row: usize) -> Result<TDigest> {
        let state = states
            .iter()
            .map(|column| ScalarValue::try_from_array(column, row))
            .collect::<datafusion_common::Result<Vec<_>>>()
            .map_err(failed)?;
        let wrong = || failed("a part of the state is missing");
        let number = |index: usize| match &state[index] {
            ScalarValue::Float64(Some(value)) => Ok(*value),
            _ => Err(wrong()),
        };
        let (max, min) = (number(3)?, number(4)?);
        let is_sound = match &state[5] {
            ScalarValue::List(list) => {
                let centroids = list.values().as_primitive_opt::<Float64Type>();
                centroids.is_some_and(|all| all.null_count() == 0 && all.len() % 2 == 0)
            }
            _ => false,
        };
        let is_ordered = !(min.is_finite() && max.is_finite()) || max.total_cmp(&min).is_ge();
        match (&state[0], is_sound && is_ordered) {
            // `from_scalar_state` would panic on other states.
            (ScalarValue::UInt64(Some(_)), true) => Ok(TDigest::from_scalar_state(&state)),
            _ => Err(wrong()),
        }
    }
}

impl Accumulator for Digests {
    fn resize(&mut self, groups: usize) {
        let size = self.percentile.size;
        self.groups.resize_with(groups, || TDigest::new(size));
    }

    fn reset(&mut self, groups: &[u32]) {
        for &group in groups {
            self.groups[group as usize] = TDigest::new(self.percentile.size);
        }
    }

    fn update(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        _: &[OrderKey],
    ) -> Result<Failures> {
        let values = doubles(&arguments[0])?;
        let weights = match self.percentile.is_weighted {
            true => Some(doubles(&arguments[1])?),
            false => None,
        };
        let mut rows = (0..groups.len()).collect::<Vec<usize>>();
        rows.retain(|&row| {
            let weights = weights.as_ref();
            values.is_valid(row) && weights.is_none_or(|weights| weights.is_valid(row))
        });
        // A stable sort: the rows of a group keep their order.
        rows.sort_by_key(|&row| groups[row]);
        for of_group in rows.chunk_by(|&one, &other| groups[one] == groups[other]) {
            let weight = |row: usize| weights.as_ref().map_or(1.0, |weights| weights.value(row));
            let values = of_group.iter().map(|&row| (values.value(row), weight(row)));
            self.add(groups[of_group[0]], values.collect());
        }
        Ok(Failures::new())
    }

    fn evaluate(&mut self, groups: &[u32]) -> Result<Values> {
        let values = groups.iter().map(|&group| {
            let digest = &self.groups[group as usize];
            (digest.count() > 0.0).then(|| digest.estimate_quantile(self.percentile.at))
        });
        let values: ArrayRef = Arc::new(values.collect::<Float64Array>());
        Ok(Values::all(arrow_cast::cast(
            &values,
            &self.percentile.result,
        )?))
    }

    fn state(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        let empty = TDigest::new(self.percentile.size);
        let digests = groups.iter().map(|&group| &self.groups[group as usize]);
        let is_empty = groups.is_empty();
        let digests = digests.chain(is_empty.then_some(&empty));
        let states = digests.map(TDigest::to_scalar_state).collect::<Vec<_>>();
        let columns = (0..states[0].len()).map(|part| {
            let values = states.iter().map(|state| state[part].clone());
            let column = ScalarValue::iter_to_array(values).map_err(failed)?;
            Ok::<ArrayRef, Error>(column.slice(0, groups.len()))
        });
        columns.collect()
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<()> {
        for (row, &group) in groups.iter().enumerate() {
            let other = Digests::digest(states, row)?;
            let digest = &mut self.groups[group as usize];
            *digest = match (digest.count() > 0.0, other.count() > 0.0) {
                (_, false) => continue,
                (false, true) => other,
                (true, true) => TDigest::merge_digests([&other, &*digest]),
            };
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.groups.iter().map(TDigest::size).sum()
    }
}
