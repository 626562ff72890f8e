//! Intervals in join conditions that bound the distance of the event times of both sides:
//! `b.ts BETWEEN a.ts - INTERVAL '1' MINUTE AND a.ts + INTERVAL '1' MINUTE`, and equivalent conditions.

use std::collections::BTreeMap;

use arrow_schema::{DataType, TimeUnit};
use datafusion_common::Column;
use datafusion_expr::expr::Between;
use datafusion_expr::logical_plan::Join;
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use slackwater_engine::operator::window::timestamp_unit;
use slackwater_engine::time::EventTime;

use super::pair::plans;
use super::stream::{Role, Stream};
use crate::names::WINDOW_COLUMNS;
use crate::window::interval_ns;

/// Whether the conditions of a join compare times other than window edges.
pub fn compares_times(join: &Join) -> bool {
    let is_time = |column: &Column| {
        let schema = join.schema.as_ref();
        let is_edge = WINDOW_COLUMNS[..2].contains(&column.name.as_str());
        let data_type = Expr::Column(column.clone()).get_type(schema);
        !is_edge && matches!(data_type, Ok(DataType::Timestamp(_, _)))
    };
    let on = join.on.iter().flat_map(|(left, right)| [left, right]);
    let conditions = on.chain(&join.filter);
    let mut columns = conditions.flat_map(Expr::column_refs);
    columns.any(is_time)
}

/// One side of a comparison: an event time plus a constant.
struct Moved {
    side: usize,
    /// The index of the column on its side of the join.
    column: usize,
    by_ns: i128,
    /// Whether the column has a unit finer than microseconds.
    is_fine: bool,
}

/// A bound of the right event time minus the left one, and the columns that these are.
struct Bound {
    columns: [usize; 2],
    is_least: bool,
    us: EventTime,
    /// Whether the bound says everything that the condition says.
    is_exact: bool,
}

/// The bounds on a pair of event times, and which conditions they replace.
#[derive(Default)]
struct Interval {
    least: Option<EventTime>,
    most: Option<EventTime>,
    replaced: Vec<usize>,
}

/// The interval between two columns.
pub struct Found {
    /// The indices of the columns on the left and on the right side.
    pub columns: [usize; 2],
    /// The minimum and the maximum of the right time minus the left one, in microseconds.
    pub bounds: [EventTime; 2],
    /// The remaining conditions.
    pub filter: Option<Expr>,
}

impl Moved {
    fn of(expression: &Expr, plans: [&LogicalPlan; 2], streams: &[Stream; 2]) -> Option<Moved> {
        match expression {
            Expr::Alias(alias) => Moved::of(&alias.expr, plans, streams),
            Expr::Column(name) => {
                let numbers = [0, 1].map(|side| plans[side].schema().index_of_column(name).ok());
                let (side, column) = match numbers {
                    [Some(column), None] => (0, column),
                    [None, Some(column)] => (1, column),
                    _ => return None,
                };
                let data_type = plans[side].schema().field(column).data_type();
                let is_time = streams[side].roles[column] == Role::Time;
                is_time.then_some(Moved {
                    side,
                    column,
                    by_ns: 0,
                    is_fine: matches!(data_type, DataType::Timestamp(TimeUnit::Nanosecond, _)),
                })
            }
            // The planner casts both sides of a comparison to the finer of the two units. A cast to a coarser
            // unit changes the time.
            Expr::Cast(cast) => {
                let DataType::Timestamp(to, None) = cast.field.data_type() else {
                    return None;
                };
                let moved = Moved::of(&cast.expr, plans, streams)?;
                let data_type = plans[moved.side].schema().field(moved.column).data_type();
                let from = timestamp_unit(data_type)?;
                (*to >= from).then_some(moved)
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let (side, by_ns) = match (op, interval_ns(left), interval_ns(right)) {
                    (Operator::Plus, None, Some(by_ns)) => (left, by_ns),
                    (Operator::Plus, Some(by_ns), None) => (right, by_ns),
                    (Operator::Minus, None, Some(by_ns)) => (left, -by_ns),
                    _ => return None,
                };
                let moved = Moved::of(side, plans, streams)?;
                let by_ns = moved.by_ns + by_ns;
                Some(Moved { by_ns, ..moved })
            }
            _ => None,
        }
    }
}

impl Bound {
    /// The bound that `one op other` sets on the right time minus the left one.
    fn of(one: Moved, op: Operator, other: Moved) -> Option<Bound> {
        // right + by (op) left + by', hence right - left (op) by' - by.
        let (right, op, left) = match (one.side, other.side) {
            (1, 0) => (one, op, other),
            (0, 1) => (other, op.swap()?, one),
            _ => return None,
        };
        let ns = left.by_ns - right.by_ns;
        let (is_least, is_strict) = match op {
            Operator::Gt => (true, true),
            Operator::GtEq => (true, false),
            Operator::Lt => (false, true),
            Operator::LtEq => (false, false),
            _ => return None,
        };
        // Bounds are in microseconds. For finer times the bound is rounded up, and the condition itself is
        // evaluated as well.
        let is_exact = !left.is_fine && !right.is_fine && ns % 1_000 == 0;
        let strict_us = i128::from(is_strict && is_exact);
        let us = match is_least {
            true => ns.div_euclid(1_000) + strict_us,
            false => -((-ns).div_euclid(1_000)) - strict_us,
        };
        Some(Bound {
            columns: [left.column, right.column],
            is_least,
            us: EventTime::try_from(us).ok()?,
            is_exact,
        })
    }
}

/// The bound of a condition that compares a difference of times with a constant:
/// `b.ts - a.ts <= INTERVAL '1' DAY` is `b.ts <= a.ts + INTERVAL '1' DAY`.
fn of_difference(
    one: &Expr,
    op: Operator,
    other: &Expr,
    moved: &dyn Fn(&Expr) -> Option<Moved>,
) -> Option<Bound> {
    let (difference, op, by_ns) = match (interval_ns(one), interval_ns(other)) {
        (None, Some(by_ns)) => (one, op, by_ns),
        (Some(by_ns), None) => (other, op.swap()?, by_ns),
        _ => return None,
    };
    let mut difference = difference;
    // The planner casts the difference to an interval.
    while let Expr::Cast(cast) = difference {
        difference = &cast.expr;
    }
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::Minus,
        right,
    }) = difference
    else {
        return None;
    };
    let (left, right) = (moved(left)?, moved(right)?);
    let by_ns = right.by_ns + by_ns;
    Bound::of(left, op, Moved { by_ns, ..right })
}

/// The bounds that a condition sets if it compares event times.
fn bounds(condition: &Expr, plans: [&LogicalPlan; 2], streams: &[Stream; 2]) -> Vec<Bound> {
    let moved = |expression: &Expr| Moved::of(expression, plans, streams);
    let bound = |one: &Expr, op: Operator, other: &Expr| match (moved(one), moved(other)) {
        (Some(one), Some(other)) => Bound::of(one, op, other),
        _ => of_difference(one, op, other, &moved),
    };
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if *op == Operator::Eq => {
            let both = [Operator::GtEq, Operator::LtEq].map(|op| bound(left, op, right));
            both.into_iter().flatten().collect()
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            bound(left, *op, right).into_iter().collect()
        }
        Expr::Between(Between {
            expr,
            negated: false,
            low,
            high,
        }) => {
            let both = [
                bound(expr, Operator::GtEq, low),
                bound(expr, Operator::LtEq, high),
            ];
            // Both bounds, or none: one alone would replace the whole condition.
            both.into_iter()
                .collect::<Option<Vec<_>>>()
                .unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// The interval in which the conditions of a join keep two event times, if they bound it from both sides.
pub fn find(join: &Join, streams: &[Stream; 2]) -> Option<Found> {
    let plans = plans(join);
    let conditions = join.filter.as_ref().map(split_conjunction);
    let conditions = conditions.unwrap_or_default();
    let mut intervals = BTreeMap::<[usize; 2], Interval>::new();
    let mut note = |bound: &Bound, replaced: Option<usize>| {
        let interval = intervals.entry(bound.columns).or_default();
        if bound.is_least {
            interval.least = interval.least.max(Some(bound.us));
        } else {
            let most = interval.most.map_or(bound.us, |most| most.min(bound.us));
            interval.most = Some(most);
        }
        interval.replaced.extend(replaced);
    };
    for (number, condition) in conditions.iter().enumerate() {
        let all = bounds(condition, plans, streams);
        // A condition that also compares other times, or finer ones, remains a condition.
        let of_one = all.iter().all(|bound| bound.columns == all[0].columns);
        let is_replaced = of_one && all.iter().all(|bound| bound.is_exact);
        for bound in &all {
            note(bound, is_replaced.then_some(number));
        }
    }
    // Equality of event times is among the keys.
    for (left, right) in &join.on {
        let equal = left.clone().eq(right.clone());
        for bound in bounds(&equal, plans, streams) {
            note(&bound, None);
        }
    }
    intervals.into_iter().find_map(|(columns, interval)| {
        let bounds = [interval.least?, interval.most?];
        let left = conditions.iter().enumerate();
        let left = left.filter(|(number, _)| !interval.replaced.contains(number));
        Some(Found {
            columns,
            bounds,
            filter: conjunction(left.map(|(_, condition)| (*condition).clone())),
        })
    })
}
