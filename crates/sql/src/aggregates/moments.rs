//! Variances, covariances, correlations and regressions, in one pass over the rows: the means, and the sums
//! of products of the distances from them (Welford, 1962), as DataFusion computes them.
//!
//! DataFusion's accumulators are not used, because merging a state into an empty one changes its last bits:
//! `mean · n / n` is not `mean`. A running aggregate that is restored from a checkpoint would then retract
//! values that it has never emitted. Here an empty group takes the state over unchanged. The states have
//! DataFusion's format, so that older checkpoints stay readable.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, Float64Array, UInt64Array};
use slackwater_engine::Result;
use slackwater_engine::accumulator::{Accumulator, Failures, OrderKey, Values};

/// A function that is computed from moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Variance { of_sample: bool, is_root: bool },
    Covariance { of_sample: bool },
    Correlation,
    Regression(Regression),
}

/// A property of the regression line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Regression {
    Slope,
    Intercept,
    Count,
    R2,
    AvgX,
    AvgY,
    Sxx,
    Syy,
    Sxy,
}

impl Moment {
    /// The function with DataFusion's name `name`.
    pub fn named(name: &str) -> Option<Moment> {
        let variance = |of_sample, is_root| Moment::Variance { of_sample, is_root };
        let covariance = |of_sample| Moment::Covariance { of_sample };
        Some(match name {
            "var" => variance(true, false),
            "var_pop" => variance(false, false),
            "stddev" => variance(true, true),
            "stddev_pop" => variance(false, true),
            "covar_samp" => covariance(true),
            "covar_pop" => covariance(false),
            "corr" => Moment::Correlation,
            "regr_slope" => Moment::Regression(Regression::Slope),
            "regr_intercept" => Moment::Regression(Regression::Intercept),
            "regr_count" => Moment::Regression(Regression::Count),
            "regr_r2" => Moment::Regression(Regression::R2),
            "regr_avgx" => Moment::Regression(Regression::AvgX),
            "regr_avgy" => Moment::Regression(Regression::AvgY),
            "regr_sxx" => Moment::Regression(Regression::Sxx),
            "regr_syy" => Moment::Regression(Regression::Syy),
            "regr_sxy" => Moment::Regression(Regression::Sxy),
            _ => return None,
        })
    }

    /// The columns of a state after the number of rows.
    fn stored(self) -> &'static [Part] {
        match self {
            Moment::Variance { .. } => &[Part::MeanX, Part::M2X],
            Moment::Covariance { .. } => &[Part::MeanX, Part::MeanY, Part::Products],
            Moment::Correlation => &[
                Part::MeanX,
                Part::M2X,
                Part::MeanY,
                Part::M2Y,
                Part::Products,
            ],
            Moment::Regression(_) => &[
                Part::MeanX,
                Part::MeanY,
                Part::M2X,
                Part::M2Y,
                Part::Products,
            ],
        }
    }

    fn value(self, group: &Group) -> Option<f64> {
        let n = group.count as f64;
        match self {
            Moment::Variance { of_sample, is_root } => {
                let variance = match (group.count, of_sample) {
                    (0, _) | (1, true) => None,
                    (1, false) => Some(0.0),
                    (_, of_sample) => Some(group.m2_x / (n - f64::from(of_sample))),
                };
                variance.map(|variance| if is_root { variance.sqrt() } else { variance })
            }
            Moment::Covariance { of_sample } => {
                let rows = n - f64::from(of_sample);
                (rows > 0.0).then(|| group.products / rows)
            }
            Moment::Correlation => {
                if group.mean_x.is_nan() && group.mean_y.is_nan() {
                    return Some(f64::NAN);
                }
                if group.mean_x.is_nan() || group.mean_y.is_nan() || group.count < 2 {
                    return None;
                }
                let deviations = [group.m2_x, group.m2_y].map(|m2| (m2 / n).sqrt());
                let is_known = deviations.iter().all(|&deviation| deviation != 0.0);
                is_known.then(|| group.products / n / deviations[0] / deviations[1])
            }
            Moment::Regression(regression) => {
                let (covariance, variance) = (group.products / n, group.m2_x / n);
                let is_line = group.count > 1 && variance != 0.0;
                match regression {
                    Regression::Slope => is_line.then(|| covariance / variance),
                    Regression::Intercept => {
                        is_line.then(|| group.mean_y - covariance / variance * group.mean_x)
                    }
                    Regression::R2 => {
                        let of_y = group.m2_y / n;
                        let is_known = is_line && of_y != 0.0;
                        is_known.then(|| covariance * covariance / (variance * of_y))
                    }
                    Regression::Count => Some(n),
                    Regression::AvgX => (group.count > 0).then_some(group.mean_x),
                    Regression::AvgY => (group.count > 0).then_some(group.mean_y),
                    Regression::Sxx => (group.count > 0).then_some(group.m2_x),
                    Regression::Syy => (group.count > 0).then_some(group.m2_y),
                    Regression::Sxy => (group.count > 0).then_some(group.products),
                }
            }
        }
    }
}

/// The moments of one group.
#[derive(Debug, Clone, Copy, Default)]
struct Group {
    count: u64,
    mean_x: f64,
    mean_y: f64,
    /// The sum of the squared distances from the mean.
    m2_x: f64,
    m2_y: f64,
    /// The sum of the products of both distances.
    products: f64,
}

#[derive(Clone, Copy)]
enum Part {
    MeanX,
    MeanY,
    M2X,
    M2Y,
    Products,
}

impl Group {
    fn add(&mut self, x: f64, y: f64) {
        self.count += 1;
        let n = self.count as f64;
        let (from_x, from_y) = (x - self.mean_x, y - self.mean_y);
        self.mean_x += from_x / n;
        self.mean_y += from_y / n;
        self.m2_x += from_x * (x - self.mean_x);
        self.m2_y += from_y * (y - self.mean_y);
        self.products += from_x * (y - self.mean_y);
    }

    fn merge(&mut self, other: &Group) {
        if self.count == 0 || other.count == 0 {
            if other.count > 0 {
                *self = *other;
            }
            return;
        }
        let (before, added) = (self.count as f64, other.count as f64);
        let n = before + added;
        let (apart_x, apart_y) = (other.mean_x - self.mean_x, other.mean_y - self.mean_y);
        self.count += other.count;
        self.mean_x += apart_x * added / n;
        self.mean_y += apart_y * added / n;
        self.m2_x += other.m2_x + apart_x * apart_x * before * added / n;
        self.m2_y += other.m2_y + apart_y * apart_y * before * added / n;
        self.products += other.products + apart_x * apart_y * before * added / n;
    }

    fn part(&mut self, part: Part) -> &mut f64 {
        match part {
            Part::MeanX => &mut self.mean_x,
            Part::MeanY => &mut self.mean_y,
            Part::M2X => &mut self.m2_x,
            Part::M2Y => &mut self.m2_y,
            Part::Products => &mut self.products,
        }
    }
}

/// The moments of many groups, and the function to compute from them.
pub struct Moments {
    moment: Moment,
    groups: Vec<Group>,
}

impl Moments {
    /// A function without any group.
    pub fn new(moment: Moment) -> Moments {
        Moments {
            moment,
            groups: Vec::new(),
        }
    }
}

impl Accumulator for Moments {
    fn resize(&mut self, groups: usize) {
        self.groups.resize(groups, Group::default());
    }

    fn reset(&mut self, groups: &[u32]) {
        for &group in groups {
            self.groups[group as usize] = Group::default();
        }
    }

    fn update(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        _: &[OrderKey],
    ) -> Result<Failures> {
        let column = |index: usize| arguments[index].as_primitive::<Float64Type>();
        // The first argument of a regression is y.
        let (x, y) = match self.moment {
            Moment::Variance { .. } => (column(0), column(0)),
            Moment::Covariance { .. } | Moment::Correlation => (column(0), column(1)),
            Moment::Regression(_) => (column(1), column(0)),
        };
        for (row, &group) in groups.iter().enumerate() {
            if x.is_valid(row) && y.is_valid(row) {
                self.groups[group as usize].add(x.value(row), y.value(row));
            }
        }
        Ok(Failures::new())
    }

    fn evaluate(&mut self, groups: &[u32]) -> Result<Values> {
        let groups = groups.iter().map(|&group| &self.groups[group as usize]);
        Ok(Values::all(match self.moment {
            Moment::Regression(Regression::Count) => Arc::new(UInt64Array::from_iter_values(
                groups.map(|group| group.count),
            )),
            moment => Arc::new(
                groups
                    .map(|group| moment.value(group))
                    .collect::<Float64Array>(),
            ),
        }))
    }

    fn state(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        let chosen = groups.iter().map(|&group| self.groups[group as usize]);
        let mut chosen = chosen.collect::<Vec<Group>>();
        let counts = chosen.iter().map(|group| group.count);
        let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt64Array::from_iter_values(counts))];
        for &part in self.moment.stored() {
            let values = chosen.iter_mut().map(|group| *group.part(part));
            columns.push(Arc::new(Float64Array::from_iter_values(values)));
        }
        Ok(columns)
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<()> {
        let counts = states[0].as_primitive::<UInt64Type>();
        for (row, &group) in groups.iter().enumerate() {
            let mut other = Group {
                count: counts.value(row),
                ..Group::default()
            };
            for (&part, column) in self.moment.stored().iter().zip(&states[1..]) {
                *other.part(part) = column.as_primitive::<Float64Type>().value(row);
            }
            self.groups[group as usize].merge(&other);
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.groups.capacity() * size_of::<Group>()
    }
}
